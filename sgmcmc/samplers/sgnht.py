"""The stochastic gradient Nosé–Hoover thermostat, with plain and control variate gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sgmcmc.driver import sample
from sgmcmc.dynamics import SGNHT
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
    a="""the diffusion, positive: a number, or a dict with one for each parameter.""",
)
def sgnht(
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
    """Sample by the stochastic gradient Nosé–Hoover thermostat.

    ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, with one thermostat ξ for
    each named parameter, p its size; at the start ν ~ N(0, ε) and ξ = a. The thermostat takes up
    the noise of the gradient, whose size need not be known.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> chain = sgmcmc.sgnht(log_lik, {"x": x}, {"theta": 3.0}, 1e-5, minibatch_size=100,
        ...                      n_iters=5000, verbose=False, seed=1)
        >>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
        True

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; thesis 4.3.3.
    """
    run = read_run(n_iters, 0, verbose, keywords.get("thin", 1))
    sampler = make_sampler(
        "sgnht",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(a),
        seed,
        keywords,
        tuning={"a": a},
    )
    return sample(sampler, *run)


@documented(
    a="""the diffusion, positive: a number, or a dict with one for each parameter.""",
)
def sgnhtcv(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    n_iters: int = 10_000,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> Samples:
    """Sample by the stochastic gradient Nosé–Hoover thermostat with control variates.

    ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, with one thermostat ξ for
    each named parameter, p its size; at the start ν ~ N(0, ε) and ξ = a. The thermostat takes up
    the noise of the gradient, whose size need not be known.

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
        >>> chain = sgmcmc.sgnhtcv(log_lik, {"x": x}, {"theta": 0.0}, 1e-5, 1e-4,
        ...                        n_iters=5000, verbose=False, seed=1)
        >>> abs(float(chain["theta"].mean()) - float(x.mean())) < 0.05
        True

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; thesis 3.3.1 and 4.3.3;
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """
    run = read_run(n_iters, n_iters_opt, verbose, keywords.get("thin", 1))
    sampler = make_sampler(
        "sgnhtcv",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(a),
        seed,
        keywords,
        opt_stepsize=opt_stepsize,
        tuning={"a": a},
    )
    return sample(sampler, *run)


def _dynamics(a: Any) -> Callable[[Model], SGNHT]:
    """Return what makes the dynamics once the layout of the parameters is known."""
    return lambda model: SGNHT(read_constant("a", a, model.layout), model.layout)


@documented(
    a="""the diffusion, positive: a number, or a dict with one for each parameter.""",
)
def sgnht_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up the stochastic gradient Nosé–Hoover thermostat, to be run step by step.

    ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, for each parameter of
    size p.

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sgnht` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgnht_setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, 1e-4, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
        True

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; thesis 4.3.3.
    """
    sampler = make_sampler(
        "sgnht_setup",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(a),
        seed,
        keywords,
        tuning={"a": a},
    )
    return StepwiseSampler(sampler, 0, False)


@documented(
    a="""the diffusion, positive: a number, or a dict with one for each parameter.""",
)
def sgnhtcv_setup(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    stepsize: Any,
    opt_stepsize: Any,
    log_prior: LogPrior | None = None,
    minibatch_size: float = 0.01,
    a: Any = 0.01,
    n_iters_opt: int = 10_000,
    verbose: bool = True,
    seed: int | None = None,
    **keywords: Unpack[Keywords],
) -> StepwiseSampler:
    """Set up the stochastic gradient Nosé–Hoover thermostat with control variates.

    ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε, for each parameter of
    size p.

    ĝ is estimated with control variates centred at the mode θ̂, which ``init_sess`` finds by
    ``n_iters_opt`` steps of stochastic gradient ascent:
    ĝ(θ) = G + [∇log p(θ) − ∇log p(θ̂)] + (N/n) Σ_{i∈S} [∇log p(x_i|θ) − ∇log p(x_i|θ̂)].

    :func:`sgmcmc.init_sess` starts a session and :func:`sgmcmc.sgmcmc_step` takes it further; n
    steps of a fresh session give the draws that :func:`sgmcmc.sgnhtcv` gives with the same seed.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> x = np.random.default_rng(1).normal(3.0, 1.0, 1000)
        >>> def log_lik(params, dataset):
        ...     return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
        >>> sampler = sgmcmc.sgnhtcv_setup(
        ...     log_lik, {"x": x}, {"theta": 3.0}, 1e-4, 1e-4, n_iters_opt=1000,
        ...     verbose=False, seed=1)
        >>> sess = sgmcmc.init_sess(sampler)
        >>> sgmcmc.sgmcmc_step(sampler, sess, n_steps=100)
        >>> abs(float(sgmcmc.get_params(sampler, sess)["theta"]) - 3.0) < 0.5
        True

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; thesis 3.3.1 and 4.3.3;
        Baker, Fearnhead, Fox & Nemeth, Statistics and Computing 29, 2019, eq. 9.
    """
    _, n_iters_opt, verbose = read_run(1, n_iters_opt, verbose)
    sampler = make_sampler(
        "sgnhtcv_setup",
        Target(log_lik, dataset, params, log_prior, minibatch_size),
        stepsize,
        _dynamics(a),
        seed,
        keywords,
        opt_stepsize=opt_stepsize,
        tuning={"a": a},
    )
    return StepwiseSampler(sampler, n_iters_opt, verbose)
