"""The growing mixed model by other packages of Python: `python others.py PACKAGE FOLDER`.

It runs in an environment of its own, and prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

CHAINS, WARM_UP, DRAWS = 2, 500, 500


def by_numpyro(y: np.ndarray, x: np.ndarray, g: np.ndarray) -> dict[str, Any]:
    """Return what NUTS of NumPyro finds, effects not centered."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.set_host_device_count(CHAINS)

    def model():
        a = numpyro.sample("a", dist.Normal(0.0, 5.0))
        b = numpyro.sample("b", dist.Normal(0.0, 5.0).expand([x.shape[1]]).to_event(1))
        tau = numpyro.sample("tau", dist.Exponential(1.0))
        z = numpyro.sample(
            "z", dist.Normal(0, 1).expand([int(g.max()) + 1]).to_event(1)
        )
        numpyro.sample("y", dist.Bernoulli(logits=a + x @ b + tau * z[g]), obs=y)

    mcmc = MCMC(
        NUTS(model),
        num_warmup=WARM_UP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1))
    draws = mcmc.get_samples()
    return _found(np.asarray(draws["tau"]), np.asarray(draws["b"]))


def by_bambi(y: np.ndarray, x: np.ndarray, g: np.ndarray) -> dict[str, Any]:
    """Return what bambi finds with its default priors and PyMC's NUTS."""
    import bambi
    import pandas as pd

    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])]).assign(
        y=y, g=g
    )
    fixed = " + ".join(f"x{k}" for k in range(x.shape[1]))
    model = bambi.Model(f"y ~ {fixed} + (1 | g)", frame, family="bernoulli")
    data = model.fit(
        draws=DRAWS,
        tune=WARM_UP,
        chains=CHAINS,
        cores=CHAINS,
        random_seed=1,
        progressbar=False,
    )
    posterior = data.posterior
    b = np.stack([posterior[f"x{k}"].values.ravel() for k in range(x.shape[1])], -1)
    return _found(posterior["1|g_sigma"].values.ravel(), b)


def by_statsmodels(y: np.ndarray, x: np.ndarray, g: np.ndarray) -> dict[str, Any]:
    """Return the variational approximation of statsmodels."""
    import scipy.sparse
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    groups = scipy.sparse.csr_matrix((np.ones(len(g)), (np.arange(len(g)), g)))
    exog = np.column_stack([np.ones(len(y)), x])
    model = BinomialBayesMixedGLM(
        y, exog, groups, np.zeros(groups.shape[1], int), vcp_p=2, fe_p=5
    )
    fit = model.fit_vb()
    return {
        "tau": [
            float(np.exp(fit.vcp_mean[0])),
            float(fit.vcp_sd[0] * np.exp(fit.vcp_mean[0])),
        ],
        "b": [fit.fe_mean[1:].tolist(), fit.fe_sd[1:].tolist()],
    }


def _found(tau: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    return {
        "tau": [float(tau.mean()), float(tau.std())],
        "b": [b.mean(0).tolist(), b.std(0).tolist()],
    }


if __name__ == "__main__":
    package, folder = sys.argv[1:]
    with np.load(Path(folder) / "data.npz") as data:
        arrays = [data[name] for name in "yxg"]
    began, used = time.perf_counter(), sum(os.times()[:4])
    found = globals()[f"by_{package}"](*arrays)
    cpu = sum(os.times()[:4]) - used
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": cpu, **found}))
