"""Named samplers in ℝᵈ: SGLD, SGHMC and SGNHT, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGHMC, SGLD, SGNHT
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.choices import run, set_up
from sgmcmc.results.samples import Samples
from sgmcmc.run.stepwise import StepwiseSampler
from sgmcmc.samplers.named import Method

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords

_SGLD = Method(
    SGLD,
    equation="""
θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal and ĝ the gradient of
``log_prior(params) + (N/n) * log_lik(params, minibatch)``.
""",
    source="Welling & Teh, ICML 2011, eq. 4; Baker, *Large-Scale Bayesian Computation Using "
    "Stochastic Gradient MCMC*, Lancaster 2018, eq. 4.3.2",
    stepsize="1e-4",
)


@_SGLD.documented
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
    return run(_SGLD.request("sgld", locals()), n_iters, verbose)


@_SGLD.setup_of(sgld)
def sgld_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics, to run step by step."""
    return set_up(*_SGLD.setup_request(sgld_setup, args, arguments))


@_SGLD.documented
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
    return run(_SGLD.request("sgldcv", locals()), n_iters, verbose)


@_SGLD.setup_of(sgldcv)
def sgldcv_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics with control variates, to run step by step."""
    return set_up(*_SGLD.setup_request(sgldcv_setup, args, arguments))


_SGHMC = Method(
    SGHMC,
    equation="""
One iteration draws a new ν ~ N(0, ε), then makes L steps of ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν +
√(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ), where the ĝ that ends a step begins the
next one. ``integrator="euler"`` uses the published update, ν ← (1 − α) ν + ε ĝ(θ) + √(2αε) ζ; θ ← θ
+ ν, whose stationary variance is wrong by a factor of about L/(L + 1) however small ε is.

``noise_variance`` reduces the injected noise by that of the gradient: in the published update its
variance is then 2(α − β̂)ε, β̂ = εV/2.
""",
    source="Chen, Fox & Guestrin, ICML 2014, eq. 15; Baker, *Large-Scale Bayesian Computation "
    "Using Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.2",
    stepsize="1e-5",
    arguments={
        "alpha": "Friction α > 0: a number, or a dict with one for each parameter.",
        "L": "Number of steps in one iteration, each with a new gradient.",
        "integrator": 'Integrator: ``"symmetric"``, or ``"euler"`` for the published update.',
        "noise_variance": """
        Variance V of the gradient estimate in each coordinate, by which the injected noise is
        reduced: a number, or a dict with one for each parameter; ``"fisher"``, the covariance of
        the rows' gradients, estimated along the chain, or ``"diagonal"``, its diagonal. β̂ = εV/2
        must not exceed ``alpha``.""",
    },
)


@_SGHMC.documented
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
    noise_variance: Any = 0.0,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo."""
    return run(_SGHMC.request("sghmc", locals()), n_iters, verbose)


@_SGHMC.setup_of(sghmc)
def sghmc_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up stochastic gradient Hamiltonian Monte Carlo, to run step by step."""
    return set_up(*_SGHMC.setup_request(sghmc_setup, args, arguments))


@_SGHMC.documented
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
    noise_variance: Any = 0.0,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo with control variates."""
    return run(_SGHMC.request("sghmccv", locals()), n_iters, verbose)


@_SGHMC.setup_of(sghmccv)
def sghmccv_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up SGHMC with control variates, to run step by step."""
    return set_up(*_SGHMC.setup_request(sghmccv_setup, args, arguments))


_SGNHT = Method(
    SGNHT,
    equation="""
ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, with one thermostat ξ for
each named parameter, p its size; at the start ν ~ N(0, ε) and ξ = a. The thermostat absorbs the
noise of the gradient, whose size need not be known.
""",
    source="Ding et al., NeurIPS 2014, algorithm 2; Baker, *Large-Scale Bayesian Computation Using "
    "Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3",
    stepsize="1e-5",
    arguments={
        "a": "Diffusion, positive: a number, or a dict with one for each parameter.",
    },
)


@_SGNHT.documented
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
    return run(_SGNHT.request("sgnht", locals()), n_iters, verbose)


@_SGNHT.setup_of(sgnht)
def sgnht_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up the stochastic gradient Nosé–Hoover thermostat, to run step by step."""
    return set_up(*_SGNHT.setup_request(sgnht_setup, args, arguments))


@_SGNHT.documented
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
    return run(_SGNHT.request("sgnhtcv", locals()), n_iters, verbose)


@_SGNHT.setup_of(sgnhtcv)
def sgnhtcv_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up SGNHT with control variates, to run step by step."""
    return set_up(*_SGNHT.setup_request(sgnhtcv_setup, args, arguments))
