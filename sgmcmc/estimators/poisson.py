"""Poisson regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from sgmcmc.estimators.regression import BayesianRegression

Array = np.ndarray


class BayesianPoissonRegression(RegressorMixin, BayesianRegression):
    """Bayesian Poisson regression as a regressor of scikit-learn.

    y ~ Poisson(e^(a + xβ)), β_j ~ N(0, (prior_scale / sd(x_j))²), a + x̄β ~ N(log ȳ, prior_scale²).
    Draws are those of :func:`sgmcmc.sample`, without tuning constants.

    Args:
        fit_intercept: Whether there is an a.
        prior_scale: SD of the effect of one SD of a feature, on the logarithm of the rate.
        tolerance: Largest predicted relative error of a posterior SD.
        ess: Effective sample size of every coefficient.
        n_chains: Number of chains.
        max_seconds: Time limit in seconds; ``None`` runs until ``ess`` is reached.
        random_state: Seed, or a generator of seeds.
        verbose: Whether to show progress.

    Attributes:
        samples_: :class:`sgmcmc.Samples`: ``coef``, of shape (chains, draws, p), and
            ``intercept_at_mean``, the intercept at the mean of the features.
        coef_: Posterior means, (p,).
        intercept_: Posterior mean.

    Raises:
        ValueError: The data are invalid, a response is negative, or ``prior_scale`` is not
            positive.

    Example:
        >>> import numpy as np
        >>> from sgmcmc.estimators import BayesianPoissonRegression
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(50, 12, (500, 1))
        >>> y = rng.poisson(np.exp(0.02 * X[:, 0]))
        >>> model = BayesianPoissonRegression(random_state=1).fit(X, y)
        >>> mean, sd = model.predict([[50.0]], return_std=True)
        >>> bool(abs(mean[0] - np.e) < 0.3), bool(abs(sd[0] - np.e**0.5) < 0.2)
        (True, True)

    Source:
        McCullagh & Nelder, *Generalized Linear Models*, 1989, chapter 6, for the model; the priors
        are those of :class:`BayesianLogisticRegression`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianPoissonRegression:
        """Draw from the posterior.

        Args:
            X: Features, (N, p).
            y: Counts, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        X, y, weights = self._checked(X, y, sample_weight, y_numeric=True)
        if (y < 0).any():
            raise ValueError("`y` must be counts, 0 or more; there are negative ones.")
        middle = float(np.log(max(np.average(y, weights=weights), 1.0 / len(y))))
        self._sample(X, y, weights, (), "poisson", middle=middle if self.fit_intercept else 0.0)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the posterior mean of the rate, (n,).

        Args:
            X: Features, (n, p).
            return_std: Whether to return the SD of a new count too.
        """

        def of_counts(eta: Array) -> tuple[Array, Array]:
            rates = np.exp(eta)
            return rates.mean(0), rates.var(0) + rates.mean(0)

        return self._averaged(X, of_counts, return_std)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
