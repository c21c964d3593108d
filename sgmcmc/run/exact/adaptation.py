"""The warm-up of Hamiltonian Monte Carlo: coordinates and stepsize from what chains show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.numbers import RunPhase
from sgmcmc.dynamics.hamiltonian import Hamiltonian
from sgmcmc.engine.recorder import Recorder
from sgmcmc.engine.scheduler import Progress
from sgmcmc.results.schema import DRAWS, LOG_POST
from sgmcmc.run.builder import make_runners
from sgmcmc.run.crews import crew_of
from sgmcmc.run.driver import whole_by_chain
from sgmcmc.run.sampler import Sampler
from sgmcmc.target.geometry import Preconditioner
from sgmcmc.target.layout import Layout
from sgmcmc.tuning.ascent import DualAveraging
from sgmcmc.tuning.information import shrunk_covariance

WINDOWS = (25, 25, 50, 100, 200)
"""Iterations of the windows: in the first only the stepsize is adapted; after each of the others
the warm-up ends if the draws are as wide as they should be, else coordinates are changed."""

SHORT, LAST = (25, 25), (25, 75)
"""The windows after which directions of curvature are looked for, and those after the last time."""

_LAST = 50
"""Iterations after a change of coordinates that no other follows."""

_SINGLE, _BATCH = 25, 5
"""Iterations after which the stepsize is not changed after every one, but after so many."""

_STUCK = 0.25
"""What part of the trajectories may be cut short in a warm-up that gets anywhere."""

_NORMAL = 2.5
"""A variance in the chain's coordinates, or its inverse, that calls for others."""


@dataclass(frozen=True)
class WarmedUp:
    """What the warm-up has found.

    Attributes:
        preconditioner: û and C, including those that the chain started with; ``None`` for none.
        stepsize: ε in those coordinates; ``None`` if it should not be chosen.
        positions: Positions of the chains, as the user sees them, by parameter.
        iterations: Number of iterations.
        changed: Number of changes of the coordinates.
        gradients: Number of full gradients, over all chains.
        seconds: Seconds spent in its iterations.
        lost: Whether the chains failed to reach the region in which draws are as wide as they
            should be.
    """

    preconditioner: Preconditioner | None
    stepsize: float | None
    positions: list[dict[str, np.ndarray]]
    iterations: int
    changed: int
    gradients: float
    seconds: float
    lost: bool


class _Positions(Recorder):
    """Writes down the positions themselves."""

    def specs(self) -> dict[str, tuple[tuple[int, ...], tf.DType]]:
        """Return shape and dtype of a position."""
        return {DRAWS: ((self.target.size,), self.target.dtype)}

    def values(self, position: tf.Tensor, gradient: tf.Tensor, iteration: tf.Tensor) -> Any:
        """Return the position."""
        return {DRAWS: position}

    @property
    def draw_layout(self) -> Layout:
        """Layout of the position."""
        return self.target.space.layout


