"""The geodesic stochastic gradient Nosé–Hoover thermostat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import GSGNHT
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
B: ν += (ε/2) Λ(θ) ĝ(θ); A: (θ, ν) half a step along the geodesic, ξ += (ν·ν/m − ε)/2;
O: ν ← e^(−ξ) ν + √(aε (1 − e^(−2ξ))/ξ) Λ(θ) ζ; A; B; at the start ν ~ N(0, ε) and ξ = a.

Λ(θ) projects onto the tangent space of the manifold at θ; in ℝᵈ it does nothing, and geodesics
are straight. There is one thermostat ξ for each named parameter, m the dimension of its
manifold. It takes up the noise of the gradient, whose size need not be known.
""",
    source="Liu, Zhu & Song, NeurIPS 2016, eq. 6 and section 3.3",
    stepsize="1e-4",
    arguments={
        **OF_GEODESICS,
        "a": "the diffusion, positive: a number, or a dict with one for each parameter.",
    },
    model=DIRECTION,
    call=DIRECTION_CALL,
    one_call=DIRECTION_MEAN,
    steps=DIRECTION_STEPS,
)


@_PROSE.documented("gsgnht", on_manifolds=True)
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
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample on manifolds by the geodesic stochastic gradient Nosé–Hoover thermostat."""
    request = Request(
        "gsgnht",
        "gsgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        GSGNHT(a),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
    )
    return run(request, n_iters, verbose)


@_PROSE.documented("gsgnht", stepwise=True, on_manifolds=True)
def gsgnht_setup(
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
    """Set up the geodesic stochastic gradient thermostat, to run step by step."""
    request = Request(
        "gsgnht_setup",
        "gsgnht",
        log_lik,
        dataset,
        params,
        log_prior,
        GSGNHT(a),
        MinibatchGradient(),
        minibatch_size,
        stepsize,
        seed,
        keywords,
        stepwise=True,
    )
    return set_up(request, False)
