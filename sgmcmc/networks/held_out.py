"""Predictions of held-out rows: the report of an ensemble, calibration, and tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import poisson

from sgmcmc.networks.training import Array
from sgmcmc.results.report import Report, Section

FAR = 5.0
"""Predicted SDs beyond which a response is far away."""


@dataclass(frozen=True)
class _Settings:
    worse: float = 2.0  # standard errors by which a log density is called worse
    bins: int = 15  # of the probability of the likeliest class
    rare: float = 1e-3  # probability of so many rows far away that they are too many
    clear_errors: float = 2.0  # standard errors by which a density is clearly better
    smallest_gain: float = 0.01  # of a row in log density, worth another density
    degrees: tuple[float, ...] = (3.0, 4.0, 6.0, 10.0, 20.0)  # of freedom to try
    scales: tuple[float, ...] = (
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1.0,
    )  # of predicted SDs to try
    draws: int = 50  # that a comparison with Student's t uses, at most
    rows: int = 10_000  # to which Student's t is fitted, at most


_SETTINGS = _Settings()

JUDGED = "predictions of held-out rows; weights need not mix"
"""Scores of an ensemble."""

_MAY_BE_SEEN = f"{JUDGED}; the given weights may have been trained on these rows"


def mixture(log_densities: Array) -> Array:
    """Return log densities of the mixture of all draws, of those of each draw and row."""
    return logsumexp(log_densities, 0) - np.log(len(log_densities))


def judged(
    trained: Array,
    sampled: Array,
    calibration: Mapping[str, Any],
    chain: Mapping[str, Any],
    remarks: Sequence[str] = (),
    may_be_seen: bool = False,
) -> Report:
    """Return the report of an ensemble.

    Args:
        trained: Log density of each held-out row for each member as it was trained, (M, n).
        sampled: Log density of each held-out row at each draw, (draws, n).
        calibration: Facts on calibration and on the disagreement of members.
        chain: Facts on the chains.
        remarks: Warnings on calibration.
        may_be_seen: Whether the members may have been trained on the held-out rows.
    """
    ensemble, draws = mixture(trained), mixture(sampled)
    best = trained[trained.mean(1).argmax()]
    over_best, over_ensemble = (
        _mean_and_error(draws - reference) for reference in (best, ensemble)
    )
    warnings = []
    if not np.isfinite(draws).all():
        warnings.append(
            "Draws became NaN or infinite: use a smaller `prior_scale`, or fewer `n_iters`."
        )
    elif clearly_worse(draws, ensemble):
        warnings.append(
            f"Sampling made held-out predictions worse, by {-over_ensemble[0]:.3f} ± "
            f"{over_ensemble[1]:.3f} a row in log density: use more `n_iters`, or a smaller "
            "`prior_scale`."
        )
        if may_be_seen:
            warnings[-1] += (
                " With `epochs=0` this is so, too, of a network that was trained on these rows."
            )
    warnings += remarks
    facts = {
        "judged by": _MAY_BE_SEEN if may_be_seen else JUDGED,
        "rows": trained.shape[1],
        "log density, best member": float(best.mean()),
        "log density, trained members together": float(ensemble.mean()),
        "log density, draws": float(draws.mean()),
        "gain over the best member, a row": _range(*over_best),
        "gain by sampling, a row": _range(*over_ensemble),
        **calibration,
    }
    return Report(
        {
            "method": "ensemble of networks",
            Section.HELD_OUT: facts,
            Section.CHAIN: chain,
            Section.WARNINGS: warnings,
        }
    )


def clearly_worse(log_density: Array, reference: Array) -> bool:
    """Return whether log densities of the same rows are lower by more than two standard errors."""
    mean, error = _mean_and_error(log_density - reference)
    return not mean >= -_SETTINGS.worse * error


def _mean_and_error(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def _range(mean: float, error: float) -> list[float]:
    return [mean - error, mean + error]


def calibration_error(probabilities: Array, codes: Array) -> float:
    """Return the expected calibration error, over bins of the likeliest class's probability.

    Σ_b (n_b / n) |mean probability in b − share of b that is right|.

    Args:
        probabilities: Probability of each class, (n, classes).
        codes: Number of the class of each row, (n,).
    """
    sure, right = probabilities.max(1), probabilities.argmax(1) == codes
    bins = _SETTINGS.bins
    bin_number = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_number, sure, bins) - np.bincount(bin_number, right, bins)
    return float(np.abs(gaps).sum() / len(codes))


def uniformity_error(ranks: Array) -> float:
    """Return the mean gap between nominal and observed coverage of central intervals.

    Args:
        ranks: Predictive CDF at each response, (n,); uniform if the predictions are calibrated.
    """
    nominal = np.arange(1, 20) / 20
    covered = (np.abs(2 * ranks - 1)[:, np.newaxis] <= nominal).mean(0)
    return float(np.abs(covered - nominal).mean())


def classes_judged(probabilities: Array, codes: Array, members: int) -> dict[str, Any]:
    """Return calibration and disagreement of predicted probabilities.

    Args:
        probabilities: By draw, (draws, n, classes), the draws of a member in a row.
        codes: Number of the class of each row.
        members: Number of members.
    """
    by_member = probabilities.reshape(members, -1, *probabilities.shape[1:]).mean(1)
    return {
        "expected calibration error": calibration_error(probabilities.mean(0), codes),
        "disagreement of members, SD of a probability": float(by_member.std(0).mean()),
    }


@dataclass(frozen=True)
class PredictiveMoments:
    """Moments of predicted responses, at each draw.

    Attributes:
        means: Means, (draws, n).
        scales: Scales, (draws, n).
        variances: Variances of a response, (draws, n).
    """

    means: Array
    scales: Array
    variances: Array

    @property
    def variance(self) -> Array:
        """Variance of the mixture of all draws, (n,)."""
        return self.variances.mean(0) + self.means.var(0)


def judge_tails(
    y: Array, moments: PredictiveMoments, far: float, student: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return facts and warnings on the tails.

    Args:
        y: Responses of held-out rows, (n,).
        moments: Moments of their predictions.
        far: Probability of a response beyond :data:`FAR` SDs.
        student: Whether the likelihood is Student's already.
    """
    residuals = y - moments.means.mean(0)
    count = int((np.abs(residuals) > FAR * np.sqrt(moments.variance)).sum())
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
    degrees, gain, error = student_gain(y, moments.means, moments.scales)
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
    every = -(-len(means) // _SETTINGS.draws)
    rows = slice(_SETTINGS.rows)
    y, means, scales = y[rows], means[::every, rows], scales[::every, rows]
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
                best = degrees, *_mean_and_error(gains)
    return best
