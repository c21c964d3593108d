# %% [markdown]
# # Mixed models
#
# The data are test results of students at many schools. In a mixed model each school has an effect,
# and the SD of these effects is estimated from the data. The formula is that of lme4:
# `score ~ hours + (1 + hours | school)`. Effects of one factor are integrated out by quadrature, so
# only a few global parameters are sampled, however many groups there are.
#
# Run it with `python vignettes/mixed_models.py`, which takes a minute or two. The tests run
# `--short`, with fewer schools.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure

# %% [markdown]
# ## Schools
#
# Schools differ in their level, with SD 4, and in the gain from an hour of homework, 2 on average
# with SD 1. A school with a high level gains less from an hour: the correlation is −0.5. Some
# schools have few students in the data, others many.

# %%
SDS, CORRELATION, NOISE = np.array([4.0, 1.0]), -0.5, 6.0


def simulate(schools: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return students, and level and gain of each school."""
    rng = np.random.default_rng(1)
    mixed = SDS[:, None] * SDS * np.array([[1.0, CORRELATION], [CORRELATION, 1.0]])
    effects = rng.multivariate_normal([50.0, 2.0], mixed, schools)
    size = rng.integers(4, 40, schools)
    school = np.repeat(np.arange(schools), size)
    hours = rng.gamma(4.0, 0.5, len(school))
    score = (
        effects[school, 0]
        + effects[school, 1] * hours
        + NOISE * rng.normal(size=len(school))
    )
    names = np.array([f"school {number:04d}" for number in range(schools)])
    return pd.DataFrame(
        {"score": score, "hours": hours, "school": names[school]}
    ), effects


# %% [markdown]
# ## The model and the answer
#
# `(1 + hours | school)` is an intercept and a slope of each school, correlated. The summary has
# rows for the SDs of both and for their correlation. `effects("school")` has the deviations of each
# school with intervals, which are wide for schools with few students.


# %%
def fit(students: pd.DataFrame) -> sgmcmc.Regression:
    return sgmcmc.glm(
        "score ~ hours + (1 + hours | school)", students, seed=1, verbose=False
    )


# %% [markdown]
# ## Partial pooling
#
# Least squares in each school has much noise if there are few students. One line for all schools
# ignores their differences. The mixed model is between the two, as far as the estimated SDs say:
# slopes of small schools are shrunk to the mean. The figure has the gain from an hour at each
# school, estimated by least squares and by the mixed model, against the truth.


# %%
def alone(students: pd.DataFrame) -> np.ndarray:
    """Return the slope of least squares at each school."""
    return np.array(
        [
            np.polyfit(part["hours"], part["score"], 1)[0]
            for _, part in students.groupby("school")
        ]
    )


def pooled(regression: sgmcmc.Regression) -> np.ndarray:
    """Return the slope of the mixed model at each school."""
    own = regression.effects("school").xs("hours", level="term")["estimate"].to_numpy()
    return own + regression.fixed["estimate"]["hours"]


def plot(
    students: pd.DataFrame, regression: sgmcmc.Regression, truth: np.ndarray
) -> Figure:
    picture = figure(7, 4)
    panels = picture.subplots(1, 2, sharex=True, sharey=True)
    size = students.groupby("school").size().to_numpy()
    ways = {"school by school": alone(students), "mixed model": pooled(regression)}
    for panel, (name, slopes) in zip(panels, ways.items(), strict=True):
        panel.scatter(truth, slopes, s=size, alpha=0.4, linewidth=0)
        panel.axline((2.0, 2.0), slope=1.0, color="0.5", linewidth=0.8)
        error = np.sqrt(((slopes - truth) ** 2).mean())
        panel.set(title=f"{name}: error {error:.2f}", xlabel="true gain from an hour")
        panel.set(xlim=(-2, 6), ylim=(-6, 10))
    panels[0].set(ylabel="estimate")
    return picture


# %% [markdown]
# ## A new school
#
# For a group in the data `predict` uses its effects. For a new one it draws effects from the
# distribution of schools. The interval of a new school is wide, because schools differ.


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Students in schools, by formula.")
    parser.add_argument("--short", action="store_true", help="fewer schools")
    parser.add_argument(
        "--output", default="mixed_models.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    students, truth = simulate(60 if options.short else 2000)
    regression = fit(students)
    print(regression)
    grid = pd.DataFrame(
        {"hours": 2.0, "school": ["school 0000", "school 0001", "a new one"]}
    )
    low, middle, high = regression.predict(grid, "quantiles")
    print("\nMean score after two hours, with 95 % intervals:")
    for school, *row in zip(grid["school"], low, middle, high, strict=True):
        print(f"{school:12}{row[1]:6.1f}  ({row[0]:.1f} to {row[2]:.1f})")
    plot(students, regression, truth[:, 1]).savefig(options.output)
    print(f"\nGain from an hour at each school: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
