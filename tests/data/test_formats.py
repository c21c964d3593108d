"""Data as they lie: tables of other libraries, and files in a form that has to be unpacked."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

import sgmcmc
from sgmcmc.data import stored
from sgmcmc.data.dataset import MappedColumn
from sgmcmc.data.passes import chunks, shards
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.stored import StoredColumn
from tests import seams
from tests.conftest import short_call

RNG = np.random.default_rng(2)
X = RNG.normal(size=(101, 3)).astype(np.float32)
G = RNG.integers(0, 4, 101)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
NAMES = np.array(["n", "e", "s", "w"])


class Rows:
    """An array of which nothing is known but its shape."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self._array = array.shape, array

    def __getitem__(self, rows: Any) -> list:
        return self._array[rows].tolist()


def arrow_table() -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.table({name: X[:, i] for i, name in enumerate("abc")})


def parquet(path: Path, parts: int = 1) -> Path:
    """Write the table to a file, or to a folder of several."""
    pq = pytest.importorskip("pyarrow.parquet")
    if parts == 1:
        pq.write_table(arrow_table(), path / "x.parquet", row_group_size=17)
        return path / "x.parquet"
    (path / "x").mkdir()
    for part in range(parts):
        rows = slice(part * 50, 101 if part == parts - 1 else (part + 1) * 50)
        pq.write_table(arrow_table()[rows], path / "x" / f"part-{part}.parquet")
    return path / "x"


def scanner(path: Path) -> Any:
    return (
        pytest.importorskip("pyarrow.dataset")
        .dataset(path)
        .scanner(columns=["a", "b", "c"])
    )


def arrow_dataset(path: Path, form: str) -> Any:
    """Write the table in a form that Arrow's datasets read, and open it."""
    dataset = pytest.importorskip("pyarrow.dataset")
    dataset.write_dataset(arrow_table(), path / form, format=form)
    return dataset.dataset(path / form, format=form)


def filtered_dataset(path: Path) -> Any:
    """Return a dataset with a filter that all rows pass."""
    field = pytest.importorskip("pyarrow.dataset").field
    return arrow_dataset(path, "parquet").filter(field("a") > -1e9)


def zarr_array(path: Path, array: np.ndarray = X, **given: Any) -> Any:
    zarr = pytest.importorskip("zarr")
    given = {"chunks": (7, *array.shape[1:]), **given}
    made = zarr.create_array(
        path / "x.zarr", shape=array.shape, dtype=array.dtype, **given
    )
    made[...] = array
    return made


def hdf5(path: Path, array: np.ndarray = X, **given: Any) -> Any:
    h5py = pytest.importorskip("h5py")
    return h5py.File(path / "x.h5", "w").create_dataset("x", data=array, **given)


def hugging_face(**columns: Any) -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


MATRICES: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda _: FRAME,
    "pandas of several dtypes": lambda _: FRAME.assign(b=FRAME["b"].astype("Float32")),
    "pandas with numbers for names": lambda _: pd.DataFrame(X),
    "Arrow": lambda _: arrow_table(),
    "Arrow batch": lambda _: arrow_table().to_batches()[0],
    "Arrow scanner": lambda path: scanner(parquet(path)),
    "Arrow dataset": lambda path: pytest.importorskip("pyarrow.dataset").dataset(
        parquet(path, 3)
    ),
    "Parquet": parquet,
    "Parquet by name": lambda path: str(parquet(path)),
    "Parquet file": lambda path: pytest.importorskip("pyarrow.parquet").ParquetFile(
        parquet(path)
    ),
    "Parquet folder": lambda path: parquet(path, parts=2),
    "HDF5": hdf5,
    "HDF5 in chunks": lambda path: hdf5(path, chunks=(8, 2)),
    "HDF5 compressed": lambda path: hdf5(path, chunks=(10, 3), compression="gzip"),
    "HDF5 big endian": lambda path: hdf5(path, X.astype(">f4")),
    "HDF5 in memory": lambda _: (
        pytest.importorskip("h5py")
        .File("x", "w", driver="core", backing_store=False)
        .create_dataset("x", data=X)
    ),
    "Zarr": zarr_array,
    "Zarr with shards": lambda path: zarr_array(path, shards=(14, 3)),
    "Dask": lambda _: pytest.importorskip("dask.array").from_array(X, chunks=(30, 2)),
    "Dask frame": lambda _: pytest.importorskip("dask.dataframe").from_pandas(FRAME, 3),
    "Hugging Face": lambda _: hugging_face(a=X[:, 0], b=X[:, 1], c=X[:, 2]),
    "Hugging Face lists": lambda _: hugging_face(x=X.tolist()),
    "Hugging Face column": lambda _: hugging_face(x=X.tolist(), y=G)["x"],
    "shape and rows": lambda _: Rows(X),
}


