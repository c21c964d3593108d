"""Levels of categories and labels of groups, identified by their values.

What a category is coded as depends on its container: pandas sorts, Arrow numbers what it meets
first, a part of a table may have levels in another order or fewer of them. So a model keeps the
levels that its numbers stand for, and rows in any container are coded by these. A level is its
value: 1, 1.0, a category 1, and "1" in a column of text are one.
"""

from __future__ import annotations

import datetime
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.libraries import library_of

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[Any, ...]
"""Form of a value that is equal for equal values: its kind, and what it is."""

# Text that is a number as numbers are written; "01" is a code, not a number.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")

# Text that is an integer, or an integer of a column that has become floating point.
_INTEGER = re.compile(r"(-?(?:0|[1-9]\d*))(?:\.0)?")

# Text that is a date or time: as many digits as its column needs, with or without a zone.
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,15})?)?)(Z|[+-]\d\d:\d\d)?"
)

# Texts of flags in Python, R and Arrow.
_FLAGS = {True: ("True", "TRUE", "true", "1"), False: ("False", "FALSE", "false", "0")}


@dataclass(frozen=True)
class Levels:
    """The levels of a category, in the order of their numbers.

    Attributes:
        values: Value of each level, of Python's own types.
        ordered: Whether the order of the levels has a meaning.

    Example:
        >>> Levels((1, 2, 10)).codes([10.0, "1", True, 3]).tolist()
        [2, 0, 0, -1]
    """

    values: tuple[Any, ...]
    ordered: bool = False

    @classmethod
    def of(cls, values: Iterable[Any], ordered: bool = False) -> Levels:
        """Return levels of values of any types, such as NumPy's."""
        return cls(tuple(map(plain, values)), ordered)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, values: Iterable[Any]) -> np.ndarray:
        """Return the number of the level that each value is, int32; -1 for values that are none."""
        return np.fromiter(map(self._code, map(plain, values)), np.int32)

    def _code(self, value: Any) -> int:
        number = self._numbers.get(key_of(value), -1)
        if number >= 0:
            return number
        if isinstance(value, tuple):
            if len(value) != len(self._component_levels):
                return -1
            return self._combined.get(self._component_codes(value), -1)
        is_text = isinstance(value, str)
        candidates = self._keys_of_text(value) if is_text else _texts_of(value)
        numbers = (self._numbers[key] for key in candidates if key in self._numbers)
        number = next(numbers, -1)
        if number < 0:
            number = self._times.get(_time_of(value), -1)
        return number

    @cached_property
    def _times(self) -> dict[Key | None, int]:
        """Numbers of levels that are times, or texts of them."""
        times: dict[Key | None, int] = {}
        for number, value in enumerate(self.values):
            times.setdefault(_time_of(value), number)
        times.pop(None, None)
        return times

    @cached_property
    def _numbers(self) -> dict[Key, int]:
        numbers: dict[Key, int] = {}
        for number, value in enumerate(self.values):
            numbers.setdefault(key_of(value), number)
        return numbers

    def _keys_of_text(self, text: str) -> list[Key]:
        """Return the forms of values, other than this text, that it may stand for."""
        keys: list[Key] = []
        if _NUMBER.fullmatch(text):
            keys.append(key_of(float(text) if re.search(r"[.eE]", text) else int(text)))
        if all(isinstance(value, bool) for value in self.values):
            keys += [key_of(flag) for flag, texts in _FLAGS.items() if text in texts]
        if text in self._written:
            keys.append(self._written[text])
        whole = _INTEGER.fullmatch(text)
        if whole and self._integers_as_text:
            keys += [("text", whole.group(1)), ("text", f"{whole.group(1)}.0")]
        return keys

    @cached_property
    def _written(self) -> dict[str, Key]:
        """Texts of combined levels, dates, intervals and the like."""
        composite = [
            v for v in self.values if not isinstance(v, bool | int | float | str)
        ]
        texts = {
            text: key_of(value) for value in composite for _, text in _texts_of(value)
        }
        return texts | {
            text_of(v): key_of(v) for v in composite if isinstance(v, tuple)
        }

    @cached_property
    def _integers_as_text(self) -> bool:
        """Whether levels are text, and all are different integers."""
        texts = [value for value in self.values if isinstance(value, str)]
        matches = [_INTEGER.fullmatch(text) for text in texts]
        numbers = {match.group(1) for match in matches if match}
        return len(texts) == len(self.values) == len(numbers)

    def _component_codes(self, value: tuple[Any, ...]) -> tuple[int, ...]:
        pairs = zip(self._component_levels, value, strict=True)
        return tuple(int(levels.codes([component])[0]) for levels, component in pairs)

    @cached_property
    def _component_levels(self) -> list[Levels]:
        """Levels of each part of combined levels."""
        combined = all(isinstance(value, tuple) for value in self.values)
        columns = zip(*self.values, strict=True) if combined else ()
        return [
            Levels(tuple({key_of(v): v for v in column}.values())) for column in columns
        ]

    @cached_property
    def _combined(self) -> dict[tuple[int, ...], int]:
        return {
            self._component_codes(value): number
            for number, value in enumerate(self.values)
        }

    def unknown(self, label: str, value: Any, source: str = "model") -> str:
        """Return the message about a value that is not a level.

        Args:
            label: Name of the column, for messages.
            value: Value.
            source: What has the levels.
        """
        shown = 6  # more would hide the rest of the message
        listed = ", ".join(repr(level) for level in self.values[:shown])
        more = ", …" * (len(self) > shown)
        level = plain(value)
        advice = ""
        if isinstance(level, int) and not any(
            isinstance(v, int | float) for v in self.values
        ):
            advice = " Pass the levels themselves, not their numbers."
        return (
            f"`{label}` has the level {text_of(level)!r}, which the {source} has not seen; its "
            f"levels are {listed}{more}.{advice}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the levels in a form that JSON can hold."""
        return {
            "values": [_to_json(value) for value in self.values],
            "ordered": self.ordered,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Levels:
        """Return the levels from the result of :meth:`to_json`."""
        return cls(tuple(map(_from_json, facts["values"])), bool(facts["ordered"]))


def plain(value: Any) -> Any:
    """Return a value as one of Python's own types, if there is such a type.

    A number in 16 or 32 bits is the shortest that rounds to it: 0.1, not 0.10000000149.
    """
    if isinstance(value, np.floating):
        return float(str(value)) if value.dtype.itemsize < 8 else float(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuUS":
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    if type(value).__name__ in ("Decimal", "Fraction"):
        return int(value) if value == int(value) else float(value)
    return str(value) if isinstance(value, str) else value


def key_of(value: Any) -> Key:
    """Return the form of a value, as :func:`plain` returns it, that is equal for equal values."""
    if isinstance(value, str):
        return "text", value
    if isinstance(value, bool | int):
        return "number", int(value)
    if isinstance(value, float):
        return "number", int(value) if value.is_integer() else value
    if isinstance(value, tuple):
        return "tuple", *map(key_of, value)
    if isinstance(value, np.datetime64 | datetime.date):
        return "date", str(_instant(value))
    if _is_duration(value):
        return "duration", str(_duration(value))
    if _is_interval(value):
        return (
            "interval",
            key_of(plain(value.left)),
            key_of(plain(value.right)),
            value.closed,
        )
    return "other", str(value)


def _instant(value: Any) -> np.datetime64:
    """Return a date or time as an instant, in coordinated universal time if it has a zone."""
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if hasattr(value, "to_datetime64"):  # pandas', which has nanoseconds
        value = value.to_datetime64()
    return _in_one_unit(np.datetime64(value))


def _time_of(value: Any) -> Key | None:
    """Return the form of a date or time, or of a text of one; ``None`` of others."""
    if isinstance(value, np.datetime64 | datetime.date):
        return key_of(value)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    try:
        instant = np.datetime64(f"{match[1]}T{match[2]}")
    except ValueError:  # a month 13
        return None
    if match[3] not in (None, "Z"):
        hours, minutes = match[3][1:].split(":")
        offset = np.timedelta64(60 * int(hours) + int(minutes), "m")
        instant += offset if match[3][0] == "-" else -offset
    return key_of(instant)


def _is_duration(value: Any) -> bool:
    if isinstance(value, np.timedelta64):  # a month has no length
        return np.datetime_data(value)[0] not in ("Y", "M", "generic")
    return isinstance(value, datetime.timedelta)


def _duration(value: Any) -> np.timedelta64:
    if hasattr(value, "to_timedelta64"):
        value = value.to_timedelta64()
    return _in_one_unit(np.timedelta64(value))


def _in_one_unit(value: Any) -> Any:
    """Return a date or duration in microseconds, or in the first finer unit that holds it."""
    for unit in ("us", "ns", "ps", "fs"):
        converted = value.astype(f"{value.dtype.kind}8[{unit}]")
        if converted == value:
            return converted
    return value


def _text_of_duration(value: Any) -> str:
    """Return a duration as pandas writes it, such as ``1 days 02:00:00``."""
    return str(importlib.import_module("pandas").Timedelta(_duration(value)))


def _is_interval(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("left", "right", "closed"))


def _texts_of(value: Any) -> list[Key]:
    """Return the texts that a value which is no text may be written as."""
    if isinstance(value, bool):
        texts: Sequence[str] = _FLAGS[value]
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        texts = str(int(value)), f"{int(value)}.0"
    elif isinstance(value, np.datetime64 | datetime.date):
        instant = _instant(value)
        seconds = str(instant).removesuffix(".000000")
        texts = (
            seconds,
            seconds.replace("T", " "),
            str(value),
            seconds.removesuffix("T00:00:00"),
        )
    elif _is_duration(value):
        length = _text_of_duration(value)
        texts = length, length.removesuffix(" 00:00:00"), str(_duration(value))
    else:
        texts = (str(value),)
    return [("text", text) for text in dict.fromkeys(texts)]


def text_of(value: Any) -> str:
    """Return a level as text, for people; parts of combined levels are joined by colons.

    A part that has a colon itself is quoted, so that different levels have different texts.
    """
    if isinstance(value, tuple):
        texts = map(text_of, value)
        return ":".join(
            repr(text) if ":" in text or text[:1] in "'\"" else text for text in texts
        )
    if isinstance(value, np.datetime64 | datetime.date):
        return str(_instant(value)).removesuffix(".000000").removesuffix("T00:00:00")
    if _is_duration(value):
        return _text_of_duration(value).removesuffix(" 00:00:00")
    return str(value)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"tuple": [_to_json(component) for component in value]}
    if isinstance(value, np.datetime64 | datetime.date):
        return {"date": str(_instant(value))}
    if _is_duration(value):
        unit, _ = np.datetime_data(_duration(value))
        return {"duration": [int(_duration(value).astype(np.int64)), unit]}
    if _is_interval(value):
        ends = [_to_json(plain(end)) for end in (value.left, value.right)]
        return {"interval": [*ends, value.closed]}
    return value if isinstance(value, bool | int | float | str) else str(value)


def _from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "tuple" in value:
        return tuple(map(_from_json, value["tuple"]))
    if "date" in value:
        return np.datetime64(value["date"])
    if "duration" in value:
        return np.timedelta64(*value["duration"])
    left, right, closed = value["interval"]
    ends = _from_json(left), _from_json(right)
    return importlib.import_module("pandas").Interval(*ends, closed=closed)


@dataclass(frozen=True)
class Categories:
    """A column of categories.

    Attributes:
        codes: Number of each row's level, int32; -1 if it is missing.
        levels: Levels.
    """

    codes: np.ndarray
    levels: Levels

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the column."""
        return self.codes.shape

    @property
    def missing(self) -> np.ndarray:
        """Whether each row is missing."""
        return self.codes < 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the value of each row."""
        kinds = {type(value) for value in self.levels.values}
        if kinds <= {str} or kinds <= {bool, int, float}:
            values = np.array(self.levels.values)
        else:
            values = np.empty(len(self.levels), object)
            values[:] = self.levels.values
        if not self.missing.any():
            rows = values[self.codes]
        else:
            or_none = np.full(len(values) + 1, None, object)
            or_none[:-1] = values
            rows = or_none[self.codes]
        return rows if dtype is None else rows.astype(dtype)

    def __getitem__(self, rows: Any) -> Categories:
        return Categories(self.codes[rows], self.levels)

    def coded_by(self, levels: Levels, label: str, source: str = "model") -> np.ndarray:
        """Return the number of each row's level among others.

        Args:
            levels: Levels.
            label: Name of the column, for messages.
            source: What has the levels, for messages.

        Raises:
            ValueError: A row has a level that is not there; the message names it.
        """
        table = np.append(levels.codes(self.levels.values), np.int32(-1))
        codes = table[self.codes]
        new = (codes < 0) & ~self.missing
        if new.any():
            value = self.levels.values[self.codes[int(new.argmax())]]
            raise ValueError(levels.unknown(label, value, source))
        return codes


def read_categories(values: Any, label: str = "column") -> Categories | None:
    """Return a column that holds categories, of any library; ``None`` if it holds none.

    Rows whose level is a null are missing.

    Args:
        values: Column.
        label: Name of the column, for messages.

    Raises:
        ValueError: Parts of an ordered category contradict each other.
    """
    if isinstance(values, Categories):
        return values
    library = library_of(values)
    if library == "pandas" and (hasattr(values, "cat") or hasattr(values, "codes")):
        categorical = getattr(values, "cat", values)
        levels = Levels.of(categorical.categories, bool(categorical.ordered))
        return Categories(np.asarray(categorical.codes).astype(np.int32), levels)
    if library == "pandas" and "dictionary" in str(getattr(values, "dtype", "")):
        arrow = importlib.import_module("pyarrow")
        return read_categories(arrow.chunked_array(arrow.array(values)), label)
    if library == "polars" and hasattr(values, "dtype"):
        return read_categories(values.to_arrow(), label)
    if library == "pyarrow" and hasattr(getattr(values, "type", None), "index_type"):
        coder = Coder(label)
        codes = [coder.of_arrow(chunk) for chunk in getattr(values, "chunks", [values])]
        return coder.finished(np.concatenate([np.zeros(0, np.int32), *codes]))
    return None


def as_categorical(column: Categories | None) -> pd.Categorical:
    """Return a column of categories as pandas has it."""
    import pandas as pd

    assert column is not None
    levels = pd.Index(list(column.levels.values))  # of text, numbers or dates
    ordered = column.levels.ordered
    return pd.Categorical.from_codes(column.codes, levels, ordered=ordered)


def factorized(values: Any, label: str = "column") -> Categories:
    """Return a column of any values as categories, whose levels are the values that there are.

    Args:
        values: Column of categories, numbers, text, dates or other values.
        label: Name of the column, for messages.

    Raises:
        ValueError: It is no column.
    """
    categories = read_categories(values, label)
    if categories is not None:
        return categories
    if np.ma.is_masked(values):
        masked = np.ma.asarray(values)
        values = masked.data.astype(object)
        values[np.ma.getmaskarray(masked)] = None
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(
            f"`{label}` must have one value for each row; its shape is {array.shape}."
        )
    if array.dtype.kind != "O":
        distinct, codes = np.unique(array, return_inverse=True)
        missing = np.array([is_missing(value) for value in distinct], bool)
        number = np.where(missing, -1, np.cumsum(~missing) - 1).astype(np.int32)
        return Categories(number[codes.reshape(-1)], Levels.of(distinct[~missing]))
    coder = Coder()
    return Categories(coder.numbered(array.tolist()), coder.levels)


class Coder:
    """Numbers the levels of a column that comes in parts, in the order in which they come up.

    Args:
        label: Name of the column, for messages.
    """

    def __init__(self, label: str = "column") -> None:
        self._label = label
        self._numbers: dict[Key, int] = {}
        self._numbers_by_value: dict[Any, int] = {}
        self._values: list[Any] = []
        self._orders: dict[tuple[int, ...], None] = {}

    def numbered(self, values: Iterable[Any]) -> np.ndarray:
        """Return the numbers of values, to which those that are new are added; -1 if missing."""
        rows, numbers_by_value = list(values), self._numbers_by_value
        try:
            numbers = [
                numbers_by_value[v] if v in numbers_by_value else self._added(v)
                for v in rows
            ]
        except TypeError:  # what cannot be hashed, or compared
            numbers = [self._new(value) for value in rows]
        return np.array(numbers, np.int32)

    def _added(self, value: Any) -> int:
        number = self._new(value)
        if number >= 0:
            self._numbers_by_value[value] = number
        return number

    def _new(self, value: Any) -> int:
        if is_missing(value):
            return -1
        level = plain(value)
        number = self._numbers.setdefault(key_of(level), len(self._values))
        if number == len(self._values):
            self._values.append(level)
        return number

    def add(self, values: Any) -> np.ndarray:
        """Return the numbers of the next rows, of categories or of any values."""
        categories = factorized(values, self._label)
        numbers = self.numbered(categories.levels.values)
        if categories.levels.ordered:
            self._orders[tuple(numbers.tolist())] = None
        return np.append(numbers, np.int32(-1))[categories.codes]

    def of_arrow(self, array: Any) -> np.ndarray:
        """Return the numbers of the next rows, an Arrow array, in a dictionary or not."""
        if not hasattr(array.type, "index_type"):
            array = array.dictionary_encode()
        numbers = self.numbered(array.dictionary.to_pylist())
        if array.type.ordered:
            self._orders[
                tuple(number for number in numbers.tolist() if number >= 0)
            ] = None
        indices = array.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        return np.append(numbers, np.int32(-1))[indices]

    @property
    def levels(self) -> Levels:
        """The levels that have come up, in that order."""
        return Levels(tuple(self._values), bool(self._orders))

    def finished(self, codes: np.ndarray) -> Categories:
        """Return rows by levels in the order that the parts state, if they state one.

        Args:
            codes: Numbers of all rows.

        Raises:
            ValueError: The parts contradict each other, or leave the order open.
        """
        positions = np.append(np.argsort(self.order), -1).astype(np.int32)
        return Categories(positions[codes], self.in_order)

    @property
    def in_order(self) -> Levels:
        """The levels in the order that the parts state, if they state one."""
        return Levels(
            tuple(self._values[number] for number in self.order), bool(self._orders)
        )

    @property
    def order(self) -> list[int]:
        """The numbers of the levels in the order that the parts state, if they state one.

        Raises:
            ValueError: The parts contradict each other, or leave the order open.
        """
        all_numbers = range(len(self._values))
        if not self._orders:
            return list(all_numbers)
        longest = max(self._orders, key=len)
        if len(self._orders) == 1 and len(longest) == len(all_numbers):
            return list(longest)
        after: dict[int, set[int]] = {number: set() for number in all_numbers}
        for stated in self._orders:
            for before, number in zip(stated, stated[1:], strict=False):
                after[number].add(before)
        ordered: dict[int, None] = {}
        while len(ordered) < len(after):
            free = [
                n
                for n, before in after.items()
                if n not in ordered and before <= ordered.keys()
            ]
            if len(free) != 1:
                raise ValueError(self._in_disorder(free))
            ordered[free[0]] = None
        return list(ordered)

    def _in_disorder(self, free: list[int]) -> str:
        orders = [
            " < ".join(str(self._values[n]) for n in stated) for stated in self._orders
        ]
        listed = " and ".join(dict.fromkeys(orders[:3]))
        left = " and ".join(repr(self._values[number]) for number in free[:2])
        problem = (
            f"which leaves the order of {left} open"
            if free
            else "which is no one order"
        )
        return (
            f"`{self._label}` is an ordered category whose parts have the levels {listed}, "
            f"{problem}. Write all parts with one list of levels."
        )