class WarmUp:
    """The warm-up of one sampler.

    Args:
        sampler: Sampler whose chain should be warmed up; its stepsize is the first one tried, and
            its dynamics hold coordinates in their state if those may change.
        wanted: Acceptance rate that the stepsize is chosen for; ``None`` leaves it unchanged.
        deadline: Time at which to stop, by the monotonic clock.
        windows: Iterations of the windows.
    """

    def __init__(
        self,
        sampler: Sampler,
        wanted: float | None,
        deadline: float,
        windows: Sequence[int] = WINDOWS,
    ) -> None:
        self._sampler, self._wanted, self._deadline = sampler, wanted, deadline
        self._windows = windows
        dynamics = sampler.chain.dynamics
        assert isinstance(dynamics, Hamiltonian)
        self._dynamics, self._metric = dynamics, dynamics.metric
        self._first = float(sampler.chain.stepsizes.at(1, 1).max())
        d, dtype = sampler.target.size, np.dtype(sampler.target.dtype.as_numpy_dtype)
        self._root = np.eye(d) if self._metric == "dense" else np.ones(d)
        most = sum(windows) + _LAST
        rows = [
            {DRAWS: np.empty((most, d), dtype), LOG_POST: np.empty((2 * most, 2))}
            for _ in sampler.starts
        ]
        self._draws = [row[DRAWS] for row in rows]
        label = f"{sampler.chain.label}, warm-up"
        phase = replace(
            sampler.chain, kind=RunPhase.MODE, label=label, recorder=_Positions(sampler.target)
        )
        self._crew = crew_of(sampler, phase, most)
        self._runners = make_runners(
            sampler, phase, sampler.starts, whole_by_chain(sampler), most, rows,
            lambda runners: None, lambda number, runner: None, self._crew,
        )  # fmt: skip
        self._label, self._most = label, most
        self._done = self._changed = 0
        self._astray = False

    def run(self, verbose: bool) -> WarmedUp:
        """Run it."""
        averaging, began = self._averaging(self._first), time.monotonic()
        with Progress(self._label, self._most * len(self._runners), verbose) as progress:
            self._window(self._windows[0], averaging, progress)
            for length in self._windows[1:]:
                self._window(length, averaging, progress)
                if self._metric is None or self._stuck:
                    break
                if self._late or not self._change(length):
                    break
                averaging = self._averaging(self._restarted)
            else:
                self._window(_LAST, averaging, progress)
                self._astray = not self._normal(_LAST)[0]
        space, moves = self._sampler.target.space, [runner.facts() for runner in self._runners]
        return WarmedUp(
            self._combined(),
            None if averaging is None else self._suitable(averaging.settled),
            [space.params(r.position(), self._sampler.target.dtype) for r in self._runners],
            self._done,
            self._changed,
            sum(facts["moves"] * facts["gradients of a move"] for facts in moves),
            time.monotonic() - began,
            self._astray or self._stuck,
        )

    @property
    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    @property
    def _stuck(self) -> bool:
        """Whether trajectories are cut short again and again."""
        moves = [runner.facts() for runner in self._runners]
        cut = sum(facts["moves cut short"] for facts in moves)
        return cut > _STUCK * sum(facts["moves"] for facts in moves)

    @property
    def _restarted(self) -> float:
        """The stepsize to begin with in new coordinates."""
        return first_stepsize(self._sampler.target.size)

    def _averaging(self, stepsize: float) -> DualAveraging | None:
        if self._wanted is None:
            return None
        averaging = DualAveraging(stepsize, self._wanted)
        self._scale(stepsize)
        return averaging

    def _suitable(self, stepsize: float) -> float:
        return self._dynamics.suitable(stepsize, self._metric is not None)

    def _scale(self, stepsize: float) -> None:
        for runner in self._runners:
            runner.scale_stepsizes(stepsize / self._first)

    def _window(self, length: int, averaging: DualAveraging | None, progress: Progress) -> None:
        """Run all chains for some iterations."""
        end, began = self._done + length, self._done
        while self._done < end and not (self._late and self._done > self._windows[0]):
            single = self._done - began < _SINGLE
            batch = min(1 if single else _BATCH, end - self._done)
            before = self._accepted()
            self._done += batch
            self._crew.advance_to([self._done] * len(self._runners), self._runners, progress)
            if averaging is not None:
                averaging.see((self._accepted() - before) / (batch * len(self._runners)))
                self._scale(self._suitable(averaging.stepsize))
        if averaging is not None:
            self._scale(self._suitable(averaging.settled))

    def _accepted(self) -> float:
        """Return the sum of the acceptance probabilities of all moves so far."""
        moves = [runner.facts() for runner in self._runners]
        return sum(facts["moves"] * facts["acceptance rate"] for facts in moves)

    def _change(self, length: int) -> bool:
        """Change the coordinates if those of the last iterations call for it; return whether."""
        normal, spread = self._normal(length)
        if normal:
            return False
        root = self._root
        self._root = root @ np.linalg.cholesky(spread) if root.ndim == 2 else root * spread**0.5
        self._changed += 1
        for runner in self._runners:
            runner.change_state(lambda state: state._replace(root=tf.constant(self._root)))
        return True

    def _normal(self, length: int) -> tuple[bool, np.ndarray]:
        """Return whether the last draws are near N(0, I), and their covariance or variances."""
        zeta = np.concatenate([draws[self._done - length : self._done] for draws in self._draws])
        root = self._root
        within = np.linalg.solve(root, zeta.T).T if root.ndim == 2 else zeta / root
        spread, widest, narrowest = spread_of(within.astype(np.float64), root.ndim == 2)
        return widest <= _NORMAL and narrowest >= 1 / _NORMAL, spread

    def _combined(self) -> Preconditioner | None:
        """Return the preconditioner that makes the coordinates those of the warm-up's end."""
        before = self._sampler.target.space.preconditioner
        if not self._changed:
            return before
        if before is None:
            return Preconditioner(self._root, np.zeros(len(self._root)))
        if before.dense or self._root.ndim == 2:
            outer, inner = (a if a.ndim == 2 else np.diag(a) for a in (before.root, self._root))
            return Preconditioner(outer @ inner, before.origin)
        return Preconditioner(before.root * self._root, before.origin)


def first_stepsize(d: int) -> float:
    """Return a stepsize to begin with where the posterior is near N(0, I)."""
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
