"""Predictions of a regression: linear predictors, expected responses, responses and densities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.frames import as_frame, column, pieces
from sgmcmc.regression.model import Model
from sgmcmc.regression.response import censored_of, read_response
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 1000
"""Largest number of draws used for predictions."""

_MANY = 100_000
"""Rows from which the density of all rows is averaged over one draw of each chain, not five."""


@dataclass(frozen=True)
class Predictor:
    """Predictions of a regression.

    Attributes:
        model: Model.
        samples: Draws.
        frame: Data.
        weights: Weight of each row's log-likelihood; ``None`` for 1.
    """

    model: Model
    samples: Samples
    frame: pd.DataFrame
    weights: np.ndarray | None

    @cached_property
    def thinned(self) -> Samples:
        """At most 1000 of the draws."""
        draws = by_chain(self.samples.settings, self.samples)
        chains, count = next(iter(draws.values())).shape[:2]
        return self.samples[:: max(1, -(-chains * count // _DRAWS))]

    @cached_property
    def aux(self) -> dict[str, np.ndarray]:
        """Auxiliary parameters of these draws, (draws, 1)."""
        draws = by_chain(self.samples.settings, self.thinned)
        found = {}
        for name, where in self.model.family.aux:
            values = np.asarray(draws[name], np.float64)
            last = values.shape[2:] if where == "ordered" else ()
            found[name] = values.reshape(-1, 1, *last)
        return found

    def linear(self, data: Any) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
        """Yield rows and the draws of their linear predictors, (draws, rows, ...), in pieces."""
        frame = self.frame if data is None else as_frame(data)
        for part in pieces(frame, _DRAWS):
            self._need_known_levels(part)
            eta = self.thinned.predict(self.model.predictor, self.model.rows(part), reduce=None)
            eta = np.asarray(eta, np.float64)
            several = eta.shape[-1:] if self.model.family.several else ()
            yield part, eta.reshape(-1, len(part), *several)

    def _need_known_levels(self, frame: pd.DataFrame) -> None:
        for name, levels in self.model.design.levels.items():
            known = set(levels)
            new = [value for value in dict.fromkeys(column(frame, name)) if value not in known]
            if new:
                raise ValueError(
                    f"`data[{name!r}]` has the level {str(new[0])!r}, which the regression has not "
                    "seen."
                )

    def expected(self, eta: np.ndarray) -> np.ndarray:
        """Return expected responses, (draws, rows), or (draws, rows, levels) probabilities."""
        mean = self.model.family.mean(eta, self.aux)
        return mean if self.model.family.by_level else np.broadcast_to(mean, eta.shape)

    def predict(self, data: Any, kind: str, quantiles: Sequence[float], seed: int) -> np.ndarray:
        """Return predictions, as :meth:`Regression.predict` does."""
        family, found = self.model.family, []
        rng = np.random.default_rng(seed)
        for frame, eta in self.linear(data):
            if kind == "response":
                trials = self.model.rows(frame).get("trials")
                drawn = family.draw(rng, eta, self.aux, trials)
                found.append(np.asarray(self.model.outcomes)[drawn] if family.by_level else drawn)
            elif kind == "mean":
                found.append(self.expected(eta).mean(0))
            else:
                found.append(np.quantile(self.expected(eta), list(quantiles), axis=0))
        return np.concatenate(found, axis=0 if kind == "mean" else 1)

    def response(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the response of some rows in numbers."""
        model = self.model
        return read_response(model.formula, frame, model.family, model.outcomes, model.constants)

    def dataset(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without weights."""
        rows = {"y": self.response(frame).astype(np.float32), **self.model.rows(frame)}
        if self.model.family.name in ("exponential", "weibull"):
            rows["censored"] = censored_of(self.model.formula, frame).astype(np.float32)
        return rows

    def _weighted(self, frame: pd.DataFrame, places: Any) -> dict[str, Any]:
        """Return the dataset of some rows of the regression, with their weights."""
        rows = self.dataset(frame)
        return rows if self.weights is None else {**rows, "weights": self.weights[places]}

    def log_density(self, places: np.ndarray) -> np.ndarray:
        """Return the log density of rows, times their weights, (draws, rows)."""
        rows = self._weighted(self.frame.iloc[places].reset_index(drop=True), places)
        found = self.thinned.predict(self.model.log_lik, rows, reduce=None)
        return np.asarray(found, np.float64).reshape(-1, len(places))

    def mean_log_density(self) -> np.ndarray:
        """Return an approximate log density of each row: the mean over a few draws."""
        count = len(next(iter(by_chain(self.thinned.settings, self.thinned).values()))[0])
        few = self.thinned[:: max(1, count if len(self.frame) > _MANY else count // 5)]
        found, start = [], 0
        for part in pieces(self.frame, len(self.model.terms)):
            places = slice(start, start + len(part))
            found.append(few.predict(self.model.log_lik, self._weighted(part, places)))
            start += len(part)
        return np.concatenate(found).astype(np.float64)
