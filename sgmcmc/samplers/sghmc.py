"""Stochastic gradient Hamiltonian Monte Carlo, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGHMC
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
One iteration draws ν ~ N(0, ε) afresh, then takes L steps of
ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ),
where the ĝ that ends a step begins the next one. ``integrator="euler"`` takes the published
update, ν ← (1 − α) ν + ε ĝ(θ) + √(2αε) ζ; θ ← θ + ν, whose stationary variance is wrong by a
factor of about L/(L + 1) however small ε is.
""",
    source="Chen, Fox & Guestrin, ICML 2014, eq. 15; Baker, *Large-Scale Bayesian Computation "
    "Using Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3",
    stepsize="1e-5",
    arguments={
        "alpha": "α > 0, the friction: a number, or a dict with one for each parameter.",
        "L": "steps, each with a gradient of its own, in one iteration.",
        "integrator": '``"symmetric"``, or ``"euler"`` for the published update.',
    },
)


@_PROSE.documented("sghmc")
def sghmc(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo."""
    request = Request(
        "sghmc",
        "sghmc",
        log_lik,
        dataset,
        params,
        log_prior,
        SGHMC(alpha, L, integrator),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sghmc", stepwise=True)
def sghmc_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Hamiltonian Monte Carlo, to run step by step."""
    request = Request(
        "sghmc_setup",
        "sghmc",
        log_lik,
        dataset,
        params,
        log_prior,
        SGHMC(alpha, L, integrator),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)


@_PROSE.documented("sghmccv", centred=True)
def sghmccv(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    n_iters: int = 10_000,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo with control variates."""
    request = Request(
        "sghmccv",
        "sghmccv",
        log_lik,
        dataset,
        params,
        log_prior,
        SGHMC(alpha, L, integrator),
        ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sghmccv", centred=True, stepwise=True)
def sghmccv_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up SGHMC with control variates, to run step by step."""
    request = Request(
        "sghmccv_setup",
        "sghmccv",
        log_lik,
        dataset,
        params,
        log_prior,
        SGHMC(alpha, L, integrator),
        ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, verbose)
