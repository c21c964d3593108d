"""The report: what to check before using a set of draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgmcmc.results import html

_RANGES = "Ranges (a to b) are over coordinates, or over what the row names."
"""Line below the head of a report with ranges."""

_ROUNDING = 1e-14
"""Size below which a number of a range is shown as 0."""


class Report(Mapping[str, Any]):
    """How the constants of a chain were chosen, and how good its draws are.

    A read-only mapping from the names of facts to plain numbers, texts, lists and dicts of these;
    ``print`` shows a page of them.

    Args:
        facts: Contents of the report; only what JSON can hold, or functions that return it, which
            are called when they are first asked for.

    Attributes:
        warnings: Sentences on reasons not to trust the draws.

    Example:
        >>> print(Report({"method": "underdamped", "warnings": []}).warnings)
        []
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        own: Mapping[str, Any] = facts._facts if isinstance(facts, Report) else facts
        self._facts: dict[str, Any] = dict(own)

    def __getitem__(self, name: str) -> Any:
        if callable(self._facts[name]):
            self._facts[name] = self._facts[name]()
        return self._facts[name]

    def __getstate__(self) -> dict[str, Any]:
        # Functions hold the user's functions and data, which stay in this process.
        known = {name: value for name, value in self.items() if not callable(value)}
        return {**self.__dict__, "_facts": known}

    def __iter__(self) -> Any:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def warnings(self) -> list[str]:
        """Sentences on reasons not to trust the draws; an empty list is a good sign."""
        return list(self.get("warnings", []))

    @property
    def _head(self) -> str:
        return f"Sampling report: {self.get('method', 'a chain')}"

    def __str__(self) -> str:
        sections = [facts for facts in self.values() if isinstance(facts, Mapping)]
        width = 2 + max([44, *(len(name) for facts in sections for name in facts)])
        lines = [self._head, _RANGES, ""] if any(map(_has_range, sections)) else [self._head, ""]
        for title, facts in self.items():
            if isinstance(facts, Mapping):
                lines += [
                    title,
                    *(f"  {name:<{width}}{_text(value)}" for name, value in facts.items()),
                ]
                lines.append("")
        lines.append("Warnings")
        lines += [f"  ! {warning}" for warning in self.warnings] or ["  none"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        sections = [
            html.table([title, ""], [(name, _text(value)) for name, value in facts.items()])
            for title, facts in self.items()
            if isinstance(facts, Mapping)
        ]
        return html.page(self._head, *sections, warnings=self.warnings or ["none"])


def _has_range(facts: Mapping[str, Any]) -> bool:
    """Return whether a section shows a list of numbers as a range."""
    return any(isinstance(value, list | tuple) and value for value in facts.values())


def _text(value: Any) -> str:
    """Return a fact in a form that fits on a line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return _range_text(np.asarray(value, float))
    return str(value)


def _range_text(values: np.ndarray) -> str:
    """Return the smallest and the largest number, or one if they look the same."""
    if not values.size:
        return "none"
    values = values[~np.isnan(values)]  # an R-hat of what is constant has no value
    if not values.size:
        return "not available"
    values = np.where(np.abs(values) < _ROUNDING, 0.0, values)
    low, high = f"{values.min():.4g}", f"{values.max():.4g}"
    return low if low == high else f"{low} to {high}"
