"""Named samplers on constrained spaces: SCIR and SGRLD on the simplex, two on manifolds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc import checks
from sgmcmc.dynamics import GSGNHT, SCIR, SGGMC, SGRLD
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.choices import run, set_up
from sgmcmc.results.samples import Samples
from sgmcmc.run.stepwise import StepwiseSampler
from sgmcmc.samplers.named import Method

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords

_POINTS = {
    "stepsize": """
        Stepsize h, in units of the process's own time: at about 1 successive draws are nearly
        independent; for parameters that ``alpha`` does not name, ε. A number, a schedule
        (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), an array, or a
        dict with such an entry for each parameter.""",
    "log_lik": """
        Function of two dicts of tensors, the parameters and a minibatch of the dataset, that
        returns the log-likelihood summed over the observations in the minibatch, a scalar tensor.
        For points of the simplex it must be a sum of logs of polynomials in ω with nonnegative
        coefficients, as it is for counts and mixtures.""",
    "log_prior": """
        Function of the dict of parameters that returns the log prior density of those that
        ``alpha`` does not name, a scalar tensor; ``None`` is a flat prior.""",
    "params": """
        Dict of starting values: points of the simplex along their last axis, and other parameters
        of any shapes. With ``n_chains`` it may be a list of such dicts.""",
    "alpha": """
        Dirichlet concentrations: a number or an array for all parameters (except those of
        ``gamma``), or a dict that names the points of the simplex.""",
    "gamma": """
        Dict of gamma priors of parameters on (0, ∞), by name: (shape, rate), numbers or arrays; or
        (shape, rate, power) if the parameter is a gamma variable raised to that power, -1 for a
        variance. ``log_prior`` may add to them.""",
    "theta0": """
        Dict of starting values of the unnormalized θ > 0, instead of the ω in ``params``; without
        it θ starts at ω Σâ of the first minibatch.""",
    "parameterization": """
        Parameterization of the simplex: ``"expanded_mean"``, ``"expanded_natural"`` or
        ``"reduced_natural"``.""",
    "store_unnormalized": """
        Whether to store θ with each draw, in ``samples.unnormalized``.""",
    "fresh_scale": """
        Whether to draw Σθ ~ Gamma(Σâ) again before each step, for models with latent variables in
        which the totals Σĉ vary (topics, components of a mixture), on all data: with minibatches it
        biases points with little data at every stepsize.""",
}
"""Descriptions of the arguments of methods for the simplex."""

_CATEGORY_COUNTS = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
>>> def log_lik(params, dataset):
...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
"""

_CATEGORIES = """
>>> chain = sgmcmc.{function}(
...     {call}, n_iters=5000,
...     verbose=False, seed=1)
>>> np.round(chain["omega"].mean(0, dtype=float), 1).tolist()
[0.7, 0.2, 0.1]
"""

_CATEGORIES_STEPS = """
>>> sampler = sgmcmc.{function}({call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> bool(abs(sgmcmc.get_params(sampler, sess)["omega"].sum() - 1) < 1e-5)
True
"""

_CATEGORIES_CALL = (
    'log_lik, {{"z": z}}, {{"omega": np.ones(3) / 3}}, {stepsize}, alpha=0.5, '
    "minibatch_size=100"
)

_SCIR = Method(
    SCIR,
    equation="""
θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), non-central, and ω = θ / Σθ.

â = alpha + ĉ, with ĉ = (N/n) ω ∂log_lik/∂ω the counts that are expected in each category. With
n = N and complete data, or latent variables drawn by ``gibbs``, the chain has the posterior's
distribution exactly, whatever the stepsize h, if the totals Σĉ are always the same or
``fresh_scale`` is on; with latent variables summed out in ``log_lik``, as in the likelihood of a
mixture, as h → 0, if the totals are always the same. Parameters that ``alpha`` and ``gamma`` do
not name move by SGLD, from the same minibatch.

A parameter that ``gamma`` names is on (0, ∞): λ' = (1 − e^(−b̂t))/(2b̂) · W, with
W ~ χ²(2â, 2b̂λ e^(−b̂t)/(1 − e^(−b̂t))), â = shape + ĉ, b̂ = rate + ê, for log_lik = c log λ − eλ.
Time is t = h/b̄, log b̄ the mean of log b̂ over the steps before. With n = N its distribution is
Gamma(shape + c, rate + e) exactly, whatever h is.
""",
    source="Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1; Baker, *Large-Scale "
    "Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section 5.3.3",
    stepsize="0.5",
    arguments=_POINTS,
    model=_CATEGORY_COUNTS,
    call=_CATEGORIES_CALL,
    one_call=_CATEGORIES,
    steps=_CATEGORIES_STEPS,
)

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


@_SCIR.documented
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
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample points of the simplex and gamma parameters by the stochastic CIR process."""
    return run(_SCIR.request("scir", locals()), n_iters, verbose)


@_SCIR.setup_of(scir)
def scir_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up the stochastic Cox–Ingersoll–Ross process, to run step by step."""
    return set_up(*_SCIR.setup_request(scir_setup, args, arguments))


_SGRLD = Method(
    SGRLD,
    equation="""
θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |, η standard normal, and ω = θ / Σθ.

ĉ = (N/n) ω ∂log_lik/∂ω are the counts that are expected in each category. If components of
ω are near zero the discretization biases the chain at any practical stepsize h, and
:func:`sgmcmc.scir` does not have that error. Parameters that ``alpha`` does not name move by
SGLD, from the same minibatch. That is the parameterization ``"expanded_mean"``; in
``"expanded_natural"`` u = log θ moves, u' = u + (h/2) [alpha − e^u + ĉ − ω Σĉ] + √h η, and in
``"reduced_natural"`` all of u but its last component, u' = u + (h/2) [â − ω Σâ] + √h η.
""",
    source="Patterson & Teh, NeurIPS 2013, eq. 10; Baker, *Large-Scale Bayesian Computation Using "
    "Stochastic Gradient MCMC*, Lancaster 2018, section 5.2.2",
    stepsize="0.01",
    arguments=_POINTS,
    model=_CATEGORY_COUNTS,
    call=_CATEGORIES_CALL,
    one_call=_CATEGORIES,
    steps=_CATEGORIES_STEPS,
)


@_SGRLD.documented
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
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample points of the simplex by stochastic gradient Riemannian Langevin dynamics."""
    return run(_SGRLD.request("sgrld", locals()), n_iters, verbose)


@_SGRLD.setup_of(sgrld)
@checks.renamed("parameterisation")
def sgrld_setup(*args: Any, **arguments: Any) -> StepwiseSampler:
    """Set up stochastic gradient Riemannian Langevin dynamics, to run step by step."""
    return set_up(*_SGRLD.setup_request(sgrld_setup, args, arguments))


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
