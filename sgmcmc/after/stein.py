"""The kernel Stein discrepancy, in coordinates in which the posterior is near N(0, I)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import known_keys, positive_number, whole_number
from sgmcmc.model.geometry import Preconditioner, root_of
from sgmcmc.model.geometry.bijectors import fitting
from sgmcmc.results.arrays import by_chain, has_chains, matrix, without_chains
from sgmcmc.results.draws import need_draws
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _SteinSettings:
    block: int = 2048  # draws whose pairs are in memory
    # For a coordinate, that a curvature matrix needs; else variances
    draws_each: int = 10
    # In units of the draws' own SDs, below which it counts as noise
    curvature: float = 1e-4


_SETTINGS = _SteinSettings()


class Discrepancy(float):
    """A discrepancy, a number, with its reference values.

    Attributes:
        expected: Root mean square of the discrepancy of equally many independent draws from the
            posterior, with gradients as noisy as these.
        ratio: Discrepancy over ``expected``: about 1 for independent draws from the posterior.
        draws: Number of draws used.
    """

    expected: float
    draws: int

    def __new__(cls, value: float, expected: float, draws: int) -> Discrepancy:
        """Make one."""
        discrepancy = super().__new__(cls, value)
        discrepancy.expected, discrepancy.draws = expected, draws
        return discrepancy

    @property
    def ratio(self) -> float:
        """The discrepancy divided by its expected value."""
        return float(self) / self.expected


class Discrepancies(np.ndarray):
    """An array of discrepancies, one for each chain.

    Attributes:
        expected: Root mean squares for equally many independent draws from the posterior, an array.
        ratio: Discrepancies over ``expected``.
        draws: Number of draws of each chain used.
    """

    expected: np.ndarray
    draws: int

    @classmethod
    def of(cls, discrepancies: list[Discrepancy]) -> Discrepancies:
        """Make one of the discrepancies of several chains."""
        array = np.array([float(discrepancy) for discrepancy in discrepancies]).view(
            cls
        )
        array.expected = np.array(
            [discrepancy.expected for discrepancy in discrepancies]
        )
        array.draws = discrepancies[0].draws
        return array

    @property
    def ratio(self) -> np.ndarray:
        """The discrepancies divided by their expected values."""
        return np.asarray(self) / self.expected


def ksd(
    samples: Samples,
    *,
    gradients: Mapping[str, np.ndarray] | None = None,
    c: float | None = None,
    beta: float = 0.5,
    covariance: np.ndarray | None = None,
    bijectors: Mapping[str, Any] | None = None,
    max_draws: int = 2000,
) -> Discrepancy | Discrepancies:
    """Return the kernel Stein discrepancy of draws, with the inverse multiquadric kernel.

    KSD² = S⁻² Σ_st k₀(ζ_s, ζ_t) over S draws, with k(x, y) = (c² + |x − y|²)^(−β) and
    k₀ = g(x)·g(y) k + g(x)·∇_y k + g(y)·∇_x k + tr ∇_x ∇_y k, g = ∇ log p. As draws are added
    it tends to zero only if they are from p, so it shows bias, which effective sample sizes do
    not. The coordinates ζ are whitened: the posterior's SDs there are near 1 in all directions, so
    that all count alike.

    S independent draws from p have E KSD² = S⁻¹ E k₀(ζ, ζ) = S⁻¹ c^(−2β) (E|g|² + 2βd/c²), which
    is the value to compare with: ``ksd(samples).ratio`` is the ratio of the roots. It is about 1
    for independent draws from the posterior, √τ for draws from the posterior with
    autocorrelation time τ, and grows with the number of draws if there is bias.

    Args:
        samples: Draws.
        gradients: Gradients of the log posterior at the draws, by parameter, in the unconstrained
            space: of the full data, or stochastic ones; ``None`` uses ``samples.gradients``. The
            noise of stochastic gradients, at draws that it is independent of, is included in the
            reference value; the larger it is, the more it hides bias.
        c: Length scale of the kernel, in whitened coordinates; ``None`` for √d.
        beta: Exponent β of the kernel, between 0 and 1.
        covariance: M, the covariance of the posterior in the unconstrained space, (d, d), or its
            variances, (d,), used to whiten the draws: pass it to compare several chains in the same
            coordinates. ``None`` uses that of the chain's dense preconditioner, or else the inverse
            of −Cov(θ)⁻¹Cov(θ, g), which is right for a normal posterior even if the chain is too
            wide.
        bijectors: Bijectors that the chain was run with, for draws read from a file.
        max_draws: Largest number of draws to use of each chain, evenly spaced along it.

    Returns:
        The discrepancy, a ``float``, or an array of one for each chain, with attributes
        ``expected``, ``ratio`` and ``draws``.

    Raises:
        ValueError: There are no gradients, they are not those of the draws, or the space that the
            chain moved in is not known.

    Example:
        >>> import numpy as np
        >>> from sgmcmc import Samples, ksd
        >>> theta = np.random.default_rng(1).normal(size=(500, 2)) * [1.0, 1000.0]
        >>> right = ksd(Samples({"theta": theta}), gradients={"theta": -theta / [1.0, 1e6]})
        >>> wide = ksd(Samples({"theta": 2 * theta}), gradients={"theta": -2 * theta / [1.0, 1e6]})
        >>> right < 0.5 * wide, round(right.ratio), round(wide.ratio)
        (True, 1, 8)

    Source:
        Gorham & Mackey, ICML 2017, eq. 3 and section 3; Stein's identity for the value expected.
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
    limit = whole_number("max_draws", max_draws, 2)
    draws, slopes = _unconstrained_rows(samples, names, gradients, bijectors, limit)
    chains, k, d = draws.shape
    scale = np.sqrt(d) if c is None else positive_number("c", c)
    kernel = _InverseMultiquadric(scale, beta)
    origin = samples.origin
    preconditioner = None if origin is None else origin.target.space.preconditioner
    white = whitened(
        draws.reshape(-1, d),
        slopes.reshape(-1, d),
        _checked(covariance, d),
        preconditioner,
    )
    expected = float(np.sqrt(kernel.expected(white) / k))
    by_draw = [array.reshape(chains, k, d) for array in white]
    discrepancies = [
        Discrepancy(kernel.discrepancy(Whitened(*chain)), expected, k)
        for chain in zip(*by_draw, strict=True)
    ]
    if has_chains(samples.settings):
        return Discrepancies.of(discrepancies)
    return discrepancies[0]


