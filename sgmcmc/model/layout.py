"""Layouts: the positions of the named parameters in one flat vector.

Inside a chain the state is one vector. That keeps noise, stepsizes, draws and storage to a single
array each, whatever the user's parameters look like; the names come back at the two ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import is_number, known_keys, positive_number

# Largest number of bytes for which `joined` concatenates; chains in groups, which do not write,
# have fewer.
LONGEST_CONCATENATION = 8192


class Layout:
    """Names, shapes and slices of arrays that are laid one after the other in a vector.

    Args:
        shapes: Shape of each array, by name; the order is kept.

    Example:
        >>> layout = Layout({"bias": (), "beta": (2, 1)})
        >>> layout.size
        3
        >>> layout.split(np.array([1.0, 2.0, 3.0]))["beta"].tolist()
        [[2.0], [3.0]]
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = {
            name: tuple(int(k) for k in shape) for name, shape in shapes.items()
        }
        self.sizes = {name: math.prod(shape) for name, shape in self.shapes.items()}
        ends = np.cumsum([0, *self.sizes.values()])
        self.slices = {
            name: slice(int(ends[i]), int(ends[i + 1]))
            for i, name in enumerate(self.shapes)
        }
        self.size = int(ends[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self.shapes)

    def subset(self, names: Iterable[str]) -> Layout:
        """Return the layout of just these arrays, in this layout's order."""
        selected = set(names)
        return Layout(
            {name: shape for name, shape in self.shapes.items() if name in selected}
        )

    def join(self, arrays: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
        """Return the vector that holds these NumPy arrays."""
        return np.concatenate(
            [np.asarray(arrays[name], dtype).reshape(-1) for name in self.shapes]
        ).astype(dtype, copy=False)

    def split(self, vector: Any) -> dict[str, Any]:
        """Return the arrays in ``vector``, whose last axis has this layout; leading axes stay.

        Works alike on NumPy arrays, of which it gives views, and on tensors.
        """
        arrays = {}
        for name, shape in self.shapes.items():
            entries = vector[..., self.slices[name]]
            if isinstance(entries, np.ndarray):
                arrays[name] = entries.reshape(entries.shape[:-1] + shape)
            else:
                arrays[name] = tf.reshape(entries, entries.shape[:-1] + shape)
        return arrays

    def parameter_at(self, index: int) -> str:
        """Return the name of the array that holds coordinate ``index`` of the vector."""
        return next(
            name
            for name, entries in self.slices.items()
            if entries.start <= index < entries.stop
        )

    def per_coordinate(self, values: tf.Tensor) -> tf.Tensor:
        """Return the vector in which every coordinate of an array has that array's value.

        Args:
            values: Values: one for each array; or one for each coordinate; or a single one, which
                serves all and is returned as a scalar.
        """
        if values.shape[0] == 1:
            return values[0]
        if values.shape[0] == self.size:
            return values
        sizes = list(self.sizes.values())
        if is_long(self.size, values.dtype):  # for the reason that `joined` gives
            return tf.gather(
                values, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
            )
        return tf.concat(
            [tf.fill([size], values[i]) for i, size in enumerate(sizes)], 0
        )

    def means(self, vector: tf.Tensor) -> tf.Tensor:
        """Return the mean of each array's coordinates."""
        return tf.stack(
            [tf.reduce_mean(vector[entries]) for entries in self.slices.values()]
        )


def joined(tensors: Iterable[tf.Tensor], onto: tf.Tensor | None = None) -> tf.Tensor:
    """Return the vector that holds tensors one after the other.

    What XLA's concatenation costs is left to chance if it splits the work over threads, which it
    does from some 2500 numbers on. Each thread runs through as many numbers of the small tensors
    as of the largest, with loads whose mask is off beyond their ends; and if such a load meets a
    page that is not there, a processor takes 160 ns over what else takes one. Up to 25 ms an
    iteration for 80 000 numbers, or none, as it happens. So long vectors are written part by part,
    each part alone, over one of the same length that is there already.

    Args:
        tensors: Parts to join, of any shapes.
        onto: Vector of the same length and dtype; ``None`` if there is none available, or inside of
            ``tf.vectorized_map``, which cannot write in this way.
    """
    vectors = [tf.reshape(tensor, [-1]) for tensor in tensors]
    sizes = [vector.shape[0] for vector in vectors]
    if onto is None or len(vectors) == 1 or None in sizes:
        return tf.concat(vectors, 0)
    if sum(sizes) != onto.shape[0] or not is_long(sum(sizes), onto.dtype):
        return tf.concat(vectors, 0)
    ends = np.cumsum([0, *sizes])
    # What uses the vector takes the last part written into its own loop, with such loads again,
    # but beyond its end alone: the largest comes last.
    order = sorted((i for i, size in enumerate(sizes) if size), key=lambda i: sizes[i])

    @tf.custom_gradient
    def written(
        *vectors: tf.Tensor,
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], Sequence]]:
        vector = tf.stop_gradient(onto)
        for i in order:
            vector = tf.raw_ops.TensorStridedSliceUpdate(
                input=vector,
                begin=ends[i : i + 1],
                end=ends[i + 1 : i + 2],
                strides=[1],
                value=vectors[i],
            )
        return vector, lambda slope: tf.split(slope, sizes)

    return written(*vectors)


