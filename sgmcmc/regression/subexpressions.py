"""Parts of terms that are computed here, and columns of plain names that stand for them.

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

from sgmcmc.regression.arithmetic import (
    FUNCTIONS,
    are_levels,
    as_levels,
    as_numbers,
    plain,
)
from sgmcmc.regression.expressions import Constants, Expression, calls
from sgmcmc.regression.formula import (
    PLAIN,
    quoted,
)

if TYPE_CHECKING:
    import pandas as pd


_PREFIX = "part_of_formula_"
_PLAIN_NAME = re.compile(rf"{_PREFIX}\d+_")
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
            if getattr(values, "dtype", np.dtype(float)).kind in "mM":
                # Else formulaic compares NumPy's dates with those of pandas.
                values = pd.Categorical(values)
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
        substitution = _Substitution(self, expression, frame)
        return ast.unparse(substitution.visit(copy.deepcopy(tree)))

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
        for name, subexpression in self.by_name.items():
            same_kind = subexpression.levels == levels
            same_column = (subexpression.column or "") == (column or "")
            if same_kind and same_column and subexpression.written == written:
                return name
        name = f"{_PREFIX}{len(self.by_name)}_"
        self.by_name[name] = Subexpression(expression, tree, levels, written, column)
        return name

    def frame(self, rows: pd.DataFrame, expressions: Iterable[str]) -> pd.DataFrame:
        """Return the parts that some expressions need, for some rows."""
        import pandas as pd

        columns: dict[str, Any] = {"rows": np.zeros(len(rows))}
        for text in expressions:
            for name in _PLAIN_NAME.findall(text):
                if name not in columns:
                    columns[name] = self.by_name[name].values(rows, self.constants)
        return pd.DataFrame(columns)

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

        text = _PLAIN_NAME.sub(display, text)
        for shown, (name, _) in self.constants.items():
            text = text.replace(name, shown)
        return text

    def column(self, text: str, contrasts: bool = True) -> str | None:
        """Return the column of a factor ``f`` or ``C(f)``; ``None`` of others.

        Args:
            text: Expression, as formulaic has it.
            contrasts: Whether ``C(f, ...)`` is one of these.
        """
        options = ", .*" if contrasts else ""
        plain_name = rf"({_PREFIX}\d+_)"
        match = re.fullmatch(rf"{plain_name}|C\({plain_name}({options})?\)", text)
        return self.by_name[match[1] or match[2]].column if match else None


class _Substitution(ast.NodeTransformer):
    """Replaces the parts of an expression that are computed here by plain names."""

    def __init__(
        self,
        subexpressions: Subexpressions,
        expression: Expression,
        frame: pd.DataFrame,
    ) -> None:
        self._subexpressions, self._expression = subexpressions, expression
        self._frame = frame
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
            outer = self._levels
            self._levels = "C" in calls(ast.Call(node.func, [], []))
            node.args = [self.visit(child) for child in node.args]
            node.keywords = [
                ast.keyword(word.arg, self.visit(word.value)) for word in node.keywords
            ]
            if isinstance(node.func, ast.Attribute):
                node.func.value = self.visit(node.func.value)
            self._levels = outer
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
