"""Linear, logistic and Poisson regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from sgmcmc.estimators.base import BayesianRegression, Outcome

Array = np.ndarray


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

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> BayesianLinearRegression:
        """Draw from the posterior.

        Args:
            X: Features, (N, p).
            y: Responses, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        return self._fit(*self._checked(X, y, sample_weight, y_numeric=True))

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> BayesianLinearRegression:
        """Add rows to those of earlier calls: the posterior is that of all rows so far.

        It is that of ``fit`` on all of them. The estimator keeps the rows; a pickle of it does not.

        Args:
            X: Features, (N, p).
            y: Responses, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        if not hasattr(self, "samples_"):
            return self.fit(X, y, sample_weight)
        return self._fit(*self._all_rows(X, y, sample_weight, y_numeric=True))

    def _fit(self, X: Array, y: Array, weights: Any) -> BayesianLinearRegression:
        self._offset = 0.0
        if self.fit_intercept:
            self._offset = float(np.average(y, weights=weights))
        residuals = y - self._offset
        sd = float(np.sqrt(np.average(residuals**2, weights=weights)))
        # Without residuals the likelihood grows as a power of 1/σ: its integral is infinite.
        rows = np.arange(len(X)) if weights is None else np.flatnonzero(weights > 0)
        few = rows[: 2 * (X.shape[1] + 1)]  # what is not linear on these is not on all
        if all(_is_linear(X[i], y[i], self.fit_intercept) for i in (few, rows)):
            raise ValueError(
                "`y` is a linear function of `X`, without any noise: its variance has no "
                "posterior, and the coefficients need none. Least squares gives them."
            )
        self._sample(X, residuals, weights, Outcome("gaussian", unit=sd or 1.0))
        self.sigma_ = float(self.samples_["sigma"].mean(dtype=np.float64))
        self._keep(X, y, weights)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the posterior mean of the response, (n,).

        Args:
            X: Features, (n, p).
            return_std: Whether to return the SD of a new response too, σ included.
        """
        check_is_fitted(self)
        noise = float((self.samples_["sigma"].astype(np.float64) ** 2).mean())

        def of_responses(eta: Array) -> tuple[Array, Array]:
            return eta.mean(0), eta.var(0) + noise

        return self._posterior_mean(X, of_responses, return_std)


def _is_linear(X: Array, y: Array, with_intercept: bool) -> bool:
    """Return whether a regression fits exactly although there are more rows than coefficients."""
    if with_intercept:
        X, y = X - X.mean(0), y - y.mean()
    coef, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
    residual = np.abs(y - X @ coef).max(initial=0.0)
    rounding = 1e-6 * np.abs(y).max(initial=0.0)  # of float32
    return bool(residual <= rounding and len(y) > rank + with_intercept)


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

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> BayesianLogisticRegression:
        """Draw from the posterior.

        Args:
            X: Features, (N, p).
            y: Classes, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        return self._fit(*self._checked(X, y, sample_weight))

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> BayesianLogisticRegression:
        """Add rows to those of earlier calls: the posterior is that of all rows so far.

        It is that of ``fit`` on all of them. The estimator keeps the rows; a pickle of it does not.

        Args:
            X: Features, (N, p).
            y: Classes, (N,).
            classes: All classes, in the first call, if some have no rows in it, (K,).
            sample_weight: Number of times that each row counts, (N,).
        """
        if not hasattr(self, "samples_"):
            rows = self._checked(X, y, sample_weight, ensure_min_samples=1)
            return self._fit(*rows, classes=classes)
        rows = self._all_rows(X, y, sample_weight)
        if classes is not None and set(classes) != set(self.classes_):
            raise ValueError(
                f"`classes` is {list(classes)}; those of the first call are "
                f"{self.classes_.tolist()}."
            )
        return self._fit(*rows, classes=self.classes_)

    def _fit(
        self, X: Array, y: Array, weights: Any, classes: Any = None
    ) -> BayesianLogisticRegression:
        """Draw from the posterior; ``classes`` may have some without rows."""
        check_classification_targets(y)
        present = np.unique(y)
        known = present if classes is None else np.unique(classes)
        if not np.isin(present, known).all():
            raise ValueError(
                f"`y` has classes that are not among {known.tolist()}. Pass all `classes` in the "
                "first call of partial_fit()."
            )
        self.classes_ = known
        codes = np.searchsorted(self.classes_, y)
        K = len(self.classes_)
        if K < 2:
            raise ValueError("`y` must have at least two classes; it has 1 class.")
        outcome = Outcome("bernoulli")
        if K > 2:
            outcome = Outcome("categorical", outputs=(K - 1,))
        self._sample(X, codes, weights, outcome)
        if K == 2:
            self.coef_ = self.coef_[np.newaxis]
            self.intercept_ = np.atleast_1d(self.intercept_)
        else:
            self.coef_ = np.vstack([np.zeros(X.shape[1]), self.coef_.T])
            self.intercept_ = np.append(0.0, self.intercept_)
        self._keep(X, y, weights)
        return self

    def predict_proba(
        self, X: Any, return_std: bool = False
    ) -> Array | tuple[Array, Array]:
        """Return the posterior mean of the probabilities of the classes, (n, K).

        Args:
            X: Features, (n, p).
            return_std: Whether to return the posterior SDs too.
        """

        def of_probabilities(eta: Array) -> tuple[Array, Array]:
            if eta.ndim == 2:
                p = np.stack([expit(-eta), expit(eta)], -1)
            else:
                first = np.zeros((*eta.shape[:2], 1))
                p = softmax(np.concatenate([first, eta], -1), -1)
            return p.mean(0), p.var(0)

        return self._posterior_mean(X, of_probabilities, return_std)

    def predict(self, X: Any) -> Array:
        """Return the most probable classes, (n,)."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


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

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> BayesianPoissonRegression:
        """Draw from the posterior.

        Args:
            X: Features, (N, p).
            y: Counts, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        return self._fit(*self._checked(X, y, sample_weight, y_numeric=True))

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> BayesianPoissonRegression:
        """Add rows to those of earlier calls: the posterior is that of all rows so far.

        It is that of ``fit`` on all of them. The estimator keeps the rows; a pickle of it does not.

        Args:
            X: Features, (N, p).
            y: Counts, (N,).
            sample_weight: Number of times that each row counts, (N,).
        """
        if not hasattr(self, "samples_"):
            return self.fit(X, y, sample_weight)
        return self._fit(*self._all_rows(X, y, sample_weight, y_numeric=True))

    def _fit(self, X: Array, y: Array, weights: Any) -> BayesianPoissonRegression:
        if (y < 0).any():
            raise ValueError("`y` must be counts, 0 or more; there are negative ones.")
        intercept_mean = float(
            np.log(max(np.average(y, weights=weights), 1.0 / len(y)))
        )
        intercept_mean = intercept_mean if self.fit_intercept else 0.0
        self._sample(X, y, weights, Outcome("poisson", intercept_mean=intercept_mean))
        self._keep(X, y, weights)
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

        return self._posterior_mean(X, of_counts, return_std)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
