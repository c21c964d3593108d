"""Any dynamics with any gradient and any minibatches: the two functions behind the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sgmcmc.dynamics import Underdamped
from sgmcmc.results.samples import Samples
from sgmcmc.run.automatic import run_automatically
from sgmcmc.run.choices import AUTO, open_arguments
from sgmcmc.run.driver import run
from sgmcmc.run.exact import is_hamiltonian, run_exactly
from sgmcmc.run.lengths import Wishes
from sgmcmc.run.sampler import Request
from sgmcmc.run.stepwise import StepwiseSampler, set_up
from sgmcmc.samplers.documentation import documented_parts
from sgmcmc.target.target import LogLik, LogPrior


@documented_parts()
def sample(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    dynamics: Any = None,
    gradient: Any = None,
    minibatches: Any = None,
    minibatch_size: float | None = None,
    preconditioner: Any = None,
    stepsize: Any = None,
    tolerance: float = 0.05,
    ess: float = 400,
    n_chains: int | None = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    **keywords: Any,
) -> Samples:
    """Sample a posterior without tuning constants, or by any parts that are given.

    What is not given is chosen: the mode is found by Newton steps on the whole dataset, the chain
    moves in coordinates whitened by the observed information there, rows are drawn in proportion to
    their leverage, gradients are control variates centred at the mode (or exact, for up to 2000
    observations), the stepsize is the largest at which the predicted error of every posterior sd
    is at most ``tolerance``, and four chains run from over-dispersed starts until every coordinate
    has the effective sample size ``ess`` and an R-hat of at most 1.01. ``samples.report`` says
    what was chosen and what was reached. Other modes are looked for; where there are some, chains
    start in each. Beyond 2000 coordinates the chains are underdamped with plain minibatch
    gradients, a diagonal preconditioner, and a stepsize from curvature and noise around them.

    All parts are independent; every combination that has a meaning runs, whatever of it is given.
    With everything given, ``n_iters`` and ``burn_in`` too, nothing is looked for before the chain:
    the named functions are faces of that, and give the same bits.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> samples = sgmcmc.sample(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(samples["theta"].mean() - x.mean()) < 0.01), samples.report.warnings
        (True, [])
        >>> chain = sgmcmc.sample(
        ...     log_lik, {"x": x}, {"theta": 3.0}, dynamics="underdamped", gradient="svrg",
        ...     minibatches="uniform", minibatch_size=50, preconditioner=[1e-3], stepsize=0.1,
        ...     n_iters=2000, burn_in=200, verbose=False, seed=1)
        >>> chain["theta"].shape, bool(abs(chain["theta"].mean() - x.mean()) < 0.01)
        ((4, 2000), True)

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        chapters 3 and 4, for dynamics and gradients as separate parts, and lemma 3.3.3 for the
        best probabilities of rows.
    """
    request = _request(
        "sample",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics,
        gradient,
        minibatches,
        minibatch_size,
        preconditioner,
        stepsize,
        seed,
        {**keywords, "n_chains": n_chains},
    )
    if open_arguments(request) or n_iters is None or burn_in is None:
        wishes = Wishes(tolerance, ess, n_chains, n_iters, burn_in, max_seconds)
        if is_hamiltonian(request.dynamics):
            return run_exactly(request, wishes, verbose)
        return run_automatically(request, wishes, verbose)
    return run(
        replace(request, keywords={**request.keywords, "burn_in": burn_in}), n_iters, verbose
    )


@documented_parts(stepwise=True)
def setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    dynamics: Any = None,
    gradient: Any = None,
    minibatches: Any = None,
    minibatch_size: float | None = None,
    preconditioner: Any = None,
    stepsize: Any = None,
    n_chains: int | None = 4,
    seed: int | None = None,
    verbose: bool = True,
    **keywords: Any,
) -> StepwiseSampler:
    """Set up any dynamics, with any gradient estimator and any minibatches, to run step by step.

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sample` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, dynamics="sgld", gradient="saga",
        ...     minibatches="uniform", minibatch_size=50, preconditioner="none", stepsize=1e-4,
        ...     seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> sgmcmc.get_params(sampler, sess)["theta"].shape
        (4,)

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        chapters 3 and 4, for dynamics and gradients as separate parts.
    """
    request = _request(
        "setup",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics,
        gradient,
        minibatches,
        minibatch_size,
        preconditioner,
        stepsize,
        seed,
        {**keywords, "n_chains": n_chains},
        stepwise=True,
    )
    return set_up(request, verbose)


def _request(
    function: str,
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None,
    dynamics: Any,
    gradient: Any,
    minibatches: Any,
    minibatch_size: Any,
    preconditioner: Any,
    stepsize: Any,
    seed: int | None,
    keywords: Mapping[str, Any],
    stepwise: bool = False,
) -> Request:
    """Return what the user asks for; what was not given is to be chosen."""
    dynamics, gradient, minibatches, preconditioner, stepsize = (
        AUTO if part is None else part
        for part in (dynamics, gradient, minibatches, preconditioner, stepsize)
    )
    if minibatch_size is None and not _takes_all(gradient):
        minibatch_size = AUTO
    return Request(
        function,
        _method(dynamics),
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics,
        gradient,
        minibatch_size,
        stepsize,
        seed,
        {**keywords, "minibatches": minibatches, "preconditioner": preconditioner},
        stepwise,
    )


def _takes_all(gradient: Any) -> bool:
    """Tell whether a gradient, by name or as an object, takes the whole dataset."""
    return gradient == "full" or getattr(gradient, "whole_dataset", False)


def _method(dynamics: Any) -> str:
    """Return what the sampler is called: by its dynamics."""
    if dynamics == AUTO:
        return Underdamped.name
    return dynamics if isinstance(dynamics, str) else type(dynamics).__name__.lower()
