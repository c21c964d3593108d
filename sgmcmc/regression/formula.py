"""Formulas as R writes them: fixed terms to a design matrix, bars to groups, never to a matrix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sgmcmc.checks import describe

if TYPE_CHECKING:
    import pandas as pd


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


_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<quoted>`[^`]+`)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?L?)
    |(?P<name>[^\W\d]\w*)
    |(?P<op>%%|%/%|%in%|\|\||&&|\*\*|//|<=|>=|==|!=|.)""",
    re.VERBOSE | re.DOTALL,
)

_DOTTED = re.compile(r"\.?[^\W\d][\w.]*")


@dataclass(frozen=True)
class Token:
    """A token of a formula.

    Attributes:
        kind: "quoted" for names of columns in backticks or with dots, "string", "number", "name",
            "op", or "end".
        text: Token; of a column its name.
        start, end: Positions in the text.
    """

    kind: str
    text: str
    start: int
    end: int


def tokens_of(text: str, columns: Collection[str] = ()) -> list[Token]:
    """Return the tokens of a text.

    Args:
        text: Text.
        columns: Names of columns; those with dots, such as ``Sepal.Length``, are one token.
    """
    dotted = {name for name in columns if "." in name}
    tokens, position = [], 0
    while position < len(text):
        column = _dotted_column(text, position, dotted) if dotted else None
        if column:
            tokens.append(Token("quoted", column, position, position + len(column)))
            position += len(column)
            continue
        match = _TOKEN.match(text, position)
        assert match is not None and match.lastgroup is not None
        if match.lastgroup != "space":
            shown = unquoted(match[0]) if match.lastgroup == "quoted" else match[0]
            tokens.append(Token(match.lastgroup, shown, position, match.end()))
        position = match.end()
    for token in tokens:
        if token.kind == "op" and token.text in "`'\"":
            raise ValueError(
                f"`formula`: {token.text} is not closed in {text.strip()!r}."
            )
    return tokens


def _dotted_column(text: str, start: int, dotted: Collection[str]) -> str | None:
    """Return the longest name with dots that starts at a position, and is no function's."""
    inside_word = start > 0 and re.match(r"[\w.]", text[start - 1])
    match = None if inside_word else _DOTTED.match(text, start)
    longest = match[0] if match else ""
    for end in range(len(longest), 0, -1):
        remainder = text[start + end :]
        if longest[:end] in dotted and not re.match(r"\w|\s*\(", remainder):
            return longest[:end]
    return None


def closing(tokens: Sequence[Token], start: int, text: str) -> int:
    """Return the number of the token that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(tokens)):
        if tokens[index].kind == "op":
            depth += (tokens[index].text in "([{") - (tokens[index].text in ")]}")
        if depth == 0:
            return index
    raise ValueError(f"`formula`: a parenthesis is not closed in {text.strip()!r}.")


def outer_operators(tokens: Sequence[Token]) -> list[Token]:
    """Return the operators that are in no parentheses."""
    operators, depth = [], 0
    for token in tokens:
        if token.kind != "op":
            continue
        depth -= token.text in ")]}"
        if depth == 0:
            operators.append(token)
        depth += token.text in "([{"
    return operators


def columns_in(text: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a text names, in the order of the text."""
    tokens = [*tokens_of(text, columns), Token("end", "", len(text), len(text))]
    named: dict[str, None] = {}
    neighbors = zip([tokens[-1], *tokens], tokens, tokens[1:], strict=False)
    for before, token, after in neighbors:
        if token.text not in columns:
            continue
        is_called = after.kind == "op" and after.text in ("(", "=")
        is_attribute = before.kind == "op" and before.text == "."
        if token.kind == "quoted":
            named[token.text] = None
        elif token.kind == "name" and not is_called and not is_attribute:
            named[token.text] = None
    return list(named)


def atoms_of(
    text: str, columns: Collection[str], prefix: str
) -> tuple[str, dict[str, str]]:
    """Return terms whose factors are replaced by plain names, and the factors by these names.

    Args:
        text: Terms, such as ``x * C(f)``.
        columns: Names of columns.
        prefix: Beginning of the plain names.

    Example:
        >>> atoms_of("x * log(`a b`)", ["x", "a b"], "part")
        ('part0_ * part1_', {'part0_': 'x', 'part1_': 'log(`a b`)'})
    """
    tokens = tokens_of(text, columns)
    replaced, last, index = "", 0, 0
    names: dict[str, str] = {}
    while index < len(tokens):
        token = tokens[index]
        first = index
        if token.kind in ("name", "quoted"):
            index = _after_factor(tokens, index, text)
            atom = text[token.start : tokens[index - 1].end]
        elif token.kind == "op" and token.text == "{":
            index = closing(tokens, index, text) + 1
            atom = text[token.end : tokens[index - 1].start]
        else:
            index += 1
            continue
        name = names.setdefault(atom, f"{prefix}{len(names)}_")
        replaced += text[last : tokens[first].start] + name
        last = tokens[index - 1].end
    return replaced + text[last:], {name: atom for atom, name in names.items()}


