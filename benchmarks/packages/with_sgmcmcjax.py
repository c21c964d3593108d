"""SGMCMCJax, by its sampler builders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sgmcmcjax.samplers import (
    build_psgld_sampler,
    build_sghmc_sampler,
    build_sgld_sampler,
    build_sgldCV_sampler,
    build_sgnht_sampler,
)

from benchmarks.packages.jax_models import (
    MODELS,
    chain_runner,
    factors_log_lik,
    logistic_log_lik,
    logistic_log_lik_by_logaddexp,
)
from benchmarks.workloads import Arrays, Workload


def _factors_log_lik(params: Any, places: jax.Array, r: jax.Array) -> jax.Array:
    return factors_log_lik(params, places[0], r, places[1])


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    log_lik, log_prior = MODELS[workload.model]
    if log_lik is logistic_log_lik and workload.method == "sgldcv":
        # On JAX 0.4.30 the compiled full gradient of the other form is wrong from about 200 000
        # rows on (-33 489 where -132 is right), and the chain runs away from the wrong center.
        log_lik = logistic_log_lik_by_logaddexp
    arrays = tuple(data.values())
    if (
        workload.model == "factors"
    ):  # it takes two arrays at most: the places go into one
        log_lik, arrays = (
            _factors_log_lik,
            (np.stack([data["i"], data["u"]], 1), data["r"]),
        )
    model = (log_lik, log_prior, arrays, workload.n)
    start = jax.tree_util.tree_map(jnp.asarray, params)
    half = workload.stepsize / 2  # its SGLD is θ + dt ĝ + √(2 dt) η
    if workload.method == "sgldcv":
        sampler = build_sgldCV_sampler(half, *model, start, pbar=False)
    elif workload.method == "sghmc":
        sampler = build_sghmc_sampler(
            workload.stepsize, workload.L, *model, alpha=workload.alpha, pbar=False
        )
    elif workload.method == "psgld":  # its pSGLD has ours
        sampler = build_psgld_sampler(workload.stepsize, *model, pbar=False)
    elif workload.method == "sgnht":
        sampler = build_sgnht_sampler(
            workload.stepsize, *model, a=workload.alpha, pbar=False
        )
    else:
        sampler = build_sgld_sampler(half, *model, pbar=False)
    return chain_runner(workload, sampler, start)
