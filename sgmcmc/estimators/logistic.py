"""Logistic regression, of two classes or more."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from sgmcmc.estimators.regression import BayesianRegression

Array = np.ndarray


class BayesianLogisticRegression(ClassifierMixin, BayesianRegression):
    """Bayesian logistic regression as a classifier of scikit-learn.

    P(y = 1 | x) = 1 / (1 + e^(−a − xβ)); of K > 2 classes P(y = k | x) is proportional to
    e^(a_k + xβ_k), with a and β of the first class zero. β_j ~ N(0, (prior_scale / sd(x_j))²) and
    a + x̄β ~ N(0, prior_scale²). Draws are those of :func:`sgmcmc.sample`, without tuning constants.

    Args:
        fit_intercept: Whether there is an a.
        prior_scale: SD of the effect of one SD of a feature, on the scale of log-odds.
        tolerance: Largest predicted relative error of a posterior SD.
        ess: Effective sample size of every coefficient.
        n_chains: Number of chains.
        max_seconds: Time limit in seconds; ``None`` runs until ``ess`` is reached.
        random_state: Seed, or a generator of seeds.
        verbose: Whether to show progress.

    Attributes:
        samples_: :class:`sgmcmc.Samples`: ``coef``, of shape (chains, draws, p) or (chains, draws,
            p, K − 1), and ``intercept_at_mean``, the intercept at the mean of the features.
        coef_: Posterior means, (1, p) or (K, p).
        intercept_: Posterior means, (1,) or (K,).
        classes_: The K classes.

    Raises:
        ValueError: The data are invalid, or ``prior_scale`` is not positive.

    Example:
        >>> import numpy as np
        >>> from sgmcmc.estimators import BayesianLogisticRegression
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(50, 12, (500, 1))
        >>> y = rng.random(500) < 1 / (1 + np.exp(-0.1 * (X[:, 0] - 50)))
        >>> model = BayesianLogisticRegression(random_state=1).fit(X, y)
        >>> p, sd = model.predict_proba([[50.0]], return_std=True)
        >>> bool(abs(p[0, 1] - 0.5) < 0.1), bool(sd[0, 1] < 0.05), model.samples_.report.warnings
        (True, True, [])

    Source:
        Gelman, Jakulin, Pittau & Su, *A weakly informative default prior distribution for logistic
        and other regression models*, Annals of Applied Statistics 2, 2008, for priors on the scale
        of the features.
    """

    classes_: Array

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianLogisticRegression:
        """Draw from the posterior.

        Args:
            X: Features, (N, p).
            y: Classes, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        X, y, weights = self._checked(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        K = len(self.classes_)
        if K < 2:
            raise ValueError("`y` must have at least two classes; it has 1 class.")
        outputs, family = ((), "bernoulli") if K == 2 else ((K - 1,), "categorical")
        self._sample(X, codes, weights, outputs, family)
        if K == 2:
            self.coef_, self.intercept_ = self.coef_[np.newaxis], np.atleast_1d(self.intercept_)
        else:
            self.coef_ = np.vstack([np.zeros(X.shape[1]), self.coef_.T])
            self.intercept_ = np.append(0.0, self.intercept_)
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the posterior mean of the probabilities of the classes, (n, K).

        Args:
            X: Features, (n, p).
            return_std: Whether to return the posterior SDs too.
        """

        def of_probabilities(eta: Array) -> tuple[Array, Array]:
            if eta.ndim == 2:
                p = np.stack([expit(-eta), expit(eta)], -1)
            else:
                p = softmax(np.concatenate([np.zeros((*eta.shape[:2], 1)), eta], -1), -1)
            return p.mean(0), p.var(0)

        return self._averaged(X, of_probabilities, return_std)

    def predict(self, X: Any) -> Array:
        """Return the most probable classes, (n,)."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]
