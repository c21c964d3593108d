"""Predictions of a regression, and log densities of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.averages import by_row
from sgmcmc.regression.frames import as_frame, chunks
from sgmcmc.regression.linear import LinearPredictor, Members
from sgmcmc.regression.model import Model
from sgmcmc.regression.response import read_response, responses, trials_of
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.diagnostics import weighted_quantiles
from sgmcmc.results.samples import Samples

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 1000  # largest number of draws used for predictions

# Rows from which the density of all rows is averaged over one draw of each chain, not five.
_MANY = 100_000

_NUMBERS = 2**21  # draws of linear predictors that are made at a time


@dataclass(frozen=True)
class Predictor:
    """Predictions of a regression.

    Attributes:
        model: Model.
        samples: Draws.
        frame: Data.
        weights: Weight of each row's log-likelihood; ``None`` for 1.
        weights_column: Name of their column, if they are one.
    """

    model: Model
    samples: Samples
    frame: pd.DataFrame
    weights: np.ndarray | None
    weights_column: str | None = None

    @cached_property
    def thinned(self) -> Samples:
        """At most 1000 of the draws."""
        draws = by_chain(self.samples.settings, self.samples)
        chains, count = next(iter(draws.values())).shape[:2]
        return self.samples[:: max(1, -(-chains * count // _DRAWS))]

    @cached_property
    def linear(self) -> LinearPredictor:
        """Linear predictors at these draws."""
        return LinearPredictor(self.model, self.thinned, self.frame.columns)

    def pieces(
        self, data: Any, seed: int = 0
    ) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
        """Yield rows and the draws of their linear predictors, (draws, rows, ...), in chunks."""
        frame = self.frame if data is None else as_frame(data)
        members = Members(self.linear, frame, seed)
        length = max(64, _NUMBERS // self.linear.draws)
        for start in range(0, len(frame), length):
            chunk = frame.iloc[start : start + length].reset_index(drop=True)
            rows = np.arange(start, start + len(chunk))
            yield (
                chunk,
                self.linear.values(
                    self.linear.numbers(chunk), members.effects(rows, rows)
                ),
            )

    def predict(
        self, data: Any, kind: str, quantiles: Sequence[float], seed: int
    ) -> np.ndarray:
        """Return predictions, as :meth:`Regression.predict` does."""
        if kind == "response":
            return self._responses(data, seed)
        frame, weights = (
            self.frame if data is None else as_frame(data),
            self.linear.weights,
        )

        def summary(draws: np.ndarray) -> np.ndarray:
            if kind == "mean":
                return np.average(draws, axis=0, weights=weights)[np.newaxis]
            if weights is None:
                return np.quantile(draws, list(quantiles), axis=0)
            return weighted_quantiles(draws, list(quantiles), weights)

        values = by_row(self.linear, frame, summary, seed)
        return values[0] if kind == "mean" else values

    def _responses(self, data: Any, seed: int) -> np.ndarray:
        model, family = self.model, self.model.family
        rng = np.random.default_rng(seed)
        draws = []
        for frame, eta in self.pieces(data, seed):
            trials = (
                trials_of(model.formula, frame) if family.name == "binomial" else None
            )
            drawn = family.draw(rng, eta, self.linear.aux, trials)
            draws.append(
                np.asarray(model.outcomes)[drawn] if family.by_level else drawn
            )
        return np.concatenate(draws, axis=1)

    def response(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the response of some rows in numbers."""
        model = self.model
        return read_response(
            model.formula, frame, model.family, model.outcomes, model.constants
        )

    def dataset(self, frame: pd.DataFrame) -> dict[str, Any]:
        """Return the dataset of some rows, without weights."""
        model = self.model
        response = responses(
            model.formula, frame, self.response(frame), model.constants, None
        )
        return model.observed(model.rows(frame), response)

    def log_density(self, row_indices: np.ndarray) -> np.ndarray:
        """Return the log density of rows, each once, (draws, rows)."""
        rows = self.dataset(self.frame.iloc[row_indices].reset_index(drop=True))
        log_density = self.thinned.predict(self.model.log_lik, rows, reduce=None)
        return np.asarray(log_density, np.float64).reshape(-1, len(row_indices))

    def mean_log_density(self) -> np.ndarray:
        """Return an approximate log density of each row: the mean over a few draws."""
        count = len(
            next(iter(by_chain(self.thinned.settings, self.thinned).values()))[0]
        )
        few_draws = self.thinned[
            :: max(1, count if len(self.frame) > _MANY else count // 5)
        ]
        log_density = [
            few_draws.predict(self.model.log_lik, self.dataset(chunk))
            for chunk in chunks(self.frame, len(self.model.terms))
        ]
        return np.concatenate(log_density).astype(np.float64)
