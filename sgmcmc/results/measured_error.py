"""Measured errors of means and SDs: draws at a stepsize against draws at half of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import checks, libraries
from sgmcmc.results.arrays import by_chain
from sgmcmc.results.draws import Draws, need_chains

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _WatchSettings:
    coordinates: int = 20  # of a parameter; of one with more, some are watched
    # Coordinates of a large parameter among which these are chosen
    candidates: int = 200
    # Candidates that are watched: those with the fewest effective draws
    scarcest: int = 5
    # Fraction of a variance left when its error is subtracted
    smallest_variance: float = 0.05
    standard_errors: float = 2.0  # beyond the tolerance at which an error is reported


_SETTINGS = _WatchSettings()

COLUMNS = ("mean_error", "mean_error_se", "sd_error", "sd_error_se", "ess")


@dataclass(frozen=True)
class MeasuredError:
    """Measured errors of draws, the result of :meth:`sgmcmc.Samples.check`.

    Args:
        table: A data frame with a row for each watched quantity: ``mean_error``, the error of its
            mean in posterior SDs, ``sd_error``, the relative error of its SD, their Monte Carlo
            standard errors ``mean_error_se`` and ``sd_error_se``, and ``ess``, the smaller
            effective sample size of the two runs.
        tolerance: Largest accepted relative error of an SD; means may be off by 0.1 SD.
        warnings: Sentences that name the quantities that are off, and by how much.
        at_half: Draws at half the stepsize.

    Example:
        >>> import pandas as pd, sgmcmc
        >>> row = dict(mean_error=0.0, mean_error_se=0.1, sd_error=0.2, sd_error_se=0.02, ess=400.0)
        >>> table = pd.DataFrame.from_dict({"theta": row}, orient="index")
        >>> float(sgmcmc.MeasuredError(table, 0.05, [], None).table.loc["theta", "sd_error"])
        0.2
    """

    table: pd.DataFrame
    tolerance: float
    warnings: list[str]
    at_half: Any

    @property
    def certain(self) -> bool:
        """Whether some error exceeds the tolerance beyond Monte Carlo error."""
        return bool(_beyond(self.table, self.tolerance).to_numpy().any())

    def __repr__(self) -> str:
        lines = [f"  ! {warning}" for warning in self.warnings] or [
            "  no error beyond the tolerance"
        ]
        return "\n".join([f"{self.table.round(3)}", *lines])


def measure_error(
    draws: Draws, tolerance: float, seed: int | None, verbose: bool
) -> MeasuredError:
    """Return the errors of draws, from others at half the stepsize; see ``Samples.check``."""
    origin = need_chains(draws)
    if not checks.positive_number("tolerance", tolerance) < 1:
        raise ValueError(
            f"`tolerance` must be below 1, a relative error; it is {tolerance}."
        )
    if seed is not None:
        seed = checks.whole_number("seed", seed, 0)
    verbose = checks.flag("verbose", verbose)
    at_half, factor = origin.at_half_stepsize(draws, seed, verbose)
    coarse, fine = _quantities(draws), _quantities(at_half)
    watched_draws, watched_at_half = watched(coarse, fine), watched(fine)
    return compared(watched_draws, watched_at_half, factor, tolerance, at_half)


def _quantities(draws: Draws) -> dict[str, np.ndarray]:
    """Return the draws of parameters and test functions, chains first."""
    arrays = {**draws, **(draws.test_functions or {})}
    return by_chain(draws.settings, arrays)


def compared(
    coarse: Mapping[str, np.ndarray],
    fine: Mapping[str, np.ndarray],
    factor: float,
    tolerance: float,
    samples_at_half: Any,
) -> MeasuredError:
    """Return the errors of quantities, (chains, draws) by name, given others at half the stepsize.

    Those of ``coarse`` that ``fine`` has too are compared.
    """
    import pandas as pd

    rows = {
        name: _row(coarse[name], fine[name], factor) for name in coarse if name in fine
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=list(COLUMNS))
    return MeasuredError(table, tolerance, _warnings(table, tolerance), samples_at_half)


def watched(
    draws: Mapping[str, np.ndarray], judged: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return the series, (chains, draws), of the quantities that are watched, by name.

    Every scalar, and every coordinate of a small parameter; of a large one its mean, its mean
    square, and the coordinates with the fewest effective draws.

    Args:
        draws: Arrays with a chain and a draw axis, by name.
        judged: Draws by which these coordinates are found; by default the same.
    """
    series: dict[str, np.ndarray] = {}
    for name, array in draws.items():
        shape = array.shape[2:]
        flat = np.reshape(array, (*array.shape[:2], -1))
        d = flat.shape[2]
        if not shape:
            series[name] = flat[:, :, 0].astype(np.float64)
            continue
        coordinates = np.arange(d)
        if d > _SETTINGS.coordinates:
            series[f"mean of {name}"] = flat.mean(2, dtype=np.float64)
            series[f"mean square of {name}"] = np.square(flat, dtype=np.float64).mean(2)
            by = (
                flat
                if judged is None
                else np.reshape(judged[name], (*judged[name].shape[:2], -1))
            )
            coordinates = coordinates[:: -(-d // _SETTINGS.candidates)]
            scarcest = np.argsort(
                [_ess(by[:, :, coordinate].astype(float)) for coordinate in coordinates]
            )[: _SETTINGS.scarcest]
            coordinates = np.sort(coordinates[scarcest])
        for coordinate in coordinates:
            at = ", ".join(str(int(k)) for k in np.unravel_index(coordinate, shape))
            series[f"{name}[{at}]"] = flat[:, :, coordinate].astype(np.float64)
    return series


def _row(coarse: np.ndarray, fine: np.ndarray, factor: float) -> tuple[float, ...]:
    """Return the errors of one quantity and their standard errors.

    The variance is extrapolated: var(0) = var(ε) − factor (var(ε) − var(ε/2)).
    """
    variance, fine_variance = coarse.var(), fine.var()
    if not (variance > 0 and fine_variance > 0):
        return (np.nan,) * len(COLUMNS)
    ess = [_ess(series) for series in (coarse, fine)]
    # The variance of a sample variance is (kurtosis − 1) σ⁴ / ess.
    squares = [(series - series.mean()) ** 2 for series in (coarse, fine)]
    spread = np.hypot(
        *(
            deviations.std() / deviations.mean() / np.sqrt(_ess(deviations))
            for deviations in squares
        )
    )
    remaining = max(
        _SETTINGS.smallest_variance, 1.0 - factor * (1.0 - fine_variance / variance)
    )
    sd = np.sqrt(remaining * variance)
    mean_se = factor * np.sqrt(variance / ess[0] + fine_variance / ess[1]) / sd
    sd_se = 0.5 * factor * fine_variance / variance * spread / remaining**1.5
    return (
        factor * (coarse.mean() - fine.mean()) / sd,
        mean_se,
        1.0 / np.sqrt(remaining) - 1.0,
        sd_se,
        min(ess),
    )


def _ess(series: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ess = float(libraries.arviz().ess(series, method="mean"))
    return ess if np.isfinite(ess) and ess > 0 else 1.0


def _beyond(table: Any, tolerance: float) -> Any:
    """Return whether the error of each mean and each SD exceeds its limit significantly."""
    import pandas as pd

    return pd.DataFrame(
        {
            "mean": table.mean_error.abs()
            > 0.1 + _SETTINGS.standard_errors * table.mean_error_se,
            "sd": table.sd_error.abs()
            > tolerance + _SETTINGS.standard_errors * table.sd_error_se,
        }
    )


def _named(quantity: str) -> str:
    """Return the name of a watched quantity for a sentence."""
    return (
        f"the {quantity}"
        if " of " in quantity or quantity.startswith("log-")
        else quantity
    )


def _warnings(table: Any, tolerance: float) -> list[str]:
    messages = []
    beyond = _beyond(table, tolerance)
    for name, row in table.iterrows():
        if beyond.loc[name, "mean"]:
            messages.append(
                f"The posterior mean of {_named(name)} is off by {row.mean_error:+.2f} SDs "
                f"(± {row.mean_error_se:.2f})."
            )
        if beyond.loc[name, "sd"]:
            messages.append(
                f"The posterior SD of {_named(name)} is off by {row.sd_error:+.1%} "
                f"(± {row.sd_error_se:.1%})."
            )
    blind = table.index[
        (table.sd_error_se > 2 * tolerance) | (table.mean_error_se > 0.2)
    ]
    if len(blind):
        messages.append(
            f"The chains are too short to detect errors of {', '.join(map(str, blind[:3]))}"
            + (f" and {len(blind) - 3} others" if len(blind) > 3 else "")
            + f" from chance: the smallest effective sample size is {table.ess.min():.0f}."
        )
    return messages
