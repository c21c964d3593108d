"""The draws of shards, combined into draws of the product of their subposteriors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.results.report import Fact


@dataclass(frozen=True)
class _Settings:
    annealed: int = 500  # sweeps in which the bandwidth decreases from 1 to its last
    proposals: int = 64  # draws that are proposed at once for one component
    accepted: float = 0.1  # share of pairs that the Weierstrass sampler accepts
    pairs: int = 2**15  # of draws that are compared together
    bisections: int = 60  # for the bandwidth of the Weierstrass sampler


_SETTINGS = _Settings()


def aligned(draws: list[np.ndarray]) -> np.ndarray:
    """Return as many draws of every shard, evenly spaced: (shards, chains, draws, p)."""
    if len({len(one) for one in draws}) > 1:
        raise ValueError(
            "`sampler` must return the same number of chains for each shard."
        )
    count = min(one.shape[1] for one in draws)
    indices = [
        np.linspace(0, one.shape[1] - 1, count).round().astype(int) for one in draws
    ]
    return np.stack([one[:, index] for one, index in zip(draws, indices, strict=True)])


def combined_draws(
    method: str, x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the combined draws, (chains, draws, p), and facts about the combination.

    All methods but the scalar one are equivariant to affine maps, so they are computed in
    coordinates in which the mean covariance of the shards is the identity.
    """
    shards, chains, count, size = x.shape
    center = x.mean((0, 1, 2))
    if method == "consensus_scalar":
        variances = x.reshape(shards, -1, size).var(1)
        if not (variances > 0).all():
            raise ValueError("`sampler` returned draws of a shard that do not vary.")
        weights = 1.0 / variances
        shares = weights / weights.sum(0)
        return np.einsum("sp,scdp->cdp", shares, x - center) + center, {}
    if chains * count <= size + 1:
        raise ValueError(
            f"`method`: {method!r} needs more draws of a shard, of which there are "
            f"{chains * count}, than coordinates, {size}, for its covariance. Use more draws, or "
            '"consensus_scalar".'
        )
    try:
        root = np.linalg.cholesky(np.mean([_covariance(one) for one in x], axis=0))
    except np.linalg.LinAlgError:
        raise ValueError(
            "`sampler` returned draws of shards with a singular covariance."
        ) from None
    deviations = (x - center).reshape(-1, size)
    z = np.linalg.solve(root, deviations.T).T.reshape(x.shape)
    combined, facts = METHODS[method](z, rng)
    wider = facts.pop("covariances", None)
    if wider is not None:
        exact, smoothed = (np.einsum("pq,qr,pr->p", root, one, root) for one in wider)
        facts[Fact.TOO_WIDE] = float(np.sqrt(smoothed / exact).max()) - 1
    return combined @ root.T + center, facts


def _covariance(draws: np.ndarray) -> np.ndarray:
    """Return the covariance of draws, (..., p)."""
    size = draws.shape[-1]
    return np.cov(draws.reshape(-1, size), rowvar=False).reshape(size, size)


def _precision(draws: np.ndarray) -> np.ndarray:
    return np.linalg.inv(_covariance(draws))


