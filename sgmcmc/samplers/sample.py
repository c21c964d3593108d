"""Any dynamics with any gradient and any minibatches: the functions behind the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sgmcmc.dynamics import HMC, MALA, NUTS, Underdamped
from sgmcmc.dynamics.hamiltonian import Hamiltonian
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.automatic import run_automatically
from sgmcmc.plan.choices import run, set_up
from sgmcmc.plan.exact import run_exactly
from sgmcmc.plan.lengths import Requirements
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import AUTO, Request, brief, is_one_of, open_arguments
from sgmcmc.run.stepwise import StepwiseSampler
from sgmcmc.run.updates import begun_at, updatable
from sgmcmc.samplers.named import with_arguments

PARTS = {
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
}
"""Descriptions of the arguments of the functions that accept any parts."""


@with_arguments(("replace",), PARTS)
def sample(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    dynamics: Any = None,
    gradient: Any = None,
    minibatches: Any = None,
    minibatch_size: float | None = None,
    preconditioner: Any = None,
    stepsize: Any = None,
    tolerance: float = 0.05,
    ess: float = 400,
    n_chains: int | None = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    start: Samples | None = None,
    **keywords: Any,
) -> Samples:
    """Sample a posterior without tuning constants, or with the parts that you give.

    Everything that you do not give is chosen. The mode is found by Newton steps on the whole
    dataset, and the chain moves in coordinates whitened by the observed information there. Rows are
    drawn in proportion to their leverage; gradients are control variates centered at the mode (or
    exact, for up to 2000 observations). The stepsize is the largest at which the predicted error of
    every posterior SD is at most ``tolerance``. Four chains run from over-dispersed starts until
    every coordinate has the effective sample size ``ess`` and an R-hat of at most 1.01.
    ``samples.report`` lists what was chosen and what was reached. Other modes are searched for; if
    there are any, chains start in each. Beyond 2000 coordinates, or beyond 300 of which entries can
    change places as hidden units can, HMC is used if it is predicted to finish within 15 minutes,
    or within 0.8 ``max_seconds``. If it needs more than three minutes and rows have few numbers,
    chains of up to 5000 coordinates in a few linear predictors go around the mode all the same. All
    others, where HMC takes too long, are underdamped with plain minibatch gradients, a diagonal
    preconditioner, and a stepsize from the curvature and noise around them, and their error is
    measured by a second run at half the stepsize. HMC also samples latent fields, such as random
    walks and splines, in coordinates of their own.

    The parts are independent: every meaningful combination runs, however much of it you specify. If
    you give everything, ``n_iters`` and ``burn_in`` included, nothing is computed before the chain:
    the named functions are thin wrappers of that, and give the same draws bit for bit.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> samples = sgmcmc.sample(log_lik, {"x": x}, {"theta": 0.0}, verbose=False, seed=1)
        >>> bool(abs(samples["theta"].mean() - x.mean()) < 0.01), samples.report.warnings
        (True, [])
        >>> chain = sgmcmc.sample(
        ...     log_lik, {"x": x}, {"theta": 3.0}, dynamics="underdamped", gradient="svrg",
        ...     minibatches="uniform", minibatch_size=50, preconditioner=[1e-3], stepsize=0.1,
        ...     n_iters=2000, burn_in=200, verbose=False, seed=1)
        >>> chain["theta"].shape, bool(abs(chain["theta"].mean() - x.mean()) < 0.01)
        ((4, 2000), True)

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        chapters 3 and 4, for dynamics and gradients as separate parts, and lemma 3.3.3 for the
        best probabilities of rows.
    """
    request = _request("sample", locals())
    if start is not None:
        request = begun_at(request, start)
    if open_arguments(request) or n_iters is None or burn_in is None:
        required = Requirements(tolerance, ess, n_chains, n_iters, burn_in, max_seconds)
        exact = _is_hamiltonian(request.dynamics)
        return with_updates(
            request, required, verbose, run_exactly if exact else run_automatically
        )
    return run(
        replace(request, keywords={**request.keywords, "burn_in": burn_in}),
        n_iters,
        verbose,
    )


@with_arguments(("replace",), PARTS, stepwise=True)
def setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    dynamics: Any = None,
    gradient: Any = None,
    minibatches: Any = None,
    minibatch_size: float | None = None,
    preconditioner: Any = None,
    stepsize: Any = None,
    n_chains: int | None = 4,
    seed: int | None = None,
    verbose: bool = True,
    **keywords: Any,
) -> StepwiseSampler:
    """Set up any dynamics, with any gradient estimator and any minibatches, to run step by step.

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` continues it; n steps
    of a fresh session give the draws that :func:`sgmcmc.sample` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, dynamics="sgld", gradient="saga",
        ...     minibatches="uniform", minibatch_size=50, preconditioner="none", stepsize=1e-4,
        ...     seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> sgmcmc.get_params(sampler, sess)["theta"].shape
        (4,)

    Source:
        Baker, *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018,
        chapters 3 and 4, for dynamics and gradients as separate parts.
    """
    request = _request("setup", locals(), stepwise=True)
    return set_up(request, verbose)


@brief
def with_updates(
    request: Request, required: Requirements, verbose: bool, run_all: Any
) -> Samples:
    """Return the draws of a request, which can be updated with more rows.

    Args:
        request: Request of the user.
        required: Requested precision and length of the draws.
        verbose: Whether to show progress.
        run_all: Function of these three that chooses what is open and runs the chains.
    """

    def call(request: Request, verbose: bool) -> Samples:
        return run_all(request, required, verbose)

    return updatable(call(request, verbose), request, call)


def _request(
    function: str, given: Mapping[str, Any], *, stepwise: bool = False
) -> Request:
    """Return the user's request; arguments that were not given will be chosen."""
    parts = ("dynamics", "gradient", "minibatches", "preconditioner", "stepsize")
    part = {name: AUTO if given[name] is None else given[name] for name in parts}
    size = given["minibatch_size"]
    return Request(
        function,
        _method(part["dynamics"]),
        given["log_lik"],
        given["dataset"],
        given["params"],
        given["log_prior"],
        dynamics=part["dynamics"],
        gradient=part["gradient"],
        minibatch_size=AUTO
        if size is None and not _takes_all(part["gradient"])
        else size,
        stepsize=part["stepsize"],
        seed=given["seed"],
        keywords={
            **given["keywords"],
            "n_chains": given["n_chains"],
            "minibatches": part["minibatches"],
            "preconditioner": part["preconditioner"],
        },
        stepwise=stepwise,
        reporter=CurvatureReporter(),
    )


def _takes_all(gradient: Any) -> bool:
    """Return whether a gradient, by name or as an object, uses the whole dataset."""
    return is_one_of(gradient, ("full",)) or getattr(gradient, "whole_dataset", False)


def _method(dynamics: Any) -> str:
    """Return the name of the sampler, that of its dynamics."""
    if is_one_of(dynamics, (AUTO,)):
        return Underdamped.name
    return dynamics if isinstance(dynamics, str) else type(dynamics).__name__.lower()


def _is_hamiltonian(dynamics: Any) -> bool:
    """Return whether dynamics, by name or as an object, are those of HMC, MALA or NUTS."""
    return isinstance(dynamics, Hamiltonian) or is_one_of(
        dynamics, (HMC.name, MALA.name, NUTS.name)
    )
