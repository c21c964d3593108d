"""The gathers and scatters of JAX as operations of TensorFlow.

Both are defined by *windows*: an index is where a window of an operand starts, along some of its
axes. An axis of the operand is *whole* if windows are as long as it; else it is *picked* by the
indices, is batched, or has a window. Whole axes come last in ``tf.gather_nd``, all others first.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class _Windows(NamedTuple):
    """Positions of the windows of a gather or scatter.

    Attributes:
        starts: Axes of the operand that the last axis of the indices has the starts of.
        dropped: Axes of the operand along which windows have length one, and no axis.
        batched: Axes of the operand that go with axes of the indices.
        batch: The axes of the indices that go with them.
        sizes: Lengths of windows along each axis of the operand.
        axes: Axes of the windows in the output, or in the updates.
        mode: Rule for windows that are out of range.
    """

    starts: Sequence[int]
    dropped: Sequence[int]
    batched: Sequence[int]
    batch: Sequence[int]
    sizes: Sequence[Any]
    axes: Sequence[int]
    mode: str


class _Elements(NamedTuple):
    """Elements of an operand, as ``tf.gather_nd`` names them.

    Attributes:
        order: Axes of the operand, those that are indexed before those that are whole.
        indices: Indices, (..., indexed axes).
        inside: Whether each window is within the operand; ``None`` if that is not checked.
        layout: Place in the output of each axis of the result of ``tf.gather_nd``.
    """

    order: list[int]
    indices: tf.Tensor
    inside: tf.Tensor | None
    layout: list[int]


def _covered_elements(
    shape: Sequence[Any], indices: Any, windows: _Windows
) -> _Elements:
    """Return the elements of an operand of a shape that the windows cover."""
    rank, depth = len(shape), len(indices.shape) - 1
    removed = {*windows.dropped, *windows.batched}
    whole = [
        axis
        for axis in range(rank)
        if axis not in removed
        and axis not in windows.starts
        and _same(windows.sizes[axis], shape[axis])
    ]
    first = [axis for axis in range(rank) if axis not in whole]
    spanned = [axis for axis in first if axis not in removed]
    indices = tf.cast(indices, tf.int32)
    lengths = tf.unstack(tf.shape(indices))[:-1]
    inside = None
    columns = []
    for axis in first:
        if axis in windows.starts:
            start = indices[..., windows.starts.index(axis)]
            last = shape[axis] - windows.sizes[axis]
            if windows.mode != "PROMISE_IN_BOUNDS":
                if windows.mode == "FILL_OR_DROP":
                    in_bounds = (start >= 0) & (start <= last)
                    inside = in_bounds if inside is None else inside & in_bounds
                start = tf.clip_by_value(start, 0, last)
        elif axis in windows.batched:
            at = windows.batch[list(windows.batched).index(axis)]
            start = _on_axis(tf.range(lengths[at]), at, depth)
        else:
            start = tf.zeros([1] * depth, tf.int32)
        start = tf.reshape(start, tf.concat([tf.shape(start), [1] * len(spanned)], 0))
        if axis in spanned:
            window = tf.range(windows.sizes[axis])
            start += _on_axis(window, depth + spanned.index(axis), depth + len(spanned))
        columns.append(start)
    full = lengths + [windows.sizes[axis] for axis in spanned]
    stacked = tf.stack([tf.broadcast_to(column, full) for column in columns], -1)
    remaining = [axis for axis in range(rank) if axis not in removed]
    outer = [axis for axis in range(depth + len(remaining)) if axis not in windows.axes]
    layout = outer + [
        windows.axes[remaining.index(axis)] for axis in (*spanned, *whole)
    ]
    return _Elements(first + whole, stacked, inside, layout)


def _same(size: Any, length: Any) -> bool:
    """Return whether windows are as long as an axis, also if its length is unknown."""
    return size is length or (
        isinstance(size, Integral) and isinstance(length, Integral) and size == length
    )


def _on_axis(values: tf.Tensor, axis: int, rank: int) -> tf.Tensor:
    return tf.reshape(values, [-1 if i == axis else 1 for i in range(rank)])


def _mode(mode: Any) -> str:
    name = getattr(mode, "name", None) or str(mode).rpartition(".")[2]
    return "PROMISE_IN_BOUNDS" if name == "None" else name.upper()


def gather(equation: Any, x: Any, indices: Any) -> tf.Tensor:
    """Return windows of an operand, the primitive ``gather``."""
    names, x = equation.params["dimension_numbers"], tf.convert_to_tensor(x)
    shape = _shape(x)
    windows = _Windows(
        list(names.start_index_map),
        names.collapsed_slice_dims,
        getattr(names, "operand_batching_dims", ()),
        getattr(names, "start_indices_batching_dims", ()),
        [
            size if isinstance(size, Integral) else shape[axis]
            for axis, size in enumerate(equation.params["slice_sizes"])
        ],
        names.offset_dims,
        _mode(equation.params["mode"]),
    )
    elements = _covered_elements(shape, indices, windows)
    gathered = tf.gather_nd(_in_order(x, elements.order), elements.indices)
    gathered = _in_order(
        gathered, [elements.layout.index(axis) for axis in range(len(elements.layout))]
    )
    if elements.inside is None:
        return gathered
    fill = equation.params["fill_value"]
    if fill is None:
        fill = (
            np.nan
            if x.dtype.is_floating
            else x.dtype.min
            if x.dtype.is_integer
            else True
        )
    outer = [axis for axis in range(gathered.shape.rank) if axis not in windows.axes]
    inside = _spread(elements.inside, outer, gathered.shape.rank)
    return tf.where(inside, gathered, tf.cast(fill, x.dtype))


def _spread(values: tf.Tensor, axes: Sequence[int], rank: int) -> tf.Tensor:
    """Return a tensor with its axes in these places, and axes of length one in all others."""
    lengths = dict(zip(axes, tf.unstack(tf.shape(values)), strict=True))
    return tf.reshape(values, [lengths.get(axis, 1) for axis in range(rank)])


def _shape(x: tf.Tensor) -> list[Any]:
    """Return the lengths of a tensor's axes, tensors if they are unknown."""
    sizes = tf.shape(x)
    return [sizes[i] if n is None else n for i, n in enumerate(x.shape)]


