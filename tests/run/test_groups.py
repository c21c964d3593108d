"""Many chains in groups, each in one kernel: the same draws as by themselves."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc import Samples
from sgmcmc.engine.vectorized import Group
from sgmcmc.results.arrays import LogPost
from sgmcmc.run import chain_executors
from sgmcmc.run.request import Request
from sgmcmc.run.sampler import make_sampler
from tests import seams
from tests.conftest import BY_NAME, METHODS, any_shape, short_call
from tests.run.stopping import StopError, same, short_blocks_of, stop_after

CHAINS = 9
QUICK = ("sgldcv",)
TUNING = {name: dict(BY_NAME[name].tuning) for name in METHODS}
KEEPS: dict[str, Any] = {
    "burn_in": 3,
    "thin": 2,
    "store_gradients": True,
    "test_functions": {"square": lambda params: params["theta"] ** 2},
    "reductions": {"mean": sgmcmc.running_mean(lambda params: params["theta"])},
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make groups of two chains, and count the blocks of groups."""
    small = {"min_chains": 2, "min_group": 2, "max_group": 2}
    groups = seams.changed(seams.EXECUTOR_SETTINGS, **small)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, groups)
    advance, counts = Group.advance, [0]

    def counting(self: Group, most: int | None = None) -> int:
        counts[0] += 1
        return advance(self, most)

    monkeypatch.setattr(seams.GROUP_ADVANCE, counting)
    return counts


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood with products of matrices, and one term for each observation."""
    x = tf.stack([tf.ones_like(dataset["x"]), dataset["x"]], 1)
    mean = tf.linalg.matvec(x, tf.reshape(params["beta"], [2])) + params["theta"]
    return -0.5 * (dataset["x"] ** 2 - mean) ** 2


def chains(method: str = "sgld", **given: Any) -> Samples:
    """Return a short call of several chains, which XLA compiles."""
    defaults = {
        "n_chains": CHAINS,
        "n_iters": 20,
        "dtype": tf.float64,
        "jit_compile": None,
        "log_lik": log_lik,
        "params": {"theta": 0.0, "beta": np.ones((2, 1))},
    }
    return short_call(method, **{**defaults, **TUNING.get(method, {}), **given})


def alike(one: Samples, other: Samples) -> None:
    """Everything is the same but for rounding, of the log posterior the last estimate.

    Those before are fewer in groups.
    """
    same(with_last_estimate(one), with_last_estimate(other), rtol=1e-9)


def with_last_estimate(samples: Samples) -> Samples:
    """Return the same with the last estimate of the log posterior alone."""
    iterations, values = samples.log_post
    last = copy.copy(samples)
    last.log_post = LogPost(iterations[-1:], values[..., -1:])
    return last


@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=[] if m in QUICK else pytest.mark.slow) for m in METHODS],
)
def test_the_same_draws_as_by_themselves(method: str, few: list[int]) -> None:
    """Without XLA no groups are made."""
    together, counted = chains(method, **KEEPS), few[0]
    alone = chains(method, **KEEPS, jit_compile=False)
    assert counted == few[0] > 0
    assert together.settings["paths"]["chains"] == "in groups of 2"
    assert alone.settings["paths"]["chains"] == "one by one"
    alike(together, alone)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"minibatches": "replacement"}, id="replacement"),
        pytest.param({"minibatch_size": 20}, id="whole"),
        pytest.param(
            {"minibatches": sgmcmc.minibatches.Weighted(np.arange(1.0, 21))},
            id="weighted",
        ),
        pytest.param({"stepsize": lambda t: 1e-3 / (1 + t)}, id="schedule"),
    ],
)
@pytest.mark.slow
def test_other_minibatches_and_stepsizes(given: dict[str, Any], few: list[int]) -> None:
    together = chains(**given)
    assert few[0] > 0
    alike(together, chains(**given, jit_compile=False))


@pytest.mark.slow
def test_points_of_the_simplex(few: list[int]) -> None:
    """And long rows, which native code gathers."""
    counts = (
        np.random.default_rng(1).multinomial(3, np.full(40, 1 / 40), 30).astype(float)
    )

    def of_counts(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return tf.reduce_sum(dataset["x"] * tf.math.log(params["omega"]))

    def run(**given: Any) -> Samples:
        return sgmcmc.sgrld(
            of_counts, {"x": counts}, {"omega": np.full(40, 1 / 40)}, 0.01, alpha=0.5,
            minibatch_size=5, n_iters=20, n_chains=CHAINS, seed=1, verbose=False,
            dtype=tf.float64, **given,
        )  # fmt: skip

    together = run()
    assert few[0] > 0
    alike(together, run(jit_compile=False))


def quartic(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood from which a chain runs away that starts far out."""
    return -0.25 * tf.reduce_sum(dataset["x"] ** 2) * params["theta"] ** 4


