"""Latent fields: parameters whose many entries have a normal prior in which they depend on another.

A random walk, a spline with a penalty, a Markov random field or a Gaussian process with a known
kernel is a parameter x whose prior given the other parameters θ is normal, with a precision
Q(θ) = Q₁ + r(θ) B of one scale r, and Q(θ) m(θ) = g(θ). If the data add the information W about x,
with score s at x̂ and b = s + W x̂, and w(θ) times that at other parameters, such as an SD of the
observations, then x given θ has about the precision P(θ) = w W + Q(θ). With V such that
Vᵀ(W + Q₁)V = I and VᵀBV = diag(λ), and ω the diagonal of VᵀWV,

    x = V (D^(−1/2) z + D⁻¹ Vᵀ(g + w b)),    D = I + (w(θ) − 1) diag(ω) + r(θ) diag(λ),

makes z near N(0, I) whatever θ is. Numbers such as W, b and V are constant, and the change of
variables is exact, whatever they are. A chain in x itself would see of θ only what x says of it,
which of a thousand entries is nearly all; its scale hardly moves, and there is no mode.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.interrupts import pass_on
from sgmcmc.model.geometry import Geometry
from sgmcmc.model.target import LogPrior, Target

SMALLEST_FIELD = 20  # entries of a field
_SLOPE = "slope/"  # prefix of the arrays of a parameter that w depends on


@dataclass(frozen=True)
class _Settings:
    max_entries: int = 5000  # of a field: its matrices are dense
    max_other_coordinates: int = 50
    perturbation: float = (
        0.5  # of a coordinate of θ, which shows a change of the precision
    )
    # Prior SDs of single entries at which the prior is differentiated: at zero the third
    # derivative of ``z ** 2`` is NaN in TensorFlow.
    probe_sds: float = 1e-2
    tolerance: float = 1e-3  # relative difference of products that should be equal
    rounding: float = 1e-4  # difference of Q m, relative to products of a similar size
    min_scale: float = 1e-6  # of entries of D, which rounding may make negative


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Field:
    """A parameter with such a prior, as the model has it.

    Attributes:
        name: Name of the parameter.
        scale: Index of the coordinate that r changes with most.
        probe: Values x at which the prior is differentiated, in the shape of the parameter.
        mean_moves: Whether g depends on θ.
    """

    name: str
    scale: int
    probe: np.ndarray
    mean_moves: bool


class FieldCoordinates:
    """The change of variables from z to a field.

    Args:
        name: Name of the parameter.
        log_prior: Log-prior of all parameters.
        V: V, (n, n).
        lengths: λ, (n,).
        score: b, (n,).
        pull: g if that is a number, else zero, (n,).
        shares: ω, (n,).
        probe: Values x at which the prior is differentiated, in the shape of the parameter.
        ends: xᵀQx there, with Q₁ and with Q₁ + B.
        mean_moves: Whether g depends on θ.
        slopes: By name of a parameter of one number: ∂log w/∂φ, φ at the mode, and whether φ is the
            logarithm of the parameter; else it is the parameter.
    """

    coordinates = "coordinates of a latent field, near N(0, 1) whatever its scale"

    def __init__(
        self,
        name: str,
        log_prior: LogPrior,
        V: np.ndarray,
        lengths: np.ndarray,
        score: np.ndarray,
        pull: np.ndarray,
        shares: np.ndarray,
        probe: np.ndarray,
        ends: np.ndarray,
        mean_moves: bool,
        slopes: Mapping[str, np.ndarray],
    ) -> None:
        self.name = name
        self._log_prior = log_prior
        self._slopes = dict(slopes)
        self._arrays = {
            "V": V, "lengths": lengths, "score": score, "pull": pull, "shares": shares,
            "probe": probe, "ends": ends, "mean_moves": np.array(mean_moves),
        }  # fmt: skip
        self._inputs: dict[tuple[str, tf.DType], tf.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tensors stay in their process; a copy has its own.
        return {**self.__dict__, "_inputs": {}}

    @property
    def changed(self) -> tuple[str, ...]:
        """Name of the field."""
        return (self.name,)

    @classmethod
    def of_arrays(
        cls, name: str, log_prior: LogPrior, arrays: Mapping[str, np.ndarray]
    ) -> FieldCoordinates:
        """Return the coordinates of arrays that ``arrays`` gave."""
        constants, first = dict(arrays), len(_SLOPE)
        slopes = {
            key[first:]: constants.pop(key) for key in arrays if key.startswith(_SLOPE)
        }
        mean_moves = bool(constants.pop("mean_moves"))
        return cls(name, log_prior, **constants, mean_moves=mean_moves, slopes=slopes)

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Return all the numbers."""
        slopes = {_SLOPE + name: pair for name, pair in self._slopes.items()}
        return {
            prefix + name: array for name, array in {**self._arrays, **slopes}.items()
        }

    def user(self, params: Tensors) -> Tensors:
        """Return the parameters with the field x instead of z."""
        z, (D, center) = params[self.name], self._precision_and_center(params)
        rotated = tf.reshape(z, [-1]) / tf.sqrt(D) + center / D
        x = tf.linalg.matvec(self._input("V", rotated.dtype), rotated)
        return {**params, self.name: tf.reshape(x, z.shape)}

    def own(self, params: Tensors) -> Tensors:
        """Return the parameters with z instead of the field x."""
        x, (D, center) = params[self.name], self._precision_and_center(params)
        rotated = tf.linalg.matvec(self._input("inverse", x.dtype), tf.reshape(x, [-1]))
        z = tf.sqrt(D) * (rotated - center / D)
        return {**params, self.name: tf.reshape(z, x.shape)}

    def log_jacobian(self, params: Tensors) -> tf.Tensor:
        """Return log |det ∂x/∂z|."""
        D, _ = self._precision_and_center(params)
        return tf.constant(self._volume, D.dtype) - tf.reduce_sum(tf.math.log(D)) / 2

    @functools.cached_property
    def _volume(self) -> float:
        return float(np.linalg.slogdet(self._arrays["V"])[1])

    def _precision_and_center(self, params: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the diagonal of D, and Vᵀ(g + w b), given the other parameters."""
        dtype = params[self.name].dtype
        probe = tf.constant(self._arrays["probe"], dtype)
        slope, product = curvature(self._log_prior, self.name, params, probe, probe)
        first, second = self._arrays["ends"]
        r = (tf.reduce_sum(probe * product) - first) / (second - first)
        w = self._weight(params, dtype)
        D = (
            1.0
            + (w - 1.0) * self._input("shares", dtype)
            + r * self._input("lengths", dtype)
        )
        center = w * self._input("turned score", dtype) + self._input(
            "turned pull", dtype
        )
        if self._arrays["mean_moves"]:
            g = tf.reshape(slope + product, [-1])
            center += tf.linalg.matvec(self._input("V", dtype), g, transpose_a=True)
        return tf.maximum(D, _SETTINGS.min_scale), center

    def _weight(self, params: Tensors, dtype: tf.DType) -> tf.Tensor:
        log_w = tf.zeros([], dtype)
        for name, (slope, at, positive) in self._slopes.items():
            value = tf.reshape(params[name], [])
            log_w += slope * ((tf.math.log(value) if positive else value) - at)
        return tf.exp(log_w)

    def _input(self, name: str, dtype: tf.DType) -> tf.Tensor:
        """Return an array that graphs get as an input, not as a constant of the program."""
        if (name, dtype) not in self._inputs:
            array = self._array(name)
            with tf.init_scope():
                self._inputs[name, dtype] = tf.constant(array, dtype)
        return self._inputs[name, dtype]

    def _array(self, name: str) -> np.ndarray:
        if name == "inverse":
            return np.linalg.inv(self._arrays["V"])
        if name.startswith("turned "):
            return self._arrays["V"].T @ self._arrays[name.removeprefix("turned ")]
        return self._arrays[name]


def curvature(
    log_prior: LogPrior, name: str, params: Tensors, at: tf.Tensor, along: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return gradient and product −H v of a log-prior in one parameter, at a value of it."""
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch(at)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(at)
            value = tf.reduce_sum(log_prior({**params, name: at}))
        slope = inner.gradient(value, at, unconnected_gradients="zero")
        length = tf.reduce_sum(slope * tf.stop_gradient(along))
    return slope, -outer.gradient(length, at, unconnected_gradients="zero")


def find_field(target: Target, u: np.ndarray, seed: int) -> Field | None:
    """Return the field of a model; ``None`` if it has none, or more than one.

    Args:
        target: Log posterior.
        u: Position, flat and unconstrained.
        seed: Seed of the values at which the prior is differentiated.
    """
    space, log_prior = target.space, target.log_prior
    if log_prior is None or space.joint is not None or space.preconditioner is not None:
        return None
    sizes = space.layout.sizes
    names = [
        name
        for name, geometry in space.geometries.items()
        if type(geometry) is Geometry
        and SMALLEST_FIELD <= sizes[name] <= _SETTINGS.max_entries
        if space.layout.size - sizes[name] <= _SETTINGS.max_other_coordinates
    ]
    candidates = []
    for name in names:
        try:
            candidates.append(_PriorProbe(target, name, u, seed).field())
        except (
            Exception
        ) as error:  # of any kind: a function that has no second derivative
            pass_on(error)
    fields = [field for field in candidates if field is not None]
    return fields[0] if len(fields) == 1 else None


class _PriorProbe:
    """Differences of the prior of one parameter, from which its form is seen."""

    def __init__(self, target: Target, name: str, u: np.ndarray, seed: int) -> None:
        assert target.log_prior is not None
        self._target, self._log_prior = target, target.log_prior
        self._name, self._u = name, u
        self._slice = target.space.layout.slices[name]
        self._shape = target.space.layout.shapes[name]
        self._rng = np.random.default_rng([seed, target.size, 4])

    def field(self) -> Field | None:
        size = math.prod(self._shape)
        along = self._rng.standard_normal(size)
        slope, product = self._products(self._u, 0.1 * along, along)
        curvature_along = float(along @ product)
        if not (np.isfinite(product).all() and curvature_along > 0):
            return None
        # The prior is normal: twice as far away it has the same curvature.
        if _differ(self._products(self._u, -0.7 * along, along)[1], product):
            return None
        half_vector = np.where(self._rng.permutation(size) < size // 2, along, 0.0)
        half_product = self._products(self._u, 0.1 * along, half_vector)[1]
        reached = np.abs(half_product[half_vector == 0.0]).max()
        if reached <= _SETTINGS.tolerance * np.abs(half_product).max():
            return None  # entries are independent
        scale = self._scale(along, product)
        if scale is None:
            return None
        probe = along * _SETTINGS.probe_sds * np.sqrt(size / curvature_along)
        return Field(
            self._name, scale, probe.reshape(self._shape), self._mean_moves(probe)
        )

    def _scale(self, along: np.ndarray, product: np.ndarray) -> int | None:
        """Return the coordinate that the precision depends on most, if on one line."""
        largest_change = _SETTINGS.tolerance * float(np.linalg.norm(product))
        scale = None
        for coordinate in self._suspects(along, product):
            forward, backward = (
                self._products(self._perturbed(coordinate, step), 0.1 * along, along)[1]
                - product
                for step in (_SETTINGS.perturbation, -_SETTINGS.perturbation)
            )
            change = float(np.linalg.norm(forward))
            if not change > largest_change:  # or not a number
                continue
            on_one_line = np.isfinite(backward).all() and not _differ(
                forward, _scaled_like(backward, forward)
            )
            largest_change, scale = change, coordinate if on_one_line else None
        return scale

    def _suspects(self, along: np.ndarray, product: np.ndarray) -> list[int]:
        """Return the coordinates of the other parameters that the precision depends on."""
        suspects: list[int] = []
        for name, entries in self._target.space.layout.slices.items():
            if name == self._name:
                continue
            signs = self._rng.choice([-1.0, 1.0], entries.stop - entries.start)
            perturbed = self._u.copy()
            perturbed[entries] += _SETTINGS.perturbation * signs
            if _differ(self._products(perturbed, 0.1 * along, along)[1], product):
                suspects += range(entries.start, entries.stop)
        return suspects

    def _mean_moves(self, probe: np.ndarray) -> bool:
        """Return whether g depends on the other parameters."""
        signs = self._rng.choice([-1.0, 1.0], len(self._u))
        perturbed = self._u + _SETTINGS.perturbation * signs
        before, after = (self._products(u, probe, probe) for u in (self._u, perturbed))
        size = max(float(np.linalg.norm(product)) for _, product in (before, after))
        return bool(
            np.linalg.norm(np.add(*before) - np.add(*after)) > _SETTINGS.rounding * size
        )

    def _perturbed(self, coordinate: int, change: float) -> np.ndarray:
        position = self._u.copy()
        position[coordinate] += change
        return position

    def _products(
        self, u: np.ndarray, at: np.ndarray, along: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and product of the prior in the parameter, flat, in float64."""
        dtype = self._target.dtype
        params = self._target.space.params(u, dtype)
        constants = {name: tf.constant(value, dtype) for name, value in params.items()}
        value, vector = (
            tf.constant(a.reshape(self._shape), dtype) for a in (at, along)
        )
        slope, product = curvature(
            self._log_prior, self._name, constants, value, vector
        )
        flat = (
            np.asarray(tensor, np.float64).reshape(-1) for tensor in (slope, product)
        )
        return next(flat), next(flat)


def _differ(first: np.ndarray, second: np.ndarray) -> bool:
    size = max(float(np.linalg.norm(first)), float(np.linalg.norm(second)))
    return bool(np.linalg.norm(first - second) > _SETTINGS.tolerance * size)


def _scaled_like(vector: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the multiple of a vector that is as long as another, and on its side."""
    length = np.linalg.norm(vector)
    return vector * (
        np.sign(vector @ reference) * np.linalg.norm(reference) / max(length, 1e-300)
    )


def common_axes(
    first: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return V and λ with VᵀAV = I and VᵀBV = diag(λ); ``None`` unless A is positive.

    Args:
        first: A, (n, n).
        change: B, (n, n).
    """
    try:
        lengths, V = scipy.linalg.eigh(change, first)
    except (np.linalg.LinAlgError, ValueError):  # not positive, or not finite
        return None
    return V, lengths
