"""Base class of the regressions: centered features, scaled priors, draws, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.base import BaseEstimator
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

import sgmcmc.samplers
from sgmcmc import libraries
from sgmcmc.checks import varies
from sgmcmc.regression.families import FAMILIES, Responses, Tensors
from sgmcmc.results.samples import Samples

Array = np.ndarray


@dataclass(frozen=True)
class _Settings:
    max_draws: int = 1000  # that predictions are averaged over
    numbers_at_once: int = 2**22  # that are held


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Outcome:
    """The distribution of responses given linear predictors.

    Attributes:
        family: Family, by name.
        outputs: Shape of η for one row: (), or (K - 1,) for K classes.
        intercept_mean: Prior mean of the intercept.
        unit: Unit of η.
    """

    family: str
    outputs: tuple[int, ...] = ()
    intercept_mean: float = 0.0
    unit: float = 1.0


@dataclass(frozen=True)
class Standardization:
    """Centering and scaling of the features.

    Attributes:
        center: Mean of each feature, or zero without an intercept.
        scale: SD of each feature; one for a feature that does not vary.
    """

    center: Array
    scale: Array

    @classmethod
    def of(
        cls, X: Array, with_intercept: bool, weights: Array | None = None
    ) -> Standardization:
        """Compute them from the data, a weight being a number of repeated rows."""
        w = np.ones(len(X)) if weights is None else weights.astype(np.float64)
        blocks, total = _row_blocks(X), w.sum()
        sums = sum(w[block] @ X[block].astype(np.float64) for block in blocks)
        mean = sums / total
        squares = sum(w[block] @ (X[block] - mean) ** 2 for block in blocks)
        sd = np.sqrt(squares / total)
        center = mean if with_intercept else np.zeros(X.shape[1])
        return cls(center, np.where(varies(sd, mean), sd, 1.0))

    def standardized(self, X: Array) -> Array:
        """Return the sampler's features: columns of mean zero and SD one, in float32."""
        standardized = np.empty(X.shape, np.float32)
        for block in _row_blocks(X):
            standardized[block] = (X[block] - self.center) / self.scale
        return standardized


