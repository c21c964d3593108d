"""Parameters in turn: the updates in NumPy, and the exact laws of the linear chains.

Both are written from the point of view of a minibatch: with it the last parameter of the pass
before closes its step, if a closing half kick is part of that, and then each parameter moves in its
turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from tests.ladder.laws import Stage
from tests.ladder.problems import Array, LinearProblem
from tests.ladder.table import Case

Gradient = Callable[[Array, int], Array]
"""The estimate at a position from the minibatch of this number, from 0."""


@dataclass(frozen=True)
class Block:
    """One parameter's part of everything.

    Attributes:
        place: of its coordinates.
        stepsize: ε, of each of them.
        tuning: the tuning constants, likewise.
    """

    place: slice
    stepsize: Array
    tuning: Mapping[str, Any]

    @classmethod
    def each(
        cls, places: Sequence[slice], stepsize: Array, tuning: Mapping[str, Any]
    ) -> list[Block]:
        """Return the blocks of constants that are one number, or one for each coordinate."""
        return [
            cls(
                place,
                stepsize[place],
                {
                    k: v[place] if isinstance(v, np.ndarray) else v
                    for k, v in tuning.items()
                },
            )
            for place in places
        ]


@dataclass
class Walker:
    """The state of a chain: θ, ν and ξ, the last with an entry for each coordinate."""

    theta: Array
    nu: Array
    xi: Array


def chain(
    case: Case,
    gradient: Gradient,
    start: Array,
    blocks: Sequence[Block],
    noise: Array,
    start_noise: Array,
) -> Iterator[Walker]:
    """Yield the states of a chain after each iteration."""
    name, tuning = case.dynamics.__name__, blocks[0].tuning
    euler = tuning.get("integrator") == "euler"
    epsilon = np.concatenate([block.stepsize for block in blocks])
    nu, xi = 0 * start, 0 * start
    if name in ("SGNHT", "Underdamped"):
        nu = np.sqrt(epsilon) * start_noise
    if name == "SGNHT":
        for block in blocks:
            xi[block.place] = block.tuning["a"]
    at, number = Walker(start.copy(), nu, xi), 0
    for normals in noise:
        steps = list(normals)
        if name == "SGHMC":
            at.nu, *steps = np.sqrt(epsilon) * normals[0], *normals[1:]
        for zeta in steps:
            for block in blocks:
                own = block.place
                g = gradient(at.theta, number)[own]
                if name == "SGLD":
                    at.theta[own] += (
                        block.stepsize / 2 * g + np.sqrt(block.stepsize) * zeta[own]
                    )
                elif name == "SGNHT":
                    _thermostat(at, block, g, zeta[own])
                elif euler:
                    _published(at, block, g, zeta[own])
                else:
                    _first_four(at, block, g, zeta[own])
                    closing = number + (block is blocks[-1])
                    at.nu[own] += block.stepsize / 2 * gradient(at.theta, closing)[own]
            number += 1
        yield Walker(at.theta.copy(), at.nu.copy(), at.xi.copy())


def _thermostat(at: Walker, block: Block, g: Array, zeta: Array) -> None:
    own, epsilon, a = block.place, block.stepsize, block.tuning["a"]
    noise = np.sqrt(2 * a * epsilon) * zeta
    at.nu[own] = (1 - at.xi[own]) * at.nu[own] + epsilon * g + noise
    at.theta[own] += at.nu[own]
    at.xi[own] += (at.nu[own] ** 2 - epsilon).mean()


def _published(at: Walker, block: Block, g: Array, zeta: Array) -> None:
    own, epsilon, alpha = block.place, block.stepsize, block.tuning["alpha"]
    at.nu[own] = (
        (1 - alpha) * at.nu[own] + epsilon * g + np.sqrt(2 * alpha * epsilon) * zeta
    )
    at.theta[own] += at.nu[own]


def _first_four(at: Walker, block: Block, g: Array, zeta: Array) -> None:
    own, epsilon, c = block.place, block.stepsize, _decay(block)
    at.nu[own] += epsilon / 2 * g
    at.theta[own] += at.nu[own] / 2
    at.nu[own] = c * at.nu[own] + np.sqrt(epsilon * (1 - c**2)) * zeta
    at.theta[own] += at.nu[own] / 2


def _decay(block: Block) -> Any:
    return np.exp(-np.asarray(block.tuning.get("alpha", block.tuning.get("friction"))))


class RecursionInTurn:
    """The exact stationary moments of a chain in turn, by enumeration of all its minibatches.

    The state is z = (1, θ, ν) before a minibatch is drawn. For each minibatch the rest of the
    iteration is a linear map of z with independent noise, so that M = E[z zᵀ] is mapped linearly,
    by the mean over all minibatches.

    Args:
        problem: the problem; small, since every minibatch is looked at.
        case: the row of the table.
        n: the minibatch size.
        blocks: the parameters, in the order in which they move.
        replace: whether minibatches are drawn with replacement.
    """

    def __init__(
        self,
        problem: LinearProblem,
        case: Case,
        n: int,
        blocks: Sequence[Block],
        replace: bool = False,
    ) -> None:
        self.d, self._case, self._blocks = problem.dimension, case, blocks
        rows = range(problem.size)
        drawn = product(rows, repeat=n) if replace else combinations(rows, n)
        self._slopes = [
            _slope(problem, case, np.array(minibatch)) for minibatch in drawn
        ]
        name, L = case.dynamics.__name__, blocks[0].tuning.get("L", 1)
        epsilon = np.concatenate([block.stepsize for block in blocks])
        refresh = self._stage()
        if name != "Underdamped":
            refresh.A[self._nu, self._nu] = 0.0
        if name == "SGHMC":
            refresh.Q[self._nu, self._nu] = np.diag(epsilon)
        first, later = (
            np.mean(
                [
                    self._close(g).then(between).then(self._moves(g)).operator()
                    for g in self._slopes
                ],
                0,
            )
            for between in (refresh, self._stage())
        )
        operator = np.linalg.matrix_power(later, L - 1) @ first
        system = operator - np.eye(len(operator))
        system[0, 0] = 1.0
        right = np.zeros(len(system))
        right[0] = 1.0
        self._second = np.linalg.solve(system, right).reshape(1 + 2 * self.d, -1)

    def _mean_operator(self, between: Stage) -> Array:
        """Return what a minibatch does on average; ``between`` comes before its pass."""
        stages = (
            self._close(g).then(between).then(self._moves(g)) for g in self._slopes
        )
        return np.mean([stage.operator() for stage in stages], 0)

    @property
    def _nu(self) -> slice:
        return slice(1 + self.d, 1 + 2 * self.d)

    def _stage(self) -> Stage:
        """Return the stage that changes nothing."""
        size = 1 + 2 * self.d
        return Stage(np.eye(size), np.zeros((size, size)))

    def _places(self, block: Block) -> tuple[slice, slice]:
        theta = slice(1 + block.place.start, 1 + block.place.stop)
        return theta, slice(theta.start + self.d, theta.stop + self.d)

    @property
    def _splits(self) -> bool:
        """Whether a step ends with half a kick."""
        tuning = self._blocks[0].tuning
        return (
            self._case.dynamics.__name__ != "SGLD"
            and tuning.get("integrator") != "euler"
        )

    def _kick(self, block: Block, slope: Array, size: float) -> Stage:
        stage, (_, nu) = self._stage(), self._places(block)
        stage.A[nu] += size * block.stepsize[:, None] * slope[block.place]
        return stage

    def _close(self, slope: Array) -> Stage:
        return (
            self._kick(self._blocks[-1], slope, 0.5) if self._splits else self._stage()
        )

    def _moves(self, slope: Array) -> Stage:
        """Return a pass, up to where the last parameter would close its step."""
        done = self._stage()
        for block in self._blocks:
            done = done.then(self._move(block, slope))
            if self._splits and block is not self._blocks[-1]:
                done = done.then(self._kick(block, slope, 0.5))
        return done

    def _move(self, block: Block, slope: Array) -> Stage:
        theta, nu = self._places(block)
        epsilon, eye = block.stepsize, np.eye(len(block.stepsize))
        if self._case.dynamics.__name__ == "SGLD":
            stage = self._stage()
            stage.A[theta] += 0.5 * epsilon[:, None] * slope[block.place]
            stage.Q[theta, theta] = np.diag(epsilon)
            return stage
        friction, drift = self._stage(), self._stage()
        if not self._splits:
            alpha = block.tuning["alpha"] * np.ones(len(epsilon))
            friction.A[nu, nu] = np.diag(1 - alpha)
            friction.Q[nu, nu] = np.diag(2 * alpha * epsilon)
            drift.A[theta, nu] = eye
            # The kick looks at θ alone, so that it may come after the friction.
            return friction.then(self._kick(block, slope, 1.0)).then(drift)
        c = _decay(block) * np.ones(len(epsilon))
        friction.A[nu, nu] = np.diag(c)
        friction.Q[nu, nu] = np.diag(epsilon * (1 - c**2))
        drift.A[theta, nu] = eye / 2
        return self._kick(block, slope, 0.5).then(drift).then(friction).then(drift)

    def moments(self) -> tuple[Array, Array]:
        """Return mean and covariance of (θ, ĝ) at the end of an iteration."""
        d, total = self.d, 0.0
        for slope in self._slopes:
            rows = np.vstack([np.eye(1 + 2 * d)[: 1 + d], slope])
            total = total + rows @ self._second @ rows.T / len(self._slopes)
        mean = total[0, 1:]
        return mean, total[1:, 1:] - np.outer(mean, mean)


def _slope(problem: LinearProblem, case: Case, rows: Array) -> Array:
    """Return the estimate of a minibatch as a linear map of z, (d, 1 + 2d)."""
    at_center = problem.h - problem.K @ problem.start
    constant = case.estimator.noisy(problem.h, at_center)
    known = np.broadcast_to(case.estimator.known(at_center), (problem.dimension,))
    scale = problem.size / len(rows)
    prior = problem.prior_precision
    ahead = prior @ problem.prior_mean + known + scale * constant[rows].sum(0)
    slope = -(prior + scale * problem.K[rows].sum(0))
    return np.hstack([ahead[:, None], slope, np.zeros_like(slope)])
