# %% [markdown]
# # Logistic regression on half a million rows, without tuning constants
#
# The covertype data describe 581 012 patches of forest by 54 features in [0, 1]; the label says
# whether a patch is covered by lodgepole pine. A sampler that needs the gradient of the full log
# posterior reads all rows at every step. `sgmcmc.sample` reads them a few times, to find the mode
# and the width of the posterior around it, and after that only a few hundred rows at each step. No
# constant is given; the report says what was chosen, and whether the draws can be trusted.
#
# `make demo` runs this file; so does `python vignettes/demo.py --help`, and any notebook
# that reads cell markers.

# %%
from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# ArviZ warns about its next major version on import, once a day.
warnings.filterwarnings(
    "ignore", message=r"\s*ArviZ is undergoing", category=FutureWarning
)

import arviz as az
import numpy as np
from matplotlib.figure import Figure

import sgmcmc

# %% [markdown]
# ## The model
#
# The model is two functions of dictionaries of tensors: the log-likelihood of the rows in a
# minibatch, one term for each, and the log-prior, here Laplace(0, 1) on every coefficient. `sgmcmc`
# differentiates both.

# %%
import tensorflow as tf


def log_lik(params, dataset):
    logits = params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)


def log_prior(params):
    return -tf.abs(params["bias"]) - tf.reduce_sum(tf.abs(params["beta"]))


# %% [markdown]
# ## The data
#
# `sgmcmc.get_dataset` reads the file from the folder `$SGMCMC_DATA` or from the cache, or downloads
# it. If none of the three works, the demo simulates data of the same shape and kind: ten continuous
# features, a factor of four levels and one of forty. (As in covertype, the indicators of a factor
# add up to the bias column, so that only the prior separates the bias from the level of a factor's
# coefficients.)

# %%
N_ROWS, N_TEST = 581_012, 10_000

COVERTYPE_NAMES = [
    "elevation",
    "aspect",
    "slope",
    "distance to water, horizontal",
    "distance to water, vertical",
    "distance to roads",
    "hillshade at 9 am",
    "hillshade at noon",
    "hillshade at 3 pm",
    "distance to fire points",
    *[f"wilderness area {i}" for i in range(1, 5)],
    *[f"soil type {i}" for i in range(1, 41)],
]


