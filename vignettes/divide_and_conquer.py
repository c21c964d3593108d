# %% [markdown]
# # Stochastic gradients against divide and conquer
#
# Figures 2.4.1 to 2.4.4 of Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*
# (Lancaster 2018), section 2.4.2. There are two ways to sample a posterior without all rows in
# each step: minibatches (SGLD, SGHMC), and shards of the data that are sampled separately and then
# combined (`sgmcmc.divide`: consensus Monte Carlo, products of kernel densities, the Weierstrass
# rejection sampler). They are compared on four posteriors: with heavy tails, with two modes, with a
# curved ridge, and with increasing dimension.
#
# Every method is scored by its Kullback–Leibler divergence from a long run of an exact sampler,
# estimated from nearest neighbors, over ten seeds on the same data.
#
# Run it with `python vignettes/divide_and_conquer.py`. The tests run `--short`.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from scipy.spatial import cKDTree
from scipy.stats import gaussian_kde

import sgmcmc

from _figures import LOOKS, figure, look

SHARDS, MINIBATCH, STEPS = 20, 50, 3

# %% [markdown]
# ## The posteriors
#
# Sizes and densities are those of the thesis. Degrees of freedom, scales and true values, which it
# does not give, are chosen here. There are 800 rows (10 000 for the mixture), 20 shards, and
# minibatches of 50, and SGHMC has L = 3.
#
# - *Heavy tails*: x ~ t with 3 degrees of freedom in the plane, known scale, flat prior on its
#   location.
# - *Two modes*: ½ N(θ₁, I) + ½ N(θ₂, I) in the plane, with θ₁ = (0, 0) and θ₂ = (0.1, 0.1), so
#   that the two labelings overlap; the first coordinates of θ₁ and θ₂ are shown.
# - *A curved ridge*: x ~ N(θ₁ + θ₂², 2²), priors N(0, 1).
# - *Dimension*: x ~ N(θ, Σ) with Σ known, whose posterior and subposteriors are normal, so that
#   exact draws replace chains of the shards.


# %%
@dataclass(frozen=True)
class Posterior:
    """One of the posteriors, with the constants of its chains.

    `stepsizes` are those of SGLD and SGHMC; `shard` are leapfrog step, number of steps and scales
    of HMC on a shard.
    """

    name: str
    log_lik: Callable[..., tf.Tensor]
    log_prior: Callable[..., tf.Tensor] | None
    dataset: Mapping[str, np.ndarray]
    params: Mapping[str, Any]
    stepsizes: tuple[float, float]
    shard: tuple[float, int, Any]
    shown: tuple[int, int] = (0, 1)


SCALE = np.array([[1.0, 0.4], [0.4, 1.0]])


def heavy_tails(rng: np.random.Generator) -> Posterior:
    root = np.linalg.cholesky(SCALE)
    x = rng.normal(size=(800, 2)) @ root.T / np.sqrt(rng.chisquare(3, (800, 1)) / 3)
    inverse = np.linalg.inv(SCALE)

    def log_lik(params, dataset):
        gap = dataset["x"] - params["theta"]
        square = tf.reduce_sum(gap * (gap @ tf.constant(inverse, gap.dtype)), 1)
        return -2.5 * tf.math.log1p(square / 3.0)

    return Posterior(
        "Heavy tails", log_lik, None, {"x": x}, {"theta": np.zeros(2)}, (3e-5, 9e-6),
        (0.5, 4, {"theta": [0.05, 0.05]}),
    )  # fmt: skip


def two_modes(rng: np.random.Generator) -> Posterior:
    means = np.array([[0.0, 0.0], [0.1, 0.1]])
    x = means[rng.integers(0, 2, 10_000)] + rng.normal(size=(10_000, 2))

    def log_lik(params, dataset):
        gaps = [
            tf.reduce_sum((dataset["x"] - params[name]) ** 2, 1) for name in ("a", "b")
        ]
        return tf.reduce_logsumexp(-0.5 * tf.stack(gaps), 0)

    def log_prior(params):
        return -0.05 * sum(tf.reduce_sum(theta**2) for theta in params.values())

    start = {"a": means[0], "b": means[1]}
    scales = {"a": [0.04, 0.04], "b": [0.04, 0.04]}
    return Posterior(
        "Two modes",
        log_lik,
        log_prior,
        {"x": x},
        start,
        (2e-6, 3e-7),
        (0.3, 8, scales),
        (0, 2),
    )


