"""Other modes than the one that was found, and posteriors that have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from sgmcmc.data.dataset import Data
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.target.geometry import root_of
from sgmcmc.target.target import Target
from sgmcmc.tuning.mode import Mode, find_mode
from sgmcmc.tuning.objective import Objective
from sgmcmc.tuning.symmetries import rearranged

_ITERATIONS = 40
"""Iterations of one search."""

CLOSE = 0.01
"""Gradient, in posterior SDs, at which a search has converged."""

_LOOK = 10
"""Iterations between checks whether a search goes to a known place."""

DIP = 1.0
"""Smallest dip of the log posterior on the line between two modes."""

LINE = (0.5, 0.4, 0.6, 0.25, 0.75, 0.15, 0.85)
"""Places on that line at which it is computed."""


class Climber:
    """The log posterior over a part of the data, in coordinates whitened at the mode."""

    def __init__(self, objective: Objective, mode: Mode) -> None:
        self.root = root_of(mode.information.covariance)
        self.objective, self._origin = objective, mode.position
        self._known: dict[bytes, tuple[float, np.ndarray]] = {}

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return whitened coordinates."""
        return np.linalg.solve(self.root, u - self._origin)

    def out_of(self, zeta: np.ndarray) -> np.ndarray:
        """Return unconstrained coordinates."""
        return self._origin + self.root @ zeta

    def both(self, zeta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient; minus infinity and zero if it has none."""
        key = zeta.tobytes()
        if key not in self._known:
            value, gradient = self.objective.value_and_gradient(self.out_of(zeta))
            fine = np.isfinite(value) and np.isfinite(gradient).all()
            slope = self.root.T @ gradient if fine else np.zeros(len(zeta))
            self._known[key] = (value if fine else -np.inf, slope)
        return self._known[key]

    def value(self, zeta: np.ndarray) -> float:
        """Return the log posterior."""
        return self.both(zeta)[0]

    def arrived(self, zeta: np.ndarray) -> bool:
        """Return whether the gradient is small."""
        value, slope = self.both(zeta)
        return np.isfinite(value) and float(np.abs(slope).max()) < 10 * CLOSE * np.sqrt(len(zeta))

    def dips(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Return whether the log posterior is lower somewhere between two places than at both."""
        least = min(self.value(one), self.value(other)) - DIP
        return any(not self.value(one + t * (other - one)) > least for t in LINE)

    @staticmethod
    def distance(zeta: np.ndarray, others: list[np.ndarray]) -> float:
        """Return the distance to the nearest of the others, in posterior SDs."""
        return min((float(np.linalg.norm(zeta - other)) for other in others), default=np.inf)

    def climb(self, start: np.ndarray, known: list[np.ndarray]) -> Any:
        """Return the end of L-BFGS; ``None`` if that point is known already."""
        if not np.isfinite(self.value(start)):
            return None
        floor = self.value(start) - 1e10
        last = start
        near = np.sqrt(len(start))
        iterations = 0

        def enough(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            nonlocal last, iterations
            last, iterations = np.array(intermediate_result.x), iterations + 1
            if self.distance(last, known) < near:
                raise StopIteration
            # High up already, and no dip on the way to a place that is known: it goes there.
            if iterations % _LOOK == 0 and not all(self.dips(last, other) for other in known):
                raise StopIteration

        found = scipy.optimize.minimize(
            lambda zeta: -max(self.value(zeta), floor),
            start,
            jac=lambda zeta: -self.both(zeta)[1],
            method="L-BFGS-B",
            callback=enough,
            options={"maxiter": _ITERATIONS, "gtol": CLOSE, "ftol": 1e-13},
        )
        end = found.x if np.isfinite(found.x).all() else last
        return None if self.distance(end, known) < near else end


PART_ROWS = 2000
"""Rows that other modes are looked for on."""

_BEST = 3
"""Rearrangements of the mode that are searched from."""

_NEAR = (5.0, 20.0, 80.0)
"""Distances of random starts from the mode, in posterior SDs."""

_WIDE = (1.0, 3.0)
"""Distances of further starts, in SDs that a single observation would leave."""

_LOW = 8
"""Largest number of coordinates for which there are more random starts."""

_TWICE = 2
"""Factor of their number."""

_SAME = 0.1
"""Maximum difference of the log posterior between modes that differ by an exchange."""

_APART = 2.0
"""Smallest distance of two modes, in SDs of either."""

_NEGLIGIBLE = 1e-3
"""The least weight of a mode, against the heaviest, that is spoken of."""

_FOLLOWED = 6
"""Largest number of candidate modes that are computed with all the data."""

_OUTWARD = (4.0, 40.0)
"""Posterior SDs beyond the mode at which the log posterior should have fallen."""

_FALL = 1.0
"""Required fall of the log posterior there."""

_NARROWEST = 1e-12
"""Least ratio of two SDs at a mode that is not the edge of a pole."""

_LEVELS = 3
"""Directions without curvature in which the log posterior is evaluated."""

_SHARE = 0.05
"""Part of the largest share in such a direction that a parameter must have to be named."""


@dataclass(frozen=True)
class Survey:
    """The modes that were found.

    Attributes:
        modes: Modes, the heaviest first; at least one.
        heights: Log posterior at each, (k,).
        weights: Weight of each, by Laplace's approximation: the height of the log posterior and ½
            log |M|, as parts of their sum, (k,).
        rising: Parameters with which the log posterior keeps rising, away from the start; empty if
            there is a mode.
        evaluations: Number of passes over the part of the data that the search used.
    """

    modes: tuple[Mode, ...]
    heights: np.ndarray
    weights: np.ndarray
    rising: tuple[str, ...]
    evaluations: int

    @property
    def several(self) -> bool:
        """Whether there is more than one mode."""
        return len(self.modes) > 1


@np.errstate(all="ignore")
def survey(
    target: Target,
    data: Data,
    mode: Mode,
    start: np.ndarray,
    seed: int,
    objective: Objective | None = None,
    find: Callable[[np.ndarray], Mode] | None = None,
    far: bool = True,
) -> Survey:
    """Look for other modes, and for whether the mode is one.

    Searches start at rearrangements of the mode (components exchanged, signs changed) and at
    random, from a few posterior SDs away to the width that a single observation would leave. They
    run on a part of the data, in coordinates in which the information at the mode is the identity.
    Distance, and a dip in between on all the data, distinguish what they find from the mode.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        mode: Mode that was found.
        start: Start of the search for it, flat and unconstrained.
        seed: Seed of the rows and starts.
        objective: Log posterior over the dataset, if there is one already.
        find: Function that finds the mode from a position; ``None`` to go by all rows.
        far: Whether to search at all; not if the log posterior is right only near the mode.
    """
    rng = generator(seed, 1, RunPhase.MODE, Purpose.START)
    rows, whole = None, (objective or Objective(target, data)).over(None)
    if data.size > PART_ROWS:
        rows = np.sort(rng.choice(data.size, PART_ROWS, replace=False))
    strata = None if rows is None else [(rows, data.size / PART_ROWS)]
    part = Climber(whole.over(strata), mode)
    home = part.climb(np.zeros(target.size), [])
    if home is None:
        return Survey((mode,), np.zeros(1), np.ones(1), (), part.objective.evaluations)
    away = part.into(np.asarray(start, np.float64))
    rising = _rising(part, home, away, mode, target, None if rows is None else whole)
    found = [home]
    for place in _places(part, target, home, away, data.size, rng) if far else ():
        end = part.climb(place, found)
        if end is None or not part.arrived(end) or part.distance(end, found) <= _APART:
            continue
        # A prior with kinks stops a search anywhere; without a dip it is the same mode.
        if all(part.dips(end, other) for other in found):
            found.append(end)
    for place in list(found) if far else ():
        found += _images(part, target, place, found)
    others = sorted(found[1:], key=part.value, reverse=True)[:_FOLLOWED]
    modes = [mode]
    heights = [whole.value_and_gradient(mode.position)[0]] if others else [0.0]
    for place in others:
        try:
            u = part.out_of(place)
            other = find_mode(whole, u) if find is None else find(u)
        except (ValueError, np.linalg.LinAlgError):  # derivatives there are not finite
            continue
        height = whole.value_and_gradient(other.position)[0]
        if _is_another(whole, other, height, modes, heights):
            modes.append(other)
            heights.append(height)
    return _weighed(modes, np.array(heights), rising, part.objective.evaluations)


def _weighed(
    modes: list[Mode], heights: np.ndarray, rising: tuple[str, ...], evaluations: int
) -> Survey:
    """Return the modes that have some weight, the heaviest first."""
    volumes = [0.5 * np.linalg.slogdet(mode.information.covariance)[1] for mode in modes]
    masses = heights + volumes
    weights = np.exp(masses - masses.max())
    kept = [k for k in np.argsort(-weights, kind="stable") if weights[k] >= _NEGLIGIBLE]
    shares = weights[kept] / weights[kept].sum()
    return Survey(tuple(modes[k] for k in kept), heights[kept], shares, rising, evaluations)


def _places(
    part: Climber,
    target: Target,
    home: np.ndarray,
    away: np.ndarray,
    N: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Return the starts of searches for other modes, whitened."""
    turned = [*_turned(part, target, home), 2 * away - home]
    far = [zeta for zeta in turned if part.distance(zeta, [home]) > _APART]
    best = sorted(far, key=part.value, reverse=True)[:_BEST]
    scales = [*_NEAR, *(factor * np.sqrt(N) for factor in _WIDE)]
    scales *= _TWICE if len(home) <= _LOW else 1
    return best + [home + scale * rng.standard_normal(len(home)) for scale in scales]


def _turned(part: Climber, target: Target, zeta: np.ndarray) -> list[np.ndarray]:
    """Return rearrangements of a place."""
    u = part.out_of(zeta)
    return [part.into(other) for other in rearranged(target.space, u, target.dtype)]


@np.errstate(all="ignore")
def has_images(objective: Objective, target: Target, mode: Mode) -> bool:
    """Return whether a rearrangement of a mode, apart from it, is as high."""
    home = np.zeros(target.size)
    return bool(_images(Climber(objective, mode), target, home, [home]))


def _images(
    part: Climber, target: Target, place: np.ndarray, found: list[np.ndarray]
) -> list[np.ndarray]:
    """Return rearrangements of a place that are as high, and not known."""
    images: list[np.ndarray] = []
    for zeta in _turned(part, target, place):
        same = abs(part.value(zeta) - part.value(place)) < _SAME
        if same and part.distance(zeta, found + images) > _APART:
            images.append(zeta)
    return images


def _is_another(
    whole: Objective, other: Mode, height: float, modes: list[Mode], heights: list[float]
) -> bool:
    """Return whether a mode is none of those that are known: apart, and with a dip between."""
    if not (other.converged and np.isfinite(height)):
        return False
    for mode, known in zip(modes, heights, strict=True):
        gap = other.position - mode.position
        apart = min(gap @ one.information.matrix @ gap for one in (mode, other))
        if apart < _APART**2:
            return False
        between = (whole.value_and_gradient(mode.position + t * gap)[0] for t in LINE)
        if not any(not value > min(height, known) - DIP for value in between):
            return False
    return True


def _rising(
    part: Climber,
    home: np.ndarray,
    away: np.ndarray,
    mode: Mode,
    target: Target,
    whole: Objective | None,
) -> tuple[str, ...]:
    """Return the parameters with which the log posterior keeps rising, if it has no mode.

    A part of the rows may lack those that make it fall, so all rows must agree.
    """
    value, slope = part.both(home)
    if not mode.converged and not part.arrived(home) and value > part.value(0 * home) + _FALL:
        return _parameters(part, home, home, target)
    origin = 0 * home
    if _is_at_pole(mode) or (not mode.converged and part.both(origin)[1] @ -away > _FALL):
        # Beyond, a number that overflows or a scale of zero may hide that it goes on to rise.
        return _named(np.abs(mode.position - part.out_of(away)), 0.5, target)
    for level in mode.information.level[:_LEVELS]:
        if _is_level(part.objective if whole is None else whole, mode.position, level.step):
            return _named(level.shares, _SHARE, target)
    for direction in (home - away, slope):
        size = float(np.linalg.norm(direction))
        if size < CLOSE:
            continue
        unit = direction / size
        if not _stays_up(part, home, unit):
            continue
        if whole is None or _stays_up(Climber(whole, mode), origin, unit):
            return _parameters(part, home, unit, target)
    return ()


def _is_at_pole(mode: Mode) -> bool:
    """Return whether an SD is so small next to another that only a scale of zero explains it."""
    variances = np.diag(mode.information.covariance)
    return not variances.min() > _NARROWEST**2 * variances.max()


def _is_level(objective: Objective, place: np.ndarray, step: np.ndarray) -> bool:
    """Return whether the log posterior does not fall from a place, to both sides."""
    least = objective.value_and_gradient(place)[0] - _FALL
    ends = [place + side * t * step for t in _OUTWARD for side in (1.0, -1.0)]
    return all(least < objective.value_and_gradient(end)[0] < np.inf for end in ends)


def _named(sizes: np.ndarray, least: float, target: Target) -> tuple[str, ...]:
    """Return the parameters with a coordinate of at least a part of the largest size."""
    enough = least * sizes.max()
    slices = target.space.layout.slices
    return tuple(name for name, s in slices.items() if sizes[s].max(initial=0.0) >= enough)


def _stays_up(part: Climber, place: np.ndarray, unit: np.ndarray) -> bool:
    """Return whether the log posterior does not fall from a place, in a direction."""
    ahead = [part.value(place + t * unit) for t in _OUTWARD]
    return bool(np.isfinite(ahead).all()) and min(ahead) > part.value(place) - _FALL


def _parameters(
    part: Climber, home: np.ndarray, direction: np.ndarray, target: Target
) -> tuple[str, ...]:
    """Return the parameters that a rise in a direction is due to, by their part of the slope."""
    slope, move = part.both(home)[1], part.out_of(home + direction) - part.out_of(home)
    gain = np.linalg.solve(part.root.T, slope) * move
    sizes = {name: gain[s].sum() for name, s in target.space.layout.slices.items()}
    if not max(sizes.values()) > 0:  # a slope of rounding alone
        return _named(np.abs(move), 0.5, target)
    return tuple(name for name, size in sizes.items() if size >= 0.5 * max(sizes.values()))
