"""Scales, curvature and noise around positions, and the constants that follow, where d is large."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.dynamics import SGLD, Underdamped
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.plan.ascent import Ascent, AscentState
from sgmcmc.plan.local import (
    LocalGeometry,
    Probe,
    choose_locally,
    largest_curvature,
    local_geometry,
    prior_information,
)
from sgmcmc.plan.recursion import LinearRecursion
from tests.plan.models import Array, Tensors, gaussian_prior, laplace_prior, make

N, D = 4000, 6
RNG = np.random.default_rng(1)
SCALES = np.array([1.0, 3.0, 0.1, 10.0, 1.0, 0.01])
X = RNG.normal(size=(N, D)) * SCALES
X[:, 1] += 3 * X[:, 0]
Y = X @ (1 / SCALES) + RNG.normal(size=N)
DATA = {"X": X, "y": Y}
TRUTH = 1 / SCALES


def linear(params: Tensors, dataset: Tensors) -> tf.Tensor:
    """Return the terms of a linear regression with unit noise."""
    fitted = tf.linalg.matvec(dataset["X"], params["beta"])
    return -0.5 * (dataset["y"] - fitted) ** 2


def test_scales_are_those_of_coordinates_with_all_others_held() -> None:
    """Of a model that fits, where the mean square of scores is the curvature."""
    target, data = make(linear, DATA, {"beta": (D,)}, gaussian_prior(0.05))
    around = local_geometry(target, data, [TRUTH], seed=1)
    likelihood, prior = (X**2).sum(0), 1 / 0.05**2
    # 128 pairs: the variance of a coordinate has the relative error √(2/128).
    np.testing.assert_allclose(
        around.whitening.root**-2.0, likelihood + prior, rtol=4 * np.sqrt(2 / 128)
    )
    np.testing.assert_allclose(
        around.share, likelihood / (likelihood + prior), atol=0.2
    )
    # The noise in scaled coordinates is what made the scales.
    np.testing.assert_allclose(
        around.noise, (N / around.rows - 1) * around.share, rtol=1e-6
    )
    np.testing.assert_array_equal(around.whitening.origin, TRUTH)


def test_the_largest_curvature_and_its_noise() -> None:
    target, data = make(linear, DATA, {"beta": (D,)}, gaussian_prior(1.0))
    around = local_geometry(target, data, [TRUTH, TRUTH], seed=1)
    root = around.whitening.root
    values, vectors = np.linalg.eigh((X.T @ X + np.eye(D)) * np.outer(root, root))
    assert around.curvature == pytest.approx(values[-1], rel=0.1)
    scores = (Y - X @ TRUTH)[:, None] * X * root
    exact = N**2 * (1 / around.rows - 1 / N) * np.var(scores @ vectors[:, -1], ddof=1)
    assert around.stiff_noise == pytest.approx(exact, rel=5 * np.sqrt(2 / 128))


def test_power_iteration_is_exact_with_all_rows() -> None:
    target, data = make(linear, {"X": X[:300], "y": Y[:300]}, {"beta": (D,)})
    found, direction = largest_curvature(Probe(target, data, 1), TRUTH, 1 / SCALES)
    values, vectors = np.linalg.eigh(X[:300].T @ X[:300] / np.outer(SCALES, SCALES))
    assert found == pytest.approx(values[-1], rel=1e-3)
    assert abs(direction @ vectors[:, -1]) == pytest.approx(1.0, abs=1e-3)


def test_few_observations_are_probed() -> None:
    """A density of one row: there is no spread of gradients over rows."""
    precision = np.array([1.0, 4.0, 100.0])

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return dataset["one"] * -0.5 * tf.reduce_sum(precision * params["x"] ** 2)

    target, data = make(log_lik, {"one": np.ones(1)}, {"x": (3,)})
    around = local_geometry(target, data, [np.ones(3)], seed=1)
    np.testing.assert_allclose(around.whitening.root, precision**-0.5, rtol=1e-3)
    np.testing.assert_allclose(around.noise, 0.0)
    assert around.curvature == pytest.approx(1.0, rel=1e-3)


class TestPriors:
    """The curvature of the prior in each coordinate."""

    @staticmethod
    def found(
        log_prior: object, shapes: dict[str, tuple[int, ...]], u: Array, **given: object
    ) -> Array:
        def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
            return dataset["x"] * sum(tf.reduce_sum(p) for p in params.values())

        target, data = make(log_lik, {"x": np.ones(20)}, shapes, log_prior, **given)  # type: ignore[arg-type]
        return prior_information(Probe(target, data, 1), target, u)

    def test_a_precision_with_its_weights(self) -> None:
        """λ ~ Gamma(1, 1) through exp, w ~ N(0, 1/λ): λ for w, λ + λ Σw²/2 for log λ."""

        def log_prior(params: Tensors) -> tf.Tensor:
            precision, w = params["precision"], params["w"]
            normal = 10 * tf.math.log(precision) - 0.5 * precision * tf.reduce_sum(w**2)
            return normal - precision

        w, bijectors = RNG.normal(size=20), {"precision": tfp.bijectors.Exp()}
        u = np.append(w, np.log(3.0))
        found = self.found(
            log_prior, {"w": (20,), "precision": ()}, u, bijectors=bijectors
        )
        np.testing.assert_allclose(found[:20], 3.0, rtol=1e-4)
        assert found[20] == pytest.approx(3.0 + 1.5 * (w**2).sum(), rel=1e-4)

    def test_a_kink_counts_by_its_slope(self) -> None:
        found = self.found(
            laplace_prior(0.5), {"w": (4,)}, np.array([1.0, -2.0, 0.3, 5.0])
        )
        np.testing.assert_allclose(found, 4.0, rtol=1e-5)

    def test_a_flat_prior_has_none(self) -> None:
        np.testing.assert_array_equal(self.found(None, {"w": (4,)}, np.ones(4)), 0.0)


def neighbourhood(
    curvature: float, noise: float, stiff: float, size: int
) -> LocalGeometry:
    d = 50
    return LocalGeometry(
        Preconditioner(np.ones(d), np.zeros(d)),
        np.ones(d), curvature, np.linspace(0, noise, d), stiff, min(500, size // 2), size,
    )  # fmt: skip


class TestChoice:
    """Stepsize and minibatch size."""

    @pytest.mark.parametrize("dynamics", [Underdamped(), Underdamped(0.1), SGLD()])
    def test_every_coordinate_is_within_the_tolerance(self, dynamics: object) -> None:
        around = neighbourhood(50.0, 200.0, 3000.0, 100_000)
        for tolerance in (0.1, 0.01):
            plan = choose_locally(around, dynamics, tolerance)  # type: ignore[arg-type]
            assert np.abs(plan.error).max() <= tolerance * 1.0001
            law = LinearRecursion(plan.dynamics, plan.stepsize)
            exact = np.sqrt(law.variance(plan.noise[-1])) - 1
            assert plan.error[-1] == pytest.approx(exact)

    def test_curvature_limits_the_stepsize(self) -> None:
        plan = choose_locally(
            neighbourhood(1000.0, 1.0, 100.0, 100_000), Underdamped(), 0.05
        )
        assert plan.stepsize == pytest.approx(0.25 / 1000)
        assert plan.minibatch_size == 500

    def test_noise_takes_more_rows(self) -> None:
        plan = choose_locally(
            neighbourhood(2.0, 100.0, 200.0, 100_000), Underdamped(), 0.05
        )
        assert plan.minibatch_size == 1000 and plan.stepsize < 0.125

    def test_few_rows_are_all_taken(self) -> None:
        plan = choose_locally(
            neighbourhood(4.0, 100.0, 100.0, 1500), Underdamped(), 0.05
        )
        assert plan.minibatch_size == 1500 and plan.stepsize == pytest.approx(0.25 / 4)
        np.testing.assert_allclose(plan.error, 0.0, atol=1e-12)
        assert plan.stiff_error == pytest.approx(0.0, abs=1e-9)

    def test_the_stiffest_direction(self) -> None:
        """Curvature λ with noise V: that of λε with noise V/λ, in coordinates √λ times as long."""
        plan = choose_locally(
            neighbourhood(40.0, 1.0, 500.0, 100_000), Underdamped(), 0.05
        )
        eps, lam, alpha = plan.stepsize, 40.0, 0.5
        noise = 500.0 * plan.around.noise_factor(plan.minibatch_size)
        variance = 1 + eps * noise / 4 / np.tanh(alpha / 2) / (1 - eps * lam / 4)
        assert plan.stiff_error == pytest.approx(np.sqrt(variance) - 1, rel=1e-6)


def test_a_step_of_the_ascent() -> None:
    """Against NumPy, with the bias of the means undone."""
    ascent, gradient = Ascent(), np.array([3.0, -0.5, 0.0])
    state = AscentState(
        tf.constant([1.0, 2.0, 3.0], tf.float64), tf.constant([0.2, 0.1, 0.0], tf.float64),
        tf.constant([1.0, 0.4, 0.0], tf.float64), tf.constant(4.0, tf.float64),
    )  # fmt: skip
    found = ascent.step(
        state,
        tf.constant(gradient),
        tf.constant(0.1, tf.float64),
        tf.zeros([0, 3], tf.float64),
    )
    m = 0.9 * np.array([0.2, 0.1, 0.0]) + 0.1 * gradient
    v = 0.99 * np.array([1.0, 0.4, 0.0]) + 0.01 * gradient**2
    move = 0.1 * m / (1 - 0.9**5) / (np.sqrt(v / (1 - 0.99**5)) + 1)
    np.testing.assert_allclose(found.position, [1.0, 2.0, 3.0] + move, rtol=1e-12)
    np.testing.assert_allclose(found.count, 5.0)
