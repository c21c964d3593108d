"""Any dynamics with any gradient and any minibatches: the functions behind the named ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sgmcmc import checks
from sgmcmc.dynamics import HMC, MALA, NUTS, Underdamped
from sgmcmc.dynamics.hamiltonian import Hamiltonian
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.choices import run, set_up
from sgmcmc.plan.methods.hmc import run_hamiltonian
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.plan.solve import solve
from sgmcmc.plan.stopping import Goal
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import AUTO, Request, brief, is_one_of, is_open, open_arguments
from sgmcmc.run.sampler_origin import begun_at, updatable
from sgmcmc.run.stepwise import StepwiseSampler
from sgmcmc.samplers.documentation import documented

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.samplers.table import SampleKeywords, SetupKeywords


@documented
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
    reduce: bool = True,
    **keywords: Unpack[SampleKeywords],
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
    checks.flag("reduce", reduce)
    request = Request(
        "sample",
        _method(dynamics),
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=_or_auto(dynamics),
        gradient=_or_auto(gradient),
        minibatch_size=_or_auto_unless_full(minibatch_size, gradient),
        stepsize=_or_auto(stepsize),
        seed=seed,
        keywords={
            **keywords,
            "n_chains": n_chains,
            "minibatches": _or_auto(minibatches),
            "preconditioner": _or_auto(preconditioner),
        },
        reporter=CurvatureReporter(),
    )
    if start is not None:
        request = begun_at(request, start)
    if open_arguments(request) or n_iters is None or burn_in is None:
        goal = Goal(tolerance, ess, n_chains, n_iters, burn_in, max_seconds, verbose)
        exact = isinstance(request.dynamics, Hamiltonian) or is_one_of(
            request.dynamics, (HMC.name, MALA.name, NUTS.name)
        )
        return with_updates(request, goal, run_hamiltonian if exact else solve)
    return run(
        replace(request, keywords={**request.keywords, "burn_in": burn_in}),
        n_iters,
        verbose,
    )


@documented
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
    **keywords: Unpack[SetupKeywords],
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
    request = Request(
        "setup",
        _method(dynamics),
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=_or_auto(dynamics),
        gradient=_or_auto(gradient),
        minibatch_size=_or_auto_unless_full(minibatch_size, gradient),
        stepsize=_or_auto(stepsize),
        seed=seed,
        keywords={
            **keywords,
            "n_chains": n_chains,
            "minibatches": _or_auto(minibatches),
            "preconditioner": _or_auto(preconditioner),
        },
        stepwise=True,
        reporter=CurvatureReporter(),
    )
    return set_up(request, verbose)


@brief
def with_updates(
    request: Request, goal: Goal, run_all: Callable[[Request, Goal], Samples]
) -> Samples:
    """Return the draws of a request, which can be updated with more rows.

    Args:
        request: Request of the user.
        goal: Requested precision and length of the draws.
        run_all: Function of these two that chooses what is open and runs the chains.
    """

    def call(request: Request, verbose: bool) -> Samples:
        return run_all(request, replace(goal, verbose=verbose))

    return updatable(call(request, goal.verbose), request, call)


def _method(dynamics: Any) -> str:
    """Return the name of the sampler, that of its dynamics."""
    if is_open(dynamics):
        return Underdamped.name
    return dynamics if isinstance(dynamics, str) else type(dynamics).__name__.lower()


def _or_auto(part: Any) -> Any:
    return AUTO if part is None else part


def _or_auto_unless_full(minibatch_size: float | None, gradient: Any) -> Any:
    """Return a minibatch size, which is open if it is ``None`` and gradients use minibatches."""
    full = is_one_of(gradient, ("full",)) or getattr(gradient, "whole_dataset", False)
    return minibatch_size if full else _or_auto(minibatch_size)
