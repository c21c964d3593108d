"""Leverage against its formula, and the gradient noise that minibatches by leverage have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.minibatches import Minibatches, Uniform, Weighted
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target
from sgmcmc.plan.leverage import (
    PROBES,
    STRATA,
    STRATUM_ROWS,
    leverage,
    leverage_minibatches,
    strata_by_leverage,
)
from sgmcmc.plan.noise import NoiseMeter
from tests import seams
from tests.plan.models import (
    Array,
    gaussian_prior,
    logistic_data,
    logistic_sum,
    logistic_terms,
    make,
    weights,
)

N, D = 5000, 8
RNG = np.random.default_rng(3)
X = (RNG.normal(size=(N, D)) * RNG.exponential(size=(N, 1))).astype(np.float32)
BETA = RNG.normal(0, 0.5, D)
DATA = logistic_data(X.astype(float), BETA)
SHAPES = {"beta": (D,)}


def exact(X: Array, beta: Array) -> tuple[Array, Preconditioner]:
    """Return x'Mx q(1 − q) of every row, and the whitening by M."""
    X, w = X.astype(float), weights(X.astype(float), beta)
    covariance = np.linalg.inv((X * w[:, np.newaxis]).T @ X + np.eye(X.shape[1]) / 4)
    h = np.einsum("ij,jk,ik->i", X, covariance, X) * w
    return h, Preconditioner(np.linalg.cholesky(covariance), beta)


def found(
    log_lik: Callable[..., tf.Tensor], data: dict[str, Array], **given: Any
) -> Array:
    target, rows = make(log_lik, data, SHAPES, gaussian_prior(2.0), **given)
    return leverage(target, rows, exact(X, BETA)[1], seed=1)


@pytest.mark.some(1)
@pytest.mark.parametrize("log_lik", [logistic_terms, logistic_sum])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_leverage_of_a_logistic_regression(
    log_lik: Callable[..., tf.Tensor], dtype: tf.DType
) -> None:
    """The mean over K probes of (x'Cz)² q(1 − q): its relative variance is at most 2/K."""
    h, estimate = exact(X, BETA)[0], found(log_lik, DATA, dtype=dtype)
    assert estimate.shape == (N,) and estimate.dtype == np.float64
    # Rows of one direction share their probes' luck, so correlation has what is left of 1.
    assert np.corrcoef(h, estimate)[0, 1] > 0.97
    # In float32 the rows that bend least are lost in rounding; they do not matter.
    errors = (estimate / h - 1)[h > np.median(h)]
    assert np.sqrt((errors**2).mean()) < 1.3 * np.sqrt(2 / PROBES)
    assert estimate.sum() == pytest.approx(h.sum(), rel=3 * np.sqrt(2 / (PROBES * D)))


