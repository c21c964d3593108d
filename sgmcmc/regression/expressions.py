"""Expressions in formulas: syntax, limits, and which parts are statistics of all rows."""

from __future__ import annotations

import ast
import copy
import keyword
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.checks import did_you_mean
from sgmcmc.regression.arithmetic import (
    FUNCTIONS,
    REDUCTIONS,
    owner_of,
    transforms,
    value_of,
)
from sgmcmc.regression.formula import Token, shown, tokens_of

if TYPE_CHECKING:
    import pandas as pd


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

# Precedences of operators that are no binary ones.
_NOT, _COMPARISON, _SIGN, _POWER = 3, 4, 8, 9

_OPENING = {"(": ")", "[": "]", "{": "}"}

_CONSTANTS = {"TRUE": True, "True": True, "FALSE": False, "False": False, "None": None}


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
        in_words = self._now.kind == "name" and self._now.text == "not"
        left: ast.expr
        if self._is("-", "+"):
            sign = ast.USub() if self._next().text == "-" else ast.UAdd()
            left = ast.UnaryOp(sign, self._expression(_POWER))
        elif self._is("~"):
            self._next()
            left = ast.UnaryOp(ast.Invert(), self._expression(_POWER))
        elif self._is("!") or (in_words and "not" not in self.columns):
            self._next()
            left = ast.UnaryOp(ast.Invert(), self._expression(_NOT))
        else:
            left = self._with_calls(self._primary())
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


# Names of NumPy that may follow `np.`, besides functions that act on each number alone.
_OF_NUMPY = {
    "where", "clip", "mean", "std", "var", "median", "min", "max", "sum", "quantile", "percentile",
    "round", "pi", "e", "nan_to_num",
}  # fmt: skip

# Attributes of columns that may follow a dot.
_OF_COLUMNS = {
    "mean", "std", "var", "median", "min", "max", "sum", "quantile", "abs", "clip", "round",
    "astype", "isin", "between", "isna", "notna", "where", "mask",
    "dt", "year", "month", "day", "hour", "minute", "second", "weekday", "dayofweek", "dayofyear",
    "quarter", "days", "total_seconds",
    "str", "lower", "upper", "strip", "len", "startswith", "endswith", "contains", "slice", "get",
}  # fmt: skip

# Name and value of each number of all rows, by the expression that it is the value of.
Constants = dict[str, tuple[str, Any]]

# Replacements of functions that R's formulas have.
_OF_R = {
    "cbind": "y | trials(n) on the left side", "cut": "a column of `data`, pd.cut(x, 3)",
    "ifelse": "np.where(test, yes, no)", "interaction": "f:g", "lag": "a column of `data`",
    "mo": "a factor, C(f)",
    "ns": "bs(x, df=5)", "relevel": "C(f, contr.treatment('level'))", "s": "bs(x, df=5)",
    "Surv": "time | cens(c) on the left side", "te": "bs(x, df=5):bs(z, df=5)",
    "weights": "the argument `weights`",
}  # fmt: skip

# Replacements of constants that R has.
_NOT_OF_R = {
    "T": "TRUE", "F": "FALSE", "NA": "x.isna()", "NULL": "no term at all", "NaN": "x.isna()",
    "Inf": "a number",
}  # fmt: skip


