# %% [markdown]
# # Against NUTS as N grows
#
# Figure 4.2.1 of Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*,
# Lancaster 2018 (figure 1 of the R package's paper): the mean of N standard normal numbers, with
# prior N(0, 10), for N from a thousand to a million. The posterior is known, so each chain can be
# scored by the Kullback–Leibler divergence KL(true ‖ normal with the mean and variance of the
# draws). The paper compared `sgldcv` with Stan. This vignette compares it with NUTS of this
# package, and with `sample` without constants.
#
# Run it with `python vignettes/as_n_grows.py`, which takes about six minutes. The tests run
# `--short`.

# %%
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure, look

# %% [markdown]
# ## The model

# %%
PRIOR_VARIANCE = 10.0


def log_lik(params, dataset):
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def log_prior(params):
    return -0.5 * params["theta"] ** 2 / PRIOR_VARIANCE


def true_posterior(x: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of the posterior."""
    precision = len(x) + 1 / PRIOR_VARIANCE
    return float(x.sum() / precision), 1 / precision


def divergence(x: np.ndarray, draws: np.ndarray) -> float:
    """Return KL(true ‖ normal with the mean and variance of the draws)."""
    mean, variance = true_posterior(x)
    found, spread = draws.mean(), draws.var()
    ratio = variance / spread
    return float(0.5 * (ratio - 1 - np.log(ratio) + (mean - found) ** 2 / spread))


# %% [markdown]
# ## The three ways
#
# `sgldcv` as published: minibatches of 1000 (5000 from N = 500 000 on), 1000 iterations after 1000
# of the search for the mode, one stepsize for both. NUTS draws 1000 after its warm-up, as Stan
# does, from two chains. `sample` has no constants.

# %%
STEPSIZES = {
    1_000: 3e-5,
    5_000: 1e-5,
    10_000: 7e-6,
    50_000: 5e-6,
    100_000: 3e-6,
    500_000: 1e-6,
    1_000_000: 3e-7,
}


def published(x: np.ndarray, seed: int) -> np.ndarray:
    """Return draws of `sgldcv` at the published constants."""
    N = len(x)
    chain = sgmcmc.sgldcv(
        log_lik,
        {"x": x},
        {"theta": 0.0},
        STEPSIZES[N],
        STEPSIZES[N],
        log_prior,
        minibatch_size=min(N, 1000 if N < 500_000 else 5000),
        n_iters=1000,
        n_iters_opt=1000,
        verbose=False,
        seed=seed,
    )
    return chain["theta"].astype(np.float64)


def without_constants(x: np.ndarray, seed: int) -> np.ndarray:
    """Return draws of `sample`, which chooses its constants."""
    chains = sgmcmc.sample(
        log_lik, {"x": x}, {"theta": 0.0}, log_prior, verbose=False, seed=seed
    )
    return chains["theta"].astype(np.float64)


def exact(x: np.ndarray, seed: int) -> np.ndarray:
    """Return draws of NUTS on the whole data."""
    chains = sgmcmc.nuts(
        log_lik,
        {"x": x},
        {"theta": 0.0},
        log_prior,
        n_chains=2,
        n_iters=500,
        verbose=False,
        seed=seed,
    )
    return chains["theta"].astype(np.float64)


WAYS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "sgldcv, as published": published,
    "sample, no constants": without_constants,
    "NUTS": exact,
}
LOOK_LIKE = dict(zip(WAYS, ("sgldcv", "sample", "nuts"), strict=True))


# %% [markdown]
# ## The runs
#
# Seconds are those of the call, with the search for a mode and compiling; as in the paper, every
# call compiles its model.
#
# The divergence of independent draws is about 1 over their number. The published stepsizes are far
# below what the data allow, so a thousand draws of `sgldcv` are worth 30 independent ones at N =
# 1000 and 200 at 10⁶; the paper's figure shows the same. Without constants the divergence stays
# below that of NUTS, which has a quarter as many draws. Most of its seconds are for compiling, as
# for NUTS up to N = 50 000. The seconds of the full run were measured on a busy machine.


# %%
class Score(NamedTuple):
    """Results of one method at one N: medians over the seeds."""

    divergence: float
    seconds: float


def score(N: int, seeds: int) -> dict[str, Score]:
    """Run all ways at one N."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for seed in range(1, seeds + 1):
        x = np.random.default_rng(seed).normal(size=N)
        for name, way in WAYS.items():
            started = time.perf_counter()
            draws = way(x, seed)
            runs[name].append((divergence(x, draws), time.perf_counter() - started))
    return {name: Score(*np.median(found, axis=0)) for name, found in runs.items()}


def format_table(found: Mapping[int, Mapping[str, Score]]) -> str:
    """Return divergences and seconds."""
    lines = [f"{'N':>9}  {'':22}{'KL':>10}{'seconds':>10}"]
    for N, scores in found.items():
        lines += [
            f"{N:9}  {name:22}{s.divergence:10.2g}{s.seconds:10.2f}"
            for name, s in scores.items()
        ]
    return "\n".join(lines)


def plot(found: Mapping[int, Mapping[str, Score]]) -> Figure:
    """Divergence and seconds against N."""
    picture = figure(10, 4)
    panels = picture.subplots(1, 2, sharex=True)
    sizes = np.array(list(found))
    for (name, sampler), marker in zip(LOOK_LIKE.items(), "os^", strict=True):
        scores = np.array([found[N][name] for N in found])
        for panel, values in zip(panels, scores.T, strict=True):
            panel.plot(sizes, values, marker=marker, label=name, **look(sampler))
    panels[0].set(
        xscale="log", yscale="log", ylabel="KL divergence", xlabel="observations N"
    )
    panels[1].set(yscale="log", ylabel="seconds", xlabel="observations N")
    panels[0].legend()
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Against NUTS as N grows.")
    parser.add_argument("--short", action="store_true", help="one small N, one seed")
    parser.add_argument(
        "--output", default="as_n_grows.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)
    sizes, seeds = ([1000], 1) if options.short else (list(STEPSIZES), 5)
    found = {N: score(N, seeds) for N in sizes}
    print(format_table(found))
    plot(found).savefig(options.output, dpi=120)
    print(f"\nDivergences and seconds: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
