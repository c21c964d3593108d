# %% [markdown]
# # Six samplers on half a million rows
#
# The logistic regression of the R package's paper (Baker, *Large-Scale Bayesian Computation Using
# Stochastic Gradient MCMC*, Lancaster 2018, sections 4.5.1 and 4.6.2): covertype,
# 581 012 rows of 54 features in [0, 1], Laplace(0, 1) priors, minibatches of 500. Ten thousand
# rows are held out, and the log loss on them is followed along each chain.
#
# Run it with `python vignettes/logistic_regression.py`. The data come from `get_dataset`: from
# `$SGMCMC_DATA`, the cache, or a download. If none of these works, `get_dataset` raises a
# `DownloadError`, which is an `OSError`, and the script continues with simulated data of the same
# shape and says so. The tests run `--short`, on a few thousand simulated rows.

# %%
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import sgmcmc
import tensorflow as tf

from _figures import figure, look
from demo import N_ROWS, N_TEST, load, log_lik, log_prior, simulate

# %% [markdown]
# The model and the simulation are those of `demo.py`, next to this file.
#
# ## The runs
#
# The stepsizes are those of the paper, and those of its code if they differ. All chains of section
# 4.6.2 start at standard normal draws; those with control variates find the mode first, by 10 000
# iterations with stepsize 1e-6. The two runs of section 4.5.1 start at zero.


# %%
@dataclass(frozen=True)
class Run:
    """One chain: a sampler with its published settings."""

    method: str
    stepsize: float
    source: str
    opt_stepsize: float = 1e-6
    from_zero: bool = False

    @property
    def label(self) -> str:
        return f"{self.method} {self.stepsize:g} ({self.source})"


RUNS = (
    Run("sgld", 5e-6, "4.6.2"),
    Run("sghmc", 1e-7, "4.6.2"),
    Run("sghmc", 5e-7, "code"),
    Run("sgnht", 1e-7, "4.6.2"),
    Run("sgldcv", 1e-5, "4.6.2"),
    Run("sghmccv", 1e-6, "4.6.2"),
    Run("sgnhtcv", 5e-7, "4.6.2"),
    Run("sgnhtcv", 1e-6, "code"),
    Run("sgld", 2e-5, "4.5.1", from_zero=True),
    Run("sgldcv", 5e-6, "4.5.1", opt_stepsize=5e-6, from_zero=True),
)

# %% [markdown]
# ## The log loss along the chain
#
# The log loss is the mean over the held-out rows of −log p(label | θ). Nothing else is needed from
# these chains, so nothing else is stored: a test function computes it inside the compiled chain, at
# every tenth iteration.


# %%
EVERY = 10
Dataset = dict[str, Any]


def log_loss_on(test: Dataset) -> Callable[[Mapping[str, tf.Tensor]], tf.Tensor]:
    """Return the function of the parameters that computes the log loss on a test set."""
    X, y = tf.constant(test["X"]), tf.constant(test["y"])

    def log_loss(params):
        logits = params["bias"] + tf.linalg.matvec(X, params["beta"])
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)
        return tf.reduce_mean(losses)

    return log_loss


class Path(NamedTuple):
    """The log loss along one chain; for the cv methods the mode and the log loss there."""

    iterations: np.ndarray
    log_loss: np.ndarray
    mode: Mapping[str, np.ndarray] | None = None
    at_mode: float | None = None
    diverged: str = ""


def start(features: int, from_zero: bool) -> dict[str, np.ndarray]:
    """Return starting values: zeros, or standard normal draws."""
    rng = np.random.default_rng(1)
    bias, beta = rng.normal(size=()), rng.normal(size=features)
    return (
        {"bias": 0.0 * bias, "beta": 0.0 * beta}
        if from_zero
        else {"bias": bias, "beta": beta}
    )


