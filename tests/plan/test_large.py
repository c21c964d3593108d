"""Models of more than 2000 coordinates without tuning constants."""

from __future__ import annotations

import functools
import importlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.plan.methods import local_minibatches
from tests import seams
from tests.plan.models import Array, Tensors

GROUPS, ROWS = 2500, 10_000


def groups() -> tuple[dict[str, Any], Array, Array]:
    """Return y | j ~ N(θ_j, 1) with θ_j ~ N(0, 1), and the exact posterior means and sds."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, GROUPS, ROWS)
    y = rng.normal(size=GROUPS)[group] + rng.normal(size=ROWS)
    precision = 1.0 + np.bincount(group, minlength=GROUPS)
    mean = np.bincount(group, y, GROUPS) / precision
    return {"group": tf.constant(group, tf.int32), "y": y}, mean, precision**-0.5


def group_terms(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return -0.5 * (dataset["y"] - tf.gather(params["theta"], dataset["group"])) ** 2


def standard_normal(params: Tensors) -> tf.Tensor:
    return -0.5 * tf.add_n([tf.reduce_sum(value**2) for value in params.values()])


@functools.cache
def of_groups() -> sgmcmc.Samples:
    """Sample the groups' means."""
    dataset, _, _ = groups()
    start = {"theta": np.zeros(GROUPS)}
    return sgmcmc.sample(
        group_terms,
        dataset,
        start,
        standard_normal,
        seed=1,
        n_iters=4000,
        verbose=False,
    )


@pytest.mark.slow
def test_moments_of_an_exact_posterior() -> None:
    """Sds by the law of the chain, over 2500 independent coordinates; means within their errors."""
    samples, (_, mean, sd) = of_groups(), groups()
    draws = samples["theta"].reshape(-1, GROUPS).astype(float)
    facts = samples.report["Predicted (local: around the chains only)"]
    least, most = facts["SD error, by coordinate"]
    assert -1e-12 <= least < most <= 0.0501
    effective = 4 * 4000 / facts["autocorrelation time, iterations"]
    assert effective > 100
    ratio = np.sqrt((draws.var(0) / sd**2).mean())
    # The mean of 2500 variances, each of a relative error of √(2/effective) and less than one bit.
    error = np.sqrt(0.5 / effective / GROUPS)
    assert 1 + least - 5 * error - 1 / effective < ratio < 1 + most + 5 * error
    z = (draws.mean(0) - mean) / sd * np.sqrt(effective)
    assert z.std() == pytest.approx(1.0, abs=0.15) and np.abs(z).max() < 6


@pytest.mark.slow
def test_exact_moves_are_chosen_where_they_are_quick() -> None:
    """HMC, without a constant; the moments of 2500 coordinates are exact but for chance."""
    dataset, mean, sd = groups()
    samples = sgmcmc.sample(
        group_terms, dataset, {"theta": np.zeros(GROUPS)}, standard_normal, ess=50, seed=1,
        verbose=False,
    )  # fmt: skip
    assert "the prediction was" in samples.report["Dynamics"]["reason for HMC"]
    draws = samples["theta"].reshape(-1, GROUPS).astype(float)
    # A normal with HMC of this length: draws are hardly correlated.
    effective = float(np.median(samples.report["Draws"]["ESS, bulk"]))
    assert effective > 200
    z = (draws.mean(0) - mean) / sd * np.sqrt(effective)
    assert z.std() == pytest.approx(1.0, abs=0.2) and np.abs(z).max() < 6
    ratio = np.sqrt((draws.var(0) / sd**2).mean())
    assert ratio == pytest.approx(
        1.0, abs=5 * np.sqrt(0.5 / effective / GROUPS) + 1 / effective
    )


def test_coordinates_that_are_all_independent() -> None:
    """Their information has no core: 100 means of five rows each, exact but for chance."""
    levels, each = 100, 5
    group = np.repeat(np.arange(levels), each)
    y = np.random.default_rng(1).normal(size=levels * each)
    dataset = {"group": tf.constant(group, tf.int32), "y": y}
    samples = sgmcmc.hmc(
        group_terms, dataset, {"theta": np.zeros(levels)}, standard_normal, ess=50, seed=1,
        verbose=False,
    )  # fmt: skip
    draws = samples["theta"].reshape(-1, levels).astype(float)
    effective = float(np.median(samples.report["Draws"]["ESS, bulk"]))
    precision = 1.0 + each
    z = (draws.mean(0) - y.reshape(levels, each).sum(1) / precision) * np.sqrt(
        precision * effective
    )
    assert np.abs(z).max() < 6
    ratio = np.sqrt(draws.var(0).mean() * precision)
    assert ratio == pytest.approx(
        1.0, abs=5 * np.sqrt(0.5 / effective / levels) + 1 / effective
    )


