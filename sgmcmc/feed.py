"""Prepares what blocks of iterations consume: minibatches, noise and stepsizes.

For a single chain the next block is made on a second thread while the compiled chain works on
the present one. A block's arrays are written into one of two sets of buffers in turn, so memory
is bounded and no page is touched for the first time more than once.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.block import BlockInputs
from sgmcmc.chain import Chain
from sgmcmc.schedules import Stepsizes
from sgmcmc.streams import Phase, Purpose, generator

_ALIGNMENT = 64
_SHAREABLE = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.int64))


class Feed:
    """What the blocks of one chain consume.

    Args:
        chain: the compiled chain, for its shapes.
        stepsizes: the stepsizes.
        seed: the seed.
        number: number of the chain.
        phase: mode-finding or chain.
        estimator: the state of the gradient estimator at the start.
        total: iterations to run in all; no schedule is asked for more.

    Attributes:
        executor: where the next block is prepared ahead; ``None`` prepares on demand.
    """

    def __init__(
        self,
        chain: Chain,
        stepsizes: Stepsizes,
        seed: int,
        number: int,
        phase: Phase,
        estimator: Any,
        total: int,
    ) -> None:
        self._chain = chain
        self._stepsizes = stepsizes
        self._seed, self._number, self._phase = seed, number, phase
        self._dtype = np.dtype(chain.estimator.model.dtype.as_numpy_dtype)
        self.executor: Executor | None = None
        self._ahead: tuple[int, Future[BlockInputs]] | None = None
        self.estimator = estimator
        self.total = total
        self._buffers: dict[int, tuple[dict[str, np.ndarray], np.ndarray]] = {}

    def _rng(self, purpose: Purpose, block: int = 0) -> np.random.Generator:
        return generator(self._seed, self._number, self._phase, purpose, block)

    def _normals(self, rng: np.random.Generator, out: np.ndarray) -> None:
        rng.standard_normal(out.shape, dtype=self._dtype.type, out=out)

    def start(self) -> tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]:
        """Return the first minibatch, the stepsizes and the normals that a chain starts with."""
        minibatches, dynamics = self._chain.minibatches, self._chain.dynamics
        arrays = {name: _aligned(*spec) for name, spec in minibatches.shapes(1).items()}
        minibatches.prepare(self._rng(Purpose.START_MINIBATCH), arrays)
        normals = np.empty((dynamics.start_normals, self._chain.layout.size), self._dtype)
        self._normals(self._rng(Purpose.START_NOISE), normals)
        return (
            {name: tf.convert_to_tensor(array) for name, array in arrays.items()},
            tf.constant(self._stepsizes.at(1, 1)[0], self._dtype),
            tf.convert_to_tensor(normals),
        )

    def block(self, number: int, is_last: bool) -> BlockInputs:
        """Return the inputs of one block, and start on the next unless this is the last."""
        if self._ahead is not None and self._ahead[0] == number:
            inputs = self._ahead[1].result()
        else:
            inputs = self._prepare(number)
        self._ahead = None
        if self.executor is not None and not is_last:
            self._ahead = number + 1, self.executor.submit(self._prepare, number + 1)
        return inputs

    def _stepsizes_of(self, first: int) -> np.ndarray:
        """Return the stepsizes of the block that starts with iteration ``first``."""
        if self._stepsizes.constant:
            return self._stepsizes.at(first, 1)
        length = self._chain.block_length
        table = self._stepsizes.at(first, min(length, self.total - first + 1))
        return np.pad(table, ((0, length - len(table)), (0, 0)), mode="edge")

    def _prepare(self, number: int) -> BlockInputs:
        chain = self._chain
        length, dynamics = chain.block_length, chain.dynamics
        shapes = chain.minibatches.shapes(length * dynamics.steps)
        side = number % 2
        if side not in self._buffers:
            self._buffers[side] = (
                {name: _aligned(*spec) for name, spec in shapes.items()},
                _aligned((length, dynamics.normals, chain.layout.size), self._dtype),
            )
        arrays, noise = self._buffers[side]
        self._normals(self._rng(Purpose.NOISE, number), noise)
        chain.minibatches.prepare(self._rng(Purpose.MINIBATCH, number), arrays)
        minibatches = {name: _share(array) for name, array in arrays.items()}
        return BlockInputs(
            minibatches,
            _share(noise),
            tf.constant(self._stepsizes_of(number * length + 1), self._dtype),
            chain.look_ahead(self.estimator, minibatches),
        )


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialised array that starts where TensorFlow can use it without a copy."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % _ALIGNMENT
    return raw[offset : offset + size].view(dtype).reshape(shape)


def _share(array: np.ndarray) -> tf.Tensor:
    """Return a tensor of a buffer, without a copy where device and dtype allow."""
    on_gpu = bool(tf.config.list_logical_devices("GPU"))
    if on_gpu or array.dtype not in _SHAREABLE or array.size == 0:
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
