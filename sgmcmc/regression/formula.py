"""Formulas as R writes them: fixed terms to a design matrix, bars to groups, never to a matrix."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sgmcmc.checks import describe

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Bar:
    """A term ``(terms | by)`` of a formula.

    Attributes:
        terms: Terms left of the bar, such as ``1 + x``.
        by: Factor, ``a`` or ``a:b``.
        correlated: Whether effects of one group are correlated; they are not after ``||``.
    """

    terms: str
    by: str
    correlated: bool


@dataclass(frozen=True)
class Formula:
    """A formula in its parts.

    Attributes:
        text: Formula, as the user wrote it.
        response: Name of the response.
        trials, censored: Names of the columns of ``trials(...)`` and ``cens(...)``, if any.
        fixed: Fixed terms, for formulaic.
        offset: Expression inside of ``offset(...)``, if any.
        bars: Effects of groups.
        dotted: Whether fixed terms are all other columns, of which some may be redundant.
    """

    text: str
    response: str
    trials: str | None
    censored: str | None
    fixed: str
    offset: str | None
    bars: tuple[Bar, ...]
    dotted: bool = False


def parse(text: Any) -> Formula:
    """Return a formula in its parts.

    Raises:
        TypeError, ValueError: It is no formula; the message says what is wrong.

    Example:
        >>> parse("y ~ x + (1 + x | a/b)").bars[1].by
        'a:b'
    """
    if not isinstance(text, str):
        raise TypeError(f"`formula` must be text, such as 'y ~ x'; it is {describe(text)}.")
    left, tilde, right = text.partition("~")
    if not tilde or not left.strip() or not right.strip() or "~" in right:
        raise ValueError(f"`formula` must have a response, '~' and terms; it is {text!r}.")
    response, bar, about = (part.strip() for part in left.partition("|"))
    named = re.fullmatch(r"(trials|cens)\s*\(\s*([\w.]+|\d+)\s*\)", about)
    if bar and named is None:
        raise ValueError(
            f"`formula`: after {response!r} | there may be trials(n) or cens(c); there is "
            f"{about!r}."
        )
    rest, bars = _without_bars(re.sub(_FACTOR, "C(", right))
    rest, offset = _without_offset(rest)
    kind = named.group(1) if named else None
    return Formula(
        text,
        response,
        named.group(2) if named and kind == "trials" else None,
        named.group(2) if named and kind == "cens" else None,
        rest,
        offset,
        tuple(bars),
    )


_FACTOR = r"(?<![\w.])(as\.)?factor\s*\("
"""The name that ``C(`` has in R."""

_DOT = r"(?<![\w.])\.(?![\w.])"


def with_dot(formula: Formula, frame: pd.DataFrame, weights: Any) -> Formula:
    """Return a formula whose dot, as in ``y ~ .``, is the sum of all other columns.

    Left out are columns of the left side, of ``offset(...)``, of weights and the factors of bars.
    Names of columns with a dot in them, such as ``Sepal.Length``, are put in backticks.

    Raises:
        ValueError: There are no other columns.
    """
    formula = _with_quoted_names(formula, frame)
    if not re.search(_DOT, formula.fixed):
        return formula
    sides = [formula.response, formula.trials, formula.censored, formula.offset, weights]
    text = " ".join(side for side in sides if isinstance(side, str))
    used = {*_names(text), *(name for bar in formula.bars for name in bar.by.split(":"))}
    others = [str(name) for name in frame.columns if str(name) not in used]
    if not others:
        raise ValueError("`formula`: '.' is all other columns, and there are no other columns.")
    named = [name if re.fullmatch(r"[^\W\d]\w*", name) else f"`{name}`" for name in others]
    fixed = re.sub(_DOT, lambda _: f"({' + '.join(named)})", formula.fixed)
    return replace(formula, fixed=fixed, dotted=True)


def _with_quoted_names(formula: Formula, frame: pd.DataFrame) -> Formula:
    dotted = [str(name) for name in frame.columns if "." in str(name)]
    if not dotted:
        return formula
    longest = sorted(dotted, key=len, reverse=True)
    pattern = rf"(?<![\w.`])({'|'.join(map(re.escape, longest))})(?![\w.(`])"

    def quoted(text: str) -> str:
        return re.sub(pattern, r"`\1`", text)

    return replace(
        formula,
        fixed=quoted(formula.fixed),
        offset=None if formula.offset is None else quoted(formula.offset),
        bars=tuple(replace(bar, terms=quoted(bar.terms)) for bar in formula.bars),
    )


def _names(text: str) -> set[str]:
    """Return the possible names of columns in a text, with or without backticks."""
    return {*re.findall(r"[^\W\d]\w*(?:\.\w+)*", text), *re.findall(r"`([^`]+)`", text)}


def used_columns(formula: Formula, frame: pd.DataFrame, weights: Any) -> list[Any]:
    """Return the columns that a formula or weights name."""
    named = _names(f"{formula.text} {formula.fixed}")
    if isinstance(weights, str):
        named.add(weights)
    found = [name for name in frame.columns if str(name) in named]
    for name in found:
        if found.count(name) > 1:
            raise ValueError(
                f"`data` has {found.count(name)} columns {name!r}. Rename all but one."
            )
    return found


def _closing(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes the one at ``start``."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(f"`formula`: a parenthesis is not closed in {text.strip()!r}.")


def _without_bars(text: str) -> tuple[str, list[Bar]]:
    """Return the terms without those in parentheses that have a bar, and these."""
    kept, bars, place = "", [], 0
    while place < len(text):
        if text[place] == "(" and not re.search(r"[\w.]$", kept):
            end = _closing(text, place)
            inside = text[place + 1 : end]
            if "|" in inside:
                bars += _bars(inside)
                kept, place = kept + "0_", end + 1
                continue
            kept, place = kept + text[place : end + 1], end + 1
            continue
        kept, place = kept + text[place], place + 1
    return _without_places(kept), bars


def _without_places(text: str) -> str:
    """Return terms without the places ``0_`` of those that were removed.

    Raises:
        ValueError: One of those was not added to the others.
    """
    kept = re.sub(r"(^|\+)\s*\b0_\s*(?=[+-]|$)", "", text.strip()).strip().removeprefix("+")
    if re.search(r"\b0_", kept):
        raise ValueError(
            "`formula`: bars and offset(...) must be added to the other terms; they have no "
            "interactions, and cannot be removed."
        )
    return kept.strip() or "1"


def _bars(inside: str) -> list[Bar]:
    correlated = "||" not in inside
    terms, _, by = inside.replace("||", "|").partition("|")
    factors = [re.sub(r"\bC\(\s*([\w.]+)\s*\)", r"\1", part).strip() for part in by.split("/")]
    if not terms.strip() or not all(re.fullmatch(r"[\w.]+(\s*:\s*[\w.]+)*", f) for f in factors):
        raise ValueError(
            f"`formula`: ({inside}) must have terms, a bar and a factor, as in (1 + x | site)."
        )
    found = []
    for level in range(len(factors)):
        names = ":".join(factors[: level + 1]).replace(" ", "")
        found.append(Bar(terms.strip(), names, correlated))
    return found


def _without_offset(text: str) -> tuple[str, str | None]:
    found: list[str] = []
    while match := re.search(r"\boffset\s*\(", text):
        end = _closing(text, match.end() - 1)
        found.append(text[match.end() : end].strip())
        text = text[: match.start()] + "0_" + text[end + 1 :]
    if not found:
        return text, None
    whole = found[0] if len(found) == 1 else " + ".join(f"({each})" for each in found)
    return _without_places(text), whole
