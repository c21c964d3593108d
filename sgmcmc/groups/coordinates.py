"""Coordinates of effects that are not integrated out, between centered and non-centered ones.

A factor j = 1 … J has effects w_j, whose density given the global parameters θ is normal, with mean
m(θ) and precision Λ(θ). If the data add the information I_j about w_j, with score s_j at an effect
ŵ_j and b_j = s_j + I_j ŵ_j, then w_j given θ has about the precision P_j(θ) = Λ(θ) + I_j. With
R_j R_jᵀ = P_j the chain moves

    v_j = R_jᵀ (w_j − P_j⁻¹ (Λ m + b_j)),    log |det ∂w/∂v| = −Σ_j log |det R_j|,

which is near N(0, 1) whatever θ is. Without information these are the non-centered coordinates,
with much of it the centered ones; and the log posterior has no pole as a scale goes to zero. I_j
and b_j are numbers: the change of variables is exact, whatever they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.groups.marginal import Tensors
from sgmcmc.groups.spec import Groups
from sgmcmc.interrupts import pass_on


@dataclass(frozen=True)
class _Settings:
    # Effects of a group from which on second derivatives are differences of gradients.
    many_effects: int = 3
    # Effects at which the density is differentiated: at zero, the third derivative of ``z ** 2``
    # is not a number in TensorFlow.
    offset: float = 1e-12
    # Other effects, at which a normal density has the same precision
    distant: float = 0.7
    # Largest relative difference of precisions at two effects of a density that is normal.
    tolerance: float = 1e-3


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Known:
    """Information of the data on the effects of a factor.

    Attributes:
        groups: Factor.
        information: I_j, (J, q, q).
        score: b_j, (J, q).
    """

    groups: Groups
    information: np.ndarray
    score: np.ndarray


class EffectCoordinates:
    """The change of variables from v to the effects of one or more factors.

    Args:
        known: Information and score of the data about each factor.
        globals_: Names of the global parameters, on which the densities of effects depend.
    """

    coordinates = "between centered and non-centered coordinates"

    def __init__(self, known: Sequence[Known], globals_: Sequence[str]) -> None:
        self.known = tuple(known)
        self.globals = tuple(globals_)

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the effects."""
        return tuple(name for factor in self.known for name in factor.groups.shapes)

    @classmethod
    def of_arrays(
        cls,
        factors: Sequence[Groups],
        arrays: Mapping[str, np.ndarray],
        globals_: Sequence[str],
    ) -> EffectCoordinates:
        """Return the coordinates of arrays that ``arrays`` gave."""
        information = [
            Known(factor, arrays[f"{k}/information"], arrays[f"{k}/score"])
            for k, factor in enumerate(factors)
        ]
        return cls(information, globals_)

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Return the numbers of each factor, by its position."""
        arrays = {}
        for k, factor in enumerate(self.known):
            arrays[f"{prefix}{k}/information"] = factor.information
            arrays[f"{prefix}{k}/score"] = factor.score
        return arrays

    def user(self, params: Tensors) -> Tensors:
        """Return the parameters with effects w instead of v."""
        params_out = dict(params)
        for factor in self.known:
            v = flat_effects(factor.groups, params)
            mean, root = self._normal(factor, params)
            if factor.groups.size == 1:
                deviation = v / root
            else:
                solved = tf.linalg.triangular_solve(
                    root, v[..., tf.newaxis], adjoint=True
                )
                deviation = solved[..., 0]
            params_out.update(factor.groups.named(mean + deviation))
        return params_out

    def own(self, params: Tensors) -> Tensors:
        """Return the parameters with v instead of effects w."""
        params_out = dict(params)
        for factor in self.known:
            mean, root = self._normal(factor, params)
            deviation = flat_effects(factor.groups, params) - mean
            if factor.groups.size == 1:
                v = root * deviation
            else:
                v = tf.linalg.matvec(root, deviation, transpose_a=True)
            params_out.update(factor.groups.named(v))
        return params_out

    def log_jacobian(self, params: Tensors) -> tf.Tensor:
        """Return log |det ∂w/∂v|, of parameters with effects v or w."""
        logs = []
        for factor in self.known:
            root = self._normal(factor, params)[1]
            diagonal = root if factor.groups.size == 1 else tf.linalg.diag_part(root)
            logs.append(-tf.reduce_sum(tf.math.log(diagonal)))
        return tf.add_n(logs)

    def _normal(self, factor: Known, params: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean, (J, q), and root of the precision of the effects given θ and the data.

        The root is (J, q, q), or (J, 1) for single numbers.
        """
        global_params = {name: params[name] for name in self.globals}
        prior_shift, precision = density_at(
            factor.groups, global_params, _SETTINGS.offset
        )
        information = tf.constant(factor.information, prior_shift.dtype)
        total_precision = precision + information
        total_shift = prior_shift + tf.constant(factor.score, prior_shift.dtype)
        if factor.groups.size == 1:
            return total_shift / total_precision[:, 0], tf.sqrt(total_precision[:, 0])
        root = tf.linalg.cholesky(total_precision)
        mean = tf.linalg.cholesky_solve(root, total_shift[..., tf.newaxis])
        return mean[..., 0], root


