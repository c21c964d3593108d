"""The mode, against the optimum that SciPy finds of a log posterior written in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import optimize

from sgmcmc.plan.mode import Mode, _climb, find_mode
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.plan import mode_from
from tests.plan.models import (
    Array,
    Tensors,
    gaussian_prior,
    laplace_prior,
    logistic_data,
    logistic_sum,
    logistic_terms,
    make,
    objective,
    weights,
)

SCALES = np.array([1e-3, 0.05, 1.0, 30.0, 1e4])
FINE, COARSE = 1e-3, 0.1
"""How many posterior SDs the mode may be off; coarse with a part of the rows, or with a kink."""


def raw_columns(N: int, seed: int = 1) -> Array:
    """Return correlated columns of very different scales, in numbers that float32 holds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 5))
    X[:, 1:] += 0.9 * X[:, :-1]
    return (X * SCALES).astype(np.float32).astype(np.float64)


def off(found: Mode, expected: Array, hessian: Array) -> float:
    """Return how far a mode is from the right one, in posterior SDs, in the worst coordinate."""
    sds = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return float(np.abs((found.position - expected) / sds).max())


def starts(expected: Array, hessian: Array) -> dict[str, Array]:
    """Return zero, and a point a thousand posterior SDs off."""
    sds = np.sqrt(np.diag(np.linalg.inv(hessian)))
    signs = np.random.default_rng(2).choice([-1.0, 1.0], len(sds))
    return {"zero": np.zeros(len(sds)), "far": expected + 1000 * sds * signs}


def optimum(
    value: Callable[[Array], float],
    gradient: Callable[[Array], Array],
    hessian: Callable[[Array], Array],
    near: Array,
) -> Array:
    """Return the maximum of a log posterior in NumPy, sought in coordinates scaled at ``near``."""
    root = np.linalg.cholesky(np.linalg.inv(-hessian(near)))
    found = optimize.minimize(
        lambda z: -value(near + root @ z),
        np.zeros(len(near)),
        jac=lambda z: -root.T @ gradient(near + root @ z),
        hess=lambda z: -root.T @ hessian(near + root @ z) @ root,
        method="trust-exact",
        options={"gtol": 1e-8},
    )
    u = near + root @ found.x
    for _ in range(3):
        u = u - np.linalg.solve(hessian(u), gradient(u))
    return u


class TestLinearRegression:
    """Unknown coefficients on raw scales and an unknown variance, through exp: u = (β, log σ²)."""

    X = raw_columns(800)
    y = X @ (np.array([2.0, -1.0, 0.5, 0.0, 1.0]) / SCALES)
    y = (
        (y + np.random.default_rng(3).normal(0, 0.3, 800))
        .astype(np.float32)
        .astype(float)
    )
    data = {"X": X, "y": y}

    def log_prior_gradient(self, u: Array) -> Array:
        return np.append(-u[:5] / 1e8, 1.0 - np.exp(u[5]))

    def value(self, u: Array) -> float:
        gap = self.y - self.X @ u[:5]
        prior = -0.5 * (u[:5] ** 2).sum() / 1e8 - np.exp(u[5]) + u[5]
        return -0.5 * len(gap) * u[5] - 0.5 * (gap**2).sum() * np.exp(-u[5]) + prior

    def gradient(self, u: Array) -> Array:
        gap, precision = self.y - self.X @ u[:5], np.exp(-u[5])
        of_variance = -0.5 * len(gap) + 0.5 * (gap**2).sum() * precision
        return np.append(
            precision * self.X.T @ gap, of_variance
        ) + self.log_prior_gradient(u)

    def hessian(self, u: Array) -> Array:
        gap, precision = self.y - self.X @ u[:5], np.exp(-u[5])
        found = np.zeros((6, 6))
        found[:5, :5] = -precision * self.X.T @ self.X - np.eye(5) / 1e8
        found[:5, 5] = found[5, :5] = -precision * self.X.T @ gap
        found[5, 5] = -0.5 * (gap**2).sum() * precision - np.exp(u[5])
        return found

    def expected(self) -> tuple[Array, Array]:
        beta = np.linalg.lstsq(self.X, self.y, rcond=None)[0]
        near = np.append(beta, np.log(((self.y - self.X @ beta) ** 2).mean()))
        u = optimum(self.value, self.gradient, self.hessian, near)
        return u, -self.hessian(u)

    @pytest.mark.some(1)
    @pytest.mark.parametrize("start", ["zero", "far"])
    def test_unknown_variance(self, start: str) -> None:
        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            gap = dataset["y"] - tf.linalg.matvec(dataset["X"], params["beta"])
            return -0.5 * tf.math.log(params["s2"]) - 0.5 * gap**2 / params["s2"]

        def log_prior(params: Tensors) -> tf.Tensor:
            return -0.5 * tf.reduce_sum(params["beta"] ** 2) / 1e8 - params["s2"]

        expected, hessian = self.expected()
        assert np.linalg.cond(hessian) > 1e6
        # A thousand SDs of log σ² would be a variance of e^50 times the right one.
        beginning = starts(expected, hessian)[start]
        beginning[5] = np.clip(beginning[5], expected[5] - 5, expected[5] + 5)
        found = find_mode(
            objective(
                log_lik, self.data, {"beta": (5,), "s2": ()}, log_prior,
                {"s2": tfp.bijectors.Exp()},
            ),
            beginning,
        )  # fmt: skip
        assert found.converged
        assert off(found, expected, hessian) < FINE
        np.testing.assert_allclose(
            np.sqrt(np.diag(found.information.covariance)),
            np.sqrt(np.diag(np.linalg.inv(hessian))),
            rtol=1e-3,
        )

    @pytest.mark.some(1)
    @pytest.mark.parametrize("start", ["zero", "far"])
    def test_known_variance(self, start: str) -> None:
        """One Newton step would do; the answer is that of least squares."""

        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            gap = dataset["y"] - tf.linalg.matvec(dataset["X"], params["beta"])
            return -0.5 * gap**2 / 0.09

        hessian = self.X.T @ self.X / 0.09
        expected = np.linalg.lstsq(self.X, self.y, rcond=None)[0]
        found = find_mode(
            objective(log_lik, self.data, {"beta": (5,)}),
            starts(expected, hessian)[start],
        )
        assert found.converged and found.distance < FINE
        assert off(found, expected, hessian) < FINE


