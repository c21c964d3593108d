"""Gaussian regressions from their sums: the density, its draws, and regressions made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

import sgmcmc
from sgmcmc.reduce.elliptical import (
    BLOCK,
    EllipticalChains,
    InvertedChains,
    StudentApproximation,
    at_mode,
)
from sgmcmc.reduce.gaussian import (
    FactorLevels,
    GaussianSums,
    RegressionRows,
    gaussian_sums,
)
from sgmcmc.reduce.marginal import MarginalDensity, SharedBasis
from sgmcmc.regression.priors import log_prior, normal_priors
from sgmcmc.regression.scales import RegressionScales
from tests import seams

_QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


@dataclass(frozen=True)
class Problem:
    """Rows of groups, their columns and priors."""

    x: np.ndarray
    z: np.ndarray
    y: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, p: int, q: int, n: int = 50, groups: int = 9) -> Problem:
        """Return one with groups of unequal size, one of a single row."""
        rng = np.random.default_rng(p + 10 * q)
        codes = np.concatenate([np.arange(groups), rng.integers(1, groups, n - groups)])
        x, z = rng.normal(size=(n, p)), rng.normal(size=(n, q))
        z[:, :1] = 1.0
        y = x.sum(1) + rng.normal(size=groups)[codes] + rng.normal(size=n)
        weights = rng.integers(1, 4, n).astype(float)
        return cls(x, z, y, codes, weights, rng.normal(size=p), 1.0 + rng.random(p))

    def sums(self, selected: list[int] | None = None) -> GaussianSums:
        """Return its sums, made in chunks."""

        def chunks() -> Iterator[RegressionRows]:
            xy = np.column_stack([self.x, self.y])
            for rows in np.array_split(np.arange(len(self.y)), 4):
                yield RegressionRows(
                    xy[rows], self.weights[rows], self.z[rows], self.codes[rows]
                )

        groups = int(self.codes.max()) + 1 if self.z.shape[1] else 0
        sums = gaussian_sums(chunks, FactorLevels(groups), selected or [])
        assert sums is not None
        return sums

    def repeated(self) -> tuple[np.ndarray, ...]:
        """Return x, z, y and the indicators of groups, each row as often as its weight."""
        rows = np.repeat(np.arange(len(self.y)), self.weights.astype(int))
        return (
            self.x[rows],
            self.z[rows],
            self.y[rows],
            np.eye(self.codes.max() + 1)[self.codes[rows]],
        )


class PlainScales:
    """σ = exp of the first coordinate, L lower triangular of the others; a flat prior."""

    def __init__(self, q: int) -> None:
        self.q = q

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(positions[:, 0]))

    def roots(self, positions: np.ndarray) -> list[np.ndarray]:
        root = np.zeros((len(positions), self.q, self.q))
        i, j = np.tril_indices(self.q)
        root[:, i, j] = positions[:, 1:]
        return [root]

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        return np.zeros(len(positions))


def _dense(problem: Problem, position: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return y, its mean and covariance, and the covariance of effects of all groups."""
    scales = PlainScales(problem.z.shape[1])
    x, z, y, indicators = problem.repeated()
    root, sigma = scales.roots(position[np.newaxis])[0][0], np.exp(position[0])
    columns = np.concatenate(
        [indicators[:, [g]] * z for g in range(indicators.shape[1])], 1
    )
    effects = np.kron(np.eye(indicators.shape[1]), root @ root.T)
    covariance = sigma**2 * np.eye(len(y)) + columns @ effects @ columns.T
    covariance += x * problem.sd**2 @ x.T
    return y, x @ problem.mean, covariance, columns @ effects


