# %% [markdown]
# # Ratings of films as products of factors
#
# This is the experiment of section 3.5.2 of Baker, *Large-Scale Bayesian Computation Using
# Stochastic Gradient MCMC*, Lancaster 2018: Bayesian probabilistic matrix factorization on
# MovieLens ml-100k. The rating of film j by user i is N(c + U_i·V_j + a_i + b_j, 1/3), with 20
# factors of each. That is 55 125 parameters for the 80 000 ratings of the split u1, which holds out
# 20 000 others.
#
# The vignette shows three things: the log predictive density of the held-out ratings along chains
# of SGLD, SGLD with control variates and SAGA, with 100, 500 and all 943 users (figure 3.5.3
# there); its gain from control variates made of gradients (zero variance) after the chain (figure
# 3.5.4); and the distance of all of them from the posterior of the same model by Gibbs sampling
# over all ratings, which has no stepsize and no gradient.
#
# Run it with `python vignettes/matrix_factorization.py`, which has the published length, 20 000
# iterations and five seeds. The tests run `--short`, on simulated ratings. `--keep FOLDER` saves
# the results of the chains, and reuses saved ones. `--decreasing` makes figure A.3.2: SGLD alone,
# with fixed and with decreasing h.

# %%
from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.sparse import csr_array

import sgmcmc
from sgmcmc.gradients import SAGA, ControlVariate
from sgmcmc.models import HeldOutRatings, MatrixFactorization, matrix_factorization

from _figures import figure, look

# %% [markdown]
# ## The data and the model
#
# With fewer users the data are the ratings of these users. The precisions of factors and biases
# have the priors Gamma(1, 300), of shape and rate, and are integrated out.


# %%
@dataclass(frozen=True)
class Task:
    """Ratings of some users, and those to be predicted."""

    model: MatrixFactorization
    test: HeldOutRatings


def load(n_users: int = 943, rank: int = 20) -> Task:
    """Return the split u1 of ml-100k, of the first users."""
    data = sgmcmc.get_dataset("movielens")
    parts = [
        {name: column[part["user"] < n_users] for name, column in part.items()}
        for part in (data["train"], data["test"])
    ]
    model = matrix_factorization(parts[0], rank, n_users=n_users, n_items=1682)
    return Task(model, model.held_out(parts[1]))


def simulate(n_users: int = 40, n_items: int = 30, size: int = 1200) -> Task:
    """Return ratings from two factors and biases."""
    rng = np.random.default_rng(1)
    U, V = rng.normal(size=(n_users, 2)), rng.normal(size=(n_items, 2))
    user, item = rng.integers(n_users, size=size), rng.integers(n_items, size=size)
    mean = 3 + (U[user] * V[item]).sum(1) + rng.normal(size=n_users)[user]
    rating = mean + rng.normal(size=size) / np.sqrt(3)
    rows = np.arange(size) < 0.8 * size
    train, test = (
        {"user": user[part], "item": item[part], "rating": rating[part]}
        for part in (rows, ~rows)
    )
    model = matrix_factorization(
        train, 2, prior=(1, 1), n_users=n_users, n_items=n_items
    )
    return Task(model, model.held_out(test))


# %% [markdown]
# ## The chains
#
# Parameters of such different sizes cannot share a stepsize. As published, that of each parameter
# is h divided by the root mean square of its gradients so far (`gradient_scaled(h, until=None)`),
# with the h of table A.3.3. For SGLD-CV that h is 5000 times smaller than for SGLD. So SGLD-CV has
# a second run, with the h of SGLD.
#
# Factors that are zero have no gradient, so chains start at small ones.


# %%
@dataclass(frozen=True)
class Run:
    """A chain with its h, and that of the ascent that comes before control variates."""

    label: str
    gradient: str
    h: float
    h_opt: float = 0.0


def published(n_users: int) -> list[Run]:
    """Return the runs of table A.3.3, and one more."""
    tenth = n_users <= 100
    sgld = 1e-3 if tenth else 5e-3
    return [
        Run("SGLD", "minibatch", sgld),
        Run("SGLD-CV, published h", "control_variate", 5e-7 if tenth else 1e-6, 1e-2),
        Run("SGLD-CV, h of SGLD", "control_variate", sgld, 1e-2),
        Run("SAGA", "saga", 5e-3 if tenth else 1e-2),
    ]


def decreasing(n_users: int) -> list[Run]:
    """Return SGLD with h, and with h (1 + k/1000)^(−0.33)."""
    sgld = published(n_users)[0]
    return [sgld, Run("SGLD, decreasing h", "decreasing", sgld.h)]


