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
        is_narrow = dtype.kind == "f" and dtype.itemsize < 8
        return values.astype(np.float64) if is_narrow else values
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in ("boolean", *_OBJECTS_OF_NUMBERS) and not values.isna().any():
        if kind == "boolean":
            return values.astype(bool)
        exact = {"b": bool, "i": np.int64, "u": np.uint64}
        return values.astype(exact.get(dtype.kind, np.float64))
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
    are_flags = isinstance(values, bool) or _kind(values) == "b"
    return values if are_flags else as_numbers(values) != 0


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
    return values.astype(np.float64) if _kind(values) in ("i", "u") else values


def _kind(values: Any) -> str:
    """Return the kind of a dtype; empty if there is none."""
    return str(getattr(getattr(values, "dtype", None), "kind", ""))


def _series(values: Any) -> Any:
    """Return arrays, and lists, as series, which are aligned by row with other columns."""
    import pandas as pd

    if isinstance(values, list | tuple):
        values = np.asarray(values)
    is_vector = isinstance(values, np.ndarray) and values.ndim == 1
    return pd.Series(values) if is_vector else values


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
            has_levels = are_levels(opposite)
            has_text = has_levels or _kind(opposite) in ("m", "M")
            if isinstance(operand, str) and not has_text:
                raise TypeError(f"The text {operand!r} is compared with numbers.")
            are_texts = hasattr(operand, "dtype") and are_levels(operand)
            if are_texts and _is_text(operand) and not has_levels:
                raise TypeError(
                    f"Text is compared with {opposite!r}. Write text in quotes."
                )
        return operation(left, right)

    return compare


def _is_text(values: Any) -> bool:
    import pandas as pd

    levels = getattr(values.dtype, "categories", values)
    return bool(pd.api.types.infer_dtype(levels, skipna=True) == "string")


def contained(values: Any, whole: Any) -> Any:
    """Return whether each value is one of some."""
    plain_values = plain(values)
    whole = whole if isinstance(whole, list | tuple | set) else list(plain(whole))
    if hasattr(plain_values, "isin"):
        return plain_values.isin(whole)
    return plain_values in whole


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


# Functions of formulas that return a number of all rows.
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "mean": np.mean, "median": np.median, "sd": lambda x: np.std(x, ddof=1), "sum": np.sum,
    "min": np.min, "max": np.max, "quantile": np.quantile,
}  # fmt: skip

# Functions of formulas in addition to those of formulaic.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **REDUCTIONS,
    "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "exp": np.exp,
    "expm1": np.expm1, "sqrt": np.sqrt, "abs": np.abs, "sin": np.sin, "cos": np.cos,
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


def value_of(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return the value of a checked expression: operators, calls and names, and nothing else."""

    def value(inner: ast.AST) -> Any:
        return value_of(inner, names)

    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id] if node.id in names else _function(node.id)
    if isinstance(node, ast.Attribute):
        owner = owner_of(node)
        if owner in MODULES:
            return getattr(transforms()[owner], node.attr)
        read = plain if node.attr in _RAW else as_argument
        return getattr(read(value(node.value)), node.attr)
    if isinstance(node, ast.Dict):
        keys = [value(key) for key in node.keys if key is not None]
        return dict(zip(keys, map(value, node.values), strict=True))
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind(map(value, node.elts))
    if isinstance(node, ast.BinOp):
        operation = ARITHMETIC[type(node.op).__name__]
        return operation(value(node.left), value(node.right))
    if isinstance(node, ast.UnaryOp):
        return SIGNS[type(node.op).__name__](value(node.operand))
    if isinstance(node, ast.Compare):
        operation = ARITHMETIC[type(node.ops[0]).__name__]
        return operation(value(node.left), value(node.comparators[0]))
    assert isinstance(node, ast.Call)
    called, read = node.func, as_argument
    if isinstance(called, ast.Name):
        function = _function(called.id)
        read = plain if called.id in _OF_LEVELS else as_argument
    else:
        function = value(called)
    words = {word.arg: read(value(word.value)) for word in node.keywords if word.arg}
    return function(*(read(value(element)) for element in node.args), **words)


def owner_of(node: ast.Attribute) -> str:
    """Return the name that an attribute follows; empty if it follows something else."""
    return node.value.id if isinstance(node.value, ast.Name) else ""
