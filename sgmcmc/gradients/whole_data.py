"""Passes over the whole dataset: full gradients, and those of all single terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.data.shards import Shard, map_over, pieces, shards
from sgmcmc.gradients.latents import Latents
from sgmcmc.graphs.tracing import trace
from sgmcmc.target.target import Target

PASSES = 100
"""Passes over the dataset whose gradients are averaged if latent variables are drawn."""


@dataclass
class WholeData:
    """The target with the whole dataset, for one of several chains.

    The dataset is passed over in pieces that fit in memory. Graphs are made once, for all chains.

    Args:
        target: Log posterior.
        data: Dataset.
        minibatch_size: Number of observations in a minibatch, n.
        latents: Function that draws the latent variables, if there are any.
        seed: Seed of the latent variables.
        chain: Number of the chain.
        chains: Number of chains.

    Example:
        >>> import sgmcmc
        >>> class Counted(sgmcmc.gradients.SVRG):
        ...     def init(self, whole, position):  # what an estimator is handed
        ...         print(whole.size, whole.minibatch_size)
        ...         return super().init(whole, position)
        >>> sampler = sgmcmc.setup(
        ...     lambda params, dataset: -((dataset["x"] - params["theta"]) ** 2),
        ...     {"x": [0.0, 1.0, 2.0]}, {"theta": 1.0}, dynamics="sgld", gradient=Counted(),
        ...     minibatches="uniform", minibatch_size=2, preconditioner="none", stepsize=0.1,
        ...     n_chains=None, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        3 2
    """

    target: Target
    data: Data
    minibatch_size: int
    latents: Latents | None = None
    seed: int = 0
    chain: int = 0
    chains: int = 1
    _known: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _graphs: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _sent: list[WholeData] = field(default_factory=list)

    @property
    def size(self) -> int:
        """N, the number of observations."""
        return self.data.size

    def of_chain(self, number: int) -> WholeData:
        """Return the same for another chain."""
        return WholeData(
            self.target,
            self.data,
            self.minibatch_size,
            self.latents,
            self.seed,
            number,
            self.chains,
            _graphs=self._graphs,
            _sent=self._sent,
        )

    def remember(self, position: np.ndarray, gradient: np.ndarray) -> None:
        """Store a full gradient from an earlier run."""
        self._known.append((position, gradient))

    def gradient(self, position: np.ndarray, visit: int = 0) -> np.ndarray:
        """Return G = ∇log p(θ | x) over the whole dataset, (d,), added up in float64.

        If latent variables are drawn, G is the mean over ``PASSES`` passes; if their values are
        kept from pass to pass, the first half of the passes is dropped.

        Args:
            position: θ, flat.
            visit: Number of the call, which names the random numbers, for estimators that are
                called again.
        """
        for known, gradient in self._known:
            if np.array_equal(known, position):
                return gradient
        dtype = self.target.dtype.as_numpy_dtype
        if self.latents is None:
            return self._one_pass(position, {}, None)[0].astype(dtype)
        kept, gradients = self.latents.start(), []
        for number in range(PASSES):
            block = visit * PASSES + number
            rng = generator(self.seed, self.chain, RunPhase.MODE, Purpose.FULL_GRADIENT, block)
            gradient, kept = self._one_pass(position, kept, rng)
            gradients.append(gradient)
            if number == 1 and np.array_equal(gradients[0], gradients[1]):
                break  # nothing is drawn at random
        warm_up = len(gradients) // 2 if kept else 0
        return np.mean(gradients[warm_up:], 0).astype(dtype)

    def term_gradients(
        self, position: np.ndarray, places: np.ndarray, lookups: Mapping[str, str] | None = None
    ) -> np.ndarray:
        """Return the gradient of each observation's own term at some coordinates, (N, k).

        Latent variables are drawn once for each of them.

        Args:
            position: θ, flat.
            places: Coordinates.
            lookups: Columns that number the rows of the parameters on which a term depends; the
                coordinates are then those of these rows, one after another.
        """
        dtype = self.target.dtype.as_numpy_dtype
        table = np.empty((self.size, len(places)), dtype)
        rng = generator(self.seed, self.chain, RunPhase.CHAIN, Purpose.FULL_GRADIENT)
        size = self.target.size if lookups is None else len(places)
        every = shards(self.data, 2**20 // max(1, size), self.target.row_terms)
        calls = [(position, places, shard, _seeds(rng, shard), lookups) for shard in every]
        parts = map_over(self.data, self._lean(), "terms_of_shard", calls)
        for shard, part in zip(every, parts, strict=True):
            table[shard.start : shard.stop] = part
        return table

    def terms_of_shard(
        self,
        position: np.ndarray,
        places: np.ndarray,
        shard: Shard,
        seeds: np.ndarray,
        lookups: Mapping[str, str] | None,
    ) -> np.ndarray:
        """Return the gradient of each term of a part of the data at some coordinates."""
        found: list[np.ndarray] = []
        point, kept = tf.constant(position), {} if self.latents is None else self.latents.start()
        for start, length, piece in pieces(self.data, shard):
            arguments = (point, piece, tf.constant(start), kept, tf.constant(seeds[len(found)]))
            terms = self._terms_of_piece(length, lookups)
            graph = self._graph(("terms", length, lookups is None), terms, *arguments)
            found.append(graph(*arguments).numpy()[:, places])
        return np.concatenate(found)

    def data_places(self) -> np.ndarray:
        """Return the coordinates of the position on which the log-likelihood depends."""
        target, space = self.target, self.target.space
        everything = np.arange(target.size)
        if space.preconditioner is not None:
            return everything
        first = self.data.rows(np.arange(1))
        used: list[str] = []

        def find(position: tf.Tensor) -> tf.Tensor:
            params, columns = space.constrain(position), first
            if self.latents is not None:
                seed, kept = tf.constant([0, 1]), self.latents.start()
                columns, _ = self.latents.draw(params, first, tf.range(1), kept, seed)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(params.values()))
                value = tf.reduce_sum(target.log_lik(dict(params), dict(columns)))
            gradients = tape.gradient(value, list(params.values()))
            used.extend(n for n, g in zip(params, gradients, strict=True) if g is not None)
            return position

        trace(find, tf.zeros([target.size], target.dtype))
        return np.concatenate([everything[space.layout.slices[name]] for name in used])

    def _lean(self) -> WholeData:
        """Return what a worker needs for a part of the data; one for all chains."""
        if self.data.machines.here:
            return self
        if not self._sent:
            chainless = WholeData(self.target, self.data, self.minibatch_size, self.latents)
            self._sent.append(chainless)
        return self._sent[0]

    def __getstate__(self) -> dict[str, Any]:
        # A worker traces its own graphs.
        return {**self.__dict__, "_graphs": {}, "_known": [], "_sent": []}

    def _graph(self, key: tuple[Any, ...], function: Any, *arguments: Any) -> Any:
        if key not in self._graphs:
            self._graphs[key] = trace(function, *arguments)
        return self._graphs[key]

    def _one_pass(
        self, position: np.ndarray, kept: Tensors, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, Tensors]:
        """Return the gradient over all pieces, and the kept latent variables."""
        every = shards(self.data, row_terms=self.target.row_terms)
        total = np.zeros(position.shape)
        if kept:  # which pass from piece to piece
            for shard in every:
                part, kept = self.gradient_of_shard(position, shard, _seeds(rng, shard), kept)
                total += part
            return total, kept
        calls = [(position, shard, _seeds(rng, shard)) for shard in every]
        for part, _ in map_over(self.data, self._lean(), "gradient_of_shard", calls):
            total += part
        return total, {}

    def gradient_of_shard(
        self, position: np.ndarray, shard: Shard, seeds: np.ndarray, kept: Tensors | None = None
    ) -> tuple[np.ndarray, Tensors]:
        """Return the gradient over a part of the data, and the kept latent variables."""
        total, kept, point = np.zeros(position.shape), kept or {}, tf.constant(position)
        for number, (start, length, piece) in enumerate(pieces(self.data, shard)):
            arguments = (point, piece, tf.constant(start), kept, tf.constant(seeds[number]))
            # The prior and the Jacobian count once, with the first piece.
            graph = self._graph(
                ("gradient", start == 0, length), self._of_piece(start == 0, length), *arguments
            )
            part, kept = graph(*arguments)
            total += part.numpy()
        return total, kept

    def _of_piece(self, with_prior: bool, length: int) -> Any:
        def gradient(
            point: tf.Tensor, piece: Tensors, start: tf.Tensor, kept: Tensors, seed: tf.Tensor
        ) -> tuple[tf.Tensor, Tensors]:
            piece, kept = self._completed(point, piece, start + tf.range(length), kept, seed)
            return self.target.gradient(point, Minibatch(piece), with_prior), kept

        return gradient

    def _terms_of_piece(self, length: int, lookups: Mapping[str, str] | None) -> Any:
        def terms(
            point: tf.Tensor, piece: Tensors, start: tf.Tensor, kept: Tensors, seed: tf.Tensor
        ) -> tf.Tensor:
            piece, _ = self._completed(point, piece, start + tf.range(length), kept, seed)
            if lookups is not None:
                return self.target.lookup_gradients(point, piece, lookups)
            return self.target.term_gradients(point, piece)

        return terms

    def _completed(
        self, point: tf.Tensor, piece: Tensors, rows: tf.Tensor, kept: Tensors, seed: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        """Return a piece with its latent variables, and those to keep."""
        if self.latents is None:
            return piece, kept
        params = self.target.space.constrain(point)
        return self.latents.draw(params, piece, rows, kept, seed)


def _seeds(rng: np.random.Generator | None, shard: Shard) -> np.ndarray:
    """Return a seed for the graph of each piece."""
    count = -(-(shard.stop - shard.start) // shard.piece)
    if rng is None:
        return np.zeros((count, 2), np.int32)
    return np.stack([rng.integers(-(2**31), 2**31, 2, dtype=np.int32) for _ in range(count)])