def _after_factor(tokens: Sequence[Token], index: int, text: str) -> int:
    """Return the number of the token after a factor: a name, with calls and attributes."""
    callable_ = tokens[index].kind == "name"
    index += 1
    while index < len(tokens) and tokens[index].kind == "op":
        if tokens[index].text == "(" and callable_:
            index = closing(tokens, index, text) + 1
        elif tokens[index].text == "." and index + 1 < len(tokens):
            index, callable_ = index + 2, True
            continue
        else:
            break
    return index


def shown(name: str) -> str:
    """Return a column as it is written inside of expressions."""
    return name if PLAIN.fullmatch(name) else quoted(name)


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
        response: Expression of the response.
        trials, censored: Expressions inside of ``trials(...)`` and ``cens(...)``, if any.
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
        raise TypeError(
            f"`formula` must be text, such as 'y ~ x'; it is {describe(text)}."
        )
    operators = outer_operators(tokens_of(text))
    tildes = [operator for operator in operators if operator.text == "~"]
    left, right = "", ""
    if len(tildes) == 1:
        left, right = text[: tildes[0].start], text[tildes[0].end :]
    if not left.strip() or not right.strip():
        raise ValueError(
            f"`formula` must have a response, '~' and terms; it is {text!r}."
        )
    response, about = _left_side(left)
    right = _FACTOR.sub(lambda match: match[1] or "C(", right)
    fixed, bars = _without_bars(right)
    fixed, offset = _without_offset(fixed)
    return Formula(
        text=text,
        response=response,
        trials=about.get("trials"),
        censored=about.get("cens"),
        fixed=fixed,
        offset=offset,
        bars=tuple(bars),
    )


def _left_side(text: str) -> tuple[str, dict[str, str]]:
    """Return the response, and what stands in ``trials(...)`` or ``cens(...)`` after a bar."""
    operators = outer_operators(tokens_of(text))
    bar = next((operator for operator in operators if operator.text == "|"), None)
    if bar is None:
        return text.strip(), {}
    response, about = text[: bar.start].strip(), text[bar.end :].strip()
    named = re.fullmatch(r"(trials|cens)\s*\((.+)\)", about, re.DOTALL)
    tokens = tokens_of(about)
    if named is None or closing(tokens, 1, about) < len(tokens) - 1:
        raise ValueError(
            f"`formula`: after {response!r} | there may be trials(n) or cens(c); there is "
            f"{about!r}."
        )
    return response, {named.group(1): named.group(2).strip()}


# The name that `C(` has in R, or what is quoted.
_FACTOR = re.compile(r"(`[^`]*`|\"[^\"]*\"|'[^']*')|(?<![\w.])(?:as\.)?factor\s*\(")

# A dot that is all other columns, or what is quoted.
_DOT = re.compile(r"(`[^`]*`|\"[^\"]*\"|'[^']*')|(?<![\w.])\.(?![\w.])")


def with_dot(formula: Formula, frame: pd.DataFrame, weights: Any) -> Formula:
    """Return a formula whose dot, as in ``y ~ .``, is the sum of all other columns.

    Left out are columns of the left side, of ``offset(...)``, of weights and the factors of bars.
    Names of columns with a dot in them, such as ``Sepal.Length``, are put in backticks.

    Raises:
        ValueError: There are no other columns.
    """
    columns = [str(name) for name in frame.columns]
    fixed, offset = _quoted_in(formula.fixed, columns), formula.offset
    offset = None if offset is None else _quoted_in(offset, columns)
    bars = [replace(bar, terms=_quoted_in(bar.terms, columns)) for bar in formula.bars]
    formula = replace(formula, fixed=fixed, offset=offset, bars=tuple(bars))
    if not any(match[1] is None for match in _DOT.finditer(formula.fixed)):
        return formula
    expressions = [formula.response, formula.trials, formula.censored, formula.offset]
    used = {
        name
        for expression in expressions
        if expression
        for name in columns_in(expression, columns)
    }
    used |= {name for bar in formula.bars for name in columns_of(bar.by)}
    used |= {weights} if isinstance(weights, str) else set()
    remaining = [name for name in columns if name not in used]
    if not remaining:
        raise ValueError(
            "`formula`: '.' is all other columns, and there are no other columns."
        )
    total = f"({' + '.join(map(shown, remaining))})"
    fixed = _DOT.sub(lambda match: match[1] or total, formula.fixed)
    return replace(formula, fixed=fixed, dotted=True)


