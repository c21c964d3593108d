"""Random numbers in bulk: normals, and integers below a bound.

Both are made of nothing but the raw words of a bit generator, which NumPy promises never to change,
by integer arithmetic and single IEEE operations in a fixed order. So native code and NumPy give
the same numbers, and so do all versions of NumPy and all processors. The native code continues the
stream where NumPy left it, and leaves it where NumPy would.

A normal takes 1 ns in native code and 8 here, as long as NumPy's own; an integer 0.8 and 1.8, and
NumPy's 2.2.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sgmcmc.data import native


class RunPhase(IntEnum):
    """Purpose of a run of iterations."""

    MODE = 0
    CHAIN = 1


class Purpose(IntEnum):
    """Purpose of random numbers."""

    MINIBATCH = 0
    NOISE = 1
    START_MINIBATCH = 2
    START_NOISE = 3
    SEEDS = 4
    LATENTS = 5
    START_LATENTS = 6
    FULL_GRADIENT = 7
    PROBES = 8
    PART = 9
    START = 10
    BY_HAND = 11
    EPOCH = 12


def generator(
    seed: int, chain: int, phase: RunPhase, purpose: Purpose, block: int = 0
) -> np.random.Generator:
    """Return the generator of one stream.

    Args:
        seed: User's seed, or the entropy drawn in its place.
        chain: Number of the chain, from 0.
        phase: Phase: mode-finding or chain.
        purpose: Use of the numbers: minibatches, noise, seeds for the graph, or any start.
        block: Number of the block of iterations, from 0.

    Returns:
        A ``numpy.random.Generator`` that no other arguments give.

    Example:
        >>> a = generator(1, 0, RunPhase.CHAIN, Purpose.NOISE, 7).standard_normal()
        >>> b = generator(1, 0, RunPhase.CHAIN, Purpose.NOISE, 7).standard_normal()
        >>> a == b
        True
    """
    key = (chain, int(phase), int(purpose), block)
    return np.random.Generator(
        np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key))
    )


PAIRS = 256
"""Pairs of normals in a chunk: the first ones then do not depend on how many there are."""

# Coefficients of minimax polynomials, the highest first, that are nearer to logarithm, sine and
# cosine than rounding leaves them. log(1 + f) = f + f² q(f) for 1 + f from √½ to √2;
# sin t = t + t s p(s) and cos t = 1 - s/2 + s² p(s) with s = t², for t from -π/4 to π/4.
_LOG = (
    *(0.08979528, -0.1442688, 0.14883684, -0.16551788),
    *(0.19963478, -0.25002584, 0.33333933, -0.49999982),
)
_SINE = (-0.000195173, 0.008332178, -0.16666655)
_COSINE = (2.4438452e-05, -0.0013887368, 0.041666646)


def raw(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return random bits: an even number of uint32, as many as asked for or one more."""
    words = rng.integers(0, 2**64 - 1, -(-count // 2), np.uint64, endpoint=True)
    return words.astype("<u8", copy=False).view("<u4")


def standard_normals(rng: np.random.Generator, out: np.ndarray) -> None:
    """Fill an array with independent standard normals.

    In float32 by the transform of Box and Muller: of 64 random bits, 40 are a uniform u, to whose
    logarithm belongs the radius, and 24 an angle. The tails are right to a probability of 10⁻¹²,
    and nothing is larger than 7.45. In float64 they are NumPy's.

    Args:
        rng: Source of the randomness.
        out: Contiguous array, float32 or float64.

    Example:
        >>> out = np.empty(3, np.float32)
        >>> standard_normals(np.random.Generator(np.random.SFC64(1)), out)
        >>> bool((abs(out) < 7.45).all())
        True

    Source:
        Box & Muller, Annals of Mathematical Statistics 29, 1958.
    """
    if out.dtype != np.float32:
        rng.standard_normal(out.shape, dtype=out.dtype.type, out=out)
        return
    flat = out.reshape(-1)
    if native.standard_normals(rng, flat):
        return
    chunk = 2 * PAIRS
    at_a_time = 64 * chunk  # whose arrays stay in the cache
    for first in range(0, flat.size, at_a_time):
        target = flat[first : first + at_a_time]
        count = -(-target.size // chunk) * chunk
        bits = raw(rng, count).reshape(-1, 2, PAIRS)
        target[:] = _box_muller(bits).reshape(-1)[: target.size]


def below(rng: np.random.Generator, bound: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return independent uniform int32 below a bound, and -1 for one that must be drawn again.

    A product of 32 random bits with the bound has the number in its upper half. A few are rejected
    because some numbers would otherwise be more frequent, by one in 2³² of the bits.

    Args:
        rng: Source of the randomness.
        bound: Bound, from 1 to 2³¹ - 1.
        shape: Shape of the result.

    Source:
        Lemire, ACM Transactions on Modeling and Computer Simulation 29, 2019.
    """
    out = np.empty(shape, np.int32)
    flat = out.reshape(-1)
    if not native.below(rng, bound, flat):
        products = raw(rng, flat.size)[: flat.size] * np.uint64(bound)
        flat[:] = products >> np.uint64(32)
        flat[products.astype(np.uint32) < 2**32 % bound] = -1
    return out


def _box_muller(bits: np.ndarray) -> np.ndarray:
    """Return normals, (chunks, 2, pairs), of random bits in the same shape."""
    first, second = (np.ascontiguousarray(bits[:, column]) for column in (0, 1))
    radius = np.sqrt(_log(_uniform(first, second)) * np.float32(-2.0))
    sine, cosine = _on_the_circle(second)
    x, y = radius * cosine, radius * sine
    # Two more bits put the angle, so far between -π/4 and π/4, anywhere on the circle.
    x.view(np.uint32)[...] ^= second & np.uint32(2**31)
    swap = (second & np.uint32(2**30)) != 0
    made = np.empty(bits.shape, np.float32)
    made[:, 0] = np.where(swap, y, x)
    made[:, 1] = np.where(swap, x, y)
    return made


def _uniform(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return numbers in (0, 1], of 31 bits, and of 8 more bits for small numbers."""
    whole = (first >> np.uint32(1)).astype(np.int32).astype(np.float32)
    low_bits = (second & np.uint32(0xFF)).astype(np.float32)
    low_bits += np.float32(0.5)
    low_bits *= np.float32(2.0**-8)
    whole += low_bits
    whole *= np.float32(2.0**-31)
    return whole


def _log(u: np.ndarray) -> np.ndarray:
    """Return the natural logarithms of numbers of (0, 1], by exponent and fraction."""
    one, root_half = 0x3F800000, 0x3F3504F3  # bits of 1 and √½ in float32
    fraction = np.int32(0x007FFFFF)  # mask of the fraction of a float32
    shifted = u.view(np.int32) + np.int32(one - root_half)
    exponent = ((shifted >> np.int32(23)) - np.int32(127)).astype(np.float32)
    f = ((shifted & fraction) + np.int32(root_half)).view(np.float32)
    f -= np.float32(1.0)
    value = _polynomial(_LOG, f)
    value *= f
    value *= f
    value += f
    exponent *= np.float32(0.6931472)
    value += exponent
    return value


def _on_the_circle(second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sine and cosine of an angle between -π/4 and π/4, of 22 bits."""
    bits = (second >> np.uint32(8)) & np.uint32(0x3FFFFF)
    angle = bits.astype(np.int32) - np.int32(2**21)
    t = angle.astype(np.float32)
    t += np.float32(0.5)
    t *= np.float32(3.7450704e-07)
    s = t * t
    sine = _polynomial(_SINE, s)
    sine *= s
    sine *= t
    sine += t
    cosine = _polynomial(_COSINE, s)
    cosine *= s
    cosine *= s
    s *= np.float32(-0.5)
    s += np.float32(1.0)
    cosine += s
    return sine, cosine


def _polynomial(coefficients: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Return the polynomial with these coefficients, the highest first."""
    value = np.float32(coefficients[0]) * x
    for coefficient in coefficients[1:-1]:
        value += np.float32(coefficient)
        value *= x
    value += np.float32(coefficients[-1])
    return value


class AliasTable(NamedTuple):
    """An alias table: row k with probability keep[k], else other[k], of a uniform k.

    Attributes:
        keep: Probabilities, (N,).
        other: Rows, (N,).
        total: Sum of the weights.
    """

    keep: np.ndarray
    other: np.ndarray
    total: float

    @classmethod
    def of(cls, weights: np.ndarray) -> AliasTable:
        """Return the table that draws rows in proportion to their weights."""
        total = float(weights.sum())
        keep = np.asarray(weights, float) * (len(weights) / total)
        alias = np.arange(len(weights), dtype=np.int32)
        low = list(np.flatnonzero(keep < 1.0))
        high = list(np.flatnonzero(keep >= 1.0))
        while low and high:
            small, large = low.pop(), high[-1]
            alias[small] = large
            keep[large] -= 1.0 - keep[small]
            if keep[large] < 1.0:
                low.append(high.pop())
        keep[low + high] = 1.0
        return cls(keep, alias, total)
