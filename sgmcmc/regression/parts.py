"""Parts of expressions, computed in float64, under plain names that formulaic is handed.

formulaic learns levels, knots and contrasts, and multiplies terms. What stands inside of its
functions, ``log(income)`` in ``bs(log(income), df=5)``, is computed here: one evaluation for terms,
offsets and responses, which does not depend on the storage of columns or on their names.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sgmcmc.regression.arithmetic import are_levels, as_levels, as_numbers, plain
from sgmcmc.regression.expressions import FUNCTIONS, Constants, Expression, calls
from sgmcmc.regression.names import PLAIN, quoted

if TYPE_CHECKING:
    import pandas as pd

_PREFIX = "part_of_formula_"
_TOKEN = re.compile(rf"{_PREFIX}\d+_")

_OWN = {*FUNCTIONS, "I"}
"""Functions that are computed here, and not by formulaic."""


@dataclass(frozen=True)
class Part:
    """A part of an expression.

    Attributes:
        expression: Expression.
        tree: The part.
        levels: Whether it is a factor, or what ``C(...)`` makes one of, and not numbers.
        written: Part as it is shown.
        column: Column that it is, or ``None``.
    """

    expression: Expression
    tree: ast.expr
    levels: bool
    written: str
    column: str | None

    def values(self, frame: pd.DataFrame, constants: Constants) -> Any:
        """Return its value for each row."""
        import pandas as pd

        found = self.expression.values(self.tree, frame, constants)
        if self.levels:
            found = plain(found) if self.column else as_levels(found)
        else:
            try:
                found = as_numbers(found)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"`formula`: {self.written!r} must be numbers, as in the rows of the "
                    f"regression. {error}"
                ) from error
        if np.ndim(found) == 0:
            return pd.Series(np.full(len(frame), found))
        return pd.Series(found).reset_index(drop=True)


@dataclass
class Parts:
    """The parts of the expressions of a design.

    Attributes:
        constants: Name and value of each number of all rows, by its expression.
        known: Part by its plain name.
    """

    constants: Constants
    known: dict[str, Part] = field(default_factory=dict)

    def added(self, expression: Expression, tree: ast.expr, frame: pd.DataFrame) -> str:
        """Return an expression for formulaic, whose parts have plain names.

        Args:
            expression: Expression.
            tree: The same with numbers of all rows as names.
            frame: Some rows, from which it is seen whether a part is a factor.
        """
        return ast.unparse(_Divider(self, expression, frame).visit(copy.deepcopy(tree)))

    def name(
        self, expression: Expression, tree: ast.expr, frame: pd.DataFrame, levels: bool = False
    ) -> str:
        """Return the plain name of a part."""
        column = expression.column_of(tree)
        values = expression.values(tree, frame, self.constants)
        levels = levels or bool(are_levels(plain(values)))
        # A column is shown as it is called; its name is put in backticks if that is not unique.
        written = column or expression.as_written(tree)
        key = levels, column or "", written
        for name, each in self.known.items():
            if (each.levels, each.column or "", each.written) == key:
                return name
        name = f"{_PREFIX}{len(self.known)}_"
        self.known[name] = Part(expression, tree, levels, written, column)
        return name

    def frame(self, rows: pd.DataFrame, expressions: Iterable[str]) -> pd.DataFrame:
        """Return the parts that some expressions need, for some rows."""
        import pandas as pd

        wanted = dict.fromkeys(name for text in expressions for name in _TOKEN.findall(text))
        found = {name: self.known[name].values(rows, self.constants) for name in wanted}
        return pd.DataFrame({"rows": np.zeros(len(rows)), **found})

    def written(self, text: str, unique: bool = False) -> str:
        """Return a text with parts as they are shown.

        Args:
            text: Text with plain names.
            unique: Whether columns whose names could be expressions are put in backticks.
        """

        def one(match: re.Match[str]) -> str:
            each = self.known[match[0]]
            odd = unique and each.column and not PLAIN.fullmatch(each.column)
            return quoted(each.written) if odd else each.written

        text = _TOKEN.sub(one, text)
        for shown, (name, _) in self.constants.items():
            text = text.replace(name, shown)
        return text

    def column(self, text: str, contrasts: bool = True) -> str | None:
        """Return the column of a factor ``f`` or ``C(f)``; ``None`` of others.

        Args:
            text: Expression, as formulaic has it.
            contrasts: Whether ``C(f, ...)`` is one of these.
        """
        pattern = rf"({_PREFIX}\d+_)|C\(({_PREFIX}\d+_)({', .*' if contrasts else ''})?\)"
        match = re.fullmatch(pattern, text)
        return self.known[match[1] or match[2]].column if match else None


class _Divider(ast.NodeTransformer):
    """Replaces the parts of an expression that are computed here by plain names."""

    def __init__(self, parts: Parts, expression: Expression, frame: pd.DataFrame) -> None:
        self._parts, self._expression, self._frame = parts, expression, frame
        self._levels = False

    def visit(self, node: ast.AST) -> Any:
        """Return a name of a part, or what formulaic computes."""
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return node
        if not any(self._expression.column_of(each) for each in ast.walk(node)):
            return node
        if calls(node) <= _OWN:
            name = self._parts.name(self._expression, node, self._frame, self._levels)
            return ast.Name(name, ast.Load())
        if isinstance(node, ast.Call):
            levels, self._levels = self._levels, "C" in calls(ast.Call(node.func, [], []))
            node.args = [self.visit(each) for each in node.args]
            node.keywords = [ast.keyword(w.arg, self.visit(w.value)) for w in node.keywords]
            if isinstance(node.func, ast.Attribute):
                node.func.value = self.visit(node.func.value)
            self._levels = levels
            return node
        node = self.generic_visit(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            node.left, node.right = _flag(node.left), _flag(node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            node.operand = _flag(node.operand)
        return node


def _flag(node: ast.expr) -> ast.expr:
    """Return whether a part, which is a number for formulaic, is not zero."""
    if not isinstance(node, ast.Name):
        return node
    return ast.Compare(node, [ast.NotEq()], [ast.Constant(0)])