def test_on_disk_and_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit but rounding: the probes do not depend on the pieces."""
    whole = found(logistic_terms, DATA)
    for name, array in DATA.items():
        np.save(tmp_path / f"{name}.npy", array.astype(np.float32))
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in DATA}
    monkeypatch.setattr(seams.LEVERAGE_PIECE_NUMBERS, 700 * (2 * PROBES + 1))
    # Second differences of terms near one have the rounding of float32 in them.
    np.testing.assert_allclose(
        found(logistic_terms, mapped), whole, rtol=1e-3, atol=1e-6
    )


def test_probabilities() -> None:
    """Nine tenths in proportion, a tenth evenly; evenly where nothing bends."""
    minibatches = leverage_minibatches(np.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(minibatches.p, 0.9 * np.array([0, 0.25, 0.75]) + 0.1 / 3)
    np.testing.assert_allclose(leverage_minibatches(np.zeros(4)).p, 0.25)


class TestNoise:
    """Control variates on rows of which a few have nearly all the leverage of a coordinate."""

    N, n = 6000, 200
    rng = np.random.default_rng(8)
    X = np.column_stack(
        [np.ones(N), rng.normal(size=N), np.arange(N) % 1500 == 7]
    ).astype(np.float32)
    beta = np.array([-0.3, 0.8, 0.5])
    data = logistic_data(X.astype(float), beta)

    def setting(self) -> tuple[Target, Any, Preconditioner, Array]:
        h, whitening = exact(self.X, self.beta)
        target, rows = make(
            logistic_terms,
            self.data,
            {"beta": (3,)},
            gaussian_prior(2.0),
            dtype=tf.float64,
        )
        whitened = Target(
            target.log_lik, None, target.space.preconditioned(whitening), target.dtype
        )
        return whitened, rows, whitening, h

    def measured(self, minibatches: Minibatches, positions: Array) -> Array:
        target, rows, _, _ = self.setting()
        draws = minibatches.bind(self.N, self.n)
        return NoiseMeter(target, rows, draws).at(positions, np.zeros(3), 1)

    def changes(self, position: Array) -> Array:
        """Return δᵢ, how much each row's whitened gradient differs from that at the center."""
        root = exact(self.X, self.beta)[1].root
        X, there = self.X.astype(float), self.beta + root @ position
        q = [1 / (1 + np.exp(-X @ beta)) for beta in (there, self.beta)]
        return (q[1] - q[0])[:, np.newaxis] * X @ root

    def test_several_times_below_uniform(self) -> None:
        positions = np.random.default_rng(2).normal(size=(1024, 3))
        h = self.setting()[3]
        by_leverage, uniform = (
            (self.measured(minibatches, positions) ** 2).mean(0).max()
            for minibatches in (leverage_minibatches(h), Uniform())
        )
        assert 5 * by_leverage < uniform
        # Σ h = d where the data say all: about d/n a coordinate.
        assert by_leverage < 3 * 3 / self.n

    @pytest.mark.some(1)
    @pytest.mark.parametrize("kind", ["leverage", "uniform", "with replacement"])
    def test_agrees_with_the_formula(self, kind: str) -> None:
        """(1/n)(Σ δδ'/p − ΔΔ') with replacement, less by strata; N(N − n)/n S without.

        Of Gaussian noise the estimate from k pairs has the standard error v √(2/k).
        """
        position, pairs = np.array([0.7, -1.1, 1.4]), 4096
        delta = self.changes(position)
        h = self.setting()[3]
        if kind == "uniform":
            minibatches: Minibatches = Uniform()
            expected = self.N * (self.N - self.n) / self.n * delta.var(0, ddof=1)
        else:
            p = (
                np.full(self.N, 1 / self.N)
                if kind != "leverage"
                else leverage_minibatches(h).p
            )
            minibatches = Uniform(replace=True) if kind != "leverage" else Weighted(p)
            expected = (
                (delta**2 / p[:, np.newaxis]).sum(0) - delta.sum(0) ** 2
            ) / self.n
        found = self.measured(minibatches, np.tile(position, (pairs, 1)))
        ratio = (found**2).mean(0) / expected
        kurtosis = (found**4).mean(0) / (found**2).mean(0) ** 2
        error = 4.5 * np.sqrt((kurtosis - 1) / pairs)
        assert (ratio < 1 + error).all()
        if kind == "leverage":
            strata = self.stratified(leverage_minibatches(h).p, delta)
            assert (np.abs((found**2).mean(0) / strata - 1) < error).all()
        else:
            assert (ratio > 1 - error).all()

    def stratified(self, p: Array, delta: Array) -> Array:
        """Return the exact variance: the k-th row comes from the k-th n-th of the probability."""
        upper = np.cumsum(p)
        lower = upper - p
        total = np.zeros(3)
        for k in range(self.n):
            chance = np.clip(
                np.minimum(upper, (k + 1) / self.n) - np.maximum(lower, k / self.n),
                0,
                None,
            )
            chance *= self.n
            term = delta / (self.n * p[:, np.newaxis])
            mean = chance @ term
            total += chance @ term**2 - mean**2
        return total


@pytest.mark.parametrize("N", [STRATA * STRATUM_ROWS, 150_000])
def test_strata(N: int) -> None:
    """All rows are stood for, those of much leverage by themselves, and sums are unbiased."""
    rng = np.random.default_rng(7)
    h = rng.exponential(size=N) ** 4
    strata = strata_by_leverage(h, rng)
    assert [len(rows) for rows, _ in strata] == [STRATUM_ROWS] * STRATA
    assert sum(weight * len(rows) for rows, weight in strata) == pytest.approx(N)
    rows = np.concatenate([rows for rows, _ in strata])
    assert len(np.unique(rows)) == len(rows)
    assert strata[0][1] == 1.0 and h[strata[0][0]].min() >= np.sort(h)[-STRATUM_ROWS]
    sums = [weight * h[rows].sum() for rows, weight in strata]
    error = np.sqrt(
        sum(
            weight * (weight - 1) * len(rows) * h[rows].var() for rows, weight in strata
        )
    )
    assert abs(sum(sums) - h.sum()) < max(5 * error, 1e-6 * h.sum())
