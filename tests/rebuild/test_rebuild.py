"""While the house is rebuilt: the draws are those of before, bit for bit or to rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .cases import CASES

DRAWS = Path(__file__).parent / "draws.npz"


@pytest.mark.parametrize("name", CASES)
def test_the_draws_are_those_of_before(name: str, record_property: object) -> None:
    with np.load(DRAWS) as arrays:
        expected = {
            key.partition("|")[2]: arrays[key] for key in arrays if key.partition("|")[0] == name
        }
    found = CASES[name]()
    assert found.keys() == expected.keys()
    different = [k for k in found if not np.array_equal(found[k], expected[k], equal_nan=True)]
    if different:
        print(f"NOT TO THE BIT: {name}: {different}")
    for key in different:
        np.testing.assert_allclose(found[key], expected[key], rtol=2e-5, atol=2e-5)
