"""Writes the licenses of everything that is installed: ``python packaging/licenses.py``.

Adds to docs/project.md what is installed next to the Python that runs this, and keeps the rest:
other versions of Python and TensorFlow need other packages.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).parents[1] / "docs" / "project.md"
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)
UNSAID = {"namex": "Apache License 2.0"}
"""Licenses that are in a package's sources and not in its metadata."""


def dependencies(
    name: str = "sgmcmc", extras: frozenset[str] = frozenset({""})
) -> dict[str, str]:
    """Return the direct and indirect dependencies of a package, with their licenses."""
    found: dict[str, str] = {}
    waiting, seen = [(name, extras)], set()
    while waiting:
        name, extras = waiting.pop()
        for text in metadata.requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker and not any(
                wanted.marker.evaluate({"extra": e}) for e in extras
            ):
                continue
            key = canonical(wanted.name), frozenset({"", *wanted.extras})
            if key not in seen:
                seen.add(key)
                waiting.append(key)
                found[key[0]] = license(wanted.name)
    return found


def canonical(name: str) -> str:
    """Return a package's name as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def license(name: str) -> str:
    """Return the license of an installed package, as its metadata state it."""
    about = metadata.metadata(name)
    classified = [
        c.split(" :: ")[-1] for c in about.get_all("Classifier", []) if "License" in c
    ]
    stated = (about.get("License") or "").strip().partition("\n")[0]
    return (
        about.get("License-Expression")
        or "; ".join(classified)
        or stated
        or UNSAID[canonical(name)]
    )


def listed() -> dict[str, str]:
    """Return the packages on the page, with their licenses."""
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


if __name__ == "__main__":
    rows = {**listed(), **dependencies()}
    lines = [f"| `{name}` | {rows[name]} |\n" for name in sorted(rows)]
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index("| `")], text[text.rindex("|\n") + 2 :]
    PAGE.write_text(before + "".join(lines) + after, encoding="utf-8")
