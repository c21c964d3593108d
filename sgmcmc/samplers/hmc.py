"""Hamiltonian Monte Carlo and NUTS on the whole dataset: exact, and the reference for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sgmcmc.dynamics import HMC, NUTS, Dynamics
from sgmcmc.results.samples import Samples
from sgmcmc.run.exact import run_exactly
from sgmcmc.run.lengths import Wishes
from sgmcmc.run.sampler import Request
from sgmcmc.samplers.documentation import documented_exact
from sgmcmc.target.target import LogLik, LogPrior

NOT_HERE = ("replace", "minibatches", "updates", "gibbs", "latents")
"""Keywords of other samplers that mean nothing where every move takes the whole dataset."""


@documented_exact()
def hmc(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    n_leapfrog: int | None = None,
    preconditioner: Any = None,
    stepsize: Any = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Any,
) -> Samples:
    """Sample a posterior by Hamiltonian Monte Carlo on the whole dataset, without constants.

    ν ~ N(0, I); leapfrog steps ν += (ε/2) ∇log p(θ | x), θ += εν, ν += (ε/2) ∇log p(θ | x);
    accepted with probability min(1, e^(H − H')), H = −log p(θ | x) + ν·ν/2. The posterior is the
    stationary law, whatever the constants are.

    {chosen} Trajectories have the length π/2 in these coordinates, with ε varied by 20 %.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.hmc(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(chain["theta"].mean() - x.mean()) < 0.01), chain.report.warnings
        (True, [])

    Source:
        Duane, Kennedy, Pendleton & Roweth, Physics Letters B 195, 1987; Neal, *MCMC using
        Hamiltonian dynamics*, Handbook of Markov Chain Monte Carlo, 2011.
    """
    return _run(
        "hmc", HMC(n_leapfrog), log_lik, dataset, params, log_prior, preconditioner, stepsize,
        Wishes(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds), seed, verbose,
        {**keywords, "dtype": dtype},
    )  # fmt: skip


@documented_exact()
def nuts(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    max_tree_depth: int = 10,
    preconditioner: Any = None,
    stepsize: Any = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Any,
) -> Samples:
    """Sample a posterior by the No-U-Turn Sampler on the whole dataset, without constants.

    Trajectories of H = −log p(θ | x) + ν·ν/2, ν ~ N(0, I), are doubled by leapfrog steps, forwards
    or backwards, until they turn back; one of their points is drawn with probability in proportion
    to e^(−H). The posterior is the stationary law, whatever the constants are.

    {chosen} It asks for more gradients than :func:`sgmcmc.hmc` where the posterior is near normal,
    and holds where it is not, as in hierarchical models.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.nuts(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(chain["theta"].mean() - x.mean()) < 0.01), chain.report.warnings
        (True, [])

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014; Betancourt, *A Conceptual
        Introduction to Hamiltonian Monte Carlo*, 2017.
    """
    return _run(
        "nuts", NUTS(max_tree_depth), log_lik, dataset, params, log_prior, preconditioner, stepsize,
        Wishes(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds), seed, verbose,
        {**keywords, "dtype": dtype},
    )  # fmt: skip


_EXACT = 0.05
"""The tolerance, of which there is no use: sds have no error but that of finite length."""


def _run(
    function: str, dynamics: Dynamics, log_lik: LogLik, dataset: Mapping[str, Any], params: Any,
    log_prior: LogPrior | None, preconditioner: Any, stepsize: Any, wishes: Wishes,
    seed: int | None, verbose: bool, keywords: Mapping[str, Any],
) -> Samples:  # fmt: skip
    for name in NOT_HERE:
        if name in keywords:
            raise TypeError(
                f"{function}() has no argument `{name}`: every move takes the whole dataset, and "
                "its log posterior."
            )
    request = Request(
        function, function, log_lik, dataset, params, log_prior, dynamics, None, None, stepsize,
        seed, {**keywords, "preconditioner": preconditioner},
    )  # fmt: skip
    return run_exactly(request, wishes, verbose)
