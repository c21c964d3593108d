"""Rearrangements of parameters under which a log posterior may be the same or nearly so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.target.geometry import Space
from sgmcmc.target.target import Target
from sgmcmc.tuning.mode import MANY
from sgmcmc.tuning.objective import Objective

_MOST = 24
"""Largest number of rearrangements."""

_MOST_SWAPS = 6
"""Largest number of pairs exchanged along an axis."""

_ALIKE = 8
"""Least number of entries whose arrangements are too many to look at each."""

_PAIRS = 8
"""Pairs of entries that are exchanged to see whether all can be."""

_ROWS = 1000
"""Rows that entries are exchanged for first."""

_MOST_PLACES = 6
"""Number of axes of one length up to which all their subsets are tried."""

_ROUNDING = {tf.float32: 1e-6, tf.float64: 1e-10}
"""Relative difference of log posteriors that are the same up to rounding."""

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
    places = []
    for other in itertools.islice(_others(_params_at(space, u, dtype)), _MOST):
        moved = _flat(space, other, dtype)
        if np.isfinite(moved).all() and not np.allclose(moved, u):
            places.append(moved)
    return places


def alike(target: Target, data: Data, u: np.ndarray, seed: int) -> tuple[str, ...]:
    """Return parameters whose entries can change places, such as the weights of hidden units.

    Their posterior has as many modes as arrangements, and predictions alone have a meaning.
    Returns no name for few coordinates, of which modes are told apart.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        u: Position, near which the log posterior is finite, flat and unconstrained.
        seed: Seed of the position where entries are exchanged, and of the pairs.
    """
    if target.size <= MANY or target.space.joint is not None:
        return ()
    whole, rng = Objective(target, data), np.random.default_rng([seed, 2])
    near = u + rng.standard_normal(target.size)

    def over(rows: np.ndarray | None) -> tuple[str, ...]:
        objective = whole.over(None if rows is None else [(rows, 1.0)])

        def value(u: np.ndarray) -> float:
            return objective.value_and_gradient(u)[0]

        return exchangeable(target.space, near, whole.target.dtype, value, rng)

    # What does not hold for some rows does not hold for all.
    if data.size > 2 * _ROWS and not over(np.sort(rng.choice(data.size, _ROWS, replace=False))):
        return ()
    return over(None)


def exchangeable(
    space: Space,
    u: np.ndarray,
    dtype: tf.DType,
    value: Callable[[np.ndarray], float],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Return parameters whose entries can change places with no change of the log posterior.

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
    params, top = _params_at(space, u, dtype), value(u)
    if not np.isfinite(top):
        return ()
    rounding = _ROUNDING[dtype] * max(1.0, abs(top))

    def same(places: tuple[tuple[str, int], ...], pair: np.ndarray) -> bool:
        other = dict(params)
        for name, axis in places:
            other[name] = _swapped(other[name], axis, *pair)
        return bool(abs(value(_flat(space, other, dtype)) - top) <= rounding)

    for length, places in _axes(params).items():
        if length < _ALIKE:
            continue
        pairs = [rng.choice(length, 2, replace=False) for _ in range(_PAIRS)]
        for some in _subsets(places):
            if all(same(some, pair) for pair in pairs):
                return tuple(dict.fromkeys(name for name, _ in some))
    return ()


def _params_at(space: Space, u: np.ndarray, dtype: tf.DType) -> Params:
    found = space.constrain(tf.constant(u, dtype))
    return {name: value.numpy() for name, value in found.items()}


def _flat(space: Space, params: Params, dtype: tf.DType) -> np.ndarray:
    """Return the position of parameters, flat and unconstrained."""
    given = {name: np.asarray(array, array.dtype) for name, array in params.items()}
    return space.start(given, dtype).astype(np.float64)


def _axes(params: Params) -> dict[int, list[tuple[str, int]]]:
    """Return the axes of parameters, by their length."""
    found: dict[int, list[tuple[str, int]]] = {}
    for name, array in params.items():
        for axis, length in enumerate(array.shape):
            found.setdefault(length, []).append((name, axis))
    return found


def _subsets(places: list[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield subsets of axes, the largest first; of very many only all of them."""
    fewest = 1 if len(places) <= _MOST_PLACES else len(places)
    for size in range(len(places), fewest - 1, -1):
        yield from itertools.combinations(places, size)


def _others(params: Params) -> Iterator[Params]:
    """Yield rearranged parameters, the likeliest first."""
    yield from _named_pairs(params)
    yield from _axis_swaps(params)
    yield from _shape_pairs(params)
    yield {name: -a for name, a in params.items()}
    for name in params:
        yield {**params, name: -params[name]}
    yield from _flipped_components(params)


def _named_pairs(params: Params) -> Iterator[Params]:
    """Exchange the last characters of names, and turn arrays as long as there are of them."""
    stems: dict[str, list[str]] = {}
    for name in params:
        stems.setdefault(name[:-1], []).append(name[-1])
    ends = sorted({tuple(e) for e in stems.values() if len(e) > 1}, key=len)
    for group in ends:
        for a, b in itertools.islice(itertools.combinations(group, 2), _MOST_SWAPS):
            other = dict(params)
            for name, array in params.items():
                if name[-1] in (a, b):
                    partner = name[:-1] + (b if name[-1] == a else a)
                    if partner in params and params[partner].shape == array.shape:
                        other[partner] = array
                elif array.ndim and array.shape[0] == len(group):
                    other[name] = _swapped(array, 0, group.index(a), group.index(b))
            yield other


def _axis_swaps(params: Params) -> Iterator[Params]:
    """Exchange two entries along the first axes, or the last ones, of one length."""
    for axis in (0, -1):
        lengths = {a.shape[axis] for a in params.values() if a.ndim and (axis == 0 or a.ndim > 1)}
        for K in sorted(length for length in lengths if length > 1):
            pairs = itertools.islice(itertools.combinations(range(K), 2), _MOST_SWAPS)
            for i, j in pairs:
                yield {
                    name: _swapped(a, axis, i, j) if a.ndim and a.shape[axis] == K else a
                    for name, a in params.items()
                }


def _swapped(array: np.ndarray, axis: int, i: int, j: int) -> np.ndarray:
    order = np.arange(array.shape[axis])
    order[[i, j]] = j, i
    return np.take(array, order, axis)


def _shape_pairs(params: Params) -> Iterator[Params]:
    """Exchange two parameters of equal shape."""
    pairs = (
        (a, b) for a, b in itertools.combinations(params, 2) if params[a].shape == params[b].shape
    )
    for a, b in itertools.islice(pairs, _MOST_SWAPS):
        yield {**params, a: params[b], b: params[a]}


def _flipped_components(params: Params) -> Iterator[Params]:
    """Change the sign of one entry along the last axes of one length."""
    lengths = {a.shape[-1] for a in params.values() if a.ndim}
    for K in sorted(length for length in lengths if length > 1):
        for k in range(min(K, 2)):
            sign = np.where(np.arange(K) == k, -1.0, 1.0)
            yield {
                name: (a * sign).astype(a.dtype) if a.ndim and a.shape[-1] == K else a
                for name, a in params.items()
            }
