"""Expressions in formulas: what they may contain, and which parts are statistics of all rows."""

from __future__ import annotations

import ast
import copy
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.checks import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "mean": np.mean,
    "median": np.median,
    "sd": lambda x: np.std(x, ddof=1),
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "quantile": np.quantile,
}

FUNCTIONS: dict[str, Callable[..., Any]] = _REDUCTIONS | {
    name: getattr(np, name)
    for name in ("log", "log1p", "log2", "log10", "exp", "expm1", "sqrt", "abs", "sin", "cos")
}
"""Functions of formulas in addition to those of formulaic."""

_OF_NUMPY = {
    "where", "clip", "mean", "std", "var", "median", "min", "max", "sum", "quantile", "percentile",
    "round", "pi", "e", "nan_to_num",
}  # fmt: skip
"""Names of NumPy that may follow ``np.``, besides functions that act on each number alone."""

_OF_COLUMNS = {
    "mean", "std", "var", "median", "min", "max", "sum", "quantile", "abs", "clip", "round",
    "astype", "isin", "between", "isna", "notna", "where", "mask",
    "dt", "year", "month", "day", "hour", "minute", "second", "weekday", "dayofweek", "dayofyear",
    "quarter", "days", "total_seconds",
    "str", "lower", "upper", "strip", "len", "startswith", "endswith", "contains", "slice", "get",
}  # fmt: skip
"""Attributes of columns that may follow a dot."""

_ALLOWED = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword,
    ast.Attribute, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Load,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip

Constants = dict[str, tuple[str, Any]]
"""Name and value of each number of all rows, by the expression that it is the value of."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.MatMult: operator.matmul, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: operator.invert, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda part, whole: part in whole, ast.NotIn: lambda part, whole: part not in whole,
}  # fmt: skip

_OF_R = {
    "cbind": "y | trials(n) on the left side", "cut": "a column of `data`, pd.cut(x, 3)",
    "ifelse": "np.where(test, yes, no)", "interaction": "f:g", "mo": "a factor, C(f)",
    "ns": "bs(x, df=5)", "relevel": "C(f, contr.treatment('level'))", "s": "bs(x, df=5)",
    "Surv": "time | cens(c) on the left side", "te": "bs(x, df=5):bs(z, df=5)",
    "weights": "the argument `weights`",
}  # fmt: skip
"""Replacements of functions that R's formulas have."""

_QUOTED = re.compile(r"`([^`]+)`")


