"""Gaussian regressions with several factors: the density, and regressions made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse
import scipy.stats

import sgmcmc
from sgmcmc.reduce import crossed
from sgmcmc.reduce.gaussian import (
    FactorLevels,
    GaussianSums,
    RegressionRows,
    gaussian_sums,
)
from sgmcmc.reduce.marginal import MarginalDensity
from sgmcmc.regression import sums

_QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


@dataclass(frozen=True)
class Problem:
    """Rows of several factors, of which the first is integrated out first.

    Attributes:
        x, y, weights: Columns of coefficients, response, and weights.
        codes, z: Groups of rows and their columns of effects, for each factor.
        dense: Number of factors whose effects are dense columns.
        mean, sd: Priors of coefficients.
    """

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    codes: tuple[np.ndarray, ...]
    z: tuple[np.ndarray, ...]
    dense: int
    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(
        cls, levels: tuple[int, ...], effects: tuple[int, ...], dense: int, n: int = 70
    ) -> Problem:
        """Return one whose factors are crossed, with two coefficients and weights."""
        rng = np.random.default_rng(sum(levels) + 7 * sum(effects))
        codes = tuple(
            rng.permutation(np.append(np.arange(k), rng.integers(0, k, n - k)))
            for k in levels
        )
        z = [rng.normal(size=(n, q)) for q in effects]
        for columns in z:
            columns[:, 0] = 1.0
        x = np.column_stack([np.ones(n), rng.normal(size=n)])
        y = x.sum(1) + rng.normal(size=n)
        for of_factor, count in zip(codes, levels, strict=True):
            y = y + rng.normal(size=count)[of_factor]
        weights = rng.integers(1, 4, n).astype(float)
        return cls(
            x,
            y,
            weights,
            codes,
            tuple(z),
            dense,
            rng.normal(size=2),
            np.array([2.0, 1.5]),
        )

    @property
    def levels(self) -> list[int]:
        """Number of levels of each factor."""
        return [int(codes.max()) + 1 for codes in self.codes]

    def columns(self) -> list[np.ndarray]:
        """Return the columns of the effects of each factor, level by level."""
        blocks = []
        for codes, z, count in zip(self.codes, self.z, self.levels, strict=True):
            indicators = np.eye(count)[codes]
            product = indicators[:, :, np.newaxis] * z[:, np.newaxis]
            blocks.append(product.reshape(len(z), -1))
        return blocks

    def sums(self, selected: list[int] | None = None) -> GaussianSums:
        """Return its sums, made in chunks."""
        columns, stop = self.columns(), 1 + self.dense

        def chunks() -> Iterator[RegressionRows]:
            xy = np.column_stack([*columns[1:stop], self.x, self.y])
            sparse = columns[stop:]
            for rows in np.array_split(np.arange(len(self.y)), 3):
                yield RegressionRows(
                    xy[rows],
                    self.weights[rows],
                    self.z[0][rows],
                    self.codes[0][rows],
                    scipy.sparse.csr_matrix(np.concatenate(sparse, 1)[rows])
                    if sparse
                    else None,
                )

        first, *others = self.levels
        levels = FactorLevels(
            first, tuple(others[: self.dense]), tuple(others[self.dense :])
        )
        sums = gaussian_sums(chunks, levels, selected or [])
        assert sums is not None
        return sums

    @property
    def scales(self) -> PlainScales:
        """Scales as plain numbers."""
        return PlainScales(tuple(z.shape[1] for z in self.z))

    @property
    def size(self) -> int:
        """Number of scales."""
        return 1 + sum(q * (q + 1) // 2 for q in self.scales.effects)

    def density(self, selected: list[int] | None = None) -> MarginalDensity:
        """Return the posterior of its scales."""
        return MarginalDensity(self.sums(selected), self.mean, self.sd, self.scales)

    def dense_normal(self, position: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return y, its mean and covariance, and prior and columns of all effects and x."""
        rows = np.repeat(np.arange(len(self.y)), self.weights.astype(int))
        roots = [root[0] for root in self.scales.roots(position[np.newaxis])]
        blocks = [
            np.kron(np.eye(count), root @ root.T)
            for count, root in zip(self.levels, roots, strict=True)
        ]
        prior = scipy.linalg.block_diag(*blocks, np.diag(self.sd**2))
        columns = np.concatenate([*self.columns(), self.x], 1)[rows]
        covariance = columns @ prior @ columns.T
        covariance += np.exp(2.0 * position[0]) * np.eye(len(rows))
        return self.y[rows], self.x[rows] @ self.mean, covariance, prior, columns

    def expected(self, position: np.ndarray) -> float:
        """Return the log density of the data at a position, by the dense normal."""
        y, mean, covariance, *_ = self.dense_normal(position)
        constant = np.log(self.sd * np.sqrt(2 * np.pi)).sum()
        normal = scipy.stats.multivariate_normal(mean, covariance)
        return float(normal.logpdf(y) + constant)


