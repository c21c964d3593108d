"""Stochastic gradient Riemannian Langevin dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGRLD
from sgmcmc.gradients import MinibatchGradient
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run
from sgmcmc.run.sampler import Request
from sgmcmc.run.stepwise import StepwiseSampler, set_up
from sgmcmc.samplers.arguments import OF_POINTS
from sgmcmc.samplers.documentation import Prose
from sgmcmc.samplers.examples import CATEGORIES, CATEGORIES_CALL, CATEGORIES_STEPS, CATEGORY_COUNTS
from sgmcmc.target.target import LogLik, LogPrior

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords

_PROSE = Prose(
    equation="""
θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |, η standard normal, and ω = θ / Σθ.

ĉ = (N/n) ω ∂log_lik/∂ω are the counts that are expected in each category. Where components of
ω are near zero the discretisation biases the chain at any practical stepsize h, and
:func:`sgmcmc.scir` does not have that error. Parameters that ``alpha`` does not name move by
SGLD, from the same minibatch. That is the parameterisation ``"expanded_mean"``; in
``"expanded_natural"`` u = log θ moves, u' = u + (h/2) [alpha − e^u + ĉ − ω Σĉ] + √h η, and in
``"reduced_natural"`` all of u but its last component, u' = u + (h/2) [â − ω Σâ] + √h η.
""",
    source="Patterson & Teh, NeurIPS 2013, eq. 10; Baker, *Large-Scale Bayesian Computation Using "
    "Stochastic Gradient MCMC*, Lancaster 2018, section 5.2.2",
    stepsize="0.01",
    arguments=OF_POINTS,
    model=CATEGORY_COUNTS,
    call=CATEGORIES_CALL,
    one_call=CATEGORIES,
    steps=CATEGORIES_STEPS,
)


@_PROSE.documented("sgrld")
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
    store_unnormalised: bool = False,
    parameterisation: str = "expanded_mean",
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample points of the simplex by stochastic gradient Riemannian Langevin dynamics."""
    request = Request(
        "sgrld",
        "sgrld",
        log_lik,
        dataset,
        params,
        log_prior,
        SGRLD(alpha, theta0, store_unnormalised, parameterisation=parameterisation),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sgrld", stepwise=True)
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
    parameterisation: str = "expanded_mean",
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Riemannian Langevin dynamics, to run step by step."""
    request = Request(
        "sgrld_setup",
        "sgrld",
        log_lik,
        dataset,
        params,
        log_prior,
        SGRLD(alpha, theta0, parameterisation=parameterisation),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)