@dataclass(frozen=True)
class Data:
    """Rows with the 0/1 label first, and the names of the features that follow it."""

    rows: np.ndarray
    names: list[str]

    def split(self, n_test: int, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Training and test set: `n_test` rows, drawn at random, are held out."""
        held_out = np.zeros(len(self.rows), dtype=bool)
        held_out[
            np.random.default_rng(seed).choice(len(self.rows), n_test, replace=False)
        ] = True
        train, test = self.rows[~held_out], self.rows[held_out]
        return {"X": train[:, 1:], "y": train[:, 0]}, {
            "X": test[:, 1:],
            "y": test[:, 0],
        }


def simulate(n_rows: int = N_ROWS, seed: int = 1) -> tuple[Data, float, np.ndarray]:
    """Data of covertype's shape from known coefficients: the data, the bias, the coefficients."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n_rows, 54), dtype=np.float32)
    X[:, :10] = rng.beta(2, 3, size=(n_rows, 10))
    for first, levels in ((10, 4), (14, 40)):
        shares = rng.dirichlet(np.ones(levels))
        X[np.arange(n_rows), first + rng.choice(levels, n_rows, p=shares)] = 1
    bias, beta = 0.5, np.concatenate([rng.normal(0, 2, 10), rng.normal(0, 0.5, 44)])
    bias -= float(np.mean(X @ beta))  # balanced labels
    y = rng.random(n_rows) < 1 / (1 + np.exp(-(bias + X @ beta)))
    data = Data(
        np.column_stack([y, X]).astype(np.float32), [f"x{i}" for i in range(1, 55)]
    )
    return data, bias, beta


def load(force_simulated: bool = False) -> Data:
    """Covertype, or simulated data in its place."""
    if not force_simulated:
        try:
            return Data(sgmcmc.get_dataset("covertype"), COVERTYPE_NAMES)
        except OSError as error:
            print(
                f"Simulated data: covertype is not here and cannot be downloaded ({error})."
            )
    else:
        print("Simulated data, as requested.")
    return simulate()[0]


# %% [markdown]
# ## The draws
#
# Four chains run until every coefficient has an effective sample size of 400, in bulk and tails,
# and an R-hat of at most 1.01.


# %%
def sample(
    train: dict[str, Any], ess: float = 400, verbose: bool = True
) -> sgmcmc.Samples:
    """Draws from the posterior of bias and coefficients."""
    params = {"bias": 0.0, "beta": np.zeros(train["X"].shape[1])}
    return sgmcmc.sample(
        log_lik, train, params, log_prior, ess=ess, seed=13, verbose=verbose
    )


# %% [markdown]
# ## The posterior
#
# Mean, standard deviation, effective sample size and R-hat of each coefficient.


# %%
def table(samples: sgmcmc.Samples, names: Sequence[str]) -> Any:
    """Return a row for the bias and for each coefficient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has this warning
        found = sgmcmc.summary(samples)[["mean", "sd", "ess_bulk", "ess_tail", "r_hat"]]
    found.index = ["bias", *names]
    return found


# %% [markdown]
# ## The predictions
#
# The log loss is the mean over the held-out rows of -log p(label). The posterior predictive
# probability of a row is its mean over all draws.


# %%
def log_loss(samples: sgmcmc.Samples, test: dict[str, Any]) -> float:
    """Return the log loss of the posterior predictive on held-out rows."""
    return float(
        -np.log(samples.predict(lambda p, d: tf.exp(log_lik(p, d)), test)).mean()
    )


# %% [markdown]
# ## The plot
#
# Traces and densities of the bias and four of the coefficients, a color for each chain. If the
# chains have mixed, the colors overlap.


# %%
def plot(samples: sgmcmc.Samples, names: Sequence[str], shown: Sequence[int]) -> Figure:
    """Trace on the left, density on the right, one row for the bias and each coefficient shown."""
    rows = {
        "bias": samples["bias"],
        **{names[j]: samples["beta"][..., j] for j in shown},
    }
    figure = Figure(figsize=(10, 1.9 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 2, squeeze=False, width_ratios=[2, 1])
    for (trace, density), (name, chains) in zip(axes, rows.items(), strict=True):
        for number, x in enumerate(chains):
            trace.plot(np.arange(1, len(x) + 1), x, linewidth=0.3, color=f"C{number}")
            density.plot(*az.kde(x), color=f"C{number}", linewidth=1)
        trace.set(title=name, ylabel="coefficient", xlim=(0, chains.shape[1]))
        density.set(title=name, ylabel="density", ylim=(0, None))
        density.locator_params(axis="x", nbins=5)
    axes[-1, 0].set_xlabel("draw")
    axes[-1, 1].set_xlabel("coefficient")
    return figure


# %% [markdown]
# ## Everything together


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Logistic regression without tuning constants."
    )
    parser.add_argument(
        "--ess", type=float, default=400, help="target effective sample size"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="simulated data, no download"
    )
    parser.add_argument("--output", default="demo.png", help="where the plot goes")
    options = parser.parse_args(arguments)
    started = time.monotonic()

    data = load(options.simulate)
    train, test = data.split(N_TEST, seed=1)
    print(f"{len(train['y'])} training rows, {len(test['y'])} held out.")

    samples = sample(train, options.ess)
    print(f"\n{table(samples, data.names).round(3).to_string()}\n")
    print(samples.report)
    print(f"\nLog loss on the held-out rows: {log_loss(samples, test):.4f}")

    plot(samples, data.names, [0, 1, 5, 10]).savefig(options.output, dpi=120)
    print(f"Traces and densities: {options.output}")
    print(f"{time.monotonic() - started:.0f} seconds in all.")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