def curved_ridge(rng: np.random.Generator) -> Posterior:
    x = 0.5 + 2.0 * rng.normal(size=800)

    def log_lik(params, dataset):
        return -0.125 * (dataset["x"] - params["a"] - params["b"] ** 2) ** 2

    def log_prior(params):
        return -0.5 * (params["a"] ** 2 + params["b"] ** 2)

    start = {"a": 0.3, "b": 0.4}
    scales = {"a": [1.0], "b": [1.0]}
    return Posterior(
        "A curved ridge",
        log_lik,
        log_prior,
        {"x": x},
        start,
        (2e-4, 3e-5),
        (0.12, 16, scales),
    )


def normal(rng: np.random.Generator, d: int) -> tuple[Posterior, np.ndarray]:
    """The normal model in d coordinates, and its Σ."""
    sigma = 0.5 * np.eye(d) + 0.5
    x = rng.normal(size=(800, d)) @ np.linalg.cholesky(sigma).T
    inverse = np.linalg.inv(sigma)

    def log_lik(params, dataset):
        gap = dataset["x"] - params["theta"]
        return -0.5 * tf.reduce_sum(gap * (gap @ tf.constant(inverse, gap.dtype)), 1)

    largest = 800 * np.linalg.eigvalsh(inverse)[-1]
    steps = (0.01 / largest, 0.004 / largest)
    start = {"theta": np.zeros(d)}
    return Posterior(
        f"d = {d}", log_lik, None, {"x": x}, start, steps, (0.5, 4, None)
    ), sigma


# %% [markdown]
# ## Divergence from nearest neighbors
#
# With ρ_i the distance of draw i of the truth to its k-th neighbor among the truth, and ν_i that to
# its k-th neighbor among the m draws of a method, KL(truth ‖ method) is estimated by
# (d/n) Σ log(ν_i/ρ_i) + log(m/(n − 1)) (Wang, Kulkarni & Verdú 2009), as in the R package FNN.
# Coordinates are first whitened by the truth, so that distances are comparable. The estimate can be
# negative.


# %%
def divergence(truth: np.ndarray, draws: np.ndarray, k: int = 10) -> float:
    """KL(truth ‖ draws), estimated from the k-th nearest neighbors."""
    root = np.linalg.cholesky(np.cov(truth.T))
    p, q = (np.linalg.solve(root, (x - truth.mean(0)).T).T for x in (truth, draws))
    rho = cKDTree(p).query(p, k + 1)[0][:, -1]
    nu = cKDTree(q).query(p, k)[0][:, -1]
    n, d = p.shape
    return float(d * np.mean(np.log(nu / rho)) + np.log(len(q) / (n - 1)))


def flat(samples: Mapping[str, np.ndarray], most: int) -> np.ndarray:
    """At most ``most`` draws of all chains, evenly spaced, a row for each."""
    parts = [np.asarray(a, float) for a in samples.values()]
    rows = parts[0].shape[0] * parts[0].shape[1]
    joined = np.concatenate([part.reshape(rows, -1) for part in parts], 1)
    return joined[np.linspace(0, rows - 1, min(rows, most)).astype(int)]


# %% [markdown]
# ## The methods
#
# SGLD and SGHMC have two chains of 100 000 iterations for each seed, with the stepsize of a small
# grid that has the smallest divergence. Shards are sampled by HMC. The three combinations of a seed
# use the same draws of the shards, which `Shards` keeps.


# %%
class Shards:
    """The sampler of a shard; shards that were sampled before are not sampled again."""

    def __init__(self, posterior: Posterior, n_iters: int) -> None:
        self.posterior, self.n_iters = posterior, n_iters
        self.known: dict[bytes, sgmcmc.Samples] = {}

    def __call__(
        self, log_lik, dataset, params, *, log_prior, seed, verbose, **keywords
    ):
        key = b"".join(np.asarray(column).tobytes() for column in dataset.values())
        if key not in self.known:
            stepsize, leapfrog, scales = self.posterior.shard
            self.known[key] = sgmcmc.hmc(
                log_lik, dataset, params, log_prior, stepsize=stepsize, n_leapfrog=leapfrog,
                preconditioner=scales, n_chains=2, n_iters=self.n_iters, burn_in=100, seed=seed,
                verbose=False, dtype=tf.float32,
            )  # fmt: skip
        return self.known[key]


