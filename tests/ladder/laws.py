"""The exact laws of the linear chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.ladder.problems import Array, LinearProblem, Problem

if TYPE_CHECKING:
    from tests.ladder.table import Case


@dataclass(frozen=True)
class Stage:
    """One stage of an update, z ← A z + noise of covariance Q, on z = (1, θ, ν, ĝ)."""

    A: Array
    Q: Array

    def then(self, later: Stage) -> Stage:
        """Return this stage followed by another."""
        return Stage(later.A @ self.A, later.A @ self.Q @ later.A.T + later.Q)

    def operator(self) -> Array:
        """Return what the stage does to vec E[z zᵀ]; the noise rides on the entry that is 1."""
        operator = np.kron(self.A, self.A)
        operator[:, 0] += self.Q.ravel()
        return operator


class Law:
    """The exact first and second moments of a chain on a linear problem, minibatch noise and all.

    The state is z = (1, θ, ν, ĝ) at the end of an iteration: ĝ belongs to θ, and the minibatch
    that made it pushes once more at the start of the next iteration. Every stage maps
    M = E[z zᵀ] linearly; that of a new gradient does so with the covariance of the random matrix
    Σ_{i∈S} (h_i, −K_i) over all minibatches. The stationary M solves M = T(M) with M₀₀ = 1.

    Args:
        problem: the problem.
        case: the row of the table.
        n: the minibatch size.
        stepsize: ε, a number or one for each parameter.
        tuning: the tuning constants, where they are not those of the table.
        replace: whether minibatches are drawn with replacement.
        refresh_variance: of the refreshed ν, in units of ε; other than 1 makes a wrong law.
        ddof: of the covariance of the observations' gradients; other than the default likewise.
    """

    def __init__(
        self,
        problem: LinearProblem,
        case: Case,
        n: int,
        stepsize: Any,
        *,
        tuning: Mapping[str, Any] | None = None,
        replace: bool = False,
        refresh_variance: float = 1.0,
        ddof: int | None = None,
    ) -> None:
        self.d = d = problem.dimension
        self.eye, self.zero = np.eye(d), np.zeros((d, d))
        assert case.law is not None, "no linear chain"
        step = case.law(self, problem.spread(stepsize), tuning or case.tuning, problem)
        new_gradient = self._new_gradient(problem, case, n, replace, ddof)
        one_step = step.close.operator() @ new_gradient @ step.move.operator()
        refresh = Stage(step.refresh.A, step.refresh.Q * refresh_variance)
        self.operator = (
            np.linalg.matrix_power(one_step, step.count) @ refresh.operator()
        )
        self.second = self._stationary()

    def matrix(self, rows: Mapping[str, Mapping[str, Array]]) -> Array:
        """Return A from the blocks that differ from the identity: {row: {column: block}}."""
        size = 1 + 3 * self.d
        A = np.eye(size)
        for row, columns in rows.items():
            A[self.place(row)] = 0.0
            for column, block in columns.items():
                A[self.place(row), self.place(column)] = block
        return A

    def place(self, name: str) -> slice:
        """Return the place of θ, ν or g in z."""
        first = 1 + self.d * "θνg".index(name)
        return slice(first, first + self.d)

    def stage(
        self,
        rows: Mapping[str, Mapping[str, Array]],
        noise: Mapping[str, Array] | None = None,
    ) -> Stage:
        """Return a stage; ``noise`` holds the variances of independent noise, by row."""
        Q = np.zeros((1 + 3 * self.d, 1 + 3 * self.d))
        for row, variances in (noise or {}).items():
            Q[self.place(row), self.place(row)] = np.diag(variances)
        return Stage(self.matrix(rows), Q)

    def _new_gradient(
        self,
        problem: LinearProblem,
        case: Case,
        n: int,
        replace: bool,
        ddof: int | None,
    ) -> Array:
        N, d, size = problem.size, self.d, 1 + 3 * self.d
        A = self.matrix({"g": {"θ": -problem.precision}})
        A[self.place("g"), 0] = problem.precision @ problem.mean
        constant = case.estimator.noisy(
            problem.h, problem.h - problem.K @ problem.start
        )
        terms = np.concatenate([constant[:, :, None], -problem.K], 2).reshape(N, -1)
        terms = terms - terms.mean(0)
        ddof = (0 if replace else 1) if ddof is None else ddof
        spread = terms.T @ terms / (N - ddof) * (N**2 if replace else N * (N - n)) / n
        noise = np.zeros((size,) * 4)
        g = self.place("g")
        noise[g, g, : 1 + d, : 1 + d] = spread.reshape((d, 1 + d) * 2).transpose(
            0, 2, 1, 3
        )
        return np.kron(A, A) + noise.reshape(size**2, size**2)

    def _stationary(self) -> Array:
        system = self.operator - np.eye(len(self.operator))
        system[0, 0] = 1.0
        right = np.zeros(len(system))
        right[0] = 1.0
        return np.linalg.solve(system, right).reshape(1 + 3 * self.d, -1)

    def after(self, iterations: int, start: Array) -> Array:
        """Return E[z zᵀ] so many iterations after a start at a point."""
        z = np.zeros(len(self.second))
        z[0] = 1.0
        z[self.place("θ")] = start
        second = np.outer(z, z).ravel()
        for _ in range(iterations):
            second = self.operator @ second
        return second.reshape(self.second.shape)

    def settles(self, burn_in: int, start: Array) -> bool:
        """Return whether a burn-in brings the moments of θ within 0.01 % of the least variance."""
        theta = self.place("θ")
        gap = np.abs(self.after(burn_in, start) - self.second)[theta, theta]
        return bool(gap.max() < 1e-4 * np.diag(self.moments("θ")[1]).min())

    def moments(self, names: str) -> tuple[Array, Array]:
        """Return mean and covariance of, say, ``"θ"`` or ``"θg"``."""
        places = np.concatenate(
            [np.arange(len(self.second))[self.place(n)] for n in names]
        )
        mean = self.second[0, places]
        return mean, self.second[np.ix_(places, places)] - np.outer(mean, mean)


@dataclass(frozen=True)
class Stages:
    """An iteration: a refresh, then steps; each moves, takes a gradient, and closes."""

    refresh: Stage
    move: Stage
    close: Stage
    count: int = 1


StagesOf = Callable[[Law, Array, Mapping[str, Any], Problem], Stages]
"""Makes the stages of an iteration: of a law, ε for each coordinate, tuning, and the problem."""


def langevin(
    law: Law, stepsize: Array, tuning: Mapping[str, Any], problem: Problem
) -> Stages:
    """Return the stages of SGLD."""
    move = law.stage({"θ": {"θ": law.eye, "g": np.diag(stepsize) / 2}}, {"θ": stepsize})
    return Stages(law.stage({"ν": {}}), move, law.stage({}))


def splitting(
    law: Law,
    stepsize: Array,
    tuning: Mapping[str, Any],
    problem: Problem,
    name: str = "friction",
) -> Stages:
    """Return the stages of BAOAB, whose momentum is never drawn again."""
    c = np.exp(-problem.spread(tuning[name]))
    lessened = (stepsize * (1 + c) / 2) ** 2 * problem.spread(
        tuning.get("noise_variance", 0.0)
    )
    kick = law.stage({"ν": {"ν": law.eye, "g": np.diag(stepsize) / 2}})
    drift = law.stage({"θ": {"θ": law.eye, "ν": law.eye / 2}})
    friction = law.stage(
        {"ν": {"ν": np.diag(c)}}, {"ν": stepsize * (1 - c**2) - lessened}
    )
    return Stages(law.stage({}), kick.then(drift).then(friction).then(drift), kick)


def refreshed_splitting(
    law: Law, stepsize: Array, tuning: Mapping[str, Any], problem: Problem
) -> Stages:
    """Return the stages of SGHMC: the momentum is drawn, then come L steps of BAOAB."""
    step = splitting(law, stepsize, tuning, problem, "alpha")
    return Stages(_drawn(law, stepsize), step.move, step.close, tuning["L"])


def refreshed_euler(
    law: Law, stepsize: Array, tuning: Mapping[str, Any], problem: Problem
) -> Stages:
    """Return the stages of SGHMC as it was published."""
    alpha = problem.spread(tuning["alpha"])
    beta = stepsize * problem.spread(tuning.get("noise_variance", 0.0)) / 2
    decay, E = np.diag(1 - alpha), np.diag(stepsize)
    kick = law.stage({"ν": {"ν": decay, "g": E}}, {"ν": 2 * (alpha - beta) * stepsize})
    drift = law.stage({"θ": {"θ": law.eye, "ν": law.eye}})
    return Stages(_drawn(law, stepsize), kick.then(drift), law.stage({}), tuning["L"])


def _drawn(law: Law, stepsize: Array) -> Stage:
    """Return the stage in which the momentum is drawn again, ν ~ N(0, ε)."""
    return law.stage({"ν": {}}, {"ν": stepsize})
