"""How two fingerprints of samplers differ, in words."""

from __future__ import annotations

import math
from typing import Any

_ROUNDING = 1e-5
"""Log-likelihood and gradient may differ by rounding between two machines."""

_BEFORE = {"updates": "joint"}
"""Settings that earlier versions did not write down, and what held then."""


def difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Return the first difference in words, or ``None`` if there is none."""
    for name in dict.fromkeys([*before, *now]):
        old: Any = before.get(name, _BEFORE.get(name))
        new: Any = now.get(name)
        if name == "model":
            if list(old) != list(new):
                return f"of `log_lik` and `log_prior` there were {list(old)}, now {list(new)}"
            for part in new:
                if not math.isclose(old[part], new[part], rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                    return (
                        f"`log_lik` or `log_prior` differ: at the starting values {part} was "
                        f"{old[part]:.8g} and is {new[part]:.8g}"
                    )
        elif isinstance(old, dict) and isinstance(new, dict):
            for key in dict.fromkeys([*old, *new]):
                if old.get(key) != new.get(key):
                    return _words(f"{name}[{key!r}]", old.get(key), new.get(key))
        elif old != new:
            return _words(name, old, new)
    return None


def _words(name: str, old: Any, new: Any) -> str:
    if name.startswith("dataset"):
        return f"`{name}` holds other values"
    return f"`{name}` was {old!r} and is {new!r}"