def _unconstrained_rows(
    samples: Samples,
    names: list[str],
    gradients: Mapping[str, np.ndarray],
    bijectors: Mapping[str, Any] | None,
    limit: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws and gradients at them in the unconstrained space, (chain, draw, d)."""
    draws = by_chain(samples.settings, samples)
    chains, length = draws[names[0]].shape[:2]
    indices = np.unique(
        np.linspace(0, length - 1, min(length, limit)).round().astype(int)
    )
    selected = {name: np.asarray(draws[name][:, indices]) for name in names}
    u = unconstrained(samples, without_chains(selected), bijectors)
    slopes = {}
    for name in names:
        expected = (
            *samples[name].shape[: 1 + has_chains(samples.settings)],
            *u[name].shape[1:],
        )
        shape = np.shape(gradients[name]) if name in gradients else None
        if shape != expected:
            raise ValueError(
                f"`gradients[{name!r}]` must have the shape of the draws in the unconstrained "
                f"space, {expected}; it has {shape}."
            )
        slope = by_chain(samples.settings, {name: gradients[name]})[name]
        slopes[name] = np.asarray(slope)[:, indices].reshape(-1, *u[name].shape[1:])
    flat = (chains, len(indices), -1)
    return matrix(u).reshape(flat), matrix(slopes).reshape(flat)


def _checked(covariance: np.ndarray | None, d: int) -> np.ndarray | None:
    """Return the covariance, once it is known to be one of d coordinates."""
    if covariance is None:
        return None
    array = np.asarray(covariance, np.float64)
    if array.shape not in ((d,), (d, d)):
        raise ValueError(
            f"`covariance` must have shape ({d}, {d}) or ({d},); it has {array.shape}."
        )
    values = array if array.ndim == 1 else np.linalg.eigvalsh(array)
    if not np.isfinite(array).all() or (values <= 0).any():
        raise ValueError("`covariance` must be positive definite.")
    return array


class Whitened(NamedTuple):
    """Draws and gradients in other coordinates.

    Attributes:
        draws: Draws, (k, d).
        gradients: Gradients of the log posterior at the draws, (k, d).
    """

    draws: np.ndarray
    gradients: np.ndarray


@dataclass(frozen=True)
class _InverseMultiquadric:
    """The inverse multiquadric kernel k(x, y) = (c² + |x − y|²)^(−β), and its Stein kernel k₀."""

    c: float
    beta: float

    def expected(self, white: Whitened) -> float:
        """Return E k₀(ζ, ζ) over the posterior."""
        c, beta, d = self.c, self.beta, white.draws.shape[1]
        return c ** (-2 * beta) * (square_of_gradients(white) + 2 * beta * d / c**2)

    def discrepancy(self, chain: Whitened) -> float:
        """Return the discrepancy of one chain, a block of pairs at a time."""
        draws, gradients = chain
        draws = draws - draws.mean(axis=0)  # distances are differences of squares
        size = _SETTINGS.block
        blocks = [
            Whitened(draws[i : i + size], gradients[i : i + size])
            for i in range(0, len(draws), size)
        ]
        total = 0.0
        for i, one in enumerate(blocks):
            for j, other in enumerate(blocks[i:], i):
                block_sum = self._of_pairs(one, other).sum()
                total += block_sum if i == j else 2 * block_sum
        return float(np.sqrt(max(total, 0.0)) / len(draws))

    def _of_pairs(self, one: Whitened, other: Whitened) -> np.ndarray:
        """Return k₀ of all pairs of rows."""
        (x, gx), (y, gy), beta = one, other, self.beta
        squares = (x**2).sum(1)[:, np.newaxis] + (y**2).sum(1) - 2 * x @ y.T
        squares = np.maximum(squares, 0.0)
        base = self.c**2 + squares
        # (g(x) − g(y))·(x − y)
        slope = (gx * x).sum(1)[:, np.newaxis] + (gy * y).sum(1) - gx @ y.T - x @ gy.T
        power = base ** (-beta)
        return power * (
            gx @ gy.T
            + 2 * beta * (slope + x.shape[1]) / base
            - 4 * beta * (beta + 1) * squares / base**2
        )


def unconstrained(
    samples: Samples,
    draws: Mapping[str, np.ndarray],
    bijectors: Mapping[str, Any] | None,
) -> dict[str, np.ndarray]:
    """Return draws in the space that the chain moved in, apart from its preconditioner.

    Args:
        samples: Draws to whiten.
        draws: Draws by parameter, with one leading axis.
        bijectors: Bijectors by parameter; ``None`` uses those of the sampler that made the draws.

    Raises:
        ValueError: Draws in that space are not known.
    """
    for coordinates in (samples.settings.get("own_coordinates") or {}).values():
        raise ValueError(
            f"`samples`: the chain moved in another space, {coordinates}, where its draws are not "
            "kept."
        )
    run_bijectors = samples.settings.get("bijectors") or {}
    if bijectors is None and run_bijectors:
        if samples.origin is None:
            raise ValueError(
                "`bijectors` must be given for draws that are not in the process of the sampler "
                f"that made them; it had those of {', '.join(map(repr, run_bijectors))}."
            )
        space = samples.origin.target.space
        dtype = samples.origin.target.dtype
        return {
            name: space.geometries[name].start(a, dtype) for name, a in draws.items()
        }
    by_name = bijectors or {}
    known_keys(
        "bijectors", by_name, run_bijectors, "the chain was run with bijectors for"
    )
    for name in run_bijectors:
        if name in draws and name not in by_name:
            raise ValueError(
                f"`bijectors` lacks that of {name!r}, which the chain was run with."
            )
    positions = dict(draws)
    for name in by_name:
        if name in positions:
            value = tf.constant(positions[name])
            bijector = fitting(by_name[name], positions[name][0], value.dtype)
            positions[name] = bijector.inverse(value).numpy()
    return positions


def whitened(
    draws: np.ndarray,
    gradients: np.ndarray,
    covariance: np.ndarray | None = None,
    preconditioner: Preconditioner | None = None,
) -> Whitened:
    """Return draws and gradients in whitened coordinates.

    Without a covariance it is the inverse of J = −Cov(θ)⁻¹Cov(θ, g), the slope of the gradients
    over the draws. The draws' own covariance would be wrong if the chain is, and so would E[ggᵀ],
    which also includes the noise of the gradients. J is right for a normal posterior whatever the
    chain's covariance, and independent noise does not change its mean.

    Args:
        draws: Unconstrained draws, (k, d), in float64.
        gradients: Gradients of the log posterior at the draws, (k, d).
        covariance: M, (d, d), or variances, (d,).
        preconditioner: Preconditioner of the chain; a dense one is used instead of J.
    """
    draws = draws - draws.mean(0)
    d = draws.shape[1]
    if covariance is None and preconditioner is not None and preconditioner.dense:
        return _in_terms_of(draws, gradients, preconditioner.root)
    if covariance is not None and covariance.ndim == 1:
        return _scaled(draws, gradients, np.sqrt(covariance))
    if covariance is not None:
        return _in_terms_of(draws, gradients, root_of(covariance))
    sds = draws.std(0)
    draws, gradients = _scaled(draws, gradients, np.where(sds > 0, sds, 1.0))
    if len(draws) < _SETTINGS.draws_each * d:
        slopes = -(draws * gradients).mean(0)
        return _scaled(draws, gradients, 1.0 / np.sqrt(_curvatures(slopes)))
    root = _root(draws)
    draws, gradients = _in_terms_of(draws, gradients, root)
    J = -draws.T @ gradients / len(draws)
    values, vectors = np.linalg.eigh((J + J.T) / 2)
    return _in_terms_of(draws, gradients, vectors / np.sqrt(_curvatures(values)))


def square_of_gradients(white: Whitened) -> float:
    """Return E|g|² over the posterior, with the noise of the gradients.

    For draws from the posterior it would be the mean of |g|². Gradients at wrong draws are larger
    or smaller. So the part of g that is linear in the draws counts as tr J, which is the same by
    Stein's identity, and the mean square of the residuals is added.
    """
    draws, gradients = white
    k, d = draws.shape
    gradients = gradients - gradients.mean(0)
    if k < _SETTINGS.draws_each * d:
        variances = (draws**2).mean(0)
        slopes = (draws * gradients).mean(0) / np.where(variances > 0, variances, 1.0)
        residuals = gradients - slopes * draws
        return float(max(-slopes.sum(), 0.0) + (residuals**2).sum() / k)
    slope = np.linalg.lstsq(draws, gradients, rcond=None)[0]
    residuals = gradients - draws @ slope
    return float(max(-np.trace(slope), 0.0) + (residuals**2).sum() / (k - d))


def _curvatures(values: np.ndarray) -> np.ndarray:
    return np.where(values > _SETTINGS.curvature, values, 1.0)


def _root(draws: np.ndarray) -> np.ndarray:
    """Return C with CCᵀ the covariance of draws; directions without draws keep their scale."""
    values, vectors = np.linalg.eigh(draws.T @ draws / len(draws))
    spanned = values > 1e-10 * values[-1]
    return vectors * np.sqrt(np.where(spanned, values, 1.0))


def _scaled(draws: np.ndarray, gradients: np.ndarray, scale: np.ndarray) -> Whitened:
    return Whitened(draws / scale, gradients * scale)


def _in_terms_of(
    draws: np.ndarray, gradients: np.ndarray, root: np.ndarray
) -> Whitened:
    """Return both in coordinates ζ, θ = Cζ."""
    return Whitened(np.linalg.solve(root, draws.T).T, gradients @ root)