@pytest.mark.slow
def test_levels_of_two_factors_go_around_the_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The information of linear predictors is quick: beyond the limit too, where HMC is not."""
    monkeypatch.setattr(seams.CHOICES_DENSE_UP_TO, 30)
    monkeypatch.setattr(seams.POSTERIOR_DENSE_UP_TO, 30)
    monkeypatch.setattr(seams.METHODS_AFFORDABLE, 0.0)
    rng, rows, levels = np.random.default_rng(1), 12_000, 20
    places = rng.integers(0, levels, (2, rows))
    y = rng.normal(size=(2, levels))[np.arange(2)[:, np.newaxis], places].sum(0)
    y += rng.normal(size=rows)

    def log_lik(params: Tensors, dataset: Tensors) -> tf.Tensor:
        eta = tf.gather(params["f"], dataset["f"]) + tf.gather(
            params["g"], dataset["g"]
        )
        return -0.5 * (dataset["y"] - eta) ** 2

    dataset = {name: tf.constant(places[k], tf.int32) for k, name in enumerate("fg")}
    start = {name: np.zeros(levels) for name in "fg"}
    samples = sgmcmc.sample(
        log_lik,
        {**dataset, "y": y},
        start,
        standard_normal,
        ess=100,
        seed=1,
        verbose=False,
    )
    assert "ControlVariate" in samples.report["Chain"]["gradient"]
    assert samples.report["Chain"]["preconditioner"] == "dense"
    X = np.concatenate([np.eye(levels)[place] for place in places], 1)
    covariance = np.linalg.inv(X.T @ X + np.eye(2 * levels))
    mean, sd = covariance @ X.T @ y, np.sqrt(np.diag(covariance))
    draws = np.concatenate(
        [samples[name].reshape(-1, levels) for name in "fg"], 1
    ).astype(float)
    effective = float(np.min(samples.report["Draws"]["ESS, bulk"]))
    # The tolerance of SDs is 5 %; effects of a factor have their mean in common.
    assert np.abs((draws.mean(0) - mean) / sd).max() < 5 / np.sqrt(effective)
    assert np.abs(draws.std(0) / sd - 1).max() < 0.05 + 5 * np.sqrt(0.5 / effective)


@pytest.mark.slow
def test_error_is_measured_and_the_stepsize_falls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tolerance far below the noise's own error: found out, halved, and said."""
    monkeypatch.setattr(seams.METHODS_AFFORDABLE, 0.0)
    monkeypatch.setattr(seams.WATCHED_LONGEST, 6000)
    chosen = local_minibatches.choose_locally

    def too_large(*arguments: Any) -> Any:
        plan = chosen(*arguments)
        return local_minibatches.at_stepsize(plan, 4.0 * plan.stepsize)

    monkeypatch.setattr(seams.CHOOSE_LOCALLY, too_large)
    dataset, _, sd = groups()
    samples = sgmcmc.sample(
        group_terms,
        dataset,
        {"theta": np.zeros(GROUPS)},
        standard_normal,
        seed=1,
        verbose=False,
    )
    report = samples.report
    assert report["Method"]["exact (HMC), predicted seconds"] > 0
    rows = report["Measured error, by half the stepsize"]
    assert "mean square of theta" in rows and "log-prior" in rows
    # What is handed back is nearer than what was begun with: 4 ε has four times the error of ε.
    ratio = np.sqrt(
        (samples["theta"].reshape(-1, GROUPS).astype(float).var(0) / sd**2).mean()
    )
    begun = report["Chain"]["stepsize, scaled coordinates"]
    assert 0.95 < ratio < 1.2 and begun > 0


@pytest.mark.slow
def test_the_report_of_a_large_model() -> None:
    samples = of_groups()
    report = samples.report
    assert report["Chain"]["minibatch size"] == "1000 of 10000"
    assert report["Chain"]["rows"] == "uniform"
    assert report["Found around the chains"]["coordinates"] == GROUPS
    watched = report["Watched"]
    assert {
        "log-likelihood of 500 rows",
        "mean of theta",
        "mean square of theta",
    } < set(watched)
    assert float(watched["log-likelihood of 500 rows"].split("R-hat ")[1]) < 1.05
    assert "samples.check()" in report["Measured error"]["not measured"]
    assert not any("disagree" in warning for warning in report.warnings)
    page = str(report)
    assert (
        "local" in page and max(map(len, page.split("Warnings")[0].splitlines())) <= 100
    )
    assert samples["theta"].shape == (4, 2000, GROUPS)
    assert report["Draws"]["kept"].startswith("every 2 iterations")


