"""What is measured: functions that yield a row for each posterior, regression or chain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import sgmcmc
from benchmarks.posteriors.table import worst

ESS = 1600
"""Effective sample size of the calls whose errors are judged."""

KEYS = ("sd_ratio", "sd_error", "mean_away", "mean_error")
"""Keys of what is compared, by coordinate."""

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


Rows = Iterator[tuple[str, Row]]


def unit() -> float:
    """Return the processor seconds of a piece of Python and of a product of matrices."""
    matrix = np.random.default_rng(1).normal(size=(400, 400))
    begin = time.process_time()
    texts: dict[int, str] = {}
    for k in range(150_000):
        texts[k % 1000] = str(k)
    for _ in range(6):
        matrix @ matrix
    return time.process_time() - begin


def worked(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and its processor seconds in those of a piece of work."""
    before, begin = unit(), time.process_time()
    value = call()
    seconds = time.process_time() - begin
    return value, seconds / (0.5 * (before + unit()))


def posteriors(names: list[str]) -> Rows:
    """Yield the posteriors of `make bench-posteriors`."""
    from benchmarks.posteriors import references
    from benchmarks.posteriors.families import POSTERIORS
    from benchmarks.posteriors.run import SECONDS, compare, flat, sampled

    known = references.read()
    for name in names or POSTERIORS:
        model = POSTERIORS[name]()
        sample = partial(sampled, model, max_seconds=SECONDS)
        first, work = worked(sample)
        compared = compare(flat(sample(ess=ESS), model), known[name])
        yield name, Row(work, **worst(compared), warnings=first.report.warnings)


def mixed(names: list[str]) -> Rows:
    """Yield the mixed models of `make bench-mixed`."""
    from benchmarks.mixed import references
    from benchmarks.mixed.designs import DESIGNS
    from benchmarks.mixed.models import Mixed
    from benchmarks.mixed.run import compare, flat, sampled

    known = references.read()
    for name in names or DESIGNS:
        model = Mixed(DESIGNS[name])
        first, work = worked(partial(sampled, model))
        compared = compare(flat(model, sampled(model, ess=ESS)), dict(known[name]))
        yield name, Row(work, **worst(compared), warnings=first.report.warnings)


def families(names: list[str]) -> Rows:
    """Yield the regressions of `make bench-regressions`."""
    from benchmarks.regressions.cases import CASES
    from benchmarks.regressions.families import FILE, differences, fitted

    references = json.loads(FILE.read_text())
    for name in names or CASES:
        known = references[name]
        first, work = worked(partial(fitted, CASES[name]))
        summary = fitted(CASES[name], ess=ESS).summary()
        shift, ratio = (
            np.array(list(of.values())) for of in differences(summary, known)
        )
        ess = [
            min(summary["ess_bulk"][term], at["ess"])
            for term, at in known["terms"].items()
        ]
        compared = {
            "mean_away": shift, "mean_error": np.sqrt(2.0 / np.array(ess)),
            "sd_ratio": ratio, "sd_error": ratio / np.sqrt(ess),
        }  # fmt: skip
        yield name, Row(work, **worst(compared), warnings=first.warnings)


def large(names: list[str]) -> Rows:
    """Yield the large posteriors of `make bench-large` that take less than half a minute."""
    from benchmarks.large import references
    from benchmarks.large.collection import POSTERIORS
    from benchmarks.large.run import compare, sampled

    known = references.read()
    for name in names or LARGE:
        model = POSTERIORS[name]()
        samples, work = worked(partial(sampled, model))
        by_name = compare(model, dict(samples), known[name]["of"])
        # Of thousands of coordinates some are far by chance: the worst of all says little.
        scalars = [one for one in by_name.values() if one["scalar"]] or [
            {key: [float(np.median(one[key]))] for key in KEYS}
            for one in by_name.values()
        ]
        compared = {key: [one[key][0] for one in scalars] for key in KEYS}
        yield name, Row(work, **worst(compared), warnings=samples.report.warnings)


def seconds(names: list[str]) -> Rows:
    """Yield calls without constants, as `make bench-seconds`: small ones, and covertype."""
    from benchmarks.seconds import few, logistic, rows_of

    tables = {
        "200 rows": partial(few, 200, 5, 1),
        "20,000 rows": partial(few, 20_000, 20, 1),
        "covertype": partial(rows_of, False),
    }
    for name in names or tables:
        table = tables[name]()
        for label, seed in (("first call", 1), ("again", 2)):
            samples, work = worked(partial(logistic, table, seed))
            yield f"{name}, {label}", Row(work, warnings=samples.report.warnings)


def iterations(names: list[str]) -> Rows:
    """Yield iterations of chains with given constants: the difference of a long and a short run."""
    from benchmarks.packages.with_sgmcmc import ridge_log_lik
    from benchmarks.seconds import few

    data = few(20_000, 10, 1)
    small: dict[str, Any] = {"stepsize": 1e-6, "minibatch_size": 100}
    chains: dict[str, tuple[Callable[..., Any], dict[str, Any], int]] = {
        "sgld": (sgmcmc.sgld, small, 100_000),
        "sgldcv": (sgmcmc.sgldcv, {**small, "opt_stepsize": 1e-6}, 60_000),
        "sghmc": (sgmcmc.sghmc, small, 30_000),
        "sgnht": (sgmcmc.sgnht, small, 100_000),
        "sgld, 4 chains": (sgmcmc.sgld, {**small, "n_chains": 4}, 50_000),
        "sgld, 100 chains": (sgmcmc.sgld, {**small, "n_chains": 100}, 1_000),
        "hmc": (sgmcmc.hmc, {"stepsize": 0.01, "preconditioner": "none"}, 200),
    }
    for name in names or chains:
        function, constants, length = chains[name]
        start = {"beta": np.zeros(10), "bias": 0.0}
        run = partial(
            function, ridge_log_lik, data, start, seed=1, verbose=False, **constants
        )
        run(n_iters=length)  # compiles
        short, long = (
            min(worked(partial(run, n_iters=n))[1] for _ in range(5))  # noise only adds
            for n in (length, 4 * length)
        )
        yield name, Row((long - short) / (3 * length) * 1e6)


PARTS: dict[str, Callable[[list[str]], Rows]] = {
    "posteriors": posteriors,
    "mixed": mixed,
    "families": families,
    "large": large,
    "seconds": seconds,
    "iterations": iterations,
}
