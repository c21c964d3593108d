"""The report: what to check before using a set of draws; and HTML for notebooks."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from sgmcmc.results.arrays import by_chain

# Line below the head of a report with ranges.
_RANGES = "Ranges (a to b) are over coordinates, or over what the row names."


class Section:
    """Names of the sections of reports."""

    MODEL = "Model"
    METHOD = "Method"
    METHODS = "Methods"
    MODE = "Mode"
    MODES = "Modes"
    DYNAMICS = "Dynamics"
    WARM_UP = "Warm-up"
    CHAIN = "Chain"
    PREDICTED = "Predicted"
    PREDICTIONS = "Predictions, by the log-likelihood of rows"
    DRAWS = "Draws"
    WATCHED = "Watched"
    GROUPS = "Groups"
    ROBUST = "Robust"
    HELD_OUT = "Held out"
    SHARDS = "Shards"
    COMBINATION = "Combination"
    SECONDS = "Seconds"
    WARNINGS = "warnings"


class Fact:
    """Names of facts in sections that are read from reports elsewhere."""

    REDUCTION = "reduction"
    CHAINS = "chains"
    DRAWS_PER_CHAIN = "draws per chain"
    BURN_IN = "burn-in"
    BULK = "ESS, bulk"
    TAIL = "ESS, tail"
    RHAT = "R-hat"
    DIVERGENCES = "divergences"
    SD_RATIO = "SD of draws / Laplace SD"
    SD_ERROR = "SD error (noise along the chain)"
    NOISE = "whitened gradient noise, along the chain"
    TOO_WIDE = "SDs too wide by kernels, normal shards"


# Diagnostics of each coordinate: name in the report, heading, worst value, format.
_SHOWN = ((Fact.BULK, "ESS", np.min, "{:.0f}"), (Fact.RHAT, "R-hat", np.max, "{:.3f}"))


class Report(Mapping[str, Any]):
    """The choice of the constants of a chain, and the quality of its draws.

    A read-only mapping from the names of facts to plain numbers, texts, lists and dicts of these;
    ``print`` shows a page of them. ``report["Warnings"]`` is the list :attr:`warnings`.

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
        contents: Mapping[str, Any] = (
            facts._facts if isinstance(facts, Report) else facts
        )
        self._facts: dict[str, Any] = dict(contents)

    def __getitem__(self, name: str) -> Any:
        if name in (Section.WARNINGS, "Warnings"):
            name = Section.WARNINGS
            self._facts.setdefault(name, [])
        if callable(self._facts[name]):
            self._facts[name] = self._facts[name]()
        return self._facts[name]

    def __getstate__(self) -> dict[str, Any]:
        # Functions hold the user's functions and data, which stay in this process.
        values = {name: value for name, value in self.items() if not callable(value)}
        return {**self.__dict__, "_facts": values}

    def __iter__(self) -> Any:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def warnings(self) -> list[str]:
        """Sentences on reasons not to trust the draws; an empty list is a good sign."""
        return list(self.get(Section.WARNINGS, []))

    def with_section(self, name: str, facts: Mapping[str, Any]) -> Report:
        """Return the same report with one more section, its last."""
        return Report({**self._facts, name: dict(facts)})

    def renamed(self, labels: Mapping[str, str]) -> Report:
        """Return the same report with other names of coordinates.

        Args:
            labels: New names by the present ones, such as ``{"b[2]": "slope"}``.
        """
        if not labels:
            return self
        pattern = re.compile(
            r"(?<!\w)(" + "|".join(map(re.escape, labels)) + r")(?![\w\[])"
        )

        def changed(value: Any) -> Any:
            if isinstance(value, str):
                return pattern.sub(lambda match: labels[match[0]], value)
            if isinstance(value, Mapping):
                return {changed(name): changed(entry) for name, entry in value.items()}
            if isinstance(value, list):
                return [changed(entry) for entry in value]
            return value

        def of_fact(name: str) -> Any:
            return changed(self[name])

        return Report({name: functools.partial(of_fact, name) for name in self})

    @property
    def _head(self) -> str:
        return f"Sampling report: {self.get('method', 'a chain')}"

    def __str__(self) -> str:
        sections = [facts for facts in self.values() if isinstance(facts, Mapping)]
        width = 2 + max([44, *(len(name) for facts in sections for name in facts)])
        values = [value for facts in sections for value in facts.values()]
        has_range = any(isinstance(value, list | tuple) and value for value in values)
        lines = [self._head, *([_RANGES] if has_range else []), ""]
        for title, facts in self.items():
            if isinstance(facts, Mapping):
                lines.append(title)
                for name, value in facts.items():
                    lines.append(f"  {name:<{width}}{_text(value)}")
                lines.append("")
        lines.append("Warnings")
        lines += [f"  ! {warning}" for warning in self.warnings] or ["  none"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        sections = [
            html_table(
                [title, ""], [(name, _text(value)) for name, value in facts.items()]
            )
            for title, facts in self.items()
            if isinstance(facts, Mapping)
        ]
        return html_page(self._head, *sections, warnings=self.warnings or ["none"])


def _text(value: Any) -> str:
    """Return a fact in a form that fits on a line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "not available" if np.isnan(value) else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        # The smallest and the largest number, or one if they look the same.
        values = np.asarray(value, float)
        if not values.size:
            return "none"
        values = values[~np.isnan(values)]  # an R-hat of what is constant has no value
        if not values.size:
            return "not available"
        is_rounding = np.abs(values) < 1e-14
        values = np.where(is_rounding, 0.0, values)
        low, high = f"{values.min():.4g}", f"{values.max():.4g}"
        return low if low == high else f"{low} to {high}"
    return str(value)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_page(title: str, *sections: str, warnings: Sequence[str] = ()) -> str:
    """Return a page: title, parts, and warnings."""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    below = f"<p><b>Warnings</b></p><ul>{items}</ul>" if items else ""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(sections)}{below}</div>"


def draws_table(
    settings: Mapping[str, Any],
    draws: Mapping[str, np.ndarray],
    report: Mapping[str, Any] | None,
) -> str:
    """Return a table of parameters, with the diagnostics of the worst coordinate of each."""
    if not draws:
        return "<p>no draws kept</p>"
    chains = by_chain(settings, draws)
    sizes = [int(np.prod(array.shape[2:])) for array in chains.values()]
    diagnostics = (report or {}).get(Section.DRAWS, {})
    heads = ["parameter", "shape", "dtype"]
    rows = [[name, str(a.shape), str(a.dtype)] for name, a in draws.items()]
    for name, heading, worst, form in _SHOWN:
        by_parameter = _by_parameter(diagnostics.get(name), sizes)
        if by_parameter:
            heads.append(heading)
            for row, numbers in zip(rows, by_parameter, strict=True):
                row.append(form.format(worst(numbers)))
    return html_table(heads, rows)


def _by_parameter(numbers: Any, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return a report's numbers by parameter; none if it has not one for each coordinate."""
    if not isinstance(numbers, list | tuple) or len(numbers) != sum(sizes):
        return []
    return np.split(np.asarray(numbers, np.float64), np.cumsum(sizes)[:-1])


class Timings:
    """Seconds of a call, by task.

    Args:
        began: Start of the call, by the monotonic clock; by default now.
        seconds: Seconds that are entered already.
        earlier: Seconds before the start that belong to the call, by what was done.

    Attributes:
        began: Start of the call, by the monotonic clock.
        seconds: Seconds by name; a name that comes again is added to.
    """

    def __init__(
        self,
        began: float | None = None,
        seconds: Mapping[str, float] | None = None,
        earlier: Mapping[str, float] | None = None,
    ) -> None:
        self.began = time.monotonic() if began is None else began
        self.seconds = dict(seconds or {})
        self._earlier = dict(earlier or {})
        self._since = self.began + sum(self.seconds.values())

    def done(self, name: str) -> None:
        """Enter the seconds since the last entry."""
        now = time.monotonic()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    @property
    def all(self) -> float:
        """Seconds since the start, and those before it."""
        return time.monotonic() - self.began + sum(self._earlier.values())

    def facts(self) -> dict[str, float]:
        """Return the section of the report."""
        return {**self._earlier, **self.seconds, "all": self.all}
