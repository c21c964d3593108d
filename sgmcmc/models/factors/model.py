"""Bayesian probabilistic matrix factorisation: ratings as products of factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import positive_number
from sgmcmc.data.minibatch import Tensors
from sgmcmc.models.factors.held_out import HeldOutRatings
from sgmcmc.models.factors.likelihood import predicted
from sgmcmc.models.factors.ratings import Ratings


@dataclass(frozen=True, eq=False)
class MatrixFactorisation:
    """What a sampler needs of a matrix factorisation; made by :func:`matrix_factorisation`.

    Args:
        dataset: the ratings: ``"user"``, ``"item"`` int32 (N,) and ``"rating"`` float64 (N,).
        n_users: L.
        n_items: M.
        rank: D, the factors of each user and item.
        precision: τ, of a rating around its mean.
        shape: of the gamma prior of each λ.
        rate: of the gamma prior of each λ.
        centre: c, to which the rest is added.

    Example:
        >>> from sgmcmc.models import matrix_factorisation
        >>> ratings = {"user": [0, 0, 1], "item": [0, 1, 1], "rating": [5, 3, 1]}
        >>> model = matrix_factorisation(ratings, rank=2)
        >>> model.n_users, model.n_items, model.centre
        (2, 2, 3.0)
    """

    dataset: dict[str, np.ndarray]
    n_users: int
    n_items: int
    rank: int
    precision: float
    shape: float
    rate: float
    centre: float

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter."""
        L, M, D = self.n_users, self.n_items, self.rank
        return {"U": (L, D), "V": (M, D), "a": (L,), "b": (M,)}

    @property
    def lookups(self) -> dict[str, str]:
        """The column that says on which row of each parameter a rating depends.

        For ``sgmcmc.gradients.SAGA(lookups=model.lookups)``, whose table then fits in memory.
        """
        return {"U": "user", "V": "item", "a": "user", "b": "item"}

    def start(self, seed: int | None = None, scale: float = 0.1) -> dict[str, np.ndarray]:
        """Return starting values: factors N(0, scale²), biases zero.

        Args:
            seed: of the draw.
            scale: sd of the factors. At zero they would have no gradient.

        Returns:
            ``{"U": (L, D), "V": (M, D), "a": (L,), "b": (M,)}``, float64.

        Raises:
            TypeError, ValueError: ``scale`` is no positive number.

        Example:
            >>> from sgmcmc.models import matrix_factorisation
            >>> model = matrix_factorisation({"user": [0], "item": [2], "rating": [5]}, rank=4)
            >>> model.start(seed=1)["V"].shape
            (3, 4)
        """
        scale, rng = positive_number("scale", scale), np.random.default_rng(seed)
        factors = {name: scale * rng.normal(size=self.shapes[name]) for name in ("U", "V")}
        return {**factors, "a": np.zeros(self.n_users), "b": np.zeros(self.n_items)}

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return log N(r_k; c + U_i·V_j + a_i + b_j, 1/τ) of each rating k of user i and item j.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
            dataset: rows of ``dataset``, n of them.

        Returns:
            (n,).

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import matrix_factorisation
            >>> ratings = {"user": [0, 1], "item": [0, 0], "rating": [4.0, 2.0]}
            >>> model = matrix_factorisation(ratings, rank=1, precision=6.2831853)
            >>> params = {name: tf.zeros(shape) for name, shape in model.shapes.items()}
            >>> data = {name: tf.constant(column) for name, column in model.dataset.items()}
            >>> [round(float(term), 4) for term in model.log_lik(params, data)]
            [-3.1416, -3.1416]
        """
        error = tf.cast(dataset["rating"], params["U"].dtype) - self._mean(params, dataset)
        constant = 0.5 * np.log(self.precision / (2 * np.pi))
        return constant - 0.5 * self.precision * error * error

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log prior of all parameters, their precisions λ integrated out.

        For each θ of U, V, a, b, of d entries: θ | λ ~ N(0, I/λ), λ ~ Gamma(s, t) make

        log p(θ) = s log t + log Γ(s + d/2) − log Γ(s) − (d/2) log 2π − (s + d/2) log(t + ‖θ‖²/2).

        Its gradient is −E[λ | θ] θ. So the chain has no precisions to move, which would be far
        stiffer than the rest, and its draws of U, V, a, b have the same posterior.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.

        Returns:
            A scalar.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import matrix_factorisation
            >>> ratings = {"user": [0], "item": [0], "rating": [4.0]}
            >>> model = matrix_factorisation(ratings, rank=1, prior=(0.5, 1.0))
            >>> params = {name: tf.zeros(shape) for name, shape in model.shapes.items()}
            >>> round(float(model.log_prior(params)), 4)  # four Cauchy densities with scale √2
            -5.9652
        """
        s, t = self.shape, self.rate
        value = tf.zeros([], params["U"].dtype)
        for name, shape in self.shapes.items():
            half = 0.5 * np.prod(shape)
            value += (
                s * np.log(t) + math.lgamma(s + half) - math.lgamma(s) - half * np.log(2 * np.pi)
            )
            value -= (s + half) * tf.math.log(t + 0.5 * tf.reduce_sum(params[name] ** 2))
        return value

    def precisions(self, params: Tensors) -> tf.Tensor:
        """Return E[λ | θ] = (s + d/2) / (t + ‖θ‖²/2) of U, V, a and b, (4,).

        A test function. Given θ, λ is gamma with the shape s + d/2 and this mean.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
        """
        s, t = self.shape, self.rate
        return tf.stack(
            [
                (s + 0.5 * np.prod(shape)) / (t + 0.5 * tf.reduce_sum(params[name] ** 2))
                for name, shape in self.shapes.items()
            ]
        )

    def predict(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the mean c + U_i·V_j + a_i + b_j of ratings, for ``samples.predict``.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
            dataset: ``"user"`` and ``"item"``, (n,) each.

        Returns:
            (n,); NaN for a user or item that the model does not have.

        Example:
            >>> import numpy as np, sgmcmc
            >>> from sgmcmc.models import matrix_factorisation
            >>> model = matrix_factorisation({"user": [0], "item": [1], "rating": [4.0]}, rank=1)
            >>> draws = sgmcmc.Samples({"U": np.ones((3, 1, 1)), "V": np.ones((3, 2, 1)),
            ...                         "a": np.zeros((3, 1)), "b": np.zeros((3, 2))})
            >>> draws.predict(model.predict, {"user": [0], "item": [0]}).tolist()
            [5.0]
        """
        user, item = (tf.cast(dataset[name], tf.int32) for name in ("user", "item"))
        known = (user >= 0) & (user < self.n_users) & (item >= 0) & (item < self.n_items)
        safe = {"user": tf.where(known, user, 0), "item": tf.where(known, item, 0)}
        return tf.where(known, self._mean(params, safe), np.nan)

    def predict_rating(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return ratings drawn around their means, N(c + U_i·V_j + a_i + b_j, 1/τ).

        For ``samples.predict(model.predict_rating, ..., reduce="quantiles")``: the uncertainty of a
        rating, that of its mean included.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
            dataset: ``"user"`` and ``"item"``, (n,) each.
        """
        mean = self.predict(params, dataset)
        return mean + tf.random.normal(tf.shape(mean), dtype=mean.dtype) / np.sqrt(self.precision)

    def held_out(self, ratings: Any) -> HeldOutRatings:
        """Return held-out ratings, whose scores are followed inside a chain.

        Args:
            ratings: in any form that :func:`matrix_factorisation` takes.

        Raises:
            TypeError, ValueError: as there; or a user or an item is not the model's.

        Example:
            >>> from sgmcmc.models import matrix_factorisation
            >>> ratings = {"user": [0, 0, 1], "item": [0, 1, 1], "rating": [5, 3, 1]}
            >>> model = matrix_factorisation(ratings, rank=2)
            >>> len(model.held_out({"user": [1], "item": [0], "rating": [2]}))
            1
        """
        table = Ratings.read(ratings, {"user": self.n_users, "item": self.n_items})
        return HeldOutRatings(table, self.predict, self.precision)

    def _mean(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        user, item = (tf.cast(dataset[name], tf.int32) for name in ("user", "item"))
        return self.centre + predicted(params, user, item)
