"""Any dynamics with any gradient and any minibatches: the two functions behind the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgmcmc.results.samples import Samples
from sgmcmc.run.automatic import run_automatically
from sgmcmc.run.driver import run
from sgmcmc.run.lengths import Wishes
from sgmcmc.run.sampler import Request
from sgmcmc.run.stepwise import StepwiseSampler, set_up
from sgmcmc.samplers.documentation import documented_parts
from sgmcmc.target.target import LogLik, LogPrior


@documented_parts()
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
    **keywords: Any,
) -> Samples:
    """Sample a posterior without tuning constants, or by any parts that are given.

    Without a ``stepsize`` everything that is not given is chosen: the mode is found by Newton steps
    on the whole dataset, the chain moves in coordinates whitened by the observed information there,
    rows are drawn in proportion to their leverage, gradients are control variates centred at the
    mode (or exact, for up to 2000 observations), the stepsize is the largest at which the
    predicted error of every posterior sd is at most ``tolerance``, and four chains run from
    over-dispersed starts until every coordinate has the effective sample size ``ess`` and an R-hat
    of at most 1.01. ``samples.report`` says what was chosen and what was reached; it holds for
    posteriors with one mode and up to 2000 coordinates.

    With a ``stepsize`` all parts must be given. They are independent; every combination that has a
    meaning runs. The named functions are faces of this one, and give the same bits.

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
    if stepsize is None:
        chosen = {
            "gradient": gradient,
            "minibatches": minibatches,
            "minibatch_size": minibatch_size,
            "preconditioner": preconditioner,
        }
        for name, value in chosen.items():
            if value is not None:
                raise ValueError(
                    f"`{name}` is chosen together with `stepsize`: leave it out, or give a "
                    "`stepsize` too."
                )
        request = Request(
            "sample",
            "underdamped" if dynamics is None else _method(dynamics),
            log_lik,
            dataset,
            params,
            log_prior,
            dynamics,
            None,
            None,
            None,
            seed,
            keywords,
        )
        wishes = Wishes(tolerance, ess, n_chains, n_iters, burn_in, max_seconds)
        return run_automatically(request, wishes, verbose)
    need = {"n_iters": n_iters, "burn_in": burn_in}
    request = _request(
        "sample",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics,
        gradient,
        minibatches,
        minibatch_size,
        preconditioner,
        stepsize,
        seed,
        need,
        {**keywords, "n_chains": n_chains, "burn_in": burn_in},
    )
    return run(request, n_iters, verbose)


@documented_parts(stepwise=True)
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

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sample` gives with the same seed.

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
    request = _request(
        "setup",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics,
        gradient,
        minibatches,
        minibatch_size,
        preconditioner,
        stepsize,
        seed,
        {},
        {**keywords, "n_chains": n_chains},
        stepwise=True,
    )
    return set_up(request, verbose)


def _request(
    function: str,
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None,
    dynamics: Any,
    gradient: Any,
    minibatches: Any,
    minibatch_size: Any,
    preconditioner: Any,
    stepsize: Any,
    seed: int | None,
    need: Mapping[str, Any],
    keywords: Mapping[str, Any],
    stepwise: bool = False,
) -> Request:
    """Return what the user asks for, once everything that has to be given was."""
    for name, value in {
        "dynamics": dynamics,
        "gradient": gradient,
        "minibatches": minibatches,
        "preconditioner": preconditioner,
        "stepsize": stepsize,
        **need,
    }.items():
        if value is None:
            raise ValueError(f"`{name}` must be given to {function}(). {_ADVICE[name]}")
    return Request(
        function,
        _method(dynamics),
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics,
        gradient,
        minibatch_size,
        stepsize,
        seed,
        {**keywords, "minibatches": minibatches, "preconditioner": preconditioner},
        stepwise,
    )


def _method(dynamics: Any) -> str:
    """Return what the sampler is called: by its dynamics."""
    return dynamics if isinstance(dynamics, str) else type(dynamics).__name__.lower()


_ADVICE = {
    "dynamics": "Write, say, dynamics='sgld' or 'underdamped'.",
    "gradient": "Write, say, gradient='minibatch'.",
    "minibatches": "Write, say, minibatches='uniform'.",
    "preconditioner": "Write preconditioner='none', or give variances or a covariance matrix.",
    "stepsize": "It should be small against the reciprocal of the log posterior's curvature.",
    "n_iters": "It is the number of iterations after `burn_in`.",
    "burn_in": "It is the number of iterations that are dropped first, and may be 0.",
}
