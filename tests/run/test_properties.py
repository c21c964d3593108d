"""Whatever is accepted runs, gives finite draws of the promised shapes, and the same bits twice.

Shapes, dtypes and options are drawn at random, for all samplers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import sgmcmc
from tests.conftest import METHODS
from tests.ladder.table import BY_NAME
from tests.run.stopping import same

SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
TIMES: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # making a failing call simpler takes minutes
}


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood of parameters of any names and shapes."""
    x = dataset["x"]
    terms = [tf.reduce_sum((x - tf.reduce_mean(value)) ** 2) for value in params.values()]
    return -0.5 * tf.add_n(terms)


def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log density of N(0, 1), but for a constant."""
    return -0.5 * tf.add_n([tf.reduce_sum(value**2) for value in params.values()])


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Return a sampler and arguments that are all right."""
    method = draw(st.sampled_from(METHODS))
    shapes = draw(st.dictionaries(st.sampled_from("abc"), SHAPES, min_size=1, max_size=2))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    size = draw(st.integers(2, 40))
    n_iters, burn_in = draw(st.integers(1, 25)), draw(st.integers(0, 5))
    names = list(shapes)
    stepsize: Any = 1e-3
    if draw(st.booleans()):
        stepsize = {name: 1e-3 * draw(st.sampled_from([0.5, 1.0])) for name in names}
    elif draw(st.booleans()):
        stepsize = sgmcmc.polynomial_decay(1e-3, 10.0, 0.55)
    given: dict[str, Any] = {
        "params": {name: np.zeros(shape, dtype) for name, shape in shapes.items()},
        "dataset": {"x": np.linspace(-1, 1, size).astype(dtype)},
        "stepsize": stepsize,
        "minibatch_size": draw(st.one_of(st.integers(1, size), st.sampled_from([0.5, 1.0]))),
        "n_iters": n_iters,
        "burn_in": burn_in,
        "thin": draw(st.integers(1, n_iters)),
        "n_chains": draw(st.sampled_from([None, 1, 2])),
        "replace": draw(st.booleans()),
        "updates": draw(st.sampled_from(["joint", "in_turn"])),
        "store_gradients": draw(st.booleans()),
        "dtype": draw(st.sampled_from([tf.float32, tf.float64])),
        "seed": draw(st.integers(0, 2**31)),
    }
    case = BY_NAME[method]
    if case.centred:
        given |= {"opt_stepsize": 1e-4, "n_iters_opt": draw(st.integers(1, 10))}
    return method, given


def check(call: tuple[str, dict[str, Any]]) -> None:
    """Run a call twice, and the same chain once more to a store and by its first half."""
    method, given = call
    keywords = {"verbose": False, "jit_compile": False, "log_prior": log_prior, **given}
    function = BY_NAME[method].function
    samples = function(log_lik, **keywords)
    draws, chains = given["n_iters"] // given["thin"], given["n_chains"]
    for name, start in given["params"].items():
        for array in (samples[name], (samples.gradients or samples)[name]):
            leading = (draws,) if chains is None else (chains, draws)
            assert array.shape == leading + start.shape
            assert array.dtype == given["dtype"].as_numpy_dtype
            assert np.isfinite(array).all()
    same(function(log_lik, **keywords), samples)


@settings(max_examples=8, **TIMES)
@given(calls())
def test_what_is_accepted_runs(call: tuple[str, dict[str, Any]]) -> None:
    check(call)


@pytest.mark.faults
@settings(max_examples=1000, **TIMES)
@given(calls())
def test_a_thousand_calls(call: tuple[str, dict[str, Any]]) -> None:
    check(call)