@pytest.mark.parametrize("form", MATRICES)
def test_forms_of_a_matrix(form: str, tmp_path: Path) -> None:
    """Whatever the form, the chain reads the numbers of the array, by rows and in pieces."""
    data = read_dataset({"x": MATRICES[form](tmp_path)}, tf.float32)
    rows = np.array([[5, 5, 100], [0, 7, 31]])
    assert data.size == 101
    np.testing.assert_array_equal(data.rows(rows)["x"], X[rows])
    parts = [
        part["x"] for shard in shards(data, 13) for *_, part in chunks(data, shard)
    ]
    whole = np.concatenate(parts)
    np.testing.assert_array_equal(whole, X)


VECTORS: dict[str, Callable[[Path], Any]] = {
    "pandas column": lambda _: FRAME["a"],
    "Arrow column": lambda _: arrow_table()["a"],
    "Arrow array": lambda _: arrow_table()["a"].combine_chunks(),
    "Arrow table of one column": lambda _: arrow_table().select(["a"]),
    "HDF5": lambda path: hdf5(path, X[:, 0], chunks=(9,)),
    "Zarr": lambda path: zarr_array(path, X[:, 0]),
    "Dask": lambda _: pytest.importorskip("dask.array").from_array(X[:, 0], chunks=30),
    "Dask column": lambda _: pytest.importorskip("dask.dataframe").from_pandas(
        FRAME, 3
    )["a"],
    "Hugging Face column": lambda _: hugging_face(a=X[:, 0])["a"],
    "shape and rows": lambda _: Rows(X[:, 0]),
}


@pytest.mark.parametrize("form", VECTORS)
def test_forms_of_a_vector(form: str, tmp_path: Path) -> None:
    data = read_dataset({"x": VECTORS[form](tmp_path)}, tf.float32)
    np.testing.assert_array_equal(data.whole["x"], X[:, 0])


TABLES: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda _: FRAME,
    "Arrow": lambda _: arrow_table(),
    "Parquet": parquet,
    "Parquet folder": lambda path: str(parquet(path, parts=2)),
    "Arrow dataset of Feather": lambda path: arrow_dataset(path, "feather"),
    "Arrow dataset of CSV": lambda path: arrow_dataset(path, "csv"),
    "Arrow dataset in memory": lambda _: pytest.importorskip("pyarrow.dataset").dataset(
        arrow_table()
    ),
    "Arrow dataset, filtered": filtered_dataset,
    "Dask frame": lambda _: pytest.importorskip("dask.dataframe").from_pandas(FRAME, 3),
    "Hugging Face": lambda _: hugging_face(a=X[:, 0], b=X[:, 1], c=X[:, 2]),
}


@pytest.mark.parametrize("form", TABLES)
def test_a_table_is_a_dataset_of_its_columns(form: str, tmp_path: Path) -> None:
    data = read_dataset(TABLES[form](tmp_path), tf.float32)
    assert list(data.columns) == ["a", "b", "c"]
    for i, name in enumerate("abc"):
        np.testing.assert_array_equal(data.whole[name], X[:, i])


def coded_parquet(path: Path) -> Path:
    """Write categories whose numbers differ between the files of a folder."""
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    (path / "g").mkdir()
    for part, rows in enumerate((slice(0, 50), slice(50, None))):
        words = pa.array(NAMES[G[rows]]).dictionary_encode()
        pq.write_table(pa.table({"g": words}), path / "g" / f"part-{part}.parquet")
    return path / "g"


