"""Regressions that are saved and loaded again."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.atomic_files import read_arrays, write_arrays
from sgmcmc.regression.result import Regression

RNG = np.random.default_rng(3)
N = 300
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "f": pd.Categorical(RNG.choice(["low", "high"], N), ["low", "high"]),
        "g": RNG.choice(["a", "b", "c", "d", "e"], N),
        "w": RNG.integers(1, 3, N),
    }
)
FRAME["y"] = 1.0 + FRAME["x"] + (FRAME["f"] == "high") + RNG.normal(size=N)
QUICK: dict[str, Any] = {"seed": 1, "verbose": False, "ess": 50}


@pytest.fixture(scope="module")
def fit() -> Regression:
    return sgmcmc.glm("y ~ x + f + (1 | g)", FRAME, weights="w", priors={"x": (0, 3)}, **QUICK)


def test_what_was_saved_comes_back(fit: Regression, tmp_path: Path) -> None:
    fit.save(tmp_path / "fit")
    again = Regression.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(again.summary(), fit.summary())
    new = FRAME[:7]
    np.testing.assert_array_equal(again.predict(new), fit.predict(new))
    pd.testing.assert_frame_equal(again.effects(), fit.effects())
    assert again.loo().elpd == fit.loo().elpd
    assert again.priors == fit.priors and again.formula == fit.formula
    assert again.report is not None and again.report.warnings == fit.report.warnings
    again.save(tmp_path / "fit")  # in its own place


def test_what_cannot_be_saved_or_loaded(fit: Regression, tmp_path: Path) -> None:
    with_prior = copy.copy(fit)
    prior = tfp.distributions.Normal(0.0, 1.0)
    with_prior._model = dataclasses.replace(fit._model, priors={"x": prior})
    with pytest.raises(ValueError, match=r"`priors\['x'\]`"):
        with_prior.save(tmp_path / "fit")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="`folder`.*is not empty"):
        fit.save(tmp_path / "other")
    with pytest.raises(ValueError, match="`folder`.*no saved regression"):
        Regression.load(tmp_path / "other")
    fit.save(tmp_path / "fit")
    arrays = dict(read_arrays(tmp_path / "fit" / "model.npz"))
    about = json.loads(str(arrays["about"])) | {"format": 9}
    write_arrays(tmp_path / "fit" / "model.npz", {**arrays, "about": np.array(json.dumps(about))})
    with pytest.raises(ValueError, match="`folder`.*format 9"):
        Regression.load(tmp_path / "fit")
