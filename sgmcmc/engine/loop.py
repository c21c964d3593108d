"""The loop over the iterations of a block, inside the compiled chain, with what it writes down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from sgmcmc.data.minibatch import Tensors
from sgmcmc.engine.block import Carry
from sgmcmc.engine.recorder import Recorder

Iterate = Callable[[tf.Tensor, tf.Tensor, Carry], tuple[Carry, Tensors]]
"""Takes an iteration's place in the block and its number in the chain, from 1, and what the one
before left; returns what it leaves, and what is to be written down."""


def recorded(
    recorder: Recorder,
    length: int,
    span: tf.Tensor,
    carry: Carry,
    iterate: Iterate,
    chains: tuple[int, ...] = (),
) -> tuple[Carry, Tensors]:
    """Run some iterations of a block; return what they leave, and what was written down.

    Args:
        recorder: what is written down.
        length: iterations in a block.
        span: three integers: the first iteration within the block, from 0; one past the last; and
            the number, from 1, that the first has in the chain.
        carry: what the iteration before left.
        iterate: one iteration.
        chains: how many run together, if several do: the first axis of all that is written down.
    """
    start, stop, first = tf.unstack(span)
    slots = recorder.slots(length)
    arrays = {
        name: tf.TensorArray(dtype, slots, element_shape=(*chains, *shape), clear_after_read=False)
        for name, (shape, dtype) in recorder.specs().items()
    }

    # XLA compiles anew for every value of an argument that the index of a slice can be traced
    # back to; the index of a gather may be anything.
    def one_iteration(
        i: tf.Tensor, now: tf.Tensor, slot: tf.Tensor, carry: Carry, arrays: Mapping[str, Any]
    ) -> tuple:
        carry, values = iterate(i, now, carry)
        # The slot of a draw still in the making is written again until it is complete.
        arrays = {name: array.write(slot, values[name]) for name, array in arrays.items()}
        slot += recorder.completed(now) - recorder.completed(now - 1)
        return i + 1, now + 1, slot, carry, arrays

    *_, carry, arrays = tf.while_loop(
        lambda i, *_: i < stop,
        one_iteration,
        (start, first, tf.constant(0), carry, arrays),
        parallel_iterations=1,
    )
    return carry, {name: array.stack() for name, array in arrays.items()}


def folded(recorder: Recorder, carry: Carry, now: tf.Tensor) -> tuple[Carry, Tensors]:
    """Return the carry with the reductions an iteration on, and what is to be written down."""
    position = carry.state.position
    carry = carry._replace(reductions=recorder.fold(carry.reductions, position, now))
    return carry, recorder.values(position, carry.gradient, now)
