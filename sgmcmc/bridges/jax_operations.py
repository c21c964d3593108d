"""The primitives of JAX as operations of TensorFlow.

A rule is a function of an equation and of its inputs, tensors or arrays, that returns its output,
or a list of outputs.

Gathers and scatters are defined by *windows*: an index is where a window of an operand starts,
along some of its axes. An axis of the operand is *whole* if windows are as long as it; else it is
*picked* by the indices, is batched, or has a window. Whole axes come last in ``tf.gather_nd``, all
others first.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Equation(NamedTuple):
    """An equation of a jaxpr, less its inputs.

    Attributes:
        primitive: Primitive.
        params: Its parameters.
        shapes: Shape of each output; a length that is not known is a tensor.
        dtypes: Dtype of each output.
        replay: Function that computes another jaxpr from its inputs.
    """

    primitive: Any
    params: Mapping[str, Any]
    shapes: Sequence[list[Any]]
    dtypes: Sequence[Any]
    replay: Callable[..., list[Any]]


Rule = Callable[..., Any]


def equation_dtype(value: Any) -> np.dtype:
    """Return the dtype of a tensor or an array."""
    return np.dtype(
        value.dtype if isinstance(value, np.ndarray) else value.dtype.as_numpy_dtype
    )


def _of_inputs(operation: Callable[..., Any]) -> Rule:
    """Return the rule of an operation that needs nothing of the equation but its inputs."""
    return lambda equation, *xs: operation(*xs)


def _logical(of_bools: Callable[..., Any], of_integers: Callable[..., Any]) -> Rule:
    """Return the rule of an operation on bools, or on the bits of integers."""
    return lambda equation, *xs: (
        of_bools(*xs) if equation.dtypes[0] == np.bool_ else of_integers(*xs)
    )


def _divide(equation: Equation, x: Any, y: Any) -> tf.Tensor:
    are_integers = np.dtype(equation.dtypes[0]).kind in "iu"
    return tf.truncatediv(x, y) if are_integers else tf.divide(x, y)


def _integer_pow(equation: Equation, x: Any) -> tf.Tensor:
    power = equation.params["y"]
    base = x if power >= 0 else 1 / tf.convert_to_tensor(x)
    left = abs(power)
    square = base
    product = tf.ones_like(x)
    while left:
        if left & 1:
            product = (
                product * square if left != abs(power) or power % 2 == 0 else square
            )
        left >>= 1
        square = tf.square(square) if left else square
    return product


def _round(equation: Equation, x: Any) -> tf.Tensor:
    if int(equation.params["rounding_method"]) == 1:
        return tf.round(x)
    return tf.sign(x) * tf.floor(tf.abs(x) + 0.5)


def _polynomial(equation: Equation, x: Any, *coefficients: Any) -> tf.Tensor:
    value = tf.broadcast_to(coefficients[-1], equation.shapes[0])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _select(equation: Equation, which: Any, *cases: Any) -> tf.Tensor:
    if len(cases) == 2 and equation_dtype(which) == np.bool_:
        return tf.where(which, cases[1], cases[0])
    selected = cases[0]
    for number, case in enumerate(cases[1:], 1):
        selected = tf.where(tf.equal(which, number), case, selected)
    return selected


def _reduction(operation: Callable[..., Any]) -> Rule:
    return lambda equation, x: operation(x, axis=list(equation.params["axes"]))


def _extreme(operation: Callable[..., Any]) -> Rule:
    return lambda equation, x: operation(
        x, axis=equation.params["axes"][0], output_type=tf.as_dtype(equation.dtypes[0])
    )


def _cumulative(operation: Callable[..., Any]) -> Rule:
    return lambda equation, x: operation(
        x, axis=equation.params["axis"], reverse=equation.params["reverse"]
    )


def _running_extreme(operation: Callable[..., Any], lowest: bool) -> Rule:
    """Return the rule of a running maximum or minimum, in log₂ n steps of doubled length."""

    def rule(equation: Equation, x: Any) -> tf.Tensor:
        axis, reverse = equation.params["axis"], equation.params["reverse"]
        x = tf.convert_to_tensor(x)
        x = tf.reverse(x, [axis]) if reverse else x
        worst = x.dtype.min if lowest else x.dtype.max
        if x.dtype.is_floating:
            worst = -np.inf if lowest else np.inf
        length, step = int(x.shape[axis]), 1
        while step < length:
            pads = [[step if i == axis else 0, 0] for i in range(x.shape.rank)]
            padded = tf.pad(x, pads, constant_values=tf.cast(worst, x.dtype))
            x = operation(x, tf.gather(padded, tf.range(length), axis=axis))
            step *= 2
        return tf.reverse(x, [axis]) if reverse else x

    return rule


def _broadcast(equation: Equation, x: Any, *_: Any) -> tf.Tensor:
    shape = equation.shapes[0]
    is_static = all(isinstance(length, Integral) for length in shape)
    lengths = x.shape if is_static else tf.unstack(tf.shape(x))
    length_of = dict(zip(equation.params["broadcast_dimensions"], lengths, strict=True))
    expanded = [length_of.get(axis, 1) for axis in range(len(shape))]
    return tf.broadcast_to(tf.reshape(x, expanded), shape)


def _reshape(equation: Equation, x: Any, *_: Any) -> tf.Tensor:
    if equation.primitive.name == "reshape":
        order = equation.params.get("dimensions")
        x = x if order is None else tf.transpose(x, order)
    return tf.reshape(x, equation.shapes[0])


def _iota(equation: Equation, *_: Any) -> tf.Tensor:
    axis, shape = equation.params["dimension"], equation.shapes[0]
    numbers = _on_axis(tf.range(shape[axis]), axis, len(shape))
    return tf.cast(tf.broadcast_to(numbers, shape), equation.dtypes[0])


def _slice(equation: Equation, x: Any) -> tf.Tensor:
    starts = equation.params["start_indices"]
    strides = equation.params["strides"] or (1,) * len(starts)
    # A length that is unknown can only be that of the whole axis, which has no end then.
    limits = equation.params["limit_indices"]
    ends = [end if isinstance(end, Integral) else None for end in limits]
    slices = itertools.starmap(slice, zip(starts, ends, strides, strict=True))
    return tf.convert_to_tensor(x)[tuple(slices)]


def _pad(equation: Equation, x: Any, value: Any) -> tf.Tensor:
    x, config = tf.convert_to_tensor(x), equation.params["padding_config"]
    for axis, (low, high, inner) in enumerate(config):
        if inner and x.shape[axis]:
            x = _padded_inside(x, value, axis, int(inner) + 1)
        cut = [slice(None)] * x.shape.rank
        cut[axis] = slice(max(0, -int(low)), min(0, int(high)) or None)
        x = x[tuple(cut)]
    pads = [[max(0, int(low)), max(0, int(high))] for low, high, _ in config]
    return tf.pad(x, pads, constant_values=value) if np.any(pads) else x


def _padded_inside(x: tf.Tensor, value: Any, axis: int, step: int) -> tf.Tensor:
    """Return a tensor with its entries along an axis a step apart, and a value between them."""
    others = [i for i in range(x.shape.rank) if i != axis]
    lengths = tf.unstack(tf.shape(x))
    count = int(x.shape[axis])
    spread = tf.scatter_nd(
        tf.range(count)[:, tf.newaxis] * step,
        tf.transpose(x, [axis, *others]) - value,
        [(count - 1) * step + 1, *[lengths[i] for i in others]],
    )
    order = list(range(1, x.shape.rank))
    order.insert(axis, 0)
    return tf.transpose(spread, order) + value


def _dynamic_slice(equation: Equation, x: Any, *starts: Any) -> tf.Tensor:
    sizes = equation.params["slice_sizes"]
    last = [int(n) - size for n, size in zip(x.shape, sizes, strict=True)]
    begin = []
    for start, largest in zip(starts, last, strict=True):
        begin.append(tf.clip_by_value(tf.cast(start, tf.int32), 0, largest))
    return tf.slice(x, tf.stack(begin), sizes) if begin else tf.convert_to_tensor(x)


def _dynamic_update_slice(
    equation: Equation, x: Any, update: Any, *starts: Any
) -> tf.Tensor:
    spans = []
    for length, size, start in zip(x.shape, update.shape, starts, strict=True):
        begin = tf.clip_by_value(tf.cast(start, tf.int32), 0, int(length) - int(size))
        spans.append(begin + tf.range(int(size)))
    indices = tf.stack(tf.meshgrid(*spans, indexing="ij"), -1)
    return tf.tensor_scatter_nd_update(x, indices, update)


def _dot(equation: Equation, x: Any, y: Any) -> tf.Tensor:
    (x_summed, y_summed), (x_batch, y_batch) = equation.params["dimension_numbers"]
    letters = iter(string.ascii_letters)
    of_x = [next(letters) for _ in x.shape]
    of_y = [next(letters) for _ in y.shape]
    for i, j in [
        *zip(x_summed, y_summed, strict=True),
        *zip(x_batch, y_batch, strict=True),
    ]:
        of_y[j] = of_x[i]
    left = [a for i, a in enumerate(of_x) if i not in (*x_summed, *x_batch)]
    right = [a for i, a in enumerate(of_y) if i not in (*y_summed, *y_batch)]
    out = [of_x[i] for i in x_batch] + left + right
    dtype = equation.dtypes[0]
    formula = f"{''.join(of_x)},{''.join(of_y)}->{''.join(out)}"
    return tf.einsum(formula, tf.cast(x, dtype), tf.cast(y, dtype))


def _triangular_solve(equation: Equation, a: Any, b: Any) -> tf.Tensor:
    options, a = equation.params, tf.convert_to_tensor(a)
    lower, adjoint = options["lower"], bool(options["transpose_a"])
    if options["unit_diagonal"]:
        a = tf.linalg.set_diag(a, tf.ones_like(tf.linalg.diag_part(a)))
    if options["left_side"]:
        return tf.linalg.triangular_solve(a, b, lower=lower, adjoint=adjoint)
    solved = tf.linalg.triangular_solve(
        a, tf.linalg.matrix_transpose(b), lower=lower, adjoint=not adjoint
    )
    return tf.linalg.matrix_transpose(solved)


def _sort(equation: Equation, *columns: Any) -> list[tf.Tensor]:
    axis, order = equation.params["dimension"], None
    for key in reversed(columns[: equation.params["num_keys"]]):
        if order is None:
            order = tf.argsort(key, axis=axis, stable=True)
            continue
        sorted_key = tf.gather(key, order, axis=axis, batch_dims=axis)
        permutation = tf.argsort(sorted_key, axis=axis, stable=True)
        order = tf.gather(order, permutation, axis=axis, batch_dims=axis)
    if axis != len(columns[0].shape) - 1:
        return [_along(column, order, axis) for column in columns]
    return [tf.gather(column, order, axis=axis, batch_dims=axis) for column in columns]


def _along(column: Any, order: Any, axis: int) -> tf.Tensor:
    """Return the elements of a column along an axis in an order of each line."""
    last = len(column.shape) - 1
    swap = list(range(last + 1))
    swap[axis], swap[last] = last, axis
    gathered = tf.gather(
        tf.transpose(column, swap),
        tf.transpose(order, swap),
        axis=last,
        batch_dims=last,
    )
    return tf.transpose(gathered, swap)


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


RULES: dict[str, Rule] = {
    **{
        name: _of_inputs(operation)
        for name, operation in {
            "abs": tf.abs,
            "acos": tf.acos,
            "acosh": tf.acosh,
            "add": tf.add,
            "add_any": tf.add,
            "asin": tf.asin,
            "asinh": tf.asinh,
            "atan": tf.atan,
            "atan2": tf.atan2,
            "atanh": tf.atanh,
            "bessel_i0e": tf.math.bessel_i0e,
            "bessel_i1e": tf.math.bessel_i1e,
            "cbrt": lambda x: tf.sign(x) * tf.abs(x) ** (1 / 3),
            "ceil": tf.math.ceil,
            "cholesky": tf.linalg.cholesky,
            "clamp": lambda low, x, high: tf.minimum(tf.maximum(x, low), high),
            "copy": tf.identity,
            "copy_p": tf.identity,
            "cos": tf.cos,
            "cosh": tf.cosh,
            "digamma": tf.math.digamma,
            "eigh": lambda x: tf.linalg.eigh(x)[::-1],
            "eq": tf.equal,
            "erf": tf.math.erf,
            "erf_inv": tf.math.erfinv,
            "erfc": tf.math.erfc,
            "exp": tf.exp,
            "exp2": lambda x: tf.exp(x * np.log(2).astype(equation_dtype(x))),
            "expm1": tf.math.expm1,
            "floor": tf.floor,
            "ge": tf.greater_equal,
            "gt": tf.greater,
            "igamma": tf.math.igamma,
            "igammac": tf.math.igammac,
            "is_finite": tf.math.is_finite,
            "le": tf.less_equal,
            "lgamma": tf.math.lgamma,
            "log": tf.math.log,
            "log1p": tf.math.log1p,
            "logistic": tf.sigmoid,
            "lt": tf.less,
            "max": tf.maximum,
            "min": tf.minimum,
            "mul": tf.multiply,
            "ne": tf.not_equal,
            "neg": tf.negative,
            "nextafter": tf.math.nextafter,
            "one_minus_square": lambda x: (
                (1 + tf.convert_to_tensor(x)) * (1 - tf.convert_to_tensor(x))
            ),
            "optimization_barrier": tf.identity,
            "polygamma": tf.math.polygamma,
            "pow": lambda x, y: tf.pow(x, tf.cast(y, equation_dtype(x))),
            "reduce_precision": tf.identity,
            "regularized_incomplete_beta": tf.math.betainc,
            "rem": tf.truncatemod,
            "rsqrt": tf.math.rsqrt,
            "shift_left": tf.bitwise.left_shift,
            "shift_right_arithmetic": tf.bitwise.right_shift,
            "sign": tf.sign,
            "sin": tf.sin,
            "sinh": tf.sinh,
            "sqrt": tf.sqrt,
            "square": tf.square,
            "stop_gradient": tf.stop_gradient,
            "sub": tf.subtract,
            "tan": tf.tan,
            "tanh": tf.tanh,
            "zeta": tf.math.zeta,
        }.items()
    },
    **{
        f"reduce_{name}": _reduction(operation)
        for name, operation in {
            "and": tf.reduce_all,
            "max": tf.reduce_max,
            "min": tf.reduce_min,
            "or": tf.reduce_any,
            "prod": tf.reduce_prod,
            "sum": tf.reduce_sum,
        }.items()
    },
    "and": _logical(tf.logical_and, tf.bitwise.bitwise_and),
    "argmax": _extreme(tf.argmax),
    "argmin": _extreme(tf.argmin),
    "bitcast_convert_type": lambda equation, x: tf.bitcast(x, equation.dtypes[0]),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda equation, *xs: tf.concat(xs, equation.params["dimension"]),
    "convert_element_type": lambda equation, x: tf.cast(x, equation.dtypes[0]),
    "cumlogsumexp": _cumulative(tf.math.cumulative_logsumexp),
    "cummax": _running_extreme(tf.maximum, lowest=True),
    "cummin": _running_extreme(tf.minimum, lowest=False),
    "cumprod": _cumulative(tf.math.cumprod),
    "cumsum": _cumulative(tf.math.cumsum),
    "div": _divide,
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "empty2": lambda equation: tf.zeros([], equation.dtypes[0]),
    "expand_dims": _reshape,
    "gather": gather,
    "integer_pow": _integer_pow,
    "iota": _iota,
    "not": _logical(tf.logical_not, tf.bitwise.invert),
    "or": _logical(tf.logical_or, tf.bitwise.bitwise_or),
    "pad": _pad,
    "polynomial": _polynomial,
    "reshape": _reshape,
    "rev": lambda equation, x: tf.reverse(x, list(equation.params["dimensions"])),
    "round": _round,
    "scatter": scatter(tf.tensor_scatter_nd_update, None),
    "scatter-add": scatter(tf.tensor_scatter_nd_add, 0.0),
    "scatter_add": scatter(tf.tensor_scatter_nd_add, 0.0),
    "scatter_max": scatter(tf.tensor_scatter_nd_max, -np.inf),
    "scatter_min": scatter(tf.tensor_scatter_nd_min, np.inf),
    "select_n": _select,
    "slice": _slice,
    "sort": _sort,
    "split": lambda equation, x: tf.split(
        x, [int(n) for n in equation.params["sizes"]], equation.params["axis"]
    ),
    "squeeze": _reshape,
    "stack": lambda equation, *xs: tf.stack(xs, equation.params["axis"]),
    "top_k": lambda equation, x: list(tf.math.top_k(x, equation.params["k"])),
    "transpose": lambda equation, x: tf.transpose(x, equation.params["permutation"]),
    "triangular_solve": _triangular_solve,
    "unstack": lambda equation, x: tf.unstack(x, axis=equation.params["axis"]),
    "xor": _logical(tf.math.logical_xor, tf.bitwise.bitwise_xor),
}
"""Rules by the names of primitives."""
