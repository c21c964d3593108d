"""The stochastic Cox–Ingersoll–Ross process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.driver import sample
from sgmcmc.dynamics import SCIR
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
    alpha: Any,
    theta0: Mapping[str, Any] | None = None,
    store_unnormalised: bool = False,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample points of the simplex by the stochastic Cox–Ingersoll–Ross process.

    θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), non-central, and ω = θ / Σθ.

    â = alpha + ĉ, with ĉ = (N/n) ω ∂log_lik/∂ω the counts that are expected in each category. With
    n = N and complete data, or latent variables drawn by ``gibbs``, the chain has the posterior's
    law exactly, whatever the stepsize h; with latent variables summed out in ``log_lik``, as in
    the likelihood of a mixture, as h → 0. Parameters that ``alpha`` does not name move by SGLD,
    from the same minibatch.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
        >>> def log_lik(params, dataset):
        ...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
        >>> chain = sgmcmc.scir(log_lik, {"z": z}, {"omega": np.ones(3) / 3}, 0.5, alpha=0.5,
        ...                     minibatch_size=100, n_iters=2000, verbose=False, seed=1)
        >>> np.round(chain["omega"].mean(0, dtype=float), 1).tolist()
        [0.7, 0.2, 0.1]

    Source:
        Thesis 5.3.3; Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1.
    """
    run = read_run(n_iters, 0, verbose, keywords.get("thin", 1))
    target = Target(log_lik, dataset, params, log_prior, minibatch_size)
    simplex = SimplexArguments(alpha, theta0, store_unnormalised)
    return sample(make_point_sampler("scir", SCIR, target, stepsize, simplex, seed, keywords), *run)


@documented(**SIMPLEX)
def scir_setup(
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
    """Set up the stochastic Cox–Ingersoll–Ross process, to be run step by step.

    θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), non-central, and ω = θ / Σθ.

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.scir` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> z = np.repeat(np.eye(3), [70, 20, 10], axis=0)
        >>> def log_lik(params, dataset):
        ...     return tf.reduce_sum(dataset["z"] * tf.math.log(params["omega"]))
        >>> sampler = sgmcmc.scir_setup(
        ...     log_lik, {"z": z}, {"omega": np.ones(3) / 3}, 0.5, alpha=0.5, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> bool(abs(sgmcmc.get_params(sampler, sess)["omega"].sum() - 1) < 1e-5)
        True

    Source:
        Thesis 5.3.3; Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1.
    """
    target = Target(log_lik, dataset, params, log_prior, minibatch_size)
    simplex = SimplexArguments(alpha, theta0)
    return StepwiseSampler(
        make_point_sampler("scir_setup", SCIR, target, stepsize, simplex, seed, keywords), 0, False
    )
