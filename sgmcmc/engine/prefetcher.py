"""Prepares the inputs of blocks of iterations: minibatches, normals and stepsizes.

With a core to spare the next block is made on a second thread while the compiled chain works on the
present one. The memory is used again and again: no page is touched for the first time twice, and
TensorFlow reads the very memory that NumPy wrote, so handing a block over costs nothing. The
environment variable ``SGMCMC_COPY_BLOCKS`` has it copied instead.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import aligned, is_shared, tensor_of
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator, standard_normals
from sgmcmc.dynamics.schedules import Stepsizes
from sgmcmc.engine.iteration import BlockInputs
from sgmcmc.engine.kernel import ChainStart, Kernel
from sgmcmc.minibatches.reshuffled import SequenceStart
from sgmcmc.minibatches.streams import Edges


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_to_spare(chains: int) -> bool:
    """Return whether there are more cores than chains, so that one can prepare blocks ahead."""
    return chains < available_cores()


class Ahead:
    """Calls functions in order on a separate thread, which ends with the last reference to it.

    The thread is a daemon: if it waits for a file that never comes, the process can still end.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit a function, and return its future."""
        future: Future[Any] = Future()

        def task() -> None:
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)

        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._tasks,), name="sgmcmc-ahead", daemon=True
            )
            self._thread.start()
        self._tasks.put(task)
        return future


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del (
            task
        )  # it holds what it is a method of, and that may hold the last reference


class Buffer:
    """An array that is filled again and again, and a tensor of its values.

    If device and dtype allow, the tensor is the memory of the array itself: fill the array only
    when its last reader is done.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.array = aligned(shape, np.dtype(dtype))
        same = (
            is_shared(self.array) or self.array.size == 0
        )  # an empty one never changes
        self._shared = tensor_of(self.array) if same else None

    def tensor(self) -> tf.Tensor:
        """Return the tensor of the array's present values."""
        return tf.constant(self.array) if self._shared is None else self._shared


class Buffers(NamedTuple):
    """Memory of one block.

    Attributes:
        minibatches: Arrays of the data stream.
        normals: Normals, (iterations, vectors, d).
        stepsizes: Stepsizes, a row for each iteration, or a single one.
        seeds: Seeds for the graph, (steps, seeds, 2).
    """

    minibatches: dict[str, Buffer]
    normals: Buffer
    stepsizes: Buffer
    seeds: Buffer


Made = TypeVar("Made")


class Pool(Generic[Made]):
    """Buffers that the chains of a run share: there are never more than are in use at a time."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._free: deque[Made] = deque()

    def take(self) -> Made:
        """Return free buffers, with their last contents."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give_back(self, buffers: Made) -> None:
        """Release these buffers."""
        self._free.append(buffers)


def pool_of(kernel: Kernel, stepsizes: Stepsizes) -> Pool[Buffers]:
    """Return the pool of chains that each have their own kernel."""
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


class BlockSource(NamedTuple):
    """Source of the random numbers and stepsizes of a chain.

    Attributes:
        seed: Seed.
        chain: Number of the chain.
        phase: Phase: mode-finding or chain.
        stepsizes: Stepsizes.
        total: Total number of iterations; no schedule is evaluated beyond it.
    """

    seed: int
    chain: int
    phase: RunPhase
    stepsizes: Stepsizes
    total: int

    def rng(self, purpose: Purpose, block: int = 0) -> np.random.Generator:
        """Return the generator of the numbers for a purpose."""
        return generator(self.seed, self.chain, self.phase, purpose, block)

    def sequence_place(self, first: int) -> SequenceStart:
        """Return the place of a minibatch in the chain's sequence."""
        return SequenceStart(
            (self.seed, self.chain, int(self.phase)),
            partial(self.rng, Purpose.EPOCH),
            first,
        )


class _Prepared(NamedTuple):
    number: int
    buffers: Buffers
    inputs: BlockInputs


