"""Stochastic gradient geodesic Monte Carlo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import SGGMC
from sgmcmc.gradients import MinibatchGradient
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run
from sgmcmc.run.sampler import Request
from sgmcmc.run.stepwise import StepwiseSampler, set_up
from sgmcmc.samplers.arguments import OF_GEODESICS
from sgmcmc.samplers.documentation import Prose
from sgmcmc.samplers.examples import DIRECTION, DIRECTION_CALL, DIRECTION_MEAN, DIRECTION_STEPS
from sgmcmc.target.target import LogLik, LogPrior

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords

_PROSE = Prose(
    equation="""
B: ν += (ε/2) Λ(θ) ĝ(θ), ν ← rν; A: (θ, ν) half a step along the geodesic;
O: ν ← cν + √(ε(1 − c²)) Λ(θ) ζ with c = e^(−alpha); A; B; at the start ν ~ N(0, ε).

Λ(θ) projects onto the tangent space of the manifold at θ; in ℝᵈ it does nothing, geodesics are
straight, and the method is BAOAB. The factors r of a step are a friction of arsinh(εV/2) that takes
up the noise of the gradient, of variance V. ``"fisher"`` estimates V, from the empirical Fisher
information of the minibatches so far.
""",
    source="Liu, Zhu & Song, NeurIPS 2016, section 3.3 and eq. 8; the order is that of Leimkuhler "
    "& Matthews, Proceedings of the Royal Society A 472, 2016",
    stepsize="1e-4",
    arguments={
        **OF_GEODESICS,
        "alpha": """
            the friction, positive, in units of one step: a number, or a dict with one for each
            parameter.""",
        "noise_variance": """
            V, the variance of the gradient estimate in each coordinate: a number, 0 to take no
            notice of it, or a dict with one for each parameter; a function of the parameters that
            returns such; or ``"fisher"``.""",
    },
    model=DIRECTION,
    call=DIRECTION_CALL,
    one_call=DIRECTION_MEAN,
    steps=DIRECTION_STEPS,
)


@_PROSE.documented("sggmc", on_manifolds=True)
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
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample on manifolds by stochastic gradient geodesic Monte Carlo."""
    request = Request(
        "sggmc",
        "sggmc",
        log_lik,
        dataset,
        params,
        log_prior,
        SGGMC(alpha, noise_variance),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("sggmc", stepwise=True, on_manifolds=True)
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
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient geodesic Monte Carlo, to run step by step."""
    request = Request(
        "sggmc_setup",
        "sggmc",
        log_lik,
        dataset,
        params,
        log_prior,
        SGGMC(alpha, noise_variance),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)
