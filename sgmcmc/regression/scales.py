"""Scales of a Gaussian regression: their coordinates, and the log prior of these in NumPy.

The priors are those of `Model.log_prior`, which a chain computes in TensorFlow; tests hold the two
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sgmcmc.regression.model import Effects, RegressionModel


@dataclass(frozen=True)
class RegressionScales:
    """The scales of a Gaussian regression, in units of the chain.

    A position has log(σ / unit), and for each factor the log of each SD of effects in units of its
    columns, and the hyperbolic arctangent of each partial correlation. With few rows more than
    effects, data know the variance of a row better than its parts: then the first is the log of its
    root, and those of SDs the logs of their ratios to σ. Their Jacobian is 1.

    Attributes:
        model: Model.
        of_rows: Whether the variance of a row is a coordinate.
        order: Numbers of the factors in the order in which their effects are integrated out.
    """

    model: RegressionModel
    of_rows: bool = False
    order: tuple[int, ...] = (0,)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """Name of each parameter."""
        return [
            "sigma",
            *(row for effects in self.model.effects for row in effects.rows),
        ]

    @cached_property
    def _places(self) -> list[tuple[slice, slice]]:
        """Coordinates of SDs and of correlations, for each factor."""
        places, start = [], 1
        for effects in self.model.effects:
            middle = start + len(effects.terms)
            end = middle + len(effects.pairs)
            places.append((slice(start, middle), slice(middle, end)))
            start = end
        return places

    @cached_property
    def _of_sds(self) -> np.ndarray:
        """Coordinates of all SDs."""
        places = [np.arange(self.size)[sds] for sds, _ in self._places]
        return np.concatenate(places) if places else np.zeros(0, int)

    @property
    def start(self) -> np.ndarray:
        """Position of the starting values of the model."""
        start = np.zeros(self.size)
        start[0] = np.log(self.model.residual / self.model.unit)
        sds = self._of_sds
        start[sds] = np.log(0.5)
        if self.of_rows:
            start[sds] -= start[0]
            start[0] += 0.5 * np.log1p(np.exp(2.0 * start[sds]).sum())
        return start

    def _log_sigma(self, positions: np.ndarray) -> np.ndarray:
        if not self.of_rows:
            return positions[:, 0]
        ratios = positions[:, self._of_sds]
        return np.asarray(positions[:, 0] - 0.5 * np.log1p(np.exp(2.0 * ratios).sum(1)))

    def _of_factor(
        self, positions: np.ndarray, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the logs of SDs, and the partial correlations, of a factor."""
        sds, correlations = self._places[number]
        logs = positions[:, sds]
        if self.of_rows:
            logs = logs + self._log_sigma(positions)[:, np.newaxis]
        return logs, np.tanh(positions[:, correlations])

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        """Return σ over the unit, (c,)."""
        return np.exp(self._log_sigma(positions))

    def roots(self, positions: np.ndarray) -> list[np.ndarray]:
        """Return the triangular root of the covariance of each factor's effects, (c, q, q)."""
        roots = []
        for number in self.order[: len(self.model.effects)]:
            logs, partial = self._of_factor(positions, number)
            rows = self.model.effects[number].root(np.exp(logs), partial)
            roots.append(matrices_of(rows, len(positions)))
        return roots

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        """Return the log prior of positions, with the log-Jacobian, as the chain's, (c,)."""
        model, log_unit = self.model, np.log(self.model.unit)
        rate = model.priors.get("sigma", 1.0 / model.unit)
        total = (
            self._log_sigma(positions)
            + log_unit
            - rate * model.unit * self.sigma(positions)
        )
        for number, effects in enumerate(model.effects):
            logs, partial = self._of_factor(positions, number)
            total = total + self._log_prior_of(effects, logs, partial)
        return np.asarray(total)

    def _log_prior_of(
        self, effects: Effects, logs: np.ndarray, partial: np.ndarray
    ) -> np.ndarray:
        sds = np.exp(logs)
        unit = self.model.unit / effects.scale
        total = (logs + np.log(unit)).sum(1)
        for k, (i, j) in enumerate(effects.pairs):
            power = effects.power(i, j) + 1.0  # 1 of the Jacobian
            total = total + power * np.log1p(-(partial[:, k] ** 2))
        rate = self.model.priors.get("sd")
        if rate is None:
            return np.asarray(total - sds.sum(1))
        sds = sds * unit
        if not effects.center.any():
            return np.asarray(total - rate * sds.sum(1))
        root = effects.uncentered(effects.root(sds, partial))
        uncentered = np.sqrt((matrices_of(root, len(logs)) ** 2).sum(2))
        for indices in effects.correlated:
            for index in indices:
                ratio = np.log(sds[:, index]) - np.log(uncentered[:, index])
                total = total + len(indices) * ratio
        return np.asarray(total - rate * uncentered.sum(1))

    def draws(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters at positions, (chains, draws, d), in the user's units."""
        flat = positions.reshape(-1, positions.shape[-1])
        shape, model = positions.shape[:2], self.model
        draws = {"sigma": (self.sigma(flat) * model.unit).reshape(shape)}
        for number, effects in enumerate(model.effects):
            logs, partial = self._of_factor(flat, number)
            sds = np.exp(logs) * (model.unit / effects.scale)
            draws[effects.sds_name] = sds.reshape(*shape, -1)
            if effects.pairs:
                draws[effects.correlations_name] = partial.reshape(*shape, -1)
        return draws

    def positions(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the positions of parameters, (draws, d), without ``of_rows``."""
        model = self.model
        sigma = np.asarray(draws["sigma"], np.float64).reshape(-1)
        columns = [np.log(sigma / model.unit)[:, np.newaxis]]
        for effects in model.effects:
            sds = np.asarray(draws[effects.sds_name], np.float64)
            sds = sds.reshape(len(sigma), -1) * (effects.scale / model.unit)
            columns.append(np.log(sds))
            if effects.pairs:
                partial = np.asarray(draws[effects.correlations_name], np.float64)
                columns.append(np.arctanh(partial.reshape(len(sigma), -1)))
        return np.concatenate(columns, 1)


def matrices_of(rows: Sequence[Sequence[Any]], count: int) -> np.ndarray:
    """Return a matrix of entries, each a number or (count,), as (count, q, q)."""
    entries = [[np.broadcast_to(entry, count) for entry in row] for row in rows]
    return np.moveaxis(np.array(entries), -1, 0)
