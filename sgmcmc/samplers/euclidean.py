"""Named samplers in ℝᵈ: SGLD, SGHMC and SGNHT, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGHMC, SGLD, SGNHT
from sgmcmc.gradients import ControlVariate, MinibatchGradient
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.choices import run, set_up
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request
from sgmcmc.run.stepwise import StepwiseSampler
from sgmcmc.samplers.documentation import documented

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.samplers.table import NamedKeywords, NamedSetupKeywords


@documented
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
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample by stochastic gradient Langevin dynamics."""
    request = Request(
        "sgld",
        "sgld",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGLD(),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
def sgld_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    seed: int | None = None,
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics, to run step by step."""
    request = Request(
        "sgld_setup",
        "sgld",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGLD(),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=False)


@documented
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
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample by stochastic gradient Langevin dynamics with control variates."""
    request = Request(
        "sgldcv",
        "sgldcv",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGLD(),
        gradient=ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
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
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics with control variates, to run step by step."""
    request = Request(
        "sgldcv_setup",
        "sgldcv",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGLD(),
        gradient=ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=verbose)


@documented
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
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo."""
    request = Request(
        "sghmc",
        "sghmc",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGHMC(alpha, L, integrator=integrator, noise_variance=noise_variance),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
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
    noise_variance: Any = 0.0,
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Hamiltonian Monte Carlo, to run step by step."""
    request = Request(
        "sghmc_setup",
        "sghmc",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGHMC(alpha, L, integrator=integrator, noise_variance=noise_variance),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=False)


@documented
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
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo with control variates."""
    request = Request(
        "sghmccv",
        "sghmccv",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGHMC(alpha, L, integrator=integrator, noise_variance=noise_variance),
        gradient=ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
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
    noise_variance: Any = 0.0,
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up SGHMC with control variates, to run step by step."""
    request = Request(
        "sghmccv_setup",
        "sghmccv",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGHMC(alpha, L, integrator=integrator, noise_variance=noise_variance),
        gradient=ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=verbose)


@documented
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
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample by the stochastic gradient Nosé–Hoover thermostat."""
    request = Request(
        "sgnht",
        "sgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGNHT(a),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
def sgnht_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    seed: int | None = None,
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up the stochastic gradient Nosé–Hoover thermostat, to run step by step."""
    request = Request(
        "sgnht_setup",
        "sgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGNHT(a),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=False)


@documented
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
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample by the stochastic gradient Nosé–Hoover thermostat with control variates."""
    request = Request(
        "sgnhtcv",
        "sgnhtcv",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGNHT(a),
        gradient=ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
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
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up SGNHT with control variates, to run step by step."""
    request = Request(
        "sgnhtcv_setup",
        "sgnhtcv",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGNHT(a),
        gradient=ControlVariate(opt_stepsize, n_iters_opt),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=verbose)
