"""Linear regression with unknown variance."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sgmcmc import libraries
from sgmcmc.estimators.regression import BayesianRegression

Array = np.ndarray

_EXACT = 1e-6
"""Residuals within the rounding of float32, as a fraction of the largest response."""


class BayesianLinearRegression(RegressorMixin, BayesianRegression):
    """Bayesian linear regression as a regressor of scikit-learn.

    y ~ N(a + xβ, σ²), β_j ~ N(0, (prior_scale · sd(y) / sd(x_j))²), a + x̄β ~ N(ȳ, (prior_scale ·
    sd(y))²), σ ~ Exponential(1 / sd(y)). Draws are those of :func:`sgmcmc.sample`, without tuning
    constants.

    Args:
        fit_intercept: Whether there is an a.
        prior_scale: SD of the effect of one SD of a feature, in SDs of y.
        tolerance: Largest predicted relative error of a posterior SD.
        ess: Effective sample size of every coefficient.
        n_chains: Number of chains.
        max_seconds: Time limit in seconds; ``None`` runs until ``ess`` is reached.
        random_state: Seed, or a generator of seeds.
        verbose: Whether to show progress.

    Attributes:
        samples_: :class:`sgmcmc.Samples`: ``coef``, of shape (chains, draws, p);
            ``intercept_at_mean``, the intercept at the mean of the features less the mean of y;
            ``sigma``.
        coef_: Posterior means, (p,).
        intercept_: Posterior mean.
        sigma_: Posterior mean of σ.

    Raises:
        ValueError: The data are invalid, ``prior_scale`` is not positive, or y is a linear function
            of X, which leaves σ without a posterior.

    Example:
        >>> import numpy as np
        >>> from sgmcmc.estimators import BayesianLinearRegression
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(50, 12, (500, 1))
        >>> y = 3 + 0.2 * X[:, 0] + rng.normal(0, 1, 500)
        >>> model = BayesianLinearRegression(random_state=1).fit(X, y)
        >>> mean, sd = model.predict([[50.0]], return_std=True)
        >>> bool(abs(mean[0] - 13) < 0.2), bool(abs(sd[0] - 1) < 0.1)
        (True, True)

    Source:
        The priors are those of rstanarm by default (Gabry & Goodrich, *Prior distributions for
        rstanarm models*).
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLinearRegression:
        """Draw from the posterior.

        Args:
            X: Features, (N, p).
            y: Responses, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        X, y, weights = self._checked(X, y, sample_weight, y_numeric=True)
        self._offset = float(np.average(y, weights=weights)) if self.fit_intercept else 0.0
        unit = float(np.sqrt(np.average((y - self._offset) ** 2, weights=weights))) or 1.0
        _need_residuals(X, y, weights, self.fit_intercept)
        self._sample(
            X, y - self._offset, weights, (), "gaussian", unit=unit, others={"sigma": unit},
            log_prior_of_others=lambda params: -params["sigma"] / unit,
            bijectors={"sigma": libraries.tensorflow_probability().bijectors.Exp()},
        )  # fmt: skip
        self.sigma_ = float(self.samples_["sigma"].mean(dtype=np.float64))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the posterior mean of the response, (n,).

        Args:
            X: Features, (n, p).
            return_std: Whether to return the SD of a new response too, σ included.
        """
        check_is_fitted(self)
        noise = float((self.samples_["sigma"].astype(np.float64) ** 2).mean())
        return self._averaged(X, lambda eta: (eta.mean(0), eta.var(0) + noise), return_std)


def _need_residuals(X: Array, y: Array, weights: Array | None, with_intercept: bool) -> None:
    """Raise an error if rows beyond the coefficients are fitted exactly.

    Then the likelihood grows as a power of 1/σ, and the integral over σ is infinite.
    """
    rows = np.arange(len(X)) if weights is None else np.flatnonzero(weights > 0)
    few = rows[: 2 * (X.shape[1] + 1)]  # what is not linear on these is not on all
    if all(_is_linear(X[part], y[part], with_intercept) for part in (few, rows)):
        raise ValueError(
            "`y` is a linear function of `X`, without any noise: its variance has no posterior, "
            "and the coefficients need none. Least squares gives them."
        )


def _is_linear(X: Array, y: Array, with_intercept: bool) -> bool:
    """Return whether a regression fits exactly although there are more rows than coefficients."""
    if with_intercept:
        X, y = X - X.mean(0), y - y.mean()
    coef, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
    residuals = np.abs(y - X @ coef).max(initial=0.0)
    exact = residuals <= _EXACT * np.abs(y).max(initial=0.0)
    return bool(exact and len(y) > rank + with_intercept)
