"""Bayesian probabilistic matrix factorization: ratings as products of factors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from sgmcmc import checks
from sgmcmc.checks import describe, is_number, positive_number, whole_number
from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.scores import score_draws

COLUMNS = ("user", "item", "rating")


_BY_DRAW = ("rmse", "log_predictive", "rmse_averaged", "log_predictive_averaged")


@checks.renamed("centre")
def matrix_factorization(
    ratings: Any,
    rank: int,
    *,
    precision: float | None = None,
    prior: tuple[float, float] | None = None,
    center: float | None = None,
    unit: float | None = None,
    n_users: int | None = None,
    n_items: int | None = None,
) -> MatrixFactorization:
    """Return Bayesian probabilistic matrix factorization of ratings.

    The rating of item j by user i is r_ij = c + u x_ij, x_ij ~ N(U_i·V_j + a_i + b_j, 1/τ), with D
    factors U_i of each user and V_j of each item and biases a_i and b_j. All entries of U are
    N(0, 1/λ_U), those of V, a and b have precisions λ_V, λ_a and λ_b, and each λ ~ Gamma(s, t),
    which are integrated out.

    Args:
        ratings: A dict or a table with the columns ``"user"``, ``"item"`` (integers from 0) and
            ``"rating"``, (N,) each, as ``get_dataset("movielens")["train"]`` is.
        rank: D, the number of factors of each user and item.
        precision: τ, the precision of a rating in units u; ``None`` for 3.
        prior: (s, t), shape and rate of the gamma prior of each precision; ``None`` for (1, 300).
        center: c; ``None`` uses the mean rating, 0 is the published model.
        unit: u, the unit of ratings. ``None`` uses 1 if ``precision`` or ``prior`` is given, else
            the power of ten nearest the SD of the ratings, which is 1 for stars.
        n_users: L; ``None`` for the largest number of a user plus one, with a warning if most
            numbers below it are missing.
        n_items: M; ``None`` for the largest number of an item plus one.

    Returns:
        A :class:`MatrixFactorization`.

    Raises:
        TypeError: ``ratings`` has no columns of numbers, or another argument is not one.
        ValueError: A column is missing, or a number in it is wrong; ``rank`` is not an integer ≥ 1;
            a constant is not positive.

    Example:
        >>> import numpy as np, sgmcmc
        >>> rng = np.random.default_rng(1)
        >>> ratings = {"user": rng.integers(20, size=500), "item": rng.integers(30, size=500)}
        >>> ratings["rating"] = 3 + np.sin(ratings["user"]) * np.cos(ratings["item"])
        >>> model = sgmcmc.models.matrix_factorization(ratings, rank=2, prior=(1, 1))
        >>> chain = sgmcmc.sghmc(
        ...     model.log_lik, model.dataset, model.start(seed=1), 1e-3, log_prior=model.log_prior,
        ...     minibatch_size=100, burn_in=200, n_iters=200, seed=1, verbose=False)
        >>> known = {"user": [0, 1], "item": [0, 0]}
        >>> chain.predict(model.predict_rating, known, reduce="quantiles").shape
        (3, 2)

    Source:
        Salakhutdinov & Mnih, ICML 2008; Chen, Fox & Guestrin, ICML 2014, appendix H.2; J. Baker,
        *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section
        3.5.2 and appendix A.3.
    """
    rank = whole_number("rank", rank, 1)
    sizes: Mapping[str, int | None] = {
        "user": None if n_users is None else whole_number("n_users", n_users, 1),
        "item": None if n_items is None else whole_number("n_items", n_items, 1),
    }
    table = Ratings.read(ratings, sizes)
    has_own_prior = precision is not None or prior is not None
    precision = 3.0 if precision is None else positive_number("precision", precision)
    prior = (1.0, 300.0) if prior is None else prior
    if not isinstance(prior, tuple | list) or len(prior) != 2:
        raise TypeError(
            "`prior` must be two numbers, the shape and the rate of a gamma distribution; it is "
            f"{describe(prior)}."
        )
    if center is not None and not (is_number(center) and np.isfinite(center)):
        raise TypeError(
            f"`center` must be a number, or None; it is {describe(center)}."
        )
    c = float(table.rating.mean()) if center is None else float(center)
    sd = float(table.rating.std())
    if unit is not None:
        unit = positive_number("unit", unit)
    else:
        unit = 1.0 if has_own_prior or sd == 0 else 10.0 ** round(math.log10(sd))
    dataset: dict[str, np.ndarray] = table._asdict()
    largest = 1000.0 * sd  # distance of a rating from zero that float32 can hold well
    if unit != 1 or np.abs(table.rating).max() > largest:
        dataset["deviation"] = (table.rating - c) / unit
    return MatrixFactorization(
        dataset,
        sizes["user"] or _rows(table.user, "user"),
        sizes["item"] or _rows(table.item, "item"),
        rank,
        precision,
        positive_number("prior", prior[0]),
        positive_number("prior", prior[1]),
        c,
        unit,
    )


def _rows(numbers: np.ndarray, name: str) -> int:
    """Return the number of users or items, with a warning if most have no ratings."""
    size = int(numbers.max()) + 1
    distinct = len(np.unique(numbers))
    few = 100  # users or items that may be missing without a warning
    if size - distinct > max(distinct, few):
        warnings.warn(
            f"`ratings[{name!r}]`: {distinct} {name}s are numbered up to {size - 1}, and the model "
            f"has factors for all {size}. Number them from 0 without gaps, as np.unique(ids, "
            f"return_inverse=True)[1] does, or give `n_{name}s` if the others are to come.",
            UserWarning,
            stacklevel=5,
        )
    return size


@checks.renamed("centre")
@dataclass(frozen=True, eq=False)
class MatrixFactorization:
    """A matrix factorization, as a sampler uses it; made by :func:`matrix_factorization`.

    Args:
        dataset: Ratings: ``"user"``, ``"item"`` int32 (N,) and ``"rating"`` float64 (N,); also
            ``"deviation"``, (rating − c)/u, float64, if u is not 1 or ratings are far from zero.
        n_users: L, the number of users.
        n_items: M, the number of items.
        rank: D, the factors of each user and item.
        precision: τ, the precision of a rating around its mean.
        shape: Shape of the gamma prior of each λ.
        rate: Rate of the gamma prior of each λ.
        center: c, the constant to which the rest is added.
        unit: u, the unit of ratings.

    Example:
        >>> from sgmcmc.models import matrix_factorization
        >>> ratings = {"user": [0, 0, 1], "item": [0, 1, 1], "rating": [5, 3, 1]}
        >>> model = matrix_factorization(ratings, rank=2)
        >>> model.n_users, model.n_items, model.center
        (2, 2, 3.0)
    """

    dataset: dict[str, np.ndarray]
    n_users: int
    n_items: int
    rank: int
    precision: float
    shape: float
    rate: float
    center: float
    unit: float = 1.0

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

    def start(
        self, seed: int | None = None, scale: float = 0.1
    ) -> dict[str, np.ndarray]:
        """Return starting values: factors N(0, scale²), biases zero.

        Args:
            seed: Seed of the draw.
            scale: SD of the factors. At zero they would have no gradient.

        Returns:
            ``{"U": (L, D), "V": (M, D), "a": (L,), "b": (M,)}``, float64.

        Raises:
            TypeError, ValueError: ``scale`` is no positive number.

        Example:
            >>> from sgmcmc.models import matrix_factorization
            >>> model = matrix_factorization({"user": [0], "item": [2], "rating": [5]}, rank=4)
            >>> model.start(seed=1)["V"].shape
            (3, 4)
        """
        scale = positive_number("scale", scale)
        rng = np.random.default_rng(seed)
        factors = {
            name: scale * rng.normal(size=self.shapes[name]) for name in ("U", "V")
        }
        return {**factors, "a": np.zeros(self.n_users), "b": np.zeros(self.n_items)}

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return log N(r_k; c + u(U_i·V_j + a_i + b_j), u²/τ) of each rating k of i and j.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
            dataset: Rows of ``dataset``, n of them.

        Returns:
            (n,).

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import matrix_factorization
            >>> ratings = {"user": [0, 1], "item": [0, 0], "rating": [4.0, 2.0]}
            >>> model = matrix_factorization(ratings, rank=1, precision=6.2831853)
            >>> params = {name: tf.zeros(shape) for name, shape in model.shapes.items()}
            >>> data = {name: tf.constant(column) for name, column in model.dataset.items()}
            >>> [round(float(term), 4) for term in model.log_lik(params, data)]
            [-3.1416, -3.1416]
        """
        dtype = params["U"].dtype
        if "deviation" in dataset:
            deviation = tf.cast(dataset["deviation"], dtype)
            error = deviation - self._standardized(params, dataset)
        else:
            error = tf.cast(dataset["rating"], dtype) - self._mean(params, dataset)
            error /= self.unit
        constant = 0.5 * np.log(self.precision / (2 * np.pi)) - math.log(self.unit)
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
            >>> from sgmcmc.models import matrix_factorization
            >>> ratings = {"user": [0], "item": [0], "rating": [4.0]}
            >>> model = matrix_factorization(ratings, rank=1, prior=(0.5, 1.0))
            >>> params = {name: tf.zeros(shape) for name, shape in model.shapes.items()}
            >>> round(float(model.log_prior(params)), 4)  # four Cauchy densities with scale √2
            -5.9652
        """
        s, t = self.shape, self.rate
        value = tf.zeros([], params["U"].dtype)
        for name, shape in self.shapes.items():
            half_size = 0.5 * np.prod(shape)
            constant = s * np.log(t) + math.lgamma(s + half_size) - math.lgamma(s)
            value += constant - half_size * np.log(2 * np.pi)
            squares = 0.5 * tf.reduce_sum(params[name] ** 2)
            value -= (s + half_size) * tf.math.log(t + squares)
        return value

    def precisions(self, params: Tensors) -> tf.Tensor:
        """Return E[λ | θ] = (s + d/2) / (t + ‖θ‖²/2) of U, V, a and b, (4,).

        A test function. Given θ, λ is gamma with the shape s + d/2 and this mean.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
        """
        s, t = self.shape, self.rate
        means = []
        for name, shape in self.shapes.items():
            squares = 0.5 * tf.reduce_sum(params[name] ** 2)
            means.append((s + 0.5 * np.prod(shape)) / (t + squares))
        return tf.stack(means)

    def predict(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the mean c + u(U_i·V_j + a_i + b_j) of ratings, for ``samples.predict``.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
            dataset: ``"user"`` and ``"item"``, (n,) each.

        Returns:
            (n,); NaN for a user or item that the model does not have, such as 1.5.

        Example:
            >>> import numpy as np, sgmcmc
            >>> from sgmcmc.models import matrix_factorization
            >>> model = matrix_factorization({"user": [0], "item": [1], "rating": [4.0]}, rank=1)
            >>> draws = sgmcmc.Samples({"U": np.ones((3, 1, 1)), "V": np.ones((3, 2, 1)),
            ...                         "a": np.zeros((3, 1)), "b": np.zeros((3, 2))})
            >>> draws.predict(model.predict, {"user": [0], "item": [0]}).tolist()
            [5.0]
        """
        user, item = (tf.convert_to_tensor(dataset[name]) for name in ("user", "item"))
        in_range = _in_range(user, self.n_users) & _in_range(item, self.n_items)
        safe = {
            "user": tf.where(in_range, user, 0),
            "item": tf.where(in_range, item, 0),
        }
        return tf.where(in_range, self._mean(params, safe), np.nan)

    def predict_rating(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return ratings drawn around their means, N(c + u(U_i·V_j + a_i + b_j), u²/τ).

        For ``samples.predict(model.predict_rating, ..., reduce="quantiles")``: the uncertainty of a
        rating, that of its mean included.

        Args:
            params: ``"U"``, ``"V"``, ``"a"`` and ``"b"``.
            dataset: ``"user"`` and ``"item"``, (n,) each.
        """
        mean = self.predict(params, dataset)
        noise = tf.random.normal(tf.shape(mean), dtype=mean.dtype)
        return mean + self.unit * noise / np.sqrt(self.precision)

    def held_out(self, ratings: Any) -> HeldOutRatings:
        """Return held-out ratings, whose scores are followed inside a chain.

        Args:
            ratings: Held-out ratings, in any form that :func:`matrix_factorization` accepts.

        Raises:
            TypeError, ValueError: As there; or a user or an item is not the model's.

        Example:
            >>> from sgmcmc.models import matrix_factorization
            >>> ratings = {"user": [0, 0, 1], "item": [0, 1, 1], "rating": [5, 3, 1]}
            >>> model = matrix_factorization(ratings, rank=2)
            >>> len(model.held_out({"user": [1], "item": [0], "rating": [2]}))
            1
        """
        table = Ratings.read(ratings, {"user": self.n_users, "item": self.n_items})
        scale = self.center, self.unit
        return HeldOutRatings(table, self._standardized, self.precision, scale)

    def _mean(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return c + u(U_i·V_j + a_i + b_j), in float64 if float32 would round it away."""
        standardized = self._standardized(params, dataset)
        if "deviation" in self.dataset:
            standardized = tf.cast(standardized, tf.float64)
        if self.unit != 1:
            standardized = self.unit * standardized
        return self.center + standardized

    def _standardized(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        user, item = (tf.cast(dataset[name], tf.int32) for name in ("user", "item"))
        return _predicted(params, user, item)


def _in_range(numbers: tf.Tensor, size: int) -> tf.Tensor:
    """Return which numbers are those of users or items."""
    in_range = (numbers >= 0) & (numbers < size)
    if numbers.dtype.is_floating:
        in_range &= tf.floor(numbers) == numbers
    return in_range


def _predicted(params: Tensors, user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    """Return U_i·V_j + a_i + b_j for each user i and item j, (n,).

    The gradient puts the derivatives of a user's factors and bias together, so that they are added
    up in one pass over the rows, and those of an item in another. Adding up is what takes the
    time: twice as long if factors and biases were added up one by one.
    Users and items are int32 (n,).
    """

    @tf.custom_gradient
    def of(
        U: tf.Tensor, V: tf.Tensor, a: tf.Tensor, b: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        of_user, of_item = tf.gather(U, user), tf.gather(V, item)
        means = (
            tf.reduce_sum(of_user * of_item, 1)
            + tf.gather(a, user)
            + tf.gather(b, item)
        )

        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            weight = upstream[:, tf.newaxis]
            users = _added(weight, of_item, user, U.shape[0])
            items = _added(weight, of_user, item, V.shape[0])
            return users[:, 1:], items[:, 1:], users[:, 0], items[:, 0]

        return means, gradients

    return of(params["U"], params["V"], params["a"], params["b"])


def _added(
    weight: tf.Tensor, factors: tf.Tensor, number: tf.Tensor, size: int
) -> tf.Tensor:
    """Return Σ e (1, factors) over the rows of each number, (size, 1 + D)."""
    rows = tf.concat([weight, weight * factors], 1)
    return tf.math.unsorted_segment_sum(rows, number, size)


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
        columns = []
        for name in COLUMNS:
            column = np.asarray(ratings[name])
            if column.dtype.kind not in "iuf":
                raise TypeError(
                    f"`ratings[{name!r}]` must hold numbers; it is {describe(ratings[name])}."
                )
            if column.ndim != 1:
                raise ValueError(
                    f"`ratings[{name!r}]` must be a vector, an entry for each rating; its shape is "
                    f"{column.shape}."
                )
            columns.append(column)
        user, item, rating = columns
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
            before_log_sum = state["log_sum"]  # which may be −∞
            gap = tf.math.log1p(tf.exp(-tf.abs(before_log_sum - terms)))
            log_sum = tf.where(first, terms, tf.maximum(before_log_sum, terms) + gap)
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
