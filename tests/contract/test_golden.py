"""The same call with the same seed gives the same draws, from version to version."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.contract.golden import CASES, FILE, draws, machine

KNOWN = json.loads(FILE.read_text())


def test_every_case_is_written_down() -> None:
    assert list(KNOWN["cases"]) == list(CASES)


LONG = "sample, logistic"
"""Its posterior is far from normal: two kinds of chains are compiled."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == LONG)) for name in CASES],
)
def test_draws_are_those_written_down(name: str) -> None:
    """To the bit on the processor of the file; elsewhere as far as rounding leaves them.

    A call without constants adapts to its draws, which makes other decisions of other bits.
    """
    found, known = draws(name), KNOWN["cases"][name]
    if machine() == KNOWN["machine"]:
        assert found == known
    elif not name.startswith("sample"):
        for key, values in known["draws"].items():
            np.testing.assert_allclose(
                found["draws"][key], values, rtol=1e-3, atol=1e-4
            )
