"""The table of samplers that every rung walks through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import sgmcmc
from ladder.problems import Problem


@dataclass(frozen=True, eq=False)
class Case:
    """One row of the table: a sampler with an estimator, called as a user calls it.

    Attributes:
        name: what the test is called.
        function: the public function.
        kind: the update equation: sgld, sghmc, euler or sgnht.
        control_variates: whether the gradient is estimated with control variates.
        tuning: tuning constants, never those that make a wrong constant invisible.
    """

    name: str
    function: Callable[..., sgmcmc.Samples]
    kind: str
    control_variates: bool
    tuning: Mapping[str, Any] = field(default_factory=dict)

    def run(
        self,
        problem: Problem,
        stepsize: Any,
        minibatch_size: int,
        *,
        opt_stepsize: float = 1e-3,
        n_iters_opt: int = 0,
        **keywords: Any,
    ) -> sgmcmc.Samples:
        """Run it on a problem. Without mode-finding the control variate is centred at the start."""
        arguments: dict[str, Any] = {
            "minibatch_size": minibatch_size,
            "verbose": False,
            "seed": 1,
            **self.tuning,
        }
        if self.control_variates:
            arguments |= {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt}
        return self.function(
            problem.log_lik,
            problem.dataset,
            problem.split(problem.start),
            stepsize,
            log_prior=problem.log_prior,
            **{**arguments, **keywords},
        )


_SGHMC = {"alpha": 0.4, "L": 3}
_EULER = {**_SGHMC, "integrator": "euler"}
_SGNHT = {"a": 0.05}
TABLE = (
    Case("sgld", sgmcmc.sgld, "sgld", False),
    Case("sghmc", sgmcmc.sghmc, "sghmc", False, _SGHMC),
    Case("sghmc-euler", sgmcmc.sghmc, "euler", False, _EULER),
    Case("sgnht", sgmcmc.sgnht, "sgnht", False, _SGNHT),
    Case("sgldcv", sgmcmc.sgldcv, "sgld", True),
    Case("sghmccv", sgmcmc.sghmccv, "sghmc", True, _SGHMC),
    Case("sghmccv-euler", sgmcmc.sghmccv, "euler", True, _EULER),
    Case("sgnhtcv", sgmcmc.sgnhtcv, "sgnht", True, _SGNHT),
)
LINEAR = tuple(case for case in TABLE if case.kind != "sgnht")
THERMOSTATS = tuple(case for case in TABLE if case.kind == "sgnht")


def every(
    cases: tuple[Case, ...], slow: Callable[[Case], bool] = lambda case: False
) -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each of these rows, some only among the slow."""
    rows = [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if slow(case) else ())
        for case in cases
    ]
    return pytest.mark.parametrize("case", rows)
