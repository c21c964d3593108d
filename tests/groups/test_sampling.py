"""Models with groups, from the call to effects and predictions, against algebra."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.graphs import tracing
from sgmcmc.groups.effects import _nothing
from sgmcmc.groups.packs import SLOPE

LEVELS, EACH, TAU, SIGMA = 60, 6, 0.8, 1.0
GROUP = np.repeat(np.arange(LEVELS), EACH)
RNG = np.random.default_rng(5)
X = RNG.normal(size=len(GROUP))
Y = 0.5 + X + TAU * RNG.normal(size=LEVELS)[GROUP] + SIGMA * RNG.normal(size=len(GROUP))
DATA = {"x": X, "y": Y, "site": GROUP}


def log_lik(params, dataset):
    """Return the terms of rows; the scales are known, so that the posterior is normal."""
    mean = params["a"] + params["b"] * dataset["x"] + params["z"]
    return -0.5 * ((dataset["y"] - mean) / SIGMA) ** 2


def law(effects, params):
    return -0.5 * (effects["z"] / TAU) ** 2 + 0.0 * params["a"]


GROUPS = sgmcmc.Groups("site", effects={"z": 0.0}, log_prior=law)
PARAMS = {"a": 0.0, "b": 0.0}


def _exact():
    """Return mean and covariance of a, b and of the effects."""
    Z = (GROUP[:, None] == np.arange(LEVELS)).astype(float)
    design = np.column_stack([np.ones_like(X), X, Z])
    information = design.T @ design / SIGMA**2
    information[2:, 2:] += np.eye(LEVELS) / TAU**2
    cov = np.linalg.inv(information)
    return cov @ design.T @ Y / SIGMA**2, cov


MEAN, COV = _exact()
SDS = np.sqrt(np.diag(COV))


@pytest.fixture(scope="module")
def samples():
    return sgmcmc.sample(log_lik, DATA, PARAMS, groups=GROUPS, ess=600, seed=1, verbose=False)


def test_the_same_model_with_other_data_compiles_nothing():
    """Positions of nodes and the correction of their error are no constants of graphs."""

    def call(seed: int) -> None:
        rng = np.random.default_rng(seed)
        counts = rng.poisson(np.exp(0.5 + 0.6 * rng.normal(size=LEVELS)[GROUP]))

        def terms(params, dataset):
            rate = params["a"] + params["tau"] * params["z"]
            return dataset["y"] * rate - tf.exp(rate)

        sampler = sgmcmc.setup(
            terms, {"y": counts.astype(float), "site": GROUP}, {"a": 0.0, "tau": 1.0},
            lambda params: -params["tau"], minibatch_size=10, seed=1,
            groups=sgmcmc.Groups(
                "site", {"z": 0.0}, lambda effects, params: -0.5 * effects["z"] ** 2
            ),
            bijectors={"tau": tfp.bijectors.Exp()},
        )  # fmt: skip
        sgmcmc.sgmcmc_step(sampler, sgmcmc.init_sess(sampler))
        assert SLOPE in sampler._sampler.data.columns

    before = []
    for seed in range(3):
        call(seed)
        before.append(set(tracing._graphs))
    assert before[2] == before[1]


def test_global_parameters_have_the_posterior_of_algebra(samples):
    for place, name in enumerate(("a", "b")):
        draws = samples[name]
        # ESS of 600 and more: four standard errors of mean and sd, beyond the tolerance of SDs.
        assert abs(draws.mean() - MEAN[place]) < 4 * SDS[place] / np.sqrt(600)
        assert abs(draws.std() / SDS[place] - 1) < 0.05 + 4 / np.sqrt(2 * 600)
    assert samples.report.warnings == []
    assert samples.settings["method"] == "hmc" and "Robust" in samples.report
    assert samples.settings["groups"]["site"]["levels"] == LEVELS


def test_effects_are_drawn_given_each_draw(samples):
    drawn = samples.effects("site")["z"]
    assert drawn.shape == (*samples["a"].shape, LEVELS)
    means, sds = drawn.mean((0, 1)), drawn.std((0, 1))
    error = SDS[2:] / np.sqrt(600)
    assert np.abs((means - MEAN[2:]) / error).max() < 5
    np.testing.assert_allclose(sds, SDS[2:], rtol=0.05 + 4 / np.sqrt(2 * 600))
    # Effects go with the intercept of their own draw.
    joint = np.corrcoef(samples["a"].ravel(), drawn.mean(2).ravel())[0, 1]
    whole = np.zeros(len(MEAN))
    whole[2:] = 1 / LEVELS
    exact = COV[0] @ whole / (SDS[0] * np.sqrt(whole @ COV @ whole))
    assert abs(joint - exact) < 4 / np.sqrt(600)
    some = samples[::50].effects("site", [7, 3])["z"]
    assert some.shape[2] == 2
    with pytest.raises(ValueError, match="has no group 99"):
        samples.effects("site", [99])
    with pytest.raises(ValueError, match="`by` must be a factor"):
        samples.effects("school")


def test_predictions_of_rows_of_known_and_new_groups(samples):
    def mean(params, dataset):
        return params["a"] + params["b"] * dataset["x"] + params["z"]

    rows = {"x": np.zeros(3), "site": np.array([4, 4, 1000])}
    found = samples[::4].predict(mean, rows, reduce=None)
    known, new = found[..., 0], found[..., 2]
    exact = MEAN[0] + MEAN[2 + 4]
    sd = np.sqrt(COV[0, 0] + COV[6, 6] + 2 * COV[0, 6])
    assert abs(known.mean() - exact) < 4 * sd / np.sqrt(known.size / 4)
    np.testing.assert_array_equal(found[..., 0], found[..., 1])
    sd = np.hypot(SDS[0], TAU)
    assert abs(new.mean() - MEAN[0]) < 4 * sd / np.sqrt(new.size / 4)
    assert abs(new.std() / sd - 1) < 5 / np.sqrt(2 * new.size / 4)
    own = samples[::100].predict(mean)
    assert own.shape == Y.shape and np.corrcoef(own, Y)[0, 1] > 0.5
    with pytest.raises(ValueError, match="must have an entry 'site'"):
        samples.predict(mean, {"x": np.zeros(3)})


def test_a_group_without_rows_has_a_term_whatever_its_effects_are() -> None:
    for effects in (1, 2, 3):
        assert _nothing({"z": tf.ones([1, effects])}, {}).shape == (1,)


def test_named_functions_and_steps_take_groups():
    chain = sgmcmc.sgldcv(
        log_lik, DATA, PARAMS, 2e-3, 1e-3, groups=GROUPS, minibatch_size=20, n_iters=20,
        n_iters_opt=20, verbose=False, seed=1,
    )  # fmt: skip
    assert chain["a"].shape == (20,) and chain.settings["N"] == LEVELS
    assert chain.effects("site")["z"].shape == (1, 20, LEVELS)
    sampler = sgmcmc.setup(
        log_lik, DATA, PARAMS, dynamics="sgld", gradient="minibatch", stepsize=1e-3,
        minibatches="uniform", minibatch_size=20, preconditioner="none", groups=GROUPS, seed=1,
    )  # fmt: skip
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session, 3)
    assert np.isfinite(sgmcmc.get_params(sampler, session)["a"]).all()


def test_exact_dynamics_take_groups():
    chain = sgmcmc.hmc(log_lik, DATA, PARAMS, groups=GROUPS, n_chains=2, seed=1, verbose=False)
    for place, name in enumerate(("a", "b")):
        ess = chain.report["Draws"]["ESS, bulk"]
        assert abs(chain[name].mean() - MEAN[place]) < 4 * SDS[place] / np.sqrt(np.min(ess))


def test_chains_resume_to_the_bit(tmp_path):
    def run(n_iters, path):
        return sgmcmc.sghmc(
            log_lik, DATA, PARAMS, 1e-4, groups=GROUPS, minibatch_size=20, n_iters=n_iters,
            store=path, verbose=False, seed=1,
        )  # fmt: skip

    whole = run(40, tmp_path / "whole")
    run(15, tmp_path / "parts")
    parts = run(40, tmp_path / "parts")
    np.testing.assert_array_equal(whole["a"], parts["a"])


@pytest.mark.slow
def test_uneven_groups_and_scales_as_nuts_has_them():
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 25, 50)
    group = np.repeat(np.arange(50), sizes)
    x = rng.normal(size=len(group))
    eta = 0.3 + 0.8 * x + rng.normal(size=50)[group]
    y = (rng.uniform(size=len(group)) < 1 / (1 + np.exp(-eta))).astype(float)

    def terms(p, d):
        logits = p["a"] + p["b"] * d["x"] + p["z"]
        return -tf.nn.sigmoid_cross_entropy_with_logits(d["y"], logits)

    def effects_law(effects, p):
        return -0.5 * (effects["z"] / p["tau"]) ** 2 - tf.math.log(p["tau"])

    def prior(p):
        return -0.5 * (p["a"] ** 2 + p["b"] ** 2) / 4 - p["tau"]

    params, bijectors = {"a": 0.0, "b": 0.0, "tau": 1.0}, {"tau": tfp.bijectors.Exp()}
    data = {"x": x, "y": y, "g": group}
    ours = sgmcmc.sample(
        terms, data, params, prior, bijectors=bijectors, seed=1, verbose=False, ess=1000,
        groups=sgmcmc.Groups("g", {"z": 0.0}, effects_law),
    )  # fmt: skip

    def written_out(p, d):
        return terms({**p, "z": p["tau"] * tf.gather(p["u"], d["g"])}, d)

    def with_effects(p):
        return prior(p) - 0.5 * tf.reduce_sum(p["u"] ** 2)

    exact = sgmcmc.nuts(
        written_out, data, {**params, "u": np.zeros(50)}, with_effects, bijectors=bijectors,
        integers=["g"], seed=1, verbose=False, n_chains=2, ess=600,
    )  # fmt: skip
    for name in params:
        ratio = ours[name].std() / exact[name].std()
        gap = (ours[name].mean() - exact[name].mean()) / exact[name].std()
        # Three standard errors of both, beyond the tolerance of the sd.
        assert abs(gap) < 3 * np.sqrt(1 / 1000 + 1 / 600)
        assert abs(ratio - 1) < 0.05 + 3 * np.sqrt(1 / 2000 + 1 / 1200)


def test_crossed_factors_are_integrated_and_coordinates():
    rng = np.random.default_rng(4)
    s, d = rng.integers(0, 30, 400), rng.integers(0, 8, 400)
    y = 1.0 + 0.7 * rng.normal(size=30)[s] + 0.5 * rng.normal(size=8)[d] + rng.normal(size=400)

    def terms(p, dataset):
        return -0.5 * (dataset["y"] - p["mu"] - p["u"] - p["v"]) ** 2

    groups = [
        sgmcmc.Groups("s", {"u": 0.0}, lambda e, p: -0.5 * (e["u"] / 0.7) ** 2),
        sgmcmc.Groups("d", {"v": 0.0}, lambda e, p: -0.5 * (e["v"] / 0.5) ** 2),
    ]
    found = sgmcmc.sample(
        terms, {"y": y, "s": s, "d": d}, {"mu": 0.0}, groups=groups, seed=1, verbose=False
    )
    assert found["v"].shape[2:] == (8,)
    assert found.settings["groups"]["s"]["integrated"]
    design = np.column_stack([np.ones(400), np.eye(30)[s], np.eye(8)[d]])
    precision = design.T @ design + np.diag([0, *[1 / 0.49] * 30, *[4.0] * 8])
    cov = np.linalg.inv(precision)
    mean, sds = cov @ design.T @ y, np.sqrt(np.diag(cov))
    error = 4 / np.sqrt(400)
    assert abs(found["mu"].mean() - mean[0]) < error * sds[0]
    assert (np.abs(found["v"].mean((0, 1)) - mean[31:]) < error * sds[31:]).all()
    drawn = found.effects("s")["u"].mean((0, 1))
    assert (np.abs(drawn - mean[1:31]) < 5 / np.sqrt(400) * sds[1:31]).all()
    np.testing.assert_array_equal(found.effects("d", [2])["v"][..., 0], found["v"][..., 2])


@pytest.mark.slow
def test_the_report_says_where_functions_are_not_quadratic_after_all(monkeypatch):
    monkeypatch.setattr("sgmcmc.groups.model.is_quadratic", lambda *arguments: True)
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(40), 4)
    y = (rng.random(160) < 1 / (1 + np.exp(-2 * rng.normal(size=40)[group]))).astype(float)

    def terms(params, dataset):
        return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], params["a"] + params["z"])

    def of_groups(effects, params):
        return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])

    samples = sgmcmc.sample(
        terms, {"y": y, "g": group}, {"a": 0.0, "tau": 1.0}, lambda p: -p["tau"], seed=1,
        groups=sgmcmc.Groups("g", {"z": 0.0}, of_groups), verbose=False, ess=100,
        bijectors={"tau": tfp.bijectors.Exp()},
    )  # fmt: skip
    assert samples.report["Groups"]["integral"] == "in closed form"
    assert any("give `Groups` normal=False" in text for text in samples.report.warnings)
