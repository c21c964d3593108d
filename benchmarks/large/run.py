"""Samples every large posterior without constants and holds it to its reference.

Two calls each. The first is what a user writes: its seconds, its effective sample sizes and its
warnings are in the table. The second asks for an effective sample size of 1600, so that errors of
means and SDs can be told from those of Monte Carlo; if the first took long it is judged itself.
With `--nuts`, NumPyro's NUTS runs instead, until its worst scalar has the effective sample size
that `sample` ends at by default; its seconds are kept with the rest. Rows of the table that are not
measured stay as they are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sgmcmc
from benchmarks import machine
from benchmarks.client import output_of
from benchmarks.environments import HERE, interpreter
from benchmarks.large import references, table
from benchmarks.large.base import Large
from benchmarks.large.collection import POSTERIORS
from benchmarks.posteriors.moments import moments
from benchmarks.report import attempted, measure_each

ESS, LONG = 1600, 120.0
NUTS_ESS, NUTS_SECONDS, NUTS_START = 400, 600.0, 60.0
"""What NumPyro's NUTS should reach, its processor seconds, and the seconds until it samples."""


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
            "mean_error": np.hypot(
                np.array(one.mean_error) * ratio, other["mean_error"]
            ).tolist(),
            "ess": min(one.ess),
        }
    return found


def nuts_of_numpyro(name: str, posterior: Large) -> dict[str, float]:
    """Return seconds, processor seconds and effective sample size of NumPyro's NUTS."""
    about = {
        "name": name, "positive": sorted(posterior.bijectors), "ess": NUTS_ESS,
        "most": NUTS_SECONDS,
    }  # fmt: skip
    arrays = {
        f"data:{key}": np.asarray(value) for key, value in posterior.dataset.items()
    }
    arrays |= {
        f"start:{key}": np.asarray(v, float) for key, v in posterior.params.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        request = Path(folder) / "request.npz"
        np.savez(request, about=json.dumps(about), **arrays)
        script = str(HERE / "large" / "with_numpyro.py")
        most = NUTS_START + NUTS_SECONDS / min(
            machine.cores(), 2
        )  # two chains in parallel
        said = output_of(interpreter("numpyro"), script, str(request), timeout=most)
    return json.loads(said)


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


def with_nuts(name: str) -> dict[str, Any]:
    """Return what is known of a posterior, and what NumPyro's NUTS takes."""
    found = attempted(nuts_of_numpyro, name, POSTERIORS[name]())
    return {**table.read()["posteriors"].get(name, {}), "NUTS": found}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="posteriors to measure; all if none is named"
    )
    parser.add_argument(
        "--nuts", action="store_true", help="NumPyro's NUTS, kept with the rest"
    )
    options = parser.parse_args(arguments)
    # A signal ends other packages' processes, too, as an error does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = options.names
    if lacking := [
        name for name in names or POSTERIORS if name not in references.read()
    ]:
        references.main(lacking)
    known = references.read()

    def one(name: str) -> dict[str, Any]:
        if options.nuts:
            return with_nuts(name)
        found = {
            "date": datetime.date.today().isoformat(),
            **attempted(measure, name, known[name]),
        }
        before = table.read()["posteriors"].get(name, {})
        return {**found, **{key: before[key] for key in ("NUTS",) if key in before}}

    results = measure_each(
        table.RESULTS, "posteriors", names or POSTERIORS, one, table.line
    )
    table.write(results)


if __name__ == "__main__":
    main()
