"""Divide and conquer: exact combinations, enumerated ones, real shards, and errors."""

from __future__ import annotations

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.shards import combination
from tests import seams
from tests.machines.dying import DyingSampler, exact, normal_log_lik

tfb = tfp.bijectors
RNG = np.random.default_rng(7)
SDS = np.array([1.0, 2.0, 0.5])
X = RNG.normal([1.0, 2.0, 3.0], SDS, (2000, 3))
START = {"theta": np.zeros(3)}
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def combined(method: str, **given: Any) -> sgmcmc.Samples:
    """Return the combination of exact draws of each shard."""
    given = {"sampler": exact, "method": method, **QUIET, **given}
    return sgmcmc.divide(normal_log_lik, {"x": X}, START, **given)


@pytest.mark.parametrize(
    ("method", "weights", "noise"),
    [("consensus", 4, 0), ("consensus_scalar", 2, 0), ("gaussian", 4, 1)],
)
def test_moments_of_a_normal_mean_are_exact(
    method: str, weights: int, noise: int
) -> None:
    # Errors of the mean: of the shards' means; of their weights, relative variance (p + 1)/n or
    # 2/n, times how far the shards' means are apart; and of the draws.
    found = combined(method, shards=10)
    draws = found["theta"].reshape(-1, 3)
    n, sds = len(draws), SDS / np.sqrt(len(X))
    assert found.report is not None and found.report.warnings == []
    apart = found.report["Shards"]["spread of their means, in their SDs"]
    error = sds * np.sqrt((1 + weights * apart**2 + noise) / n)
    assert (np.abs(draws.mean(0) - X.mean(0)) < 4.5 * error).all()
    assert (np.abs(draws.var(0) / sds**2 - 1) < 4.5 * np.sqrt(2 / n)).all()
    assert found["theta"].shape == (4, 1000, 3)
    assert found.settings["method"] == method
    assert found.settings["shards"] == len(found.settings["shard_ess"]) == 10


