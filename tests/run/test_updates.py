"""Posteriors that begin where another ended."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.data.derived_columns import joined
from sgmcmc.data.reading import read_dataset
from sgmcmc.run.sampler_origin import origin_of

RNG = np.random.default_rng(3)
X = RNG.normal(1.0, 2.0, size=6000)


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def exact(samples: sgmcmc.Samples, x: np.ndarray) -> None:
    """Hold draws to N(mean, 1/N), the posterior under a flat prior."""
    draws = samples["theta"]
    error = np.sqrt(1 / len(x) / 400)
    assert abs(draws.mean() - x.mean()) < 4.5 * error
    assert draws.std() * np.sqrt(len(x)) == pytest.approx(
        1, abs=0.05 + 4.5 / np.sqrt(800)
    )
    assert samples.settings["N"] == len(x)


def sampled(dataset: Any, **keywords: Any) -> sgmcmc.Samples:
    keywords = {"seed": 1, "verbose": False, **keywords}
    return sgmcmc.sample(log_lik, dataset, {"theta": 0.0}, **keywords)


@functools.cache
def half() -> sgmcmc.Samples:
    """Return the draws of the first half of the rows."""
    return sampled({"x": X[:3000]})


@functools.cache
def few_draws() -> sgmcmc.Samples:
    """Return few draws of less than half of the rows, after which updates draw few too."""
    return sampled({"x": X[:2900]}, n_iters=200)


@functools.cache
def updated() -> sgmcmc.Samples:
    """Return them updated by all other rows."""
    return few_draws().update({"x": X[2900:]}, seed=5, verbose=False)


def test_the_posterior_with_new_rows_again_and_again() -> None:
    samples = half()
    before = samples["theta"].copy()
    for end in (3001, 6000):
        start = samples.settings["N"]
        samples = samples.update({"x": X[start:end]}, verbose=False)
        exact(samples, X[:end])
    assert samples.settings["seed"] == 3  # the one after that of the draws
    np.testing.assert_array_equal(before, half()["theta"])


def test_an_update_leaves_nothing_behind() -> None:
    """The same call gives the same draws after another's rows were added to."""
    assert len(updated()) == 1
    again = sampled({"x": X[:2900]}, n_iters=200)
    np.testing.assert_array_equal(again["theta"], few_draws()["theta"])


def test_the_mode_is_taken_along() -> None:
    fresh = sampled({"x": X}, n_iters=200)
    modes = [origin_of(each).sampler.request.mode for each in (fresh, updated())]
    assert modes[0] is not None and modes[1] is not None
    assert modes[1].evaluations < modes[0].evaluations


def source(samples: sgmcmc.Samples) -> Any:
    """Return what the measurements of a chain are taken over from, if they are."""
    plan = origin_of(samples).sampler.request.plan
    assert plan is not None
    return plan.earlier


def test_what_was_measured_is_kept_until_things_change() -> None:
    """The noise of gradients is, for more rows of the same kind, until there are twice as many."""
    samples = few_draws()
    assert source(samples) is None
    more = samples.update({"x": X[2900:4500]}, verbose=False)
    assert source(more).rows == 2900
    noise = [
        origin_of(each).sampler.request.plan.around.noise for each in (samples, more)
    ]
    np.testing.assert_allclose(*noise, rtol=1e-6)
    assert source(updated()) is None


@pytest.mark.slow
def test_what_was_measured_is_kept_twice_and_not_for_rows_of_another_kind() -> None:
    samples = sampled({"x": X[:2500]}, n_iters=200)
    more = samples.update({"x": X[2500:4000]}, verbose=False)
    assert source(more.update({"x": X[4000:4600]}, verbose=False)).rows == 2500
    assert source(more.update({"x": X[4000:]}, verbose=False)) is None
    assert source(samples.update({"x": X[2500:3000] + 30.0}, verbose=False)) is None


