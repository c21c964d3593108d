"""The same values in any storage are the same column."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sgmcmc.regression.design import make_design
from sgmcmc.regression.frames import read_rows

NUMBERS = [1.0, 2.5, -3.0]
WHOLE = [1, 2, 300]


def read(values: Any, drop: bool = False) -> pd.Series:
    frame = pd.DataFrame({"x": values, "other": [[1], {}, None]})
    return read_rows(frame, lambda head: ["x"], drop)[0]["x"]


@pytest.mark.parametrize(
    "values",
    [
        np.array(NUMBERS, np.float16),
        pd.array(NUMBERS, "Float64"),
        pd.array(NUMBERS, "Float32"),
        np.array([Decimal("1.0"), Decimal("2.5"), Decimal("-3")], object),
        np.array([1, 2.5, Decimal(-3)], object),
        np.array([1, np.float32(2.5), -3], object),
    ],
)
def test_numbers_are_numbers(values: Any) -> None:
    found = read(values)
    assert isinstance(found.dtype, np.dtype) and found.dtype.kind == "f"
    assert found.dtype.itemsize in (4, 8) and found.tolist() == NUMBERS


@pytest.mark.parametrize(
    "values",
    [pd.array(WHOLE, "Int64"), pd.array(WHOLE, "UInt16"), np.array(WHOLE, object)],
)
def test_integers_are_integers(values: Any) -> None:
    found = read(values)
    assert found.dtype.kind in "iu" and found.tolist() == WHOLE


@pytest.mark.parametrize(
    "values",
    [
        pd.array(["b", "a", "c"], "string"),
        np.array(["b", "a", "c"], object),
        pd.Series(["b", "a", "c"]).convert_dtypes(),
    ],
)
def test_text_is_text(values: Any) -> None:
    found = read(values)
    assert found.dtype in (object, "str") and found.tolist() == ["b", "a", "c"]


def test_arrow_columns() -> None:
    pa = pytest.importorskip("pyarrow")
    for values, kind, wanted in (
        (pa.array([1, 2, 3]), "i", [1, 2, 3]),
        (pa.array([1.5, 2.0, 3.0]), "f", [1.5, 2.0, 3.0]),
        (pa.array([Decimal("1.5"), Decimal("2"), Decimal("3")]), "f", [1.5, 2.0, 3.0]),
        (pa.array(["b", "a", "c"]), "O", ["b", "a", "c"]),
        (pa.array([True, False, True]), "b", [True, False, True]),
    ):
        column = pd.Series(values.to_pandas(), dtype=pd.ArrowDtype(values.type))
        found = read(column)
        assert found.dtype.kind == kind and found.tolist() == wanted
        assert isinstance(found.dtype, np.dtype) or str(found.dtype) == "str"


def test_missing_values_stay_missing_and_can_be_dropped() -> None:
    for values in (
        pd.array([1, None, 3], "Int64"),
        np.array([1, None, 3], object),
        np.array([Decimal(1), None, Decimal(3)], object),
        np.array([1, pd.NA, 3], object),
    ):
        assert read(values).isna().tolist() == [False, True, False]
        assert read(values, drop=True).tolist() == [1, 3]
    assert read(np.array([1, None, 3], object), drop=True).dtype.kind == "i"
    for values in (
        pd.array(["a", None, "b"], "string"),
        pd.array([True, None, False], "boolean"),
    ):
        assert read(values).isna().tolist() == [False, True, False]
        assert len(read(values, drop=True)) == 2
    assert read(pd.array([True, None, False], "boolean"), drop=True).dtype == bool


def test_dates_intervals_and_categories() -> None:
    days = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
    assert read(np.array(days, object)).dtype.kind == "M"
    cut = pd.cut([1.0, 5.0, 9.0], [0, 4, 10])
    assert read(cut).equals(pd.Series(cut, name="x"))
    levels = pd.Categorical(pd.array(["a", "b", "a"], "string"))
    assert read(levels).cat.categories.dtype in (object, "str")


@pytest.mark.parametrize(
    "values", [[1, "a", 2], [[1], [2], [3]], [{}, {}, {}], [b"a", b"b", b"c"]]
)
def test_other_objects_are_refused_by_name(values: Any) -> None:
    column = np.empty(3, object)
    column[:] = values
    with pytest.raises(TypeError, match=r"`data\['x'\]` holds Python objects"):
        read(column)
    frame = pd.DataFrame({"x": column})
    assert read_rows(frame)[0]["x"].tolist() == values  # nobody uses it


def test_numbers_as_text_and_levels_of_single_rows() -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 60, 300)
    frame = pd.DataFrame(
        {"t": ids.astype(str), "own": [f"r{k}" for k in range(300)], "n": ids}
    )
    with pytest.raises(
        ValueError, match=r"`data\['t'\]` holds numbers as text.* 60 levels"
    ):
        make_design("t", frame)
    assert len(make_design("C(t)", frame).terms) == 60
    for terms in ("own", "C(own)", "n:own"):
        with pytest.raises(
            ValueError, match=r"`data\['own'\]` is a factor with a level of its own"
        ):
            make_design(terms, frame)