@pytest.mark.parametrize("p, q", [(0, 1), (1, 1), (3, 1), (2, 2), (3, 3), (3, 0)])
def test_density_is_that_of_all_rows(p: int, q: int) -> None:
    problem = Problem.of(p, q)
    density = MarginalDensity(problem.sums(), problem.mean, problem.sd, PlainScales(q))
    rng = np.random.default_rng(1)
    positions = 0.7 * rng.normal(size=(6, 1 + q * (q + 1) // 2))
    constant = np.log(problem.sd * np.sqrt(2 * np.pi)).sum()
    for position, value in zip(positions, density(positions), strict=True):
        y, mean, covariance, _ = _dense(problem, position)
        expected = scipy.stats.multivariate_normal(mean, covariance).logpdf(y)
        np.testing.assert_allclose(value, expected + constant, rtol=1e-9, atol=1e-9)


def test_groups_alike_are_pooled() -> None:
    """Groups with the same columns need no more sums than there are products of them."""
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(40), 5)
    x, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    z = np.column_stack([np.ones(200), np.tile(np.arange(5.0), 40)])
    problem = Problem(x, z, y, codes, np.ones(200), np.zeros(2), np.ones(2))
    sums = problem.sums()
    assert sums.groups is not None
    assert sums.groups.projections.shape == (6, 2, 3)
    position = np.array([0.1, 0.5, 0.2, 0.3])
    density = MarginalDensity(sums, problem.mean, problem.sd, PlainScales(2))
    y, mean, covariance, _ = _dense(problem, position)
    expected = scipy.stats.multivariate_normal(mean, covariance).logpdf(y)
    expected += np.log(2 * np.pi)
    np.testing.assert_allclose(density(position[np.newaxis])[0], expected, rtol=1e-9)


def test_coefficients_and_effects_have_their_conditional_distribution() -> None:
    """Means and covariances of draws given the scales, against those of the dense normal."""
    problem, draws = Problem.of(2, 2), 40_000
    position = np.array([0.1, 0.8, 0.3, 0.5])
    sums = problem.sums([0, 3])
    density = MarginalDensity(sums, problem.mean, problem.sd, PlainScales(2))
    rng = np.random.default_rng(1)
    positions = np.tile(position, (draws, 1))
    b, _ = density.draw(positions, rng.normal(size=(draws, 2)))
    effects = density.draw_effects(positions, b, rng.normal(size=(draws, 2, 2)))
    drawn = np.concatenate([b, effects.reshape(draws, 4)], 1)
    x, _, y, _ = problem.repeated()
    _, mean, covariance, of_effects = _dense(problem, position)
    across = np.concatenate([x * problem.sd**2, of_effects[:, [0, 1, 6, 7]]], 1)
    root = PlainScales(2).roots(position[np.newaxis])[0][0]
    prior = scipy.linalg.block_diag(
        np.diag(problem.sd**2), root @ root.T, root @ root.T
    )
    gain = np.linalg.solve(covariance, across).T
    prior_mean = np.append(problem.mean, np.zeros(4))
    expected_mean = prior_mean + gain @ (y - mean)
    expected = prior - gain @ across
    sds = np.sqrt(np.diag(expected))
    np.testing.assert_allclose((drawn.mean(0) - expected_mean) / sds, 0, atol=0.02)
    np.testing.assert_allclose(
        np.cov(drawn.T) / np.outer(sds, sds), expected / np.outer(sds, sds), atol=0.03
    )


@pytest.mark.parametrize(("p", "n"), [(0, 50), (1, 50), (4, 50), (15, 12)])
def test_shared_basis_is_the_same_density(p: int, n: int) -> None:
    """With more columns than rows, too, and far from the noise that the basis is made for."""
    problem = Problem.of(p, 0, n)
    density = MarginalDensity(problem.sums(), problem.mean, problem.sd, PlainScales(0))
    shared = SharedBasis(density, 0.8)
    positions = np.linspace(-2.0, 2.0, 9)[:, np.newaxis]
    np.testing.assert_allclose(shared(positions), density(positions), rtol=1e-9)
    draws = 20_000
    normals = np.random.default_rng(1).normal(size=(draws, p))
    many = np.full((draws, 1), 0.3)
    b, log_density = shared.draw(many, normals)
    _, expected = density.draw(many, normals)
    np.testing.assert_allclose(log_density, expected, rtol=1e-9)
    if p:
        x, _, y, _ = problem.repeated()
        precision = x.T @ x / np.exp(0.6) + np.diag(problem.sd**-2)
        toward = x.T @ y / np.exp(0.6) + problem.mean / problem.sd**2
        covariance = np.linalg.inv(precision)
        sds = np.sqrt(np.diag(covariance))
        z = (b.mean(0) - covariance @ toward) / sds
        np.testing.assert_allclose(z, 0, atol=5 / np.sqrt(draws))
        np.testing.assert_allclose(b.std(0) / sds, 1, atol=5 / np.sqrt(2 * draws))


def test_little_noise_cancels_nothing() -> None:
    """Noise of 1e-7 of effects and slopes: the density is that of rows in other units."""
    rng = np.random.default_rng(1)
    codes, x = np.repeat(np.arange(10), 6), rng.normal(size=(60, 1))
    noise, effects = rng.normal(size=60), rng.normal(size=10)
    values = []
    for small in (1e-7, 1e-4):
        y = small * noise + effects[codes] + x[:, 0]
        problem = Problem(
            x, np.ones((60, 1)), y, codes, np.ones(60), np.zeros(1), np.ones(1)
        )
        density = MarginalDensity(
            problem.sums(), problem.mean, problem.sd, PlainScales(1)
        )
        positions = np.array([[np.log(small), 1.0], [np.log(1.5 * small), 1.0]])
        values.append(np.diff(density(positions))[0])
    np.testing.assert_allclose(values[0], values[1], atol=1e-4)


def test_slices_leave_a_known_density_as_it_is() -> None:
    """Chains that start in a banana with an exponential tail are there after a block."""

    def log_density(x: np.ndarray) -> np.ndarray:
        of_gamma = 2.0 * x[:, 0] - np.exp(x[:, 0])
        return np.asarray(of_gamma - 0.5 * (x[:, 1] - 0.5 * x[:, 0] ** 2) ** 2)

    chains, rng = 3000, np.random.default_rng(1)
    first = np.log(rng.gamma(2.0, size=chains))
    start = np.stack([first, 0.5 * first**2 + rng.normal(size=chains)], 1)
    t = StudentApproximation(np.array([0.3, 0.4]), np.array([[0.6, 0.0], [0.2, 0.9]]))
    sampler = EllipticalChains(log_density, t, 1, chains)
    sampler._z = np.linalg.solve(t.root, (start - t.mean).T).T
    sampler._log_ratio = sampler._log_ratios(sampler._z)
    x = sampler.block(0)
    for iteration in (0, 1, 4, BLOCK - 1):
        gamma = np.exp(x[:, iteration, 0])
        normal = x[:, iteration, 1] - 0.5 * x[:, iteration, 0] ** 2
        assert scipy.stats.kstest(gamma, scipy.stats.gamma(2.0).cdf).pvalue > 1e-4
        assert scipy.stats.kstest(normal, scipy.stats.norm.cdf).pvalue > 1e-4
        assert abs(scipy.stats.spearmanr(gamma, normal)[0]) < 4.0 / np.sqrt(chains)
    moved = np.corrcoef(x[:, 0, 0], x[:, 20, 0])[0, 1]
    assert abs(moved) < 0.15


def test_points_of_a_slice_that_are_computed_together_change_no_draw() -> None:
    def log_density(x: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * (x**4).sum(1) - 0.5 * x[:, 0])

    t = StudentApproximation(np.zeros(2), 2.0 * np.eye(2))
    one, several = (EllipticalChains(log_density, t, 1, 3, ahead=k) for k in (1, 3))
    np.testing.assert_array_equal(one.block(0), several.block(0))
    assert several.evaluations > one.evaluations


def test_the_t_of_a_normal_density_has_its_mean_and_covariance() -> None:
    covariance = np.array([[2.0, 0.5, 0.0], [0.5, 1e-4, 0.0], [0.0, 0.0, 3.0]])
    covariance[1, 0] = covariance[0, 1] = 0.01
    normal = scipy.stats.multivariate_normal([1.0, -2.0, 0.5], covariance)
    t = at_mode(lambda x: np.atleast_1d(normal.logpdf(x)), np.zeros(3))
    np.testing.assert_allclose(t.mean, normal.mean, atol=0.02)
    np.testing.assert_allclose(t.root @ t.root.T, covariance, rtol=0.02, atol=1e-6)


def test_noise_alone_is_that_of_numerical_integration() -> None:
    problem = Problem.of(3, 0, n=12)
    density = MarginalDensity(problem.sums(), problem.mean, problem.sd, PlainScales(0))
    top = density(np.array([[0.0]]))[0]

    def mass(u: float) -> float:
        return float(np.exp(density(np.array([[u]]))[0] - top - np.exp(u)))

    class WithPrior(PlainScales):
        def log_prior(self, positions: np.ndarray) -> np.ndarray:
            return np.asarray(-np.exp(positions[:, 0]))

    with_prior = MarginalDensity(density.sums, problem.mean, problem.sd, WithPrior(0))
    chains = InvertedChains(SharedBasis(with_prior, 0.9), 0.0, 1, 400)
    u = np.sort(chains.block(0).ravel())
    whole = scipy.integrate.quad(mass, -6, 6, epsabs=1e-12)[0]
    for probability in (0.01, 0.2, 0.5, 0.9, 0.99):
        below = scipy.integrate.quad(
            mass, -6, np.quantile(u, probability), epsabs=1e-12
        )
        error = np.sqrt(probability * (1 - probability) / len(u))
        assert abs(below[0] / whole - probability) < 4.5 * error


# ------------------------------------------------------------------------------- regressions


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Return rows of 20 groups with intercepts and slopes."""
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(20), 10)
    x, h = rng.normal(5.0, 2.0, 200), rng.choice(["a", "b", "c"], 200)
    effects = rng.normal(size=(20, 2)) * [1.0, 0.3]
    y = 3.0 + 0.5 * x + effects[g, 0] + effects[g, 1] * x + 0.7 * rng.normal(size=200)
    return pd.DataFrame({"x": x, "g": g, "h": h, "y": y, "w": rng.integers(1, 4, 200)})


@pytest.fixture(scope="module")
def grouped(frame: pd.DataFrame) -> sgmcmc.Regression:
    """Return a regression with intercepts and slopes of groups, and weights."""
    return sgmcmc.glm("y ~ x + (1 + x | g)", frame, weights="w", **_QUIET)


@pytest.mark.parametrize("priors", [None, {"sigma": 2.0, "sd": 0.7, "x": (0.3, 2.0)}])
@pytest.mark.parametrize(
    "formula", ["y ~ x + h", "y ~ x + (1 + x | g)", "y ~ x + (1 + x || g)"]
)
def test_log_densities_are_those_of_the_model(
    frame: pd.DataFrame, formula: str, priors: dict[str, Any] | None
) -> None:
    """The prior of scales, and the log posterior of draws, in the coordinates of a chain."""
    if priors is not None and "|" not in formula:
        priors = {name: prior for name, prior in priors.items() if name != "sd"}
    fit = sgmcmc.glm(
        formula,
        frame,
        weights="w",
        priors=priors,
        dtype=tf.float64,
        n_iters=100,
        **_QUIET,
    )
    model, samples = fit._model, fit.samples
    of_rows, (mean, _) = "||" in formula, normal_priors(model)
    scales = RegressionScales(model, of_rows)
    positions = 0.5 * np.random.default_rng(1).normal(size=(5, scales.size))
    draws = scales.draws(positions[np.newaxis])
    for k, value in enumerate(scales.log_prior(positions)):
        params = {name: tf.constant(array[0, k]) for name, array in draws.items()}
        params["b"] = tf.constant(mean)
        expected = float(log_prior(model, params)) + _log_jacobian(params)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
    if "|" in formula:
        return
    rows = {name: tf.constant(a) for name, a in fit._predictor.dataset(frame).items()}
    rows["weights"] = tf.constant(frame["w"].to_numpy(float))
    for chain, draw in [(0, 0), (2, 57), (3, 99)]:
        params = {name: tf.constant(a[chain, draw]) for name, a in samples.items()}
        expected = float(log_prior(model, params)) + _log_jacobian(params)
        expected += float(tf.reduce_sum(model.log_lik(params, rows)))
        log_post = samples.log_post.values[chain, draw]
        np.testing.assert_allclose(log_post, expected, rtol=1e-9)


def _log_jacobian(params: dict[str, tf.Tensor]) -> float:
    """Return that of the logs of scales, and of the arctangents of correlations."""
    total = float(np.log(params["sigma"]))
    for name, value in params.items():
        if name.startswith("sd_"):
            total += float(np.log(value).sum())
        if name.startswith("cor_"):
            total += float(np.log1p(-(value.numpy() ** 2)).sum())
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula, weights",
    [("y ~ x", None), ("y ~ x + (1 | g)", None), ("y ~ x + (1 + x | g)", "w")],
)
def test_posterior_is_that_of_the_chain(
    frame: pd.DataFrame, formula: str, weights: str | None
) -> None:
    """Means and SDs agree, to 5 % of the SD at four standard errors."""
    fast = sgmcmc.glm(formula, frame, weights=weights, n_iters=8000, **_QUIET)
    slow = sgmcmc.glm(formula, frame, weights=weights, reduce=False, ess=5000, **_QUIET)
    assert list(fast.samples) == list(slow.samples)
    for name, array in slow.samples.items():
        assert fast.samples[name].shape[2:] == array.shape[2:]
        assert fast.samples[name].dtype == array.dtype
    one, other = fast.summary(), slow.summary()
    assert list(one.index) == list(other.index)
    effective = 1 / (1 / one["ess_bulk"] + 1 / other["ess_bulk"])
    shift = (one["estimate"] - other["estimate"]) / other["error"]
    # The chain's own error of an SD is at most its tolerance of 5 %, and of a mean a part of it.
    assert (abs(shift) < 4 / np.sqrt(effective) + 0.02).all()
    assert (
        abs(one["error"] / other["error"] - 1) < 4 / np.sqrt(effective) + 0.05
    ).all()


def test_groups_of_one_row_are_as_by_numerical_integration() -> None:
    """300 groups of one row: two SDs of which data know the sum of squares."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"y": rng.normal(2.0, 1.5, 300), "g": np.arange(300)})
    fit = sgmcmc.glm("y ~ 1 + (1 | g)", frame, ess=2000, **_QUIET)
    unit = frame["y"].std(ddof=0)
    u = np.linspace(1e-4, 2.0, 800)
    sigma, tau = np.meshgrid(u, u, indexing="ij")
    variance = sigma**2 + tau**2
    y = (frame["y"] - frame["y"].mean()).to_numpy() / unit
    # The intercept, whose prior is wide against its error, is integrated out.
    log_density = -0.5 * 299 * np.log(variance) - 0.5 * (y @ y) / variance - sigma - tau
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    for name, values in (("sigma", sigma), ("sd(g: Intercept)", tau)):
        mean = (density * values).sum() * unit
        sd = np.sqrt((density * values**2).sum() * unit**2 - mean**2)
        row = fit.summary().loc[name]
        assert abs(row["estimate"] - mean) / sd < 4 / np.sqrt(row["ess_bulk"]) + 0.005
        assert abs(row["error"] / sd - 1) < 0.1
    assert any("one row" in warning for warning in fit.warnings)


def test_same_seed_same_bits(frame: pd.DataFrame) -> None:
    for formula in ("y ~ x", "y ~ x + (1 | g)"):
        short, again, long = (
            sgmcmc.glm(formula, frame, n_iters=n, **_QUIET).samples
            for n in (130, 130, 370)
        )
        extended = short.extend(240, verbose=False)
        for name in short:
            np.testing.assert_array_equal(short[name], again[name])
            np.testing.assert_array_equal(short[name], long[name][:, :130])
            np.testing.assert_array_equal(extended[name], long[name])
        other = sgmcmc.glm(formula, frame, n_iters=130, seed=2, verbose=False).samples
        assert (other["sigma"] != short["sigma"]).all()
        more = sgmcmc.glm(formula, frame, n_iters=130, n_chains=6, **_QUIET).samples
        np.testing.assert_allclose(more["sigma"][:4], short["sigma"], rtol=1e-5)


def test_units_do_not_matter(frame: pd.DataFrame) -> None:
    moved = frame.assign(y=frame["y"] * 1e6 + 1e9, x=frame["x"] * 1e-3)
    for formula in ("y ~ x", "y ~ x + (1 + x | g)"):
        fit, other = (
            sgmcmc.glm(formula, f, n_iters=200, **_QUIET) for f in (frame, moved)
        )
        np.testing.assert_allclose(
            fit.samples["b"], other.samples["b"], rtol=1e-3, atol=1e-4
        )
        np.testing.assert_allclose(
            fit.samples["sigma"] * 1e6, other.samples["sigma"], rtol=1e-4
        )
        slope = other.summary().loc["x", "estimate"] * 1e-9
        np.testing.assert_allclose(slope, fit.summary().loc["x", "estimate"], rtol=1e-4)


def test_the_requested_sizes_are_reached(frame: pd.DataFrame) -> None:
    fit = sgmcmc.glm("y ~ x + (1 | g)", frame, ess=3000, n_chains=3, **_QUIET)
    assert fit.report is not None
    assert fit.report["Draws"]["chains"] == 3
    for kind in ("bulk", "tail"):
        assert min(fit.report["Draws"][f"ESS, {kind}"]) >= 3000
    assert fit.report.warnings == []
    short = sgmcmc.glm("y ~ x + (1 | g)", frame, n_iters=100, ess=1e5, **_QUIET)
    assert any("effective sample size" in warning for warning in short.warnings)
    timed = sgmcmc.glm("y ~ x + (1 | g)", frame, ess=1e7, max_seconds=1.0, **_QUIET)
    assert timed.samples["sigma"].shape[1] >= BLOCK


def test_report_names_the_reduction(
    frame: pd.DataFrame, grouped: sgmcmc.Regression
) -> None:
    assert grouped.report is not None
    text = "200 rows as 20 groups of 9 sums, and 7 of all"
    assert grouped.report["Model"]["reduction"] == text
    assert "sd(g: x)" in str(grouped.report)
    plain = sgmcmc.glm("y ~ x", frame, **_QUIET)
    assert plain.report is not None
    assert plain.report["Model"]["reduction"] == "200 rows as 7 sums"
    assert plain.samples.settings["N"] == 200


def test_what_needs_the_rows_works(
    grouped: sgmcmc.Regression, frame: pd.DataFrame
) -> None:
    effects = grouped.effects("g")
    by_group = (
        frame.assign(r=frame["y"] - 3.0 - 0.5 * frame["x"]).groupby("g")["r"].mean()
    )
    level = effects["estimate"].xs("Intercept", level="term") + 5 * effects[
        "estimate"
    ].xs("x", level="term")
    assert np.corrcoef(level, by_group)[0, 1] > 0.95
    assert grouped.predict().shape == (200,)
    assert np.std(grouped.residuals) < 0.8
    new = frame.iloc[:3].assign(g=[0, 99, 99])
    assert grouped.predict(new, "quantiles").shape == (3, 3)
    assert grouped.loo().se > 0
    assert grouped.slopes("x").shape[0] == 1
    without_groups = sgmcmc.glm("y ~ x", frame, **_QUIET)
    assert "robust" in without_groups.summary(robust=True)
    assert len(grouped.samples.effects("g", [3])["r_g"].shape) == 4
    assert "20 levels" in repr(grouped)


@pytest.mark.slow
def test_robust_sds_with_slopes_of_groups(grouped: sgmcmc.Regression) -> None:
    assert "robust" in grouped.summary(robust=True)


def test_regressions_are_saved_and_extended(
    grouped: sgmcmc.Regression, tmp_path: Path
) -> None:
    grouped.save(tmp_path / "fit")
    again = sgmcmc.Regression.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(again.summary(), grouped.summary())
    np.testing.assert_allclose(again.predict(), grouped.predict(), rtol=0.05)
    assert again.report is not None and grouped.report is not None
    assert again.report["Model"] == grouped.report["Model"]
    assert grouped.samples[::2].report is not None
    with pytest.raises(ValueError, match="stepsize"):
        grouped.samples.check()


@pytest.mark.slow
def test_more_rows_by_a_chain(frame: pd.DataFrame) -> None:
    fit = sgmcmc.glm("y ~ x + (1 | g)", frame, **_QUIET)
    assert fit.samples.origin is not None
    rows = fit._predictor.dataset(frame.iloc[:50])  # as the fit has them
    more = fit.samples.update(rows, verbose=False)
    assert more.settings["seed"] == 2
    assert abs(more["sigma"].mean() - fit.samples["sigma"].mean()) < 0.1


def test_effects_of_large_groups_are_drawn() -> None:
    """A group of far more rows than others has effects among the parameters, as in a chain."""
    rng = np.random.default_rng(2)
    g = np.concatenate([np.zeros(3000, int), np.repeat(np.arange(1, 20), 10)])
    effects = rng.normal(size=20)
    y = 1.0 + effects[g] + 0.5 * rng.normal(size=len(g))
    fit = sgmcmc.glm("y ~ 1 + (1 | g)", {"y": y, "g": g}, **_QUIET)
    assert list(fit.samples) == ["b", "sigma", "sd_g", "r_g_large"]
    assert fit.samples["r_g_large"].shape[2:] == (1, 1)
    terms = fit.effects("g")["estimate"]
    level = fit.summary().loc["Intercept", "estimate"] + terms.to_numpy()
    np.testing.assert_allclose(level, [y[g == k].mean() for k in range(20)], atol=0.1)


def test_what_is_not_reduced(
    frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def sample(**arguments: Any) -> Any:
        given.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(seams.REGRESSION_SAMPLE, sample)
    prior = __import__("tensorflow_probability").distributions.HalfNormal(1.0)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("y ~ x", {"reduce": False}),
        ("y ~ x", {"stepsize": 1e-3}),
        ("y ~ x", {"thin": 2}),
        ("y ~ x", {"priors": {"sigma": prior}}),
        ("y ~ x + (1 + x + w + y | g)", {}),
    ]
    for formula, keywords in cases:
        with pytest.raises(KeyboardInterrupt):
            sgmcmc.glm(formula, frame, **keywords, **_QUIET)
    assert len(given) == len(cases) and all("reduce" not in call for call in given)
    with pytest.raises(TypeError, match="reduce"):
        sgmcmc.glm("y ~ x", frame, reduce=1, **_QUIET)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reduce"):
        sgmcmc.sample(lambda p, d: 0.0, {"x": [1.0]}, {"a": 0.0}, reduce="no")  # type: ignore
    with pytest.raises(ValueError, match="one level"):
        sgmcmc.glm("y ~ x + (1 | g)", frame.assign(g=1), **_QUIET)
    with pytest.raises(ValueError, match="ess"):
        sgmcmc.glm("y ~ x", frame, ess=-1.0, **_QUIET)


def test_terms_alike_and_factors_of_many_levels(frame: pd.DataFrame) -> None:
    """Columns that are alike, rows of weight zero, and factors stored as numbers of levels."""
    rng = np.random.default_rng(4)
    wide = pd.DataFrame({"f": rng.integers(0, 150, 3000), "x": rng.normal(size=3000)})
    effects = rng.normal(size=150)
    wide["y"] = effects[wide["f"]] + 0.5 * rng.normal(size=3000)
    wide["w"] = 1.0
    wide.loc[:10, ["w", "y"]] = [0.0, 1e6]
    fit = sgmcmc.glm("y ~ C(f) + x", wide, weights="w", **_QUIET)
    assert abs(fit.summary().loc["sigma", "estimate"] - 0.5) < 0.03
    assert np.corrcoef(fit.predict()[11:], effects[wide["f"]][11:])[0, 1] > 0.98
    alike = pd.DataFrame({"y": frame["y"], "x": frame["x"], "z": 2.0 * frame["x"]})
    twice = sgmcmc.glm("y ~ .", alike, **_QUIET)
    once = sgmcmc.glm("y ~ x", alike, **_QUIET)
    np.testing.assert_allclose(twice.predict(), once.predict(), atol=0.05)


def test_scales_of_a_regression_have_the_names_of_its_rows(
    grouped: sgmcmc.Regression,
) -> None:
    scales = RegressionScales(grouped._model)
    assert scales.names == ["sigma", *grouped._model.effects[0].rows]
    assert scales.size == len(scales.names) == len(scales.start)
