"""Samples every large posterior without constants and holds it to its reference.

Two calls each. The first is what a user writes: its seconds, its effective sample sizes and its
warnings are in the table. The second asks for an effective sample size of 1600, so that errors of
means and SDs can be told from those of Monte Carlo; if the first took long it is judged itself.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.large import references, table
from benchmarks.large.base import Large
from benchmarks.large.collection import POSTERIORS
from benchmarks.posteriors.moments import moments
from benchmarks.report import attempted, measure_each

ESS, LONG = 1600, 120.0


def sampled(posterior: Large, **required: Any) -> sgmcmc.Samples:
    """Return draws, with nothing chosen by hand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sgmcmc.sample(
            posterior.log_lik, dict(posterior.dataset), dict(posterior.params),
            posterior.log_prior, bijectors=dict(posterior.bijectors) or None, seed=1,
            verbose=False, **required,
        )  # fmt: skip


def compare(
    posterior: Large, draws: Mapping[str, np.ndarray], reference: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ratios of SDs and distances of means, with their standard errors, by parameter."""
    found = {}
    for name, array in references.quantities(posterior, draws).items():
        one, other = moments(array), reference[name]
        sd = np.array(other["sd"])
        ratio = np.array(one.sd) / sd
        found[name] = {
            "scalar": int(np.size(posterior.params.get(name, [0, 0]))) == 1,
            "sd_ratio": ratio.tolist(),
            "sd_error": (ratio * np.hypot(one.sd_error, other["sd_error"])).tolist(),
            "mean_away": ((np.array(one.mean) - other["mean"]) / sd).tolist(),
            "mean_error": np.hypot(np.array(one.mean_error) * ratio, other["mean_error"]).tolist(),
            "ess": min(one.ess),
        }
    return found


def measure(name: str, reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything about one posterior."""
    posterior = POSTERIORS[name]()
    began = time.perf_counter()
    samples = sampled(posterior)
    seconds = time.perf_counter() - began
    ess = compare(posterior, dict(samples), reference["of"])
    judged = samples if seconds > LONG else sampled(posterior, ess=ESS)
    return {
        "about": posterior.about,
        "N": posterior.rows,
        "d": posterior.coordinates,
        "seconds": seconds,
        "ess": min(one["ess"] for one in ess.values()),
        "report": json.loads(json.dumps(dict(samples.report), default=str)),
        "warnings": samples.report.warnings,
        "how": reference["how"],
        "judged": compare(posterior, dict(judged), reference["of"]),
        "judged warnings": judged.report.warnings,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="posteriors to measure; all if none is named")
    names = parser.parse_args(arguments).names
    if lacking := [name for name in names or POSTERIORS if name not in references.read()]:
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
