"""Seconds of a mixed model as N grows, against lme4, statsmodels, bambi and NumPyro.

Logistic regression with five features and an effect of each group of ten rows. Each package runs in
a process of its own, with data from a file, until one takes longer than the limit: then it is not
run on more rows. `python -m benchmarks.mixed.growing [--packages ...] [--rows ...] [--limit ...]`;
results add up in `results-growing.json`, and the table is that of all of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments, machine
from benchmarks.client import WorkerError, output_of
from benchmarks.environments import HERE
from benchmarks.mixed.run import DOCUMENT
from benchmarks.report import describe_machine, replace_section, table

RESULTS = HERE / "results-growing.json"
OTHERS = HERE / "mixed" / "others.py"
EACH, BETA, INTERCEPT, TAU = 10, (0.5, -0.3, 0.8, 0.0, 0.2), -0.4, 0.8
ROWS = (10_000, 100_000, 1_000_000, 10_000_000)
LABELS = {
    "sgmcmc": "`sample(groups=)`",
    "glmer": "lme4's `glmer`, nAGQ = 1",
    "glmer11": "`glmer`, nAGQ = 11",
    "statsmodels": "statsmodels, variational",
    "numpyro": "NumPyro, NUTS",
    "bambi": "bambi, NUTS",
}

EXPLAINED = (
    "Logistic regression with five features and an effect of each group of ten rows: seconds, and "
    "seconds of the processor in parentheses, since NUTS runs two chains side by side. "
    "`sample` and NUTS give draws of all global parameters (effective sample sizes of 400, and of "
    "1000 draws), `glmer` and statsmodels an approximation. A package that took longer than the "
    "limit was not run on more rows."
)

GLMER = """
    suppressMessages(library(lme4))
    folder <- commandArgs(TRUE)[1]
    N <- as.numeric(commandArgs(TRUE)[2])
    column <- function(name) readBin(file.path(folder, name), "double", N)
    d <- data.frame(y = column("y"), g = factor(as.integer(column("g"))))
    for (k in 1:5) d[[paste0("x", k)]] <- column(paste0("x", k))
    began <- proc.time()[["elapsed"]]
    fit <- suppressWarnings(glmer(
        y ~ x1 + x2 + x3 + x4 + x5 + (1 | g), d, binomial, nAGQ = as.numeric(commandArgs(TRUE)[3])
    ))
    seconds <- proc.time()[["elapsed"]] - began
    sds <- sqrt(diag(as.matrix(vcov(fit))))
    used <- sum(proc.time()[1:2])
    cat(sprintf("%.17g", c(seconds, used, getME(fit, "theta"), fixef(fit), sds)), sep = "\\n")
