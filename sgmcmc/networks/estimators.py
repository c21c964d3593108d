"""Networks as estimators of scikit-learn: a regressor with densities, and a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import gammaln, ndtr, ndtri, softmax, stdtr, stdtrit
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from sgmcmc import checks
from sgmcmc.networks.dense import NUMBERS, NetworkEnsemble
from sgmcmc.networks.held_out import (
    FAR,
    PredictiveMoments,
    classes_judged,
    judge_tails,
    mixture,
    uniformity_error,
)
from sgmcmc.networks.training import Array, Network, Weights, chunked


@dataclass(frozen=True)
class _Settings:
    degrees: float = 4.0  # of freedom of Student responses
    least_sd: float = 1e-3  # of a response, in SDs of all: the density has a bound
    bisections: int = 40  # for a quantile of a mixture


_SETTINGS = _Settings()


class BayesianNetworkRegressor(RegressorMixin, NetworkEnsemble):
    """Bayesian neural network for a response, as a regressor of scikit-learn.

    y_i ~ N(μ_θ(x_i), σ_θ(x_i)²), or Student's t with 4 degrees of freedom; μ and u are the two
    outputs of a network with weights θ, and σ = log(1 + eᵘ). ``members`` networks are trained by
    Adam, and each then starts a chain of underdamped Langevin dynamics, with reshuffled minibatches
    if there are more than 2000 rows. Predictions are mixtures over all members and draws. In the
    loss of training a row is weighted by its σ, so that a member does not call noise what it could
    learn. Chains begin at the end of training, with all rows; or at the epochs with the best
    held-out density, if held-out rows are clearly better predicted from there.

    Args:
        hidden: Widths of the hidden layers.
        likelihood: ``"normal"`` or ``"student"``.
        heteroscedastic: Whether σ depends on x; else it is one number.
        activation: ``"relu"``, ``"tanh"`` or ``"silu"``.
        members: Number of networks, each a chain.
        n_iters: Iterations of each chain, after as many of shorter ones before; ``None`` for
            20 000, or 100 000 with minibatches; 0 leaves the members as they were at their best
            epochs, which is a deep ensemble.
        draws: Number of draws to keep of each member.
        prior_scale: SD of a layer's weights times √inputs; biases have SD 1.
        epochs: Number of epochs of training; ``None`` for 30 000 steps, but 5 to 2000 epochs.
        validation_fraction: Fraction of the rows that is held out from training and from the draws
            that the report judges; they are added before the chains continue.
        batch_size: Number of rows in a minibatch.
        random_state: Seed, or a generator of seeds.
        verbose: Whether to show progress.

    Attributes:
        samples_: :class:`sgmcmc.Samples`: the weights ``W0``, ``b0``, …; a chain has a few members,
            the first axis after that of the draws.
        report_: Results on the held-out rows: log density of the best member, of the trained
            members together and of the draws, gains, coverage of intervals, calibration error,
            disagreement of members, warnings.

    Raises:
        ValueError: The data or a constant are invalid; the message names the argument.

    Example:
        >>> import numpy as np
        >>> from sgmcmc.estimators import BayesianNetworkRegressor
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-2, 2, (400, 1))
        >>> y = np.sin(2 * X[:, 0]) + rng.normal(0, 0.1, 400)
        >>> model = BayesianNetworkRegressor(
        ...     (16,), members=2, n_iters=100, epochs=100, random_state=1).fit(X, y)
        >>> mean, sd = model.predict([[0.5]], return_std=True)
        >>> bool(abs(mean[0] - np.sin(1.0)) < 0.2), bool(0.05 < sd[0] < 0.3)
        (True, True)

    Source:
        Sommer and others, *Microcanonical Langevin ensembles: advancing the sampling of Bayesian
        neural networks*, ICLR 2025, for chains that start at trained members; Lakshminarayanan,
        Pritzel & Blundell, NeurIPS 2017, eq. 1; Seitzer and others, *On the pitfalls of
        heteroscedastic uncertainty estimation with probabilistic neural networks*, ICLR 2022, eq. 5
        with β = 1/2, for the weights of rows in training.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (16, 16),
        *,
        likelihood: str = "normal",
        heteroscedastic: bool = True,
        activation: str = "silu",
        members: int = 10,
        n_iters: int | None = None,
        draws: int = 50,
        prior_scale: float = 4.0,
        epochs: int | None = None,
        validation_fraction: float = 0.1,
        batch_size: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            hidden,
            activation=activation,
            members=members,
            n_iters=n_iters,
            draws=draws,
            prior_scale=prior_scale,
            epochs=epochs,
            validation_fraction=validation_fraction,
            batch_size=batch_size,
            random_state=random_state,
            verbose=verbose,
        )
        self.likelihood = likelihood
        self.heteroscedastic = heteroscedastic

    def fit(self, X: Any, y: Any) -> BayesianNetworkRegressor:
        """Train the members and sample them.

        Args:
            X: Features, (N, p).
            y: Responses, (N,).
        """
        self._read_constants()
        checks.choice("likelihood", self.likelihood, ["normal", "student"])
        X, y = self._validated(X, y, reset=True, y_numeric=True)
        if not np.ptp(y) > 0:
            raise ValueError(
                "`y` is the same number in every row: there is nothing to learn."
            )
        self._center = float(y.mean(dtype=np.float64))
        self._unit = float(y.std(dtype=np.float64))
        self._fit(X, self._standard(y))
        return self

    def partial_fit(self, X: Any, y: Any) -> BayesianNetworkRegressor:
        """Add rows to those of earlier calls, and continue the chains.

        The posterior is that of all rows so far, which the estimator keeps.

        Args:
            X: Features, (N, p).
            y: Responses, (N,).
        """
        if not hasattr(self, "samples_"):
            return self.fit(X, y)
        X, y = self._validated(X, y, reset=False, y_numeric=True)
        self._partial_fit(X, self._standard(y))
        return self

    def _standard(self, y: Array) -> Array:
        """Return responses in the units of the network."""
        standardized = (np.asarray(y, np.float64) - self._center) / self._unit
        return standardized.astype(np.float32)

    def _outputs(self) -> int:
        return 2

    def _forward(self, weights: Weights, X: Any) -> tf.Tensor:
        outputs = super()._forward(weights, X)
        if self.heteroscedastic:
            return outputs
        last = weights[f"b{len(self._widths) - 2}"][..., tf.newaxis, 1:]
        return tf.concat([outputs[..., :1], last + 0.0 * outputs[..., 1:]], -1)

    def _log_density(self, y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        sd = _sd(outputs)
        u = (y - outputs[..., 0]) / sd
        if self.likelihood == "normal":
            return -0.5 * u**2 - tf.math.log(sd) - 0.5 * float(np.log(2 * np.pi))
        df = _SETTINGS.degrees
        height = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi)
        fall = 0.5 * (df + 1) * tf.math.log1p(u**2 / df)
        return float(height) - fall - tf.math.log(sd)

    def _network(self) -> Network:
        # With equal weights the slope of μ is (y − μ)/σ², and noise stays noise.
        return replace(super()._network(), emphasis=_sd)

    def _moments(self, outputs: Array) -> PredictiveMoments:
        scales = np.logaddexp(0.0, outputs[..., 1]) + _SETTINGS.least_sd
        return PredictiveMoments(outputs[..., 0], scales, self._variance * scales**2)

    @property
    def _variance(self) -> float:
        """Variance of a response with scale 1."""
        df = _SETTINGS.degrees
        return 1.0 if self.likelihood == "normal" else df / (df - 2)

    def predict(self, X: Any, return_std: bool = False, quantiles: Any = None) -> Any:
        """Return the predicted mean of each row.

        Args:
            X: Features, (n, p).
            return_std: Whether to return the predicted SD of a response too.
            quantiles: Probabilities q; the quantiles of a response are returned instead, (n, q).

        Returns:
            An array (n,), a pair of such with ``return_std``, or (n, q) with ``quantiles``.
        """
        X = self._checked(X)
        if quantiles is not None:
            q = np.atleast_1d(np.asarray(quantiles, float))
            if not ((q > 0) & (q < 1)).all():
                raise ValueError(
                    f"`quantiles` must be between 0 and 1; they are {quantiles!r}."
                )
            quantiles_of_rows = self._quantiles(self._outputs_by_draw(X), q)
            return self._center + self._unit * quantiles_of_rows.T
        moments = self._moments(self._outputs_by_draw(X))
        mean = self._center + self._unit * moments.means.mean(0)
        if not return_std:
            return mean
        return mean, self._unit * np.sqrt(moments.variance)

    def _quantiles(self, outputs: Array, q: Array) -> Array:
        """Return quantiles of the mixture of all draws, (q, rows), by bisection of its CDF.

        They lie between the least and the greatest of the draws' own.
        """
        is_normal = self.likelihood == "normal"
        inverse = ndtri(q) if is_normal else stdtrit(_SETTINGS.degrees, q)
        moments = self._moments(outputs)
        draws, size = moments.means.shape
        values = np.empty((len(q), size))
        for rows in chunked(size, NUMBERS, draws):
            means, scales = moments.means[:, rows], moments.scales[:, rows]
            for number, probability in enumerate(q):
                quantiles = means + scales * inverse[number]
                low, high = quantiles.min(0), quantiles.max(0)
                for _ in range(_SETTINGS.bisections):
                    middle = 0.5 * (low + high)
                    below = self._cdf((middle - means) / scales).mean(0) < probability
                    low = np.where(below, middle, low)
                    high = np.where(below, high, middle)
                values[number, rows] = 0.5 * (low + high)
        return values

    def _cdf(self, u: Array) -> Array:
        """Return the CDF of the standardized response of one draw."""
        if self.likelihood == "normal":
            return ndtr(u)
        return stdtr(_SETTINGS.degrees, u)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int = 0) -> Array:
        """Return draws of responses, (n, n_samples).

        Args:
            X: Features, (n, p).
            n_samples: Number of draws for each row.
            random_state: Seed.
        """
        X = self._checked(X)
        count = checks.whole_number("n_samples", n_samples, 1)
        rng = np.random.default_rng(random_state)
        moments = self._moments(self._outputs_by_draw(X))
        means, scales = moments.means, moments.scales
        rows = np.arange(len(X))
        draw = rng.integers(len(means), size=(count, len(X)))
        if self.likelihood == "normal":
            noise = rng.standard_normal(draw.shape)
        else:
            noise = rng.standard_t(_SETTINGS.degrees, draw.shape)
        responses = means[draw, rows] + scales[draw, rows] * noise
        return (self._center + self._unit * responses).T

    def log_score(self, X: Any, y: Any) -> float:
        """Return the mean log predictive density of responses: that of the mixture.

        Args:
            X: Features, (n, p).
            y: Responses, (n,).
        """
        X = self._checked(X)
        outputs = self._outputs_by_draw(X)
        log_density = mixture(self._network().densities(self._standard(y), outputs))
        return float(log_density.mean() - np.log(self._unit))

    def _tails(self, outputs: Array, y: Array) -> tuple[dict[str, Any], list[str]]:
        tail = self._cdf(np.array(-FAR * np.sqrt(self._variance)))
        is_student = self.likelihood == "student"
        return judge_tails(y, self._moments(outputs), 2 * float(tail), is_student)

    def _calibration(self, outputs: Array, y: Array) -> dict[str, Any]:
        moments = self._moments(outputs)
        ranks = self._cdf((y - moments.means) / moments.scales).mean(0)
        members = moments.means.reshape(int(self.members), -1, len(y)).mean(1)
        disagreement = np.sqrt(members.var(0).mean() / moments.variance.mean())
        return {
            "coverage of 50 % intervals": float((np.abs(ranks - 0.5) <= 0.25).mean()),
            "coverage of 90 % intervals": float((np.abs(ranks - 0.5) <= 0.45).mean()),
            "calibration error, mean over intervals": uniformity_error(ranks),
            "disagreement of members, part of the predicted SD": float(disagreement),
        }


