"""Other modes of a posterior, and the symmetries that make some."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.model.geometry import Space, root_of
from sgmcmc.model.target import Target
from sgmcmc.plan.mode import MANY, Mode, find_mode
from sgmcmc.plan.objective import Objective


@dataclass(frozen=True)
class _SymmetrySettings:
    max_rearrangements: int = 24
    max_swaps: int = 6  # pairs exchanged along an axis
    # Of an axis: from here on arrangements are too many to try each.
    min_entries: int = 8
    tested_pairs: int = 8  # exchanged to see whether all entries can be
    first_rows: int = 1000  # rows with which exchanges are tried first
    max_axes: int = 6  # of one length, up to which all their subsets are tried


_SYMMETRY_SETTINGS = _SymmetrySettings()

# Relative difference of log posteriors that are the same up to rounding.
_ROUNDING = {tf.float32: 1e-6, tf.float64: 1e-10}

Params = dict[str, np.ndarray]


def rearranged(space: Space, u: np.ndarray, dtype: tf.DType) -> list[np.ndarray]:
    """Return positions at which components are exchanged, or signs are changed.

    Exchanged are parameters whose names differ in their last character (``theta1``, ``theta2``),
    all such pairs at once; two parameters of equal shape; and two entries along an axis, of all
    parameters whose first, or last, axis is as long. The signs are changed of single parameters, of
    all, and of single components of all. Values that a parameter cannot have are left out.

    Args:
        space: Space of the parameters.
        u: Position, flat and unconstrained.
        dtype: Dtype of the chain.
    """
    positions = []
    for arrangement in itertools.islice(
        _arrangements(_params_at(space, u, dtype)),
        _SYMMETRY_SETTINGS.max_rearrangements,
    ):
        position = _position_of(space, arrangement, dtype)
        if np.isfinite(position).all() and not np.allclose(position, u):
            positions.append(position)
    return positions


def exchangeable_parameters(
    target: Target, data: Data, u: np.ndarray, seed: int
) -> tuple[str, ...]:
    """Return parameters whose entries are exchangeable, such as the weights of hidden units.

    Their posterior has as many modes as arrangements, and predictions alone have a meaning.
    Returns no name for few coordinates, whose modes are distinguished.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        u: Position, near which the log posterior is finite, flat and unconstrained.
        seed: Seed of the position where entries are exchanged, and of the pairs.
    """
    if target.size <= MANY or target.space.joint is not None:
        return ()
    objective = Objective(target, data)
    rng = np.random.default_rng([seed, 2])
    position = u + rng.standard_normal(target.size)

    def exchangeable_over(rows: np.ndarray | None) -> tuple[str, ...]:
        restricted = objective.over(None if rows is None else [(rows, 1.0)])

        def value(u: np.ndarray) -> float:
            return restricted.value_and_gradient(u)[0]

        return exchangeable(target.space, position, objective.target.dtype, value, rng)

    n = _SYMMETRY_SETTINGS.first_rows
    if data.size > 2 * n:
        some = np.sort(rng.choice(data.size, n, replace=False))
        # What does not hold for some rows does not hold for all.
        if not exchangeable_over(some):
            return ()
    return exchangeable_over(None)


def exchangeable(
    space: Space,
    u: np.ndarray,
    dtype: tf.DType,
    value: Callable[[np.ndarray], float],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Return parameters whose entries can be exchanged with no change of the log posterior.

    Such are the weights of a layer's hidden units: their posterior has as many modes as the units
    have arrangements. Entries along an axis are exchanged at once in several parameters, a few
    pairs at random. Returns no name if there are none, or fewer than eight.

    Args:
        space: Space of the parameters.
        u: Position at which no two entries are equal, flat and unconstrained.
        dtype: Dtype in which the log posterior is computed.
        value: Log posterior at a position.
        rng: Source of the pairs.
    """
    params = _params_at(space, u, dtype)
    height = value(u)
    if not np.isfinite(height):
        return ()
    rounding = _ROUNDING[dtype] * max(1.0, abs(height))

    def same(axes: tuple[tuple[str, int], ...], pair: np.ndarray) -> bool:
        arrangement = dict(params)
        for name, axis in axes:
            arrangement[name] = _swapped(arrangement[name], axis, *pair)
        return bool(
            abs(value(_position_of(space, arrangement, dtype)) - height) <= rounding
        )

    for length, axes in _axes(params).items():
        if length < _SYMMETRY_SETTINGS.min_entries:
            continue
        pairs = [
            rng.choice(length, 2, replace=False)
            for _ in range(_SYMMETRY_SETTINGS.tested_pairs)
        ]
        # The largest subsets of axes first; of very many only all of them.
        smallest = 1 if len(axes) <= _SYMMETRY_SETTINGS.max_axes else len(axes)
        for size in range(len(axes), smallest - 1, -1):
            for subset in itertools.combinations(axes, size):
                if all(same(subset, pair) for pair in pairs):
                    return tuple(dict.fromkeys(name for name, _ in subset))
    return ()


