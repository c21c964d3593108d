"""Rearrangements of parameters under which a log posterior may be the same or nearly so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target
from sgmcmc.plan.mode import MANY
from sgmcmc.plan.objective import Objective


@dataclass(frozen=True)
class _Settings:
    max_rearrangements: int = 24
    max_swaps: int = 6  # pairs exchanged along an axis
    min_entries: int = (
        8  # of an axis: from here on arrangements are too many to try each
    )
    tested_pairs: int = 8  # exchanged to see whether all entries can be
    first_rows: int = 1000  # rows with which exchanges are tried first
    max_axes: int = 6  # of one length, up to which all their subsets are tried


_SETTINGS = _Settings()

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
        _arrangements(_params_at(space, u, dtype)), _SETTINGS.max_rearrangements
    ):
        position = _position_of(space, arrangement, dtype)
        if np.isfinite(position).all() and not np.allclose(position, u):
            positions.append(position)
    return positions


def alike(target: Target, data: Data, u: np.ndarray, seed: int) -> tuple[str, ...]:
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

    def over(rows: np.ndarray | None) -> tuple[str, ...]:
        restricted = objective.over(None if rows is None else [(rows, 1.0)])

        def value(u: np.ndarray) -> float:
            return restricted.value_and_gradient(u)[0]

        return exchangeable(target.space, position, objective.target.dtype, value, rng)

    n = _SETTINGS.first_rows
    # What does not hold for some rows does not hold for all.
    if data.size > 2 * n and not over(np.sort(rng.choice(data.size, n, replace=False))):
        return ()
    return over(None)


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
        if length < _SETTINGS.min_entries:
            continue
        pairs = [
            rng.choice(length, 2, replace=False) for _ in range(_SETTINGS.tested_pairs)
        ]
        for subset in _subsets(axes):
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


def _subsets(axes: list[tuple[str, int]]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Yield subsets of axes, the largest first; of very many only all of them."""
    smallest = 1 if len(axes) <= _SETTINGS.max_axes else len(axes)
    for size in range(len(axes), smallest - 1, -1):
        yield from itertools.combinations(axes, size)


def _arrangements(params: Params) -> Iterator[Params]:
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
    endings = sorted({tuple(e) for e in stems.values() if len(e) > 1}, key=len)
    for group in endings:
        for a, b in itertools.islice(
            itertools.combinations(group, 2), _SETTINGS.max_swaps
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
                itertools.combinations(range(K), 2), _SETTINGS.max_swaps
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


def _shape_pairs(params: Params) -> Iterator[Params]:
    pairs = (
        (a, b)
        for a, b in itertools.combinations(params, 2)
        if params[a].shape == params[b].shape
    )
    for a, b in itertools.islice(pairs, _SETTINGS.max_swaps):
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
