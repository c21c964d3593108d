"""One chain on its way: where it is, what it has kept, and how to take it further."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.block import BlockInputs, BlockResult
from sgmcmc.buffers import Buffer
from sgmcmc.chain import Chain
from sgmcmc.feed import Feed
from sgmcmc.minibatches import NeedsXLA, Tensors
from sgmcmc.recorder import DRAWS, LOG_POST
from sgmcmc.simplex import WHAT_LOG_LIK_MUST_BE

Snapshot = dict[str, np.ndarray]


class Rows(Protocol):
    """A place that rows are written to, in memory or on disk."""

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        """Write these rows."""


class Diverged(Exception):  # noqa: N818 - an event on the way to a DivergenceError
    """A chain has become NaN or infinite.

    Attributes:
        iterations: first and last iteration between which it happened.
        parameter: the parameter that was found so first.
        advice: what to do about it, where that is not to take a smaller stepsize.
    """

    def __init__(self, iterations: tuple[int, int], parameter: str, advice: str | None) -> None:
        super().__init__(f"{parameter!r} diverged in iterations {iterations}")
        self.iterations = iterations
        self.parameter = parameter
        self.advice = advice


class Track:
    """One chain on its way.

    Args:
        chain: the compiled chain.
        feed: what its blocks consume, with the estimator's state at the start.
        start: starting position, flat and unconstrained.
        kept: where the kept draws are written to, by record, and the log posterior estimate at
            the end of each block.
        checkpoint: called after each block, to save where the chain is.

    Attributes:
        iteration: iterations run so far.
        draws: draws kept so far.
        blocks: log posterior estimates kept so far.
        estimate: the last log posterior estimate; NaN step by step.
        shown: step by step, the user's parameters as the last run left them.
    """

    def __init__(
        self,
        chain: Chain,
        feed: Feed,
        start: np.ndarray,
        kept: Mapping[str, Rows],
        checkpoint: Callable[[Track], None] | None = None,
    ) -> None:
        self._chain = chain
        self._feed = feed
        self._kept = kept
        self._checkpoint = checkpoint
        self.total = feed.total
        self.iteration = self.draws = self.blocks = 0
        self.estimate = float("nan")
        self.shown: Tensors = {}
        self._span = Buffer((3,), np.dtype(np.int32))
        self._carry = chain.start(tf.constant(start), feed.estimator, feed.start())

    @property
    def finished(self) -> bool:
        """Whether all iterations have been run."""
        return self.iteration >= self.total

    def position(self) -> np.ndarray:
        """Return the present position, flat and unconstrained."""
        return self._carry.state.position.numpy()

    def reductions(self) -> dict[str, Any]:
        """Return what the running reductions have come to."""
        return self._chain.recorder.results(self._carry.reductions)

    def prepare_on(self, executor: Executor | None) -> None:
        """Prepare each next block ahead on this executor, or on demand if there is none."""
        self._feed.executor = executor

    def snapshot(self) -> Snapshot:
        """Return all that is needed to go on from here."""
        counts = {"iteration": self.iteration, "draws": self.draws, "blocks": self.blocks}
        leaves = {f"carry/{i}": leaf.numpy() for i, leaf in enumerate(tf.nest.flatten(self._carry))}
        return {
            **{name: np.array(count) for name, count in counts.items()},
            "estimate": np.array(self.estimate),
            **leaves,
        }

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Go on from where a snapshot was taken."""
        leaves = [snapshot[f"carry/{i}"] for i in range(len(tf.nest.flatten(self._carry)))]
        self._carry = tf.nest.pack_sequence_as(self._carry, [tf.constant(leaf) for leaf in leaves])
        self.iteration, self.draws, self.blocks = (
            int(snapshot[name]) for name in ("iteration", "draws", "blocks")
        )
        self.estimate = float(snapshot["estimate"])

    def compile(self) -> None:
        """Compile the chain, in this thread, and prepare the present block for that."""
        block, offset = divmod(self.iteration, self._chain.block_length)
        try:
            self._chain.compile(self._carry, self._inputs(block, offset))
        except NeedsXLA:
            self._feed.prepare_plainly()
            self._chain.compile(self._carry, self._inputs(block, offset))

    def _inputs(self, block: int, offset: int) -> BlockInputs:
        """Return what a block consumes, of which ``offset`` iterations have been run."""
        left = self._chain.block_length - offset
        return self._feed.block(block, is_last=self.iteration + left >= self.total)

    def advance(self, most: int | None = None) -> int:
        """Run the rest of the present block and return how many iterations that were.

        Args:
            most: run no more iterations than that.

        Raises:
            Diverged: the position is not finite at the end.
        """
        length = self._chain.block_length
        block, offset = divmod(self.iteration, length)
        left = self.total - self.iteration if most is None else most
        stop = min(length, offset + left)
        inputs = self._inputs(block, offset)
        self._span.array[:] = offset, stop, self.iteration + 1
        result = self._chain.run(self._carry, inputs, self._span.tensor())
        end = self.iteration + stop - offset
        self._keep(result, end)
        if stop == length:
            self._feed.release()
        self._carry, self.shown = result.carry, result.shown
        self.iteration = end
        if self._checkpoint is not None:
            self._checkpoint(self)
        return stop - offset

    def _keep(self, result: BlockResult, end: int) -> None:
        recorder = self._chain.recorder
        first = recorder.completed(self.iteration)
        completed = recorder.completed(end) - first
        records = {name: array.numpy()[:completed] for name, array in result.records.items()}
        diverged = not bool(result.finite)
        finite = _finite_rows(records.get(DRAWS), completed) if diverged else completed
        for name, array in records.items():
            self._kept[name][first : first + finite] = array[:finite]
        self.draws = first + finite
        if diverged:
            raise self._diverged(result, records.get(DRAWS), finite, end)
        self.estimate = float(result.log_post)
        if LOG_POST in self._kept:
            row = np.array([[end, self.estimate]])
            self._kept[LOG_POST][self.blocks : self.blocks + 1] = row
            self.blocks += 1

    def _diverged(
        self, result: BlockResult, draws: np.ndarray | None, finite: int, end: int
    ) -> Diverged:
        recorder, before = self._chain.recorder, self.iteration
        bad, layout = result.carry.state.position.numpy(), recorder.model.layout
        if draws is not None and finite < len(draws):
            bad, layout = draws[finite], recorder.draw_layout
            end = recorder.burn_in + (self.draws + 1) * recorder.thin
            if finite:
                before = end - recorder.thin
        first = int(np.flatnonzero(~np.isfinite(bad))[0])
        name, simplex = layout.parameter_at(first), recorder.model.simplex
        return Diverged(
            (before + 1, end),
            name,
            "Unless its stepsize is far too large, its expected counts ω ∂log_lik/∂ω came out "
            f"negative. {WHAT_LOG_LIK_MUST_BE}"
            if name in simplex
            else None,
        )


def _finite_rows(draws: np.ndarray | None, completed: int) -> int:
    """Return how many draws of a block there are before the first that is not finite."""
    if draws is None:
        return 0
    bad = np.flatnonzero(~np.isfinite(draws).all(axis=1))
    return int(bad[0]) if bad.size else completed
