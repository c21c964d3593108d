"""Ratings of items by users, and held-out ratings to predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from sgmcmc.checks import describe, whole_number
from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.scores import score_draws

COLUMNS = ("user", "item", "rating")

_BY_DRAW = ("rmse", "log_predictive", "rmse_averaged", "log_predictive_averaged")


class Ratings(NamedTuple):
    """Ratings, one a row.

    Attributes:
        user: Number of the user, from 0, int32 (N,).
        item: Number of the item, from 0, int32 (N,).
        rating: Rating by the user, float64 (N,).
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rating: NDArray[np.float64]

    @classmethod
    def read(
        cls, ratings: Any, sizes: Mapping[str, int | None] | None = None
    ) -> Ratings:
        """Return checked ratings from a mapping, or a table, with the columns of the same names.

        ``sizes`` has the number of users and of items, if known.

        Example:
            >>> Ratings.read({"user": [0, 1], "item": [0, 0], "rating": [4, 2]}).rating.tolist()
            [4.0, 2.0]
        """
        if not hasattr(ratings, "keys") or not hasattr(ratings, "__getitem__"):
            raise TypeError(
                "`ratings` must be a dict or a table with the columns 'user', 'item' and 'rating'; "
                f"it is {describe(ratings)}."
            )
        missing = [name for name in COLUMNS if name not in set(ratings.keys())]
        if missing:
            raise ValueError(f"`ratings` lacks the column {missing[0]!r}.")
        user, item, rating = (_vector(name, ratings[name]) for name in COLUMNS)
        if not len(user) == len(item) == len(rating):
            raise ValueError(
                "`ratings`: the columns 'user', 'item' and 'rating' must have equal lengths; they "
                f"have {len(user)}, {len(item)} and {len(rating)}."
            )
        if not len(rating):
            raise ValueError("`ratings` holds no ratings.")
        if not np.isfinite(rating).all():
            row = int(np.flatnonzero(~np.isfinite(rating))[0])
            raise ValueError(
                f"`ratings['rating']` must be finite; row {row} is {rating[row]}."
            )
        sizes = sizes or {}
        return cls(
            _numbers("user", user, sizes.get("user")),
            _numbers("item", item, sizes.get("item")),
            rating.astype(np.float64),
        )


