"""HTML for notebooks: draws, reports and samplers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from sgmcmc.results.arrays import by_chain

_SECTION = "Draws"
_SHOWN = (("ESS, bulk", "ESS", np.min, "{:.0f}"), ("R-hat", "R-hat", np.max, "{:.3f}"))
"""Diagnostics of each coordinate: name in the report, heading, worst value, format."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def page(title: str, *parts: str, warnings: Sequence[str] = ()) -> str:
    """Return a page: title, parts, and warnings."""
    doubts = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    below = f"<p><b>Warnings</b></p><ul>{doubts}</ul>" if doubts else ""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(parts)}{below}</div>"


def draws_table(
    settings: Mapping[str, Any], draws: Mapping[str, np.ndarray], report: Mapping[str, Any] | None
) -> str:
    """Return a table of parameters, with the diagnostics of the worst coordinate of each."""
    if not draws:
        return "<p>no draws kept</p>"
    sizes = [int(np.prod(array.shape[2:])) for array in by_chain(settings, draws).values()]
    judged = [
        (heading, [form.format(worst(part)) for part in parts])
        for name, heading, worst, form in _SHOWN
        if (parts := _by_parameter((report or {}).get(_SECTION, {}).get(name), sizes))
    ]
    rows = [
        [name, str(array.shape), str(array.dtype), *(texts[place] for _, texts in judged)]
        for place, (name, array) in enumerate(draws.items())
    ]
    return table(["parameter", "shape", "dtype", *(heading for heading, _ in judged)], rows)


def _by_parameter(numbers: Any, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return a report's numbers by parameter; none if it has not one for each coordinate."""
    if not isinstance(numbers, list | tuple) or len(numbers) != sum(sizes):
        return []
    return np.split(np.asarray(numbers, np.float64), np.cumsum(sizes)[:-1])
