"""Checks of single values: numbers, flags, choices and names; names that have changed.

Each function takes the name of the argument, so that its message can name it.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import numbers
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

Named = TypeVar("Named", bound=Callable[..., Any])


@contextlib.contextmanager
def named(argument: str, name: str) -> Iterator[None]:
    """Have errors on an argument of the package's own say the name of the user's."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = str(error).replace(f"`{argument}", f"`{name}")
        raise type(error)(text) from None


def outside() -> int:
    """Return the ``stacklevel`` at which the caller's warning names the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in (
        "sgmcmc",
        "tensorflow",
    ):
        if frame.f_back is None:
            break
        level, frame = level + 1, frame.f_back
    return level


def did_you_mean(word: str, options: Iterable[str], quote: str = "'") -> str:
    """Return a question after the option that is nearest to a word, or nothing if none is near."""
    near = difflib.get_close_matches(word, list(options), 1)
    return f" Did you mean {quote}{near[0]}{quote}?" if near else ""


def or_list(options: Iterable[str]) -> str:
    """Return 'a', 'b' or 'c', in words."""
    return in_words([repr(option) for option in options], "or")


def in_words(items: Sequence[str], last: str) -> str:
    """Return a, b and c, with the word before the last."""
    head = ", ".join(items[:-1])
    return f"{head} {last} {items[-1]}" if head else items[0]


def describe(value: Any) -> str:
    """Describe a value of the wrong kind in a few words."""
    shape = getattr(value, "shape", None)
    if shape is not None and shape != ():
        return f"an array of shape {tuple(shape)}"
    if isinstance(value, str) and "://" in value:
        return "a URL"  # which may have a password in it
    text = repr(value)
    kind = type(value).__name__
    if len(text) <= 60:
        return f"{text} ({kind})"
    return f"an {kind}" if kind[0] in "AEIOUaeiou" else f"a {kind}"


def from_outside(part: Any) -> bool:
    """Return whether an object's class is user-defined, not one of this package."""
    return type(part).__module__.partition(".")[0] != "sgmcmc"


def whole_number(argument: str, value: Any, least: int) -> int:
    """Return ``value`` as an ``int``; whole floats pass, because R has no others."""
    message = (
        f"`{argument}` must be an integer, {least} or more; it is {describe(value)}."
    )
    if not is_number(value):
        raise TypeError(message)
    if not float(value).is_integer() or value < least:
        raise ValueError(message)
    return int(value)


def positive_number(argument: str, value: Any) -> float:
    """Return ``value`` as a ``float`` that is positive and finite."""
    if (
        not is_number(value)
        and getattr(value, "shape", None) == ()
        and hasattr(value, "dtype")
    ):
        value = np.asarray(value).item()  # an array or a tensor of one number
    if not is_number(value):
        raise TypeError(
            f"`{argument}` must be a positive number; it is {describe(value)}."
        )
    if not (value > 0 and np.isfinite(value)):
        raise ValueError(f"`{argument}` must be positive and finite; it is {value!r}.")
    return float(value)


def flag(argument: str, value: Any, or_else: str = "") -> bool:
    """Return ``value`` if it is true or false; ``or_else`` names another allowed value."""
    if not isinstance(value, bool | np.bool_):
        wanted = f"True, False {or_else}" if or_else else "True or False"
        raise TypeError(f"`{argument}` must be {wanted}; it is {describe(value)}.")
    return bool(value)


def choice(argument: str, value: Any, options: Iterable[str]) -> str:
    """Return ``value`` if it is one of the options."""
    options = list(options)
    if not isinstance(value, str) or value not in options:
        it_is = repr(value) if isinstance(value, str) else describe(value)
        raise ValueError(f"`{argument}` must be {or_list(options)}; it is {it_is}.")
    return str(value)


def seed_number(argument: str, value: Any) -> int:
    """Return the seed, or fresh entropy if there is none."""
    if value is None:
        return int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
    return whole_number(argument, value, 0)


def floating_dtype(argument: str, value: Any) -> tf.DType:
    """Return ``tf.float32`` or ``tf.float64``."""
    import tensorflow as tf  # a process that only reads data does without

    try:
        dtype = tf.as_dtype(value)
    except (TypeError, ValueError):
        dtype = None
    if dtype not in (tf.float32, tf.float64):
        raise ValueError(
            f"`{argument}` must be tf.float32 or tf.float64; it is {value!r}."
        )
    return dtype


def minibatch_rows(argument: str, value: Any, size: int) -> int:
    """Return n: a proportion of N if between 0 and 1, else an integer from 1 to N."""
    message = (
        f"`{argument}` must be a proportion between 0 and 1 or an integer from 1 to {size}, the "
        f"observations in `dataset`; it is {describe(value)}."
    )
    if not is_number(value):
        raise TypeError(message)
    if 0 < value < 1:
        rows = round(float(value) * size)
        if rows == 0:
            raise ValueError(
                f"`{argument}`: a proportion of {value:g} of the {size} observations is none of "
                f"them. Give the number itself, from 1 to {size}."
            )
        return rows
    if not (float(value).is_integer() and 1 <= value <= size):
        raise ValueError(message)
    return int(value)


