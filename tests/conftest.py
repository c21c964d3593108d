"""What several test files share: a tiny Gaussian model and a short call of each sampler."""

from __future__ import annotations

import functools
import gc
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

# What XLA compiles is shared by the workers, and by later runs.
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("SGMCMC_COMPILED", str(_CACHE))

import sgmcmc  # noqa: E402
from tests.ladder.table import BY_NAME, DISTINCT, Case  # noqa: E402

METHODS = tuple(case.name for case in DISTINCT if not case.of_points)
"""The samplers of the tiny model, by the names of their rows in the table."""
PLAIN = tuple(method for method in METHODS if not BY_NAME[method].centered)
CENTERED = tuple(method for method in METHODS if BY_NAME[method].centered)
EACH_ESTIMATOR = (PLAIN[0], CENTERED[0])


def pytest_configure() -> None:
    """Let the collector of garbage skip what is imported for good, and the collection of tests."""
    gc.freeze()
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a test with the mark ``some``, leave so many, spread over all of them.

    The others are slow.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("some") and not item.get_closest_marker("slow"):
            cases[item.nodeid.split("[")[0]].append(item)
    for found in cases.values():
        most = found[0].get_closest_marker("some").args[0]
        left = np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int)
        for number, item in enumerate(found):
            if number not in left:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Let it run again, among what the tests make; graphs are traced in garbage."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(5_000, 10, 10)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log-likelihood of x_i ~ N(theta, 1)."""
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)


def observations() -> np.ndarray:
    """Return twenty observations."""
    return np.random.default_rng(1).normal(1.0, 1.0, 20).astype(np.float32)


def short_arguments(case: Case, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sets up any sampler on the tiny model; everything can be overridden."""
    return {
        "log_lik": log_lik,
        "dataset": {"x": observations()},
        "params": {"theta": 0.0},
        "stepsize": 1e-3,
        "minibatch_size": 5,
        "seed": 1,
        "jit_compile": False,
        **case.estimator.arguments({"opt_stepsize": 1e-3, "n_iters_opt": 10}),
        **given,
    }


def short_call(method: str = "sgld", **given: Any) -> sgmcmc.Samples:
    """Call any method on the tiny model, for a few iterations; everything can be overridden."""
    case, run = BY_NAME[method], {"n_iters": 20, "verbose": False}
    return case.function(**short_arguments(case, {**run, **given}))


def short_setup(method: str = "sgld", **given: Any) -> sgmcmc.StepwiseSampler:
    """Set up any method on the tiny model; everything can be overridden."""
    case = BY_NAME[method]
    shows: dict[str, Any] = {"verbose": False} if case.centered else {}
    return case.setup(**short_arguments(case, {**shows, **given}))


def any_shape(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood of parameters of any names and shapes."""
    squares = [tf.reduce_sum(value**2) for value in params.values()]
    return -0.5 * tf.add_n(squares) * tf.reduce_sum(dataset["x"] ** 2)


ANY_SHAPE = {
    "scalar": 0.0,
    "vector": [0.0, 1.0],
    "matrix": np.zeros((3, 2)),
    "deep": [[[[1.0]]]],
}


@functools.cache
def once(method: str) -> sgmcmc.Samples:
    """Return the short call of a method with parameters of all shapes; run once for all tests."""
    return short_call(method, log_lik=any_shape, params=ANY_SHAPE, store_gradients=True)


@pytest.fixture
def x() -> np.ndarray:
    """Return the observations of the tiny model."""
    return observations()


@pytest.fixture
def run() -> Callable[..., sgmcmc.Samples]:
    """Return the short call of any method on the tiny model."""
    return short_call
