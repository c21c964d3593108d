"""Prepares what blocks of iterations consume: minibatches, noise and stepsizes.

With a core to spare the next block is made on a second thread while the compiled chain works on the
present one.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.numbers import standard_normals
from sgmcmc.data.rng import Purpose, RunPhase, generator
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.ahead import Ahead
from sgmcmc.engine.block import BlockInputs
from sgmcmc.engine.buffers import Buffers, Pool
from sgmcmc.engine.kernel import Kernel, Start
from sgmcmc.minibatches.stream import Edges


class Source(NamedTuple):
    """What the random numbers and stepsizes of a chain come from.

    Attributes:
        seed: the seed.
        chain: number of the chain.
        phase: mode-finding or chain.
        stepsizes: the stepsizes.
        total: iterations to run in all; no schedule is asked for more.
    """

    seed: int
    chain: int
    phase: RunPhase
    stepsizes: Stepsizes
    total: int

    def rng(self, purpose: Purpose, block: int = 0) -> np.random.Generator:
        """Return the generator of the numbers for a purpose."""
        return generator(self.seed, self.chain, self.phase, purpose, block)


class _Prepared(NamedTuple):
    """A block that is ready to run."""

    number: int
    buffers: Buffers
    inputs: BlockInputs


class Prefetcher:
    """What the blocks of one chain consume.

    Args:
        kernel: the compiled chain, for its shapes.
        pool: the memory that blocks are prepared in, which chains may share.
        source: random numbers and stepsizes.
    """

    def __init__(self, kernel: Kernel, pool: Pool[Buffers], source: Source) -> None:
        self._kernel = kernel
        self._pool = pool
        self._source = source
        self._dtype = np.dtype(kernel.target.dtype.as_numpy_dtype)
        self._aside: Ahead | None = None
        self._ahead: tuple[int, Future[_Prepared]] | None = None
        self._present: _Prepared | None = None

    @property
    def chain(self) -> int:
        """The number of the chain."""
        return self._source.chain

    def _seeds(self, purpose: Purpose, out: np.ndarray, block: int = 0) -> None:
        if out.size:
            rng = self._source.rng(purpose, block)
            out[...] = rng.integers(-(2**31), 2**31, out.shape, dtype=np.int32)

    def start(self, position: np.ndarray, estimator: Any) -> Start:
        """Return what the chain starts with.

        Args:
            position: where, flat.
            estimator: the state of the gradient estimator there.
        """
        kernel, source = self._kernel, self._source
        normals = np.empty((kernel.dynamics.start_normals, kernel.target.size), self._dtype)
        standard_normals(source.rng(Purpose.START_NOISE), normals)
        seeds = np.empty((kernel.iteration.latent_seeds, 2), np.int32)
        self._seeds(Purpose.START_LATENTS, seeds)
        return Start(
            tf.constant(position),
            estimator,
            kernel.stream.first(source.rng(Purpose.START_MINIBATCH)),
            tf.constant(normals),
            tf.constant(source.stepsizes.at(1, 1)[0], self._dtype),
            tf.constant(seeds),
        )

    def prepare_ahead(self, wanted: bool) -> None:
        """Prepare each next block on a thread of its own, or on demand."""
        self._aside = Ahead() if wanted else None

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
        if self._aside is not None and not is_last:
            self._ahead = number + 1, self._aside.submit(self._prepare, number + 1)
        return self._present.inputs

    def release(self) -> None:
        """Let the memory of the present block be used again."""
        if self._present is not None:
            self._pool.give_back(self._present.buffers)
            self._present = None

    def stepsizes_of(self, first: int) -> np.ndarray:
        """Return the stepsizes of the block that starts with iteration ``first``."""
        stepsizes, total = self._source.stepsizes, self._source.total
        if stepsizes.constant:
            return stepsizes.at(first, 1)
        length = self._kernel.length
        table = stepsizes.at(first, min(length, total - first + 1))
        return np.pad(table, ((0, length - len(table)), (0, 0)), mode="edge")

    def draw(self, number: int, rows: np.ndarray, noise: np.ndarray) -> None:
        """Write the numbers of the first iterations of a block to where a group of chains has them.

        Args:
            number: of the block.
            rows: row numbers, (iterations, steps, n), or (iterations, 0, n) to draw none.
            noise: normals, (iterations, vectors, d).
        """
        rng = self._source.rng(Purpose.NOISE, number)
        normals = np.empty(noise.shape, self._dtype)
        standard_normals(rng, normals)
        noise[...] = normals
        if rows.size:
            # Which rows those are depends on how many there are in all.
            rng, count = self._source.rng(Purpose.MINIBATCH, number), self._kernel.length
            drawn = self._kernel.stream.draws.draw(rng, count * rows.shape[1])
            rows[...] = drawn.reshape(count, *rows.shape[1:])[: len(rows)]

    def _edges(self, number: int) -> Edges | None:
        """Return where the minibatches come from that a block shares with its neighbours."""
        if not self._kernel.iteration.lead:
            return None
        before, after = (
            self._source.rng(Purpose.START_MINIBATCH, block) for block in (number, number + 1)
        )
        return before, after

    def _prepare(self, number: int) -> _Prepared:
        kernel, source = self._kernel, self._source
        buffers = self._pool.take()
        # What comes after the last iteration is never read.
        wanted = min(kernel.length, source.total - number * kernel.length)
        standard_normals(source.rng(Purpose.NOISE, number), buffers.noise.array[:wanted])
        minibatch_arrays = {name: buffer.array for name, buffer in buffers.minibatches.items()}
        rng = source.rng(Purpose.MINIBATCH, number)
        steps = wanted * kernel.dynamics.steps + kernel.iteration.lead
        kernel.stream.prepare(rng, minibatch_arrays, steps, self._edges(number))
        seeds, latent = buffers.seeds.array, kernel.iteration.latent_seeds_of_step
        self._seeds(Purpose.LATENTS, seeds[:, :latent], number)
        self._seeds(Purpose.SEEDS, seeds[:, latent:], number)
        buffers.stepsizes.array[...] = self.stepsizes_of(number * kernel.length + 1)
        minibatches: dict[str, Any] = {
            name: buffer.tensor() for name, buffer in buffers.minibatches.items()
        }
        inputs = BlockInputs(
            minibatches,
            buffers.noise.tensor(),
            buffers.stepsizes.tensor(),
            buffers.seeds.tensor(),
        )
        return _Prepared(number, buffers, inputs)
