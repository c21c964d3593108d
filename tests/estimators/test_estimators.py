"""Regressions as estimators: posteriors, predictions, and scikit-learn's own checks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sgmcmc
from sgmcmc.estimators import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
)
from sgmcmc.estimators.base import Standardization
from sgmcmc.estimators.linear import _is_linear
from tests import seams

Array = np.ndarray

N, CLOSE, TOLERANCE = 2000, 0.1, 0.05
"""Rows; how near means must be to the mode, in SDs, beyond Monte Carlo; the error of an sd."""

FINITE = 4 / np.sqrt(400)
"""Four standard errors of a mean, in SDs, with the effective sample size that is asked for."""

rng = np.random.default_rng(1)
X = np.column_stack(
    [rng.normal(50, 12, N), rng.lognormal(3, 0.5, N), rng.random(N) < 0.3]
)
Z = (X - X.mean(0)) / X.std(0)
ETA = Z @ [0.8, -0.5, 0.3]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return the calls of `sample`, arguments and keywords, which return ones as draws."""
    made: list[tuple[Any, ...]] = []

    def sample(*given: Any, **keywords: Any) -> sgmcmc.Samples:
        made.append((given, {**keywords, "bijectors": list(keywords["bijectors"])}))
        params = given[2].items()
        return sgmcmc.Samples(
            {name: np.ones((2, 5, *np.shape(p))) for name, p in params}
        )

    monkeypatch.setattr(seams.ESTIMATORS_SAMPLE, sample)
    return made


def laplace(weight: Array, ridge: float) -> Array:
    """Return the SDs of intercept and slopes of Z by the curvature at the mode."""
    design = np.column_stack([np.ones(N), Z])
    information = design.T @ (weight[:, np.newaxis] * design) + ridge * np.eye(4)
    return np.sqrt(np.diag(np.linalg.inv(information)))


def check_slopes(model: Any, mode: Array, sd: Array) -> None:
    """Means and SDs of the slopes of Z against those of the normal at the mode."""
    draws = model.samples_["coef"].reshape(-1, 3).astype(float) * X.std(0)
    assert (np.abs(draws.mean(0) - mode) / sd).max() < CLOSE + FINITE
    assert np.abs(draws.std(0) / sd - 1).max() < TOLERANCE + FINITE / np.sqrt(2)
    np.testing.assert_allclose(model.coef_.ravel() * X.std(0), draws.mean(0), rtol=1e-6)


def test_logistic() -> None:
    """Against penalised maximum likelihood; probabilities are averages over draws."""
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-ETA)), "yes", "no")
    model = BayesianLogisticRegression(random_state=1).fit(X, y)
    mode = LogisticRegression(C=2.5**2, tol=1e-8).fit(Z, y)
    p = mode.predict_proba(Z)[:, 1]
    check_slopes(model, mode.coef_[0], laplace(p * (1 - p), 1 / 2.5**2)[1:])
    mean, sd = model.predict_proba(X[:50], return_std=True)
    np.testing.assert_allclose(mean.sum(1), 1.0, rtol=1e-12)
    coef, intercept = model._draws()
    by_hand = 1 / (1 + np.exp(-(X[:50] @ coef.T + intercept)))
    # A thousand draws stand for all.
    assert (np.abs(mean[:, 1] - by_hand.mean(1)) < 4 * sd[:, 1] / np.sqrt(400)).all()
    assert set(model.predict(X[:50])) <= {"no", "yes"}
    assert model.score(X, y) > 0.6


@pytest.mark.slow
def test_several_classes() -> None:
    """Three classes: scores are those of a multinomial regression, to an error of the posterior."""
    logits = np.column_stack([np.zeros(N), ETA, -ETA + 0.5])
    y = np.argmax(logits + rng.gumbel(size=(N, 3)), 1)
    model = BayesianLogisticRegression(random_state=1).fit(X, y)
    peer = LogisticRegression(C=1e4).fit(Z, y)
    assert model.coef_.shape == (3, 3) and model.intercept_.shape == (3,)
    assert (model.coef_[0] == 0).all()
    gap = model.predict_proba(X) - peer.predict_proba(Z)
    assert np.abs(gap).max() < 0.02


def test_linear() -> None:
    """With a flat prior: the least squares estimate, and its SDs."""
    y = 100 + 3 * ETA + rng.normal(0, 2, N)
    model = BayesianLinearRegression(prior_scale=100, random_state=1).fit(X, y)
    design = np.column_stack([np.ones(N), Z])
    beta = np.linalg.lstsq(design, y, rcond=None)[0]
    sigma = np.sqrt(((y - design @ beta) ** 2).sum() / (N - 4))
    check_slopes(
        model, beta[1:], sigma * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))[1:]
    )
    assert abs(model.sigma_ - sigma) < (CLOSE + FINITE) * sigma / np.sqrt(2 * N)
    mean, sd = model.predict(X, return_std=True)
    assert np.abs(mean - design @ beta).max() < 5 * sigma * np.sqrt(4 / N)
    np.testing.assert_allclose(sd, sigma, rtol=0.05)