def is_long(size: int, dtype: tf.DType) -> bool:
    """Return whether a vector is too long to be concatenated."""
    return bool(size * dtype.size > LONGEST_CONCATENATION)


def per_parameter(
    argument: str, value: Any, names: Iterable[str], read: Callable[[str, Any], Any]
) -> tuple[Any, ...]:
    """Return one entry for all parameters, or one for each if ``value`` is a dict.

    Args:
        argument: Name of the argument.
        value: User's value.
        names: Parameters, in order.
        read: Function that checks and converts one entry, given its label.
    """
    if not isinstance(value, Mapping):
        return (read(argument, value),)
    names = list(names)
    known_keys(argument, value, names, "the parameters are")
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(
            f"`{argument}` is a dict, so it must name every parameter; it lacks "
            f"{', '.join(map(repr, missing))}."
        )
    return tuple(read(f"{argument}[{name!r}]", value[name]) for name in names)


def positive_constant(
    argument: str, value: Any, layout: Layout, largest: float = np.inf
) -> float | np.ndarray:
    """Return a positive constant as one number, or as a vector over the flat position.

    Args:
        argument: Name of the argument.
        value: Number, or a dict with one for each parameter.
        layout: Layout of the parameters.
        largest: Largest value that makes sense.
    """

    def read(label: str, entry: Any) -> float:
        number = positive_number(label, entry)
        if number > largest:
            raise ValueError(f"`{label}` must be at most {largest:g}; it is {entry!r}.")
        return number

    return _constants_of(argument, value, layout, read)


def constant_not_negative(
    argument: str, value: Any, layout: Layout
) -> float | np.ndarray:
    """Return a constant that may be zero as one number, or as a vector over the flat position.

    Args:
        argument: Name of the argument.
        value: Number, or a dict with one for each parameter.
        layout: Layout of the parameters.
    """

    def read(label: str, entry: Any) -> float:
        if is_number(entry) and entry < 0:
            raise ValueError(f"`{label}` must not be negative; it is {entry!r}.")
        return 0.0 if is_number(entry) and entry == 0 else positive_number(label, entry)

    return _constants_of(argument, value, layout, read)


def _constants_of(
    argument: str, value: Any, layout: Layout, read: Callable[[str, Any], Any]
) -> float | np.ndarray:
    entries = per_parameter(argument, value, layout.names, read)
    if not isinstance(value, Mapping):
        return float(entries[0])
    return np.concatenate(
        [
            np.full(size, entry)
            for size, entry in zip(layout.sizes.values(), entries, strict=True)
        ]
    )


class Division:
    """Divides flat vectors into the coordinates of some parameters and those of the others.

    Args:
        layout: Layout of all parameters in the flat vector.
        names: Names of the parameters in the part.

    Attributes:
        selected: Layout of these parameters alone.
        remaining: Layout of the others.
        has_all: Whether the part has all parameters.
        has_none: Whether the part has no parameters.
    """

    def __init__(self, layout: Layout, names: Iterable[str]) -> None:
        self._layout = layout
        self.selected = layout.subset(names)
        self.remaining = layout.subset(
            name for name in layout.names if name not in self.selected.shapes
        )
        self.has_all = self.remaining.size == 0
        self.has_none = self.selected.size == 0

    def divide(self, vector: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the coordinates that are meant and the others; a scalar serves both."""
        if vector.shape.rank == 0 or self.has_all:
            return vector, vector
        if self.has_none:
            return vector[..., :0], vector
        slices = self._layout.slices
        selected, remaining = (
            tf.concat([vector[..., slices[name]] for name in layout.names], -1)
            for layout in (self.selected, self.remaining)
        )
        return selected, remaining

    def unite(self, selected: tf.Tensor, remaining: tf.Tensor) -> tf.Tensor:
        """Return the vector that ``divide`` would divide so."""
        if self.has_all:
            return selected
        selected_slices = self.selected.slices
        remaining_slices = self.remaining.slices
        blocks = [
            selected[selected_slices[name]]
            if name in selected_slices
            else remaining[remaining_slices[name]]
            for name in self._layout.names
        ]
        return tf.concat(blocks, 0)
