"""Chains that run together in one compiled kernel.

A single chain of a small model leaves the processor mostly idle: its matrices are too small. Here
each tensor has the chains as its first axis, and what an iteration does to one chain is done to
all of them by ``tf.vectorized_map``, which turns it into operations on the larger tensors. Each
chain has the same minibatches and random numbers as it would alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.dynamics import ExactDynamics
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.iteration import BlockInputs, BlockTensors, Carry
from sgmcmc.engine.kernel import BlockLoop, BlockResult, ChainStart, Kernel
from sgmcmc.engine.prefetcher import Buffer, Pool
from sgmcmc.engine.runner import Diverged, Runner
from sgmcmc.graphs.compiler import Compiled, Compiler
from sgmcmc.graphs.tracing import spec_of, trace
from sgmcmc.minibatches.streams import SharedStream


class GroupKernel:
    """The compiled function that runs the chains of a group.

    Arrays of a block have the iterations as their first axis and the chains as their second.
    ``single`` is the kernel of one chain, whose blocks are as long.
    """

    def __init__(self, single: Kernel, stream: SharedStream) -> None:
        self.single, self.stream, self.chains = single, stream, stream.chains
        self.length = single.length
        self._target = single.target
        self._iteration = replace(single.iteration, stream=stream.single_chain)
        self._loop = BlockLoop(single.recorder, single.length, (stream.chains,))
        self._exact = isinstance(single.dynamics, ExactDynamics)
        self._run: Compiled | None = None

    def compile(self, compiler: Compiler, carry: Carry, inputs: BlockInputs) -> bool:
        """Compile ``run``; return whether that worked."""
        arguments = (carry, self.stream.fixed, inputs, tf.constant([0, 1, 1, 0]))
        self._run = compiler.try_to_compile(self._block, *arguments)
        return self._run is not None

    def run(self, carry: Carry, inputs: BlockInputs, span: tf.Tensor) -> BlockResult:
        """Run some iterations of a block, of all chains; its minibatches are row numbers."""
        assert self._run is not None, "not compiled"
        return self._run(carry, self.stream.fixed, inputs, span)

    def _block(
        self, carry: Carry, fixed: Tensors, inputs: BlockInputs, span: tf.Tensor
    ) -> BlockResult:
        rows = inputs.minibatches["rows"]
        factors = carry.stepsize_factor[tf.newaxis, :, tf.newaxis]
        stepsizes = factors * inputs.stepsizes[:, tf.newaxis]

        def transition(
            i: tf.Tensor, now: tf.Tensor, past: tf.Tensor, carry: Carry
        ) -> tuple[Carry, Tensors]:
            """Return state and records after a move of all chains, of one stepsize."""
            dynamics, layout = self.single.dynamics, self._target.space.layout
            assert isinstance(dynamics, ExactDynamics)
            seeds = tf.gather(inputs.seeds, i)[:, 0]
            # In a loop, whose body is compiled once, not for each chain.
            one = dynamics.drawn(seeds[0], layout.size)
            drawn = tf.map_fn(
                lambda seed: dynamics.drawn(seed, layout.size),
                seeds,
                fn_output_signature=tf.nest.map_structure(spec_of, one),
            )
            stepsize = layout.per_coordinate(
                tf.gather(stepsizes, 0 if stepsizes.shape[0] == 1 else i)[0]
            )
            columns = self.stream.single_chain.minibatch(fixed, {}, i).columns

            def of_one(inputs_of_chain: tuple[Carry, Any]) -> tuple[Carry, Tensors]:
                carry, seed = inputs_of_chain
                carry = self._iteration.move(carry, columns, stepsize, seed, now)
                return self._loop.fold(carry, past)

            return _for_each((carry, drawn), of_one)

        def iterate(
            i: tf.Tensor, now: tf.Tensor, past: tf.Tensor, carry: Carry
        ) -> tuple[Carry, Tensors]:
            def of_one(
                inputs_of_chain: tuple[Carry, BlockInputs],
            ) -> tuple[Carry, Tensors]:
                carry, inputs = inputs_of_chain
                no_step = tf.constant(-1)
                block = BlockTensors(fixed, inputs, no_step)
                carry = self._iteration.run(carry, block, tf.constant(0), now)
                return self._loop.fold(carry, past)

            consumed = BlockInputs(
                self.stream.of_iteration(fixed, rows, i),
                tf.gather(inputs.normals, i)[:, tf.newaxis],
                tf.gather(stepsizes, 0 if stepsizes.shape[0] == 1 else i)[
                    :, tf.newaxis
                ],
                tf.zeros([self.chains, 0], tf.int32),
            )
            return _for_each((carry, consumed), of_one)

        run_one = transition if self._exact else iterate
        carry, records = self._loop.run(span, carry, run_one)
        return BlockResult(
            carry,
            records,
            self._log_post(carry, fixed, rows, tf.unstack(span)[1] - 1),
            tf.reduce_all(tf.math.is_finite(carry.state.position), axis=-1),
            {},
        )

    def _log_post(
        self, carry: Carry, fixed: Tensors, rows: tf.Tensor, i: tf.Tensor
    ) -> tf.Tensor:
        if self._exact:
            return carry.state.log_post
        last = tf.constant(self.single.dynamics.steps - 1)

        def of_one(inputs_of_chain: tuple[tf.Tensor, Tensors]) -> tf.Tensor:
            position, block = inputs_of_chain
            return self._target.log_post(
                position, self.stream.single_chain.minibatch(fixed, block, last)
            )

        block = self.stream.of_iteration(fixed, rows, i)
        return _for_each((carry.state.position, block), of_one)


def _for_each(inputs: Any, function: Any) -> Any:
    """Return a function's results for each chain; chains are the first axis of all tensors."""
    return tf.vectorized_map(function, inputs, fallback_to_while_loop=False)


