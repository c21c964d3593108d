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

_MANY = 3
"""Number of effects of a group from which on second derivatives are differences of gradients."""

_BESIDE = 1e-12
"""Effects at which the density is differentiated: at zero, the third derivative of ``z ** 2`` is
not a number in TensorFlow."""

_CLOSE = 1e-3
"""Largest relative difference of precisions at two effects for which a density counts as normal."""


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
        self.known, self.globals = tuple(known), tuple(globals_)

    @property
    def moved(self) -> tuple[str, ...]:
        """Names of the effects."""
        return tuple(name for known in self.known for name in known.groups.shapes)

    @classmethod
    def of_arrays(
        cls, factors: Sequence[Groups], arrays: Mapping[str, np.ndarray], globals_: Sequence[str]
    ) -> EffectCoordinates:
        """Return the coordinates of arrays that ``arrays`` gave."""
        known = [
            Known(each, arrays[f"{k}/information"], arrays[f"{k}/score"])
            for k, each in enumerate(factors)
        ]
        return cls(known, globals_)

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Return the numbers of each factor, by its place."""
        found = {}
        for k, known in enumerate(self.known):
            found[f"{prefix}{k}/information"] = known.information
            found[f"{prefix}{k}/score"] = known.score
        return found

    def user(self, params: Tensors) -> Tensors:
        """Return the parameters with effects w in place of v."""
        found = dict(params)
        for known in self.known:
            v = flat_effects(known.groups, params)
            mean, root = self._normal(known, params)
            if known.groups.size == 1:
                away = v / root
            else:
                solved = tf.linalg.triangular_solve(root, v[..., tf.newaxis], adjoint=True)
                away = solved[..., 0]
            found.update(known.groups.named(mean + away))
        return found

    def own(self, params: Tensors) -> Tensors:
        """Return the parameters with v in place of effects w."""
        found = dict(params)
        for known in self.known:
            mean, root = self._normal(known, params)
            away = flat_effects(known.groups, params) - mean
            if known.groups.size == 1:
                v = root * away
            else:
                v = tf.linalg.matvec(root, away, transpose_a=True)
            found.update(known.groups.named(v))
        return found

    def log_jacobian(self, params: Tensors) -> tf.Tensor:
        """Return log |det ∂w/∂v|, of parameters with effects v or w."""
        logs = []
        for known in self.known:
            root = self._normal(known, params)[1]
            diagonal = root if known.groups.size == 1 else tf.linalg.diag_part(root)
            logs.append(-tf.reduce_sum(tf.math.log(diagonal)))
        return tf.add_n(logs)

    def _normal(self, known: Known, params: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean, (J, q), and root of the precision of the effects given θ and the data.

        The root is (J, q, q), or (J, 1) for single numbers.
        """
        own = {name: params[name] for name in self.globals}
        pull, precision = density_at(known.groups, own, _BESIDE)
        information = tf.constant(known.information, pull.dtype)
        whole = precision + information
        wanted = pull + tf.constant(known.score, pull.dtype)
        if known.groups.size == 1:
            return wanted / whole[:, 0], tf.sqrt(whole[:, 0])
        root = tf.linalg.cholesky(whole)
        return tf.linalg.cholesky_solve(root, wanted[..., tf.newaxis])[..., 0], root


def flat_effects(groups: Groups, params: Tensors) -> tf.Tensor:
    """Return the effects of a factor, (J, q)."""
    parts = [params[name] for name in groups.shapes]
    return tf.concat([tf.reshape(part, [part.shape[0], -1]) for part in parts], 1)


def density_at(groups: Groups, params: Tensors, effect: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Λ m, (1, q), and Λ, (1, q, q), of the density of effects, seen at some effect.

    Of many effects Λ is the difference of gradients one unit apart: of a normal density that is
    exact, and its graph is much smaller than one of second derivatives, row by row.

    Args:
        groups: Factor.
        params: Global parameters θ.
        effect: Value of every effect.
    """
    q = groups.size
    at = tf.fill([1, q], tf.constant(effect, next(iter(params.values())).dtype))
    if q >= _MANY:
        points = tf.concat([at, at + tf.eye(q, dtype=at.dtype)], 0)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(points)
            value = tf.reduce_sum(groups.log_prior(groups.named(points), dict(params)))
        slopes = tape.gradient(value, points, unconnected_gradients="zero")
        slope, precision = slopes[:1], (slopes[:1] - slopes[1:])[tf.newaxis]
        return slope + tf.reduce_sum(precision * at, -1), precision
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        outer.watch(at)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(at)
            value = tf.reduce_sum(groups.log_prior(groups.named(at), dict(params)))
        slope = inner.gradient(value, at, unconnected_gradients="zero")
        parts = [slope[0, k] for k in range(q)]
    bends = [outer.gradient(part, at, unconnected_gradients="zero") for part in parts]
    precision = -tf.stack([bend[0] for bend in bends])[tf.newaxis]
    return slope + tf.reduce_sum(precision * at, -1), precision


def is_normal(groups: Groups, params: Mapping[str, np.ndarray]) -> bool:
    """Return whether the density of effects is normal, as far as two effects show.

    Args:
        groups: Factor.
        params: Global parameters.
    """
    given = {name: tf.constant(value) for name, value in params.items()}
    try:
        (_, one), (_, other) = (density_at(groups, given, effect) for effect in (_BESIDE, 0.7))
    except Exception as error:  # of any kind: a function that has no second derivative
        pass_on(error)
        return False
    one, other = np.asarray(one[0], np.float64), np.asarray(other[0], np.float64)
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return False
    alike = np.abs(one - other).max() <= _CLOSE * np.abs(one).max()
    return bool(alike and np.linalg.eigvalsh((one + one.T) / 2).min() > 0)
