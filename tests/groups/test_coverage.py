"""Simulated mixed models: the truth lies within posterior intervals as often as it should."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import sgmcmc

DATASETS, LEVELS, EACH = 20, 3000, 5
TRUTH = {"a": 0.3, "b": 0.5, "sd0": 0.6, "sd1": 0.4, "rho": 0.3}
LEVEL = 1e-4
"""How often a comparison fails by chance."""


def simulated(family: str, seed: int) -> dict[str, np.ndarray]:
    """Return rows of groups with two correlated effects each."""
    rng = np.random.default_rng([seed, family == "poisson"])
    group = np.repeat(np.arange(LEVELS), EACH)
    x = rng.normal(size=len(group))
    z = rng.normal(size=(LEVELS, 2))
    z[:, 1] = TRUTH["rho"] * z[:, 0] + np.sqrt(1 - TRUTH["rho"] ** 2) * z[:, 1]
    z *= TRUTH["sd0"], TRUTH["sd1"]
    eta = TRUTH["a"] + z[group, 0] + (TRUTH["b"] + z[group, 1]) * x
    if family == "poisson":
        y = rng.poisson(np.exp(eta))
    else:
        y = rng.uniform(size=len(eta)) < 1 / (1 + np.exp(-eta))
    return {"x": x, "y": y.astype(float), "group": group}


def fitted(family: str, dataset: dict[str, np.ndarray]) -> sgmcmc.Samples:
    """Return draws with nothing chosen by hand."""

    def log_lik(params, rows):
        z = params["z"]
        eta = params["a"] + z[:, 0] + (params["b"] + z[:, 1]) * rows["x"]
        if family == "poisson":
            return rows["y"] * eta - tf.exp(eta)
        return rows["y"] * eta - tf.math.softplus(eta)

    def log_prior(params):
        flat = -0.5 * (params["a"] ** 2 + params["b"] ** 2) / 25
        return (
            flat - params["sd0"] - params["sd1"] + tf.math.log1p(-(params["rho"] ** 2))
        )

    def of_groups(effects, params):
        first, second = (
            effects["z"][:, 0] / params["sd0"],
            effects["z"][:, 1] / params["sd1"],
        )
        left = 1 - params["rho"] ** 2
        square = (first**2 - 2 * params["rho"] * first * second + second**2) / left
        scale = params["sd0"] * params["sd1"] * tf.sqrt(left)
        return -0.5 * square - tf.math.log(scale)

    positive = tfp.bijectors.Exp()
    return sgmcmc.sample(
        log_lik, dataset, {"a": 0.0, "b": 0.0, "sd0": 1.0, "sd1": 1.0, "rho": 0.0}, log_prior,
        groups=sgmcmc.Groups("group", {"z": np.zeros(2)}, of_groups), seed=1, verbose=False,
        bijectors={"sd0": positive, "sd1": positive, "rho": tfp.bijectors.Tanh()},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_the_truth_is_within_its_intervals_as_often_as_it_should_be(
    family: str,
) -> None:
    scores = np.empty((DATASETS, len(TRUTH)))
    inside = np.empty((DATASETS, len(TRUTH)), bool)
    for seed in range(DATASETS):
        samples = fitted(family, simulated(family, seed))
        assert samples.report.warnings == []
        for place, (name, value) in enumerate(TRUTH.items()):
            draws = samples[name].ravel()
            scores[seed, place] = (draws.mean() - value) / draws.std()
            low, high = np.quantile(draws, [0.05, 0.95])
            inside[seed, place] = low < value < high
    squares = (scores**2).sum(0)
    bounds = stats.chi2(DATASETS).ppf([LEVEL / 2, 1 - LEVEL / 2])
    # Normal posteriors that are the sampling distribution too, up to ESS of 400 and more.
    assert (squares > bounds[0]).all() and (squares < 1.02 * bounds[1]).all()
    assert (
        np.abs(scores.sum(0)) < stats.norm.isf(LEVEL / 2) * np.sqrt(1.02 * DATASETS)
    ).all()
    assert (inside.sum(0) >= stats.binom(DATASETS, 0.9).ppf(LEVEL)).all()
