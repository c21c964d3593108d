"""Every wrong input is refused before anything runs, by an error that names the argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.inputs.options import read_options
from sgmcmc.run.sampler import Sampler
from tests import seams
from tests.inputs.bad import INF, NAN, TWO, Bad, X, log_lik
from tests.inputs.bad_functions import MODEL, OPTIONS, RUN, UNKNOWN, root, theta_only
from tests.inputs.bad_values import DATASET, MINIBATCH, PARAMS, STEPSIZES, TUNING
from tests.inputs.bad_workings import CHAINS, EXECUTOR, INTEGERS, KEEPING, PARTS
from tests.ladder import DISTINCT

TABLES = {
    "stepsizes": STEPSIZES,
    "tuning": TUNING,
    "params": PARAMS,
    "dataset": DATASET,
    "minibatch": MINIBATCH,
    "model": MODEL,
    "run": RUN,
    "options": OPTIONS,
    "unknown": UNKNOWN,
    "executor": EXECUTOR,
    "integers": INTEGERS,
    "chains": CHAINS,
    "keeping": KEEPING,
    "parts": PARTS,
}
CASES = [
    pytest.param(case, id=f"{table}: {name}")
    for table, cases in TABLES.items()
    for name, case in cases.items()
]


@pytest.fixture(autouse=True)
def no_chain_runs(monkeypatch: pytest.MonkeyPatch) -> list[Sampler]:
    """Put a list of what would have been run in the run's place."""
    ran: list[Sampler] = []

    class NoRun:
        def __init__(self, sampler: Sampler, n_iters: int, store: Any) -> None:
            ran.append(sampler)

        def finish(self, verbose: bool) -> None:
            """Do nothing."""

    monkeypatch.setattr(seams.DRIVER_RUN, NoRun)
    return ran


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_refused(
    case: Bad, run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        run(case.method, **case.arguments)
    message = str(caught.value)
    assert caught.type is case.error, message
    for part in case.says:
        assert part in message
    assert message.startswith(("`", f"{case.method}() has no argument `")), message
    assert len(message) < 900, "a message is for reading"
    assert "/site-packages/" not in message
    assert not no_chain_runs


def test_nan_on_disk_is_found(tmp_path: Path, run: Callable[..., Any]) -> None:
    column = np.memmap(tmp_path / "x", np.float64, "w+", shape=(100, 2))
    column[70, 1] = NAN
    with pytest.raises(ValueError, match=r"dataset\['x'\].*NaN.*\(70, 1\)"):
        run(dataset={"x": column})


def test_nan_on_disk_is_found_in_a_later_piece(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.SLAB_BYTES, 160)
    column = np.memmap(tmp_path / "x", np.float64, "w+", shape=(100, 2))
    column[70, 1] = NAN
    with pytest.raises(ValueError, match=r"NaN.*\(70, 1\)"):
        run(dataset={"x": column})


def test_large_integers_on_disk_are_found(
    tmp_path: Path, run: Callable[..., Any]
) -> None:
    column = np.memmap(tmp_path / "x", np.int64, "w+", shape=(100,))
    column[99] = 2**40
    with pytest.raises(ValueError, match="1099511627776.*float32"):
        run(dataset={"x": column})


def of_theta_alone(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return a sum over the observations that does not look at them."""
    return -(params["theta"] ** 2) * tf.cast(tf.shape(dataset["x"])[0], tf.float32)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_iters": 100.0},
        {"seed": 13.0},
        {"seed": None},
        {"seed": 2**70},
        {"minibatch_size": 20.0},
        {"minibatch_size": np.float64(0.5)},
        {"minibatch_size": np.int64(3)},
        {"n_chains": 2.0, "burn_in": 3.0, "thin": 2.0},
        {"stepsize": np.float32(1e-3)},
        {"stepsize": np.array(1e-3)},
        {"stepsize": tf.constant(1e-3)},
        {"stepsize": {"theta": 1}},
        {"params": {"theta": tf.Variable(1.0)}},
        {"dtype": "float64"},
        {"dtype": np.float64},
        {"store_params": ("theta",)},
        {"verbose": np.True_},
        {"dataset": {"x": np.array([0, 2**24, -(2**24)] * 5)}},
        {"dataset": {"x": np.array([0, 2**24 + 1] * 5)}, "dtype": tf.float64},
        {"dataset": {"x": np.array([0.0, INF] * 5)}, "log_lik": of_theta_alone},
        {"log_lik": tf.function(log_lik)},
        {"log_lik": functools.partial(log_lik)},
        {"log_lik": lambda p, d: 0.0, "log_prior": lambda p: -(p["theta"] ** 2)},
        {"log_prior": lambda p: 0.0},
        {"dataset": {"x": X, "id": tf.constant([2**40] * 20, tf.int64)}},
    ],
    ids=lambda arguments: ", ".join(
        f"{name}={type(value).__name__ if callable(value) else repr(value)}"
        for name, value in arguments.items()
    )[:60],
)
def test_right_input_is_accepted(
    arguments: dict[str, Any], run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    run(**arguments)
    assert len(no_chain_runs) == 1


@pytest.mark.parametrize(
    "method", [case.name for case in DISTINCT if "L" in case.constants]
)
def test_whole_floats_are_steps(
    method: str, run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    run(method, L=5.0, alpha={"theta": 1})
    assert no_chain_runs[0].chain.dynamics.steps == 5


def test_a_prior_alone_may_hold_a_parameter(
    run: Callable[..., Any], no_chain_runs: list[Any]
) -> None:
    def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
        return -tf.reduce_sum(params["phi"] ** 2)

    run(params=TWO, log_lik=theta_only, log_prior=log_prior)
    assert len(no_chain_runs) == 1


def test_every_start_is_tried(run: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"params\[1\].*gradient.*'theta'"):
        run(log_lik=root, params=[{"theta": 1.0}, {"theta": 0.0}], n_chains=2)


@pytest.mark.parametrize("method", ["unknown"])
def test_unknown_keyword_of_a_method_that_is_not_a_function(method: str) -> None:
    with pytest.raises(TypeError, match=rf"{method}\(\).*`thinn`.*`thin`"):
        read_options(method, {"thinn": 1}, stepwise=False)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 1, 1), "h"),
        ((1, -1, 1), "tau"),
        ((1, 1, -0.1), "kappa"),
        ((NAN, 1, 1), "h"),
    ],
)
def test_polynomial_decay_refuses_values(
    arguments: tuple[float, ...], name: str
) -> None:
    with pytest.raises(ValueError, match=f"`{name}`"):
        sgmcmc.polynomial_decay(*arguments)


@pytest.mark.parametrize("value", ["a", None, True, [1.0]])
def test_polynomial_decay_refuses_types(value: Any) -> None:
    with pytest.raises(TypeError, match="`tau`"):
        sgmcmc.polynomial_decay(1.0, value, 1.0)


def test_an_index_out_of_range_is_named() -> None:
    """TensorFlow's message begins with where it happened, and says what far below."""
    with pytest.raises(ValueError, match=r"indices\[30\] = 30 .* is out of range"):
        sgmcmc.sgld(
            lambda p, d: -0.5 * (d["y"] - tf.gather(p["u"], d["g"])) ** 2,
            {"y": np.zeros(50), "g": np.arange(50)}, {"u": np.zeros(30)}, 1e-3,
            minibatch_size=50, n_iters=10, integers=["g"], verbose=False,
        )  # fmt: skip
