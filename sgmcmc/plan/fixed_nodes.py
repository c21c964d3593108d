"""Quadrature nodes of groups that are fixed at a mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.groups.anchors import FixedNodes, ModeSearch, QuadratureError, precise_dtype
from sgmcmc.groups.marginal import Marginal
from sgmcmc.model.target import Target
from sgmcmc.plan.mode import Mode, find_mode
from sgmcmc.plan.modes import has_images
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.plan import part_size
from sgmcmc.run.request import Request

_PART = 1500  # packs of groups that the mode is first looked for on

# Numbers of quadrature nodes in each direction to try, by the number of directions.
_NODES = {1: (3, 5, 7, 11, 17), 2: (3, 4, 5, 7, 11), 3: (3, 4, 5, 7)}

# Largest error of the log posterior by quadrature, its SD over the posterior; means are off by at
# most as many posterior SDs.
_ERROR = 0.01


@dataclass(frozen=True)
class _Settings:
    # Groups; with fewer the posterior of the global parameters is too wide for fixed nodes.
    few_groups: int = 30
    few_coordinates: int = 50  # of the posterior, up to which nodes follow them
    positions: int = 8  # at which the error is measured
    width: float = 1.3  # width of these positions, in that of the posterior


_SETTINGS = _Settings()


class NodesAtMode(NamedTuple):
    """A request with fixed nodes, and the mode around which they are.

    Attributes:
        request: Request.
        mode: Mode of the posterior of the global parameters.
    """

    request: Request
    mode: Mode


def with_nodes_at_mode(
    request: Request, start: np.ndarray, seed: int
) -> NodesAtMode | None:
    """Return a request whose quadrature nodes are fixed around the mode.

    Returns ``None`` if there are no groups to integrate out, no mode was found, exchangeable
    parameters have another mode, or the posterior is too wide for fixed nodes. If effects are
    integrated out in closed form, any nodes do.

    Args:
        request: Request, read.
        start: Start of the search for the mode, flat and unconstrained.
        seed: Seed of the packs that the search starts with, and of the measured positions.
    """
    marginal, structure, model = request.log_lik, request.groups, request.read
    if structure is None or not isinstance(marginal, Marginal):
        return None
    assert structure.integrated is not None
    closed_form = bool(structure.integrated.normal)
    few_groups = len(structure.labels[structure.integrated.by]) < _SETTINGS.few_groups
    if not closed_form and (marginal.nodes == 1 or few_groups):
        return None
    target, data = model.target, model.data
    objective = ModeSearchingObjective(target, data)
    subset = objective.part(seed)
    rough = None if subset is objective else subset
    mode = find_mode(objective, start, rough, known=request.previous_hessian)
    if not mode.converged or has_images(subset, target, mode):
        return None
    if closed_form:
        center = target.space.params(mode.position, target.dtype)
        return NodesAtMode(with_fixed_nodes(request, FixedNodes(1, center)), mode)
    root, position = np.linalg.cholesky(mode.information.covariance), mode.position
    fixed_nodes = find_fixed_nodes(
        marginal, target, data, position, lambda z: z @ root.T, seed
    )
    return (
        None
        if fixed_nodes is None
        else NodesAtMode(with_fixed_nodes(request, fixed_nodes), mode)
    )


def with_more_nodes(request: Request) -> Request | None:
    """Return a request with the next larger number of fixed nodes.

    Returns ``None`` if nodes are not fixed, their number is the user's, or there is no larger one.
    """
    fixed_nodes, marginal, model = request.fixed_nodes, request.log_lik, request.read
    if fixed_nodes is None or not isinstance(marginal, Marginal):
        return None
    if not fixed_nodes.near_center_only or marginal.groups.nodes_given:
        return None
    nodes = next(
        (n for n in _NODES[marginal.groups.size] if n > fixed_nodes.nodes), None
    )
    if nodes is None:
        return None
    denser = replace(fixed_nodes, nodes=nodes)
    dtype = precise_dtype(marginal, model.data, fixed_nodes.center)
    denser = denser.corrected(marginal, model.data, dtype)
    return _with_anchored_data(request, denser, model.data)


def with_fixed_nodes(request: Request, fixed_nodes: FixedNodes) -> Request:
    """Return a request with fixed quadrature nodes.

    Args:
        request: Request, read.
        fixed_nodes: Positions of the nodes.
    """
    assert isinstance(request.log_lik, Marginal)
    data = fixed_nodes.packs(request.log_lik, request.read.data)
    return _with_anchored_data(request, fixed_nodes, data)


def _with_anchored_data(
    request: Request, fixed_nodes: FixedNodes, data: Data
) -> Request:
    """Return a request for packs with their nodes in columns."""
    structure, model, target = request.groups, request.read, request.read.target
    assert isinstance(request.log_lik, Marginal)
    assert structure is not None and structure.integrated is not None
    marginal = request.log_lik.with_nodes(fixed_nodes.nodes)
    data, log_prior = fixed_nodes.correct(data, target.log_prior)
    integrated = structure.integrated
    if fixed_nodes.near_center_only:
        integrated = replace(integrated, nodes=fixed_nodes.nodes)
    target = Target(marginal, log_prior, target.space, target.dtype)
    return replace(
        request,
        log_lik=marginal,
        log_prior=log_prior,
        groups=replace(structure, integrated=integrated),
        fixed_nodes=fixed_nodes,
        model=replace(model, target=target, data=data),
    )


def find_fixed_nodes(
    marginal: Marginal,
    target: Target,
    data: Data,
    mode: np.ndarray,
    spread: Callable[[np.ndarray], np.ndarray],
    seed: int,
) -> FixedNodes | None:
    """Return fixed nodes, the smallest sufficient number of them; ``None`` if none suffices.

    Nodes follow the parameters, unless these have so many coordinates that the numbers by which
    they follow would take more memory than the rows.

    Args:
        marginal: Log-likelihood of packs.
        target: Log posterior.
        data: Packs.
        mode: Mode.
        spread: Function that scales standard normal steps to the width of the posterior, (k, d).
        seed: Seed of the positions where the error is measured.
    """
    space, dtype = target.space, target.dtype
    center = space.params(mode, dtype)
    rng = generator(seed, 2, RunPhase.MODE, Purpose.START)
    positions = mode + _SETTINGS.width * spread(
        rng.standard_normal((_SETTINGS.positions, target.size))
    )
    by_position = [space.params(position, dtype) for position in positions]
    params = {
        name: np.stack([values[name] for values in by_position])
        for name in by_position[0]
    }
    axes = (
        spread(np.eye(target.size)) if target.size <= _SETTINGS.few_coordinates else ()
    )
    side_points = tuple(
        (space.params(mode + step, dtype), space.params(mode - step, dtype))
        for step in axes
    )
    fixed_nodes = FixedNodes(marginal.nodes, center, side_points)
    packs = fixed_nodes.packs(marginal, data)
    quadrature = QuadratureError(marginal, packs, params, center)
    groups = marginal.groups
    candidates = (marginal.nodes,) if groups.nodes_given else _NODES[groups.size]
    nodes = next(
        (nodes for nodes in candidates if quadrature.error(nodes) < _ERROR), None
    )
    if nodes is None:
        return None
    return replace(fixed_nodes, nodes=nodes).corrected(
        marginal, packs, quadrature.dtype
    )


class ModeSearchingObjective(Objective):
    """The log posterior of packs, which searches for the modes of the groups at each position.

    Derivatives are those with nodes fixed there, so that the search is in no other graph.

    Args:
        target: Log posterior, of a :class:`Marginal`.
        data: Packs.
        weight: Number of packs that each of them represents.
    """

    def __init__(self, target: Target, data: Data, weight: float = 1.0) -> None:
        assert isinstance(target.log_lik, Marginal)
        self._search, self._packs = ModeSearch(target.log_lik, data), data
        self._space = target.space
        self._packed_dtype = target.dtype
        self._packed_target = target
        self._anchored: tuple[bytes, Data] | None = None
        self._pack_weight = weight
        origin = target.space.params(np.zeros(target.size), target.dtype)
        first_row = data.slice(0, 1)
        first = Data({name: ArrayColumn(a.numpy()) for name, a in first_row.items()}, 1)
        anchored_data = ModeSearch(target.log_lik, first).at(origin)
        super().__init__(target, anchored_data, size=int(weight * data.size))

    @property
    def rough(self) -> Objective:
        """This one."""
        return self

    @property
    def weight(self) -> float:
        """Number of packs that each of them represents."""
        return self._pack_weight

    def part(self, seed: int) -> ModeSearchingObjective:
        """Return the same over some of the packs; this one if they are not many."""
        size, data = part_size(self, _PART), self._packs
        if data.size <= 2 * size:
            return self
        rng = generator(seed, 0, RunPhase.MODE, Purpose.PART)
        rows = np.sort(rng.choice(data.size, size, replace=False))
        columns = {
            name: ArrayColumn(array.numpy()) for name, array in data.rows(rows).items()
        }
        return ModeSearchingObjective(
            self._packed_target, Data(columns, size), data.size / size
        )

    def anchored_at(self, u: np.ndarray) -> Data:
        """Return packs that hold the modes at a position."""
        key = u.tobytes()
        if self._anchored is None or self._anchored[0] != key:
            self._anchored = (
                key,
                self._search.at(self._space.params(u, self._packed_dtype)),
            )
        return self._anchored[1]

    def _sum(self, name: str, u: np.ndarray, *more: np.ndarray) -> list[np.ndarray]:
        self._pass = self._pass.on(self.anchored_at(u))
        return [self._pack_weight * term for term in super()._sum(name, u, *more)]
