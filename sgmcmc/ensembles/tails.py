"""Tails of predictive densities, judged by the responses of held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln
from scipy.stats import poisson

from sgmcmc.ensembles.network import Array
from sgmcmc.ensembles.report import mixture

FAR = 5.0
"""Predicted SDs beyond which a response is far away."""


@dataclass(frozen=True)
class _Settings:
    rare: float = (
        1e-3  # probability of as many rows far away below which they are too many
    )
    clear_errors: float = (
        2.0  # standard errors by which another density is clearly better
    )
    smallest_gain: float = (
        0.01  # gain of a row in log density that is worth another density
    )
    degrees: tuple[float, ...] = (
        3.0,
        4.0,
        6.0,
        10.0,
        20.0,
    )  # degrees of freedom that are tried
    # Factors of the predicted SDs that are tried
    scales: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    draws: int = 50  # largest number of draws that are used
    rows: int = 10_000  # largest number of rows to which Student's t is fitted


_SETTINGS = _Settings()


def judge_tails(
    y: Array, means: Array, scales: Array, sds: Array, far: float, student: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return facts and warnings on the tails.

    Args:
        y: Responses of held-out rows, (n,).
        means: Means at each draw, (draws, n).
        scales: Scales at each draw, (draws, n).
        sds: SDs of the mixture, (n,).
        far: Probability of a response beyond :data:`FAR` SDs.
        student: Whether the likelihood is Student's already.
    """
    count = int((np.abs(y - means.mean(0)) > FAR * sds).sum())
    expected = far * len(y)
    facts: dict[str, Any] = {
        f"rows beyond {FAR:g} predicted SDs": count,
        f"rows expected beyond {FAR:g} predicted SDs": expected,
    }
    many = bool(poisson.sf(count - 1, expected) < _SETTINGS.rare)
    finding = (
        f"{count} of {len(y)} held-out rows lie more than {FAR:g} predicted SDs away, where "
        f"{expected:.2g} are expected"
    )
    if student:
        warnings = [f"{finding}: look at these rows."] if many else []
        return facts, warnings
    degrees, gain, error = student_gain(y, means, scales)
    facts["gain by Student's t, a row"] = [gain - error, gain + error]
    facts["degrees of freedom of Student's t"] = degrees
    if many and gain > 0:
        return facts, [
            f"{finding}: the tails of the normal distribution are too light. Use "
            f'`likelihood="student"`; with {degrees:g} degrees of freedom the log density of these '
            f"rows is higher by {gain:.3f} ± {error:.3f}."
        ]
    if gain > max(_SETTINGS.smallest_gain, _SETTINGS.clear_errors * error):
        return facts, [
            f"Student's t with {degrees:g} degrees of freedom has a log density of held-out rows "
            f"that is higher by {gain:.3f} ± {error:.3f} than the normal distribution: use "
            '`likelihood="student"`.'
        ]
    return facts, []


def student_gain(y: Array, means: Array, scales: Array) -> tuple[float, float, float]:
    """Return the best degrees of freedom, and the gain in log density by Student's t.

    The normal densities of the draws are replaced by Student's with the same means and with scales
    that are multiplied by one number.

    Args:
        y: Responses, (n,).
        means: Means at each draw, (draws, n).
        scales: Scales at each draw, (draws, n).

    Returns:
        Degrees of freedom, mean gain of a row, and its standard error.
    """
    some = slice(None, None, -(-len(means) // _SETTINGS.draws)), slice(_SETTINGS.rows)
    y, means, scales = y[: _SETTINGS.rows], means[some], scales[some]
    u, logs = (y - means) / scales, np.log(scales)
    normal = mixture(-0.5 * u**2 - logs - 0.5 * np.log(2 * np.pi))
    best = _SETTINGS.degrees[-1], -np.inf, 0.0
    for degrees in _SETTINGS.degrees:
        height = (
            gammaln((degrees + 1) / 2)
            - gammaln(degrees / 2)
            - 0.5 * np.log(degrees * np.pi)
        )
        for scale in _SETTINGS.scales:
            terms = height - 0.5 * (degrees + 1) * np.log1p((u / scale) ** 2 / degrees)
            gains = mixture(terms - logs - np.log(scale)) - normal
            if gains.mean() > best[1]:
                best = (
                    degrees,
                    float(gains.mean()),
                    float(gains.std() / np.sqrt(len(y))),
                )
    return best
