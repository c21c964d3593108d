"""Stochastic gradient Langevin dynamics, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.driver import sample
from sgmcmc.dynamics import SGLD
from sgmcmc.inputs.options import read_run
from sgmcmc.model import LogLik, LogPrior
from sgmcmc.sampler import Target, make_sampler
from sgmcmc.samplers.documentation import documented
from sgmcmc.samples import Samples
from sgmcmc.stepwise import StepwiseSampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords


@documented()
def sgld(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Langevin dynamics.

    θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal and ĝ the gradient of
    ``log_prior(params) + (N/n) * log_lik(params, minibatch)``.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgld(log_lik, {"x": x}, {"theta": 3.0}, 1e-4, minibatch_size=100,
        ...                     n_iters=2000, verbose=False, seed=1)
        >>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
        True

    Source:
        Welling & Teh, ICML 2011, eq. 4; thesis 4.3.2.
    """
    run = read_run(n_iters, 0, verbose, keywords.get("thin", 1))
    sampler = make_sampler(
        "sgld",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        lambda model: SGLD(),
        seed,
        keywords,
    )
    return sample(sampler, *run)


@documented()
def sgldcv(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters: int = 10_000,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Langevin dynamics with control variates.

    θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal.

    The gradient is estimated with control variates: the mode θ̂ is found by ``n_iters_opt`` steps
    of stochastic gradient ascent with stepsize ``opt_stepsize``, the gradient G there is taken
    over the whole dataset, and then
    ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].
    The chain starts at θ̂. Far fewer observations a step then give the same accuracy, as long as
    the posterior is concentrated around θ̂.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgldcv(log_lik, {"x": x}, {"theta": 0.0}, 1e-4, 1e-4,
        ...                       n_iters=2000, verbose=False, seed=1)
        >>> abs(float(chain.mode["theta"]) - float(x.mean())) < 0.1
        True
        >>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
        True

    Source:
        Thesis 3.3.1 and 4.3.2;
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """
    run = read_run(n_iters, n_iters_opt, verbose, keywords.get("thin", 1))
    sampler = make_sampler(
        "sgldcv",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        lambda model: SGLD(),
        seed,
        keywords,
        opt_stepsize=opt_stepsize,
    )
    return sample(sampler, *run)


@documented()
def sgld_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics, to be run step by step.

    θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal.

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sgld` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgld_setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, 1e-4, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
        True

    Source:
        Welling & Teh, ICML 2011, eq. 4; thesis 4.3.2.
    """
    sampler = make_sampler(
        "sgld_setup",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        lambda model: SGLD(),
        seed,
        keywords,
    )
    return StepwiseSampler(sampler, 0, False)


@documented()
def sgldcv_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Langevin dynamics with control variates, to run step by step.

    θ' = θ + (ε/2) ĝ(θ) + √ε η, with η standard normal.

    ĝ is estimated with control variates centred at the mode θ̂, which ``init_sess`` finds by
    ``n_iters_opt`` steps of stochastic gradient ascent:
    ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sgldcv` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgldcv_setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, 1e-4, 1e-4, n_iters_opt=1000,
        ...     verbose=False, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
        True

    Source:
        Thesis 3.3.1 and 4.3.2;
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """
    _, n_iters_opt, verbose = read_run(1, n_iters_opt, verbose)
    sampler = make_sampler(
        "sgldcv_setup",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        lambda model: SGLD(),
        seed,
        keywords,
        opt_stepsize=opt_stepsize,
    )
    return StepwiseSampler(sampler, n_iters_opt, verbose)
