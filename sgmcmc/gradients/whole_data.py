"""Passes over the whole dataset: full gradients, and those of all single terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Minibatch, Tensors
from sgmcmc.data.passes import Function, Pass, chunks, shards
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.gradients.latents import Latents
from sgmcmc.graphs.tracing import trace
from sgmcmc.model.target import Target


class _Places(NamedTuple):
    """The entries of a term's gradient that are wanted.

    Attributes:
        coordinates: Coordinates of the position.
        lookups: Columns that number the rows of the parameters, to which coordinates then belong.
    """

    coordinates: np.ndarray
    lookups: Mapping[str, str] | None


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
    _passes: dict[Any, Pass] = field(default_factory=dict)
    _last: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """N, the number of observations."""
        return self.data.size

    def of_chain(self, number: int) -> WholeData:
        """Return the same for another chain."""
        # The last gradient is one for all.
        return replace(self, chain=number, _known=[])

    def remember(self, position: np.ndarray, gradient: np.ndarray) -> None:
        """Store a full gradient from an earlier run."""
        self._known.append((position, gradient))

    def gradient(self, position: np.ndarray, visit: int = 0) -> np.ndarray:
        """Return G = ∇log p(θ | x) over the whole dataset, (d,), added up in float64.

        If latent variables are drawn, G is the mean over 100 passes; if their values are
        kept from pass to pass, the first half of the passes is dropped.

        Args:
            position: θ, flat.
            visit: Number of the call, which names the random numbers, for estimators that are
                called again.
        """
        for known_position, gradient in (*self._known, *self._last):
            if np.array_equal(known_position, position):
                return gradient
        dtype = self.target.dtype.as_numpy_dtype
        if self.latents is None:
            gradient = self._one_pass(position, {}, None)[0].astype(dtype)
            # Chains begin at the same center.
            self._last[:] = [(np.array(position), gradient)]
            return gradient
        latent_values, gradients = self.latents.start(), []
        passes = 100
        for number in range(passes):
            block = visit * passes + number
            rng = generator(
                self.seed, self.chain, RunPhase.MODE, Purpose.FULL_GRADIENT, block
            )
            gradient, latent_values = self._one_pass(position, latent_values, rng)
            gradients.append(gradient)
            if number == 1 and np.array_equal(gradients[0], gradients[1]):
                break  # nothing is drawn at random
        warm_up = len(gradients) // 2 if latent_values else 0
        return np.mean(gradients[warm_up:], 0).astype(dtype)

    def _one_pass(
        self,
        position: np.ndarray,
        latent_values: Tensors,
        rng: np.random.Generator | None,
    ) -> tuple[np.ndarray, Tensors]:
        """Return the gradient over all pieces, and the kept latent variables."""
        keys = self._piece_keys(rng)
        if not latent_values:
            sums = self._pass.sums(
                "gradient", position, first="posterior", per_chunk=keys
            )
            return sums[0], {}
        total = np.zeros(position.shape)  # these go from piece to piece
        all_shards = shards(self.data, row_terms=self.target.row_terms)
        for shard, shard_keys in zip(all_shards, keys, strict=True):
            of_shard = zip(chunks(self.data, shard), shard_keys, strict=True)
            for (start, columns), key in of_shard:
                name = "kept gradient" if start else "kept posterior"
                gradient, latent_values = self._pass.run(
                    name, position, latent_values, key, columns
                )
                total += gradient.numpy()
        return total, latent_values

    def term_gradients(
        self,
        position: np.ndarray,
        places: np.ndarray,
        lookups: Mapping[str, str] | None = None,
    ) -> np.ndarray:
        """Return the gradient of each observation's own term at some coordinates, (N, k).

        Latent variables are drawn once for each of them.

        Args:
            position: θ, flat.
            places: Coordinates.
            lookups: Columns that number the rows of the parameters on which a term depends; the
                coordinates are then those of these rows, one after another.
        """
        size = self.target.size if lookups is None else len(places)
        limit = 2**20 // max(1, size)
        rng = generator(self.seed, self.chain, RunPhase.CHAIN, Purpose.FULL_GRADIENT)
        latent_values = {} if self.latents is None else self.latents.starts
        key = (lookups is None, places.tobytes())
        if key not in self._passes:
            terms = partial(self._chainless()._terms, _Places(places, lookups))
            self._passes[key] = Pass(
                self.data, {"terms": terms}, row_terms=self.target.row_terms
            )
        (table,) = self._passes[key].joined(
            "terms",
            position,
            dict(latent_values),
            max_terms=limit,
            per_chunk=self._piece_keys(rng, limit),
        )
        return table

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
                seed = tf.constant([0, 1])
                latent_values = self.latents.start()
                columns, _ = self.latents.draw(
                    params, first, tf.range(1), latent_values, seed
                )
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(list(params.values()))
                value = tf.reduce_sum(target.log_lik(dict(params), dict(columns)))
            gradients = tape.gradient(value, list(params.values()))
            used.extend(
                n for n, g in zip(params, gradients, strict=True) if g is not None
            )
            return position

        trace(find, tf.zeros([target.size], target.dtype))
        return np.concatenate([everything[space.layout.slices[name]] for name in used])

    @property
    def _pass(self) -> Pass:
        """Passes of the gradient; one for all chains."""
        if "gradient" not in self._passes:
            whole = self._chainless()
            functions: dict[str, Function] = {
                "gradient": partial(whole._gradient, False),
                "posterior": partial(whole._gradient, True),
                "kept gradient": partial(whole._kept_gradient, False),
                "kept posterior": partial(whole._kept_gradient, True),
            }
            self._passes["gradient"] = Pass(
                self.data, functions, row_terms=self.target.row_terms
            )
        return self._passes["gradient"]

    def _chainless(self) -> WholeData:
        """Return a copy without chains, which workers use for parts of the data."""
        return WholeData(self.target, self.data, self.minibatch_size, self.latents)

    def _gradient(
        self, with_prior: bool, point: tf.Tensor, key: tf.Tensor, columns: Tensors
    ) -> list[tf.Tensor]:
        return [self._kept_gradient(with_prior, point, {}, key, columns)[0]]

    def _kept_gradient(
        self,
        with_prior: bool,
        point: tf.Tensor,
        latent_values: Tensors,
        key: tf.Tensor,
        columns: Tensors,
    ) -> tuple[tf.Tensor, Tensors]:
        """Return the gradient over a piece, and the kept latent variables.

        The prior and the Jacobian count once, with the first piece.
        """
        columns, latent_values = self._completed(point, columns, key, latent_values)
        gradient = self.target.gradient(point, Minibatch(columns), with_prior)
        return gradient, latent_values

    def _terms(
        self,
        places: _Places,
        point: tf.Tensor,
        latent_values: Tensors,
        key: tf.Tensor,
        columns: Tensors,
    ) -> list[tf.Tensor]:
        columns, _ = self._completed(point, columns, key, latent_values)
        if places.lookups is not None:
            return [self.target.lookup_gradients(point, columns, places.lookups)]
        terms = self.target.term_gradients(point, columns)
        if len(places.coordinates) == self.target.size:
            return [terms]
        return [tf.gather(terms, places.coordinates, axis=1)]

    def _completed(
        self, point: tf.Tensor, columns: Tensors, key: tf.Tensor, latent_values: Tensors
    ) -> tuple[Tensors, Tensors]:
        """Return a piece with its latent variables, and those to keep.

        Args:
            point: Position, flat.
            columns: Columns of the piece.
            key: Number of its first row, and its seed.
            latent_values: Kept latent variables.
        """
        if self.latents is None:
            return columns, latent_values
        rows = key[0] + tf.range(next(iter(columns.values())).shape[0])
        return self.latents.draw(
            self.target.space.constrain(point), columns, rows, latent_values, key[1:]
        )

    def _piece_keys(
        self, rng: np.random.Generator | None, limit: int | None = None
    ) -> list[np.ndarray]:
        """Return the first row and a seed of each piece of each shard, int32."""
        keys_by_shard = []
        for shard in shards(self.data, limit, self.target.row_terms):
            keys = np.zeros((len(shard.starts), 3), np.int32)
            keys[:, 0] = shard.starts
            if rng is not None:
                for key in keys:
                    key[1:] = rng.integers(-(2**31), 2**31, 2, dtype=np.int32)
            keys_by_shard.append(keys)
        return keys_by_shard