@dataclass(frozen=True)
class PlainScales:
    """σ = exp of the first coordinate, L lower triangular of the others; a flat prior."""

    effects: tuple[int, ...]

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(positions[:, 0]))

    def roots(self, positions: np.ndarray) -> list[np.ndarray]:
        roots, start = [], 1
        for q in self.effects:
            root = np.zeros((len(positions), q, q))
            i, j = np.tril_indices(q)
            root[:, i, j] = positions[:, start : start + len(i)]
            start += len(i)
            roots.append(root)
        return roots

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        return np.zeros(len(positions))


_KINDS = [
    ((9, 5), (1, 1), 1),
    ((9, 5), (1, 1), 0),
    ((9, 5), (2, 2), 0),
    ((8, 5), (2, 3), 1),
    ((7, 6, 4), (1, 2, 1), 1),
    ((7, 6, 4), (3, 2, 2), 0),
    ((8, 3), (1, 5), 0),
]


@pytest.mark.parametrize("levels, effects, dense", _KINDS)
def test_density_is_that_of_all_rows(
    levels: tuple[int, ...], effects: tuple[int, ...], dense: int
) -> None:
    problem = Problem.of(levels, effects, dense)
    positions = 0.7 * np.random.default_rng(1).normal(size=(4, problem.size))
    expected = [problem.expected(position) for position in positions]
    np.testing.assert_allclose(
        problem.density()(positions), expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("dense", [0, 1])
def test_nested_factors(dense: int) -> None:
    """Nothing of the outer factor is left within groups of the inner one."""
    problem = Problem.of((12, 4), (1, 1), dense)
    problem = replace(problem, codes=(problem.codes[0], problem.codes[0] // 3))
    sums = problem.sums()
    if sums.crossed is not None:
        assert (sums.crossed.terms[:, [0]].toarray() == 0.0).all()
    positions = 0.7 * np.random.default_rng(1).normal(size=(4, 3))
    positions[0, 1:] = 30.0, 1e-8
    expected = [problem.expected(position) for position in positions]
    np.testing.assert_allclose(problem.density()(positions), expected, rtol=1e-9)


def test_many_pairs_are_interpolated_between_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dense sums at nodes of the sizes of groups in place of one sum for each size."""
    rng = np.random.default_rng(1)
    problem = Problem.of((60, 8), (1, 1), 0, n=900)
    weights = rng.integers(1, 40, 900).astype(float)
    problem = replace(
        problem,
        weights=weights,
        codes=(np.minimum(rng.geometric(0.05, 900) - 1, 59), problem.codes[1]),
    )
    problem = replace(
        problem,
        codes=(np.unique(problem.codes[0], return_inverse=True)[1], problem.codes[1]),
    )
    positions = rng.normal(size=(6, 3)) * [0.5, 2.0, 2.0]
    exact = problem.density()(positions)
    settings = replace(crossed._SETTINGS, pairs=10.0, groups=16)
    monkeypatch.setattr(crossed, "_SETTINGS", settings)
    sums = problem.sums()
    assert sums.crossed is not None and sums.groups is not None
    assert isinstance(sums.crossed.terms, np.ndarray)
    assert len(sums.crossed.roots) < len(sums.groups.roots)
    np.testing.assert_allclose(problem.density()(positions), exact, rtol=1e-11)


def test_too_many_pairs_have_no_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(crossed._SETTINGS, pairs=10.0, dense=10.0)
    monkeypatch.setattr(crossed, "_SETTINGS", settings)
    for effects in ((1, 1), (2, 1)):
        with pytest.raises(AssertionError):
            Problem.of((9, 5), effects, 0).sums()


@pytest.mark.parametrize("dense", [2, pytest.param(1, marks=pytest.mark.slow), 0])
def test_coefficients_and_effects_have_their_conditional_distribution(
    dense: int,
) -> None:
    """Means and covariances of draws given the scales, against those of the dense normal."""
    problem, draws = Problem.of((5, 4, 3), (2, 2, 1), dense, n=30), 3000
    position = np.array([0.1, 0.8, 0.3, 0.5, 1.0, -0.4, 0.7, 0.9])
    selected, density = [0, 3], problem.density([0, 3])
    rng = np.random.default_rng(1)
    positions = np.tile(position, (draws, 1))
    b, _ = density.draw(positions, rng.normal(size=(draws, 2)))
    others = density.draw_others(positions, b, rng.normal(size=(draws, 11)))
    given = np.concatenate([others, b], 1)
    effects = density.draw_effects(positions, given, rng.normal(size=(draws, 2, 2)))
    drawn = np.concatenate([effects.reshape(draws, -1), others, b], 1)
    y, mean, covariance, prior, columns = problem.dense_normal(position)
    used = [2 * g + k for g in selected for k in range(2)] + list(range(10, 23))
    across = (columns @ prior)[:, used]
    gain = np.linalg.solve(covariance, across).T
    expected_mean = np.append(np.zeros(15), problem.mean) + gain @ (y - mean)
    expected = prior[np.ix_(used, used)] - gain @ across
    sds = np.sqrt(np.diag(expected))
    # 4.6 standard errors of means; 4.3 of covariances, whose error is at most √2 times as large.
    error = 1 / np.sqrt(draws)
    np.testing.assert_allclose(
        (drawn.mean(0) - expected_mean) / sds, 0, atol=4.6 * error
    )
    np.testing.assert_allclose(
        np.cov(drawn.T) / np.outer(sds, sds),
        expected / np.outer(sds, sds),
        atol=4.3 * np.sqrt(2) * error,
    )


@pytest.mark.parametrize("dense", [1, 0])
def test_little_noise(dense: int) -> None:
    """Noise of 1e-3 of the effects: the density is that of the dense normal."""
    problem = Problem.of((9, 5), (1, 1), dense)
    x, codes = problem.x, problem.codes
    rng = np.random.default_rng(2)
    effects = rng.normal(size=9)[codes[0]] + rng.normal(size=5)[codes[1]]
    y = x.sum(1) + effects + 1e-3 * rng.normal(size=len(x))
    problem = replace(problem, y=y)
    positions = np.array([[np.log(1e-3), 1.0, 1.2], [np.log(1.3e-3), 0.8, 0.9]])
    expected = [problem.expected(position) for position in positions]
    values = problem.density()(positions)
    np.testing.assert_allclose(values, expected, rtol=1e-7)


# ------------------------------------------------------------------------------- regressions


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Return rows of two crossed factors, one of which has slopes."""
    rng = np.random.default_rng(3)
    g, h = np.repeat(np.arange(20), 12), np.tile(np.arange(6), 40)
    x = rng.normal(5.0, 2.0, 240)
    of_g = rng.normal(size=(20, 2)) * [1.0, 0.3]
    y = 3.0 + 0.5 * x + of_g[g, 0] + of_g[g, 1] * x + rng.normal(0.0, 1.5, 6)[h]
    y += 0.7 * rng.normal(size=240)
    columns = {"y": y, "x": x, "g": g, "h": h, "w": rng.integers(1, 4, 240)}
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def fit(frame: pd.DataFrame) -> sgmcmc.Regression:
    """Return a regression with two crossed factors, slopes, an offset and weights."""
    formula = "y ~ x + offset(0.1 * x) + (1 + x | g) + (1 | h)"
    return sgmcmc.glm(formula, frame, weights="w", **_QUIET)


def test_sparse_effects_are_those_of_dense_columns(
    frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same draws from either, up to rounding; three factors, one nested in another."""
    frame = frame.assign(k=frame["g"] // 4)
    formula, results = "y ~ x + (1 + x | h) + (1 | k / g)", []
    for dense in (48, 12, 0):
        settings = replace(sums._SETTINGS, dense=dense)
        monkeypatch.setattr(sums, "_SETTINGS", settings)
        fit = sgmcmc.glm(formula, frame, n_iters=100, dtype="float64", **_QUIET)
        results.append(dict(fit.samples))
    for other in results[1:]:
        for name, values in results[0].items():
            np.testing.assert_allclose(values, other[name], rtol=1e-4, atol=1e-5)


def test_report_names_the_reduction(fit: sgmcmc.Regression) -> None:
    assert fit.report is not None
    text = "240 rows as 20 groups of 21 sums, and 46 of all"
    assert fit.report["Model"]["reduction"] == text
    assert fit.report["Groups"]["levels of 'h'"] == 6
    assert "sd(h: Intercept)" in fit.report["Model"]["sampled"]
    assert fit.report.warnings == []


def test_effects_and_predictions(fit: sgmcmc.Regression, frame: pd.DataFrame) -> None:
    residuals = frame["y"] - fit.predict()
    assert np.std(residuals) < 0.8
    by_level = frame.assign(r=frame["y"] - 0.5 * frame["x"]).groupby("h")["r"].mean()
    effects = fit.effects("h")["estimate"].to_numpy()
    np.testing.assert_allclose(
        effects - effects.mean(), by_level - by_level.mean(), atol=0.4
    )
    new = frame.iloc[:3].assign(h=[0, 99, 99])
    assert fit.predict(new, "quantiles").shape == (3, 3)
    assert list(fit.group_sds.index) == [
        "sd(g: Intercept)", "sd(g: x)", "cor(g: Intercept, x)", "sd(h: Intercept)",
    ]  # fmt: skip
    one = fit.samples[::40].effects("h")["r_h"]
    other = fit.samples.effects("h")["r_h"]
    np.testing.assert_array_equal(one, other[:, ::40])


@pytest.mark.slow
def test_what_needs_the_rows_works(fit: sgmcmc.Regression) -> None:
    assert fit.loo().se > 0
    assert fit.samples[::40].log_lik().shape[-1] == 240


def test_regressions_are_saved_and_extended(
    fit: sgmcmc.Regression, tmp_path: Path
) -> None:
    fit.save(tmp_path / "fit")
    again = sgmcmc.Regression.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(again.summary(), fit.summary())
    np.testing.assert_allclose(again.predict(), fit.predict(), rtol=0.05)
    pd.testing.assert_frame_equal(again.effects("h"), fit.effects("h"))
    assert again.report is not None and fit.report is not None
    assert again.report["Model"] == fit.report["Model"]


@pytest.mark.slow
def test_same_seed_same_bits(frame: pd.DataFrame) -> None:
    short, again, long = (
        sgmcmc.glm("y ~ x + (1 | g) + (1 | h)", frame, n_iters=n, **_QUIET).samples
        for n in (130, 130, 270)
    )
    extended = short.extend(140, verbose=False)
    for name in short:
        np.testing.assert_array_equal(short[name], again[name])
        np.testing.assert_array_equal(short[name], long[name][:, :130])
        np.testing.assert_array_equal(extended[name], long[name])


def test_units_and_labels_do_not_matter(frame: pd.DataFrame) -> None:
    formula = "y ~ x + (1 + x | g) + (1 | h)"
    moved = frame.assign(y=frame["y"] * 1e6 + 1e9, x=frame["x"] * 1e-3)
    moved["g"] = [f"group {19 - g}" for g in frame["g"]]
    fit, other = (sgmcmc.glm(formula, f, n_iters=200, **_QUIET) for f in (frame, moved))
    np.testing.assert_allclose(
        fit.samples["b"], other.samples["b"], rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        fit.samples["sigma"] * 1e6, other.samples["sigma"], rtol=1e-4
    )
    one, two = (f.effects("h")["estimate"] for f in (fit, other))
    np.testing.assert_allclose(one * 1e6, two, atol=5e4)


@pytest.mark.slow
def test_order_of_bars_does_not_matter(frame: pd.DataFrame) -> None:
    one = sgmcmc.glm("y ~ x + (1 | g) + (1 | h)", frame, ess=1000, **_QUIET).summary()
    two = sgmcmc.glm("y ~ x + (1 | h) + (1 | g)", frame, ess=1000, **_QUIET).summary()
    two = two.loc[one.index]
    shift = (one["estimate"] - two["estimate"]) / one["error"]
    error = 4 * np.sqrt(1 / one["ess_bulk"] + 1 / two["ess_bulk"])
    assert (shift.abs() < error).all()


def test_a_level_for_each_row(frame: pd.DataFrame) -> None:
    """Its SD and that of the noise are known by their priors alone, which is reported."""
    single = frame.assign(row=np.arange(240))
    formula = "y ~ x + (1 | row) + (1 | h)"
    fit = sgmcmc.glm(formula, single, n_iters=600, **_QUIET)
    assert any("one row" in warning for warning in fit.warnings)
    plain = sgmcmc.glm("y ~ x + (1 | h)", frame, **_QUIET).summary()
    draws = fit.samples
    total = np.sqrt(draws["sigma"] ** 2 + draws["sd_row"][..., 0] ** 2)
    assert abs(total.mean() / plain.loc["sigma", "estimate"] - 1) < 0.02


def test_effects_of_large_groups_are_drawn() -> None:
    """A group of far more rows than others, which a chain over rows has apart."""
    rng = np.random.default_rng(2)
    g = np.concatenate([np.zeros(3000, int), np.repeat(np.arange(1, 20), 10)])
    h = rng.integers(0, 4, len(g))
    of_g, of_h = rng.normal(size=20), rng.normal(size=4)
    y = 1.0 + of_g[g] + of_h[h] + 0.5 * rng.normal(size=len(g))
    fit = sgmcmc.glm("y ~ 1 + (1 | g) + (1 | h)", {"y": y, "g": g, "h": h}, **_QUIET)
    assert list(fit.samples) == ["b", "sigma", "sd_g", "sd_h"]
    drawn = fit.effects("g")["estimate"].to_numpy()
    np.testing.assert_allclose(drawn - drawn.mean(), of_g - of_g.mean(), atol=0.5)
    np.testing.assert_allclose(fit.predict(), of_g[g] + of_h[h] + 1.0, atol=0.6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula", ["y ~ x + (1 + x | g) + (1 | h)", "y ~ x + (1 | h / g)"]
)
def test_posterior_is_that_of_the_chain(frame: pd.DataFrame, formula: str) -> None:
    """Means and SDs agree, to 5 % of the SD at four standard errors."""
    fast = sgmcmc.glm(formula, frame, weights="w", ess=4000, **_QUIET)
    slow = sgmcmc.glm(formula, frame, weights="w", reduce=False, ess=2000, **_QUIET)
    one, other = fast.summary(), slow.summary()
    assert list(one.index) == list(other.index)
    error = 4 * np.sqrt(1 / one["ess_bulk"] + 1 / other["ess_bulk"])
    shift = (one["estimate"] - other["estimate"]) / other["error"]
    assert (abs(shift) < error + 0.02).all()
    assert (abs(one["error"] / other["error"] - 1) < error + 0.05).all()
    for by in [effects.by for effects in fast._model.effects]:
        effects, expected = fast.effects(by), slow.effects(by)
        moved = (effects["estimate"] - expected["estimate"]) / expected["error"]
        assert moved.abs().max() < 0.3
        ratio = effects["error"] / expected["error"]
        assert 0.85 < ratio.min() and ratio.max() < 1.15


@pytest.mark.slow
def test_more_rows_by_a_chain(frame: pd.DataFrame) -> None:
    fit = sgmcmc.glm("y ~ x + (1 | g) + (1 | h)", frame, **_QUIET)
    rows = fit._predictor.dataset(frame.iloc[:60])
    more = fit.samples.update(rows, verbose=False)
    assert abs(more["sigma"].mean() - fit.samples["sigma"].mean()) < 0.1
