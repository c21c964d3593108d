"""Draws between Python's ``Samples`` and R's lists of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc import Samples

_EXACT_IN_R = 2**53


def parts(samples: Samples) -> dict[str, Any]:
    """Return everything that samples hold as dicts of arrays, under R's names.

    As in R, a scalar has a last axis of length one.
    """
    leading = 1 if samples.settings.get("n_chains") is None else 2
    unnormalised = getattr(samples, "unnormalised", None)
    return {
        "draws": _with_last_axis(samples, leading),
        "scalars": [name for name, draws in samples.items() if draws.ndim == leading],
        "gradients": _with_last_axis(samples.gradients, leading),
        "testFunctions": _with_last_axis(samples.test_functions, leading),
        "unnormalised": _with_last_axis(unnormalised, leading),
        "logPost": samples.log_post._asdict(),
        "settings": plain(samples.settings),
        "mode": plain(samples.mode),
        "modeGradient": plain(samples.mode_gradient),
        "reductions": plain(samples.reductions),
    }


def rebuilt(chains: Mapping[str, Any]) -> Samples:
    """Return the samples whose parts these are, as far as corrections need them."""
    dtype = chains["settings"]["dtype"]
    settings = {**chains["settings"], "n_chains": chains["settings"].get("n_chains")}

    def arrays(group: str) -> dict[str, np.ndarray] | None:
        if chains[group] is None:
            return None
        return {
            name: np.asarray(values, dtype)[..., 0]
            if name in chains["scalars"]
            else np.asarray(values, dtype)
            for name, values in chains[group].items()
        }

    return Samples(
        arrays("draws") or {},
        gradients=arrays("gradients"),
        test_functions=chains["testFunctions"],
        settings=settings,
    )


def _with_last_axis(
    arrays: Mapping[str, np.ndarray] | None, leading: int
) -> dict[str, np.ndarray] | None:
    if arrays is None:
        return None
    return {
        name: np.asarray(values)[..., np.newaxis] if values.ndim == leading else np.asarray(values)
        for name, values in arrays.items()
    }


def plain(value: Any) -> Any:
    """Return mappings as dicts, arrays without axes as numbers, and large numbers as text."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return value.item()
    if isinstance(value, int) and abs(value) > _EXACT_IN_R:
        return str(value)
    return value
