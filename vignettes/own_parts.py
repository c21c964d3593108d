# %% [markdown]
# # Your own dynamics and your own gradient estimator
#
# A sampler in this package consists of parts: the *dynamics* move the state, the *gradient*
# estimates the gradient of the log posterior, and the *minibatches* choose the rows.
# `sgmcmc.sample` accepts any of them, and your own parts work like the built-in ones. Several
# chains, compiled loops, stores that survive a kill, step-by-step runs, preconditioners, stored
# gradients and zero-variance control variates all work without another line of code, because they
# do not depend on the parts.
#
# This file writes two parts that the package does not have, runs them together on a simulated
# logistic regression, and checks the answer against plain SGLD.
#
# Run it with `python vignettes/own_parts.py`. The tests run `--short`, with shorter chains.

# %%
from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import sgmcmc

# %% [markdown]
# ## The dynamics
#
# Leimkuhler and Matthews (2013) found that SGLD becomes more accurate if the noise of each step is
# averaged with that of the step before:
#
# θ' = θ + (ε/2) ĝ(θ) + √ε (η_k + η_{k+1}) / 2,   η_k ~ N(0, I).
#
# With exact gradients the variance of a Gaussian is then right for every stable stepsize, whereas
# that of SGLD is too large by a term of order ε. But θ alone is then not a Markov chain: the state
# must include the last noise.
#
# Dynamics are a class with two methods. `init` makes the state at the start of a chain, and `step`
# moves it. The state is a named tuple of tensors with a `position`; its other fields are carried
# from step to step, and saved in stores and sessions. Attributes give the number of vectors of
# standard normals for each method. The position is one flat vector, so the code does not depend on
# the names and shapes of the parameters.


# %%
class WithNoise(NamedTuple):
    """The state: the position, and the noise of the last step."""

    position: tf.Tensor
    noise: tf.Tensor


@dataclasses.dataclass(frozen=True)
class LeimkuhlerMatthews(sgmcmc.dynamics.Dynamics):
    """θ' = θ + (ε/2) ĝ(θ) + √ε (η_k + η_{k+1}) / 2."""

    start_normals = 1
    step_normals = 1

    def init(self, position, gradient, stepsize, normals):
        return WithNoise(position, normals[0])

    def step(self, state, gradient, stepsize, normals):
        drift = 0.5 * stepsize * gradient
        noise = 0.5 * tf.sqrt(stepsize) * (state.noise + normals[0])
        return WithNoise(state.position + drift + noise, normals[0])


# %% [markdown]
# ## The gradient estimator
#
# SGLD-CV centers its control variate at the mode, which must be found first. SVRG moves the center
# to the position of the chain and needs no mode, but then the distance of the chain from its center
# is about the width of the posterior. This estimator is in between: every `every` iterations the
# center becomes the average of the positions at which it was moved so far. It starts at the start
# of the chain and converges to the posterior mean.
#
# The estimate is
#
# ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̃)] + Σ_{i∈S} w_i [∇log p(x_i | θ) − ∇log p(x_i | θ̃)],
#
# with G the gradient of the log posterior over the whole dataset at the center θ̃. It is unbiased
# for any center, as long as G is the gradient there.
#
# An estimator also has a state that is carried along. `estimate` is compiled into the chain;
# `target.gradient` gives the gradient of the log posterior estimated from a minibatch, weights and
# prior included. `refresh` is called between blocks of iterations, outside the compiled loop, every
# `refresh_every` iterations, and can read the whole dataset. It returns a new gradient at the
# current position, or `None` to keep the last one.
#
# `centered` says that a second gradient is computed, at `center(state)`. That matters only for
# models with latent variables, which must then be drawn there as well: `at_center` is the same
# minibatch with these. The fields of the dataclass are the estimator's constants. They appear in
# the settings of a run, and a store refuses to continue a chain with other constants.


# %%
class Center(NamedTuple):
    """The state: the center, and the gradient over the whole dataset there."""

    position: tf.Tensor
    full_gradient: tf.Tensor


@dataclasses.dataclass(frozen=True)
class AveragedCenter(sgmcmc.gradients.Gradient):
    """A control variate that is centered at the average of the positions visited so far.

    Args:
        every: Iterations from one move of the center to the next.
    """

    every: int

    centered = True

    def init(self, whole, position):
        return Center(tf.constant(position), tf.constant(whole.gradient(position)))

    def center(self, state):
        return state.position

    def estimate(self, target, state, position, minibatch, at_center):
        here = target.gradient(position, minibatch)
        center = target.gradient(state.position, at_center)
        return state.full_gradient + (here - center), state

    def refresh_every(self, whole):
        return self.every

    def refresh(self, whole, state, position, visit):
        """Move the center to the average of the start, earlier visits and this position."""
        old = state.position.numpy()
        center = (old + (position - old) / (visit + 1)).astype(old.dtype)
        full_gradient = whole.gradient(center, visit)
        return None, Center(tf.constant(center), tf.constant(full_gradient))


# %% [markdown]
# ## The model
#
# The model is a logistic regression, written as for any other sampler. The predictors have very
# different scales, which a preconditioner corrects.


# %%
def simulate(N: int = 5000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2024)
    X = rng.normal(size=(N, 4)) * [0.2, 1.0, 3.0, 10.0]
    logits = 0.5 + X @ [2.0, -1.0, 0.3, 0.1]
    return {
        "X": X,
        "y": (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-logits))).astype(float),
    }


def log_lik(params, dataset):
    logits = params["bias"] + tf.linalg.matvec(dataset["X"], params["beta"])
    return tf.reduce_sum(dataset["y"] * logits - tf.math.softplus(logits))


