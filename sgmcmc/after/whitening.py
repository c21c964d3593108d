"""Coordinates in which a posterior is near N(0, I), from its draws and the gradients at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import known_keys
from sgmcmc.results.samples import Samples
from sgmcmc.target.geometry import Preconditioner, root_of

_DRAWS_EACH = 10
"""Draws per coordinate that a curvature matrix needs; below, variances alone are found."""

_FLAT = 1e-4
"""The least curvature, in units of the draws' own SDs, that does not count as noise."""


class Whitened(NamedTuple):
    """Draws and gradients in other coordinates.

    Attributes:
        draws: Draws, (k, d).
        gradients: Gradients of the log posterior at the draws, (k, d).
    """

    draws: np.ndarray
    gradients: np.ndarray


def unconstrained(
    samples: Samples, draws: Mapping[str, np.ndarray], bijectors: Mapping[str, Any] | None
) -> dict[str, np.ndarray]:
    """Return draws in the space that the chain moved in, apart from its preconditioner.

    Args:
        samples: Draws to whiten.
        draws: Draws by parameter, with one leading axis.
        bijectors: Bijectors by parameter; ``None`` uses those of the sampler that made the draws.

    Raises:
        ValueError: Draws in that space are not known.
    """
    for where in (samples.settings.get("own_coordinates") or {}).values():
        raise ValueError(
            f"`samples`: the chain moved in another space, {where}, where its draws are not kept."
        )
    moved = samples.settings.get("bijectors") or {}
    if bijectors is None and moved:
        if samples.origin is None:
            raise ValueError(
                "`bijectors` must be given for draws that are not in the process of the sampler "
                f"that made them; it had those of {', '.join(map(repr, moved))}."
            )
        space = samples.origin.target.space
        dtype = samples.origin.target.dtype
        return {name: space.geometries[name].start(a, dtype) for name, a in draws.items()}
    given = bijectors or {}
    known_keys("bijectors", given, moved, "the chain was run with bijectors for")
    for name in moved:
        if name in draws and name not in given:
            raise ValueError(f"`bijectors` lacks that of {name!r}, which the chain was run with.")
    return {
        name: given[name].inverse(tf.constant(a)).numpy() if name in given else a
        for name, a in draws.items()
    }


def whitened(
    draws: np.ndarray,
    gradients: np.ndarray,
    covariance: np.ndarray | None = None,
    known: Preconditioner | None = None,
) -> Whitened:
    """Return draws and gradients in whitened coordinates.

    Without a covariance it is the inverse of J = −Cov(θ)⁻¹Cov(θ, g), the slope of the gradients
    over the draws. The draws' own covariance would be wrong where the chain is, and E[ggᵀ] too,
    which counts the noise of the gradients besides. J is right for a normal posterior whatever the
    chain's covariance, and independent noise does not change its mean.

    Args:
        draws: Unconstrained draws, (k, d), in float64.
        gradients: Gradients of the log posterior at the draws, (k, d).
        covariance: M, (d, d), or variances, (d,).
        known: Preconditioner of the chain; a dense one is used instead of J.
    """
    draws = draws - draws.mean(0)
    d = draws.shape[1]
    if covariance is None and known is not None and known.dense:
        return _in_terms_of(draws, gradients, known.root)
    if covariance is not None and covariance.ndim == 1:
        return _scaled(draws, gradients, np.sqrt(covariance))
    if covariance is not None:
        return _in_terms_of(draws, gradients, root_of(covariance))
    sds = draws.std(0)
    draws, gradients = _scaled(draws, gradients, np.where(sds > 0, sds, 1.0))
    if len(draws) < _DRAWS_EACH * d:
        slopes = -(draws * gradients).mean(0)
        return _scaled(draws, gradients, 1.0 / np.sqrt(_curved(slopes)))
    root = _root(draws)
    draws, gradients = _in_terms_of(draws, gradients, root)
    J = -draws.T @ gradients / len(draws)
    values, vectors = np.linalg.eigh((J + J.T) / 2)
    return _in_terms_of(draws, gradients, vectors / np.sqrt(_curved(values)))


def square_of_gradients(at: Whitened) -> float:
    """Return E|g|² over the posterior, with the noise of the gradients.

    At exact draws it would be the mean of |g|². Wrong draws are at places where gradients are
    larger or smaller: so the part that depends linearly on the draws counts with tr J instead,
    which is the same by Stein's identity, and what that line leaves over is added.
    """
    draws, gradients = at
    k, d = draws.shape
    gradients = gradients - gradients.mean(0)
    if k < _DRAWS_EACH * d:
        variances = (draws**2).mean(0)
        slopes = (draws * gradients).mean(0) / np.where(variances > 0, variances, 1.0)
        left = gradients - slopes * draws
        return float(max(-slopes.sum(), 0.0) + (left**2).sum() / k)
    slope = np.linalg.lstsq(draws, gradients, rcond=None)[0]
    left = gradients - draws @ slope
    return float(max(-np.trace(slope), 0.0) + (left**2).sum() / (k - d))


def _curved(values: np.ndarray) -> np.ndarray:
    """Return curvatures; what is not curved is left in the draws' own units."""
    return np.where(values > _FLAT, values, 1.0)


def _root(draws: np.ndarray) -> np.ndarray:
    """Return C with CCᵀ the covariance of draws; directions without draws keep their scale."""
    values, vectors = np.linalg.eigh(draws.T @ draws / len(draws))
    kept = values > 1e-10 * values[-1]
    return vectors * np.sqrt(np.where(kept, values, 1.0))


def _scaled(draws: np.ndarray, gradients: np.ndarray, scale: np.ndarray) -> Whitened:
    return Whitened(draws / scale, gradients * scale)


def _in_terms_of(draws: np.ndarray, gradients: np.ndarray, root: np.ndarray) -> Whitened:
    """Return both in coordinates ζ, θ = Cζ."""
    return Whitened(np.linalg.solve(root, draws.T).T, gradients @ root)
