"""Weights of draws: in proportion to decreasing stepsizes, or zero for draws that do not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sgmcmc.checks import describe
from sgmcmc.dynamics.schedules import schedule_of
from sgmcmc.results.arrays import by_chain, draw_numbers


def read_weights(value: Any, samples: Any) -> np.ndarray:
    """Return the weights that the draws are given, checked."""
    weights, draws = np.asarray(value, float), number_of_draws(samples)
    if weights.shape != (draws,):
        raise ValueError(
            f"`weights` must have one number for each of the {draws} draws of a chain; its shape "
            f"is {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            "`weights` must be finite and not negative, and not all zero; they are "
            f"{describe(value)}."
        )
    return weights


def number_of_draws(samples: Any) -> int:
    """Return the number of draws of each chain."""
    for arrays in (samples, samples.test_functions):
        if arrays:
            return next(iter(by_chain(samples.settings, arrays).values())).shape[1]
    return 0


def weights_of(samples: Any) -> np.ndarray | None:
    """Return the weights of the draws of a chain, with mean one; ``None`` if all are alike."""
    settings, origin, found = samples.settings, samples.origin, samples.own_weights
    if found is None and (origin is not None or settings.get("weights")):
        numbers = np.asarray(draw_numbers(settings, number_of_draws(samples)))
        iterations = settings.get("burn_in", 0) + settings.get("thin", 1) * (1 + numbers)
        if origin is not None:
            found = origin.weights(iterations)
        else:
            found = schedule_of(settings["weights"]).weights(iterations)
    if found is None or np.ptp(found) == 0 < found[0]:
        return None
    if not found.any():
        raise ValueError("`samples` holds no draw that counts: all are of exploring stages.")
    return found / found.mean()


def weighted_quantiles(
    values: np.ndarray, probabilities: Sequence[float], weights: np.ndarray
) -> np.ndarray:
    """Return quantiles along the first axis; with equal weights those of ``np.quantile``.

    Args:
        values: Values, (draws, ...).
        probabilities: Probabilities of the quantiles.
        weights: Weight of each draw.
    """
    values, weights = values[weights > 0], weights[weights > 0]
    flat = np.reshape(values, (len(values), -1))
    found = np.empty((len(probabilities), flat.shape[1]))
    order = np.argsort(flat, axis=0)
    for column in range(flat.shape[1]):
        each = weights[order[:, column]]
        place = np.cumsum(each) - 0.5 * (each + each[0])
        at = place / place[-1] if place[-1] > 0 else place
        found[:, column] = np.interp(probabilities, at, flat[order[:, column], column])
    return found.reshape(len(probabilities), *values.shape[1:])