class TestLogisticRegression:
    """Smooth priors: Newton's method has its quadratic convergence."""

    X = raw_columns(3000)
    data = logistic_data(X, np.array([0.8, -0.5, 0.5, 0.0, -0.3]) / SCALES)
    sd = 1e4

    def value(self, u: Array) -> float:
        logits = self.X @ u
        terms = self.data["y"] * logits - np.logaddexp(0, logits)
        return float(terms.sum() - 0.5 * (u**2).sum() / self.sd**2)

    def gradient(self, u: Array) -> Array:
        return (
            self.X.T @ (self.data["y"] - 1 / (1 + np.exp(-self.X @ u))) - u / self.sd**2
        )

    def hessian(self, u: Array) -> Array:
        w = weights(self.X, u)
        return -(self.X * w[:, np.newaxis]).T @ self.X - np.eye(5) / self.sd**2

    def expected(self) -> tuple[Array, Array]:
        u = optimum(self.value, self.gradient, self.hessian, np.zeros(5))
        return u, -self.hessian(u)

    @pytest.mark.some(1)
    @pytest.mark.parametrize("start", ["zero", "far"])
    @pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
    def test_raw_scales(self, start: str, dtype: tf.DType) -> None:
        expected, hessian = self.expected()
        assert np.linalg.cond(hessian) > 1e6
        found = find_mode(
            objective(
                logistic_terms,
                self.data,
                {"beta": (5,)},
                gaussian_prior(self.sd),
                dtype=dtype,
            ),
            starts(expected, hessian)[start],
        )
        assert found.converged
        assert off(found, expected, hessian) < FINE
        assert np.abs(found.gradient - self.gradient(found.position)).max() < 1e-6 * 1e4

    def test_part_of_the_rows_first(self) -> None:
        expected, hessian = self.expected()
        given = (logistic_terms, self.data, {"beta": (5,)}, gaussian_prior(self.sd))
        whole, part = objective(*given), objective(*given, rows=np.arange(0, 3000, 5))
        found = find_mode(whole, np.zeros(5), part)
        assert found.converged
        assert off(found, expected, hessian) < COARSE
        assert part.evaluations > 3
        alone = find_mode(objective(*given), np.zeros(5)).evaluations
        assert whole.evaluations <= found.evaluations < alone


