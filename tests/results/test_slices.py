"""Slices along the draws, and data frames."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest

from sgmcmc import Samples
from sgmcmc.results.report import Report
from tests.conftest import short_call
from tests.results.test_samples import made_by_hand

KEEPS = {
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"last": (0.0, lambda state, params: params["theta"])},
}


@functools.cache
def whole(n_chains: int | None = None) -> Samples:
    """Return a chain of twenty draws with all that may be kept, run once for all tests."""
    return short_call(n_chains=n_chains, **KEEPS)


@pytest.mark.parametrize("n_chains", [None, 2])
@pytest.mark.parametrize("place", [slice(5, None), slice(None, None, 3), slice(-4, -1)])
def test_slices_are_those_of_the_arrays(n_chains: int | None, place: slice) -> None:
    chain = whole(n_chains)
    part = chain[place]
    index = place if n_chains is None else (slice(None), place)
    np.testing.assert_array_equal(part["theta"], chain["theta"][index])
    np.testing.assert_array_equal(
        part.gradients["theta"], chain.gradients["theta"][index]
    )
    squares = chain.test_functions["square"][index]
    np.testing.assert_array_equal(part.test_functions["square"], squares)
    np.testing.assert_array_equal(part.log_post.values, chain.log_post.values)
    assert part.reductions is None
    assert part._report is None  # it is made again when it is asked for
    assert part.origin is chain.origin
    assert part.settings == {**chain.settings, "slice": list(place.indices(20))}


def test_copies_know_the_sampler_and_pickles_do_not() -> None:
    chain = whole()
    assert copy.copy(chain).origin is chain.origin is not None
    assert chain.with_report(Report({"warnings": []})).origin is chain.origin
    assert pickle.loads(pickle.dumps(chain)).origin is None


def test_slices_of_slices_tell_of_the_whole() -> None:
    chain = whole()
    part = chain[4::2][1:5]
    np.testing.assert_array_equal(part["theta"], chain["theta"][6:14:2])
    assert part.settings["slice"] == [6, 14, 2]


def test_unnormalized_and_modes() -> None:
    chain = made_by_hand()
    part = chain[1:3]
    np.testing.assert_array_equal(part.mode["a/b"], chain.mode["a/b"])
    np.testing.assert_array_equal(part["a/b"], chain["a/b"][:, 1:3])
    points = Samples(
        {"w": np.ones((5, 2))}, unnormalized={"w": np.arange(10.0).reshape(5, 2)}
    )
    assert points[3:].unnormalized["w"].tolist() == [[6.0, 7.0], [8.0, 9.0]]


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        (3, TypeError, "takes the name of a parameter, or a slice"),
        ((0, slice(3)), TypeError, "takes the name"),
        (slice(None, None, -1), ValueError, "forwards"),
        (slice(30, None), ValueError, r"`samples\[30:\]` holds none of the 20 draws"),
        (slice("a", None), TypeError, "indices"),
    ],
)
def test_what_is_refused(place: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        whole()[place]
    assert 3 not in whole()


def test_nothing_to_slice() -> None:
    with pytest.raises(ValueError, match="no draws to slice"):
        Samples({})[1:]


def test_a_data_frame_has_a_row_for_each_draw() -> None:
    draws = np.arange(24.0).reshape(2, 3, 2, 2)
    samples = Samples(
        {"beta": draws, "bias": draws[..., 0, 0]}, settings={"n_chains": 2}
    )
    table = samples[1:].to_dataframe()
    assert list(table.columns) == [
        "beta[0, 0]",
        "beta[0, 1]",
        "beta[1, 0]",
        "beta[1, 1]",
        "bias",
    ]
    assert list(table.index) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert table.index.names == ["chain", "draw"]
    assert table.loc[(1, 2), "beta[1, 0]"] == draws[1, 2, 1, 0]
    assert (table["bias"] == draws[:, 1:, 0, 0].ravel()).all()
    with pytest.raises(ValueError, match="no draws"):
        Samples({}).to_dataframe()
