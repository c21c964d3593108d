"""Measured errors of means and SDs: draws at a stepsize against draws at half of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc import libraries

if TYPE_CHECKING:
    import pandas as pd

_EACH = 20
"""Largest number of coordinates of a parameter for which each is watched."""

_LOOKED_AT = 200
"""Number of watched coordinates of a parameter with more."""

_WORST = 5
"""Coordinates watched of these, those with the fewest effective draws."""

_LEAST = 0.05
"""Least fraction of a variance that remains after its error is subtracted."""

_SURE = 2.0
"""Monte Carlo standard errors beyond the tolerance at which an error is reported."""

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
        said = [f"  ! {warning}" for warning in self.warnings] or [
            "  no error beyond the tolerance"
        ]
        return "\n".join([f"{self.table.round(3)}", *said])


def measured_error(
    draws: Mapping[str, np.ndarray],
    at_half: Mapping[str, np.ndarray],
    factor: float,
    tolerance: float,
    samples_at_half: Any,
) -> MeasuredError:
    """Return the errors of draws.

    Args:
        draws: Arrays with a chain and a draw axis, by name.
        at_half: The same of chains at half the stepsize.
        factor: Factor that turns the difference of the two into the error.
        tolerance: Largest accepted relative error of an SD.
        samples_at_half: Samples to return.
    """
    return compared(watched(draws, at_half), watched(at_half), factor, tolerance, samples_at_half)


def compared(
    one: Mapping[str, np.ndarray],
    other: Mapping[str, np.ndarray],
    factor: float,
    tolerance: float,
    samples_at_half: Any,
) -> MeasuredError:
    """Return the errors of quantities, (chains, draws) by name, given others at half the stepsize.

    Those of ``one`` that ``other`` has too are compared.
    """
    import pandas as pd

    rows = {name: _row(one[name], other[name], factor) for name in one if name in other}
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
    found: dict[str, np.ndarray] = {}
    for name, array in draws.items():
        shape = array.shape[2:]
        flat = np.reshape(array, (*array.shape[:2], -1))
        d = flat.shape[2]
        if not shape:
            found[name] = flat[:, :, 0].astype(np.float64)
            continue
        places = np.arange(d)
        if d > _EACH:
            found[f"mean of {name}"] = flat.mean(2, dtype=np.float64)
            found[f"mean square of {name}"] = np.square(flat, dtype=np.float64).mean(2)
            by = flat if judged is None else np.reshape(judged[name], (*judged[name].shape[:2], -1))
            places = places[:: -(-d // _LOOKED_AT)]
            least = np.argsort([_ess(by[:, :, place].astype(float)) for place in places])[:_WORST]
            places = np.sort(places[least])
        for place in places:
            at = ", ".join(str(int(k)) for k in np.unravel_index(place, shape))
            found[f"{name}[{at}]"] = flat[:, :, place].astype(np.float64)
    return found


def _row(one: np.ndarray, other: np.ndarray, factor: float) -> tuple[float, ...]:
    """Return the errors of one quantity and their standard errors.

    The variance is extrapolated: var(0) = var(ε) − factor (var(ε) − var(ε/2)).
    """
    variance, at_half = one.var(), other.var()
    if not (variance > 0 and at_half > 0):
        return (np.nan,) * len(COLUMNS)
    ess = [_ess(series) for series in (one, other)]
    # The variance of a sample variance is (kurtosis − 1) σ⁴ / ess.
    squares = [(series - series.mean()) ** 2 for series in (one, other)]
    spread = np.hypot(*(each.std() / each.mean() / np.sqrt(_ess(each)) for each in squares))
    left = max(_LEAST, 1.0 - factor * (1.0 - at_half / variance))
    sd = np.sqrt(left * variance)
    mean_se = factor * np.sqrt(variance / ess[0] + at_half / ess[1]) / sd
    sd_se = 0.5 * factor * at_half / variance * spread / left**1.5
    return (
        factor * (one.mean() - other.mean()) / sd, mean_se, 1.0 / np.sqrt(left) - 1.0, sd_se,
        min(ess),
    )  # fmt: skip


def _ess(series: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = float(libraries.arviz().ess(series, method="mean"))
    return found if np.isfinite(found) and found > 0 else 1.0


def _beyond(table: Any, tolerance: float) -> Any:
    """Return whether the error of each mean and each SD exceeds its limit significantly."""
    import pandas as pd

    return pd.DataFrame(
        {
            "mean": table.mean_error.abs() > 0.1 + _SURE * table.mean_error_se,
            "sd": table.sd_error.abs() > tolerance + _SURE * table.sd_error_se,
        }
    )


def _named(quantity: str) -> str:
    """Return the name of a watched quantity for a sentence."""
    return f"the {quantity}" if " of " in quantity or quantity.startswith("log-") else quantity


def _warnings(table: Any, tolerance: float) -> list[str]:
    """Return sentences on the quantities that are off."""
    found = []
    beyond = _beyond(table, tolerance)
    for name, row in table.iterrows():
        if beyond.loc[name, "mean"]:
            found.append(
                f"The posterior mean of {_named(name)} is off by {row.mean_error:+.2f} SDs "
                f"(± {row.mean_error_se:.2f})."
            )
        if beyond.loc[name, "sd"]:
            found.append(
                f"The posterior SD of {_named(name)} is off by {row.sd_error:+.1%} "
                f"(± {row.sd_error_se:.1%})."
            )
    blind = table.index[(table.sd_error_se > 2 * tolerance) | (table.mean_error_se > 0.2)]
    if len(blind):
        found.append(
            f"The chains are too short to detect errors of {', '.join(map(str, blind[:3]))}"
            + (f" and {len(blind) - 3} others" if len(blind) > 3 else "")
            + f" from chance: the smallest effective sample size is {table.ess.min():.0f}."
        )
    return found
