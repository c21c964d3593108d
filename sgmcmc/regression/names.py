"""Names of a regression: those of the user's columns, and its own, which never meet.

A name of the user's that is also one of the regression's own is put in backticks, as in a formula:
the coefficient of a column ``sigma`` is the row `` `sigma` `` of a summary, next to ``sigma``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

INTERCEPT = "Intercept"  # name of the intercept among the terms
PLAIN = re.compile(r"[^\W\d]\w*")  # names that are written without backticks

# Names of the entries of the dataset besides the groups.
_ENTRIES = re.compile(
    r"y|X|at|constant|p|log_odds|link|weights|trials|censored|reference|place_\d+|weight_\d+|Z_.*",
    re.DOTALL,
)


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return f"`{name}`"


def unquoted(name: str) -> str:
    """Return a name without the backticks around it, if there are any."""
    return name[1:-1] if re.fullmatch(r"`[^`]+`", name) else name


def escaped(name: str, reserved: Collection[str]) -> str:
    """Return the name of a term, in backticks if it is also one of the regression's own."""
    return quoted(name) if name in reserved else name


def spelled(columns: Sequence[str]) -> str:
    """Return a factor of one or more columns, such as ``a:b``, from the names of its columns."""
    return ":".join(
        name if re.fullmatch(r"[\w.]+", name) else quoted(name) for name in columns
    )


def columns_of(by: str) -> list[str]:
    """Return the names of the columns of a factor, such as ``a:b``.

    Example:
        >>> columns_of("a:`b:c`")
        ['a', 'b:c']
    """
    return [unquoted(name) for name in re.findall(r"`[^`]+`|[^:]+", by)]


def entry_of(by: str) -> str:
    """Return the name of the entry of the dataset with the groups of a factor."""
    return quoted(by) if _ENTRIES.fullmatch(by) else by


def cut_names(levels: Sequence[Any]) -> list[str]:
    """Return the names of the cutpoints between levels."""
    return [f"{low}|{high}" for low, high in zip(levels, levels[1:], strict=False)]


def parameter_names(factors: Sequence[str]) -> dict[str, str]:
    """Return the name from which those of a factor's parameters are made, by factor.

    Example:
        >>> parameter_names(["g", "a:b", "c:d", "c_d"])
        {'g': 'g', 'a:b': 'a_b', 'c:d': 'c:d', 'c_d': 'c_d'}
    """
    short = {by: by.replace(":", "_") for by in factors}
    count = Counter(short.values())
    return {by: name if count[name] == 1 else by for by, name in short.items()}


def place_name(number: int) -> str:
    """Return the entry of the dataset with the indices of a term that is held as integers."""
    return f"place_{number}"


def weight_name(number: int) -> str:
    """Return the entry of the dataset with the numbers of a term that is held as integers."""
    return f"weight_{number}"
