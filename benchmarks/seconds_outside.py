"""NumPyro and scikit-learn on all rows of a logistic regression, for `benchmarks.seconds`.

It runs in their environments; a request in JSON comes by standard input:

    {"method": NAME, "data": FILE, "center": [...], "covariance": [...], "draws": n, "out": FILE}

NUTS and HMCECS are given what takes them longest to find: the mode to start at, and the covariance
there as their mass matrix. They adapt the stepsize alone.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

_WARM_UP = 30
"""Iterations in which the stepsize is adapted."""

_ROWS, _BLOCKS = 1000, 100
"""Rows of a minibatch of HMCECS, and blocks of which one is drawn anew in each iteration, as in
NumPyro's example."""


def numpyro(request: dict[str, Any], X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Run NUTS on all rows, or HMCECS on some of them with a control variate at the mode."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import HMCECS, MCMC, NUTS, init_to_value

    size = None if request["method"] == "nuts" else _ROWS
    center = {"beta": np.array(request["center"], np.float32)}

    def model(X: Any, y: Any) -> None:
        prior = dist.Laplace(0.0, 1.0).expand([X.shape[1]]).to_event(1)
        beta = numpyro.sample("beta", prior)
        with numpyro.plate("rows", len(y), subsample_size=size):
            some, labels = numpyro.subsample(X, 1), numpyro.subsample(y, 0)
            numpyro.sample("y", dist.Bernoulli(logits=some @ beta), obs=labels)

    kernel: Any = NUTS(
        model,
        dense_mass=True,
        adapt_mass_matrix=False,
        inverse_mass_matrix=np.array(request["covariance"], np.float32),
        init_strategy=init_to_value(values=center),
    )
    if size is not None:
        kernel = HMCECS(
            kernel, num_blocks=_BLOCKS, proxy=HMCECS.taylor_proxy(center, degree=2)
        )
    rows = jax.device_put(X), jax.device_put(y)
    mcmc = MCMC(
        kernel, num_warmup=_WARM_UP, num_samples=request["draws"], progress_bar=False
    )  # one chain
    began = time.perf_counter()
    mcmc.warmup(jax.random.PRNGKey(1), *rows, collect_warmup=False)
    before = time.perf_counter() - began
    began = time.perf_counter()
    mcmc.run(mcmc.last_state.rng_key, *rows)
    draws = np.asarray(mcmc.get_samples()["beta"])[np.newaxis]
    return {"draws": draws, "before": before, "seconds": time.perf_counter() - began}


def scikit_learn(
    request: dict[str, Any], X: np.ndarray, y: np.ndarray
) -> dict[str, Any]:
    """Return the Laplace approximation at scikit-learn's fit, with N(0, 1) priors."""
    from sklearn.linear_model import LogisticRegression

    began = time.perf_counter()
    fit = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-6, max_iter=10_000).fit(
        X, y
    )
    mean = fit.coef_[0].astype(np.float64)
    p = 1 / (1 + np.exp(-(X @ mean.astype(np.float32))))
    information = (X * (p * (1 - p))[:, np.newaxis]).T @ X + np.eye(X.shape[1])
    sd = np.sqrt(np.diag(np.linalg.inv(information.astype(np.float64))))
    return {
        "mean": mean,
        "sd": sd,
        "seconds": time.perf_counter() - began,
        "before": 0.0,
    }


METHODS = {"nuts": numpyro, "hmcecs": numpyro, "scikit-learn": scikit_learn}


def main() -> None:
    request = json.load(sys.stdin)
    with np.load(request["data"]) as file:
        X, y = file["X"], file["y"]
    np.savez(request["out"], **METHODS[request["method"]](request, X, y))


if __name__ == "__main__":
    main()
