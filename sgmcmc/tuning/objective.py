"""The log posterior over the whole dataset, as optimisers want it: in float64, with a Hessian."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch, Tensors
from sgmcmc.data.passes import Pass, added
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.target.derivatives import cast, of_likelihood, of_prior
from sgmcmc.target.target import Target

_PIECE_NUMBERS, _FEW = 2**23, 32
"""How many numbers a Hessian's intermediate results may hold, which are n × d in each piece; and
numbers of a row in place of d, in a product with it."""

Strata = Sequence[tuple[np.ndarray, float]]
"""Row numbers, and the number of rows that each of them represents."""


class Objective:
    """The log posterior and its derivatives at a flat position, added up over the dataset.

    If the user's functions allow it everything is computed in float64; if they hold float32
    constants, in the dtype of the chain, and added up in float64. Graphs of a large dataset are
    traced once for any number of rows, unless the user's functions ask how many there are.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        rows: Row numbers of the part of it that represents all; ``None`` for the whole.
        double: Whether to try float64.

    Attributes:
        evaluations: Number of passes over the data so far, Hessians counted like gradients.
    """

    def __init__(
        self, target: Target, data: Data, rows: np.ndarray | None = None, double: bool = True
    ) -> None:
        self._strata: Strata | None = None if rows is None else [(rows, data.size / len(rows))]
        self._taken: list[Tensors] = []
        self.evaluations = 0
        self.target = _in_double(target, data) if double else target
        self.size = target.size
        functions = {**of_likelihood(self.target), **of_prior(self.target)}
        self._pass = Pass(data, functions, any_length=True, row_terms=target.row_terms)

    def over(self, strata: Strata | None) -> Objective:
        """Return the same over rows that represent all, or over all, with the same graphs."""
        found = copy.copy(self)
        found._strata, found._taken, found.evaluations = strata, [], 0
        return found

    @property
    def weight(self) -> float:
        """Average number of rows that one of those used represents."""
        if self._strata is None:
            return 1.0
        return self._pass.data.size / sum(len(rows) for rows, _ in self._strata)

    def _sum(self, name: str, u: np.ndarray) -> list[np.ndarray]:
        """Return the sums over the data of what a function of position and columns returns."""
        self.evaluations += 1
        point = u.astype(self.target.dtype.as_numpy_dtype)
        if self._strata is None:
            # Only a Hessian takes n × d numbers.
            most = _PIECE_NUMBERS // (_FEW if name == "product" else 1 + self.size)
            return self._pass.sums(name, point, most=most)
        if not self._taken:
            self._taken = [self._pass.data.rows(rows) for rows, _ in self._strata]
        return added(
            [weight * _double(part) for part in self._pass.run(name, point, columns)]
            for columns, (_, weight) in zip(self._taken, self._strata, strict=True)
        )

    def _prior(self, name: str, points: np.ndarray) -> list[np.ndarray]:
        """Return what a function of the position alone returns."""
        point = points.astype(self.target.dtype.as_numpy_dtype)
        return [_double(part) for part in self._pass.run(name, point)]

    def value_and_gradient(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient."""
        value, gradient = self._sum("gradient", u)
        prior, slope = self._prior("prior", u)
        return float(value) + float(prior), gradient + slope

    def likelihood_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of the log-likelihood, (d,)."""
        return self._sum("gradient", u)[1]

    def prior_gradient(self, u: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian, (d,)."""
        return self._prior("prior", u)[1]

    def times_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of the log posterior times a vector, (d,)."""
        (likelihood,) = self._sum("product", np.stack([u, vector]))
        return self.times_prior_hessian(u, vector) - likelihood

    def times_prior_hessian(self, u: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the negative Hessian of log-prior and log-Jacobian times a vector, (d,)."""
        return -self._prior("prior product", np.stack([u, vector]))[0]

    def likelihood_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of the log-likelihood, (d, d)."""
        (hessian,) = self._sum("hessian", u)
        return (hessian + hessian.T) / 2

    def prior_hessian(self, u: np.ndarray) -> np.ndarray:
        """Return the Hessian of log-prior and log-Jacobian, (d, d), as derivatives tell it."""
        (found,) = self._prior("prior hessian", u)
        return (found + found.T) / 2

    def prior_gradients(self, points: np.ndarray) -> np.ndarray:
        """Return the gradient of log-prior and log-Jacobian at several positions, (k, d)."""
        return self._prior("prior gradients", points)[0]

    def prior_values(self, points: np.ndarray) -> np.ndarray:
        """Return log-prior and log-Jacobian at several positions, (k,)."""
        return self._prior("prior values", points)[0]


def _in_double(target: Target, data: Data) -> Target:
    """Return the target in float64, or as it is if the user's functions do not go with that."""
    double = Target(target.log_lik, target.log_prior, target.space, tf.float64)

    def value(u: tf.Tensor, row: Tensors) -> tf.Tensor:
        return double.log_post(u, Minibatch(cast(row, tf.float64)))

    try:
        trace(value, tf.zeros([target.size], tf.float64), data.rows(np.arange(1)))
    except Exception as error:
        pass_on(error)
        return target
    return double


def _double(part: tf.Tensor) -> np.ndarray:
    return part.numpy().astype(np.float64)
