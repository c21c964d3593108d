"""The R package has a function for each row that says so, with the arguments in R's names.

Only its sources are looked at; R's own tests compare with the running package.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.ladder import DISTINCT, Case, every

SOURCES = Path(__file__).parents[2] / "r"
IN_R = tuple(case for case in DISTINCT if case.in_r)

pytestmark = pytest.mark.skipif(
    not SOURCES.exists(), reason="not in the source distribution"
)


def in_r(name: str) -> str:
    """Return an argument's name in R."""
    return re.sub(
        r"(?<=[a-z0-9])_([a-z0-9])", lambda found: found.group(1).upper(), name
    )


def arguments_in_r(function: str) -> list[str]:
    """Return the names of the arguments of a function of the R package."""
    text = "\n".join(path.read_text() for path in sorted((SOURCES / "R").glob("*.R")))
    found = re.search(
        rf"^{function} <- function\((.*?)\) \{{", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, function
    flat = found.group(1)
    while "(" in flat:  # a default may be a call
        flat = re.sub(r"\([^()]*\)", "", flat)
    return [part.split("=")[0].strip() for part in flat.split(",")]


def check(function: str, python: Any, required: set[str]) -> None:
    """Assert that a function of R has arguments of a Python function, and all that must be given.

    Those that Python takes by position come in Python's order.
    """
    ours = arguments_in_r(function)
    assert ours.pop() == "..."
    parameters = inspect.signature(python).parameters.values()
    theirs = [in_r(p.name) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_keyword = {in_r(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert [name for name in ours if name in theirs] == theirs
    assert set(ours) <= set(theirs) | by_keyword
    assert {in_r(name) for name in required} <= set(ours)


@every(IN_R)
def test_the_function_in_r(case: Case) -> None:
    required = {
        name for name, v in case.keywords.items() if v is inspect.Parameter.empty
    }
    check(str(case.in_r), case.function, {*case.constants, *required})
    check(f"{case.in_r}Setup", case.setup, {*case.constants, *required})


@every(tuple(case for case in DISTINCT if case.public))
def test_the_setup_is_known_by_its_name_in_r(case: Case) -> None:
    """So that messages of Python name the function that the user called."""
    names = (SOURCES / "R" / "python.R").read_text()
    assert f'{case.public}_setup = "{case.in_r}Setup"' in names


def test_rs_own_tests_walk_through_all() -> None:
    helper = (SOURCES / "tests" / "testthat" / "helper-model.R").read_text()
    listed = re.search(r"^methods <- c\((.*?)\)", helper, re.MULTILINE | re.DOTALL)
    assert listed is not None
    found = set(re.findall(r'"(\w+)"', listed.group(1)))
    assert found == {case.in_r for case in IN_R if not case.of_points}
