# %% [markdown]
# # Regression in one line
#
# A regression is a formula, a table and a family. `sgmcmc.glm` chooses priors and constants,
# samples, and reports whether the draws can be trusted. The question here is which customers of a
# shop return. The analysis has a table, effects in percentage points, a figure of predictions, and
# a comparison with a simpler model.
#
# Run it with `python vignettes/regression_in_one_line.py`, which takes about half a minute. The
# tests run `--short`, on fewer customers.

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
# ## A table
#
# The table could also be `pd.read_csv("customers.csv")`, or the path of a Parquet file. The effect
# of age is not linear, plans differ, and the amount spent is skewed, so the model uses its
# logarithm.


# %%
def simulate(customers: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, customers).round(),
            "spent": rng.lognormal(3.0, 1.0, customers).round(2),
            "plan": rng.choice(
                ["basic", "family", "plus"], customers, p=[0.5, 0.2, 0.3]
            ),
        }
    )
    decades = (table["age"] - 50) / 10
    log_odds = -0.8 - 0.2 * decades**2 + 0.5 * np.log(table["spent"] / 20)
    log_odds += table["plan"].map({"basic": 0.0, "family": 0.6, "plus": 0.3})
    table["returned"] = rng.random(customers) < 1 / (1 + np.exp(-log_odds))
    return table


# %% [markdown]
# ## One line
#
# `bs(age, df=4)` is a spline, so the effect of age can have any smooth form. The summary has a row
# for each term. Coefficients of a spline are hard to interpret; effects on the scale of the
# response are easier.


# %%
def fit(table: pd.DataFrame) -> sgmcmc.Regression:
    formula = "returned ~ bs(age, df=4) + log(spent) + plan"
    return sgmcmc.glm(formula, table, family="bernoulli", seed=1, verbose=False)


# %% [markdown]
# ## On the scale of the response
#
# `comparisons` are average differences of the probability to return if one column changes and the
# others keep their values: from the basic plan to another, or 10 more spent. `predictions` are
# probabilities over a grid, with intervals; columns that are not named are at their mean, or at
# their most frequent value.


# %%
def plot(regression: sgmcmc.Regression) -> Figure:
    """Probability to return against age, by plan, with 95 % intervals."""
    ages = np.arange(18, 81, 2)
    grid = regression.predictions({"age": ages, "plan": ["basic", "family", "plus"]})
    picture = figure(7, 4)
    panel = picture.subplots()
    for plan, part in grid.groupby("plan"):
        (line,) = panel.plot(part["age"], 100 * part["estimate"], label=plan)
        panel.fill_between(
            part["age"], 100 * part["lower"], 100 * part["upper"],
            color=line.get_color(), alpha=0.2, linewidth=0,
        )  # fmt: skip
    panel.set(xlabel="age, years", ylabel="probability to return, %")
    panel.legend(title="plan")
    return picture


# %% [markdown]
# ## Against a simpler model
#
# Is the spline necessary? `loo` estimates how well each model predicts a new customer. A difference
# of many standard errors is decisive.


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Customers who come back, by formula.")
    parser.add_argument("--short", action="store_true", help="fewer customers")
    parser.add_argument(
        "--output", default="regression.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    table = simulate(3000 if options.short else 200_000)
    regression = fit(table)
    print(regression)
    print("\nAverage changes of the probability to return:")
    print(regression.comparisons({"plan": None, "spent": 10}).round(3).to_string())
    straight = sgmcmc.glm(
        "returned ~ age + log(spent) + plan",
        table,
        family="bernoulli",
        seed=1,
        verbose=False,
    )
    gain = regression.loo().compare(straight.loo())
    print(
        f"\nThe spline adds {gain.elpd:.0f} ± {gain.se:.0f} to the log predictive density."
    )
    plot(regression).savefig(options.output)
    print(f"\nProbability to return by age and plan: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