def _quoted_in(text: str, columns: list[str]) -> str:
    """Return a text with all quoted names, and names with dots, in backticks."""
    replaced, last = "", 0
    for token in tokens_of(text, columns):
        if token.kind == "quoted":
            replaced += text[last : token.start] + quoted(token.text)
            last = token.end
    return replaced + text[last:]


def used_columns(formula: Formula, frame: pd.DataFrame, weights: Any) -> list[Any]:
    """Return the columns that a formula or weights name.

    Raises:
        ValueError: Two columns have one name.
    """
    columns = [str(name) for name in frame.columns]
    named = {*columns_in(f"{formula.text} + {formula.fixed}", columns)}
    if isinstance(weights, str):
        named.add(weights)
    used = [name for name in frame.columns if str(name) in named]
    for name in used:
        if used.count(name) > 1:
            raise ValueError(
                f"`data` has {used.count(name)} columns {name!r}. Rename all but one."
            )
    return used


_REMOVED = "\0"  # mark in the place of bars and offsets


def _without_bars(text: str) -> tuple[str, list[Bar]]:
    """Return the terms without those in parentheses that have a bar, and these."""
    tokens = tokens_of(text)
    remaining, bars, last, index = "", [], 0, 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != "op" or token.text != "(":
            index += 1
            continue
        end = closing(tokens, index, text)
        called = index > 0 and tokens[index - 1].kind in ("name", "quoted")
        operators = outer_operators(tokens[index + 1 : end])
        has_bar = any(operator.text in ("|", "||") for operator in operators)
        if has_bar and not called:
            bars += _bars(text[token.end : tokens[end].start])
            remaining += text[last : token.start] + _REMOVED
            last = tokens[end].end
        index = end + 1
    return _without_marks(remaining + text[last:]), bars


def _without_marks(text: str) -> str:
    """Return terms without the marks of those that were removed.

    Raises:
        ValueError: One of those was not added to the others.
    """
    remaining = re.sub(rf"(^|\+)\s*{_REMOVED}\s*(?=[+-]|$)", "", text.strip()).strip()
    remaining = remaining.removeprefix("+").strip()
    if _REMOVED in remaining:
        raise ValueError(
            "`formula`: bars and offset(...) must be added to the other terms; they have no "
            "interactions, and cannot be removed."
        )
    return remaining or "1"


def _bars(inside: str) -> list[Bar]:
    operators = outer_operators(tokens_of(inside))
    bar = next(operator for operator in operators if operator.text in ("|", "||"))
    terms, by = inside[: bar.start].strip(), inside[bar.end :]
    factors = [_factor(factor) for factor in _split(by, "/")]
    if not terms or not all(factors):
        raise ValueError(
            f"`formula`: ({inside}) must have terms, a bar and a factor, as in (1 + x | site)."
        )
    bars = []
    columns: dict[str, None] = {}
    for factor in factors:  # of a nested factor a/b: a, then a:b
        columns |= dict.fromkeys(factor)
        bars.append(Bar(terms, spelled(list(columns)), bar.text == "|"))
    return bars


def _split(text: str, operator: str) -> list[str]:
    """Return the parts of a text between operators that are in no parentheses."""
    operators = outer_operators(tokens_of(text))
    cuts = [token for token in operators if token.text == operator]
    starts = [0, *(token.end for token in cuts)]
    ends = [*(token.start for token in cuts), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _factor(text: str) -> list[str]:
    """Return the columns of a factor, such as ``a:b`` or ``C(a)``; none if it is no factor."""
    columns = []
    for factor in _split(text, ":"):
        named = re.fullmatch(r"C\(\s*(.+?)\s*\)", factor)
        name = named.group(1) if named else factor
        if not re.fullmatch(r"`[^`]+`|[\w.]+", name):
            return []
        columns.append(unquoted(name))
    return columns


def _without_offset(text: str) -> tuple[str, str | None]:
    tokens = tokens_of(text)
    offsets: list[str] = []
    remaining, last = "", 0
    for index, (token, after) in enumerate(zip(tokens, tokens[1:], strict=False)):
        is_name = token.kind == "name" and token.text == "offset"
        is_call = after.kind == "op" and after.text == "("
        if is_name and is_call and token.start >= last:
            end = tokens[closing(tokens, index + 1, text)]
            offsets.append(text[after.end : end.start].strip())
            remaining += text[last : token.start] + _REMOVED
            last = end.end
    if not offsets:
        return text, None
    total = offsets[0]
    if len(offsets) > 1:
        total = " + ".join(f"({offset})" for offset in offsets)
    return _without_marks(remaining + text[last:]), total
