"""Running reductions against the same fold over the draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.conftest import EACH_ESTIMATOR, METHODS, short_call

REDUCTIONS = {
    "mean": sgmcmc.running_mean(lambda params: params["theta"]),
    "moments": sgmcmc.running_moments(lambda params: params["theta"]),
    "largest": (
        -np.inf,
        lambda state, params: tf.maximum(state, tf.reduce_max(params["theta"])),
    ),
    "total": (np.zeros(2), lambda state, params: state + params["theta"]),
    "last two": (
        lambda params: {"last": params["theta"], "before": params["theta"]},
        lambda state, params: {"last": params["theta"], "before": state["last"]},
    ),
}


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((dataset["x"][:, tf.newaxis] - params["theta"]) ** 2)


def run(**given: Any) -> sgmcmc.Samples:
    of_model = {"log_lik": log_lik, "params": {"theta": [0.0, 1.0]}}
    return short_call(**{**of_model, "reductions": REDUCTIONS, "n_iters": 60, **given})


def check(reductions: Any, draws: np.ndarray, dtype: Any = np.float32) -> None:
    """Rounding: sixty additions of numbers of order one."""
    close = {"rtol": 1e-4, "atol": 100 * np.finfo(dtype).eps}
    np.testing.assert_allclose(reductions["mean"], draws.mean(0), **close)
    np.testing.assert_allclose(reductions["moments"]["mean"], draws.mean(0), **close)
    np.testing.assert_allclose(reductions["moments"]["variance"], draws.var(0), **close)
    np.testing.assert_array_equal(reductions["largest"], draws.max())
    np.testing.assert_allclose(reductions["total"], draws.sum(0), **close)
    np.testing.assert_array_equal(reductions["last two"]["last"], draws[-1])
    np.testing.assert_array_equal(reductions["last two"]["before"], draws[-2])


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("method", "jit_compile"),
    [
        *[(method, False) for method in METHODS],
        *[(method, True) for method in EACH_ESTIMATOR],
    ],
)
def test_folds_are_those_of_the_kept_draws(method: str, jit_compile: bool) -> None:
    samples = run(method=method, jit_compile=jit_compile, thin=3, burn_in=7)
    assert len(samples["theta"]) == 20
    check(samples.reductions, samples["theta"])


@pytest.mark.slow
def test_in_double_precision() -> None:
    samples = run(dtype=tf.float64)
    assert samples.reductions["mean"].dtype == np.float64
    check(samples.reductions, samples["theta"], np.float64)


def test_folds_do_not_change_the_draws_and_need_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = run(reductions=None)
    assert plain.reductions is None
    alone = run(store_params=False)
    assert list(alone) == []
    check(alone.reductions, plain["theta"])


def test_each_chain_has_its_own() -> None:
    samples = run(n_chains=2)
    for chain in range(2):
        each = {
            name: {key: part[chain] for key, part in value.items()}
            if hasattr(value, "items")
            else value[chain]
            for name, value in samples.reductions.items()
        }
        check(each, samples["theta"][chain])


def test_saved_and_loaded(tmp_path: Path) -> None:
    samples = run()
    samples.save(tmp_path / "chain")
    loaded = sgmcmc.Samples.load(tmp_path / "chain")
    assert list(loaded.reductions) == list(samples.reductions)
    check(loaded.reductions, samples["theta"])


@pytest.mark.parametrize(
    ("reduction", "error", "said"),
    [
        (3.0, TypeError, "a pair"),
        ((0.0, 1.0), TypeError, "function"),
        ((0.0, lambda state, params: params["theta"]), ValueError, "like the one"),
        ((0.0, lambda state, params: state + params["beta"]), ValueError, "beta"),
        (
            (0, lambda state, params: state + params["theta"][0]),
            Exception,
            "reductions",
        ),
    ],
)
def test_wrong_reductions_are_refused(
    reduction: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match="reductions") as caught:
        run(reductions={"it": reduction})
    assert said in str(caught.value)


def test_a_state_of_arrays_takes_the_dtype_of_the_chain() -> None:
    fold = (
        {"sum": np.zeros(2)},
        lambda state, params: {"sum": state["sum"] + params["theta"]},
    )
    found = run(reductions={"fold": fold}).reductions["fold"]["sum"]
    assert found.dtype == np.float32


@pytest.mark.parametrize("k", [10**7, 10**8, 2**31 - 1000])
def test_late_draws_count_as_early_ones(k: int) -> None:
    """In float32 nothing is added any more to what 2²⁴ draws have added up to."""
    values = np.random.default_rng(1).normal(1.0, 0.1, 200).astype(np.float32)
    moments = sgmcmc.running_moments(lambda params: params["theta"])
    before = {"count": tf.constant(k), "mean": 1.0, "squares": 0.01 * k}
    state = {name: tf.constant(value, moments.init({"theta": values[0]})[name].dtype)
             for name, value in before.items()}  # fmt: skip
    for value in values:
        state = moments.update(state, {"theta": tf.constant(value)})
    added = float(state["squares"]) - before["squares"]
    np.testing.assert_allclose(
        added, ((values - 1.0) ** 2).sum(dtype=np.float64), rtol=1e-4
    )
