"""What the two JAX packages share: log-likelihoods of one observation, and running chains."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workloads import Arrays, Workload


def logistic_log_lik(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    y_est = 1 / (1 + jnp.exp(-(params["bias"] + jnp.dot(x, params["beta"][:, 0]))))
    return y * jnp.log(y_est) + (1 - y) * jnp.log(1 - y_est)


def logistic_log_lik_by_logaddexp(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The same function, written as SGMCMCJax's own examples have it."""
    z = params["bias"] + jnp.dot(x, params["beta"][:, 0])
    return -jnp.logaddexp(0.0, (1 - 2 * y) * z)


def logistic_log_prior(params: Any) -> jax.Array:
    return -(jnp.sum(jnp.abs(params["beta"])) + jnp.sum(jnp.abs(params["bias"])))


def regression_log_lik(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The same of one vector of coefficients; the intercept's column is among the features."""
    return -jnp.logaddexp(0.0, (1 - 2 * y) * jnp.dot(x, params["beta"]))


def laplace_log_prior(params: Any) -> jax.Array:
    return -jnp.sum(jnp.abs(params["beta"]))


def normal_log_prior(params: Any) -> jax.Array:
    return -0.5 * jnp.sum(params["beta"] ** 2)


def gaussian_log_lik(params: Any, x: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((x - params["theta"]) ** 2)


def gaussian_log_prior(params: Any) -> jax.Array:
    return -0.005 * jnp.sum(params["theta"] ** 2)


def network_log_lik(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jax.nn.softmax(x @ params["B"] + params["b"])
    beta = jax.nn.softmax(hidden @ params["A"] + params["a"])
    return jnp.sum(y * jnp.log(beta))


def network_log_prior(params: Any) -> jax.Array:
    total = 0.0
    for name in ("A", "B", "a", "b"):
        log_precision, x = params[f"log_{name}"], params[name]
        precision = jnp.exp(log_precision)
        total += 0.5 * x.size * log_precision
        total += -0.5 * precision * jnp.sum(x**2) + log_precision - precision
    return total


def poisson_log_lik(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    log_rate = params["bias"] + jnp.dot(x, params["beta"][:, 0])
    return y * log_rate - jnp.exp(log_rate)


def factors_log_lik(params: Any, i: jax.Array, r: jax.Array, u: jax.Array) -> jax.Array:
    return -0.5 * (r - jnp.sum(params["users"][u] * params["items"][i])) ** 2


def factors_log_prior(params: Any) -> jax.Array:
    return -0.5 * (jnp.sum(params["users"] ** 2) + jnp.sum(params["items"] ** 2))


MODELS = {
    "logistic": (logistic_log_lik, logistic_log_prior),
    "wide": (logistic_log_lik, logistic_log_prior),
    "poisson": (poisson_log_lik, logistic_log_prior),
    "factors": (factors_log_lik, factors_log_prior),
    "gaussian": (gaussian_log_lik, gaussian_log_prior),
    "network": (network_log_lik, network_log_prior),
    "laplace": (regression_log_lik, laplace_log_prior),
    "normal": (regression_log_lik, normal_log_prior),
}


def chain_runner(
    workload: Workload,
    one_chain: Callable[..., Any],
    *arguments: Any,
) -> Callable[[int], Arrays]:
    """Turn one chain into a function that runs the workload's number of chains.

    Args:
        workload: says how many.
        one_chain: compiled function of a key, the number of iterations and `arguments`.
        arguments: the same for all chains.
    """
    mapped = jax.pmap if os.environ.get("BENCHMARK_CHAINS") == "pmap" else jax.vmap

    @functools.cache
    def several(n_iters: int) -> Callable[..., Any]:
        many = mapped(
            lambda key, *rest: one_chain(key, n_iters, *rest),
            in_axes=(0, *(None for _ in arguments)),
        )
        return many if mapped is jax.pmap else jax.jit(many)

    def chain(n_iters: int) -> Arrays:
        key = jax.random.PRNGKey(1)
        if workload.n_chains == 1:
            draws = one_chain(key, n_iters, *arguments)
        else:
            draws = several(n_iters)(
                jax.random.split(key, workload.n_chains), *arguments
            )
        return jax.tree_util.tree_map(np.asarray, draws)

    return chain
