"""All parameters together: the flat position of a chain and what the user sees of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.model.geometry.base import Geometry
from sgmcmc.model.geometry.preconditioners import Preconditioner
from sgmcmc.model.layout import Layout, joined


class Joint(Protocol):
    """A change of variables of several parameters together.

    Attributes:
        coordinates: Description of the coordinates.
        changed: Names of the parameters that are changed.
    """

    coordinates: str

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the parameters that are changed."""

    def user(self, params: Tensors) -> Tensors:
        """Return the user's parameters."""

    def own(self, params: Tensors) -> Tensors:
        """Return the coordinates from which the user's parameters are computed."""

    def log_jacobian(self, params: Tensors) -> tf.Tensor:
        """Return the log-determinant of the map ``user``."""


class Space:
    """The space of all parameters, a geometry for each, and a preconditioner over all of them.

    The position of a chain is one flat vector. Undone the preconditioner, its parts are the
    coordinates u of the parameters.

    Args:
        shapes: Shape of each parameter, as the user sees it.
        geometries: Geometries of the parameters with constraints.
        preconditioner: Preconditioner; ``None`` for none.
        joint: Change of variables of several parameters together, between what geometries make of
            coordinates and what the user sees; ``None`` for none.

    Attributes:
        user_layout: Layout of the parameters as the user sees them.
        layout: Layout of their coordinates in the position.
        score_layout: Layout of the gradients with respect to them, in the result of ``score``.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        geometries: Mapping[str, Geometry] | None = None,
        preconditioner: Preconditioner | None = None,
        joint: Joint | None = None,
    ) -> None:
        by_name = geometries or {}
        self.geometries = {name: by_name.get(name, Geometry()) for name in shapes}
        self.preconditioner, self.joint = preconditioner, joint
        self.user_layout = Layout(shapes)
        self.layout = Layout(
            {
                name: self.geometries[name].coordinate_shape(shape)
                for name, shape in self.user_layout.shapes.items()
            }
        )

        self.score_layout = Layout(
            {
                name: self.geometries[name].score_shape(shape)
                for name, shape in self.user_layout.shapes.items()
            }
        )

    def preconditioned(self, preconditioner: Preconditioner | None) -> Space:
        """Return the same space with another preconditioner."""
        return Space(
            self.user_layout.shapes, self.geometries, preconditioner, self.joint
        )

    def joined_by(self, joint: Joint | None) -> Space:
        """Return the same space with another change of variables of parameters together."""
        return Space(
            self.user_layout.shapes, self.geometries, self.preconditioner, joint
        )

    @property
    def in_place(self) -> bool:
        """Whether the position holds the very numbers that the user sees."""
        changed = self.preconditioner is not None or self.joint is not None
        return not changed and all(g.in_place for g in self.geometries.values())

    def own_coordinates(self) -> dict[str, str]:
        """Return descriptions of the coordinates of parameters that have their own."""
        descriptions = {
            n: g.coordinates for n, g in self.geometries.items() if not g.affine
        }
        if self.joint is not None:
            descriptions |= dict.fromkeys(self.joint.changed, self.joint.coordinates)
        return descriptions

    def curved_names(self) -> tuple[str, ...]:
        """Return the parameters that live on manifolds."""
        return tuple(
            name for name, geometry in self.geometries.items() if geometry.curved
        )

    def dimensions(self) -> dict[str, int]:
        """Return the number of directions in which each parameter can move."""
        return {
            n: g.dimension(self.user_layout.shapes[n])
            for n, g in self.geometries.items()
        }

    def tangent(self, position: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
        """Return the part of a vector, flat, along which a position can move."""
        if not self.curved_names():
            return vector
        return _flat(
            self._by_geometry("tangent", *map(self.layout.split, (position, vector)))
        )

    def tangents(self, position: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """Return the tangent parts of several vectors, (k, d)."""
        if not self.curved_names():
            return vectors
        return vectorized_map(lambda vector: self.tangent(position, vector), vectors)

    def held(
        self, position: tf.Tensor, slope: tf.Tensor, stepsize: tf.Tensor
    ) -> tf.Tensor:
        """Return a slope, flat, without the part that is too large for the stepsize."""
        if all(type(g).held is Geometry.held for g in self.geometries.values()):
            return slope
        stepsizes = self.layout.split(tf.broadcast_to(stepsize, slope.shape))
        return _flat(
            self._by_geometry(
                "held", *map(self.layout.split, (position, slope)), stepsizes
            )
        )

    def flow(
        self, position: tf.Tensor, velocity: tf.Tensor, time: float
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return position and velocity after some time of motion that nothing pushes."""
        if not self.curved_names():
            return position + time * velocity, velocity
        positions, velocities = map(self.layout.split, (position, velocity))
        flows = {
            name: geometry.flow(positions[name], velocities[name], time)
            for name, geometry in self.geometries.items()
        }
        positions_after, velocities_after = (
            {name: pair[i] for name, pair in flows.items()} for i in (0, 1)
        )
        return _flat(positions_after), _flat(velocities_after)

    def retracted(self, position: tf.Tensor) -> tf.Tensor:
        """Return a position on all manifolds near one that is off them by a small step."""
        if not self.curved_names():
            return position
        return _flat(self._by_geometry("retracted", self.layout.split(position)))

    def scaled_names(self) -> tuple[str, ...]:
        """Return the parameters that have a scale in addition to their values."""
        return tuple(
            name for name, geometry in self.geometries.items() if geometry.keeps_scale
        )

    def coordinates(self, position: tf.Tensor) -> Tensors:
        """Return the coordinates u of each parameter at a position."""
        if self.preconditioner is not None:
            position = self.preconditioner.out_of(position)
        return self.layout.split(position)

    def constrain(self, position: tf.Tensor) -> Tensors:
        """Return the user's parameters at a position."""
        return self._user_params(
            self._by_geometry("constrain", self.coordinates(position))
        )

    def _user_params(self, params: Tensors) -> Tensors:
        return params if self.joint is None else self.joint.user(params)

    def params(self, position: np.ndarray, dtype: tf.DType) -> dict[str, np.ndarray]:
        """Return the user's parameters at a position, as NumPy."""
        # Some bijectors are bound to the dtype of the chain.
        params = self.constrain(tf.constant(position, dtype))
        return {name: value.numpy() for name, value in params.items()}

    def _by_geometry(self, method: str, *arguments: Tensors) -> Tensors:
        """Call a method of each parameter's geometry on its own parts."""
        return {
            name: getattr(geometry, method)(*(argument[name] for argument in arguments))
            for name, geometry in self.geometries.items()
        }

    def start(self, params: Mapping[str, np.ndarray], dtype: tf.DType) -> np.ndarray:
        """Return the position at which a chain starts that the user starts at ``params``."""
        values = self._coordinates_of(params, dtype)
        u = {}
        for name, value in values.items():
            geometry, array = self.geometries[name], np.asarray(value)
            u[name] = geometry.start(array, dtype)
            # Its neighbor's, if a value is rounded to the end of a space: tanh(9.5) is 1.
            for direction in (-np.inf, np.inf):
                bad = ~np.isfinite(u[name])
                if not bad.any():
                    break
                nearest = np.nextafter(array, array.dtype.type(direction))
                neighbor = geometry.start(nearest, dtype)
                u[name] = np.where(bad & np.isfinite(neighbor), neighbor, u[name])
        flat = self.layout.join(u, dtype.as_numpy_dtype)
        return self._into(flat, dtype)

    def of_draws(
        self, draws: Mapping[str, np.ndarray], dtype: tf.DType | None = None
    ) -> dict[str, np.ndarray]:
        """Return the coordinates of draws of the user's parameters, which have one leading axis."""
        arrays = {name: np.asarray(array) for name, array in draws.items()}
        if self.joint is not None:
            tensors = {
                name: tf.constant(array, dtype) for name, array in arrays.items()
            }
            coordinates_of = partial(vectorized_map, self.joint.own)
            coordinates = trace(coordinates_of, tensors)(tensors)
            arrays = {name: coordinates[name].numpy() for name in arrays}
        dtypes = {
            name: dtype or tf.as_dtype(array.dtype) for name, array in arrays.items()
        }
        return {
            name: self.geometries[name].start(a, dtypes[name])
            for name, a in arrays.items()
        }

    def _coordinates_of(
        self, params: Mapping[str, np.ndarray], dtype: tf.DType
    ) -> Mapping[str, np.ndarray]:
        """Return the values from which geometries start."""
        if self.joint is None:
            return params
        tensors = {name: tf.constant(value, dtype) for name, value in params.items()}
        return {name: value.numpy() for name, value in self.joint.own(tensors).items()}

    def found_at(self, params: Mapping[str, np.ndarray], dtype: tf.DType) -> np.ndarray:
        """Return the position of any values of the user's parameters."""
        values = self._coordinates_of(params, dtype)
        u = {
            name: self.geometries[name].found_at(value, dtype)
            for name, value in values.items()
        }
        return self._into(self.layout.join(u, dtype.as_numpy_dtype), dtype)

    def _into(self, flat: np.ndarray, dtype: tf.DType) -> np.ndarray:
        """Return the position of flat coordinates."""
        if self.preconditioner is None:
            return flat
        return self.preconditioner.into(flat).astype(dtype.as_numpy_dtype)

    def flat_user(self, position: tf.Tensor) -> tf.Tensor:
        """Return the user's parameters at a position, flat again."""
        return position if self.in_place else _flat(self.constrain(position))

    def differentiated(self, position: tf.Tensor) -> tuple[Tensors, Tensors]:
        """Return the coordinates at a position, and the points at which gradients are computed."""
        u = self.coordinates(position)
        return u, self._by_geometry("differentiated", u)

    def of_points(self, points: Tensors) -> Tensors:
        """Return the user's parameters of those points."""
        return self._user_params(self._by_geometry("of_point", points))

    def limits(self, points: Tensors) -> Tensors | None:
        """Return the points at which gradients are wanted too; ``None`` if there are none."""
        if not any(geometry.takes_limit for geometry in self.geometries.values()):
            return None
        return self._by_geometry("limit", points)

    def nearer(self) -> Space:
        """Return the same space with these points nearer to their limits."""
        geometries = {
            name: geometry.nearer() for name, geometry in self.geometries.items()
        }
        return Space(
            self.user_layout.shapes, geometries, self.preconditioner, self.joint
        )

    def slope(
        self,
        points: Tensors,
        gradients: Tensors,
        limits: Tensors | None = None,
        at_limits: Tensors | None = None,
        onto: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the slope for the dynamics, flat, given the gradients at those points.

        ``onto`` is for :func:`sgmcmc.model.layout.joined`.
        """
        if limits is None or at_limits is None:
            slopes = self._by_geometry("slope", points, gradients)
        else:
            slopes = self._by_geometry(
                "slope_with_limit", points, gradients, limits, at_limits
            )
        flat = joined(slopes.values(), onto)
        return flat if self.preconditioner is None else self.preconditioner.slope(flat)

    def score(self, position: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
        """Return the gradient of the log posterior with respect to all u, flat, of the slope.

        Its parts have the shapes of ``score_layout``.
        """
        if self.preconditioner is not None:
            slope = self.preconditioner.score(slope)
        if all(type(g).score is Geometry.score for g in self.geometries.values()):
            return slope
        return _flat(
            self._by_geometry(
                "score", self.coordinates(position), self.layout.split(slope)
            )
        )

    def unnormalized(self, position: tf.Tensor) -> tf.Tensor:
        """Return the parameters with their scale, flat; others as their coordinates are."""
        return _flat(self._by_geometry("unnormalized", self.coordinates(position)))

    def log_jacobian(self, u: Tensors) -> list[tf.Tensor]:
        """Return the terms that the target is raised by for the change of coordinates."""
        terms = _terms(g.log_jacobian(u[name]) for name, g in self.geometries.items())
        if self.joint is not None:
            terms.append(self.joint.log_jacobian(self._by_geometry("constrain", u)))
        return terms

    def log_prior(self, position: tf.Tensor) -> list[tf.Tensor]:
        """Return the log densities of the priors that geometries bring along."""
        u = self.coordinates(position)
        return _terms(g.log_prior(u[name]) for name, g in self.geometries.items())

    def log_prior_of(self, params: Tensors) -> list[tf.Tensor]:
        """Return the same of the user's parameters."""
        return _terms(
            g.log_prior_of(params[name]) for name, g in self.geometries.items()
        )


def _flat(vectors: Tensors) -> tf.Tensor:
    return joined(vectors.values())


def _terms(terms: Iterable[tf.Tensor | None]) -> list[tf.Tensor]:
    return [term for term in terms if term is not None]