class Exact:
    """Exact draws of the subposterior of a normal shard with a flat prior."""

    def __init__(self, sigma: np.ndarray, draws: int) -> None:
        self.sigma, self.draws = sigma, draws

    def __call__(
        self, log_lik, dataset, params, *, log_prior, seed, verbose, **keywords
    ):
        x, rng = np.asarray(dataset["x"], float), np.random.default_rng(seed)
        root = np.linalg.cholesky(self.sigma / len(x))
        theta = x.mean(0) + rng.normal(size=(2, self.draws, len(root))) @ root.T
        return sgmcmc.Samples({"theta": theta}, settings={"n_chains": 2})


COMBINATIONS = {
    "Consensus": "consensus",
    "Kernel densities": "kernel_density",
    "Weierstrass": "weierstrass",
}
METHODS = ("SGLD", "SGHMC", *COMBINATIONS)
OTHERS = dict(zip(COMBINATIONS, ("black", "0.6", "C2"), strict=True))
"""Colors of the combinations, in addition to those of samplers in all figures."""


def minibatches(
    posterior: Posterior, method: str, seeds: int, n_iters: int
) -> list[np.ndarray]:
    """Draws of SGLD or SGHMC for each seed, a row for each: two chains of one call."""
    sgld = method == "SGLD"
    given: dict[str, Any] = {} if sgld else {"alpha": 0.1, "L": STEPS}
    sampler = sgmcmc.sgld if sgld else sgmcmc.sghmc
    samples = sampler(
        posterior.log_lik, posterior.dataset, posterior.params,
        posterior.stepsizes[0 if sgld else 1], posterior.log_prior, minibatch_size=MINIBATCH,
        n_chains=2 * seeds, n_iters=n_iters, burn_in=n_iters // 10, thin=max(n_iters // 1000, 1),
        seed=1, verbose=False, **given,
    )  # fmt: skip
    pairs = [slice(2 * k, 2 * k + 2) for k in range(seeds)]
    return [
        flat({name: samples[name][pair] for name in samples}, 2000) for pair in pairs
    ]


def combined(posterior: Posterior, method: str, seed: int, shards: Any) -> np.ndarray:
    """Draws of the shards, combined, a row for each."""
    samples = sgmcmc.divide(
        posterior.log_lik, posterior.dataset, posterior.params, posterior.log_prior, shards=SHARDS,
        method=COMBINATIONS[method], sampler=shards, seed=seed, verbose=False,
    )  # fmt: skip
    return flat(samples, 2000)


def compare(
    posterior: Posterior,
    truth: np.ndarray,
    shards: Callable[[], Any],
    seeds: int,
    n_iters: int,
) -> tuple[dict[str, list[float]], dict[str, np.ndarray]]:
    """Divergences of each method over the seeds, and the draws of the first."""
    draws = {
        method: minibatches(posterior, method, seeds, n_iters) for method in METHODS[:2]
    }
    draws |= {method: [] for method in COMBINATIONS}
    for seed in range(1, seeds + 1):
        of_seed = shards()
        for method in COMBINATIONS:
            draws[method].append(combined(posterior, method, seed, of_seed))
    scores = {
        method: [divergence(truth, one) for one in of] for method, of in draws.items()
    }
    return scores, {method: of[0] for method, of in draws.items()}


# %% [markdown]
# ## Results
#
# Consensus is exact for normal subposteriors and near that with heavy tails, where the shards'
# posteriors are nearly normal. It puts its mass between two modes, and off a curved ridge: a
# weighted mean of points on a ridge is not on it. Products of kernel densities follow the shape,
# but with 20 shards the kernels are wide against the posterior, and their divergence grows quickly
# with the dimension. The Weierstrass sampler is between the two. The minibatch samplers work for
# any shape, if their stepsize is right for the narrowest direction; on a ridge that makes movement
# along it slow.
#
# ## The figure


