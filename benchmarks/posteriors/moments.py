"""Means and SDs of draws, with what they are worth."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import arviz as az
import numpy as np


@dataclass(frozen=True)
class Moments:
    """Of each coordinate.

    Attributes:
        mean: the mean.
        sd: the standard deviation.
        mean_error: standard error of the mean, in SDs.
        sd_error: relative standard error of the sd.
        ess: the smaller of the effective sample sizes in bulk and tail.
        rhat: R-hat.
    """

    mean: list[float]
    sd: list[float]
    mean_error: list[float]
    sd_error: list[float]
    ess: list[float]
    rhat: list[float]

    def rounded(self) -> dict[str, list[float]]:
        """Return plain numbers of eight digits."""
        return {
            name: [float(f"{value:.8g}") for value in values]
            for name, values in asdict(self).items()
        }


def moments(draws: np.ndarray) -> Moments:
    """Return the moments of draws, (chain, draw, coordinate)."""
    x = az.convert_to_dataset({"x": np.asarray(draws, np.float64)})
    mean, sd = (
        draws.mean((0, 1), dtype=np.float64),
        draws.std((0, 1), dtype=np.float64, ddof=1),
    )

    def of(function, **keywords) -> np.ndarray:
        return np.atleast_1d(function(x, **keywords)["x"].values)

    worth = np.minimum(of(az.ess, method="bulk"), of(az.ess, method="tail"))
    return Moments(
        mean.tolist(),
        sd.tolist(),
        (of(az.mcse, method="mean") / sd).tolist(),
        (of(az.mcse, method="sd") / sd).tolist(),
        worth.tolist(),
        of(az.rhat).tolist(),
    )
