"""Runs another package in its own environment; a request in JSON comes by standard input.

    {"module": NAME, "workload": {...}, "data": FILE, "start": [...], "seconds": S, "out": FILE}
    {"rows": n, "prior": NAME, "data": FILE, "out": FILE}           NumPyro's NUTS on some rows

Draws go to a file, as (chain, draw, coordinate), with the seconds before them and of them.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import numpy as np

_TRIAL = 2000
"""Iterations by which the time of one is measured."""

_KEPT, _MOST = 5000, 1_000_000
"""Draws of a chain that are written, and iterations that a chain has at most."""


def stochastic_gradients(request: dict[str, Any]) -> dict[str, Any]:
    """Run the chains of a package for about so many seconds."""
    from benchmarks.workloads import Workload

    workload = Workload(**request["workload"])
    module = importlib.import_module(request["module"])
    with np.load(request["data"]) as file:
        data = {name: file[name] for name in ("X", "y")}
    began = time.perf_counter()
    chain = module.build(
        workload, data, {"beta": np.array(request["start"], np.float32)}
    )
    built = time.perf_counter() - began
    chain(_TRIAL)
    began = time.perf_counter()
    chain(_TRIAL)
    each = (time.perf_counter() - began) / _TRIAL
    length = int(min(_MOST, max(_TRIAL, request["seconds"] / each)))
    began = time.perf_counter()
    draws = chain(length)["beta"]
    seconds = time.perf_counter() - began
    thin = max(1, length // _KEPT)
    return {
        "draws": draws[:, thin - 1 :: thin],
        "before": built + max(0.0, seconds - each * length),
        "seconds": min(seconds, each * length),
        "each": each,
    }


def nuts(request: dict[str, Any]) -> dict[str, Any]:
    """Run NumPyro's NUTS, with a dense mass matrix that it adapts, on the first rows."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    with np.load(request["data"]) as file:
        rows = np.random.default_rng(1).permutation(len(file["y"]))[: request["rows"]]
        X, y = jnp.asarray(file["X"][rows]), jnp.asarray(file["y"][rows])
    prior = (
        dist.Laplace(0.0, 1.0)
        if request["prior"] == "laplace"
        else dist.Normal(0.0, 1.0)
    )

    def model() -> None:
        beta = numpyro.sample("beta", prior.expand([X.shape[1]]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)

    mcmc = MCMC(
        NUTS(model, dense_mass=True),
        num_warmup=500,
        num_samples=500,
        progress_bar=False,
    )
    began = time.perf_counter()
    mcmc.warmup(jax.random.PRNGKey(1), collect_warmup=False)
    before = time.perf_counter() - began
    began = time.perf_counter()
    mcmc.run(jax.random.PRNGKey(2), extra_fields=("num_steps",))
    draws = np.asarray(mcmc.get_samples()["beta"])[np.newaxis]
    steps = float(np.mean(mcmc.get_extra_fields()["num_steps"]))
    return {
        "draws": draws,
        "before": before,
        "seconds": time.perf_counter() - began,
        "each": steps,
    }


def main() -> None:
    request = json.load(sys.stdin)
    found = nuts(request) if "rows" in request else stochastic_gradients(request)
    np.savez(request["out"], **found)


if __name__ == "__main__":
    main()
