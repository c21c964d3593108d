"""What is measured: functions that yield a row for each posterior, regression or chain."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import sgmcmc

ESS = 1600
"""Effective sample size of the calls whose errors are judged."""

LARGE = (
    "nested-normal-5", "nested-normal-100", "nested-logistic-10", "nested-logistic-10-centered",
    "nested-poisson-5", "nested-poisson-100-centered", "crossed-logistic", "classes-in-schools",
    "slopes-poisson", "wide-logistic-600", "wide-normal-500-million", "rare-poisson-million",
    "robust-million",
)  # fmt: skip
"""Large posteriors whose first call takes less than half a minute."""


@dataclass(frozen=True)
class Row:
    """What one call costs, and how far it is from its reference.

    Attributes:
        work: Processor seconds of the call, in those of a fixed piece of work right before and
            after, so that numbers of a busy machine, or of another one, can be compared.
        sd, sd_error: Worst ratio of an SD to that of the reference, and its standard error.
        mean, mean_error: Worst distance of a mean in SDs, and its standard error.
        warnings: Warnings of the report.
    """

    work: float
    sd: float = 1.0
    sd_error: float = 0.0
    mean: float = 0.0
    mean_error: float = 0.0
    warnings: list[str] = field(default_factory=list)


Rows = Iterator[tuple[str, dict[str, Any]]]


def unit() -> float:
    """Return the processor seconds of a piece of Python and of a product of matrices."""
    matrix = np.random.default_rng(1).normal(size=(400, 400))
    begin = time.process_time()
    found: dict[int, str] = {}
    for k in range(150_000):
        found[k % 1000] = str(k)
    for _ in range(6):
        matrix @ matrix
    return time.process_time() - begin


def worked(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and its processor seconds in those of a piece of work."""
    before, begin = unit(), time.process_time()
    found = call()
    seconds = time.process_time() - begin
    return found, seconds / (0.5 * (before + unit()))


def judged(compared: Mapping[str, Any], work: float, warnings: list[str]) -> Row:
    """Return a row of ratios of SDs and distances of means, with their errors."""
    ratio, away = np.array(compared["sd_ratio"]), np.abs(compared["mean_away"])
    worst, farthest = int(np.abs(np.log(ratio)).argmax()), int(away.argmax())
    return Row(
        work,
        float(ratio[worst]), float(compared["sd_error"][worst]),
        float(away[farthest]), float(compared["mean_error"][farthest]),
        warnings,
    )  # fmt: skip


def posteriors(names: list[str]) -> Rows:
    """Yield the posteriors of `make bench-posteriors`."""
    from benchmarks.posteriors import references
    from benchmarks.posteriors.families import POSTERIORS
    from benchmarks.posteriors.run import SECONDS, compare, flat, sampled

    known = references.read()
    for name in names or POSTERIORS:
        model = POSTERIORS[name]()
        first, work = worked(lambda model=model: sampled(model, max_seconds=SECONDS))
        long = sampled(model, ess=ESS, max_seconds=SECONDS)
        found = compare(flat(long, model), known[name])
        yield name, asdict(judged(found, work, list(first.report.warnings)))


def mixed(names: list[str]) -> Rows:
    """Yield the mixed models of `make bench-mixed`."""
    from benchmarks.mixed import references
    from benchmarks.mixed.designs import DESIGNS
    from benchmarks.mixed.models import Mixed
    from benchmarks.mixed.run import compare, flat, sampled

    known = references.read()
    for name in names or DESIGNS:
        model = Mixed(DESIGNS[name])
        first, work = worked(lambda model=model: sampled(model))
        long = sampled(model, ess=ESS)
        found = compare(flat(model, long), dict(known[name]))
        yield name, asdict(judged(found, work, list(first.report.warnings)))


