"""The stochastic gradient Nosé–Hoover thermostat, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGNHT
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
ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, with one thermostat ξ for
each named parameter, p its size; at the start ν ~ N(0, ε) and ξ = a. The thermostat takes up
the noise of the gradient, whose size need not be known.
""",
    source="Ding et al., NeurIPS 2014, algorithm 2; Baker, *Large-Scale Bayesian Computation Using "
    "Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3",
    stepsize="1e-5",
    arguments={
        "a": "the diffusion, positive: a number, or a dict with one for each parameter.",
    },
)


@_PROSE.documented("sgnht")
def sgnht(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by the stochastic gradient Nosé–Hoover thermostat."""
    request = Request(
        "sgnht",
        "sgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        SGNHT(a),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sgnht", stepwise=True)
def sgnht_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up the stochastic gradient Nosé–Hoover thermostat, to run step by step."""
    request = Request(
        "sgnht_setup",
        "sgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        SGNHT(a),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)


@_PROSE.documented("sgnhtcv", centred=True)
def sgnhtcv(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    n_iters: int = 10_000,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by the stochastic gradient Nosé–Hoover thermostat with control variates."""
    request = Request(
        "sgnhtcv",
        "sgnhtcv",
        log_lik,
        dataset,
        params,
        log_prior,
        SGNHT(a),
        ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sgnhtcv", centred=True, stepwise=True)
def sgnhtcv_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up SGNHT with control variates, to run step by step."""
    request = Request(
        "sgnhtcv_setup",
        "sgnhtcv",
        log_lik,
        dataset,
        params,
        log_prior,
        SGNHT(a),
        ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, verbose)