def _params_at(space: Space, u: np.ndarray, dtype: tf.DType) -> Params:
    params = space.constrain(tf.constant(u, dtype))
    return {name: value.numpy() for name, value in params.items()}


def _position_of(space: Space, params: Params, dtype: tf.DType) -> np.ndarray:
    arrays = {name: np.asarray(array, array.dtype) for name, array in params.items()}
    return space.start(arrays, dtype).astype(np.float64)


def _axes(params: Params) -> dict[int, list[tuple[str, int]]]:
    axes: dict[int, list[tuple[str, int]]] = {}
    for name, array in params.items():
        for axis, length in enumerate(array.shape):
            axes.setdefault(length, []).append((name, axis))
    return axes


def _arrangements(params: Params) -> Iterator[Params]:
    """Yield rearranged parameters, the likeliest first."""
    yield from _named_pairs(params)
    yield from _axis_swaps(params)
    pairs = (
        (a, b)
        for a, b in itertools.combinations(params, 2)
        if params[a].shape == params[b].shape
    )
    for a, b in itertools.islice(pairs, _SYMMETRY_SETTINGS.max_swaps):
        yield {**params, a: params[b], b: params[a]}
    yield {name: -a for name, a in params.items()}
    for name in params:
        yield {**params, name: -params[name]}
    # One entry along the last axes of one length changes its sign.
    lengths = {a.shape[-1] for a in params.values() if a.ndim}
    for K in sorted(length for length in lengths if length > 1):
        for k in range(min(K, 2)):
            sign = np.where(np.arange(K) == k, -1.0, 1.0)
            mirrored = {
                name: (a * sign).astype(a.dtype)
                for name, a in params.items()
                if a.ndim and a.shape[-1] == K
            }
            yield {**params, **mirrored}


def _named_pairs(params: Params) -> Iterator[Params]:
    """Exchange the last characters of names, and turn arrays as long as there are of them."""
    stems: dict[str, list[str]] = {}
    for name in params:
        stems.setdefault(name[:-1], []).append(name[-1])
    endings = sorted({tuple(e) for e in stems.values() if len(e) > 1}, key=len)
    for group in endings:
        for a, b in itertools.islice(
            itertools.combinations(group, 2), _SYMMETRY_SETTINGS.max_swaps
        ):
            arrangement = dict(params)
            for name, array in params.items():
                if name[-1] in (a, b):
                    partner = name[:-1] + (b if name[-1] == a else a)
                    if partner in params and params[partner].shape == array.shape:
                        arrangement[partner] = array
                elif array.ndim and array.shape[0] == len(group):
                    arrangement[name] = _swapped(
                        array, 0, group.index(a), group.index(b)
                    )
            yield arrangement