def replicated(
    method: str, shards: int, turns: int = 24
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of whitened draws of independent combinations."""
    rows = [
        combined(method, shards=shards, seed=k, chains=1, sd=1.0) for k in range(turns)
    ]
    z = np.stack([(one["theta"][0] - X.mean(0)) * np.sqrt(len(X)) for one in rows])
    return z.mean(1), z.var(1)


def test_weierstrass_is_exact_for_normal_shards() -> None:
    means, variances = replicated("weierstrass", 4)
    for values, expected in ((means, 0.0), (variances, 1.0)):
        error = values.std(0, ddof=1) / np.sqrt(len(values))
        assert (np.abs(values.mean(0) - expected) < 4.5 * error).all()


@pytest.mark.slow
def test_kernel_density_widens_by_its_bandwidth() -> None:
    # Shards of equal size: each kernel density has the variance (1 + h²) of its shard's.
    means, variances = replicated("kernel_density", 2)
    h = 1000 ** (-1 / 7)
    # Products of kernel densities of so many draws are off by O(1/(T h^p)) of themselves.
    noise = 1 / (1000 * h**3)
    for values, expected in ((means, 0.0), (variances, 1 + h * h)):
        error = values.std(0, ddof=1) / np.sqrt(len(values))
        assert (np.abs(values.mean(0) - expected) < 4.5 * error + noise).all()
    report = combined("kernel_density", shards=2, chains=1, sd=1.0).report
    assert report is not None
    wider = report["Combination"]["SDs too wide by kernels, normal shards"]
    assert wider == pytest.approx(np.sqrt(1 + h * h) - 1, rel=0.05)
    assert "too wide" in report.warnings[0]


def test_components_of_kernel_densities_against_all_of_them() -> None:
    x = (
        np.random.default_rng(3).normal(size=(3, 8, 1, 1))
        + np.array([0, 0.5, 1])[:, None, None, None]
    )
    h = 8 ** (-1 / 5)
    weights, centers = [], []
    for picked in itertools.product(range(8), repeat=3):
        each = np.array([x[s, k, 0, 0] for s, k in enumerate(picked)])
        weights.append(np.exp(-((each - each.mean()) ** 2).sum() / (2 * h * h)))
        centers.append(each.mean())
    w, m = np.array(weights) / np.sum(weights), np.array(centers)
    mean = w @ m
    variance = w @ (m - mean) ** 2 + h * h / 3
    # Forty chains on the same eight draws of each shard.
    pools = np.tile(x.reshape(3, 1, 8, 1), (1, 40, 50, 1))
    draws = kernel_draws(pools, h)
    for values, expected in (
        (draws.mean(1), mean),
        (((draws - mean) ** 2).mean(1), variance),
    ):
        error = values.std(ddof=1) / np.sqrt(40)
        assert abs(values.mean() - expected) < 4.5 * error


def kernel_draws(pools: np.ndarray, h: float) -> np.ndarray:
    """Return draws with this bandwidth, (chains, draws)."""
    rng = np.random.default_rng(5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seams.LAST_BANDWIDTH, lambda draws, size: h)
        return combination._kernel_density(pools, rng)[0][..., 0]


def test_weierstrass_pairs_follow_their_distribution() -> None:
    # Two skew distributions on a line: the density of accepted pairs, summed on a grid.
    grid = np.linspace(-8, 8, 801)
    parts = [([0.7, 0.3], [-1.0, 2.0]), ([0.4, 0.6], [-1.5, 1.0])]
    densities = [
        sum(p * np.exp(-((grid - c) ** 2) / 2) for p, c in zip(*one, strict=True))
        for one in parts
    ]
    densities = [one / one.sum() for one in densities]
    rng, chains, count = np.random.default_rng(4), 40, 2000
    a, b = (
        rng.choice(grid, (chains, count, 1), p=density)
        + rng.uniform(-0.01, 0.01, (chains, count, 1))
        for density in densities
    )
    merged, h = combination._merged(a, b, rng)
    va, vb = a.var(), b.var()
    u, v = np.meshgrid(grid, grid, indexing="ij")
    weight = np.outer(*densities) * np.exp(-((u - v) ** 2) / (va + vb) / (2 * h * h))
    center = (u / va + v / vb) / (1 / va + 1 / vb)
    mean = (weight * center).sum() / weight.sum()
    variance = (weight * (center - mean) ** 2).sum() / weight.sum()
    assert weight.sum() == pytest.approx(0.1, rel=0.05)
    spread = ((merged[..., 0] - mean) ** 2).mean(1)
    for values, expected in ((merged[..., 0].mean(1), mean), (spread, variance)):
        error = values.std(ddof=1) / np.sqrt(chains)
        assert abs(values.mean() - expected) < 4.5 * error


FEATURES = np.column_stack([np.ones(3000), RNG.normal(size=(3000, 2))])
LABELS = RNG.uniform(size=3000) < 1 / (1 + np.exp(-FEATURES @ [0.3, 1.0, -0.5]))
DATA = {"X": FEATURES, "y": LABELS.astype(float)}


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    z = tf.linalg.matvec(dataset["X"], params["beta"]) * params["scale"]
    return dataset["y"] * z - tf.math.softplus(z)


def log_prior(params: Any) -> tf.Tensor:
    # Exp(1) on the scale, which a bijector keeps positive; strong, so that each part of 1/S counts.
    return (
        -20.0 * tf.reduce_sum(params["beta"] ** 2)
        - 30.0 * tf.math.log(params["scale"]) ** 2
    )


@pytest.mark.slow
def test_logistic_regression_against_hmc() -> None:
    start = {"beta": np.zeros(3), "scale": 1.0}
    given: dict[str, Any] = {"bijectors": {"scale": tfb.Exp()}, "n_iters": 600, **QUIET}
    whole = sgmcmc.hmc(log_lik, DATA, start, log_prior, **given)
    parts = sgmcmc.divide(
        log_lik, DATA, start, log_prior, shards=2, sampler="hmc", **given
    )
    for name in start:
        a, b = (one[name].reshape(2400, -1) for one in (whole, parts))
        # Both have some 1000 effective draws, and consensus is off by O(S/√N) of an SD.
        assert (np.abs(a.mean(0) - b.mean(0)) < 0.3 * a.std(0)).all()
        assert (np.abs(a.std(0) / b.std(0) - 1) < 4.5 / np.sqrt(1000)).all()
    assert (parts["scale"] > 0).all() and parts["scale"].shape == (4, 600)
    assert parts.settings["sampler"] == "hmc" and min(parts.settings["shard_ess"]) > 100


def test_columns_and_starts_of_other_forms() -> None:
    import scipy

    seen: list[Any] = []

    def look(log_lik: Any, dataset: Any, params: Any, **_: Any) -> sgmcmc.Samples:
        seen.append((dataset, params))
        rng = np.random.default_rng(len(seen))
        return sgmcmc.Samples(
            {"m": rng.normal(size=(50, 2, 3)), "s": rng.normal(size=50)}
        )

    data = {
        "k": tf.range(10),
        "S": scipy.sparse.eye_array(10, format="csr"),
        "x": np.arange(10.0),
    }
    start = {"m": np.zeros((2, 3)), "s": 2.0}
    found = sgmcmc.divide(
        normal_log_lik,
        data,
        start,
        shards=2,
        sampler=look,
        bijectors={"s": tfb.Exp()},
        **QUIET,
    )
    assert found["m"].shape == (1, 50, 2, 3) and (found["s"] > 0).all()
    (one, params), (other, _) = seen
    assert sorted([*one["k"].numpy(), *other["k"].numpy()]) == list(range(10))
    assert (one["k"].numpy() == one["x"]).all() and one["k"].dtype == tf.int32
    assert (one["S"].toarray().argmax(1) == one["x"]).all()
    assert params["s"] == pytest.approx(np.log(2.0))


@pytest.mark.slow
def test_workers_that_die_are_replaced(tmp_path: Path) -> None:
    here = combined("weierstrass", shards=20)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        there = combined(
            "weierstrass", shards=20, executor=pool, sampler=DyingSampler(tmp_path)
        )
    assert (tmp_path / "died").exists()
    assert (here["theta"] == there["theta"]).all()


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        ({"shards": 1}, ValueError, "`shards` must be an integer, 2 or more"),
        (
            {"shards": 2001},
            ValueError,
            "`shards` must be at most the number of rows, 2000",
        ),
        ({"method": "average"}, ValueError, "`method` must be 'consensus'"),
        ({"sampler": "gibbs"}, ValueError, "`sampler` must be 'sample'"),
        ({"sampler": "scir"}, ValueError, "`sampler`: scir moves"),
        (
            {"sampler": "sample", "dynamics": "sgrld"},
            ValueError,
            "`dynamics`: sgrld moves",
        ),
        ({"groups": object()}, ValueError, "`groups` does not apply"),
        ({"start": object()}, ValueError, "`start` does not apply"),
        ({"gibbs": abs}, ValueError, "`gibbs` does not apply"),
        ({"manifolds": {}}, ValueError, "`manifolds` does not apply"),
        ({"store": "x"}, ValueError, "`store` does not apply.*save"),
        ({"bijectors": {"mu": tfb.Exp()}}, ValueError, "`bijectors` names 'mu'"),
        (
            {"sampler": lambda *a, **b: None},
            TypeError,
            "`sampler` must return sgmcmc.Samples",
        ),
        ({"n": 3}, ValueError, "`sampler` must return 4 or more draws"),
        ({"n": 4, "chains": 1}, ValueError, "`method`: 'consensus' needs more draws"),
    ],
)
def test_errors(given: dict[str, Any], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        combined(**{"method": "consensus", **given})


def test_kernel_densities_of_many_coordinates_are_refused() -> None:
    with pytest.raises(
        ValueError, match="`method`: kernel densities .* 20 .*there are 21"
    ):
        sgmcmc.divide(
            normal_log_lik,
            {"x": X},
            {"theta": np.zeros(21)},
            method="kernel_density",
            **QUIET,
        )
