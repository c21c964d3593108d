"""Networks as estimators: predictions, densities, what the report says, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy
from scipy.stats import norm, t
from sklearn.utils.estimator_checks import parametrize_with_checks

from sgmcmc.estimators import BayesianNetworkClassifier, BayesianNetworkRegressor

RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, (600, 1))
SD = np.where(X[:, 0] > 0, 0.4, 0.1)
Y = 3 + np.sin(2 * X[:, 0]) + SD * RNG.normal(size=600)
QUICK: dict[str, Any] = {
    "hidden": (12,), "members": 3, "n_iters": 500, "draws": 20, "epochs": 300, "random_state": 1
}  # fmt: skip
ENSEMBLE = {**QUICK, "n_iters": 0}


@pytest.fixture(
    scope="module", params=[0, pytest.param(QUICK["n_iters"], marks=pytest.mark.slow)]
)
def regressor(request: pytest.FixtureRequest) -> BayesianNetworkRegressor:
    return BayesianNetworkRegressor(**{**QUICK, "n_iters": request.param}).fit(X, Y)


@pytest.mark.slow
def test_means_and_noise_that_depends_on_x(regressor: BayesianNetworkRegressor) -> None:
    at = np.array([[-1.0], [1.0]])
    mean, sd = regressor.predict(at, return_std=True)
    np.testing.assert_allclose(mean, 3 + np.sin(2 * at[:, 0]), atol=0.2)
    assert 0.07 < sd[0] < 0.2 < 0.3 < sd[1] < 0.6
    np.testing.assert_array_equal(regressor.predict(at), mean)


def test_the_log_score_is_that_of_the_mixture(
    regressor: BayesianNetworkRegressor,
) -> None:
    at, y = X[:50], Y[:50]
    outputs = regressor._outputs_by_draw(regressor._standardized(at))
    means = regressor._center + regressor._unit * outputs[..., 0]
    sds = regressor._unit * (np.logaddexp(0.0, outputs[..., 1]) + 1e-3)
    exact = np.log(norm.pdf(y, means, sds).mean(0)).mean()
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
    outputs[:, :, 1] = np.log(np.expm1(np.array([1.0, 0.3]) - 1e-3))[:, np.newaxis]
    outputs[1, :, 0] = 1.0
    q = np.array([0.001, 0.05, 0.5, 0.95])
    found = model._quantiles(outputs, q)
    law = norm if likelihood == "normal" else t(4)
    cdf = 0.5 * (law.cdf(found) + law.cdf((found - 1.0) / 0.3))
    np.testing.assert_allclose(
        cdf, np.broadcast_to(q[:, np.newaxis], cdf.shape), atol=1e-9
    )
    np.testing.assert_array_equal(model._quantiles(outputs[:, :3], q), found[:, :3])
    rng = np.random.default_rng(3)
    u = law.rvs(size=4000, random_state=rng)
    y = np.where(rng.random(4000) < 0.5, u, 1.0 + 0.3 * u)
    inside = model._calibration(outputs, y)["coverage of 90 % intervals"]
    assert abs(inside - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 4000)


def test_the_report_judges_predictions(regressor: BayesianNetworkRegressor) -> None:
    held = regressor.report_["Held out"]
    assert held["rows"] == 60
    assert (
        held["log density, trained members together"]
        >= held["log density, best member"] - 0.5
    )
    assert 0.75 <= held["coverage of 90 % intervals"] <= 1.0
    low, high = held["gain over the best member, a row"]
    assert low < high and "need not mix" in held["judged by"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_draws(
    regressor: BayesianNetworkRegressor,
) -> None:
    again = BayesianNetworkRegressor(**regressor.get_params()).fit(X, Y)
    np.testing.assert_array_equal(regressor.samples_["W0"], again.samples_["W0"])


@pytest.mark.parametrize("regressor", [0], indirect=True)
def test_an_ensemble_without_sampling(regressor: BayesianNetworkRegressor) -> None:
    model, again = regressor, BayesianNetworkRegressor(**ENSEMBLE).fit(X, Y)
    np.testing.assert_array_equal(model.samples_["W0"], again.samples_["W0"])
    assert model.predict(X[:5]).shape == (5,) and model.samples_["W0"].shape[:2] == (
        3,
        1,
    )
    assert model.report_["Held out"]["gain by sampling, a row"] == pytest.approx(
        [0.0, 0.0]
    )


@pytest.mark.parametrize("n_iters", [0, pytest.param(200, marks=pytest.mark.slow)])
def test_a_single_member_with_student_responses_of_one_scale(n_iters: int) -> None:
    given: dict[str, Any] = {
        **QUICK,
        "n_iters": n_iters,
        "members": 1,
        "likelihood": "student",
        "epochs": QUICK["epochs"] if n_iters else 150,
    }
    model = BayesianNetworkRegressor(**given, heteroscedastic=False).fit(X, Y)
    mean, sd = model.predict(X, return_std=True)
    assert np.corrcoef(mean, Y)[0, 1] > 0.8 and np.isfinite(model.log_score(X, Y))
    assert np.ptp(sd) < 0.5 * sd.mean()


@pytest.mark.slow
def test_classes_that_come_in_parts() -> None:
    Z = RNG.normal(size=(600, 2))
    label = np.where(Z[:, 0] * Z[:, 1] > 0, "same", "other")
    model = BayesianNetworkClassifier(**QUICK)
    model.partial_fit(Z[:300], label[:300])
    before = model.log_score(Z[300:], label[300:])
    model.partial_fit(Z[300:], label[300:], classes=["other", "same"])
    assert model._data.size == 600 and model.report_["Held out"]["rows"] == 60
    assert model.log_score(Z[300:], label[300:]) > before
    with pytest.raises(ValueError, match="`classes` is"):
        model.partial_fit(Z, label, classes=["a", "b"])
    p = model.predict_proba(Z)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-6)
    assert model.score(Z, label) > 0.9 and model.log_score(Z, label) > -0.4
    assert model.report_["Held out"]["expected calibration error"] < 0.3
    with pytest.raises(ValueError, match="`y` has a class"):
        model.log_score(Z[:2], ["same", "new"])


@pytest.mark.parametrize("n_iters", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_sparse_and_float32_features_are_standardized_in_the_graph(
    n_iters: int,
) -> None:
    """The same posterior whatever form features come in; float32 ones are not copied."""
    given: dict[str, Any] = {**QUICK, "members": 2, "n_iters": n_iters}
    given["epochs"] = QUICK["epochs"] if n_iters else 120
    Z = np.where(
        RNG.random((400, 3)) < 0.5, 0.0, RNG.normal(2.0, 1.0, (400, 3))
    ).astype("f")
    y = Z @ [1.0, -1.0, 0.5] + 0.1 * RNG.normal(size=400)
    dense = BayesianNetworkRegressor(**given).fit(Z, y)
    assert np.shares_memory(dense._data.columns["X"].array, Z)
    assert np.corrcoef(dense.predict(Z), y)[0, 1] > 0.95
    sparse = BayesianNetworkRegressor(**given).fit(scipy.sparse.csr_array(Z), y)
    found = sparse.predict(scipy.sparse.csr_array(Z))
    np.testing.assert_array_equal(found, sparse.predict(Z))
    assert np.corrcoef(found, y)[0, 1] > 0.95


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
    for estimator in (BayesianNetworkRegressor(), BayesianNetworkClassifier()):
        with pytest.raises(ValueError, match="requires y to be passed"):
            estimator.fit(X, None)
    with pytest.raises(ValueError, match="NaN"):
        BayesianNetworkRegressor().fit(np.full((10, 1), np.nan), np.arange(10.0))


@pytest.mark.slow
@parametrize_with_checks(
    [
        BayesianNetworkRegressor(
            (8,), members=2, n_iters=200, epochs=200, random_state=1
        ),
        BayesianNetworkClassifier(
            (8,), members=2, n_iters=200, epochs=200, random_state=1
        ),
    ]
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
