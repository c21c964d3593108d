"""Fingerprint of a sampler: with an equal one, a chain may continue that of another."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from sgmcmc.checks import from_outside
from sgmcmc.data.dataset import digest
from sgmcmc.minibatches.own import drawn
from sgmcmc.run.chain_groups import group_size
from sgmcmc.run.sampler import Sampler

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NOT_COMPARED = ("paths", "weights")
"""Settings that have no bearing on the draws, or that others determine."""

_DRAWN = 10_000
"""Row numbers that a user's own minibatches are known by."""


def fingerprint(sampler: Sampler) -> dict[str, Any]:
    """Return what must be equal, in the form that JSON gives back unchanged.

    Functions cannot be compared, but what they return at the starting values can.
    """
    starts = sampler.target.space.layout.split(np.stack(sampler.starts))
    kept = {} if sampler.latents is None else sampler.latents.starts
    facts = {
        **{name: v for name, v in sampler.settings.items() if _compared(name, v)},
        "dataset": {name: column.digest() for name, column in sampler.data.columns.items()},
        "params": {name: _brief(array) for name, array in starts.items()},
        "latents": {name: _brief(array) for name, array in kept.items()},
        "model": sampler.dry_run,
    }
    # In a group, chains are computed in another order, so that the last digits differ.
    sizes = [group_size(sampler, phase) for phase in sampler.phases]
    if max(sizes) > 1:
        facts["chains_in_a_group"] = sizes
    if from_outside(sampler.draws):
        facts["minibatches_drawn"] = _of_draws(sampler)
    for phase in sampler.phases:
        if not phase.stepsizes.constant:
            values = phase.stepsizes.at(1, 3).tolist()
            facts[phase.argument] = [facts[phase.argument], values]
    return json.loads(_ADDRESS.sub("", json.dumps(facts)))


def _of_draws(sampler: Sampler) -> dict[str, str]:
    """Return what distinguishes a user's own minibatches: their arrays, and the rows they draw.

    What ``to_json`` says of labels or strata may be the same of others.
    """
    draws = sampler.draws
    named = {
        **_attributes(sampler.options.minibatches),
        **_attributes(draws),
        "weights": draws.weights,
    }
    found = {}
    for name, value in named.items():
        array = None if value is None or callable(value) else _as_array(value)
        if array is not None and array.dtype.kind in "biufSU":
            found[name] = digest(array)
    if not draws.every_row:
        rng = np.random.default_rng(0)
        rows = drawn(draws, sampler.data.size, rng, max(1, _DRAWN // draws.size))
        found["rows"] = digest(rows.astype(np.int64))
    return found


def _attributes(thing: object) -> dict[str, Any]:
    """Return the attributes of an object, if it has such."""
    return dict(getattr(thing, "__dict__", {}))


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal lengths, and what is no array
        return None


def _compared(name: str, value: Any) -> bool:
    """Return whether a setting is compared; stores without groups need not say so."""
    return name not in _NOT_COMPARED and not (name == "groups" and value is None)


def _brief(array: np.ndarray) -> Any:
    """Return a small array as it is, and the digest of a large one."""
    return array.tolist() if array.size <= 64 else digest(array)