def function(argument: str, value: Any, signature: str) -> Callable[..., Any]:
    """Return ``value`` if it can be called."""
    if not callable(value):
        raise TypeError(
            f"`{argument}` must be a function {signature}; it is {describe(value)}."
        )
    return value


def known_keys(
    argument: str, keys: Iterable[Any], allowed: Iterable[str], what: str
) -> None:
    """Raise an error at a key that is not one of those allowed."""
    allowed = list(allowed)
    for key in keys:
        if key not in allowed:
            raise ValueError(
                f"`{argument}` names {key!r}, but {what}: {', '.join(map(repr, allowed))}."
                + did_you_mean(str(key), allowed)
            )


def varies(sd: np.ndarray, mean: np.ndarray, rounding: float = 1e-12) -> np.ndarray:
    """Return whether columns of these moments vary, by more than rounding.

    Args:
        sd, mean: Standard deviation and mean of each column.
        rounding: Error of a standard deviation, relative to the mean.
    """
    return np.asarray(sd > rounding * np.abs(mean))


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number; ``True`` and ``False`` are not."""
    return isinstance(value, numbers.Real | np.number) and not isinstance(
        value, bool | np.bool_
    )


def by_name(argument: str, value: Any, what: str) -> dict[str, Any]:
    """Return a dict whose keys are strings; ``None`` is an empty one.

    ``what`` describes its values.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"`{argument}` must be a dict {what}; it is {describe(value)}.")
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}`: its keys must be strings; {name!r} is not.")
    return dict(value)


RENAMED = {
    "at_centre": "at_center",
    "centre": "center",
    "centre_at": "center_at",
    "centred": "centered",
    "parameterisation": "parameterization",
    "store_unnormalised": "store_unnormalized",
    "unnormalised": "unnormalized",
    "MatrixFactorisation": "MatrixFactorization",
    "matrix_factorisation": "matrix_factorization",
}
"""New name of each argument, attribute, function or class that changed."""


def renamed(*olds: str) -> Callable[[Named], Named]:
    """Return the decorator of a function or class some of whose arguments have an old name too.

    Of a class, attributes of that name can be read too.

    Args:
        olds: Old names; the function has the new ones of ``RENAMED``.

    Example:
        >>> @renamed("centre_at")
        ... def far(center_at=0.0):
        ...     return center_at + 1.0
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     far(centre_at=2.0)
        3.0
        >>> str(caught[0].message)
        '`centre_at` is called `center_at` now; the old name works until version 1.0.'
    """

    def accept(thing: Named) -> Named:
        if not isinstance(thing, type):
            return _accepting(thing, olds)
        if "__init__" in vars(thing):
            setattr(thing, "__init__", _accepting(vars(thing)["__init__"], olds))  # noqa: B010
        for old in olds:
            setattr(thing, old, _alias(old))
        return thing

    return accept


def _accepting(function: Named, olds: tuple[str, ...]) -> Named:
    """Return a function that takes its arguments by these old names too."""

    @functools.wraps(function)
    def accepting(*args: Any, **arguments: Any) -> Any:
        for old in olds:
            if old in arguments:
                if RENAMED[old] in arguments:
                    raise TypeError(
                        f"`{RENAMED[old]}` was given twice, also as `{old}`."
                    )
                _warn(old)
                arguments[RENAMED[old]] = arguments.pop(old)
        return function(*args, **arguments)

    return accepting  # type: ignore[return-value]


def _alias(old: str) -> property:
    def read(self: Any) -> Any:
        _warn(old)
        return getattr(self, RENAMED[old])

    return property(read, doc=f"Old name of ``{RENAMED[old]}``.")


def adopt_renamed(part: type, *olds: str) -> None:
    """Add to a user's class the new names of attributes defined under old ones.

    Args:
        part: Class.
        olds: Old names.
    """
    for old in olds:
        if old in vars(part) and RENAMED[old] not in vars(part):
            _warn(old, 5)  # the class statement, behind ABCMeta
            setattr(part, RENAMED[old], vars(part)[old])


def looked_up_renamed(room: Mapping[str, Any], name: str) -> Any:
    """Return a module's attribute by the new name of ``name``, for its ``__getattr__``.

    Args:
        room: Globals of the module.
        name: Name that the module does not have.

    Raises:
        AttributeError: There was never such a name.
    """
    if RENAMED.get(name) not in room:
        raise AttributeError(f"module {room['__name__']!r} has no attribute {name!r}")
    _warn(name, 4)
    return room[RENAMED[name]]


def up_to_date(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that an earlier version may have stored, under the names of this one.

    Example:
        >>> up_to_date({"dynamics": {"name": "SGRLD", "parameterisation": "expanded_mean"}})
        {'dynamics': {'name': 'SGRLD', 'parameterization': 'expanded_mean'}}
    """
    now = {RENAMED.get(name, name): fact for name, fact in settings.items()}
    parts = {name: now[name] for name in ("dynamics", "gradient") if name in now}
    for name, part in parts.items():
        if isinstance(part, Mapping):
            now[name] = {RENAMED.get(key, key): value for key, value in part.items()}
    return now


def _warn(old: str, level: int = 3) -> None:
    warnings.warn(
        f"`{old}` is called `{RENAMED[old]}` now; the old name works until version 1.0.",
        DeprecationWarning,
        stacklevel=level,
    )
