"""Stochastic gradient Langevin dynamics, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGLD
from sgmcmc.gradients import ControlVariate, MinibatchGradient
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run
from sgmcmc.run.sampler import Request
from sgmcmc.run.stepwise import StepwiseSampler, set_up
from sgmcmc.samplers.documentation import Prose
from sgmcmc.target.target import LogLik, LogPrior

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords

_PROSE = Prose(
    equation="""
θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal and ĝ the gradient of
``log_prior(params) + (N/n) * log_lik(params, minibatch)``.
""",
    source="Welling & Teh, ICML 2011, eq. 4; Baker, *Large-Scale Bayesian Computation Using "
    "Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.2",
    stepsize="1e-4",
)


@_PROSE.documented("sgld")
def sgld(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Langevin dynamics."""
    request = Request(
        "sgld",
        "sgld",
        log_lik,
        dataset,
        params,
        log_prior,
        SGLD(),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sgld", stepwise=True)
def sgld_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics, to run step by step."""
    request = Request(
        "sgld_setup",
        "sgld",
        log_lik,
        dataset,
        params,
        log_prior,
        SGLD(),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)


@_PROSE.documented("sgldcv", centred=True)
def sgldcv(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters: int = 10_000,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Langevin dynamics with control variates."""
    request = Request(
        "sgldcv",
        "sgldcv",
        log_lik,
        dataset,
        params,
        log_prior,
        SGLD(),
        ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sgldcv", centred=True, stepwise=True)
def sgldcv_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics with control variates, to run step by step."""
    request = Request(
        "sgldcv_setup",
        "sgldcv",
        log_lik,
        dataset,
        params,
        log_prior,
        SGLD(),
        ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, verbose)
