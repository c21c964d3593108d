"""Prepares what blocks of iterations consume: minibatches, noise and stepsizes.

For a single chain the next block is made on a second thread while the compiled chain works on
the present one.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.block import BlockInputs
from sgmcmc.buffers import Buffers, Pool
from sgmcmc.chain import Chain
from sgmcmc.schedules import Stepsizes
from sgmcmc.streams import Phase, Purpose, generator


class _Prepared(NamedTuple):
    """A block that is ready to run."""

    number: int
    buffers: Buffers
    inputs: BlockInputs


class Feed:
    """What the blocks of one chain consume.

    Args:
        chain: the compiled chain, for its shapes.
        pool: the memory that blocks are prepared in, which chains may share.
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
        pool: Pool,
        stepsizes: Stepsizes,
        seed: int,
        number: int,
        phase: Phase,
        estimator: Any,
        total: int,
    ) -> None:
        self._chain = chain
        self._pool = pool
        self._stepsizes = stepsizes
        self._seed, self._number, self._phase = seed, number, phase
        self._dtype = np.dtype(chain.estimator.model.dtype.as_numpy_dtype)
        self.executor: Executor | None = None
        self._ahead: tuple[int, Future[_Prepared]] | None = None
        self.estimator = estimator
        self.total = total
        self._present: _Prepared | None = None

    def _rng(self, purpose: Purpose, block: int = 0) -> np.random.Generator:
        return generator(self._seed, self._number, self._phase, purpose, block)

    def _normals(self, rng: np.random.Generator, out: np.ndarray) -> None:
        rng.standard_normal(out.shape, dtype=self._dtype.type, out=out)

    def _seeds(self, purpose: Purpose, out: np.ndarray, block: int = 0) -> None:
        if out.size:
            rng = self._rng(purpose, block)
            out[...] = rng.integers(-(2**31), 2**31, out.shape, dtype=np.int32)

    def start(self) -> BlockInputs:
        """Return what a chain starts with: a minibatch, normals and stepsizes for one step."""
        # The start is a plain graph.
        minibatches, dynamics = self._chain.minibatches.plain, self._chain.dynamics
        arrays = {name: np.empty(*spec) for name, spec in minibatches.shapes(1).items()}
        minibatches.prepare(self._rng(Purpose.START_MINIBATCH), arrays)
        normals = np.empty((1, dynamics.start_normals, self._chain.layout.size), self._dtype)
        self._normals(self._rng(Purpose.START_NOISE), normals)
        seeds = np.empty((1, self._chain.latent_seeds, 2), np.int32)
        self._seeds(Purpose.START_LATENTS, seeds)
        return BlockInputs(
            {name: tf.convert_to_tensor(array) for name, array in arrays.items()},
            tf.convert_to_tensor(normals),
            tf.constant(self._stepsizes.at(1, 1), self._dtype),
            tf.convert_to_tensor(seeds),
        )

    def block(self, number: int, is_last: bool) -> BlockInputs:
        """Return the inputs of one block, and start on the next unless this is the last.

        They hold until ``release`` is called or another block is asked for.
        """
        if self._present is not None and self._present.number == number:
            return self._present.inputs
        self.release()
        if self._ahead is not None and self._ahead[0] == number:
            self._present = self._ahead[1].result()
        else:
            self._present = self._prepare(number)
        self._ahead = None
        if self.executor is not None and not is_last:
            self._ahead = number + 1, self.executor.submit(self._prepare, number + 1)
        return self._present.inputs

    def prepare_plainly(self) -> None:
        """Prepare blocks for plain graphs from now on, the present one anew."""
        self._chain.prepared = self._chain.minibatches.plain
        if self._ahead is not None:
            self._ahead[1].exception()  # it is of no use, but must be done with
        self._ahead = self._present = None
        self._pool.clear()

    def release(self) -> None:
        """Let the memory of the present block be used again."""
        if self._present is not None:
            self._pool.give_back(self._present.buffers)
            self._present = None

    def _stepsizes_of(self, first: int) -> np.ndarray:
        """Return the stepsizes of the block that starts with iteration ``first``."""
        if self._stepsizes.constant:
            return self._stepsizes.at(first, 1)
        length = self._chain.block_length
        table = self._stepsizes.at(first, min(length, self.total - first + 1))
        return np.pad(table, ((0, length - len(table)), (0, 0)), mode="edge")

    def _prepare(self, number: int) -> _Prepared:
        chain = self._chain
        buffers = self._pool.take()
        self._normals(self._rng(Purpose.NOISE, number), buffers.noise.array)
        chain.prepared.prepare(
            self._rng(Purpose.MINIBATCH, number),
            {name: buffer.array for name, buffer in buffers.minibatches.items()},
        )
        seeds, latent = buffers.seeds.array, chain.latent_seeds
        self._seeds(Purpose.LATENTS, seeds[:, :latent], number)
        self._seeds(Purpose.SEEDS, seeds[:, latent:], number)
        buffers.stepsizes.array[...] = self._stepsizes_of(number * chain.block_length + 1)
        minibatches = {name: buffer.tensor() for name, buffer in buffers.minibatches.items()}
        inputs = BlockInputs(
            minibatches,
            buffers.noise.tensor(),
            buffers.stepsizes.tensor(),
            buffers.seeds.tensor(),
        )
        return _Prepared(number, buffers, inputs)
