"""Words for messages: what came, what it may have been meant to be, what it might have been."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(word: str, options: Iterable[str], quote: str = "'") -> str:
    """Return a question after the option that is nearest to a word, or nothing if none is near."""
    near = difflib.get_close_matches(word, list(options), 1)
    return f" Did you mean {quote}{near[0]}{quote}?" if near else ""


def or_list(options: Iterable[str]) -> str:
    """Return 'a', 'b' or 'c', in words."""
    quoted = [repr(option) for option in options]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else quoted[0]


def describe(value: Any) -> str:
    """Return a few words on a value of the wrong kind."""
    shape = getattr(value, "shape", None)
    if shape is not None and shape != ():
        return f"an array of shape {tuple(shape)}"
    text = repr(value)
    kind = type(value).__name__
    if len(text) <= 60:
        return f"{text} ({kind})"
    return f"an {kind}" if kind[0] in "AEIOUaeiou" else f"a {kind}"