CATEGORIES: dict[str, Callable[[Path], Any]] = {
    "Series": lambda _: pd.Series(NAMES[G], dtype=pd.CategoricalDtype(NAMES)),
    "Categorical": lambda _: pd.Categorical(NAMES[G], NAMES),
    "Arrow": lambda _: pytest.importorskip("pyarrow").DictionaryArray.from_arrays(
        G.astype(np.int8), NAMES
    ),
    "Parquet": coded_parquet,
}


@pytest.mark.parametrize("form", CATEGORIES)
def test_categories_stay_whole_numbers(form: str, tmp_path: Path) -> None:
    found = read_dataset({"g": CATEGORIES[form](tmp_path)}, tf.float32).whole["g"]
    assert found.dtype == tf.int32
    numbers = {a: b for a, b in zip(G.tolist(), found.numpy().tolist(), strict=True)}
    assert sorted(numbers.values()) == [0, 1, 2, 3]
    np.testing.assert_array_equal(found, [numbers[g] for g in G.tolist()])
    if form != "Parquet":
        np.testing.assert_array_equal(found, G)


def test_categories_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"g": datasets.ClassLabel(names=NAMES.tolist())})
    table = datasets.Dataset.from_dict({"g": G}, features=kinds)
    found = read_dataset(table, tf.float32).whole["g"]
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, G)


