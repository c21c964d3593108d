# %% [markdown]
# # Choosing among models by leave-one-out cross-validation
#
# The data are like the loans of the tutorial, but with a risk that is not linear in age: those of
# young and of old borrowers fail more often. Three logistic regressions, one without age, one
# linear in age and one with its square, are compared by their predictions for a loan that was left
# out. No model is fitted N times: the draws give the log-likelihood of every row, and from that
# ArviZ's Pareto-smoothed importance sampling (Vehtari, Gelman & Gabry, Statistics and Computing 27,
# 2017) estimates the prediction of the posterior without that row.
#
# Run it with `python vignettes/comparing_models.py`, which takes a minute or two. The tests run
# `--short`, on fewer loans.

# %%
from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

# ArviZ warns about its next major version on import, once a day.
warnings.filterwarnings(
    "ignore", message=r"\s*ArviZ is undergoing", category=FutureWarning
)

import arviz as az
import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure, look

# %% [markdown]
# ## The data and the models
#
# Ages are in decades from 45. The true log odds of a failure are −2.2 − 0.1 a + 0.15 a².

# %%
TERMS = {"no age": 1, "linear": 2, "square": 3}
TRUTH = np.array([-2.2, -0.1, 0.15])


def simulate(loans: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    a = rng.uniform(-2.5, 2.5, loans)
    X = np.column_stack([np.ones(loans), a, a**2])
    return {
        "X": X,
        "failed": (rng.random(loans) < 1 / (1 + np.exp(-X @ TRUTH))).astype(float),
    }


def log_lik(params, dataset):
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["failed"], logits)


def log_prior(params):  # beta ~ N(0, 10²)
    return -0.5 * tf.reduce_sum((params["beta"] / 10) ** 2)


# %% [markdown]
# ## The comparison
#
# `to_arviz(log_likelihood=True)` adds the terms of the log-likelihood. ArviZ holds all of them in
# memory, so with many rows they are computed at some of the draws, evenly spaced. `az.compare`
# gives the expected log predictive density of each model (`elpd`), the effective number of its
# parameters (`p`), its difference from the best (`diff`), and the standard error of that difference
# (`dse`).


# %%
def draw(terms: int, dataset: dict[str, Any]) -> sgmcmc.Samples:
    """Return the draws of the model with the first ``terms`` columns."""
    data = {**dataset, "X": dataset["X"][:, :terms]}
    return sgmcmc.sample(
        log_lik, data, {"beta": np.zeros(terms)}, log_prior, seed=1, verbose=False
    )


def compare(chains: dict[str, sgmcmc.Samples]) -> pd.DataFrame:
    """Return the table of ArviZ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the terms are computed at some of the draws
        data = {
            name: chain.to_arviz(log_likelihood=True) for name, chain in chains.items()
        }
    return az.compare(data)


def format_table(table: pd.DataFrame) -> str:
    """Return the table, the best model first."""
    lines = [f"{'':8}{'elpd':>11}{'p':>6}{'diff':>8}{'dse':>7}"]
    lines += [
        f"{name:8}{row.elpd_loo:11.1f}{row.p_loo:6.1f}{row.elpd_diff:8.1f}{row.dse:7.1f}"
        for name, row in table.iterrows()
    ]
    return "\n".join(lines)


# %% [markdown]
# A difference of many standard errors is decisive. If it is less than two, the data do not
# distinguish the models; then use the simpler one, or average over them.
#
# The plot shows why: the linear model cannot fit the curve. Its interval is narrow nevertheless,
# because a posterior does not account for models that were not tried.


# %%
def risk(params, dataset):
    return tf.sigmoid(tf.linalg.matvec(dataset["X"], params["beta"]))


def plot(chains: dict[str, sgmcmc.Samples]) -> Figure:
    """Probability of a failure against age, with 90 % intervals."""
    picture = figure(7, 4)
    panel = picture.subplots()
    a = np.linspace(-2.5, 2.5, 101)
    X, age = np.column_stack([np.ones(101), a, a**2]), 45 + 10 * a
    for (name, chain), color, dash in zip(
        chains.items(),
        ("C2", "C1", look("sample")["color"]),
        (":", "--", "-"),
        strict=True,
    ):
        low, middle, high = chain.predict(
            risk,
            {"X": X[:, : TERMS[name]]},
            reduce="quantiles",
            quantiles=(0.05, 0.5, 0.95),
        )
        panel.plot(age, 100 * middle, color=color, linestyle=dash, label=name)
        panel.fill_between(
            age, 100 * low, 100 * high, color=color, alpha=0.2, linewidth=0
        )
    panel.plot(
        age, 100 / (1 + np.exp(-X @ TRUTH)), color="C6", linewidth=0.8, label="truth"
    )
    panel.set(xlabel="age, years", ylabel="probability of a failure, %")
    panel.legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Three models of loans, compared by LOO."
    )
    parser.add_argument("--short", action="store_true", help="fewer loans")
    parser.add_argument(
        "--output", default="comparing_models.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    dataset = simulate(5000 if options.short else 50_000)
    chains = {name: draw(terms, dataset) for name, terms in TERMS.items()}
    print(format_table(compare(chains)))
    plot(chains).savefig(options.output)
    print(f"\nProbability of a failure by each model: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
