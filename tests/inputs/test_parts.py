"""Parts by name and as objects: what is refused, in which words, and what means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.dynamics import (
    BADODAB,
    HMC,
    MALA,
    NUTS,
    SCIR,
    SGHMC,
    SGLD,
    SGNHT,
    SGRLD,
    Barker,
    Underdamped,
)
from sgmcmc.gradients import SAGA, SVRG, ControlVariate, FullGradient, MinibatchGradient
from sgmcmc.minibatches import Uniform, Weighted
from tests.conftest import log_lik, observations, short_call

GIVEN: dict[str, Any] = {
    "log_lik": log_lik,
    "dataset": {"x": observations()},
    "params": {"theta": 0.0},
    "dynamics": "sgld",
    "gradient": "minibatch",
    "minibatches": "uniform",
    "minibatch_size": 5,
    "preconditioner": "none",
    "stepsize": 1e-3,
    "n_chains": None,
    "seed": 1,
    "jit_compile": False,
}
RUN: dict[str, Any] = {"n_iters": 10, "burn_in": 0, "verbose": False}
POINT: dict[str, Any] = {
    "log_lik": lambda params, data: tf.reduce_sum(
        data["z"] * tf.math.log(params["omega"])
    ),
    "dataset": {"z": np.repeat(np.eye(3), [5, 3, 2], axis=0)},
    "params": {"omega": np.full(3, 1 / 3)},
}


def sample(**given: Any) -> sgmcmc.Samples:
    return sgmcmc.sample(**{**GIVEN, **RUN, **given})


def set_up(**given: Any) -> sgmcmc.StepwiseSampler:
    return sgmcmc.setup(**{**GIVEN, **given})


NAMES: dict[str, tuple[str, Any]] = {
    "sgld": ("dynamics", SGLD()),
    "sghmc": ("dynamics", SGHMC()),
    "sgnht": ("dynamics", SGNHT()),
    "underdamped": ("dynamics", Underdamped()),
    "badodab": ("dynamics", BADODAB()),
    "barker": ("dynamics", Barker()),
    "hmc": ("dynamics", HMC()),
    "mala": ("dynamics", MALA()),
    "nuts": ("dynamics", NUTS()),
    "minibatch": ("gradient", MinibatchGradient()),
    "svrg": ("gradient", SVRG()),
    "saga": ("gradient", SAGA()),
    "full": ("gradient", FullGradient()),
    "uniform": ("minibatches", Uniform()),
    "replacement": ("minibatches", Uniform(replace=True)),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_the_object_with_its_defaults(name: str) -> None:
    argument, part = NAMES[name]
    exact = name in ("hmc", "mala", "nuts")
    given: dict[str, Any] = {"minibatch_size": None} if exact or name == "full" else {}
    given |= {"gradient": "full"} if exact else {}
    one, other = (sample(**{argument: value}, **given) for value in (name, part))
    np.testing.assert_array_equal(one["theta"], other["theta"])
    assert one.settings[argument] == other.settings[argument]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "near miss": (
        {"dynamics": "sgdl"},
        ValueError,
        ("`dynamics`", "Did you mean 'sgld'?"),
    ),
    "near miss of a gradient": (
        {"gradient": "svgr"},
        ValueError,
        ("`gradient`", "Did you mean 'svrg'?"),
    ),
    "near miss of minibatches": (
        {"minibatches": "unifrom"},
        ValueError,
        ("`minibatches`", "Did you mean 'uniform'?"),
    ),
    "nothing near": (
        {"dynamics": "magic"},
        ValueError,
        ("`dynamics`", "'sgnht'", "'magic'"),
    ),
    "a number": ({"dynamics": 3}, TypeError, ("`dynamics`", "3 (int)")),
    "a class": ({"dynamics": SGLD}, TypeError, ("`dynamics`",)),
    "a gradient for dynamics": ({"dynamics": SVRG()}, TypeError, ("`dynamics`",)),
    "dynamics for a gradient": ({"gradient": SGLD()}, TypeError, ("`gradient`",)),
    "a flag": ({"minibatches": True}, TypeError, ("`minibatches`",)),
    "scir by name": ({"dynamics": "scir"}, ValueError, ("SCIR(alpha=...)",)),
    "sgrld by name": ({"dynamics": "sgrld"}, ValueError, ("SGRLD(alpha=...)",)),
    "wrong constant": (
        {"dynamics": Underdamped(-1.0)},
        ValueError,
        ("`friction`", "positive"),
    ),
    "constant of no parameter": (
        {"dynamics": Underdamped({"thet": 1.0})},
        ValueError,
        ("`friction`", "'theta'"),
    ),
    "wrong constant of a gradient": (
        {"gradient": ControlVariate(0.0)},
        ValueError,
        ("`opt_stepsize`",),
    ),
    "fraction of a refresh": ({"gradient": SVRG(every=0.5)}, ValueError, ("`every`",)),
    "full and a part": (
        {"gradient": "full", "minibatch_size": 5},
        ValueError,
        ("`minibatch_size`", "20 observations", "5 (int)"),
    ),
    "full and a proportion": (
        {"gradient": "full", "minibatch_size": 0.5},
        ValueError,
        ("`minibatch_size`",),
    ),
    "full and weighted": (
        {
            "gradient": "full",
            "minibatches": Weighted(np.ones(20)),
            "minibatch_size": None,
        },
        ValueError,
        ("`minibatches`", "'uniform'"),
    ),
    "full and replacement": (
        {"gradient": "full", "minibatches": "replacement", "minibatch_size": None},
        ValueError,
        ("`minibatches`", "'uniform'"),
    ),
    "weights of another dataset": (
        {"minibatches": Weighted(np.ones(7))},
        ValueError,
        ("`minibatches`", "7", "20"),
    ),
    "an argument of none": ({"friction": 1.0}, TypeError, ("`friction`",)),
    "near miss of an argument": ({"stepsizes": 1.0}, TypeError, ("`stepsize`",)),
}


@pytest.mark.parametrize("call", [sample, set_up])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, call: Any) -> None:
    change, error, says = REFUSED[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        call(**change)
    assert caught.type is error, caught.value
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize("call", [sample, set_up])
@pytest.mark.parametrize("dynamics", [SCIR(0.5), SGRLD(0.5)], ids=["SCIR", "SGRLD"])
def test_a_center_on_the_simplex_must_be_given(dynamics: Any, call: Any) -> None:
    with pytest.raises(
        ValueError, match=f"`gradient`.*{type(dynamics).__name__}.*center_at"
    ):
        call(**POINT, dynamics=dynamics, gradient=ControlVariate(1e-3))


@pytest.mark.parametrize("dynamics", [SCIR(0.5), SGRLD(0.5)], ids=["SCIR", "SGRLD"])
@pytest.mark.some(1)
@pytest.mark.parametrize(
    "gradient",
    [ControlVariate(center_at={"omega": [0.2, 0.3, 0.5]}), "svrg", "saga"],
    ids=["control variates", "svrg", "saga"],
)
def test_differences_of_expected_counts(gradient: Any, dynamics: Any) -> None:
    """Counts that do not depend on ω have no noise then: the draws are those of the whole data."""
    given = {**POINT, "n_iters": 12, "dtype": tf.float64}
    one, whole = (
        sample(**given, dynamics=dynamics, gradient=g, minibatch_size=n)["omega"]
        for g, n in ((gradient, 3), ("full", None))
    )
    # Draws by rejection may part company at a rounding error.
    close = np.isclose(one, whole, rtol=1e-6).all(-1)
    assert close.mean() > 0.9


@pytest.mark.slow
def test_expected_counts_may_be_of_the_whole_dataset() -> None:
    full, whole = (
        sample(**POINT, dynamics=SCIR(0.5), gradient=gradient, minibatch_size=10)
        for gradient in ("full", "minibatch")
    )
    np.testing.assert_array_equal(full["omega"], whole["omega"])


@pytest.mark.parametrize("minibatches", ["uniform", Uniform(), Weighted(np.ones(20))])
def test_replace_is_refused_with_minibatches_of_another_kind(minibatches: Any) -> None:
    with pytest.raises(ValueError, match="`replace=True`.*`minibatches`"):
        short_call(replace=True, minibatches=minibatches)


def test_replace_and_minibatches_may_say_the_same() -> None:
    draws = [
        short_call(**given)["theta"]
        for given in (
            {"replace": True},
            {"minibatches": "replacement"},
            {"replace": True, "minibatches": "replacement"},
        )
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[2])


def test_the_full_gradient_is_that_of_minibatches_of_all() -> None:
    full = sample(gradient="full", minibatch_size=None)
    for given in ({"minibatch_size": 20}, {"gradient": "full", "minibatch_size": 20}):
        np.testing.assert_array_equal(sample(**given)["theta"], full["theta"])
    assert full.settings["n"] == 20
