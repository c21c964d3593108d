"""Labels of groups: which group a row is of, and which groups a user asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.checks import describe
from sgmcmc.data.levels import Levels, factorized, read_categories, text_of


@dataclass(frozen=True)
class Labeled:
    """The groups of some rows.

    Attributes:
        labels: Label of each group as it is shown, sorted, (groups,).
        levels: The same groups by their values.
        codes: Number of each row's group, (rows,).
    """

    labels: np.ndarray
    levels: Levels
    codes: np.ndarray


def labeled(by: str, values: Any) -> Labeled:
    """Return the groups that rows are of, those without rows left out.

    Raises:
        ValueError, TypeError: There are missing values, or these are no labels.
    """
    label = f"dataset[{by!r}]"
    found = read_categories(values, label)
    if found is None:
        array = np.asarray(values)
        if array.ndim != 1:
            raise ValueError(
                f"`groups`: `{label}` must have one label for each row; its shape is {array.shape}."
            )
        if array.dtype.kind not in "OfiubUS":
            raise TypeError(
                f"`groups`: `{label}` must hold integers, strings or categories; its dtype is "
                f"{array.dtype}."
            )
        found = factorized(values, label)
        if array.dtype.kind == "f" and any(not v.is_integer() for v in found.levels.values):
            raise ValueError(
                f"`groups`: `{label}` must hold integers, strings or categories; it holds "
                "fractions."
            )
    missing = found.missing
    if missing.any():
        raise ValueError(
            f"`groups`: `{label}` has {int(missing.sum())} missing values, the first in row "
            f"{int(missing.argmax())}. Drop these rows, or give them a group."
        )
    there, codes = np.unique(found.codes, return_inverse=True)
    own = [_whole(found.levels.values[number]) for number in there]
    labels, first, of_own = np.unique(shown(own), return_index=True, return_inverse=True)
    levels = Levels(tuple(own[place] for place in first))
    return Labeled(labels, levels, of_own.reshape(-1)[codes.reshape(-1)])


def among_members(by: str, found: Labeled, members: Sequence[Any]) -> Labeled:
    """Return the groups of some rows among all groups, with or without rows.

    Raises:
        ValueError: A row has a group that is none of them; the message names it.
    """
    levels = Levels(tuple(members))
    place = levels.codes(found.levels.values)
    if (place < 0).any():
        label = found.labels[int((place < 0).argmax())].item()
        raise ValueError(f"`groups`: {label!r} of `dataset[{by!r}]` is not among `members`.")
    return Labeled(shown(list(members)), levels, place[found.codes].astype(np.int64))


def shown(values: list[Any]) -> np.ndarray:
    """Return labels as an array: of integers or flags, or else of text."""
    if values and all(isinstance(value, bool) for value in values):
        return np.array(values)
    if values and all(isinstance(value, bool | int) for value in values):
        return np.array(values, np.int64)
    return np.array(list(map(text_of, values)), str)


def _whole(value: Any) -> Any:
    """Return a label; an integer is one, whatever its column holds."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def numbers_of(values: Any) -> np.ndarray | None:
    """Return the labels of rows as numbers, if they are numbers."""
    found = read_categories(values)
    if found is not None and not all(isinstance(v, int | float) for v in found.levels.values):
        return None
    array = np.asarray(values if found is None else found)
    return array if array.dtype.kind in "iuf" else None


def extended(levels: Levels, values: Iterable[Any]) -> Levels:
    """Return levels with those of other rows that are new behind them.

    If all are integers, text that is an integer is one.
    """
    every = list(values)
    new = [value for value, code in zip(every, levels.codes(every), strict=True) if code < 0]
    if all(isinstance(value, int) for value in levels.values):
        new = [int(v) if isinstance(v, str) and v.lstrip("-").isdigit() else v for v in new]
    return Levels((*levels.values, *new), levels.ordered)


def find(by: str, levels: Levels, wanted: Any) -> np.ndarray:
    """Return the numbers of some groups.

    Args:
        by: Name of the factor, for messages.
        levels: Groups.
        wanted: Label, or labels, of groups that the user asks for.

    Raises:
        ValueError: One is not there; the message names it.
    """
    one = isinstance(wanted, str | bytes) or np.ndim(_as_array(wanted)) == 0
    if one or (isinstance(wanted, tuple) and levels.codes([wanted])[0] >= 0):
        asked = [wanted]
    else:
        asked = list(wanted)
    combined = levels.values and isinstance(levels.values[0], tuple)
    if not combined and any(np.ndim(_as_array(label)) for label in asked):
        raise ValueError(f"`groups` must be labels of {by!r}; it is {describe(wanted)}.")
    found = levels.codes(asked)
    if (found < 0).any():
        label = asked[int((found < 0).argmax())]
        label = label.item() if isinstance(label, np.generic) else label
        raise ValueError(f"`groups`: {by!r} has no group {label!r}.")
    return found.astype(np.int64)


def _as_array(value: Any) -> np.ndarray:
    """Return a label or labels as an array, those of unequal lengths as objects."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty(len(value), object)
