# %% [markdown]
# # A million groups
#
# The data are visits of a million customers to a shop. The model is a Poisson regression in which
# each customer has an intercept and a slope, which are correlated. As coordinates of a chain these
# would be two million. With `groups=` they are integrated out: the chain has five parameters, its
# observations are whole customers, and the effects of any customer are drawn afterward. Customers
# have five rows on average; some have one row, and some fifty. The figure shows how certain the
# effects of a customer are, by the number of rows.
#
# Run it with `python vignettes/million_groups.py`, which takes about ten minutes. The tests run
# `--short`.

# %%
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure, look

# %% [markdown]
# ## The model
#
# `log_lik` returns a term for each row; its `params` have the effects of the row's customer. The
# density of the effects returns a term for each customer.

# %%
TRUTH = {"a": -0.5, "b": 0.4, "sd0": 0.7, "sd1": 0.3, "rho": -0.4}


def log_lik(params, dataset):
    z = params["z"]
    rate = params["a"] + z[:, 0] + (params["b"] + z[:, 1]) * dataset["x"]
    return dataset["visits"] * rate - tf.exp(rate)


def log_prior(params):
    flat = -0.5 * (params["a"] ** 2 + params["b"] ** 2) / 25
    return flat - params["sd0"] - params["sd1"] + tf.math.log1p(-(params["rho"] ** 2))


def of_customers(effects, params):
    first, second = (
        effects["z"][:, 0] / params["sd0"],
        effects["z"][:, 1] / params["sd1"],
    )
    left = 1 - params["rho"] ** 2
    square = (first**2 - 2 * params["rho"] * first * second + second**2) / left
    return -0.5 * square - tf.math.log(params["sd0"] * params["sd1"] * tf.sqrt(left))


def simulate(groups: int) -> dict[str, np.ndarray]:
    """Return the rows of the customers."""
    rng = np.random.default_rng(groups)
    sizes = np.minimum(1 + rng.negative_binomial(1, 0.2, groups), 50)
    customer = np.repeat(np.arange(groups), sizes)
    x = rng.normal(size=len(customer)).astype(np.float32)
    z = rng.normal(size=(groups, 2))
    z[:, 1] = TRUTH["rho"] * z[:, 0] + np.sqrt(1 - TRUTH["rho"] ** 2) * z[:, 1]
    z *= TRUTH["sd0"], TRUTH["sd1"]
    rate = TRUTH["a"] + z[customer, 0] + (TRUTH["b"] + z[customer, 1]) * x
    return {
        "x": x,
        "visits": rng.poisson(np.exp(rate)).astype(np.float32),
        "customer": customer,
    }


def fit(dataset: dict[str, np.ndarray]) -> sgmcmc.Samples:
    """Return draws, with nothing chosen by hand."""
    positive = tfp.bijectors.Exp()
    return sgmcmc.sample(
        log_lik,
        dataset,
        {"a": 0.0, "b": 0.0, "sd0": 1.0, "sd1": 1.0, "rho": 0.0},
        log_prior,
        groups=sgmcmc.Groups(
            "customer", effects={"z": [0.0, 0.0]}, log_prior=of_customers
        ),
        bijectors={"sd0": positive, "sd1": positive, "rho": tfp.bijectors.Tanh()},
        seed=1,
        verbose=False,
    )


# %% [markdown]
# ## Single customers
#
# The effects of 1500 customers are drawn given every tenth draw of the parameters. They show
# shrinkage: an estimate from the customer's rows alone, log(visits / expected visits), is very
# uncertain if there are few rows, and the posterior mean is then closer to the mean of all.


