# %% [markdown]
# # A table too large for lme4 and brms: elevations by soil
#
# For people who write `lmer(elevation ~ ... + (1 + slope | soil))` or the same for brms. The table
# is covertype: 581 012 patches of forest in Colorado, on 40 types of soil. The question is which
# soils tell the elevation of a patch, so that a gap in the map can be filled from the soil, and
# which do not. Common soils have a hundred thousand patches, and the rarest has three.
#
# Run it with `python vignettes/elevations_by_soil.py`, which takes half a minute. The tests run
# `--short`, with simulated patches.

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

AREAS = np.array(["Rawah", "Neota", "Comanche", "Poudre"])

# %% [markdown]
# ## From the file to a table
#
# `get_dataset` has features between 0 and 1. Elevation and slope get their units back, distances
# are in kilometers, and the indicators of areas and soils become a factor and a number. A frame of
# pandas or the path of a Parquet file is all that `glm` needs.


# %%
def patches() -> pd.DataFrame:
    rows = sgmcmc.get_dataset("covertype")[:, 1:]
    return pd.DataFrame(
        {
            "elevation": 1859 + 1999 * rows[:, 0],
            "slope": 66 * rows[:, 2],
            "water": 1.397 * rows[:, 3],
            "road": 7.117 * rows[:, 5],
            "area": AREAS[rows[:, 10:14].argmax(1)],
            "soil": 1 + rows[:, 14:].argmax(1),
        }
    )


def simulated(size: int) -> pd.DataFrame:
    """Return patches whose soils differ in level and in slope, some of them rare."""
    rng = np.random.default_rng(1)
    soil = np.minimum(rng.geometric(0.2, size), 20)
    table = pd.DataFrame(
        {
            "slope": rng.gamma(4.0, 3.5, size),
            "water": rng.exponential(0.3, size),
            "road": rng.exponential(2.0, size),
            "area": rng.choice(AREAS, size),
            "soil": soil,
        }
    )
    level, tilt = rng.normal([2800, -5], [200, 5], (21, 2)).T
    mean = level[soil] + tilt[soil] * table["slope"] + 30 * table["road"]
    return table.assign(elevation=rng.normal(mean, 120))


# %% [markdown]
# ## The model
#
# The formula is that of lme4. Each soil has a level and a slope, which are correlated. The response
# is Gaussian, so the table is read once, into sums for each soil, and only the SDs and the
# correlation are sampled: the report says into how many. So a million rows take seconds.


# %%
FORMULA = "elevation ~ slope + water + road + area + (1 + slope | soil)"


def fit(table: pd.DataFrame) -> sgmcmc.Regression:
    return sgmcmc.glm(FORMULA, table, seed=1, verbose=False)


# %% [markdown]
# ## What goes wrong without groups
#
# The mean of the patches of each soil would be the first idea. It mixes the soil with everything
# else: patches of one soil are steeper, or farther from a road. And the mean of three patches would
# be believed like that of a hundred thousand. The last column of the table below is that mean.


# %% [markdown]
# ## The decision
#
# `predict` has the mean elevation of patches on each soil, with everything else at its middle, and
# its 95 % interval. A rare soil is not ignored, and not believed either: its effect is pulled to
# those of the others, and its interval is wide. For a soil that is not in the table the effect is
# drawn from the distribution of soils. A gap is filled if the interval of its soil is at most 50 m
# long; on other soils somebody measures.


# %%
LONGEST = 50.0


def by_soil(regression: sgmcmc.Regression, table: pd.DataFrame) -> pd.DataFrame:
    """Return rows, mean and interval of the mean elevation of each soil."""
    sizes = table.groupby("soil").size()
    middle = table[["slope", "water", "road"]].median()
    grid = pd.DataFrame({"soil": [*sizes.index, -1]}).assign(
        **middle, area=table["area"].mode()[0]
    )
    low, mean, high = regression.predict(grid, "quantiles")
    names = [*map(str, sizes.index), "a new one"]
    patches_alone = [*table.groupby("soil")["elevation"].mean(), np.nan]
    columns = {
        "rows": [*sizes, 0],
        "low": low,
        "mean": mean,
        "high": high,
        "patches alone": patches_alone,
    }
    return pd.DataFrame(columns, index=pd.Index(names, name="soil"))


def decide(soils: pd.DataFrame) -> str:
    known = soils["high"] - soils["low"] <= LONGEST
    others = ", ".join(soils.index[~known])
    return (
        f"The means of {known.sum()} soils are known within {LONGEST:.0f} m. "
        f"Patches are measured on the others: {others}."
    )


def plot(soils: pd.DataFrame) -> Figure:
    """Mean elevation of each soil with its interval, and the mean of its patches alone."""
    picture = figure(9, 4)
    panel = picture.subplots()
    soils = soils.sort_values("mean")
    place = np.arange(len(soils))
    rare = soils["rows"] < 1000
    for part, color, name in (
        (~rare, "C0", "1000 rows and more"),
        (rare, "C1", "fewer"),
    ):
        panel.vlines(
            place[part], soils["low"][part], soils["high"][part], color, linewidth=3
        )
        panel.plot(place[part], soils["mean"][part], "o", color=color, label=name)
    panel.plot(
        place,
        soils["patches alone"],
        "x",
        color="0.4",
        label="mean of its patches alone",
    )
    panel.set_xticks(place, soils.index, rotation=90)
    panel.set(xlabel="soil", ylabel="elevation, m")
    panel.legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Elevations by soil, by formula.")
    parser.add_argument("--short", action="store_true", help="simulated patches")
    parser.add_argument(
        "--output", default="elevations_by_soil.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    table = simulated(4000) if options.short else patches()
    regression = fit(table)
    print(regression)
    print(regression.report)
    soils = by_soil(regression, table)
    print(f"\nMean elevation by soil:\n{soils.round(0).to_string()}")
    print(f"\n{decide(soils)}")
    plot(soils).savefig(options.output)
    print(f"\nMean elevation by soil: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