class Expression:
    """An expression of a formula, such as ``I(x - x.mean())``, checked.

    A formula is data: that of a file may come from anyone. So only columns, the functions of
    formulas, and functions and attributes that compute may stand in it.

    Args:
        text: Expression.
        columns: Names of the columns of the data.

    Attributes:
        text: Expression.
        variables: Columns in it, in order.

    Raises:
        ValueError: It contains something else; the message names it.

    Example:
        >>> Expression("I(x - x.mean())", ["x", "y"]).variables
        ['x']
    """

    def __init__(self, text: str, columns: Any) -> None:
        self.text = text
        names = [str(name) for name in columns]
        parser = Parser(text, set(names))
        self.tree = parser.parse()
        self._columns = parser.named
        self.variables: list[str] = list(dict.fromkeys(parser.named.values()))
        for name in self.variables:
            if name not in names:
                self._refuse(name, names)
        self._check(self.tree, names)
        need_moderate(text, self.tree)

    def _check(self, node: ast.AST, names: list[str]) -> None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name not in FUNCTIONS and name not in transforms():
                functions = [f for f in {**FUNCTIONS, **transforms()} if f.islower()]
                hint = did_you_mean(name, sorted(functions))
                if name in _OF_R:
                    hint = f" Write {_OF_R[name]}."
                if name.startswith("as_"):
                    name = name.replace("as_", "as.", 1)
                raise ValueError(
                    f"`formula` names {name!r}, a function that formulas lack.{hint}"
                )
        elif isinstance(node, ast.Name) and node.id not in self._columns:
            if node.id not in FUNCTIONS and node.id not in transforms():
                self._refuse(node.id, names)
        for child in ast.iter_child_nodes(node):
            called = isinstance(node, ast.Call) and child is node.func
            if not (called and isinstance(child, ast.Name)):
                self._check(child, names)
        if isinstance(node, ast.Attribute):
            self._check_attribute(node)
        if isinstance(node, ast.Call):
            self._check_arguments(node)

    def _check_arguments(self, node: ast.Call) -> None:
        """Refuse further arguments of NumPy's functions: they are arrays to be written to."""
        function = None
        if isinstance(node.func, ast.Name):
            function = FUNCTIONS.get(node.func.id)
        elif isinstance(node.func, ast.Attribute) and owner_of(node.func) == "np":
            function = getattr(np, node.func.attr)
        count = len(node.args) + len(node.keywords)
        is_wrong = isinstance(function, np.ufunc) and count != function.nin
        if not is_wrong and all(word.arg != "out" for word in node.keywords):
            return
        hint = ""
        if function is np.log:
            hint = " A logarithm to the base b is log(x) / log(b)."
        raise ValueError(
            f"`formula`: {self.as_written(node)!r} has {count} arguments, which "
            f"{self.as_written(node.func)}() does not take.{hint}"
        )

    def _refuse(self, name: str, names: list[str]) -> None:
        hint = did_you_mean(name, sorted(names))
        if name in _NOT_OF_R:
            hint = f" Write {_NOT_OF_R[name]}."
        raise ValueError(
            f"`formula` names {name!r}, but `data` has no such column.{hint}"
        )

    def _check_attribute(self, node: ast.Attribute) -> None:
        owner = owner_of(node)
        if owner == "np":
            function = getattr(np, node.attr, None)
            allowed = node.attr in _OF_NUMPY or isinstance(function, np.ufunc)
        elif owner == "contr":
            allowed = not node.attr.startswith("_")
        else:
            allowed = node.attr in _OF_COLUMNS
        if not allowed:
            raise ValueError(
                f"`formula`: {self.text!r} holds {ast.unparse(node)!r}, which formulas may not. "
                "Compute a column of `data` before."
            )

    @property
    def stateful(self) -> bool:
        """Whether a part of it, such as ``scale(x)``, learns from all rows by itself."""
        functions = transforms()
        return any(
            hasattr(functions.get(name), "__is_stateful_transform__")
            for name in calls(self.tree)
        )

    def column_of(self, node: ast.AST) -> str | None:
        """Return the column that a part is; ``None`` if it is something else."""
        return self._columns.get(node.id) if isinstance(node, ast.Name) else None

    def frozen(self, frame: pd.DataFrame, constants: Constants) -> ast.expr:
        """Return the expression with its numbers of all rows, such as ``x.mean()``, as names.

        So predictions use the numbers of the rows that the regression was made of.

        Args:
            frame: All rows; any rows if ``constants`` has all of the numbers.
            constants: Name and value by expression, to which those found are added.

        Raises:
            ValueError: A part depends on other rows without being a number, such as ``x.rank()``.
        """
        if not any(self.looks_at_rows(node) for node in ast.walk(self.tree)):
            return self.tree
        return _Freezer(self, frame, constants).visit(copy.deepcopy(self.tree))

    def as_written(self, node: ast.AST) -> str:
        """Return the text of a part, with backticks."""
        text = re.sub(r"\bas_(?=\w+\()", "as.", ast.unparse(node))
        for name, column in self._columns.items():
            if name != column:
                text = text.replace(name, shown(column))
        return text

    def looks_at_rows(self, node: ast.AST) -> bool:
        """Return whether a part may depend on more rows than its own."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Name):
            return node.func.id in REDUCTIONS
        assert isinstance(node.func, ast.Attribute)
        owner = owner_of(node.func)
        if owner == "np":
            return not isinstance(getattr(np, node.func.attr, None), np.ufunc)
        return owner != "contr"

    def values(self, node: ast.expr, frame: pd.DataFrame, constants: Constants) -> Any:
        """Return the value of a part for some rows.

        Raises:
            ValueError: It cannot be computed.
        """
        names = dict(constants.values())
        names |= {name: frame[column] for name, column in self._columns.items()}
        try:
            with np.errstate(all="ignore"):
                return value_of(node, names)
        except Exception as error:
            raise ValueError(
                f"`formula`: {self.as_written(node)!r} cannot be computed. {error}"
            ) from error


def calls(node: ast.AST) -> set[str]:
    """Return the names of the functions that are called in an expression."""
    return {
        child.func.id
        for child in ast.walk(node)
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name)
    }


class _Freezer(ast.NodeTransformer):
    """Replaces parts of an expression that are numbers of all rows by names of constants."""

    def __init__(
        self, expression: Expression, frame: pd.DataFrame, constants: Constants
    ) -> None:
        self._expression, self._frame, self._constants = expression, frame, constants

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return a call, or the name of its value."""
        expression, frame, constants = self._expression, self._frame, self._constants
        uses_rows = expression.looks_at_rows(node)
        written = expression.as_written(node)
        self.generic_visit(node)
        if not uses_rows:
            return node
        if written in constants:
            return ast.Name(constants[written][0], ast.Load())
        value = expression.values(node, frame, constants)
        if np.ndim(value) == 0:
            name = f"number_of_all_rows_{len(constants)}_"
            while name in frame.columns:
                name += "_"
            constants[written] = name, value
            return ast.Name(name, ast.Load())
        rows = np.linspace(0, len(frame) - 1, _SETTINGS.rows).astype(int)
        sampled = np.unique(rows)[::2]
        alone = frame.iloc[sampled].reset_index(drop=True)
        recomputed = np.asarray(expression.values(node, alone, constants))
        expected = np.asarray(value)[sampled]
        is_same = expected.shape == recomputed.shape
        if is_same and expected.dtype.kind == "f":
            is_same = np.allclose(expected, recomputed, equal_nan=True)
        elif is_same:
            is_same = bool((expected == recomputed).all())
        if not is_same:
            raise ValueError(
                f"`formula`: {written!r} of a row depends on other rows, and would be another "
                "number in predictions. Compute a column of `data` before."
            )
        return node