def test_one_of_a_group_diverges(few: list[int]) -> None:
    """It is reported as it would be alone, and the draws before are kept of all."""
    starts = [{"theta": 20.0 if chain == 4 else 0.0} for chain in range(CHAINS)]
    given: dict[str, Any] = {"log_lik": quartic, "params": starts, "n_iters": 30}
    with pytest.raises(sgmcmc.DivergenceError) as together:
        chains(**given)
    assert few[0] > 0
    with pytest.raises(sgmcmc.DivergenceError) as alone:
        chains(**given, jit_compile=False)
    assert together.value.iterations == alone.value.iterations
    assert str(together.value) == str(alone.value)
    assert together.value.samples is not None and alone.value.samples is not None
    # Others may have been ahead or behind.
    one, other = (error.value.samples["theta"] for error in (together, alone))
    draws = min(one.shape[1], other.shape[1])
    np.testing.assert_allclose(one[:, :draws], other[:, :draws], rtol=1e-9, atol=1e-11)
    assert np.isfinite(one).all()


def exact(method: str, **given: Any) -> Samples:
    """Return a short call of several chains of exact dynamics, with their warm-up."""
    x = np.random.default_rng(2).normal(size=20)
    call = getattr(sgmcmc, method)
    return call(
        log_lik,
        {"x": x},
        {"theta": 0.0, "beta": np.ones((2, 1))},
        lambda params: (
            -0.5 * (params["theta"] ** 2 + tf.reduce_sum(params["beta"] ** 2))
        ),
        **{
            "n_iters": 100,
            "n_chains": 3,
            "dtype": tf.float64,
            "seed": 4,
            "verbose": False,
            **given,
        },
    )


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every dataset be one that chains of exact dynamics read together."""
    small = {"min_row_bytes": 1, "min_data_bytes": 1}
    groups = seams.changed(seams.EXECUTOR_SETTINGS, **small)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, groups)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("hmc", {"stepsize": 0.05, "preconditioner": "none", "burn_in": 3}),
        pytest.param("hmc", {}, marks=pytest.mark.slow),
        pytest.param(
            "hmc", {"stepsize": {"theta": 0.1, "beta": 0.05}}, marks=pytest.mark.slow
        ),
        pytest.param("hmc", {"preconditioner": "diagonal"}, marks=pytest.mark.slow),
        pytest.param("mala", {}, marks=pytest.mark.slow),
    ],
)
def test_chains_of_exact_dynamics_read_a_large_dataset_together(
    method: str,
    given: dict[str, Any],
    few: list[int],
    large: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With constants that are given; and in the warm-up, when coordinates are in the state."""
    together, counted = exact(method, **given), few[0]
    monkeypatch.setenv("SGMCMC_NO_GROUPS", "1")
    alone = exact(method, **given)
    assert counted == few[0] > 0
    assert together.settings["paths"]["chains"] == "in groups of 2"
    assert alone.settings["paths"]["chains"] == "one by one"
    for name in together:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-7, atol=1e-9)
    for key in ("acceptance rate", "gradients per trajectory"):
        np.testing.assert_allclose(
            together.report["Chain"][key], alone.report["Chain"][key]
        )


@pytest.mark.slow
def test_a_store_of_exact_dynamics_goes_on(
    tmp_path: Path, few: list[int], large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"stepsize": 0.05, "preconditioner": "none", "burn_in": 3}
    monkeypatch.setattr(seams.LONGEST_EXACT, 16)
    never_stopped = exact("hmc", **given)
    go_on = stop_after(4, monkeypatch)
    with pytest.raises(StopError):
        exact("hmc", **given, store=tmp_path / "chain")
    go_on()
    same(exact("hmc", **given, store=tmp_path / "chain"), never_stopped)


@pytest.mark.parametrize("blocks", [pytest.param(8, marks=pytest.mark.slow), 13])
def test_stopped_and_resumed_to_the_bit(
    blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: list[int]
) -> None:
    """Also where one of a group was saved after a block and the other was not."""
    short_blocks_of(2**9, monkeypatch)
    given = {"n_iters": 50, "burn_in": 3, "thin": 2}
    never_stopped = chains(**given)
    assert few[0] > 3 * CHAINS
    go_on = stop_after(blocks, monkeypatch)
    with pytest.raises(StopError):
        chains(**given, store=tmp_path / "chain")
    go_on()
    same(chains(**given, store=tmp_path / "chain"), never_stopped)


