# %% [markdown]
# # Your own log-likelihood: which films are good?
#
# For people who write their own models in Stan, NumPyro or PyMC. The data are the 100 000 ratings
# of 1682 films of MovieLens, from one star to five. The question is which ten films to show to a
# visitor of whom nothing is known. The mean rating is no answer: ten films have a
# mean of five stars, and one to three ratings each.
#
# The model is an ordered logit with an effect for each film. In addition some ratings are
# careless, one to five stars with equal probability. No formula says that, so the log-likelihood
# is written out.
#
# Run it with `python vignettes/own_likelihood.py`. The tests run `--short`, with fewer films, whose
# qualities are known.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_probability as tfp
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure

TRUTH = {"cuts": [-3.5, -2.0, -0.5, 1.0], "spread": 1.0, "careless": 0.1}
SHOWN = 10


# %% [markdown]
# ## Ratings
#
# `get_dataset` downloads the file at its first use. A row is a rating: its stars, counted from
# zero, and the number of its film.


# %%
def ratings() -> dict[str, np.ndarray]:
    """Return the ratings of MovieLens."""
    rows = sgmcmc.get_dataset("movielens")["all"]
    return {"stars": rows["rating"] - 1, "film": rows["item"]}


def simulate(films: int, size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return ratings by a known model, and the quality of each film."""
    rng = np.random.default_rng(1)
    quality = TRUTH["spread"] * rng.normal(size=films)
    film = np.concatenate([np.arange(films), rng.integers(films, size=size - films)])
    noisy = quality[film] + rng.logistic(size=size)
    stars = (noisy[:, np.newaxis] > TRUTH["cuts"]).sum(1)
    careless = rng.random(size) < TRUTH["careless"]
    stars[careless] = rng.integers(5, size=careless.sum())
    return {"stars": stars, "film": film}, quality


# %% [markdown]
# ## The model
#
# In Stan the likelihood would be `log_mix(careless, -log(5), ordered_logistic_lpmf(stars |
# quality[film], cuts))`, in a loop over ratings. Here `log_lik` receives some of the rows and
# returns a term for each. `params["quality"]` has the effect of each row's film: the films are
# `groups`, whose effects are integrated out. The chain has six coordinates instead of 1688, and no
# funnel.
#
# Bijectors are the constraints in the parameters block of a Stan program: ordered cutpoints, a
# positive spread, a share between zero and one. The Jacobian is added for you.


# %%
def log_lik(params, dataset):
    above = tf.sigmoid(params["quality"][:, tf.newaxis] - params["cuts"])
    one = tf.ones_like(above[:, :1])
    stars = tf.concat([one, above], 1) - tf.concat([above, 0 * one], 1)
    own = tf.gather(stars, tf.cast(dataset["stars"], tf.int32), axis=1, batch_dims=1)
    careless = params["careless"]
    return tf.math.log((1 - careless) * own + careless / 5)


def log_prior(params):
    cuts = -0.5 * tf.reduce_sum((params["cuts"] / 5) ** 2)
    return cuts - params["spread"] + 9 * tf.math.log1p(-params["careless"])


def of_films(effects, params):
    scaled = effects["quality"] / params["spread"]
    return -0.5 * scaled**2 - tf.math.log(params["spread"])


def draw(
    dataset: dict[str, np.ndarray], log_lik: Callable[..., Any] = log_lik
) -> sgmcmc.Samples:
    return sgmcmc.sample(
        log_lik,
        dataset,
        {"cuts": [-3.0, -1.5, 0.0, 1.5], "spread": 1.0, "careless": 0.05},
        log_prior,
        groups=sgmcmc.Groups("film", {"quality": 0.0}, of_films),
        bijectors={
            "cuts": tfp.bijectors.Ascending(),
            "spread": tfp.bijectors.Exp(),
            "careless": tfp.bijectors.Sigmoid(),
        },
        seed=1,
        verbose=False,
    )


# %% [markdown]
# ## What goes wrong at first
#
# Whoever trains networks returns a mean over rows. A mean does not grow with the data, so the prior
# would hide them. It is refused before anything runs, and the error says what is needed.


# %%
def mean_of_rows(params, dataset):
    return tf.reduce_mean(log_lik(params, dataset))


def refusal(dataset: dict[str, np.ndarray]) -> str:
    """Return the error that a mean gives."""
    try:
        draw(dataset, mean_of_rows)
    except ValueError as error:
        return str(error)
    raise AssertionError("A mean over rows was sampled.")


# %% [markdown]
# ## From draws to a decision
#
# `samples.effects("film")` draws the qualities given the other parameters. A film with few ratings
# keeps an uncertain quality near zero. The order for a cautious host is that of the lower end of
# the 90 % intervals: a film is shown if its quality is surely high.


# %%
def table(samples: sgmcmc.Samples, dataset: dict[str, np.ndarray]) -> pd.DataFrame:
    """Return number and mean of ratings, and interval of the quality, of each film."""
    quality = samples[::4].effects("film")["quality"]
    low, middle, high = np.quantile(quality, [0.05, 0.5, 0.95], axis=(0, 1))
    count = np.bincount(dataset["film"])
    mean = 1 + np.bincount(dataset["film"], dataset["stars"]) / count
    columns = {"ratings": count, "mean": mean, "low": low, "median": middle}
    return pd.DataFrame(columns | {"high": high}).rename_axis("film")


def shown(films: pd.DataFrame, column: str) -> str:
    best = films.sort_values([column, "ratings"], ascending=False).head(SHOWN)
    return best.round(2).to_string()


def plot(films: pd.DataFrame) -> Figure:
    """Lower ends and medians of qualities against the number of ratings."""
    picture = figure(8, 4)
    left, right = picture.subplots(1, 2, sharex=True)
    left.semilogx(films["ratings"], films["mean"], ".", alpha=0.4)
    left.set(xlabel="ratings of a film", ylabel="mean stars", title="mean of the stars")
    best = films.sort_values("low").tail(SHOWN)
    for part, color in ((films, "C0"), (best, "C1")):
        right.vlines(part["ratings"], part["low"], part["high"], color, alpha=0.3)
        right.semilogx(part["ratings"], part["median"], ".", color=color)
    right.set(
        xlabel="ratings of a film",
        ylabel="quality",
        title=f"90 % intervals; the {len(best)} films to show",
    )
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Films by an ordered logit.")
    parser.add_argument("--short", action="store_true", help="fewer films, simulated")
    parser.add_argument(
        "--output", default="own_likelihood.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    dataset = simulate(60, 3000)[0] if options.short else ratings()
    print(f"A mean of rows: {refusal(dataset)}")
    samples = draw(dataset)
    print(f"\n{samples.report}")
    for name in ("spread", "careless"):
        low, high = np.quantile(samples[name], [0.05, 0.95])
        print(f"{name}: 90 % interval {low:.3f} to {high:.3f}")
    films = table(samples, dataset)
    print(f"\nBy mean stars:\n{shown(films, 'mean')}")
    print(f"\nBy the lower end of the quality:\n{shown(films, 'low')}")
    plot(films).savefig(options.output)
    print(f"\nMeans and qualities: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
