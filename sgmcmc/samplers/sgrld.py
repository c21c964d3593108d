"""Stochastic gradient Riemannian Langevin dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.driver import sample
from sgmcmc.dynamics import SGRLD
from sgmcmc.inputs.options import read_run
from sgmcmc.inputs.simplex import SimplexArguments
from sgmcmc.model import LogLik, LogPrior
from sgmcmc.sampler import Target
from sgmcmc.samplers.documentation import SIMPLEX, documented
from sgmcmc.samplers.points import make_point_sampler
from sgmcmc.samples import Samples
from sgmcmc.stepwise import StepwiseSampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords


@documented(**SIMPLEX)
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
    store_unnormalised: bool = False,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample points of the simplex by stochastic gradient Riemannian Langevin dynamics.

    θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |, η standard normal, and ω = θ / Σθ.

    ĉ = (N/n) ω ∂log_lik/∂ω are the counts that are expected in each category. Where components of
    ω are near zero the discretisation biases the chain at any practical stepsize h, and
    :func:`sgmcmc.scir` does not have that error. Parameters that ``alpha`` does not name move by
    SGLD, from the same minibatch.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
        >>> def log_lik(params, dataset):
        ...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
        >>> chain = sgmcmc.sgrld(log_lik, {"z": z}, {"omega": np.ones(3) / 3}, 0.01, alpha=0.5,
        ...                      minibatch_size=100, n_iters=5000, verbose=False, seed=1)
        >>> np.round(chain["omega"].mean(0, dtype=float), 1).tolist()
        [0.7, 0.2, 0.1]

    Source:
        Patterson & Teh, NeurIPS 2013, eq. 10; thesis 5.2.2.
    """
    run = read_run(n_iters, 0, verbose, keywords.get("thin", 1))
    target = Target(log_lik, dataset, params, log_prior, minibatch_size)
    simplex = SimplexArguments(alpha, theta0, store_unnormalised)
    return sample(
        make_point_sampler("sgrld", SGRLD, target, stepsize, simplex, seed, keywords), *run
    )


@documented(**SIMPLEX)
def sgrld_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    seed: int | None = None,
    *,
    alpha: Any,
    theta0: Mapping[str, Any] | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Riemannian Langevin dynamics, to be run step by step.

    θ' = | θ + (h/2) [alpha − θ + ĉ − ω Σĉ] + √(hθ) η |, η standard normal, and ω = θ / Σθ.

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sgrld` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
        >>> def log_lik(params, dataset):
        ...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
        >>> sampler = sgmcmc.sgrld_setup(
        ...     log_lik, {"z": z}, {"omega": np.ones(3) / 3}, 0.01, alpha=0.5, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> bool(abs(sgmcmc.get_params(sampler, sess)["omega"].sum() - 1) < 1e-5)
        True

    Source:
        Patterson & Teh, NeurIPS 2013, eq. 10; thesis 5.2.2.
    """
    target = Target(log_lik, dataset, params, log_prior, minibatch_size)
    simplex = SimplexArguments(alpha, theta0)
    sampler = make_point_sampler("sgrld_setup", SGRLD, target, stepsize, simplex, seed, keywords)
    return StepwiseSampler(sampler, 0, False)