@pytest.mark.slow
def test_a_store_of_groups_is_another_than_one_of_single_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains(store=tmp_path / "chain")
    monkeypatch.setenv("SGMCMC_NO_GROUPS", "1")
    with pytest.raises(ValueError, match="chains_in_a_group"):
        chains(store=tmp_path / "chain")


@pytest.mark.slow
def test_draws_go_on(few: list[int]) -> None:
    whole = chains(n_iters=20)
    same(chains(n_iters=7).extend(13, verbose=False), whole)
    assert few[0] > 10


def test_what_cannot_be_done_to_many_chains_is_done_to_each(
    monkeypatch: pytest.MonkeyPatch, few: list[int]
) -> None:

    def cannot(*given: Any) -> Any:
        raise ValueError("No pfor vectorization defined")

    monkeypatch.setattr(seams.FOR_EACH, cannot)
    assert chains()["theta"].shape == (CHAINS, 20)
    assert few[0] == 0


@pytest.mark.slow
def test_workers_run_the_same_groups(
    monkeypatch: pytest.MonkeyPatch, few: list[int]
) -> None:
    """To the bit, a stretch of a block at a time; the last group is of one chain."""
    short_blocks_of(2**9, monkeypatch)
    short = seams.changed(seams.EXECUTOR_SETTINGS, segment_seconds=0.0)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, short)
    here, counted = chains("sgldcv", **KEEPS), few[0]
    with ThreadPoolExecutor(2) as pool:
        there = chains("sgldcv", **KEEPS, executor=pool)
    assert few[0] == 2 * counted > 0
    assert there.settings["paths"]["chains"] == "in groups of 2"
    same(there, here)


def test_workers_too_run_each_chain_where_groups_are_impossible(
    monkeypatch: pytest.MonkeyPatch, few: list[int]
) -> None:
    monkeypatch.setattr(seams.GROUP_KERNEL_COMPILE, lambda *_: False)
    here = chains(n_iters=5)
    with ThreadPoolExecutor(2) as pool:
        same(chains(n_iters=5, executor=pool), here)
    assert few[0] == 0


def size(**given: Any) -> int:
    """Return the size of a group by the rule, for 1000 chains unless told otherwise."""
    request = Request(
        "sample",
        "sample",
        any_shape,
        {"x": np.zeros((given.pop("N", 2000), given.pop("columns", 3)), np.float32)},
        {"theta": np.zeros(given.pop("d", 3)), "other": 0.0},
        None,
        given.pop("dynamics", "sgld"),
        given.pop("gradient", "minibatch"),
        given.pop("n", 20),
        1e-3,
        1,
        {"n_chains": 1000, **given},
    )
    sampler = make_sampler(request)
    return chain_executors.group_size(sampler, sampler.chain)


def test_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert size() == 32
    assert size(n_chains=64) == 16
    assert size(n_chains=100) == 25
    assert size(n=50, columns=54, d=54) == 19
    full = sgmcmc.gradients.FullGradient()
    assert size(n=None, gradient=full) == 32
    whole = {"n": None, "gradient": full, "columns": 300, "N": 30_000}
    assert size(**whole, dynamics=sgmcmc.dynamics.HMC(), n_chains=4) == 4
    assert size(**whole, dynamics=sgmcmc.dynamics.MALA(), n_chains=40) == 20
    assert size(**whole, dynamics=sgmcmc.dynamics.NUTS(), n_chains=4) == 1
    assert size(**whole, dynamics=sgmcmc.dynamics.HMC(), n_chains=1) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"n_chains": 63},
        {"n": 500, "columns": 54},
        {"d": 2000},
        {"gradient": sgmcmc.gradients.SVRG()},
        {"gradient": sgmcmc.gradients.SAGA()},
        {"gradient": sgmcmc.gradients.FullGradient(), "n": None, "N": 20_000},
        {
            "dynamics": sgmcmc.dynamics.HMC(),
            "gradient": sgmcmc.gradients.FullGradient(),
            "n": None,
        },
        {"updates": "in_turn"},
        {"jit_compile": False},
    ],
    ids=str,
)
def test_chains_by_themselves(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert size(**given) == 1