def transforms() -> Mapping[str, Any]:
    """Return the functions of formulas that formulaic has."""
    from formulaic.transforms import TRANSFORMS

    return TRANSFORMS


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
        self._quoted: dict[str, str] = {}
        source = _QUOTED.sub(self._named, text)
        try:
            self.tree = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"`formula`: {text!r} cannot be read. {error.msg}.") from None
        known = {str(name) for name in columns}
        self.variables: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name):
                self._check_name(node.id, known)
        self._check(self.tree)

    def _named(self, match: re.Match[str]) -> str:
        """Return the name that replaces a name in backticks."""
        name = f"quoted_{len(self._quoted)}_"
        self._quoted[name] = match.group(1)
        return name

    def _check(self, node: ast.AST) -> None:
        if not isinstance(node, _ALLOWED):
            kind = type(node).__name__.lower()
            raise ValueError(
                f"`formula`: {self.text!r} holds a {kind}, which formulas may not. Compute a "
                "column of `data` before."
            )
        if isinstance(node, ast.Attribute):
            self._check_attribute(node)
        if isinstance(node, ast.BitXor):
            raise ValueError(f"`formula`: {self.text!r} has ^. Powers inside of I() are x ** 2.")
        for child in ast.iter_child_nodes(node):
            self._check(child)

    def _check_name(self, name: str, known: set[str]) -> None:
        column = self._quoted.get(name, name)
        if column in known:
            if column not in self.variables:
                self.variables.append(column)
        elif name not in FUNCTIONS and name not in transforms():
            raise ValueError(
                f"`formula` names {column!r}, but `data` has no such column."
                + self._instead(name)
                + did_you_mean(column, sorted(known))
            )

    def _instead(self, name: str) -> str:
        """Return a hint for a function of R's; empty if there is none."""
        called = re.search(rf"(?<![\w.]){re.escape(name)}[\w.]*\s*\(", self.text)
        return f" Write {_OF_R[name]}." if called and name in _OF_R else ""

    def _check_attribute(self, node: ast.Attribute) -> None:
        owner = node.value.id if isinstance(node.value, ast.Name) else None
        if owner == "np":
            fine = node.attr in _OF_NUMPY or isinstance(getattr(np, node.attr, None), np.ufunc)
        elif owner == "contr":
            fine = not node.attr.startswith("_")
        else:
            fine = node.attr in _OF_COLUMNS
        if not fine:
            raise ValueError(
                f"`formula`: {self.text!r} holds {ast.unparse(node)!r}, which formulas may not. "
                "Compute a column of `data` before."
            )

    @property
    def stateful(self) -> bool:
        """Whether a part of it, such as ``scale(x)``, learns from all rows by itself."""
        functions = transforms()
        return any(
            isinstance(node, ast.Name)
            and hasattr(functions.get(node.id), "__is_stateful_transform__")
            for node in ast.walk(self.tree)
        )

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
        text = ast.unparse(node)
        for name, column in self._quoted.items():
            text = text.replace(name, f"`{column}`")
        return text

    def looks_at_rows(self, node: ast.AST) -> bool:
        """Return whether a part may depend on more rows than its own."""
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Name):
            return node.func.id in _REDUCTIONS
        assert isinstance(node.func, ast.Attribute)
        owner = node.func.value.id if isinstance(node.func.value, ast.Name) else None
        if owner == "np":
            return not isinstance(getattr(np, node.func.attr, None), np.ufunc)
        return owner != "contr"

    def values(self, node: ast.expr, frame: pd.DataFrame, constants: Constants) -> Any:
        """Return the value of a part for some rows.

        Raises:
            ValueError: It cannot be computed.
        """
        names = {name: frame[column] for name, column in self._quoted.items()}
        names |= {name: frame[name] for name in self.variables}
        known = {**transforms(), **FUNCTIONS, **dict(constants.values()), **names}
        try:
            return _value(node, known)
        except Exception as error:
            raise ValueError(
                f"`formula`: {self.as_written(node)!r} cannot be computed. {error}"
            ) from error


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return the value of a checked expression: operators, calls and names, and nothing else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, names), node.attr)
    if isinstance(node, ast.Dict):
        keys = [_value(key, names) for key in node.keys if key is not None]
        return dict(zip(keys, (_value(value, names) for value in node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind(_value(part, names) for part in node.elts)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        right = _value(node.comparators[0], names)
        return _OPERATORS[type(node.ops[0])](_value(node.left, names), right)
    if isinstance(node, ast.Call):
        words = {word.arg: _value(word.value, names) for word in node.keywords if word.arg}
        return _value(node.func, names)(*(_value(part, names) for part in node.args), **words)
    raise TypeError("Write & for and, | for or, and one comparison in each pair of parentheses.")


class _Freezer(ast.NodeTransformer):
    """Replaces parts of an expression that are numbers of all rows by names of constants."""

    def __init__(self, expression: Expression, frame: pd.DataFrame, constants: Constants) -> None:
        self._own, self._frame, self._constants = expression, frame, constants

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return a call, or the name of its value."""
        looks, shown = self._own.looks_at_rows(node), self._own.as_written(node)
        self.generic_visit(node)
        if not looks:
            return node
        if shown in self._constants:
            return ast.Name(self._constants[shown][0], ast.Load())
        value = self._own.values(node, self._frame, self._constants)
        if np.ndim(value) == 0:
            name = f"of_all_{len(self._constants)}_"
            self._constants[shown] = name, value
            return ast.Name(name, ast.Load())
        some = np.unique(np.linspace(0, len(self._frame) - 1, 500).astype(int))[::2]
        rows = self._frame.iloc[some].reset_index(drop=True)
        again = self._own.values(node, rows, self._constants)
        if not _alike(np.asarray(value)[some], np.asarray(again)):
            raise ValueError(
                f"`formula`: {shown!r} of a row depends on other rows, and would be another number "
                "in predictions. Compute a column of `data` before."
            )
        return node


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind == "f":
        return bool(np.allclose(one, other, equal_nan=True))
    return bool((one == other).all())
