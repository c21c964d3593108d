"""The table of samplers that every test walks through which is about more than one of them.

A sampler is in all of them once it has a row here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import sgmcmc
from sgmcmc import dynamics
from tests.ladder import laws, transcriptions
from tests.ladder.estimators import CENTERED, FULL, PLAIN, Estimator
from tests.ladder.problems import Problem
from tests.ladder.transcriptions import Transcription


@dataclass(frozen=True, eq=False)
class Case:
    """One row of the table: a sampler with an estimator, called as a user calls it.

    Attributes:
        name: what the test is called.
        dynamics: the class of its dynamics.
        public: the name of its public function; ``None`` if it is called by :func:`sgmcmc.sample`.
        in_r: the name of its function in R; ``None`` if it has none.
        estimator: how the noisy terms of the gradient are formed.
        transcription: the update equation in NumPy; ``None`` if it cannot be handed its noise.
        law: the stages of an iteration; ``None`` where the chain is not linear.
        tuning: tuning constants, never those that make a wrong constant invisible.
        friction: the constant that is in units of one step and may differ by parameter.
        constants: the constants of its public function, with their defaults.
        keywords: those of them that go by keyword only.
        has_thermostats: whether its friction is found by thermostats.
        of_points: whether it moves points of the simplex.
    """

    name: str
    dynamics: type[dynamics.Dynamics]
    public: str | None = None
    in_r: str | None = None
    estimator: Estimator = PLAIN
    transcription: Transcription | None = None
    law: laws.StagesOf | None = None
    tuning: Mapping[str, Any] = field(default_factory=dict)
    friction: str | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    keywords: Mapping[str, Any] = field(default_factory=dict)
    has_thermostats: bool = False
    of_points: bool = False

    @property
    def centered(self) -> bool:
        """Whether a mode is found first."""
        return self.estimator.centered

    @property
    def method(self) -> str:
        """What the sampler is called in the settings of its samples."""
        return self.public or self.dynamics.__name__.lower()

    @property
    def function(self) -> Callable[..., sgmcmc.Samples]:
        """The function that runs it, with the arguments of a named function."""
        return (
            getattr(sgmcmc, self.public)
            if self.public
            else self.by_parts(sgmcmc.sample)
        )

    @property
    def setup(self) -> Callable[..., sgmcmc.StepwiseSampler]:
        """The function that sets it up."""
        return (
            getattr(sgmcmc, f"{self.public}_setup") if self.public else self.by_parts()
        )

    def by_parts(self, target: Callable[..., Any] = sgmcmc.setup) -> Callable[..., Any]:
        """Return `sgmcmc.sample` or `sgmcmc.setup` with the arguments of a named function."""
        own = set(inspect.signature(self.dynamics).parameters)
        searched = ("opt_stepsize", "n_iters_opt") if self.centered else ()
        neutral: dict[str, Any] = {"n_chains": None, "preconditioner": "none"}
        if target is sgmcmc.sample:
            neutral |= {"burn_in": 0, "n_iters": 10_000}

        def call(
            log_lik: Any,
            dataset: Any,
            params: Any,
            stepsize: Any,
            *opt: Any,
            **given: Any,
        ) -> Any:
            given |= {"opt_stepsize": opt[0]} if opt else {}
            constants = {name: given.pop(name) for name in own & given.keys()}
            search = {name: given.pop(name) for name in searched if name in given}
            if self.estimator is FULL:
                given.pop("minibatch_size", None)
            minibatches = "replacement" if given.pop("replace", False) else "uniform"
            return target(
                log_lik,
                dataset,
                params,
                stepsize=stepsize,
                dynamics=self.dynamics(**constants),
                gradient=self.estimator.gradient(**search),
                minibatches=minibatches,
                **{**neutral, **given},
            )

        return call

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
        """Run it on a problem; without a search the control variate is centered at the start."""
        search = {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt}
        arguments: dict[str, Any] = {
            "minibatch_size": minibatch_size,
            "verbose": False,
            "seed": 1,
            **self.tuning,
            **self.estimator.arguments(search),
        }
        return self.function(
            problem.log_lik,
            problem.dataset,
            problem.split(problem.start),
            stepsize,
            log_prior=problem.log_prior,
            **{**arguments, **keywords},
        )


_SGLD = Case(
    "sgld",
    dynamics.SGLD,
    "sgld",
    "sgld",
    transcription=transcriptions.SGLD,
    law=laws.langevin,
)
_SGHMC = Case(
    "sghmc",
    dynamics.SGHMC,
    "sghmc",
    "sghmc",
    transcription=transcriptions.SGHMC,
    law=laws.refreshed_splitting,
    tuning={"alpha": 0.4, "L": 3},
    friction="alpha",
    constants={"alpha": 0.01, "L": 5},
    keywords={"integrator": "symmetric", "noise_variance": 0.0},
)
_EULER = replace(
    _SGHMC,
    name="sghmc-euler",
    transcription=transcriptions.EULER,
    law=laws.refreshed_euler,
    tuning={**_SGHMC.tuning, "integrator": "euler"},
)
_SGNHT = Case(
    "sgnht",
    dynamics.SGNHT,
    "sgnht",
    "sgnht",
    transcription=transcriptions.SGNHT,
    tuning={"a": 0.05},
    friction="a",
    constants={"a": 0.01},
    has_thermostats=True,
)
_UNDERDAMPED = Case(
    "underdamped",
    dynamics.Underdamped,
    transcription=transcriptions.UNDERDAMPED,
    law=laws.splitting,
    tuning={"friction": 0.6},
    friction="friction",
    constants={"friction": 0.5},
)
_OF_POINTS: dict[str, Any] = {"theta0": None, "store_unnormalized": False}


def _centered(case: Case, name: str) -> Case:
    """Return the row of the same dynamics with control variates."""
    public = case.public and f"{case.public}cv"
    return replace(case, name=name, public=public, in_r=public, estimator=CENTERED)


TABLE = (
    _SGLD,
    _SGHMC,
    _EULER,
    _SGNHT,
    _UNDERDAMPED,
    _centered(_SGLD, "sgldcv"),
    _centered(_SGHMC, "sghmccv"),
    _centered(_EULER, "sghmccv-euler"),
    _centered(_SGNHT, "sgnhtcv"),
    _centered(_UNDERDAMPED, "underdampedcv"),
    Case(
        "scir",
        dynamics.SCIR,
        "scir",
        "scir",
        keywords={"alpha": None, **_OF_POINTS, "fresh_scale": False, "gamma": None},
        of_points=True,
    ),
    Case(
        "sgrld",
        dynamics.SGRLD,
        "sgrld",
        "sgrld",
        keywords={
            "alpha": inspect.Parameter.empty,
            **_OF_POINTS,
            "parameterization": "expanded_mean",
        },
        of_points=True,
    ),
)
EXACT = (
    Case("hmc", dynamics.HMC, estimator=FULL, tuning={"n_leapfrog": 5}),
    Case("mala", dynamics.MALA, estimator=FULL),
    Case("nuts", dynamics.NUTS, estimator=FULL, tuning={"max_tree_depth": 4}),
)
"""Those that accept or reject, by parts: their public functions choose what is not given. They have
no minibatches, and no error but the Monte Carlo error: ``tests/samplers/test_hmc.py``."""
GEODESIC = (
    Case(
        "sggmc",
        dynamics.SGGMC,
        "sggmc",
        tuning={"alpha": 0.6},
        friction="alpha",
        constants={"alpha": 0.1},
        keywords={"noise_variance": 0.0},
    ),
    Case(
        "gsgnht",
        dynamics.GSGNHT,
        "gsgnht",
        tuning={"a": 0.05},
        friction="a",
        constants={"a": 0.01},
        has_thermostats=True,
    ),
)
"""Those that move along manifolds, and in ℝᵈ along straight lines."""
FIELD = (
    replace(
        _SGHMC,
        name="sghmc-corrected",
        friction=None,
        tuning={"alpha": 0.4, "L": 3, "noise_variance": 1.5},
    ),
    replace(
        _EULER,
        name="sghmc-euler-corrected",
        friction=None,
        tuning={**_EULER.tuning, "noise_variance": 1.5},
    ),
    Case(
        "psgld",
        dynamics.PSGLD,
        transcription=transcriptions.PSGLD,
        tuning={"alpha": 0.7, "damping": 0.3, "until": 4},
        constants={"alpha": 0.99, "damping": 1e-5, "until": "burn_in"},
    ),
    Case(
        "psgld-adaptive",
        dynamics.PSGLD,
        transcription=transcriptions.PSGLD,
        tuning={"alpha": 0.7, "damping": 0.3, "until": None},
        constants={"alpha": 0.99, "damping": 1e-5, "until": "burn_in"},
    ),
    Case(
        "badodab",
        dynamics.BADODAB,
        transcription=transcriptions.BADODAB,
        tuning={"a": 0.05},
        friction="a",
        constants={"a": 0.01},
        has_thermostats=True,
    ),
    Case(
        "barker",
        dynamics.Barker,
        transcription=transcriptions.BARKER,
        tuning={"noise_variance": 0.0, "increments": "normal"},
        constants={"noise_variance": 0.0, "increments": "normal"},
    ),
    Case(
        "barker-corrected",
        dynamics.Barker,
        transcription=transcriptions.BARKER,
        tuning={"noise_variance": 9.0, "increments": "bimodal"},
        constants={"noise_variance": 0.0, "increments": "normal"},
    ),
    Case("sglrw", dynamics.SGLRW, transcription=transcriptions.SGLRW),
)
"""Those that are not linear, and have laws of their own: ``test_field_laws.py``."""
PLANE = (
    Case(
        "smile",
        dynamics.SMILE,
        transcription=transcriptions.SMILE,
        tuning={"friction": 0.3},
    ),
)
"""Those that need two coordinates or more."""
LEARNING = (
    Case("sgfs", dynamics.SGFS, tuning={"B": 3.0, "until": 4}),
    Case("sgfs-diagonal", dynamics.SGFS, tuning={"diagonal": True, "until": None}),
    replace(
        _SGHMC,
        name="sghmc-fisher",
        tuning={"alpha": 0.4, "L": 2, "noise_variance": "fisher"},
    ),
    Case(
        "smile-preconditioned",
        dynamics.SMILE,
        tuning={"preconditioned": True, "until": 3},
    ),
    Case(
        "smile-tuned",
        dynamics.SMILE,
        tuning={"tuner": dynamics.EnergyTuner(0.6, 0.2, 0.2, 1.0), "until": 20},
    ),
    Case(
        "replica-exchange",
        dynamics.ReplicaExchange,
        tuning={"temperatures": (1.0, 2.0, 4.0), "every": 3},
    ),
)
"""Those that see the rows of minibatches: ``test_scoring_laws.py``, ``test_exchange.py``."""
BY_NAME = {
    case.name: case for case in (*TABLE, *EXACT, *GEODESIC, *FIELD, *PLANE, *LEARNING)
}


def firsts(
    cases: tuple[Case, ...], key: Callable[[Case], Hashable]
) -> tuple[Case, ...]:
    """Return the first of these rows for each value of a key."""
    found: dict[Hashable, Case] = {}
    for case in cases:
        found.setdefault(key(case), case)
    return tuple(found.values())


DISTINCT = firsts(TABLE, lambda case: (case.dynamics, case.estimator))
"""One row for each dynamics with each estimator: variants of the same function are left out."""
LADDER = tuple(case for case in TABLE if not case.of_points)
IN_TURN = tuple(
    replace(
        case, name=f"{case.name}-in-turn", tuning={**case.tuning, "updates": "in_turn"}
    )
    for case in LADDER
)
"""The same with parameters that move one after the other: ``test_in_turn.py``."""
LINEAR = tuple(case for case in TABLE if case.law)
THERMOSTATS = tuple(case for case in TABLE if case.has_thermostats)
POINTS = tuple(case for case in TABLE if case.of_points)
QUICK = {
    *firsts(LADDER, lambda case: case.dynamics),
    *firsts(LADDER, lambda case: case.estimator),
}
"""Each dynamics and each estimator once; where time is dear the others are among the slow."""


def every(
    cases: tuple[Case, ...], slow: Callable[[Case], bool] = lambda case: False
) -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each of these rows, some only among the slow."""
    rows = [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if slow(case) else ())
        for case in cases
    ]
    return pytest.mark.parametrize("case", rows)
