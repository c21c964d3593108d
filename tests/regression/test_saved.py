"""Regressions that are saved and loaded again."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.atomic_files import read_arrays, write_arrays
from sgmcmc.regression.fit import Regression
from sgmcmc.regression.saved import packed, unpacked

RNG = np.random.default_rng(3)
N = 300
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(size=N),
        "f": pd.Categorical(RNG.choice(["low", "high"], N), ["low", "high"]),
        "w": RNG.integers(1, 3, N),
    }
)
FRAME["y"] = 1.0 + FRAME["x"] + (FRAME["f"] == "high") + RNG.normal(size=N)
QUICK: dict[str, Any] = {"seed": 1, "verbose": False, "ess": 50}


def test_what_was_saved_comes_back(
    mixed: Regression, effects_of_sites: pd.DataFrame, tmp_path: Path
) -> None:
    mixed.save(tmp_path / "fit")
    again = Regression.load(tmp_path / "fit")
    pd.testing.assert_frame_equal(again.summary(), mixed.summary())
    pd.testing.assert_frame_equal(again.effects(), effects_of_sites)
    assert again.priors == mixed.priors and again.formula == mixed.formula
    assert again.report is not None and again.report.warnings == mixed.report.warnings
    again.save(tmp_path / "fit")  # in its own place


@pytest.mark.slow
def test_predictions_with_effects_come_back(
    mixed: Regression, mixed_frame: pd.DataFrame, tmp_path: Path
) -> None:
    mixed.save(tmp_path / "fit")
    again = Regression.load(tmp_path / "fit")
    new = mixed_frame[:7]
    np.testing.assert_array_equal(again.predict(new), mixed.predict(new))
    assert again.loo().elpd == mixed.loo().elpd


def test_what_cannot_be_saved_or_loaded(mixed: Regression, tmp_path: Path) -> None:
    with_prior = copy.copy(mixed)
    prior = tfp.distributions.Normal(0.0, 1.0)
    with_prior._model = dataclasses.replace(mixed._model, priors={"x": prior})
    with pytest.raises(ValueError, match=r"`priors\['x'\]`"):
        with_prior.save(tmp_path / "fit")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="`folder`.*is not empty"):
        mixed.save(tmp_path / "other")
    with pytest.raises(ValueError, match="`folder`.*no saved regression"):
        Regression.load(tmp_path / "other")
    mixed.save(tmp_path / "fit")
    arrays = dict(read_arrays(tmp_path / "fit" / "model.npz"))
    about = json.loads(str(arrays["about"])) | {"format": 9}
    write_arrays(
        tmp_path / "fit" / "model.npz", {**arrays, "about": np.array(json.dumps(about))}
    )
    with pytest.raises(ValueError, match="`folder`.*format 9"):
        Regression.load(tmp_path / "fit")


KINDS: dict[str, Any] = {
    "intervals": pd.cut(RNG.normal(size=N), [-9, -0.5, 0.5, 9]),
    "quantiles": pd.qcut(RNG.normal(size=N), 3),
    "dates": pd.Categorical(
        pd.to_datetime(RNG.choice(["2020-01-01", "2021-05-05"], N))
    ),
    "zones": pd.Categorical(
        pd.to_datetime(RNG.choice(["2020-01-01", "2021-05-05"], N)).tz_localize(
            "Europe/Rome"
        )
    ),
    "flags": RNG.integers(0, 2, N).astype(bool),
    "flag levels": pd.Categorical(RNG.integers(0, 2, N).astype(bool)),
    "integers": pd.Categorical(RNG.integers(5, 8, N)),
    "floats": pd.Categorical(RNG.choice([0.5, 1.5], N), [1.5, 0.5], ordered=True),
    "text": RNG.choice(["ä b", "", "c\0"], N),
    "several": pd.Categorical(
        RNG.choice(np.array([1, "a", 2.5], object), N), [1, "a", 2.5]
    ),
    "times": pd.to_datetime(RNG.choice(["2020-01-01", "2021-05-05"], N)).tz_localize(
        "Asia/Tokyo"
    ),
    "small": RNG.integers(0, 9, N).astype(np.uint8),
}
UNUSED = {
    "none": [None, "text"] * (N // 2),
    "lists": [[1, 2]] * N,
    "zone": pd.to_datetime(["2020-01-01"] * N).tz_localize("Europe/Rome"),
    "mixed": [1, "a"] * (N // 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_every_kind_come_back(kind: str) -> None:
    frame = pd.DataFrame({kind: pd.Series(KINDS[kind]), "x": np.arange(float(N))})
    arrays, columns = packed(frame)
    assert not any(array.dtype.hasobject for array in arrays.values())
    about = json.loads(json.dumps(columns))
    pd.testing.assert_frame_equal(
        unpacked(arrays, about), frame, check_column_type=False
    )


def test_only_columns_that_are_used_are_written(tmp_path: Path) -> None:
    frame = FRAME.assign(cut=KINDS["intervals"], **UNUSED)
    frame = pd.concat([frame, frame[["zone", "mixed"]]], axis=1)  # two of each
    fit = sgmcmc.glm("I(2 * y) ~ cut + offset(0.1 * x)", frame, weights="w", **QUICK)
    fit.save(tmp_path / "fit")
    again = Regression.load(tmp_path / "fit")
    assert list(again._frame.columns) == ["x", "w", "y", "cut"]
    predicted, compared = fit.predict(frame[:9]), fit.comparisons("x", by="cut")
    for other in (again, pickle.loads(pickle.dumps(fit)), copy.deepcopy(fit)):
        np.testing.assert_array_equal(other.predict(frame[:9]), predicted)
        pd.testing.assert_frame_equal(other.summary(), fit.summary())
        pd.testing.assert_frame_equal(other.comparisons("x", by="cut"), compared)
    assert again.loo().elpd == fit.loo().elpd
    assert fit.predictions(by="none")["rows"].sum() == FRAME["w"].sum()


def test_a_worker_returns_a_regression(mixed: Regression) -> None:
    again = pickle.loads(pickle.dumps(mixed))
    pd.testing.assert_frame_equal(again.summary(), mixed.summary())
    assert again.priors == mixed.priors and repr(again) == repr(mixed)


@pytest.mark.slow
def test_effects_of_what_a_worker_returns(
    mixed: Regression, effects_of_sites: Any
) -> None:
    again = pickle.loads(pickle.dumps(mixed))
    pd.testing.assert_frame_equal(again.effects(), effects_of_sites)


@pytest.mark.parametrize("name", ["effects", "counts", "ordinal", "categorical"])
@pytest.mark.some(2)
def test_what_an_earlier_version_saved(name: str, tmp_path: Path) -> None:
    """Files of format 1, whose chains moved in other units, and what that version said of them."""
    folder = Path(__file__).parent / "format_1" / name
    expected = json.loads((folder / "expected.json").read_text())
    with pytest.warns(UserWarning, match="default priors were others"):
        fit = Regression.load(folder)
    found = {term: [draws.mean(), draws.std()] for term, draws in fit._draws.items()}
    assert list(found) == list(expected["terms"])
    for term, (mean, sd) in expected["terms"].items():
        np.testing.assert_allclose(found[term], [mean, sd], rtol=1e-5, atol=1e-5 * sd)
    if name != "effects":
        predicted = fit.predict(unpacked_rows(folder)[:5])
        np.testing.assert_allclose(predicted, expected["predicted"], rtol=1e-5)
    fit.save(tmp_path / "again")
    assert Regression.load(tmp_path / "again").formula == fit.formula


@pytest.mark.slow
def test_effects_that_an_earlier_version_integrated_out_are_drawn_again() -> None:
    with pytest.warns(UserWarning, match="default priors were others"):
        fit = Regression.load(Path(__file__).parent / "format_1" / "effects")
    assert fit.effects("h").shape == (10, 4)


def unpacked_rows(folder: Path) -> pd.DataFrame:
    arrays = dict(read_arrays(folder / "model.npz"))
    return unpacked(arrays, json.loads(str(arrays["about"]))["columns"])


def test_folders_of_newer_formats_are_refused(
    mixed: Regression, tmp_path: Path
) -> None:
    mixed.save(tmp_path / "fit")
    arrays = dict(read_arrays(tmp_path / "fit" / "model.npz"))
    about = json.loads(str(arrays["about"])) | {"format": 4}
    write_arrays(
        tmp_path / "fit" / "model.npz", {**arrays, "about": np.array(json.dumps(about))}
    )
    with pytest.raises(ValueError, match="format 4 by another version.* up to 3"):
        Regression.load(tmp_path / "fit")
