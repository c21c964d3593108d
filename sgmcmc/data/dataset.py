"""The user's dataset: named columns that share their first axis, and minibatches of them."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.data import native
from sgmcmc.data.levels import Levels
from sgmcmc.machines import HERE, Machines

Tensors = dict[str, tf.Tensor]
"""Tensors by name."""


class Minibatch(NamedTuple):
    """Observations, and the weights of their terms in a sum over the whole dataset.

    Attributes:
        columns: Arrays of the dataset, n rows of each.
        weights: Weight of each term: one number for all (N/n), or a vector of n (1/(n pᵢ)).
        rows: Row numbers, (n,), if they were requested; else nothing. The places of a repeated row
            are neighbors.

    Example:
        >>> import tensorflow as tf
        >>> from sgmcmc.minibatches import Minibatch
        >>> minibatch = Minibatch({"x": tf.constant([1.0, 2.0])}, weights=50.0)
        >>> float(minibatch.weights * tf.reduce_sum(minibatch.columns["x"]))
        150.0
    """

    columns: Tensors
    weights: float | tf.Tensor = 1.0
    rows: tf.Tensor | tuple[()] = ()


PIECE_BYTES = 16 * 2**20
"""Bytes of a dataset that are read at a time in a pass over all of it."""


_SHAREABLE = tuple(
    map(np.dtype, (np.float32, np.float64, np.int32, np.int64, np.uint16))
)


def shares_memory() -> bool:
    """Return whether TensorFlow reads arrays in place."""
    return not (libraries.copy_blocks() or tf.config.list_logical_devices("GPU"))


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array that starts where TensorFlow can use it without a copy."""
    # TensorFlow reads whole vectors from where an array starts; misaligned reads crash.
    alignment = 64
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + alignment, np.uint8)
    offset = -raw.ctypes.data % alignment
    return raw[offset : offset + size].view(dtype).reshape(shape)


def is_shared(array: np.ndarray) -> bool:
    """Return whether :func:`tensor_of` an aligned array is that very memory."""
    return bool(array.size) and array.dtype in _SHAREABLE and shares_memory()


def tensor_of(array: np.ndarray) -> tf.Tensor:
    """Return the tensor of an aligned array that nobody will write to, without a copy if possible.

    It shares the memory of the array, which lives as long as it does.
    """
    if is_shared(array):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.constant(array)


def digest(array: np.ndarray) -> str:
    """Return a digest of an array: shape, dtype and SHA-256 of its bytes."""
    contiguous = np.ascontiguousarray(array)
    summed = hashlib.sha256(contiguous.reshape(-1).view(np.uint8).data).hexdigest()
    return f"{array.shape} {array.dtype} {summed[:32]}"


class Column(ABC):
    """One named entry of the dataset, as the chain reads it.

    Attributes:
        dtype: Dtype of its numbers.
        row_shape: Shape of an observation.
        sparse: Whether its rows are those of a `tf.SparseTensor`.
    """

    dtype: np.dtype
    row_shape: tuple[int, ...]
    sparse = False

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of one observation."""

    @abstractmethod
    def tensor(self, start: int, stop: int) -> tf.Tensor:
        """Return the rows from ``start`` to ``stop``."""

    def unpack(self) -> None:  # noqa: B027 - most columns have nothing to do
        """Prepare random access to rows, if necessary."""

    @abstractmethod
    def tensor_at(self, rows: np.ndarray) -> tf.Tensor:
        """Return a copy of these rows, in their order."""

    @abstractmethod
    def digest(self) -> str:
        """Return a digest of the values."""


class DenseColumn(Column):
    """A column whose rows are those of an array.

    ``address`` is where its rows lie one after another in memory, in ``dtype``; ``None`` if they do
    not.
    """

    address: int | None = None

    @property
    def stored_dtype(self) -> np.dtype:
        """Dtype in which rows lie in memory."""
        return self.dtype

    def seen(self, stored: tf.Tensor) -> tf.Tensor:
        """Return rows in the dtype of the column, of rows as they lie in memory."""
        return stored

    def stored_tensor(self, start: int, stop: int) -> tf.Tensor:
        """Return the rows from ``start`` to ``stop`` as they lie in memory."""
        return self.tensor(start, stop)

    @property
    def row_bytes(self) -> int:
        """Bytes of one observation."""
        return self.dtype.itemsize * math.prod(self.row_shape)

    @abstractmethod
    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows, of any shape, into ``out``."""

    @abstractmethod
    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""

    def tensor(self, start: int, stop: int) -> tf.Tensor:
        """Return the rows from ``start`` to ``stop``."""
        rows = self.slice(start, stop)
        out = aligned(rows.shape, self.dtype)
        out[...] = rows
        return tensor_of(out)

    def tensor_at(self, rows: np.ndarray) -> tf.Tensor:
        """Return a copy of these rows, of any shape."""
        out = aligned(rows.shape + self.row_shape, self.dtype)
        self.take(rows, out)
        return tensor_of(out)


