"""Models with effects as coordinates, transformed by the information in the data about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.graphs.tracing import trace
from sgmcmc.groups.coordinates import EffectCoordinates, Known, is_normal
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.spec import Groups
from sgmcmc.run.anchored import Searching, find_held, with_held
from sgmcmc.run.request import Around, Request
from sgmcmc.target.geometry import Geometry, Preconditioner, Space, arrow_of_coupled
from sgmcmc.target.target import Target
from sgmcmc.tuning.lanczos import Directions, Product, unusual_directions
from sgmcmc.tuning.mode import MANY
from sgmcmc.tuning.objective import Objective

_POLISHING = 8
"""Newton steps at the end."""

_STEP = 0.5
"""Distance at which gradients are compared, in conditional SDs given the effects."""

_FARTHEST = 0.02
"""Largest distance at which gradients are compared."""

_CLOSE = 0.1
"""Distance from the mode, in posterior SDs, at which the last steps end."""

_PRODUCTS = 40
"""Products with the information about effects, from which directions are found."""

_DIRECTIONS = 30
"""Largest number of directions in which the effects are coupled."""

_SOLVED = 1e-3
"""Residual of linear equations, relative to the right side."""

_FAR = 0.3
"""Distance at which gradients are compared for that, in posterior SDs."""

_ROUNDS = 3
"""Searches for the mode, each in the coordinates that the last one gives."""

_STEPS = 25
"""Steps of a search at the most."""

_PROBES = 6
"""Random signs whose products with the Hessian tell the information about each effect."""

_NEAR = 0.05
"""Gain of a search, in units of the log posterior for each coordinate, at which it is the last."""


def uncentered(request: Request, seed: int, held: bool = True) -> Request:
    """Return a request whose chains move effects in suitable coordinates, if it has any to move.

    Effects with a normal density are moved in :class:`EffectCoordinates`, with the information that
    there is about each of them at the mode. Many coordinates, or those of several factors, which
    are coupled, have a normal approximation around it, too.

    Args:
        request: Request, read.
        seed: Seed of the signs.
        held: Whether nodes of groups may be held around the mode then.
    """
    structure, model = request.groups, request.read
    space = model.target.space
    if structure is None or space.joint is not None:
        return request
    start, globals_ = model.params[0], globals_of(request)
    own = {name: start[name] for name in globals_}
    factors = tuple(
        factor
        for factor in structure.coordinates
        if all(type(space.geometries[name]) is Geometry for name in factor.shapes)
        and is_normal(factor, own)
    )
    if not factors:
        return request
    search = Search(model.target, model.data, factors, globals_, seed)
    joint, u = search.run(model.starts[0].astype(np.float64))
    found = moved_in(request, joint)
    if len(factors) > 1 or model.target.size > MANY:
        found = replace(found, around=search.around(joint, u))
        found = _with_nodes(found, seed) if held else found
    if len(model.params) > 1:
        return found
    params = space.params(u, model.target.dtype)
    return replace(found, model=replace(found.read, params=[params]))


def _with_nodes(request: Request, seed: int) -> Request:
    """Return a request whose groups have nodes that are held, if that does."""
    marginal, model, around = request.log_lik, request.read, request.around
    assert around is not None and request.groups is not None
    if not _has_nodes(marginal):
        return request
    assert isinstance(marginal, Marginal)
    whitening = around.whitening
    held = find_held(marginal, model.target, model.data, whitening.origin, whitening.times, seed)
    return request if held is None else with_held(request, held)


def _has_nodes(log_lik: Any) -> bool:
    """Return whether effects are integrated out by a quadrature with nodes."""
    return isinstance(log_lik, Marginal) and log_lik.nodes > 1 and not log_lik.groups.normal


def globals_of(request: Request) -> tuple[str, ...]:
    """Return the names of the parameters that are no effects of groups."""
    structure = request.groups
    assert structure is not None
    effects = {name for factor in structure.coordinates for name in factor.shapes}
    effects.update(structure.names_of_large)
    return tuple(name for name in request.read.target.space.geometries if name not in effects)


def moved_in(request: Request, joint: EffectCoordinates) -> Request:
    """Return a request whose chains move effects in these coordinates."""
    model, target = request.read, request.read.target
    there = Target(target.log_lik, target.log_prior, target.space.joined_by(joint), target.dtype)
    # A Hessian of before is one in other coordinates.
    return replace(request, model=replace(model, target=there), near=None)


@dataclass(frozen=True)
class _Part:
    """Places of the effects of a factor in the position, (J, q)."""

    factor: Groups
    places: np.ndarray


class Search:
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
        self._centered = Searching(target, data) if searching else Objective(target, data)
        self._space, self._globals = target.space, globals_
        self._parts = [_Part(factor, _places(target.space, factor)) for factor in factors]
        self._rng = np.random.default_rng([seed, target.size])
        self._graphs: tuple[EffectCoordinates, Any, Any] | None = None
        taken = np.concatenate([part.places.reshape(-1) for part in self._parts])
        self._others = np.setdiff1d(np.arange(target.size), taken)

    def run(self, u: np.ndarray) -> tuple[EffectCoordinates, np.ndarray]:
        """Return coordinates with the information at the mode, and the mode with centered effects.

        Args:
            u: Position to begin at, flat, with centered effects.
        """
        widths = [np.full(part.places.shape, 0.5) for part in self._parts]
        scale = self._scale(u)
        for _ in range(_ROUNDS):
            joint = self._seen(u, widths)
            u, gain = self._climbed(u, joint, scale)
            widths = [
                1.0 / np.sqrt(1.0 + np.diagonal(known.information, axis1=1, axis2=2))
                for known in joint.known
            ]
            if gain < _NEAR * len(u):
                break
        return self._seen(u, widths), u

    def _scale(self, u: np.ndarray) -> np.ndarray:
        """Return the scales that a search is in: those of global parameters, one at a time."""
        scale = np.ones(len(u))
        for place in self._others:
            unit = np.zeros((len(u), 1))
            unit[place] = 0.1
            bend = -self._centered.times_hessians(u, unit)[place, 0] / 0.1
            scale[place] = 1.0 / np.sqrt(max(float(bend), 1.0))
        return scale

    def _seen(self, u: np.ndarray, widths: list[np.ndarray]) -> EffectCoordinates:
        """Return coordinates with the information at a position.

        With random signs s the products s_j H(s ⊗ e_k) have the blocks of the Hessian H as their
        means; nested groups have nothing else.
        """
        slope, known = self._centered.likelihood_gradient(u), []
        for part, width in zip(self._parts, widths, strict=True):
            levels, q = part.places.shape
            blocks = np.zeros((levels, q, q))
            for _ in range(_PROBES):
                signs = self._rng.choice([-1.0, 1.0], levels)[:, np.newaxis] * width
                for k in range(q):
                    vector = np.zeros((len(u), 1))
                    vector[part.places[:, k]] = signs[:, k : k + 1]
                    product = self._centered.times_hessians(u, vector)[:, 0][part.places]
                    blocks[:, :, k] -= product / signs[:, k : k + 1] / _PROBES
            information = _not_negative((blocks + np.swapaxes(blocks, 1, 2)) / 2)
            at = u[part.places]
            score = slope[part.places] + np.einsum("jkl,jl->jk", information, at)
            known.append(Known(part.factor, information, score))
        return EffectCoordinates(known, self._globals)

    def _climbed(
        self, u: np.ndarray, joint: EffectCoordinates, scale: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the end of steps in some coordinates, with centered effects, and the gain."""
        best = u, -np.inf

        def both(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            value, gradient, place = self.look(joint, scale * x)
            if value > best[1]:
                best = place, value
            return -value, -scale * gradient

        first = self._moved(joint, u) / scale
        before = -both(first)[0]
        scipy.optimize.minimize(
            both, first, jac=True, method="L-BFGS-B",
            options={"maxiter": _STEPS, "maxfun": 2 * _STEPS},
        )  # fmt: skip
        return best[0], best[1] - before

    def _moved(self, joint: EffectCoordinates, u: np.ndarray) -> np.ndarray:
        """Return the position in coordinates of a position with centered effects."""
        dtype = self._centered.target.dtype
        params = self._space.params(u, dtype)
        return self._space.joined_by(joint).start(params, dtype).astype(np.float64)

    def look(self, joint: EffectCoordinates, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return log posterior and gradient at a position, and the centered position."""
        dtype = self._centered.target.dtype
        position = tf.constant(x, dtype)
        there, back = self._graphs_of(joint, position)
        place, raised = there(position)
        u = place.numpy().astype(np.float64)
        value, slope = self._centered.value_and_gradient(u)
        value += float(raised)
        gradient = back(position, tf.constant(slope, dtype)).numpy().astype(np.float64)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return -np.inf, np.zeros_like(x), u
        return value, gradient, u

    def around(self, joint: EffectCoordinates, u: np.ndarray) -> Around:
        """Return the normal approximation in some coordinates, after the last steps to the mode.

        In them the information has the shape of an arrow, nearly: that about effects is the
        identity but for a few directions, such as those in which the effects of two crossed factors
        move against each other. Its products are differences of gradients.

        Args:
            joint: Coordinates.
            u: Position near the mode, with centered effects.
        """
        x = self._moved(joint, u)
        effects = np.setdiff1d(np.arange(len(x)), self._others)
        steps = np.minimum(_STEP * self._scale(u)[self._others], _FARTHEST)
        products = np.zeros((len(steps), len(x)))
        for row, (place, step) in enumerate(zip(self._others, steps, strict=True)):
            products[row] = self._product(joint, x, np.eye(1, len(x), place)[0], step)

        def among_effects(vector: np.ndarray) -> np.ndarray:
            move = np.zeros(len(x))
            move[effects] = vector
            step = _FAR / max(float(np.linalg.norm(vector)), 1e-30)
            return self._product(joint, x, move, step)[effects]

        found = unusual_directions(among_effects, len(effects), _PRODUCTS, _DIRECTIONS, self._rng)
        own, coupling = products[:, self._others], products[:, effects]
        solved = np.stack([_solved(among_effects, row, found) for row in coupling])
        whitening: Preconditioner = arrow_of_coupled(
            x, effects, found.vectors, found.values, coupling, solved, (own + own.T) / 2
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
        return Around(whitening.centered_at(x), self._others)

    def _product(
        self, joint: EffectCoordinates, x: np.ndarray, vector: np.ndarray, step: float
    ) -> np.ndarray:
        """Return the information times a vector, by a difference of gradients."""
        back, there = (self.look(joint, x + way * step * vector)[1] for way in (-1.0, 1.0))
        return (back - there) / (2 * step)

    def _graphs_of(self, joint: EffectCoordinates, position: tf.Tensor) -> tuple[Any, Any]:
        """Return graphs of the centered position, and of gradients with respect to this one."""
        if self._graphs is not None and self._graphs[0] is joint:
            return self._graphs[1:]

        def back(position: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(position)
                place, raised = self._centered_at(joint, position)
            weights = slope, tf.ones([], slope.dtype)
            return tf.convert_to_tensor(tape.gradient((place, raised), position, weights))

        graphs = trace(partial(self._centered_at, joint), position), trace(back, position, position)
        self._graphs = (joint, *graphs)
        return graphs

    def _centered_at(
        self, joint: EffectCoordinates, position: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the position with centered effects, and the log-determinant."""
        there = self._space.joined_by(joint)
        u = there.coordinates(position)
        own = {name: there.geometries[name].constrain(value) for name, value in u.items()}
        user = joint.user(own)
        effects = {name for part in self._parts for name in part.factor.shapes}
        parts = [user[name] if name in effects else u[name] for name in u]
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


def _places(space: Space, factor: Groups) -> np.ndarray:
    """Return the places of the effects of a factor in the position, (J, q)."""
    parts = []
    for name in factor.shapes:
        place = space.layout.slices[name]
        levels = space.layout.shapes[name][0]
        parts.append(np.arange(place.start, place.stop).reshape(levels, -1))
    return np.concatenate(parts, 1)


def _not_negative(blocks: np.ndarray) -> np.ndarray:
    """Return symmetric blocks without eigenvalues below zero, which are noise of the signs."""
    values, vectors = np.linalg.eigh(blocks)
    return (vectors * np.maximum(values, 0.0)[:, np.newaxis, :]) @ np.swapaxes(vectors, 1, 2)
