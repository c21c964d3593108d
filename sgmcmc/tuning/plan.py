"""The plan of a chain without constants: what is chosen, from mode, information and noise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Minibatch
from sgmcmc.data.rng import Purpose, RunPhase, generator
from sgmcmc.dynamics import Dynamics
from sgmcmc.minibatches import Minibatches, Weighted
from sgmcmc.target.geometry import Preconditioner
from sgmcmc.target.target import Target
from sgmcmc.tuning.leverage import leverage, leverage_minibatches
from sgmcmc.tuning.mode import Mode, find_mode
from sgmcmc.tuning.noise import estimate_noise
from sgmcmc.tuning.objective import Objective
from sgmcmc.tuning.prediction import Surroundings, largest_stepsize

PART_ROWS = 20_000
"""Rows that a mode is first looked for on."""

WHOLE_UP_TO = 2000
"""Observations up to which every gradient takes them all: noise would cost more than it spares."""

LARGEST = 0.25
"""The largest stepsize in whitened coordinates: beyond, what is not Gaussian begins to count."""

_SIZES = (125, 250, 500, 1000, 2000, 4000)
_POSITIONS = 1024

_ITERATION, _ROW_BYTE = 8.0, 1e-4
"""What an iteration costs in microseconds, apart from its minibatch, and what each byte of that
costs: only their ratio matters, in the choice of n."""


@dataclass(frozen=True)
class Plan:
    """What was chosen, and what it was chosen from.

    Attributes:
        mode: θ̂ and the information there.
        whitening: θ̂ and C, the preconditioner.
        minibatches: how rows are drawn; ``None`` if every gradient takes all.
        minibatch_size: n.
        dynamics: how the state moves.
        stepsize: ε, in whitened coordinates.
        noise: variance of the gradient noise in the direction of each coordinate, (d,).
        error: predicted relative error of the sd of each coordinate, (d,).
        autocorrelation: iterations for an independent draw, in the worst of the coordinates.
        seconds: by what was done.
    """

    mode: Mode
    whitening: Preconditioner
    minibatches: Minibatches | None
    minibatch_size: int
    dynamics: Dynamics
    stepsize: float
    noise: np.ndarray
    error: np.ndarray
    autocorrelation: float
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def effective_rows(self) -> float:
        """How many equally likely rows the sampling probabilities are worth."""
        if isinstance(self.minibatches, Weighted):
            return float(1.0 / (self.minibatches.p**2).sum())
        return float("nan")

    def rewhitened(
        self, target: Target, data: Data, covariance: np.ndarray, tolerance: float, seed: int
    ) -> Plan:
        """Return the plan for coordinates in which this covariance is the identity."""
        whitening = whitening_at(self.mode.position, covariance)
        dynamics, minibatches = self.dynamics, self.minibatches
        plan = choose(target, data, self.mode, whitening, minibatches, dynamics, tolerance, seed)
        return replace(plan, seconds=self.seconds)


def make_plan(
    target: Target,
    data: Data,
    start: np.ndarray,
    dynamics: Dynamics,
    tolerance: float,
    seed: int,
    stage: Callable[[str], None],
) -> Plan:
    """Return the plan of a chain.

    Args:
        target: the log posterior, without a preconditioner.
        data: the dataset.
        start: where to look for the mode, flat and unconstrained.
        dynamics: how the state is to move.
        tolerance: the largest relative error of a posterior sd that is accepted.
        seed: for rows, probes and positions.
        stage: is told what is done next.
    """
    seconds: dict[str, float] = {}
    began = time.perf_counter()

    def done(name: str) -> None:
        nonlocal began
        now = time.perf_counter()
        seconds[name], began = now - began, now

    stage("finding the mode")
    part = None
    if data.size > 2 * PART_ROWS:
        rng = generator(seed, 0, RunPhase.MODE, Purpose.PART)
        part = Objective(target, data, np.sort(rng.choice(data.size, PART_ROWS, replace=False)))
    mode = find_mode(Objective(target, data), start, part)
    done("mode and information")
    whitening = whitening_at(mode.position, mode.information.covariance)
    minibatches: Minibatches | None = None
    if data.size > WHOLE_UP_TO:
        stage("leverage of the observations")
        minibatches = leverage_minibatches(leverage(target, data, whitening, seed))
        done("leverage")
        stage("noise of the gradients")
    plan = choose(target, data, mode, whitening, minibatches, dynamics, tolerance, seed)
    done("noise and stepsize")
    return replace(plan, seconds=seconds)


def whitening_at(position: np.ndarray, covariance: np.ndarray) -> Preconditioner:
    """Return the change to coordinates in which this covariance is the identity."""
    scale = np.sqrt(np.diag(covariance))
    root = scale[:, np.newaxis] * np.linalg.cholesky(covariance / np.outer(scale, scale))
    return Preconditioner(root, position)


def choose(
    target: Target,
    data: Data,
    mode: Mode,
    whitening: Preconditioner,
    minibatches: Minibatches | None,
    dynamics: Dynamics,
    tolerance: float,
    seed: int,
) -> Plan:
    """Return the plan with the minibatch size and stepsize of the least time per effective draw."""
    information = whitening.root.T @ mode.information.matrix @ whitening.root
    nothing = np.zeros_like(information)
    if minibatches is None:
        around = Surroundings(information, nothing, whitening.root)
        return _planned(mode, whitening, None, data.size, dynamics, tolerance, around)
    reference = min(500, data.size)
    noise = _noise(target, data, whitening, minibatches, reference, seed)
    around = Surroundings(information, noise, whitening.root)
    plans = [
        _planned(
            mode, whitening, minibatches, n, dynamics, tolerance, around.with_noise(reference / n)
        )
        for n in _SIZES
        if n <= data.size
    ]
    return min(plans, key=lambda plan: _cost(plan, data))


def _cost(plan: Plan, data: Data) -> float:
    """Return what an independent draw costs, up to a factor."""
    return plan.autocorrelation * (_ITERATION + _ROW_BYTE * plan.minibatch_size * data.row_bytes)


def _noise(
    target: Target,
    data: Data,
    whitening: Preconditioner,
    minibatches: Minibatches,
    n: int,
    seed: int,
) -> np.ndarray:
    """Return the covariance of the gradient noise, at draws of N(θ̂, M)."""
    whitened = Target(
        target.log_lik, target.log_prior, target.space.preconditioned(whitening), target.dtype
    )
    centre = tf.zeros([target.size], target.dtype)

    def estimate(position: tf.Tensor, minibatch: Minibatch) -> tf.Tensor:
        here = whitened.gradient(position, minibatch, with_prior=False)
        return here - whitened.gradient(centre, minibatch, with_prior=False)

    rng = generator(seed, 0, RunPhase.MODE, Purpose.NOISE)
    positions = rng.standard_normal((_POSITIONS, target.size))
    draws = minibatches.bind(data.size, n)
    found = estimate_noise(estimate, data, draws, positions, target.dtype, seed)
    return found.T @ found / len(found)


def _planned(
    mode: Mode,
    whitening: Preconditioner,
    minibatches: Minibatches | None,
    n: int,
    dynamics: Dynamics,
    tolerance: float,
    around: Surroundings,
) -> Plan:
    """Return the plan with the largest stepsize that keeps all sds within the tolerance."""
    stepsize = largest_stepsize(dynamics, around, tolerance, LARGEST)
    found = around.predict(dynamics, stepsize)
    return Plan(
        mode,
        whitening,
        minibatches,
        n,
        dynamics,
        stepsize,
        around.noise_by_coordinate,
        found.error,
        float(found.times.max()),
    )
