"""Networks as estimators: predictions, densities, what the report says, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import norm, t
from sklearn.utils.estimator_checks import parametrize_with_checks

from sgmcmc.estimators import BayesianNetworkClassifier, BayesianNetworkRegressor

RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, (600, 1))
SD = np.where(X[:, 0] > 0, 0.4, 0.1)
Y = 3 + np.sin(2 * X[:, 0]) + SD * RNG.normal(size=600)
QUICK: dict[str, Any] = {"members": 3, "n_iters": 1000, "draws": 20, "random_state": 1}


@pytest.fixture(scope="module")
def regressor() -> BayesianNetworkRegressor:
    return BayesianNetworkRegressor(**QUICK).fit(X, Y)


def test_means_and_noise_that_depends_on_x(regressor: BayesianNetworkRegressor) -> None:
    at = np.array([[-1.0], [1.0]])
    mean, sd = regressor.predict(at, return_std=True)
    np.testing.assert_allclose(mean, 3 + np.sin(2 * at[:, 0]), atol=0.2)
    assert 0.07 < sd[0] < 0.2 < 0.3 < sd[1] < 0.6
    np.testing.assert_array_equal(regressor.predict(at), mean)


def test_the_log_score_is_that_of_the_mixture(regressor: BayesianNetworkRegressor) -> None:
    at, y = X[:50], Y[:50]
    outputs = regressor._each(regressor._standardized(at))
    means = regressor._center + regressor._unit * outputs[..., 0]
    exact = np.log(norm.pdf(y, means, regressor._unit * np.exp(outputs[..., 1])).mean(0)).mean()
    assert regressor.log_score(at, y) == pytest.approx(exact, abs=1e-4)


def test_draws_and_quantiles_of_responses(regressor: BayesianNetworkRegressor) -> None:
    at = X[:20]
    mean, sd = regressor.predict(at, return_std=True)
    drawn = regressor.sample_y(at, 4000, random_state=2)
    assert drawn.shape == (20, 4000)
    np.testing.assert_array_less(np.abs(drawn.mean(1) - mean), 5 * sd / np.sqrt(4000))
    found = regressor.predict(X, quantiles=[0.05, 0.95])
    inside = ((Y >= found[:, 0]) & (Y <= found[:, 1])).mean()
    assert 0.8 < inside < 0.98


@pytest.mark.parametrize("likelihood", ["normal", "student"])
def test_quantiles_are_those_of_the_mixture(likelihood: str) -> None:
    """Exact for known members, the same whatever rows are beside, and what the report counts."""
    model = BayesianNetworkRegressor(likelihood=likelihood, members=2)
    outputs = np.zeros((2, 4000, 2))
    outputs[1] = [1.0, np.log(0.3)]
    q = np.array([0.001, 0.05, 0.5, 0.95])
    found = model._quantiles(outputs, q)
    law = norm if likelihood == "normal" else t(4)
    cdf = 0.5 * (law.cdf(found) + law.cdf((found - 1.0) / 0.3))
    np.testing.assert_allclose(cdf, np.broadcast_to(q[:, np.newaxis], cdf.shape), atol=1e-9)
    np.testing.assert_array_equal(model._quantiles(outputs[:, :3], q), found[:, :3])
    rng = np.random.default_rng(3)
    u = law.rvs(size=4000, random_state=rng)
    y = np.where(rng.random(4000) < 0.5, u, 1.0 + 0.3 * u)
    inside = model._calibration(outputs, y)["coverage of 90 % intervals"]
    assert abs(inside - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 4000)


def test_the_stiffest_member_is_found() -> None:
    """The largest eigenvalue, in these units, of any member's Hessian, built column by column."""
    model = BayesianNetworkRegressor((3,), members=3)
    model.n_features_in_ = 1
    rng = np.random.default_rng(4)
    data = rng.normal(size=(200, 1)).astype("f"), rng.normal(size=200).astype("f")
    shapes = {"W0": (1, 3), "b0": (3,), "W1": (3, 2), "b1": (2,)}
    start = {name: rng.normal(size=(3, *shape)) for name, shape in shapes.items()}
    variances = {name: rng.uniform(0.01, 0.1, shape) for name, shape in shapes.items()}
    found = model._stiffest(data, start, variances)
    root = np.concatenate([np.sqrt(each).ravel() for each in variances.values()])
    sizes = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1]
    X, y = (tf.constant(each, tf.float64) for each in data)
    largest = []
    for member in range(3):
        flat = tf.constant(np.concatenate([each[member].ravel() for each in start.values()]))
        with tf.GradientTape() as outer:
            outer.watch(flat)
            with tf.GradientTape() as inner:
                inner.watch(flat)
                pieces = tf.split(flat, np.diff([0, *sizes, len(root)]))
                weights = {
                    name: tf.reshape(piece, shape)
                    for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
                }
                value = tf.reduce_sum(model._terms(y, model._forward(weights, X)))
                value += model._log_prior(weights)
            slope = inner.gradient(value, flat)
        hessian = outer.jacobian(slope, flat).numpy() * root * root[:, np.newaxis]
        largest.append(np.abs(np.linalg.eigvalsh(hessian)).max())
    assert np.argmax(largest) > 0  # one stepsize is for all, not for the first alone
    assert found == pytest.approx(max(largest), rel=0.02)


