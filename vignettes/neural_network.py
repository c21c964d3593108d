# %% [markdown]
# # A neural network on MNIST, without storing draws
#
# This is the third example of the R package's paper (Baker, *Large-Scale Bayesian Computation Using
# Stochastic Gradient MCMC*, Lancaster 2018, section 4.6.3): a network of 784, 100 and 10 units for
# handwritten digits, with a softmax after each layer. Weights `A`, `B` and offsets `a`, `b` have
# normal priors, whose four precisions have Gamma(1, 1) priors. A draw has 79 514 numbers, and 10
# 000 draws would need 3 GB. They are not needed: the results are the log loss on the test set along
# the chain and the posterior mean of the predicted probabilities.
#
# So the chain stores no draws (`store_params=False`). A *test function* is evaluated inside the
# compiled chain at every hundredth iteration, and a *reduction* folds the predicted probabilities
# into a running mean.
#
# Run it with `python vignettes/neural_network.py`, which takes ten minutes on two cores. The tests
# run `--short`, on a few hundred simulated images.

# %%
from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from matplotlib.figure import Figure

import sgmcmc

from _figures import figure, look

Dataset = dict[str, Any]
N_TRAIN, PIXELS, HIDDEN, CLASSES = 55_000, 784, 100, 10

# %% [markdown]
# ## The model
#
# The precisions are positive: a bijector lets the chain move their logarithms, adds the
# log-Jacobian, and shows the model only positive values.


# %%
def log_probs(params, images):
    """Return the log-probabilities of the digits, a row for each image."""
    hidden = tf.nn.softmax(tf.matmul(images, params["B"]) + params["b"])
    return tf.nn.log_softmax(tf.matmul(hidden, params["A"]) + params["a"])


def log_lik(params, dataset):
    return tf.reduce_sum(dataset["y"] * log_probs(params, dataset["X"]))


def log_prior(params):
    total = 0.0
    for name in ("A", "B", "a", "b"):
        precision, x = params[f"lambda_{name}"], params[name]
        size = float(np.prod(x.shape))
        total += 0.5 * size * tf.math.log(precision) - 0.5 * precision * tf.reduce_sum(
            x**2
        )
        total -= precision  # Gamma(1, 1)
    return total


