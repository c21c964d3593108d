"""The observed information: exact where derivatives tell it, a secant where priors have kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from sgmcmc.data.passes import Pass
from sgmcmc.plan import curvature
from sgmcmc.plan.curvature import observed_information
from sgmcmc.plan.objective import Objective
from tests import seams
from tests.plan.models import (
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

RNG = np.random.default_rng(1)
# In float32, so that what is compared are the same numbers.
X = (
    (RNG.normal(size=(300, 4)) * [1.0, 0.1, 30.0, 1.0])
    .astype(np.float32)
    .astype(np.float64)
)
BETA = np.array([0.5, -2.0, 0.02, 0.0])
DATA = logistic_data(X, BETA)
HESSIAN = (X * weights(X, BETA)[:, np.newaxis]).T @ X
SHAPES = {"beta": (4,)}


@pytest.mark.some(2)
@pytest.mark.parametrize("log_lik", [logistic_terms, logistic_sum])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_hessian_of_a_logistic_regression(log_lik: object, dtype: tf.DType) -> None:
    """Σ q(1 − q) xx' + 1/σ², in float64 whatever the dtype of the chain."""
    found = observed_information(
        objective(log_lik, DATA, SHAPES, gaussian_prior(2.0), dtype=dtype), BETA
    )
    expected = HESSIAN + np.eye(4) / 4
    np.testing.assert_allclose(
        found.matrix, expected, rtol=1e-9, atol=1e-9 * expected.max()
    )
    np.testing.assert_allclose(found.covariance @ expected, np.eye(4), atol=1e-8)
    assert not found.held_up.any()
    assert found.condition == pytest.approx(np.linalg.cond(expected), rel=1e-6)


