"""Writes table and figure: `python -m benchmarks.accuracy.table` from the raw numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    NullFormatter,
    StrMethodFormatter,
)

from benchmarks.accuracy.problems import PROBLEMS
from benchmarks.environments import HERE
from benchmarks.report import DOCUMENT, describe_machine, replace_section, table

RESULTS = HERE / "results-accuracy.json"
PICTURE = DOCUMENT.with_name("accuracy.png")
MARKERS = "osD^v<>"


def read() -> dict[str, Any]:
    """Return what was measured before."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}


def write(results: Mapping[str, Any]) -> None:
    """Put table and figure into the page on benchmarks."""
    parts = [describe_machine(dict(results), "accuracy")]
    head = ["", "seconds", "SD error, median", "worst", "mean, worst", "ESS", "R-hat"]
    head += ["seconds for 400 effective draws"]
    for problem, runs in results["runs"].items():
        rows = [_row(found) for found in runs.values()]
        parts += [f"### {PROBLEMS[problem].about}", table(head, rows)]
    parts.append(f"![Errors of posterior SDs against seconds]({PICTURE.name})")
    plot(results["runs"])
    replace_section(DOCUMENT, "accuracy", "\n\n".join(parts))


def _row(found: Mapping[str, Any]) -> list[str]:
    label = found["label"]
    if "extrapolated" in found:
        cells = [f"{found['seconds']:.0f}", "", "", "", f"{found['ess']:.0f}", ""]
        return [label, *cells, f"{found['extrapolated']:.0f}, extrapolated"]
    if "stepsize" in found:
        label += f", ε = {found['stepsize']:.1g}, n = {found['n']}"
    before = found["curve"][0][0]
    wanted = before + (found["seconds"] - before) * 400 / found["ess"]
    return [
        label,
        f"{found['seconds']:.1f}",
        f"{found['median']:.1%}",
        f"{found['worst']:.1%}",
        f"{found['mean']:.2f} sd",
        f"{found['ess']:.0f}",
        f"{found['rhat']:.3f}",
        f"{wanted:.0f}",
    ]


def plot(runs: Mapping[str, Mapping[str, Any]]) -> None:
    """A panel for each posterior: the median error of the SDs against seconds."""
    figure = Figure(figsize=(5.2 * len(runs), 4.2), layout="constrained")
    for axes, (problem, found) in zip(
        figure.subplots(1, len(runs), squeeze=False)[0], runs.items(), strict=True
    ):
        curves = [run for run in found.values() if "curve" in run]
        for marker, run in zip(MARKERS, curves, strict=False):
            seconds, median, _ = zip(*run["curve"], strict=True)
            axes.plot(seconds, median, marker=marker, markersize=4, label=run["label"])
        axes.axhline(0.05, color="0.6", linewidth=1, linestyle="--", label="5 %")
        axes.set(
            xscale="log", yscale="log", xlabel="seconds from the call",
            ylabel="error of a posterior sd, median", title=PROBLEMS[problem].about,
        )  # fmt: skip
        axes.title.set_size("medium")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g} %"))
        axes.legend(fontsize="small")
    figure.savefig(PICTURE, dpi=120)


if __name__ == "__main__":
    write(read())
