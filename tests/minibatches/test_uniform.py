"""Uniform minibatches as a chain sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sgmcmc
from sgmcmc.minibatches import uniform as rows_of
from tests import seams

Run = Callable[..., sgmcmc.Samples]


@pytest.mark.slow
def test_with_replacement(run: Run) -> None:
    """With replacement the gradient's variance is N^2/n times that of one, without less."""
    x = np.random.default_rng(3).normal(size=10)
    given: dict[str, Any] = {
        "dataset": {"x": x},
        "stepsize": 1e-12,
        "minibatch_size": 5,
        "n_iters": 4_000,
        "store_gradients": True,
    }
    with_it = run(**given, replace=True).gradients["theta"].astype(float)
    without = run(**given, replace=False).gradients["theta"].astype(float)
    for gradients, expected in (
        (with_it, 10**2 / 5 * x.var()),
        (without, 10 * (10 - 5) / 5 * x.var(ddof=1)),
    ):
        squares = (gradients - x.sum()) ** 2
        error = squares.std() / np.sqrt(len(squares))
        assert abs(squares.mean() - expected) < 4 * error
        assert abs(gradients.mean() - x.sum()) < 4 * np.sqrt(expected / len(gradients))


def test_with_replacement_n_may_be_all(run: Run) -> None:
    draws = run(minibatch_size=20, replace=True, stepsize=1e-12, store_gradients=True)
    assert len(np.unique(draws.gradients["theta"])) > 10


@pytest.mark.parametrize(("rows", "size"), [(20, 5), (1000, 300), (9000, 900)])
def test_repeats_are_told_by_either_way(
    rows: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few repeats are compared one by one, many looked up: the same rows come of it."""
    drawn = []
    for compared in (0, 1 << 40):
        settings = rows_of._Settings(max_comparisons=compared)
        monkeypatch.setattr(seams.UNIFORM_SETTINGS, settings)
        drawn.append(rows_of.draw_rows(np.random.default_rng(1), rows, size, 50, False))
    np.testing.assert_array_equal(*drawn)
    assert all(len(set(minibatch)) == size for minibatch in drawn[0].tolist())
