"""Effects of Gaussian regressions given parameters, from sums: against their normal law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import sgmcmc

DRAWS = 4000
GROUPS, OTHERS = 12, 5


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    g, h = rng.integers(0, GROUPS, 150), rng.integers(0, OTHERS, 150)
    levels = rng.normal(size=GROUPS)[g] + rng.normal(size=OTHERS)[h]
    return pd.DataFrame(
        {
            "g": np.array([f"g{k:02}" for k in range(GROUPS)])[g],
            "h": h,
            "x": rng.normal(2.0, 1.0, 150),
            "w": rng.integers(1, 4, 150),
            "y": 50.0 + 10.0 * (levels + rng.normal(size=150)),
        }
    )


def fitted(formula: str, frame: pd.DataFrame, **arguments: Any) -> sgmcmc.Regression:
    return sgmcmc.glm(formula, frame, seed=1, n_iters=100, verbose=False, **arguments)


def one_draw(fit: sgmcmc.Regression) -> dict[str, np.ndarray]:
    """Return the first draw of all parameters and of the other effects, ``DRAWS`` times."""
    assert fit.samples.origin is not None
    first = {name: np.asarray(draws)[:1, :1] for name, draws in fit.samples.items()}
    first = fit.samples.origin.with_effects(first)
    return {name: np.repeat(draws, DRAWS, 1) for name, draws in first.items()}


@pytest.mark.parametrize("formula", ["y ~ 1 + (1 | g)", "y ~ 1 + (1 | h) + (1 | g)"])
def test_draws_have_the_law_of_a_mean_of_residuals(
    formula: str, frame: pd.DataFrame
) -> None:
    """N(Σ w r / (Σ w + σ²/τ²), 1 / (Σ w / σ² + 1/τ²)) with the residuals r of a group."""
    fit = fitted(formula, frame, weights="w")
    model, draws, origin = fit._model, one_draw(fit), fit.samples.origin
    assert origin is not None
    first = {name: array[0, 0].astype(np.float64) for name, array in draws.items()}
    b = first["b"] * (model.unit / model.scale) + model.origin
    residuals = frame["y"] - b[0]
    if "r_h" in first:
        residuals = residuals - model.unit * first["r_h"][frame["h"], 0]
    sigma, tau = first["sigma"], first["sd_g"][0]
    sums = (frame["w"] * residuals).groupby(frame["g"]).sum()
    precision = frame["w"].groupby(frame["g"]).sum() / sigma**2 + 1 / tau**2
    mean, sd = (sums / sigma**2 / precision).to_numpy(), precision.to_numpy() ** -0.5
    effects = model.unit * origin.effects(draws, "g", None, 3)["r_g"][0, ..., 0]
    # Float32 of parameters and draws: a millionth of the response.
    rounding = 1e-5 * frame["y"].max()
    assert np.all(np.abs(effects.mean(0) - mean) < 5 * sd / np.sqrt(DRAWS) + rounding)
    assert np.all(np.abs(effects.std(0) / sd - 1) < 5 / np.sqrt(2 * DRAWS))


def test_a_group_has_the_same_draws_in_any_order(frame: pd.DataFrame) -> None:
    fit = fitted("y ~ x + (1 + x | g)", frame)
    every = fit.samples.effects("g", seed=2)["r_g"]
    some = fit.samples.effects("g", ["g07", "g01"], seed=2)["r_g"]
    np.testing.assert_array_equal(some, every[:, :, [7, 1]])
    assert not np.allclose(every, fit.samples.effects("g", seed=3)["r_g"])


def test_new_groups_have_the_law_of_all(frame: pd.DataFrame) -> None:
    fit = fitted("y ~ x + (1 | g)", frame)
    draws, origin = one_draw(fit), fit.samples.origin
    assert origin is not None
    drawn = origin.effects_of_labels(draws, "g", ["new", "newer"], 3)["r_g"]
    one, other = fit._model.unit * np.moveaxis(drawn[0, ..., 0], 1, 0)
    tau = float(draws["sd_g"][0, 0, 0])
    assert abs(one.mean()) < 5 * tau / np.sqrt(DRAWS)
    assert abs(one.std() / tau - 1) < 5 / np.sqrt(2 * DRAWS)
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "formula", ["y ~ x + (1 + x | g)", "y ~ x + (1 + x | g) + (1 | h)"]
)
def test_draws_are_those_of_a_sampler_over_the_rows(
    formula: str, frame: pd.DataFrame
) -> None:
    fit = fitted(formula, frame)
    draws, origin = one_draw(fit), fit.samples.origin
    assert origin is not None
    effects = origin.effects(draws, "g", None, 3)["r_g"][0]
    by_moves = origin.run.over_rows.effects(draws, "g", None, 4)["r_g"][0]
    sd = by_moves.std(0)
    assert np.all(
        np.abs(effects.mean(0) - by_moves.mean(0)) < 5 * sd * np.sqrt(2 / DRAWS)
    )
    assert np.all(np.abs(effects.std(0) / sd - 1) < 5 / np.sqrt(DRAWS))