@dataclass(frozen=True)
class _Settings:
    max_columns: int = 1000  # that an argument, such as `df`, may ask for
    max_power: int = 10  # of terms, such as `(a + b)**2`
    max_number: float = 1e300  # that constants may make
    rows: int = 500  # that are computed alone, to see whether a row depends on others


_SETTINGS = _Settings()

# Arguments that are numbers of columns, by function, in the order in which they may be given after
# the variable.
_COUNTS = {
    "bs": ("df", "degree"), "cc": ("df",), "cr": ("df",), "cs": ("df",), "poly": ("degree",),
    "hashed": ("levels",), "lag": (),
}  # fmt: skip

_UP_TO_THE_POWER = (ast.Pow, ast.Mult, ast.LShift, ast.MatMult)


def need_moderate(text: str, tree: ast.expr) -> None:
    """Refuse an expression that makes very many columns, or very large numbers or texts.

    Args:
        text: Expression, for messages.
        tree: The same, read.

    Raises:
        ValueError: It does; the message names the part.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            _need_few_columns(text, node, node.func.id)
        if not isinstance(node, ast.BinOp):
            continue
        if isinstance(node.op, ast.Mult | ast.Mod) and (
            _is_sequence(node.left) or _is_sequence(node.right)
        ):
            raise ValueError(
                f"`formula`: {text!r} multiplies or formats text or a list, which formulas may "
                "not. Compute a column of `data` before."
            )
        if isinstance(node.op, ast.LShift):
            raise ValueError(
                f"`formula`: {text!r} has <<, which formulas may not. Write * 2**k."
            )
        if isinstance(node.op, _UP_TO_THE_POWER):
            _constant(text, node)


def need_low_powers(terms: str) -> None:
    """Refuse terms to a high power, which are all of their interactions.

    Raises:
        ValueError: There is one.
    """
    outside, before = terms, ""
    while outside != before:  # calls, from the innermost
        before = outside
        outside = re.sub(r"[\w.]+\s*\([^()]*\)", "0_", outside)
    for power in re.findall(r"(?:\*\*|\^)\s*\(*\s*(\d+)", outside):
        if len(power) > 3 or int(power) > _SETTINGS.max_power:
            raise ValueError(
                f"`formula`: {terms!r} has terms to the power {power[:20]}; at most "
                f"{_SETTINGS.max_power} is supported. Powers of numbers are in I(): I(x**12)."
            )


def _need_few_columns(text: str, call: ast.Call, name: str) -> None:
    if name not in _COUNTS:
        return
    counts = _COUNTS[name]
    arguments = list(zip(counts, call.args[1:], strict=False))
    arguments += [
        (word.arg, word.value) for word in call.keywords if word.arg in counts
    ]
    for argument, value in arguments:
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        number = _constant(text, value)
        if number is None or not 0 <= number <= _SETTINGS.max_columns:
            raise ValueError(
                f"`formula`: {text!r} has {argument}={ast.unparse(value)[:40]}; it must be a "
                f"number up to {_SETTINGS.max_columns}."
            )
    for value in [*call.args[1:], *(word.value for word in call.keywords)]:
        if (
            isinstance(value, ast.List | ast.Tuple)
            and len(value.elts) > _SETTINGS.max_columns
        ):
            raise ValueError(
                f"`formula`: {name}() has more than {_SETTINGS.max_columns} knots."
            )


def _is_sequence(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    if isinstance(node, ast.List | ast.Tuple):
        return True
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    is_text = any(
        isinstance(child, ast.Attribute) and child.attr == "str"
        for child in ast.walk(node)
    )
    # Numbers and flags of text are neither text nor lists.
    numbers = ("len", "startswith", "endswith", "contains")
    return is_text and node.func.attr not in numbers


def _constant(text: str, node: ast.expr) -> float | None:
    """Return the value of an expression of numbers alone; ``None`` of others.

    Raises:
        ValueError: It is too large for a floating point number.
    """
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return None
        is_too_large = abs(node.value) > _SETTINGS.max_number
        value = math.inf if is_too_large else float(node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _constant(text, node.operand)
        if inner is None or isinstance(node.op, ast.UAdd):
            return inner
        return -inner
    elif isinstance(node, ast.BinOp):
        left, right = _constant(text, node.left), _constant(text, node.right)
        is_power = isinstance(node.op, ast.Pow)
        if is_power and right is not None and abs(right) > _SETTINGS.max_columns:
            value = math.inf  # of columns, too: integers of any length
        elif left is None or right is None:
            return None
        else:
            value = _combined(node.op, left, right)
    else:
        return None
    if not abs(value) <= _SETTINGS.max_number:
        raise ValueError(f"`formula`: {text[:80]!r} has a number that is too large.")
    return value


def _combined(operation: ast.operator, left: float, right: float) -> float:
    try:
        if isinstance(operation, ast.Pow):
            return float(abs(left) ** right)
        if isinstance(operation, ast.Mult):
            return left * right
        if isinstance(operation, ast.Add):
            return left + right
        if isinstance(operation, ast.Sub):
            return left - right
        return left / right if isinstance(operation, ast.Div) else 0.0
    except ZeroDivisionError:
        return 0.0
    except OverflowError:
        return math.inf
