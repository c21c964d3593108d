"""Models with a latent field, moved in coordinates that suit any of its scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from sgmcmc.data.dataset import Data
from sgmcmc.engine.scheduler import Progress
from sgmcmc.run.joint_mode import JointMode, moved_in
from sgmcmc.run.request import Around, Request
from sgmcmc.target.target import Target
from sgmcmc.tuning.fields import Field, FieldCoordinates, common_axes, find_field
from sgmcmc.tuning.objective import Objective, is_of_predictors

_ROUNDS = 3
"""Searches for the mode, each in the coordinates that the last one gives."""

_NEAR = 0.05
"""Gain of a search, in units of the log posterior for each coordinate, at which it is the last."""

_QUICK = 1e8
"""Product of rows and coordinates up to which Hessians by differentiation are quick."""

_STEPS = 12
"""Newton steps of the field given the other parameters."""

_HALVINGS = 10
"""Largest number of halvings of a step."""

_SHORT = 0.01
"""Length of a Newton step, in posterior SDs of a coordinate, at which they end."""

_MISFIT = 0.5
"""Largest part of a gradient, by its square, that a normal approximation may leave."""

_ALIKE = 0.02
"""Largest relative difference of informations that are multiples of each other, and the least
logarithm of a multiple that counts."""

_TOGETHER = 64
"""Gradients of the prior that are computed together."""

_OTHER = 0.5
"""Distance of another value of the scale, unconstrained."""


def field_of(request: Request) -> Field | None:
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
    quick = data.size * target.size <= _QUICK or is_of_predictors(target, data, start)
    return field if quick else None


def in_field(request: Request, field: Field, verbose: bool) -> Request:
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
        search = _Search(model.target, model.data, field, model.seed)
        found = search.coordinates(model.starts[0].astype(np.float64))
        if found is not None:
            joint, around = found
            request = replace(moved_in(request, joint), around=around)
        progress.advance(1)
    return request


class _Search(JointMode):
    """The search for the mode, and for the information about the field there.

    Args:
        target: Log posterior.
        data: Dataset.
        field: Field.
        seed: Seed of random directions.
    """

    def __init__(self, target: Target, data: Data, field: Field, seed: int) -> None:
        super().__init__(Objective(target, data), target.space, [field.name], seed)
        place = target.space.layout.slices[field.name]
        self._field, self._own = field, np.arange(place.start, place.stop)

    def coordinates(self, u: np.ndarray) -> tuple[FieldCoordinates, Around] | None:
        """Return coordinates, and the normal approximation in them; ``None`` if none suit.

        Args:
            u: Position to begin at, flat.
        """
        try:
            found = self.run(u)
            if found is None:
                return None
            around = self.around(*found)
        except np.linalg.LinAlgError:  # an information that is not positive
            return None
        return (found[0], around) if self.misfit(found[0], around) < _MISFIT else None

    def run(self, u: np.ndarray) -> tuple[FieldCoordinates, np.ndarray] | None:
        """Return coordinates with the information at the mode, and the mode.

        Args:
            u: Position to begin at, flat.
        """
        scale = self.scale(u)
        for _ in range(_ROUNDS):
            found = self._seen(u)
            if found is None:
                return None
            joint, u = found
            u, gain = self.climbed(u, joint, scale)
            if not np.isfinite(gain) or gain < _NEAR * len(u):
                break
        return self._seen(u)

    def _seen(self, u: np.ndarray) -> tuple[FieldCoordinates, np.ndarray] | None:
        """Return coordinates at the mode of the field given the other parameters, and the mode.

        Returns ``None`` if the information about the field is not positive there.
        """
        field, own = self._field, self._own
        there = u.copy()
        there[field.scale] += _OTHER
        first, other = self._precision(u), self._precision(there)
        u = self._climbed_given_others(u, first)
        information = -self._block(self.objective.likelihood_hessian(u))
        slope = self.objective.likelihood_gradient(u)[own]
        found = common_axes(information + first, other - first)
        if found is None:
            return None
        V, lengths = found
        probe = field.probe.reshape(-1)
        log_prior = self.objective.target.log_prior
        assert log_prior is not None
        score, pull = slope + information @ u[own], np.zeros(len(own))
        if not field.mean_moves:
            pull = self.objective.prior_gradient(u)[own] + first @ u[own]
        shares = np.sum(V * (information @ V), 0)
        sds = 1.0 / np.sqrt(np.diag(information + first))
        ends = np.array([probe @ first @ probe, probe @ other @ probe])
        joint = FieldCoordinates(
            field.name, log_prior, V, lengths, score, pull, shares, field.probe, ends,
            field.mean_moves, self._slopes(u, information, sds),
        )  # fmt: skip
        return joint, u

    def _slopes(
        self, u: np.ndarray, information: np.ndarray, sds: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return how the information of the data about the field depends on parameters of a number.

        Those count on which all of it depends alike, such as the SD of normal observations.

        Args:
            u: Position.
            information: Information of the data there.
            sds: Conditional SDs of the field's entries, of which differences are made.
        """
        found, layout = {}, self.space.layout
        probe = np.zeros((len(u), 1))
        probe[self._own, 0] = self.rng.standard_normal(len(self._own)) * sds
        here = information @ probe[self._own, 0]
        values = self._values(u)
        for name, place in layout.slices.items():
            if place.stop - place.start != 1 or name == self._field.name:
                continue
            moved = u.copy()
            moved[place] += _OTHER
            there = -self.objective.times_hessians(moved, probe)[self._own, 0]
            ratio = float(here @ there) / max(float(here @ here), 1e-300)
            alike = np.linalg.norm(there - ratio * here) < _ALIKE * np.linalg.norm(there)
            if not (alike and ratio > 0 and abs(np.log(ratio)) > _ALIKE):
                continue
            value, beyond = (float(np.reshape(p[name], ())) for p in (values, self._values(moved)))
            positive = not self.space.geometries[name].in_place and min(value, beyond) > 0
            at, to = (np.log(v) if positive else v for v in (value, beyond))
            found[name] = np.array([np.log(ratio) / (to - at), at, positive])
        return found

    def _values(self, u: np.ndarray) -> dict[str, np.ndarray]:
        return self.space.params(u, self.objective.target.dtype)

    def _precision(self, u: np.ndarray) -> np.ndarray:
        """Return the precision Q of the field's prior, from gradients of it, which are linear."""
        base = u.copy()
        base[self._own] = 0.0
        middle, n = self.objective.prior_gradient(base)[self._own], len(self._own)
        found = np.empty((n, n))
        for first in range(0, n, _TOGETHER):
            points = np.tile(base, (_TOGETHER, 1))
            rows = np.arange(first, min(first + _TOGETHER, n))
            points[np.arange(len(rows)), self._own[rows]] = 1.0
            slopes = self.objective.prior_gradients(points)[: len(rows), self._own]
            found[rows] = middle - slopes
        return (found + found.T) / 2

    def _block(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[np.ix_(self._own, self._own)]

    def _climbed_given_others(self, u: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the end of Newton steps of the field alone.

        Args:
            u: Position.
            precision: Precision of its prior.
        """
        value, gradient = self.objective.value_and_gradient(u)
        for _ in range(_STEPS):
            information = precision - self._block(self.objective.likelihood_hessian(u))
            step = _solved(information, gradient[self._own])
            if step is None:
                return u
            length = np.sqrt(step @ gradient[self._own] / len(step))
            for number in range(_HALVINGS):
                there = u.copy()
                there[self._own] += 0.5**number * step
                risen, slope = self.objective.value_and_gradient(there)
                if risen > value:
                    break
            else:
                return u
            u, value, gradient = there, risen, slope
            if length < _SHORT:
                return u
        return u


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Return the solution of linear equations; ``None`` unless the matrix is positive."""
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix, lower=True), right)
    except (np.linalg.LinAlgError, ValueError):  # not positive, or not finite
        return None