# %%
class Customers(NamedTuple):
    """Posteriors of some customers: entries for each.

    Attributes:
        size: Number of rows.
        alone: Estimate of the intercept by the customer's own rows, which may be minus infinity.
        mean: Posterior mean of the intercept.
        sd: Posterior standard deviation of the intercept.
    """

    size: np.ndarray
    alone: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def customers(
    samples: sgmcmc.Samples, dataset: dict[str, np.ndarray], count: int
) -> Customers:
    """Return the posteriors of some customers."""
    sizes = np.bincount(dataset["customer"])
    chosen = np.random.default_rng(1).choice(
        len(sizes), min(count, len(sizes)), replace=False
    )
    chosen.sort()
    z = samples[::10].effects("customer", chosen)["z"][..., 0]
    expected = np.exp(samples["a"].mean() + samples["b"].mean() * dataset["x"])
    ratio = np.bincount(dataset["customer"], dataset["visits"])
    ratio /= np.bincount(dataset["customer"], expected)
    with np.errstate(divide="ignore"):
        alone = np.log(ratio[chosen])
    return Customers(sizes[chosen], alone, z.mean((0, 1)), z.std((0, 1)))


# %% [markdown]
# ## The runs
#
# Only the time of passes over the data grows with the number of groups. That of tracing and of the
# chains does not depend on it.


# %%
class Run(NamedTuple):
    """A call of `sample`."""

    rows: int
    seconds: float
    samples: sgmcmc.Samples
    known: Customers


def run(groups: int, count: int) -> Run:
    """Sample the posterior with the given number of customers."""
    dataset = simulate(groups)
    began = time.perf_counter()
    samples = fit(dataset)
    seconds = time.perf_counter() - began
    return Run(len(dataset["x"]), seconds, samples, customers(samples, dataset, count))


def format_table(runs: dict[int, Run]) -> str:
    """Return the parameters, means ± SDs, and the seconds."""
    head = "".join(f"{name:>18}" for name in TRUTH)
    truth = "".join(f"{value:18.2f}" for value in TRUTH.values())
    lines = [f"{'groups':>9}{'rows':>10}{'seconds':>9}{head}", f"{'truth':>28}{truth}"]
    for groups, found in runs.items():
        cells = (
            f"{found.samples[n].mean():.4f} ± {found.samples[n].std():.4f}"
            for n in TRUTH
        )
        cells = "".join(f"{cell:>18}" for cell in cells)
        lines.append(f"{groups:9}{found.rows:10}{found.seconds:9.1f}{cells}")
    return "\n".join(lines)


def plot(runs: dict[int, Run]) -> Figure:
    """SDs of effects against group sizes, shrinkage, and seconds."""
    picture = figure(12, 4)
    sds, shrinkage, seconds = picture.subplots(1, 3)
    known = runs[max(runs)].known
    jitter = np.random.default_rng(2).uniform(0.92, 1.08, len(known.size))
    sds.scatter(known.size * jitter, known.sd, s=4, alpha=0.5)
    sds.axhline(TRUTH["sd0"], color="black", linewidth=1, linestyle="--")
    sds.text(1, 1.02 * TRUTH["sd0"], "SD over all customers", fontsize=8)
    sds.set(
        xscale="log",
        xlabel="rows of the customer",
        ylabel="posterior SD of the intercept",
    )
    finite = np.isfinite(known.alone)
    dots = shrinkage.scatter(
        known.alone[finite],
        known.mean[finite],
        c=np.log10(known.size[finite]),
        s=4,
        cmap="viridis",
    )
    ends = np.array([known.alone[finite].min(), known.alone[finite].max()])
    shrinkage.plot(ends, ends, color="black", linewidth=1, linestyle="--")
    bar = picture.colorbar(dots, ax=shrinkage, ticks=[0, 1, np.log10(50)], label="rows")
    bar.set_ticklabels(["1", "10", "50"])
    shrinkage.set(
        xlabel="estimate by the customer's rows alone", ylabel="posterior mean"
    )
    sizes = list(runs)
    seconds.plot(
        sizes, [runs[size].seconds for size in sizes], marker="o", **look("sample")
    )
    seconds.set(xscale="log", yscale="log", xlabel="groups", ylabel="seconds")
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A million groups.")
    parser.add_argument("--short", action="store_true", help="two hundred groups")
    parser.add_argument(
        "--output", default="million_groups.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)
    sizes = [200] if options.short else [1_000, 10_000, 100_000, 1_000_000]
    runs = {groups: run(groups, 100 if options.short else 1500) for groups in sizes}
    print(runs[sizes[-1]].samples.report)
    print(format_table(runs))
    plot(runs).savefig(options.output, dpi=120)
    print(f"\nEffects, shrinkage and seconds: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
