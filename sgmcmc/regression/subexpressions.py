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

_COMPUTED = {*FUNCTIONS, "I"}  # functions that are computed here, and not by formulaic


@dataclass(frozen=True)
class Subexpression:
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

        values = self.expression.values(self.tree, frame, constants)
        if self.levels:
            values = plain(values) if self.column else as_levels(values)
        else:
            try:
                values = as_numbers(values)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"`formula`: {self.written!r} must be numbers, as in the rows of the "
                    f"regression. {error}"
                ) from error
        if np.ndim(values) == 0:
            return pd.Series(np.full(len(frame), values))
        return pd.Series(values).reset_index(drop=True)


@dataclass
class Subexpressions:
    """The parts of the expressions of a design.

    Attributes:
        constants: Name and value of each number of all rows, by its expression.
        by_name: Part by its plain name.
    """

    constants: Constants
    by_name: dict[str, Subexpression] = field(default_factory=dict)

    @property
    def context(self) -> dict[str, Any]:
        """Functions and numbers of all rows that formulaic may meet, by name."""
        return FUNCTIONS | dict(self.constants.values())

    def added(self, expression: Expression, tree: ast.expr, frame: pd.DataFrame) -> str:
        """Return an expression for formulaic, whose parts have plain names.

        Args:
            expression: Expression.
            tree: The same with numbers of all rows as names.
            frame: Some rows, from which it is seen whether a part is a factor.
        """
        return ast.unparse(
            _Substitution(self, expression, frame).visit(copy.deepcopy(tree))
        )

    def name(
        self,
        expression: Expression,
        tree: ast.expr,
        frame: pd.DataFrame,
        levels: bool = False,
    ) -> str:
        """Return the plain name of a part."""
        column = expression.column_of(tree)
        values = expression.values(tree, frame, self.constants)
        levels = levels or bool(are_levels(plain(values)))
        # A column is shown as it is called; its name is put in backticks if that is not unique.
        written = column or expression.as_written(tree)
        key = levels, column or "", written
        for name, subexpression in self.by_name.items():
            if (
                subexpression.levels,
                subexpression.column or "",
                subexpression.written,
            ) == key:
                return name
        name = f"{_PREFIX}{len(self.by_name)}_"
        self.by_name[name] = Subexpression(expression, tree, levels, written, column)
        return name

    def frame(self, rows: pd.DataFrame, expressions: Iterable[str]) -> pd.DataFrame:
        """Return the parts that some expressions need, for some rows."""
        import pandas as pd

        names = dict.fromkeys(
            name for text in expressions for name in _TOKEN.findall(text)
        )
        columns = {
            name: self.by_name[name].values(rows, self.constants) for name in names
        }
        return pd.DataFrame({"rows": np.zeros(len(rows)), **columns})

    def written(self, text: str, unique: bool = False) -> str:
        """Return a text with parts as they are shown.

        Args:
            text: Text with plain names.
            unique: Whether columns whose names could be expressions are put in backticks.
        """

        def display(match: re.Match[str]) -> str:
            subexpression = self.by_name[match[0]]
            column = subexpression.column
            ambiguous = unique and column and not PLAIN.fullmatch(column)
            return quoted(subexpression.written) if ambiguous else subexpression.written

        text = _TOKEN.sub(display, text)
        for shown, (name, _) in self.constants.items():
            text = text.replace(name, shown)
        return text

    def column(self, text: str, contrasts: bool = True) -> str | None:
        """Return the column of a factor ``f`` or ``C(f)``; ``None`` of others.

        Args:
            text: Expression, as formulaic has it.
            contrasts: Whether ``C(f, ...)`` is one of these.
        """
        pattern = (
            rf"({_PREFIX}\d+_)|C\(({_PREFIX}\d+_)({', .*' if contrasts else ''})?\)"
        )
        match = re.fullmatch(pattern, text)
        return self.by_name[match[1] or match[2]].column if match else None


class _Substitution(ast.NodeTransformer):
    """Replaces the parts of an expression that are computed here by plain names."""

    def __init__(
        self,
        subexpressions: Subexpressions,
        expression: Expression,
        frame: pd.DataFrame,
    ) -> None:
        self._subexpressions, self._expression, self._frame = (
            subexpressions,
            expression,
            frame,
        )
        self._levels = False

    def visit(self, node: ast.AST) -> Any:
        """Return a name of a part, or what formulaic computes."""
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return node
        if not any(self._expression.column_of(child) for child in ast.walk(node)):
            return node
        if calls(node) <= _COMPUTED:
            name = self._subexpressions.name(
                self._expression, node, self._frame, self._levels
            )
            return ast.Name(name, ast.Load())
        if isinstance(node, ast.Call):
            levels, self._levels = (
                self._levels,
                "C" in calls(ast.Call(node.func, [], [])),
            )
            node.args = [self.visit(child) for child in node.args]
            node.keywords = [
                ast.keyword(w.arg, self.visit(w.value)) for w in node.keywords
            ]
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
