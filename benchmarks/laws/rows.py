"""The rows of the table: a chain by its parts, and the exact variance of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.laws.exact import WeightedLaw, variance_in_order
from sgmcmc.dynamics import PSGLD, SGFS, SGLRW, Barker
from tests.ladder import (
    BY_NAME,
    Array,
    Case,
    Law,
    LinearProblem,
    flat,
    gaussian,
    regression,
)
from tests.ladder.test_field_laws import exact_variance
from tests.ladder.test_scoring_laws import covariance

CHAINS, BURN_IN, DRAWS = 64, 400, 4000
NORMAL, LINE = gaussian(1, 40), regression(1, 60)
"""x_i ~ N(θ, 1), whose gradient noise does not depend on θ, and y_i ~ N(x_i θ, 1), whose does."""

SIZES = {"normal": 8, "line": 30}
P = np.linspace(1.0, 3.0, 40)
"""Unequal probabilities of the rows."""


@dataclass(frozen=True)
class Row:
    """One chain.

    Attributes:
        dynamics, gradient, minibatches: what the table shows.
        exact: exact stationary variance.
        problem: what is sampled.
        arguments: of `sgmcmc.sample`.
    """

    dynamics: str
    gradient: str
    minibatches: str
    exact: float
    problem: LinearProblem
    arguments: dict[str, Any]

    def measured(self, draws: int = DRAWS, seed: int = 1) -> tuple[float, float]:
        """Return the variance about the posterior mean, and its standard error over the chains."""
        problem = self.problem
        samples = sgmcmc.sample(
            problem.log_lik, problem.dataset, problem.split(problem.start), problem.log_prior,
            preconditioner="none", n_chains=CHAINS, n_iters=draws, seed=seed, verbose=False,
            **{"burn_in": BURN_IN, **self.arguments},
        )  # fmt: skip
        theta = flat({name: np.asarray(a, float) for name, a in samples.items()}, 2)[
            ..., 0
        ]
        each = ((theta - problem.mean[0]) ** 2).mean(1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(CHAINS))

    @property
    def posterior(self) -> float:
        """The variance of the posterior."""
        return float(self.problem.covariance.item())


def step_of(problem: LinearProblem, share: float) -> float:
    """Return the stepsize that is this part of 1/λ."""
    return share / float(problem.precision.item())


LINEAR = {
    "SGLD": BY_NAME["sgld"],
    "SGHMC, L = 5": replace(BY_NAME["sghmc"], tuning={"alpha": 0.4, "L": 5}),
    "SGHMC, L = 5, as published": replace(
        BY_NAME["sghmc-euler"], tuning={"alpha": 0.4, "L": 5, "integrator": "euler"}
    ),
    "underdamped": BY_NAME["underdamped"],
}
"""Dynamics that are linear, by their names in the table."""


def part(case: Case, noise: float, step: float) -> dict[str, Case]:
    """Return the same with the friction β̂ taken off, where there is one; noise of variance V."""
    most = 0.5 / step
    tuning = {**case.tuning, "noise_variance": min(noise, most)}
    return {"SGHMC, L = 5, with β̂": replace(case, tuning=tuning)}


def linear_rows() -> Iterator[Row]:
    """Yield the rows of linear dynamics on the two models."""
    problem, n = NORMAL, SIZES["normal"]
    step, N = step_of(problem, 0.3), problem.size
    noise = N * (N - n) / n * float(np.var(problem.h, ddof=1))
    cases = LINEAR | part(LINEAR["SGHMC, L = 5"], noise, step)

    def row(name: str, case: Case, kind: str, exact: float, **given: Any) -> Row:
        arguments = {
            "dynamics": case.dynamics(**case.tuning),
            "stepsize": step,
            **given,
        }
        return Row(name, given["gradient"], kind, exact, problem, arguments)

    for name, case in cases.items():
        tuning = case.tuning
        full = Law(problem, case, N, step, tuning=tuning).moments("θ")[1].item()
        yield row(name, case, "all rows", full, gradient="full", minibatches="uniform")
        given = {"gradient": "minibatch", "minibatch_size": n}
        for kind, replaced in (("uniform", False), ("replacement", True)):
            law = Law(problem, case, n, step, tuning=tuning, replace=replaced)
            exact = law.moments("θ")[1].item()
            yield row(name, case, kind, exact, minibatches=kind, **given)
        law = WeightedLaw(problem, case, n, step, P, tuning=tuning)
        by_weight = sgmcmc.minibatches.Weighted(P)
        exact = law.moments("θ")[1].item()
        yield row(name, case, "weighted", exact, minibatches=by_weight, **given)
        ordered = variance_in_order(problem, case, n, step)
        yield row(name, case, "reshuffled", ordered, minibatches="reshuffled", **given)


def centered_rows() -> Iterator[Row]:
    """Yield the rows of plain gradients and control variates where noise depends on θ."""
    problem, n = LINE, SIZES["line"]
    step = step_of(problem, 0.3)
    center = problem.split(problem.start)
    for name, case in LINEAR.items():
        centered = replace(case, estimator=BY_NAME["sgldcv"].estimator)
        for gradient, of in (("minibatch", case), ("control variates", centered)):
            for kind, replaced in (("uniform", False), ("replacement", True)):
                law = Law(problem, of, n, step, tuning=case.tuning, replace=replaced)
                estimator: Any = "minibatch"
                if gradient != "minibatch":
                    estimator = sgmcmc.gradients.ControlVariate(center_at=center)
                arguments = {
                    "dynamics": case.dynamics(**case.tuning), "gradient": estimator,
                    "minibatches": kind, "minibatch_size": n, "stepsize": step,
                }  # fmt: skip
                exact = law.moments("θ")[1].item()
                yield Row(
                    name, gradient, f"{kind}, y ~ N(xθ, 1)", exact, problem, arguments
                )


def other_rows() -> Iterator[Row]:
    """Yield the rows of dynamics that have laws of their own."""
    problem, n = NORMAL, SIZES["normal"]
    step = step_of(problem, 0.3)
    first = abs(float(problem.gradient(problem.start).item()))
    posterior = float(problem.covariance.item())
    full = {"gradient": "full", "minibatches": "uniform", "stepsize": step}
    scaled = step * (1.0 + first)
    yield Row(
        "pSGLD, frozen", "full", "all rows",
        Law(problem, BY_NAME["sgld"], problem.size, step).moments("θ")[1].item(), problem,
        {**full, "dynamics": PSGLD(damping=1.0, until=1), "stepsize": scaled},
    )  # fmt: skip
    for label, form in (("SGFS", False), ("SGFS-d", True)):
        exact = covariance(
            problem, {"B": "information", "diagonal": form}, 1.5, problem.size
        )
        arguments = {**full, "dynamics": SGFS(diagonal=form), "stepsize": 1.5}
        yield Row(label, "full", "all rows", exact.item(), problem, arguments)
    unit = float(problem.precision.item())
    barker = exact_variance(0.3, 0.0, False, False) / unit
    arguments = {**full, "dynamics": Barker()}
    yield Row("Barker", "full", "all rows", barker, problem, arguments)
    small = step_of(problem, 0.02)
    for kind in ("uniform", "replacement"):
        yield Row(
            "SGLRW", "minibatch", kind, posterior, problem,
            {
                "dynamics": SGLRW(), "gradient": "minibatch", "minibatches": kind,
                "minibatch_size": n, "stepsize": small, "burn_in": 1000,
            },
        )  # fmt: skip


ROWS: tuple[Callable[[], Iterator[Row]], ...] = (linear_rows, centered_rows, other_rows)


def every() -> list[Row]:
    """Return all rows."""
    return [row for make in ROWS for row in make()]


__all__ = ["Array", "Row", "every"]
