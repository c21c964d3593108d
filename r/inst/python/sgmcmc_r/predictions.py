"""Predictions of regressions, for R: with effects of groups, of some factors, or without."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from sgmcmc.regression.marginal_effects import Predictor
from sgmcmc.regression.response import trials_of
from sgmcmc.results.diagnostics import weighted_quantiles
from sgmcmc_r.regressions import frame_of


def predict(
    made: sgmcmc.Regression, sent: Mapping[str, Any] | None, wanted: Mapping[str, Any]
) -> np.ndarray:
    """Return predictions of rows.

    Args:
        made: Regression.
        sent: Columns; ``None`` for those of the regression.
        wanted: ``kind``, ``"link"``, ``"response"`` or ``"predictive"``; ``statistic``, ``"mean"``,
            ``"sd"``, ``"quantiles"`` or ``"draws"``; ``quantiles``, probabilities; ``factors``,
            those whose effects are used, ``None`` for all; and ``seed``.

    Returns:
        (rows, ...), or (quantiles, rows, ...), or (draws, rows, ...), of at most 1000 draws.
    """
    frame = None if sent is None else frame_of(sent)
    if sent is not None and frame is not None and made.family == "binomial":
        trials = sent.get("trials")
        frame["trials_"] = (
            np.ones(len(frame)) if trials is None else np.atleast_1d(trials)
        )
    kind, statistic, factors = wanted["kind"], wanted["statistic"], wanted["factors"]
    quantiles = [float(q) for q in wanted["quantiles"] or ()]
    if factors is None and kind == "response" and statistic in ("mean", "quantiles"):
        return made.predict(
            frame, statistic, quantiles=quantiles or (0.5,), seed=wanted["seed"]
        )
    predictor = _predictor(made, factors)
    weights, axis = predictor.linear.weights, 0 if statistic in ("mean", "sd") else 1
    return np.concatenate(
        [
            _reduced(draws, weights, statistic, quantiles)
            for draws in _draws(predictor, frame, kind, wanted["seed"])
        ],
        axis,
    )


def terms(made: sgmcmc.Regression) -> np.ndarray:
    """Return the log density of each row, each counted once, (draws, rows)."""
    return made._predictor.log_density(np.arange(len(made._predictor.frame)))


def _predictor(made: sgmcmc.Regression, factors: Sequence[str] | None) -> Predictor:
    """Return the predictor with the effects of some factors only."""
    if factors is None:
        return made._predictor
    effects = tuple(each for each in made._model.effects if each.by in factors)
    return dataclasses.replace(
        made._predictor, model=dataclasses.replace(made._model, effects=effects)
    )


def _draws(
    predictor: Predictor, frame: Any, kind: str, seed: int
) -> Iterator[np.ndarray]:
    """Yield draws of what is predicted, (draws, rows, ...), for some rows at a time."""
    model, linear, rng = predictor.model, predictor.linear, np.random.default_rng(seed)
    for part, eta in predictor.predictors(frame, seed):
        if kind == "link":
            yield eta
        elif kind == "response":
            yield np.asarray(linear.expected(eta))
        else:
            trials = (
                trials_of(model.formula, part)
                if model.family.name == "binomial"
                else None
            )
            drawn = model.family.draw(rng, eta, linear.aux, trials)
            yield np.asarray(model.outcomes)[drawn] if model.family.by_level else drawn


def _reduced(
    draws: np.ndarray,
    weights: np.ndarray | None,
    statistic: str,
    quantiles: Sequence[float],
) -> np.ndarray:
    if statistic == "draws":
        return draws
    if statistic == "quantiles":
        if weights is None:
            return np.quantile(draws, quantiles, axis=0)
        return weighted_quantiles(draws, quantiles, weights)
    mean = np.average(draws, axis=0, weights=weights)
    if statistic == "mean":
        return np.asarray(mean)
    return np.asarray(np.sqrt(np.average((draws - mean) ** 2, axis=0, weights=weights)))