def flat_effects(groups: Groups, params: Tensors) -> tf.Tensor:
    """Return the effects of a factor, (J, q)."""
    effects = [params[name] for name in groups.shapes]
    return tf.concat(
        [tf.reshape(effect, [effect.shape[0], -1]) for effect in effects], 1
    )


def density_at(
    groups: Groups, params: Tensors, effect: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Λ m, (1, q), and Λ, (1, q, q), of the density of effects, seen at some effect.

    Of many effects Λ is the difference of gradients one unit apart: of a normal density that is
    exact, and its graph is much smaller than one of second derivatives, row by row.

    Args:
        groups: Factor.
        params: Global parameters θ.
        effect: Value of every effect.
    """
    q = groups.size
    point = tf.fill([1, q], tf.constant(effect, next(iter(params.values())).dtype))
    if q >= _SETTINGS.many_effects:
        points = tf.concat([point, point + tf.eye(q, dtype=point.dtype)], 0)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(points)
            value = tf.reduce_sum(groups.log_prior(groups.named(points), dict(params)))
        slopes = tape.gradient(value, points, unconnected_gradients="zero")
        slope = slopes[:1]
        precision = (slopes[:1] - slopes[1:])[tf.newaxis]
        return slope + tf.reduce_sum(precision * point, -1), precision
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        outer.watch(point)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(point)
            value = tf.reduce_sum(groups.log_prior(groups.named(point), dict(params)))
        slope = inner.gradient(value, point, unconnected_gradients="zero")
        slopes = [slope[0, k] for k in range(q)]
    derivatives = [
        outer.gradient(entry, point, unconnected_gradients="zero") for entry in slopes
    ]
    precision = -tf.stack([derivative[0] for derivative in derivatives])[tf.newaxis]
    return slope + tf.reduce_sum(precision * point, -1), precision


def is_normal(groups: Groups, params: Mapping[str, np.ndarray]) -> bool:
    """Return whether the density of effects is normal, as far as two effects show.

    Args:
        groups: Factor.
        params: Global parameters.
    """
    tensors = {name: tf.constant(value) for name, value in params.items()}
    try:
        (_, first), (_, second) = (
            density_at(groups, tensors, effect)
            for effect in (_SETTINGS.offset, _SETTINGS.distant)
        )
    except Exception as error:  # of any kind: a function that has no second derivative
        pass_on(error)
        return False
    first = np.asarray(first[0], np.float64)
    second = np.asarray(second[0], np.float64)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return False
    largest_difference = _SETTINGS.tolerance * np.abs(first).max()
    are_equal = np.abs(first - second).max() <= largest_difference
    return bool(are_equal and np.linalg.eigvalsh((first + first.T) / 2).min() > 0)
