"""One running chain: its state, its draws, its continuation and its divergence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.iteration import BlockInputs, Carry
from sgmcmc.engine.kernel import BlockResult
from sgmcmc.engine.prefetcher import Buffer, Prefetcher
from sgmcmc.gradients import WholeData
from sgmcmc.graphs.compiler import Compiler
from sgmcmc.results.schema import DRAWS, LOG_POST, estimates_apart


class Diverged(Exception):  # noqa: N818 - an event on the way to a DivergenceError
    """A chain has become NaN or infinite.

    Attributes:
        iterations: First and last iteration between which it happened.
        parameter: First parameter that was found so.
        advice: Advice, if it is not to use a smaller stepsize.
    """

    def __init__(
        self, iterations: tuple[int, int], parameter: str, advice: str | None
    ) -> None:
        super().__init__(f"{parameter!r} diverged in iterations {iterations}")
        self.iterations = iterations
        self.parameter = parameter
        self.advice = advice


def finite_rows(draws: np.ndarray | None, completed: int) -> int:
    """Return the number of draws of a block before the first that is not finite."""
    if draws is None:
        return 0
    bad = np.flatnonzero(~np.isfinite(draws).all(axis=1))
    return int(bad[0]) if bad.size else completed


Snapshot = dict[str, np.ndarray]


class RowWriter(Protocol):
    """Array to which rows are written, in memory or on disk."""

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        """Write these rows."""


class Runner:
    """One running chain.

    Args:
        prefetcher: Inputs of its blocks, with the kernel that runs them.
        whole: Target with the whole dataset, for the gradient estimator.
        carry: State that the chain starts from; for one that is restored next, the structure is
            enough.
        records: Arrays to which the kept draws are written, by record, and the log posterior
            estimates, which are made whenever the kernel stops.
        checkpoint: Function called after each block, to save the state of the chain.

    Attributes:
        total: Total number of iterations.
        stops: Whether the chain stops within blocks, for a hundred log posterior estimates. If
            chains share a kernel, stopping it takes as long as many iterations.
        iteration, draws, blocks: Numbers of iterations run, draws kept and log posterior estimates
            kept so far.
        estimate: Last log posterior estimate; NaN step by step.
        params: User's parameters after the last run, step by step.
    """

    def __init__(
        self,
        prefetcher: Prefetcher,
        whole: WholeData,
        carry: Carry,
        records: Mapping[str, RowWriter],
        checkpoint: Callable[[Runner], None] | None = None,
    ) -> None:
        self.prefetcher = prefetcher
        self._kernel = prefetcher.kernel
        self.recorder = self._kernel.recorder
        self._whole = whole
        self.records = records
        self._checkpoint = checkpoint
        self.total = prefetcher.source.total
        self.stops = True
        self.iteration = self.draws = self.blocks = 0
        self._in_part = False
        self.estimate = float("nan")
        self.params: Tensors = {}
        self._span = Buffer((4,), np.dtype(np.int32))
        self._refresh_every = self._kernel.gradient.refresh_every(whole)
        self.carry = carry

    @property
    def finished(self) -> bool:
        """Whether all iterations have been run."""
        return self.iteration >= self.total

    @property
    def chain(self) -> int:
        """The number of the chain."""
        return self.prefetcher.chain

    @property
    def mode(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        """The mode at which the gradient estimate stays centered, and the gradient there, flat."""
        return self._kernel.gradient.mode(self.carry.estimator)

    def position(self) -> np.ndarray:
        """Return the present position, flat."""
        return np.asarray(self.carry.state.position)

    def scale_stepsizes(self, factor: float) -> None:
        """Multiply the stepsizes that the phase began with by this, from the next block on."""
        factor_now = tf.constant(factor, self.carry.stepsize_factor.dtype)
        self.carry = self.carry._replace(stepsize_factor=factor_now)

    def change_state(self, change: Callable[[Any], Any]) -> None:
        """Let a phase change the state of the dynamics between two blocks."""
        self.carry = self.carry._replace(state=change(self.carry.state))

    def facts(self) -> dict[str, float]:
        """Return the dynamics' diagnostics of the moves so far, by name."""
        return self._kernel.dynamics.facts(self.carry.state)

    def reductions(self) -> dict[str, Any]:
        """Return the results of the running reductions."""
        return self.recorder.results(self.carry.reductions)

    def prepare_ahead(self, enabled: bool) -> None:
        """Prepare each next block on a separate thread, or on demand."""
        self.prefetcher.prepare_ahead(enabled)

    def snapshot(self) -> Snapshot:
        """Return the state needed to continue from here."""
        counts = {
            "iteration": self.iteration,
            "draws": self.draws,
            "blocks": self.blocks,
        }
        flat = tf.nest.flatten(self.carry)
        leaves = {f"carry/{i}": np.asarray(leaf) for i, leaf in enumerate(flat)}
        return {
            **{name: np.array(count) for name, count in counts.items()},
            "estimate": np.array(self.estimate),
            **leaves,
        }

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Restore a snapshot."""
        leaves = [
            snapshot[f"carry/{i}"] for i in range(len(tf.nest.flatten(self.carry)))
        ]
        self.carry = tf.nest.pack_sequence_as(
            self.carry, [tf.constant(leaf) for leaf in leaves]
        )
        self.iteration, self.draws, self.blocks = (
            int(snapshot[name]) for name in ("iteration", "draws", "blocks")
        )
        self.estimate = float(snapshot["estimate"])

    def take_over(
        self,
        snapshot: Mapping[str, np.ndarray],
        rows_by_record: Mapping[str, tuple[int, np.ndarray]],
    ) -> None:
        """Take over a run from elsewhere.

        ``rows_by_record`` has the first row and the rows kept meanwhile, by record.
        """
        for name, (first, rows) in rows_by_record.items():
            self.records[name][first : first + len(rows)] = rows
        self.restore(snapshot)

    def save(self) -> None:
        """Save the state of the chain, if there is a store."""
        if self._checkpoint is not None:
            self._checkpoint(self)

    def stops_at(self, iteration: int) -> bool:
        """Return whether a run of this length stops after this iteration."""
        return iteration == self.total or any(
            iteration % length == 0 for length in self._lengths
        )

    def go_on(self, estimates: np.ndarray) -> bool:
        """Drop the last log posterior estimate if it was made only because the chain ended.

        Returns whether it was. The rows of ``estimates`` begin with the iteration of each.
        """
        dropped = self.blocks > 0 and not self.stops_at(int(estimates[-1, 0]))
        self.blocks -= dropped
        return dropped

    @property
    def _lengths(self) -> tuple[int, ...]:
        """The numbers of iterations after each of which a run stops."""
        lengths = [self._kernel.length]
        if self._refresh_every is not None:
            lengths.append(self._refresh_every)
        if self.stops and LOG_POST in self.records:
            lengths.append(estimates_apart(self.total, self._kernel.length))
        return tuple(lengths)

    def compile(self, compiler: Compiler) -> bool:
        """Compile the kernel, in this thread, for the present block; return whether XLA could."""
        block, offset = divmod(self.iteration, self._kernel.length)
        return self._kernel.compile(compiler, self.carry, self._inputs(block, offset))

    def _inputs(self, block: int, offset: int) -> BlockInputs:
        """Return the inputs of a block of which ``offset`` iterations have been run."""
        left = self._kernel.length - offset
        return self.prefetcher.block(block, is_last=self.iteration + left >= self.total)

    def advance(self, max_iterations: int | None = None, part: bool = False) -> int:
        """Run the rest of the present block, at most ``max_iterations``, and return how many ran.

        They are fewer if the gradient estimator must be refreshed before the end of the block, or
        an estimate of the log posterior is due. If this is a ``part`` of a segment, the estimate at
        its end is replaced by that of the next.

        Raises:
            Diverged: The position is not finite at the end.
        """
        length = self._kernel.length
        block, offset = divmod(self.iteration, length)
        left = self.total - self.iteration if max_iterations is None else max_iterations
        stop = min(length, offset + left)
        carry = self.carry
        if self._refresh_every is not None:
            visit, past = divmod(self.iteration, self._refresh_every)
            if visit and not past:
                gradient, estimator = self._kernel.gradient.refresh(
                    self._whole, carry.estimator, self.position(), visit
                )
                carry = carry._replace(estimator=estimator)
                if gradient is not None:
                    carry = carry._replace(gradient=tf.constant(gradient))
        stop = min(stop, *(offset + n - self.iteration % n for n in self._lengths))
        inputs = self._inputs(block, offset)
        self._span.array[:] = offset, stop, self.iteration + 1, self.recorder.burn_in
        result = self._kernel.run(carry, inputs, self._span.tensor())
        end = self.iteration + stop - offset
        self.take(result, end, part)
        if stop == length or end == self.total:
            self.prefetcher.release()
        return stop - offset

    def take(self, result: BlockResult, end: int, part: bool = False) -> None:
        """Keep the results of the iterations up to ``end``, and continue from there.

        Raises:
            Diverged: The position is not finite at the end.
        """
        self.blocks -= self._in_part
        self._keep(result, end)
        self._in_part = part and LOG_POST in self.records and not self.stops_at(end)
        self.carry, self.params = result.carry, result.params
        self.iteration = end
        self.save()

    def _keep(self, result: BlockResult, end: int) -> None:
        recorder = self.recorder
        first = recorder.completed(self.iteration)
        completed = recorder.completed(end) - first
        records = {
            name: np.asarray(array)[:completed]
            for name, array in result.records.items()
            if name in self.records
        }
        diverged = not bool(result.finite)
        finite = finite_rows(records.get(DRAWS), completed) if diverged else completed
        for name, array in records.items():
            self.records[name][first : first + finite] = array[:finite]
        self.draws = first + finite
        if diverged:
            raise self._divergence(result, records.get(DRAWS), finite, end)
        self.estimate = float(result.log_post)
        if LOG_POST in self.records:
            row = np.array([[end, self.estimate]])
            self.records[LOG_POST][self.blocks : self.blocks + 1] = row
            self.blocks += 1

    def _divergence(
        self, result: BlockResult, draws: np.ndarray | None, finite: int, end: int
    ) -> Diverged:
        """Return the event of a divergence.

        Args:
            result: Result of the block.
            draws: Draws kept in this block; ``None`` if none are kept.
            finite: Number of these before the first that is not finite.
            end: Last iteration that was run.
        """
        recorder, space = self.recorder, self.recorder.target.space
        start = self.iteration
        bad, layout = np.asarray(result.carry.state.position), space.layout
        if draws is not None and finite < len(draws):
            bad, layout = draws[finite], recorder.draw_layout
            end = recorder.burn_in + (self.draws + 1) * recorder.thin
            if finite:
                start = end - recorder.thin
        first = int(np.flatnonzero(~np.isfinite(bad))[0])
        name = layout.parameter_at(first)
        advice = self._kernel.dynamics.advice(result.carry.state)
        if advice is None and self._kernel.latents is not None:
            advice = self._kernel.latents.advice
        return Diverged((start + 1, end), name, advice or space.geometries[name].advice)
