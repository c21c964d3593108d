"""Data that come once and in order: `tf.data`, PyTorch's, iterators of batches, Arrow's streams."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data import tables
from sgmcmc.data.reading import read_dataset
from tests import seams
from tests.conftest import short_call

RNG = np.random.default_rng(4)
X = RNG.normal(size=(1003, 3)).astype(np.float32)
Y = RNG.integers(0, 5, 1003)
COLUMNS = {"x": X, "y": Y}


def rows() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(COLUMNS)


def batches(size: int = 100) -> Iterator[dict[str, Any]]:
    for start in range(0, len(X), size):
        yield {name: array[start : start + size] for name, array in COLUMNS.items()}


class Loader:
    """A loader of somebody's own."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return batches(64)


def torch_rows() -> Any:
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, k: int) -> dict[str, Any]:
            return {"x": torch.tensor(X[k], requires_grad=True), "y": int(Y[k])}

    return Rows()


def loader(**given: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(torch_rows(), **{"batch_size": 100, **given})


def generated() -> tf.data.Dataset:
    """A dataset of which `tf.data` knows no shapes."""
    kinds = {"x": tf.float32, "y": tf.int64}
    return tf.data.Dataset.from_generator(batches, output_types=kinds)


STREAMS: dict[str, Callable[[], Any]] = {
    "tf.data rows": rows,
    "tf.data batches": lambda: rows().batch(64),
    "tf.data of one size": lambda: rows().batch(64).unbatch().batch(17).prefetch(2),
    "tf.data without shapes": generated,
    "generator": batches,
    "loader": Loader,
    "map": lambda: map(dict, batches()),
    "PyTorch dataset": torch_rows,
    "PyTorch loader": loader,
    "Hugging Face": lambda: (
        pytest.importorskip("datasets")
        .Dataset.from_dict({"x": X.tolist(), "y": Y})
        .to_iterable_dataset()
    ),
}


@pytest.mark.parametrize("form", STREAMS)
def test_streams_are_the_arrays(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams.TABLES_SETTINGS, tables._Settings(torch_rows=300))
    data = read_dataset(STREAMS[form](), tf.float32, ["y"])
    assert data.size == 1003 and list(data.columns) == ["x", "y"]
    np.testing.assert_array_equal(data.whole["x"], X)
    assert data.whole["y"].dtype == tf.int32
    np.testing.assert_array_equal(data.whole["y"], Y)


def test_the_chain_is_that_of_the_arrays_and_goes_on() -> None:
    stream = ({"x": part["x"][:, 0]} for part in batches())
    found = short_call(dataset=stream)
    np.testing.assert_array_equal(
        found["theta"], short_call(dataset={"x": X[:, 0]})["theta"]
    )
    again = short_call(dataset=stream)  # which is used up
    np.testing.assert_array_equal(again["theta"], found["theta"])
    shuffled = (
        tf.data.Dataset.from_tensor_slices({"x": X[:, 0]}).shuffle(1003).batch(50)
    )
    one, two = (short_call(dataset=shuffled)["theta"] for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_what_was_unpacked_goes_with_its_stream() -> None:
    stream = batches()
    data = read_dataset(stream, tf.float32)
    assert read_dataset(stream, tf.float32) is data
    with pytest.raises(ValueError, match="used up"):
        read_dataset(stream, tf.float64)
    known = len(tables._unpacked_streams)
    del stream
    gc.collect()
    assert len(tables._unpacked_streams) == known - 1


def endless() -> Iterator[dict[str, Any]]:
    while True:
        yield {"x": X}


def changing() -> Iterator[dict[str, Any]]:
    yield {"x": X}
    yield {"x": X[:, 0]}


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "repeat": (
        lambda: rows().batch(9).repeat(),
        ValueError,
        ("without end", "take(n)"),
    ),
    "cycle": (
        lambda: itertools.cycle([{"x": X}]),
        ValueError,
        ("itertools.cycle", "islice"),
    ),
    "without end": (
        endless,
        ValueError,
        ("1003", "come to an end", "islice", "TMPDIR"),
    ),
    "rows or batches": (
        lambda: tf.data.Dataset.from_tensor_slices({"x": X}),
        ValueError,
        ("(3,)", "dataset.batch(1000)", "dataset.unbatch()"),
    ),
    "tuples of tf.data": (
        lambda: tf.data.Dataset.from_tensor_slices((X, Y)),
        TypeError,
        ("dicts", "tuple", "dataset.map(lambda x, y"),
    ),
    "tuples": (
        lambda: zip(X, Y, strict=True),
        TypeError,
        ("dicts", "for x, y in batches"),
    ),
    "ragged": (
        lambda: tf.data.Dataset.from_tensors(
            {"x": tf.ragged.constant([[1.0], [1.0, 2.0]])}
        ),
        TypeError,
        ("`dataset['x']`", "dense", "RaggedTensorSpec"),
    ),
    "rows": (
        lambda: ({"x": x, "y": y} for x, y in zip(X, Y, strict=True)),
        ValueError,
        ("`dataset['y']`", "batches"),
    ),
    "lengths": (lambda: iter([{"x": X, "y": Y[1:]}]), ValueError, ("1003", "1002")),
    "other shapes": (changing, ValueError, ("after 1003 rows", "(3,)")),
    "other names": (lambda: iter([{"x": X}, {"y": X}]), ValueError, ("same names",)),
    "nothing": (lambda: iter(()), ValueError, ("empty", "used up")),
    "NaN": (
        lambda: iter([{"x": X}, {"x": X * np.nan}]),
        ValueError,
        ("NaN", "(1003, 0)"),
    ),
    "text": (lambda: iter([{"x": ["a"]}]), TypeError, ("real numbers", "str")),
    "replacement": (
        lambda: loader(
            sampler=pytest.importorskip("torch").utils.data.RandomSampler(
                X, replacement=True
            )
        ),
        ValueError,
        ("with replacement",),
    ),
    "dropped": (lambda: loader(drop_last=True), ValueError, ("drop_last",)),
    "an iterable dataset": (
        lambda: type(
            "Rows",
            (pytest.importorskip("torch").utils.data.IterableDataset,),
            {"__iter__": lambda _: batches()},
        )(),
        TypeError,
        ("DataLoader(dataset, batch_size=1000)",),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, error, says = REFUSED[what]
    monkeypatch.setattr(seams.STREAMS_PIECE_BYTES, 1000)
    if what == "without end":
        usage = type("Usage", (), {"free": 10_000})
        monkeypatch.setattr(tables.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(error) as caught:
        read_dataset(make(), tf.float32)
    for part in ("`dataset", *says):
        assert part in str(caught.value)


class OfArrow:
    """What gives its columns as a stream of Arrow's, and is of no library that is known."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def arrow_table() -> Any:
    return pytest.importorskip("pyarrow").table(
        {**dict(zip("abc", X.T, strict=True)), "y": Y}
    )


def of_polars() -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({**dict(zip("abc", X.T, strict=True)), "y": Y})


def of_duckdb() -> Any:
    return pytest.importorskip("duckdb").from_arrow(arrow_table())


TABLES: dict[str, Callable[[], Any]] = {
    "stream": lambda: OfArrow(arrow_table()),
    "reader": lambda: arrow_table().to_reader(100),
    "polars": of_polars,
    "DuckDB": of_duckdb,
}


@pytest.mark.parametrize("form", TABLES)
def test_tables_through_arrow(form: str) -> None:
    data = read_dataset(TABLES[form](), tf.float32, ["y"])
    assert list(data.columns) == ["a", "b", "c", "y"]
    np.testing.assert_array_equal(tf.stack([data.whole[name] for name in "abc"], 1), X)
    np.testing.assert_array_equal(data.whole["y"], Y)
    if form in ("stream", "polars"):
        whole = read_dataset({"x": TABLES[form](), "z": Y}, tf.float32).whole["x"]
        np.testing.assert_array_equal(whole, np.column_stack([X, Y]))


def test_decimal_numbers_and_categories_through_arrow() -> None:
    pa = pytest.importorskip("pyarrow")
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    prices = pa.array([0.5, 1.25, 2.0]).cast(pa.decimal128(5, 2))
    data = read_dataset(OfArrow(pa.table({"g": words, "price": prices})), tf.float32)
    np.testing.assert_array_equal(data.whole["g"], [0, 1, 0])
    assert data.whole["g"].dtype == tf.int32
    np.testing.assert_array_equal(data.whole["price"], [0.5, 1.25, 2.0])
    with pytest.raises(ValueError, match="missing"):
        read_dataset(OfArrow(pa.table({"a": [1.0, None]})), tf.float32)


def test_polars_columns() -> None:
    polars = pytest.importorskip("polars")
    words = polars.Series("g", ["b", "a", "b"], dtype=polars.Categorical)
    data = read_dataset({"g": words, "x": polars.Series([1.0, 2.0, 3.0])}, tf.float32)
    assert data.whole["g"].dtype == tf.int32
    np.testing.assert_array_equal(data.whole["g"], [0, 1, 0])
    np.testing.assert_array_equal(data.whole["x"], [1.0, 2.0, 3.0])


def test_duckdb_decimals() -> None:
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql("SELECT range * 0.5 AS x FROM range(5)")
    data = read_dataset(found, tf.float64)
    np.testing.assert_array_equal(np.sort(data.whole["x"]), [0, 0.5, 1, 1.5, 2])


def test_predictions_for_a_stream() -> None:
    samples = sgmcmc.sgld(
        lambda p, d: -0.5 * tf.reduce_sum((d["x"] - p["theta"]) ** 2),
        iter([{"x": X[:, 0]}]), {"theta": 0.0}, 1e-4,
        minibatch_size=20, n_iters=50, seed=1, verbose=False,
    )  # fmt: skip
    found = samples.predict(lambda p, d: p["theta"] * d["x"], rows().batch(100))
    assert found.shape == (1003, 3)