HIDDEN, INPUTS = 40, 50


def simulated(N: int, seed: int = 2) -> dict[str, Array]:
    """Return inputs, of which three matter, and a bent function of them with noise of sd 0.3."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, INPUTS)).astype(np.float32)
    return {
        "X": X,
        "y": np.tanh(X[:, 0]) * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=N),
    }


def fitted(params: Tensors, X: Any) -> tf.Tensor:
    hidden = tf.tanh(tf.matmul(X, params["W"]) + params["b"])
    return tf.linalg.matvec(hidden, params["v"])


def network_terms(params: Tensors, dataset: Tensors) -> tf.Tensor:
    return -0.5 * ((dataset["y"] - fitted(params, dataset["X"])) / 0.3) ** 2


def start() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    shapes = {"W": (INPUTS, HIDDEN), "b": (HIDDEN,), "v": (HIDDEN,)}
    return {name: 0.2 * rng.normal(size=shape) for name, shape in shapes.items()}


def network(**given: Any) -> sgmcmc.Samples:
    """Sample a small network; everything can be overridden."""
    keywords = {"n_iters": 100, "burn_in": 100, "seed": 1, "verbose": False, **given}
    params = keywords.pop("params", start())
    return sgmcmc.sample(
        network_terms, simulated(2500), params, standard_normal, **keywords
    )


@pytest.mark.slow
def test_a_network_predicts() -> None:
    """Averaged predictions explain more than a line, which leaves 0.39 beside the noise of 0.09."""
    samples, held_out = network(n_iters=600, burn_in=300), simulated(500, 4)
    draws = samples["W"].shape[1]
    places = [(chain, draw) for chain in range(4) for draw in range(0, draws, 20)]
    predicted = np.mean(
        [
            fitted({name: a[at] for name, a in samples.items()}, held_out["X"]).numpy()
            for at in places
        ],
        0,
    )
    assert np.mean((predicted - held_out["y"]) ** 2) < 0.09 + 0.25
    assert any(
        "stiff" in name
        for name in samples.report["Predicted (local: around the chains only)"]
    )
    assert any(
        "log-likelihood of 500 rows" in warning for warning in samples.report.warnings
    )


@pytest.mark.slow
def test_a_network_of_some_hundreds_of_weights_is_judged_by_predictions() -> None:
    """No mode is searched for, which would take minutes; chains end by what rows say of them."""
    rng, units = np.random.default_rng(4), 8
    shapes = {"W": (INPUTS, units), "b": (units,), "v": (units,)}
    params = {name: 0.2 * rng.normal(size=shape) for name, shape in shapes.items()}
    samples = sgmcmc.sample(
        network_terms, simulated(200), params, standard_normal, seed=1, ess=50, max_seconds=30,
        verbose=False,
    )  # fmt: skip
    facts, said = (
        samples.report["Predictions, by the log-likelihood of rows"],
        samples.report,
    )
    assert facts["rows"] == 200 and max(facts["ESS, bulk"]) > 50
    assert "Entries of W, b and v can change places" in said.warnings[0]
    assert not any("[" in text for text in said.warnings)


@pytest.mark.slow
def test_same_seed_same_bits_and_starts_of_the_users() -> None:
    first, again = network(), network()
    assert all(np.array_equal(first[name], again[name]) for name in first)
    starts = [{name: a + 0.01 * k for name, a in start().items()} for k in range(2)]
    listed = network(params=starts, n_chains=2, burn_in=50)
    assert listed["W"].shape == (2, 100, INPUTS, HIDDEN)
    assert listed.report["Draws"]["burn-in"] == 50


@pytest.mark.slow
def test_draws_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    d = INPUTS * HIDDEN + 2 * HIDDEN
    monkeypatch.setattr(seams.WATCHED_MOST_BYTES, 4 * 4 * d * 50)
    samples = network(n_iters=200)
    assert samples["W"].shape[:2] == (4, 50)
    assert samples.report["Draws"]["kept"].startswith("every 4 iterations (at most")
    given = network(n_iters=200, thin=8)
    assert given["W"].shape[:2] == (4, 25)


@pytest.mark.slow
def test_max_seconds() -> None:
    began = time.monotonic()
    samples = network(n_iters=None, ess=1e9, max_seconds=10)
    assert time.monotonic() - began < 60
    assert samples["W"].shape[1] >= 25


def test_refused() -> None:
    """Before anything runs."""
    with pytest.raises(ValueError, match="`dynamics`: SGNHT does not move linearly"):
        network(dynamics="sgnht")
    with pytest.raises(ValueError, match="`stepsize`: there are 2080 coordinates"):
        network(stepsize=0.1)
    with pytest.raises(ValueError, match="`thin` is 500, so that of"):
        network(thin=500)


@pytest.mark.slow
@pytest.mark.skipif("SGMCMC_DATA" not in os.environ, reason="needs MNIST")
def test_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """784-100-10, softmax after softmax: the log loss of averaged predictions on the test set."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "vignettes"))
    vignette = importlib.import_module("neural_network")

    train, test = vignette.load()
    samples = sgmcmc.sample(
        vignette.log_lik,
        train,
        vignette.start(np.random.default_rng(1)),
        vignette.log_prior,
        bijectors=vignette.BIJECTORS,
        seed=1,
        verbose=False,
    )
    print(f"\n{samples.report}")
    probabilities = vignette.predicted(samples, test)
    log_loss, errors, calibration = vignette.scores(probabilities, test)
    print(
        f"log loss {log_loss:.4f}, errors {errors:.2%}, calibration {calibration:.4f}"
    )
    assert log_loss < 0.24 and errors < 0.07 and calibration < 0.05
    assert sum(a.nbytes for a in samples.values()) <= 2**29