def _consensus(
    x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the mean of the draws with the precisions as weights."""
    total: Any = 0.0
    weighted: Any = 0.0
    for one in x:
        precision = _precision(one)
        total, weighted = total + precision, weighted + one @ precision
    return weighted @ np.linalg.inv(total), {}


def _gaussian(
    x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return draws of the product of the normals with the moments of the draws."""
    precisions = [_precision(one) for one in x]
    covariance = np.linalg.inv(np.sum(precisions, axis=0))
    means = [one.mean((0, 1)) for one in x]
    weighted = [p @ mean for p, mean in zip(precisions, means, strict=True)]
    noise = rng.normal(size=x.shape[1:]) @ np.linalg.cholesky(covariance).T
    return covariance @ np.sum(weighted, axis=0) + noise, {}


def _kernel_density(
    x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return draws of the product of the kernel densities.

    A component of the product is a draw θ_s of each shard, with weight
    w = exp(−Σ_s |θ_s − θ̄|² / 2h²), and a normal N(θ̄, h²/S). One θ_s after the other is chosen among
    itself and uniform proposals, with probability in proportion to w, which leaves the mixture
    unchanged: with one proposal this is Barker's form of the Metropolis step.
    """
    shards, chains, count, size = x.shape
    pools = x.reshape(shards, -1, size)
    draws = pools.shape[1]
    last, chain = _last_bandwidth(draws, size), np.arange(chains)
    start = rng.integers(draws, size=(shards, chains))
    current = pools[np.arange(shards)[:, np.newaxis], start]
    total = current.sum(0)
    out = np.empty(x.shape[1:])
    changed = 0.0
    annealed, proposals = _SETTINGS.annealed, _SETTINGS.proposals
    for sweep in range(annealed + count):
        h = last ** min(1.0, sweep / annealed)
        for s in range(shards):
            total_of_others = total - current[s]
            tried = pools[s][rng.integers(draws, size=(chains, 1 + proposals))]
            tried[:, 0] = current[s]
            sums = total_of_others[:, np.newaxis] + tried
            energy = (tried**2).sum(-1) - (sums**2).sum(-1) / shards
            log_weights = rng.gumbel(size=energy.shape) - energy / (2 * h * h)
            pick = np.argmax(log_weights, axis=1)
            current[s] = tried[chain, pick]
            total = sums[chain, pick]
            changed += (pick > 0).mean() * (sweep >= annealed)
        if sweep >= annealed:
            noise = rng.normal(size=(chains, size))
            out[:, sweep - annealed] = total / shards + h / np.sqrt(shards) * noise
    facts = {
        "bandwidth, SDs of a shard": last,
        "components changed in a sweep, share": changed / (shards * count),
        "covariances": [_product_covariance(x, 0.0), _product_covariance(x, last)],
    }
    return out, facts


def _product_covariance(x: np.ndarray, bandwidth: float) -> np.ndarray:
    """Return the covariance of the product of the shards, normal and smoothed by a kernel."""
    smoothing = bandwidth * bandwidth * np.eye(x.shape[-1])
    precisions = [np.linalg.inv(_covariance(one) + smoothing) for one in x]
    return np.linalg.inv(np.sum(precisions, axis=0))


def _last_bandwidth(draws: int, size: int) -> float:
    """Return the bandwidth of kernel densities in SDs, for a number of draws."""
    return float(draws ** (-1.0 / (4 + size)))


def _weierstrass(
    x: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the result of merging neighboring sets, pair by pair, until one is left."""
    sets, widths = list(x), list[float]()
    while len(sets) > 1:
        merged = []
        for a, b in zip(sets[::2], sets[1::2], strict=False):
            both, h = _merged(a, b, rng)
            merged.append(both)
            widths.append(h)
        sets = merged + sets[2 * len(merged) :]
    return sets[0], {"bandwidths, SDs of a difference": widths}


def _merged(
    a: np.ndarray, b: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return weighted means of accepted pairs, chain by chain, and the bandwidth."""
    chains, count, _ = a.shape
    precision_a, precision_b = _precision(a), _precision(b)
    root = np.linalg.cholesky(np.linalg.inv(_covariance(a) + _covariance(b)))
    scaled_a, scaled_b = a @ root, b @ root
    covariance = np.linalg.inv(precision_a + precision_b)
    weighted_a = a @ precision_a @ covariance
    weighted_b = b @ precision_b @ covariance

    def pairs(c: int, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        i, j = rng.integers(count, size=(2, number))
        differences = scaled_a[c, i] - scaled_b[c, j]
        return i, j, (differences**2).sum(-1)

    number = _SETTINGS.pairs
    distances = [pairs(c, number // chains)[2] for c in range(chains)]
    # The mean of exp(−squares / 2h²) is the share of accepted pairs.
    squares = np.concatenate(distances)
    log_largest = np.log(squares.max() + 1e-300)
    low, high = log_largest - 100.0, log_largest + 10.0
    for _ in range(_SETTINGS.bisections):
        middle = 0.5 * (low + high)
        accepted_share = np.exp(-squares / (2 * np.exp(middle))).mean()
        if accepted_share >= _SETTINGS.accepted:
            high = middle
        else:
            low = middle
    h = float(np.exp(0.5 * high))
    out = np.empty_like(a)
    for c in range(chains):
        done = 0
        while done < count:
            i, j, distance = pairs(c, number)
            is_accepted = rng.exponential(size=number) > distance / (2 * h * h)
            accepted = np.flatnonzero(is_accepted)[: count - done]
            means = weighted_a[c, i[accepted]] + weighted_b[c, j[accepted]]
            out[c, done : done + len(accepted)] = means
            done += len(accepted)
    return out, h


METHODS: dict[str, Any] = {
    "consensus": _consensus,
    "consensus_scalar": None,
    "gaussian": _gaussian,
    "kernel_density": _kernel_density,
    "weierstrass": _weierstrass,
}
