"""Levels of categories are their values, whatever type or container they come in."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sgmcmc.data.levels import Categories, Levels, factorized, read_categories, text_of

DAYS = pd.to_datetime(["2020-01-01 00:00", "2020-01-02 03:00"])
STAMPS = pd.to_datetime(["2020-01-01", "2020-01-01"]) + pd.to_timedelta(
    [250, 500], "ns"
)
HOURS = pd.to_timedelta([1, 2], "h")
CUT = pd.cut(np.array([1.0, 3.0, 9.0]), [0, 2, 5, 10])


@pytest.mark.parametrize(
    ("levels", "values", "codes"),
    [
        (
            [1, 2, 10],
            [10.0, "1", True, np.int8(2), "2.0", b"1", decimal.Decimal(10)],
            [2, 0, 0, 1, 1, 0, 2],
        ),
        ([1, 2, 10], [3, "02", "x", 1.5], [-1, -1, -1, -1]),
        (["1", "2"], [1, 2.0, "1.0", np.str_("2"), "02"], [0, 1, 0, 1, -1]),
        (
            ["5", "5.0"],
            ["5", "5.0", 5, 5.0],
            [0, 1, 0, 0],
        ),  # the text itself comes first
        (
            ["250", "250.1"],
            ["250", "250.0", "250.10", 250.1],
            [0, -1, -1, 1],
        ),  # codes of diseases
        (["01", "1"], ["01", "1", 1], [0, 1, 1]),
        ([0.1, 0.5], [np.float32(0.1), "0.1", "0.50"], [0, 0, 1]),
        (
            [True, False],
            [np.bool_(True), "TRUE", "false", 1, 0, "x"],
            [0, 0, 1, 0, 1, -1],
        ),
        (["True", "False"], [True, np.bool_(False)], [0, 1]),
        (
            DAYS,
            ["2020-01-01", datetime.date(2020, 1, 1), DAYS[1], "2020-01-02 03:00:00"],
            [0, 0, 1, 1],
        ),
        (
            STAMPS,
            [STAMPS[1], STAMPS[0].to_datetime64(), np.datetime64("2020-01-01", "us")],
            [1, 0, -1],
        ),
        (
            STAMPS,
            [
                "2020-01-01 00:00:00.000000500",
                "2020-01-01T01:00:00.000000250+01:00",
                "2020-01-01 00:00:00.000000",
                "2020-13-01 00:00:00",
            ],
            [1, 0, -1, -1],
        ),
        (
            DAYS,
            [
                "2020-01-01 00:00:00.000",
                "2020-01-02 03:00:00.000000000",
                "2020-01-01 22:00:00-05:00",
            ],
            [0, 1, 1],
        ),
        (
            ["2020-01-01 00:00:00.000", "2020-01-02 04:00:00.500+01:00"],
            [DAYS[0], DAYS[1] + pd.Timedelta("500ms"), DAYS[1]],
            [0, 1, -1],
        ),
        (
            HOURS,
            [
                np.timedelta64(1, "h"),
                np.timedelta64(7200, "s"),
                HOURS[1],
                "0 days 01:00:00",
                datetime.timedelta(hours=2),
                np.timedelta64(3_600_000_000_001, "ns"),
            ],
            [0, 1, 1, 0, 1, -1],
        ),
        (["0 days 01:00:00", "2 days"], [HOURS[0], pd.Timedelta(2, "D")], [0, 1]),
        (["2020-01-01"], [DAYS[0], np.datetime64("2020-01-01")], [0, 0]),
        (CUT.categories, ["(0, 2]", pd.Interval(2.0, 5.0)], [0, 1]),
        (
            [("x", "1:2"), ("x:1", "2"), ("y", 1)],
            [("x:1", "2"), ("y", "1"), ("x", "1")],
            [1, 2, -1],
        ),
    ],
)
def test_a_level_is_its_value(levels: Any, values: list[Any], codes: list[int]) -> None:
    own = Levels.of(levels)
    assert own.codes(values).tolist() == codes
    again = Levels.from_json(json.loads(json.dumps(own.to_json())))
    assert again.codes(values).tolist() == codes
    assert own.codes(own.values).tolist() == list(range(len(own)))


def test_types_survive_a_file() -> None:
    own = Levels((True, 1.5, "1", 7, ("a", 2)), ordered=True)
    assert Levels.from_json(json.loads(json.dumps(own.to_json()))) == own
    kinds = [type(value) for value in Levels.from_json(own.to_json()).values]
    assert kinds == [bool, float, str, int, tuple]


def test_texts_of_combined_levels_differ() -> None:
    assert text_of(("x", 1)) == "x:1"
    assert text_of(("x", "1:2")) != text_of(("x:1", "2"))


@pytest.mark.parametrize(
    "values",
    [
        [None, "a", "b"],
        np.array([None, "a", "b"], object),
        pd.Series([pd.NA, "a", "b"], dtype="string"),
        pd.Categorical([None, "a", "b"]),
        np.ma.masked_array(["z", "a", "b"], [True, False, False]),
    ],
)
def test_missing_values_are_no_level(values: Any) -> None:
    found = factorized(values)
    assert found.levels.values == ("a", "b") and found.codes.tolist() == [-1, 0, 1]


def test_missing_numbers_and_dates_are_no_level() -> None:
    assert factorized(np.array([np.nan, 2.0])).codes.tolist() == [-1, 0]
    assert factorized(np.array(["NaT", "2020-01-01"], "M8[D]")).codes.tolist() == [
        -1,
        0,
    ]
    durations = np.array(["NaT", 3], "m8[s]")
    assert factorized(durations).codes.tolist() == [-1, 0]
    assert factorized(durations.astype(object)).codes.tolist() == [-1, 0]
    assert factorized(pd.Series([None, 2], dtype="Int64")).codes.tolist() == [-1, 0]


def test_a_null_in_a_dictionary_is_missing() -> None:
    pa = pytest.importorskip("pyarrow")
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, None]), pa.array(["a", None, "b"])
    )
    assert factorized(array).codes.tolist() == [0, -1, 1, -1]
    assert factorized(array).levels.values == ("a", "b")


def test_parts_of_an_ordered_category() -> None:
    pa = pytest.importorskip("pyarrow")

    def part(*levels: str) -> Any:
        codes = pa.array(np.arange(len(levels), dtype=np.int8))
        return pa.DictionaryArray.from_arrays(codes, pa.array(levels), ordered=True)

    found = read_categories(pa.chunked_array([part("mid", "high"), part("low", "mid")]))
    assert found is not None and found.levels == Levels(
        ("low", "mid", "high"), ordered=True
    )
    assert found.codes.tolist() == [1, 2, 0, 1]
    for other in (part("high", "mid"), part("low", "high")):
        with pytest.raises(
            ValueError, match="`g` is an ordered category whose parts .* < "
        ):
            read_categories(pa.chunked_array([part("mid", "high"), other]), "g")


def test_messages_say_what_to_pass() -> None:
    column = Categories(np.array([1], np.int32), Levels((0, 7)))
    with pytest.raises(
        ValueError, match="`g` has the level '7', .* Pass the levels themselves"
    ):
        column.coded_by(Levels(("a", "b")), "g")
    with pytest.raises(ValueError, match="one value for each row"):
        factorized(np.zeros((2, 2)))
