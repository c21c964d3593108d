"""The normal approximation of each group's effects: mode and information of their density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

Height = Callable[[tf.Tensor], tf.Tensor]
"""Function of the effects of all slots, (m, q), that is their log density, (m,)."""

_MOST_STEPS = 30
"""Newton steps to a group's mode at the most."""

_NEAR = 1e-5
"""Twice the gain in log density that the last Newton step promises, at which a mode is found."""

_FLOOR = 1e-5
"""The least curvature in a direction, as a part of the largest of its group."""

_FLOOR_OF_QUADRATIC = {tf.float32: _FLOOR, tf.float64: 1e-13}
"""The same if a height is known to be quadratic: what is less is rounding."""

_NARROWER = -4.0 / 3.0
"""Power of the relative rounding error from which on the curvature of the effects' own density, as
a multiple of the one that is held, leaves no digits to heights at the nodes that are held."""

_DIGITS = 16.0
"""Least distance of a node from a mode, in units of its rounding."""

_SMOOTH_STEPS = 2
"""Newton steps from a mode that make it a function of the parameters: after one its first
derivatives are right, after two the second ones too."""

_BESIDE = 1e-12
"""Number added to effects whose third derivatives are needed: at zero, that of ``z ** 2`` is NaN in
TensorFlow."""

_APART = 4.0
"""Distance from the mode, in SDs, of the effects that a quadratic function is computed from."""


class Normal(NamedTuple):
    """The normal approximation of each group's effects, given the global parameters.

    Attributes:
        mode: Mode of the density of the effects, (m, q).
        root: Lower triangle L of the information, L Lᵀ = −∇², row by row: L[i][j] is (m,).
    """

    mode: tf.Tensor
    root: list[list[tf.Tensor]]

    def spread(self, standard: tf.Tensor) -> tf.Tensor:
        """Return L⁻ᵀ x, which has the covariance of the approximation, (..., m, q)."""
        q = len(self.root)
        found: list[tf.Tensor] = [None] * q
        for i in reversed(range(q)):
            rest = sum((self.root[k][i] * found[k] for k in range(i + 1, q)), start=0.0)
            found[i] = (standard[..., i] - rest) / self.root[i][i]
        return tf.stack(found, -1)

    @property
    def log_root(self) -> tf.Tensor:
        """Σ log L_jj, (m,)."""
        return tf.add_n([tf.math.log(self.root[j][j]) for j in range(len(self.root))])

    def moved(self, change: tf.Tensor) -> Normal:
        """Return the approximation after a change of its numbers.

        Args:
            change: Changes of the mode, of the logarithms of L_jj, and of L_ij/L_jj below the
                diagonal, (m, :func:`numbers_of`).
        """
        q = len(self.root)
        diagonal = [self.root[j][j] * tf.exp(change[:, q + j]) for j in range(q)]
        root: list[list[tf.Tensor]] = [[tf.zeros_like(diagonal[0])] * q for _ in range(q)]
        below = 2 * q
        for i in range(q):
            root[i][i] = diagonal[i]
            for j in range(i):
                root[i][j] = (self.root[i][j] / self.root[j][j] + change[:, below]) * diagonal[j]
                below += 1
        return Normal(self.mode + change[:, :q], root)


def numbers_of(q: int) -> int:
    """Return the number of values that :meth:`Normal.moved` changes."""
    return 2 * q + q * (q - 1) // 2


