"""Latent fields: found in the prior, and whitened by prior and data.

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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.engine.scheduler import Progress
from sgmcmc.interrupts import pass_on
from sgmcmc.model.geometry import Geometry
from sgmcmc.model.target import LogPrior, Target
from sgmcmc.plan.joint_mode import JointMode, with_joint_coordinates
from sgmcmc.plan.objective import Objective, is_of_predictors
from sgmcmc.run.request import LaplaceApproximation, Request

SMALLEST_FIELD = 20  # entries of a field
_SLOPE = "slope/"  # prefix of the arrays of a parameter that w depends on


@dataclass(frozen=True)
class _FieldSettings:
    max_entries: int = 5000  # of a field: its matrices are dense
    max_other_coordinates: int = 50
    # Of a coordinate of θ, which shows a change of the precision.
    perturbation: float = 0.5
    # Prior SDs of single entries at which the prior is differentiated: at zero the third
    # derivative of ``z ** 2`` is NaN in TensorFlow.
    probe_sds: float = 1e-2
    tolerance: float = 1e-3  # relative difference of products that should be equal
    rounding: float = 1e-4  # difference of Q m, relative to products of a similar size
    min_scale: float = 1e-6  # of entries of D, which rounding may make negative


_FIELD_SETTINGS = _FieldSettings()


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
        return (
            tf.constant(self._log_volume, D.dtype) - tf.reduce_sum(tf.math.log(D)) / 2
        )

    @functools.cached_property
    def _log_volume(self) -> float:
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
        return tf.maximum(D, _FIELD_SETTINGS.min_scale), center

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
        and SMALLEST_FIELD <= sizes[name] <= _FIELD_SETTINGS.max_entries
        if space.layout.size - sizes[name] <= _FIELD_SETTINGS.max_other_coordinates
    ]
    candidates = []
    for name in names:
        try:
            candidates.append(_PriorProbe(target, name, u, seed).field())
        except Exception as error:
            # Of any kind: a function that has no second derivative
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
        if reached <= _FIELD_SETTINGS.tolerance * np.abs(half_product).max():
            return None  # entries are independent
        scale = self._scale(along, product)
        if scale is None:
            return None
        probe = along * _FIELD_SETTINGS.probe_sds * np.sqrt(size / curvature_along)
        signs = self._rng.choice([-1.0, 1.0], len(self._u))
        perturbed = self._u + _FIELD_SETTINGS.perturbation * signs
        before, after = (self._products(u, probe, probe) for u in (self._u, perturbed))
        length = max(float(np.linalg.norm(product)) for _, product in (before, after))
        change = np.linalg.norm(np.add(*before) - np.add(*after))
        mean_moves = bool(change > _FIELD_SETTINGS.rounding * length)
        return Field(self._name, scale, probe.reshape(self._shape), mean_moves)

    def _scale(self, along: np.ndarray, product: np.ndarray) -> int | None:
        """Return the coordinate that the precision depends on most, if on one line."""
        largest_change = _FIELD_SETTINGS.tolerance * float(np.linalg.norm(product))
        scale = None
        # The coordinates of the other parameters that the precision depends on.
        suspects: list[int] = []
        for name, entries in self._target.space.layout.slices.items():
            if name == self._name:
                continue
            signs = self._rng.choice([-1.0, 1.0], entries.stop - entries.start)
            perturbed = self._u.copy()
            perturbed[entries] += _FIELD_SETTINGS.perturbation * signs
            if _differ(self._products(perturbed, 0.1 * along, along)[1], product):
                suspects += range(entries.start, entries.stop)
        for coordinate in suspects:
            changes = []
            for step in (_FIELD_SETTINGS.perturbation, -_FIELD_SETTINGS.perturbation):
                perturbed = self._u.copy()
                perturbed[coordinate] += step
                products = self._products(perturbed, 0.1 * along, along)
                changes.append(products[1] - product)
            forward, backward = changes
            change = float(np.linalg.norm(forward))
            if not change > largest_change:  # or not a number
                continue
            largest_change, scale = change, None
            if np.isfinite(backward).all():
                # The one as long as the other, and on its side.
                side = np.sign(backward @ forward)
                length = np.linalg.norm(backward)
                mirrored = backward * (side * change / max(length, 1e-300))
                scale = None if _differ(forward, mirrored) else coordinate
        return scale

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
    return bool(np.linalg.norm(first - second) > _FIELD_SETTINGS.tolerance * size)


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


@dataclass(frozen=True)
class _SearchSettings:
    searches: int = 3  # for the mode, each in the coordinates that the last one gives
    # Log posterior per coordinate; a search with less is the last.
    small_gain: float = 0.05
    # Rows × coordinates up to which automatic Hessians are quick.
    quick_hessians: float = 1e8
    newton_steps: int = 12  # of the field given the other parameters
    halvings: int = 10  # of a step
    shortest_step: float = 0.01  # in posterior SDs of a coordinate
    # Largest share of a gradient's square that an approximation may leave.
    misfit: float = 0.5
    # Relative, of informations; least logarithm of a multiple.
    multiple_tolerance: float = 0.02
    batch: int = 64  # gradients of the prior that are computed together
    scale_shift: float = 0.5  # to another value of the scale, unconstrained


_SEARCH_SETTINGS = _SearchSettings()


def find_latent_field(request: Request) -> Field | None:
    """Return the latent field of a model without groups; ``None`` if it has none of use.

    Args:
        request: Request, read.
    """
    model = request.read
    target, data = model.target, model.data
    if request.groups is not None:
        return None
    start = model.starts[0].astype(np.float64)
    field = find_field(target, start, model.seed)
    if field is None:
        return None
    if data.size * target.size <= _SEARCH_SETTINGS.quick_hessians:
        return field
    return field if is_of_predictors(target, data, start) else None


def with_field_coordinates(request: Request, field: Field, verbose: bool) -> Request:
    """Return a request whose chains move a latent field in its coordinates.

    It is the same request if the information about the field is not positive, or the posterior is
    not near normal in these coordinates either.

    Args:
        request: Request, read.
        field: Field.
        verbose: Whether to show progress.
    """
    model = request.read
    with Progress(f"coordinates of {field.name}", 1, verbose) as progress:
        search = _FieldMode(model.target, model.data, field, model.seed)
        coordinates = search.coordinates(model.starts[0].astype(np.float64))
        if coordinates is not None:
            joint, laplace = coordinates
            request = replace(with_joint_coordinates(request, joint), laplace=laplace)
        progress.advance(1)
    return request


class _FieldMode(JointMode):
    """The search for the mode, and for the information about the field there.

    Args:
        target: Log posterior.
        data: Dataset.
        field: Field.
        seed: Seed of random directions.
    """

    def __init__(self, target: Target, data: Data, field: Field, seed: int) -> None:
        super().__init__(Objective(target, data), target.space, [field.name], seed)
        entries = target.space.layout.slices[field.name]
        self._field, self._entries = field, np.arange(entries.start, entries.stop)

    def coordinates(
        self, u: np.ndarray
    ) -> tuple[FieldCoordinates, LaplaceApproximation] | None:
        """Return coordinates, and the normal approximation in them; ``None`` if none suit.

        Args:
            u: Position to begin at, flat.
        """
        try:
            coordinates_and_mode = self.run(u)
            if coordinates_and_mode is None:
                return None
            joint, mode = coordinates_and_mode
            laplace = self.around(joint, mode)
        except np.linalg.LinAlgError:  # an information that is not positive
            return None
        return (
            (joint, laplace)
            if self.misfit(joint, laplace) < _SEARCH_SETTINGS.misfit
            else None
        )

    def run(self, u: np.ndarray) -> tuple[FieldCoordinates, np.ndarray] | None:
        """Return coordinates with the information at the mode, and the mode.

        Args:
            u: Position to begin at, flat.
        """
        scale = self.scale(u)
        for _ in range(_SEARCH_SETTINGS.searches):
            coordinates = self._at_conditional_mode(u)
            if coordinates is None:
                return None
            joint, u = coordinates
            u, gain = self.climb(u, joint, scale)
            if not np.isfinite(gain) or gain < _SEARCH_SETTINGS.small_gain * len(u):
                break
        return self._at_conditional_mode(u)

    def _at_conditional_mode(
        self, u: np.ndarray
    ) -> tuple[FieldCoordinates, np.ndarray] | None:
        """Return coordinates at the mode of the field given the other parameters, and the mode.

        Returns ``None`` if the information about the field is not positive there.
        """
        field, entries = self._field, self._entries
        shifted = u.copy()
        shifted[field.scale] += _SEARCH_SETTINGS.scale_shift
        precision, shifted_precision = self._precision(u), self._precision(shifted)
        u = self._climb_field(u, precision)
        information = -self._field_block(self.objective.likelihood_hessian(u))
        gradient = self.objective.likelihood_gradient(u)[entries]
        joint_axes = common_axes(information + precision, shifted_precision - precision)
        if joint_axes is None:
            return None
        V, lengths = joint_axes
        probe = field.probe.reshape(-1)
        log_prior = self.objective.target.log_prior
        assert log_prior is not None
        score = gradient + information @ u[entries]
        prior_gradient = np.zeros(len(entries))
        if not field.mean_moves:
            prior_gradient = (
                self.objective.prior_gradient(u)[entries] + precision @ u[entries]
            )
        information_shares = np.sum(V * (information @ V), 0)
        sds = 1.0 / np.sqrt(np.diag(information + precision))
        probe_precisions = np.array(
            [probe @ precision @ probe, probe @ shifted_precision @ probe]
        )
        joint = FieldCoordinates(
            field.name,
            log_prior,
            V,
            lengths,
            score,
            prior_gradient,
            information_shares,
            field.probe,
            probe_precisions,
            field.mean_moves,
            self._slopes(u, information, sds),
        )
        return joint, u

    def _slopes(
        self, u: np.ndarray, information: np.ndarray, sds: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return how the information of the data about the field depends on parameters of a number.

        Those count that scale all of it by the same factor, such as the SD of normal observations.

        Args:
            u: Position.
            information: Information of the data there.
            sds: Conditional SDs of the field's entries, of which differences are made.
        """
        slopes, layout = {}, self.space.layout
        probe = np.zeros((len(u), 1))
        probe[self._entries, 0] = self.rng.standard_normal(len(self._entries)) * sds
        product = information @ probe[self._entries, 0]
        values = self._values(u)
        for name, entries in layout.slices.items():
            if entries.stop - entries.start != 1 or name == self._field.name:
                continue
            shifted = u.copy()
            shifted[entries] += _SEARCH_SETTINGS.scale_shift
            shifted_product = -self.objective.times_hessians(shifted, probe)[
                self._entries, 0
            ]
            ratio = float(product @ shifted_product) / max(
                float(product @ product), 1e-300
            )
            tolerance = _SEARCH_SETTINGS.multiple_tolerance
            difference = np.linalg.norm(shifted_product - ratio * product)
            is_multiple = difference < tolerance * np.linalg.norm(shifted_product)
            if not (is_multiple and ratio > 0 and abs(np.log(ratio)) > tolerance):
                continue
            value, shifted_value = (
                float(np.reshape(p[name], ())) for p in (values, self._values(shifted))
            )
            positive = (
                not self.space.geometries[name].in_place
                and min(value, shifted_value) > 0
            )
            at, shifted_at = (
                np.log(v) if positive else v for v in (value, shifted_value)
            )
            slopes[name] = np.array([np.log(ratio) / (shifted_at - at), at, positive])
        return slopes

    def _values(self, u: np.ndarray) -> dict[str, np.ndarray]:
        return self.space.params(u, self.objective.target.dtype)

    def _precision(self, u: np.ndarray) -> np.ndarray:
        """Return the precision Q of the field's prior, from gradients of it, which are linear."""
        base = u.copy()
        base[self._entries] = 0.0
        gradient_at_zero = self.objective.prior_gradient(base)[self._entries]
        n = len(self._entries)
        precision = np.empty((n, n))
        for first in range(0, n, _SEARCH_SETTINGS.batch):
            points = np.tile(base, (_SEARCH_SETTINGS.batch, 1))
            rows = np.arange(first, min(first + _SEARCH_SETTINGS.batch, n))
            points[np.arange(len(rows)), self._entries[rows]] = 1.0
            slopes = self.objective.prior_gradients(points)[: len(rows), self._entries]
            precision[rows] = gradient_at_zero - slopes
        return (precision + precision.T) / 2

    def _field_block(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[np.ix_(self._entries, self._entries)]

    def _climb_field(self, u: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the end of Newton steps of the field alone.

        Args:
            u: Position.
            precision: Precision of its prior.
        """
        value, gradient = self.objective.value_and_gradient(u)
        for _ in range(_SEARCH_SETTINGS.newton_steps):
            information = precision - self._field_block(
                self.objective.likelihood_hessian(u)
            )
            step = _solved(information, gradient[self._entries])
            if step is None:
                return u
            length = np.sqrt(step @ gradient[self._entries] / len(step))
            for halving in range(_SEARCH_SETTINGS.halvings):
                candidate = u.copy()
                candidate[self._entries] += 0.5**halving * step
                candidate_value, candidate_gradient = self.objective.value_and_gradient(
                    candidate
                )
                if candidate_value > value:
                    break
            else:
                return u
            u, value, gradient = candidate, candidate_value, candidate_gradient
            if length < _SEARCH_SETTINGS.shortest_step:
                return u
        return u


def _solved(matrix: np.ndarray, right_side: np.ndarray) -> np.ndarray | None:
    """Return the solution of linear equations; ``None`` unless the matrix is positive."""
    try:
        return scipy.linalg.cho_solve(
            scipy.linalg.cho_factor(matrix, lower=True), right_side
        )
    except (np.linalg.LinAlgError, ValueError):  # not positive, or not finite
        return None
