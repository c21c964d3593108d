"""Warm-up of chains whose moves are exact: stepsize, coordinates, number of steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from sgmcmc.data.random_numbers import RunPhase
from sgmcmc.dynamics.hamiltonian import Hamiltonian
from sgmcmc.engine.scheduler import Progress
from sgmcmc.interrupts import TimeUpError, limited
from sgmcmc.model.geometry import Arrow, Preconditioner
from sgmcmc.plan.curvature import shrunk_covariance
from sgmcmc.plan.start import Start
from sgmcmc.plan.stopping import Goal
from sgmcmc.results.schema import LOG_POST, POSITIONS, SLOPES
from sgmcmc.run.builder import PhaseRun, RunOutput, make_runners
from sgmcmc.run.chain_executors import executor_of
from sgmcmc.run.driver import whole_by_chain
from sgmcmc.run.sampler import Sampler


@dataclass(frozen=True)
class _Settings:
    # Iterations after a change of coordinates that no other follows.
    last_window: int = 50
    # First ones, after each of which the stepsize is changed.
    single_iterations: int = 25
    batch: int = 5  # iterations after which it is changed later
    # Largest share of trajectories in a warm-up that makes progress.
    cut_short: float = 0.25
    autocorrelation: float = 5.0  # assumed, of coordinates of unknown scale
    recent_draws: int = 64  # that are passed on at most
    # Largest share of the gradients' mean square that a useful split leaves.
    residual: float = 0.5
    frequency_change: float = 0.1  # that calls for another stepsize
    mean_change: float = 1.5  # in SDs, of chains that have not converged
    # In the chain's coordinates, or its inverse, that calls for others.
    variance: float = 2.5
    # After which the average of a stepsize counts: the first ones leap.
    fewest_updates: int = 10


_SETTINGS = _Settings()


def gradients_of(facts: Iterable[Mapping[str, float]]) -> float:
    """Return the gradients that all moves of chains with these facts have taken."""
    return sum(chain["moves"] * chain["gradients of a move"] for chain in facts)


class DualAveraging:
    """Drives the mean acceptance rate to its target.

    log ε_t = μ − √t/(γ(t + t₀)) Σ (target − seen), with μ = log 10ε₁, γ = 0.05, t₀ = 10; in the end
    the average of log ε_t with weights t^(−0.75) counts, or ε₁ if there were too few updates to
    tell.

    Args:
        stepsize: ε₁, the first stepsize.
        target: Target acceptance rate.

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014, section 3.2.
    """

    def __init__(self, stepsize: float, target: float) -> None:
        self._center = math.log(10 * stepsize)
        self._target = target
        self._sum = 0.0
        self._count = 0
        self._mean = 0.0
        self._first = self.stepsize = stepsize

    def see(self, acceptance: float) -> None:
        """Update by an acceptance rate."""
        self._count += 1
        t = self._count
        self._sum += self._target - acceptance
        log = self._center - math.sqrt(t) / (0.05 * (t + 10)) * self._sum
        weight = t**-0.75
        self._mean = weight * log + (1 - weight) * self._mean
        self.stepsize = math.exp(log)

    @property
    def settled(self) -> float:
        """Stepsize after the adaptation."""
        return (
            math.exp(self._mean)
            if self._count >= _SETTINGS.fewest_updates
            else self._first
        )


# Iterations; in the first only the stepsize is adapted; after each of the others the warm-up ends
# if the draws are as wide as they should be, else coordinates are changed.
WINDOWS = (25, 25, 50, 100, 200)
SHORT = (25, 25)  # windows after which curvature is computed
LAST = (25, 50, 50)  # windows after the last time that it is
AROUND_MODE = (25, 50)  # windows after that of chains that start around the mode
WHITENED = (25, 50, 100)  # windows of chains that start in whitened coordinates


class LeftModeError(Exception):
    """Chains left the region around the mode in which alone their log posterior is right."""


@dataclass(frozen=True)
class WarmedUp:
    """Result of the warm-up.

    Attributes:
        preconditioner: û and C, including those that the chain started with; ``None`` for none.
        stepsize: ε in those coordinates; ``None`` if it should not be chosen.
        positions: Positions of the chains, as the user sees them, by parameter.
        iterations: Number of iterations.
        metric_updates: Number of changes of the coordinates.
        gradients: Number of full gradients, over all chains.
        seconds: Seconds spent in its iterations.
        lost: Whether the chains failed to reach the region in which draws are as wide as they
            should be.
        frequency: ω of the part of the potential whose flow should be exact.
        width: Mean variance of the last draws in the coordinates of the end.
        mean_change: Largest change of the mean from the first half of the last draws to the second,
            in the coordinates whose scale alone may change; 0 if there are none.
        recent_draws: Some of the last draws, flat and unconstrained, (k, d).
        metric: Form of the coordinates that could change.
    """

    preconditioner: Preconditioner | None
    stepsize: float | None
    positions: list[dict[str, np.ndarray]]
    iterations: int
    metric_updates: int
    gradients: float
    seconds: float
    lost: bool
    frequency: float
    width: float
    mean_change: float
    recent_draws: np.ndarray
    metric: str

    def continued(self, further: WarmedUp) -> WarmedUp:
        """Return the result of this warm-up and a further one after it."""
        return replace(
            further,
            iterations=self.iterations + further.iterations,
            metric_updates=self.metric_updates + further.metric_updates,
            gradients=self.gradients + further.gradients,
            seconds=self.seconds + further.seconds,
        )

    @property
    def settled(self) -> bool:
        """Whether the last draws are about as wide as they should be, and their mean is stable."""
        widest = _SETTINGS.variance
        return (
            1 / widest < self.width < widest
            and self.mean_change < _SETTINGS.mean_change
        )


class WarmUp:
    """The warm-up of one sampler.

    Args:
        sampler: Sampler whose chain should be warmed up; its stepsize is the first one tried, and
            its dynamics hold coordinates in their state if those may change.
        start: Start of the chains.
        acceptance: Acceptance rate that the stepsize is chosen for; ``None`` leaves it unchanged.
        goal: Requested precision and length of the draws, and what they may cost.
        windows: Iterations of the windows.
    """

    def __init__(
        self,
        sampler: Sampler,
        start: Start,
        acceptance: float | None,
        goal: Goal,
        windows: Sequence[int],
    ) -> None:
        self._sampler, self._acceptance, self._goal = sampler, acceptance, goal
        self._deadline = goal.end_of_warm_up
        # Around a mode no progress in the first window is enough to give up.
        self._patience = sum(windows[: 2 if start.mode is None else 1])
        self._windows, self._scaled_indices = windows, start.scaled
        dynamics = sampler.chain.dynamics
        assert isinstance(dynamics, Hamiltonian)
        assert dynamics.metric is not None
        self._dynamics, self._metric = dynamics, dynamics.metric
        self._first = float(sampler.chain.stepsizes.at(1, 1).max())
        d, dtype = sampler.target.size, np.dtype(sampler.target.dtype.as_numpy_dtype)
        self._root = np.eye(d) if self._metric == "dense" else np.ones(d)
        max_iterations = sum(windows) + _SETTINGS.last_window
        self._rows = [
            {
                POSITIONS: np.empty((max_iterations, d), dtype),
                SLOPES: np.empty((max_iterations, d), dtype),
                LOG_POST: np.empty((2 * max_iterations, 2)),
            }
            for _ in sampler.starts
        ]
        self._splits_potential = hasattr(dynamics, "frequency")
        self._frequency = 0.0
        label = f"{sampler.chain.label}, warm-up"
        phase = replace(sampler.chain, kind=RunPhase.MODE, label=label)
        phase_run = PhaseRun(sampler, phase, max_iterations)
        self._executor = executor_of(phase_run)
        self._runners = make_runners(
            phase_run,
            sampler.starts,
            whole_by_chain(sampler),
            RunOutput(self._rows),
            self._executor,
        )
        self._label, self._max_iterations = label, max_iterations
        self._done = self._metric_updates = 0
        self._astray = False

    def run(self) -> WarmedUp:
        """Run it."""
        averaging, start = self._averaging(self._first), time.monotonic()
        limit = limited(self._deadline)
        total = self._max_iterations * len(self._runners)
        with limit, Progress(self._label, total, self._goal.verbose) as progress:
            self._window(self._windows[0], averaging, progress)
            length = self._windows[0]
            for length in self._windows[1:]:
                if self._is_over:
                    break
                if self._choose_frequency(length):
                    averaging = self._averaging(self._restarted)
                self._window(length, averaging, progress)
                if self._stuck or self._is_over:
                    break
                if self._scaled_indices is not None:
                    self._rescale(length)
                elif self._metric != "none":
                    if not self._rewhiten(length):
                        break
                    averaging = self._averaging(self._restarted)
            else:
                if self._metric != "none" and self._scaled_indices is None:
                    length = _SETTINGS.last_window
                    self._window(_SETTINGS.last_window, averaging, progress)
                    self._astray = not self._compare_with_normal(_SETTINGS.last_window)[
                        0
                    ]
        return self._result(averaging, length, time.monotonic() - start)

    def _result(
        self, averaging: DualAveraging | None, length: int, seconds: float
    ) -> WarmedUp:
        """Return the result; ``length`` is that of the last window."""
        target = self._sampler.target
        positions = [
            target.space.params(runner.position(), target.dtype)
            for runner in self._runners
        ]
        width = np.inf
        if self._done:
            zeta, _ = self._within(length)
            width = float(zeta.var(0).mean())
        return WarmedUp(
            preconditioner=self._combined(length),
            stepsize=None if averaging is None else self._suitable(averaging.settled),
            positions=positions,
            iterations=self._done,
            metric_updates=self._metric_updates,
            gradients=self._gradients,
            seconds=seconds,
            lost=self._astray or self._stuck,
            frequency=self._frequency,
            width=width,
            mean_change=self._mean_change(length),
            recent_draws=self._recent_draws(length),
            metric=self._metric,
        )

    @property
    def _is_over(self) -> bool:
        """Whether time is up, or half of the gradients that there are have been computed."""
        half = 0.5 * self._goal.max_gradients
        return time.monotonic() > self._deadline or (
            math.isfinite(half) and self._gradients > half
        )

    @property
    def _gradients(self) -> float:
        return gradients_of(runner.facts() for runner in self._runners)

    @property
    def _stuck(self) -> bool:
        """Whether trajectories are cut short again and again."""
        chain_facts = [runner.facts() for runner in self._runners]
        cut = sum(facts["moves cut short"] for facts in chain_facts)
        return cut > _SETTINGS.cut_short * sum(facts["moves"] for facts in chain_facts)

    @property
    def _restarted(self) -> float:
        return first_stepsize(self._sampler.target.size)

    def _averaging(self, stepsize: float) -> DualAveraging | None:
        if self._acceptance is None:
            return None
        averaging = DualAveraging(stepsize, self._acceptance)
        self._scale(stepsize)
        return averaging

    def _suitable(self, stepsize: float) -> float:
        return self._dynamics.suitable(stepsize, self._frequency)

    def _scale(self, stepsize: float) -> None:
        for runner in self._runners:
            runner.scale_stepsizes(stepsize / self._first)

    def _window(
        self, length: int, averaging: DualAveraging | None, progress: Progress
    ) -> None:
        end, first = self._done + length, self._done
        while self._done < end and not (self._is_over and self._done):
            hopeless = self._is_over or (self._done >= self._patience and self._stuck)
            if hopeless and self._done > self._windows[0]:
                break
            single = self._done - first < _SETTINGS.single_iterations
            batch = min(1 if single else _SETTINGS.batch, end - self._done)
            before = self._accepted()
            self._done += batch
            goals = [self._done] * len(self._runners)
            try:
                self._executor.advance_to(goals, self._runners, progress)
            except TimeUpError:
                self._done = min(runner.iteration for runner in self._runners)
                break
            if averaging is not None:
                averaging.see(
                    (self._accepted() - before) / (batch * len(self._runners))
                )
                self._scale(self._suitable(averaging.stepsize))
        if averaging is not None:
            self._scale(self._suitable(averaging.settled))

    def _accepted(self) -> float:
        """Return the sum of the acceptance probabilities of all moves so far."""
        chain_facts = [runner.facts() for runner in self._runners]
        return sum(facts["moves"] * facts["acceptance rate"] for facts in chain_facts)

    def _rewhiten(self, length: int) -> bool:
        """Change the coordinates if those of the last iterations call for it; return whether."""
        normal, spread = self._compare_with_normal(length)
        if normal:
            return False
        root = self._root
        self._use_root(
            root @ np.linalg.cholesky(spread) if root.ndim == 2 else root * spread**0.5
        )
        return True

    def _rescale(self, length: int) -> None:
        """Change the scales of the coordinates that have their own, by the last draws."""
        indices = self._scaled_indices
        variances = self._within(length)[0][:, indices].var(0)
        effective = length * len(self._rows) / _SETTINGS.autocorrelation
        root = self._root.copy()
        root[indices] *= np.sqrt((effective * variances + 5.0) / (effective + 5.0))
        self._use_root(root)

    def _use_root(self, root: np.ndarray) -> None:
        self._root = root
        self._metric_updates += 1
        for runner in self._runners:
            runner.change_state(
                lambda state: state._replace(root=tf.constant(self._root))
            )

    def _compare_with_normal(self, length: int) -> tuple[bool, np.ndarray]:
        """Return whether the last draws are near N(0, I), and their covariance or variances."""
        spread, widest, narrowest = spread_of(
            self._within(length)[0], self._root.ndim == 2
        )
        return (
            widest <= _SETTINGS.variance and narrowest >= 1 / _SETTINGS.variance,
            spread,
        )

    def _within(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the last draws, and the gradients there, in the present coordinates, (k, d)."""
        last = slice(max(0, self._done - length), self._done)
        zeta, gradients = (
            np.concatenate([row[name][last] for row in self._rows]).astype(np.float64)
            for name in (POSITIONS, SLOPES)
        )
        root = self._root
        if root.ndim == 2:
            return np.linalg.solve(root, zeta.T).T, gradients @ root
        return zeta / root, gradients * root

    def _mean_change(self, length: int) -> float:
        """Return the largest change of a scaled coordinate's mean within the last draws."""
        if self._scaled_indices is None:
            return 0.0
        indices, chains = self._scaled_indices, len(self._rows)
        zeta = self._within(length)[0]
        zeta = zeta.reshape(chains, -1, zeta.shape[1])[..., indices]
        middle = zeta.shape[1] // 2
        if not middle:  # time was up
            return np.inf
        change = zeta[:, middle:].mean((0, 1)) - zeta[:, :middle].mean((0, 1))
        return float(np.abs(change).max(initial=0.0))

    def _recent_draws(self, length: int) -> np.ndarray:
        step = max(1, -(-length * len(self._rows) // _SETTINGS.recent_draws))
        last = slice(max(0, self._done - length), self._done, step)
        rows = [row[POSITIONS][last] for row in self._rows]
        zeta = np.concatenate(rows).astype(np.float64)
        before = self._sampler.target.space.preconditioner
        return zeta if before is None else before.origin + before.times(zeta)

    def _choose_frequency(self, length: int) -> bool:
        """Choose the part of the potential whose flow is exact; return whether it changed much.

        ω² is the regression of −∇log p on ζ over the last draws, at most 1. It is used if at least
        half of the gradient's mean square is explained by it.
        """
        if not self._splits_potential or self._acceptance is None:
            return False
        zeta, gradients = self._within(-(-length // 2))
        square = float((zeta**2).sum())
        before = self._frequency
        slope = min(
            1.0, max(0.0, -float((zeta * gradients).sum()) / max(square, 1e-300))
        )
        residual = float(((gradients + slope * zeta) ** 2).sum())
        explained = residual < _SETTINGS.residual * float((gradients**2).sum())
        self._frequency = float(np.sqrt(slope)) if explained else 0.0
        for runner in self._runners:
            runner.change_state(
                lambda state: state._replace(
                    frequency=tf.constant(self._frequency, tf.float64)
                )
            )
        return abs(self._frequency - before) > _SETTINGS.frequency_change

    def _combined(self, length: int) -> Preconditioner | None:
        """Return the preconditioner that makes the coordinates those of the warm-up's end.

        If the flow of a part of the potential is exact, its origin is the posterior mean, with
        gradients as control variates: the mean of ζ + ∇log p(ζ) is that of ζ, and does not vary if
        the posterior is N(·, I).
        """
        preconditioner = self._scaled()
        if preconditioner is None or not self._frequency > 0 or self._stuck:
            return preconditioner
        zeta, gradients = self._within(length)
        center = (zeta + gradients).mean(0)
        center = self._root @ center if self._root.ndim == 2 else self._root * center
        before = self._sampler.target.space.preconditioner
        shift = center if before is None else before.times(center)
        return preconditioner.centered_at(preconditioner.origin + shift)

    def _scaled(self) -> Preconditioner | None:
        """Return the same without a change of the origin."""
        before = self._sampler.target.space.preconditioner
        if not self._metric_updates:
            return before
        if before is None:
            return Preconditioner(self._root, np.zeros(len(self._root)))
        if isinstance(before, Arrow):
            return before.scaled(self._root)
        if before.dense or self._root.ndim == 2:
            outer, inner = (
                a if a.ndim == 2 else np.diag(a) for a in (before.root, self._root)
            )
            return Preconditioner(outer @ inner, before.origin)
        return before.scaled(self._root)


def first_stepsize(d: int) -> float:
    """Return a stepsize to begin with if the posterior is near N(0, I)."""
    return float(d**-0.25)


def spread_of(draws: np.ndarray, dense: bool) -> tuple[np.ndarray, float, float]:
    """Return the covariance of draws, drawn toward the identity, and its extreme eigenvalues.

    Args:
        draws: Draws in coordinates in which the covariance may be the identity, (k, d).
        dense: Whether to return the whole covariance, or only the variances, (d,).
    """
    effective = len(draws) / 2
    if not dense:
        variances = (effective * draws.var(0) + 10.0) / (effective + 10.0)
        return variances, float(variances.max()), float(variances.min())
    covariance = shrunk_covariance(draws, effective)
    values = np.linalg.eigvalsh(covariance)
    return covariance, float(values[-1]), float(values[0])
