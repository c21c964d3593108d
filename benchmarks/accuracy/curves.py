"""Errors of posterior SDs against seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.posteriors.moments import moments

_PLACES = 16


@dataclass(frozen=True)
class Run:
    """What a package gave.

    Attributes:
        draws: (chain, draw, coordinate).
        before: seconds from the call until the first draw that was kept.
        seconds: from then to the last.
        warnings: what the package said against the draws.
    """

    draws: np.ndarray
    before: float
    seconds: float
    warnings: list[str] = field(default_factory=list)


def summarized(run: Run, reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end of a run in numbers, and the way there.

    Returns:
        seconds: in all.
        ess: the smallest effective sample size, bulk or tail, of all coefficients; and the median.
        worst, median: |sd / reference - 1|, of the worst coefficient and in the median.
        mean: distance of the worst mean, in SDs.
        curve: (seconds, median, worst) at some places along the run.
    """
    found = moments(run.draws)
    sd, center = np.array(reference["sd"]), np.array(reference["mean"])
    errors = np.abs(np.array(found.sd) / sd - 1.0)
    allowed = 3 * np.hypot(found.sd_error, reference["sd_error"])
    length = run.draws.shape[1]
    curve = []
    for k in np.unique(np.geomspace(min(20, length), length, _PLACES).astype(int)):
        gap = np.abs(run.draws[:, :k].std((0, 1), dtype=np.float64) / sd - 1.0)
        at = run.before + run.seconds * k / length
        curve.append([float(at), float(np.median(gap)), float(gap.max())])
    return {
        "seconds": run.before + run.seconds,
        "ess": float(min(found.ess)),
        "ess_median": float(np.median(found.ess)),
        "rhat": float(max(found.rhat)),
        "worst": float(errors.max()),
        "beyond": float((errors - allowed).max()),
        "median": float(np.median(errors)),
        "mean": float(np.abs((np.array(found.mean) - center) / sd).max()),
        "warnings": run.warnings,
        "curve": curve,
    }
