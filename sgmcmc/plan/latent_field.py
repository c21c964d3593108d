"""Models with a latent field, moved in coordinates that suit any of its scales."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from sgmcmc.data.dataset import Data
from sgmcmc.engine.scheduler import Progress
from sgmcmc.model.target import Target
from sgmcmc.plan.fields import Field, FieldCoordinates, common_axes, find_field
from sgmcmc.plan.joint_mode import JointMode, with_joint_coordinates
from sgmcmc.plan.objective import Objective, is_of_predictors
from sgmcmc.run.request import LaplaceApproximation, Request


@dataclass(frozen=True)
class _Settings:
    searches: int = 3  # for the mode, each in the coordinates that the last one gives
    small_gain: float = (
        0.05  # log posterior per coordinate; a search with less is the last
    )
    quick_hessians: float = (
        1e8  # rows × coordinates up to which automatic Hessians are quick
    )
    newton_steps: int = 12  # of the field given the other parameters
    halvings: int = 10  # of a step
    shortest_step: float = 0.01  # in posterior SDs of a coordinate
    misfit: float = (
        0.5  # largest share of a gradient's square that an approximation may leave
    )
    multiple_tolerance: float = (
        0.02  # relative, of informations; least logarithm of a multiple
    )
    batch: int = 64  # gradients of the prior that are computed together
    scale_shift: float = 0.5  # to another value of the scale, unconstrained


_SETTINGS = _Settings()


def find_latent_field(request: Request) -> Field | None:
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
    if data.size * target.size <= _SETTINGS.quick_hessians:
        return field
    return field if is_of_predictors(target, data, start) else None


def with_field_coordinates(request: Request, field: Field, verbose: bool) -> Request:
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
        coordinates = search.coordinates(model.starts[0].astype(np.float64))
        if coordinates is not None:
            joint, laplace = coordinates
            request = replace(with_joint_coordinates(request, joint), laplace=laplace)
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
        entries = target.space.layout.slices[field.name]
        self._field, self._entries = field, np.arange(entries.start, entries.stop)

    def coordinates(
        self, u: np.ndarray
    ) -> tuple[FieldCoordinates, LaplaceApproximation] | None:
        """Return coordinates, and the normal approximation in them; ``None`` if none suit.

        Args:
            u: Position to begin at, flat.
        """
        try:
            coordinates_and_mode = self.run(u)
            if coordinates_and_mode is None:
                return None
            joint, mode = coordinates_and_mode
            laplace = self.around(joint, mode)
        except np.linalg.LinAlgError:  # an information that is not positive
            return None
        return (
            (joint, laplace) if self.misfit(joint, laplace) < _SETTINGS.misfit else None
        )

    def run(self, u: np.ndarray) -> tuple[FieldCoordinates, np.ndarray] | None:
        """Return coordinates with the information at the mode, and the mode.

        Args:
            u: Position to begin at, flat.
        """
        scale = self.scale(u)
        for _ in range(_SETTINGS.searches):
            coordinates = self._at_conditional_mode(u)
            if coordinates is None:
                return None
            joint, u = coordinates
            u, gain = self.climb(u, joint, scale)
            if not np.isfinite(gain) or gain < _SETTINGS.small_gain * len(u):
                break
        return self._at_conditional_mode(u)

    def _at_conditional_mode(
        self, u: np.ndarray
    ) -> tuple[FieldCoordinates, np.ndarray] | None:
        """Return coordinates at the mode of the field given the other parameters, and the mode.

        Returns ``None`` if the information about the field is not positive there.
        """
        field, entries = self._field, self._entries
        shifted = u.copy()
        shifted[field.scale] += _SETTINGS.scale_shift
        precision, shifted_precision = self._precision(u), self._precision(shifted)
        u = self._climb_field(u, precision)
        information = -self._field_block(self.objective.likelihood_hessian(u))
        gradient = self.objective.likelihood_gradient(u)[entries]
        joint_axes = common_axes(information + precision, shifted_precision - precision)
        if joint_axes is None:
            return None
        V, lengths = joint_axes
        probe = field.probe.reshape(-1)
        log_prior = self.objective.target.log_prior
        assert log_prior is not None
        score, prior_gradient = (
            gradient + information @ u[entries],
            np.zeros(len(entries)),
        )
        if not field.mean_moves:
            prior_gradient = (
                self.objective.prior_gradient(u)[entries] + precision @ u[entries]
            )
        information_shares = np.sum(V * (information @ V), 0)
        sds = 1.0 / np.sqrt(np.diag(information + precision))
        probe_precisions = np.array(
            [probe @ precision @ probe, probe @ shifted_precision @ probe]
        )
        joint = FieldCoordinates(
            field.name,
            log_prior,
            V,
            lengths,
            score,
            prior_gradient,
            information_shares,
            field.probe,
            probe_precisions,
            field.mean_moves,
            self._slopes(u, information, sds),
        )
        return joint, u

    def _slopes(
        self, u: np.ndarray, information: np.ndarray, sds: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return how the information of the data about the field depends on parameters of a number.

        Those count that scale all of it by the same factor, such as the SD of normal observations.

        Args:
            u: Position.
            information: Information of the data there.
            sds: Conditional SDs of the field's entries, of which differences are made.
        """
        slopes, layout = {}, self.space.layout
        probe = np.zeros((len(u), 1))
        probe[self._entries, 0] = self.rng.standard_normal(len(self._entries)) * sds
        product = information @ probe[self._entries, 0]
        values = self._values(u)
        for name, entries in layout.slices.items():
            if entries.stop - entries.start != 1 or name == self._field.name:
                continue
            shifted = u.copy()
            shifted[entries] += _SETTINGS.scale_shift
            shifted_product = -self.objective.times_hessians(shifted, probe)[
                self._entries, 0
            ]
            ratio = float(product @ shifted_product) / max(
                float(product @ product), 1e-300
            )
            tolerance = _SETTINGS.multiple_tolerance
            difference = np.linalg.norm(shifted_product - ratio * product)
            is_multiple = difference < tolerance * np.linalg.norm(shifted_product)
            if not (is_multiple and ratio > 0 and abs(np.log(ratio)) > tolerance):
                continue
            value, shifted_value = (
                float(np.reshape(p[name], ())) for p in (values, self._values(shifted))
            )
            positive = (
                not self.space.geometries[name].in_place
                and min(value, shifted_value) > 0
            )
            at, shifted_at = (
                np.log(v) if positive else v for v in (value, shifted_value)
            )
            slopes[name] = np.array([np.log(ratio) / (shifted_at - at), at, positive])
        return slopes

    def _values(self, u: np.ndarray) -> dict[str, np.ndarray]:
        return self.space.params(u, self.objective.target.dtype)

    def _precision(self, u: np.ndarray) -> np.ndarray:
        """Return the precision Q of the field's prior, from gradients of it, which are linear."""
        base = u.copy()
        base[self._entries] = 0.0
        gradient_at_zero, n = (
            self.objective.prior_gradient(base)[self._entries],
            len(self._entries),
        )
        precision = np.empty((n, n))
        for first in range(0, n, _SETTINGS.batch):
            points = np.tile(base, (_SETTINGS.batch, 1))
            rows = np.arange(first, min(first + _SETTINGS.batch, n))
            points[np.arange(len(rows)), self._entries[rows]] = 1.0
            slopes = self.objective.prior_gradients(points)[: len(rows), self._entries]
            precision[rows] = gradient_at_zero - slopes
        return (precision + precision.T) / 2

    def _field_block(self, matrix: np.ndarray) -> np.ndarray:
        return matrix[np.ix_(self._entries, self._entries)]

    def _climb_field(self, u: np.ndarray, precision: np.ndarray) -> np.ndarray:
        """Return the end of Newton steps of the field alone.

        Args:
            u: Position.
            precision: Precision of its prior.
        """
        value, gradient = self.objective.value_and_gradient(u)
        for _ in range(_SETTINGS.newton_steps):
            information = precision - self._field_block(
                self.objective.likelihood_hessian(u)
            )
            step = _solved(information, gradient[self._entries])
            if step is None:
                return u
            length = np.sqrt(step @ gradient[self._entries] / len(step))
            for halving in range(_SETTINGS.halvings):
                candidate = u.copy()
                candidate[self._entries] += 0.5**halving * step
                candidate_value, candidate_gradient = self.objective.value_and_gradient(
                    candidate
                )
                if candidate_value > value:
                    break
            else:
                return u
            u, value, gradient = candidate, candidate_value, candidate_gradient
            if length < _SETTINGS.shortest_step:
                return u
        return u


def _solved(matrix: np.ndarray, right_side: np.ndarray) -> np.ndarray | None:
    """Return the solution of linear equations; ``None`` unless the matrix is positive."""
    try:
        return scipy.linalg.cho_solve(
            scipy.linalg.cho_factor(matrix, lower=True), right_side
        )
    except (np.linalg.LinAlgError, ValueError):  # not positive, or not finite
        return None
