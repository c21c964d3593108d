"""The normal approximation of each group's effects: mode and information of their density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

Height = Callable[[tf.Tensor], tf.Tensor]
"""Function of the effects of all slots, (m, q), that is their log density, (m,)."""


@dataclass(frozen=True)
class _Settings:
    max_steps: int = 30  # Newton steps to a group's mode
    # A mode is found when the next Newton step promises half of this gain in log density.
    converged_gain: float = 1e-5
    floor: float = 1e-5  # of a curvature, relative to the largest of its group
    # Power of the relative rounding error. If the effects' own density is more curved than the
    # fixed information by more than this, heights at the fixed nodes have no digits left.
    narrow_power: float = -4.0 / 3.0
    min_digits: float = 16.0  # distance of a node from a mode, in units of its rounding
    # Newton steps from a mode that make it a function of the parameters: after one its first
    # derivatives are right, after two the second ones too.
    smooth_steps: int = 2
    # Added to effects whose third derivatives are needed: at zero, that of ``z ** 2`` is NaN in
    # TensorFlow.
    offset: float = 1e-12
    # From the mode, in SDs, of effects that give a quadratic function
    distance: float = 4.0


_SETTINGS = _Settings()

# Floor of curvatures if a height is known to be quadratic: what is less is rounding.
_FLOOR_OF_QUADRATIC = {tf.float32: _SETTINGS.floor, tf.float64: 1e-13}


class Normal(NamedTuple):
    """The normal approximation of each group's effects, given the global parameters.

    Attributes:
        mode: Mode of the density of the effects, (m, q).
        root: Lower triangle L of the information, L Lᵀ = −∇², row by row: L[i][j] is (m,).
    """

    mode: tf.Tensor
    root: list[list[tf.Tensor]]

    def from_standard(self, standard: tf.Tensor) -> tf.Tensor:
        """Return L⁻ᵀ x, which has the covariance of the approximation, (..., m, q)."""
        q = len(self.root)
        solved: list[tf.Tensor] = [None] * q
        for i in reversed(range(q)):
            below = sum(
                (self.root[k][i] * solved[k] for k in range(i + 1, q)), start=0.0
            )
            solved[i] = (standard[..., i] - below) / self.root[i][i]
        return tf.stack(solved, -1)

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
        root: list[list[tf.Tensor]] = [
            [tf.zeros_like(diagonal[0])] * q for _ in range(q)
        ]
        below = 2 * q
        for i in range(q):
            root[i][i] = diagonal[i]
            for j in range(i):
                root[i][j] = (
                    self.root[i][j] / self.root[j][j] + change[:, below]
                ) * diagonal[j]
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
    return np.concatenate(
        [modes, np.log(diagonal), *[entry[..., np.newaxis] for entry in below]], -1
    )


def find_normal(height: Height, start: tf.Tensor) -> Normal:
    """Return mode and information of the effects of every slot.

    Safeguarded Newton steps find them: they go uphill, since directions of no curvature or of a
    wrong sign count as curved; a group whose density falls uses a quarter of its step.

    Args:
        height: Log density of effects.
        start: Effects to begin at, (m, q).
    """

    def any_unfinished(number: tf.Tensor, state: Any) -> tf.Tensor:
        return tf.reduce_any(state[-1])

    def step(number: tf.Tensor, state: Any) -> Any:
        mode, best, direction, length, root, _ = state
        proposal = mode + length[:, tf.newaxis] * direction
        value, slope, curved = curvature(height, proposal)
        is_better = tf.math.is_finite(value) & (
            value >= best - 1e-6 * (1.0 + tf.abs(best))
        )
        newton, gain = newton_step(slope, curved)
        mode = tf.where(is_better[:, tf.newaxis], proposal, mode)
        direction = tf.where(is_better[:, tf.newaxis], newton, direction)
        length = tf.where(is_better, tf.ones_like(length), 0.25 * length)
        is_unfinished = tf.where(
            is_better, gain > _SETTINGS.converged_gain, length > 1e-4
        )
        root = [
            [tf.where(is_better, new, old) for new, old in zip(a, b, strict=True)]
            for a, b in zip(curved, root, strict=True)
        ]
        best = tf.where(is_better, value, best)
        return number + 1, (mode, best, direction, length, root, is_unfinished)

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
    _, (mode, _, direction, length, root, _) = tf.while_loop(
        any_unfinished,
        step,
        (tf.constant(0), state),
        maximum_iterations=_SETTINGS.max_steps,
        parallel_iterations=1,
    )
    mode = tf.stop_gradient(mode + length[:, tf.newaxis] * direction)
    return Normal(mode, [[tf.stop_gradient(entry) for entry in row] for row in root])


def laplace(height: Height, normal: Normal) -> tf.Tensor:
    """Return Laplace's approximation of log ∫ exp(height), (m,), with its derivatives.

    Args:
        height: Log density of effects, which depends on the parameters.
        normal: Mode and information at the parameters' values.
    """
    mode = normal.mode
    q = len(normal.root)
    for _ in range(_SETTINGS.smooth_steps):
        mode += _SETTINGS.offset
        _, slope, root = curvature(height, mode)
        mode += newton_step(slope, root)[0]
    value, _, root = curvature(height, mode + _SETTINGS.offset)
    return value - Normal(mode, root).log_root + 0.5 * q * np.log(2.0 * np.pi)


def fit_quadratic(height: Height, start: tf.Tensor) -> Normal:
    """Return mode and information of a height that is a quadratic function of the effects.

    One Newton step finds them. They are constants in derivatives.

    Args:
        height: Log density of effects.
        start: Effects to begin at, (m, q).
    """
    _, slope, root = curvature(height, start, _FLOOR_OF_QUADRATIC[start.dtype])
    fixed_root = [[tf.stop_gradient(entry) for entry in row] for row in root]
    return Normal(tf.stop_gradient(start + newton_step(slope, root)[0]), fixed_root)


def closed_form(heights: Height, normal: Normal) -> tf.Tensor:
    """Return log ∫ exp(height), (m,), of a height that is a quadratic function of the effects.

    It is computed from heights at a few effects around a mode, so that no digits are lost if
    effects are large, and no derivatives of third order are needed: those of ``r ** 2`` are NaN in
    TensorFlow at r = 0.

    Args:
        heights: Log density of several effects of each slot, (k, m), of (k, m, q), which depends on
            the parameters.
        normal: Mode and information, nearly.
    """
    height_at_mode, gradient, root = _expand_around(heights, normal)
    gain = newton_step(gradient, root)[1]
    log_roots = normal.log_root + Normal(normal.mode, root).log_root
    return (
        height_at_mode + 0.5 * gain - log_roots + 0.5 * len(root) * np.log(2.0 * np.pi)
    )


def refit_quadratic(heights: Height, normal: Normal) -> Normal:
    """Return mode and information of a height that is quadratic, from those at other parameters.

    They are constants in derivatives.

    Args:
        heights: Log density of several effects of each slot, as for :func:`closed_form`.
        normal: Mode and information at other parameters.
    """
    _, gradient, root = _expand_around(heights, normal)
    mode = normal.mode + normal.from_standard(newton_step(gradient, root)[0])
    q = len(root)
    zero = tf.zeros_like(mode[:, 0])
    product = [
        [
            sum((normal.root[i][k] * root[k][j] for k in range(j, i + 1)), zero)
            for j in range(q)
        ]
        for i in range(q)
    ]
    return Normal(
        tf.stop_gradient(mode), [[tf.stop_gradient(x) for x in row] for row in product]
    )


def _expand_around(
    heights: Height, normal: Normal
) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
    """Return height at a mode, gradient and root of the information in coordinates around it.

    Where the nodes are as near to the mode as rounding, their heights say nothing: the information
    is then the one that is known.
    """
    q = len(normal.root)
    axes = _SETTINGS.distance * np.eye(len(normal.root))
    pairs = [(i, j) for i in range(q) for j in range(i)]
    points = np.stack(
        [0.0 * axes[0], *axes, *-axes, *[axes[i] + axes[j] for i, j in pairs]]
    )
    dtype = normal.mode.dtype
    offsets = normal.from_standard(tf.constant(points[:, np.newaxis], dtype))
    values = heights(normal.mode + offsets)
    smallest = (
        _SETTINGS.min_digits * np.finfo(dtype.as_numpy_dtype).eps * tf.abs(normal.mode)
    )
    is_rounding = tf.reduce_any(tf.reduce_max(tf.abs(offsets), 0) < smallest, -1)
    height_at_mode = values[0]
    above = values[1 : q + 1]
    below = values[q + 1 : 2 * q + 1]
    gradient = tf.transpose(above - below) / (2.0 * _SETTINGS.distance)
    information = [
        [(2.0 * height_at_mode - above[i] - below[i]) / _SETTINGS.distance**2] * q
        for i in range(q)
    ]
    for (i, j), value_at_both in zip(
        pairs, tf.unstack(values[2 * q + 1 :]), strict=True
    ):
        difference = above[i] + above[j] - height_at_mode - value_at_both
        information[i][j] = information[j][i] = difference / _SETTINGS.distance**2
    zero = tf.zeros_like(height_at_mode)
    one = tf.ones_like(height_at_mode)
    information = [
        [
            tf.where(is_rounding, one if i == j else zero, information[i][j])
            for j in range(q)
        ]
        for i in range(q)
    ]
    gradient = tf.where(is_rounding[:, tf.newaxis], tf.zeros_like(gradient), gradient)
    return height_at_mode, gradient, _root(information, _FLOOR_OF_QUADRATIC[dtype])


def move_if_narrow(density: Height, start: tf.Tensor, fixed: Normal) -> Normal:
    """Return fixed mode and information, moved if the effects' own density is narrow.

    If that is far narrower than the fixed one, as at an SD of 1e-20, it says where the effects are,
    up to the fixed information, and heights far from there would have no digits.

    Args:
        density: Log density of effects, (m,), a quadratic function of them.
        start: Effects to begin at, (m, q).
        fixed: Mode and information at other parameters.
    """
    q = len(fixed.root)
    dtype = start.dtype
    fixed_information = [
        [
            sum(fixed.root[i][k] * fixed.root[j][k] for k in range(min(i, j) + 1))
            for j in range(q)
        ]
        for i in range(q)
    ]
    _, slope, curvatures = _information_at(density, start)
    matrix = [
        [fixed_information[i][j] + curvatures[i][j] for j in range(q)] for i in range(q)
    ]
    root = _root(matrix, _FLOOR_OF_QUADRATIC[dtype])
    # A curvature beyond the range of the dtype leaves no step of the right length.
    finite = tf.reduce_all(tf.math.is_finite(tf.stack(curvatures)), [0, 1])[
        :, tf.newaxis
    ]

    def step_to_density(mode: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        offset = tf.unstack(mode - fixed.mode, axis=1)
        gradients = [
            sum(fixed_information[i][j] * offset[j] for j in range(q)) for i in range(q)
        ]
        step = newton_step(slope - tf.stack(gradients, 1), root)[0]
        return mode + tf.where(finite, step, tf.zeros_like(step))

    # The second step corrects the rounding of the first, which is many SDs of a density that is far
    # narrower than its distance.
    mode = step_to_density(start, slope)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(mode)
        total = tf.reduce_sum(density(mode))
    mode = step_to_density(
        mode, tape.gradient(total, mode, unconnected_gradients="zero")
    )
    ratios = [curvatures[j][j] / fixed_information[j][j] for j in range(q)]
    ratio = tf.reduce_max(tf.stack(ratios), 0)
    narrow = ratio > np.finfo(dtype.as_numpy_dtype).eps ** _SETTINGS.narrow_power
    return Normal(
        tf.stop_gradient(tf.where(narrow[:, tf.newaxis], mode, fixed.mode)),
        [
            [
                tf.stop_gradient(tf.where(narrow, a, b))
                for a, b in zip(new, old, strict=True)
            ]
            for new, old in zip(root, fixed.root, strict=True)
        ],
    )


def curvature(
    height: Height, effects: tf.Tensor, floor: float = _SETTINGS.floor
) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
    """Return log density, gradient and root of the information at some effects."""
    value, slope, information = _information_at(height, effects)
    return value, slope, _root(information, floor)


def _information_at(
    height: Height, effects: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[list[tf.Tensor]]]:
    q = effects.shape[-1]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        outer.watch(effects)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(effects)
            value = height(effects)
            total = tf.reduce_sum(value)
        slope = inner.gradient(total, effects, unconnected_gradients="zero")
        slopes = [tf.reduce_sum(slope[:, j]) for j in range(q)]
    derivatives = [
        outer.gradient(entry, effects, unconnected_gradients="zero") for entry in slopes
    ]
    return value, slope, [[-derivatives[i][:, j] for j in range(q)] for i in range(q)]


def _root(matrix: list[list[tf.Tensor]], min_pivot: float) -> list[list[tf.Tensor]]:
    """Return the Cholesky root of small matrices, entry by entry, with pivots that are positive.

    A curvature beyond the range of the dtype becomes the largest that it allows.

    Args:
        matrix: Matrices.
        min_pivot: Least pivot, as a part of the largest entry of the diagonal.
    """
    q = len(matrix)
    largest = tf.reduce_max(tf.stack([tf.abs(matrix[j][j]) for j in range(q)]), 0)
    floor = min_pivot * largest + 1e-20
    largest_pivot = 0.25 * largest.dtype.max
    root: list[list[tf.Tensor]] = [[None] * q for _ in range(q)]
    for j in range(q):
        pivot = matrix[j][j] - sum((root[j][k] ** 2 for k in range(j)), start=0.0)
        root[j][j] = tf.sqrt(
            tf.minimum(tf.maximum(tf.abs(pivot), floor), largest_pivot)
        )
        for i in range(j + 1, q):
            eliminated = sum((root[i][k] * root[j][k] for k in range(j)), start=0.0)
            root[i][j] = (0.5 * (matrix[i][j] + matrix[j][i]) - eliminated) / root[j][j]
            root[j][i] = tf.zeros_like(pivot)
    return root


def newton_step(
    slope: tf.Tensor, root: list[list[tf.Tensor]]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Newton steps (L Lᵀ)⁻¹ g, and their decrements, gᵀ(L Lᵀ)⁻¹ g."""
    q = len(root)
    solved: list[tf.Tensor] = []
    for i in range(q):
        eliminated = sum((root[i][k] * solved[k] for k in range(i)), start=0.0)
        solved.append((slope[:, i] - eliminated) / root[i][i])
    forward = tf.stack(solved, -1)
    step = Normal(slope, root).from_standard(forward)
    return step, tf.reduce_sum(forward**2, -1)