def _in_order(x: tf.Tensor, order: list[int]) -> tf.Tensor:
    return x if order == sorted(order) else tf.transpose(x, order)


def scatter(operation: Any, drops_to: float | None) -> Any:
    """Return the rule of a scatter.

    Args:
        operation: Operation of TensorFlow on a tensor, indices and updates.
        drops_to: Update that changes nothing, for windows that are out of range; ``None`` if there
            is none.
    """

    def rule(equation: Any, x: Any, indices: Any, updates: Any) -> tf.Tensor:
        names, x = equation.params["dimension_numbers"], tf.convert_to_tensor(x)
        updates = tf.convert_to_tensor(updates)
        shape, lengths = _shape(x), _shape(updates)
        removed = {
            *names.inserted_window_dims,
            *getattr(names, "operand_batching_dims", ()),
        }
        axes = list(names.update_window_dims)
        remaining = [axis for axis in range(len(shape)) if axis not in removed]
        sizes: list[Any] = [1] * len(shape)
        for axis, at in zip(remaining, axes, strict=True):
            is_static = isinstance(lengths[at], Integral)
            sizes[axis] = lengths[at] if is_static else shape[axis]
        mode = _mode(equation.params["mode"])
        if drops_to is None and mode == "FILL_OR_DROP":
            mode = "CLIP"
        windows = _Windows(
            list(names.scatter_dims_to_operand_dims),
            names.inserted_window_dims,
            getattr(names, "operand_batching_dims", ()),
            getattr(names, "scatter_indices_batching_dims", ()),
            sizes,
            axes,
            mode,
        )
        elements = _covered_elements(shape, indices, windows)
        if elements.inside is not None:
            outer = [axis for axis in range(updates.shape.rank) if axis not in axes]
            inside = _spread(elements.inside, outer, updates.shape.rank)
            updates = tf.where(inside, updates, tf.cast(drops_to, updates.dtype))
        # TensorFlow needs an axis of indices, even for a single one.
        scattered = operation(
            _in_order(x, elements.order),
            elements.indices[tf.newaxis],
            _in_order(updates, elements.layout)[tf.newaxis],
        )
        return _in_order(
            scattered, [elements.order.index(axis) for axis in range(len(shape))]
        )

    return rule
