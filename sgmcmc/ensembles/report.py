"""The report of an ensemble: its predictions of rows that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp

from sgmcmc.ensembles.network import Array
from sgmcmc.results.report import Report

_WORSE = 2.0  # standard errors by which a log density is called worse
_BINS = 15  # bins of the probability of the likeliest class

JUDGED = "predictions of held-out rows; weights need not mix"
"""Scores of an ensemble."""


def mixture(log_densities: Array) -> Array:
    """Return log densities of the mixture of all draws, of those of each draw and row."""
    return logsumexp(log_densities, 0) - np.log(len(log_densities))


def judged(
    trained: Array,
    sampled: Array,
    calibration: Mapping[str, Any],
    chain: Mapping[str, Any],
    remarks: Sequence[str] = (),
) -> Report:
    """Return the report of an ensemble.

    Args:
        trained: Log density of each held-out row for each member as it was trained, (M, n).
        sampled: Log density of each held-out row at each draw, (draws, n).
        calibration: Facts on calibration and on the disagreement of members.
        chain: Facts on the chains.
        remarks: Warnings on calibration.
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
    warnings += remarks
    facts = {
        "judged by": JUDGED,
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
            "Held out": facts,
            "Chain": chain,
            "warnings": warnings,
        }
    )


def clearly_worse(log_density: Array, reference: Array) -> bool:
    """Return whether log densities of the same rows are lower by more than two standard errors."""
    mean, error = _mean_and_error(log_density - reference)
    return not mean >= -_WORSE * error


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
    bin_number = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bin_number, sure, _BINS) - np.bincount(bin_number, right, _BINS)
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
