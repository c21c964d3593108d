"""An ensemble of networks: members trained together, sampled as chains, and judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

import sgmcmc.samplers
from sgmcmc import checks
from sgmcmc.dynamics import Underdamped
from sgmcmc.errors import DivergenceError
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples

Array = np.ndarray
Weights = dict[str, Any]

_ACTIVATIONS = {"relu": tf.nn.relu, "tanh": tf.tanh, "silu": tf.nn.silu}

_SHORT = 0.3
"""Time and friction of an epoch: short against the dynamics' own, so that errors of minibatches in
order cancel."""

_STABLE = 0.5
"""Stepsize times the largest curvature."""

BATCH = 256
"""Rows of a minibatch of the chains."""

_TRAINED_WITH, _RATE, _PATIENCE = 64, 3e-3, 150
"""Rows of a minibatch of the training, Adam's rate, and epochs without progress after which
training ends."""

_TRIES = 4
"""Largest number of restarts of chains that diverge."""

_SMALLER = 10.0
"""Factor by which their stepsize is then smaller."""

NUMBERS = 2**23
"""Largest number of predictions held at a time."""

_WORSE = 2.0
"""Standard errors by which a log density is called worse."""


class NetworkEnsemble(BaseEstimator):
    """Base class of networks for regression and for classes.

    θ are all weights, W_ij ~ N(0, prior_scale² · 2 / inputs of the layer) and biases ~
    N(0, prior_scale²).
    """

    samples_: Samples
    report_: Report
    n_features_in_: int

    def __init__(
        self,
        hidden: Sequence[int] = (16, 16),
        *,
        activation: str = "silu",
        members: int = 10,
        n_iters: int = 20_000,
        draws: int = 50,
        prior_scale: float = 2.0,
        epochs: int = 1000,
        validation_fraction: float = 0.1,
        batch_size: int = BATCH,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.members = members
        self.n_iters = n_iters
        self.draws = draws
        self.prior_scale = prior_scale
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.batch_size = batch_size
        self.random_state = random_state
        self.verbose = verbose

    def _outputs(self) -> int:
        raise NotImplementedError

    def _terms(self, y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Return the log density of each row, of outputs (..., rows, outputs)."""
        raise NotImplementedError

    def _read_constants(self) -> None:
        hidden = self.hidden if isinstance(self.hidden, Sequence) else None
        if hidden is None or not hidden:
            raise ValueError(f"`hidden` must be a sequence of widths; it is {self.hidden!r}.")
        for width in hidden:
            checks.whole_number("hidden", width, 1)
        checks.choice("activation", self.activation, _ACTIVATIONS)
        for name, least in (("members", 1), ("n_iters", 1), ("draws", 1), ("epochs", 1)):
            checks.whole_number(name, getattr(self, name), least)
        checks.whole_number("batch_size", self.batch_size, 1)
        checks.positive_number("prior_scale", self.prior_scale)
        if not (checks.is_number(self.validation_fraction) and 0 < self.validation_fraction < 1):
            raise ValueError(
                "`validation_fraction` must be between 0 and 1; it is "
                f"{self.validation_fraction!r}."
            )

    def _fit(self, X: Array, y: Array) -> None:
        """Train and sample the members, on standardized features and targets."""
        seed = self._seed()
        rng = np.random.default_rng(seed)
        self._middle, spread = X.mean(0), X.std(0)
        self._spread = np.where(spread > 0, spread, 1.0)
        X = self._standardized(X)
        order = rng.permutation(len(X))
        held = max(1, round(self.validation_fraction * len(X)))
        test, train = order[:held], order[held:]
        if not len(train):
            test = train = order
        data = X[train], y[train]
        start, moments = self._trained(data, (X[test], y[test]), rng)
        self._members = start
        variances = self._variances(
            moments, len(train), min(_TRAINED_WITH, self.batch_size, len(train))
        )
        self.samples_ = self._sampled(data, start, variances, seed)
        self.report_ = self._judged(X[test], y[test])

    def _seed(self) -> int:
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31 - 1))
        state = self.random_state
        return int(np.random.SeedSequence().entropy % 2**31) if state is None else int(state)  # type: ignore[operator]

    def _standardized(self, X: Array) -> Array:
        return ((X - self._middle) / self._spread).astype(np.float32)

    @property
    def _widths(self) -> list[int]:
        return [self.n_features_in_, *map(int, self.hidden), self._outputs()]

    def _forward(self, weights: Weights, X: tf.Tensor) -> tf.Tensor:
        """Return outputs, (..., rows, outputs), of weights with or without a leading axis."""
        activation, h = _ACTIVATIONS[self.activation], X
        for layer in range(len(self._widths) - 1):
            h = tf.matmul(h, weights[f"W{layer}"]) + weights[f"b{layer}"][..., tf.newaxis, :]
            h = activation(h) if layer < len(self._widths) - 2 else h
        return h

    def _prior_sds(self) -> dict[str, float]:
        found = {}
        for layer, inputs in enumerate(self._widths[:-1]):
            found[f"W{layer}"] = float(self.prior_scale * np.sqrt(2.0 / inputs))
            found[f"b{layer}"] = float(self.prior_scale)
        return found

    def _log_prior(self, weights: Weights) -> tf.Tensor:
        return -0.5 * tf.add_n(
            [tf.reduce_sum((weights[name] / sd) ** 2) for name, sd in self._prior_sds().items()]
        )

    def _trained(
        self, data: tuple[Array, Array], test: tuple[Array, Array], rng: np.random.Generator
    ) -> tuple[Weights, Weights]:
        """Return the weights of all members where their held-out loss was least, by Adam.

        With them come the mean squares of the gradients of a minibatch's mean loss.
        """
        widths, M = self._widths, int(self.members)
        weights: Weights = {}
        for layer, (inputs, outputs) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
            sd = np.sqrt((2.0 if layer < len(widths) - 2 else 0.1) / inputs)
            weights[f"W{layer}"] = tf.constant(rng.normal(0, sd, (M, inputs, outputs)), tf.float32)
            weights[f"b{layer}"] = tf.zeros([M, outputs])
        X, y = (tf.constant(each) for each in data)
        Xt, yt = (tf.constant(each) for each in test)
        N = len(data[0])
        n = min(_TRAINED_WITH, int(self.batch_size), N)
        batches = max(1, N // n)

        @tf.function
        def epoch(weights: Weights, first: Weights, second: Weights, step: Any, order: Any) -> Any:
            for batch in tf.range(batches):
                rows = order[batch * n : (batch + 1) * n]
                Xb, yb = tf.gather(X, rows), tf.gather(y, rows)
                with tf.GradientTape() as tape:
                    tape.watch(weights)
                    terms = self._terms(yb, self._forward(weights, Xb))
                    loss = -tf.reduce_sum(tf.reduce_mean(terms, -1))
                    loss -= self._log_prior(weights) / N
                gradients = tape.gradient(loss, weights)
                step += 1.0
                first = {k: 0.9 * first[k] + 0.1 * g for k, g in gradients.items()}
                second = {k: 0.99 * second[k] + 0.01 * g**2 for k, g in gradients.items()}
                m, v = 1.0 - 0.9**step, 1.0 - 0.99**step
                weights = {
                    k: each - _RATE * (first[k] / m) / (tf.sqrt(second[k] / v) + 1e-7)
                    for k, each in weights.items()
                }
            held = tf.reduce_mean(self._terms(yt, self._forward(weights, Xt)), -1)
            return weights, first, second, step, held

        none = {name: tf.zeros_like(each) for name, each in weights.items()}
        first, second, step = none, none, tf.constant(0.0)
        best, moments = dict(weights), dict(none)
        highest, since = np.full(M, -np.inf), 0
        for _ in range(int(self.epochs)):
            order = tf.constant(rng.permutation(N), tf.int32)
            weights, first, second, step, held = epoch(weights, first, second, step, order)
            better = held.numpy() > highest
            highest = np.where(better, held.numpy(), highest)
            since = 0 if better.any() else since + 1
            for name in best:
                shape = (M, *[1] * (len(best[name].shape) - 1))
                best[name] = np.where(better.reshape(shape), weights[name], best[name])
                unbiased = second[name] / (1.0 - 0.99 ** float(step))
                moments[name] = np.where(better.reshape(shape), unbiased, moments[name])
            if since >= _PATIENCE:
                break
        return (
            {name: np.asarray(each) for name, each in best.items()},
            {name: np.asarray(each) for name, each in moments.items()},
        )

    def _variances(self, moments: Weights, N: int, n: int) -> Weights:
        """Return the variance of each weight with all others held, from the empirical information.

        A minibatch's mean gradient has a row's mean square over n.
        """
        return {
            name: 1.0 / (N * n * moments[name].mean(0) + 1.0 / sd**2)
            for name, sd in self._prior_sds().items()
        }

    def _stiffest(self, data: tuple[Array, Array], start: Weights, variances: Weights) -> float:
        """Return the largest curvature of any member in units of these variances.

        One stepsize is for all, and members differ by a factor of two.
        """
        size = min(len(data[0]), 2000)
        X, y = (tf.constant(each[:size]) for each in data)
        at = {name: tf.constant(each, tf.float32) for name, each in start.items()}
        roots = {name: tf.constant(np.sqrt(each), tf.float32) for name, each in variances.items()}
        weight = len(data[0]) / size

        @tf.function
        def product(direction: Weights) -> tuple[Weights, tf.Tensor]:
            norms = tf.sqrt(
                tf.add_n([tf.reduce_sum(each**2, axes(each)) for each in direction.values()])
            )
            unit = {
                name: each / tf.reshape(norms, [-1, *[1] * len(axes(each))])
                for name, each in direction.items()
            }
            with tf.autodiff.ForwardAccumulator(
                at, {name: roots[name] * each for name, each in unit.items()}
            ) as along:
                with tf.GradientTape() as tape:
                    tape.watch(at)
                    value = weight * tf.reduce_sum(self._terms(y, self._forward(at, X)))
                    value += self._log_prior(at)
                slope = tape.gradient(value, at)
            return {name: -roots[name] * along.jvp(slope[name]) for name in unit}, norms

        def axes(each: tf.Tensor) -> list[int]:
            return list(range(1, len(each.shape)))

        rng, norms = np.random.default_rng(0), tf.ones([1])
        v = {
            name: tf.constant(rng.normal(size=each.shape), tf.float32) for name, each in at.items()
        }
        for _ in range(21):  # the first only measures the random direction
            v, norms = product(v)
        largest = float(tf.reduce_max(norms))
        return largest if np.isfinite(largest) and largest > 1.0 else 1.0

    def _sampled(
        self, data: tuple[Array, Array], start: Weights, variances: Weights, seed: int
    ) -> Samples:
        """Return the draws of all members, a chain each."""
        X, y = data
        n = min(int(self.batch_size), len(X))
        epoch = len(X) / n
        short = _SHORT / epoch
        stepsize = min(short**2, _STABLE / self._stiffest(data, start, variances))
        n_iters = max(int(self.n_iters), int(self.draws))
        thin = max(1, n_iters // int(self.draws))

        def log_lik(weights: Weights, rows: Any) -> tf.Tensor:
            return self._terms(rows["y"], self._forward(weights, rows["X"]))

        one = int(self.members) == 1
        each = [
            {name: array[member] for name, array in start.items()}
            for member in range(int(self.members))
        ]
        diagonal = {name: np.asarray(v, np.float64).reshape(-1) for name, v in variances.items()}
        for _ in range(_TRIES):
            try:
                return sgmcmc.samplers.sample(
                    log_lik, {"X": X, "y": y}, each[0] if one else each, self._log_prior,
                    dynamics=Underdamped(friction=short),
                    gradient="full" if n == len(X) else "minibatch",
                    minibatches="uniform" if n == len(X) else "reshuffled",
                    minibatch_size=None if n == len(X) else n, preconditioner=diagonal,
                    stepsize=stepsize, n_chains=None if one else int(self.members),
                    n_iters=thin * int(self.draws), burn_in=n_iters // 5, thin=thin, seed=seed,
                    verbose=self.verbose, integers=["y"] if y.dtype.kind == "i" else (),
                )  # fmt: skip
            except DivergenceError as error:  # far from the mode, where it is stiffer
                stepsize, diverged = stepsize / _SMALLER, error
        raise diverged

    def _weights(self, trained: bool = False) -> Weights:
        """Return all draws, (members × draws, ...), or the members as they were trained."""
        if trained:
            return self._members
        chains = self.samples_.settings["n_chains"] is not None
        return {
            name: np.asarray(a).reshape(-1, *a.shape[2 if chains else 1 :])
            for name, a in self.samples_.items()
        }

    def _each(self, X: Array, trained: bool = False) -> Array:
        """Return the outputs of every draw, (draws, rows, outputs)."""
        weights, found = self._weights(trained), []
        count = len(next(iter(weights.values())))
        rows = max(1, NUMBERS // (count * max(self._widths)))
        forward = tf.function(self._forward, reduce_retracing=True)
        tensors = {name: tf.constant(each, tf.float32) for name, each in weights.items()}
        for place in range(0, len(X), rows):
            found.append(forward(tensors, tf.constant(X[place : place + rows])).numpy())
        return np.concatenate(found, 1).astype(np.float64)

    def _checked(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._standardized(validate_data(self, X, reset=False, dtype=np.float64))

    def _log_densities(self, outputs: Array, y: Array) -> Array:
        """Return the log density of each row at each draw, on the scale of the standardized y."""
        return np.asarray(self._terms(tf.constant(y), tf.constant(outputs, tf.float32)), np.float64)

    def _judged(self, X: Array, y: Array) -> Report:
        """Return the report on members, ensemble and draws, from the held-out rows."""
        trained = self._log_densities(self._each(X, trained=True), y)
        outputs = self._each(X)
        sampled = self._log_densities(outputs, y)
        ensemble = logsumexp(trained, 0) - np.log(len(trained))
        mixture = logsumexp(sampled, 0) - np.log(len(sampled))
        gain = mixture - ensemble
        error = float(gain.std() / np.sqrt(len(gain)))
        found = []
        if not np.isfinite(mixture).all():
            found.append("Draws became NaN or infinite: smaller `prior_scale`, or fewer `n_iters`.")
        elif gain.mean() < -_WORSE * error:
            found.append(
                f"Sampling made held-out predictions worse, by {-gain.mean():.3f} ± {error:.3f} a "
                "row in log density: more `n_iters`, or a smaller `prior_scale`."
            )
        return Report(
            {
                "method": self.samples_.settings["method"],
                "Held out": {
                    "rows": len(y),
                    "log density, best member": float(trained.mean(1).max()),
                    "log density, trained members together": float(ensemble.mean()),
                    "log density, draws": float(mixture.mean()),
                    "gain by sampling, a row": [
                        float(gain.mean() - error),
                        float(gain.mean() + error),
                    ],
                    **self._calibration(outputs, y),
                },
                "Chain": {
                    "members": int(self.members),
                    "draws of each": int(self.draws),
                    "stepsize": float(self.samples_.settings["stepsize"]),
                    "thinning": int(self.samples_.settings["thin"]),
                },
                "warnings": found,
            }
        )

    def _calibration(self, outputs: Array, y: Array) -> dict[str, Any]:
        raise NotImplementedError
