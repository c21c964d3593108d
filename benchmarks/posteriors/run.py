"""Samples every posterior without constants and holds it to its reference: `--help` tells more.

Two calls each. The first is what a user writes: its seconds, its effective sample sizes and its
warnings are in the table. The second asks for an effective sample size of 4000, so that errors of
means and SDs can be told from those of Monte Carlo; the constants are the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.posteriors import references, table
from benchmarks.posteriors.base import Posterior
from benchmarks.posteriors.families import POSTERIORS
from benchmarks.posteriors.moments import moments
from benchmarks.report import attempted, measure_each

ESS, SECONDS = 4000, 60.0


def sampled(posterior: Posterior, **required: Any) -> sgmcmc.Samples:
    """Return draws, with nothing chosen by hand."""
    given: dict[str, Any] = {
        "dtype": posterior.dtype,
        "bijectors": dict(posterior.bijectors),
    }
    return sgmcmc.sample(
        posterior.log_lik,
        dict(posterior.dataset),
        dict(posterior.params),
        posterior.log_prior,
        seed=1,
        verbose=False,
        **{name: value for name, value in given.items() if value},
        **required,
    )


def flat(samples: sgmcmc.Samples, posterior: Posterior) -> np.ndarray:
    """Return draws as (chain, draw, coordinate)."""
    arrays = [np.asarray(samples[name], np.float64) for name in posterior.params]
    return np.concatenate([np.reshape(a, (*a.shape[:2], -1)) for a in arrays], 2)


def compare(draws: np.ndarray, reference: dict[str, Any]) -> dict[str, Any]:
    """Return ratios of SDs and distances of means, with their standard errors."""
    found = moments(draws)
    sd = np.array(reference["sd"])
    ratio = np.array(found.sd) / sd
    away = (np.array(found.mean) - reference["mean"]) / sd
    return {
        "sd_ratio": ratio.tolist(),
        "sd_error": (ratio * np.hypot(found.sd_error, reference["sd_error"])).tolist(),
        "mean_away": away.tolist(),
        "mean_error": np.hypot(
            np.array(found.mean_error) * ratio, reference["mean_error"]
        ).tolist(),
        "ess": min(found.ess),
        "rhat": max(found.rhat),
    }


def measure(name: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Return everything about one posterior."""
    posterior = POSTERIORS[name]()
    began = time.perf_counter()
    samples = sampled(posterior, max_seconds=SECONDS)
    seconds = time.perf_counter() - began
    first = moments(flat(samples, posterior))
    long = sampled(posterior, ess=ESS, max_seconds=SECONDS)
    return {
        "about": posterior.about,
        "N": posterior.rows,
        "d": len(first.mean),
        "seconds": seconds,
        "ess": min(first.ess),
        "rhat": max(first.rhat),
        "report": dict(samples.report),
        "warnings": samples.report.warnings,
        "long": {
            **compare(flat(long, posterior), reference),
            "warnings": long.report.warnings,
            "report": dict(long.report),
        },
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="posteriors to measure; all if none is named"
    )
    names = parser.parse_args(arguments).names
    known = references.read()
    if lacking := [name for name in names or POSTERIORS if name not in known]:
        references.main(lacking)
        known = references.read()
    results = measure_each(
        table.RESULTS, "posteriors", names or POSTERIORS,
        lambda name: attempted(measure, name, known[name]), table.line,
    )  # fmt: skip
    if not names:
        table.write(results)


if __name__ == "__main__":
    main()
