"""What makes two samplers the same, so that one may go on where the other stopped."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from sgmcmc.data.dataset import digest
from sgmcmc.run.groups import group_size
from sgmcmc.run.sampler import Sampler

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NOT_COMPARED = ("paths",)
"""Settings that say which fast paths were taken, and have no bearing on the draws."""


def fingerprint(sampler: Sampler) -> dict[str, Any]:
    """Return what has to be equal, in the form that JSON gives back unchanged.

    Functions cannot be compared, but what they return at the starting values can.
    """
    starts = sampler.target.space.layout.split(np.stack(sampler.starts))
    kept = {} if sampler.latents is None else sampler.latents.starts
    facts = {
        **{name: v for name, v in sampler.settings.items() if name not in _NOT_COMPARED},
        "dataset": {name: column.digest() for name, column in sampler.data.columns.items()},
        "params": {name: _brief(array) for name, array in starts.items()},
        "latents": {name: _brief(array) for name, array in kept.items()},
        "model": sampler.dry_run,
    }
    # In a group, chains are computed in another order, so that the last digits differ.
    sizes = [group_size(sampler, phase) for phase in sampler.phases]
    if max(sizes) > 1:
        facts["chains_in_a_group"] = sizes
    for phase in sampler.phases:
        if not phase.stepsizes.constant:
            values = phase.stepsizes.at(1, 3).tolist()
            facts[phase.argument] = [facts[phase.argument], values]
    return json.loads(_ADDRESS.sub("", json.dumps(facts)))


def _brief(array: np.ndarray) -> Any:
    """Return a small array as it is, and the digest of a large one."""
    return array.tolist() if array.size <= 64 else digest(array)
