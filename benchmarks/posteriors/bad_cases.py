"""Chains with bad constants, and what their reports warn of: `--help` tells more.

Stepsizes 30 and 100 times too large and too small, a mode that was not found because of
`opt_stepsize=1e-9`, and a start 1000 posterior SDs away, each for several samplers and posteriors.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.environments import HERE
from benchmarks.posteriors import references
from benchmarks.posteriors.base import Posterior
from benchmarks.posteriors.families import POSTERIORS
from benchmarks.posteriors.run import compare, flat
from benchmarks.report import publish, table

RESULTS = HERE / "results-bad-cases.json"
DOCUMENT = HERE.parent / "docs" / "posteriors.md"
NAMES = ("anes96-logit", "fair-logit", "randhie-logit")
METHODS = ("sgldcv", "sghmccv", "sgld", "sghmc")
FACTORS = (1.0, 30.0, 100.0, 1 / 30, 1 / 100)
FAR = 1000.0
SD, MEAN = 0.1, 0.2
"""Errors of an sd, and of a mean in SDs, from which draws are called wrong: with 400 effective
draws the worst of ten right SDs may be 0.1 off."""


def chain(method: str, posterior: Posterior, **given: Any) -> sgmcmc.Samples:
    """Run four chains in whitened coordinates, so that only what is given can be bad."""
    arguments: dict[str, Any] = {
        "preconditioner": "dense",
        "stepsize": "auto",
        "params": None,
    }
    if method.endswith("cv"):
        arguments |= {"opt_stepsize": "auto", "minibatches": "leverage"}
    arguments |= given
    params = arguments.pop("params") or dict(posterior.params)
    return getattr(sgmcmc, method)(
        posterior.log_lik,
        dict(posterior.dataset),
        params,
        log_prior=posterior.log_prior,
        minibatch_size=min(500, posterior.rows // 2),
        n_iters=5000,
        burn_in=500,
        n_chains=4,
        seed=1,
        verbose=False,
        **arguments,
    )


def cases(
    method: str, stepsize: float, reference: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return what is given in each case."""
    found: dict[str, dict[str, Any]] = {}
    for factor in FACTORS:
        name = (
            f"stepsize × {factor:g}" if factor >= 1 else f"stepsize ÷ {1 / factor:.0f}"
        )
        found[name] = {"stepsize": factor * stepsize}
    far = {
        "params": {
            "beta": np.array(reference["mean"]) + FAR * np.array(reference["sd"])
        }
    }
    if method.endswith("cv"):
        found["opt_stepsize = 1e-9"] = {"stepsize": stepsize, "opt_stepsize": 1e-9}
        found["start 1000 SDs away, opt_stepsize = 1e-9"] = {
            "stepsize": stepsize,
            "opt_stepsize": 1e-9,
            **far,
        }
    found["start 1000 SDs away"] = {"stepsize": stepsize, **far}
    return found


def judged(
    method: str,
    posterior: Posterior,
    reference: Mapping[str, Any],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """Return how far off draws are, and what their report warns of."""
    began = time.perf_counter()
    try:
        samples = chain(method, posterior, **given)
    except sgmcmc.DivergenceError as error:
        return {"warnings": [f"DivergenceError: {error}"]}
    found = compare(flat(samples, posterior), dict(reference))
    ratio, away = np.array(found["sd_ratio"]), np.abs(found["mean_away"])
    return {
        "sd": float(ratio[np.abs(np.log(ratio)).argmax()]),
        "mean": float(away.max()),
        "ess": found["ess"],
        "rhat": found["rhat"],
        "predicted": _predicted(samples.report, int(np.abs(np.log(ratio)).argmax())),
        "warnings": samples.report.warnings if samples.report else [],
        "seconds": time.perf_counter() - began,
    }


def _predicted(report: Any, place: int) -> float | None:
    """Return the predicted ratio of the sd of a coordinate, if there is a prediction."""
    errors = (report or {}).get("Predicted", {}).get("SD error (noise along the chain)")
    return 1.0 + errors[place] if isinstance(errors, list) else None


def measure(name: str, method: str) -> dict[str, Any]:
    """Return all cases of a sampler on a posterior."""
    posterior, reference = POSTERIORS[name](), references.read()[name]
    right = chain(method, posterior)
    stepsize = right.report["Chain"]["stepsize"]
    found = {}
    for case, given in cases(method, stepsize, reference).items():
        found[case] = judged(method, posterior, reference, given)
        print(f"{name} {method} {case}: {_line(found[case])}", flush=True)
    return found


def wrong(result: Mapping[str, Any]) -> bool:
    """Tell whether draws are wrong; those of a chain that diverged count as such."""
    return "sd" not in result or abs(result["sd"] - 1.0) > SD or result["mean"] > MEAN


def _line(result: Mapping[str, Any]) -> str:
    numbers = "diverged"
    if "sd" in result:
        numbers = (
            f"sd {result['sd']:.3g}, mean {result['mean']:.2g}, ESS {result['ess']:.0f}"
        )
    verdict = "wrong" if wrong(result) else "right"
    if result.get("predicted"):
        numbers += f", predicted sd {result['predicted']:.3g}"
    return f"{verdict}, {numbers} {' ! '.join(['', *result['warnings']])}"


def write(results: Mapping[str, Any]) -> None:
    """Put the table into its document."""
    rows = []
    named = unnamed = 0
    for name, by_method in results.items():
        for method, by_case in by_method.items():
            for case, result in by_case.items():
                bad, said = wrong(result), bool(result["warnings"])
                named, unnamed = named + (bad and said), unnamed + (bad and not said)
                numbers = ["diverged", "", "", ""]
                if "sd" in result:
                    predicted = result.get("predicted")
                    numbers = [
                        f"{result['sd']:.3g}",
                        f"{predicted:.3g}" if predicted else "—",
                    ]
                    numbers += [f"{result['mean']:.2g}", f"{result['ess']:.0f}"]
                first = (
                    result["warnings"][0].split(". ")[0].rstrip(".") if said else "none"
                )
                more = len(result["warnings"]) - 1
                text = f"{first} (and {more} more)" if more > 0 else first
                rows.append(
                    [name, method, case, *numbers, "wrong" if bad else "right", text]
                )
    head = [
        "posterior",
        "sampler",
        "case",
        "worst SD ratio",
        "predicted for it",
        "worst mean, SDs",
    ]
    head += ["ESS", "draws"]
    text = (
        f"Of {named + unnamed} chains with wrong draws {named} are named by a warning."
    )
    publish("bad-cases", [text, table([*head, "first warning"], rows)], False, DOCUMENT)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="*", default=NAMES)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    options = parser.parse_args(arguments)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.names:
        for method in options.methods:
            results.setdefault(name, {})[method] = measure(name, method)
            RESULTS.write_text(json.dumps(results, indent=1))
    write(results)


if __name__ == "__main__":
    main()
