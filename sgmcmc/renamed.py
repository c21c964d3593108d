"""Names that changed. Each old one works until version 1.0, and a warning says the new one."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Named = TypeVar("Named", bound=Callable[..., Any])

NEW = {
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


def also(*olds: str) -> Callable[[Named], Named]:
    """Return the decorator of a function or class some of whose arguments have an old name too.

    Of a class, attributes of that name can be read too.

    Args:
        olds: Old names; the function has the new ones of ``NEW``.

    Example:
        >>> @also("centre_at")
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
                if NEW[old] in arguments:
                    raise TypeError(f"`{NEW[old]}` was given twice, also as `{old}`.")
                _warn(old)
                arguments[NEW[old]] = arguments.pop(old)
        return function(*args, **arguments)

    return accepting  # type: ignore[return-value]


def _alias(old: str) -> property:
    def read(self: Any) -> Any:
        _warn(old)
        return getattr(self, NEW[old])

    return property(read, doc=f"Old name of ``{NEW[old]}``.")


def adopt(part: type, *olds: str) -> None:
    """Give what a user's class defines under an old name its new name.

    Args:
        part: Class.
        olds: Old names.
    """
    for old in olds:
        if old in vars(part) and NEW[old] not in vars(part):
            _warn(old, 5)  # the class statement, behind ABCMeta
            setattr(part, NEW[old], vars(part)[old])


def looked_up(room: Mapping[str, Any], name: str) -> Any:
    """Return what a module has under the new name of ``name``, for its ``__getattr__``.

    Args:
        room: Globals of the module.
        name: Name that the module does not have.

    Raises:
        AttributeError: There was never such a name.
    """
    if NEW.get(name) not in room:
        raise AttributeError(f"module {room['__name__']!r} has no attribute {name!r}")
    _warn(name, 4)
    return room[NEW[name]]


def up_to_date(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that an earlier version may have stored, under the names of this one.

    Example:
        >>> up_to_date({"dynamics": {"name": "SGRLD", "parameterisation": "expanded_mean"}})
        {'dynamics': {'name': 'SGRLD', 'parameterization': 'expanded_mean'}}
    """
    now = {NEW.get(name, name): fact for name, fact in settings.items()}
    parts = {name: now[name] for name in ("dynamics", "gradient") if name in now}
    for name, part in parts.items():
        if isinstance(part, Mapping):
            now[name] = {NEW.get(key, key): value for key, value in part.items()}
    return now


def _warn(old: str, level: int = 3) -> None:
    warnings.warn(
        f"`{old}` is called `{NEW[old]}` now; the old name works until version 1.0.",
        DeprecationWarning,
        stacklevel=level,
    )
