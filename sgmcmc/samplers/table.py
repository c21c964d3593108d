"""The table of samplers, and the texts that their docstrings are made of.

A row of :data:`SAMPLERS` has what the functions of one sampler share: the keyword arguments that
they have besides those in their signatures, and texts. `samplers/documentation.py` completes
signatures and docstrings by it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import tensorflow as tf

from sgmcmc.dynamics import HMC, MALA, NUTS
from sgmcmc.inputs.options import KEYWORDS

if TYPE_CHECKING:
    import tensorflow_probability as tfp

    from sgmcmc.data.dataset import Tensors
    from sgmcmc.engine.reductions import Reduction
    from sgmcmc.gradients.latents import Gibbs
    from sgmcmc.manifolds import Manifold
    from sgmcmc.minibatches import Minibatches


# ------------------------------------------------------------------------------ keyword arguments
# As an editor and a type checker see them. The classes with an underscore have no name in common.


class _OfModels(TypedDict, total=False):
    temperature: float
    integers: list[str] | tuple[str, ...]
    storage: str | None
    jit_compile: bool | None


class _OfDraws(TypedDict, total=False):
    thin: int
    test_functions: Mapping[str, Callable[[Tensors], tf.Tensor]] | None
    store_params: bool | list[str]
    reductions: Mapping[str, Reduction | tuple[Any, Callable[..., Any]]] | None
    store: str | os.PathLike[str] | None
    executor: Any


class _OfSpaces(TypedDict, total=False):
    bijectors: Mapping[str, tfp.bijectors.Bijector] | None
    groups: Any


class _OfMinibatches(TypedDict, total=False):
    updates: str
    dtype: tf.DType
    gibbs: Gibbs | None
    latents: Mapping[str, Any] | None


class _OfNamed(TypedDict, total=False):
    n_chains: int | None
    replace: bool
    minibatches: str | Minibatches | None
    preconditioner: Any


class _OfGradients(TypedDict, total=False):
    store_gradients: bool


class _OfGeodesics(TypedDict, total=False):
    manifolds: Mapping[str, Manifold] | None


class SubsampledKeywords(_OfModels, _OfDraws, total=False):
    """Keyword arguments of zig-zag and MHSS."""


class FullDataKeywords(_OfModels, _OfDraws, _OfSpaces, _OfGradients, total=False):
    """Keyword arguments of HMC, MALA and NUTS."""


class SetupKeywords(_OfModels, _OfSpaces, _OfMinibatches, _OfGeodesics, total=False):
    """Keyword arguments of :func:`sgmcmc.setup`."""


class SampleKeywords(SetupKeywords, _OfDraws, _OfGradients, total=False):
    """Keyword arguments of :func:`sgmcmc.sample`."""


class NamedSetupKeywords(_OfModels, _OfSpaces, _OfMinibatches, _OfNamed, total=False):
    """Keyword arguments of setups of named samplers."""


class NamedKeywords(NamedSetupKeywords, _OfDraws, _OfGradients, total=False):
    """Keyword arguments of named samplers."""

    burn_in: int


class GeodesicSetupKeywords(NamedSetupKeywords, _OfGeodesics, total=False):
    """Keyword arguments of setups of named samplers on manifolds."""


class GeodesicKeywords(NamedKeywords, _OfGeodesics, total=False):
    """Keyword arguments of named samplers on manifolds."""


# ------------------------------------------------------------------------------------------ texts

DESCRIPTIONS: dict[str, str] = {
    "log_lik": """
        Function of two dicts of tensors, the parameters and a minibatch of the dataset, that
        returns the log-likelihood summed over the observations in the minibatch, a scalar tensor,
        or its terms, one for each observation, a tensor of shape (n,).""",
    "dataset": """
        Dict of arrays that share their first axis, of length N: NumPy arrays, memmaps, lists,
        pandas columns and frames, HDF5, Zarr, Dask, Arrow, Parquet files by name, Hugging Face
        datasets, SciPy's sparse matrices; or a table, each of whose columns is an entry. Numbers
        are converted to ``dtype``; a ``tf.Tensor`` keeps its own, and categories stay integers.""",
    "params": """
        Dict of starting values, of any shapes. With ``n_chains`` it may be a list of such dicts,
        one for each chain.""",
    "stepsize": """
        Stepsize ε, in units of squared parameter: a number, a schedule
        (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), or an array with
        one for each coordinate; or a dict with such an entry for each parameter; or any of these
        divided by the size of each parameter's gradients, :func:`sgmcmc.gradient_scaled`.
        ``"auto"`` chooses the largest at which the predicted error of every posterior SD is at most
        5 %.""",
    "opt_stepsize": """
        Stepsize of the stochastic gradient ascent that finds the mode, in the form of ``stepsize``.
        ``"auto"`` finds it by Newton steps on the whole dataset instead.""",
    "log_prior": """
        Function of the dict of parameters that returns their log prior density, a scalar tensor;
        ``None`` is a flat prior.""",
    "minibatch_size": """
        Minibatch size n: a proportion of N if between 0 and 1, else an integer from 1 to N. With n
        = N every gradient is exact.""",
    "n_iters": """
        Number of iterations after ``burn_in``; ``n_iters // thin`` draws are kept.""",
    "n_iters_opt": """
        Number of iterations of mode-finding; 0 centers the control variate at ``params``.""",
    "verbose": """
        Whether to show progress bars with the log posterior estimate; ``False`` prints nothing.""",
    "seed": """
        Integer seed; the same call with the same seed on the same machine gives the same draws, bit
        for bit. ``None`` draws one; ``settings["seed"]`` of the result has it.""",
    **{name: keyword["text"] for name, keyword in KEYWORDS.items()},
}
"""Description of each argument, unless a sampler has its own."""

