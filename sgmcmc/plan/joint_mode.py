"""Joint mode of effects of groups, or a latent field, and the other parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.graphs.tracing import trace
from sgmcmc.groups.coordinates import EffectCoordinates, Known, is_normal
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.spec import Groups
from sgmcmc.model.geometry import (
    ArrowBlocks,
    Geometry,
    Preconditioner,
    Space,
    arrow_of_coupled,
)
from sgmcmc.model.geometry.space import Joint
from sgmcmc.model.target import Target
from sgmcmc.plan.fixed_nodes import (
    ModeSearchingObjective,
    find_fixed_nodes,
    with_fixed_nodes,
)
from sgmcmc.plan.lanczos import Directions, Product, unusual_directions
from sgmcmc.plan.mode import MANY
from sgmcmc.plan.objective import Objective
from sgmcmc.run.request import LaplaceApproximation, Request


@dataclass(frozen=True)
class _Settings:
    newton_steps: int = 8  # at the end
    # Of positions for a product, in conditional SDs of global parameters.
    difference: float = 0.5
    largest_difference: float = 0.02
    # Distance from the mode, in posterior SDs, at which the last steps end.
    at_mode: float = 0.1
    # With the information about joint coordinates, to find directions.
    products: int = 40
    directions: int = 30  # in which they are coupled, at most
    residual: float = 1e-3  # of linear equations, relative to the right side
    joint_difference: float = 0.3  # of positions for such a product, in posterior SDs
    draws: int = 4  # of a normal approximation at which it is judged
    search_steps: int = 25  # at most
    # Searches for the mode, each in the coordinates that the last one gives.
    rounds: int = 3
    # Random signs whose products with the Hessian give the information about each effect.
    probes: int = 6
    # Log posterior per coordinate; a search with less is the last.
    small_gain: float = 0.05


_SETTINGS = _Settings()


def with_joint_coordinates(request: Request, joint: Joint) -> Request:
    """Return a request whose chains move in these coordinates."""
    model, target = request.read, request.read.target
    space = target.space.joined_by(joint)
    joint_target = Target(target.log_lik, target.log_prior, space, target.dtype)
    # An earlier Hessian is one in other coordinates.
    return replace(request, model=replace(model, target=joint_target), previous=None)


class JointMode:
    """The log posterior in coordinates of several parameters, over the whole dataset.

    Args:
        objective: Log posterior in the user's parameters.
        space: Space of the parameters, without these coordinates.
        names: Names of the parameters that have them.
        seed: Seed of random signs and directions.
    """

    def __init__(
        self, objective: Objective, space: Space, names: Sequence[str], seed: int
    ) -> None:
        self.objective = objective
        self.space = space
        self.joint_names = frozenset(names)
        self.rng = np.random.default_rng([seed, space.layout.size])
        self._graphs: tuple[Joint, Any, Any] | None = None
        slices = [space.layout.slices[name] for name in names]
        entries = np.concatenate([np.arange(s.start, s.stop) for s in slices])
        self.global_indices = np.setdiff1d(np.arange(space.layout.size), entries)

    def scale(self, u: np.ndarray) -> np.ndarray:
        """Return the scales that a search is in: those of global parameters, one at a time."""
        scale = np.ones(len(u))
        for index in self.global_indices:
            unit = np.zeros((len(u), 1))
            unit[index] = 0.1
            curvature = -self.objective.times_hessians(u, unit)[index, 0] / 0.1
            scale[index] = 1.0 / np.sqrt(max(float(curvature), 1.0))
        return scale

    def climb(
        self, u: np.ndarray, joint: Joint, scale: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the end of steps in some coordinates, in the user's, and the gain."""
        best = u, -np.inf

        def negative_value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            value, gradient, position = self.look(joint, scale * x)
            if value > best[1]:
                best = position, value
            return -value, -scale * gradient

        start = self.into(joint, u) / scale
        before = -negative_value_and_gradient(start)[0]
        scipy.optimize.minimize(
            negative_value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": _SETTINGS.search_steps,
                "maxfun": 2 * _SETTINGS.search_steps,
            },
        )
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
        user_position, pullback = self._graphs_of(joint, position)
        user_x, log_jacobian = user_position(position)
        u = user_x.numpy().astype(np.float64)
        value, user_gradient = self.objective.value_and_gradient(u)
        value += float(log_jacobian)
        gradient = (
            pullback(position, tf.constant(user_gradient, dtype))
            .numpy()
            .astype(np.float64)
        )
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return -np.inf, np.zeros_like(x), u
        return value, gradient, u

    def around(self, joint: Joint, u: np.ndarray) -> LaplaceApproximation:
        """Return the normal approximation in some coordinates, after the last steps to the mode.

        In them the information is nearly an arrow matrix: that about joint coordinates is
        the identity but for a few directions, such as those in which the effects of two crossed
        factors move against each other. Its products are differences of gradients.

        Args:
            joint: Coordinates.
            u: Position near the mode, in the user's coordinates.
        """
        x = self.into(joint, u)
        joint_entries = np.setdiff1d(np.arange(len(x)), self.global_indices)
        conditional_sds = self.scale(u)[self.global_indices]
        steps = np.minimum(
            _SETTINGS.difference * conditional_sds, _SETTINGS.largest_difference
        )
        products = np.zeros((len(steps), len(x)))
        for row, (index, step) in enumerate(
            zip(self.global_indices, steps, strict=True)
        ):
            products[row] = self._product(joint, x, np.eye(1, len(x), index)[0], step)

        def among_joint(vector: np.ndarray) -> np.ndarray:
            direction = np.zeros(len(x))
            direction[joint_entries] = vector
            step = _SETTINGS.joint_difference / max(
                float(np.linalg.norm(vector)), 1e-30
            )
            return self._product(joint, x, direction, step)[joint_entries]

        directions = unusual_directions(
            among_joint,
            len(joint_entries),
            _SETTINGS.products,
            _SETTINGS.directions,
            self.rng,
        )
        global_products = products[:, self.global_indices]
        coupling = products[:, joint_entries]
        solved = np.stack([_solved(among_joint, row, directions) for row in coupling])
        information = ArrowBlocks(
            joint_entries[:, np.newaxis],
            np.ones((len(joint_entries), 1, 1)),
            coupling,
            (global_products + global_products.T) / 2,
        )
        whitening: Preconditioner = arrow_of_coupled(
            x, information, directions.vectors, directions.values, solved
        )
        value, gradient, _ = self.look(joint, x)
        for _ in range(_SETTINGS.newton_steps):
            if (
                np.sqrt((whitening.transposed_times(gradient) ** 2).mean())
                < _SETTINGS.at_mode
            ):
                break
            candidate = x + whitening.times(whitening.transposed_times(gradient))
            candidate_value, candidate_gradient, _ = self.look(joint, candidate)
            if not candidate_value > value:
                break
            x, value, gradient = candidate, candidate_value, candidate_gradient
        return LaplaceApproximation(whitening.centered_at(x), self.global_indices)

    def misfit(self, joint: Joint, laplace: LaplaceApproximation) -> float:
        """Return the part of whitened gradients, by their squares, that is not as of N(0, I)."""
        whitening, misfits = laplace.whitening, []
        for _ in range(_SETTINGS.draws):
            standard = self.rng.standard_normal(len(whitening.origin))
            _, gradient, _ = self.look(
                joint, whitening.origin + whitening.times(standard)
            )
            deviation = whitening.transposed_times(gradient) + standard
            misfits.append(float(deviation @ deviation) / float(standard @ standard))
        return float(np.mean(misfits))

    def _product(
        self, joint: Joint, x: np.ndarray, vector: np.ndarray, step: float
    ) -> np.ndarray:
        """Return the information times a vector, by a difference of gradients."""
        backward, forward = (
            self.look(joint, x + sign * step * vector)[1] for sign in (-1.0, 1.0)
        )
        return (backward - forward) / (2 * step)

    def _graphs_of(self, joint: Joint, position: tf.Tensor) -> tuple[Any, Any]:
        if self._graphs is not None and self._graphs[0] is joint:
            return self._graphs[1:]

        def pullback(position: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(position)
                outputs = self._user_position(joint, position)
            weights = slope, tf.ones([], slope.dtype)
            return tf.convert_to_tensor(tape.gradient(outputs, position, weights))

        user_position = trace(partial(self._user_position, joint), position)
        self._graphs = joint, user_position, trace(pullback, position, position)
        return self._graphs[1:]

    def _user_position(
        self, joint: Joint, position: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the position in the user's coordinates, and the log-determinant."""
        joint_space = self.space.joined_by(joint)
        u = joint_space.coordinates(position)
        constrained = {
            name: joint_space.geometries[name].constrain(value)
            for name, value in u.items()
        }
        user = joint.user(constrained)
        values = [user[name] if name in self.joint_names else u[name] for name in u]
        position = tf.concat([tf.reshape(value, [-1]) for value in values], 0)
        return position, joint.log_jacobian(constrained)


def _solved(
    product: Product, right_side: np.ndarray, directions: Directions
) -> np.ndarray:
    """Return the solution of linear equations by conjugate gradients.

    Args:
        product: Product of the matrix, which is near the identity, with a vector.
        right_side: Right side.
        directions: Directions in which the matrix is not near the identity.
    """
    shape = len(right_side), len(right_side)
    vectors, factors = directions.vectors, 1.0 / directions.values
    matrix = scipy.sparse.linalg.LinearOperator(shape, product)
    preconditioner = scipy.sparse.linalg.LinearOperator(
        shape,
        lambda vector: vector + vectors @ ((factors - 1.0) * (vectors.T @ vector)),
    )
    solution, _ = scipy.sparse.linalg.cg(
        matrix,
        right_side,
        rtol=_SETTINGS.residual,
        maxiter=_SETTINGS.products,
        M=preconditioner,
    )
    return solution if np.isfinite(solution).all() else right_side


def uncentered(request: Request, seed: int, fix_nodes: bool = True) -> Request:
    """Return a request whose chains move effects in suitable coordinates, if it has any to move.

    Effects with a normal density are moved in :class:`EffectCoordinates`, with the information that
    there is about each of them at the mode. Many coordinates, or those of several factors, which
    are coupled, have a normal approximation around it, too.

    Args:
        request: Request, read.
        seed: Seed of the signs.
        fix_nodes: Whether quadrature nodes may be fixed around the mode then.
    """
    structure, model = request.groups, request.read
    space = model.target.space
    if structure is None or space.joint is not None:
        return request
    start, globals_ = model.params[0], globals_of(request)
    globals_at_start = {name: start[name] for name in globals_}
    factors = tuple(
        factor
        for factor in structure.coordinates
        if all(type(space.geometries[name]) is Geometry for name in factor.shapes)
        and is_normal(factor, globals_at_start)
    )
    if not factors:
        return request
    search = EffectsMode(model.target, model.data, factors, globals_, seed)
    joint, u = search.run(model.starts[0].astype(np.float64))
    transformed = with_joint_coordinates(request, joint)
    if len(factors) > 1 or model.target.size > MANY:
        laplace = search.around(joint, u)
        transformed = replace(transformed, laplace=laplace)
        marginal, moved = transformed.log_lik, transformed.read
        if fix_nodes and _has_nodes(marginal):
            origin, times = laplace.whitening.origin, laplace.whitening.times
            fixed_nodes = find_fixed_nodes(
                marginal, moved.target, moved.data, origin, times, seed
            )
            if fixed_nodes is not None:
                transformed = with_fixed_nodes(transformed, fixed_nodes)
    if len(model.params) > 1:
        return transformed
    params = space.params(u, model.target.dtype)
    return replace(transformed, model=replace(transformed.read, params=[params]))


def _has_nodes(log_lik: Any) -> TypeGuard[Marginal]:
    return (
        isinstance(log_lik, Marginal)
        and log_lik.nodes > 1
        and not log_lik.groups.normal
    )


def globals_of(request: Request) -> tuple[str, ...]:
    """Return the names of the parameters that are no effects of groups."""
    structure = request.groups
    assert structure is not None
    effects = {name for factor in structure.coordinates for name in factor.shapes}
    effects.update(structure.names_of_large)
    return tuple(
        name for name in request.read.target.space.geometries if name not in effects
    )


class EffectsMode(JointMode):
    """The search for the mode, and for the information about effects there.

    Args:
        target: Log posterior, with centered effects.
        data: Dataset.
        factors: Factors whose effects are coordinates.
        globals_: Names of the global parameters.
        seed: Seed of the signs.
    """

    def __init__(
        self,
        target: Target,
        data: Data,
        factors: tuple[Groups, ...],
        globals_: tuple[str, ...],
        seed: int,
    ) -> None:
        searching = _has_nodes(target.log_lik)
        objective = (
            ModeSearchingObjective(target, data)
            if searching
            else Objective(target, data)
        )
        names = [name for factor in factors for name in factor.shapes]
        super().__init__(objective, target.space, names, seed)
        self._globals = globals_
        self._factors = factors
        # Of the effects of each factor in the position, (J, q).
        self._indices: list[np.ndarray] = []
        layout = target.space.layout
        for factor in factors:
            indices = []
            for name in factor.shapes:
                entries = layout.slices[name]
                levels = layout.shapes[name][0]
                every = np.arange(entries.start, entries.stop)
                indices.append(every.reshape(levels, -1))
            self._indices.append(np.concatenate(indices, 1))

    def run(self, u: np.ndarray) -> tuple[EffectCoordinates, np.ndarray]:
        """Return coordinates with the information at the mode, and the mode with centered effects.

        Args:
            u: Position to begin at, flat, with centered effects.
        """
        widths = [np.full(indices.shape, 0.5) for indices in self._indices]
        scale = self.scale(u)
        for _ in range(_SETTINGS.rounds):
            joint = self._at_position(u, widths)
            u, gain = self.climb(u, joint, scale)
            widths = [
                1.0
                / np.sqrt(1.0 + np.diagonal(of_factor.information, axis1=1, axis2=2))
                for of_factor in joint.known
            ]
            if gain < _SETTINGS.small_gain * len(u):
                break
        return self._at_position(u, widths), u

    def _at_position(
        self, u: np.ndarray, widths: list[np.ndarray]
    ) -> EffectCoordinates:
        """Return coordinates with the information at a position.

        With random signs s the products s_j H(s ⊗ e_k) have the blocks of the Hessian H as their
        means; nested groups have nothing else.
        """
        gradient, information_by_factor = self.objective.likelihood_gradient(u), []
        per_factor = zip(self._factors, self._indices, widths, strict=True)
        for factor, indices, width in per_factor:
            levels, q = indices.shape
            blocks = np.zeros((levels, q, q))
            for _ in range(_SETTINGS.probes):
                signs = self.rng.choice([-1.0, 1.0], levels)[:, np.newaxis] * width
                for k in range(q):
                    vector = np.zeros((len(u), 1))
                    vector[indices[:, k]] = signs[:, k : k + 1]
                    product = self.objective.times_hessians(u, vector)[:, 0][indices]
                    blocks[:, :, k] -= product / signs[:, k : k + 1] / _SETTINGS.probes
            # Eigenvalues below zero are noise of the signs.
            symmetric = (blocks + np.swapaxes(blocks, 1, 2)) / 2
            values, vectors = np.linalg.eigh(symmetric)
            scaled = vectors * np.maximum(values, 0.0)[:, np.newaxis, :]
            information = scaled @ np.swapaxes(vectors, 1, 2)
            products = np.einsum("jkl,jl->jk", information, u[indices])
            score = gradient[indices] + products
            information_by_factor.append(Known(factor, information, score))
        return EffectCoordinates(information_by_factor, self._globals)
