"""The kernel Stein discrepancy: how far draws are from their target, judged by gradients."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sgmcmc.after.arguments import need_draws
from sgmcmc.checks import positive_number
from sgmcmc.results.chains import by_chain, has_chains, matrix
from sgmcmc.results.samples import Samples

_BLOCK = 2048


def ksd(
    samples: Samples,
    *,
    gradients: Mapping[str, np.ndarray] | None = None,
    c: float = 1.0,
    beta: float = 0.5,
) -> float | np.ndarray:
    """Return the kernel Stein discrepancy of draws, with the inverse multiquadric kernel.

    KSD² = S⁻² Σ_st k₀(θ_s, θ_t) over the S draws, with k(x, y) = (c² + |x − y|²)^(−β) and
    k₀ = g(x)·g(y) k + g(x)·∇_y k + g(y)·∇_x k + tr ∇_x ∇_y k, g = ∇ log p. As draws are added
    it tends to zero only where they are from p, so it shows bias, which effective sample sizes do
    not. Its size depends on the number of draws, the dimension and the units of the parameters:
    compare chains of one model and one length.

    Args:
        samples: the draws, of parameters without bijectors.
        gradients: gradients of the log posterior at the draws, by parameter, shaped like the draws:
            of the full data, or stochastic ones; ``None`` takes ``samples.gradients``. The noise
            of stochastic gradients, at draws that it is independent of, adds on average
            S⁻² Σ_s tr Var(g(θ_s)) c^(−2β) to KSD².
        c: the length scale of the kernel, in the units of the parameters.
        beta: its exponent β, between 0 and 1.

    Returns:
        The discrepancy, a number, or an array of one for each chain.

    Raises:
        ValueError: there are no gradients, or they are not those of the draws.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, ksd
        >>> theta = np.random.default_rng(1).normal(size=(500, 2))
        >>> right = ksd(Samples({"theta": theta}), gradients={"theta": -theta})
        >>> too_wide = ksd(Samples({"theta": 2 * theta}), gradients={"theta": -2 * theta})
        >>> right < 0.5 * too_wide
        True

    Source:
        Gorham & Mackey, ICML 2017, eq. 3 and section 3.
    """
    names = need_draws(samples)
    if gradients is None:
        gradients = samples.gradients
    if gradients is None:
        raise ValueError(
            "`samples` has no gradients: run the sampler with `store_gradients=True`, or give "
            "`gradients`."
        )
    if positive_number("beta", beta) >= 1:
        raise ValueError(f"`beta` must be between 0 and 1; it is {beta}.")
    own = samples.settings.get("own_coordinates") or {}
    if samples.settings.get("bijectors") or own:
        where = next(iter(own.values()), "that of `bijectors`")
        raise ValueError(
            f"`samples`: the chain moved in another space, {where}, where its draws are not kept."
        )
    c = positive_number("c", c)
    for name in names:
        shape = np.shape(gradients[name]) if name in gradients else None
        if shape != samples[name].shape:
            raise ValueError(
                f"`gradients[{name!r}]` must have the shape of the draws, {samples[name].shape}; "
                f"it has {shape}."
            )
    draws = by_chain(samples.settings, samples)
    slopes = by_chain(samples.settings, {name: np.asarray(gradients[name]) for name in names})
    found = [
        _ksd(
            matrix({name: draws[name][chain] for name in names}),
            matrix({name: slopes[name][chain] for name in names}),
            c,
            beta,
        )
        for chain in range(len(draws[names[0]]))
    ]
    return np.array(found) if has_chains(samples.settings) else found[0]


def _ksd(theta: np.ndarray, g: np.ndarray, c: float, beta: float) -> float:
    """Return the discrepancy of one chain, a block of pairs at a time."""
    theta = theta - theta.mean(axis=0)  # distances are differences of squares
    total = 0.0
    starts = range(0, len(theta), _BLOCK)
    for i in starts:
        for j in starts[i // _BLOCK :]:
            a, b = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
            part = _pairs(theta[a], g[a], theta[b], g[b], c, beta).sum()
            total += part if i == j else 2 * part
    return float(np.sqrt(max(total, 0.0)) / len(theta))


def _pairs(
    x: np.ndarray, gx: np.ndarray, y: np.ndarray, gy: np.ndarray, c: float, beta: float
) -> np.ndarray:
    """Return k₀ of all pairs of rows."""
    squares = (x**2).sum(1)[:, np.newaxis] + (y**2).sum(1) - 2 * x @ y.T
    squares = np.maximum(squares, 0.0)
    base = c**2 + squares
    # (g(x) − g(y))·(x − y)
    slope = (gx * x).sum(1)[:, np.newaxis] + (gy * y).sum(1) - gx @ y.T - x @ gy.T
    power = base ** (-beta)
    return power * (
        gx @ gy.T
        + 2 * beta * (slope + x.shape[1]) / base
        - 4 * beta * (beta + 1) * squares / base**2
    )
