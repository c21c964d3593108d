"""Values of expressions of columns: in float64, whatever the storage of the columns."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


_OBJECTS_OF_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")


def plain(values: Any) -> Any:
    """Return a column in a form of NumPy's or as categories, in which its values are the same.

    Nullable and Arrow's numbers and flags become NumPy's, text becomes objects, and objects that
    are numbers, such as decimals, become float64.
    """
    import pandas as pd

    dtype = getattr(values, "dtype", None)
    if dtype is None or isinstance(dtype, pd.CategoricalDtype):
        return values
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return (
            values.astype(np.float64)
            if dtype.kind == "f" and dtype.itemsize < 8
            else values
        )
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in ("boolean", *_OBJECTS_OF_NUMBERS) and not values.isna().any():
        whole = {"b": np.dtype(bool), "i": np.dtype(np.int64), "u": np.dtype(np.uint64)}
        to = (
            np.dtype(bool)
            if kind == "boolean"
            else whole.get(dtype.kind, np.dtype(np.float64))
        )
        return values.astype(to)
    return values if dtype.kind in "mM" or dtype == "object" else values.astype(object)


def are_levels(values: Any) -> bool:
    """Return whether values are text or categories, and so the levels of a factor."""
    import pandas as pd

    dtype = getattr(values, "dtype", None)
    if dtype is None:
        return isinstance(values, str)
    return isinstance(dtype, pd.CategoricalDtype) or dtype.kind in "OUST"


def as_numbers(values: Any) -> Any:
    """Return numbers in float64, flags as 0 and 1; times and single numbers as they are.

    Raises:
        TypeError: They are text or levels of a factor.
    """
    values = _series(plain(values))
    if are_levels(values):
        raise TypeError("There is no arithmetic with text and levels of factors.")
    if not hasattr(values, "dtype"):
        return int(values) if isinstance(values, bool) else values
    return values.astype(np.float64) if values.dtype.kind in "biu" else values


def as_flags(values: Any) -> Any:
    """Return whether each value is true: of numbers, whether it is not 0."""
    values = _series(plain(values))
    if are_levels(values):
        raise TypeError("Text and levels of factors are neither true nor false.")
    if (
        isinstance(values, bool)
        or getattr(getattr(values, "dtype", None), "kind", "") == "b"
    ):
        return values
    return as_numbers(values) != 0


def as_levels(values: Any) -> Any:
    """Return values as the levels of a factor: integers without a point."""
    values = plain(values)
    if getattr(values, "dtype", None) != np.float64:
        return values
    whole = bool(np.all((values == np.floor(values)) & (np.abs(values) < 2**53)))
    return values.astype(np.int64) if whole else values


def as_argument(values: Any) -> Any:
    """Return an argument of a function: numbers in float64, flags and others as they are."""
    values = plain(values)
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    return values.astype(np.float64) if kind and kind in "iu" else values


def _series(values: Any) -> Any:
    """Return arrays, and lists, as series, which are aligned by row with other columns."""
    import pandas as pd

    if isinstance(values, list | tuple):
        values = np.asarray(values)
    return (
        pd.Series(values)
        if isinstance(values, np.ndarray) and values.ndim == 1
        else values
    )


def _power(left: Any, right: Any) -> Any:
    # Numbers of a formula are few and small, and powers of integers may have millions of digits.
    return left**right if hasattr(left, "dtype") else float(left) ** right


def computed(operation: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return arithmetic of two operands, in float64."""
    return lambda left, right: operation(as_numbers(left), as_numbers(right))


def compared(operation: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a comparison of two operands."""

    def compare(left: Any, right: Any) -> Any:
        left, right = _series(plain(left)), _series(plain(right))
        for operand, opposite in ((left, right), (right, left)):
            if isinstance(operand, str) and not (
                are_levels(opposite) or _dated(opposite)
            ):
                raise TypeError(f"The text {operand!r} is compared with numbers.")
            text = (
                hasattr(operand, "dtype") and are_levels(operand) and _is_text(operand)
            )
            if text and not are_levels(opposite):
                raise TypeError(
                    f"Text is compared with {opposite!r}. Write text in quotes."
                )
        return operation(left, right)

    return compare


def _dated(values: Any) -> bool:
    return getattr(getattr(values, "dtype", None), "kind", "") in ("m", "M")


def _is_text(values: Any) -> bool:
    import pandas as pd

    levels = getattr(values.dtype, "categories", values)
    return bool(pd.api.types.infer_dtype(levels, skipna=True) == "string")


def contained(values: Any, whole: Any) -> Any:
    """Return whether each value is one of some."""
    plain_values = plain(values)
    whole = whole if isinstance(whole, list | tuple | set) else list(plain(whole))
    return (
        plain_values.isin(whole)
        if hasattr(plain_values, "isin")
        else plain_values in whole
    )


# Operations on two operands, by the name of the node of the tree.
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": computed(operator.add), "Sub": computed(operator.sub), "Mult": computed(operator.mul),
    "Div": computed(operator.truediv), "FloorDiv": computed(operator.floordiv),
    "Mod": computed(operator.mod), "Pow": computed(_power),
    "BitAnd": lambda left, right: as_flags(left) & as_flags(right),
    "BitOr": lambda left, right: as_flags(left) | as_flags(right),
    "Eq": compared(operator.eq), "NotEq": compared(operator.ne), "Lt": compared(operator.lt),
    "LtE": compared(operator.le), "Gt": compared(operator.gt), "GtE": compared(operator.ge),
    "In": contained,
}  # fmt: skip

# Operations on one operand, by the name of the node of the tree.
SIGNS: dict[str, Callable[[Any], Any]] = {
    "USub": lambda value: -as_numbers(value),
    "UAdd": as_numbers,
    "Invert": lambda value: (
        not as_flags(value) if isinstance(as_flags(value), bool) else ~as_flags(value)
    ),
}


def as_numeric(values: pd.Series) -> Any:
    """Return numbers; text that holds numbers too, as in R."""
    import pandas as pd

    if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
        raise TypeError(
            "as.numeric() of a factor is not the number that its levels show."
        )
    return values.astype(np.float64) if are_levels(values) else as_numbers(values)


def as_integer(values: Any) -> Any:
    """Return numbers without their fractions."""
    return np.trunc(as_numeric(values))


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

# Attributes of columns that are those of the column itself, and not of its numbers in float64.
_RAW = {"isin", "isna", "notna", "astype", "str", "dt"}

# Functions that are handed values as they are, and not in float64.
_OF_LEVELS = {"C", "I", "as_numeric", "as_integer"}

MODULES = {"np", "contr"}  # names before a dot that are no columns


def transforms() -> Mapping[str, Any]:
    """Return the functions of formulas that formulaic has, but those of other rows."""
    from formulaic.transforms import TRANSFORMS

    return {name: function for name, function in TRANSFORMS.items() if name != "lag"}


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
