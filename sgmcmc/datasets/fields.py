"""Fields of text files: whole numbers, and numbers that count from 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def whole_numbers(fields: Any) -> NDArray[np.int64]:
    """Return fields of text as numbers, in the shape that they came in.

    Args:
        fields: lists of bytes, nested or not.

    Raises:
        ValueError: one is not a whole number.
    """
    try:
        return np.array(fields, dtype=bytes).astype(np.int64)
    except ValueError as error:
        raise ValueError("the content is not whole numbers") from error


def need_range(name: str, values: NDArray[np.int64], most: int) -> None:
    """Raise a ``ValueError`` unless all values are between 1 and ``most``."""
    if values.size and not 1 <= values.min() <= values.max() <= most:
        raise ValueError(f"{name}: not one of 1 to {most}")
