"""Passes over the whole dataset: full gradients, and those of all single terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.data.passes import Pass, pieces, shards
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
    _passes: dict[Any, Pass] = field(default_factory=dict)
    _last: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """N, the number of observations."""
        return self.data.size

    def of_chain(self, number: int) -> WholeData:
        """Return the same for another chain."""
        return replace(self, chain=number, _known=[])  # the last gradient is one for all

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
        for known, gradient in (*self._known, *self._last):
            if np.array_equal(known, position):
                return gradient
        dtype = self.target.dtype.as_numpy_dtype
        if self.latents is None:
            gradient = self._one_pass(position, {}, None)[0].astype(dtype)
            self._last[:] = [(np.array(position), gradient)]  # chains begin at the same center
            return gradient
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

    def _one_pass(
        self, position: np.ndarray, kept: Tensors, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, Tensors]:
        """Return the gradient over all pieces, and the kept latent variables."""
        places = self._places(rng)
        if not kept:
            found = self._pass.sums("gradient", position, first="posterior", each=places)
            return found[0], {}
        total = np.zeros(position.shape)  # these go from piece to piece
        for shard, each in zip(
            shards(self.data, row_terms=self.target.row_terms), places, strict=True
        ):
            for (start, columns), place in zip(pieces(self.data, shard), each, strict=True):
                name = "kept gradient" if start else "kept posterior"
                part, kept = self._pass.run(name, position, kept, place, columns)
                total += part.numpy()
        return total, kept

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
        size = self.target.size if lookups is None else len(places)
        most = 2**20 // max(1, size)
        rng = generator(self.seed, self.chain, RunPhase.CHAIN, Purpose.FULL_GRADIENT)
        kept = {} if self.latents is None else self.latents.starts
        key = (lookups is None, places.tobytes())
        if key not in self._passes:
            terms = partial(self._chainless()._terms, lookups, places)
            self._passes[key] = Pass(self.data, {"terms": terms}, row_terms=self.target.row_terms)
        (table,) = self._passes[key].joined(
            "terms", position, dict(kept), most=most, each=self._places(rng, most)
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

    @property
    def _pass(self) -> Pass:
        """Passes of the gradient; one for all chains."""
        if "gradient" not in self._passes:
            whole = self._chainless()
            functions = {
                f"{kind}{name}": partial(function, with_prior)
                for name, with_prior in (("gradient", False), ("posterior", True))
                for kind, function in (("", whole._gradient), ("kept ", whole._kept_gradient))
            }
            self._passes["gradient"] = Pass(self.data, functions, row_terms=self.target.row_terms)
        return self._passes["gradient"]

    def _chainless(self) -> WholeData:
        """Return a copy without chains, which workers use for parts of the data."""
        return WholeData(self.target, self.data, self.minibatch_size, self.latents)

    def _gradient(
        self, with_prior: bool, point: tf.Tensor, place: tf.Tensor, piece: Tensors
    ) -> list[tf.Tensor]:
        return [self._kept_gradient(with_prior, point, {}, place, piece)[0]]

    def _kept_gradient(
        self,
        with_prior: bool,
        point: tf.Tensor,
        kept: Tensors,
        place: tf.Tensor,
        piece: Tensors,
    ) -> tuple[tf.Tensor, Tensors]:
        """Return the gradient over a piece, and the kept latent variables.

        The prior and the Jacobian count once, with the first piece.
        """
        piece, kept = self._completed(point, piece, place, kept)
        return self.target.gradient(point, Minibatch(piece), with_prior), kept

    def _terms(
        self,
        lookups: Mapping[str, str] | None,
        places: np.ndarray,
        point: tf.Tensor,
        kept: Tensors,
        place: tf.Tensor,
        piece: Tensors,
    ) -> list[tf.Tensor]:
        piece, _ = self._completed(point, piece, place, kept)
        if lookups is not None:
            return [self.target.lookup_gradients(point, piece, lookups)]
        found = self.target.term_gradients(point, piece)
        return [found if len(places) == self.target.size else tf.gather(found, places, axis=1)]

    def _completed(
        self, point: tf.Tensor, piece: Tensors, place: tf.Tensor, kept: Tensors
    ) -> tuple[Tensors, Tensors]:
        """Return a piece with its latent variables, and those to keep.

        Args:
            point: Position, flat.
            piece: Columns of the piece.
            place: Number of its first row, and its seed.
            kept: Kept latent variables.
        """
        if self.latents is None:
            return piece, kept
        rows = place[0] + tf.range(next(iter(piece.values())).shape[0])
        return self.latents.draw(self.target.space.constrain(point), piece, rows, kept, place[1:])

    def _places(self, rng: np.random.Generator | None, most: int | None = None) -> list[np.ndarray]:
        """Return the first row and a seed of each piece of each shard, int32."""
        found = []
        for shard in shards(self.data, most, self.target.row_terms):
            places = np.zeros((len(shard.starts), 3), np.int32)
            places[:, 0] = shard.starts
            if rng is not None:
                for place in places:
                    place[1:] = rng.integers(-(2**31), 2**31, 2, dtype=np.int32)
            found.append(places)
        return found
