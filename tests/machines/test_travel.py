"""Datasets on their way to workers: files are opened there, by path and key; the rest is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.data.dataset import ArrayColumn, Data, MappedColumn
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.stored import LateColumn
from sgmcmc.data.transfer import courier
from sgmcmc.machines.worker import Unpickler, pack

ROWS = np.random.default_rng(1).normal(size=(5000, 4)).astype(np.float32)


def sent(dataset: Any) -> tuple[Data, Data, int]:
    """Return a dataset here and as it arrives in a worker, and the bytes that went there."""
    data = read_dataset(dataset, tf.float32)
    key, recipe = courier(data)
    blob = pack(recipe(), {}).blob
    assert courier(data)[0] == key
    return data, Unpickler(blob, {}).load(), len(blob)


def check(dataset: Any, most_bytes: int = 2000) -> Data:
    """See that a dataset arrives whole, and return it."""
    here, there, size = sent(dataset)
    assert size < most_bytes and there.size == here.size
    assert list(there.columns) == list(here.columns)
    for name, column in there.columns.items():
        np.testing.assert_array_equal(
            tf.convert_to_tensor(column.tensor(0, there.size)),
            tf.convert_to_tensor(here.columns[name].tensor(0, here.size)),
        )
    return there


def test_arrays_are_sent() -> None:
    there = check({"x": ROWS, "g": tf.constant(np.arange(5000))}, 200_000)
    assert isinstance(there.columns["x"], ArrayColumn)
    one, two = (courier(read_dataset({"x": ROWS + k}, tf.float32))[0] for k in (0, 1))
    assert one != two and one == courier(read_dataset({"x": ROWS}, tf.float32))[0]


@pytest.mark.parametrize("part", [slice(None), slice(100, 4000)])
def test_mapped_files_are_mapped(tmp_path: Path, part: slice) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    there = check({"x": np.load(tmp_path / "x.npy", mmap_mode="r")[part]})
    assert isinstance(there.columns["x"], MappedColumn)


def test_mapped_files_with_gaps_are_sent(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    check({"x": np.load(tmp_path / "x.npy", mmap_mode="r")[::2]}, 50_000)


def test_hdf5_is_opened(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("a/x", data=ROWS, chunks=(500, 4), compression="gzip")
    with h5py.File(tmp_path / "x.h5", "r") as file:
        there = check({"x": file["a/x"], "y": ROWS[:, 0]}, 25_000)
    column = there.columns["x"]
    assert isinstance(column, LateColumn) and column.address is None
    column.unpack()
    assert column.address is not None
    rows, out = np.array([4999, 3, 3]), np.empty((3, 4), np.float32)
    column.take(rows, out)
    np.testing.assert_array_equal(out, ROWS[rows])


def test_zarr_is_opened(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(5000, 4), chunks=(500, 4), dtype="f4"
    )
    array[:] = ROWS
    check({"x": array}, 5000)


def test_parquet_is_opened(tmp_path: Path) -> None:
    parquet, pyarrow = (
        pytest.importorskip("pyarrow.parquet"),
        pytest.importorskip("pyarrow"),
    )
    table = pyarrow.table({f"x{k}": ROWS[:, k] for k in range(4)})
    parquet.write_table(table, tmp_path / "x.parquet")
    check(str(tmp_path / "x.parquet"))
    check({"x": str(tmp_path / "x.parquet")})


def test_another_file_is_noticed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ROWS)
    data = read_dataset({"x": np.load(tmp_path / "x.npy", mmap_mode="r")}, tf.float32)
    blob = pack(courier(data)[1](), {}).blob
    (tmp_path / "x.npy").unlink()
    with pytest.raises(OSError, match="`executor`: a worker cannot open the dataset"):
        Unpickler(blob, {}).load()
    np.save(tmp_path / "x.npy", ROWS + 1)
    with pytest.raises(
        ValueError, match="a worker finds other values in `dataset\\['x'\\]`"
    ):
        Unpickler(blob, {}).load()
