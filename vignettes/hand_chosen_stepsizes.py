# %% [markdown]
# # What goes wrong with stepsizes chosen by hand
#
# Published stepsizes are chosen for a good prediction, by a grid search on held-out data. A chain
# that predicts well need not follow the posterior. This vignette runs chains on covertype with the
# stepsizes of Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster
# 2018 (sections 4.5.1 and 4.6.2), and compares them with draws of `sgmcmc.sample`, which chooses by
# the error of the SDs. The log losses hardly differ, but the SDs of the coefficients are wrong by
# large factors. The report of each chain says so, without a reference.
#
# Run it with `python vignettes/hand_chosen_stepsizes.py`, which takes a few minutes. The tests run
# `--short`, on a few thousand simulated rows.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import sgmcmc
import tensorflow as tf

from _figures import figure, look
from demo import N_ROWS, N_TEST, load, log_lik, log_prior, simulate

# %% [markdown]
# ## The chains
#
# All chains have minibatches of 500, and 10 000 iterations after 10 000 that are dropped. 5e-6 is
# the stepsize of the published code; the text has 2e-5. The search for the mode of `sgldcv` uses
# 1e-6.


# %%
class Run(NamedTuple):
    """A sampler and its stepsize, for the rows of covertype."""

    method: str
    stepsize: float

    @property
    def label(self) -> str:
        return f"{self.method}, {self.stepsize:g}"


RUNS = (Run("sgld", 2e-5), Run("sgld", 5e-6), Run("sgldcv", 1e-5), Run("sgldcv", 5e-6))
Dataset = dict[str, Any]


def start(train: Dataset) -> dict[str, Any]:
    return {"bias": 0.0, "beta": np.zeros(train["X"].shape[1])}


def follow(run: Run, train: Dataset, n_iters: int) -> sgmcmc.Samples:
    """Run a chain; the stepsize is scaled to the number of rows."""
    rows = len(train["y"])
    scale = 1.0 if rows > N_ROWS / 2 else N_ROWS / rows
    of_cv = (
        {"opt_stepsize": 1e-6 * scale, "n_iters_opt": n_iters}
        if "cv" in run.method
        else {}
    )
    return getattr(sgmcmc, run.method)(
        log_lik,
        train,
        start(train),
        run.stepsize * scale,
        log_prior=log_prior,
        minibatch_size=min(500, rows // 8),
        n_iters=n_iters,
        burn_in=n_iters,
        seed=1,
        verbose=False,
        **of_cv,
    )


# %% [markdown]
# ## What is compared
#
# The table has, for each coefficient, the SD of the draws divided by that of the reference; the
# largest error that the report predicts from curvature and gradient noise, unless the stepsize is
# beyond the limit of stability; the smallest effective sample size; and the log loss of the
# predictions, averaged over the draws, on held-out rows.


# %%
def sds(samples: sgmcmc.Samples) -> np.ndarray:
    """Return the SD of each coefficient, over all draws."""
    beta = np.asarray(samples["beta"], np.float64)
    return beta.reshape(-1, beta.shape[-1]).std(axis=0)


def log_loss(samples: sgmcmc.Samples, test: Dataset) -> float:
    """Return the log loss of the averaged predictions."""

    def yes(params, dataset):
        return tf.sigmoid(
            params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])
        )

    p = np.asarray(samples.predict(yes, {"X": test["X"]}), np.float64)
    return float(-np.mean(np.log(np.where(test["y"] == 1, p, 1 - p))))


def predicted(samples: sgmcmc.Samples) -> str:
    """Return the largest error that the report predicts, in per cent, or why there is none."""
    facts = samples.report["Predicted"]
    errors = facts.get("SD error (noise along the chain)")
    if errors is None:
        return "unknown"
    return "unstable" if isinstance(errors, str) else f"{100 * max(errors):.0f} %"


def format_table(
    chains: Mapping[str, sgmcmc.Samples], reference: np.ndarray, test: Dataset
) -> str:
    """Return the comparison, a row for each chain."""
    names = {
        "sd ratio: median": 17,
        "largest": 9,
        "predicted": 11,
        "ESS": 7,
        "log loss": 10,
    }
    lines = [" " * 22 + "".join(f"{name:>{width}}" for name, width in names.items())]
    for label, samples in chains.items():
        ratio = sds(samples) / reference
        ess = min(samples.report["Draws"]["ESS, bulk"])
        lines.append(
            f"{label:22}{np.median(ratio):17.2f}{ratio.max():9.2f}{predicted(samples):>11}"
            f"{ess:7.0f}{log_loss(samples, test):10.4f}"
        )
    return "\n".join(lines)


def plot(chains: Mapping[str, sgmcmc.Samples], reference: np.ndarray) -> Figure:
    """Ratios of SDs, with coefficients sorted by that of the first chain."""
    picture = figure(8, 4)
    panel = picture.subplots()
    order = np.argsort(sds(next(iter(chains.values()))) / reference)
    for (label, samples), marker in zip(chains.items(), "osv^", strict=False):
        color = look(label.split(",")[0])["color"]
        filled = {} if marker in "ov" else {"markerfacecolor": "none"}
        ratio = (sds(samples) / reference)[order]
        panel.plot(ratio, marker, markersize=4, color=color, label=label, **filled)
    panel.axhline(1.0, color="black", linewidth=0.8)
    panel.set(
        xlabel="coefficient, in order of the first", ylabel="SD over that of the reference",
        yscale="log",
    )  # fmt: skip
    panel.legend()
    return picture


# %% [markdown]
# ## What to do
#
# Read the warnings. If *gradient noise* is too large, use a smaller stepsize, larger minibatches or
# control variates. If the *curvature* is too large, use a smaller stepsize or a preconditioner. If
# there are too few effective draws, use a longer chain or a preconditioner. Or let the package
# choose the constants.


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Published stepsizes and their reports."
    )
    parser.add_argument(
        "--short", action="store_true", help="small simulated data, short chains"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="simulated data, no download"
    )
    parser.add_argument(
        "--output", default="hand_chosen_stepsizes.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    data = simulate(4000)[0] if options.short else load(options.simulate)
    train, test = data.split(1000 if options.short else N_TEST, seed=1)
    runs = (RUNS[0], RUNS[3]) if options.short else RUNS
    best = sgmcmc.sample(log_lik, train, start(train), log_prior, seed=1, verbose=False)
    chains = {
        run.label: follow(run, train, 500 if options.short else 10_000) for run in runs
    }
    for label, samples in chains.items():
        print(f"{label}")
        for warning in samples.report.warnings or ["none"]:
            print(f"  ! {warning}")
    chains["sample, no constants"] = best
    print("\n" + format_table(chains, sds(best), test))
    plot({run.label: chains[run.label] for run in runs}, sds(best)).savefig(
        options.output
    )
    print(f"\nSDs of the coefficients: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