_PARTS = {
    "tolerance": """
        Largest predicted relative error of any posterior SD, if the stepsize is chosen.""",
    "ess": """
        Effective sample size, bulk and tail, that every coordinate should reach, if the length is
        chosen.""",
    "max_seconds": """
        Time limit of the whole call in seconds, if the length or a constant is chosen: constants
        are chosen in half of it, and the draws there are at its end are returned, with a warning.
        ``None`` for no limit.""",
    "dynamics": """
        Dynamics: ``"sgld"``, ``"sghmc"``, ``"sgnht"``, ``"underdamped"``, ``"psgld"``, ``"sgfs"``,
        ``"badodab"``, ``"barker"``, ``"sglrw"``, ``"smile"``; on manifolds ``"sggmc"``,
        ``"gsgnht"``; on the whole dataset ``"hmc"``, ``"mala"`` and ``"nuts"``; or an object of
        :mod:`sgmcmc.dynamics` or of your own subclass; ``None`` is ``"underdamped"``.""",
    "gradient": """
        Gradient estimator: ``"minibatch"``, ``"svrg"``, ``"saga"``, ``"full"``,
        ``"control_variate"``, or an object of :mod:`sgmcmc.gradients` or of your own subclass;
        ``None`` is ``"control_variate"``, or ``"full"`` for up to 2000 observations.""",
    "minibatches": """
        Way of drawing rows: ``"uniform"``, without replacement; ``"replacement"``; ``"leverage"``,
        in proportion to each row's contribution to the curvature of the log posterior;
        ``"reshuffled"`` and ``"symmetric"``, in a new order in each epoch; or an object of
        :mod:`sgmcmc.minibatches`, such as ``Weighted(p)``, or of your own subclass; ``None`` is
        ``"leverage"``.""",
    "minibatch_size": """
        Minibatch size n: a proportion of N if between 0 and 1, else an integer from 1 to N;
        ``None`` to choose. Not for ``gradient="full"``, for which it is N.""",
    "preconditioner": """
        Preconditioner: ``"none"``, or M, near the posterior covariance of the p unconstrained
        coordinates: p variances, a p × p matrix, or a dict of these by parameter. The chain moves
        in ζ, θ = θ₀ + Cζ with CCᵀ = M, and stepsizes belong to ζ. ``"dense"`` is the inverse of the
        information at the mode, ``"diagonal"`` its diagonal; ``None`` is ``"dense"``.""",
    "start": """
        Draws of an earlier call for the same parameters, such as one with fewer rows: the search
        for the mode begins at the mode and with the information of that call, or, if it had
        none, chains begin at its last draws; ``None`` begins at ``params``.""",
    "reduce": """
        Whether the same posterior may be made of fewer numbers than the rows, as
        :func:`sgmcmc.glm` does. A log-likelihood that is a function is never reduced, and effects
        of ``groups`` are integrated out in any case.""",
}
"""Descriptions of the arguments of the functions that accept any parts."""

