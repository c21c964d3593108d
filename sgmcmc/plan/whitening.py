"""Coordinates of chains whose moves are exact: whitened by curvature or by their draws."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.dynamics import HMC
from sgmcmc.groups.marginal import Marginal
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.plan.cost import seconds_of_gradient
from sgmcmc.plan.curvature import (
    IndependentBlocks,
    Products,
    arrow_at,
    dense_at,
    find_structure,
)
from sgmcmc.plan.lanczos import unusual_directions
from sgmcmc.plan.local import local_geometry
from sgmcmc.plan.mode import DENSE_UP_TO, MANY
from sgmcmc.plan.objective import Objective
from sgmcmc.plan.warm_up import WarmedUp
from sgmcmc.run.request import Model

# Largest number of coordinates for which the information is a dense matrix, if time allows.
DENSE = 8000


@dataclass(frozen=True)
class _Settings:
    # Of products with a Hessian at one position, if the user sets no limit.
    seconds: float = 300.0
    share_of_seconds: float = 0.15  # that they may take, if the user sets a limit
    # Of a row of the information, and of a product, in gradients.
    row_per_gradient: float = 0.3
    product_per_gradient: float = 6.0
    # Of whitened draws, or its inverse: the information is kept.
    kept_variance: float = 0.7
    # Of a sample whose curvature represents that of all rows.
    rows_per_coordinate: int = 100
    fewest_rows: int = 1000  # of such a sample
    curvatures: int = 8  # that a search for the mode computes at most
    halvings: int = 6  # of a step
    # Factor of the scale of coordinates that should hardly move.
    slow_scale: float = 1e-3
    at_mode: float = 0.5  # distance at which the search ends, in posterior SDs
    # Of the distance by a step, with which the curvature is kept.
    shortening: float = 0.3
    lanczos_steps: int = 120  # for the chains that are kept
    first_lanczos_steps: int = 40  # for the chains before
    # Relative difference of products, for one position to stand for all.
    same_hessian: float = 0.1
    # Half the relative width of the lengths of trajectories.
    trajectory_spread: float = 0.5
    # Mean, times the frequency of the flattest direction: the draws are worth most per gradient
    # then (squares correlate a little more for longer ones, means for shorter ones).
    trajectory_length: float = 1.25
    longest_trajectory: float = 6.0  # mean
    directions: int = 60  # that are kept at most
    lanczos_share: float = 0.25  # of the available seconds


_SETTINGS = _Settings()


def is_in_blocks(model: Model) -> bool:
    """Return whether most coordinates are in small blocks, as effects of groups are.

    Their mode is then no place to start from: it may be far from all draws.

    Args:
        model: Model, read.
    """
    if (
        not MANY < model.target.size <= DENSE_UP_TO
        or model.target.space.joint is not None
    ):
        return False
    structure = _block_structure(model, Objective(model.target, model.data))
    return structure is not None and 2 * structure.leaves.size > model.target.size


def _block_structure(model: Model, objective: Objective) -> IndependentBlocks | None:
    target = model.target
    start = target.space.start(model.params[0], target.dtype).astype(np.float64)
    step = 0.1 * np.random.default_rng([model.seed, target.size]).standard_normal(
        target.size
    )
    return find_structure(objective, target.space.layout, start + step, model.seed)


class Whitener:
    """Whitening by the information of a large posterior: dense, an arrow, or some directions.

    Args:
        model: Model, read.
        seconds: Seconds that there are for the whole run; infinite for no limit.

    Attributes:
        structure: Blocks of the information; ``None`` if there are none.
        dense: Whether the information is a dense matrix.
    """

    def __init__(self, model: Model, seconds: float) -> None:
        target, data = model.target, model.data
        self._model, self._objective = model, Objective(target, data)
        self._products = Products(self._objective, target, data)
        self._seconds = seconds
        d = target.size
        start = self._position(model.params[0])
        self.structure = _block_structure(model, self._objective)
        if self.structure is not None and not self._affordable(
            start, len(self.structure.core)
        ):
            self.structure = None
        if self.structure is None:
            self._products = self._subsampled_products()
        self.dense = self.structure is None and self._affordable(start, d)
        self._whitening: Preconditioner | None = None
        self._axes: Axes | None = None

    def _subsampled_products(self) -> Products:
        """Return products with the Hessian of a part of the rows, if there are very many.

        Chains are exact in any coordinates. Those of m rows of all have an information whose
        eigenvalues are those of all rows, times (1 ± √(d/m))² at the extremes.
        """
        target, data, d = self._model.target, self._model.data, self._model.target.size
        marginal = target.log_lik
        width = marginal.packs.rows.shape[1] if isinstance(marginal, Marginal) else 1
        size = max(
            _SETTINGS.fewest_rows, -(-_SETTINGS.rows_per_coordinate * d // width)
        )
        if data.sparse or data.size < 2 * size:
            return self._products
        rng = np.random.default_rng([self._model.seed, d, 1])
        rows = np.sort(rng.choice(data.size, size, replace=False))
        columns = {name: ArrayColumn(a.numpy()) for name, a in data.rows(rows).items()}
        weight = data.size / size
        objective = self._objective.over([(rows, weight)])
        return Products(objective, target, Data(columns, size), weight)

    def _position(self, params: Any) -> np.ndarray:
        target = self._model.target
        return target.space.start(params, target.dtype).astype(np.float64)

    def _affordable(self, u: np.ndarray, count: int) -> bool:
        if not count or count > DENSE:
            return not count
        limit = min(_SETTINGS.seconds, _SETTINGS.share_of_seconds * self._seconds)
        gradients = _SETTINGS.product_per_gradient
        if self.structure is None and self._objective.has_factors(u):
            gradients = _SETTINGS.row_per_gradient
        products = self._products
        seconds = seconds_of_gradient(products.target, products.data)
        return gradients * count * seconds <= limit

    def starts_at_mode(self, n_chains: int) -> list[dict[str, np.ndarray]] | None:
        """Return starts around the mode, if the information is dense and Newton steps lead there.

        Each step uses the curvature of the last position where a step fell short.
        """
        if not self.dense:
            return None
        u, value, gradient = self._evaluate(self._position(self._model.params[0]))
        for _ in range(_SETTINGS.curvatures):
            whitening = dense_at(self._products, [u])
            distance, previous = self._distance(whitening, gradient), np.inf
            while _SETTINGS.at_mode < distance < _SETTINGS.shortening * previous:
                step = whitening.times(whitening.transposed_times(gradient))
                previous = distance
                higher = self._higher_point(u, value, step)
                if higher is None:
                    break
                u, value, gradient = higher
                distance = self._distance(whitening, gradient)
            if distance <= _SETTINGS.at_mode:
                self._whitening = whitening.centered_at(u)
                return self._spread(n_chains)
        return None

    def _evaluate(self, u: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        return (u, *self._objective.value_and_gradient(u))

    def _distance(self, whitening: Preconditioner, gradient: np.ndarray) -> float:
        return float(np.sqrt((whitening.transposed_times(gradient) ** 2).mean()))

    def _higher_point(
        self, u: np.ndarray, value: float, step: np.ndarray
    ) -> tuple[np.ndarray, float, np.ndarray] | None:
        for number in range(_SETTINGS.halvings):
            candidate = self._evaluate(u + 0.5**number * step)
            if np.isfinite(candidate[1]) and candidate[1] > value:
                return candidate
        return None

    def _spread(self, n_chains: int) -> list[dict[str, np.ndarray]]:
        assert self._whitening is not None
        target = self._model.target
        rng = np.random.default_rng([self._model.seed, 2])
        steps = self._whitening.times(rng.standard_normal((n_chains, target.size)))
        return [
            target.space.params(self._whitening.origin + step, target.dtype)
            for step in steps
        ]

    def slowed(self, scales: Preconditioner | None) -> Preconditioner | None:
        """Return scales with which chains hardly move parameters with few coordinates.

        Effects and the scale of all of them would rise together, far from the posterior, if the
        effects do not fit the data at the start.

        Args:
            scales: Scales of all coordinates.
        """
        if self.structure is None or scales is None or scales.dense:
            return scales
        factors = np.ones(len(scales.origin))
        factors[self.scaled] = _SETTINGS.slow_scale
        return scales.scaled(factors)

    def at(self, warmed_up: WarmedUp, seconds: float, last: bool) -> Preconditioner:
        """Return the whitening by the information at the end of a warm-up.

        Args:
            warmed_up: Result of the warm-up.
            seconds: Seconds that are left.
            last: Whether these are the coordinates of the chains that are kept.
        """
        narrowest = _SETTINGS.kept_variance
        is_white = narrowest < warmed_up.width < 1 / narrowest
        if self.dense and self._whitening is not None and is_white:
            assert warmed_up.preconditioner is not None
            return warmed_up.preconditioner
        target, seed = self._model.target, self._model.seed + warmed_up.iterations
        positions = [self._position(params) for params in warmed_up.positions]
        if self.structure is None and not self.dense:
            scales = local_geometry(target, self._model.data, positions, seed).whitening
            steps = _SETTINGS.lanczos_steps if last else _SETTINGS.first_lanczos_steps
            self._axes = find_axes(
                self._objective, scales, positions, seed, steps, seconds
            )
            return self._axes.preconditioner
        if self.structure is None:
            whitening = dense_at(self._products, [warmed_up.recent_draws.mean(0)])
        else:
            whitening = arrow_at(
                self._products, self.structure, list(warmed_up.recent_draws), seed
            )
        if warmed_up.frequency > 0 and warmed_up.preconditioner is not None:
            self._whitening = whitening.centered_at(warmed_up.preconditioner.origin)
        else:
            gradient = np.mean([self._evaluate(u)[2] for u in positions], 0)
            step = whitening.times(whitening.transposed_times(gradient))
            self._whitening = whitening.centered_at(np.mean(positions, 0) + step)
        return self._whitening

    @property
    def scaled(self) -> np.ndarray | None:
        """Indices of coordinates whose scale is estimated better by draws than by the curvature."""
        return None if self.structure is None else self.structure.few

    @property
    def whitens(self) -> bool:
        """Whether the whole information is known, not only some directions."""
        return self.dense or self.structure is not None

    def suited(self, dynamics: HMC) -> HMC:
        """Return HMC with trajectories that suit the directions that are not whitened, if any."""
        return dynamics if self._axes is None else self._axes.suited(dynamics)

    @property
    def whitening(self) -> Preconditioner | None:
        """The last whitening by an arrow or a dense matrix."""
        return self._whitening

    def facts(self) -> dict[str, Any]:
        """Return facts for the report."""
        if self._axes is not None:
            lengths = self._axes.preconditioner.lengths
            return {
                "directions of unusual curvature": 0
                if lengths is None
                else len(lengths),
                "smallest curvature left, scaled coordinates": self._axes.flattest,
                "largest curvature left, scaled coordinates": self._axes.stiffest,
            }
        assert self._whitening is not None
        if self.structure is None:
            return {"information": "dense"}
        return {
            "information": self._whitening.kind,
            "blocks are of": ", ".join(self.structure.names),
        }


@dataclass(frozen=True)
class Axes:
    """Curvature in scaled coordinates: that in some directions, and that in all others.

    Attributes:
        preconditioner: Scales with the directions found.
        flattest, stiffest: Smallest and largest curvature that is left in its coordinates.
    """

    preconditioner: Preconditioner
    flattest: float
    stiffest: float

    def suited(self, dynamics: HMC) -> HMC:
        """Return HMC with trajectories that are long enough for the flattest direction.

        Args:
            dynamics: HMC with the length of trajectories that suits N(0, I).
        """
        assert dynamics.length is not None
        lowest = _SETTINGS.trajectory_length / _SETTINGS.longest_trajectory
        frequency = max(lowest, math.sqrt(self.flattest))
        length = _SETTINGS.trajectory_length / frequency
        if length <= dynamics.length:
            return dynamics
        return replace(dynamics, length=length, spread=_SETTINGS.trajectory_spread)


def find_axes(
    objective: Objective,
    scales: Preconditioner,
    positions: Sequence[np.ndarray],
    seed: int,
    steps: int = _SETTINGS.lanczos_steps,
    seconds: float = np.inf,
) -> Axes:
    """Return a preconditioner that undoes the largest and smallest curvatures around positions.

    With D the scales, H the negative Hessian averaged over the positions (or at one of them, if it
    is the same at all), and λ, v an eigenvalue and eigenvector of DHD, the scale along v is divided
    by √λ; all others by the root of their mean.

    Args:
        objective: Log posterior.
        scales: Diagonal preconditioner.
        positions: Flat and unconstrained.
        seed: Seed of the first direction.
        steps: Largest number of products.
        seconds: Seconds available for the whole run.
    """
    root = scales.root
    start = time.monotonic()
    rng = np.random.default_rng(seed)

    def products(vector: np.ndarray) -> np.ndarray:
        return np.stack(
            [root * objective.times_hessian(u, root * vector) for u in positions]
        )

    first = products(rng.standard_normal(len(root)))
    difference = np.linalg.norm(first - first.mean(0), axis=1).max()
    if difference <= _SETTINGS.same_hessian * np.linalg.norm(first.mean(0)):
        positions = positions[:1]
    deadline = start + _SETTINGS.lanczos_share * seconds
    directions = unusual_directions(
        lambda vector: products(vector).mean(0),
        len(root),
        steps,
        _SETTINGS.directions,
        rng,
        deadline,
        isolated=True,
    )
    usual = directions.usual
    preconditioner = scales.scaled(1.0 / np.sqrt(directions.usual))
    if len(directions.values):
        lengths = np.sqrt(usual / directions.values)
        preconditioner = Preconditioner(
            preconditioner.root, scales.origin, directions.vectors, lengths
        )
    flattest = min(1.0, directions.smallest / usual)
    stiffest = max(1.0, directions.largest / usual)
    return Axes(preconditioner, max(0.0, flattest), stiffest)
