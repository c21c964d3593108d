"""The mode of a posterior in coordinates of several parameters together, and the shape there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.graphs.tracing import trace
from sgmcmc.run.request import Around, Request
from sgmcmc.target.geometry import Preconditioner, Space, arrow_of_coupled
from sgmcmc.target.geometry.space import Joint
from sgmcmc.target.target import Target
from sgmcmc.tuning.lanczos import Directions, Product, unusual_directions
from sgmcmc.tuning.objective import Objective

_POLISHING = 8
"""Newton steps at the end."""

_STEP = 0.5
"""Distance at which gradients are compared, in conditional SDs given the moved parameters."""

_FARTHEST = 0.02
"""Largest distance at which gradients are compared."""

_CLOSE = 0.1
"""Distance from the mode, in posterior SDs, at which the last steps end."""

_PRODUCTS = 40
"""Products with the information about moved parameters, from which directions are found."""

_DIRECTIONS = 30
"""Largest number of directions in which they are coupled."""

_SOLVED = 1e-3
"""Residual of linear equations, relative to the right side."""

_FAR = 0.3
"""Distance at which gradients are compared for that, in posterior SDs."""

_DRAWS = 4
"""Draws of a normal approximation at which it is judged."""

_STEPS = 25
"""Steps of a search at the most."""


def moved_in(request: Request, joint: Joint) -> Request:
    """Return a request whose chains move in these coordinates."""
    model, target = request.read, request.read.target
    there = Target(target.log_lik, target.log_prior, target.space.joined_by(joint), target.dtype)
    # A Hessian of before is one in other coordinates.
    return replace(request, model=replace(model, target=there), near=None)


class JointMode:
    """The log posterior in coordinates of several parameters, over the whole dataset.

    Args:
        objective: Log posterior in the user's parameters.
        space: Space of the parameters, without these coordinates.
        moved: Names of the parameters that have them.
        seed: Seed of random signs and directions.
    """

    def __init__(self, objective: Objective, space: Space, moved: Sequence[str], seed: int) -> None:
        self.objective, self.space, self.moved = objective, space, frozenset(moved)
        self.rng = np.random.default_rng([seed, space.layout.size])
        self._graphs: tuple[Joint, Any, Any] | None = None
        slices = [space.layout.slices[name] for name in moved]
        taken = np.concatenate([np.arange(each.start, each.stop) for each in slices])
        self.others = np.setdiff1d(np.arange(space.layout.size), taken)

    def scale(self, u: np.ndarray) -> np.ndarray:
        """Return the scales that a search is in: those of global parameters, one at a time."""
        scale = np.ones(len(u))
        for place in self.others:
            unit = np.zeros((len(u), 1))
            unit[place] = 0.1
            bend = -self.objective.times_hessians(u, unit)[place, 0] / 0.1
            scale[place] = 1.0 / np.sqrt(max(float(bend), 1.0))
        return scale

    def climbed(self, u: np.ndarray, joint: Joint, scale: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the end of steps in some coordinates, in the user's, and the gain."""
        best = u, -np.inf

        def both(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            value, gradient, place = self.look(joint, scale * x)
            if value > best[1]:
                best = place, value
            return -value, -scale * gradient

        first = self.into(joint, u) / scale
        before = -both(first)[0]
        scipy.optimize.minimize(
            both, first, jac=True, method="L-BFGS-B",
            options={"maxiter": _STEPS, "maxfun": 2 * _STEPS},
        )  # fmt: skip
        return best[0], best[1] - before

    def into(self, joint: Joint, u: np.ndarray) -> np.ndarray:
        """Return the position in these coordinates of a position in the user's."""
        dtype = self.objective.target.dtype
        params = self.space.params(u, dtype)
        return self.space.joined_by(joint).start(params, dtype).astype(np.float64)

    def look(self, joint: Joint, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return log posterior and gradient at a position, and the position in the user's."""
        dtype = self.objective.target.dtype
        position = tf.constant(x, dtype)
        there, back = self._graphs_of(joint, position)
        place, raised = there(position)
        u = place.numpy().astype(np.float64)
        value, slope = self.objective.value_and_gradient(u)
        value += float(raised)
        gradient = back(position, tf.constant(slope, dtype)).numpy().astype(np.float64)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return -np.inf, np.zeros_like(x), u
        return value, gradient, u

    def around(self, joint: Joint, u: np.ndarray) -> Around:
        """Return the normal approximation in some coordinates, after the last steps to the mode.

        In them the information has the shape of an arrow, nearly: that about moved parameters is
        the identity but for a few directions, such as those in which the effects of two crossed
        factors move against each other. Its products are differences of gradients.

        Args:
            joint: Coordinates.
            u: Position near the mode, in the user's coordinates.
        """
        x = self.into(joint, u)
        moved = np.setdiff1d(np.arange(len(x)), self.others)
        steps = np.minimum(_STEP * self.scale(u)[self.others], _FARTHEST)
        products = np.zeros((len(steps), len(x)))
        for row, (place, step) in enumerate(zip(self.others, steps, strict=True)):
            products[row] = self._product(joint, x, np.eye(1, len(x), place)[0], step)

        def among_moved(vector: np.ndarray) -> np.ndarray:
            move = np.zeros(len(x))
            move[moved] = vector
            step = _FAR / max(float(np.linalg.norm(vector)), 1e-30)
            return self._product(joint, x, move, step)[moved]

        found = unusual_directions(among_moved, len(moved), _PRODUCTS, _DIRECTIONS, self.rng)
        own, coupling = products[:, self.others], products[:, moved]
        solved = np.stack([_solved(among_moved, row, found) for row in coupling])
        whitening: Preconditioner = arrow_of_coupled(
            x, moved, found.vectors, found.values, coupling, solved, (own + own.T) / 2
        )
        value, gradient, _ = self.look(joint, x)
        for _ in range(_POLISHING):
            if np.sqrt((whitening.transposed_times(gradient) ** 2).mean()) < _CLOSE:
                break
            there = x + whitening.times(whitening.transposed_times(gradient))
            risen, slope, _ = self.look(joint, there)
            if not risen > value:
                break
            x, value, gradient = there, risen, slope
        return Around(whitening.centered_at(x), self.others)

    def misfit(self, joint: Joint, around: Around) -> float:
        """Return the part of whitened gradients, by their squares, that is not as of N(0, I)."""
        whitening, left = around.whitening, []
        for _ in range(_DRAWS):
            standard = self.rng.standard_normal(len(whitening.origin))
            _, gradient, _ = self.look(joint, whitening.origin + whitening.times(standard))
            gap = whitening.transposed_times(gradient) + standard
            left.append(float(gap @ gap) / float(standard @ standard))
        return float(np.mean(left))

    def _product(self, joint: Joint, x: np.ndarray, vector: np.ndarray, step: float) -> np.ndarray:
        """Return the information times a vector, by a difference of gradients."""
        back, there = (self.look(joint, x + way * step * vector)[1] for way in (-1.0, 1.0))
        return (back - there) / (2 * step)

    def _graphs_of(self, joint: Joint, position: tf.Tensor) -> tuple[Any, Any]:
        """Return graphs of the user's position, and of gradients with respect to this one."""
        if self._graphs is not None and self._graphs[0] is joint:
            return self._graphs[1:]

        def back(position: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(position)
                place, raised = self._users(joint, position)
            weights = slope, tf.ones([], slope.dtype)
            return tf.convert_to_tensor(tape.gradient((place, raised), position, weights))

        graphs = trace(partial(self._users, joint), position), trace(back, position, position)
        self._graphs = (joint, *graphs)
        return graphs

    def _users(self, joint: Joint, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the position in the user's coordinates, and the log-determinant."""
        there = self.space.joined_by(joint)
        u = there.coordinates(position)
        own = {name: there.geometries[name].constrain(value) for name, value in u.items()}
        user = joint.user(own)
        parts = [user[name] if name in self.moved else u[name] for name in u]
        return tf.concat([tf.reshape(part, [-1]) for part in parts], 0), joint.log_jacobian(own)


def _solved(product: Product, right: np.ndarray, directions: Directions) -> np.ndarray:
    """Return the solution of linear equations by conjugate gradients.

    Args:
        product: Product of the matrix, which is near the identity, with a vector.
        right: Right side.
        directions: Directions in which the matrix is not near the identity.
    """
    shape, axes, factors = (len(right), len(right)), directions.vectors, 1.0 / directions.values
    matrix = scipy.sparse.linalg.LinearOperator(shape, product)
    nearby = scipy.sparse.linalg.LinearOperator(
        shape, lambda vector: vector + axes @ ((factors - 1.0) * (axes.T @ vector))
    )
    found, _ = scipy.sparse.linalg.cg(matrix, right, rtol=_SOLVED, maxiter=_PRODUCTS, M=nearby)
    return found if np.isfinite(found).all() else right
