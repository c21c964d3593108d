"""Labels of groups: which group a row is of, and which groups a user asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.levels import Levels, factorized, read_categories, text_of


@dataclass(frozen=True)
class _Settings:
    exact: int = 2**24  # up to which float32 holds all integers


_SETTINGS = _Settings()


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
    categories = read_categories(values, label)
    if categories is None:
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
        categories = factorized(values, label)
        if array.dtype.kind == "f" and any(
            not v.is_integer() for v in categories.levels.values
        ):
            raise ValueError(
                f"`groups`: `{label}` must hold integers, strings or categories; it holds "
                "fractions."
            )
    missing = categories.missing
    if missing.any():
        raise ValueError(
            f"`groups`: `{label}` has {int(missing.sum())} missing values, the first in row "
            f"{int(missing.argmax())}. Drop these rows, or give them a group."
        )
    used, codes = np.unique(categories.codes, return_inverse=True)
    values_used = [_whole(categories.levels.values[number]) for number in used]
    labels, first, number_of_used = np.unique(
        shown(values_used), return_index=True, return_inverse=True
    )
    levels = Levels(tuple(values_used[k] for k in first))
    return Labeled(labels, levels, number_of_used.reshape(-1)[codes.reshape(-1)])


def among_members(by: str, labeled_rows: Labeled, members: Sequence[Any]) -> Labeled:
    """Return the groups of some rows among all groups, with or without rows.

    Raises:
        ValueError: A row has a group that is none of them; the message names it.
    """
    levels = Levels(tuple(members))
    numbers = levels.codes(labeled_rows.levels.values)
    if (numbers < 0).any():
        label = labeled_rows.labels[int((numbers < 0).argmax())].item()
        raise ValueError(
            f"`groups`: {label!r} of `dataset[{by!r}]` is not among `members`."
        )
    return Labeled(
        shown(list(members)), levels, numbers[labeled_rows.codes].astype(np.int64)
    )


def shown(values: list[Any]) -> np.ndarray:
    """Return labels as an array: of integers or flags, or else of text, as are integers beyond.

    Hashes are integers up to 2⁶⁴.
    """
    if values and all(isinstance(value, bool) for value in values):
        return np.array(values)
    if values and all(isinstance(value, bool | int) for value in values):
        for kind in (np.int64, np.uint64):
            limits = np.iinfo(kind)
            if limits.min <= min(values) and max(values) <= limits.max:
                return np.array(values, kind)
    return np.array(list(map(text_of, values)), str)


def _whole(value: Any) -> Any:
    """Return a label; an integer is one, whatever its column holds."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def numbers_of(values: Any) -> np.ndarray | None:
    """Return the labels of rows as numbers, if they are numbers."""
    categories = read_categories(values)
    if categories is None:
        array = np.asarray(values)
    elif all(isinstance(v, int | float) for v in categories.levels.values):
        array = np.asarray(categories)
    else:
        return None
    return array if array.dtype.kind in "iuf" else None


def as_entry(numbers: np.ndarray) -> Any:
    """Return integer labels as an entry of a dataset; ``None`` if int32 cannot hold them.

    Those that float32 would round are a tensor, which stays integers.
    """
    largest = max(abs(int(numbers.min(initial=0))), abs(int(numbers.max(initial=0))))
    if largest > tf.int32.max:
        return None
    return numbers if largest <= _SETTINGS.exact else tf.constant(numbers, tf.int32)


def extended(levels: Levels, values: Iterable[Any]) -> Levels:
    """Return levels with those of other rows that are new behind them.

    If all are integers, text that is an integer is one.
    """
    every = list(values)
    new = [
        value
        for value, code in zip(every, levels.codes(every), strict=True)
        if code < 0
    ]
    if all(isinstance(value, int) for value in levels.values):
        new = [
            int(v) if isinstance(v, str) and v.lstrip("-").isdigit() else v for v in new
        ]
    return Levels((*levels.values, *new), levels.ordered)


def find(by: str, levels: Levels, selected: Any) -> np.ndarray:
    """Return the numbers of some groups.

    Args:
        by: Name of the factor, for messages.
        levels: Groups.
        selected: Label, or labels, of groups that the user asks for.

    Raises:
        ValueError: One is not there; the message names it.
    """
    is_single = isinstance(selected, str | bytes) or np.ndim(_as_array(selected)) == 0
    if is_single or (isinstance(selected, tuple) and levels.codes([selected])[0] >= 0):
        selection = [selected]
    else:
        selection = list(selected)
    combined = levels.values and isinstance(levels.values[0], tuple)
    if not combined and any(np.ndim(_as_array(label)) for label in selection):
        raise ValueError(
            f"`groups` must be labels of {by!r}; it is {describe(selected)}."
        )
    numbers = levels.codes(selection)
    if (numbers < 0).any():
        label = selection[int((numbers < 0).argmax())]
        label = label.item() if isinstance(label, np.generic) else label
        raise ValueError(f"`groups`: {by!r} has no group {label!r}.")
    return numbers.astype(np.int64)


def _as_array(value: Any) -> np.ndarray:
    """Return a label or labels as an array, those of unequal lengths as objects."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty(len(value), object)