def log_prior(params):
    return -0.5 * (tf.reduce_sum(params["beta"] ** 2) + params["bias"] ** 2)


START = {"bias": 0.0, "beta": np.zeros(4)}


def preconditioner(dataset: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the variances that the coefficients would have if all probabilities were one half."""
    X = dataset["X"]
    return {"bias": 4.0 / len(X), "beta": 4.0 / (X**2).sum(0)}


# %% [markdown]
# ## Both parts together
#
# Pass both to `sgmcmc.sample` as objects. The draws are written to a store as they are made. If the
# process is killed, the same call resumes and gives the same draws, bit for bit. Here the second
# call finds the chain finished and returns it at once.


# %%
def run(dataset: dict[str, np.ndarray], n_iters: int, **given: Any) -> sgmcmc.Samples:
    """Run four chains; keyword arguments replace those given here."""
    arguments: dict[str, Any] = {
        "dynamics": LeimkuhlerMatthews(),
        "gradient": AveragedCenter(every=200),
        "minibatches": "uniform",
        "minibatch_size": 50,
        "preconditioner": preconditioner(dataset),
        "stepsize": 0.3,
        "n_chains": 4,
        "n_iters": n_iters,
        "burn_in": 500,
        "store_gradients": True,
        "seed": 1,
        "verbose": False,
    }
    return sgmcmc.sample(log_lik, dataset, START, log_prior, **{**arguments, **given})


def with_store(dataset: dict[str, np.ndarray], n_iters: int) -> sgmcmc.Samples:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "chain"
        first = run(dataset, n_iters, store=store)
        again = run(dataset, n_iters, store=store)
        same = all(np.array_equal(first[name], again[name]) for name in first)
        print(f"The store gives the same draws again: {same}.")
        again.save(
            Path(folder) / "chain.npz"
        )  # a store is read as needed; this reads all of it
        return sgmcmc.Samples.load(Path(folder) / "chain.npz")


# %% [markdown]
# ## Step by step
#
# `sgmcmc.setup` accepts the same parts for your own loop. The chain does not depend on how many
# iterations are run at a time.


# %%
def step_by_step(dataset: dict[str, np.ndarray], n_steps: int) -> dict[str, np.ndarray]:
    """Return the positions of the four chains after ``n_iters`` iterations."""
    sampler = sgmcmc.setup(
        log_lik,
        dataset,
        START,
        log_prior,
        dynamics=LeimkuhlerMatthews(),
        gradient=AveragedCenter(every=200),
        minibatches="uniform",
        minibatch_size=50,
        preconditioner=preconditioner(dataset),
        stepsize=0.3,
        seed=1,
    )
    session = sgmcmc.init_sess(sampler)
    sgmcmc.sgmcmc_step(sampler, session, n_steps // 3)
    sgmcmc.sgmcmc_step(sampler, session, n_steps - n_steps // 3)
    return sgmcmc.get_params(sampler, session)


# %% [markdown]
# ## Against SGLD
#
# The reference is plain SGLD with the exact gradient and a small stepsize: slow, and without the
# parts above. The table shows the means and standard deviations of each coefficient by both, and
# the means once more after `sgmcmc.zero_variance`, which uses the stored gradients. All means
# should agree within a few hundredths of a posterior standard deviation.


# %%
def columns(samples: sgmcmc.Samples) -> np.ndarray:
    """Return the draws of all chains with the coefficients in columns."""
    return np.column_stack(
        [samples["bias"].reshape(-1), samples["beta"].reshape(-1, 4)]
    )


def compare(own: sgmcmc.Samples, reference: sgmcmc.Samples) -> float:
    """Print a table; return the largest difference of the means, in standard deviations."""
    mean, sd = columns(reference).mean(0), columns(reference).std(0)
    own_mean, own_sd = columns(own).mean(0), columns(own).std(0)
    # Each step has a new minibatch, whose noise averages out in means of batches of draws.
    corrected = sgmcmc.zero_variance(own, batches=20, keep_draws=False)
    zero = np.concatenate([np.ravel(corrected.mean[name]) for name in ("bias", "beta")])
    print("         SGLD mean    own mean   zero variance   SGLD sd    own sd")
    for i, name in enumerate(["bias", *(f"beta[{j}]" for j in range(4))]):
        means = f"{mean[i]:11.4f} {own_mean[i]:11.4f} {zero[i]:15.4f}"
        print(f"{name:8s}{means} {sd[i]:9.4f} {own_sd[i]:9.4f}")
    return float((np.abs(np.stack([own_mean, zero]) - mean) / sd).max())


# %%
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Your own dynamics and gradient estimator."
    )
    parser.add_argument("--short", action="store_true", help="short chains")
    options = parser.parse_args(arguments)
    dataset, n_iters = simulate(), 4000 if options.short else 40_000

    own = with_store(dataset, n_iters)
    params = step_by_step(dataset, 510)
    gap = max(np.abs(params[name] - own[name][:, 9]).max() for name in params)
    print(f"Step by step the chains differ by at most {gap:.1g}.\n")

    reference = run(
        dataset,
        n_iters,
        dynamics="sgld",
        gradient="full",
        minibatch_size=None,
        stepsize=0.1,
        store_gradients=False,
    )
    furthest = compare(own, reference)
    print(
        f"\nThe means differ by at most {furthest:.3f} posterior standard deviations."
    )
    if furthest > 0.15:
        raise SystemExit("That is too far: one of the parts must be wrong.")


if __name__ == "__main__":
    main([] if "ipykernel" in sys.modules else None)
