"""The same levels in another type or container, at every door: the same result.

Levels of a model are `m[g]` with g a category; the same rows come as new data in all containers,
with their levels in other orders, as parts of them, or as other types of the same values.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.derived_columns import joined
from sgmcmc.data.levels import Categories, Levels
from sgmcmc.data.reading import read_dataset
from sgmcmc.data.transfer import courier

RNG = np.random.default_rng(1)
NAMES = np.array(["b", "c", "a"])
"""Levels in the order of the model, which is not that of the alphabet."""

CODES = RNG.integers(0, 3, 60)
Y = np.array([0.0, 5.0, 10.0])[CODES] + RNG.normal(size=60)
ROWS = [2, 0, 2, 1]
NEW = NAMES[ROWS]
NEW_Y = np.array([9.0, 1.0, 11.0, 4.0])
QUIET: dict[str, Any] = {"seed": 1, "verbose": False}


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["y"] - tf.gather(params["m"], dataset["g"])) ** 2


def mean(params: Any, dataset: Any) -> tf.Tensor:
    return tf.gather(params["m"], dataset["g"])


@pytest.fixture(scope="module")
def chain() -> sgmcmc.Samples:
    dataset = {"y": Y, "g": pd.Categorical(NAMES[CODES], NAMES)}
    params = {"m": np.array([0.0, 5.0, 10.0])}
    return sgmcmc.sgld(
        log_lik,
        dataset,
        params,
        1e-3,
        n_iters=20,
        minibatch_size=60,
        n_chains=2,
        **QUIET,
    )


def _arrow(values: Any) -> Any:
    return pytest.importorskip("pyarrow").array(values)


def _chunks(values: Any) -> Any:
    arrow = pytest.importorskip("pyarrow")
    parts = [arrow.array(part).dictionary_encode() for part in (values[:1], values[1:])]
    return arrow.chunked_array(parts)


def _of_polars(kind: str) -> Callable[[Any], Any]:
    def make(values: Any) -> Any:
        polars = pytest.importorskip("polars")
        pytest.importorskip("pyarrow")
        kinds = {
            "Categorical": polars.Categorical,
            "Enum": polars.Enum(sorted(set(values))),
        }
        return polars.Series("g", values.tolist(), dtype=kinds[kind])

    return make


FORMS: dict[str, Callable[[Any], Any]] = {
    "categories": pd.Categorical,
    "categories in another order": lambda values: pd.Categorical(
        values, sorted(set(values))[::-1]
    ),
    "more categories": lambda values: pd.Categorical(
        values, ["z", *sorted(set(values)), "y"]
    ),
    "ordered categories": lambda values: pd.Categorical(values, ordered=True),
    "a series": lambda values: pd.Series(
        pd.Categorical(values), index=range(9, 9 + len(values))
    ),
    "text": lambda values: values,
    "a list": lambda values: values.tolist(),
    "objects": lambda values: values.astype(object),
    "bytes": lambda values: values.astype("S"),
    "a tensor": lambda values: tf.constant(values.tolist()),
    "nullable text": lambda values: pd.Series(values, dtype="string"),
    "text of Arrow's": _arrow,
    "a dictionary of Arrow's": lambda values: _arrow(values).dictionary_encode(),
    "dictionaries that differ": _chunks,
    "text of polars": lambda values: pytest.importorskip("polars").Series(
        values.tolist()
    ),
    "categories of polars": _of_polars("Categorical"),
    "an enumeration of polars": _of_polars("Enum"),
}


def _table(values: Any) -> Any:
    arrow = pytest.importorskip("pyarrow")
    return arrow.table({"y": NEW_Y, "g": arrow.array(values).dictionary_encode()})


def _files(values: Any, folder: Path) -> Path:
    arrow, parquet = (
        pytest.importorskip("pyarrow"),
        pytest.importorskip("pyarrow.parquet"),
    )
    for number, rows in enumerate([slice(0, 0), slice(0, 2), slice(2, 3), slice(3, 4)]):
        own = arrow.array(values[rows]).dictionary_encode()
        parquet.write_table(
            arrow.table({"y": NEW_Y[rows], "g": own}), folder / f"{number}.parquet"
        )
    return folder


DATASETS: dict[str, Callable[[Any, Path], Any]] = {
    "a frame": lambda values, _: pd.DataFrame(
        {"y": NEW_Y, "g": pd.Categorical(values)}
    ),
    "a frame of text": lambda values, _: pd.DataFrame({"y": NEW_Y, "g": values}),
    "a table": lambda values, _: _table(values),
    "batches": lambda values, _: _table(values).to_reader(1),
    "files": _files,
    "a stream of dicts": lambda values, _: iter(
        [
            {"y": NEW_Y[k : k + 2], "g": pd.Categorical(values[k : k + 2])}
            for k in (0, 2)
        ]
    ),
    "tf.data": lambda values, _: tf.data.Dataset.from_tensor_slices(
        {"y": NEW_Y, "g": values.tolist()}
    ),
}


@pytest.mark.some(8)
@pytest.mark.parametrize("form", FORMS)
def test_new_rows_of_any_form(form: str, chain: sgmcmc.Samples) -> None:
    wanted = chain["m"][..., ROWS]
    rows = {"y": NEW_Y, "g": FORMS[form](NEW)}
    np.testing.assert_array_equal(chain.predict(mean, rows, reduce=None), wanted)
    terms = -0.5 * (NEW_Y.astype(np.float32) - wanted) ** 2
    np.testing.assert_allclose(chain.log_lik(rows), terms, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", DATASETS)
def test_new_datasets_of_any_form(
    form: str, chain: sgmcmc.Samples, tmp_path: Path
) -> None:
    found = chain.predict(mean, DATASETS[form](NEW, tmp_path), reduce=None)
    np.testing.assert_array_equal(found, chain["m"][..., ROWS])


def test_doors_of_new_rows(chain: sgmcmc.Samples, tmp_path: Path) -> None:
    """Leave-one-out, ArviZ, files, and exported models number levels as the model does."""
    own = {"y": Y, "g": pd.Categorical(NAMES[CODES])}
    assert chain.levels == {"g": ["b", "c", "a"]}
    assert chain.loo(own).elpd == chain.loo().elpd
    assert chain.loo(own).elpd > -200
    some = {"y": NEW_Y, "g": pd.Categorical(NEW)}
    terms = chain.to_arviz(log_likelihood=some).log_likelihood
    np.testing.assert_array_equal(terms["log_lik"], chain.log_lik(some))
    chain.save(tmp_path / "chain.npz")
    again = sgmcmc.Samples.load(tmp_path / "chain.npz")
    np.testing.assert_array_equal(again.predict(mean, some), chain.predict(mean, some))
    np.testing.assert_array_equal(
        again[5:].predict(mean, some), chain[5:].predict(mean, some)
    )
    folder = chain.export(tmp_path / "model", mean, {"g": some["g"]})
    loaded = tf.saved_model.load(str(folder))
    served = loaded.signatures["mean"]
    found = served(g=tf.constant(NEW.tolist()))["mean"]
    np.testing.assert_allclose(found, chain.predict(mean, some), rtol=1e-6)
    assert [text.decode() for text in loaded.levels["g"].numpy()] == ["b", "c", "a"]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="levels that the model has seen"
    ):
        served(g=tf.constant(["a", "d"]))


def test_exported_levels_that_are_integers(tmp_path: Path) -> None:
    own = Levels((10, 20, 30))
    draws = {"m": np.array([[0.0, 5.0, 10.0], [1.0, 6.0, 11.0]])}
    samples = sgmcmc.Samples(draws, settings={"levels": {"g": own.to_json()}})
    folder = samples.export(tmp_path / "model", mean, {"g": pd.Categorical([30])})
    served = tf.saved_model.load(str(folder)).signatures["mean"]
    found = served(g=tf.constant([30, 10], tf.int64))["mean"]
    np.testing.assert_allclose(found, [10.5, 0.5])


@pytest.mark.parametrize(
    "values",
    [
        [30, 10],
        [30.0, 10.0],
        np.array([30, 10], np.int8),
        ["30", "10"],
        ["30.0", "10.0"],
        pd.Categorical([30, 10]),
        pd.Categorical([30.0, 10.0]),
        pd.Categorical(["30", "10"]),
        pd.array([30, 10], dtype="Int64"),
        tf.constant([30, 10]),
    ],
)
@pytest.mark.parametrize(
    "levels", [(10, 20, 30), (10.0, 20.0, 30.0), ("10", "20", "30")]
)
def test_types_of_the_same_values(levels: tuple[Any, ...], values: Any) -> None:
    known = {"g": Levels(levels)}
    found = read_dataset({"g": values}, tf.float32, levels=known)
    assert found.whole["g"].numpy().tolist() == [2, 0]
    assert found.whole["g"].dtype == tf.int32


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["a", "d"],
            "`dataset\\['g'\\]` has the level 'd', .* its levels are 'b', 'c', 'a'",
        ),
        (pd.Categorical(["a", "d"]), "has the level 'd'"),
        ([0, 1], "Pass the levels themselves, not their numbers"),
        (tf.constant([2]), "Pass the levels themselves"),
        (pd.Categorical(["a", None]), "missing values"),
        (["a", None], "missing values"),
    ],
)
def test_other_levels_are_named(
    values: Any, message: str, chain: sgmcmc.Samples
) -> None:
    with pytest.raises(ValueError, match=message):
        chain.predict(mean, {"g": values})


def test_categories_where_the_model_has_numbers() -> None:
    """The values of the categories, not their numbers."""
    draws = {"m": np.array([[0.0, 5.0, 10.0]])}
    samples = sgmcmc.Samples(draws, settings={"indices": ["g"]})
    np.testing.assert_array_equal(
        samples.predict(mean, {"g": tf.constant([2, 0])}), [10.0, 0.0]
    )
    frame = pd.DataFrame({"g": pd.Categorical([2, 0])})
    np.testing.assert_array_equal(samples.predict(mean, frame), [10.0, 0.0])
    samples = sgmcmc.Samples(draws, settings={"integers": ["g"]})
    for values in (
        [2, 0],
        pd.Categorical([2, 0]),
        pd.Categorical([2.0, 0.0], [2.0, 0.0]),
    ):
        np.testing.assert_array_equal(samples.predict(mean, {"g": values}), [10.0, 0.0])
    with pytest.raises(
        ValueError, match="holds categories, such as 'a', where the model has"
    ):
        samples.predict(mean, {"g": pd.Categorical(["a"])})


@pytest.mark.slow
def test_an_update_numbers_new_rows_as_the_model_does() -> None:
    whole = sgmcmc.sample(
        log_lik, {"y": Y[:40], "g": pd.Categorical(NAMES[CODES[:40]], NAMES)}, {"m": np.zeros(3)},
        ess=50, **QUIET,
    )  # fmt: skip
    found = whole.update(
        {"y": Y[40:], "g": pd.Categorical(NAMES[CODES[40:]])}, verbose=False
    )
    means = np.array([Y[CODES == k].mean() for k in range(3)])
    assert found.levels == {"g": ["b", "c", "a"]}
    assert (np.abs(found["m"].mean((0, 1)) - means) < 5 / np.sqrt(20 * 50)).all()
    with pytest.raises(ValueError, match="`rows\\['g'\\]` has the level 'q'"):
        whole.update({"y": Y[:1], "g": ["q"]}, verbose=False)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_an_update(form: str) -> None:
    """What :meth:`sgmcmc.Samples.update` puts together, without the chain."""
    old = read_dataset({"y": Y, "g": pd.Categorical(NAMES[CODES], NAMES)}, tf.float32)
    rows = {"y": NEW_Y, "g": FORMS[form](NEW)}
    found = joined(old, read_dataset(rows, tf.float32, levels=old.levels))
    assert found.levels == old.levels
    np.testing.assert_array_equal(found.whole["g"], [*CODES, *ROWS])


def test_minibatches_by_hand() -> None:
    own = pd.Categorical(NAMES[CODES], NAMES)
    sampler = sgmcmc.sgld_setup(
        log_lik, {"y": Y, "g": own}, {"m": np.array([0.0, 5.0, 9.0])}, 1e-3
    )
    wanted = sampler.est_log_post({"y": NEW_Y, "g": pd.Categorical(NEW, NAMES)})
    for form in ("categories", "text", "a list"):
        assert sampler.est_log_post({"y": NEW_Y, "g": FORMS[form](NEW)}) == wanted
    with pytest.raises(ValueError, match="has the level '2'"):
        sampler.est_log_post({"y": NEW_Y, "g": [2, 0, 2, 1]})


def test_a_store_of_other_levels(tmp_path: Path) -> None:
    def run(levels: Any) -> sgmcmc.Samples:
        dataset = {"y": Y, "g": pd.Categorical.from_codes(CODES, levels)}
        return sgmcmc.sgld(
            log_lik,
            dataset,
            {"m": np.zeros(3)},
            1e-3,
            n_iters=5,
            store=tmp_path / "s",
            **QUIET,
        )

    run(["a", "b", "c"])
    assert sgmcmc.Samples.open(tmp_path / "s").levels == {"g": ["a", "b", "c"]}
    run(["a", "b", "c"])
    with pytest.raises(
        ValueError, match="`dataset\\['g'\\]` has other levels, or in another"
    ):
        run(["a", "c", "b"])


def test_ordered_files_that_agree(tmp_path: Path) -> None:
    """The numbers of an ordered category follow its order, whichever file comes first."""
    arrow, parquet = (
        pytest.importorskip("pyarrow"),
        pytest.importorskip("pyarrow.parquet"),
    )

    def write(name: str, levels: list[str]) -> None:
        codes = arrow.array(np.arange(len(levels), dtype=np.int8))
        own = arrow.DictionaryArray.from_arrays(
            codes, arrow.array(levels), ordered=True
        )
        parquet.write_table(arrow.table({"g": own}), tmp_path / f"{name}.parquet")

    write("0", ["mid", "high"])
    write("1", ["low", "mid"])
    data = read_dataset(tmp_path, tf.float32)
    assert data.levels["g"] == Levels(("low", "mid", "high"), ordered=True)
    assert data.whole["g"].numpy().tolist() == [1, 2, 0, 1]
    assert np.asarray(data.rows(np.array([3, 0]))["g"]).tolist() == [1, 1]
    write("2", ["high", "low"])
    with pytest.raises(ValueError, match="ordered category .* no one order"):
        read_dataset(tmp_path, tf.float32)


def test_a_column_of_categories_is_read_by_its_values() -> None:
    column = Categories(np.array([1, 0], np.int32), Levels((7, 9)))
    assert np.asarray(column).tolist() == [9, 7]
    assert read_dataset({"g": column}, tf.float32).levels["g"].values == (7, 9)


def test_labels_of_groups_are_stored() -> None:
    """Effects that are coordinates, in a file, have the labels of their groups."""

    def law(effects: Any, params: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum(effects["z"] ** 2, -1)

    def terms(params: Any, dataset: Any) -> tf.Tensor:
        return (
            -0.5 * (dataset["y"] - params["mu"] - tf.reduce_sum(params["z"], -1)) ** 2
        )

    dataset = {"y": Y, "g": pd.Categorical(NAMES[CODES], ["z", *NAMES])}
    groups = sgmcmc.Groups("g", {"z": np.zeros(4)}, law)
    chain = sgmcmc.sgld(
        terms, dataset, {"mu": 0.0}, 1e-3, n_iters=3, groups=groups, **QUIET
    )
    assert chain["z"].shape == (3, 3, 4) and chain.levels == {"g": ["a", "b", "c"]}
    assert chain.effects("g", ["c"])["z"].shape == (1, 3, 1, 4)


def test_levels_on_their_way_to_a_worker(tmp_path: Path) -> None:
    """A worker opens the file of new rows by itself, and numbers them by the model's levels."""
    folder = _files(NEW, tmp_path)
    data = read_dataset(folder, tf.float32, levels={"g": Levels(tuple(NAMES))})
    _, parcel = courier(data)
    found = pickle.loads(pickle.dumps(parcel()))
    np.testing.assert_array_equal(found.whole["g"], ROWS)
