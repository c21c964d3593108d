"""`collapse`: distinct rows and their counts, in every container."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tensorflow as tf
from tensorflow_probability import bijectors

import sgmcmc
from sgmcmc.data.reading import read_dataset

SIZE = 500


def dataset():
    random = np.random.default_rng(1)
    return {
        "x": random.integers(3, size=(SIZE, 2)).astype(np.float32),
        "group": random.choice(["a", "b"], SIZE),
        "y": random.integers(2, size=SIZE),
    }


def rows_of(columns, counts):
    """Each distinct row with its number, by sorting the rows as tuples."""
    numbers = {}
    for row, count in zip(zip(*map(list, columns), strict=True), counts, strict=True):
        numbers[row] = numbers.get(row, 0.0) + float(count)
    return numbers


def flat(data):
    return [data["x"][:, 0], data["x"][:, 1], data["group"], data["y"]]


def test_rows_and_counts_are_those_of_a_count_by_hand():
    data = dataset()
    collapsed = sgmcmc.collapse(data)
    expected = rows_of(flat(data), np.ones(SIZE))
    assert rows_of(flat(collapsed), collapsed["n"]) == expected
    assert len(collapsed["n"]) == len(expected)
    assert collapsed["x"].dtype == np.float32 and collapsed["n"].dtype == np.float64


def test_rows_are_in_the_order_of_their_first_occurrence():
    collapsed = sgmcmc.collapse({"x": [3, 1, 3, 2, 1]})
    np.testing.assert_array_equal(collapsed["x"], [3, 1, 2])
    np.testing.assert_array_equal(collapsed["n"], [2, 2, 1])


def test_counts_add_up():
    data = dataset()
    halves = [
        sgmcmc.collapse({name: values[rows] for name, values in data.items()}, "w")
        for rows in (slice(0, 200), slice(200, SIZE))
    ]
    both = {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
    collapsed = sgmcmc.collapse(both, "w")
    assert rows_of(flat(collapsed), collapsed["w"]) == rows_of(
        flat(data), np.ones(SIZE)
    )
    again = sgmcmc.collapse(collapsed, "w")
    assert all(np.array_equal(again[name], collapsed[name]) for name in collapsed)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_are_collapsed_to_frames(library):
    data = dataset()
    frame = pd.DataFrame({"a": data["x"][:, 0], "group": data["group"], "y": data["y"]})
    given = frame
    if library == "polars":
        given = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    elif library == "pyarrow":
        given = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    before = len(given)
    collapsed = sgmcmc.collapse(given)
    assert type(collapsed) is type(given) and len(given) == before
    plain = collapsed if library == "pandas" else collapsed.to_pandas()
    assert list(plain.columns) == ["a", "group", "y", "n"]
    expected = rows_of([frame[name] for name in frame], np.ones(SIZE))
    assert rows_of([plain[name] for name in frame], plain["n"]) == expected


@pytest.mark.parametrize(
    "values",
    [
        np.array([np.nan, 1.0, np.nan, -0.0, 0.0]),
        np.array([None, "a", None, "b", "b"], object),
        pd.Categorical([None, "a", None, "b", "b"]),
        np.array(["NaT", "2020-01-01", "NaT", "2021-01-01", "2021-01-01"], "M8[D]"),
    ],
    ids=["floats", "objects", "categories", "dates"],
)
def test_missing_values_and_zeros_are_equal_to_each_other(values):
    collapsed = sgmcmc.collapse(pd.DataFrame({"x": values}))
    np.testing.assert_array_equal(collapsed["n"], [2, 1, 2])


LEVELS = pd.Categorical(dataset()["y"] + 10, [11, 10])


@pytest.mark.parametrize(
    "column",
    [LEVELS, pd.Series(LEVELS), pd.Categorical(dataset()["group"], ["b", "a", "c"])],
    ids=["categorical", "series", "text"],
)
def test_categories_of_a_dict_keep_the_numbers_of_their_levels(column):
    """The sampler reads numbers of levels, whose values are others."""
    collapsed = sgmcmc.collapse({"g": column})["g"]
    categories = pd.Categorical(column).categories
    assert list(collapsed.categories) == list(categories)
    numbers = read_dataset({"g": column}, tf.float32).whole["g"]
    _, first = np.unique(numbers, return_index=True)
    np.testing.assert_array_equal(
        read_dataset({"g": collapsed}, tf.float32).whole["g"],
        numbers.numpy()[np.sort(first)],
    )


def test_arrow_dictionaries_of_a_dict_stay_categories():
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array(["b", "a", "b"]).dictionary_encode()
    collapsed = sgmcmc.collapse({"g": column})
    assert list(collapsed["g"].categories) == ["b", "a"]
    np.testing.assert_array_equal(collapsed["n"], [2, 1])


def test_a_log_likelihood_with_counts_is_that_of_all_rows():
    data = {name: values for name, values in dataset().items() if name != "group"}
    collapsed = sgmcmc.collapse(data)

    def terms(columns):
        slopes = tf.constant([0.3, -0.7], tf.float64)
        logits = tf.linalg.matvec(tf.cast(columns["x"], tf.float64), slopes)
        return -tf.nn.sigmoid_cross_entropy_with_logits(
            tf.cast(columns["y"], tf.float64), logits
        )

    whole = tf.reduce_sum(terms(data))
    counted = tf.reduce_sum(collapsed["n"] * terms(collapsed))
    np.testing.assert_allclose(counted, whole, rtol=1e-13)


@pytest.mark.slow
def test_the_posterior_is_that_of_all_rows():
    """Bernoulli rows with a uniform prior: p has a beta distribution."""
    y = np.random.default_rng(3).integers(10, size=4000) < 3
    collapsed = sgmcmc.collapse({"y": y.astype(np.float32)})
    assert len(collapsed["n"]) == 2

    def log_lik(params, columns):
        y, p = columns["y"], params["p"]
        return columns["n"] * (y * tf.math.log(p) + (1 - y) * tf.math.log(1 - p))

    ess = 4000
    samples = sgmcmc.hmc(
        log_lik,
        collapsed,
        {"p": 0.5},
        bijectors={"p": bijectors.Sigmoid()},
        ess=ess,
        seed=1,
        verbose=False,
    )
    beta = scipy.stats.beta(1 + y.sum(), 1 + (~y).sum())
    draws = np.asarray(samples["p"], np.float64)
    assert abs(draws.mean() - beta.mean()) < 4 * beta.std() / np.sqrt(ess)
    assert abs(draws.std() / beta.std() - 1) < 4 / np.sqrt(2 * ess)


@pytest.mark.parametrize(
    "given, error, text",
    [
        ([1, 2], TypeError, "`dataset` must be a dict of arrays"),
        ({"x": []}, ValueError, "`dataset` has no rows"),
        ({}, ValueError, "`dataset` has no rows"),
        ({"x": 1.0}, ValueError, "`dataset['x']` must have an entry for each row"),
        ({"x": [1, 2], "y": [1]}, ValueError, "`dataset`: columns differ in length"),
        ({"x": np.ma.array([1, 2])}, TypeError, "`dataset['x']` is a masked array"),
        ({"x": [1, 2], "n": [1, -1]}, ValueError, "`dataset['n']` must be numbers"),
        ({"x": [1, 2], "n": ["a", "b"]}, ValueError, "`dataset['n']` must be a number"),
    ],
)
def test_what_cannot_be_collapsed_is_refused_by_name(given, error, text):
    with pytest.raises(error) as raised:
        sgmcmc.collapse(given)
    assert str(raised.value).startswith(text)


def test_the_name_of_the_counts_is_a_string():
    with pytest.raises(TypeError, match="`weights` must be the name"):
        sgmcmc.collapse({"x": [1, 1]}, 3)
