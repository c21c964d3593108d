"""HMC, MALA and NUTS on the whole dataset, exact: the reference for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from sgmcmc.dynamics import HMC, MALA, NUTS, Dynamics
from sgmcmc.inputs.options import OF_GEODESICS
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.exact import run_exactly
from sgmcmc.plan.lengths import Requirements
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request
from sgmcmc.samplers.named import Function, with_arguments
from sgmcmc.samplers.sample import PARTS, with_updates

NOT_HERE = ("replace", "minibatches", "updates", "gibbs", "latents")
"""Keywords of other samplers that mean nothing if every move uses the whole dataset."""


_CHOSEN = """
Everything that you do not give is chosen. The mode is found; the chains start around it,
over-dispersed, and move in coordinates whitened by the observed information there. A warm-up adapts
the stepsize to an acceptance rate of {acceptance}, and changes the coordinates if the draws are
not as wide as they should be, or if there is no useful mode. Both are frozen before the first draw
is kept. Chains run until every coordinate has the effective sample size ``ess`` and an R-hat of at
most 1.01. ``samples.report`` has the acceptance rates, the divergences, what was chosen and what
was reached.
"""
"""Paragraph on the choice of constants of the samplers that use the whole dataset."""

EXACT_TEXTS = {
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
"""Descriptions of arguments of the samplers that use the whole dataset."""


def _documented(function: Function) -> Function:
    """Complete signature and docstring; ``{chosen}`` becomes the paragraph on the choices."""
    of: Any = {"hmc": HMC, "mala": MALA, "nuts": NUTS}[function.__name__]
    chosen = _CHOSEN.strip().replace("{acceptance}", str(of.acceptance))
    without = (*OF_GEODESICS, *NOT_HERE)
    with_arguments(without, {**PARTS, **EXACT_TEXTS})(function)
    function.__doc__ = (function.__doc__ or "").replace("{chosen}", chosen)
    return function


@_documented
def hmc(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    n_leapfrog: int | None = None,
    preconditioner: Any = None,
    stepsize: Any = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Any,
) -> Samples:
    """Sample a posterior by Hamiltonian Monte Carlo on the whole dataset, without constants.

    ν ~ N(0, I); leapfrog steps ν += (ε/2) ∇log p(θ | x), θ += εν, ν += (ε/2) ∇log p(θ | x);
    accepted with probability min(1, e^(H − H')), H = −log p(θ | x) + ν·ν/2. The posterior is the
    stationary distribution, whatever the constants are.

    {chosen} Trajectories have the length π/2 in these coordinates, with ε varied by 20 %.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.hmc(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(chain["theta"].mean() - x.mean()) < 0.01), chain.report.warnings
        (True, [])

    Source:
        Duane, Kennedy, Pendleton & Roweth, Physics Letters B 195, 1987; Neal, *MCMC using
        Hamiltonian dynamics*, Handbook of Markov Chain Monte Carlo, 2011.
    """
    return _run("hmc", HMC(n_leapfrog), locals())


@_documented
def mala(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    preconditioner: Any = None,
    stepsize: Any = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Any,
) -> Samples:
    """Sample a posterior by the Metropolis-adjusted Langevin algorithm, without constants.

    θ' = θ + (ε²/2) ∇log p(θ | x) + ε ν, ν ~ N(0, I), is accepted with probability
    min(1, p(θ' | x) q(θ | θ') / (p(θ | x) q(θ' | θ))), q the density of such steps. The posterior
    is the stationary distribution, whatever ε is. With a preconditioner M the step is
    θ' = θ + (ε²/2) M ∇log p(θ | x) + ε Cν, CCᵀ = M.

    {chosen} It is SGLD on the whole dataset, with stepsize ε², made exact, and one leapfrog step of
    :func:`sgmcmc.hmc`, which needs fewer gradients for an independent draw.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.mala(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(chain["theta"].mean() - x.mean()) < 0.01), chain.report.warnings
        (True, [])

    Source:
        Roberts & Tweedie, Bernoulli 2, 1996, section 1.4.2; Roberts & Rosenthal, Journal of the
        Royal Statistical Society B 60, 1998, for the acceptance rate of 0.574.
    """
    return _run("mala", MALA(), locals())


@_documented
def nuts(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    max_tree_depth: int = 10,
    preconditioner: Any = None,
    stepsize: Any = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Any,
) -> Samples:
    """Sample a posterior by the No-U-Turn Sampler on the whole dataset, without constants.

    Trajectories of H = −log p(θ | x) + ν·ν/2, ν ~ N(0, I), are doubled by leapfrog steps, forwards
    or backwards, until they turn back; one of their points is drawn with probability in proportion
    to e^(−H). The posterior is the stationary distribution, whatever the constants are.

    {chosen} It needs more gradients than :func:`sgmcmc.hmc` if the posterior is nearly normal, and
    stays reliable if it is not, as in hierarchical models.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.nuts(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(chain["theta"].mean() - x.mean()) < 0.01), chain.report.warnings
        (True, [])

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014; Betancourt, *A Conceptual
        Introduction to Hamiltonian Monte Carlo*, 2017.
    """
    return _run("nuts", NUTS(max_tree_depth), locals())


_EXACT = 0.05
"""Tolerance, unused: exact samplers have only Monte Carlo error."""


def _run(function: str, dynamics: Dynamics, given: Mapping[str, Any]) -> Samples:
    keywords = given["keywords"]
    for name in NOT_HERE:
        if name in keywords:
            raise TypeError(
                f"{function}() has no argument `{name}`: every move uses the whole dataset, and "
                "its log posterior."
            )
    request = Request(
        function,
        function,
        given["log_lik"],
        given["dataset"],
        given["params"],
        given["log_prior"],
        dynamics=dynamics,
        gradient=None,
        minibatch_size=None,
        stepsize=given["stepsize"],
        seed=given["seed"],
        keywords={
            **keywords,
            "preconditioner": given["preconditioner"],
            "dtype": given["dtype"],
        },
        reporter=CurvatureReporter(),
    )
    required = Requirements(
        _EXACT,
        *(
            given[name]
            for name in ("ess", "n_chains", "n_iters", "burn_in", "max_seconds")
        ),
    )
    return with_updates(request, required, given["verbose"], run_exactly)
