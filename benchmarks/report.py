"""Writes the tables: `python -m benchmarks.report` does it again from the raw numbers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.environments import HERE
from benchmarks.packages import PACKAGES
from benchmarks.summary import Numbers, columns

DOCUMENT = HERE.parent / "docs" / "benchmarks.md"
TARGETS = {
    "accuracy": "bench-accuracy",
    "alternating": "bench-scaling",
    "bad-cases": "bench-posteriors",
    "cores": "bench-cores",
    "elsewhere": "bench-laws",
    "executors": "bench-executors",
    "factors": "bench-factors",
    "from-r": "bench-r",
    "further": "bench",
    "glmer": "bench-glmer",
    "growing": "bench-growing",
    "large": "bench-large",
    "laws": "bench-laws",
    "limits": "bench",
    "long-chains": "bench-long",
    "mamba": "bench-mamba",
    "manifolds": "bench-manifolds",
    "mixed": "bench-mixed",
    "mixture": "bench-mixture",
    "networks": "bench-networks",
    "packages": "bench",
    "parts": "bench-parts",
    "passes": "bench-passes",
    "posteriors": "bench-posteriors",
    "regressions": "bench-regressions",
    "scaling": "bench-scaling",
    "seconds": "bench-seconds",
    "spherical": "bench-manifolds",
    "structure": "bench-structure",
    "topics": "bench-topics",
    "uci": "bench-networks",
}
"""Target of make that writes each section."""


def results_file(section: str) -> Path:
    """Return where the raw numbers of a comparison of packages are."""
    return HERE / (
        "results.json" if section == "packages" else f"results-{section}.json"
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; all columns but the first are aligned to the right."""
    head = list(head)
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def replace_section(path: Path, section: str, text: str) -> None:
    """Put text between the two markers of a section; what is around them stays."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_text() if path.exists() else "# Benchmarks\n"
    if begin not in old or end not in old:
        old = f"{old.rstrip()}\n\n{begin}\n{end}\n"
    before, rest = old.split(begin, 1)
    after = rest.split(end, 1)[1]
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")


def publish(
    section: str, parts: Iterable[str], smoke: bool, path: Path = DOCUMENT
) -> None:
    """Print a section that was measured just now, and put it into its document unless `smoke`.

    Args:
        section: between which markers.
        parts: paragraphs and tables.
        smoke: nothing was really measured.
        path: the document.
    """
    raw = {"date": datetime.date.today().isoformat(), "machine": machine.facts()}
    text = "\n\n".join([describe_machine(raw, section), *parts])
    print(text)
    if not smoke:
        replace_section(path, section, text)


def describe_machine(raw: dict[str, Any], section: str) -> str:
    """The date, the command and the machine of a section in one line."""
    machine = ", ".join(f"{k} {v}" for k, v in raw["machine"].items())
    return f"{raw['date']}, `make {TARGETS[section]}`; {machine}."


def results_of(path: Path, kind: str) -> dict[str, Any]:
    """What was measured before, under `kind` by name."""
    return json.loads(path.read_text()) if path.exists() else {kind: {}}


def measure_each(
    path: Path,
    kind: str,
    names: Iterable[str],
    measure: Callable[[str], dict[str, Any]],
    line: Callable[[str, dict[str, Any]], str],
) -> dict[str, Any]:
    """Measure one after the other, print a line for each, and return all that there are results of.

    Args:
        path: File in which results add up.
        kind: Key in it of the results by name.
        names: What to measure.
        measure: Function of a name that returns the result.
        line: Function of a name and its result that returns the line.
    """
    for name in names:
        found = measure(name)
        results = results_of(
            path, kind
        )  # again, so that a run of some undoes no other's
        results |= {
            "date": datetime.date.today().isoformat(),
            "machine": machine.facts(),
        }
        results[kind][name] = found
        path.write_text(json.dumps(results, indent=1))
        print(line(name, found), flush=True)
    return results_of(path, kind)


def attempted(
    measure: Callable[..., dict[str, Any]], *arguments: Any
) -> dict[str, Any]:
    """What a function returns, or what went wrong: a failure is a row of the table."""
    try:
        return measure(*arguments)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def number(x: float) -> str:
    """Three digits, or all those before the point."""
    if x <= 0:
        return "noise"
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def _cells(raw: dict[str, Any], cell: Callable[[Numbers, Numbers | None], str]) -> str:
    shown = [n for n in raw["packages"] if PACKAGES[n].variant_of is None]
    rows = []
    for entry in raw["workloads"]:
        found = columns(entry["results"], entry["workload"]["n_chains"])
        reference = found.get("sgmcmc")
        row = [entry["workload"]["description"]]
        for name in shown:
            numbers = found.get(name)
            text = _missing(entry["results"].get(name, {}))
            row.append(cell(numbers, reference) if numbers else text)
        rows.append(row)
    return table(["", *(PACKAGES[n].label for n in shown)], rows)


def _missing(result: dict[str, Any]) -> str:
    """What stands in a cell without numbers."""
    return "— ¹" if "unsupported" in result else "— ²" if "failed" in result else "—"


def _micros(numbers: Numbers, reference: Numbers | None) -> str:
    return f"{number(numbers.median)} ({number(numbers.best)})"


def _ratio(numbers: Numbers, reference: Numbers | None) -> str:
    if reference is None or min(reference.median, reference.best) <= 0:
        return "—"
    medians = numbers.median / reference.median
    return f"{number(medians)} ({number(numbers.best / reference.best)})"


def _footnotes(raw: dict[str, Any]) -> str:
    notes = [f"{PACKAGES[n].label}: {PACKAGES[n].note}." for n in raw["packages"]]
    notes = [note for note in notes if not note.endswith(": .")]
    lines = ["How the packages are used:", "", *(f"- {note}" for note in notes), ""]
    for entry in raw["workloads"]:
        for numbers in columns(
            entry["results"], entry["workload"]["n_chains"]
        ).values():
            if numbers and PACKAGES[numbers.package].variant_of:
                where = entry["workload"]["description"]
                lines.append(
                    f"{where}: the numbers are those of {PACKAGES[numbers.package].label}."
                )
    reasons = {
        f"{PACKAGES[name].label}: {result['unsupported']}"
        for entry in raw["workloads"]
        for name, result in entry["results"].items()
        if "unsupported" in result
    }
    if reasons:
        lines += ["", f"¹ The package does not have it ({'; '.join(sorted(reasons))})."]
    if any(
        "failed" in r for entry in raw["workloads"] for r in entry["results"].values()
    ):
        lines += ["", "² Could not be installed or run here."]
    return "\n".join(lines).strip()


def _versions(raw: dict[str, Any]) -> str:
    found: dict[str, str] = {}
    for entry in raw["workloads"]:
        for name, result in entry["results"].items():
            if "versions" in result:
                versions = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
                found[PACKAGES[name].variant_of or name] = versions
    return "\n".join(f"- {PACKAGES[name].label}: {v}" for name, v in found.items())


def render(raw: dict[str, Any]) -> str:
    """All of the tables in Markdown."""
    parts = [
        describe_machine(raw, raw.get("section", "packages")),
        "### Microseconds per iteration",
        f"Median of {raw['rounds']} rounds, with the best in parentheses. A round is the "
        "difference of a long and a short run, about "
        f"{raw['seconds']:g} s for each package; all packages run in turn before the next round "
        "begins. Every draw is kept. With several chains the wall time is divided by the number "
        "of chains too. Processes keep freed memory, so that no run waits for memory that a "
        "virtual machine has returned to its host.",
        _cells(raw, _micros),
        "### Times as long as `sgmcmc`",
        _cells(raw, _ratio),
        "### Seconds to the first draw",
        "Time of a chain of one iteration, with all tracing, compiling and copying of data, in a "
        "process that has imported the package and loaded the data.",
        _cells(raw, lambda numbers, _: number(numbers.first)),
        "### Memory, MB",
        "Peak memory beyond that after the import and the loading of the data, with the peak "
        "itself in parentheses, after the first draw and a run of the same length for all "
        "packages.",
        _cells(
            raw, lambda numbers, _: f"{number(numbers.added)} ({number(numbers.peak)})"
        ),
        _footnotes(raw),
        "Versions:",
        _versions(raw),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Write the tables of each section whose raw numbers are here."""
    for section in ("packages", "further"):
        if results_file(section).exists():
            raw = json.loads(results_file(section).read_text())
            replace_section(DOCUMENT, section, render(raw))


if __name__ == "__main__":
    main()
