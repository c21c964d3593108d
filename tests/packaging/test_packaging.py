"""The files around the package say what pyproject.toml says."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
if not (ROOT / "packaging" / "licenses.py").exists():
    pytest.skip("not in a checkout", allow_module_level=True)
if sys.version_info >= (3, 11):
    import tomllib
else:
    pytest.skip("no tomllib", allow_module_level=True)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
DIRECT = [Requirement(text) for text in PROJECT["dependencies"]]


def licenses() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "licenses", ROOT / "packaging" / "licenses.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_dependency_has_its_license_on_the_page() -> None:
    module = licenses()
    listed, needed = module.listed(), module.dependencies()
    assert {module.canonical(wanted.name) for wanted in DIRECT} <= set(needed)
    assert not sorted(set(needed) - set(listed))
    assert all(license.strip() for license in listed.values())


def test_the_recipe_has_the_bounds_of_the_project() -> None:
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    found = {}
    for name, bounds in re.findall(r"    - (\S+) (\S+)", run):
        found[name.removesuffix("-base")] = set(bounds.split(","))
    wanted = {each.name: {str(bound) for bound in each.specifier} for each in DIRECT}
    wanted["python"] = set(PROJECT["requires-python"].split(","))
    # What the extra of TensorFlow Probability brings.
    wanted["tf-keras"] = wanted["tensorflow"]
    assert found == wanted
    assert f'version = "{PROJECT["version"]}"' in recipe


def test_every_dependency_has_a_lower_bound() -> None:
    for wanted in DIRECT:
        assert any(bound.operator == ">=" for bound in wanted.specifier), wanted


def test_the_dockerfile_is_short() -> None:
    lines = (ROOT / "packaging" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 20


def test_the_weekly_run_has_every_folder_of_tests() -> None:
    workflow = (ROOT / ".github" / "workflows" / "slow.yml").read_text("utf-8")
    run = set(re.findall(r"tests/[\w*.]+", workflow))
    tests = ROOT / "tests"
    folders = {
        path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")
    }
    assert run == {f"tests/{name}" for name in folders} | {"tests/test_*.py"}