@pytest.mark.slow
def test_what_was_measured_without_a_preconditioner_grows_with_the_rows() -> None:
    samples = sampled({"x": X[:2500]}, n_iters=200, preconditioner="none")
    more = samples.update({"x": X[2500:4000]}, verbose=False)
    noise = [
        origin_of(each).sampler.request.plan.around.noise for each in (samples, more)
    ]
    assert noise[1] == pytest.approx(4000 / 2500 * noise[0], rel=1e-6)


def test_draws_that_were_extended() -> None:
    """Their update is that of the call, bit for bit by the same seed."""
    samples = few_draws().extend(100, verbose=False)
    assert samples["theta"].shape == (4, 300)
    found = samples.update({"x": X[2900:]}, seed=5, verbose=False)
    assert found["theta"].shape == (4, 200)
    assert found.settings["seed"] == 5
    np.testing.assert_array_equal(found["theta"], updated()["theta"])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [sgmcmc.hmc, sgmcmc.nuts])
def test_exact_samplers(sampler: Any) -> None:
    samples = sampler(log_lik, {"x": X[:500]}, {"theta": 0.0}, seed=1, verbose=False)
    exact(samples.update({"x": X[500:800]}, verbose=False), X[:800])


@pytest.mark.slow
def test_start_of_another_call() -> None:
    exact(sampled({"x": X}, start=half()), X)


def test_chains_begin_at_the_last_of_draws_without_a_mode() -> None:
    """Draws of constants that were given have none."""
    given = sgmcmc.sgld(
        log_lik,
        {"x": X},
        {"theta": 1.0},
        1e-6,
        n_iters=50,
        n_chains=4,
        seed=1,
        verbose=False,
        jit_compile=False,
    )
    asked: dict[str, Any] = {
        "dynamics": "sgld", "gradient": "full", "minibatches": "uniform", "minibatch_size": None,
        "preconditioner": "none", "stepsize": 1e-12, "n_iters": 1, "burn_in": 0,
        "jit_compile": False,
    }  # fmt: skip
    one = sampled({"x": X}, start=given, **asked)
    np.testing.assert_allclose(one["theta"][:, 0], given["theta"][:, -1], atol=1e-4)


