"""Expressions in formulas: what they may contain, and which parts are statistics of all rows."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.checks import did_you_mean
from sgmcmc.regression.arithmetic import (
    ARITHMETIC,
    SIGNS,
    as_argument,
    as_integer,
    as_numeric,
    plain,
)
from sgmcmc.regression.limits import need_moderate
from sgmcmc.regression.parsing import Parser, shown

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
    for name in (
        "log",
        "log1p",
        "log2",
        "log10",
        "exp",
        "expm1",
        "sqrt",
        "abs",
        "sin",
        "cos",
    )
}
# Functions of formulas in addition to those of formulaic.
FUNCTIONS |= {
    "as_numeric": as_numeric, "as_integer": as_integer,
    "exp2": np.exp2, "exp10": lambda x: np.power(10.0, x),
}  # fmt: skip

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

# Attributes of columns that are those of the column itself, and not of its numbers in float64.
_RAW = {"isin", "isna", "notna", "astype", "str", "dt"}

# Functions that are handed values as they are, and not in float64.
_OF_LEVELS = {"C", "I", "as_numeric", "as_integer"}

MODULES = {"np", "contr"}  # names before a dot that are no columns

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


def transforms() -> Mapping[str, Any]:
    """Return the functions of formulas that formulaic has, but those of other rows."""
    from formulaic.transforms import TRANSFORMS

    return {name: function for name, function in TRANSFORMS.items() if name != "lag"}


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
            if node.func.id not in FUNCTIONS and node.func.id not in transforms():
                self._refuse_function(node.func.id)
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
        wrong = isinstance(function, np.ufunc) and count != function.nin
        if wrong or any(word.arg == "out" for word in node.keywords):
            logarithm = " A logarithm to the base b is log(x) / log(b)."
            raise ValueError(
                f"`formula`: {self.as_written(node)!r} has {count} arguments, which "
                f"{self.as_written(node.func)}() does not take."
                + logarithm
                * (function is np.log)
            )

    def _refuse(self, name: str, names: list[str]) -> None:
        instead = f" Write {_NOT_OF_R[name]}." if name in _NOT_OF_R else ""
        raise ValueError(
            f"`formula` names {name!r}, but `data` has no such column."
            + (instead or did_you_mean(name, sorted(names)))
        )

    def _refuse_function(self, name: str) -> None:
        functions = sorted(
            name for name in {**FUNCTIONS, **transforms()} if name.islower()
        )
        instead = (
            f" Write {_OF_R[name]}." if name in _OF_R else did_you_mean(name, functions)
        )
        shown = name.replace("as_", "as.", 1) if name.startswith("as_") else name
        raise ValueError(
            f"`formula` names {shown!r}, a function that formulas lack.{instead}"
        )

    def _check_attribute(self, node: ast.Attribute) -> None:
        owner = owner_of(node)
        if owner == "np":
            allowed = node.attr in _OF_NUMPY or isinstance(
                getattr(np, node.attr, None), np.ufunc
            )
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
            return node.func.id in _REDUCTIONS
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
                return _value(node, names)
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


def _function(name: str) -> Any:
    return FUNCTIONS[name] if name in FUNCTIONS else transforms()[name]


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return the value of a checked expression: operators, calls and names, and nothing else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id] if node.id in names else _function(node.id)
    if isinstance(node, ast.Attribute):
        return _attribute(node, names)
    if isinstance(node, ast.Dict):
        keys = [_value(key, names) for key in node.keys if key is not None]
        return dict(
            zip(keys, (_value(value, names) for value in node.values), strict=True)
        )
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind(_value(element, names) for element in node.elts)
    if isinstance(node, ast.BinOp):
        operation = ARITHMETIC[type(node.op).__name__]
        return operation(_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return SIGNS[type(node.op).__name__](_value(node.operand, names))
    if isinstance(node, ast.Compare):
        operation = ARITHMETIC[type(node.ops[0]).__name__]
        return operation(_value(node.left, names), _value(node.comparators[0], names))
    assert isinstance(node, ast.Call)
    called = node.func
    function = (
        _function(called.id) if isinstance(called, ast.Name) else _value(called, names)
    )
    read = (
        plain
        if isinstance(called, ast.Name) and called.id in _OF_LEVELS
        else as_argument
    )
    words = {
        word.arg: read(_value(word.value, names)) for word in node.keywords if word.arg
    }
    return function(*(read(_value(element, names)) for element in node.args), **words)


def _attribute(node: ast.Attribute, names: Mapping[str, Any]) -> Any:
    """Return an attribute of a module, or of a column, whose numbers are in float64."""
    if owner_of(node) in MODULES:
        return getattr(transforms()[owner_of(node)], node.attr)
    owner = _value(node.value, names)
    return getattr(plain(owner) if node.attr in _RAW else as_argument(owner), node.attr)


def owner_of(node: ast.Attribute) -> str:
    """Return the name that an attribute follows; empty if it follows something else."""
    return node.value.id if isinstance(node.value, ast.Name) else ""


class _Freezer(ast.NodeTransformer):
    """Replaces parts of an expression that are numbers of all rows by names of constants."""

    def __init__(
        self, expression: Expression, frame: pd.DataFrame, constants: Constants
    ) -> None:
        self._expression, self._frame, self._constants = expression, frame, constants

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return a call, or the name of its value."""
        uses_rows, shown = (
            self._expression.looks_at_rows(node),
            self._expression.as_written(node),
        )
        self.generic_visit(node)
        if not uses_rows:
            return node
        if shown in self._constants:
            return ast.Name(self._constants[shown][0], ast.Load())
        value = self._expression.values(node, self._frame, self._constants)
        if np.ndim(value) == 0:
            name = f"number_of_all_rows_{len(self._constants)}_"
            while name in self._frame.columns:
                name += "_"
            self._constants[shown] = name, value
            return ast.Name(name, ast.Load())
        sampled = np.unique(np.linspace(0, len(self._frame) - 1, 500).astype(int))[::2]
        rows = self._frame.iloc[sampled].reset_index(drop=True)
        recomputed = self._expression.values(node, rows, self._constants)
        if not _is_close(np.asarray(value)[sampled], np.asarray(recomputed)):
            raise ValueError(
                f"`formula`: {shown!r} of a row depends on other rows, and would be another number "
                "in predictions. Compute a column of `data` before."
            )
        return node


def _is_close(values: np.ndarray, recomputed: np.ndarray) -> bool:
    if values.shape != recomputed.shape:
        return False
    if values.dtype.kind == "f":
        return bool(np.allclose(values, recomputed, equal_nan=True))
    return bool((values == recomputed).all())