def test_a_saddle_and_a_flat_direction_have_no_condition_number() -> None:
    """The Hessian of −Σ(y − uv)²/2 − (u² + v²)/2 at zero has −1 beside Σy."""

    def product(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return -0.5 * (dataset["y"] - params["u"] * params["v"]) ** 2

    def total(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return -0.5 * (dataset["y"] - params["u"] - params["v"]) ** 2

    data, shapes = {"y": np.full(8, 0.5)}, {"u": (), "v": ()}
    saddle = observed_information(
        objective(product, data, shapes, gaussian_prior(1.0)), np.zeros(2)
    )
    assert saddle.shown_condition == "none: not positive in 1 of 2 directions"
    np.testing.assert_allclose(np.abs(saddle.upward), [1 / np.sqrt(6)] * 2)  # 4 − 1 = 3
    flat = observed_information(objective(total, data, shapes), np.zeros(2))
    assert flat.shown_condition == "none: not positive in 1 of 2 directions"
    assert flat.upward is None


def test_without_a_prior() -> None:
    found = observed_information(objective(logistic_terms, DATA, SHAPES), BETA)
    np.testing.assert_allclose(found.matrix, HESSIAN, rtol=1e-9, atol=1e-6)


@pytest.mark.some(1)
@pytest.mark.parametrize("rows_a_piece", [1, 7, 299, 300])
def test_pieces_make_no_difference(
    monkeypatch: pytest.MonkeyPatch, rows_a_piece: int
) -> None:
    monkeypatch.setattr(seams.OBJECTIVE_PIECE_NUMBERS, 5 * rows_a_piece)
    target, data = make(logistic_terms, DATA, SHAPES, gaussian_prior(2.0))
    split, run, sizes = Objective(target, data), Pass.run, []

    def counted(self: Pass, name: str, *arguments: Any) -> Any:
        if name == "hessian":
            sizes.append(len(arguments[-1]["y"]))
        return run(self, name, *arguments)

    monkeypatch.setattr(seams.PASS_RUN, counted)
    np.testing.assert_allclose(
        -split.likelihood_hessian(BETA), HESSIAN, rtol=1e-9, atol=1e-6
    )
    assert sum(sizes) == 300 and len(sizes) == -(-300 // rows_a_piece)
    value, gradient = split.value_and_gradient(BETA)
    logits = X @ BETA
    terms = DATA["y"] * logits - np.logaddexp(0, logits)
    assert value == pytest.approx(terms.sum() - 0.5 * (BETA**2).sum() / 4, rel=1e-10)
    score = X.T @ (DATA["y"] - 1 / (1 + np.exp(-logits))) - BETA / 4
    np.testing.assert_allclose(gradient, score, rtol=1e-8, atol=1e-8)


def test_part_of_the_rows_stands_for_all() -> None:
    rows = np.arange(0, 300, 3)
    part = objective(logistic_terms, DATA, SHAPES, gaussian_prior(2.0), rows=rows)
    expected = 3 * (X[rows] * weights(X[rows], BETA)[:, np.newaxis]).T @ X[rows]
    np.testing.assert_allclose(
        -part.likelihood_hessian(BETA), expected, rtol=1e-9, atol=1e-6
    )
    np.testing.assert_allclose(part.prior_hessian(BETA), -np.eye(4) / 4, atol=1e-12)


def test_float32_constants_bring_the_dtype_of_the_chain() -> None:
    """What is in float32 then is right to float32's rounding; it is not refused."""
    scale = tf.constant([1.0, 1.0, 1.0, 1.0])

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return logistic_terms({"beta": params["beta"] * scale}, dataset)

    mixed = objective(log_lik, DATA, SHAPES, gaussian_prior(2.0))
    assert mixed.target.dtype == tf.float32
    assert objective(logistic_terms, DATA, SHAPES).target.dtype == tf.float64
    found = observed_information(mixed, BETA).matrix
    np.testing.assert_allclose(found, HESSIAN + np.eye(4) / 4, rtol=1e-4, atol=0.05)


def _nothing(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return 0.0 * tf.reduce_sum(params["beta"]) * dataset["y"]


@pytest.mark.parametrize("b", [0.01, 1.0, 300.0])
def test_laplace_prior_alone(b: float) -> None:
    """At its kink the secant over ±s is 1/(bs), and s² = bs is solved by s = b."""
    found = observed_information(
        objective(_nothing, DATA, SHAPES, laplace_prior(b)), np.zeros(4)
    )
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), b, rtol=0.02)
    np.testing.assert_allclose(found.scale, b, rtol=0.02)
    np.testing.assert_allclose(found.held_up, 1 / b**2, rtol=0.04)


@pytest.mark.parametrize("curvature", [0.01, 1.0, 100.0])
def test_laplace_prior_with_some_data(curvature: float) -> None:
    """1/s² = J + 1/(bs) at the kink: a quadratic in 1/s."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return -0.5 * curvature * params["beta"][0] ** 2 * dataset["one"]

    one = objective(log_lik, {"one": np.ones(1)}, {"beta": (1,)}, laplace_prior(1.0))
    found = observed_information(one, np.zeros(1))
    s = 1 / (0.5 + np.sqrt(0.25 + curvature))
    assert found.scale[0] == pytest.approx(s, rel=0.02)
    assert found.matrix[0, 0] == pytest.approx(1 / s**2, rel=0.04)


def test_laplace_prior_far_from_its_kink() -> None:
    """A coordinate many SDs from zero is not held up at all."""
    found = observed_information(
        objective(logistic_terms, DATA, SHAPES, laplace_prior(1.0)),
        np.array([9.0, -40, 0.3, 5.0]),
    )
    assert not found.held_up.any()


def test_bijector() -> None:
    """Gamma(a, b) with Poisson counts, through exp: −∂²/∂u² is (b + N) e^u."""
    y = RNG.poisson(3.0, 4000)

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        return dataset["y"] * tf.math.log(params["rate"]) - params["rate"]

    counts = objective(
        log_lik,
        {"y": y},
        {"rate": ()},
        lambda params: tf.math.log(params["rate"]) - 2.0 * params["rate"],
        {"rate": tfp.bijectors.Exp()},
    )
    rate = (2 + y.sum()) / (2 + len(y))
    found = observed_information(counts, np.log([rate]))
    assert found.matrix[0, 0] == pytest.approx((2 + len(y)) * rate, rel=1e-6)
    _, gradient = counts.value_and_gradient(np.log([rate]))
    assert gradient[0] == pytest.approx(0, abs=1e-7 * y.sum())
    # Of the prior and the Jacobian alone: 2u − 2e^u.
    np.testing.assert_allclose(
        counts.prior_hessian(np.log([rate])), [[-2 * rate]], rtol=1e-12
    )


def test_directions_that_bend_upwards_are_turned() -> None:
    """At a saddle the matrix is positive definite all the same."""

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        u = params["beta"]
        return (-0.5 * u[0] ** 2 + 2.0 * u[1] ** 2 + 0.3 * u[0] * u[1]) * dataset["one"]

    found = observed_information(
        objective(log_lik, {"one": np.ones(1)}, {"beta": (2,)}), np.zeros(2)
    )
    assert np.linalg.eigvalsh(found.matrix).min() > 0
    np.testing.assert_allclose(found.matrix @ found.covariance, np.eye(2), atol=1e-9)


def test_infinite_gradient_of_the_prior_is_no_kink() -> None:
    # One SD to the right of the mode of N(0, 1) the density has fallen to nothing.
    def prior(params: Tensors) -> tf.Tensor:
        return -0.5 * params["x"] ** 2 - tf.exp(1e4 * (params["x"] - 0.5))

    data = {"y": np.zeros(3)}
    walled = objective(
        lambda p, d: p["x"] * d["y"], data, {"x": ()}, prior, dtype=tf.float64
    )
    found = observed_information(walled, np.zeros(1))
    assert found.matrix == pytest.approx(1.0)
    assert not found.held_up.any()


def test_curvature_that_is_not_finite_is_named() -> None:
    def prior(params: Tensors) -> tf.Tensor:
        return -tf.exp(params["x"])

    data = {"y": np.zeros(3)}
    steep = objective(
        lambda p, d: p["x"] * d["y"], data, {"x": ()}, prior, dtype=tf.float64
    )
    with pytest.raises(np.linalg.LinAlgError, match="curvature of the log posterior"):
        observed_information(steep, np.full(1, 1e3))


def test_a_plain_inverse_is_that_by_eigenvalues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    root = rng.normal(size=(6, 6)) * np.logspace(-4, 4, 6)[:, np.newaxis]
    matrix = root @ root.T
    plain = curvature._definite_inverse(matrix)
    assert plain is not None
    monkeypatch.setattr(seams.DEFINITE_INVERSE, lambda matrix: None)
    scale = np.sqrt(np.diag(plain))
    other = curvature._CachedInverse(matrix).with_positive_eigenvalues(
        np.zeros(len(matrix))
    ) / np.outer(scale, scale)
    np.testing.assert_allclose(plain / np.outer(scale, scale), other, atol=1e-9)


@pytest.mark.parametrize("least", [0.0, -1.0, 1e-13])
def test_others_have_none(least: float) -> None:
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(4, 4)))[0]
    matrix = turn @ np.diag([1.0, 1.0, 1.0, least]) @ turn.T
    assert curvature._definite_inverse((matrix + matrix.T) / 2) is None