class Prefetcher:
    """Inputs of the blocks of one chain.

    Args:
        kernel: Kernel.
        pool: Memory, which chains may share.
        source: Source of the random numbers and stepsizes of the chain.
    """

    def __init__(
        self, kernel: Kernel, pool: Pool[Buffers], source: BlockSource
    ) -> None:
        self.kernel = kernel
        self._pool = pool
        self.source = source
        self._dtype = np.dtype(kernel.target.dtype.as_numpy_dtype)
        self._aside: Ahead | None = None
        self._ahead: tuple[int, Future[_Prepared]] | None = None
        self._present: _Prepared | None = None

    @property
    def chain(self) -> int:
        """The number of the chain."""
        return self.source.chain

    def _seeds(self, purpose: Purpose, out: np.ndarray, block: int = 0) -> None:
        if out.size:
            rng = self.source.rng(purpose, block)
            out[...] = rng.integers(-(2**31), 2**31, out.shape, dtype=np.int32)

    def start(self, position: np.ndarray, estimator: Any) -> ChainStart:
        """Return the inputs at the start of the chain, at a flat position."""
        kernel, source = self.kernel, self.source
        normals = np.empty(
            (kernel.dynamics.start_normals, kernel.target.size), self._dtype
        )
        standard_normals(source.rng(Purpose.START_NOISE), normals)
        seeds = np.empty((kernel.iteration.latent_seeds, 2), np.int32)
        self._seeds(Purpose.START_LATENTS, seeds)
        return ChainStart(
            tf.constant(position),
            estimator,
            kernel.stream.first(
                source.rng(Purpose.START_MINIBATCH), source.sequence_place(0)
            ),
            tf.constant(normals),
            tf.constant(source.stepsizes.at(1, 1)[0], self._dtype),
            tf.constant(seeds),
        )

    def prepare_ahead(self, enabled: bool) -> None:
        """Prepare each next block on a separate thread, or on demand."""
        self._aside = Ahead() if enabled else None

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
        stepsizes, total = self.source.stepsizes, self.source.total
        if stepsizes.constant:
            return stepsizes.at(first, 1)
        length = self.kernel.length
        table = stepsizes.at(first, min(length, total - first + 1))
        return np.pad(table, ((0, length - len(table)), (0, 0)), mode="edge")

    def draw(
        self, number: int, rows: np.ndarray, normals: np.ndarray, seeds: np.ndarray
    ) -> None:
        """Write the numbers of the first iterations of a block to the buffers of a group of chains.

        ``rows`` is (iterations, steps, n), or (iterations, 0, n) to draw none; ``normals`` is
        (iterations, vectors, d), and ``seeds`` (the block's iterations, seeds, 2).
        """
        self._seeds(Purpose.SEEDS, seeds, number)
        rng = self.source.rng(Purpose.NOISE, number)
        contiguous = np.empty(normals.shape, self._dtype)
        standard_normals(rng, contiguous)
        normals[...] = contiguous
        if rows.size:
            # Which rows those are depends on how many there are in all.
            rng = self.source.rng(Purpose.MINIBATCH, number)
            count = self.kernel.length
            drawn = self.kernel.stream.drawn(
                rng, count * rows.shape[1], None, self._block_place(number)
            )
            rows[...] = drawn.reshape(count, *rows.shape[1:])[: len(rows)]

    def _block_place(self, number: int) -> SequenceStart:
        """Return the first place of a block's minibatches in the chain's sequence.

        That at the start of the chain comes first; in turn, blocks begin with it.
        """
        kernel = self.kernel
        of_block = number * kernel.length * kernel.dynamics.steps
        return self.source.sequence_place(of_block + 1 - kernel.iteration.lead)

    def _prepare(self, number: int) -> _Prepared:
        kernel, source = self.kernel, self.source
        buffers = self._pool.take()
        # What comes after the last iteration is never read.
        iterations = min(kernel.length, source.total - number * kernel.length)
        standard_normals(
            source.rng(Purpose.NOISE, number), buffers.normals.array[:iterations]
        )
        minibatch_arrays = {
            name: buffer.array for name, buffer in buffers.minibatches.items()
        }
        rng = source.rng(Purpose.MINIBATCH, number)
        steps = iterations * kernel.dynamics.steps + kernel.iteration.lead
        edges: Edges | None = None
        if kernel.iteration.lead:  # a block shares minibatches with its neighbors
            edges = (
                source.rng(Purpose.START_MINIBATCH, number),
                source.rng(Purpose.START_MINIBATCH, number + 1),
            )
        kernel.stream.prepare(
            rng, minibatch_arrays, steps, edges, self._block_place(number)
        )
        seeds, latent = buffers.seeds.array, kernel.iteration.latent_seeds_of_step
        self._seeds(Purpose.LATENTS, seeds[:, :latent], number)
        self._seeds(Purpose.SEEDS, seeds[:, latent:], number)
        buffers.stepsizes.array[...] = self.stepsizes_of(number * kernel.length + 1)
        minibatches: dict[str, Any] = {
            name: buffer.tensor() for name, buffer in buffers.minibatches.items()
        }
        inputs = BlockInputs(
            minibatches,
            buffers.normals.tensor(),
            buffers.stepsizes.tensor(),
            buffers.seeds.tensor(),
        )
        return _Prepared(number, buffers, inputs)
