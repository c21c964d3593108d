"""Data of a regression in frames, Arrow tables and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.regression.frames import as_frame
from tests import seams

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(4)
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(size=300),
        "f": pd.Categorical(
            RNG.choice(["a", "b", "c"], 300), categories=["c", "a", "b"]
        ),
        "s": RNG.choice(["north", "south"], 300),
        "unused": RNG.normal(size=300),
    }
)
FRAME["y"] = 1.0 + 0.5 * FRAME.x + RNG.normal(size=300)
SHORT: dict[str, Any] = {"seed": 1, "verbose": False, "n_iters": 100}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two Parquet files."""
    path = tmp_path / "rows"
    path.mkdir()
    FRAME[:200].to_parquet(path / "a.parquet")
    FRAME[200:].to_parquet(path / "b.parquet")
    return path


def test_every_source_gives_the_same_rows(folder: Path) -> None:
    FRAME.to_parquet(folder.parent / "one.parquet")
    sources: list[Any] = [
        pa.Table.from_pandas(FRAME), dataset.dataset(folder), folder, str(folder),
        folder.parent / "one.parquet",
    ]  # fmt: skip
    for source in sources:
        pd.testing.assert_frame_equal(as_frame(source), as_frame(FRAME))
    pd.testing.assert_frame_equal(
        as_frame(FRAME), FRAME, check_dtype=False, check_categorical=False
    )


@pytest.fixture(scope="module")
def of_frame() -> sgmcmc.Regression:
    return sgmcmc.glm("y ~ .", FRAME, **SHORT)


def test_a_folder_gives_the_same_draws(
    folder: Path, of_frame: sgmcmc.Regression
) -> None:
    found, wanted = sgmcmc.glm("y ~ .", folder, **SHORT).summary(), of_frame.summary()
    pd.testing.assert_frame_equal(found, wanted)
    # A dot is all other columns; the order of the categories is that of the frame.
    assert {"unused", "f[T.a]"} <= set(found.index)


def test_large_files_are_mapped(
    folder: Path, of_frame: sgmcmc.Regression, monkeypatch: Any
) -> None:
    settings = seams.changed(seams.REGRESSION_FRAMES, mapped=100)
    monkeypatch.setattr(seams.REGRESSION_FRAMES, settings)
    monkeypatch.setattr(seams.STORED_PIECE_BYTES, 100)
    frame = as_frame(folder)
    assert frame.attrs == {"text": ["s"]} and isinstance(
        frame["s"].dtype, pd.CategoricalDtype
    )
    assert list(frame["f"].cat.categories) == ["c", "a", "b"]
    for name in FRAME.columns:
        assert (frame[name].astype(str) == FRAME[name].astype(str)).all()
    fit = sgmcmc.glm("y ~ .", folder, **SHORT)
    pd.testing.assert_frame_equal(fit.summary(), of_frame.summary())
    np.testing.assert_array_equal(fit.fitted, of_frame.fitted)
    with pytest.raises(TypeError, match="text has no order"):
        sgmcmc.glm("s ~ x", folder, "ordinal")


def test_missing_values_of_large_files(tmp_path: Path, monkeypatch: Any) -> None:
    settings = seams.changed(seams.REGRESSION_FRAMES, mapped=10)
    monkeypatch.setattr(seams.REGRESSION_FRAMES, settings)
    gone = np.arange(300) % 50 == 0
    columns = {
        "y": pa.array(FRAME["y"]),
        "k": pa.array(np.arange(300), mask=gone),
        "s": pa.array(list(FRAME["s"]), mask=np.roll(gone, 1)),
        "x": pa.array(FRAME["x"], mask=np.roll(gone, 2)),
    }
    path = tmp_path / "gaps.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    for name in ("k", "s", "x"):
        with pytest.raises(
            ValueError, match=rf"`data\['{name}'\]` has .*missing values"
        ):
            sgmcmc.glm(f"y ~ {name}", path, n_iters=100)
    fit = sgmcmc.glm(
        "y ~ k + s + x",
        path,
        missing="drop",
        weights=np.ones(300),
        **SHORT,
    )
    assert fit.dropped == 18 and len(fit.fitted) == 282


def test_columns_of_the_formula_alone_are_read(folder: Path) -> None:
    found = as_frame(
        folder, lambda head: [name for name in head.columns if name in ("y", "x")]
    )
    assert list(found.columns) == ["x", "y"] and len(found) == 300
    assert set(as_frame(folder).columns) == set(FRAME.columns)


def test_wrong_paths(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    with pytest.raises(TypeError, match="^`data` is .*Parquet"):
        sgmcmc.glm("y ~ x", tmp_path / "rows.csv")
    with pytest.raises(ValueError, match="^`data`: there is no"):
        sgmcmc.glm("y ~ x", tmp_path / "none.parquet")
