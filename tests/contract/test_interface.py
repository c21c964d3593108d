"""The public interface is the one that is written down."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.interface import FILE, MODULES, interface

NEW = "If that is intended: python -m tests.contract.interface, and a line in the changelog."


def flat(content: Any, name: str = "") -> dict[str, Any]:
    """Return the leaves of nested dicts by dotted name; an empty one is a leaf."""
    if not isinstance(content, dict) or not content:
        return {name: content}
    parts = [flat(value, f"{name}.{key}".lstrip(".")) for key, value in content.items()]
    return {key: value for part in parts for key, value in part.items()}


def test_names_signatures_and_defaults_are_those_written_down() -> None:
    known, found = flat(json.loads(FILE.read_text())), flat(interface())
    changed = {
        name: (known.get(name), found.get(name))
        for name in known.keys() | found.keys()
        if known.get(name) != found.get(name)
    }
    assert not changed, NEW


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parent.glob("*.py")), ids=lambda p: p.name
)
def test_the_contract_knows_public_names_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
            assert not [
                alias.name for alias in node.names if alias.name.startswith("_")
            ]
        else:
            continue
        own = [name for name in names if name.partition(".")[0] == "sgmcmc"]
        assert set(own) <= set(MODULES), "public modules are " + ", ".join(MODULES)
        others = [name for name in names if name.startswith("tests.")]
        assert all(name.startswith("tests.contract") for name in others)