@pytest.mark.parametrize("sampled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_on_disk_sparse_and_mixed(sampled: bool, tmp_path: Path) -> None:
    """The rows that an update reads, and those of a posterior that was updated."""
    table = RNG.normal(size=(1800, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", table[:1200])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    matrix = scipy.sparse.random_array((1800, 3), density=0.3, rng=RNG, format="csr")

    def both(params: Any, dataset: Any) -> tf.Tensor:
        z = tf.linalg.matvec(dataset["x"], params["b"])
        z += tf.sparse.sparse_dense_matmul(dataset["s"], params["b"][:, None])[:, 0]
        return -0.5 * (z - tf.cast(dataset["k"], tf.float32)) ** 2

    k = tf.constant(RNG.integers(0, 3, 1800))
    old = {"x": mapped, "s": matrix[:1200], "k": k[:1200]}
    new = {"x": table[1200:], "s": matrix[1200:], "k": k[1200:]}
    if sampled:
        samples = sgmcmc.sample(
            both,
            old,
            {"b": np.zeros(3)},
            n_iters=100,
            seed=1,
            verbose=False,
            jit_compile=False,
            n_chains=2,
        )
        data = origin_of(samples.update(new, verbose=False)).data
    else:
        data = joined(*(read_dataset(part, tf.float32) for part in (old, new)))
    rows = np.array([5, 1199, 1200, 1799, 0])
    found = data.rows(rows)
    np.testing.assert_array_equal(found["x"], table[rows])
    np.testing.assert_allclose(
        tf.sparse.to_dense(found["s"]), matrix[rows].toarray(), rtol=1e-6
    )
    np.testing.assert_array_equal(found["k"], k.numpy()[rows])
    np.testing.assert_array_equal(data.slice(1190, 1210)["x"], table[1190:1210])


@pytest.mark.slow
def test_groups() -> None:
    site = np.array([f"s{g}" for g in np.repeat(np.arange(40), 10)])
    z = RNG.normal(0.0, 0.7, 40)
    y = RNG.normal(1.0 + np.repeat(z, 10), 1.0)

    def terms(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * (dataset["y"] - params["mu"] - params["z"]) ** 2

    def law(effects: Any, params: Any) -> tf.Tensor:
        return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])

    def log_prior(params: Any) -> tf.Tensor:
        return -params["tau"]

    def run(rows: slice) -> sgmcmc.Samples:
        return sgmcmc.sample(
            terms, {"y": y[rows], "site": site[rows]}, {"mu": 0.0, "tau": 1.0}, log_prior,
            groups=sgmcmc.Groups("site", {"z": 0.0}, law), bijectors={"tau": tfp.bijectors.Exp()},
            ess=200, seed=1, verbose=False,
        )  # fmt: skip

    # The last rows are those of a group that is there and of groups that are new.
    found = run(slice(0, 355)).update({"y": y[355:], "site": site[355:]}, verbose=False)
    # Given tau, mu is normal around the mean of all rows, for groups are of one size.
    sds = np.sqrt((found["tau"] ** 2 + 1 / 10) / 40)
    error = np.sqrt((sds**2).mean() / 200)
    assert abs(found["mu"].mean() - y.mean()) < 4.5 * error
    assert abs(found["mu"].std() / np.sqrt((sds**2).mean()) - 1) < 0.05 + 4.5 / np.sqrt(
        400
    )
    assert found.effects("site")["z"].shape[2] == 40


@pytest.mark.slow
def test_effects_that_are_coordinates_begin_anew() -> None:
    a, b = np.repeat(np.arange(8), 30), np.tile(np.arange(6), 40)
    y = RNG.normal(1.0, 1.0, 240)

    def terms(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * (dataset["y"] - params["mu"] - params["u"] - params["v"]) ** 2

    groups = [
        sgmcmc.Groups(
            "a", {"u": 0.0}, lambda effects, params: -0.5 * effects["u"] ** 2
        ),
        sgmcmc.Groups(
            "b", {"v": 0.0}, lambda effects, params: -0.5 * effects["v"] ** 2
        ),
    ]
    part = sgmcmc.sample(
        terms, {"y": y[:215], "a": a[:215], "b": b[:215]}, {"mu": 0.0}, groups=groups,
        n_iters=200, seed=1, verbose=False,
    )  # fmt: skip
    found = part.update({"y": y[215:], "a": a[215:], "b": b[215:]}, verbose=False)
    assert part["v"].shape == found["v"].shape == (4, 200, 6)
    assert found.effects("a")["u"].shape[2] == 8 and np.isfinite(found["mu"]).all()


def test_wrong_rows_and_starts() -> None:
    samples = few_draws()
    with pytest.raises(
        ValueError, match=r"^`rows` must have the columns of `dataset`, \['x'\]"
    ):
        samples.update({"y": X[3000:]})
    with pytest.raises(
        ValueError, match=r"^`rows\['x'\]` must have rows like those of"
    ):
        samples.update({"x": X[3000:3002, None]})
    with pytest.raises(ValueError, match=r"^`rows\['x'\]` .*NaN"):
        samples.update({"x": [np.nan]})
    with pytest.raises(ValueError, match="^`seed`"):
        samples.update({"x": X[3000:]}, seed=-1)
    given = sgmcmc.sgld(
        log_lik, {"x": X}, {"theta": 1.0}, 1e-6, n_iters=50, seed=1, verbose=False
    )
    with pytest.raises(ValueError, match="constants that you chose"):
        given.update({"x": X})
    with pytest.raises(ValueError, match="not in the process"):
        sgmcmc.Samples({"theta": np.zeros(3)}).update({"x": X})
    with pytest.raises(TypeError, match="^`start` must be the Samples"):
        sampled({"x": X}, start={"theta": 0.0})
    with pytest.raises(ValueError, match="^`start` must be of the parameters"):
        sgmcmc.sample(log_lik, {"x": X}, {"mu": 0.0}, start=samples)
