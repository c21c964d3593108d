"""From the call to the posterior, in passes of NumPy's gradient: `python -m benchmarks.seconds`.

Each case is a process of its own. A pass is Xβ and Xᵀr in float32 over all rows, with the residuals
between them, timed right before and right after each call. Cases that are named are measured again;
the others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import references
from benchmarks.accuracy.problems import covertype
from benchmarks.client import output_of
from benchmarks.environments import HERE, interpreter
from benchmarks.memory import peak, resident
from benchmarks.report import publish, table

Arrays = dict[str, np.ndarray]
STAGES = (
    "mode and information",
    "other modes",
    "leverage",
    "noise and stepsize",
    "chains",
)


def logistic(data: Arrays, seed: int, **keywords: Any) -> Any:
    """Draws of a logistic regression with Laplace priors of scale one, without constants."""
    import sgmcmc

    start = {"beta": np.zeros(data["X"].shape[1])}
    return sgmcmc.sample(
        _log_lik, data, start, _log_prior, seed=seed, verbose=False, **keywords
    )


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


def errors(
    mean: np.ndarray, sd: np.ndarray, reference: dict[str, Any]
) -> dict[str, float]:
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
    from sgmcmc.run.sampler_origin import origin_of

    data, calls = rows_of(smoke), {}
    held = resident()
    for label, seed, more in (
        ("first call", 1, {}),
        ("again, another seed", 2, {}),
        ("again, ESS 2000", 3, {} if smoke else {"ess": 2000}),
    ):
        samples, found = timed(
            data, lambda seed=seed, more=more: logistic(data, seed, **more)
        )
        if not smoke:
            flat, reference = _flat(samples), references.read()["covertype"]
            found["errors"] = errors(flat.mean(0), flat.std(0), reference)
            mode = origin_of(samples).sampler.request.mode
            assert mode is not None
            sds = np.sqrt(np.diag(mode.information.covariance))
            found["laplace"] = errors(mode.position, sds, reference)
        calls[label] = found
    return {
        "calls": calls,
        "memory": peak() - held,
        "data": sum(a.nbytes for a in data.values()),
    }


def growing(smoke: bool) -> dict[str, Any]:
    """An update by a seventh of the rows against a call with all, in turn, in one process."""
    data = rows_of(smoke)
    order = np.random.default_rng(1).permutation(len(data["y"]))
    first = np.sort(order[: len(order) * 7 // 8])
    rest = np.sort(order[len(order) * 7 // 8 :])
    parts = [{name: a[rows] for name, a in data.items()} for rows in (first, rest)]
    base, _ = timed(data, lambda: logistic(parts[0], 1))
    found = []
    for seed in (2, 3, 4):
        again = {"seed": seed, "verbose": False}
        updated, of_update = timed(
            data, lambda again=again: base.update(parts[1], **again)
        )
        fresh, of_call = timed(data, lambda s=seed: logistic(data, s))
        found.append(
            {"update": of_update, "fresh": of_call, **_differences(updated, fresh)}
        )
    ess = 500 if smoke else PRECISE
    base = logistic(parts[0], 5, ess=ess)
    precise = _differences(
        base.update(parts[1], seed=6, verbose=False), logistic(data, 6, ess=ess)
    )
    return {"pairs": found, "precise": precise}


PRECISE = 16_000
"""Effective sample size at which SDs of an update and of a call are told apart from chance."""


def _flat(samples: Any) -> np.ndarray:
    """Return the draws of the coefficients as rows, in float64."""
    beta = samples["beta"]
    return beta.reshape(-1, beta.shape[-1]).astype(np.float64)


def _differences(updated: Any, fresh: Any) -> dict[str, float]:
    """Return the largest differences of means, in SDs, and of SDs, relative."""
    # In float32 the mean of 200 000 draws, 200 SDs from zero, is off by 0.2 SD.
    one, other = (_flat(draws) for draws in (updated, fresh))
    sds = other.std(0)
    return {
        "means": float(np.abs((one.mean(0) - other.mean(0)) / sds).max()),
        "sds": float(np.abs(one.std(0) / sds - 1).max()),
    }


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


def posteriors(smoke: bool) -> dict[str, Any]:
    """The collection of posteriors, one after another in this process."""
    from benchmarks.posteriors.families import POSTERIORS
    from benchmarks.posteriors.run import SECONDS, sampled

    found = {}
    for name in list(POSTERIORS)[: 2 if smoke else None]:
        model = POSTERIORS[name]()
        begin = time.perf_counter()
        samples = sampled(model, max_seconds=SECONDS)
        seconds = time.perf_counter() - begin
        method = samples.settings["method"]
        del samples, model
        found[name] = {"seconds": seconds, "method": method, "memory": resident()}
        print(name, found[name], file=sys.stderr, flush=True)
    return found


PEERS = {
    "nuts": ("numpyro", "NumPyro, NUTS on all rows", 100),
    "hmcecs": ("numpyro", "NumPyro, HMCECS, 1000 rows", 300),
    "scikit-learn": (
        "sklearn",
        "scikit-learn's fit, Laplace approximation, N(0, 1) priors",
        0,
    ),
}
"""Environment, label and draws of each."""


def peers(smoke: bool) -> dict[str, Any]:
    """Other packages on all rows, given mode and covariance."""
    from sgmcmc.run.sampler_origin import origin_of

    data = rows_of(smoke)
    mode = origin_of(logistic(data, 1)).sampler.request.mode
    assert mode is not None
    request = {
        "center": mode.position.tolist(),
        "covariance": mode.information.covariance.tolist(),
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", **data)
        request |= {"data": f"{folder}/data.npz", "out": f"{folder}/out.npz"}
        for method, (environment, _, draws) in PEERS.items():
            asked = {**request, "method": method, "draws": 20 if smoke else draws}
            found[method] = _outside(environment, asked, smoke)
    return found


def _outside(environment: str, request: dict[str, Any], smoke: bool) -> dict[str, Any]:
    """Return seconds, effective draws and errors of another package."""
    from benchmarks.posteriors.moments import moments

    output_of(
        interpreter(environment), "-m", "benchmarks.seconds_outside", request=request
    )
    with np.load(request["out"]) as file:
        answer = dict(file)
    found = {name: float(answer[name]) for name in ("before", "seconds")}
    if "draws" in answer:
        of_draws = moments(answer["draws"])
        found["ess"], mean, sd = min(of_draws.ess), of_draws.mean, of_draws.sd
    else:
        mean, sd = answer["mean"], answer["sd"]
    if not smoke:
        found["errors"] = errors(
            np.array(mean), np.array(sd), references.read()["covertype"]
        )
    return found


CASES = {
    "whole": whole,
    "growing": growing,
    "small": small,
    "posteriors": posteriors,
    "peers": peers,
}
RESULTS = HERE / "results-seconds.json"


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
    head = [
        "",
        "seconds",
        "passes",
        *STAGES,
        "smallest ESS",
        "mean, worst",
        "SD, median",
        "worst",
    ]
    rows = []
    for label, call in calls.items():
        stages = [f"{call['stages'].get(name, 0):.0f}" for name in STAGES]
        numbers = [
            f"{call['seconds']:.1f}",
            f"{call['passes']:.0f}",
            *stages,
            f"{call['ess']:.0f}",
        ]
        rows.append([label, *numbers, *_shown(call.get("errors"))])
    laplace = next(iter(calls.values())).get("laplace")
    rows.append(
        ["Laplace approximation there", *[""] * (3 + len(STAGES)), *_shown(laplace)]
    )
    first = next(iter(calls.values()))
    megabytes = [found["whole"][name] / 2**20 for name in ("memory", "data")]
    pairs, precise = found["growing"]["pairs"], found["growing"]["precise"]
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
        "`update` of seven eighths of the rows by the last eighth, against a call with all rows, "
        "in turn in one process: seconds, their ratio, the largest differences of means and SDs.",
        table(["update", "call", "ratio", "means", "SDs"], growth),
        f"With an effective sample size of {PRECISE} in both, means differ by at most "
        f"{precise['means']:.3f} SD, and SDs by {precise['sds']:.1%}.",
        "200 rows and five coefficients, all in one process: seconds of calls one after the other.",
        table(
            ["", "seconds"],
            [
                [name, f"{value:.2f}"]
                for name, value in found["small"]["seconds"].items()
            ],
        ),
        *_of_posteriors(found["posteriors"]),
        *_of_peers(found["peers"], calls),
    ]


def _of_posteriors(found: dict[str, Any]) -> list[str]:
    """Return sentences and a table on the collection, one after another."""
    seconds = [each["seconds"] for each in found.values()]
    places = sorted({0, *range(9, len(found) - 1, 10), len(found) - 1})
    held = [each["memory"] / 2**20 for each in found.values()]
    return [
        f"The {len(found)} posteriors of `make bench-posteriors`, one after another in one process,"
        f" a call each: median {statistics.median(seconds):.1f} s; [their page](posteriors.md) has "
        "the seconds of each. Resident memory after some of them:",
        table(
            ["after call", *(str(place + 1) for place in places)],
            [["MB", *(f"{held[place]:.0f}" for place in places)]],
        ),
    ]


def _of_peers(found: dict[str, Any], calls: dict[str, Any]) -> list[str]:
    """Return a table of other packages and our first call."""
    rows = []
    for label, call in list(calls.items())[:1]:
        each = call["seconds"] / call["ess"]
        numbers = [f"{call['seconds']:.1f}", f"{call['ess']:.0f}", f"{1e3 * each:.0f}"]
        rows.append([f"`sample`, {label}", "", *numbers, *_shown(call.get("errors"))])
    for method, (_, label, _) in PEERS.items():
        of = found[method]
        ess = of.get("ess")
        each = "" if ess is None else f"{1e3 * of['seconds'] / ess:.0f}"
        numbers = [
            f"{of['before']:.1f}",
            f"{of['seconds']:.1f}",
            f"{ess:.0f}" if ess else "",
            each,
        ]
        rows.append([label, *numbers, *_shown(of.get("errors"))])
    head = [
        "",
        "before",
        "seconds",
        "smallest ESS",
        "ms for one",
        "mean, worst",
        "SD, median",
    ]
    return [
        "Covertype by others, all rows, Laplace priors. NumPyro starts at our mode with our "
        "covariance as its mass matrix, which spares it the search and most of the warm-up; its "
        "runs are short, one chain, so that the last columns hold mostly Monte Carlo error, and "
        "milliseconds for an effective draw are what to compare. scikit-learn has no Laplace "
        "priors: its fit has N(0, 1), and its errors are against the other posterior.",
        table([*head, "worst"], rows),
    ]


def _shown(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    return [
        f"{found['mean']:.2f} sd",
        f"{found['median']:.1%}",
        f"{found['worst']:.1%}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Calls in passes of NumPy's gradient.")
    parser.add_argument(
        "names", nargs="*", choices=[*CASES, []], help="cases; default: all"
    )
    parser.add_argument(
        "--case", choices=[*CASES], help="measure one, here, and print it"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny: only to see that all runs"
    )
    options = parser.parse_args(arguments)
    if options.case is not None:
        print(json.dumps(CASES[options.case](options.smoke)))
        return
    known = (
        json.loads(RESULTS.read_text())
        if RESULTS.exists() and not options.smoke
        else {}
    )
    for case in options.names or CASES:
        known[case] = measured(case, options.smoke)
        if not options.smoke:
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    if set(known) == set(CASES):
        publish("seconds", render(known), options.smoke)


if __name__ == "__main__":
    main()
