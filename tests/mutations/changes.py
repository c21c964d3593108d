"""Small changes of code, of the kinds that people make by mistake: `<` for `<=`, `+` for `-`."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
}  # fmt: skip
LOGIC = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}

PASSED_OVER = (ast.Raise, ast.JoinedStr, ast.arg, ast.AnnAssign, ast.Assert)
"""Parts of code that are not changed: errors, texts, types."""


@dataclass(frozen=True)
class Change:
    """A piece of a line of a file, and what takes its place."""

    path: str
    line: int
    column: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.before} -> {self.after}"

    def made(self, text: str) -> str:
        """Return the text of the file with the change."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1]
        end = self.column + len(self.before)
        assert line[self.column : end] == self.before, "The file is another one."
        lines[self.line - 1] = line[: self.column] + self.after + line[end:]
        return "".join(lines)


def drawn(root: Path, rooms: list[str], count: int, seed: int) -> list[Change]:
    """Return changes drawn at random, as many of each room as of any other."""
    random_numbers = random.Random(seed)
    changes: list[Change] = []
    for k, room in enumerate(rooms):
        pool = [
            change
            for path in sorted((root / room).rglob("*.py"))
            for change in changes_of(path.read_text(), str(path.relative_to(root)))
        ]
        share = count * (k + 1) // len(rooms) - len(changes)
        changes += random_numbers.sample(pool, min(share, len(pool)))
    return changes


def changes_of(text: str, path: str) -> list[Change]:
    """Return every change of the code of a file, in order."""
    source = _Source(text.splitlines(), path)
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__repr")
    ]
    changes = {
        change
        for node in functions
        for statement in node.body
        for change in source.of(statement)
    }
    return sorted(
        changes, key=lambda change: (change.line, change.column, change.after)
    )


class _Source:
    """Lines of a file, whose nodes are changed.

    Columns of nodes count bytes; a line with other characters than ASCII is left alone.
    """

    def __init__(self, lines: list[str], path: str) -> None:
        self.lines = lines
        self.path = path

    def of(self, node: ast.AST) -> Iterator[Change]:
        if isinstance(node, PASSED_OVER) or _is_warning(node):
            return
        yield from self._here(node)
        for child in ast.iter_child_nodes(node):
            yield from self.of(child)

    def _here(self, node: ast.AST) -> Iterator[Change]:
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield from self._between(
                node.left, node.comparators[0], COMPARISONS[type(node.ops[0])]
            )
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            if not any(isinstance(part, ast.List | ast.Tuple) or _is_text(part)
                       for part in (node.left, node.right)):  # fmt: skip
                yield from self._between(
                    node.left, node.right, ARITHMETIC[type(node.op)]
                )
        elif isinstance(node, ast.BoolOp):
            yield from self._between(
                node.values[0], node.values[1], LOGIC[type(node.op)]
            )
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield from self._at(node.lineno, node.col_offset, "-", "")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from self._at(node.lineno, node.col_offset, "not ", "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in CALLS:
                name = node.func.id
                yield from self._at(node.lineno, node.col_offset, name, CALLS[name])
        elif isinstance(node, ast.Constant) and isinstance(
            node.value, bool | int | float
        ):
            before = ast.get_source_segment("\n".join(self.lines), node) or ""
            yield from self._at(
                node.lineno, node.col_offset, before, _other(node.value)
            )

    def _between(
        self, left: ast.expr, right: ast.expr, words: tuple[str, str]
    ) -> Iterator[Change]:
        """Change the operator between two operands, which are on one line."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        line = self.lines[right.lineno - 1]
        column = line.find(words[0], left.end_col_offset, right.col_offset)
        if column >= 0:
            yield from self._at(right.lineno, column, *words)

    def _at(self, line: int, column: int, before: str, after: str) -> Iterator[Change]:
        text = self.lines[line - 1]
        if text.isascii() and before and text[column:].startswith(before):
            yield Change(self.path, line, column, before, after)


def _other(value: float) -> str:
    """Return another number, or the other truth value."""
    if isinstance(value, bool):
        return str(not value)
    return (
        str(value + 1) if isinstance(value, int) else str(2 * value if value else 1.0)
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_warning(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
