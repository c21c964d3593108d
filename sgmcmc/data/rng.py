"""Random streams that depend on what they are for, never on the order of calls.

A stream is named by (seed, chain, phase, purpose, block). So a block can be made again at will,
in any order and on any thread, and chain 3 is the same whether there are four chains or ten.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class RunPhase(IntEnum):
    """What the iterations are run for."""

    MODE = 0
    CHAIN = 1


class Purpose(IntEnum):
    """What the numbers are used for."""

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
        seed: the user's seed, or the entropy that was drawn in its place.
        chain: number of the chain, from 0.
        phase: mode-finding or chain.
        purpose: minibatches, noise, seeds for the graph, or the start of any.
        block: number of the block of iterations, from 0.

    Returns:
        A ``numpy.random.Generator`` that no other arguments give.

    Example:
        >>> a = generator(1, 0, RunPhase.CHAIN, Purpose.NOISE, 7).standard_normal()
        >>> b = generator(1, 0, RunPhase.CHAIN, Purpose.NOISE, 7).standard_normal()
        >>> a == b
        True
    """
    key = (chain, int(phase), int(purpose), block)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))