"""


def simulate(N: int) -> dict[str, np.ndarray]:
    """Return N rows."""
    rng = np.random.default_rng(N)
    g = np.repeat(np.arange(N // EACH), EACH)
    x = rng.normal(size=(N, len(BETA)))
    eta = INTERCEPT + x @ BETA + TAU * rng.normal(size=N // EACH)[g]
    y = (rng.uniform(size=N) < 1 / (1 + np.exp(-eta))).astype(float)
    return {"y": y, "x": x, "g": g}


def ours(folder: str) -> dict[str, Any]:
    """Return what `sample` finds, and its seconds."""
    import tensorflow as tf
    import tensorflow_probability as tfp

    import sgmcmc

    with np.load(Path(folder) / "data.npz") as data:
        y, x, g = (data[name] for name in "yxg")

    def log_lik(params, dataset):
        eta = params["a"] + tf.linalg.matvec(dataset["x"], params["b"]) + params["z"]
        return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], eta)

    def log_prior(params):
        flat = -0.5 * (params["a"] ** 2 + tf.reduce_sum(params["b"] ** 2)) / 25
        return flat - params["tau"]

    def of_groups(effects, params):
        return -0.5 * (effects["z"] / params["tau"]) ** 2 - tf.math.log(params["tau"])

    began, used = time.perf_counter(), time.process_time()
    samples = sgmcmc.sample(
        log_lik,
        {"x": x.astype(np.float32), "y": y.astype(np.float32), "g": g},
        {"a": 0.0, "b": np.zeros(5), "tau": 1.0},
        log_prior,
        groups=sgmcmc.Groups("g", {"z": 0.0}, of_groups),
        bijectors={"tau": tfp.bijectors.Exp()},
        seed=1,
        verbose=False,
    )
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - used,
        "tau": [float(samples["tau"].mean()), float(samples["tau"].std())],
        "b": [samples["b"].mean((0, 1)).tolist(), samples["b"].std((0, 1)).tolist()],
        "ess": min(np.ravel(samples.report["Draws"]["ESS, bulk"])),
        "warnings": samples.report.warnings,
    }


def by_glmer(folder: str, N: int, nodes: int) -> dict[str, Any]:
    """Return what `glmer` finds."""
    with np.load(Path(folder) / "data.npz") as data:
        columns = {"y": data["y"], "g": data["g"].astype(float)}
        columns |= {f"x{k + 1}": data["x"][:, k] for k in range(5)}
    for name, values in columns.items():
        np.ascontiguousarray(values).tofile(Path(folder) / name)
    command = ["Rscript", "-e", GLMER, folder, str(N), str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [float(value) for value in done.stdout.split()]
    return {
        "seconds": found[0],
        "cpu": found[1],
        "tau": [found[2], None],
        "b": [found[4:9], found[10:15]],
    }


def one(package: str, N: int, limit: float) -> dict[str, Any]:
    """Return the result of a package on N rows, in a process of its own that has a limit."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", **simulate(N))
        python: Path | str = sys.executable
        command = [
            "-m",
            "benchmarks.mixed.growing",
            "--inside",
            package,
            folder,
            str(N),
        ]
        if package in ("statsmodels", "numpyro", "bambi"):
            python, command = (
                environments.interpreter("mixed"),
                [str(OTHERS), package, folder],
            )
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            return json.loads(
                output_of(python, *command, variables=quiet, timeout=limit)
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"> {limit:.0f}"}
        except WorkerError as error:
            return {"failed": str(error)}


def inside(package: str, folder: str, N: int) -> dict[str, Any]:
    """Return the result of a package that runs in this environment, or in R."""
    if package == "sgmcmc":
        return ours(folder)
    return by_glmer(folder, N, 11 if package == "glmer11" else 1)


def write(results: Mapping[str, Any]) -> None:
    """Put the table into its document."""
    known = results["packages"]
    sizes = [N for N in ROWS if any(str(N) in found for found in known.values())]
    rows = [
        [label, *(_cell(known[package].get(str(N))) for N in sizes)]
        for package, label in LABELS.items()
        if package in known
    ]
    head = ["seconds", *(f"N = 10^{len(str(N)) - 1}" for N in sizes)]
    text = f"{EXPLAINED} {describe_machine(results, 'growing')}\n\n"
    replace_section(DOCUMENT, "growing", text + table(head, rows))


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    if "failed" in result:
        return result["failed"]
    return f"{result['seconds']:.0f} ({result['cpu']:.0f})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument(
        "--packages", nargs="*", default=list(LABELS), choices=list(LABELS)
    )
    parser.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a run")
    given = parser.parse_args(arguments)
    if given.inside:
        package, folder, N = given.inside
        print(json.dumps(inside(package, folder, int(N))))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"packages": {}}
    for package in given.packages:
        for N in given.rows:
            found = one(package, N, given.limit)
            results |= {
                "date": datetime.date.today().isoformat(),
                "machine": machine.facts(),
            }
            results["packages"].setdefault(package, {})[str(N)] = found
            RESULTS.write_text(json.dumps(results, indent=1))
            print(package, N, found, flush=True)
            if "failed" in found:
                break
    write(results)


if __name__ == "__main__":
    main()
