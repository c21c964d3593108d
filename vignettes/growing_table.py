# %% [markdown]
# # A table that grows
#
# A table gets ten thousand rows a day, and its posterior is needed every day.
# `samples.update(rows)` adds the new rows to the old ones, and samples the posterior of all rows.
# It begins at the old mode with the old information, so one or two Newton steps find the new
# mode. It keeps the measured noise of the gradients until the table has doubled, and reuses
# compiled graphs. The result is not an approximation: the chains use all rows.
#
# Run it with `python vignettes/growing_table.py`: 100 batches. The tests run `--short`.

# %%
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure, look

# %% [markdown]
# ## The model
#
# A logistic regression with an intercept and nine features.

# %%
TRUTH = np.array([-2.0, 0.5, -0.5, 0.25, -0.25, 0.1, -0.1, 0.05, -0.05, 0.0])


def log_lik(params, dataset):
    logits = tf.linalg.matvec(dataset["X"], params["beta"])
    return -tf.nn.sigmoid_cross_entropy_with_logits(labels=dataset["y"], logits=logits)


def log_prior(params):
    return -0.5 * tf.reduce_sum(params["beta"] ** 2)


def batches(count: int, size: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of one day after the other."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        X = rng.normal(size=(size, len(TRUTH))).astype(np.float32)
        X[:, 0] = 1.0
        y = rng.random(size) < 1 / (1 + np.exp(-X @ TRUTH))
        yield {"X": X, "y": y.astype(np.float32)}


# %% [markdown]
# ## The posterior of each day
#
# The first day is a call of `sample`; each day after that is an update of the day before. On some
# days a call of `sample` with all rows is made too, for comparison.


# %%
class Day(NamedTuple):
    """Results after a day.

    Attributes:
        rows: Rows in the table.
        mean: Posterior means.
        sd: Posterior SDs.
        seconds: Seconds of the update.
        fresh: Seconds of a call with all rows; NaN on most days.
        away: Largest difference of a mean from that of the call, in posterior SDs.
        wider: Largest difference of an SD from that of the call, relative.
    """

    rows: int
    mean: np.ndarray
    sd: np.ndarray
    seconds: float
    fresh: float = float("nan")
    away: float = float("nan")
    wider: float = float("nan")


def moments(samples: sgmcmc.Samples) -> tuple[np.ndarray, np.ndarray]:
    """Return posterior means and SDs."""
    draws = samples["beta"].reshape(-1, len(TRUTH)).astype(np.float64)
    return draws.mean(0), draws.std(0)


def follow(count: int, size: int, compared: Sequence[int]) -> list[Day]:
    """Return the results after each day."""
    start, days = {"beta": np.zeros(len(TRUTH))}, []
    seen: list[dict[str, np.ndarray]] = []
    samples = None
    for day, rows in enumerate(batches(count, size, seed=1), 1):
        seen.append(rows)
        began = time.perf_counter()
        if samples is None:
            samples = sgmcmc.sample(
                log_lik, rows, start, log_prior, seed=1, verbose=False
            )
        else:
            samples = samples.update(rows, verbose=False)
        known = Day(day * size, *moments(samples), time.perf_counter() - began)
        if day in compared:
            table = {
                name: np.concatenate([each[name] for each in seen]) for name in rows
            }
            began = time.perf_counter()
            fresh = sgmcmc.sample(
                log_lik, table, start, log_prior, seed=day, verbose=False
            )
            seconds = time.perf_counter() - began
            mean, sd = moments(fresh)
            away, wider = np.abs(known.mean - mean) / sd, np.abs(known.sd / sd - 1)
            known = known._replace(fresh=seconds, away=away.max(), wider=wider.max())
        days.append(known)
    return days


# %% [markdown]
# ## Results
#
# The intervals shrink as one over the square root of the rows, around the true values. Means and
# SDs should differ from those of a call with all rows by the Monte Carlo error of two runs with 400
# or more effective draws each: 0.1 posterior SDs and some percent. The cost of an update is that of
# the chain, whose length depends only on the effective sample size, and of a few passes over the
# table. A call of `sample` also searches for the mode from a distant start, searches for other
# modes, and measures the noise.


# %%
def format_table(days: Sequence[Day]) -> str:
    """Return the days with a comparison."""
    lines = [f"{'rows':>9}{'update, s':>11}{'call, s':>9}{'means, SDs':>12}{'SDs':>7}"]
    for day in days:
        if np.isfinite(day.fresh):
            lines.append(
                f"{day.rows:9}{day.seconds:11.2f}{day.fresh:9.2f}{day.away:12.2f}{day.wider:7.1%}"
            )
    return "\n".join(lines)


def plot(days: Sequence[Day], shown: Sequence[int] = (1, 3, 5, 9)) -> Figure:
    """Intervals of some coefficients, and seconds, as the table grows."""
    picture = figure(10, 4)
    left, right = picture.subplots(1, 2)
    rows = np.array([day.rows for day in days])
    for place in shown:
        mean = np.array([day.mean[place] for day in days])
        sd = np.array([day.sd[place] for day in days])
        (line,) = left.plot(rows, mean)
        left.fill_between(
            rows, mean - 2 * sd, mean + 2 * sd, alpha=0.3, color=line.get_color()
        )
        left.axhline(TRUTH[place], linewidth=0.8, linestyle=":", color=line.get_color())
    left.set(xlabel="rows", ylabel="coefficients: mean ± 2 SDs", xscale="log")
    right.plot(
        rows[1:], [day.seconds for day in days[1:]], label="update", **look("sample")
    )
    again = [day for day in days if np.isfinite(day.fresh)]
    places = [day.rows for day in again]
    right.plot(places, [day.fresh for day in again], "o", label="call with all rows")
    right.set(xlabel="rows", ylabel="seconds", ylim=(0, None))
    right.legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="A posterior that follows a table that grows."
    )
    parser.add_argument("--short", action="store_true", help="three small batches")
    parser.add_argument(
        "--output", default="growing_table.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)
    if options.short:
        days = follow(3, 3000, compared=(3,))
    else:
        days = follow(100, 10_000, compared=(2, 5, 10, 20, 50, 100))
    print(format_table(days))
    plot(days).savefig(options.output)
    print(f"\nIntervals and seconds: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