def _axis_swaps(params: Params) -> Iterator[Params]:
    """Exchange two entries along the first axes, or the last ones, of one length."""
    for axis in (0, -1):
        lengths = {
            a.shape[axis]
            for a in params.values()
            if a.ndim and (axis == 0 or a.ndim > 1)
        }
        for K in sorted(length for length in lengths if length > 1):
            pairs = itertools.islice(
                itertools.combinations(range(K), 2), _SYMMETRY_SETTINGS.max_swaps
            )
            for i, j in pairs:
                yield {
                    name: _swapped(a, axis, i, j)
                    if a.ndim and a.shape[axis] == K
                    else a
                    for name, a in params.items()
                }


def _swapped(array: np.ndarray, axis: int, i: int, j: int) -> np.ndarray:
    order = np.arange(array.shape[axis])
    order[[i, j]] = j, i
    return np.take(array, order, axis)


CLOSE = 0.01  # gradient, in posterior SDs, at which a search has converged
DIP = 1.0  # smallest dip of the log posterior on the line between two modes
LINE = (
    0.5,
    0.4,
    0.6,
    0.25,
    0.75,
    0.15,
    0.85,
)  # fractions of that line at which it is computed
PART_ROWS = 2000  # rows of the subset on which other modes are searched


@dataclass(frozen=True)
class _SurveySettings:
    climb_iterations: int = 40  # of L-BFGS in one search
    # Iterations between checks whether a search goes to a known mode.
    check_every: int = 10
    # The best rearrangements of the mode, which searches start from.
    rearrangements: int = 3
    random_distances: tuple[float, ...] = (
        5.0,
        20.0,
        80.0,
    )  # of random starts, posterior SDs
    observation_distances: tuple[float, ...] = (
        1.0,
        3.0,
    )  # of further starts, SDs of one row
    low_dimension: int = 8  # coordinates up to which there are more random starts
    low_dimension_factor: int = 2  # factor of their number
    # Difference of log posteriors of modes that are exchanged.
    height_tolerance: float = 0.1
    min_distance: float = 2.0  # between two modes, in SDs of either
    min_weight: float = 1e-3  # relative to the heaviest mode: others are not reported
    max_candidates: int = 6  # modes that are computed with all the data
    outward: tuple[float, ...] = (
        4.0,
        40.0,
    )  # SDs beyond the mode: the posterior must have fallen
    required_fall: float = 1.0  # of the log posterior there
    min_sd_ratio: float = 1e-12  # of two SDs at a mode: less is the edge of a pole
    max_level_directions: int = 3  # directions without curvature that are tried
    # Of the largest share in such a direction: less is not reported.
    min_share: float = 0.05


_SURVEY_SETTINGS = _SurveySettings()


