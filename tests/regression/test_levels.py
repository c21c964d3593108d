"""Responses that are levels, transformed responses and weighted cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import tensorflow as tf

import sgmcmc
from sgmcmc.regression.formula import parse, with_dot

N = 500
RNG = np.random.default_rng(1)
X = RNG.normal(1.0, 1.0, N)
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}
GRADE = np.digitize(0.8 * X + RNG.logistic(size=N), [0.0, 2.0])
UTILITY = np.column_stack([np.zeros(N), 0.5 - 0.5 * X, -0.3 + 0.8 * X]) + RNG.gumbel(
    size=(N, 3)
)
FRAME = pd.DataFrame(
    {
        "x": X,
        "grade": pd.Categorical.from_codes(GRADE, ["low", "mid", "high"], ordered=True),
        "kind": np.array(["bus", "car", "train"])[UTILITY.argmax(1)],
        "y": np.exp(1.0 + 0.5 * X + 0.3 * RNG.normal(size=N)),
        "w": RNG.integers(1, 4, N),
    }
)


@pytest.fixture(scope="module")
def ordinal() -> sgmcmc.Regression:
    return sgmcmc.glm("grade ~ x", FRAME, "ordinal", **QUIET)


@pytest.fixture(scope="module")
def categorical() -> sgmcmc.Regression:
    return sgmcmc.glm("kind ~ x", FRAME, "categorical", **QUIET)


def _laplace(negative: Any, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode and the standard deviations of the normal distribution there."""

    @tf.function
    def value_and_slope(at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(at)
            value = negative(at)
        return value, tape.gradient(value, at)

    def with_slope(u: np.ndarray) -> Any:
        return tuple(part.numpy() for part in value_and_slope(tf.constant(u)))

    mode = scipy.optimize.minimize(with_slope, start, jac=True, method="BFGS").x
    step = 1e-4 * np.eye(len(mode))
    slopes = [with_slope(mode + move)[1] - with_slope(mode - move)[1] for move in step]
    hessian = np.array(slopes) / 2e-4
    return mode, np.sqrt(np.diag(np.linalg.inv(hessian)))


def _agree(fit: sgmcmc.Regression, mode: np.ndarray, sds: np.ndarray) -> None:
    table = fit.summary()
    # N = 500: means are within a tenth of an sd of the mode; ESS 400 and more.
    assert (np.abs(table["estimate"] - mode) < (0.1 + 4 / 20) * sds).all()
    np.testing.assert_allclose(table["error"], sds, rtol=0.08 + 4 / np.sqrt(800))


def test_ordinal_against_its_laplace_approximation(ordinal: sgmcmc.Regression) -> None:
    """The density written out in the user's parameters: slope and cutpoints."""

    def negative(u: tf.Tensor) -> tf.Tensor:
        below = tf.sigmoid(u[1:][None] - u[0] * X[:, None])
        p = tf.stack([below[:, 0], below[:, 1] - below[:, 0], 1 - below[:, 1]], 1)
        lik = tf.reduce_sum(tf.math.log(tf.gather(p, GRADE, batch_dims=1)))
        at_mean = u[1:] - u[0] * X.mean()
        prior = -0.5 * (u[0] * X.std() / 2.5) ** 2
        prior -= tf.reduce_sum(tf.nn.softplus(at_mean) + tf.nn.softplus(-at_mean))
        return -lik - prior

    assert list(ordinal.summary().index) == ["x", "low|mid", "mid|high"]
    _agree(ordinal, *_laplace(negative, np.array([0.5, 0.0, 1.0])))
    assert "uniform" in ordinal.priors["cut"] and list(ordinal.fixed.index) == ["x"]


def test_categorical_against_its_laplace_approximation(
    categorical: sgmcmc.Regression,
) -> None:
    codes = np.searchsorted(["bus", "car", "train"], FRAME["kind"])

    def negative(u: tf.Tensor) -> tf.Tensor:
        eta = tf.stack([0.0 * X, u[0] + u[1] * X, u[2] + u[3] * X], 1)
        lik = tf.reduce_sum(tf.gather(tf.nn.log_softmax(eta), codes, batch_dims=1))
        prior = 0.0
        for k in (0, 2):
            prior -= 0.5 * ((u[k] + u[k + 1] * X.mean()) / 2.5) ** 2
            prior -= 0.5 * (u[k + 1] * X.std() / 2.5) ** 2
        return -lik - prior

    names = ["car: Intercept", "car: x", "train: Intercept", "train: x"]
    assert list(categorical.summary().index) == names
    _agree(categorical, *_laplace(negative, np.zeros(4)))


@pytest.mark.parametrize("name", ["ordinal", "categorical"])
def test_predictions_are_probabilities_by_level(name: str, request: Any) -> None:
    fit = request.getfixturevalue(name)
    levels = ["low", "mid", "high"] if name == "ordinal" else ["bus", "car", "train"]
    p = fit.predict(FRAME.iloc[:4])
    assert p.shape == (4, 3)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert fit.predict(FRAME.iloc[:4], "quantiles").shape == (3, 4, 3)
    drawn = fit.predict(FRAME.iloc[:4], "response")
    assert drawn.shape[1] == 4 and set(drawn.ravel()) <= set(levels)
    share = np.stack([(drawn == level).mean(0) for level in levels], 1)
    assert (np.abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / len(drawn)) + 0.01).all()
    changes = fit.comparisons("x")["estimate"]
    assert list(changes.index) == [f"x: +1 [{level}]" for level in levels]
    # Probabilities sum to one, so that their changes sum to zero.
    assert abs(changes.sum()) < 1e-6 and len(fit.slopes()) == 3
    loo = fit.loo()
    assert (loo.pareto_k < 0.7).all() and -N * np.log(3) < loo.elpd < 0
    with pytest.raises(ValueError, match="are levels, without residuals"):
        _ = fit.residuals
    fit.plot()


