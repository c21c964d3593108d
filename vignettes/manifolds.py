# %% [markdown]
# # Unit vectors: the two synthetic experiments of SGGMC
#
# Figures 3 and 4 of Liu, Zhu & Song, *Stochastic Gradient Geodesic MCMC Methods*, NeurIPS 2016. The
# first samples a distribution on the circle with two modes from gradients with noise of variance
# 1000. The second samples the directions of a mixture of two von Mises–Fisher distributions, whose
# posterior has two modes too, from minibatches of 10 of 100 observations. The true densities are
# known in both.
#
# Run it with `python vignettes/manifolds.py`, which takes about five minutes. The tests run
# `--short`.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy import special

import sgmcmc
import tensorflow as tf

from _figures import figure, look

SPHERE = sgmcmc.manifolds.Sphere()


def unit(angle):
    """Return the unit vectors at angles from the +x direction."""
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def angle_of(v):
    """Return the angles of unit vectors."""
    return np.arctan2(v[..., 1], v[..., 0])


# %% [markdown]
# ## Figure 3: a circle, and a gradient with known noise
#
# The potential energy is U(v) = −log(exp(5 μ₁·v) + 2 exp(5 μ₂·v)), with μ₁ and μ₂ at ±π/3. The
# paper adds N(0, 1000 I) to its gradient. Here that noise comes from the data, as it does in
# practice: row i adds a linear term z_i·v, these sum to zero, and a minibatch is a single row.
# SGGMC is given the variance, gSGNHT adapts its friction, and SGGMC without the correction shows
# the effect of the noise.

# %%
MODES, HEIGHTS = unit(np.array([np.pi / 3, -np.pi / 3])), np.array([1.0, 2.0])
VARIANCE, ROWS = 1000.0, 10_000


def noise() -> np.ndarray:
    """Return linear terms, which are noise of exactly this variance in a minibatch of one row."""
    z = np.random.default_rng(1).normal(size=(ROWS, 2))
    z -= z.mean(0)
    z = np.linalg.solve(np.linalg.cholesky(np.cov(z.T, ddof=0)), z.T).T
    return np.sqrt(VARIANCE) * z / ROWS


def circle(params: Any, dataset: Any) -> Any:
    """Return a term for each row: its share of −U(v), and its linear term."""
    heights = 5.0 * tf.linalg.matvec(tf.constant(MODES, tf.float32), params["v"])
    toy = tf.reduce_logsumexp(heights + tf.math.log(tf.constant(HEIGHTS, tf.float32)))
    return toy / ROWS + tf.linalg.matvec(dataset["z"], params["v"])


def true_circle(angles: np.ndarray) -> np.ndarray:
    """Return the density of the angle, on an even grid around the circle."""
    density = np.exp(5 * unit(angles) @ MODES.T) @ HEIGHTS
    return density / (density.mean() * 2 * np.pi)


def sample_circle(method: str, draws: int, **constants: Any) -> np.ndarray:
    """Return draws of the angle, from four chains, 100 iterations apart."""
    chain = getattr(sgmcmc, method)(
        circle,
        {"z": noise()},
        {"v": [1.0, 0.0]},
        1e-4,
        minibatch_size=1,
        manifolds={"v": SPHERE},
        n_chains=4,
        n_iters=100 * draws // 4,
        thin=100,
        burn_in=min(5000, 10 * draws),
        verbose=False,
        seed=1,
        **constants,
    )
    return angle_of(chain["v"].reshape(-1, 2).astype(np.float64))


CIRCLES = {
    "SGGMC, V = 1000": ("sggmc", {"alpha": 0.05, "noise_variance": VARIANCE}),
    "gSGNHT": ("gsgnht", {"a": 0.05}),
    "SGGMC, V = 0": ("sggmc", {"alpha": 0.05}),
}

# %% [markdown]
# ## Figure 4: two directions of a mixture
#
# x_i ~ vMF(v₁, κ)/2 + vMF(μ, κ)/2 with μ = (v₁ + v₂)/‖v₁ + v₂‖, priors vMF(e₁, κ) on v₁ and v₂, and
# κ = 20. The 100 observations are drawn at v₁ = −π/24, v₂ = π/8 (the paper's values are partly
# illegible). v₁ and μ may be exchanged, so the posterior has a second mode near v₁ = π/24, v₂ =
# −π/8. Minibatches have 10 rows, and SGGMC estimates the variance of its gradients from the
# empirical Fisher information.

