"""Puts chains together: data stream × gradient estimator × dynamics, and where they write to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.block import block_length
from sgmcmc.buffers import Pool
from sgmcmc.chain import Chain
from sgmcmc.dynamics import SGD, Dynamics
from sgmcmc.feed import Feed
from sgmcmc.gradients import ControlVariateGradient, MinibatchGradient
from sgmcmc.recorder import LOG_POST, Recorder
from sgmcmc.sampler import Sampler
from sgmcmc.schedules import Stepsizes
from sgmcmc.streams import Phase
from sgmcmc.track import Rows, Track

Save = Callable[[int, Track], None]
"""Is handed the number of a chain and its track after each block."""


class Modes(NamedTuple):
    """The modes that control variates are centred at, one for each chain.

    Attributes:
        positions: θ̂, flat and unconstrained.
        gradients: the gradient of the log posterior there over the whole dataset, flat.
    """

    positions: list[np.ndarray]
    gradients: list[np.ndarray]


def mode_tracks(
    sampler: Sampler, stepsizes: Stepsizes, n_iters: int, save: Save | None = None
) -> list[Track]:
    """Return the tracks that find the chains' modes."""
    estimator = MinibatchGradient(sampler.model, _scale(sampler))
    chain = _make_chain(sampler, SGD(), estimator, Recorder(sampler.model))
    pool = Pool(chain, stepsizes)
    return [
        Track(
            chain,
            Feed(
                chain,
                pool,
                stepsizes,
                sampler.seed,
                number,
                Phase.MODE,
                estimator.init(),
                n_iters,
            ),
            start,
            {},
            _bound(save, number),
        )
        for number, start in enumerate(sampler.starts)
    ]


def chain_tracks(
    sampler: Sampler,
    modes: Modes | None,
    total: int,
    rows: Sequence[Mapping[str, Rows]],
    save: Save | None = None,
) -> list[Track]:
    """Return the tracks of the chains.

    Args:
        sampler: the sampler.
        modes: where the control variates are centred; ``None`` for plain gradients.
        total: iterations to run in all.
        rows: where each chain writes its records to.
        save: called after each block of a chain.
    """
    if modes is None:
        plain = MinibatchGradient(sampler.model, _scale(sampler))
        chain = _make_chain(sampler, sampler.dynamics, plain, sampler.recorder)
        positions: list[np.ndarray] = sampler.starts
        states: list[Any] = [plain.init() for _ in positions]
    else:
        cv = ControlVariateGradient(sampler.model, _scale(sampler))
        chain = _make_chain(sampler, sampler.dynamics, cv, sampler.recorder)
        positions = modes.positions
        states = [cv.init(*map(tf.constant, mode)) for mode in zip(*modes, strict=True)]
    stepsizes, seed = sampler.stepsizes, sampler.seed
    pool = Pool(chain, stepsizes)
    tracks = []
    for number, (start, state) in enumerate(zip(positions, states, strict=True)):
        feed = Feed(chain, pool, stepsizes, seed, number, Phase.CHAIN, state, total)
        tracks.append(Track(chain, feed, start, rows[number], _bound(save, number)))
    return tracks


def records(sampler: Sampler, draws: int, total: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape, chains first, and dtype of each array that the chains write to."""
    chains = len(sampler.starts)
    blocks = -(-total // _length(sampler, sampler.dynamics))
    return {
        **{
            name: ((chains, draws, *shape), np.dtype(dtype.as_numpy_dtype))
            for name, (shape, dtype) in sampler.recorder.specs().items()
        },
        LOG_POST: ((chains, blocks, 2), np.dtype(np.float64)),
    }


def _bound(save: Save | None, number: int) -> Callable[[Track], None] | None:
    return None if save is None else lambda track: save(number, track)


def _length(sampler: Sampler, dynamics: Dynamics) -> int:
    model = sampler.model
    return block_length(sampler.minibatches, dynamics, model.layout, model.dtype.size)


def _make_chain(sampler: Sampler, dynamics: Dynamics, estimator: Any, recorder: Recorder) -> Chain:
    length = _length(sampler, dynamics)
    return Chain(
        dynamics,
        estimator,
        sampler.minibatches,
        recorder,
        sampler.model.layout,
        length,
        sampler.compiler,
        sampler.latents,
    )


def _scale(sampler: Sampler) -> float:
    return sampler.data.size / sampler.minibatches.size
