"""Draws as a pandas data frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.results.chains import by_chain
from sgmcmc.results.slices import draw_numbers


def to_dataframe(settings: Mapping[str, Any], draws: Mapping[str, np.ndarray]) -> Any:
    """Return draws as a data frame, a row for each, a column for each component.

    Args:
        settings: of the samples.
        draws: the draws, by parameter.

    Raises:
        ValueError: there are no draws.
    """
    import pandas as pd

    if not draws:
        raise ValueError("`samples` holds no draws of parameters.")
    arrays = by_chain(settings, draws)
    chains, count = next(iter(arrays.values())).shape[:2]
    columns = {}
    for name, array in arrays.items():
        flat = np.reshape(array, (chains * count, -1))
        for column, label in enumerate(coordinate_names(name, array.shape[2:])):
            columns[label] = flat[:, column]
    index = pd.MultiIndex.from_product(
        [range(chains), draw_numbers(settings, count)], names=["chain", "draw"]
    )
    return pd.DataFrame(columns, index=index)


def coordinate_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return what the coordinates of a parameter are called, as in :func:`sgmcmc.summary`."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, place))}]" for place in np.ndindex(*shape)]