class TestLaplacePrior:
    """Rare features, some of which tell the two labels apart by themselves."""

    N = 3000
    PREVALENCES = np.array([1.0, 0.5, 0.2, 0.02, 0.003, 0.003, 0.001])
    X = (np.random.default_rng(5).random((N, 7)) < PREVALENCES).astype(float)
    data = logistic_data(X, np.array([-0.5, 1.0, -1.0, 2.0, 0.0, 0.0, 0.0]))
    data["y"][X[:, 4] == 1] = 1.0
    data["y"][X[:, 5] == 1] = 0.0

    def optimum(self, b: float, around: Array) -> Array:
        """Return the mode by bounded L-BFGS of the positive and the negative parts of β.

        The prior's gradient is its mean over ``around`` to each side, −clip(β/s, −1, 1)/b.
        """
        y, d = self.data["y"], self.X.shape[1]

        def both(parts: Array) -> tuple[float, Array]:
            beta = parts[:d] - parts[d:]
            logits = self.X @ beta
            score = self.X.T @ (y - 1 / (1 + np.exp(-logits)))
            value = np.logaddexp(0, logits).sum() - (y * logits).sum()
            if not around.any():
                return value + parts.sum() / b, np.concatenate([-score, score]) + 1 / b
            size = np.abs(beta)
            prior = (
                np.where(size < around, beta**2 / (2 * around), size - around / 2).sum()
                / b
            )
            score -= np.clip(beta / around, -1, 1) / b
            return value + prior, np.concatenate([-score, score])

        found = optimize.minimize(
            both, np.zeros(2 * d), jac=True, bounds=[(0, None)] * (2 * d), method="L-BFGS-B",
            options={"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-9},
        )  # fmt: skip
        return found.x[:d] - found.x[d:]

    @pytest.mark.some(2)
    @pytest.mark.parametrize("start", [0.0, 2.0])
    @pytest.mark.parametrize("b", [0.1, 0.3, 1.0, 3.0])
    def test_separated_features(self, b: float, start: float) -> None:
        """Near the mode of the prior that is smoothed over an sd; near its own, far from kinks."""
        found = find_mode(
            objective(logistic_terms, self.data, {"beta": (7,)}, laplace_prior(b)),
            np.full(7, start),
        )
        assert found.converged
        sds = np.sqrt(np.diag(found.information.covariance))
        gap = found.position - self.optimum(b, found.information.scale)
        assert np.sqrt(gap @ found.information.matrix @ gap / 7) < 1.5 * COARSE
        sharp = self.optimum(b, np.zeros(7))
        gap, far = np.abs(found.position - sharp) / sds, np.abs(sharp) > 3 * sds
        assert far.sum() >= 3
        assert gap[far].max() < 2 * COARSE and gap.max() < 1

    def test_features_that_never_occur(self) -> None:
        """The data say nothing about them: their mode is zero, their sd the prior's, roughly."""
        X = np.column_stack([self.X, np.zeros(self.N)])
        found = find_mode(
            objective(
                logistic_terms,
                {**self.data, "X": X},
                {"beta": (8,)},
                laplace_prior(1.0),
            ),
            np.full(8, 0.7),
        )
        assert found.converged
        assert abs(found.position[7]) < COARSE
        assert np.sqrt(found.information.covariance[7, 7]) == pytest.approx(
            1.0, rel=0.02
        )


def test_no_mode_there() -> None:
    """A log-likelihood that rises for ever has none, and that is said."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return dataset["x"] * params["theta"]

    found = find_mode(
        objective(log_lik, {"x": np.ones(50)}, {"theta": ()}), np.zeros(1)
    )
    assert not found.converged
    assert np.isfinite(found.position).all()


def product(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the terms of y ~ N(u v, 1)."""
    return -0.5 * (dataset["y"] - params["u"] * params["v"]) ** 2


@pytest.mark.some(1)
@pytest.mark.parametrize("with_part", [False, True])
def test_a_saddle_is_left(with_part: bool) -> None:
    """With u = v = 0 the gradient is zero, and the modes are at uv = ȳ − 1/(Nσ²), u = v."""
    y = np.random.default_rng(1).normal(1.0, 1.0, 400)
    shapes, prior = {"u": (), "v": ()}, gaussian_prior(1.0)
    whole = objective(product, {"y": y}, shapes, prior)
    part = (
        objective(product, {"y": y}, shapes, prior, rows=np.arange(100))
        if with_part
        else None
    )
    found = find_mode(whole, np.zeros(2), part)
    assert found.converged
    assert found.information.not_positive == 0
    squared = y.astype(np.float32).mean() - 1 / 400
    sds = np.sqrt(np.diag(found.information.covariance))
    np.testing.assert_allclose(
        np.abs(found.position), np.sqrt(squared), atol=COARSE * sds[0]
    )


def test_undefined_at_the_start_of_a_step() -> None:
    """A log of what Newton's method makes negative: the step is halved until it is finite."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return dataset["y"] * tf.math.log(params["rate"]) - params["rate"]

    y = np.random.default_rng(1).poisson(4.0, 500)
    found = find_mode(objective(log_lik, {"y": y}, {"rate": ()}), np.array([60.0]))
    assert found.converged
    assert found.position[0] == pytest.approx(
        y.mean(), abs=0.1 * y.mean() / np.sqrt(y.sum())
    )


def test_flat_tails() -> None:
    """A step into a tail looks short there, and is refused, because the log posterior is lower.

    The rows that are looked at first lead to where the log-likelihood of all has no curvature.
    """

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return tf.exp(-0.5 * (dataset["y"] - params["theta"]) ** 2)

    y = 0.1 * np.random.default_rng(2).normal(size=2000)
    for shift in (0.95, 1.05, 1.1):
        found = find_mode(
            objective(log_lik, {"y": y}, {"theta": ()}),
            np.zeros(1),
            objective(log_lik, {"y": y + shift}, {"theta": ()}),
        )
        assert found.converged
        assert abs(found.position[0] - y.mean()) < 0.01


class TestManyRows:
    """A feature that three rows of a part of the data have: curvature comes of rows that matter."""

    N = 110_000

    def data(self) -> dict[str, Array]:
        rng = np.random.default_rng(4)
        X = np.column_stack(
            [
                np.ones(self.N),
                rng.normal(size=(self.N, 2)),
                rng.random((self.N, 2)) < [0.1, 1e-4],
            ]
        )
        return logistic_data(
            X.astype(np.float32).astype(float), np.array([-1.0, 1, -0.5, 0.5, 1])
        )

    def newton(self, X: Array, y: Array) -> tuple[Array, Array]:
        u = np.zeros(5)
        for _ in range(12):
            information = (X * weights(X, u)[:, np.newaxis]).T @ X + np.eye(5) / 4
            score = X.T @ (y - 1 / (1 + np.exp(-X @ u))) - u / 4
            u = u + np.linalg.solve(information, score)
        return u, information

    @pytest.mark.some(1)
    @pytest.mark.parametrize("log_lik", [logistic_terms, logistic_sum])
    def test_few_passes(self, log_lik: Callable[..., tf.Tensor]) -> None:
        given = self.data()
        target, data = make(log_lik, given, {"beta": (5,)}, gaussian_prior(2.0))
        found = mode_from(Objective(target, data), np.zeros(5), seed=1)
        expected, information = self.newton(given["X"], given["y"])
        gap = found.position - expected
        assert np.sqrt(gap @ information @ gap / 5) < COARSE
        assert found.evaluations <= 10
        root = np.linalg.cholesky(found.information.covariance)
        off = root.T @ information @ root - np.eye(5)
        assert found.error <= 0.1
        # Three directions tell the error in the root mean square, to a factor of two or so.
        assert np.sqrt((off**2).sum() / 5) < max(2.5 * found.error, 0.01)

    @pytest.mark.slow
    def test_who_asks_for_the_number_of_rows(self) -> None:
        """Such a function is traced for each number of rows."""

        def asks(params: Tensors, dataset: Tensors) -> tf.Tensor:
            return logistic_terms(params, dataset) + np.zeros(dataset["y"].shape)

        given = self.data()
        target, data = make(asks, given, {"beta": (5,)}, gaussian_prior(2.0))
        found = mode_from(Objective(target, data), np.zeros(5), seed=1)
        expected, information = self.newton(given["X"], given["y"])
        assert off(found, expected, information) < COARSE


def test_newton_steps_leave_a_place_where_the_likelihood_is_saturated() -> None:
    """There a step is ten thousand times too long, as for a level whose rows a part did not show.

    The search on a part of the rows begins it near zero, and Newton steps on all rows go on.
    """
    y = (np.arange(100) % 5 < 2).astype(float)
    whole = objective(
        logistic_terms,
        {"X": np.ones((100, 1)), "y": y},
        {"beta": (1,)},
        gaussian_prior(1e3),
    )
    found, _ = _climb(whole, np.array([-12.0]), whole)
    assert found.distance < 0.1
    np.testing.assert_allclose(found.u, np.log(0.4 / 0.6), atol=0.1 / np.sqrt(24))
