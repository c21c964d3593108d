"""Levels of factors and labels of groups are values, whatever type or container they come in.

Most rows here are of designs and groups, without a chain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.levels import Categories, Levels
from sgmcmc.groups.labels import find, labeled
from sgmcmc.groups.spec import Groups
from sgmcmc.groups.structure import read_groups
from sgmcmc.regression.building import make_model
from sgmcmc.regression.families import read_family
from sgmcmc.regression.formula import parse
from sgmcmc.regression.frames import as_frame, labels, with_levels_of
from sgmcmc.regression.model import RegressionModel

RNG = np.random.default_rng(1)
N = 200
NUMBERS = RNG.integers(1, 5, N)
TEXT = np.array(["-", "b", "c", "a", "d"])[NUMBERS]
X, Z = RNG.normal(size=(2, N))
Y = X + NUMBERS + RNG.normal(size=N)


def _model(formula: str, **columns: Any) -> RegressionModel:
    frame = as_frame({"y": Y, "x": X, "z": Z, **columns})
    return make_model(parse(formula), frame, read_family("gaussian", None), None)[0]


def _rows(model: RegressionModel, data: Any) -> dict[str, np.ndarray]:
    frame = with_levels_of(as_frame(data), model.factors)
    found = model.rows(frame)
    own = {name: v for name, v in found.items() if not isinstance(v, Categories)}
    return {name: np.asarray(values) for name, values in own.items()}


WANTED = [4, 1, 4, 2]
NEW: dict[str, Any] = {
    "integers": np.array(WANTED),
    "small integers": np.array(WANTED, np.int8),
    "floats": np.array(WANTED, float),
    "text": np.array(WANTED).astype(str),
    "text of floats": np.array(WANTED, float).astype(str),
    "categories": pd.Categorical(WANTED),
    "other categories": pd.Categorical(WANTED, [4, 9, 2, 1]),
    "categories of floats": pd.Categorical(np.array(WANTED, float)),
    "categories of text": pd.Categorical(list(map(str, WANTED))),
    "nullable": pd.array(WANTED, dtype="Int64"),
    "objects": np.array(WANTED, object),
}
FITS: dict[str, Any] = {
    "integers": NUMBERS,
    "floats": NUMBERS.astype(float),
    "text": NUMBERS.astype(str),
    "categories": pd.Categorical(NUMBERS, [3, 1, 2, 4]),
    "categories of text": pd.Categorical(NUMBERS.astype(str)),
}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("formula", ["y ~ C(g) * x", "y ~ x + (1 + C(g) | h)"])
def test_factors_of_any_type(fit: str, formula: str) -> None:
    model = _model(formula, g=FITS[fit], h=TEXT)
    others = {"y": np.zeros(4), "x": X[:4], "z": Z[:4], "h": TEXT[:4]}
    wanted = _rows(
        model,
        {**others, "g": FITS[fit][[int(np.argmax(NUMBERS == k)) for k in WANTED]]},
    )
    for values in NEW.values():
        found = _rows(model, {**others, "g": values})
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
    for bad in ([7, 1, 1, 1], ["1", "a", "1", "1"]):
        with pytest.raises(
            ValueError, match="`data\\['g'\\]` has the level '[7a]', which"
        ):
            _rows(model, {**others, "g": bad})


def test_factors_with_many_levels() -> None:
    """Those are held as integers, not as columns of zeros and ones."""
    g = np.arange(N) % 50
    model = _model("y ~ x + C(g)", g=g)
    others = {"y": np.zeros(4), "x": X[:4]}
    wanted = _rows(model, {**others, "g": np.array(WANTED)})
    assert "place_0" in wanted
    for values in NEW.values():
        np.testing.assert_array_equal(_rows(model, {**others, "g": values})["place_0"],
                                      wanted["place_0"])  # fmt: skip


def test_text_factors_from_categories_and_dictionaries() -> None:
    pa = pytest.importorskip("pyarrow")
    model = _model("y ~ x + g", g=TEXT)
    wanted = _rows(model, {"y": Y, "x": X, "g": TEXT})["X"]
    table = pa.table({"y": Y, "x": X, "g": pa.array(TEXT).dictionary_encode()})
    arrow = pd.DataFrame({"y": Y, "x": X}).assign(
        g=pd.arrays.ArrowExtensionArray(pa.array(TEXT).dictionary_encode())
    )
    for data in (
        pd.DataFrame(
            {"y": Y, "x": X, "g": pd.Categorical(TEXT, ["d", "z", "c", "b", "a"])}
        ),
        {"y": Y, "x": X, "g": pa.array(TEXT).dictionary_encode()},
        table,
        arrow,
    ):
        np.testing.assert_array_equal(_rows(model, data)["X"], wanted)
        own = make_model(
            parse("y ~ x + g"), as_frame(data), read_family("gaussian", None), None
        )[0]
        assert own.design.factors["g"].levels.values[0] in TEXT


def test_a_dict_keeps_the_reference_level() -> None:
    own = pd.Categorical(TEXT, ["c", "a", "b", "d"])
    wanted = ("Intercept", "g[T.a]", "g[T.b]", "g[T.d]")
    assert _model("y ~ g", g=own).terms == wanted
    assert _model("y ~ g", g=pd.Series(own, index=range(5, 5 + N))).terms == wanted


def test_nulls_of_a_dictionary_are_missing() -> None:
    pa = pytest.importorskip("pyarrow")
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", None]))
    table = pa.table({"y": [1.0, 2.0, 3.0], "g": null})
    for data in (table, {"y": np.arange(3.0), "g": null}):
        assert as_frame(data)["g"].isna().tolist() == [False, True, False]
        assert list(as_frame(data)["g"].cat.categories) == ["a"]


def test_ordered_files_that_disagree(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def write(name: str, values: list[str], levels: list[str]) -> None:
        frame = pd.DataFrame({"g": pd.Categorical(values, levels, ordered=True)})
        parquet.write_table(pa.Table.from_pandas(frame), tmp_path / f"{name}.parquet")

    write("0", ["mid", "high"], ["mid", "high"])
    write("1", ["low", "mid"], ["low", "mid"])
    found = as_frame(tmp_path)["g"]
    assert list(found.cat.categories) == ["low", "mid", "high"] and found.cat.ordered
    assert found.tolist() == ["mid", "high", "low", "mid"]
    write("2", ["low"], ["high", "low"])
    with pytest.raises(ValueError, match="`data\\['g'\\]` is an ordered category"):
        as_frame(tmp_path)


@pytest.mark.parametrize("fit", FITS)
def test_labels_of_groups_of_any_type(fit: str) -> None:
    model = _model("y ~ x + (1 | g)", g=FITS[fit])
    (rows,) = model.labels(as_frame({"y": Y, "x": X, "g": FITS[fit]})).values()
    own = labeled("g", rows)
    for values in NEW.values():
        asked = labeled("g", labels(as_frame({"g": values}), "g"))
        known = own.levels.codes(asked.levels.values)[asked.codes]
        assert own.labels[known].astype(float).tolist() == WANTED
    if fit != "floats":
        assert own.labels.dtype.kind == ("U" if "text" in fit else "i")


def test_ids_that_became_floats() -> None:
    frame = pd.DataFrame({"y": Y, "x": X, "g": NUMBERS}).astype({"g": float})
    frame.loc[3, "g"] = np.nan
    own = labeled("g", labels(frame.dropna(), "g"))
    assert own.labels.tolist() == [1, 2, 3, 4] and own.labels.dtype == np.int64
    assert own.levels.codes(["1", 2, "3.0", 4.0, 5]).tolist() == [0, 1, 2, 3, -1]


def test_combined_groups_are_apart() -> None:
    frame = as_frame({"a": ["x", "x:1", "x"], "b": ["1:2", "2", "1:2"]})
    found = labeled("a:b", labels(frame, "a:b"))
    assert found.codes.tolist() == [0, 1, 0] or found.codes.tolist() == [1, 0, 1]
    assert len(set(found.labels)) == 2
    plain = labeled("a:b", labels(as_frame({"a": [1.0, 2.0], "b": ["u", "v"]}), "a:b"))
    assert plain.labels.tolist() == ["1:u", "2:v"]
    assert plain.levels.codes([("1", "u"), (2, "v"), "2:v", (2, "u")]).tolist() == [
        0,
        1,
        1,
        -1,
    ]
    assert find("a:b", plain.levels, (2, "v")).tolist() == [1]
    assert find("a:b", plain.levels, [("1", "u"), (2, "v")]).tolist() == [0, 1]


def _law(effects: Any, params: Any) -> tf.Tensor:
    return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])


def _log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return (
        -0.5 * (dataset["y"] - params["z"] - tf.gather(params["m"], dataset["h"])) ** 2
    )


def test_groups_among_members() -> None:
    dataset = {"y": Y, "g": NUMBERS, "h": pd.Categorical(TEXT)}
    params = {"m": np.zeros(4), "tau": 1.0}
    groups = Groups("g", {"z": 0.0}, _law, members=range(7))
    model = read_groups(groups, _log_lik, dataset, params, None)
    assert model.structure.labels["g"].tolist() == [1, 2, 3, 4]
    assert model.structure.shown("g").tolist() == list(range(7))
    assert model.structure.levels["h"] == Levels(("a", "b", "c", "d"))
    with pytest.raises(
        ValueError, match="4 of `dataset\\['g'\\]` is not among `members`"
    ):
        few = Groups("g", {"z": 0.0}, _law, members=range(4))
        read_groups(few, _log_lik, dataset, params, None)


HOURS = pd.to_timedelta(NUMBERS, "h")
STAMPS = pd.Timestamp("2020-01-01") + pd.to_timedelta(NUMBERS, "ns")
TIMES: dict[str, tuple[Any, list[Any]]] = {
    "durations": (
        HOURS,
        [pd.to_timedelta(WANTED, "h"), np.array(WANTED, "m8[h]"),
         3600 * np.array(WANTED, "m8[s]"), pd.Categorical(pd.to_timedelta(WANTED, "h")),
         [f"0 days 0{k}:00:00" for k in WANTED]],
    ),
    "nanoseconds": (
        STAMPS,
        [(own := pd.Timestamp("2020-01-01") + pd.to_timedelta(WANTED, "ns")),
         pd.Categorical(own), own.tz_localize("UTC"), own.to_numpy()],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_any_unit(kind: str) -> None:
    """As labels of groups and as a factor."""
    own, forms = TIMES[kind]
    model = _model("y ~ x + C(g) + (1 | g)", g=own)
    (rows,) = model.labels(as_frame({"y": Y, "x": X, "g": own})).values()
    groups = labeled("g", rows)
    assert len(groups.labels) == 4
    others = {"y": np.zeros(4), "x": X[:4]}
    for values in forms:
        asked = labeled("g", labels(as_frame({"g": values}), "g"))
        known = groups.levels.codes(asked.levels.values)[asked.codes]
        assert (known + 1).tolist() == WANTED
        found = _rows(model, {**others, "g": values})["X"] * model.scale + model.center
        np.testing.assert_allclose(found[:, 2:], np.eye(5)[WANTED][:, 2:], atol=1e-9)


def test_a_factor_of_single_precision_knows_its_own_rows() -> None:
    tenths = NUMBERS / 10
    kinds: list[Any] = [np.float16, np.float32]
    for kind in kinds:
        model = _model("y ~ x + C(g)", g=tenths.astype(kind))
        rows = {"y": np.zeros(9), "x": X[:9], "g": tenths[:9].astype(kind)}
        wanted = _rows(model, rows)["X"]
        assert len(np.unique(wanted[:, 2:], axis=0)) > 1
        forms = [rows["g"]]
        if kind == np.float32:
            forms += [tenths[:9], pd.Categorical(tenths[:9])]
        for form in forms:
            np.testing.assert_array_equal(
                _rows(model, {**rows, "g": form})["X"], wanted
            )


@pytest.mark.parametrize("first", [2**25, 2**40, 2**63])
def test_large_integers_are_labels(first: int) -> None:
    """The numbers themselves are in no column that would round them."""
    ids = np.array([first + int(k) for k in NUMBERS], np.uint64)
    rows = {"y": Y, "x": X, "g": NUMBERS}
    small, large = (
        sgmcmc.glm("y ~ x + (1 | g)", data, seed=1, verbose=False)
        for data in (rows, {**rows, "g": ids})
    )
    pd.testing.assert_frame_equal(large.summary(), small.summary())
    # Effects are drawn by their labels, so that draws differ.
    assert abs(large.loo().elpd - small.loo().elpd) < 2
    dataset = {"y": Y, "g": ids, "h": pd.Categorical(TEXT)}
    groups = Groups("g", {"z": 0.0}, _law)
    model = read_groups(groups, _log_lik, dataset, {"m": np.zeros(4), "tau": 1.0}, None)
    assert model.structure.labels["g"].tolist() == sorted({int(k) for k in ids})
    assert ("g" in model.dataset) == (first < 2**31)
