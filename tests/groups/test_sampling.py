"""Models with groups, from the call to effects, predictions and leave-one-out, against algebra."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.graphs import tracing
from sgmcmc.groups.effects import _nothing
from sgmcmc.groups.packs import SLOPE, pack
from tests import seams

LEVELS, TAU, SIGMA = 50, 0.8, 1.0
SIZES = np.random.default_rng(1).integers(1, 8, LEVELS)
GROUP = np.random.default_rng(2).permutation(np.repeat(np.arange(LEVELS), SIZES))
NAMES = np.array([f"s{k:02}" for k in range(LEVELS)])
RNG = np.random.default_rng(3)
X = RNG.normal(size=len(GROUP))
Y = 0.5 + X + TAU * RNG.normal(size=LEVELS)[GROUP] + SIGMA * RNG.normal(size=len(GROUP))
DATA = {"x": X, "y": Y, "site": NAMES[GROUP]}
LOG_2PI = np.log(2 * np.pi)


def log_lik(params, dataset):
    """Return the terms of rows; the scales are known, so that the posterior is normal."""
    mean = params["a"] + params["b"] * dataset["x"] + params["z"]
    return -0.5 * ((dataset["y"] - mean) / SIGMA) ** 2 - 0.5 * LOG_2PI


def law(effects, params):
    return (
        -0.5 * (effects["z"] / TAU) ** 2
        - np.log(TAU)
        - 0.5 * LOG_2PI
        + 0.0 * params["a"]
    )


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
    return sgmcmc.sample(
        log_lik,
        DATA,
        PARAMS,
        groups=GROUPS,
        ess=600,
        seed=1,
        verbose=False,
        dtype=tf.float64,
    )


@pytest.mark.parametrize("stepsize", [1e-3, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_same_model_with_other_data_compiles_nothing(stepsize):
    """Positions of nodes and the correction of their error are no constants of graphs."""

    def call(seed: int) -> None:
        rng = np.random.default_rng(seed)
        counts = rng.poisson(np.exp(0.5 + 0.6 * rng.normal(size=LEVELS)[GROUP]))

        def terms(params, dataset):
            rate = params["a"] + params["tau"] * params["z"]
            return dataset["y"] * rate - tf.exp(rate)

        sampler = sgmcmc.setup(
            terms, {"y": counts.astype(float), "site": GROUP}, {"a": 0.0, "tau": 1.0},
            lambda params: -params["tau"], minibatch_size=10, stepsize=stepsize, seed=1,
            groups=sgmcmc.Groups(
                "site", {"z": 0.0}, lambda effects, params: -0.5 * effects["z"] ** 2
            ),
            bijectors={"tau": tfp.bijectors.Exp()},
        )  # fmt: skip
        sgmcmc.sgmcmc_step(sampler, sgmcmc.init_sess(sampler))
        assert SLOPE in sampler._sampler.data.columns

    call(0)
    before = set(tracing._graphs)
    call(1)
    assert set(tracing._graphs) == before


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
    with pytest.raises(ValueError, match="has no group 's99'"):
        samples.effects("site", ["s99"])
    with pytest.raises(ValueError, match="`by` must be a factor"):
        samples.effects("school")


def _mean(params, dataset):
    return params["a"] + params["b"] * dataset["x"] + params["z"]


def test_predictions_of_rows_of_known_and_new_groups(samples):
    rows = {"x": np.zeros(3), "site": np.array(["s04", "s04", "another"])}
    found = samples[::4].predict(_mean, rows, reduce=None)
    known, new = found[..., 0], found[..., 2]
    exact = MEAN[0] + MEAN[2 + 4]
    sd = np.sqrt(COV[0, 0] + COV[6, 6] + 2 * COV[0, 6])
    assert abs(known.mean() - exact) < 4 * sd / np.sqrt(known.size / 4)
    np.testing.assert_array_equal(found[..., 0], found[..., 1])
    sd = np.hypot(SDS[0], TAU)
    assert abs(new.mean() - MEAN[0]) < 4 * sd / np.sqrt(new.size / 4)
    assert abs(new.std() / sd - 1) < 5 / np.sqrt(2 * new.size / 4)
    with pytest.raises(ValueError, match="must have an entry 'site'"):
        samples.predict(_mean, {"x": np.zeros(3)})


@pytest.mark.slow
def test_predictions_of_the_rows_of_the_chain(samples):
    own = samples[::100].predict(_mean)
    assert own.shape == Y.shape and np.corrcoef(own, Y)[0, 1] > 0.5


def _normal(rows: np.ndarray, a: float, b: float):
    cov = TAU**2 + SIGMA**2 * np.eye(len(rows))
    mean = a + b * X[rows]
    return (
        scipy.stats.multivariate_normal(mean, cov).logpdf(Y[rows]) if len(rows) else 0.0
    )


def test_arviz_has_labels_of_groups_and_terms_are_those_of_algebra(samples):
    few = samples[::200]
    data = few.to_arviz(effects={"site": ["s03", "s01"]}, log_likelihood=True)
    z = data.posterior["z"]
    assert z.dims == ("chain", "draw", "site")
    assert z.coords["site"].values.tolist() == ["s03", "s01"]
    of_rows, of_groups = (
        data.log_likelihood["log_lik"].values,
        few.log_lik(by="site"),
    )
    assert of_rows.shape == (*few["a"].shape, len(Y))
    assert of_groups.shape == (*few["a"].shape, 50)
    a, b = few["a"][1, -1], few["b"][1, -1]
    exact = np.array([_normal(np.flatnonzero(GROUP == g), a, b) for g in range(LEVELS)])
    # Nodes are at the mode for another draw: what is left of the rule, of 21 nodes for rows.
    np.testing.assert_allclose(of_groups[1, -1], exact, atol=2e-3)
    rest = np.array([
        _normal(np.setdiff1d(np.flatnonzero(GROUP == GROUP[i]), [i]), a, b)
        for i in range(len(Y))
    ])  # fmt: skip
    np.testing.assert_allclose(of_rows[1, -1], exact[GROUP] - rest, atol=1e-5)


def _exact_elpd(left_out: list[np.ndarray]) -> float:
    """Return the sum of log densities of what is left out; the posterior is normal."""
    Z = (GROUP[:, None] == np.arange(LEVELS)).astype(float)
    design = np.column_stack([np.ones_like(X), X])
    cov = SIGMA**2 * np.eye(len(Y)) + TAU**2 * Z @ Z.T
    joint = cov + 1e6 * design @ design.T  # a flat prior
    total = 0.0
    for out in left_out:
        rest = np.setdiff1d(np.arange(len(Y)), out)
        gain = np.linalg.solve(joint[np.ix_(rest, rest)], joint[np.ix_(rest, out)]).T
        mean, var = (
            gain @ Y[rest],
            joint[np.ix_(out, out)] - gain @ joint[np.ix_(rest, out)],
        )
        total += scipy.stats.multivariate_normal(mean, var).logpdf(Y[out])
    return float(total)


@pytest.mark.slow
def test_rows_are_left_out_as_in_algebra(samples):
    rows = samples.loo(rows=len(Y))
    exact = _exact_elpd([np.array([i]) for i in range(len(Y))])
    # The error of importance weights is that of some hundred draws of two parameters.
    assert abs(rows.elpd - exact) < 0.4
    assert rows.pareto_k.max() < 0.5 and len(rows.rows) == len(Y)


def test_groups_are_left_out_as_in_algebra(samples):
    groups = samples.loo(by="site", rows=50)
    exact = _exact_elpd([np.flatnonzero(GROUP == g) for g in range(LEVELS)])
    # The error of importance weights is that of some hundred draws of two parameters.
    assert abs(groups.elpd - exact) < 0.6
    assert len(groups.pareto_k) == 50
    with pytest.raises(ValueError, match="`by` must be None"):
        samples.loo(by="school")
    with pytest.raises(
        ValueError, match="`by`: groups are left out of the chain's own data"
    ):
        samples.log_lik({"x": X}, by="site")
    with pytest.raises(ValueError, match="`store`: terms of a model with `groups`"):
        samples.log_lik(store="terms.npy")


@pytest.mark.slow
def test_some_rows_stand_for_all(samples):
    some, rows = samples.loo(rows=100, seed=1), samples.loo(rows=len(Y))
    assert abs(some.elpd - rows.elpd) < 5 * some.subsampling_se


@pytest.mark.slow
def test_arviz_has_the_same_effects_of_some_groups_as_of_all(samples):
    z = samples[::20].to_arviz(effects="site").posterior["z"]
    assert z.coords["site"].values.tolist() == NAMES.tolist()
    some = samples[::20].to_arviz(effects={"site": ["s03", "s01"]}).posterior["z"]
    # Other random numbers: means over a thousand draws and more.
    assert abs(
        float(some[..., 1].mean() - z.sel(site="s01").mean())
    ) < 5 * 0.6 / np.sqrt(1000)


def test_a_group_without_rows_has_a_term_whatever_its_effects_are() -> None:
    for effects in (1, 2, 3):
        assert _nothing({"z": tf.ones([1, effects])}, {}).shape == (1,)


@pytest.mark.slow
def test_named_functions_and_steps_take_groups():
    chain = sgmcmc.sgldcv(
        log_lik, DATA, PARAMS, 2e-3, 1e-3, groups=GROUPS, minibatch_size=20, n_iters=20,
        n_iters_opt=20, verbose=False, seed=1,
    )  # fmt: skip
    packs = pack(np.arange(LEVELS), GROUP)
    assert chain["a"].shape == (20,) and chain.settings["N"] == len(packs.filled)
    assert packs.filled.sum() == LEVELS
    assert chain.effects("site")["z"].shape == (1, 20, LEVELS)
    sampler = sgmcmc.setup(
        log_lik, DATA, PARAMS, dynamics="sgld", gradient="minibatch", stepsize=1e-3,
        minibatches="uniform", minibatch_size=20, preconditioner="none", groups=GROUPS, seed=1,
    )  # fmt: skip
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session, 3)
    assert np.isfinite(sgmcmc.get_params(sampler, session)["a"]).all()


@pytest.mark.slow
def test_exact_dynamics_take_groups():
    chain = sgmcmc.hmc(
        log_lik, DATA, PARAMS, groups=GROUPS, n_chains=2, seed=1, verbose=False
    )
    for place, name in enumerate(("a", "b")):
        ess = chain.report["Draws"]["ESS, bulk"]
        assert abs(chain[name].mean() - MEAN[place]) < 4 * SDS[place] / np.sqrt(
            np.min(ess)
        )


@pytest.mark.slow
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
    y = (
        1.0
        + 0.7 * rng.normal(size=30)[s]
        + 0.5 * rng.normal(size=8)[d]
        + rng.normal(size=400)
    )

    def terms(p, dataset):
        return -0.5 * (dataset["y"] - p["mu"] - p["u"] - p["v"]) ** 2

    groups = [
        sgmcmc.Groups("s", {"u": 0.0}, lambda e, p: -0.5 * (e["u"] / 0.7) ** 2),
        sgmcmc.Groups("d", {"v": 0.0}, lambda e, p: -0.5 * (e["v"] / 0.5) ** 2),
    ]
    found = sgmcmc.hmc(
        terms, {"y": y, "s": s, "d": d}, {"mu": 0.0}, groups=groups, n_chains=2, seed=1,
        verbose=False,
    )  # fmt: skip
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
    np.testing.assert_array_equal(
        found.effects("d", [2])["v"][..., 0], found["v"][..., 2]
    )


@pytest.mark.slow
def test_the_report_says_where_functions_are_not_quadratic_after_all(monkeypatch):
    monkeypatch.setattr(seams.IS_QUADRATIC, lambda *arguments: True)
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(40), 4)
    y = (rng.random(160) < 1 / (1 + np.exp(-2 * rng.normal(size=40)[group]))).astype(
        float
    )

    def terms(params, dataset):
        return -tf.nn.sigmoid_cross_entropy_with_logits(
            dataset["y"], params["a"] + params["z"]
        )

    def of_groups(effects, params):
        return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])

    samples = sgmcmc.sample(
        terms, {"y": y, "g": group}, {"a": 0.0, "tau": 1.0}, lambda p: -p["tau"], seed=1,
        groups=sgmcmc.Groups("g", {"z": 0.0}, of_groups), verbose=False, ess=100,
        bijectors={"tau": tfp.bijectors.Exp()},
    )  # fmt: skip
    assert samples.report["Groups"]["integral"] == "in closed form"
    reduction = "160 rows as 40 groups of 'g', integrated out"
    assert samples.report["Model"] == {"reduction": reduction}
    assert any("give `Groups` normal=False" in text for text in samples.report.warnings)