@dataclass(frozen=True)
class Length:
    """Lengths of chains."""

    n_iters: int = 20_000
    n_iters_opt: int = 2000
    every: int = 20
    minibatch_size: int = 5000


def sample(task: Task, run: Run, length: Length, seeds: int) -> dict[str, np.ndarray]:
    """Run a chain for each seed; its scores every few iterations, by chain.

    The second half is averaged. The chains share their compiled code.
    """
    model, draws = task.model, length.n_iters // length.every
    gradients: dict[str, Callable[[], object]] = {
        "minibatch": lambda: "minibatch",
        "decreasing": lambda: "minibatch",
        "control_variate": lambda: ControlVariate(
            sgmcmc.gradient_scaled(run.h_opt), length.n_iters_opt
        ),
        "saga": lambda: SAGA(lookups=model.lookups),
    }
    h: object = run.h
    if run.gradient == "decreasing":
        h = sgmcmc.polynomial_decay(run.h, tau=1000, kappa=0.33)
    started = time.process_time()
    chain = sgmcmc.sample(
        model.log_lik,
        model.dataset,
        [model.start(seed) for seed in range(1, seeds + 1)],
        model.log_prior,
        dynamics="sgld",
        gradient=gradients[run.gradient](),
        minibatches="uniform",
        preconditioner="none",
        minibatch_size=min(length.minibatch_size, len(model.dataset["rating"]) // 2),
        stepsize=sgmcmc.gradient_scaled(h, until=None),
        n_chains=seeds,
        n_iters=length.n_iters,
        burn_in=0,
        thin=length.every,
        store_params=False,
        reductions={"test": task.test.score(draws, skip=draws // 2)},
        test_functions={"precisions": model.precisions},
        seed=1,
        verbose=False,
    )
    later = chain.test_functions["precisions"][:, draws // 2 :]
    return {
        **chain.reductions["test"],
        "precisions": later.mean(1),
        "seconds": np.full(seeds, (time.process_time() - started) / seeds),
    }


# %% [markdown]
# ## The posterior itself: Gibbs sampling
#
# Given everything else, bias and factors of a user are normal, those of all users are independent,
# and the precisions are gamma. So each can be drawn in turn over all ratings (Salakhutdinov & Mnih,
# ICML 2008; their priors have more parameters).


# %%
class Gibbs:
    """Gibbs sampling of a matrix factorization.

    Args:
        model: The model, with its ratings.
        seed: Seed of the draws and the start.
    """

    def __init__(self, model: MatrixFactorization, seed: int) -> None:
        self.model, self.rng = model, np.random.default_rng(seed)
        start = model.start(seed)
        # A row for each user, and each item: its bias, then its factors.
        self.rows = [
            np.column_stack([start[b], start[f]]) for b, f in (("a", "U"), ("b", "V"))
        ]
        self.precisions = np.ones((2, 2))  # of biases and of factors
        self.sides = [
            (model.dataset["user"], model.dataset["item"], model.n_users),
            (model.dataset["item"], model.dataset["user"], model.n_items),
        ]

    def conditional(self, side: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and precision of bias and factors of each user (0) or item (1)."""
        own, other, size = self.sides[side]
        others = self.rows[1 - side]
        x = np.column_stack([np.ones(len(others)), others[:, 1:]])
        left = self.model.dataset["rating"] - self.model.center - others[other, 0]
        table = csr_array((np.ones(len(own)), (own, other)), shape=(size, len(x)))
        products = (x[:, :, np.newaxis] * x[:, np.newaxis]).reshape(len(x), -1)
        precision = self.model.precision * (table @ products).reshape(
            size, x.shape[1], -1
        )
        diagonal = np.repeat(self.precisions[side], [1, x.shape[1] - 1])
        precision += np.diag(diagonal)
        left = csr_array((left, (own, other)), shape=(size, len(x)))
        right = self.model.precision * (left @ x)
        return np.linalg.solve(precision, right[..., np.newaxis])[..., 0], precision

    def sweep(self) -> dict[str, np.ndarray]:
        """Draw everything once, and return the parameters."""
        s, t = self.model.shape, self.model.rate
        for side in (0, 1):
            mean, precision = self.conditional(side)
            root = np.linalg.cholesky(precision).transpose(0, 2, 1)
            noise = self.rng.normal(size=mean.shape)[..., np.newaxis]
            self.rows[side] = mean + np.linalg.solve(root, noise)[..., 0]
            for k, part in enumerate((self.rows[side][:, :1], self.rows[side][:, 1:])):
                rate = t + 0.5 * np.sum(part**2)
                self.precisions[side, k] = self.rng.gamma(s + 0.5 * part.size, 1 / rate)
        users, items = self.rows
        return {
            "U": users[:, 1:],
            "V": items[:, 1:],
            "a": users[:, 0],
            "b": items[:, 0],
        }


def gibbs(task: Task, sweeps: int, seed: int) -> dict[str, np.ndarray]:
    """Return scores of Gibbs sampling, as of one chain; the second half of it is averaged."""
    started, sampler, kept = time.process_time(), Gibbs(task.model, seed), sweeps // 2
    user, item, rating = task.test.ratings
    means, precisions = [], []
    for _ in range(sweeps):
        p = sampler.sweep()
        mean = (p["U"][user] * p["V"][item]).sum(1) + p["a"][user] + p["b"][item]
        means.append(task.model.center + mean)
        precisions.append(sampler.precisions[[0, 1, 0, 1], [1, 1, 0, 0]].copy())
    error, tau = rating - np.array(means), task.model.precision
    density = np.sqrt(tau / (2 * np.pi)) * np.exp(-0.5 * tau * error**2)
    mean = np.mean(means[kept:], 0)
    found = {
        "rmse": np.sqrt((error**2).mean(1)),
        "log_predictive": np.log(density).mean(1),
        "rmse_averaged": np.sqrt(((rating - mean) ** 2).mean())[np.newaxis],
        "log_predictive_averaged": np.log(density[kept:].mean(0)).mean()[np.newaxis],
        "mean": mean,
        "sd": np.sqrt(np.var(means[kept:], 0) + 1 / tau),
        "precisions": np.mean(precisions[kept:], 0),
        "seconds": np.array(time.process_time() - started),
    }
    return {name: value[np.newaxis] for name, value in found.items()}  # one chain


# %% [markdown]
# ## Zero variance
#
# The log predictive density of one rating depends on 42 numbers: factors and bias of its user and
# of its film. The gradients at these have mean zero under the posterior, so they are control
# variates for it, and 42 coefficients can be fitted for each rating; 55 125 could not be. They are
# fitted on every other tenth of the chain and correct the rest, and vice versa; then the corrected
# values are averaged over the ratings.


# %%
def draw_with_gradients(
    task: Task, run: Run, length: Length, seed: int
) -> sgmcmc.Samples:
    """Run SGLD-CV and keep draws and gradients; scales are learned in the burn-in, and frozen."""
    model = task.model
    return sgmcmc.sgldcv(
        model.log_lik,
        model.dataset,
        model.start(seed),
        sgmcmc.gradient_scaled(run.h),
        sgmcmc.gradient_scaled(run.h_opt),
        log_prior=model.log_prior,
        minibatch_size=min(length.minibatch_size, len(model.dataset["rating"]) // 2),
        n_iters_opt=length.n_iters_opt,
        burn_in=length.n_iters // 4,
        n_iters=length.n_iters,
        thin=length.every,
        store_gradients=True,
        seed=seed,
        verbose=False,
    )


def corrected(chain: sgmcmc.Samples, task: Task, ratings: int) -> dict[str, np.ndarray]:
    """Return the log predictive density at each draw, ``"before"`` and ``"after"`` the correction.

    Args:
        chain: Draws and gradients.
        task: The model, and the held-out ratings.
        ratings: Number of held-out ratings to use, chosen at random.
    """
    rng, tau = np.random.default_rng(1), task.model.precision
    chosen = rng.permutation(len(task.test))[:ratings]
    user, item, rating = (column[chosen] for column in task.test.ratings)
    draws = chain["U"].shape[0]
    tenths = np.arange(draws) * 10 // draws % 2
    before, after = np.zeros(draws), np.zeros(draws)
    for part in np.array_split(np.arange(len(chosen)), -(-len(chosen) // 200)):
        i, j = user[part], item[part]
        U, V = chain["U"][:, i], chain["V"][:, j]
        mean = task.model.center + (U * V).sum(2) + chain["a"][:, i] + chain["b"][:, j]
        h = 0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * (rating[part] - mean) ** 2
        g = chain.gradients
        z = [g["U"][:, i], g["V"][:, j], g["a"][:, i, None], g["b"][:, j, None]]
        f = np.concatenate(z, 2).transpose(1, 0, 2).astype(np.float64)
        f /= f.std(axis=1, keepdims=True) + 1e-300
        h = h.T.astype(np.float64)
        new = np.empty_like(h)
        for half in (0, 1):
            fit, use = tenths != half, tenths == half
            x = f[:, fit] - f[:, fit].mean(1, keepdims=True)
            y = h[:, fit] - h[:, fit].mean(1, keepdims=True)
            gram = np.einsum("rsk,rsl->rkl", x, x) + 1e-3 * fit.sum() * np.eye(
                x.shape[2]
            )
            right = np.einsum("rsk,rs->rk", x, y)
            a = np.linalg.solve(gram, right[..., np.newaxis])[..., 0]
            new[:, use] = h[:, use] - np.einsum("rsk,rk->rs", f[:, use], a)
        before += h.sum(0) / len(chosen)
        after += new.sum(0) / len(chosen)
    return {"before": before, "after": after}


def _ratio(pair: dict[str, np.ndarray], parts: int | None) -> float:
    """Return the ratio of variances, before and after, of draws or of means of parts of chains."""
    before, after = (
        values
        if parts is None
        else np.array([p.mean() for p in np.array_split(values, parts)])
        for values in (pair["before"], pair["after"])
    )
    return float(before.var() / after.var())


# %% [markdown]
# ## Results


# %%
LOOKS = {
    "SGLD": look("sgld"),
    "SGLD, decreasing h": look("sghmccv"),
    "SGLD-CV, published h": look("sgldcv"),
    "SGLD-CV, h of SGLD": look("sghmccv"),
    "SAGA": look("saga"),
}
Results = dict[int, dict[str, dict[str, np.ndarray]]]


def format_table(of_runs: dict[str, dict[str, np.ndarray]]) -> str:
    """Return scores of the averaged draws: means over the seeds, and the distance from Gibbs."""
    exact = of_runs["Gibbs"]
    lines = [
        f"{'':24}{'RMSE':>8}{'(sd)':>9}{'RMSE,':>9}{'log pred.':>11}{'(sd)':>9}{'mean off':>10}"
        f"{'sd /':>8}{'':4}{'E λ of U, V, a, b':26}{'CPU s':>6}",
        f"{'':24}{'':>8}{'':>9}{'1 draw':>9}{'':>11}{'':>9}{'Gibbs by':>10}{'Gibbs':>8}"
        f"{'':30}{'a chain':>6}",
    ]
    for label, found in of_runs.items():
        rmse, log, one = (
            found[name][:, -1]
            for name in ("rmse_averaged", "log_predictive_averaged", "rmse")
        )
        off = np.sqrt(np.mean((found["mean"] - exact["mean"]) ** 2, axis=1)).mean()
        wide = np.median(_own(found) / _own(exact), axis=1).mean()
        lam = " ".join(f"{v:5.2f}" for v in found["precisions"].mean(0))
        lines.append(
            f"{label:24}{rmse.mean():8.4f}{rmse.std():9.4f}{one.mean():9.4f}{log.mean():11.4f}"
            f"{log.std():9.4f}{off:10.3f}{wide:8.2f}    {lam:26}{found['seconds'].mean():6.0f}"
        )
    return "\n".join(lines)


def _own(found: dict[str, np.ndarray], precision: float = 3.0) -> np.ndarray:
    """Return the SD of the mean of each rating, without the noise of the rating."""
    return np.sqrt(np.maximum(found["sd"] ** 2 - 1 / precision, 1e-12))


def plot(results: Results, length: Length) -> Figure:
    """The log predictive density of single draws along the chains, with Gibbs for comparison."""
    drawn = figure(12, 4.2)
    panels = drawn.subplots(1, len(results), squeeze=False)[0]
    for panel, (users, of_runs) in zip(panels, results.items(), strict=True):
        low = []
        for label, found in of_runs.items():
            curve = found["log_predictive"].mean(0)
            if label == "Gibbs":
                level = float(curve[len(curve) // 2 :].mean())
                panel.axhline(level, **look("gibbs"), label="draws of Gibbs")
                low.append(level)
                continue
            first = length.n_iters_opt if label.startswith("SGLD-CV") else 0
            at = first + length.every * np.arange(1, len(curve) + 1)
            panel.plot(at, curve, **LOOKS[label], linewidth=1, label=label)
            low.append(float(curve[len(curve) // 10 :].min()))
        panel.set(title=f"{users} users", xlabel="iteration, ascent included")
        panel.set_ylim(bottom=min(low) - 0.1)
    panels[0].set_ylabel("log predictive density of a held-out rating")
    drawn.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5
    )
    return drawn


def plot_zero_variance(found: dict[str, list[tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Box plots of the log predictive density before and after the correction, by seed."""
    drawn = figure(10, 4.2)
    panels = drawn.subplots(1, len(found), squeeze=False)[0]
    for panel, (label, seeds) in zip(panels, found.items(), strict=True):
        boxes = [values for pair in seeds for values in pair]
        names = [f"{k + 1}{after}" for k in range(len(seeds)) for after in ("", "\nZV")]
        panel.boxplot(boxes, tick_labels=names, showfliers=False)
        panel.set(title=label, xlabel="seed; ZV after the correction")
    panels[0].set_ylabel("log predictive density of a held-out rating")
    return drawn


# %%
def kept(
    folder: str | None, key: str, make: Callable[[], dict[str, np.ndarray]]
) -> dict:
    """Return the result that the folder has under a key, or compute it and save it there."""
    if folder is None:
        return make()
    path = Path(folder) / (hashlib.sha256(key.encode()).hexdigest()[:16] + ".npz")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **make())
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Bayesian matrix factorization of ratings."
    )
    parser.add_argument(
        "--short", action="store_true", help="few simulated ratings and steps"
    )
    parser.add_argument("--users", type=int, nargs="+", default=[100, 500, 943])
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sweeps", type=int, default=200, help="of Gibbs sampling")
    parser.add_argument(
        "--keep", metavar="FOLDER", help="where finished chains are written"
    )
    parser.add_argument("--decreasing", action="store_true", help="figure A.3.2")
    parser.add_argument(
        "--output", default="matrix_factorization.png", help="the figure"
    )
    parser.add_argument(
        "--zero-variance",
        metavar="FILE",
        help="figure 3.5.4; in full always, but not with --decreasing",
    )
    options = parser.parse_args(arguments)
    if not options.short and options.zero_variance is None:
        options.zero_variance = "matrix_factorization_zv.png"

    length, zv = Length(options.iterations), Length(options.iterations // 2)
    tasks, sweeps, ratings, seeds = {}, options.sweeps, 4000, options.seeds
    if options.short:
        length, zv = Length(300, 100, 10, 300), Length(200, 100, 2, 300)
        tasks, sweeps, ratings, seeds = {40: simulate()}, 60, 100, 1
    results: Results = {}
    for users in tasks or options.users:
        task, results[users] = tasks.get(users) or load(users), {}
        print(
            f"\n{users} users, {len(task.model.dataset['rating'])} ratings", flush=True
        )
        results[users]["Gibbs"] = kept(
            options.keep, f"gibbs {users} {sweeps}", lambda t=task: gibbs(t, sweeps, 1)
        )
        shown = decreasing(users) if options.decreasing else published(users)
        if options.short:
            shown = shown[1:] if options.decreasing else shown[2:3]
        for run in shown:
            results[users][run.label] = kept(
                options.keep,
                f"{users} {asdict(run)} {asdict(length)} {seeds}",
                lambda t=task, r=run: sample(t, r, length, seeds),
            )
        print(format_table(results[users]), flush=True)
    plot(results, length).savefig(options.output)
    print(
        f"\nLog predictive density along the chains: {os.path.abspath(options.output)}"
    )
    if options.decreasing or not options.zero_variance:
        return
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    users = list(results)[-1]
    task = tasks.get(users) or load(users)
    for run in published(users)[2 if options.short else 1 : 3]:
        found[run.label] = []
        for seed in range(1, seeds + 1):
            pair = kept(
                options.keep,
                f"zero variance {users} {asdict(run)} {asdict(zv)} {seed} {ratings}",
                lambda r=run, s=seed: corrected(
                    draw_with_gradients(task, r, zv, s), task, ratings
                ),
            )
            found[run.label].append((pair["before"], pair["after"]))
            ratios = [_ratio(pair, parts) for parts in (None, 10)]
            print(
                f"{run.label}, seed {seed}: the variance of draws decreases {ratios[0]:.2f} times, "
                f"that of the means of tenths {ratios[1]:.2f} times; mean "
                f"{pair['before'].mean():.4f} before, {pair['after'].mean():.4f} after",
                flush=True,
            )
    plot_zero_variance(found).savefig(options.zero_variance)
    print(f"Before and after zero variance: {os.path.abspath(options.zero_variance)}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
