"""jax-sgmc, by its aliases: SGLD with the adaption that its documentation calls RMSprop, pSGLD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import tree_util
from jax_sgmc import alias, potential
from jax_sgmc.data.numpy_loader import NumpyDataLoader

from benchmarks.packages.jax_models import MODELS
from benchmarks.workloads import Arrays, Workload


def build(workload: Workload, data: Arrays, params: Arrays) -> Callable[[int], Arrays]:
    log_lik, log_prior = MODELS[workload.model]

    def likelihood(sample: Any, row: Any) -> Any:
        return log_lik(sample, *(row[name] for name in data))

    estimate = potential.minibatch_potential(log_prior, likelihood, strategy="vmap")
    loader = NumpyDataLoader(**data)
    start = tree_util.tree_map(jnp.asarray, params)
    half = workload.stepsize / 2  # its SGLD is θ + dt ĝ + √(2 dt) η

    def chain(n_iters: int) -> Arrays:
        run = alias.sgld(
            estimate, loader, batch_size=workload.n, first_step_size=half,
            last_step_size=0.9 * half, accepted_samples=n_iters, rms_prop=True, alpha=0.99,
            save_to_numpy=False, progress_bar=False,
        )  # fmt: skip
        found = run(start, iterations=max(n_iters, 10))[0]["samples"]["variables"]
        return tree_util.tree_map(np.asarray, found)

    return chain