def test_a_category_in_a_chain(run: Callable[..., sgmcmc.Samples]) -> None:
    def by_group(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        means = tf.gather(params["u"], dataset["g"])
        return -0.5 * tf.reduce_sum((dataset["y"] - means) ** 2)

    frame = pd.DataFrame({"y": 10.0 * G, "g": pd.Categorical(NAMES[G], NAMES)})
    start = {"u": [0.0, 10.0, 20.0, 30.0]}
    samples = run(dataset=frame, params=start, log_lik=by_group, stepsize=1e-6)
    np.testing.assert_allclose(samples["u"][-1], start["u"], atol=0.1)


INTEGERS: dict[str, Callable[[Path], Any]] = {
    "int64": lambda _: {"g": G, "h": G},
    "whole floats": lambda _: {"g": G.astype(np.float64), "h": G},
    "a list": lambda _: {"g": G.tolist(), "h": G},
    "a tensor of floats": lambda _: {"g": tf.constant(G, tf.float32), "h": G},
    "pandas": lambda _: pd.DataFrame({"g": G, "h": G}),
    "a categorical": lambda _: {"g": pd.Categorical(NAMES[G], NAMES), "h": G},
    "HDF5": lambda path: {"g": hdf5(path, G), "h": G},
    "Arrow": lambda _: pytest.importorskip("pyarrow").table({"g": G, "h": G}),
    "sparse": lambda _: {"g": scipy.sparse.csr_array(G[:, np.newaxis]), "h": G},
}


@pytest.mark.parametrize("form", INTEGERS)
def test_columns_that_stay_whole_numbers(form: str, tmp_path: Path) -> None:
    columns = read_dataset(INTEGERS[form](tmp_path), tf.float32, ["g"]).whole
    assert (columns["g"].dtype, columns["h"].dtype) == (tf.int32, tf.float32)
    found = columns["g"] if form != "sparse" else tf.sparse.to_dense(columns["g"])[:, 0]
    np.testing.assert_array_equal(found, G)


@pytest.mark.parametrize(
    ("values", "names", "words"),
    [
        (G + 0.5, ["g"], ("`dataset['g']`", "`integers`", "not an integer")),
        (np.where(G > 2, np.nan, G), ["g"], ("`dataset['g']`", "NaN")),
        (G + 2**31, ["g"], ("`dataset['g']`", "int32", "tf.constant(g, tf.int64)")),
        (G, ["grop"], ("`integers`", "'grop'", "'g'")),
        (G, 3, ("`integers`", "list of names")),
    ],
    ids=["fractions", "NaN", "range", "no such column", "no list"],
)
def test_whole_numbers_that_are_refused(
    values: np.ndarray,
    names: Any,
    words: tuple[str, ...],
    run: Callable[..., sgmcmc.Samples],
) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        run(dataset={"g": values}, integers=names)
    for word in words:
        assert word in str(error.value)


def test_an_index_in_a_chain_and_in_predictions(
    run: Callable[..., sgmcmc.Samples],
) -> None:
    def mean(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.gather(params["u"], dataset["g"])

    def by_group(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((dataset["y"] - mean(params, dataset)) ** 2)

    start = {"u": [0.0, 10.0, 20.0, 30.0]}
    samples = run(
        dataset={"y": 10.0 * G, "g": G}, params=start, log_lik=by_group, stepsize=1e-6,
        integers="g",
    )  # fmt: skip
    assert samples.settings["integers"] == ["g"]
    found = samples.predict(mean, {"g": [3, 0]})
    np.testing.assert_allclose(found, [30.0, 0.0], atol=0.1)


def test_numbers_of_all_kinds_beside_each_other() -> None:
    frame = pd.DataFrame(
        {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": [True, False, True]}
    )
    found = read_dataset({"x": frame}, tf.float64).whole["x"]
    np.testing.assert_array_equal(found, [[1, 0.5, 1], [2, 1.5, 0], [3, 2.5, 1]])
    if pa := pytest.importorskip("pyarrow"):
        found = read_dataset({"x": pa.Table.from_pandas(frame)}, tf.float64).whole["x"]
        np.testing.assert_array_equal(found, frame.to_numpy(float))


def arrow_of(*values: Any, **given: Any) -> Any:
    return pytest.importorskip("pyarrow").array(*values, **given)


REFUSED: dict[str, tuple[Callable[[Path], Any], type[Exception], tuple[str, ...]]] = {
    "tf.data as an entry": (
        lambda _: {"x": tf.data.Dataset.from_tensor_slices(X)},
        TypeError,
        ("`dataset['x']`", "at random"),
    ),
    "a generator": (
        lambda _: {"x": (row for row in X)},
        TypeError,
        ("generator", "at random"),
    ),
    "another file": (
        lambda _: {"x": "x.csv"},
        TypeError,
        ("`dataset['x']`", "'x.csv'", "open"),
    ),
    "no such file": (
        lambda path: {"x": path / "y.parquet"},
        ValueError,
        ("`dataset['x']`", "there is no"),
    ),
    "missing in pandas": (
        lambda _: {"x": pd.Series([1, None], dtype="Int64")},
        ValueError,
        ("`dataset['x']`", "missing"),
    ),
    "a missing category": (
        lambda _: {"g": pd.Categorical(["a", None])},
        ValueError,
        ("`dataset['g']`", "missing"),
    ),
    "text in a frame": (
        lambda _: {"x": FRAME.assign(b="no")},
        TypeError,
        ("`dataset['x']['b']`", "real numbers", "Code"),
    ),
    "categories in a matrix": (
        lambda _: {"x": FRAME.assign(b=pd.Categorical(NAMES[G]))},
        TypeError,
        ("`dataset['x']`", "'b'", "categories", "by itself"),
    ),
    "missing in Arrow": (
        lambda _: {"x": arrow_of([1.0, None])},
        ValueError,
        ("`dataset['x']`", "missing"),
    ),
    "text in Arrow": (
        lambda _: {"x": arrow_of(["a"])},
        TypeError,
        ("`dataset['x']`", "Code"),
    ),
    "lists of several lengths": (
        lambda _: {"x": arrow_of([[1.0], [1.0, 2.0]])},
        ValueError,
        ("`dataset['x']`", "different lengths"),
    ),
    "splits": (
        lambda _: {
            "x": pytest.importorskip("datasets").DatasetDict(
                train=hugging_face(x=[1.0])
            )
        },
        TypeError,
        ("`dataset['x']`", "'train'", "choose"),
    ),
    "splits for a dataset": (
        lambda _: pytest.importorskip("datasets").DatasetDict(
            train=hugging_face(x=[1.0])
        ),
        TypeError,
        ("`dataset`", "'train'", "choose"),
    ),
    "a Hugging Face stream": (
        lambda _: {"x": hugging_face(x=[1.0]).to_iterable_dataset()},
        TypeError,
        ("`dataset['x']`", "IterableDataset", "at random"),
    ),
    "NaN in a later chunk": (
        lambda path: {"x": hdf5(path, np.where(np.arange(101) == 70, np.nan, X[:, 0]))},
        ValueError,
        ("`dataset['x']`", "NaN", "(70,)"),
    ),
    "Dask of unknown length": (
        lambda _: {
            "x": (lambda a: a[a > 0])(pytest.importorskip("dask.array").ones(20))
        },
        ValueError,
        ("`dataset['x']`", "compute_chunk_sizes"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, error, says = REFUSED[what]
    monkeypatch.setattr(seams.SLAB_BYTES, 160)
    with pytest.raises(error) as caught:
        read_dataset(make(tmp_path), tf.float32)
    assert caught.type is error
    for part in says:
        assert part in str(caught.value)


def test_hdf5_as_in_memory_is_mapped_and_the_rest_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = read_dataset({"x": hdf5(tmp_path)}, tf.float32).columns["x"]
    assert isinstance(column, MappedColumn) and isinstance(
        column._array.base, np.memmap
    )
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(seams.STORED_PIECE_BYTES, 100)
    column = read_dataset({"x": zarr_array(tmp_path)}, tf.float32).columns["x"]
    assert isinstance(column, MappedColumn) and column.address is not None
    np.testing.assert_array_equal(column.slice(0, 101), X)
    assert list((tmp_path / "temporary").iterdir()) == [], (
        "the file goes with the process"
    )


def test_a_full_folder_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: Any) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored.tempfile, "TemporaryFile", lambda **_: Full())
    monkeypatch.setattr(seams.STORED_PIECE_BYTES, 10)
    with pytest.raises(OSError, match="`dataset`.*TMPDIR"):
        stored.Spool(np.dtype(np.float32)).add(X)


@pytest.mark.parametrize("chunks", [None, (8, 2), (200, 3)])
def test_without_room_whole_chunks_are_read(
    chunks: tuple[int, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are asked for, each chunk is read once."""
    monkeypatch.setattr(seams.HAS_ROOM, lambda *_: False)
    monkeypatch.setattr(seams.SLAB_BYTES, 16 * 12)
    array = X[:, 0] if chunks is None else X
    source = (
        Rows(array) if chunks is None else hdf5(tmp_path, X, chunks=(chunks[0] // 2, 3))
    )
    column = read_dataset({"x": source}, tf.float32).columns["x"]
    assert isinstance(column, StoredColumn)
    rows = RNG.integers(0, 101, (40, 6))
    out = np.empty(rows.shape + array.shape[1:], np.float32)
    read, really = [], StoredColumn._read

    def counted(self: StoredColumn, number: int) -> np.ndarray:
        read.append(number)
        return really(self, number)

    monkeypatch.setattr(seams.STORED_COLUMN_READ, counted)
    column.take(rows, out)
    np.testing.assert_array_equal(out, array[rows])
    assert sorted(read) == sorted(set(read))
    np.testing.assert_array_equal(column.slice(3, 90), array[3:90])
    assert column.digest() == MappedColumn(array, np.dtype(np.float32)).digest()


@functools.cache
def of_the_array() -> sgmcmc.Samples:
    return short_call(dataset={"x": X[:, 0]})


@pytest.mark.some(3)
@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize("form", ["HDF5", "Zarr", "Arrow column"])
def test_the_chain_is_that_of_the_array(
    form: str, room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.HAS_ROOM, lambda *_: room)
    samples = short_call(dataset={"x": VECTORS[form](tmp_path)})
    np.testing.assert_array_equal(samples["theta"], of_the_array()["theta"])


def test_a_block_of_hdf5_is_read_in_no_time(
    tmp_path: Path, run: Callable[..., sgmcmc.Samples]
) -> None:
    """Two million scattered rows in one index took minutes; the file is 6 MB."""
    source = hdf5(tmp_path, np.zeros((200_000, 8), np.float32), chunks=(1000, 8))

    def flat(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return -tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)

    began = time.process_time()
    run(
        dataset={"x": source},
        n_iters=1,
        minibatch_size=0.01,
        log_lik=flat,
        stepsize=1e-7,
    )
    assert time.process_time() - began < 3.0