def families(names: list[str]) -> Rows:
    """Yield the regressions of `make bench-regressions`."""
    import json

    from benchmarks.regressions.cases import CASES
    from benchmarks.regressions.families import FILE

    known = json.loads(FILE.read_text())
    for name in names or CASES:
        case = CASES[name]

        def fitted(case: Any = case, **more: Any) -> Any:
            return sgmcmc.glm(
                case.formula, case.data(), case.family, link=case.link, seed=1, verbose=False,
                **more,
            )  # fmt: skip

        first, work = worked(fitted)
        table, terms = fitted(ess=ESS).summary(), known[name]["terms"]
        wide = [table["error"][term] / about["sd"] for term, about in terms.items()]
        away = [
            (table["estimate"][term] - about["mean"]) / about["sd"] for term, about in terms.items()
        ]
        least = [min(table["ess_bulk"][term], about["ess"]) for term, about in terms.items()]
        compared = {
            "sd_ratio": wide, "mean_away": away,
            "sd_error": (np.array(wide) / np.sqrt(np.array(least))).tolist(),
            "mean_error": (np.sqrt(2.0) / np.sqrt(np.array(least))).tolist(),
        }  # fmt: skip
        yield name, asdict(judged(compared, work, list(first.warnings)))


def large(names: list[str]) -> Rows:
    """Yield the large posteriors of `make bench-large` that take less than half a minute."""
    from benchmarks.large import references
    from benchmarks.large.collection import POSTERIORS
    from benchmarks.large.run import compare, sampled

    known = references.read()
    for name in names or LARGE:
        model = POSTERIORS[name]()
        samples, work = worked(lambda model=model: sampled(model))
        by_name = compare(model, dict(samples), known[name]["of"])
        # Of thousands of coordinates some are far by chance: the worst of all says little.
        scalars = [one for one in by_name.values() if one["scalar"]] or [
            {key: [float(np.median(one[key]))] for key in one if key not in ("scalar", "ess")}
            for one in by_name.values()
        ]
        keys = ("sd_ratio", "sd_error", "mean_away", "mean_error")
        compared = {key: [one[key][0] for one in scalars] for key in keys}
        yield name, asdict(judged(compared, work, list(samples.report.warnings)))


def seconds(names: list[str]) -> Rows:
    """Yield calls without constants, as `make bench-seconds`: small ones, and covertype."""
    from benchmarks.seconds import few, logistic, rows_of

    data = {"200 rows": few(200, 5, 1), "20,000 rows": few(20_000, 20, 1)}
    for name in names or [*data, "covertype"]:
        of_name = data[name] if name in data else rows_of(False)
        for label, seed in (("first call", 1), ("again", 2)):
            samples, work = worked(lambda d=of_name, seed=seed: logistic(d, seed))
            yield f"{name}, {label}", asdict(Row(work, warnings=list(samples.report.warnings)))


def iterations(names: list[str]) -> Rows:
    """Yield iterations of chains with given constants: the difference of a long and a short run."""
    from benchmarks.seconds import few

    data = few(20_000, 10, 1)
    given: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
        "sgld": (sgmcmc.sgld, {"stepsize": 1e-6}, 100_000),
        "sgldcv": (sgmcmc.sgldcv, {"stepsize": 1e-6, "opt_stepsize": 1e-6}, 60_000),
        "sghmc": (sgmcmc.sghmc, {"stepsize": 1e-6}, 30_000),
        "sgnht": (sgmcmc.sgnht, {"stepsize": 1e-6}, 100_000),
        "sgld, 4 chains": (sgmcmc.sgld, {"stepsize": 1e-6, "n_chains": 4}, 50_000),
        "sgld, 100 chains": (sgmcmc.sgld, {"stepsize": 1e-6, "n_chains": 100}, 1_000),
        "hmc": (sgmcmc.hmc, {"stepsize": 0.01, "preconditioner": "none"}, 200),
    }
    for name in names or given:
        function, constants, length = given[name]
        more = {} if name == "hmc" else {"minibatch_size": 100}

        def run(n_iters: int, f: Any = function, c: Any = constants, m: Any = more) -> Any:
            return f(
                _log_lik, data, {"beta": np.zeros(10)}, n_iters=n_iters, seed=1, verbose=False,
                **c, **m,
            )  # fmt: skip

        run(length)  # compiles
        short, long = (
            [worked(lambda run=run, n=n: run(n))[1] for _ in range(5)] for n in (length, 4 * length)
        )
        work = min(long) - min(short)  # noise of a machine only adds
        yield name, asdict(Row(work / (3 * length) * 1e6))


def _log_lik(params: Any, dataset: Any) -> Any:
    import tensorflow as tf

    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(labels=dataset["y"], logits=logits)


PARTS: dict[str, Callable[[list[str]], Rows]] = {
    "posteriors": posteriors,
    "mixed": mixed,
    "families": families,
    "large": large,
    "seconds": seconds,
    "iterations": iterations,
}
