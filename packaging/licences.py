"""Writes the licences of all that an installation brings: ``python packaging/licences.py``.

Adds to docs/licences.md what is installed beside the Python that runs this, and keeps the rest:
other versions of Python and TensorFlow bring others.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).parents[1] / "docs" / "licences.md"
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)
UNSAID = {"namex": "Apache License 2.0"}
"""Licences that are in a package's sources and not in what it says of itself."""

TOP = """\
# Licences

The package is under the [Apache License 2.0](../LICENSE) and holds no code of others. This is what
`pip` installs with it on Linux, over the tested [versions](../README.md#versions), with the
licences as each package states them. `python packaging/licences.py` writes the table; a test
compares it with what is installed. None asks anything of those who use the package. Of those who
ship changed copies of certifi or tqdm, the Mozilla licence asks that these changes be published.

| package | licence |
| --- | --- |
"""


def dependencies(name: str = "sgmcmc", extras: frozenset[str] = frozenset({""})) -> dict[str, str]:
    """Return the packages that one needs to run, and those that they need, with their licences."""
    found: dict[str, str] = {}
    waiting, seen = [(name, extras)], set()
    while waiting:
        name, extras = waiting.pop()
        for text in metadata.requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker and not any(wanted.marker.evaluate({"extra": e}) for e in extras):
                continue
            key = canonical(wanted.name), frozenset({"", *wanted.extras})
            if key not in seen:
                seen.add(key)
                waiting.append(key)
                found[key[0]] = licence(wanted.name)
    return found


def canonical(name: str) -> str:
    """Return a package's name as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(name: str) -> str:
    """Return the licence of an installed package, in its own words."""
    about = metadata.metadata(name)
    classified = [c.split(" :: ")[-1] for c in about.get_all("Classifier", []) if "License" in c]
    stated = (about.get("License") or "").strip().partition("\n")[0]
    return (
        about.get("License-Expression")
        or "; ".join(classified)
        or stated
        or UNSAID[canonical(name)]
    )


def listed() -> dict[str, str]:
    """Return the packages on the page, with their licences."""
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8"))) if PAGE.exists() else {}


if __name__ == "__main__":
    rows = {**listed(), **dependencies()}
    lines = [f"| `{name}` | {rows[name]} |\n" for name in sorted(rows)]
    PAGE.write_text(TOP + "".join(lines), encoding="utf-8")
