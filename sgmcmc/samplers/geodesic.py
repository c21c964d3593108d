"""Named samplers on manifolds: geodesic Monte Carlo, and the geodesic thermostat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.dynamics import GSGNHT, SGGMC
from sgmcmc.results.samples import Samples
from sgmcmc.run.driver import run
from sgmcmc.run.stepwise import StepwiseSampler, set_up
from sgmcmc.samplers.named import Method
from sgmcmc.target.target import LogLik, LogPrior

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords

_GEODESICS = {
    "stepsize": """
        Stepsize ε, the square of the time of a step, in units of squared parameter: a number, a
        schedule (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), or a
        dict with such an entry for each parameter. On a manifold all coordinates share one.""",
}
"""Descriptions of the arguments of methods for manifolds."""

_DIRECTION = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> x = np.random.default_rng(1).normal([0.6, 0.0, 0.8], 1.0, (1000, 3))
>>> def log_lik(params, dataset):  # N(v, I), with v a unit vector
...     return -0.5 * tf.reduce_sum((dataset["x"] - params["v"]) ** 2)
"""

_DIRECTION_CALL = (
    'log_lik, {{"x": x}}, {{"v": [0.0, 0.0, 1.0]}}, {stepsize}, minibatch_size=100,\n'
    '...     manifolds={{"v": sgmcmc.manifolds.Sphere()}}'
)

_DIRECTION_MEAN = """
>>> chain = sgmcmc.{function}(
...     {call},
...     n_iters=5000, burn_in=500, verbose=False, seed=1)
>>> np.round(chain["v"].mean(0, dtype=float), 1).tolist()
[0.6, 0.0, 0.8]
>>> bool(np.abs(np.linalg.norm(chain["v"], axis=1) - 1).max() < 1e-6)
True
"""

_DIRECTION_STEPS = """
>>> sampler = sgmcmc.{function}(
...     {call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> bool(abs(np.linalg.norm(sgmcmc.get_params(sampler, sess)["v"]) - 1) < 1e-6)
True
"""

_SGGMC = Method(
    SGGMC,
    equation="""
B: ν += (ε/2) Λ(θ) ĝ(θ), ν ← rν; A: (θ, ν) half a step along the geodesic;
O: ν ← cν + √(ε(1 − c²)) Λ(θ) ζ with c = e^(−alpha); A; B; at the start ν ~ N(0, ε).

Λ(θ) projects onto the tangent space of the manifold at θ; in ℝᵈ it does nothing, geodesics are
straight, and the method is BAOAB. The factors r of a step are a friction of arsinh(εV/2) that
absorbs the noise of the gradient, of variance V. ``"fisher"`` estimates V, from the empirical
Fisher information of the minibatches so far.
""",
    source="Liu, Zhu & Song, NeurIPS 2016, section 3.3 and eq. 8; the order is that of Leimkuhler "
    "& Matthews, Proceedings of the Royal Society A 472, 2016",
    stepsize="1e-4",
    arguments={
        **_GEODESICS,
        "alpha": """
            Friction, positive, in units of one step: a number, or a dict with one for each
            parameter.""",
        "noise_variance": """
            V, the variance of the gradient estimate in each coordinate: a number, 0 to ignore it,
            or a dict with one for each parameter; a function of the parameters that returns such;
            or ``"fisher"``.""",
    },
    model=_DIRECTION,
    call=_DIRECTION_CALL,
    one_call=_DIRECTION_MEAN,
    steps=_DIRECTION_STEPS,
    on_manifolds=True,
)


@_SGGMC.documented
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
    return run(_SGGMC.request("sggmc", locals()), n_iters, verbose)


@_SGGMC.setup_of(sggmc)
def sggmc_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up stochastic gradient geodesic Monte Carlo, to run step by step."""
    return set_up(*_SGGMC.setup_request(sggmc_setup, args, arguments))


_GSGNHT = Method(
    GSGNHT,
    equation="""
B: ν += (ε/2) Λ(θ) ĝ(θ); A: (θ, ν) half a step along the geodesic, ξ += (ν·ν/m − ε)/2;
O: ν ← e^(−ξ) ν + √(aε (1 − e^(−2ξ))/ξ) Λ(θ) ζ; A; B; at the start ν ~ N(0, ε) and ξ = a.

Λ(θ) projects onto the tangent space of the manifold at θ; in ℝᵈ it does nothing, and geodesics
are straight. There is one thermostat ξ for each named parameter, m the dimension of its
manifold. It absorbs the noise of the gradient, whose size need not be known.
""",
    source="Liu, Zhu & Song, NeurIPS 2016, eq. 6 and section 3.3",
    stepsize="1e-4",
    arguments={
        **_GEODESICS,
        "a": "Diffusion, positive: a number, or a dict with one for each parameter.",
    },
    model=_DIRECTION,
    call=_DIRECTION_CALL,
    one_call=_DIRECTION_MEAN,
    steps=_DIRECTION_STEPS,
    on_manifolds=True,
)


@_GSGNHT.documented
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
    return run(_GSGNHT.request("gsgnht", locals()), n_iters, verbose)


@_GSGNHT.setup_of(gsgnht)
def gsgnht_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up the geodesic stochastic gradient thermostat, to run step by step."""
    return set_up(*_GSGNHT.setup_request(gsgnht_setup, args, arguments))
