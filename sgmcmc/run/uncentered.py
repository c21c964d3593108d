"""Models with effects as coordinates, transformed by the information in the data about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.groups.coordinates import EffectCoordinates, Known, is_normal
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.spec import Groups
from sgmcmc.run.anchored import Searching, find_held, with_held
from sgmcmc.run.joint_mode import JointMode, moved_in
from sgmcmc.run.request import Request
from sgmcmc.target.geometry import Geometry, Space
from sgmcmc.target.target import Target
from sgmcmc.tuning.mode import MANY
from sgmcmc.tuning.objective import Objective

_ROUNDS = 3
"""Searches for the mode, each in the coordinates that the last one gives."""

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


@dataclass(frozen=True)
class _Part:
    """Places of the effects of a factor in the position, (J, q)."""

    factor: Groups
    places: np.ndarray


class Search(JointMode):
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
        objective = Searching(target, data) if searching else Objective(target, data)
        names = [name for factor in factors for name in factor.shapes]
        super().__init__(objective, target.space, names, seed)
        self._globals = globals_
        self._parts = [_Part(factor, _places(target.space, factor)) for factor in factors]

    def run(self, u: np.ndarray) -> tuple[EffectCoordinates, np.ndarray]:
        """Return coordinates with the information at the mode, and the mode with centered effects.

        Args:
            u: Position to begin at, flat, with centered effects.
        """
        widths = [np.full(part.places.shape, 0.5) for part in self._parts]
        scale = self.scale(u)
        for _ in range(_ROUNDS):
            joint = self._seen(u, widths)
            u, gain = self.climbed(u, joint, scale)
            widths = [
                1.0 / np.sqrt(1.0 + np.diagonal(known.information, axis1=1, axis2=2))
                for known in joint.known
            ]
            if gain < _NEAR * len(u):
                break
        return self._seen(u, widths), u

    def _seen(self, u: np.ndarray, widths: list[np.ndarray]) -> EffectCoordinates:
        """Return coordinates with the information at a position.

        With random signs s the products s_j H(s ⊗ e_k) have the blocks of the Hessian H as their
        means; nested groups have nothing else.
        """
        slope, known = self.objective.likelihood_gradient(u), []
        for part, width in zip(self._parts, widths, strict=True):
            levels, q = part.places.shape
            blocks = np.zeros((levels, q, q))
            for _ in range(_PROBES):
                signs = self.rng.choice([-1.0, 1.0], levels)[:, np.newaxis] * width
                for k in range(q):
                    vector = np.zeros((len(u), 1))
                    vector[part.places[:, k]] = signs[:, k : k + 1]
                    product = self.objective.times_hessians(u, vector)[:, 0][part.places]
                    blocks[:, :, k] -= product / signs[:, k : k + 1] / _PROBES
            information = _not_negative((blocks + np.swapaxes(blocks, 1, 2)) / 2)
            at = u[part.places]
            score = slope[part.places] + np.einsum("jkl,jl->jk", information, at)
            known.append(Known(part.factor, information, score))
        return EffectCoordinates(known, self._globals)


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