# %%
KAPPA, N, BATCH = 20.0, 100, 10


def directions() -> np.ndarray:
    """Return the observations."""
    rng = np.random.default_rng(1)
    v1, v2 = unit(np.array([-np.pi / 24, np.pi / 8]))
    centers = np.where(rng.random(N) < 0.5, angle_of(v1), angle_of(v1 + v2))
    return unit(rng.vonmises(centers, KAPPA))


def mixture(params: Any, dataset: Any) -> Any:
    """Return the log density of each observation, up to a constant."""
    v1, v2 = params["v1"], params["v2"]
    mu = (v1 + v2) / tf.norm(v1 + v2)
    heights = KAPPA * tf.stack([tf.linalg.matvec(dataset["x"], c) for c in (v1, mu)])
    return tf.reduce_logsumexp(heights, 0)


def mixture_prior(params: Any) -> Any:
    """Return the log prior density: e₁·v is the first component of v."""
    return KAPPA * (params["v1"][0] + params["v2"][0])


def true_mixture(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return the density of the two angles on a square grid, that of v₁ along the first axis."""
    v1, v2 = unit(grid)[:, np.newaxis], unit(grid)[np.newaxis]
    mu = (v1 + v2) / np.linalg.norm(v1 + v2, axis=-1, keepdims=True)
    first, second = (KAPPA * np.broadcast_to(c, mu.shape) @ x.T for c in (v1, mu))
    log = np.logaddexp(first, second).sum(-1) + KAPPA * (v1 + v2)[..., 0]
    density = np.exp(log - special.logsumexp(log))
    return density / (grid[1] - grid[0]) ** 2


def sample_mixture(
    method: str, x: np.ndarray, draws: int, **constants: Any
) -> np.ndarray:
    """Return draws of the two angles, (draws, 2), from four chains, 50 iterations apart."""
    chain = getattr(sgmcmc, method)(
        mixture,
        {"x": x},
        {"v1": [1.0, 0.0], "v2": [1.0, 0.0]},
        2e-5,
        mixture_prior,
        minibatch_size=BATCH,
        manifolds={"v1": SPHERE, "v2": SPHERE},
        n_chains=4,
        n_iters=50 * draws // 4,
        thin=50,
        burn_in=min(2000, 10 * draws),
        verbose=False,
        seed=1,
        **constants,
    )
    angles = [angle_of(chain[name].astype(np.float64)) for name in ("v1", "v2")]
    return np.stack(angles, -1).reshape(-1, 2)


MIXTURES = {
    "SGGMC, Fisher": ("sggmc", {"alpha": 0.05, "noise_variance": "fisher"}),
    "gSGNHT": ("gsgnht", {"a": 0.05}),
}

# %% [markdown]
# ## Results
#
# The table has the Kolmogorov–Smirnov distance, which is the largest difference between the
# distribution functions of the draws and of the truth. For 10 000 independent draws it would be
# about 0.01. Both samplers explore both modes in both experiments, in the right proportions.
# Without the correction the variance of SGGMC is too large, so that its density is too flat.


# %%
class Results(NamedTuple):
    """Draws of angles: of the circle by sampler, and of the mixture."""

    circle: dict[str, np.ndarray]
    mixture: dict[str, np.ndarray]
    x: np.ndarray


def run(draws: int, draws_of_mixture: int) -> Results:
    """Run everything."""
    x = directions()
    circles = {
        name: sample_circle(method, draws, **constants)
        for name, (method, constants) in CIRCLES.items()
    }
    mixtures = {
        name: sample_mixture(method, x, draws_of_mixture, **constants)
        for name, (method, constants) in MIXTURES.items()
    }
    return Results(circles, mixtures, x)


def distance(draws: np.ndarray, grid: np.ndarray, density: np.ndarray) -> float:
    """Return the largest distance between the distribution functions of draws and a density."""
    steps = (density[1:] + density[:-1]) / 2 * np.diff(grid)
    truth = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
    found = np.searchsorted(np.sort(draws), grid) / draws.size
    return float(np.abs(found - truth).max())


ROUND, NEAR = np.linspace(-np.pi, np.pi, 721), np.linspace(-1.0, 1.0, 401)


def format_table(found: Results) -> str:
    """Return the distances from the truth."""
    density = true_mixture(found.x, NEAR)
    of_v1, of_v2 = (density.sum(axis) * (NEAR[1] - NEAR[0]) for axis in (1, 0))
    lines = [f"{'':22}{'draws':>8}{'distance':>10}"]
    for name, angles in found.circle.items():
        far = distance(angles, ROUND, true_circle(ROUND))
        lines.append(f"{name + ', v':22}{angles.size:8}{far:10.3f}")
    for name, angles in found.mixture.items():
        for which, truth in enumerate((of_v1, of_v2)):
            far = distance(angles[:, which], NEAR, truth)
            lines.append(f"{name + f', v{which + 1}':22}{len(angles):8}{far:10.3f}")
    return "\n".join(lines)


def plot(found: Results) -> Figure:
    """Figure 3 in the upper row, figure 4 in the lower."""
    looks = {"SGGMC": look("sggmc"), "gSGNHT": look("gsgnht")}
    picture = figure(10, 6)
    panels = picture.subplots(2, 3)
    first = next(iter(found.circle.values()))
    jitter = np.random.default_rng(1).uniform(0.9, 1.1, 500)
    some = unit(first[:: max(1, first.size // 500)][:500])
    panels[0, 0].scatter(
        *(some.T * jitter[: len(some)]), s=2, color=looks["SGGMC"]["color"]
    )
    panels[0, 0].set_aspect("equal")
    panels[0, 0].set_title("draws of SGGMC, spread across the circle")
    for panel, hot in ((panels[0, 1], False), (panels[0, 2], True)):
        panel.plot(ROUND, true_circle(ROUND), "k-", linewidth=1, label="true")
        for name, angles in found.circle.items():
            if name.endswith("V = 0") == hot:
                bars, edges = np.histogram(angles, 60, (-np.pi, np.pi), density=True)
                style = looks[name.split(",")[0]]
                panel.stairs(bars, edges, label=name, **style)
        panel.set_xlabel("angle of v")
        panel.set_ylim(0, 0.8)
        panel.legend(loc="upper right")
    density = true_mixture(found.x, NEAR)
    for which in (0, 1):
        panel = panels[1, which]
        panel.plot(
            NEAR, density.sum(1 - which) * (NEAR[1] - NEAR[0]), "k-", label="true"
        )
        for name, angles in found.mixture.items():
            bars, edges = np.histogram(angles[:, which], 60, (-1, 1), density=True)
            panel.stairs(bars, edges, label=name, **looks[name.split(",")[0]])
        panel.set(xlabel=f"angle of v{'₁₂'[which]}", xlim=(-0.6, 0.6))
    panels[1, 0].set_ylim(0, 1.4 * panels[1, 0].get_ylim()[1])
    panels[1, 0].legend(loc="upper right")
    joint = panels[1, 2]
    angles = next(iter(found.mixture.values()))
    joint.hist2d(
        *angles.T, bins=80, range=[(-0.6, 0.6)] * 2, density=True, cmap="Greys"
    )
    joint.contour(NEAR, NEAR, density.T, levels=5, colors="tab:red", linewidths=0.7)
    joint.set(
        xlim=(-0.6, 0.6), ylim=(-0.6, 0.6), xlabel="angle of v₁", ylabel="angle of v₂"
    )
    joint.set_title("SGGMC, and lines of the true density")
    return picture


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Figures 3 and 4 of SGGMC.")
    parser.add_argument("--short", action="store_true", help="short chains")
    parser.add_argument("--output", default="manifolds.png", help="where the plot goes")
    options = parser.parse_args(arguments)

    found = run(*((200, 100) if options.short else (20_000, 40_000)))
    print(format_table(found))
    plot(found).savefig(options.output, dpi=120)
    print(f"\nTrue and empirical densities: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
