"""What makes two samplers the same, so that one may go on where the other stopped."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from sgmcmc.data import digest
from sgmcmc.sampler import Sampler

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ROUNDING = 1e-5
"""Log-likelihood and gradient may differ by rounding between two machines."""


def identify(sampler: Sampler) -> dict[str, Any]:
    """Return what has to be equal, in the form that JSON gives back unchanged.

    Functions cannot be compared, but what they return at the starting values can.
    """
    starts = sampler.model.layout.split(np.stack(sampler.starts))
    kept = {} if sampler.latents is None else sampler.latents.starts
    facts = {
        **sampler.settings,
        "dataset": {name: column.digest() for name, column in sampler.data.columns.items()},
        "params": {name: _brief(array) for name, array in starts.items()},
        "latents": {name: _brief(array) for name, array in kept.items()},
        "model": sampler.trial,
    }
    for stepsizes in (sampler.stepsizes, sampler.opt_stepsizes):
        if stepsizes is not None and not stepsizes.constant:
            values = stepsizes.at(1, 3).tolist()
            facts[stepsizes.argument] = [facts[stepsizes.argument], values]
    return json.loads(_ADDRESS.sub("", json.dumps(facts)))


def _brief(array: np.ndarray) -> Any:
    """Return a small array as it is, and the digest of a large one."""
    return array.tolist() if array.size <= 64 else digest(array)


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Return the first difference in words, or ``None`` if there is none."""
    for name in dict.fromkeys([*before, *now]):
        old: Any = before.get(name)
        new: Any = now.get(name)
        if name == "model":
            if list(old) != list(new):
                return f"of `log_lik` and `log_prior` there were {list(old)}, now {list(new)}"
            for part in new:
                if not math.isclose(old[part], new[part], rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                    return (
                        f"`log_lik` or `log_prior` differ: at the starting values {part} was "
                        f"{old[part]:.8g} and is {new[part]:.8g}"
                    )
        elif isinstance(old, dict) and isinstance(new, dict):
            for key in dict.fromkeys([*old, *new]):
                if old.get(key) != new.get(key):
                    return _words(f"{name}[{key!r}]", old.get(key), new.get(key))
        elif old != new:
            return _words(name, old, new)
    return None


def _words(name: str, old: Any, new: Any) -> str:
    if name.startswith("dataset"):
        return f"`{name}` holds other values"
    return f"`{name}` was {old!r} and is {new!r}"
