"""Arrays in 16 bits: the chain is that of the rounded numbers."""

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.derived_columns import FORMATS, HalfColumn
from sgmcmc.data.reading import read_dataset

N, D = 3000, 40
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = (RNG.random(N) < 0.5).astype(np.float32)
START = {"beta": np.zeros(D)}
ROUNDING = 1e-6
"""Largest difference of draws, below 1, whose sums XLA adds up in another order."""


def log_lik(params, dataset):
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(labels=dataset["y"], logits=logits)


def rounded(array, storage):
    return array.astype(FORMATS[storage].as_numpy_dtype).astype(np.float32)


def by_sgld(X, **more):
    data, keywords = (
        {"X": X, "y": Y},
        {"n_iters": 40, "verbose": False, "seed": 1, "jit_compile": False, **more},
    )
    return sgmcmc.sgld(log_lik, data, START, 1e-4, minibatch_size=500, **keywords)


@pytest.mark.some(1)
@pytest.mark.parametrize(("storage", "n_chains"), [("float16", None), ("bfloat16", 4)])
def test_the_draws_are_those_of_rounded_numbers(storage, n_chains):
    found = by_sgld(X, storage=storage, n_chains=n_chains)
    of_rounded = by_sgld(rounded(X, storage), n_chains=n_chains)
    assert np.abs(found["beta"] - of_rounded["beta"]).max() < ROUNDING
    assert (
        np.abs(found["beta"] - by_sgld(X, n_chains=n_chains)["beta"]).max()
        > 10 * ROUNDING
    )
    assert (
        found.settings["storage"] == storage and of_rounded.settings["storage"] is None
    )


@pytest.mark.slow  # four calls that compile
def test_without_constants_and_with_more_rows():
    few, draws = X[:, :3], []
    wanted = {"seed": 1, "verbose": False, "n_iters": 100, "n_chains": 2}
    for features, storage in ((few, "float16"), (rounded(few, "float16"), None)):
        data, start = {"X": features[:2500], "y": Y[:2500]}, {"beta": np.zeros(3)}
        samples = sgmcmc.sample(log_lik, data, start, storage=storage, **wanted)
        more = samples.update({"X": features[2500:], "y": Y[2500:]}, verbose=False)
        draws += [samples["beta"], more["beta"]]
    assert np.abs(draws[0] - draws[2]).max() < ROUNDING
    assert np.abs(draws[1] - draws[3]).max() < ROUNDING


@pytest.mark.slow
def test_step_by_step():
    data = {"X": X, "y": Y}
    sampler = sgmcmc.sgld_setup(
        log_lik, data, START, 1e-4, minibatch_size=500, seed=1, storage="float16"
    )
    session = sgmcmc.init_sess(sampler, verbose=False)
    sgmcmc.sgmcmc_step(sampler, session, n_steps=40)
    found = by_sgld(X, storage="float16")["beta"][-1]
    np.testing.assert_allclose(
        sgmcmc.get_params(sampler, session)["beta"], found, rtol=1e-5
    )


def test_what_is_stored():
    many = {"X": X, "y": Y, "g": np.arange(N), "image": RNG.random((N, 2, 3))}
    data = read_dataset(many, tf.float32, ("g",), "bfloat16")
    kinds = {
        name: isinstance(column, HalfColumn) for name, column in data.columns.items()
    }
    assert kinds == {"X": True, "y": False, "g": False, "image": True}
    assert data.columns["X"].row_bytes == 2 * D and data.row_bytes == 2 * D + 4 + 4 + 12
    part, rows = data.slice(10, 20), np.array([[3, 1], [2, 2]])
    assert part["image"].dtype == tf.float32 and part["image"].shape == (10, 2, 3)
    np.testing.assert_array_equal(part["X"], rounded(X[10:20], "bfloat16"))
    np.testing.assert_array_equal(
        data.columns["X"].tensor_at(rows), rounded(X, "bfloat16")[rows]
    )
    out = np.empty((2, 2, D), np.float32)
    data.columns["X"].take(rows, out)
    np.testing.assert_array_equal(out, rounded(X, "bfloat16")[rows])


@pytest.mark.parametrize("storage", ["float32", "half", 16, True, ["float16"]])
def test_other_formats_are_refused(storage):
    with pytest.raises(
        ValueError, match="`storage` must be 'float16', 'bfloat16' or None"
    ):
        by_sgld(X, storage=storage)


def test_numbers_beyond_the_format_are_refused():
    large = X.copy()
    large[5, 3] = -1e5
    with pytest.raises(
        ValueError, match="'X'.*holds -100000, which float16 cannot hold.*65504"
    ):
        by_sgld(large, storage="float16")
    by_sgld(large, storage="bfloat16", n_iters=1, thin=1, jit_compile=None)


def test_groups_are_refused():
    groups = sgmcmc.Groups(
        "g", {"z": 0.0}, lambda effects, params: -0.5 * effects["z"] ** 2
    )
    data = {"X": X, "y": Y, "g": np.arange(N) % 9}
    with pytest.raises(ValueError, match="`storage` is for models without `groups`"):
        sgmcmc.sample(
            log_lik, data, START, groups=groups, storage="float16", verbose=False
        )
