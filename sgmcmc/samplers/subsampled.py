"""Exact samplers that use a few rows in each move: zig-zag, and Metropolis–Hastings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.dynamics import MHSS, ZigZag
from sgmcmc.dynamics.subsampled import Subsampled
from sgmcmc.inputs.options import OF_GEODESICS
from sgmcmc.model.target import LogLik, LogPrior
from sgmcmc.plan.exact.subsampled import run_subsampled
from sgmcmc.plan.lengths import Requirements
from sgmcmc.plan.reports import CurvatureReporter
from sgmcmc.results.samples import Samples
from sgmcmc.run.request import Request
from sgmcmc.samplers.hmc import EXACT_TEXTS, NOT_HERE
from sgmcmc.samplers.named import with_arguments
from sgmcmc.samplers.sample import PARTS, with_updates

_NOT_HERE = (*NOT_HERE, *OF_GEODESICS, "bijectors", "groups", "store_gradients")
"""Keywords that mean nothing here: rows are drawn by their bounds, of unconstrained parameters."""

_TEXTS = {
    "curvature_bound": """
        Function of the parameters at the mode and of some rows of the dataset that bounds the
        second derivatives of each row's term: it returns a dict with an array r_j,
        ``(n, *shape)``, for each parameter, such that they are c r_j r_jᵀ with |c| ≤ 1 at all
        parameters. It is called once for each row. For models of a linear predictor see
        :func:`sgmcmc.predictor_bound`.""",
    "prior_bound": """
        Dict with a number or an array for each parameter: a diagonal matrix that bounds the second
        derivatives of the log prior from both sides. ``None`` uses those at the mode, which are
        right everywhere for normal priors and a flat one.""",
    "preconditioner": """
        Coordinates: ``"dense"``, whitened by the observed information at the mode, or
        ``"diagonal"``, scaled by the Laplace SDs; ``None`` is ``"dense"``.""",
    "burn_in": """
        Number of iterations run and dropped first; ``None`` to choose.""",
}


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


@with_arguments(
    _NOT_HERE,
    {
        **PARTS,
        **EXACT_TEXTS,
        **_TEXTS,
        "stepsize": """
        Time between draws, in units in which every coordinate moves by a posterior SD; ``None`` is
        1.""",
    },
)
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
    **keywords: Any,
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
    return _run("zigzag", ZigZag(curvature_bound), locals())


@with_arguments(
    _NOT_HERE,
    {
        **PARTS,
        **EXACT_TEXTS,
        **_TEXTS,
        "stepsize": """
        Stepsize ε of the random walk, in posterior SDs; ``None`` is 1.5/√d.""",
        "gamma": """
        γ, positive: a larger one uses more rows for a less noisy acceptance.""",
    },
)
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
    **keywords: Any,
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
    return _run("mhss", MHSS(curvature_bound, gamma), locals())


def _run(function: str, dynamics: Subsampled, given: Mapping[str, Any]) -> Samples:
    """Return the draws of a call of a function, by dynamics without their bounds."""
    keywords = given["keywords"]
    for name in _NOT_HERE:
        if name in keywords:
            raise TypeError(
                f"{function}() has no argument `{name}`: rows are drawn by their bounds, and "
                "parameters are unconstrained."
            )
    checks.function(
        "curvature_bound", given["curvature_bound"], "of `params` and `dataset`"
    )
    if given["preconditioner"] is not None:
        checks.choice("preconditioner", given["preconditioner"], ["dense", "diagonal"])
    stepsize = given["stepsize"]
    if stepsize is not None:
        stepsize = checks.positive_number("stepsize", stepsize)
    request = Request(
        function,
        function,
        given["log_lik"],
        given["dataset"],
        given["params"],
        given["log_prior"],
        dynamics=dynamics,
        gradient="full",
        minibatch_size=None,
        stepsize=stepsize,
        seed=given["seed"],
        keywords={
            **keywords,
            "preconditioner": given["preconditioner"],
            "dtype": given["dtype"],
        },
        reporter=CurvatureReporter(),
    )
    asked = ("ess", "n_chains", "n_iters", "burn_in", "max_seconds")
    required = Requirements(_EXACT, *(given[name] for name in asked))

    def run(request: Request, required: Requirements, verbose: bool) -> Samples:
        return run_subsampled(request, required, given["prior_bound"], verbose)

    return with_updates(request, required, given["verbose"], run)


_EXACT = 0.05
"""Tolerance, unused: exact samplers have only Monte Carlo error."""