def _sd(outputs: tf.Tensor) -> tf.Tensor:
    return tf.nn.softplus(outputs[..., 1]) + _SETTINGS.least_sd


class BayesianNetworkClassifier(ClassifierMixin, NetworkEnsemble):
    """Bayesian neural network for classes, as a classifier of scikit-learn.

    P(y_i = k) is proportional to e^(f_k(x_i)), f the outputs of a network with weights θ. Members
    are trained and sampled, and predictions are mixtures, as in
    :class:`BayesianNetworkRegressor`.

    Args:
        hidden: Widths of the hidden layers.
        activation: ``"relu"``, ``"tanh"`` or ``"silu"``.
        members: Number of networks, each a chain.
        n_iters: Iterations of each chain, after as many of shorter ones before; ``None`` for
            20 000, or 100 000 with minibatches; 0 leaves the members as they were at their best
            epochs, which is a deep ensemble.
        draws: Number of draws to keep of each member.
        prior_scale: SD of a layer's weights times √inputs; biases have SD 1.
        epochs: Number of epochs of training; ``None`` for 30 000 steps, but 5 to 2000 epochs.
        validation_fraction: Fraction of the rows that is held out from training and from the draws
            that the report judges; they are added before the chains continue.
        batch_size: Number of rows in a minibatch.
        random_state: Seed, or a generator of seeds.
        verbose: Whether to show progress.

    Attributes:
        classes_: Classes.
        samples_: :class:`sgmcmc.Samples`: the weights ``W0``, ``b0``, …; a chain has a few members,
            the first axis after that of the draws.
        report_: Results on the held-out rows: log density of the best member, of the trained
            members together and of the draws, calibration error, disagreement of members, warnings.

    Raises:
        ValueError: The data or a constant are invalid; the message names the argument.

    Example:
        >>> import numpy as np
        >>> from sgmcmc.estimators import BayesianNetworkClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.normal(size=(400, 2))
        >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
        >>> model = BayesianNetworkClassifier(
        ...     (16,), members=2, n_iters=100, epochs=100, random_state=1).fit(X, y)
        >>> model.predict([[1.0, 1.0], [1.0, -1.0]]).tolist()
        ['same', 'other']

    Source:
        Sommer and others, ICLR 2025; Lakshminarayanan, Pritzel & Blundell, NeurIPS 2017.
    """

    classes_: Array

    def fit(self, X: Any, y: Any) -> BayesianNetworkClassifier:
        """Train the members and sample them.

        Args:
            X: Features, (N, p).
            y: Classes, (N,).
        """
        self._read_constants()
        X, y = self._validated(X, y, reset=True)
        check_classification_targets(y)
        self._fit_classes(X, y, np.unique(y))
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None
    ) -> BayesianNetworkClassifier:
        """Add rows to those of earlier calls, and continue the chains.

        The posterior is that of all rows so far, which the estimator keeps.

        Args:
            X: Features, (N, p).
            y: Classes, (N,).
            classes: All classes, at the first call, if not all are among its ``y``.
        """
        if not hasattr(self, "samples_"):
            self._read_constants()
            X, y = self._validated(X, y, reset=True)
            check_classification_targets(y)
            self._fit_classes(X, y, np.unique(y if classes is None else classes))
            return self
        if classes is not None and not np.array_equal(
            np.unique(classes), self.classes_
        ):
            raise ValueError(
                f"`classes` is {classes!r}, but the first call had {self.classes_.tolist()!r}."
            )
        X, y = self._validated(X, y, reset=False)
        self._partial_fit(X, self._codes(y))
        return self

    def _fit_classes(self, X: Any, y: Array, classes: Array) -> None:
        self.classes_ = classes
        if len(classes) < 2:
            raise ValueError(
                f"`y` has one class, {classes[0]!r}: there is nothing to learn."
            )
        self._fit(X, self._codes(y))

    def _codes(self, y: Any) -> Array:
        codes = np.searchsorted(self.classes_, np.asarray(y))
        codes = np.minimum(codes, len(self.classes_) - 1)
        if not (self.classes_[codes] == np.asarray(y)).all():
            raise ValueError(
                "`y` has a class that was not there when the model was fitted."
            )
        return codes.astype(np.int32)

    def _outputs(self) -> int:
        return len(self.classes_)

    def _log_density(self, y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        log_p = tf.nn.log_softmax(outputs, -1)
        return tf.reduce_sum(
            log_p * tf.one_hot(y, len(self.classes_), dtype=log_p.dtype), -1
        )

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, (n, classes): the mean over all draws."""
        outputs = self._outputs_by_draw(self._checked(X))
        return softmax(outputs, axis=-1).mean(0)

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each row, (n,)."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(1)]

    def log_score(self, X: Any, y: Any) -> float:
        """Return the mean log probability of the classes.

        Args:
            X: Features, (n, p).
            y: Classes, (n,).
        """
        p = self.predict_proba(X)
        chosen = p[np.arange(len(p)), self._codes(y)]
        return float(np.log(np.maximum(chosen, 1e-300)).mean())

    def _calibration(self, outputs: Array, y: Array) -> dict[str, Any]:
        return classes_judged(softmax(outputs, axis=-1), y, int(self.members))
