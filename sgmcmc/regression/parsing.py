"""Text of formulas: tokens, names of columns, and expressions with the precedence of R."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from sgmcmc.regression.names import PLAIN, quoted, unquoted

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

_COMPARED: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE,
    "%in%": ast.In, "in": ast.In,
}  # fmt: skip

# Operators with their precedence in R; those of Python alone have that of `*`.
_BINARY: dict[str, tuple[int, type[ast.operator]]] = {
    "|": (1, ast.BitOr), "&": (2, ast.BitAnd), "+": (5, ast.Add), "-": (5, ast.Sub),
    "*": (6, ast.Mult), "/": (6, ast.Div), "//": (6, ast.FloorDiv), "%": (6, ast.Mod),
    "%%": (7, ast.Mod), "%/%": (7, ast.FloorDiv), "**": (9, ast.Pow),
}  # fmt: skip

_NOT, _COMPARISON, _SIGN, _POWER = 3, 4, 8, 9

_OPENING = {"(": ")", "[": "]", "{": "}"}

_CONSTANTS = {"TRUE": True, "True": True, "FALSE": False, "False": False, "None": None}


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
    match = (
        None
        if start and re.match(r"[\w.]", text[start - 1])
        else _DOTTED.match(text, start)
    )
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


def top_level(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens that are in no parentheses, with their numbers."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "op" and token.text in ")]}":
            depth -= 1
        if depth == 0:
            yield index, token
        if token.kind == "op" and token.text in "([{":
            depth += 1


def columns_in(text: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a text names, in the order of the text."""
    tokens = [*tokens_of(text, columns), Token("end", "", len(text), len(text))]
    named: dict[str, None] = {}
    for before, token, after in zip(
        [tokens[-1], *tokens], tokens, tokens[1:], strict=False
    ):
        called = (
            token.kind == "name" and after.text in ("(", "=") and after.kind == "op"
        )
        attribute = before.kind == "op" and before.text == "."
        if token.kind in ("name", "quoted") and token.text in columns and not called:
            if token.kind == "quoted" or not attribute:
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


