# %% [markdown]
# # Bikes by the hour: a network that knows what it does not know
#
# How many bikes are rented in an hour, given weather, hour and day? The response depends on all of
# them together, and so does its spread: by night it is a few bikes, at rush hour hundreds.
# `BayesianNetworkRegressor` learns both, and adds what it does not know about the network.
#
# The data are 17 379 hours of Capital Bikeshare in Washington (Fanaee-T & Gama, 2014; the file
# `bikesharing-hour.csv` in the folder `$SGMCMC_DATA`), split as in the paper on the package `bde`.
# Run it with `python vignettes/bike_rentals.py`, which takes a quarter of an hour on two cores. The
# tests run `--short`, with simulated hours.

# %%
from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.model_selection import train_test_split

from sgmcmc.estimators import BayesianNetworkRegressor

from _figures import figure, look

LEFT_OUT = ["cnt", "casual", "registered", "instant", "dteday"]
LEVELS = np.linspace(0.05, 0.95, 19)


class Table(NamedTuple):
    """Hours to learn from and hours to predict: features and rentals."""

    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray


def rentals() -> Table:
    """Return the hours of Washington."""
    hours = pd.read_csv(
        Path(os.environ.get("SGMCMC_DATA", ".")) / "bikesharing-hour.csv"
    )
    return split(hours.drop(columns=LEFT_OUT), hours["cnt"].to_numpy(float))


def simulated(size: int) -> Table:
    """Return hours with two rush hours on working days."""
    rng = np.random.default_rng(1)
    hours = pd.DataFrame(
        {"hr": rng.integers(24, size=size), "workingday": rng.integers(2, size=size)}
    )
    rush = np.exp(-((hours["hr"] - 8) ** 2) / 4) + np.exp(
        -((hours["hr"] - 17) ** 2) / 4
    )
    mean = 50 + 400 * rush * hours["workingday"]
    return split(hours, rng.normal(mean, 0.1 * mean))


def split(X: pd.DataFrame, y: np.ndarray) -> Table:
    """Return four fifths to learn from and a fifth to predict."""
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    return Table(X, y, X_test, y_test)


# %% [markdown]
# ## From an ensemble to a posterior
#
# Without iterations the members are a deep ensemble. The longer the chains, the better the
# predicted densities of hours that were not seen. The default is 100 000 iterations of each of ten
# members.


# %%
class Fit(NamedTuple):
    """A model and its scores on the test hours.

    Attributes:
        n_iters: Iterations of each chain.
        seconds: Seconds of the fit.
        density: Mean log predictive density, with rentals in their SDs.
        error: Root of the mean squared error, in bikes.
        model: Model.
    """

    n_iters: int
    seconds: float
    density: float
    error: float
    model: BayesianNetworkRegressor


def fit(table: Table, n_iters: int, hidden: Sequence[int], epochs: int | None) -> Fit:
    """Fit a model, and score it."""
    began = time.perf_counter()
    model = BayesianNetworkRegressor(
        hidden, n_iters=n_iters, epochs=epochs, random_state=1
    )
    model.fit(table.X, table.y)
    seconds = time.perf_counter() - began
    density = model.log_score(table.X_test, table.y_test) + np.log(table.y.std())
    error = np.sqrt(np.mean((model.predict(table.X_test) - table.y_test) ** 2))
    return Fit(n_iters, seconds, density, error, model)


def format_table(fits: Sequence[Fit]) -> str:
    """Return the scores of all fits."""
    lines = [f"{'iterations':>10}{'seconds':>9}{'log density':>13}{'error, bikes':>14}"]
    for each in fits:
        lines.append(
            f"{each.n_iters:10}{each.seconds:9.0f}{each.density:13.3f}{each.error:14.1f}"
        )
    return "\n".join(lines)


# %% [markdown]
# ## Calibration, and intervals by hour
#
# A tenth of the rentals should be below the quantile of probability 0.1, and so on. The right plot
# has the intervals of working days in July, averaged by hour, and the rentals themselves: intervals
# are wide where rentals are many.


# %%
def coverage(model: BayesianNetworkRegressor, table: Table) -> np.ndarray:
    """Return the part of the test hours below each quantile."""
    found = model.predict(table.X_test, quantiles=LEVELS)
    return (table.y_test[:, np.newaxis] <= found).mean(0)


def plot(fits: Sequence[Fit], table: Table) -> Figure:
    """Density against seconds, calibration, and intervals by hour."""
    picture = figure(12, 4)
    left, middle, right = picture.subplots(1, 3)
    sampled = [each for each in fits if each.n_iters]
    left.plot(
        [e.seconds for e in sampled],
        [e.density for e in sampled],
        "o-",
        label="sampled",
    )
    without = [each for each in fits if not each.n_iters]
    left.plot(
        [e.seconds for e in without],
        [e.density for e in without],
        "s",
        label="ensemble",
    )
    left.set(xlabel="seconds", ylabel="log density of a test hour", xscale="log")
    left.legend()
    model = fits[-1].model
    middle.plot([0, 1], [0, 1], linewidth=0.8, color="0.6")
    middle.plot(LEVELS, coverage(model, table), **look("sample"))
    middle.set(
        xlabel="probability of a quantile", ylabel="part of the test hours below it"
    )
    chosen = table.X_test["workingday"] == 1
    if "mnth" in table.X_test:
        chosen &= table.X_test["mnth"] == 7
    X, y = table.X_test[chosen], table.y_test[chosen]
    hours = np.sort(X["hr"].unique())
    quantiles = model.predict(X, quantiles=norm.cdf([-1.645, 0.0, 1.645]))
    low, mid, high = (
        [column[X["hr"] == hour].mean() for hour in hours] for column in quantiles.T
    )
    right.fill_between(hours, low, high, alpha=0.3, label="90 % interval")
    right.plot(hours, mid, label="median")
    right.plot(X["hr"], y, ".", color="0.3", label="rentals", markersize=4)
    right.set(xlabel="hour of a working day", ylabel="bikes")
    right.legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Bike rentals by the hour, by a network."
    )
    parser.add_argument(
        "--short", action="store_true", help="simulated hours, short chains"
    )
    parser.add_argument(
        "--output", default="bike_rentals.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)
    if options.short:
        table, hidden, epochs, lengths = simulated(1500), (16,), 100, (0, 200)
    else:
        table, hidden, epochs = rentals(), (16, 16, 16, 16), None
        lengths = (0, 2000, 10_000, 40_000, 100_000)
    fits = [fit(table, n_iters, hidden, epochs) for n_iters in lengths]
    print(format_table(fits))
    print()
    print(fits[-1].model.report_)
    plot(fits, table).savefig(options.output)
    print(f"\nDensities, calibration and intervals: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