def start(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return standard normal weights and offsets, and precisions of one."""
    shapes = {
        "A": (HIDDEN, CLASSES),
        "B": (PIXELS, HIDDEN),
        "a": (CLASSES,),
        "b": (HIDDEN,),
    }
    weights = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return weights | {f"lambda_{name}": np.ones(()) for name in shapes}


BIJECTORS = {f"lambda_{name}": tfp.bijectors.Exp() for name in ("A", "B", "a", "b")}

# %% [markdown]
# ## The runs
#
# All chains have the published stepsizes, and run 10 000 iterations of burn-in (those with control
# variates 10 000 of mode-finding instead, at stepsize 3e-5) and 10 000 more.


# %%
@dataclass(frozen=True)
class Run:
    """One chain: a sampler with its published settings."""

    method: str
    stepsize: float
    opt_stepsize: float = 3e-5


RUNS = (
    Run("sgld", 1e-4),
    Run("sghmc", 1e-5),
    Run("sgnht", 5e-6),
    Run("sgldcv", 5e-5),
    Run("sghmccv", 1e-5),
    Run("sgnhtcv", 5e-7),
)


def load() -> tuple[Dataset, Dataset]:
    """Return training and test set of MNIST."""
    mnist = sgmcmc.get_dataset("mnist")
    train, test = (
        {"X": part["images"], "y": part["labels"]}
        for part in (mnist["train"], mnist["test"])
    )
    return train, test


def simulate(n_train: int, n_test: int) -> tuple[Dataset, Dataset]:
    """Return images that are ten patterns under noise."""
    rng = np.random.default_rng(1)
    patterns = rng.random((CLASSES, PIXELS)) < 0.2
    sets = []
    for size in (n_train, n_test):
        digits = rng.integers(CLASSES, size=size)
        X = 0.7 * patterns[digits] + 0.3 * rng.random((size, PIXELS))
        sets.append(
            {"X": X.astype(np.float32), "y": np.eye(CLASSES, dtype=np.float32)[digits]}
        )
    return sets[0], sets[1]


@dataclass(frozen=True)
class Result:
    """Results of a chain."""

    iterations: np.ndarray
    log_loss: np.ndarray
    predictive: float
    error_rate: float
    seconds: float
    diverged: str = ""


def sample(run: Run, train: Dataset, test: Dataset, n_iters: int, every: int) -> Result:
    """Run a chain that keeps the log loss and the mean of the predicted probabilities."""
    X, y = tf.constant(test["X"]), tf.constant(test["y"])
    scale = N_TRAIN / len(train["y"])
    arguments: dict[str, Any] = {"burn_in": n_iters}
    if run.method.endswith("cv"):
        arguments = {"opt_stepsize": run.opt_stepsize * scale, "n_iters_opt": n_iters}
    started = time.perf_counter()
    diverged = ""
    try:
        samples = getattr(sgmcmc, run.method)(
            log_lik,
            train,
            start(np.random.default_rng(1)),
            run.stepsize * scale,
            log_prior=log_prior,
            minibatch_size=min(500, len(train["y"]) // 4),
            n_iters=n_iters,
            seed=1,
            verbose=False,
            bijectors=BIJECTORS,
            thin=every,
            store_params=False,
            test_functions={
                "log_loss": lambda params: (
                    -tf.reduce_sum(y * log_probs(params, X)) / y.shape[0]
                )
            },
            reductions={
                "probabilities": sgmcmc.running_mean(
                    lambda params: tf.exp(log_probs(params, X))
                )
            },
            jit_compile=None if n_iters > 1000 else False,  # too short to compile
            **arguments,
        )
    except sgmcmc.DivergenceError as error:
        first, last = error.iterations
        diverged = f"diverged between iterations {first} and {last}"
        if error.samples is None or not len(error.samples.test_functions["log_loss"]):
            seconds = time.perf_counter() - started
            return Result(np.zeros(0), np.zeros(0), np.nan, np.nan, seconds, diverged)
        samples = error.samples
    seconds = time.perf_counter() - started
    losses = samples.test_functions["log_loss"]
    mean = samples.reductions["probabilities"].astype(np.float64)
    predictive = -np.log((mean * test["y"]).sum(axis=1)).mean()
    error_rate = (mean.argmax(axis=1) != test["y"].argmax(axis=1)).mean()
    iterations = every * np.arange(1, len(losses) + 1)
    return Result(
        iterations, losses, float(predictive), float(error_rate), seconds, diverged
    )


# %% [markdown]
# ## Without constants
#
# The published stepsizes were found by hand. `sgmcmc.sample` without a stepsize chooses everything:
# four chains climb the likelihood from different starts, the gradients there give a diagonal
# preconditioner, the largest curvature and the noise give the stepsize, and underdamped dynamics
# run from there. About every eighth iteration is kept, as many as fit in half a gigabyte, and the
# predictions are averaged over these draws of all chains.
#
# The report has warnings: after a few thousand iterations the chains still differ in single weights
# and in their fit, and minibatch noise inflates the variance in the stiffest directions. But
# averaged over four chains the predictions have a log loss of 0.17 on the test set, 5 % of errors,
# and an expected calibration error of 0.02: as good as the published chains, without tuning.


# %%
def predicted(samples: sgmcmc.Samples, test: Dataset, every: int = 4) -> np.ndarray:
    """Return the posterior mean of the predicted probabilities, a row for each image."""
    X = tf.constant(test["X"], tf.float32)
    chains, draws = samples["A"].shape[:2]
    places = [
        (chain, draw) for chain in range(chains) for draw in range(0, draws, every)
    ]
    total = np.zeros((len(test["y"]), CLASSES))
    for place in places:
        params = {name: tf.constant(array[place]) for name, array in samples.items()}
        total += tf.exp(log_probs(params, X)).numpy()
    return total / len(places)


def scores(
    probabilities: np.ndarray, test: Dataset, bins: int = 15
) -> tuple[float, float, float]:
    """Return log loss, error rate and expected calibration error.

    The last is the mean difference between the probability of the most probable digit and the
    frequency with which it is right, over bins of that probability.
    """
    log_loss = -np.log((probabilities * test["y"]).sum(axis=1)).mean()
    right = probabilities.argmax(axis=1) == test["y"].argmax(axis=1)
    claimed = probabilities.max(axis=1)
    place = np.minimum((bins * claimed).astype(int), bins - 1)
    gaps = [
        abs(right[place == b].mean() - claimed[place == b].mean()) * (place == b).mean()
        for b in np.unique(place)
    ]
    return float(log_loss), float(1 - right.mean()), float(np.sum(gaps))


def without_constants(train: Dataset, test: Dataset) -> None:
    """Sample with nothing chosen by hand, and print the report and the scores."""
    started = time.perf_counter()
    samples = sgmcmc.sample(
        log_lik,
        train,
        start(np.random.default_rng(1)),
        log_prior,
        bijectors=BIJECTORS,
        seed=1,
    )
    seconds = time.perf_counter() - started
    print(samples.report)
    log_loss, errors, calibration = scores(predicted(samples, test), test)
    print(
        f"\nWithout constants: log loss {log_loss:.4f}, errors {errors:.1%}, calibration error "
        f"{calibration:.3f}, {seconds:.0f} s.\n"
    )


# %% [markdown]
# ## Results
#
# The table has, for each sampler, the log loss of the last draw, the log loss of the posterior
# predictive (the mean of the predicted probabilities over the chain) and its error rate.
#
# On MNIST the draws of the last tenth are at 0.23 (`sghmccv`) to 0.28 (`sghmc`, `sgld`). Averaging
# over the chain gains far more than the choice of the sampler: the log loss of the posterior
# predictive is between 0.15 (`sgnht`) and 0.22 (`sgld`), and its error rate between 4 and 6 %.


# %%
def format_table(results: dict[str, Result]) -> str:
    lines = [f"{'':8}  last draw  predictive  errors  seconds"]
    for method, r in results.items():
        if r.diverged:
            lines.append(f"{method:8}  {r.diverged}")
            continue
        lines.append(
            f"{method:8}  {r.log_loss[-1]:9.4f}  {r.predictive:10.4f}  {r.error_rate:6.1%}"
            f"  {r.seconds:7.0f}"
        )
    return "\n".join(lines)


def plot(results: dict[str, Result]) -> Figure:
    """Log loss on the test set against iterations, one line for each sampler."""
    picture = figure(9, 5)
    panel = picture.subplots()
    for method, r in results.items():
        panel.plot(
            r.iterations, r.log_loss, linewidth=1.2, label=method, **look(method)
        )
    panel.set(xlabel="iteration", ylabel="log loss on the test set")
    panel.legend(ncols=2)
    return picture


def peak_memory() -> float:
    """Return the most memory that the process has held, in GB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A Bayesian neural network on MNIST.")
    parser.add_argument(
        "--short", action="store_true", help="small simulated data, short chains"
    )
    parser.add_argument(
        "--output", default="neural_network.png", help="where the plot goes"
    )
    options = parser.parse_args(arguments)

    train, test = simulate(400, 50) if options.short else load()
    n_iters, every = (20, 5) if options.short else (10_000, 100)
    before = peak_memory()
    results = {}
    if not options.short:
        without_constants(train, test)
    for run in RUNS:
        results[run.method] = sample(run, train, test, n_iters, every)
        print(f"{run.method}: {results[run.method].seconds:.0f} s", flush=True)
    print()
    print(format_table(results))
    print(
        f"\nPeak memory: {peak_memory():.2f} GB, {before:.2f} GB before the first chain."
    )
    plot(results).savefig(options.output, dpi=120)
    print(f"Log loss along the chains: {options.output}")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