def begin_together(
    kernel: Kernel, stream: SharedStream, starts: Sequence[ChainStart]
) -> list[Carry]:
    """Return the carries at the start of several chains, a group of them from one call of a graph.

    ``starts`` has the arguments of :meth:`Kernel.init` for each chain.
    """
    first, chains = starts[0], stream.chains
    function = kernel.initialiser(first.minibatch)
    stacked_names = ["position", "estimator", "normals"]
    if stream.draws_rows:
        stacked_names.append("minibatch")

    def together(stacked: dict[str, Any], shared: dict[str, Any]) -> Carry:
        return _for_each(stacked, lambda one: function(ChainStart(**one, **shared)))

    def of(start: ChainStart) -> dict[str, Any]:
        weights = start.minibatch.weights
        weights = () if isinstance(weights, float) else weights
        return {
            **start._asdict(),
            "minibatch": start.minibatch._replace(weights=weights),
        }

    shared = {
        name: value for name, value in of(first).items() if name not in stacked_names
    }
    graph, carries = None, []
    for begin in range(0, len(starts), chains):
        arguments = [of(start) for start in starts[begin : begin + chains]]
        padded = [*arguments, *[arguments[0]] * (chains - len(arguments))]
        stacked = stack(
            [{name: start[name] for name in stacked_names} for start in padded]
        )
        graph = graph or trace(together, stacked, shared)
        carries += unstack(graph(stacked, shared), len(arguments))
    # As tensors: should the group not be compiled, each goes on by itself.
    return [tf.nest.map_structure(tf.constant, carry) for carry in carries]


def stack(structures: Sequence[Any]) -> Any:
    """Return one structure of tensors whose first axis counts the given ones."""
    return tf.nest.map_structure(
        lambda *leaves: tf.constant(np.stack(leaves)), *structures
    )


def unstack(structure: Any, count: int) -> list[Any]:
    """Return structures of arrays, one for each of the first entries of the first axis."""
    arrays = [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]
    return [
        tf.nest.pack_sequence_as(structure, [array[k] for array in arrays])
        for k in range(count)
    ]


class GroupBuffers(NamedTuple):
    """Memory of a block of a group: row numbers, normals, stepsizes and seeds."""

    rows: Buffer
    normals: Buffer
    stepsizes: Buffer
    seeds: Buffer


def group_pool(kernel: GroupKernel, stepsizes: Stepsizes) -> Pool[GroupBuffers]:
    """Return the pool of groups that run in this kernel."""
    return Pool(partial(_buffers, kernel, stepsizes))


def _buffers(kernel: GroupKernel, stepsizes: Stepsizes) -> GroupBuffers:
    length, single = kernel.length, kernel.single
    dtype = np.dtype(single.target.dtype.as_numpy_dtype)
    made = GroupBuffers(
        Buffer(*kernel.stream.rows(length)),
        Buffer(
            (length, kernel.chains, single.dynamics.normals, single.target.size), dtype
        ),
        Buffer((1 if stepsizes.constant else length, stepsizes.columns), dtype),
        Buffer(
            (length, kernel.chains, single.iteration.seeds_of_step, 2),
            np.dtype(np.int32),
        ),
    )
    for buffer in made:  # places of chains that are through are read, too
        buffer.array[...] = 0
    return made


