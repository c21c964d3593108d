"""A network as an ensemble uses it, and the memory that an ensemble needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.sparse import SparseColumn, gather_sparse
from sgmcmc.graphs.tracing import trace

Array = np.ndarray
Weights = dict[str, Any]
"""Weights of several members by name; the first axis of each array counts the members."""


@dataclass(frozen=True)
class _KernelSettings:
    members: int = 5  # at most; with more, an iteration of a member costs the same
    wide: int = 20_000  # weights of a member whose matrices fill a core: one a kernel
    copies: int = 10  # of all weights, which training and sampling hold at a time
    memory_share: float = 0.8  # of the machine's memory that an ensemble may need


_KERNELS = _KernelSettings()


@dataclass(frozen=True)
class Network:
    """A network with a prior and a likelihood.

    Attributes:
        forward: Function of the weights of K members and features (n, ...) that returns outputs,
            (K, n, ...).
        log_density: Function of targets (n, ...) and outputs that returns log densities, (K, n).
        prior_sds: Prior SD of each weight by name, a number or an array; the mean is zero.
        emphasis: Function of outputs that returns the weight of each row in the loss of training,
            in units of its mean, (K, n); ``None`` for equal weights.
        one_by_one: Whether each member has its own kernel.
        jit_compile: Whether XLA compiles the graphs; ``None`` tries.
    """

    forward: Callable[[Weights, Any], tf.Tensor]
    log_density: Callable[[Any, tf.Tensor], tf.Tensor]
    prior_sds: Mapping[str, Any]
    emphasis: Callable[[tf.Tensor], tf.Tensor] | None = None
    one_by_one: bool = False
    jit_compile: bool | None = None

    def log_prior(self, weights: Weights) -> tf.Tensor:
        """Return the sum of the log priors of all members, without its constant."""
        terms = []
        for name, sd in self.prior_sds.items():
            standardized = weights[name] / tf.cast(sd, weights[name].dtype)
            terms.append(tf.reduce_sum(tf.square(standardized)))
        return -0.5 * tf.add_n(terms)

    def log_lik(self, weights: Weights, rows: Mapping[str, Any]) -> tf.Tensor:
        """Return the sum over members of the log-likelihood of each row, (n,)."""
        return self._of_rows(rows, self.forward(weights, rows["X"]))

    def loss(self, weights: Weights, rows: Mapping[str, Any]) -> tf.Tensor:
        """Return the loss of training, a sum over members of means over rows, without the prior."""
        outputs = self.forward(weights, rows["X"])
        factors = None
        if self.emphasis is not None:
            factors = tf.stop_gradient(self.emphasis(outputs))
            factors /= tf.reduce_mean(factors, -1, keepdims=True)
        return -tf.reduce_mean(self._of_rows(rows, outputs, factors))

    def _of_rows(
        self, rows: Mapping[str, Any], outputs: tf.Tensor, factors: Any = None
    ) -> tf.Tensor:
        """Return the sum over members of the log densities, times factors (K, n) if given."""
        terms = tf.cast(self.log_density(rows["y"], outputs), tf.float32)
        if factors is not None:
            terms = factors * terms
        return rows["weight"] * tf.reduce_sum(terms, 0)

    def densities(self, y: Any, outputs: Any) -> Array:
        """Return the log density of each target for outputs (draws, n, ...), float64."""
        log_density = self.log_density(tf.constant(y), tf.constant(outputs, tf.float32))
        return np.asarray(log_density, np.float64)

    def together(self, members: int, weights: int) -> int:
        """Return the number of members of a kernel, given the number of their weights.

        It is a divisor of the number of members, and there are two kernels or more, one for each
        core of a small machine; it does not depend on the machine.
        """
        if self.one_by_one or weights >= _KERNELS.wide:
            return 1
        largest = min(_KERNELS.members, max(1, members // 2))
        return max(k for k in range(1, largest + 1) if members % k == 0)


def count_of(weights: Weights) -> int:
    """Return the number of weights of one member."""
    return sum(int(np.prod(array.shape[1:])) for array in weights.values())


def check_memory(members: int, weights: int, draws: int) -> None:
    """Raise an error if training and draws of the members need more memory than there is.

    Args:
        members: Number of members.
        weights: Number of weights of each.
        draws: Number of stored draws of each.
    """
    bytes_each = 4.0 * weights * (_KERNELS.copies + 2 * draws)
    needed = members * bytes_each
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    usable = _KERNELS.memory_share * memory
    if needed > usable:
        largest = int(usable / bytes_each)
        raise ValueError(
            f"`members`: {members} networks of {weights} weights with {draws} stored draws need "
            f"{needed / 2**30:.1f} GiB of memory; the machine has {memory / 2**30:.1f}. Use at "
            f"most {largest} members, fewer `draws`, or store predictions in place of weights."
        )


def chunked(rows: int, numbers: int, size: int) -> list[slice]:
    """Return slices of rows, each with at most this many numbers in all, ``size`` in a row."""
    step = max(1, numbers // max(1, size))
    return [slice(begin, begin + step) for begin in range(0, rows, step)]


_ROWS = "rows"  # name of the row numbers, from which a graph gathers the rows of sparse columns


@dataclass(frozen=True)
class _Settings:
    steps: int = 30_000  # steps of Adam, if the number of epochs is not given
    largest_epochs: int = 2000  # largest number of epochs, if it is not given
    smallest_epochs: int = 5  # smallest number of epochs, if it is not given
    rate: float = 0.01  # rate of Adam at the start; it falls to zero along a cosine
    # Adam's decays of the means of gradients and of their squares
    decays: tuple[float, float] = 0.9, 0.99
    block_bytes: int = 2**24  # bytes of the minibatches that are prepared at a time


_SETTINGS = _Settings()


class Batches:
    """Rows of a dataset on their way into a graph.

    Args:
        data: Dataset.
    """

    def __init__(self, data: Data) -> None:
        self._dense = {n: c for n, c in data.columns.items() if not c.sparse}
        self._sparse = {
            n: c for n, c in data.columns.items() if isinstance(c, SparseColumn)
        }

    def graph_arguments(self, rows: Array) -> dict[str, tf.Tensor]:
        """Return the arguments of a graph for row numbers of any shape."""
        columns = {name: column.tensor_at(rows) for name, column in self._dense.items()}
        return {**columns, _ROWS: tf.constant(rows)} if self._sparse else columns

    def inside(
        self, arguments: dict[str, tf.Tensor], batch: Any = None
    ) -> dict[str, Any]:
        """Return the rows by column, in the graph; ``batch`` picks one of several minibatches."""
        if batch is not None:
            arguments = {
                name: tf.gather(column, batch) for name, column in arguments.items()
            }
        rows: dict[str, Any] = {name: arguments[name] for name in self._dense}
        for name, column in self._sparse.items():
            rows[name] = gather_sparse(
                column.stored, arguments[_ROWS], column.row_shape[0]
            )
        return rows


@dataclass(frozen=True)
class Schedule:
    """Constants of the training.

    Attributes:
        epochs: Number of epochs; ``None`` chooses.
        batch_size: Number of rows in a minibatch.
        rate: Adam's rate at the start.
    """

    epochs: int | None = None
    batch_size: int = 64
    rate: float = _SETTINGS.rate

    def length(self, rows: int) -> tuple[int, int, int]:
        """Return epochs, minibatches of an epoch, and rows of a minibatch."""
        n = min(self.batch_size, rows)
        batches = max(1, rows // n)
        epochs = self.epochs
        if epochs is None:
            bounds = _SETTINGS.smallest_epochs, _SETTINGS.largest_epochs
            epochs = int(np.clip(_SETTINGS.steps // batches, *bounds))
        return epochs, batches, n


@dataclass(frozen=True)
class Trained:
    """Result of training.

    Attributes:
        best: Weights of each member at the epoch with its best held-out density.
        last: Weights at the end.
        retrain: Function that trains the last ones on with all rows, and returns the weights at the
            end; ``None`` for weights that were only given.
    """

    best: Weights
    last: Weights
    retrain: Callable[[], Weights] | None = None


@dataclass(frozen=True)
class Training:
    """Training of all members at once, or one after another if each has its own kernel.

    θ ← θ − r m̂/(√v̂ + 10⁻⁷), m̂ and v̂ the means of a minibatch's gradients and of their squares,
    of the network's loss plus the prior over N. The rate r falls to zero along a cosine.

    Attributes:
        network: Network.
        data: Features ``X``, targets ``y`` and row weights ``weight``.
        schedule: Constants.
        rng: Generator of the order of rows.
    """

    network: Network
    data: Data
    schedule: Schedule
    rng: np.random.Generator

    def run(self, start: Weights, rows: tuple[Array, Array]) -> Trained:
        """Train the members.

        Args:
            start: Starting weights.
            rows: Numbers of the rows to train on, and of those held out.
        """
        best, last = self.best_and_last(start, rows)
        all_rows = np.arange(self.data.size), np.arange(0)
        return Trained(best, last, lambda: self.best_and_last(last, all_rows)[1])

    def best_and_last(
        self, start: Weights, rows: tuple[Array, Array]
    ) -> tuple[Weights, Weights]:
        """Return the weights at the best epochs and at the end, the same if no rows are held out.

        Args:
            start: Starting weights.
            rows: Numbers of the rows to train on, and of those held out.
        """
        members = len(next(iter(start.values())))
        if not self.network.one_by_one or members == 1:
            return self._together(start, rows)
        starts = [
            {name: array[k : k + 1] for name, array in start.items()}
            for k in range(members)
        ]
        results = [self._together(one, rows) for one in starts]
        best, last = (
            {name: np.concatenate([one[name] for one in weights]) for name in start}
            for weights in zip(*results, strict=True)
        )
        return best, last

    def _together(
        self, start: Weights, rows: tuple[Array, Array]
    ) -> tuple[Weights, Weights]:
        """Return the same, of members in one kernel."""
        train_rows, held_rows = rows
        adam = _Adam(self.network, self.data, len(train_rows))
        held_out = adam.batches.graph_arguments(held_rows) if len(held_rows) else None
        weights = {name: tf.constant(a, tf.float32) for name, a in start.items()}
        zeros = {name: tf.zeros_like(array) for name, array in weights.items()}
        state: Any = (weights, zeros, zeros, tf.constant(0.0))
        best, highest = start, np.array(-np.inf)
        for epoch in range(self.schedule.length(len(train_rows))[0]):
            state = self._epoch(adam, state, train_rows, epoch)
            if held_out is None:
                continue
            densities = adam.mean_density(state[0], held_out)
            better = densities > highest
            highest = np.where(better, densities, highest)
            best = {
                name: _where(better, state[0][name].numpy(), array)
                for name, array in best.items()
            }
        last = {name: array.numpy() for name, array in state[0].items()}
        return (last if held_out is None else best), last

    def _epoch(self, adam: _Adam, state: Any, train_rows: Array, epoch: int) -> Any:
        """Return the state after an epoch, whose minibatches run in blocks."""
        epochs, batches, n = self.schedule.length(len(train_rows))
        block_length = _SETTINGS.block_bytes // (n * self.data.row_bytes)
        block_length = max(1, min(batches, block_length))
        order = self.rng.permutation(train_rows)[: batches * n].reshape(batches, n)
        progress = (epoch * batches + np.arange(batches)) / (epochs * batches)
        cosine = 0.5 * self.schedule.rate * (1 + np.cos(np.pi * progress))
        rates = cosine.astype(np.float32)
        for first in range(0, batches, block_length):
            # The last block begins with minibatches that have been, which are left out.
            begin = min(first, batches - block_length)
            block = slice(begin, begin + block_length)
            state = adam.run(state, order[block], rates[block], first - begin)
        return state


def _where(chosen: Array, new: Array, old: Array) -> Array:
    return np.where(chosen.reshape(-1, *[1] * (new.ndim - 1)), new, old)


class _Adam:
    """The compiled functions of the training: a run of steps, and the held-out density."""

    def __init__(self, network: Network, data: Data, size: int) -> None:
        self.batches = Batches(data)
        self._network, self._size = network, size
        self._xla = network.jit_compile is not False and not data.sparse
        self._graphs: dict[str, Any] = {}

    def run(self, state: Any, rows: Array, rates: Array, first: int) -> Any:
        """Return the state after the minibatches of a block, from the first on."""
        arguments = (
            state,
            self.batches.graph_arguments(rows),
            tf.constant(rates),
            tf.constant(first),
        )
        return self._called("steps", self._steps, arguments)

    def mean_density(self, weights: Weights, rows: Any) -> Array:
        """Return the mean log density of the rows for each member."""
        return self._called("held", self._density, (weights, rows)).numpy()

    def _called(self, name: str, function: Any, arguments: Any) -> Any:
        if name not in self._graphs:
            self._graphs[name] = trace(function, *arguments, jit_compile=self._xla)
        return self._graphs[name](*arguments)

    def _density(self, weights: Weights, arguments: Any) -> tf.Tensor:
        rows = self.batches.inside(arguments)
        terms = self._network.log_density(
            rows["y"], self._network.forward(weights, rows["X"])
        )
        return tf.reduce_mean(tf.cast(terms, tf.float32), -1)

    def _steps(
        self, state: Any, arguments: Any, rates: tf.Tensor, first: tf.Tensor
    ) -> Any:
        """Return the state after a step for each minibatch; rows are (steps, n, ...)."""

        def one(i: tf.Tensor, state: Any) -> Any:
            rows = self.batches.inside(arguments, i)
            return i + 1, self._step(state, rows, tf.gather(rates, i))

        count = rates.shape[0]
        start = (first, state)
        return tf.while_loop(lambda i, _: i < count, one, start, parallel_iterations=1)[
            1
        ]

    def _step(self, state: Any, rows: Any, rate: tf.Tensor) -> Any:
        weights, means, squares, step = state
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = self._network.loss(weights, rows)
            loss -= self._network.log_prior(weights) / self._size
        gradients = tape.gradient(loss, weights)
        a, b = _SETTINGS.decays
        step += 1.0
        means = {name: a * means[name] + (1 - a) * g for name, g in gradients.items()}
        squares = {
            name: b * squares[name] + (1 - b) * g**2 for name, g in gradients.items()
        }
        m, v = 1.0 - a**step, 1.0 - b**step
        updated = {}
        for name, array in weights.items():
            scale = tf.sqrt(squares[name] / v) + 1e-7
            updated[name] = array - rate * (means[name] / m) / scale
        return updated, means, squares, step
