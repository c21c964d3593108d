"""Slices of samples along their draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.checks import describe
from sgmcmc.results.chains import has_chains

SLICE = "slice"
"""The setting that says which of a chain's kept draws there are: ``[start, stop, step]``."""


def need_slice(place: Any) -> slice:
    """Return what was written in brackets, if it is a slice."""
    if isinstance(place, slice):
        return place
    raise TypeError(
        f"`samples[...]` takes the name of a parameter, or a slice of the draws of all chains; it "
        f"was given {describe(place)}. A single draw is samples['theta'][3], or "
        "samples['theta'][:, 3] if there are chains; samples[3:4] has it of all parameters."
    )


def sliced(
    settings: Mapping[str, Any], groups: Mapping[str, Mapping[str, np.ndarray] | None], place: slice
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the arrays of a slice along the draws.

    Args:
        settings: of the samples.
        groups: their arrays that have an entry for each draw.
        place: which draws.

    Raises:
        ValueError: the slice holds no draws, or runs backwards.
    """
    axis = 1 if has_chains(settings) else 0
    lengths = [array.shape[axis] for arrays in groups.values() for array in (arrays or {}).values()]
    if not lengths:
        raise ValueError("`samples` holds no draws to slice.")
    try:
        start, stop, step = place.indices(lengths[0])
    except (TypeError, ValueError) as error:
        raise TypeError(f"`samples[...]`: {error}.") from None
    if step < 0:
        raise ValueError("`samples[...]`: a slice must run forwards, as the chain did.")
    kept = range(start, stop, step)
    if not kept:
        raise ValueError(
            f"`samples[{_text(place)}]` holds none of the {lengths[0]} draws of each chain."
        )
    whole = draw_numbers(settings, lengths[0])[kept.start : kept.stop : kept.step]
    part = (slice(None),) * axis + (slice(kept.start, kept.stop, kept.step),)
    found = {
        group: None if arrays is None else {name: array[part] for name, array in arrays.items()}
        for group, arrays in groups.items()
    }
    return {**settings, SLICE: [whole.start, whole.stop, whole.step]}, found


def draw_numbers(settings: Mapping[str, Any], draws: int) -> range:
    """Return the numbers, among all that a chain has kept, of the draws that there are."""
    place = settings.get(SLICE)
    return range(draws) if place is None else range(*place)


def _text(place: slice) -> str:
    ends = ["" if end is None else str(end) for end in (place.start, place.stop)]
    return ":".join(ends + ([] if place.step is None else [str(place.step)]))