def _not_centered(levels: int, each: int) -> dict[str, Any]:
    """Return rows with effects of groups, of which z is the multiple of their SD."""
    rng = np.random.default_rng(11)
    group = np.repeat(np.arange(levels, dtype=np.int32), each)
    y = 0.5 + 0.8 * rng.normal(size=levels)[group] + rng.normal(size=levels * each)
    return {"y": y, "group": group}


@pytest.mark.slow
def test_effects_of_some_hundreds_of_groups_are_sampled_by_hmc() -> None:
    """The mode of effects that are not centered is far from all draws."""
    dataset = _not_centered(350, 20)

    def by_row(params: Any, rows: Any) -> tf.Tensor:
        mean = params["mu"] + params["tau"] * tf.gather(params["z"], rows["group"])
        return -0.5 * (rows["y"] - mean) ** 2

    def log_prior(params: Any) -> tf.Tensor:
        return (
            -0.5 * tf.reduce_sum(params["z"] ** 2)
            - params["tau"]
            - 0.005 * params["mu"] ** 2
        )

    bijectors = {"tau": tfp.bijectors.Exp()}
    samples = sgmcmc.sample(
        by_row, dataset, {"mu": 0.0, "tau": 1.0, "z": np.zeros(350)}, log_prior,
        bijectors=bijectors, integers=["group"], seed=1, verbose=False,
    )  # fmt: skip
    assert samples.settings["method"] == "hmc"
    assert samples.report["Warm-up"]["blocks are of"] == "z"
    assert not samples.report.warnings

    def of_groups(effects: Any, params: Any) -> tf.Tensor:
        return -0.5 * (effects["u"] / params["tau"]) ** 2 - tf.math.log(params["tau"])

    exact = sgmcmc.sample(
        lambda p, rows: -0.5 * (rows["y"] - p["mu"] - p["u"]) ** 2, dataset,
        {"mu": 0.0, "tau": 1.0}, lambda p: -p["tau"] - 0.005 * p["mu"] ** 2,
        groups=sgmcmc.Groups("group", {"u": 0.0}, of_groups), bijectors=bijectors, ess=2000,
        seed=2, verbose=False,
    )  # fmt: skip
    for name in ("mu", "tau"):
        one, other = np.asarray(samples[name]), np.asarray(exact[name])
        # Four standard errors, of effective sample sizes of 400 and 2000.
        assert (
            abs(one.mean() - other.mean())
            < 4 * np.sqrt(1 / 400 + 1 / 2000) * other.std()
        )
        assert abs(np.log(one.std() / other.std())) < 4 * np.sqrt(1 / 800 + 1 / 4000)


def test_of_exact_moves_the_form_of_coordinates_is_checked_before_anything_runs() -> (
    None
):
    params = {"z": np.zeros(2100)}
    with pytest.raises(
        ValueError, match="`preconditioner` must be 'dense', 'diagonal'"
    ):
        sgmcmc.hmc(
            lambda p, rows: rows["y"] * p["z"][0], {"y": np.ones(5)}, params, standard_normal,
            preconditioner="triangular", verbose=False,
        )  # fmt: skip
