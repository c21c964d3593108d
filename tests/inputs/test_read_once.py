"""In every kind of call the arguments are read once, and the model is run once before the chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.plan import choices, start
from sgmcmc.run import request, sampler

X = np.random.default_rng(5).normal(size=(40, 2)).astype(np.float32)
FIXED = {"minibatch_size": 10, "n_iters": 2, "burn_in": 0}
GIVEN = {"preconditioner": "none", "stepsize": 1e-3}


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2, 1)


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "named": (sgmcmc.sgld, (1e-3,), FIXED),
    "named, with a search for the mode": (
        sgmcmc.sghmccv,
        (1e-3, 1e-3),
        {**FIXED, "n_iters_opt": 2},
    ),
    "named, with constants to choose": (sgmcmc.sgldcv, ("auto", "auto"), FIXED),
    "any parts": (
        sgmcmc.sample,
        (),
        {
            **FIXED,
            **GIVEN,
            "dynamics": "sgld",
            "gradient": "minibatch",
            "minibatches": "uniform",
        },
    ),
    "any parts, with constants to choose": (
        sgmcmc.sample,
        (),
        {
            **FIXED,
            "n_iters": 100,
            "dynamics": "sgld",
            "gradient": "minibatch",
            "stepsize": 1e-3,
        },
    ),
    "no constants": (sgmcmc.sample, (), {}),
    "exact": (sgmcmc.hmc, (), {**GIVEN, "n_iters": 100, "burn_in": 0, "n_chains": 2}),
    "exact, with constants to choose": (
        sgmcmc.hmc,
        (),
        {"n_iters": 100, "burn_in": 100, "n_chains": 2},
    ),
    "step by step": (sgmcmc.sgld_setup, (1e-3,), {"minibatch_size": 10}),
    "step by step, any parts": (sgmcmc.setup, (), {"minibatch_size": 10}),
}


SLOW = {"any parts, with constants to choose", "exact, with constants to choose"}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in CALLS],
)
@pytest.mark.some(3)
def test_arguments_are_read_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Counter[str] = Counter()

    def counted(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        found[function.__name__] += 1
        return function(*given, **named)

    for room, name in (
        (request, "read_columns"),
        (request, "read_params"),
        (request, "read_options"),
        (choices, "dry_run"),
        (sampler, "dry_run"),
        (start, "dry_run"),
    ):
        monkeypatch.setattr(room, name, partial(counted, getattr(room, name)))
    function, constants, keywords = CALLS[kind]
    keywords = {"seed": 1, "jit_compile": False, **keywords}
    if function not in (sgmcmc.setup, sgmcmc.sgld_setup):
        keywords["verbose"] = False
    made = function(log_lik, {"x": X}, {"theta": np.zeros(2)}, *constants, **keywords)
    if isinstance(made, sgmcmc.StepwiseSampler):
        sess = sgmcmc.init_sess(made)
        sgmcmc.sgmcmc_step(made, sess)
    assert found == {
        "read_columns": 1,
        "read_params": 1,
        "read_options": 1,
        "dry_run": 1,
    }
