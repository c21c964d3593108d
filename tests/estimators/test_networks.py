"""Networks as estimators: predictions, densities, what the report says, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
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
