"""What a formula may ask for: a stranger's must not fill the memory."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.regression.design import make_design
from sgmcmc.regression.expressions import Expression

RNG = np.random.default_rng(1)
FRAME = pd.DataFrame(
    {"x": RNG.normal(size=100), "z": RNG.normal(size=100), "s": ["a", "bc"] * 50}
)


@pytest.mark.parametrize(
    "terms",
    [
        "bs(x, df=99999999)",
        "bs(x, 99999999)",
        "bs(x, df=10**9)",
        "bs(x, df=4, degree=100000)",
        "cr(x, df=99999999)",
        "cc(x, 10**8)",
        "poly(x, 99999)",
        "poly(x, degree=99999)",
        "bs(x, df=x.sum())",
        "I(x * 10**10**10)",
        "I(x + 10**400)",
        "I(x ** (10**9))",
        "I(x + (2 ** 2000) ** 2000)",
        "I(x * (1 << 10**10))",
        "C('a' * 10**9)",
        "I(s == 'a' * 10**9)",
        "I(s == '%999999999d' % 5)",
        "I(x.isin([1] * 10**10))",
        "I(s.str.lower() * 10**9)",
        "(x + z)**9999999",
        "(x + z + s)**99",
    ],
)
def test_very_many_columns_and_numbers_are_refused(terms: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match="`formula`"):
        make_design(terms, FRAME)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    "terms",
    [
        "bs(x, df=5)",
        "bs(x, 6, degree=2)",
        "bs(x, knots=[-1, 0.5, 1])",
        "cr(x, df=4)",
        "poly(x, 3)",
        "I(x**12)",
        "I(x * 10**6)",
        "I(x / 2**0.5)",
        "(x + z)**2",
        "I(2 * s.str.len())",
        "I(x * -1e5)",
    ],
)
def test_moderate_ones_are_not(terms: str) -> None:
    assert make_design(terms, FRAME).matrix(FRAME).shape[0] == 100


def test_tests_of_text() -> None:
    assert Expression("I(3 * s.str.startswith('a'))", FRAME.columns).variables == ["s"]


def test_factors_computed_from_a_column_of_measurements() -> None:
    frame = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 50), "y": np.arange(50.0) % 7})
    assert make_design("C(x > 0)", frame).terms == ("Intercept", "C(x > 0)[T.True]")
    with pytest.raises(
        ValueError, match=r"data\['x'\].*level of its own in each of 50 rows"
    ):
        make_design("C(x)", frame)


def test_a_bar_without_effects_is_refused() -> None:
    frame = {"y": np.arange(6.0), "x": np.arange(6.0) ** 2, "g": [0, 0, 1, 1, 2, 2]}
    with pytest.raises(ValueError, match="`formula`: a bar of 'g' has no effects"):
        sgmcmc.glm("y ~ x + (0 | g)", frame)