@dataclass
class Parser:
    """A parser of expressions, with the precedence of R and the calls and methods of Python.

    Names of columns that Python cannot have, or that functions have, get plain names.

    Args:
        text: Expression.
        columns: Names of columns.

    Attributes:
        named: Column by its name in the tree.

    Example:
        >>> ast.unparse(Parser("x > 0 & !a", ["x", "a"]).parse())
        '(x > 0) & ~a'
    """

    text: str
    columns: Collection[str]
    named: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        end = Token("end", "", len(self.text), len(self.text))
        self._tokens = [*tokens_of(self.text, self.columns), end]
        self._index = 0
        self._prefix = "quoted"
        while any(name.startswith(self._prefix) for name in self.columns):
            self._prefix += "_"

    def parse(self) -> ast.expr:
        """Return the tree.

        Raises:
            ValueError: It is no expression.
        """
        tree = self._expression(0)
        if self._now.kind != "end":
            self._refuse()
        return tree

    @property
    def _now(self) -> Token:
        return self._tokens[self._index]

    def _is(self, *texts: str) -> bool:
        return self._now.kind == "op" and self._now.text in texts

    def _next(self) -> Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _refuse(self, reason: str = "") -> None:
        remainder = self.text[self._now.start :].strip()
        where = f" at {remainder[:20]!r}" if remainder else ", which ends too early"
        raise ValueError(
            f"`formula`: {self.text.strip()!r} cannot be read{where}. {reason}".rstrip()
        )

    def _need(self, text: str) -> None:
        if not self._is(text):
            self._refuse(f"There should be {text!r}.")
        self._next()

    def _expression(self, weakest: int) -> ast.expr:
        """Return an expression of operators with at least this precedence."""
        left = self._prefixed()
        while True:
            text = self._now.text if self._now.kind in ("op", "name") else ""
            if text in ("&&", "||", "and", "or"):
                single = "&" if text in ("&&", "and") else "|"
                self._refuse(f"Write {single} for {text}: it is for each row.")
            if text == "^":
                raise ValueError(
                    f"`formula`: {self.text!r} has ^. Powers inside of I() are x ** 2."
                )
            if text in _COMPARED and weakest <= _COMPARISON:
                left = self._comparison(left)
            elif text in _BINARY and _BINARY[text][0] >= weakest:
                strength, kind = _BINARY[text]
                self._next()
                right = self._expression(_SIGN if kind is ast.Pow else strength + 1)
                left = ast.BinOp(left, kind(), right)
            else:
                return left

    def _comparison(self, left: ast.expr) -> ast.expr:
        """Return a comparison; of several in a row, such as ``0 < x < 1``, all must hold."""
        chain: ast.expr | None = None
        while self._now.text in _COMPARED and self._now.kind in ("op", "name"):
            kind = _COMPARED[self._next().text]
            right = self._expression(_COMPARISON + 1)
            comparison = ast.Compare(left, [kind()], [right])
            chain = (
                comparison
                if chain is None
                else ast.BinOp(chain, ast.BitAnd(), comparison)
            )
            left = right
        assert chain is not None
        return chain

    def _prefixed(self) -> ast.expr:
        if self._is("-", "+"):
            kind = ast.USub() if self._next().text == "-" else ast.UAdd()
            return ast.UnaryOp(kind, self._expression(_POWER))
        if self._is("~"):
            self._next()
            return ast.UnaryOp(ast.Invert(), self._expression(_POWER))
        in_words = self._now.kind == "name" and self._now.text == "not"
        if self._is("!") or (in_words and "not" not in self.columns):
            self._next()
            return ast.UnaryOp(ast.Invert(), self._expression(_NOT))
        return self._with_calls(self._primary())

    def _with_calls(self, expression: ast.expr) -> ast.expr:
        while self._now.kind == "op":
            if self._is("(") and isinstance(expression, ast.Name | ast.Attribute):
                self._next()
                expression = self._call(expression)
            elif self._is("."):
                self._next()
                if self._now.kind != "name":
                    self._refuse()
                expression = ast.Attribute(expression, self._next().text, ast.Load())
            elif self._is("["):
                raise ValueError(
                    f"`formula`: {self.text!r} holds a subscript, which formulas may not. Compute "
                    "a column of `data` before."
                )
            else:
                break
        return expression

    def _call(self, function: ast.expr) -> ast.expr:
        arguments: list[ast.expr] = []
        words: list[ast.keyword] = []
        while not self._is(")"):
            after = self._tokens[self._index + 1 : self._index + 2]
            if self._now.kind == "name" and after and after[0].text == "=":
                word = self._next().text
                self._next()
                words.append(ast.keyword(word, self._expression(0)))
            else:
                arguments.append(self._expression(0))
            if not self._is(")"):
                self._need(",")
        self._next()
        name = function.id if isinstance(function, ast.Name) else ""
        if name == "c":
            return ast.List(arguments, ast.Load())
        if (
            name == "Q"
            and len(arguments) == 1
            and isinstance(arguments[0], ast.Constant)
        ):
            return ast.Name(self._column(str(arguments[0].value)), ast.Load())
        return ast.Call(function, arguments, words)

    def _primary(self) -> ast.expr:
        token = self._next()
        if token.kind == "number":
            text = token.text.removesuffix("L")
            return ast.Constant(int(text) if text.isdigit() else float(text))
        if token.kind == "string":
            return ast.Constant(ast.literal_eval(token.text))
        if token.kind == "quoted":
            return ast.Name(self._column(token.text), ast.Load())
        if token.kind == "name":
            return self._name(token.text)
        if token.kind == "op" and token.text in _OPENING:
            return self._in_parentheses(token.text)
        self._index -= 1
        self._refuse()
        raise AssertionError

    def _name(self, name: str) -> ast.expr:
        called = self._is("(")
        if name == "as" and self._is("."):  # as.numeric(x)
            self._next()
            return ast.Name(f"as_{self._next().text}", ast.Load())
        module = self._is(".") and name in ("np", "contr")
        if called or module:
            return ast.Name(name, ast.Load())
        if name in self.columns:
            return ast.Name(self._column(name, plain=True), ast.Load())
        if name in _CONSTANTS:
            return ast.Constant(_CONSTANTS[name])
        return ast.Name(name, ast.Load())

    def _column(self, name: str, plain: bool = False) -> str:
        for identifier, column in self.named.items():
            if column == name:
                return identifier
        usable = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
        usable &= plain or name in self.columns
        usable &= name not in ("np", "contr")
        identifier = name if usable else f"{self._prefix}{len(self.named)}_"
        self.named[identifier] = name
        return identifier

    def _in_parentheses(self, opening: str) -> ast.expr:
        close = _OPENING[opening]
        elements: list[ast.expr] = []
        values: list[ast.expr] = []
        comma = False
        while not self._is(close):
            elements.append(self._expression(0))
            if self._now.text == "for":
                raise ValueError(
                    f"`formula`: {self.text!r} holds a listcomp, which formulas may not. Compute a "
                    "column of `data` before."
                )
            if opening == "{" and self._is(":"):
                self._next()
                values.append(self._expression(0))
            if not self._is(close):
                self._need(",")
                comma = True
        self._next()
        if opening == "[":
            return ast.List(elements, ast.Load())
        if opening == "{":
            return ast.Dict(list(elements), values) if values else ast.Set(elements)
        if len(elements) == 1 and not comma:
            return elements[0]
        return ast.Tuple(elements, ast.Load())


def shown(name: str) -> str:
    """Return a column as it is written inside of expressions."""
    return name if PLAIN.fullmatch(name) else quoted(name)
