# %% [markdown]
# # Quickstart
#
# How many umbrellas does a shop sell? The data are counts on 200 000 days in many towns, with the
# rain and the day of the week, and the model is a Poisson regression. No constants are given;
# `sgmcmc.sample` chooses them and reports its choices.
#
# Run it with `python vignettes/quickstart.py`, which takes some seconds. The tests run `--short`,
# on fewer days.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure, look

# %% [markdown]
# ## The data
#
# The data are simulated, so that the truth is known: sales in dry weather, the effect of a
# centimeter of rain, and that of the weekend, all on the log scale.

# %%
NAMES = ["dry weekday", "rain, by the cm", "weekend"]
TRUTH = np.array([0.5, 0.8, 0.3])


def simulate(days: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    X = np.column_stack(
        [np.ones(days), rng.exponential(0.5, days), rng.random(days) < 2 / 7]
    )
    return {"X": X, "sales": rng.poisson(np.exp(X @ TRUTH)).astype(float)}


# %% [markdown]
# ## The model
#
# The model is two functions: the log-likelihood of the rows in a minibatch, one term for each, and
# the log-prior. log sales! is left out, because it does not depend on the parameters.


# %%
def log_lik(params, dataset):
    log_rate = tf.linalg.matvec(dataset["X"], params["beta"])
    return dataset["sales"] * log_rate - tf.exp(log_rate)


def log_prior(params):  # beta ~ N(0, 10²)
    return -0.5 * tf.reduce_sum((params["beta"] / 10) ** 2)


# %% [markdown]
# ## The draws
#
# The report ends with the warnings, which should be *none*. The draws are a mapping from names to
# arrays, whose axes are chains, draws and coefficients.


# %%
def draw(dataset: dict[str, Any]) -> sgmcmc.Samples:
    return sgmcmc.sample(
        log_lik, dataset, {"beta": np.zeros(3)}, log_prior, seed=1, verbose=False
    )


def intervals(samples: sgmcmc.Samples) -> np.ndarray:
    """Return 5 %, 50 % and 95 % quantiles, a row for each coefficient."""
    return np.quantile(samples["beta"].reshape(-1, 3), [0.05, 0.5, 0.95], axis=0).T


# %% [markdown]
# ## The results
#
# About nine in ten of these intervals contain the true value. `predict` applies a function to all
# draws: here the expected sales of a weekend, dry and with 2 cm of rain.


# %%
def rate(params, dataset):
    return tf.exp(tf.linalg.matvec(dataset["X"], params["beta"]))


def plot(samples: sgmcmc.Samples) -> Figure:
    """Posterior of each coefficient, with the truth."""
    picture = figure(9, 3)
    for panel, name, truth, draws in zip(
        picture.subplots(1, 3),
        NAMES,
        TRUTH,
        samples["beta"].reshape(-1, 3).T,
        strict=True,
    ):
        color = look("sample")["color"]
        panel.hist(draws, bins=40, density=True, histtype="step", color=color)
        panel.axvline(truth, linestyle="--", color="C1", label="truth")
        panel.set(xlabel=f"{name} (log scale)", yticks=[])
    panel.legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="A Poisson regression without constants."
    )
    parser.add_argument("--short", action="store_true", help="fewer days")
    parser.add_argument(
        "--output", default="quickstart.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    dataset = simulate(20_000 if options.short else 200_000)
    samples = draw(dataset)
    print(samples.report)
    print(f"\n{'':16}{'5 %':>8}{'median':>9}{'95 %':>8}{'truth':>8}")
    for name, row, truth in zip(NAMES, intervals(samples), TRUTH, strict=True):
        print(f"{name:16}{row[0]:8.3f}{row[1]:9.3f}{row[2]:8.3f}{truth:8.1f}")
    weekends = {"X": np.array([[1.0, 0.0, 1.0], [1.0, 2.0, 1.0]])}
    dry, wet = samples.predict(rate, weekends)
    print(
        f"\nExpected sales of a weekend day: {dry:.2f} if dry, {wet:.2f} with 2 cm of rain."
    )
    plot(samples).savefig(options.output)
    print(f"\nPosterior of the coefficients: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
