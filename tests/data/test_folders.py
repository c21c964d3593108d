"""Folders of Parquet: columns in the names of folders, and files that are not Parquet's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from sgmcmc.data.named import open_named
from sgmcmc.data.reading import read_dataset
from sgmcmc.regression.frames import read_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write(folder: Path, parts: dict[str, Any]) -> Path:
    for place, (name, values) in enumerate(parts.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": values}), folder / name / f"part-{place}.parquet")
    return folder


def test_names_of_folders_are_columns(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "data",
        {
            "year=2023/place=B/share=0.5": [1.0],
            "year=2024/place=A%20b/share=1": [2.0, 3.0],
            "year=2024/place=B/share=2": [4.0],
        },
    )
    frame = read_rows(str(folder))[0].sort_values("x")
    assert (
        frame["year"].tolist() == [2023, 2024, 2024, 2024]
        and frame["year"].dtype.kind == "i"
    )
    assert frame["place"].tolist() == ["B", "A b", "A b", "B"]
    assert frame["share"].tolist() == [0.5, 1.0, 1.0, 2.0]
    assert sorted(read_rows(str(folder), lambda head: list(head.columns))[0]) == sorted(
        frame
    )
    data = read_dataset(str(folder), tf.float32, ())
    assert set(data.columns) == {"x", "year", "place", "share"}
    np.testing.assert_allclose(
        data.slice(0, 4)["year"], [2023.0, 2024.0, 2024.0, 2024.0]
    )


def test_folders_at_urls(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    parts = {"year=2023/place=B": [1.0], "year=2024/place=A b": [2.0]}
    where = write(tmp_path / "data", parts).as_uri()
    frame = read_rows(where)[0].sort_values("x")
    assert frame["year"].tolist() == [2023, 2024] and frame["place"].tolist() == [
        "B",
        "A b",
    ]
    assert set(read_dataset(where, tf.float32, ()).columns) == {"x", "year", "place"}


def test_text_in_some_names_is_text_in_all(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", {"g=1": [1.0], "g=01": [2.0], "g=x": [3.0]})
    frame = read_rows(str(folder))[0].sort_values("x")
    assert frame["g"].tolist() == ["1", "01", "x"]
    null = write(
        tmp_path / "null", {"g=1": [1.0], "g=__HIVE_DEFAULT_PARTITION__": [2.0]}
    )
    assert pd.isna(read_rows(str(null))[0].sort_values("x")["g"]).tolist() == [
        False,
        True,
    ]


def test_other_files_are_left_out(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "data", {"": [1.0, 2.0], "_temporary": [5.0], ".hidden": [6.0]}
    )
    for name in (
        "README.txt",
        "_SUCCESS",
        ".part-0.parquet.crc",
        "notes.md",
        "LICENSE",
    ):
        (folder / name).write_text("not a table")
    pq.write_table(pa.table({"x": [3.0]}), folder / "part-without-suffix")
    assert sorted(read_rows(str(folder))[0]["x"]) == [1.0, 2.0, 3.0]
    assert open_named("dataset", folder).count_rows() == 3
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "README.txt").touch()
    with pytest.raises(ValueError, match="`data`: .* contains no Parquet files"):
        read_rows(str(tmp_path / "none"))
    (folder / "broken.parquet").write_bytes(b"broken")
    with pytest.raises(Exception, match="broken|Parquet"):
        read_rows(str(folder))
