"""Limits of formulas: what may cost memory or time is refused before anything is evaluated.

A formula is data: that of a saved regression may come from anyone.
"""

from __future__ import annotations

import ast
import math
import re

_COLUMNS = 1000  # largest number of columns that an argument, such as `df`, may ask for
_POWER = 10  # largest power of terms, such as `(a + b)**2`
_LARGEST = 1e300  # largest number that constants may make

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
        if isinstance(node, ast.BinOp):
            _need_small(text, node)


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
        if len(power) > 3 or int(power) > _POWER:
            raise ValueError(
                f"`formula`: {terms!r} has terms to the power {power[:20]}; at most {_POWER} is "
                "supported. Powers of numbers are in I(): I(x**12)."
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
        if number is None or not 0 <= number <= _COLUMNS:
            raise ValueError(
                f"`formula`: {text!r} has {argument}={ast.unparse(value)[:40]}; it must be a "
                f"number up to {_COLUMNS}."
            )
    for value in [*call.args[1:], *(word.value for word in call.keywords)]:
        if isinstance(value, ast.List | ast.Tuple) and len(value.elts) > _COLUMNS:
            raise ValueError(f"`formula`: {name}() has more than {_COLUMNS} knots.")


def _need_small(text: str, node: ast.BinOp) -> None:
    """Refuse large numbers, repeated texts and lists, and texts with numbers put in."""
    if isinstance(node.op, ast.Mult | ast.Mod):
        for operand in (node.left, node.right):
            if _is_sequence(operand):
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


def _is_sequence(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    if isinstance(node, ast.BinOp):
        return _is_sequence(node.left) or _is_sequence(node.right)
    text = any(
        isinstance(child, ast.Attribute) and child.attr == "str"
        for child in ast.walk(node)
    )
    return isinstance(node, ast.List | ast.Tuple) or (
        text and not _is_number_of_text(node)
    )


def _is_number_of_text(node: ast.expr) -> bool:
    """Return whether an expression of text is a number, such as ``s.str.len()``, or a flag."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return True
    return node.func.attr in ("len", "startswith", "endswith", "contains")


def _constant(text: str, node: ast.expr) -> float | None:
    """Return the value of an expression of numbers alone; ``None`` of others.

    Raises:
        ValueError: It is too large for a floating point number.
    """
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            return None
        value = float(node.value) if abs(node.value) <= _LARGEST else math.inf
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _constant(text, node.operand)
        return (
            None
            if inner is None
            else -inner
            if isinstance(node.op, ast.USub)
            else inner
        )
    elif isinstance(node, ast.BinOp):
        left, right = _constant(text, node.left), _constant(text, node.right)
        if isinstance(node.op, ast.Pow) and right is not None and abs(right) > _COLUMNS:
            value = math.inf  # of columns, too: integers of any length
        elif left is None or right is None:
            return None
        else:
            value = _combined(node.op, left, right)
    else:
        return None
    if not abs(value) <= _LARGEST:
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