def follow(
    run: Run,
    train: Dataset,
    test: Dataset,
    n_iters: int,
    n_iters_opt: int,
    verbose: bool = False,
) -> Path:
    """Run a chain and return its log loss. The stepsize is scaled to the number of rows."""
    log_loss = log_loss_on(test)
    rows, features = train["X"].shape
    scale = 1.0 if rows > N_ROWS / 2 else N_ROWS / rows
    of_cv: dict[str, Any] = {}
    if run.method.endswith("cv"):
        of_cv = {"opt_stepsize": run.opt_stepsize * scale, "n_iters_opt": n_iters_opt}
    sampler: Callable[..., sgmcmc.Samples] = getattr(sgmcmc, run.method)
    diverged = ""
    try:
        samples = sampler(
            log_lik,
            train,
            start(features, run.from_zero),
            run.stepsize * scale,
            log_prior=log_prior,
            minibatch_size=min(500, rows // 8),
            n_iters=n_iters,
            seed=1,
            verbose=verbose,
            thin=EVERY,
            test_functions={"log_loss": log_loss},
            store_params=False,
            jit_compile=None if n_iters > 1000 else False,  # too short to compile
            **of_cv,
        )
    except sgmcmc.DivergenceError as error:
        first, last = error.iterations
        diverged = f"diverged between iterations {first} and {last}"
        if error.samples is None:
            return Path(np.zeros(0), np.zeros(0), diverged=f"mode-finding {diverged}")
        samples = error.samples
    losses = samples.test_functions["log_loss"]
    at_mode = None
    if samples.mode is not None:
        at_mode = float(
            log_loss({name: tf.constant(x) for name, x in samples.mode.items()})
        )
    iterations = EVERY * np.arange(1, len(losses) + 1)
    return Path(iterations, losses, samples.mode, at_mode, diverged)


# %% [markdown]
# ## Results
#
# Mean and standard deviation of the log loss over the second half of each chain, and the log loss
# at the point that the control variates are centered at. The standard deviation is over the draws
# of one chain; it measures how much the prediction of a single draw varies, not how well the mean
# is estimated.
#
# On covertype nothing diverges, and the chains whose stepsize is stable (see below) end between
# 0.5167 and 0.5185: the control variates at 0.5167 to 0.5170, the plain minibatch gradients
# higher, by the spread that their noise gives the draws. Two published settings are beyond the
# limit of stability: `sgldcv` at 1e-5 (mean log loss 0.539) and, far beyond it, the `sgld` of
# section 4.5.1 at 2e-5 (1.15).


# %%
def format_table(paths: Mapping[str, Path]) -> str:
    width = max(map(len, paths))
    lines = [f"{'':{width}}    mean       sd     mode"]
    for label, path in paths.items():
        mode = "       " if path.at_mode is None else f"{path.at_mode:7.4f}"
        if path.diverged:
            lines.append(f"{label:{width}}  {path.diverged}  {mode}".rstrip())
            continue
        late = path.log_loss[len(path.log_loss) // 2 :].astype(np.float64)
        lines.append(
            f"{label:{width}}  {late.mean():.4f}  {late.std():.5f}  {mode}".rstrip()
        )
    return "\n".join(lines)


def plot(paths: Mapping[str, Path]) -> Figure:
    """Log loss against iterations: plain samplers above, control variates below."""
    picture = figure(9, 8)
    panels = picture.subplots(2, 1, sharex=True)
    for panel, with_cv in zip(panels, (False, True), strict=True):
        chosen = {label: p for label, p in paths.items() if ("cv " in label) == with_cv}
        late = {
            k: p.log_loss[len(p.log_loss) // 4 :]
            for k, p in chosen.items()
            if not p.diverged
        }
        low = min(map(np.min, late.values()), default=0.5)
        # The axes fit the typical chain. A chain far above them is named, not drawn.
        high = low + 4 * (np.median([*map(np.max, late.values()), low + 0.01]) - low)
        seen: dict[str, str] = {}
        for label, path in chosen.items():
            above = label not in late or np.median(late[label]) > high
            name = f"{label}: above the frame" if above else label
            like = look(label.split()[0])
            if seen.setdefault(label.split()[0], label) != label:
                like["alpha"] = 0.5  # the second setting of a sampler
            panel.plot(
                path.iterations, path.log_loss, linewidth=0.8, label=name, **like
            )
        panel.set(ylim=(low - 0.05 * (high - low), high), ylabel="log loss")
        panel.legend(fontsize=8, loc="upper right")
    panels[0].set_title("minibatch gradients")
    panels[1].set_title("control variates, after the search for the mode")
    panels[1].set_xlabel("iteration")
    return picture


# %% [markdown]
# ## Which stepsizes are stable
#
# Near the mode the log posterior is a parabola, with largest curvature λ, say. There a step of
# gradient ascent multiplies the distance to the mode in the steepest direction by 1 − ε λ, a step
# of SGLD by 1 − ε λ/2: they are stable for ε < 2/λ and ε < 4/λ. Beyond that a chain on this model
# does not diverge to infinity, because the gradient of a logistic regression is bounded; it
# oscillates across the mode instead.


# %%
def largest_curvature(train: Dataset, mode: Mapping[str, np.ndarray]) -> float:
    """Largest eigenvalue of minus the Hessian of the log-likelihood at the mode."""
    X = np.column_stack([np.ones(len(train["y"]), np.float32), train["X"]])
    at = np.concatenate([np.ravel(mode["bias"]), np.ravel(mode["beta"])]).astype(
        np.float32
    )
    p = 1 / (1 + np.exp(-X @ at))
    return float(np.linalg.eigvalsh((X * (p * (1 - p))[:, np.newaxis]).T @ X)[-1])


# %% [markdown]
# ## Everything together


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Six samplers on covertype.")
    parser.add_argument(
        "--short", action="store_true", help="small simulated data, short chains"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="simulated data, no download"
    )
    parser.add_argument(
        "--output", default="logistic_regression.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    data = simulate(4000)[0] if options.short else load(options.simulate)
    train, test = data.split(1000 if options.short else N_TEST, seed=1)
    n_iters, n_iters_opt = (400, 500) if options.short else (20_000, 10_000)
    print(f"{len(train['y'])} training rows, {len(test['y'])} held out.")
    paths = {run.label: follow(run, train, test, n_iters, n_iters_opt) for run in RUNS}
    print(f"\nLog loss over the last {n_iters // 2} of {n_iters} iterations\n")
    print(format_table(paths))
    mode = next(path.mode for path in reversed(paths.values()) if path.mode is not None)
    curvature = largest_curvature(train, mode)
    print(f"\nLargest curvature at the mode {curvature:.3g}:")
    print(
        f"gradient ascent is stable below {2 / curvature:.2g}, SGLD below {4 / curvature:.2g}."
    )
    plot(paths).savefig(options.output, dpi=120)
    print(f"\nLog loss along the chains: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
