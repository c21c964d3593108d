"""Containers of columns: what is missing, in what order rows are, and what is no number at all."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.groups.labels import labeled
from sgmcmc.regression import frames
from sgmcmc.regression.design import make_design
from sgmcmc.regression.expressions import Expression
from sgmcmc.regression.frames import as_frame, labels, read_rows
from sgmcmc.regression.sampling import row_weights

N = 40
RNG = np.random.default_rng(4)
X = RNG.integers(-3, 9, N)
FRAME = pd.DataFrame(
    {"x": X, "y": X + RNG.normal(size=N), "f": RNG.choice(list("ab"), N)}
)
MASKED = np.ma.masked_greater(X, 5)
HOLES = [np.nan if n % 9 == 0 else str(each) for n, each in enumerate(FRAME["f"])]


@pytest.mark.parametrize(
    "column", [MASKED, np.ma.array(X.astype(float), mask=X > 5), HOLES]
)
def test_what_is_masked_or_nan_among_text_is_missing(column: Any) -> None:
    found = as_frame({"y": FRAME["y"], "c": column})["c"]
    wanted = (
        np.ma.getmaskarray(column) if column is not HOLES else np.arange(N) % 9 == 0
    )
    np.testing.assert_array_equal(found.isna(), wanted)
    with pytest.raises(ValueError, match=r"data\['c'\]. has \d+ missing values"):
        sgmcmc.glm("y ~ c", {"y": FRAME["y"], "c": column})


def test_containers_without_holes_are_those_of_a_frame() -> None:
    columns = {"x": np.ma.array(X), "y": list(FRAME["y"]), "f": tuple(FRAME["f"])}
    found = as_frame(columns)
    assert found["f"].tolist() == FRAME["f"].tolist()
    np.testing.assert_array_equal(found[["x", "y"]], FRAME[["x", "y"]])
    sparse = as_frame(
        FRAME.assign(x=pd.arrays.SparseArray(X)), lambda frame: ["x", "y"]
    )
    np.testing.assert_array_equal(sparse["x"], X)
    assert sparse["x"].dtype == np.int64


def test_single_values_are_one_row() -> None:
    assert as_frame({"x": 1.5, "f": "a"}).to_dict("list") == {"x": [1.5], "f": ["a"]}


def test_series_in_another_order_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"data\['x'\]. has the labels of `data\['y'\]. in another"
    ):
        as_frame({"y": FRAME["y"], "x": FRAME["x"][::-1]})
    with pytest.raises(
        ValueError, match=r"`weights` has the labels of `data` in another order"
    ):
        sgmcmc.glm("y ~ x", FRAME, weights=(FRAME["x"] + 4)[::-1])
    with pytest.raises(ValueError, match=r"`weights` has the labels of `data\['x'\]`"):
        sgmcmc.glm("y ~ x", dict(FRAME), weights=(FRAME["x"] + 4)[::-1])
    # Other labels say nothing of the order.
    assert (
        len(as_frame({"y": FRAME["y"], "x": FRAME["x"].set_axis(range(N, 2 * N))})) == N
    )
    assert len(as_frame({"y": FRAME["y"], "x": FRAME["x"].set_axis([0] * N)})) == N


def _log_lik(params: Any, dataset: Any) -> Any:
    return -((dataset["y"] - params["b"] * dataset["x"]) ** 2)


DOORS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "sample": lambda d: sgmcmc.sample(_log_lik, d, {"b": 0.0}, verbose=False),
    "sgld": lambda d: sgmcmc.sgld(_log_lik, d, {"b": 0.0}, 1e-3, n_iters=9, verbose=False),
    "collapse": sgmcmc.collapse,
    "from_joint": lambda d: sgmcmc.from_joint(
        lambda data: 0, {"y": d["y"]}, data={"x": d["x"]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_series_in_another_order_are_refused_at_every_door(door: str) -> None:
    shuffled = {"x": FRAME["x"], "y": FRAME["y"][::-1]}
    with pytest.raises(ValueError, match="has the labels of .* in another order"):
        DOORS[door](shuffled)


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "a matrix": ("y ~ c", {"c": np.ones((N, 2))}, r"`data\['c'\]` has the shape \(40, 2\)"),
    "lengths": ("y ~ c", {"c": np.ones(3)}, "must have one length.*'y' 40, .*'c' 3"),
    "complex": ("y ~ c", {"c": X + 1j}, r"`data\['c'\]` holds complex numbers"),
    "text as offset": ("y ~ offset(f)", {}, r"offset\(f\) must hold numbers; it holds '[ab]'"),
    "dates as offset": (
        "y ~ offset(c)", {"c": np.arange(N).astype("datetime64[D]")}, r"offset\(c\) must hold",
    ),
    "names of numbers": ("y ~ `3`", {3: X}, "has as int 3. Names must be text"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_column_of_numbers_is_refused_by_name(name: str) -> None:
    formula, more, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        sgmcmc.glm(formula, {**FRAME.to_dict("series"), **more})


@pytest.mark.parametrize("kind", ["int8", "bool", "Int64", "object", "float16"])
def test_weights_of_any_storage(kind: str) -> None:
    given = pd.Series(RNG.integers(0, 2, N)).astype(kind)
    for weights in (given, given.to_numpy()):
        found = row_weights(weights, FRAME, FRAME, None)
        assert found is not None and found.dtype == np.float64
        np.testing.assert_array_equal(found, given.astype(float))


@pytest.mark.parametrize(
    "weights", [["1"] * N, np.ma.masked_equal(X, 2), pd.date_range("2020", periods=N)]
)
def test_weights_that_are_no_numbers(weights: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="`weights`"):
        sgmcmc.glm("y ~ x", FRAME, weights=weights)


@pytest.mark.parametrize(
    "text",
    [
        "log(x, y)",
        "log(x, 2)",
        "np.add(x, y, y)",
        "np.sqrt(x, out=y)",
        "np.clip(x, 0, 9, out=y)",
    ],
)
def test_arguments_that_numpy_would_write_to_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="arguments, which"):
        Expression(text, FRAME.columns)


BIG_ENDIAN = FRAME.assign(
    x=X.astype(">f8"), y=FRAME["y"].astype(">f4"), k=X.astype(">i4")
)


def test_columns_of_any_byte_order() -> None:
    found = as_frame(BIG_ENDIAN, lambda frame: ["x", "y", "k"])
    assert all(found[name].dtype.isnative for name in ("x", "y", "k"))
    np.testing.assert_array_equal(found["k"], X)
    design = make_design("x + C(k)", found)
    wanted = make_design("x + C(k)", FRAME.assign(k=X))
    assert design.terms == wanted.terms
    counts = sgmcmc.collapse({"x": X.astype(">f8"), "k": X.astype(">i4")})["n"]
    np.testing.assert_array_equal(counts, sgmcmc.collapse({"x": X})["n"])
    holes = BIG_ENDIAN.assign(y=np.where(X > 5, np.nan, X).astype(">f8"))
    assert len(read_rows(holes, drop=True)[0]) == (X <= 5).sum()


@pytest.mark.parametrize("kind", ["unsigned", "integers", "decimals"])
def test_ids_up_to_64_bits(kind: str) -> None:
    """Hashes, which are one number in floating point."""
    ids = [2**63 + int(k) for k in X]
    columns = {
        "unsigned": np.array(ids, np.uint64),
        "integers": ids,
        "decimals": np.array([Decimal(k) for k in ids], object),
    }
    frame = as_frame({"g": columns[kind]})
    groups = labeled("g", labels(frame, "g"))
    assert groups.labels.tolist() == sorted(set(ids))
    assert groups.levels.codes(ids).tolist() == groups.codes.tolist()
    if kind != "unsigned":
        beyond = [2**70 + each for each in columns[kind]]
        with pytest.raises(
            TypeError, match=r"`data\['g'\]` holds integers that are one"
        ):
            as_frame({"g": beyond}, lambda _: ["g"])


def test_a_stream_of_arrow_is_a_table() -> None:
    """As DuckDB and Ibis give one."""
    arrow = pytest.importorskip("pyarrow")

    class Relation:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            table = arrow.Table.from_pandas(FRAME)
            return table.__arrow_c_stream__(requested_schema)

    found = as_frame(Relation(), lambda frame: ["y", "f"])
    assert found["f"].tolist() == FRAME["f"].tolist()


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "NaN": lambda pa: pa.array(np.where(X > 5, np.nan, X)),
    "nulls": lambda pa: pa.array(np.where(X > 5, np.nan, X), from_pandas=True),
    "halves": lambda pa: pa.array(X.astype(np.float16)),
    "days": lambda pa: pa.array(pd.to_datetime(X, unit="D").date),
    "zones": lambda pa: pa.array(pd.to_datetime(X, unit="h").tz_localize("Asia/Tokyo")),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
def test_mapped_files_hold_what_small_ones_hold(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"c": COLUMNS[kind](arrow)}), tmp_path / "a.parquet"
    )
    small, kept = read_rows(tmp_path / "a.parquet", drop=True)
    monkeypatch.setattr(frames, "_SETTINGS", replace(frames._SETTINGS, mapped=0))
    mapped, mask = read_rows(tmp_path / "a.parquet", drop=True)
    assert (kept is None) == (mask is None)
    assert len(small) == len(mapped) == (X <= 5).sum() if kept is not None else N
    assert small["c"].tolist() == mapped["c"].tolist()
    assert getattr(small["c"].dtype, "tz", None) == getattr(
        mapped["c"].dtype, "tz", None
    )


def test_times_of_a_day_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    times = arrow.array([datetime.time(1)])
    parquet.write_table(arrow.table({"c": times}), tmp_path / "a.parquet")
    monkeypatch.setattr(frames, "_SETTINGS", replace(frames._SETTINGS, mapped=0))
    with pytest.raises(TypeError, match=r"`data\['c'\]` holds time64"):
        read_rows(tmp_path / "a.parquet")
