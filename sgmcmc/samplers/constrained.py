"""Named samplers on constrained spaces: SCIR and SGRLD on the simplex, two on manifolds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc import checks
from sgmcmc.dynamics import GSGNHT, SCIR, SGGMC, SGRLD
from sgmcmc.gradients import MinibatchGradient
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.choices import run, set_up
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request
from sgmcmc.run.stepwise import StepwiseSampler
from sgmcmc.samplers.documentation import documented

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.samplers.table import (
        GeodesicKeywords,
        GeodesicSetupKeywords,
        NamedKeywords,
        NamedSetupKeywords,
    )


@documented
@checks.renamed("store_unnormalised")
def scir(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    alpha: Any = None,
    theta0: Mapping[str, Any] | None = None,
    store_unnormalized: bool = False,
    fresh_scale: bool = False,
    gamma: Mapping[str, Any] | None = None,
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample points of the simplex and gamma parameters by the stochastic CIR process."""
    request = Request(
        "scir",
        "scir",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SCIR(
            alpha=alpha,
            theta0=theta0,
            store_unnormalized=store_unnormalized,
            fresh_scale=fresh_scale,
            gamma=gamma,
        ),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
def scir_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    seed: int | None = None,
    *,
    alpha: Any = None,
    theta0: Mapping[str, Any] | None = None,
    fresh_scale: bool = False,
    gamma: Mapping[str, Any] | None = None,
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up the stochastic Cox–Ingersoll–Ross process, to run step by step."""
    request = Request(
        "scir_setup",
        "scir",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SCIR(alpha=alpha, theta0=theta0, fresh_scale=fresh_scale, gamma=gamma),
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
@checks.renamed("parameterisation", "store_unnormalised")
def sgrld(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    alpha: Any,
    theta0: Mapping[str, Any] | None = None,
    store_unnormalized: bool = False,
    parameterization: str = "expanded_mean",
    **keywords: Unpack[NamedKeywords],
) -> Samples:
    """Sample points of the simplex by stochastic gradient Riemannian Langevin dynamics."""
    request = Request(
        "sgrld",
        "sgrld",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGRLD(
            alpha=alpha,
            theta0=theta0,
            store_unnormalized=store_unnormalized,
            parameterization=parameterization,
        ),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
@checks.renamed("parameterisation")
def sgrld_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    seed: int | None = None,
    *,
    alpha: Any,
    theta0: Mapping[str, Any] | None = None,
    parameterization: str = "expanded_mean",
    **keywords: Unpack[NamedSetupKeywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Riemannian Langevin dynamics, to run step by step."""
    request = Request(
        "sgrld_setup",
        "sgrld",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGRLD(alpha=alpha, theta0=theta0, parameterization=parameterization),
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
def sggmc(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.1,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    noise_variance: Any = 0.0,
    **keywords: Unpack[GeodesicKeywords],
) -> Samples:
    """Sample on manifolds by stochastic gradient geodesic Monte Carlo."""
    request = Request(
        "sggmc",
        "sggmc",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGGMC(alpha, noise_variance=noise_variance),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
def sggmc_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.1,
    seed: int | None = None,
    *,
    noise_variance: Any = 0.0,
    **keywords: Unpack[GeodesicSetupKeywords],
) -> StepwiseSampler:
    """Set up stochastic gradient geodesic Monte Carlo, to run step by step."""
    request = Request(
        "sggmc_setup",
        "sggmc",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=SGGMC(alpha, noise_variance=noise_variance),
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
def gsgnht(
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
    **keywords: Unpack[GeodesicKeywords],
) -> Samples:
    """Sample on manifolds by the geodesic stochastic gradient Nosé–Hoover thermostat."""
    request = Request(
        "gsgnht",
        "gsgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=GSGNHT(a),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        reporter=CurvatureReporter(),
    )
    return run(request, n_iters, verbose)


@documented
def gsgnht_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    seed: int | None = None,
    **keywords: Unpack[GeodesicSetupKeywords],
) -> StepwiseSampler:
    """Set up the geodesic stochastic gradient thermostat, to run step by step."""
    request = Request(
        "gsgnht_setup",
        "gsgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=GSGNHT(a),
        gradient=MinibatchGradient(),
        minibatch_size=minibatch_size,
        stepsize=stepsize,
        seed=seed,
        keywords=keywords,
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose=False)
