"""Exact samplers: HMC, MALA and NUTS on all rows, zig-zag and MHSS on a few rows a move."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.dynamics import HMC, MALA, MHSS, NUTS, ZigZag
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.methods.hmc import run_hamiltonian
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.plan.stopping import Goal
from sgmcmc.plan.subsampled import run_subsampled
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request
from sgmcmc.samplers.documentation import documented
from sgmcmc.samplers.sample import with_updates

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sgmcmc.samplers.table import FullDataKeywords, SubsampledKeywords

# Tolerance, unused: exact samplers have only Monte Carlo error
_EXACT = 0.05

# Keywords of other samplers that mean nothing if every move uses the whole dataset, and those that
# mean nothing if rows are drawn by their bounds
_NOT_ON_FULL_DATA = ("replace", "minibatches", "updates", "gibbs", "latents")
_NOT_BY_ROWS = (
    *_NOT_ON_FULL_DATA,
    "manifolds",
    "bijectors",
    "groups",
    "store_gradients",
)


@documented
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
    **keywords: Unpack[FullDataKeywords],
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
    request = Request(
        "hmc",
        "hmc",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=HMC(n_leapfrog),
        gradient=None,
        minibatch_size=None,
        stepsize=stepsize,
        seed=seed,
        keywords={**keywords, "preconditioner": preconditioner, "dtype": dtype},
        reporter=CurvatureReporter(),
    )
    goal = Goal(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds, verbose)
    return _run_on_full_data(request, goal)


@documented
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
    **keywords: Unpack[FullDataKeywords],
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
    request = Request(
        "mala",
        "mala",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=MALA(),
        gradient=None,
        minibatch_size=None,
        stepsize=stepsize,
        seed=seed,
        keywords={**keywords, "preconditioner": preconditioner, "dtype": dtype},
        reporter=CurvatureReporter(),
    )
    goal = Goal(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds, verbose)
    return _run_on_full_data(request, goal)


@documented
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
    **keywords: Unpack[FullDataKeywords],
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
    request = Request(
        "nuts",
        "nuts",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=NUTS(max_tree_depth),
        gradient=None,
        minibatch_size=None,
        stepsize=stepsize,
        seed=seed,
        keywords={**keywords, "preconditioner": preconditioner, "dtype": dtype},
        reporter=CurvatureReporter(),
    )
    goal = Goal(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds, verbose)
    return _run_on_full_data(request, goal)


def _run_on_full_data(request: Request, goal: Goal) -> Samples:
    for name in _NOT_ON_FULL_DATA:
        if name in request.keywords:
            raise TypeError(
                f"{request.function}() has no argument `{name}`: every move uses the whole "
                "dataset, and its log posterior."
            )
    return with_updates(request, goal, run_hamiltonian)


def predictor_bound(
    columns: Mapping[str, str | None], most: float = 0.25
) -> Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, np.ndarray]]:
    """Return the ``curvature_bound`` of a model whose rows depend on a linear predictor.

    With η_j = Σ x_j·θ over the named parameters and |∂² log p(y_j|η_j)/∂η_j²| ≤ ``most``, the
    second derivatives of row j are c r_j r_jᵀ, r_j = √most x_j and |c| ≤ 1. ``most`` is 1/4 for
    logistic regression, n/4 for binomial with n trials, 1 for probit, 1/σ² for a normal with known
    σ. A Poisson regression has no bound.

    Args:
        columns: Column of the dataset that multiplies each parameter; ``None`` for one that is
            added, such as an intercept.
        most: Bound on the second derivative, positive.

    Returns:
        A function for ``curvature_bound`` of :func:`sgmcmc.zigzag` and :func:`sgmcmc.mhss`.

    Raises:
        ValueError, TypeError: An argument is not of that form.

    Example:
        >>> import numpy as np, sgmcmc
        >>> bound = sgmcmc.predictor_bound({"beta": "X", "bias": None})
        >>> bound({}, {"X": np.array([[2.0, 4.0]])})["beta"]
        array([[1., 2.]])

    Source:
        Bierkens, Fearnhead & Roberts, Annals of Statistics 47, 2019, section 6.5, for logistic
        regression.
    """
    if not isinstance(columns, Mapping) or not columns:
        raise TypeError(
            "`columns` must be a dict that names a column for each parameter; it is "
            f"{checks.describe(columns)}."
        )
    root = math.sqrt(checks.positive_number("most", most))

    def curvature_bound(
        params: Mapping[str, Any], dataset: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        rows = len(np.asarray(next(iter(dataset.values()))))
        return {
            name: np.full(rows, root)
            if column is None
            else root * np.asarray(dataset[column])
            for name, column in columns.items()
        }

    return curvature_bound


@documented
def zigzag(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    curvature_bound: Callable[..., Any],
    prior_bound: Any = None,
    preconditioner: Any = None,
    stepsize: float | None = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Unpack[SubsampledKeywords],
) -> Samples:
    """Sample a posterior exactly, by the zig-zag process with control variates at the mode.

    ζ moves along v ∈ {−1, 1}^d, in coordinates whitened at the mode, and v_i changes its sign at
    the rate Σ_j (−v_i [∂_i log p(x_j|ζ) − ∂_i log p(x_j|0)])⁺ + …, with corresponding terms for the
    prior and the gradient at the mode. The posterior is the stationary distribution, without an
    error from stepsize or minibatch. Switches are proposed by ``curvature_bound``, and each
    proposal reads a single row. So the cost of a draw, once the mode is known, does not grow with
    N; it is in proportion to about d². If a rate exceeds its bound, the chain ends with an error.

    The mode is found on the whole dataset, and r_j and the gradient there are kept for each row,
    two tables of N × d numbers. Chains start around the mode, over-dispersed, and run until every
    coordinate has the effective sample size ``ess`` and an R-hat of at most 1.01.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=500)
        >>> y = (rng.random(500) < 1 / (1 + np.exp(-2.0 * x))).astype(float)
        >>> def log_lik(params, dataset):
        ...     logits = params["beta"] * dataset["x"]
        ...     return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)
        >>> samples = sgmcmc.zigzag(
        ...     log_lik, {"x": x, "y": y}, {"beta": 0.0},
        ...     curvature_bound=sgmcmc.predictor_bound({"beta": "x"}), n_chains=2, n_iters=200,
        ...     jit_compile=False, verbose=False, seed=1)
        >>> bool(abs(samples["beta"].mean() - 2.0) < 0.3)
        True

    Source:
        Bierkens, Fearnhead & Roberts, Annals of Statistics 47, 2019, algorithm 3; Sen, Sachs, Lu &
        Dunson, Biometrika 107, 2020, for rows that are drawn in proportion to their bounds.
    """
    request = Request(
        "zigzag",
        "zigzag",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=ZigZag(curvature_bound),
        gradient="full",
        minibatch_size=None,
        stepsize=stepsize,
        seed=seed,
        keywords={**keywords, "preconditioner": preconditioner, "dtype": dtype},
        reporter=CurvatureReporter(),
    )
    goal = Goal(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds, verbose)
    return _run_by_rows(request, goal, prior_bound)


@documented
def mhss(
    log_lik: LogLik,
    dataset: Mapping[str, Any],
    params: Any,
    log_prior: LogPrior | None = None,
    *,
    curvature_bound: Callable[..., Any],
    prior_bound: Any = None,
    gamma: float = 0.5,
    preconditioner: Any = None,
    stepsize: float | None = None,
    ess: float = 400,
    n_chains: int = 4,
    n_iters: int | None = None,
    burn_in: int | None = None,
    max_seconds: float | None = None,
    seed: int | None = None,
    verbose: bool = True,
    dtype: tf.DType = tf.float64,
    **keywords: Unpack[SubsampledKeywords],
) -> Samples:
    """Sample a posterior exactly, by Metropolis–Hastings with scalable subsampling.

    ζ' = ζ + εη, in coordinates whitened at the mode, is accepted by a ratio that is computed from
    control variates at the mode and a Poisson number of rows (:class:`sgmcmc.dynamics.MHSS` has the
    formula). The posterior is the stationary distribution. A move reads about
    (1 + γ) Σ_j ‖r_j‖² ‖ζ' − ζ‖ max(‖ζ‖, ‖ζ'‖) rows, with r_j of ``curvature_bound``: a number that
    does not grow with N.

    The mode is found on the whole dataset, and r_j and the gradient there are kept for each row,
    two tables of N × d numbers. Chains start around the mode, over-dispersed, and run until every
    coordinate has the effective sample size ``ess`` and an R-hat of at most 1.01.

    {arguments}

    Example:
        >>> import numpy as np, sgmcmc, tensorflow as tf
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=500)
        >>> y = (rng.random(500) < 1 / (1 + np.exp(-2.0 * x))).astype(float)
        >>> def log_lik(params, dataset):
        ...     logits = params["beta"] * dataset["x"]
        ...     return -tf.nn.sigmoid_cross_entropy_with_logits(dataset["y"], logits)
        >>> samples = sgmcmc.mhss(
        ...     log_lik, {"x": x, "y": y}, {"beta": 0.0},
        ...     curvature_bound=sgmcmc.predictor_bound({"beta": "x"}), n_chains=2, n_iters=200,
        ...     jit_compile=False, verbose=False, seed=1)
        >>> bool(abs(samples["beta"].mean() - 2.0) < 0.3)
        True

    Source:
        Prado, Nemeth & Sherlock, *Metropolis–Hastings with Scalable Subsampling*, 2024.
    """
    request = Request(
        "mhss",
        "mhss",
        log_lik,
        dataset,
        params,
        log_prior,
        dynamics=MHSS(curvature_bound, gamma),
        gradient="full",
        minibatch_size=None,
        stepsize=stepsize,
        seed=seed,
        keywords={**keywords, "preconditioner": preconditioner, "dtype": dtype},
        reporter=CurvatureReporter(),
    )
    goal = Goal(_EXACT, ess, n_chains, n_iters, burn_in, max_seconds, verbose)
    return _run_by_rows(request, goal, prior_bound)


def _run_by_rows(request: Request, goal: Goal, prior_bound: Any) -> Samples:
    """Check the arguments that these samplers have, and return the draws of a call."""
    for name in _NOT_BY_ROWS:
        if name in request.keywords:
            raise TypeError(
                f"{request.function}() has no argument `{name}`: rows are drawn by their bounds, "
                "and parameters are unconstrained."
            )
    checks.function(
        "curvature_bound", request.dynamics.curvature_bound, "of `params` and `dataset`"
    )
    preconditioner = request.keywords["preconditioner"]
    if preconditioner is not None:
        checks.choice("preconditioner", preconditioner, ["dense", "diagonal"])
    if request.stepsize is not None:
        stepsize = checks.positive_number("stepsize", request.stepsize)
        request = replace(request, stepsize=stepsize)

    def run(request: Request, goal: Goal) -> Samples:
        return run_subsampled(request, goal, prior_bound)

    return with_updates(request, goal, run)