_CHOSEN = """
Everything that you do not give is chosen. The mode is found; the chains start around it,
over-dispersed, and move in coordinates whitened by the observed information there. A warm-up adapts
the stepsize to an acceptance rate of {acceptance}, and changes the coordinates if the draws are
not as wide as they should be, or if there is no useful mode. Both are frozen before the first draw
is kept. Chains run until every coordinate has the effective sample size ``ess`` and an R-hat of at
most 1.01. ``samples.report`` has the acceptance rates, the divergences, what was chosen and what
was reached.
"""
# Paragraph on the choice of constants of the samplers that use the whole dataset

_FULL_DATA = {
    **_PARTS,
    "n_leapfrog": """
        Number of leapfrog steps per trajectory; ``None`` for as many as a length of π/2
        requires.""",
    "max_tree_depth": """
        Largest tree depth: a trajectory has at most 2^max_tree_depth − 1 leapfrog steps.""",
    "preconditioner": """
        Matrix M, near the posterior covariance of the p unconstrained coordinates. ``"dense"`` and
        ``"diagonal"`` are chosen from the observed information and the warm-up; ``None`` is
        ``"dense"`` for up to 2000 coordinates, and beyond ``"diagonal"`` with the directions of
        largest and smallest curvature. ``"none"``, p variances, a p × p matrix, or a dict
        of these by parameter are used as they are, and chains start at ``params``.""",
    "stepsize": """
        Stepsize ε of a leapfrog step, in units of the parameter, or of ζ with a preconditioner;
        ``None`` to choose. A number, an array with one for each coordinate, or a dict with one for
        each parameter.""",
    "n_iters": """
        Number of iterations after ``burn_in``; ``None`` for as many as ``ess`` requires.""",
    "burn_in": """
        Number of iterations run and dropped once everything is chosen; ``None`` for 20, or 100 if
        nothing had to be chosen.""",
    "max_seconds": """
        Time limit of the whole call in seconds. The warm-up ends after half of it, and the draws
        there are at its end are returned, with a warning. ``None`` for no limit.""",
    "n_chains": """
        Number of independent chains, 2 or more, on all cores; arrays have a leading chain axis.""",
    "dtype": """
        Floating point type: ``tf.float64``, or ``tf.float32`` for half the time on large data.
        Terms are computed in it, while sums over the observations and energies are float64 in any
        case.""",
}

_SUBSAMPLED = {
    **_FULL_DATA,
    "curvature_bound": """
        Function of the parameters at the mode and of some rows of the dataset that bounds the
        second derivatives of each row's term: it returns a dict with an array r_j,
        ``(n, *shape)``, for each parameter, such that they are c r_j r_jᵀ with |c| ≤ 1 at all
        parameters. It is called once for each row. For models of a linear predictor see
        :func:`sgmcmc.predictor_bound`.""",
    "prior_bound": """
        Dict with a number or an array for each parameter: a diagonal matrix that bounds the second
        derivatives of the log prior from both sides. ``None`` uses those at the mode, which are
        right everywhere for normal priors and a flat one.""",
    "preconditioner": """
        Coordinates: ``"dense"``, whitened by the observed information at the mode, or
        ``"diagonal"``, scaled by the Laplace SDs; ``None`` is ``"dense"``.""",
    "burn_in": """
        Number of iterations run and dropped first; ``None`` to choose.""",
}

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