def flat_numbers(modes: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Return the numbers that :meth:`Normal.moved` changes, of modes and roots, (..., numbers)."""
    q = modes.shape[-1]
    diagonal = np.stack([roots[..., j, j] for j in range(q)], -1)
    below = [roots[..., i, j] / roots[..., j, j] for i in range(q) for j in range(i)]
    return np.concatenate([modes, np.log(diagonal), *[part[..., np.newaxis] for part in below]], -1)


def find_normal(height: Height, start: tf.Tensor) -> Normal:
    """Return mode and information of the effects of every slot.

    Safeguarded Newton steps find them: they go uphill, since directions of no curvature or of a
    wrong sign count as curved; a group whose density falls uses a quarter of its step.

    Args:
        height: Log density of effects.
        start: Effects to begin at, (m, q).
    """

    def unfinished(number: tf.Tensor, state: Any) -> tf.Tensor:
        return tf.reduce_any(state[-1])

    def step(number: tf.Tensor, state: Any) -> Any:
        mode, best, move, length, root, _ = state
        there = mode + length[:, tf.newaxis] * move
        value, slope, curved = curvature(height, there)
        better = tf.math.is_finite(value) & (value >= best - 1e-6 * (1.0 + tf.abs(best)))
        newton, gain = newton_step(slope, curved)
        mode = tf.where(better[:, tf.newaxis], there, mode)
        move = tf.where(better[:, tf.newaxis], newton, move)
        length = tf.where(better, tf.ones_like(length), 0.25 * length)
        away = tf.where(better, gain > _NEAR, length > 1e-4)
        root = [
            [tf.where(better, now, before) for now, before in zip(a, b, strict=True)]
            for a, b in zip(curved, root, strict=True)
        ]
        return number + 1, (mode, tf.where(better, value, best), move, length, root, away)

    q = start.shape[-1]
    ones = tf.ones_like(start[:, 0])
    state = (
        start,
        -np.inf * ones,
        tf.zeros_like(start),
        ones,
        [[ones] * q for _ in range(q)],
        ones > 0.0,
    )
    _, (mode, _, move, length, root, _) = tf.while_loop(
        unfinished,
        step,
        (tf.constant(0), state),
        maximum_iterations=_MOST_STEPS,
        parallel_iterations=1,
    )
    mode = tf.stop_gradient(mode + length[:, tf.newaxis] * move)
    return Normal(mode, [[tf.stop_gradient(entry) for entry in row] for row in root])


def laplace(height: Height, normal: Normal) -> tf.Tensor:
    """Return Laplace's approximation of log ∫ exp(height), (m,), with its derivatives.

    Args:
        height: Log density of effects, which depends on the parameters.
        normal: Mode and information at the parameters' values.
    """
    mode, q = normal.mode, len(normal.root)
    for _ in range(_SMOOTH_STEPS):
        mode += _BESIDE
        _, slope, root = curvature(height, mode)
        mode += newton_step(slope, root)[0]
    value, _, root = curvature(height, mode + _BESIDE)
    return value - Normal(mode, root).log_root + 0.5 * q * np.log(2.0 * np.pi)


def one_step(height: Height, start: tf.Tensor) -> Normal:
    """Return mode and information of a height that is a quadratic function of the effects.

    One Newton step finds them. They stay in place in derivatives.

    Args:
        height: Log density of effects.
        start: Effects to begin at, (m, q).
    """
    _, slope, root = curvature(height, start, _FLOOR_OF_QUADRATIC[start.dtype])
    held = [[tf.stop_gradient(entry) for entry in row] for row in root]
    return Normal(tf.stop_gradient(start + newton_step(slope, root)[0]), held)


def closed_form(heights: Height, near: Normal) -> tf.Tensor:
    """Return log ∫ exp(height), (m,), of a height that is a quadratic function of the effects.

    It is computed from heights at a few effects around a mode, so that no digits are lost if
    effects are large, and no derivatives of third order are needed: those of ``r ** 2`` are NaN in
    TensorFlow at r = 0.

    Args:
        heights: Log density of several effects of each slot, (k, m), of (k, m, q), which depends on
            the parameters.
        near: Mode and information, nearly.
    """
    middle, tilt, root = _expanded(heights, near)
    gain, log_roots = newton_step(tilt, root)[1], near.log_root + Normal(near.mode, root).log_root
    return middle + 0.5 * gain - log_roots + 0.5 * len(root) * np.log(2.0 * np.pi)


def closer(heights: Height, held: Normal) -> Normal:
    """Return mode and information of a height that is quadratic, from those at other parameters.

    They stay in place in derivatives.

    Args:
        heights: Log density of several effects of each slot, as for :func:`closed_form`.
        held: Mode and information at other parameters.
    """
    _, tilt, root = _expanded(heights, held)
    mode, q = held.mode + held.spread(newton_step(tilt, root)[0]), len(root)
    nothing = tf.zeros_like(mode[:, 0])
    whole = [
        [sum((held.root[i][k] * root[k][j] for k in range(j, i + 1)), nothing) for j in range(q)]
        for i in range(q)
    ]
    return Normal(tf.stop_gradient(mode), [[tf.stop_gradient(x) for x in row] for row in whole])


def _expanded(heights: Height, near: Normal) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
    """Return height at a mode, gradient and root of the information in coordinates around it.

    Where the nodes are as near to the mode as rounding, their heights say nothing: the information
    is then the one that is known.
    """
    q, axes = len(near.root), _APART * np.eye(len(near.root))
    pairs = [(i, j) for i in range(q) for j in range(i)]
    points = np.stack([0.0 * axes[0], *axes, *-axes, *[axes[i] + axes[j] for i, j in pairs]])
    dtype = near.mode.dtype
    moves = near.spread(tf.constant(points[:, np.newaxis], dtype))
    found = heights(near.mode + moves)
    least = _DIGITS * np.finfo(dtype.as_numpy_dtype).eps * tf.abs(near.mode)
    lost = tf.reduce_any(tf.reduce_max(tf.abs(moves), 0) < least, -1)
    middle, above, below = found[0], found[1 : q + 1], found[q + 1 : 2 * q + 1]
    tilt = tf.transpose(above - below) / (2.0 * _APART)
    bends = [[(2.0 * middle - above[i] - below[i]) / _APART**2] * q for i in range(q)]
    for (i, j), both in zip(pairs, tf.unstack(found[2 * q + 1 :]), strict=True):
        bends[i][j] = bends[j][i] = (above[i] + above[j] - middle - both) / _APART**2
    nothing, one = tf.zeros_like(middle), tf.ones_like(middle)
    bends = [
        [tf.where(lost, one if i == j else nothing, bends[i][j]) for j in range(q)]
        for i in range(q)
    ]
    tilt = tf.where(lost[:, tf.newaxis], tf.zeros_like(tilt), tilt)
    return middle, tilt, _root(bends, _FLOOR_OF_QUADRATIC[dtype])


def narrowed(law: Height, start: tf.Tensor, held: Normal) -> Normal:
    """Return mode and information that are held, moved where the effects' own density is narrow.

    If that is far narrower than what is held, as at an SD of 1e-20, it says where the effects are,
    up to the information that is held, and heights far from there would have no digits.

    Args:
        law: Log density of effects, (m,), a quadratic function of them.
        start: Effects to begin at, (m, q).
        held: Mode and information at other parameters.
    """
    q, dtype = len(held.root), start.dtype
    known = [
        [sum(held.root[i][k] * held.root[j][k] for k in range(min(i, j) + 1)) for j in range(q)]
        for i in range(q)
    ]
    _, slope, bends = _bends(law, start)
    matrix = [[known[i][j] + bends[i][j] for j in range(q)] for i in range(q)]
    root = _root(matrix, _FLOOR_OF_QUADRATIC[dtype])
    # A curvature beyond what the dtype holds leaves no step of the right length.
    finite = tf.reduce_all(tf.math.is_finite(tf.stack(bends)), [0, 1])[:, tf.newaxis]

    def closer_to_law(mode: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        away = tf.unstack(mode - held.mode, axis=1)
        pulls = [sum(known[i][j] * away[j] for j in range(q)) for i in range(q)]
        step = newton_step(slope - tf.stack(pulls, 1), root)[0]
        return mode + tf.where(finite, step, tf.zeros_like(step))

    # The second step corrects the rounding of the first, which is many SDs of a density that is far
    # narrower than its distance.
    mode = closer_to_law(start, slope)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(mode)
        total = tf.reduce_sum(law(mode))
    mode = closer_to_law(mode, tape.gradient(total, mode, unconnected_gradients="zero"))
    ratio = tf.reduce_max(tf.stack([bends[j][j] / known[j][j] for j in range(q)]), 0)
    narrow = ratio > np.finfo(dtype.as_numpy_dtype).eps ** _NARROWER
    return Normal(
        tf.stop_gradient(tf.where(narrow[:, tf.newaxis], mode, held.mode)),
        [
            [tf.stop_gradient(tf.where(narrow, a, b)) for a, b in zip(new, old, strict=True)]
            for new, old in zip(root, held.root, strict=True)
        ],
    )


def curvature(
    height: Height, effects: tf.Tensor, floor: float = _FLOOR
) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
    """Return log density, gradient and root of the information at some effects."""
    value, slope, bends = _bends(height, effects)
    return value, slope, _root(bends, floor)


def _bends(
    height: Height, effects: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
    """Return log density, gradient and information at some effects."""
    q = effects.shape[-1]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        outer.watch(effects)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(effects)
            value = height(effects)
            total = tf.reduce_sum(value)
        slope = inner.gradient(total, effects, unconnected_gradients="zero")
        parts = [tf.reduce_sum(slope[:, j]) for j in range(q)]
    bends = [outer.gradient(part, effects, unconnected_gradients="zero") for part in parts]
    return value, slope, [[-bends[i][:, j] for j in range(q)] for i in range(q)]


def _root(matrix: list[list[tf.Tensor]], least: float) -> list[list[tf.Tensor]]:
    """Return the Cholesky root of small matrices, entry by entry, with pivots that are positive.

    A curvature that is more than the dtype holds is the largest that it holds.

    Args:
        matrix: Matrices.
        least: Least pivot, as a part of the largest entry of the diagonal.
    """
    q = len(matrix)
    largest = tf.reduce_max(tf.stack([tf.abs(matrix[j][j]) for j in range(q)]), 0)
    floor, most = least * largest + 1e-20, 0.25 * largest.dtype.max
    root: list[list[tf.Tensor]] = [[None] * q for _ in range(q)]
    for j in range(q):
        pivot = matrix[j][j] - sum((root[j][k] ** 2 for k in range(j)), start=0.0)
        root[j][j] = tf.sqrt(tf.minimum(tf.maximum(tf.abs(pivot), floor), most))
        for i in range(j + 1, q):
            known = sum((root[i][k] * root[j][k] for k in range(j)), start=0.0)
            root[i][j] = (0.5 * (matrix[i][j] + matrix[j][i]) - known) / root[j][j]
            root[j][i] = tf.zeros_like(pivot)
    return root


def newton_step(slope: tf.Tensor, root: list[list[tf.Tensor]]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Newton steps (L Lᵀ)⁻¹ g, and their decrements, gᵀ(L Lᵀ)⁻¹ g."""
    q = len(root)
    half: list[tf.Tensor] = []
    for i in range(q):
        known = sum((root[i][k] * half[k] for k in range(i)), start=0.0)
        half.append((slope[:, i] - known) / root[i][i])
    forward = tf.stack(half, -1)
    step = Normal(slope, root).spread(forward)
    return step, tf.reduce_sum(forward**2, -1)
