"""Regressions × changes of the input after which the posterior must be the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests import seams
from tests.invariances.regressions import DOORS, ROWS, Change, densities

CLOSE: dict[str, Any] = {"rtol": 2e-6, "atol": 2e-6}
"""Rounding of float32, in which designs may be held."""

NUMBERS = ("x", "z", "y")
WHOLE = ("count", "size", "code", "site", "w", "successes", "over")
TEXT = ("kind", "visit")


def _stored(kinds: dict[str, Any]) -> Change:
    """Return a change of the types of columns."""
    return Change(
        lambda frame: frame.astype({n: k for n, k in kinds.items() if n in frame})
    )


def _table(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


def _polars(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("polars").from_pandas(frame)


def _nullable(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.convert_dtypes()


def _of_arrow(frame: pd.DataFrame) -> pd.DataFrame:
    pytest.importorskip("pyarrow")
    return frame.convert_dtypes(dtype_backend="pyarrow")


def _with_more(frame: pd.DataFrame) -> pd.DataFrame:
    unused = {
        "text": [None] * len(frame),
        "lists": [[1, 2]] * len(frame),
        "dates": pd.date_range("2020-01-01", periods=len(frame), tz="UTC"),
        "missing": np.nan,
    }
    return frame.assign(**unused)


def _unused_level(frame: pd.DataFrame) -> pd.DataFrame:
    levels = ["low", "mid", "top", "never"]
    return frame.assign(kind=pd.Categorical(frame["kind"], levels))


SHUFFLED = np.random.default_rng(5).permutation(ROWS)

CHANGES: dict[str, Change] = {
    **{f"integers as {kind}": _stored(dict.fromkeys(WHOLE, kind)) for kind in (
        "int8", "uint8", "int16", "uint64", "float32", "Int8", "Int64",
    )},
    **{f"numbers as {kind}": _stored(dict.fromkeys(NUMBERS, kind)) for kind in (
        "float16", "float32", "Float32", "Float64",
    )},
    "numbers as objects": _stored(dict.fromkeys(NUMBERS, object)),
    "text as categories": _stored(dict.fromkeys(TEXT, "category")),
    "text as string": _stored(dict.fromkeys(TEXT, "string")),
    "text as object": _stored(dict.fromkeys(TEXT, object)),
    "flags as boolean": _stored({"flag": "boolean"}),
    "nullable": Change(_nullable),
    "pandas on Arrow": Change(_of_arrow),
    "a table of Arrow": Change(_table),
    "polars": Change(_polars),
    "a dict of arrays": Change(lambda frame: {n: frame[n].to_numpy() for n in frame}),
    "a dict of lists": Change(lambda frame: {n: frame[n].tolist() for n in frame}),
    "a dict of series": Change(lambda frame: dict(frame.items())),
    "rows in another order": Change(rows=SHUFFLED),
    "an index": Change(lambda frame: frame.set_index(frame.index[::-1] * 3 + 7)),
    "columns in another order": Change(lambda frame: frame[list(frame.columns[::-1])]),
    "unused columns": Change(_with_more),
    "an unused level": Change(_unused_level),
    "names of auxiliaries": Change(names={
        "x": "sigma", "z": "shape", "kind": "nu", "flag": "phi", "code": "zi", "count": "b",
    }),
    "names of entries": Change(names={
        "x": "X", "z": "offset", "kind": "weights", "flag": "place_0", "site": "trials",
        "visit": "censored", "size": "y", "y": "Z_site", "over": "n",
    }),
    "names of groups": Change(names={
        "site": "X", "kind": "weights", "x": "offset", "visit": "y", "y": "trials", "w": "censored",
    }),
    "names of results": Change(names={
        "x": "estimate", "z": "error", "kind": "level", "flag": "lower", "site": "term",
        "count": "Intercept", "visit": "upper",
    }),
    "names of functions": Change(names={
        "x": "log", "z": "C", "kind": "center", "flag": "np", "count": "poly", "site": "I",
    }),
    "names in backticks": Change(names={
        "x": "my x", "z": "z.z", "kind": "the kind", "flag": "is it?", "site": "site-id",
        "count": "class", "size": "lambda", "y": "π²/2", "visit": "a:b", "code": "1st",
        "over": "T", "successes": "a|b", "w": "(w)",
    }),
}  # fmt: skip
"""Changes by name."""


@functools.cache
def _before(name: str) -> np.ndarray:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return densities(DOORS[name], Change(), monkeypatch)


@pytest.mark.some(150)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.some(75)
def test_the_posterior_is_the_same(
    door: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = densities(DOORS[door], CHANGES[change], monkeypatch)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, _before(door), **CLOSE)


def _one_file(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def _several_files(frame: pd.DataFrame, folder: Path) -> Any:
    for number, start in enumerate(range(0, len(frame), 40)):
        frame.iloc[start : start + 40].to_parquet(folder / f"{number}.parquet")
    (folder / "README.txt").write_text("rows")
    return folder


def _with_codes(frame: pd.DataFrame, folder: Path) -> Any:
    return _several_files(frame.astype(dict.fromkeys(TEXT, "category")), folder)


@pytest.mark.some(8)
@pytest.mark.parametrize("write", [_one_file, _several_files, _with_codes])
@pytest.mark.parametrize("door", ["terms", "expressions", "crossed", "levels"])
@pytest.mark.parametrize("mapped", [False, True])
def test_files_have_the_same_posterior(
    door: str,
    write: Callable[[pd.DataFrame, Path], Any],
    mapped: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyarrow.parquet")
    if mapped:
        settings = seams.changed(seams.REGRESSION_FRAMES, mapped=10)
        monkeypatch.setattr(seams.REGRESSION_FRAMES, settings)
    change = Change(lambda frame: write(frame, tmp_path))
    np.testing.assert_allclose(
        densities(DOORS[door], change, monkeypatch), _before(door), **CLOSE
    )
