"""Models with effects as coordinates, transformed by the information in the data about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import Data
from sgmcmc.groups.coordinates import EffectCoordinates, Known, is_normal
from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.spec import Groups
from sgmcmc.model.geometry import Geometry, Space
from sgmcmc.model.target import Target
from sgmcmc.plan.anchored import Searching, find_fixed_nodes, with_fixed_nodes
from sgmcmc.plan.joint_mode import JointMode, with_joint_coordinates
from sgmcmc.plan.mode import MANY
from sgmcmc.plan.objective import Objective
from sgmcmc.run.request import Request

_ROUNDS = 3  # searches for the mode, each in the coordinates that the last one gives
_PROBES = 6  # random signs whose products with the Hessian give the information about each effect
_SMALL_GAIN = 0.05  # log posterior per coordinate; a search with less is the last


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
    search = Search(model.target, model.data, factors, globals_, seed)
    joint, u = search.run(model.starts[0].astype(np.float64))
    transformed = with_joint_coordinates(request, joint)
    if len(factors) > 1 or model.target.size > MANY:
        transformed = replace(transformed, laplace=search.around(joint, u))
        transformed = _with_nodes(transformed, seed) if fix_nodes else transformed
    if len(model.params) > 1:
        return transformed
    params = space.params(u, model.target.dtype)
    return replace(transformed, model=replace(transformed.read, params=[params]))


def _with_nodes(request: Request, seed: int) -> Request:
    """Return a request with fixed quadrature nodes, if they suffice."""
    marginal, model, laplace = request.log_lik, request.read, request.laplace
    assert laplace is not None and request.groups is not None
    if not _has_nodes(marginal):
        return request
    assert isinstance(marginal, Marginal)
    whitening = laplace.whitening
    fixed_nodes = find_fixed_nodes(
        marginal, model.target, model.data, whitening.origin, whitening.times, seed
    )
    return request if fixed_nodes is None else with_fixed_nodes(request, fixed_nodes)


def _has_nodes(log_lik: Any) -> bool:
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


@dataclass(frozen=True)
class _FactorEntries:
    """Indices of the effects of a factor in the position, (J, q)."""

    factor: Groups
    indices: np.ndarray


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
        self._factor_entries = [
            _FactorEntries(factor, _effect_indices(target.space, factor))
            for factor in factors
        ]

    def run(self, u: np.ndarray) -> tuple[EffectCoordinates, np.ndarray]:
        """Return coordinates with the information at the mode, and the mode with centered effects.

        Args:
            u: Position to begin at, flat, with centered effects.
        """
        widths = [
            np.full(factor_entries.indices.shape, 0.5)
            for factor_entries in self._factor_entries
        ]
        scale = self.scale(u)
        for _ in range(_ROUNDS):
            joint = self._at_position(u, widths)
            u, gain = self.climb(u, joint, scale)
            widths = [
                1.0
                / np.sqrt(1.0 + np.diagonal(of_factor.information, axis1=1, axis2=2))
                for of_factor in joint.known
            ]
            if gain < _SMALL_GAIN * len(u):
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
        for factor_entries, width in zip(self._factor_entries, widths, strict=True):
            levels, q = factor_entries.indices.shape
            blocks = np.zeros((levels, q, q))
            for _ in range(_PROBES):
                signs = self.rng.choice([-1.0, 1.0], levels)[:, np.newaxis] * width
                for k in range(q):
                    vector = np.zeros((len(u), 1))
                    vector[factor_entries.indices[:, k]] = signs[:, k : k + 1]
                    product = self.objective.times_hessians(u, vector)[:, 0][
                        factor_entries.indices
                    ]
                    blocks[:, :, k] -= product / signs[:, k : k + 1] / _PROBES
            information = _without_negative_eigenvalues(
                (blocks + np.swapaxes(blocks, 1, 2)) / 2
            )
            effects = u[factor_entries.indices]
            score = gradient[factor_entries.indices] + np.einsum(
                "jkl,jl->jk", information, effects
            )
            information_by_factor.append(
                Known(factor_entries.factor, information, score)
            )
        return EffectCoordinates(information_by_factor, self._globals)


def _effect_indices(space: Space, factor: Groups) -> np.ndarray:
    indices = []
    for name in factor.shapes:
        entries = space.layout.slices[name]
        levels = space.layout.shapes[name][0]
        indices.append(np.arange(entries.start, entries.stop).reshape(levels, -1))
    return np.concatenate(indices, 1)


def _without_negative_eigenvalues(blocks: np.ndarray) -> np.ndarray:
    """Return symmetric blocks without eigenvalues below zero, which are noise of the signs."""
    values, vectors = np.linalg.eigh(blocks)
    return (vectors * np.maximum(values, 0.0)[:, np.newaxis, :]) @ np.swapaxes(
        vectors, 1, 2
    )