def _row_blocks(X: Array) -> list[slice]:
    """Return the rows of a matrix in parts, so that no copy of all is made in float64."""
    length = max(1, _SETTINGS.numbers_at_once // max(1, X.shape[1]))
    return [slice(start, start + length) for start in range(0, len(X), length)]


class BayesianRegression(BaseEstimator):
    """A regression on linear predictors η = a + Xβ, with draws instead of one estimate.

    Coefficients have the prior β_j ~ N(0, (prior_scale · u / sd(x_j))²), u the unit of the
    predictor; the intercept at the mean of the features has N(m, (prior_scale · u)²), m near the
    data.
    """

    samples_: Samples
    n_features_in_: int
    _rows: tuple[Array, Array, Array | None] | None = None
    _offset = 0.0
    """Constant subtracted from the responses."""

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        prior_scale: float = 2.5,
        tolerance: float = 0.05,
        ess: float = 400,
        n_chains: int = 4,
        max_seconds: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.prior_scale = prior_scale
        self.tolerance = tolerance
        self.ess = ess
        self.n_chains = n_chains
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    def _checked(
        self, X: Any, y: Any, sample_weight: Any, **checks: Any
    ) -> tuple[Any, Any, Any]:
        """Return X, y and the weights, checked; an invalid prior scale is refused."""
        checks = {"dtype": [np.float64, np.float32], "ensure_min_samples": 2, **checks}
        X, y = validate_data(self, X, y, **checks)
        if y.dtype.kind == "f" and y.dtype not in (np.float64, np.float32):
            y = y.astype(np.float64)
        if not self.prior_scale > 0:
            raise ValueError(
                f"`prior_scale` must be positive; it is {self.prior_scale!r}."
            )
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        return X, y, weights

    def _all_rows(
        self, X: Any, y: Any, sample_weight: Any, **checks: Any
    ) -> tuple[Any, Any, Any]:
        """Return the rows of earlier calls with these behind them, checked."""
        new_X, new_y, new_weights = self._checked(
            X, y, sample_weight, reset=False, ensure_min_samples=1, **checks
        )
        if self._rows is None:
            raise ValueError(
                "`partial_fit`: the rows of earlier calls are not here. They stay in the process "
                "that they were given to; a pickle does not hold them."
            )
        X, y, weights = self._rows
        if weights is not None or new_weights is not None:
            weights = np.ones(len(X)) if weights is None else weights
            added = np.ones(len(new_X)) if new_weights is None else new_weights
            weights = np.concatenate([weights, added])
        return np.concatenate([X, new_X]), np.concatenate([y, new_y]), weights

    def _keep(self, X: Array, y: Array, weights: Array | None) -> None:
        """Keep copies of rows for :meth:`partial_fit`."""
        own_weights = None if weights is None else np.array(weights)
        self._rows = np.array(X), np.array(y), own_weights

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rows": None}

    def _sample(
        self, X: Array, y: Array, weights: Array | None, outcome: Outcome
    ) -> None:
        """Sample, and keep draws and their means.

        Args:
            X, y, weights: Data, (N, p), (N,) and (N,).
            outcome: Distribution of the responses.
        """
        family = next(iter(FAMILIES[outcome.family].values()))
        outputs, intercept_mean = outcome.outputs, outcome.intercept_mean
        features = Standardization.of(X, self.fit_intercept, weights)
        columns = family.columns(Responses.of(y))
        dataset = {name: values.astype(np.float32) for name, values in columns.items()}
        dataset["X"] = features.standardized(X)
        if weights is not None:
            dataset["weight"] = weights.astype(np.float32)
        scale = features.scale.astype(np.float32).reshape(-1, *[1] * len(outputs))
        prior_sd = float(self.prior_scale * outcome.unit)
        params: dict[str, Any] = {"coef": np.zeros((X.shape[1], *outputs))}
        if self.fit_intercept:
            params["intercept_at_mean"] = np.full(outputs, intercept_mean)
        params |= {parameter.name: outcome.unit for parameter in family.aux}
        exp_bijector = libraries.tensorflow_probability().bijectors.Exp

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            slopes = params["coef"] * scale
            by_row = tf.matmul if outputs else tf.linalg.matvec
            eta = by_row(dataset["X"], slopes) + params.get("intercept_at_mean", 0.0)
            terms = family.log_density(eta, params, dataset)
            return terms * dataset["weight"] if "weight" in dataset else terms

        def log_prior(params: Tensors) -> tf.Tensor:
            value = -0.5 * tf.reduce_sum((params["coef"] * scale / prior_sd) ** 2)
            if "intercept_at_mean" in params:
                standard = (params["intercept_at_mean"] - intercept_mean) / prior_sd
                value -= 0.5 * tf.reduce_sum(standard**2)
            for parameter in family.aux:
                assert parameter.log_prior is not None
                value += parameter.log_prior(params[parameter.name], outcome.unit)
            return value

        self.samples_ = sgmcmc.samplers.sample(
            log_lik,
            dataset,
            params,
            log_prior,
            tolerance=self.tolerance,
            ess=self.ess,
            n_chains=self.n_chains,
            max_seconds=self.max_seconds,
            seed=self._seed(),
            verbose=self.verbose,
            bijectors={parameter.name: exp_bijector() for parameter in family.aux},
        )
        self._center = features.center
        coef, intercept = self._draws()
        self.coef_, self.intercept_ = coef.mean(0), intercept.mean(0)

    def _seed(self) -> int | None:
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31 - 1))
        return None if self.random_state is None else int(self.random_state)

    def _draws(self) -> tuple[Array, Array]:
        """Return draws of coefficients, (draw, p, ...), and of the intercept, (draw, ...)."""
        coef = _flat(self.samples_["coef"])
        at_mean = np.zeros((len(coef), *coef.shape[2:]))
        if "intercept_at_mean" in self.samples_:
            at_mean = _flat(self.samples_["intercept_at_mean"]) + self._offset
        return coef, at_mean - np.einsum("ip...,p->i...", coef, self._center)

    def _posterior_mean(
        self, X: Any, moments: Callable[[Array], tuple[Array, Array]], return_std: bool
    ) -> Any:
        """Return means of rows over the posterior, and their SDs if requested.

        Args:
            X: Features, (n, p).
            moments: Function that returns mean and variance of rows, from η, (draw, row, ...).
            return_std: Whether to return the SDs too.
        """
        means, variances = zip(*map(moments, self._predictors(X)), strict=True)
        mean = np.concatenate(means)
        return (mean, np.sqrt(np.concatenate(variances))) if return_std else mean

    def _predictors(self, X: Any) -> Iterator[Array]:
        """Yield η of the rows, (draw, row, ...), in pieces; some draws stand for all."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        coef, intercept = self._draws()
        count = min(_SETTINGS.max_draws, len(coef))
        some = np.linspace(0, len(coef) - 1, count).astype(int)
        coef, intercept = coef[some], intercept[some]
        block_size = max(1, _SETTINGS.numbers_at_once // max(1, coef[:, 0].size))
        for start in range(0, len(X), block_size):
            block = X[start : start + block_size]
            eta = np.einsum("np,ip...->in...", block, coef, optimize=True)
            yield eta + intercept[:, np.newaxis]


def _flat(draws: Array) -> Array:
    return np.asarray(draws, np.float64).reshape(-1, *draws.shape[2:])