class ArrayColumn(DenseColumn):
    """A column that lies in memory, in the dtype of the chain."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array)
        self.dtype = array.dtype
        self.row_shape = array.shape[1:]
        self.address = self.array.ctypes.data

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process the array lies elsewhere.
        return ArrayColumn, (self.array,)

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``."""
        copy_rows(self.array, rows, out)

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        return self.array[start:stop]

    def digest(self) -> str:
        """Return the digest of all values."""
        return digest(self.array)


class MappedColumn(DenseColumn):
    """A column in a file that is mapped into memory.

    Only the rows of a minibatch are ever read, and converted to ``dtype`` then.
    """

    def __init__(self, array: np.ndarray, dtype: np.dtype) -> None:
        # The same memory without what a memmap does at each indexing.
        self._array = np.asarray(array)
        self.dtype = dtype
        self.row_shape = tuple(array.shape[1:])
        if _holds_rows(self._array, dtype):
            self.address = self._array.ctypes.data

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy these rows into ``out``."""
        copy_rows(self._array, rows, out)

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Return the rows from ``start`` to ``stop``."""
        return self._array[start:stop].astype(self.dtype, copy=False)

    def digest(self) -> str:
        """Return the digest of some pieces."""
        return digest_of_pieces(self, len(self._array))


def digest_of_pieces(column: DenseColumn, length: int) -> str:
    """Return the digest of 64 pieces; reading all of a large file would take too long."""
    starts = np.unique(np.linspace(0, max(0, length - 64), 64).astype(int))
    chunks = [column.slice(start, min(start + 64, length)) for start in starts.tolist()]
    return f"{length} rows, " + digest(np.concatenate(chunks))


def _holds_rows(array: np.ndarray, dtype: np.dtype) -> bool:
    """Return whether rows of this dtype lie one after another in an array."""
    return array.dtype == dtype and array.flags.c_contiguous


def copy_rows(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Copy rows of an array, which are known to be in range, into ``out``."""
    if not _holds_rows(array, out.dtype):
        out[...] = array[rows]
    elif not native.take(array, rows, out):
        # mode="clip" lets NumPy write straight into `out`.
        np.take(array, rows, axis=0, out=out, mode="clip")


class Data:
    """The dataset as the chain reads it: columns by name, all of length ``size``.

    Attributes:
        read_from: Object that the user passed, which a worker may be able to open by itself, with
            dtype, names of integers and levels; ``None`` if it cannot be read again.
        levels: Levels that the numbers in columns of categories stand for, by column.
        machines: Executors of the passes over it.
        key: Its name in workers; ``None`` until it is sent to some.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        size: int,
        read_from: Any = None,
        levels: Mapping[str, Levels] | None = None,
    ) -> None:
        self.columns = dict(columns)
        self.size = size
        self.read_from = read_from
        self.levels = dict(levels or {})
        self.machines: Machines = HERE
        self.key: str | None = None

    def on(self, machines: Machines) -> Data:
        """Return the same dataset, with other executors for passes over it."""
        copied = copy.copy(self)
        copied.machines = machines
        return copied

    @property
    def row_bytes(self) -> int:
        """Bytes of one observation over all columns."""
        return sum(column.row_bytes for column in self.columns.values())

    @property
    def sparse(self) -> bool:
        """Whether there is a sparse column."""
        return any(column.sparse for column in self.columns.values())

    def rows(self, rows: np.ndarray) -> Tensors:
        """Return a copy of these rows of every column."""
        return {name: column.tensor_at(rows) for name, column in self.columns.items()}

    def slice(self, start: int, stop: int) -> Tensors:
        """Return the rows from ``start`` to ``stop`` of every column."""
        return {
            name: column.tensor(start, stop) for name, column in self.columns.items()
        }

    @functools.cached_property
    def whole(self) -> Tensors:
        """The whole dataset as tensors."""
        return self.slice(0, self.size)
