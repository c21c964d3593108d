"""The stochastic Cox–Ingersoll–Ross process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SCIR
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
θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), non-central, and ω = θ / Σθ.

â = alpha + ĉ, with ĉ = (N/n) ω ∂log_lik/∂ω the counts that are expected in each category. With
n = N and complete data, or latent variables drawn by ``gibbs``, the chain has the posterior's
law exactly, whatever the stepsize h, if the totals Σĉ are always the same or ``fresh_scale`` is
on; with latent variables summed out in ``log_lik``, as in the likelihood of a mixture, as h → 0,
if the totals are always the same. Parameters that ``alpha`` and ``gamma`` do not name move by
SGLD, from the same minibatch.

A parameter that ``gamma`` names is on (0, ∞): λ' = (1 − e^(−b̂t))/(2b̂) · W, with
W ~ χ²(2â, 2b̂λ e^(−b̂t)/(1 − e^(−b̂t))), â = shape + ĉ, b̂ = rate + ê, for log_lik = c log λ − eλ.
Time is t = h/b̄, log b̄ the mean of log b̂ over the steps before. With n = N its law is
Gamma(shape + c, rate + e) exactly, whatever h is.
""",
    source="Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1; Baker, *Large-Scale "
    "Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section 5.3.3",
    stepsize="0.5",
    arguments=OF_POINTS,
    model=CATEGORY_COUNTS,
    call=CATEGORIES_CALL,
    one_call=CATEGORIES,
    steps=CATEGORIES_STEPS,
)


@_PROSE.documented("scir")
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
    store_unnormalised: bool = False,
    fresh_scale: bool = False,
    gamma: Mapping[str, Any] | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample points of the simplex and gamma parameters by the stochastic CIR process."""
    request = Request(
        "scir",
        "scir",
        log_lik,
        dataset,
        params,
        log_prior,
        SCIR(alpha, theta0, store_unnormalised, fresh_scale=fresh_scale, gamma=gamma),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("scir", stepwise=True)
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
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up the stochastic Cox–Ingersoll–Ross process, to run step by step."""
    request = Request(
        "scir_setup",
        "scir",
        log_lik,
        dataset,
        params,
        log_prior,
        SCIR(alpha, theta0, fresh_scale=fresh_scale, gamma=gamma),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)
