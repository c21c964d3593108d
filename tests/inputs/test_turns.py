"""What is refused of updates in turn, before anything runs."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests.ladder import gaussian

PROBLEM = gaussian(3, 20)
START = PROBLEM.split(PROBLEM.start)


def run(function: str, *arguments: Any, **keywords: Any) -> Any:
    """Call a sampler, in turn unless told."""
    given = {"minibatch_size": 5, "n_iters": 10, "verbose": False, "updates": "in_turn"}
    given["jit_compile"] = False
    return getattr(sgmcmc, function)(
        PROBLEM.log_lik, PROBLEM.dataset, START, *arguments, **{**given, **keywords}
    )


def by_parts(**keywords: Any) -> Any:
    """Call `sample`, every part given."""
    given = {
        "dynamics": "sgld",
        "gradient": "minibatch",
        "minibatches": "uniform",
        "preconditioner": "none",
        "stepsize": 1e-3,
        "burn_in": 0,
        "seed": 1,
        **keywords,
    }
    return run("sample", **given)


@pytest.mark.parametrize("wrong", ["turns", True, None, 3])
def test_what_it_may_be(wrong: Any) -> None:
    with pytest.raises(
        (ValueError, TypeError), match="^`updates` must be 'joint' or 'in_turn'"
    ):
        run("sgld", 1e-3, updates=wrong)


@pytest.mark.parametrize("dynamics", ["hmc", "mala", "nuts"])
def test_moves_of_everything(dynamics: str) -> None:
    with pytest.raises(ValueError, match="^`updates`: .* together. Use 'joint'"):
        by_parts(dynamics=dynamics, gradient="full", minibatch_size=None)
    with pytest.raises(TypeError, match="no argument `updates`"):
        run(dynamics, minibatch_size=None)


@pytest.mark.parametrize("preconditioner", ["dense", "auto", np.eye(3) + 0.1])
def test_preconditioners_that_mix_parameters(preconditioner: Any) -> None:
    with pytest.raises(ValueError, match="^`updates`: 'in_turn' moves one parameter"):
        run("sgld", 1e-3, preconditioner=preconditioner)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "preconditioner",
    ["none", [1.0, 2.0, 3.0], {"beta": [[2.0, 1.0], [1.0, 2.0]]}, "diagonal"],
)
def test_preconditioners_that_do_not(preconditioner: Any) -> None:
    assert run("sgld", 1e-3, preconditioner=preconditioner)["beta"].shape == (10, 2)


def test_stepsizes_are_chosen_where_the_law_is_known() -> None:
    with pytest.raises(
        ValueError, match="^`updates`: There is no closed form for SGHMC"
    ):
        run("sghmc", "auto")
    with pytest.raises(ValueError, match="^`updates`"):
        sgmcmc.sample(
            PROBLEM.log_lik,
            PROBLEM.dataset,
            START,
            PROBLEM.log_prior,
            updates="in_turn",
        )


class Counted(NamedTuple):
    """A state with a number."""

    position: tf.Tensor
    moves: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Counting(sgmcmc.dynamics.Dynamics):
    """Langevin dynamics that count their moves, alone or by coordinate."""

    shared: bool = True

    def init(
        self, position: Any, gradient: Any, stepsize: Any, normals: Any
    ) -> Counted:
        return Counted(
            position, tf.zeros([] if self.shared else position.shape, position.dtype)
        )

    def step(
        self, state: Counted, gradient: Any, stepsize: Any, normals: Any
    ) -> Counted:
        moved = (
            state.position + 0.5 * stepsize * gradient + tf.sqrt(stepsize) * normals[0]
        )
        return Counted(moved, state.moves + 1.0)


def test_dynamics_of_your_own() -> None:
    with pytest.raises(
        ValueError, match="^`updates`: the state of Counting holds more"
    ):
        by_parts(dynamics=Counting())
    own = by_parts(dynamics=Counting(shared=False))
    sgld = by_parts()
    for name in START:
        np.testing.assert_array_equal(own[name], sgld[name])


@dataclasses.dataclass(frozen=True)
class Halved(sgmcmc.gradients.MinibatchGradient):
    """A gradient of one's own."""

    def estimate(
        self, target: Any, state: Any, position: Any, minibatch: Any, at_center: Any
    ):  # type: ignore[no-untyped-def]
        return 0.5 * target.gradient(position, minibatch), state


@pytest.mark.slow
def test_gradients_of_your_own() -> None:
    assert np.isfinite(by_parts(gradient=Halved())["beta"]).all()
