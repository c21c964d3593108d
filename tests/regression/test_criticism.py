"""Terms that their priors hold, predictive checks, and factors without contrasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sgmcmc
from sgmcmc.after.panels import predictive_panel
from sgmcmc.regression.fit import single_rows_warnings

QUIET: dict[str, Any] = {"seed": 1, "verbose": False, "ess": 100}
N = 200
RNG = np.random.default_rng(1)
X, Z = RNG.normal(size=(2, N))
FRAME = pd.DataFrame(
    {"x": X, "z": Z, "yes": Z > 0, "k": 3, "y": 1.0 + X + RNG.normal(size=N)}
)
FRAME["near"] = X + 1e-3 * RNG.normal(size=N)


@pytest.fixture(scope="module")
def given() -> sgmcmc.Regression:
    """Return a regression whose prior of x, which the user gives, is narrow."""
    return sgmcmc.glm("y ~ x + z", FRAME, priors={"x": (1.0, 1e-3)}, **QUIET)


def test_a_term_that_separates_is_named() -> None:
    fit = sgmcmc.glm(
        "yes ~ x + z", FRAME.assign(yes=FRAME["yes"] * 1), "bernoulli", **QUIET
    )
    said = [warning for warning in fit.warnings if "held by its prior" in warning]
    assert any("'z'" in warning and "separates" in warning for warning in said)
    assert not any("'x'" in warning for warning in said)
    assert all(warning in repr(fit) for warning in said)


def test_terms_that_are_nearly_collinear_are_named_unless_their_priors_are_given(
    given: sgmcmc.Regression,
) -> None:
    fit = sgmcmc.glm("y ~ x + near + z", FRAME, **QUIET)
    said = " ".join(
        warning for warning in fit.warnings if "held by its prior" in warning
    )
    assert "'x'" in said and "'near'" in said and "'z'" not in said
    assert not any("held by its prior" in warning for warning in given.warnings)


def test_a_factor_of_integers_with_one_level_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`formula`: C\(k\) has one level"):
        sgmcmc.glm("y ~ x + C(k)", FRAME, **QUIET)


def test_predictive_checks(given: sgmcmc.Regression) -> None:
    axes = given.plot(kind="ppc")
    line = axes.lines[-1]
    assert line.get_label() == "response" and axes.get_ylabel() == "density"
    # Density of the response over bins: it integrates to the part that is between the ends.
    step = np.diff(line.get_xdata())[0]
    assert abs(line.get_ydata().sum() * step - 1.0) < 1e-9
    with pytest.raises(ValueError, match="`kind`"):
        given.plot(kind="what")


def test_predictive_checks_of_levels_are_proportions() -> None:
    y = np.array([0.0, 0.0, 1.0, 2.0])
    axes = predictive_panel(y, np.array([[0, 1, 1, 2], [0, 0, 2, 2]]), ("a", "b", "c"))
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0.25, 0.25]
    np.testing.assert_allclose(axes.lines[-1].get_ydata(), [3 / 8, 2 / 8, 3 / 8])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b", "c"]


def test_groups_of_one_row_are_named_next_to_residuals() -> None:
    one = SimpleNamespace(by="g", entry="g", terms=("Intercept",))
    slopes = SimpleNamespace(by="h", entry="h", terms=("x",))
    normal, poisson = SimpleNamespace(scaled=True), SimpleNamespace(scaled=False)

    def said(family: Any, levels: int) -> list[str]:
        model: Any = SimpleNamespace(family=family, effects=[one, slopes])
        return single_rows_warnings(model, {"g": levels, "h": 50}, 50)

    assert said(normal, 49) == said(poisson, 50) == []
    (text,) = said(normal, 50)
    assert "'g' has one row" in text


@pytest.mark.slow
def test_a_fit_of_groups_of_one_row_says_so() -> None:
    rows = FRAME[:60].assign(g=np.arange(60))
    fit = sgmcmc.glm("y ~ x + (1 | g)", rows, seed=1, verbose=False, ess=20)
    assert any("'g' has one row" in warning for warning in fit.warnings)
