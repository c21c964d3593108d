"""A mixed regression that several files ask about, and calls that stop before they sample."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import sgmcmc

SITES, ROWS = 40, 10


@pytest.fixture(scope="session")
def mixed_frame() -> pd.DataFrame:
    """Return rows of sites whose effects, the column `u`, are standard normal."""
    rng = np.random.default_rng(6)
    n = SITES * ROWS
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "f": pd.Categorical(rng.choice(["low", "high"], n), ["low", "high"]),
            "site": np.repeat([f"s{k:02d}" for k in range(SITES)], ROWS),
            "u": np.repeat(rng.normal(size=SITES), ROWS),
            "w": rng.integers(1, 3, n),
        }
    )
    noise = 0.7 * rng.normal(size=n)
    return frame.assign(
        y=1.0 + 0.5 * frame["x"] + (frame["f"] == "high") + frame["u"] + noise
    )


@pytest.fixture(scope="session")
def mixed(mixed_frame: pd.DataFrame) -> sgmcmc.Regression:
    """Return a regression with weights, a factor and an effect of each site."""
    return sgmcmc.glm(
        "y ~ x + f + (1 | site)", mixed_frame, weights="w", priors={"x": (0, 3)}, seed=1,
        verbose=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def effects_of_sites(mixed: sgmcmc.Regression) -> pd.DataFrame:
    """Return the effects of all sites."""
    return mixed.effects("site")


@pytest.fixture
def without_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `glm` read its data and build its model alone: its regressions have no draws."""
    module = sys.modules["sgmcmc.regression.sampling"]
    for name in ("is_reducible", "is_small"):
        monkeypatch.setattr(module, name, lambda data, keywords: False)
    monkeypatch.setattr(module, "sample", lambda **given: None)