class HeldOutRatings:
    """Held-out ratings, which a chain should predict.

    Made by :meth:`MatrixFactorization.held_out`.

    Args:
        ratings: Number of ratings T.
        predict: Means of (rating − c)/u, of parameters and a dataset.
        precision: τ, the precision of (rating − c)/u around its mean.
        scale: c and u.

    Attributes:
        ratings: Ratings as given.
        dataset: Entries ``"user"`` and ``"item"``, as ``samples.predict`` uses them.

    Example:
        >>> from sgmcmc.models import matrix_factorization
        >>> ratings = {"user": [0, 0, 1], "item": [0, 1, 1], "rating": [5, 3, 1]}
        >>> test = matrix_factorization(ratings, rank=2).held_out(ratings)
        >>> sorted(test.dataset)
        ['item', 'user']
    """

    def __init__(
        self,
        ratings: Ratings,
        predict: Callable[[Tensors, Tensors], tf.Tensor],
        precision: float,
        scale: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.ratings = ratings
        self.dataset = {"user": ratings.user, "item": ratings.item}
        self._predict = predict
        self._precision = precision
        self._center, self._unit = scale
        self._deviations = (ratings.rating - self._center) / self._unit

    def __len__(self) -> int:
        return len(self.ratings.rating)

    def score(self, draws: int, skip: int = 0) -> Reduction:
        """Return the reduction that follows the prediction of these ratings along a chain.

        With m_ks the mean of rating k at draw s, after S draws:

        - ``"rmse"``: √(mean_k (r_k − m_kS)²), of each draw alone;
        - ``"rmse_averaged"``: the same of the mean of m_ks over skip < s ≤ S;
        - ``"log_predictive"``: mean_k log N(r_k; m_kS, 1/τ), of each draw alone;
        - ``"log_predictive_averaged"``: mean_k log of the mean of N(r_k; m_ks, 1/τ) over the same
          s.

        Up to S = skip the last two are those of the draw alone.

        It needs memory for a few numbers of each rating, however many parameters there are.

        Args:
            draws: Number of draws that the chain keeps, ``n_iters // thin``.
            skip: Number of draws before those that are averaged, if scores should be reported from
                the start of a chain.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of these, (draws,) each, NaN if there was
            no draw, and of ``"mean"`` and ``"sd"`` of the predictive distribution of each rating,
            (T,), its own noise 1/τ included.

        Raises:
            TypeError: ``draws`` or ``skip`` is not a number.
            ValueError: They are not integers ≥ 1 and ≥ 0.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import matrix_factorization
            >>> ratings = {"user": [0, 0, 1], "item": [0, 1, 1], "rating": [5, 3, 1]}
            >>> model = matrix_factorization(ratings, rank=2)
            >>> score = model.held_out({"user": [0], "item": [0], "rating": [1]}).score(draws=1)
            >>> params = {name: tf.zeros(shape) for name, shape in model.shapes.items()}
            >>> state = score.update(score.start(params, tf.float32), params)
            >>> float(score.result(state)["rmse"][0])
            2.0
        """
        skip = whole_number("skip", skip, 0)

        def start(params: Tensors) -> Tensors:
            none = tf.zeros([len(self)], params["U"].dtype)
            return {"mean": none, "squares": none, "log_sum": none - np.inf}

        def update(state: Tensors, params: Tensors) -> tuple[Tensors, Tensors]:
            prediction = self._prediction(params)
            count = state["count"] + 1
            first = count <= skip + 1  # of those that are averaged, or before it
            many = tf.cast(tf.maximum(count - skip, 1), prediction.dtype)
            before = prediction - state["mean"]
            mean = state["mean"] + before / many
            terms = self._log_density(prediction)
            log_sum = tf.where(first, terms, _log_added(state["log_sum"], terms))
            squares = state["squares"] + before * (prediction - mean)
            squares = tf.where(first, tf.zeros_like(squares), squares)
            now = {
                "rmse": self._rmse(prediction),
                "rmse_averaged": self._rmse(mean),
                "log_predictive": tf.reduce_mean(terms),
                "log_predictive_averaged": tf.reduce_mean(log_sum - tf.math.log(many)),
            }
            return {"mean": mean, "squares": squares, "log_sum": log_sum}, now

        def finish(state: Tensors) -> Tensors:
            squares = state["squares"]
            variance = squares / tf.cast(
                tf.maximum(state["count"] - skip, 1), squares.dtype
            )
            mean = tf.cast(state["mean"], tf.float64)
            return {
                **{name: state[name] for name in _BY_DRAW},
                "mean": self._center + self._unit * mean,
                "sd": self._unit * tf.sqrt(variance + 1.0 / self._precision),
            }

        return score_draws(draws, _BY_DRAW, start, update, finish)

    def _prediction(self, params: Tensors) -> tf.Tensor:
        return self._predict(
            params, {n: tf.constant(column) for n, column in self.dataset.items()}
        )

    def _log_density(self, mean: tf.Tensor) -> tf.Tensor:
        error = tf.constant(self._deviations, mean.dtype) - mean
        constant = 0.5 * np.log(self._precision / (2 * np.pi)) - np.log(self._unit)
        return constant - 0.5 * self._precision * error * error

    def _rmse(self, mean: tf.Tensor) -> tf.Tensor:
        error = tf.constant(self._deviations, mean.dtype) - mean
        return self._unit * tf.sqrt(tf.reduce_mean(error * error))


def _log_added(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return log(eˣ + eʸ); x may be −∞."""
    return tf.maximum(x, y) + tf.math.log1p(tf.exp(-tf.abs(x - y)))


def _vector(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"`ratings[{name!r}]` must hold numbers; it is {describe(values)}."
        )
    if array.ndim != 1:
        raise ValueError(
            f"`ratings[{name!r}]` must be a vector, an entry for each rating; its shape is "
            f"{array.shape}."
        )
    return array


def _numbers(name: str, array: np.ndarray, size: int | None) -> NDArray[np.int32]:
    """Return numbers of users or items, known to be in range."""
    label = f"`ratings[{name!r}]`"
    fine = np.isfinite(array) & (array == np.floor(array)) & (array >= 0)
    if not fine.all():
        row = int(np.flatnonzero(~fine)[0])
        raise ValueError(
            f"{label} must number {name}s by integers from 0; row {row} is {array[row]}."
        )
    limit = 2**24 if size is None else size
    if array.max() >= limit:
        row = int(array.argmax())
        reason = (
            f"there are {limit} {name}s" if size is not None else f"{limit} is too many"
        )
        raise ValueError(
            f"{label}: row {row} is {array[row]}, but {reason}, numbered from 0."
        )
    return array.astype(np.int32)