def test_the_report_judges_predictions(regressor: BayesianNetworkRegressor) -> None:
    held = regressor.report_["Held out"]
    assert held["rows"] == 60
    assert held["log density, trained members together"] >= held["log density, best member"] - 0.5
    assert 0.75 <= held["coverage of 90 % intervals"] <= 1.0
    assert regressor.samples_.settings["minibatches"] != "uniform"


def test_the_same_seed_gives_the_same_draws() -> None:
    one, other = (
        BayesianNetworkRegressor(**{**QUICK, "n_iters": 100}, epochs=5).fit(X, Y) for _ in range(2)
    )
    np.testing.assert_array_equal(one.samples_["W0"], other.samples_["W0"])


@pytest.mark.parametrize(
    "given", [{"likelihood": "student"}, {"heteroscedastic": False}, {"members": 1}]
)
def test_other_forms(given: dict[str, Any]) -> None:
    model = BayesianNetworkRegressor(**{**QUICK, "n_iters": 200, **given}, epochs=60).fit(X, Y)
    mean, sd = model.predict(X, return_std=True)
    assert np.corrcoef(mean, Y)[0, 1] > 0.8 and np.isfinite(model.log_score(X, Y))
    if "heteroscedastic" in given:
        assert np.ptp(sd) < 0.5 * sd.mean()


def test_classes() -> None:
    Z = RNG.normal(size=(600, 2))
    label = np.where(Z[:, 0] * Z[:, 1] > 0, "same", "other")
    model = BayesianNetworkClassifier(**QUICK).fit(Z, label)
    p = model.predict_proba(Z)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-6)
    assert model.score(Z, label) > 0.9 and model.log_score(Z, label) > -0.4
    assert model.report_["Held out"]["expected calibration error"] < 0.3
    with pytest.raises(ValueError, match="`y` has a class"):
        model.log_score(Z[:2], ["same", "new"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hidden": ()}, "`hidden`"),
        ({"hidden": 16}, "`hidden`"),
        ({"activation": "step"}, "`activation`"),
        ({"members": 0}, "`members`"),
        ({"likelihood": "poisson"}, "`likelihood`"),
        ({"prior_scale": -1.0}, "`prior_scale`"),
        ({"validation_fraction": 1.0}, "`validation_fraction`"),
    ],
)
def test_constants_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianNetworkRegressor(**given).fit(X, Y)


def test_data_that_are_refused() -> None:
    with pytest.raises(ValueError, match="`y` is the same number"):
        BayesianNetworkRegressor().fit(X, np.ones(600))
    with pytest.raises(ValueError, match="`y` has one class"):
        BayesianNetworkClassifier().fit(X, np.ones(600, int))
    with pytest.raises(ValueError, match="NaN"):
        BayesianNetworkRegressor().fit(np.full((10, 1), np.nan), np.arange(10.0))


@pytest.mark.slow
@parametrize_with_checks(
    [
        BayesianNetworkRegressor((8,), members=2, n_iters=200, epochs=200, random_state=1),
        BayesianNetworkClassifier((8,), members=2, n_iters=200, epochs=200, random_state=1),
    ]
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