@pytest.mark.slow
def test_transformed_responses() -> None:
    fit = sgmcmc.glm("log(y) ~ x", FRAME, **QUIET)
    own = sgmcmc.glm("z ~ x", FRAME.assign(z=np.log(FRAME["y"])), **QUIET)
    np.testing.assert_array_equal(fit.summary(), own.summary())
    np.testing.assert_array_equal(fit.residuals, own.residuals)


def test_names_that_are_not_there_in_responses() -> None:
    with pytest.raises(ValueError, match="names 'nothing'"):
        sgmcmc.glm("nothing ~ x", FRAME, **QUIET)
    with pytest.raises(ValueError, match="names 'nothing'"):
        sgmcmc.glm("log(nothing) ~ x", FRAME, **QUIET)


def test_a_dot_is_all_other_columns() -> None:
    frame = FRAME[["x", "kind", "y", "w"]].rename(columns={"kind": "a kind"})
    full = with_dot(parse("y ~ . + (1 | w)"), frame, None)
    assert full.fixed == "(x + `a kind`)" and full.bars[0].by == "w"
    assert with_dot(parse("log(y) ~ . - x"), frame, "w").fixed == "(x + `a kind`) - x"
    assert with_dot(parse("y ~ I(.5 * x)"), frame, None).fixed == "I(.5 * x)"
    fit = sgmcmc.glm("y ~ .^2", frame, n_iters=100, **QUIET)
    x, w, kind = "x", "w", "a kind[T.{}]"
    terms = ["Intercept", x, kind.format("car"), kind.format("train"), w]
    pairs = (
        [f"x:{term}" for term in terms[2:4]] + ["x:w"] + [f"{t}:w" for t in terms[2:4]]
    )
    assert sorted(map(str, fit.fixed.index)) == sorted([*terms, *pairs])
    assert fit.formula == "y ~ .^2" and fit.predict(frame.iloc[:2]).shape == (2,)
    dotted = pd.DataFrame(columns=["Sepal.Length", "x", "Sepal.Length.log"])
    own = with_dot(
        parse("y ~ Sepal.Length * log(Sepal.Length.log) + x.mean()"), dotted, None
    )
    assert own.fixed == "`Sepal.Length` * log(`Sepal.Length.log`) + x.mean()"
    with pytest.raises(ValueError, match="there are no other columns"):
        sgmcmc.glm("y ~ .", FRAME[["y"]], **QUIET)


@pytest.mark.usefixtures("without_sampling")
def test_a_dot_drops_rows_with_missing_values() -> None:
    gaps = FRAME[["x", "y"]].assign(x=np.where(np.arange(N) < 3, np.nan, X))
    assert sgmcmc.glm("y ~ .", gaps, missing="drop", **QUIET).dropped == 3


def test_loo_knows_weights() -> None:
    """Weights that are integers are rows that are there several times, left out together."""
    fit = sgmcmc.glm("log(y) ~ x", FRAME, weights="w", **QUIET)
    loo = fit.loo()
    y, w, sigma = np.log(FRAME["y"]), FRAME["w"], fit.summary()["estimate"]["sigma"]
    density = (
        -0.5 * ((y - fit.fitted) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    )
    assert abs(loo.elpd - (w * density).sum()) < 12  # p_loo is about 2 × 3
    assert abs(loo.elpd - density.sum()) > 50


@pytest.mark.parametrize(
    ("formula", "family", "error", "message"),
    [
        ("kind ~ x", "ordinal", TypeError, "text has no order"),
        ("grade ~ 0 + x", "ordinal", ValueError, "replace the intercept"),
        (
            "kind ~ x + (1 | w)",
            "categorical",
            ValueError,
            "not compatible with family 'categorical'",
        ),
        ("one ~ x", "categorical", ValueError, "has one level"),
        ("y ~ x", "ordinal", ValueError, "looks like a measurement"),
        ("kind ~ x", "gaussian", TypeError, "must hold numbers"),
    ],
)
def test_wrong_responses_are_named(
    formula: str, family: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sgmcmc.glm(formula, FRAME.assign(one="a"), family, **QUIET)
