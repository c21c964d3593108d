"""Terms of rows and of groups, against algebra; leave-one-out; and ArviZ."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import sgmcmc

SIZES = np.random.default_rng(1).integers(1, 8, 50)
GROUP = np.random.default_rng(2).permutation(np.repeat(np.arange(50), SIZES))
NAMES = np.array([f"s{k:02}" for k in range(50)])
TAU, SIGMA = 0.8, 1.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=len(GROUP))
Y = 0.5 + X + TAU * RNG.normal(size=50)[GROUP] + SIGMA * RNG.normal(size=len(GROUP))
LOG_2PI = np.log(2 * np.pi)


def log_lik(params, dataset):
    mean = params["a"] + params["b"] * dataset["x"] + params["z"]
    return -0.5 * ((dataset["y"] - mean) / SIGMA) ** 2 - 0.5 * LOG_2PI


def law(effects, params):
    return -0.5 * (effects["z"] / TAU) ** 2 - np.log(TAU) - 0.5 * LOG_2PI + 0.0 * params["a"]


@pytest.fixture(scope="module")
def samples():
    return sgmcmc.sample(
        log_lik, {"x": X, "y": Y, "site": NAMES[GROUP]}, {"a": 0.0, "b": 0.0}, seed=1, ess=400,
        groups=sgmcmc.Groups("site", effects={"z": 0.0}, log_prior=law), verbose=False,
        dtype=tf.float64,
    )  # fmt: skip


def _normal(rows: np.ndarray, a: float, b: float):
    cov = TAU**2 + SIGMA**2 * np.eye(len(rows))
    mean = a + b * X[rows]
    return scipy.stats.multivariate_normal(mean, cov).logpdf(Y[rows]) if len(rows) else 0.0


def test_terms_are_those_of_algebra(samples):
    few = samples[::200]
    of_rows, of_groups = few.log_lik(), few.log_lik(by="site")
    assert of_rows.shape == (*few["a"].shape, len(Y))
    assert of_groups.shape == (*few["a"].shape, 50)
    a, b = few["a"][1, -1], few["b"][1, -1]
    exact = np.array([_normal(np.flatnonzero(GROUP == g), a, b) for g in range(50)])
    # Nodes are at the mode for another draw: what is left of the rule, of 21 nodes for rows.
    np.testing.assert_allclose(of_groups[1, -1], exact, atol=2e-3)
    rest = np.array([
        _normal(np.setdiff1d(np.flatnonzero(GROUP == GROUP[i]), [i]), a, b)
        for i in range(len(Y))
    ])  # fmt: skip
    np.testing.assert_allclose(of_rows[1, -1], exact[GROUP] - rest, atol=1e-5)


def _exact_elpd(left_out: list[np.ndarray]) -> float:
    """Return the sum of log densities of what is left out; the posterior is normal."""
    Z = (GROUP[:, None] == np.arange(50)).astype(float)
    design = np.column_stack([np.ones_like(X), X])
    cov = SIGMA**2 * np.eye(len(Y)) + TAU**2 * Z @ Z.T
    joint = cov + 1e6 * design @ design.T  # a flat prior
    total = 0.0
    for out in left_out:
        rest = np.setdiff1d(np.arange(len(Y)), out)
        gain = np.linalg.solve(joint[np.ix_(rest, rest)], joint[np.ix_(rest, out)]).T
        mean, var = gain @ Y[rest], joint[np.ix_(out, out)] - gain @ joint[np.ix_(rest, out)]
        total += scipy.stats.multivariate_normal(mean, var).logpdf(Y[out])
    return float(total)


def test_rows_and_groups_are_left_out_as_in_algebra(samples):
    rows = samples.loo(rows=len(Y))
    exact = _exact_elpd([np.array([i]) for i in range(len(Y))])
    # The error of importance weights is that of some hundred draws of two parameters.
    assert abs(rows.elpd - exact) < 0.4
    assert rows.pareto_k.max() < 0.5 and len(rows.rows) == len(Y)
    groups = samples.loo(by="site", rows=50)
    exact = _exact_elpd([np.flatnonzero(GROUP == g) for g in range(50)])
    assert abs(groups.elpd - exact) < 0.6
    assert len(groups.pareto_k) == 50
    some = samples.loo(rows=100, seed=1)
    assert abs(some.elpd - rows.elpd) < 5 * some.subsampling_se
    with pytest.raises(ValueError, match="`by` must be None"):
        samples.loo(by="school")
    with pytest.raises(ValueError, match="`by`: groups are left out of the chain's own data"):
        samples.log_lik({"x": X}, by="site")
    with pytest.raises(ValueError, match="`store`: terms of a model with `groups`"):
        samples.log_lik(store="terms.npy")


def test_arviz_has_effects_with_the_labels_of_their_groups(samples):
    data = samples[::20].to_arviz(effects="site", log_likelihood=True)
    z = data.posterior["z"]
    assert z.dims == ("chain", "draw", "site")
    assert z.coords["site"].values.tolist() == NAMES.tolist()
    assert data.log_likelihood["log_lik"].shape[-1] == len(Y)
    some = samples[::20].to_arviz(effects={"site": ["s03", "s01"]}).posterior["z"]
    assert some.coords["site"].values.tolist() == ["s03", "s01"]
    # Other random numbers: means over a thousand draws and more.
    assert abs(float(some[..., 1].mean() - z.sel(site="s01").mean())) < 5 * 0.6 / np.sqrt(1000)
