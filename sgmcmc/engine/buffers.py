"""The memory that blocks of iterations are prepared in.

It is used again and again: no page is touched for the first time twice, and TensorFlow reads
the very memory that NumPy wrote, so handing a block over costs nothing. The environment variable
``SGMCMC_COPY_BLOCKS`` has it copied instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from sgmcmc import switches
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.kernel import Kernel

# TensorFlow reads whole vectors from where an array starts; misaligned reads crash.
_ALIGNMENT = 64
_SHAREABLE = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64))


def shared() -> bool:
    """Tell whether TensorFlow reads prepared blocks from where they were written."""
    return not (switches.copy_blocks() or tf.config.list_logical_devices("GPU"))


class Buffer:
    """An array that is filled again and again, and the tensor of what it holds.

    Where device and dtype allow, the tensor is the memory of the array itself; whoever fills
    the array must know that the last reader is done.

    Args:
        shape: of the array.
        dtype: of the array.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.array = _aligned(shape, np.dtype(dtype))
        self._shared: tf.Tensor | None = None
        if self.array.size == 0:
            self._shared = tf.constant(self.array)
        elif shared() and self.array.dtype in _SHAREABLE:
            self._shared = tf.experimental.dlpack.from_dlpack(self.array.__dlpack__())

    def tensor(self) -> tf.Tensor:
        """Return the tensor of what the array holds now."""
        return tf.constant(self.array) if self._shared is None else self._shared


class Buffers(NamedTuple):
    """What one block is written into.

    Attributes:
        minibatches: the arrays of the data stream.
        noise: the normals, (iterations, vectors, d).
        stepsizes: a row for each iteration, or a single one.
        seeds: seeds for the graph, (steps, seeds, 2).
    """

    minibatches: dict[str, Buffer]
    noise: Buffer
    stepsizes: Buffer
    seeds: Buffer


Made = TypeVar("Made")


class Pool(Generic[Made]):
    """Buffers that the chains of a run share: there are never more than are in use at a time.

    Args:
        make: makes some, where none is free.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._free: deque[Made] = deque()

    def take(self) -> Made:
        """Return buffers that nobody uses; they hold what was last in them."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give_back(self, buffers: Made) -> None:
        """Let others have these buffers."""
        self._free.append(buffers)


def pool_of(kernel: Kernel, stepsizes: Stepsizes) -> Pool[Buffers]:
    """Return the pool of chains that each have a kernel of their own.

    Args:
        kernel: the compiled chain, for its shapes.
        stepsizes: the stepsizes.
    """
    return Pool(partial(_buffers, kernel, stepsizes))


def _buffers(kernel: Kernel, stepsizes: Stepsizes) -> Buffers:
    length, dynamics, iteration = kernel.length, kernel.dynamics, kernel.iteration
    dtype = np.dtype(kernel.target.dtype.as_numpy_dtype)
    steps = length * dynamics.steps
    seeds = iteration.latent_seeds_of_step + iteration.seeds_of_step
    shapes = kernel.stream.shapes(steps + iteration.lead)
    return Buffers(
        {name: Buffer(*spec) for name, spec in shapes.items()},
        Buffer((length, dynamics.normals, kernel.target.size), dtype),
        Buffer((1 if stepsizes.constant else length, stepsizes.columns), dtype),
        Buffer((steps, seeds, 2), np.dtype(np.int32)),
    )


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialised array that starts where TensorFlow can use it without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % _ALIGNMENT
    return raw[offset : offset + size].view(dtype).reshape(shape)