# %%
def plot(
    results: Mapping[str, Any], rising: Mapping[int, Mapping[str, list[float]]]
) -> Figure:
    """For each posterior the densities by method and the divergences; below, against dimension."""
    picture = figure(14, 11)
    rows = picture.subfigures(
        len(results) + 1, 1, height_ratios=[1.0] * len(results) + [1.1]
    )
    for part, (name, (posterior, truth, scores, shown)) in zip(
        rows, results.items(), strict=False
    ):
        part.suptitle(f"{name} (gray: the posterior, lines: a method)")
        panels = part.subplots(
            1, len(METHODS) + 1, width_ratios=[1] * len(METHODS) + [1.4]
        )
        i, j = posterior.shown
        axes = [_axis(truth[:, place]) for place in (i, j)]
        exact = _density(truth[:, [i, j]], axes)
        for panel, method in zip(panels, METHODS, strict=False):
            panel.set_title(method, fontsize=9)
            panel.contourf(
                *axes, exact, [*_levels(exact), np.inf], colors=["0.9", "0.8", "0.7"]
            )
            found = _density(shown[method][:, [i, j]], axes)
            panel.contour(*axes, found, _levels(found), colors="C0", linewidths=1)
        panels[-1].boxplot(list(scores.values()), orientation="horizontal", widths=0.6)
        panels[-1].set_yticks(range(1, len(METHODS) + 1), METHODS, fontsize=8)
        panels[-1].set_xscale("symlog", linthresh=0.05)
        panels[-1].set_xlabel("KL divergence", fontsize=8)
    panel = rows[-1].subplots()
    for method in METHODS:
        means = [np.mean(scores[method]) for scores in rising.values()]
        known = (
            look(method.lower())
            if method.lower() in LOOKS
            else {"color": OTHERS[method]}
        )
        panel.plot(list(rising), means, marker="o", label=method, **known)
    panel.set_yscale("symlog", linthresh=0.05)
    panel.set_xlabel("dimension of the normal posterior")
    panel.set_ylabel("KL divergence")
    panel.legend(ncols=len(METHODS), fontsize=8)
    return picture


def _axis(values: np.ndarray) -> np.ndarray:
    low, high = np.quantile(values, [0.002, 0.998])
    room = 0.35 * (high - low)
    return np.linspace(low - room, high + room, 70)


def _density(draws: np.ndarray, axes: Sequence[np.ndarray]) -> np.ndarray:
    """Kernel density estimate of two coordinates on a grid."""
    grid = np.stack(np.meshgrid(*axes))
    return gaussian_kde(draws.T)(grid.reshape(2, -1)).reshape(grid.shape[1:])


def _levels(density: np.ndarray) -> list[float]:
    """Heights above which a density on a grid has 95, 80 and 50 % of its mass."""
    ordered = np.sort(density, axis=None)[::-1]
    mass = np.cumsum(ordered) / ordered.sum()
    heights = [
        float(ordered[np.searchsorted(mass, share)]) for share in (0.95, 0.8, 0.5)
    ]
    return heights if heights[0] < heights[1] < heights[2] else [0.0, 1e-300, 1e-299]


# %% [markdown]
# ## The whole comparison


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Minibatches against shards of the data."
    )
    parser.add_argument(
        "--short", action="store_true", help="two seeds of short chains"
    )
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each method")
    parser.add_argument(
        "--output", default="divide_and_conquer.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)
    seeds, n_iters, draws = (
        (1, 1000, 1000) if options.short else (options.seeds, 100_000, 1000)
    )
    makers = [heavy_tails] if options.short else [heavy_tails, two_modes, curved_ridge]
    dimensions = (2, 4) if options.short else (2, 4, 8, 12, 16, 20)

    rng, results = np.random.default_rng(1), {}
    for make in makers:
        posterior = make(rng)
        exact = sgmcmc.nuts(
            posterior.log_lik, posterior.dataset, posterior.params, posterior.log_prior,
            ess=200 if options.short else 2000, seed=1, verbose=False,
        )  # fmt: skip
        truth, shards = flat(exact, 2000), partial(Shards, posterior, draws)
        scores, shown = compare(posterior, truth, shards, seeds, n_iters)
        results[posterior.name] = posterior, truth, scores, shown
        _print(posterior.name, scores)

    rising = {}
    for d in dimensions:
        posterior, sigma = normal(rng, d)
        x = posterior.dataset["x"]
        root = np.linalg.cholesky(sigma / len(x))
        truth = x.mean(0) + rng.normal(size=(2000, d)) @ root.T
        rising[d], _ = compare(
            posterior, truth, partial(Exact, sigma, 1000), seeds, n_iters
        )
        _print(posterior.name, rising[d])

    plot(results, rising).savefig(options.output, dpi=110)
    print(f"\nDensities and divergences: {options.output}")


def _print(name: str, scores: Mapping[str, list[float]]) -> None:
    """Print median and range of the divergences."""
    print(f"\n{name}: KL divergence, median (smallest, largest)")
    for method, values in scores.items():
        print(
            f"  {method:17} {np.median(values):7.3f} ({min(values):.3f}, {max(values):.3f})"
        )


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
