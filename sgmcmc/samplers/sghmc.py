"""Stochastic gradient Hamiltonian Monte Carlo, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.driver import sample
from sgmcmc.dynamics import SGHMC
from sgmcmc.inputs.numbers import choice, whole_number
from sgmcmc.inputs.options import read_run
from sgmcmc.inputs.tuning import read_constant
from sgmcmc.model import LogLik, LogPrior, Model
from sgmcmc.sampler import Target, make_sampler
from sgmcmc.samplers.documentation import documented
from sgmcmc.samples import Samples
from sgmcmc.stepwise import StepwiseSampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.inputs.options import Keywords


@documented(
    alpha="""α > 0, the friction: a number, or a dict with one for each parameter.""",
    L="""steps, each with a gradient of its own, in one iteration.""",
    integrator="""``"symmetric"``, or ``"euler"`` for the published update.""",
)
def sghmc(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    n_iters: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo.

    One iteration draws ν ~ N(0, ε) afresh, then takes L steps of
    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ),
    where the ĝ that ends a step begins the next one. ``integrator="euler"`` takes the published
    update, ν ← (1 − α) ν + ε ĝ(θ) + √(2αε) ζ; θ ← θ + ν, whose stationary variance is wrong by a
    factor of about L/(L + 1) however small ε is.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sghmc(log_lik, {"x": x}, {"theta": 3.0}, 1e-5, minibatch_size=100,
        ...                      n_iters=2000, verbose=False, seed=1)
        >>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
        True

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15; thesis 4.3.3.
    """
    run = read_run(n_iters, 0, verbose, keywords.get("thin", 1))
    sampler = make_sampler(
        "sghmc",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(alpha, L, integrator),
        seed,
        keywords,
        tuning={"alpha": alpha, "L": L, "integrator": integrator},
    )
    return sample(sampler, *run)


@documented(
    alpha="""α > 0, the friction: a number, or a dict with one for each parameter.""",
    L="""steps, each with a gradient of its own, in one iteration.""",
    integrator="""``"symmetric"``, or ``"euler"`` for the published update.""",
)
def sghmccv(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    n_iters: int = 10_000,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by stochastic gradient Hamiltonian Monte Carlo with control variates.

    One iteration draws ν ~ N(0, ε) afresh, then takes L steps of
    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ),
    where the ĝ that ends a step begins the next one. ``integrator="euler"`` takes the published
    update, ν ← (1 − α) ν + ε ĝ(θ) + √(2αε) ζ; θ ← θ + ν, whose stationary variance is wrong by a
    factor of about L/(L + 1) however small ε is.

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
        >>> chain = sgmcmc.sghmccv(log_lik, {"x": x}, {"theta": 0.0}, 1e-5, 1e-4,
        ...                        n_iters=2000, verbose=False, seed=1)
        >>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
        True

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15; thesis 3.3.1 and 4.3.3;
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """
    run = read_run(n_iters, n_iters_opt, verbose, keywords.get("thin", 1))
    sampler = make_sampler(
        "sghmccv",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(alpha, L, integrator),
        seed,
        keywords,
        opt_stepsize=opt_stepsize,
        tuning={"alpha": alpha, "L": L, "integrator": integrator},
    )
    return sample(sampler, *run)


def _dynamics(alpha: Any, L: int, integrator: str) -> Callable[[Model], SGHMC]:
    """Return what makes the dynamics once the layout of the parameters is known."""
    steps = whole_number("L", L, 1)
    euler = choice("integrator", integrator, ("symmetric", "euler")) == "euler"
    most = 1.0 if euler else float("inf")
    return lambda model: SGHMC(read_constant("alpha", alpha, model.layout, most), steps, euler)


@documented(
    alpha="""α > 0, the friction: a number, or a dict with one for each parameter.""",
    L="""steps, each with a gradient of its own, in one iteration.""",
    integrator="""``"symmetric"``, or ``"euler"`` for the published update.""",
)
def sghmc_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Hamiltonian Monte Carlo, to be run step by step.

    One iteration draws ν ~ N(0, ε) afresh, then takes L steps of
    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ).

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sghmc` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sghmc_setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, 1e-5, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
        True

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15; thesis 4.3.3.
    """
    sampler = make_sampler(
        "sghmc_setup",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(alpha, L, integrator),
        seed,
        keywords,
        tuning={"alpha": alpha, "L": L, "integrator": integrator},
    )
    return StepwiseSampler(sampler, 0, False)


@documented(
    alpha="""α > 0, the friction: a number, or a dict with one for each parameter.""",
    L="""steps, each with a gradient of its own, in one iteration.""",
    integrator="""``"symmetric"``, or ``"euler"`` for the published update.""",
)
def sghmccv_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    alpha: Any = 0.01,
    L: int = 5,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    *,
    integrator: str = "symmetric",
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up stochastic gradient Hamiltonian Monte Carlo with control variates.

    One iteration draws ν ~ N(0, ε) afresh, then takes L steps of
    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−α); θ += ν/2; ν += (ε/2) ĝ(θ).

    ĝ is estimated with control variates centred at the mode θ̂, which ``init_sess`` finds by
    ``n_iters_opt`` steps of stochastic gradient ascent:
    ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sghmccv` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sghmccv_setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, 1e-5, 1e-4, n_iters_opt=1000,
        ...     verbose=False, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
        True

    Source:
        Chen, Fox & Guestrin, ICML 2014, eq. 15; thesis 3.3.1 and 4.3.3;
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """
    _, n_iters_opt, verbose = read_run(1, n_iters_opt, verbose)
    sampler = make_sampler(
        "sghmccv_setup",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(alpha, L, integrator),
        seed,
        keywords,
        opt_stepsize=opt_stepsize,
        tuning={"alpha": alpha, "L": L, "integrator": integrator},
    )
    return StepwiseSampler(sampler, n_iters_opt, verbose)
