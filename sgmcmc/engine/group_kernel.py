"""The kernel of a group of chains: one compiled block of iterations of all of them.

A single chain of a small model leaves the processor mostly idle: its matrices are too small. Here
each tensor has the chains as its first axis, and what an iteration does to one chain is done to
all of them by ``tf.vectorized_map``, which turns it into operations on the larger tensors. Each
chain sees the same minibatches and random numbers as it would alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Tensors
from sgmcmc.engine.block import BlockInputs, BlockResult, Carry
from sgmcmc.engine.iteration import Iteration
from sgmcmc.engine.kernel import Kernel, Start
from sgmcmc.engine.loop import folded, recorded
from sgmcmc.graphs.compiler import Compiled, Compiler
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches.shared import SharedStream


class GroupKernel:
    """The compiled function that runs the chains of a group.

    Arrays of a block have the iterations as their first axis and the chains as their second.

    Args:
        alone: the kernel of a single chain.
        stream: the minibatches of all.

    Attributes:
        alone, stream: as given.
        chains: how many there are.
        length: iterations in a block, as many as in that of a single chain.
    """

    def __init__(self, alone: Kernel, stream: SharedStream) -> None:
        self.alone, self.stream, self.chains = alone, stream, stream.chains
        self.length = alone.length
        self._recorder, self._target = alone.recorder, alone.target
        self._iteration = Iteration(
            alone.target, alone.dynamics, alone.gradient, stream.each, alone.recorder,
            unseen=alone.iteration.unseen,
        )  # fmt: skip
        self._run: Compiled | None = None

    def compile(self, compiler: Compiler, carry: Carry, inputs: BlockInputs) -> bool:
        """Compile what ``run`` runs; tell whether that worked, which it need not."""
        arguments = (carry, self.stream.fixed, inputs, tf.constant([0, 1, 1]))
        self._run = compiler.try_to_compile(self._block, *arguments)
        return self._run is not None

    def run(self, carry: Carry, inputs: BlockInputs, span: tf.Tensor) -> BlockResult:
        """Run some iterations of a block.

        Args:
            carry: what the iteration before left, of all chains.
            inputs: what the whole block consumes; the minibatches are row numbers.
            span: as for a single chain.
        """
        assert self._run is not None, "not compiled"
        return self._run(carry, self.stream.fixed, inputs, span)

    def _block(
        self, carry: Carry, fixed: Tensors, inputs: BlockInputs, span: tf.Tensor
    ) -> BlockResult:
        rows, recorder = inputs.minibatches["rows"], self._recorder
        factors = carry.stepsize_factor[tf.newaxis, :, tf.newaxis]
        stepsizes = factors * inputs.stepsizes[:, tf.newaxis]

        def iterate(i: tf.Tensor, now: tf.Tensor, carry: Carry) -> tuple[Carry, Tensors]:
            def of_one(given: tuple[Carry, BlockInputs]) -> tuple[Carry, Tensors]:
                carry, inputs = given
                none = tf.constant(-1)
                carry = self._iteration.run(carry, fixed, inputs, tf.constant(0), none)
                return folded(recorder, carry, now)

            consumed = BlockInputs(
                self.stream.of_iteration(fixed, rows, i),
                tf.gather(inputs.noise, i)[:, tf.newaxis],
                tf.gather(stepsizes, 0 if stepsizes.shape[0] == 1 else i)[:, tf.newaxis],
                tf.zeros([self.chains, 0], tf.int32),
            )
            return _for_each((carry, consumed), of_one)

        carry, records = recorded(recorder, self.length, span, carry, iterate, (self.chains,))
        return BlockResult(
            carry,
            records,
            self._log_post(carry, fixed, rows, tf.unstack(span)[1] - 1),
            tf.reduce_all(tf.math.is_finite(carry.state.position), axis=-1),
            {},
        )

    def _log_post(self, carry: Carry, fixed: Tensors, rows: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        """Return the log posterior estimates from the minibatches of an iteration's last step."""
        last = tf.constant(self.alone.dynamics.steps - 1)

        def of_one(given: tuple[tf.Tensor, Tensors]) -> tf.Tensor:
            position, block = given
            return self._target.log_post(position, self.stream.each.minibatch(fixed, block, last))

        block = self.stream.of_iteration(fixed, rows, i)
        return _for_each((carry.state.position, block), of_one)


def _for_each(given: Any, function: Any) -> Any:
    """Return what a function returns for each chain; the chains are the first axis of all."""
    return tf.vectorized_map(function, given, fallback_to_while_loop=False)


def begin_together(kernel: Kernel, stream: SharedStream, given: Sequence[Start]) -> list[Carry]:
    """Return the carries at the start of several chains, a group of them from one call of a graph.

    Args:
        kernel: of a single chain.
        stream: the minibatches of a group.
        given: what :meth:`Kernel.init` takes, for each chain.
    """
    first, chains = given[0], stream.chains
    function = kernel.initialiser(first.minibatch)
    own = ["position", "estimator", "normals", *(["minibatch"] if stream.draws_rows else [])]

    def together(stacked: dict[str, Any], shared: dict[str, Any]) -> Carry:
        return _for_each(stacked, lambda one: function(**one, **shared))

    def of(start: Start) -> dict[str, Any]:
        weights = start.minibatch.weights
        weights = () if isinstance(weights, float) else weights
        return {**start._asdict(), "minibatch": start.minibatch._replace(weights=weights)}

    shared = {name: value for name, value in of(first).items() if name not in own}
    graph, carries = None, []
    for begin in range(0, len(given), chains):
        some = [of(start) for start in given[begin : begin + chains]]
        padded = [*some, *[some[0]] * (chains - len(some))]
        stacked = stack([{name: start[name] for name in own} for start in padded])
        graph = graph or trace(together, stacked, shared)
        carries += unstack(graph(stacked, shared), len(some))
    # As tensors: should the group not be compiled, each goes on by itself.
    return [tf.nest.map_structure(tf.constant, carry) for carry in carries]


def stack(structures: Sequence[Any]) -> Any:
    """Return one structure of tensors whose first axis counts the given ones."""
    return tf.nest.map_structure(lambda *leaves: tf.constant(np.stack(leaves)), *structures)


def unstack(structure: Any, count: int) -> list[Any]:
    """Return structures of arrays, one for each of the first entries of the first axis."""
    arrays = [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]
    return [
        tf.nest.pack_sequence_as(structure, [array[k] for array in arrays]) for k in range(count)
    ]
