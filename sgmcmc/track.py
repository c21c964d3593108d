"""One chain on its way: where it is, what it has kept, and how to take it a block further."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np
import tensorflow as tf

from sgmcmc.block import BlockResult
from sgmcmc.chain import Chain
from sgmcmc.feed import Feed
from sgmcmc.recorder import DRAWS


class Diverged(Exception):  # noqa: N818 - an event on the way to a DivergenceError
    """A chain has become NaN or infinite.

    Attributes:
        iterations: first and last iteration between which it happened.
        parameter: the parameter that was found so first.
    """

    def __init__(self, iterations: tuple[int, int], parameter: str) -> None:
        super().__init__(f"{parameter!r} diverged in iterations {iterations}")
        self.iterations = iterations
        self.parameter = parameter


class Track:
    """One chain on its way.

    Args:
        chain: the compiled chain.
        feed: what its blocks consume, with the estimator's state at the start.
        start: starting position, flat and unconstrained.
        kept: arrays that the kept draws are written to, by record; the first axis is the draw.
    """

    def __init__(
        self,
        chain: Chain,
        feed: Feed,
        start: np.ndarray,
        kept: Mapping[str, np.ndarray],
    ) -> None:
        self._chain = chain
        self._feed = feed
        self._kept = kept
        self.total = feed.total
        self.iteration = 0
        self.draws = 0
        self.log_post: list[tuple[int, float]] = []
        minibatch, stepsizes, normals = feed.start()
        self._carry = chain.start(tf.constant(start), feed.estimator, minibatch, stepsizes, normals)

    @property
    def finished(self) -> bool:
        """Whether all iterations have been run."""
        return self.iteration >= self.total

    def position(self) -> np.ndarray:
        """Return the present position, flat and unconstrained."""
        return self._carry.state.position.numpy()

    def prepare_on(self, executor: Executor | None) -> None:
        """Prepare each next block ahead on this executor, or on demand if there is none."""
        self._feed.executor = executor

    def advance(self) -> int:
        """Run the rest of the present block and return how many iterations that were.

        Raises:
            Diverged: the position is not finite at the end of the block.
        """
        length = self._chain.block_length
        block, offset = divmod(self.iteration, length)
        stop = min(length, offset + self.total - self.iteration)
        inputs = self._feed.block(block, is_last=self.iteration + stop - offset >= self.total)
        result = self._chain.run(self._carry, inputs, offset, stop, self.iteration + 1)
        end = self.iteration + stop - offset
        self._keep(result, end)
        if stop == length:
            self._feed.release()
        self._carry = result.carry
        self.iteration = end
        self.log_post.append((end, float(result.log_post)))
        return stop - offset

    def _keep(self, result: BlockResult, end: int) -> None:
        recorder = self._chain.recorder
        completed = recorder.completed(end) - self.draws
        records = {name: array.numpy()[:completed] for name, array in result.records.items()}
        diverged = not bool(result.finite)
        finite = _finite_rows(records.get(DRAWS), completed) if diverged else completed
        for name, array in records.items():
            self._kept[name][self.draws : self.draws + finite] = array[:finite]
        self.draws += finite
        if diverged:
            raise self._diverged(result, records.get(DRAWS), finite, end)

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
        return Diverged((before + 1, end), layout.parameter_at(first))


def _finite_rows(draws: np.ndarray | None, completed: int) -> int:
    """Return how many draws of a block there are before the first that is not finite."""
    if draws is None:
        return 0
    bad = np.flatnonzero(~np.isfinite(draws).all(axis=1))
    return int(bad[0]) if bad.size else completed
