"""From the call to the posterior, in passes of NumPy's gradient: `python -m benchmarks.seconds`.

Each case is a process of its own. A pass is Xβ and Xᵀr in float32 over all rows, with the residuals
between them, timed right before and right after each call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.accuracy import references
from benchmarks.accuracy.problems import covertype
from benchmarks.memory import peak, resident
from benchmarks.report import publish, table

Arrays = dict[str, np.ndarray]
STAGES = ("mode and information", "other modes", "leverage", "noise and stepsize", "chains")


def logistic(data: Arrays, seed: int, **keywords: Any) -> Any:
    """Draws of a logistic regression with Laplace priors of scale one, without constants."""
    import sgmcmc

    start = {"beta": np.zeros(data["X"].shape[1])}
    return sgmcmc.sample(_log_lik, data, start, _log_prior, seed=seed, verbose=False, **keywords)


def _log_lik(params: Any, dataset: Any) -> Any:
    import tensorflow as tf

    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(labels=dataset["y"], logits=logits)


def _log_prior(params: Any) -> Any:
    import tensorflow as tf

    return -tf.reduce_sum(tf.abs(params["beta"]))


def seconds_of_pass(data: Arrays, rounds: int = 15) -> float:
    """Median seconds of NumPy's gradient of the log-likelihood over all rows."""
    X, y = data["X"], data["y"]
    beta, found = np.zeros(X.shape[1], np.float32), []
    for _ in range(rounds):
        begin = time.perf_counter()
        X.T @ (y - 1 / (1 + np.exp(-(X @ beta))))
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def timed(data: Arrays, call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Return what a call returns, and its seconds, also in passes and by stage."""
    before, begin = seconds_of_pass(data), time.perf_counter()
    samples = call()
    seconds = time.perf_counter() - begin
    unit = (before + seconds_of_pass(data)) / 2
    stages = {name: value / unit for name, value in samples.report["Seconds"].items()}
    ess = float(np.min(samples.report["Draws"]["ESS, bulk"]))
    found = {"seconds": seconds, "pass": unit, "passes": seconds / unit, "ess": ess}
    return samples, {**found, "stages": stages}


def errors(mean: np.ndarray, sd: np.ndarray, reference: dict[str, Any]) -> dict[str, float]:
    """Errors of means, in SDs, and of SDs, relative."""
    right, width = np.array(reference["mean"]), np.array(reference["sd"])
    of_sds = np.abs(sd / width - 1)
    return {
        "mean": float(np.abs((mean - right) / width).max()),
        "median": float(np.median(of_sds)),
        "worst": float(of_sds.max()),
    }


def rows_of(smoke: bool) -> Arrays:
    """Covertype, or a small dataset to see that all runs."""
    return few(3000, 4, 1) if smoke else covertype()


def few(N: int, d: int, seed: int) -> Arrays:
    """Normal features and coin tosses."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)).astype(np.float32)
    return {"X": X, "y": (rng.random(N) < 0.5).astype(np.float32)}


def whole(smoke: bool) -> dict[str, Any]:
    """First call, second call, and one for more draws, with their errors; and memory."""
    from sgmcmc.run.origin import origin_of

    data, calls = rows_of(smoke), {}
    held = resident()
    for label, seed, more in (
        ("first call", 1, {}),
        ("again, another seed", 2, {}),
        ("again, ESS 2000", 3, {} if smoke else {"ess": 2000}),
    ):
        samples, found = timed(data, lambda seed=seed, more=more: logistic(data, seed, **more))
        if not smoke:
            draws, reference = samples["beta"], references.read()["covertype"]
            flat = draws.reshape(-1, draws.shape[-1])
            found["errors"] = errors(flat.mean(0), flat.std(0), reference)
            mode = origin_of(samples).sampler.request.mode
            assert mode is not None
            sds = np.sqrt(np.diag(mode.information.covariance))
            found["laplace"] = errors(mode.position, sds, reference)
        calls[label] = found
    return {"calls": calls, "memory": peak() - held, "data": sum(a.nbytes for a in data.values())}


def growing(smoke: bool) -> dict[str, Any]:
    """An update by a seventh of the rows beside a call with all, in turn, in one process."""
    data = rows_of(smoke)
    order = np.random.default_rng(1).permutation(len(data["y"]))
    first = np.sort(order[: len(order) * 7 // 8])
    rest = np.sort(order[len(order) * 7 // 8 :])
    parts = [{name: a[rows] for name, a in data.items()} for rows in (first, rest)]
    base, _ = timed(data, lambda: logistic(parts[0], 1))
    found = []
    for seed in (2, 3):
        again = {"seed": seed, "verbose": False}
        updated, of_update = timed(data, lambda again=again: base.update(parts[1], **again))
        fresh, of_call = timed(data, lambda s=seed: logistic(data, s))
        one, other = (each["beta"].reshape(-1, data["X"].shape[1]) for each in (updated, fresh))
        sds = other.std(0)
        found.append(
            {
                "update": of_update,
                "fresh": of_call,
                "means": float(np.abs((one.mean(0) - other.mean(0)) / sds).max()),
                "sds": float(np.abs(one.std(0) / sds - 1).max()),
            }
        )
    return {"pairs": found}


def small(smoke: bool) -> dict[str, Any]:
    """200 rows and five coefficients: calls one after the other."""
    found = {}
    for label, data, seed in (
        ("first call", few(200, 5, 1), 1),
        ("again, another seed", few(200, 5, 1), 2),
        ("again, other data", few(200, 5, 2), 3),
        ("again, another number of rows", few(230, 5, 3), 4),
    ):
        begin = time.perf_counter()
        logistic(data, seed)
        found[label] = time.perf_counter() - begin
    return {"seconds": found}


CASES = {"whole": whole, "growing": growing, "small": small}


def measured(case: str, smoke: bool) -> dict[str, Any]:
    """Return what a process of its own found."""
    command = [sys.executable, "-m", "benchmarks.seconds", "--case", case]
    run = subprocess.run(
        command + ["--smoke"] * smoke, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def render(found: dict[str, Any]) -> list[str]:
    """Return paragraphs and tables."""
    calls = found["whole"]["calls"]
    head = ["", "seconds", "passes", *STAGES, "smallest ESS", "mean, worst", "SD, median", "worst"]
    rows = []
    for label, call in calls.items():
        stages = [f"{call['stages'].get(name, 0):.0f}" for name in STAGES]
        numbers = [f"{call['seconds']:.1f}", f"{call['passes']:.0f}", *stages, f"{call['ess']:.0f}"]
        rows.append([label, *numbers, *_shown(call.get("errors"))])
    laplace = next(iter(calls.values())).get("laplace")
    rows.append(["Laplace approximation there", *[""] * (3 + len(STAGES)), *_shown(laplace)])
    first = next(iter(calls.values()))
    megabytes = [found["whole"][name] / 2**20 for name in ("memory", "data")]
    pairs = found["growing"]["pairs"]
    growth = [
        [
            f"{pair['update']['seconds']:.1f}",
            f"{pair['fresh']['seconds']:.1f}",
            f"{pair['update']['seconds'] / pair['fresh']['seconds']:.2f}",
            f"{pair['means']:.2f} sd",
            f"{pair['sds']:.1%}",
        ]
        for pair in pairs
    ]
    return [
        "Covertype, 581 012 rows and 55 coefficients with Laplace priors, in memory, without "
        "constants: seconds, the same in passes of NumPy's gradient over all rows in the same "
        f"process (of {1e3 * first['pass']:.1f} ms in the first), passes of each stage, and errors "
        "against the reference of the section above. The last line is the normal distribution at "
        "the mode that the first call found.",
        table(head, rows),
        f"The most memory beyond that of the data ({megabytes[1]:.0f} MB) and of the imports "
        f"is {megabytes[0]:.0f} MB.",
        "`update` of seven eighths of the rows by the last eighth, beside a call with all rows, in "
        "turn in one process: seconds, their ratio, and the largest differences of means and SDs.",
        table(["update", "call", "ratio", "means", "SDs"], growth),
        "200 rows and five coefficients, all in one process: seconds of calls one after the other.",
        table(
            ["", "seconds"],
            [[name, f"{value:.2f}"] for name, value in found["small"]["seconds"].items()],
        ),
    ]


def _shown(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    return [f"{found['mean']:.2f} sd", f"{found['median']:.1%}", f"{found['worst']:.1%}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Calls in passes of NumPy's gradient.")
    parser.add_argument("--case", choices=[*CASES], help="measure one, here; default: all")
    parser.add_argument("--smoke", action="store_true", help="tiny: only to see that all runs")
    options = parser.parse_args(arguments)
    if options.case is not None:
        print(json.dumps(CASES[options.case](options.smoke)))
        return
    found = {case: measured(case, options.smoke) for case in CASES}
    publish("seconds", render(found), options.smoke)


if __name__ == "__main__":
    main()
