"""BlackJAX: its kernels in a `lax.scan`, as its documentation has it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import sqrt
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from blackjax.mcmc import mclmc
from blackjax.mcmc.integrators import isokinetic_velocity_verlet
from blackjax.sgmcmc.gradients import control_variates, grad_estimator

from benchmarks.packages.jax_models import MODELS, chain_runner
from benchmarks.workloads import Arrays, Workload


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    log_lik, log_prior = MODELS[workload.model]
    arrays = tuple(jnp.asarray(array) for array in data.values())
    start = jax.tree.map(jnp.asarray, params)

    if workload.method == "mala":
        return _mala(workload, log_lik, log_prior, start, arrays)
    if workload.method == "smile":
        return _smile(workload, log_lik, log_prior, start, arrays)
    gradient = grad_estimator(
        log_prior, lambda p, batch: log_lik(p, *batch), workload.N
    )
    if workload.method == "sgldcv":
        gradient = control_variates(gradient, start, arrays)
    if workload.method == "sghmc":  # its momentum is ours over √ε
        stepsize = sqrt(workload.stepsize)
        algorithm = blackjax.sghmc(gradient, workload.L, workload.alpha / stepsize)
    elif workload.method == "sgnht":  # the same
        stepsize = sqrt(workload.stepsize)
        algorithm = blackjax.sgnht(gradient, workload.alpha / stepsize)
    else:  # its SGLD is θ + dt ĝ + √(2 dt) η
        stepsize = workload.stepsize / 2
        algorithm = blackjax.sgld(gradient)

    @functools.partial(jax.jit, static_argnums=1)
    def one_chain(key: jax.Array, n_iters: int, start: Any, arrays: Any) -> Any:
        def iteration(position: Any, key: jax.Array) -> tuple[Any, Any]:
            key_rows, key_step = jax.random.split(key)
            rows = jax.random.randint(key_rows, (workload.n,), 0, workload.N)
            minibatch = tuple(array[rows] for array in arrays)
            position = algorithm.step(key_step, position, minibatch, stepsize)
            return (
                position,
                position.position if workload.method == "sgnht" else position,
            )

        if workload.method == "sgnht":
            start = algorithm.init(start, key)
        return jax.lax.scan(iteration, start, jax.random.split(key, n_iters))[1]

    return chain_runner(workload, one_chain, start, arrays)


def _mala(
    workload: Workload, log_lik: Any, log_prior: Any, start: Any, arrays: Any
) -> Callable[[int], Arrays]:
    @functools.partial(jax.jit, static_argnums=1)
    def one_chain(key: jax.Array, n_iters: int, start: Any, arrays: Any) -> Any:
        def log_post(params: Any) -> jax.Array:
            rows = jax.vmap(log_lik, (None, *(0 for _ in arrays)))(params, *arrays)
            return rows.sum() + log_prior(params)

        algorithm = blackjax.mala(
            log_post, workload.stepsize / 2
        )  # its step is θ + s g + √(2s) η

        def iteration(state: Any, key: jax.Array) -> tuple[Any, Any]:
            state, _ = algorithm.step(key, state)
            return state, state.position

        return jax.lax.scan(
            iteration, algorithm.init(start), jax.random.split(key, n_iters)
        )[1]

    return chain_runner(workload, one_chain, start, arrays)


def _smile(
    workload: Workload, log_lik: Any, log_prior: Any, start: Any, arrays: Any
) -> Callable[[int], Arrays]:
    """Its microcanonical Langevin kernel, with a new minibatch in each step."""
    size = sum(value.size for value in jax.tree.leaves(start))
    stepsize = sqrt(size * workload.stepsize)
    kernel = mclmc.build_kernel(integrator=isokinetic_velocity_verlet)

    @functools.partial(jax.jit, static_argnums=1)
    def one_chain(key: jax.Array, n_iters: int, start: Any, arrays: Any) -> Any:
        def of_minibatch(key: jax.Array) -> Callable[[Any], jax.Array]:
            rows = jax.random.randint(key, (workload.n,), 0, workload.N)
            minibatch = tuple(array[rows] for array in arrays)

            def log_post(params: Any) -> jax.Array:
                terms = jax.vmap(log_lik, (None, *(0 for _ in arrays)))(
                    params, *minibatch
                )
                return workload.N / workload.n * terms.sum() + log_prior(params)

            return log_post

        def iteration(state: Any, key: jax.Array) -> tuple[Any, Any]:
            key_rows, key_step = jax.random.split(key)
            length = stepsize / workload.alpha
            state, _ = kernel(
                key_step, state, of_minibatch(key_rows), 1.0, length, stepsize
            )
            return state, state.position

        first, second, rest = jax.random.split(key, 3)
        state = mclmc.init(start, of_minibatch(first), second)
        return jax.lax.scan(iteration, state, jax.random.split(rest, n_iters))[1]

    return chain_runner(workload, one_chain, start, arrays)