class Group:
    """Chains that run together.

    Each has its place in the kernel, whatever others do: a chain's draws do not depend on whether
    the others are at the same iteration, finished, or diverged.

    Args:
        runners: Runners that still have to run, by place.
        goals: Iterations that each should reach, by place.

    Attributes:
        estimate: Last log posterior estimate of one of them.
    """

    def __init__(
        self,
        kernel: GroupKernel,
        pool: Pool[GroupBuffers],
        runners: Mapping[int, Runner],
        goals: Mapping[int, int],
    ) -> None:
        self._kernel, self._pool = kernel, pool
        self._runners, self._goals = runners, goals
        self._span = Buffer((4,), np.dtype(np.int32))
        self._buffers: GroupBuffers | None = None
        self._block: tuple[int, tuple[int, ...]] | None = None
        self._carry: Carry | None = None
        self._handed_out: dict[int, Carry] = {}
        self.estimate = float("nan")

    @property
    def iteration(self) -> int:
        """The iterations that all of them have run; once all are through, their goal."""
        behind = [
            r.iteration
            for k, r in self._runners.items()
            if r.iteration < self._goals[k]
        ]
        return min(behind, default=max(self._goals.values()))

    def compile(self, compiler: Compiler) -> bool:
        """Compile the kernel, in this thread; return whether that worked."""
        at = self.iteration
        carry = self._stacked()
        inputs = self._inputs(at // self._kernel.length)
        works = self._kernel.compile(compiler, carry, inputs)
        self._release()
        return works

    def advance(self, max_iterations: int | None = None, part: bool = False) -> int:
        """Run the rest of a block of those that are farthest behind.

        Returns the number of iterations, over all chains; of each at most ``max_iterations`` if
        this is a ``part`` of the way to the goal.

        Raises:
            Diverged: A position is not finite at the end.
        """
        at, length = self.iteration, self._kernel.length
        behind = [k for k, runner in self._runners.items() if runner.iteration == at]
        behind = [k for k in behind if at < self._goals[k]]
        block, offset = divmod(at, length)
        stop = min(length, *(offset + self._goals[k] - at for k in behind))
        if part and max_iterations is not None:
            stop = min(stop, offset + max_iterations)
        carry, inputs = self._stacked(), self._inputs(block)
        burn_in = self._kernel.single.recorder.burn_in
        self._span.array[:] = offset, stop, at + 1, burn_in
        result = self._kernel.run(carry, inputs, self._span.tensor())
        if stop == length or at + stop - offset == max(self._goals.values()):
            self._release()
        self._hand_out(result, behind, at + stop - offset, part)
        return len(behind) * (stop - offset)

    def _stacked(self) -> Carry:
        """Return the state after the last iteration, of all chains."""
        unchanged = self._carry is not None and all(
            runner.carry is self._handed_out.get(k)
            for k, runner in self._runners.items()
        )
        if not unchanged:
            some = next(iter(self._runners.values()))
            runners = (self._runners.get(k, some) for k in range(self._kernel.chains))
            self._carry = stack([runner.carry for runner in runners])
        assert self._carry is not None
        return self._carry

    def _inputs(self, block: int) -> BlockInputs:
        length = self._kernel.length
        chains = tuple(
            k
            for k, runner in self._runners.items()
            if runner.iteration // length == block
        )
        if self._buffers is None:
            self._buffers = self._pool.take()
        buffers = self._buffers
        if self._block != (block, chains):
            iterations = min(
                length, max(self._goals[k] for k in chains) - block * length
            )
            rows = self._kernel.stream.rows_by_chain(buffers.rows.array)[:iterations]
            for k in chains:
                prefetcher = self._runners[k].prefetcher
                normals = buffers.normals.array[:iterations, k]
                seeds = buffers.seeds.array[:, k]
                prefetcher.draw(block, rows[:, k], normals, seeds)
            first = self._runners[chains[0]].prefetcher
            buffers.stepsizes.array[...] = first.stepsizes_of(block * length + 1)
            self._block = block, chains
        minibatches = {"rows": buffers.rows.tensor()}
        _, *tensors = (buffer.tensor() for buffer in buffers)
        return BlockInputs(minibatches, *tensors)

    def _release(self) -> None:
        if self._buffers is not None:
            self._pool.give_back(self._buffers)
        self._buffers = self._block = None

    def _hand_out(
        self, result: BlockResult, chains: list[int], end: int, part: bool
    ) -> None:
        carries = unstack(result.carry, self._kernel.chains)
        records = {name: array.numpy() for name, array in result.records.items()}
        log_post, finite = result.log_post.numpy(), result.finite.numpy()
        # Those that were not run for themselves stay where they were.
        self._carry, self._handed_out = result.carry, {}
        diverged: Diverged | None = None
        for k in chains:
            chain_records = {name: array[:, k] for name, array in records.items()}
            runner = self._runners[k]
            try:
                runner.take(
                    BlockResult(carries[k], chain_records, log_post[k], finite[k], {}),
                    end,
                    part,
                )
            except Diverged as event:
                diverged = diverged or event
                continue
            self._handed_out[k], self.estimate = runner.carry, runner.estimate
        if diverged is not None:
            raise diverged