class WhitenedPosterior:
    """The log posterior over a part of the data, in coordinates whitened at the mode."""

    def __init__(self, objective: Objective, mode: Mode) -> None:
        self.root = root_of(mode.information.covariance)
        self.objective, self._origin = objective, mode.position
        self._cache: dict[bytes, tuple[float, np.ndarray]] = {}

    def into(self, u: np.ndarray) -> np.ndarray:
        """Return whitened coordinates."""
        return np.linalg.solve(self.root, u - self._origin)

    def out_of(self, zeta: np.ndarray) -> np.ndarray:
        """Return unconstrained coordinates."""
        return self._origin + self.root @ zeta

    def value_and_gradient(self, zeta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log posterior and its gradient; minus infinity and zero if it has none."""
        key = zeta.tobytes()
        if key not in self._cache:
            value, user_gradient = self.objective.value_and_gradient(self.out_of(zeta))
            finite = np.isfinite(value) and np.isfinite(user_gradient).all()
            gradient = self.root.T @ user_gradient if finite else np.zeros(len(zeta))
            self._cache[key] = (value if finite else -np.inf, gradient)
        return self._cache[key]

    def value(self, zeta: np.ndarray) -> float:
        """Return the log posterior."""
        return self.value_and_gradient(zeta)[0]

    def is_stationary(self, zeta: np.ndarray) -> bool:
        """Return whether the gradient is small."""
        value, gradient = self.value_and_gradient(zeta)
        limit = 10 * CLOSE * np.sqrt(len(zeta))
        return np.isfinite(value) and float(np.abs(gradient).max()) < limit

    def dips_between(self, start: np.ndarray, end: np.ndarray) -> bool:
        """Return whether the log posterior is lower between two positions than at both."""
        threshold = min(self.value(start), self.value(end)) - DIP
        return any(not self.value(start + t * (end - start)) > threshold for t in LINE)

    @staticmethod
    def distance(zeta: np.ndarray, points: list[np.ndarray]) -> float:
        """Return the distance to the nearest of the others, in posterior SDs."""
        return min(
            (float(np.linalg.norm(zeta - point)) for point in points), default=np.inf
        )

    def climb(self, start: np.ndarray, modes: list[np.ndarray]) -> Any:
        """Return the end of L-BFGS; ``None`` if that point is known already."""
        if not np.isfinite(self.value(start)):
            return None
        floor = self.value(start) - 1e10
        last = start
        same_mode = np.sqrt(len(start))
        iterations = 0

        def stop_early(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            nonlocal last, iterations
            last = np.array(intermediate_result.x)
            iterations += 1
            if self.distance(last, modes) < same_mode:
                raise StopIteration
            if iterations % _SURVEY_SETTINGS.check_every:
                return
            # High up already, and no dip on the way to a known mode: it goes there.
            if not all(self.dips_between(last, mode) for mode in modes):
                raise StopIteration

        optimum = scipy.optimize.minimize(
            lambda zeta: -max(self.value(zeta), floor),
            start,
            jac=lambda zeta: -self.value_and_gradient(zeta)[1],
            method="L-BFGS-B",
            callback=stop_early,
            options={
                "maxiter": _SURVEY_SETTINGS.climb_iterations,
                "gtol": CLOSE,
                "ftol": 1e-13,
            },
        )
        end = optimum.x if np.isfinite(optimum.x).all() else last
        return None if self.distance(end, modes) < same_mode else end


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
    rows = None
    whole = (objective or Objective(target, data)).over(None)
    if data.size > PART_ROWS:
        rows = np.sort(rng.choice(data.size, PART_ROWS, replace=False))
    strata = None if rows is None else [(rows, data.size / PART_ROWS)]
    posterior = WhitenedPosterior(whole.over(strata), mode)
    maximum = posterior.climb(np.zeros(target.size), [])
    if maximum is None:
        return Survey(
            (mode,), np.zeros(1), np.ones(1), (), posterior.objective.evaluations
        )
    away = posterior.into(np.asarray(start, np.float64))
    all_rows = None if rows is None else whole
    rising = _unbounded_parameters(posterior, maximum, away, mode, target, all_rows)
    summits = [maximum]
    for zeta in (
        _search_starts(posterior, target, maximum, away, data.size, rng) if far else ()
    ):
        end = posterior.climb(zeta, summits)
        if end is None or not posterior.is_stationary(end):
            continue
        if posterior.distance(end, summits) <= _SURVEY_SETTINGS.min_distance:
            continue
        # A prior with kinks stops a search anywhere; without a dip it is the same mode.
        if all(posterior.dips_between(end, summit) for summit in summits):
            summits.append(end)
    for zeta in list(summits) if far else ():
        summits += _equivalent_modes(posterior, target, zeta, summits)
    candidates = sorted(summits[1:], key=posterior.value, reverse=True)[
        : _SURVEY_SETTINGS.max_candidates
    ]
    modes = [mode]
    heights = [whole.value_and_gradient(mode.position)[0]] if candidates else [0.0]
    for zeta in candidates:
        try:
            u = posterior.out_of(zeta)
            candidate = find_mode(whole, u) if find is None else find(u)
        except (ValueError, np.linalg.LinAlgError):  # derivatives there are not finite
            continue
        height = whole.value_and_gradient(candidate.position)[0]
        if _is_new_mode(whole, candidate, height, modes, heights):
            modes.append(candidate)
            heights.append(height)
    return _weighed(modes, np.array(heights), rising, posterior.objective.evaluations)


def _weighed(
    modes: list[Mode], heights: np.ndarray, rising: tuple[str, ...], evaluations: int
) -> Survey:
    volumes = [
        0.5 * np.linalg.slogdet(mode.information.covariance)[1] for mode in modes
    ]
    masses = heights + volumes
    weights = np.exp(masses - masses.max())
    order = np.argsort(-weights, kind="stable")
    relevant = [k for k in order if weights[k] >= _SURVEY_SETTINGS.min_weight]
    shares = weights[relevant] / weights[relevant].sum()
    return Survey(
        tuple(modes[k] for k in relevant),
        heights[relevant],
        shares,
        rising,
        evaluations,
    )


def _search_starts(
    posterior: WhitenedPosterior,
    target: Target,
    maximum: np.ndarray,
    away: np.ndarray,
    N: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    images = [*_rearrangements(posterior, target, maximum), 2 * away - maximum]
    min_distance = _SURVEY_SETTINGS.min_distance
    distant = [
        zeta for zeta in images if posterior.distance(zeta, [maximum]) > min_distance
    ]
    best = sorted(distant, key=posterior.value, reverse=True)[
        : _SURVEY_SETTINGS.rearrangements
    ]
    scales = [
        *_SURVEY_SETTINGS.random_distances,
        *(factor * np.sqrt(N) for factor in _SURVEY_SETTINGS.observation_distances),
    ]
    scales *= (
        _SURVEY_SETTINGS.low_dimension_factor
        if len(maximum) <= _SURVEY_SETTINGS.low_dimension
        else 1
    )
    return best + [
        maximum + scale * rng.standard_normal(len(maximum)) for scale in scales
    ]


def _rearrangements(
    posterior: WhitenedPosterior, target: Target, zeta: np.ndarray
) -> list[np.ndarray]:
    u = posterior.out_of(zeta)
    return [
        posterior.into(image) for image in rearranged(target.space, u, target.dtype)
    ]


@np.errstate(all="ignore")
def has_images(objective: Objective, target: Target, mode: Mode) -> bool:
    """Return whether a rearrangement of a mode is as high, and far from it."""
    maximum = np.zeros(target.size)
    posterior = WhitenedPosterior(objective, mode)
    return bool(_equivalent_modes(posterior, target, maximum, [maximum]))


def _equivalent_modes(
    posterior: WhitenedPosterior,
    target: Target,
    mode: np.ndarray,
    modes: list[np.ndarray],
) -> list[np.ndarray]:
    """Return rearrangements of a mode that are as high, and new."""
    images: list[np.ndarray] = []
    for zeta in _rearrangements(posterior, target, mode):
        as_high = (
            abs(posterior.value(zeta) - posterior.value(mode))
            < _SURVEY_SETTINGS.height_tolerance
        )
        if (
            as_high
            and posterior.distance(zeta, modes + images) > _SURVEY_SETTINGS.min_distance
        ):
            images.append(zeta)
    return images


def _is_new_mode(
    objective: Objective,
    candidate: Mode,
    height: float,
    modes: list[Mode],
    heights: list[float],
) -> bool:
    """Return whether a mode is none of the known ones: far from them, and with a dip between."""
    if not (candidate.converged and np.isfinite(height)):
        return False
    for mode, mode_height in zip(modes, heights, strict=True):
        difference = candidate.position - mode.position
        informations = (mode.information.matrix, candidate.information.matrix)
        square_distance = min(
            difference @ matrix @ difference for matrix in informations
        )
        if square_distance < _SURVEY_SETTINGS.min_distance**2:
            return False
        between = (
            objective.value_and_gradient(mode.position + t * difference)[0]
            for t in LINE
        )
        if not any(not value > min(height, mode_height) - DIP for value in between):
            return False
    return True


def _unbounded_parameters(
    posterior: WhitenedPosterior,
    maximum: np.ndarray,
    away: np.ndarray,
    mode: Mode,
    target: Target,
    whole: Objective | None,
) -> tuple[str, ...]:
    """Return the parameters with which the log posterior keeps rising, if it has no mode.

    A part of the rows may lack those that make it fall, so all rows must agree.
    """
    value, slope = posterior.value_and_gradient(maximum)
    origin, fall = 0 * maximum, _SURVEY_SETTINGS.required_fall
    is_no_mode = not mode.converged and not posterior.is_stationary(maximum)
    if is_no_mode and value > posterior.value(origin) + fall:
        return _causes_of_rise(posterior, maximum, maximum, target)
    # An SD may be so small next to another that only a scale of zero explains it.
    variances = np.diag(mode.information.covariance)
    smallest = _SURVEY_SETTINGS.min_sd_ratio**2 * variances.max()
    is_at_pole = not variances.min() > smallest
    if is_at_pole or (
        not mode.converged and posterior.value_and_gradient(origin)[1] @ -away > fall
    ):
        # Beyond, a number that overflows or a scale of zero may hide that it goes on to rise.
        return _with_largest(
            np.abs(mode.position - posterior.out_of(away)), 0.5, target
        )
    objective = posterior.objective if whole is None else whole
    steps = [sign * t for t in _SURVEY_SETTINGS.outward for sign in (1.0, -1.0)]
    for level in mode.information.level[: _SURVEY_SETTINGS.max_level_directions]:
        lowest = objective.value_and_gradient(mode.position)[0] - fall
        ends = (mode.position + step * level.step for step in steps)
        if all(lowest < objective.value_and_gradient(u)[0] < np.inf for u in ends):
            return _with_largest(level.shares, _SURVEY_SETTINGS.min_share, target)
    for direction in (maximum - away, slope):
        size = float(np.linalg.norm(direction))
        if size < CLOSE:
            continue
        unit = direction / size
        if not _stays_up(posterior, maximum, unit):
            continue
        if whole is None or _stays_up(WhitenedPosterior(whole, mode), origin, unit):
            return _causes_of_rise(posterior, maximum, unit, target)
    return ()


def _with_largest(sizes: np.ndarray, share: float, target: Target) -> tuple[str, ...]:
    """Return the parameters with a coordinate of at least a part of the largest size."""
    threshold = share * sizes.max()
    slices = target.space.layout.slices
    return tuple(
        name for name, s in slices.items() if sizes[s].max(initial=0.0) >= threshold
    )


def _stays_up(
    posterior: WhitenedPosterior, start: np.ndarray, unit: np.ndarray
) -> bool:
    ahead = [posterior.value(start + t * unit) for t in _SURVEY_SETTINGS.outward]
    threshold = posterior.value(start) - _SURVEY_SETTINGS.required_fall
    return bool(np.isfinite(ahead).all()) and min(ahead) > threshold


def _causes_of_rise(
    posterior: WhitenedPosterior,
    maximum: np.ndarray,
    direction: np.ndarray,
    target: Target,
) -> tuple[str, ...]:
    """Return the parameters that a rise in a direction is due to, by their part of the slope."""
    slope = posterior.value_and_gradient(maximum)[1]
    step = posterior.out_of(maximum + direction) - posterior.out_of(maximum)
    gain = np.linalg.solve(posterior.root.T, slope) * step
    slices = target.space.layout.slices
    sizes = {name: gain[entries].sum() for name, entries in slices.items()}
    if not max(sizes.values()) > 0:  # a slope of rounding alone
        return _with_largest(np.abs(step), 0.5, target)
    return tuple(
        name for name, size in sizes.items() if size >= 0.5 * max(sizes.values())
    )
