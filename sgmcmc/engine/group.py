"""A group of chains that run together, in one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.block import BlockInputs, BlockResult, Carry
from sgmcmc.engine.buffers import Buffer, Pool
from sgmcmc.engine.diverged import Diverged
from sgmcmc.engine.group_kernel import GroupKernel, stack, unstack
from sgmcmc.engine.runner import Runner
from sgmcmc.graphs.compiler import Compiler


class GroupBuffers(NamedTuple):
    """What a block of a group is written into: row numbers, normals and stepsizes."""

    rows: Buffer
    noise: Buffer
    stepsizes: Buffer


def group_pool(kernel: GroupKernel, stepsizes: Stepsizes) -> Pool[GroupBuffers]:
    """Return the pool of groups that run in this kernel.

    Args:
        kernel: of a group, for its shapes.
        stepsizes: the stepsizes.
    """
    return Pool(partial(_buffers, kernel, stepsizes))


def _buffers(kernel: GroupKernel, stepsizes: Stepsizes) -> GroupBuffers:
    length, alone = kernel.length, kernel.alone
    dtype = np.dtype(alone.target.dtype.as_numpy_dtype)
    made = GroupBuffers(
        Buffer(*kernel.stream.rows(length)),
        Buffer((length, kernel.chains, alone.dynamics.normals, alone.target.size), dtype),
        Buffer((1 if stepsizes.constant else length, stepsizes.columns), dtype),
    )
    for buffer in made:  # places of chains that are through are read, too
        buffer.array[...] = 0
    return made


class Group:
    """Chains that run together.

    Each has its place in the kernel, whatever others do: what a chain draws does not depend on
    whether they are at the same iteration, or through, or lost.

    Args:
        kernel: the compiled chains.
        pool: the memory that blocks are prepared in.
        runners: by place; those that still have to run.
        goals: the iterations that each is to reach, by place.

    Attributes:
        estimate: the last log posterior estimate of one of them.
    """

    def __init__(
        self,
        kernel: GroupKernel,
        pool: Pool[GroupBuffers],
        runners: Mapping[int, Runner],
        goals: Mapping[int, int],
    ) -> None:
        self._kernel, self._pool, self._runners, self._goals = kernel, pool, runners, goals
        self._span = Buffer((3,), np.dtype(np.int32))
        self._buffers: GroupBuffers | None = None
        self._block: tuple[int, tuple[int, ...]] | None = None
        self._carry: Carry | None = None
        self._given: dict[int, Carry] = {}
        self.estimate = float("nan")

    @property
    def iteration(self) -> int:
        """The iterations that all of them have run; once all are through, their goal."""
        behind = [r.iteration for k, r in self._runners.items() if r.iteration < self._goals[k]]
        return min(behind, default=max(self._goals.values()))

    def compile(self, compiler: Compiler) -> bool:
        """Compile the kernel, in this thread; tell whether that worked."""
        at = self.iteration
        carry, inputs = self._stacked(), self._inputs(at // self._kernel.length)
        works = self._kernel.compile(compiler, carry, inputs)
        self._release()
        return works

    def advance(self, most: int | None = None) -> int:
        """Run the rest of a block of those that are farthest behind.

        Args:
            most: not looked at: each chain has a goal.

        Returns:
            How many iterations that were, of all chains.

        Raises:
            Diverged: a position is not finite at the end.
        """
        at, length = self.iteration, self._kernel.length
        here = [k for k, runner in self._runners.items() if runner.iteration == at]
        here = [k for k in here if at < self._goals[k]]
        block, offset = divmod(at, length)
        stop = min(length, *(offset + self._goals[k] - at for k in here))
        carry, inputs = self._stacked(), self._inputs(block)
        self._span.array[:] = offset, stop, at + 1
        result = self._kernel.run(carry, inputs, self._span.tensor())
        if stop == length or at + stop - offset == max(self._goals.values()):
            self._release()
        self._hand_out(result, here, at + stop - offset)
        return len(here) * (stop - offset)

    def _stacked(self) -> Carry:
        """Return what the iteration before left, of all chains."""
        known = self._carry is not None and all(
            runner.carry is self._given.get(k) for k, runner in self._runners.items()
        )
        if not known:
            some = next(iter(self._runners.values()))
            places = (self._runners.get(k, some) for k in range(self._kernel.chains))
            self._carry = stack([runner.carry for runner in places])
        assert self._carry is not None
        return self._carry

    def _inputs(self, block: int) -> BlockInputs:
        """Return what a block consumes, of the chains that are at it."""
        length = self._kernel.length
        wanted = tuple(
            k for k, runner in self._runners.items() if runner.iteration // length == block
        )
        if self._buffers is None:
            self._buffers = self._pool.take()
        buffers = self._buffers
        if self._block != (block, wanted):
            most = min(length, max(self._goals[k] for k in wanted) - block * length)
            rows = self._kernel.stream.places(buffers.rows.array)[:most]
            for k in wanted:
                prefetcher = self._runners[k].prefetcher
                prefetcher.draw(block, rows[:, k], buffers.noise.array[:most, k])
            first = self._runners[wanted[0]].prefetcher
            buffers.stepsizes.array[...] = first.stepsizes_of(block * length + 1)
            self._block = block, wanted
        seeds = tf.zeros([self._kernel.chains, 0], tf.int32)
        minibatches = {"rows": buffers.rows.tensor()}
        return BlockInputs(minibatches, buffers.noise.tensor(), buffers.stepsizes.tensor(), seeds)

    def _release(self) -> None:
        """Let the memory of the present block be used again."""
        if self._buffers is not None:
            self._pool.give_back(self._buffers)
        self._buffers = self._block = None

    def _hand_out(self, result: BlockResult, places: list[int], end: int) -> None:
        """Give each chain what is its own."""
        carries = unstack(result.carry, self._kernel.chains)
        records = {name: array.numpy() for name, array in result.records.items()}
        log_post, finite = result.log_post.numpy(), result.finite.numpy()
        # Those that were not run for themselves stay where they were.
        self._carry, self._given = result.carry, {}
        diverged: Diverged | None = None
        for k in places:
            own = {name: array[:, k] for name, array in records.items()}
            runner = self._runners[k]
            try:
                runner.take(BlockResult(carries[k], own, log_post[k], finite[k], {}), end)
            except Diverged as event:
                diverged = diverged or event
                continue
            self._given[k], self.estimate = runner.carry, runner.estimate
        if diverged is not None:
            raise diverged
