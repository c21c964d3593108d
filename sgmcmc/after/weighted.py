"""The summary of draws that have weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgmcmc import libraries
from sgmcmc.results.arrays import coordinate_names
from sgmcmc.results.diagnostics import weighted_quantiles

_TAILS = (0.05, 0.95)


def weighted_table(
    draws: Mapping[str, np.ndarray], weights: np.ndarray, quantiles: Sequence[float]
) -> Any:
    """Return means, SDs, quantiles and diagnostics of draws with weights, a row for each component.

    A weighted mean μ is a ratio of averages, whose error is that of the average of w (x − μ): the
    series of these has MCSE and ESS as any other, and the ESS here is σ²/MCSE². R-hat is that of
    the draws whose weight is not zero.

    Args:
        draws: Draws, (chains, draws, *shape), by parameter.
        weights: Weights of the draws of each chain, with mean one.
        quantiles: Probabilities of the quantiles.
    """
    import pandas as pd

    rows = {}
    for name, array in draws.items():
        flat = np.reshape(np.asarray(array, float), (*array.shape[:2], -1))
        for place, label in enumerate(coordinate_names(name, array.shape[2:])):
            with np.errstate(divide="ignore", invalid="ignore"):  # draws that are all alike
                rows[label] = _row(flat[..., place], weights, quantiles)
    return pd.DataFrame.from_dict(rows, orient="index")


def _row(x: np.ndarray, weights: np.ndarray, quantiles: Sequence[float]) -> dict[str, float]:
    mean = (weights * x).mean()
    variance = (weights * (x - mean) ** 2).mean()
    sd = np.sqrt(variance)
    every = np.tile(weights, len(x))
    wanted = weighted_quantiles(x.reshape(-1), [*quantiles, *_TAILS], every)
    tails = [
        p * (1 - p) / _mcse(weights * ((x <= q) - p)) ** 2
        for p, q in zip(_TAILS, wanted[len(quantiles) :], strict=True)
    ]
    mcse = _mcse(weights * (x - mean))
    return {
        "mean": mean,
        "sd": sd,
        **{f"q{100 * p:g}": q for p, q in zip(quantiles, wanted, strict=False)},
        "mcse_mean": mcse,
        "mcse_sd": _mcse(weights * ((x - mean) ** 2 - variance) / (2 * sd)),
        "ess_bulk": variance / mcse**2,
        "ess_tail": min(tails),
        "r_hat": float(libraries.arviz().rhat(x[:, weights > 0])) if len(x) > 1 else np.nan,
    }


def _mcse(series: np.ndarray) -> np.floating:
    """Return the standard error of the mean of a series, (chains, draws)."""
    return series.std() / np.sqrt(float(libraries.arviz().ess(series, method="mean")))