def test_poisson() -> None:
    """Against penalised maximum likelihood."""
    y = rng.poisson(np.exp(1 + 0.5 * ETA))
    model = BayesianPoissonRegression(random_state=1).fit(X, y)
    mode = PoissonRegressor(alpha=1 / (2.5**2 * N), tol=1e-10, max_iter=1000).fit(Z, y)
    check_slopes(model, mode.coef_, laplace(mode.predict(Z), 1 / 2.5**2)[1:])


@pytest.mark.slow
def test_weights() -> None:
    """A row that counts twice is two rows."""
    y = (rng.random(400) < 1 / (1 + np.exp(-ETA[:400]))).astype(int)
    weight = rng.integers(0, 3, 400)
    weighted = BayesianLogisticRegression(random_state=1).fit(
        Z[:400], y, sample_weight=weight
    )
    whole = BayesianLogisticRegression(random_state=2).fit(
        np.repeat(Z[:400], weight, 0), np.repeat(y, weight)
    )
    sd = whole.samples_["coef"].std((0, 1))
    assert (np.abs(weighted.coef_ - whole.coef_)[0] < 2 * FINITE * sd).all()


def test_without_intercept(calls: list[tuple[Any, ...]]) -> None:
    y = (rng.random(400) < 0.5).astype(int)
    model = BayesianLogisticRegression(fit_intercept=False, random_state=1).fit(
        Z[:400], y
    )
    (log_lik, dataset, params, log_prior), _ = calls[0]
    assert model.intercept_ == 0.0 and list(params) == ["coef"]
    coef = np.array([0.3, -0.2, 0.1], np.float32)
    terms = log_lik({"coef": tf.constant(coef)}, dataset)
    eta = Z[:400] @ coef
    np.testing.assert_allclose(terms, y * eta - np.logaddexp(0, eta), atol=1e-5)
    scale = Z[:400].std(0)
    prior = log_prior({"coef": tf.constant(coef)})
    assert float(prior) == pytest.approx(
        -0.5 * ((coef * scale / 2.5) ** 2).sum(), rel=1e-5
    )


