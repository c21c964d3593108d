"""Models with groups, made ready for chains around a mode: nodes that stay where they are there."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.data.numbers import Purpose, RunPhase, generator
from sgmcmc.groups.anchors import Anchor, Gauge
from sgmcmc.groups.marginal import Marginal
from sgmcmc.run.request import Request
from sgmcmc.target.target import Target
from sgmcmc.tuning.mode import Mode, find_mode
from sgmcmc.tuning.objective import Objective

_PART = 1500
"""Packs of groups that the mode is first looked for on."""

_FEW = 30
"""Groups up to which the posterior of the global parameters is too wide to try."""

_NODES = {1: (5, 7, 11, 17), 2: (5, 7, 11), 3: (4, 5, 7)}
"""Nodes in each direction that are tried, by the number of directions."""

_ERROR = 0.02
"""Error of the log posterior, its SD over the posterior, that nodes are let have. Means are off by
no more than so many posterior SDs."""

_PLACES, _WIDE, _LOOKED_AT = 8, 1.3, 500
"""Places at which it is measured, how much wider than the posterior they lie, and over how many
packs."""


class Anchored(NamedTuple):
    """A request whose nodes stay in place, and the mode where they are.

    Attributes:
        request: Request.
        mode: Mode of the posterior of the global parameters.
    """

    request: Request
    mode: Mode


def anchored(request: Request, start: np.ndarray, seed: int) -> Anchored | None:
    """Return a request whose groups have nodes that stay where they are at the mode.

    Returns ``None`` if there are no groups to integrate out, no mode was found, or the
    posterior is so wide that nodes in place would not do.

    Args:
        request: Request, read.
        start: Start of the search for the mode, flat and unconstrained.
        seed: Seed of the packs that the search begins with, and of the places of the measure.
    """
    marginal, structure, model = request.log_lik, request.groups, request.read
    if structure is None or not isinstance(marginal, Marginal) or structure.packs is None:
        return None
    assert structure.integrated is not None
    if len(structure.labels[structure.integrated.by]) < _FEW:
        return None
    target, data = model.target, model.data
    part = _Searching.part_of(target, data, seed)
    whole = _Searching(target, data) if data.size > 2 * _PART else part
    mode = find_mode(whole, start, None if part is whole else part, known=request.known)
    if not mode.converged:
        return None
    there = whole.held_at(mode.position)
    nodes = _enough_nodes(marginal, target, there, mode, seed)
    if nodes is None:
        return None
    chosen = marginal.with_nodes(nodes)
    found = replace(
        request,
        log_lik=chosen,
        groups=replace(structure, integrated=replace(structure.integrated, nodes=nodes)),
        model=replace(
            model,
            target=Target(chosen, target.log_prior, target.space, target.dtype),
            data=there,
        ),
    )
    return Anchored(found, mode)


class _Searching(Objective):
    """The log posterior of packs, which searches for the modes of the groups at each position.

    Derivatives are those of nodes that stay in place, so that the search is in no other graph.

    Args:
        target: Log posterior, of a :class:`Marginal`.
        data: Packs.
        weight: Number of packs that each of them represents.
    """

    def __init__(self, target: Target, data: Data, weight: float = 1.0) -> None:
        assert isinstance(target.log_lik, Marginal)
        self._anchor, self._space, self._kind = (
            Anchor(target.log_lik, data),
            target.space,
            target.dtype,
        )
        self._here: tuple[bytes, Data] | None = None
        self._stands_for = weight
        super().__init__(target, self.held_at(np.zeros(target.size)))

    @property
    def weight(self) -> float:
        """Number of packs that each of them represents."""
        return self._stands_for

    @staticmethod
    def part_of(target: Target, data: Data, seed: int) -> _Searching:
        """Return the log posterior over some of the packs, or all if they are not many."""
        if data.size <= 2 * _PART:
            return _Searching(target, data)
        rng = generator(seed, 0, RunPhase.MODE, Purpose.PART)
        rows = np.sort(rng.choice(data.size, _PART, replace=False))
        columns = {name: ArrayColumn(array.numpy()) for name, array in data.rows(rows).items()}
        return _Searching(target, Data(columns, _PART), data.size / _PART)

    def held_at(self, u: np.ndarray) -> Data:
        """Return packs that hold the modes at a position."""
        key = u.tobytes()
        if self._here is None or self._here[0] != key:
            self._here = key, self._anchor.at(self._space.params(u, self._kind))
        return self._here[1]

    def _sum(self, kind: str, u: np.ndarray) -> list[np.ndarray]:
        self._data = self.held_at(u)
        return [self._stands_for * part for part in super()._sum(kind, u)]


def _enough_nodes(
    marginal: Marginal, target: Target, data: Data, mode: Mode, seed: int
) -> int | None:
    """Return the fewest nodes that do around the mode; ``None`` if none of those tried do."""
    groups = marginal.groups
    rng = generator(seed, 2, RunPhase.MODE, Purpose.START)
    moves = rng.standard_normal((_PLACES, target.size))
    root = np.linalg.cholesky(mode.information.covariance)
    places = mode.position + _WIDE * moves @ root.T
    points = [target.space.params(place, target.dtype) for place in places]
    params = {name: np.stack([point[name] for point in points]) for name in points[0]}
    gauge = Gauge(marginal, data, params, _LOOKED_AT)
    tried = (marginal.nodes,) if groups.nodes_given else _NODES[groups.size]
    return next((nodes for nodes in tried if gauge.error(nodes) < _ERROR), None)
