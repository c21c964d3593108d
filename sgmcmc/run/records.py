"""What the chains of a run write down: the arrays, and what these are."""

from __future__ import annotations

from typing import Any

import numpy as np

from sgmcmc.engine.block import block_length
from sgmcmc.results.schema import LOG_POST, Schema, most_estimates
from sgmcmc.run.builder import chosen_stream, make_kernel
from sgmcmc.run.groups import group_size
from sgmcmc.run.sampler import Sampler


def schema_of(sampler: Sampler) -> Schema:
    """Return what the arrays of a sampler's runs are."""
    recorder, space = sampler.chain.recorder, sampler.target.space
    assert recorder is not None
    stream, size = chosen_stream(sampler, sampler.chain), group_size(sampler, sampler.chain)
    length = block_length(stream, sampler.chain.dynamics, sampler.target)
    every = sampler.chain.gradient.refresh_every(sampler.whole())
    chains = "one by one" if size == 1 else f"in groups of {size}"
    paths = {**sampler.settings["paths"], "minibatches": stream.path, "chains": chains}
    return Schema(
        {**sampler.settings, "paths": paths},
        sampler.options.n_chains is not None,
        dict(space.user_layout.shapes),
        dict(space.score_layout.shapes),
        recorder.stored,
        recorder.with_gradients,
        tuple(recorder.test_functions),
        recorder.unnormalised,
        (length,) if every is None else (length, every),
    )


def record_specs(
    sampler: Sampler, draws: int, total: int, stops: int = 0
) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return shape, chains first, and dtype of each array that the chains write to.

    Args:
        sampler: the sampler.
        draws: that each chain keeps.
        total: iterations of each chain.
        stops: how often the chains may be stopped on the way, and then be made longer.
    """
    kernel, chains = make_kernel(sampler, sampler.chain), len(sampler.starts)
    every = sampler.chain.gradient.refresh_every(sampler.whole()) or total
    blocks = -(-total // kernel.length) + total // every + most_estimates(total) + stops
    return {
        **{
            name: ((chains, draws, *shape), np.dtype(dtype.as_numpy_dtype))
            for name, (shape, dtype) in kernel.recorder.specs().items()
        },
        LOG_POST: ((chains, blocks, 2), np.dtype(np.float64)),
    }
