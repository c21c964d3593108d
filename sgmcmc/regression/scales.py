"""Scales of a Gaussian regression: their coordinates, and the log prior of these in NumPy.

The priors are those of `Model.log_prior`, which a chain computes in TensorFlow; tests hold the two
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.regression.model import Effects, Model


@dataclass(frozen=True)
class RegressionScales:
    """The scales of a Gaussian regression, in units of the chain.

    A position has log(σ / unit), the log of each SD of effects in units of its columns, and the
    hyperbolic arctangent of each partial correlation. With few rows more than effects, data know
    the variance of a row better than its parts: then the first two are the log of its root, and
    the logs of the ratios of SDs and σ. Their Jacobian is 1.

    Attributes:
        model: Model.
        of_rows: Whether the variance of a row is a coordinate.
    """

    model: Model
    of_rows: bool = False

    @property
    def _effects(self) -> Effects:
        return self.model.effects[0]

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

    @property
    def start(self) -> np.ndarray:
        """Position of the starting values of the model."""
        start = np.zeros(self.size)
        start[0] = np.log(self.model.residual / self.model.unit)
        if self.model.effects:
            sds = slice(1, 1 + len(self._effects.terms))
            start[sds] = np.log(0.5)
            if self.of_rows:
                start[sds] -= start[0]
                start[0] += 0.5 * np.log1p(np.exp(2.0 * start[sds]).sum())
        return start

    def _log_sigma(self, positions: np.ndarray) -> np.ndarray:
        if not self.of_rows:
            return positions[:, 0]
        ratios = positions[:, 1 : 1 + len(self._effects.terms)]
        return np.asarray(positions[:, 0] - 0.5 * np.log1p(np.exp(2.0 * ratios).sum(1)))

    def _log_sds(self, positions: np.ndarray) -> np.ndarray:
        logs = positions[:, 1 : 1 + len(self._effects.terms)]
        if self.of_rows:
            logs = logs + self._log_sigma(positions)[:, np.newaxis]
        return logs

    def _partial(self, positions: np.ndarray) -> np.ndarray:
        return np.tanh(positions[:, 1 + len(self._effects.terms) :])

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        """Return σ over the unit, (c,)."""
        return np.exp(self._log_sigma(positions))

    def root(self, positions: np.ndarray) -> np.ndarray:
        """Return the triangular root of the covariance of the effects of a group, (c, q, q)."""
        rows = self._effects.root(
            np.exp(self._log_sds(positions)), self._partial(positions)
        )
        return _stacked(rows, len(positions))

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        """Return the log prior of positions, with the log-Jacobian, as the chain's, (c,)."""
        model, log_unit = self.model, np.log(self.model.unit)
        rate = model.priors.get("sigma", 1.0 / model.unit)
        total = (
            self._log_sigma(positions)
            + log_unit
            - rate * model.unit * self.sigma(positions)
        )
        if not model.effects:
            return total
        effects = self._effects
        logs, partial = self._log_sds(positions), self._partial(positions)
        sds = np.exp(logs)
        unit = model.unit / effects.scale
        total = total + (logs + np.log(unit)).sum(1)
        for k, (i, j) in enumerate(effects.pairs):
            power = effects.power(i, j) + 1.0  # 1 of the Jacobian
            total = total + power * np.log1p(-(partial[:, k] ** 2))
        rate = model.priors.get("sd")
        if rate is None:
            return np.asarray(total - sds.sum(1))
        sds = sds * unit
        if not effects.center.any():
            return np.asarray(total - rate * sds.sum(1))
        root = effects.uncentered(effects.root(sds, partial))
        uncentered = np.sqrt((_stacked(root, len(positions)) ** 2).sum(2))
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
        if model.effects:
            effects = self._effects
            sds = np.exp(self._log_sds(flat)) * (model.unit / effects.scale)
            draws[effects.sds_name] = sds.reshape(*shape, -1)
            if effects.pairs:
                partial = self._partial(flat)
                draws[effects.correlations_name] = partial.reshape(*shape, -1)
        return draws


def _stacked(rows: Sequence[Sequence[Any]], count: int) -> np.ndarray:
    """Return a matrix of entries, each a number or (count,), as (count, q, q)."""
    entries = [[np.broadcast_to(entry, count) for entry in row] for row in rows]
    return np.moveaxis(np.array(entries), -1, 0)