_GEODESICS = {
    "stepsize": """
        Stepsize ε, the square of the time of a step, in units of squared parameter: a number, a
        schedule (:func:`sgmcmc.polynomial_decay`, or a function of the iteration, from 1), or a
        dict with such an entry for each parameter. On a manifold all coordinates share one.""",
}


# --------------------------------------------------------------------------------------- examples

_NORMAL_DATA = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
>>> def log_lik(params, dataset):
...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
"""

_NORMAL_MEAN = """
>>> chain = sgmcmc.{function}(
...     {call}, n_iters=5000,
...     verbose=False, seed=1)
>>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
True
"""

_NORMAL_STEPS = """
>>> sampler = sgmcmc.{function}({call}, seed=1)
>>> sess = sgmcmc.init_sess(sampler, verbose=False)
>>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
>>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
True
"""

_NORMAL_CALL = 'log_lik, {{"x": x}}, {{"theta": 3.0}}, {stepsize}, minibatch_size=100'


_CATEGORY_COUNTS = """
>>> import numpy as np, sgmcmc, tensorflow as tf
>>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
>>> def log_lik(params, dataset):
...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
"""

_CATEGORIES_MEAN = """
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

_DIRECTION_DATA = """
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


# -------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class CallExample:
    """An example of a call, as doctest lines with places for the call.

    Attributes:
        model: Model.
        call: Arguments of the call, with a place for the stepsize.
        run: Call of a function that runs the whole chain, and its result.
        steps: Call of a function that sets up a sampler, and what follows.
    """

    model: str
    call: str
    run: str
    steps: str


_NORMAL = CallExample(_NORMAL_DATA, _NORMAL_CALL, _NORMAL_MEAN, _NORMAL_STEPS)
_CATEGORIES = CallExample(
    _CATEGORY_COUNTS, _CATEGORIES_CALL, _CATEGORIES_MEAN, _CATEGORIES_STEPS
)
_DIRECTION = CallExample(
    _DIRECTION_DATA, _DIRECTION_CALL, _DIRECTION_MEAN, _DIRECTION_STEPS
)


@dataclass(frozen=True)
class SamplerEntry:
    """A row of the table: what the functions of one sampler share.

    Attributes:
        keywords: Keyword arguments besides those in the signatures; those of a setup are the ones
            of these that do not concern the draws of a run.
        arguments: Descriptions of arguments that only these functions have, or describe
            differently.
        equation: Update equation, and notes on it.
        source: Reference, with equation numbers.
        stepsize: Stepsize that suits the example.
        example: CallExample of a call.
        choices: Paragraph on the choice of constants.
    """

    keywords: type
    arguments: Mapping[str, str] = field(default_factory=dict)
    equation: str = ""
    source: str = ""
    stepsize: str = ""
    example: CallExample = _NORMAL
    choices: str = ""


SAMPLERS = {
    "sgld": SamplerEntry(
        NamedKeywords,
        equation="""
θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal and ĝ the gradient of
``log_prior(params) + (N/n) * log_lik(params, minibatch)``.
""",
        source="Welling & Teh, ICML 2011, eq. 4; Baker, *Large-Scale Bayesian Computation Using "
        "Stochastic Gradient MCMC*, Lancaster 2018, eq. 4.3.2",
        stepsize="1e-4",
    ),
    "sghmc": SamplerEntry(
        NamedKeywords,
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
    ),
    "sgnht": SamplerEntry(
        NamedKeywords,
        equation="""
ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, with one thermostat ξ for
each named parameter, p its size; at the start ν ~ N(0, ε) and ξ = a. The thermostat absorbs the
noise of the gradient, whose size need not be known.
""",
        source="Ding et al., NeurIPS 2014, algorithm 2; Baker, *Large-Scale Bayesian Computation "
        "Using Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3",
        stepsize="1e-5",
        arguments={
            "a": "Diffusion, positive: a number, or a dict with one for each parameter.",
        },
    ),
    "scir": SamplerEntry(
        NamedKeywords,
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
        example=_CATEGORIES,
    ),
    "sgrld": SamplerEntry(
        NamedKeywords,
        equation="""
θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |, η standard normal, and ω = θ / Σθ.

ĉ = (N/n) ω ∂log_lik/∂ω are the counts that are expected in each category. If components of
ω are near zero the discretization biases the chain at any practical stepsize h, and
:func:`sgmcmc.scir` does not have that error. Parameters that ``alpha`` does not name move by
SGLD, from the same minibatch. That is the parameterization ``"expanded_mean"``; in
``"expanded_natural"`` u = log θ moves, u' = u + (h/2) [alpha − e^u + ĉ − ω Σĉ] + √h η, and in
``"reduced_natural"`` all of u but its last component, u' = u + (h/2) [â − ω Σâ] + √h η.
""",
        source="Patterson & Teh, NeurIPS 2013, eq. 10; Baker, *Large-Scale Bayesian Computation "
        "Using Stochastic Gradient MCMC*, Lancaster 2018, section 5.2.2",
        stepsize="0.01",
        arguments=_POINTS,
        example=_CATEGORIES,
    ),
    "sggmc": SamplerEntry(
        GeodesicKeywords,
        equation="""
B: ν += (ε/2) Λ(θ) ĝ(θ), ν ← rν; A: (θ, ν) half a step along the geodesic;
O: ν ← cν + √(ε(1 − c²)) Λ(θ) ζ with c = e^(−alpha); A; B; at the start ν ~ N(0, ε).

Λ(θ) projects onto the tangent space of the manifold at θ; in ℝᵈ it does nothing, geodesics are
straight, and the method is BAOAB. The factors r of a step are a friction of arsinh(εV/2) that
absorbs the noise of the gradient, of variance V. ``"fisher"`` estimates V, from the empirical
Fisher information of the minibatches so far.
""",
        source="Liu, Zhu & Song, NeurIPS 2016, section 3.3 and eq. 8; the order is that of "
        "Leimkuhler & Matthews, Proceedings of the Royal Society A 472, 2016",
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
        example=_DIRECTION,
    ),
    "gsgnht": SamplerEntry(
        GeodesicKeywords,
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
        example=_DIRECTION,
    ),
    "hmc": SamplerEntry(
        FullDataKeywords,
        _FULL_DATA,
        choices=_CHOSEN.replace("{acceptance}", str(HMC.acceptance)),
    ),
    "mala": SamplerEntry(
        FullDataKeywords,
        _FULL_DATA,
        choices=_CHOSEN.replace("{acceptance}", str(MALA.acceptance)),
    ),
    "nuts": SamplerEntry(
        FullDataKeywords,
        _FULL_DATA,
        choices=_CHOSEN.replace("{acceptance}", str(NUTS.acceptance)),
    ),
    "zigzag": SamplerEntry(
        SubsampledKeywords,
        {
            **_SUBSAMPLED,
            "stepsize": """
        Time between draws, in units in which every coordinate moves by a posterior SD; ``None`` is
        1.""",
        },
    ),
    "mhss": SamplerEntry(
        SubsampledKeywords,
        {
            **_SUBSAMPLED,
            "stepsize": """
        Stepsize ε of the random walk, in posterior SDs; ``None`` is 1.5/√d.""",
            "gamma": """
        γ, positive: a larger one uses more rows for a less noisy acceptance.""",
        },
    ),
    "sample": SamplerEntry(SampleKeywords, _PARTS),
    "setup": SamplerEntry(SampleKeywords, _PARTS),
}
"""Texts and keywords of each sampler; a name with ``cv`` or ``_setup`` is in the same row."""
