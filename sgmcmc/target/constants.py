"""Constants that are one number for all parameters, or a dict with one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sgmcmc.checks import is_number, known_keys, positive_number
from sgmcmc.target.layout import Layout


def per_parameter(
    argument: str, value: Any, names: Iterable[str], read: Callable[[str, Any], Any]
) -> tuple[Any, ...]:
    """Return one entry for all parameters, or one for each where ``value`` is a dict.

    Args:
        argument: the argument's name.
        value: what the user gave.
        names: the parameters, in order.
        read: checks and converts one entry, given its label.
    """
    if not isinstance(value, Mapping):
        return (read(argument, value),)
    names = list(names)
    known_keys(argument, value, names, "the parameters are")
    missing = [name for name in names if name not in value]
    if missing:
        raise ValueError(
            f"`{argument}` is a dict, so it must name every parameter; it lacks "
            f"{', '.join(map(repr, missing))}."
        )
    return tuple(read(f"{argument}[{name!r}]", value[name]) for name in names)


def positive_constant(
    argument: str, value: Any, layout: Layout, most: float = np.inf
) -> float | np.ndarray:
    """Return a positive constant as one number, or as a vector over the flat position.

    Args:
        argument: the argument's name.
        value: a number, or a dict with one for each parameter.
        layout: the places of the parameters.
        most: the largest value that makes sense.
    """

    def read(label: str, entry: Any) -> float:
        number = positive_number(label, entry)
        if number > most:
            raise ValueError(f"`{label}` must be at most {most:g}; it is {entry!r}.")
        return number

    return _spread(argument, value, layout, read)


def constant_not_negative(argument: str, value: Any, layout: Layout) -> float | np.ndarray:
    """Return a constant that may be zero as one number, or as a vector over the flat position.

    Args:
        argument: the argument's name.
        value: a number, or a dict with one for each parameter.
        layout: the places of the parameters.
    """

    def read(label: str, entry: Any) -> float:
        if is_number(entry) and entry < 0:
            raise ValueError(f"`{label}` must not be negative; it is {entry!r}.")
        return 0.0 if is_number(entry) and entry == 0 else positive_number(label, entry)

    return _spread(argument, value, layout, read)


def _spread(
    argument: str, value: Any, layout: Layout, read: Callable[[str, Any], Any]
) -> float | np.ndarray:
    entries = per_parameter(argument, value, layout.names, read)
    if not isinstance(value, Mapping):
        return float(entries[0])
    return np.concatenate(
        [np.full(size, entry) for size, entry in zip(layout.sizes.values(), entries, strict=True)]
    )
