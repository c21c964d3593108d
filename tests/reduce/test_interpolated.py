"""Crossed factors eliminated by polynomials: the same density, and regressions made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.reduce.interpolated import ChebyshevTable, interpolated
from sgmcmc.reduce.marginal import MarginalDensity
from tests import seams
from tests.reduce.test_crossed import Problem


@dataclass(frozen=True)
class LogScales:
    """Scales of factors with one effect for each level, whose logs are positions."""

    factors: int

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        return np.exp(positions[:, 0])

    def roots(self, positions: np.ndarray) -> list[np.ndarray]:
        return [np.exp(logs)[:, np.newaxis, np.newaxis] for logs in positions.T[1:]]

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        return -0.5 * (positions**2).sum(1)


def density_of(levels: tuple[int, ...], dense: int, n: int) -> MarginalDensity:
    """Return the posterior of the scales of a problem."""
    problem = Problem.of(levels, (1,) * len(levels), dense, n)
    scales = LogScales(len(levels))
    return MarginalDensity(problem.sums(), problem.mean, problem.sd, scales)


@pytest.mark.parametrize("axes", [1, 2])
def test_polynomials_of_a_function_are_as_near_as_its_poles_allow(axes: int) -> None:
    """1/(1 + e^2ℓ) has poles at iπ/2; so errors are ρ⁻ⁿ, log ρ = arsinh(π/2w)."""

    def function(logs: np.ndarray) -> np.ndarray:
        one = 1.0 / (1.0 + np.exp(2.0 * logs.sum(1)))
        return np.stack([one, logs[:, 0] ** 2], 1)

    nodes, half = 10, 0.5 / axes
    center, width = np.full(axes, 0.3), np.full(axes, half)
    table = ChebyshevTable.of(function, center, width, nodes)
    points = center + width * np.random.default_rng(1).uniform(-1, 1, (50, axes))
    # The sum of all logs is w = 0.5 at most; a factor of ten for the constant before ρ⁻ⁿ.
    error = 10.0 * np.exp(-nodes * np.arcsinh(0.5 * np.pi / 0.5))
    np.testing.assert_allclose(table(points), function(points), atol=error)
    assert np.isnan(table(center + 1.01 * width[np.newaxis])).all()


@pytest.mark.parametrize(("levels", "dense"), [((60, 40), 0), ((60, 3, 40), 1)])
def test_the_density_is_that_of_elimination(
    levels: tuple[int, ...], dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = seams.changed(seams.INTERPOLATED, nodes=400)
    monkeypatch.setattr(seams.INTERPOLATED, settings)
    exact = density_of(levels, dense, n=900)
    found = interpolated(exact, np.zeros(1 + len(levels)))
    assert found is not None
    smooth, mode = found
    rng = np.random.default_rng(1)
    near = mode + rng.uniform(-0.2, 0.2, (30, len(mode)))
    # The precision of the polynomials, e^-23, of values of some thousands.
    np.testing.assert_allclose(smooth(near), exact(near), rtol=0, atol=1e-5)
    z = rng.standard_normal((30, 2))
    for polynomial, direct in zip(
        smooth.draw(near, z), exact.draw(near, z), strict=True
    ):
        np.testing.assert_allclose(polynomial, direct, rtol=1e-6, atol=1e-5)
    steps = 1e-3 * np.eye(len(mode))
    slopes = exact(mode + steps) - exact(mode - steps)
    assert np.abs(slopes / 2e-3).max() < 0.01
    outside = mode + 5.0 * np.eye(len(mode))[-1]
    assert np.isneginf(smooth(outside[np.newaxis])).all()


@pytest.mark.parametrize("distance", [-3.0, 3.0])
def test_the_mode_is_found_from_afar(
    distance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = seams.changed(seams.INTERPOLATED, nodes=400)
    monkeypatch.setattr(seams.INTERPOLATED, settings)
    density = density_of((60, 40), 0, n=900)
    near = interpolated(density, np.zeros(3))
    far = interpolated(density, distance * np.array([0.0, 1.0, -1.0]))
    assert near is not None and far is not None
    # The search ends where slopes are small: a tenth of an SD.
    np.testing.assert_allclose(far[1], near[1], atol=0.01)


def test_a_scale_that_data_leave_open_is_not_interpolated() -> None:
    problem = density_of((30, 20), 0, n=60)
    sums = problem.sums
    assert sums.crossed is not None
    # Effects that have no products with anything: their scale has its prior, and a wide box.
    nothing = replace(sums.crossed, within=0.0 * sums.crossed.within)
    assert (
        interpolated(replace(problem, sums=replace(sums, crossed=nothing)), np.zeros(3))
        is None
    )


@pytest.mark.slow
def test_regressions_have_the_same_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    n, rows, columns = 1500, 80, 60
    a, b = rng.integers(0, rows, n), rng.integers(0, columns, n)
    x = rng.normal(size=n)
    y = (
        1
        + x
        + rng.normal(size=rows)[a]
        + 0.7 * rng.normal(size=columns)[b]
        + rng.normal(size=n)
    )
    frame = pd.DataFrame({"y": y, "x": x, "a": a.astype(str), "b": b.astype(str)})
    call: dict[str, Any] = {
        "family": "gaussian",
        "seed": 1,
        "verbose": False,
        "n_iters": 300,
    }
    exact = sgmcmc.glm("y ~ x + (1 | a) + (1 | b)", frame, **call)
    settings = seams.changed(seams.INTERPOLATED, nodes=400)
    monkeypatch.setattr(seams.INTERPOLATED, settings)
    monkeypatch.setattr(seams.REDUCED, seams.changed(seams.REDUCED, polynomials_from=0))
    smooth = sgmcmc.glm("y ~ x + (1 | a) + (1 | b)", frame, **call)
    assert "polynomials" in smooth.report["Model"]["crossed effects"]
    assert "crossed effects" not in exact.report["Model"]
    for name in ("b", "sigma", "sd_a", "sd_b"):
        one, other = (fit.samples[name].reshape(1200, -1) for fit in (exact, smooth))
        # Draws are nearly independent; a third of them for those that are not.
        error = np.sqrt((one.var(0) + other.var(0)) / (1200 / 3))
        assert (np.abs(one.mean(0) - other.mean(0)) < 4 * error).all(), name
        ratio = other.std(0) / one.std(0)
        assert (np.abs(np.log(ratio)) < 4 / np.sqrt(1200 / 3)).all(), name
    effects = smooth.effects("b")
    assert len(effects) == columns
