"""Robust standard deviations, against the sandwich of least squares written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc

QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def _sandwich(
    X: np.ndarray, y: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return SDs of least squares: of the model, and of the sandwich with clusters."""
    bread = np.linalg.inv(X.T @ X)
    residuals = y - X @ (bread @ X.T @ y)
    scores = np.stack(
        [(X * residuals[:, None])[groups == g].sum(0) for g in np.unique(groups)]
    )
    robust = np.sqrt(np.diag(bread @ scores.T @ scores @ bread))
    return np.sqrt(np.diag(bread) * residuals.var()), robust


def test_a_variance_that_grows_with_a_column() -> None:
    """Huber's and White's case: the model's SD of the slope is too small."""
    rng = np.random.default_rng(1)
    n = 2000
    x = rng.exponential(size=n)
    y = 1.0 + 0.5 * x + x * rng.normal(size=n)
    X = np.column_stack([np.ones(n), x])
    model, robust = _sandwich(X, y, np.arange(n))
    # The report of a chain over the rows has a section on robust SDs.
    fit = sgmcmc.glm("y ~ x", {"x": x, "y": y}, reduce=False, **QUIET)
    table = fit.summary(robust=True)
    columns = ["estimate", "error", "robust", "lower", "upper", "ess_bulk", "r_hat"]
    assert list(table.columns) == columns and robust[1] > 1.8 * model[1]
    # SDs of draws with ESS 400 and more: 4 standard errors, and what the prior adds.
    tolerance = 0.02 + 4 / np.sqrt(800)
    np.testing.assert_allclose(table["error"][:2], model, rtol=tolerance)
    np.testing.assert_allclose(table["robust"][:2], robust, rtol=tolerance)
    # The same draws, moved: the ratio is known without the error of Monte Carlo.
    ratio = table["robust"] / table["error"]
    np.testing.assert_allclose(ratio[:2], robust / model, rtol=0.03)
    # sigma is scaled by kurtosis: its score has the variance (κ − 1)/2 of that of the model.
    residuals = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    kurtosis = (residuals**4).mean() / residuals.var() ** 2
    np.testing.assert_allclose(ratio["sigma"], np.sqrt((kurtosis - 1) / 2), rtol=0.05)
    assert fit.report is not None
    of_report = np.array(fit.report["Robust"]["robust SD over SD of the model"])
    np.testing.assert_allclose(of_report[1:], ratio[1:], rtol=0.05)  # b is centered
    assert "farthest from 1" in str(fit.report)
    width = (table["upper"] - table["lower"]) / (2 * 1.96 * table["robust"])
    np.testing.assert_allclose(width, 1.0, atol=0.1)


@pytest.mark.slow
def test_a_model_that_holds() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=3000)
    y = rng.binomial(1, 1 / (1 + np.exp(-x)))
    table = sgmcmc.glm("y ~ x", {"x": x, "y": y}, "bernoulli", **QUIET).summary(
        robust=True
    )
    # The mean of N squared scores: relative error of an SD about (kurtosis/N)^½ / 2.
    np.testing.assert_allclose(
        table["robust"] / table["error"], 1.0, atol=4 * 0.5 * (3 / 3000) ** 0.5
    )


# Effects of a group with 2000 rows are coordinates of a chain over the rows.
SIZES = {
    "equal": np.full(300, 10),
    "unequal": np.r_[2000, 400, np.tile([2, 5, 30], 60)],
}


@pytest.mark.parametrize(
    "sizes", [pytest.param("equal", marks=pytest.mark.slow), "unequal"]
)
def test_groups_are_clusters(sizes: str) -> None:
    """Rows of a group that depend on each other beyond an intercept: a slope that varies."""
    rng = np.random.default_rng(3)
    group_sizes = SIZES[sizes]
    groups, n = len(group_sizes), group_sizes.sum()
    site, x = np.repeat(np.arange(groups), group_sizes), rng.normal(size=n)
    slope = rng.normal(0.5, 0.5, groups)[site]
    y = slope * x + rng.normal(size=groups)[site] + rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "y": y, "site": site})
    fit = sgmcmc.glm("y ~ x + (1 | site)", frame, **QUIET)
    table = fit.summary(robust=True)
    # Generalized least squares with these variances, and its sandwich by group.
    sigma2, tau2 = (table["estimate"][["sigma", "sd(site: Intercept)"]] ** 2).to_numpy()
    X = np.column_stack([np.ones(n), x])
    of_groups = [np.flatnonzero(site == g) for g in range(groups)]

    def weighted(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return Xᵀ (σ² I + τ² 1 1ᵀ)⁻¹ times values of the rows of a group."""
        shrunken = values.sum(0) * tau2 / (sigma2 + len(rows) * tau2)
        return X[rows].T @ (values - shrunken) / sigma2

    bread = np.linalg.inv(sum(weighted(rows, X[rows]) for rows in of_groups))
    beta = bread @ sum(weighted(rows, y[rows]) for rows in of_groups)
    scores = np.array([weighted(rows, y[rows] - X[rows] @ beta) for rows in of_groups])
    robust = np.sqrt(np.diag(bread @ scores.T @ scores @ bread))
    model = np.sqrt(np.diag(bread))
    tolerance = 0.03 + 4 / np.sqrt(800)
    np.testing.assert_allclose(table["robust"][:2], robust, rtol=tolerance)
    # The same draws, moved.
    ratio = (table["robust"] / table["error"])[:2]
    np.testing.assert_allclose(ratio, robust / model, rtol=0.03)
    assert robust[1] > 1.3 * model[1]


def test_crossed_factors_have_no_clusters() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": np.arange(200) % 8, "b": np.arange(200) // 25})
    frame["y"] = rng.normal(size=200)
    fit = sgmcmc.glm("y ~ 1 + (1 | a) + (1 | b)", frame, n_iters=100, **QUIET)
    with pytest.raises(ValueError, match="depend on each other through effects of"):
        fit.summary(robust=True)


def test_draws_without_their_sampler_are_refused(tmp_path: Any) -> None:
    x = np.random.default_rng(1).normal(size=100)

    def log_lik(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return -0.5 * (dataset["x"] - params["theta"]) ** 2

    samples = sgmcmc.sgld(
        log_lik, {"x": x}, {"theta": 0.0}, 1e-3, n_iters=100, seed=1, verbose=False
    )
    samples.save(tmp_path / "draws.npz")
    with pytest.raises(ValueError, match="no longer linked to their sampler"):
        sgmcmc.Samples.load(tmp_path / "draws.npz").robust()