@pytest.mark.slow
def test_in_a_pipeline() -> None:
    """Cloned, scored and scaled like any estimator."""
    y = (rng.random(300) < 1 / (1 + np.exp(-3 * ETA[:300]))).astype(int)
    model = make_pipeline(StandardScaler(), BayesianLogisticRegression(random_state=1))
    assert cross_val_score(clone(model), X[:300], y, cv=2).mean() > 0.7


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (BayesianLogisticRegression(), np.zeros(5), "1 class"),
        (BayesianLogisticRegression(prior_scale=-1), [0, 1, 0, 1, 0], "`prior_scale`"),
        (BayesianLogisticRegression(tolerance=2), [0, 1, 0, 1, 0], "`tolerance`"),
        (BayesianPoissonRegression(), [0, 1, -1, 1, 0], "`y` must be counts"),
    ],
)
def test_refused(model: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(np.arange(10.0).reshape(5, 2), y)


@pytest.mark.parametrize("kind", ["f2", ">f8", "g"])
def test_responses_of_any_storage(kind: str) -> None:
    y = np.round(ETA + rng.normal(size=N))
    given = BayesianLinearRegression(random_state=1).fit(X, y.astype(kind))
    wanted = BayesianLinearRegression(random_state=1).fit(X, y)
    np.testing.assert_array_equal(given.coef_, wanted.coef_)


def test_without_noise() -> None:
    """Where y is a linear function of X the variance has no posterior; of few rows it has."""
    y = 3.0 + Z @ [1.0, 2.0, 0.0]
    with pytest.raises(ValueError, match="`y` is a linear function of `X`"):
        BayesianLinearRegression().fit(X, y)
    weights = np.arange(N) < 8
    with pytest.raises(ValueError, match="`y` is a linear function of `X`"):
        BayesianLinearRegression().fit(
            X, np.where(weights, y, 0.0), sample_weight=weights
        )
    assert not _is_linear(X[:4], y[:4], True) and not _is_linear(
        X, y + rng.random(N), True
    )


_OF_DRAWS = (
    "posterior means have a Monte Carlo error: rows that count twice are two rows to 1/sqrt(ess) "
    "of a posterior sd, not to rounding"
)
_NO_NOISE = "its responses are a linear function of its features: there is no posterior of sigma"


def not_applicable(estimator: Any) -> dict[str, str]:
    """Return scikit-learn's checks that ask for what a posterior cannot give."""
    found = {"check_sample_weight_equivalence_on_dense_data": _OF_DRAWS}
    if isinstance(estimator, BayesianLinearRegression):
        found |= {
            "check_sample_weights_shape": _NO_NOISE,
            "check_sample_weights_not_overwritten": _NO_NOISE,
        }
    return found


@pytest.mark.slow
@parametrize_with_checks(
    [
        BayesianLogisticRegression(ess=100, random_state=1),
        BayesianLinearRegression(ess=100, random_state=1, max_seconds=20),
        BayesianPoissonRegression(ess=100, random_state=1),
    ],
    expected_failed_checks=not_applicable,
)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_rows_that_are_added_are_those_of_one_call(
    calls: list[tuple[Any, ...]],
) -> None:
    """The chain of all rows is one of the same data and keywords."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 2))
    y, weights = X @ [1.0, -1.0] + rng.normal(size=300), np.repeat([1.0, 2.0], 150)
    options = {"random_state": 1, "ess": 50, "n_chains": 2}
    rows, responses = X[:150].copy(), y[:150].copy()
    model = BayesianLinearRegression(**options).partial_fit(rows, responses)
    rows[:], responses[:] = 0.0, 0.0  # memory that the caller uses again
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((2, 2), np.nan), [0.0, 1.0])
    with pytest.raises(ValueError, match="a pickle does not hold them"):
        pickle.loads(pickle.dumps(model)).partial_fit(X[150:], y[150:])
    model.partial_fit(X[150:], y[150:], weights[150:])
    BayesianLinearRegression(**options).fit(X, y, weights)
    assert [len(given[1]["X"]) for given, _ in calls] == [150, 300, 300]
    (_, added, params, prior), keywords = calls[1]
    (_, together, params_together, prior_together), keywords_together = calls[2]
    assert keywords == keywords_together and added.keys() == together.keys()
    for name, column in together.items():
        np.testing.assert_array_equal(added[name], column)
    for name, start in params_together.items():
        np.testing.assert_array_equal(params[name], start)
    point = {name: tf.constant(np.full(np.shape(p), 0.7)) for name, p in params.items()}
    assert prior(point) == prior_together(point)


@pytest.mark.slow
def test_rows_that_are_added_have_the_draws_of_one_call() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 2))
    y, weights = X @ [1.0, -1.0] + rng.normal(size=300), np.repeat([1.0, 2.0], 150)
    options = {"random_state": 1, "ess": 50, "n_chains": 2}
    model = BayesianLinearRegression(**options).partial_fit(X[:150], y[:150])
    model.partial_fit(X[150:], y[150:], weights[150:])
    together = BayesianLinearRegression(**options).fit(X, y, weights)
    np.testing.assert_array_equal(model.samples_["coef"], together.samples_["coef"])


@pytest.mark.slow
def test_classes_may_come_later() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 1))
    y = np.where(rng.random(200) < 1 / (1 + np.exp(-X[:, 0])), "yes", "no")
    order = np.argsort(y, kind="stable")
    first = order[:50]
    options = {"random_state": 1, "ess": 50, "n_chains": 2}
    model = BayesianLogisticRegression(**options)
    model.partial_fit(X[first], y[first], classes=["no", "yes"])
    assert set(y[first]) == {"no"} and list(model.classes_) == ["no", "yes"]
    assert (model.predict(X) == "no").all()
    with pytest.raises(ValueError, match="`classes` is"):
        model.partial_fit(X, y, classes=["maybe", "no", "yes"])
    with pytest.raises(ValueError, match="`y` has classes that are not among"):
        model.partial_fit(X[:1], ["maybe"])
    model.partial_fit(X[order[50:]], y[order[50:]])
    together = BayesianLogisticRegression(**options).fit(X[order], y[order])
    np.testing.assert_array_equal(model.samples_["coef"], together.samples_["coef"])


@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 0.7, 7)])
def test_a_column_that_varies_by_rounding_alone_is_not_scaled(weights: Any) -> None:
    """The mean of seven numbers 0.1 is another one; a scale of 1e-17 made the prior 1e17 wide."""
    X = np.column_stack([np.full(7, 0.1), np.full(7, 1e9), np.arange(7)])
    scale = Standardization.of(X, True, weights).scale
    assert (scale[:2] == 1.0).all() and 1.0 < scale[2] < 3.0
