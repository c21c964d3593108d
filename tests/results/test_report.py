"""The report as a mapping and as a page, and the diagnostics that it holds."""

from __future__ import annotations

import json

import arviz as az
import numpy as np
import pytest

from sgmcmc.results.diagnostics import diagnose, until_enough
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples

FACTS = {
    "method": "underdamped",
    "Mode": {"found": True, "distance": 0.0213456},
    "Chain": {
        "rows": "all",
        "noise": [0.5, 2.0, 1.0],
        "none": [],
        "by name": {"a": 1.5, "b": 2},
    },
    "warnings": [],
}


def test_chance_explains_r_hat_where_squares_are_worth_less_than_means() -> None:
    """As in long trajectories: means are negatively correlated, and distances from them are not."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4, 300, 200))
    for i in range(1, 300):
        x[:, i] = -0.8 * x[:, i - 1] + 0.6 * x[:, i]
    found = diagnose({"x": x})
    assert min(found.bulk) > 2 * 1200 and max(found.rhat) > 1.01
    assert found.agree
    x[0, :, 7] += 1.0
    apart = diagnose({"x": x})
    assert apart.scarcest == "x[7]" and not apart.enough(400) and not apart.agree


@pytest.mark.some(1)
@pytest.mark.parametrize("count", [20, 100])
def test_chance_explains_r_hat_of_few_draws_and_not_chains_that_are_apart(
    count: int,
) -> None:
    """The limit is exceeded by chance with a probability of 0.01: of 30, more than three times
    once in five thousand."""
    agree, apart, above = 0, 0, 0
    for seed in range(30):
        x = np.random.default_rng(seed).normal(size=(4, count, 3))
        found = diagnose({"x": x})
        agree += found.agree
        above += max(found.rhat) > 1.01
        x[..., 1] += np.arange(4)[:, np.newaxis]
        apart += diagnose({"x": x}).agree
    assert above >= 10 and agree >= 27 and apart == 0


def test_chance_does_not_explain_one_chain_of_a_wide_parameter_that_is_apart() -> None:
    x = np.random.default_rng(1).normal(size=(4, 400, 150))
    assert diagnose({"x": x}).agree
    x[2, :, 7] += 2.0
    assert not diagnose({"x": x}).agree


def test_a_mapping_of_plain_facts() -> None:
    report = Report(FACTS)
    assert dict(report) == FACTS and len(report) == 4
    assert Report(json.loads(json.dumps(dict(report)))) == report
    with pytest.raises(TypeError):
        report["method"] = "sgld"  # type: ignore[index]


def test_a_page() -> None:
    lines = [" ".join(line.split()) for line in str(Report(FACTS)).splitlines()]
    assert lines[0] == "Sampling report: underdamped"
    for line in (
        "found yes",
        "distance 0.02135",
        "rows all",
        "noise 0.5 to 2",
        "none none",
    ):
        assert line in lines
    assert "by name a 1.5, b 2" in lines
    assert lines[-2:] == ["Warnings", "none"]
    assert repr(Report(FACTS)) == str(Report(FACTS))


def test_nothing_known() -> None:
    assert Report({}).warnings == []
    assert "a chain" in str(Report({}))


def test_warnings_are_shown_and_are_not_shared() -> None:
    report = Report({**FACTS, "warnings": ["It is wrong."]})
    assert str(report).endswith("Warnings\n  ! It is wrong.")
    report.warnings.append("Another.")
    assert report.warnings == ["It is wrong."]
    samples = Samples({"theta": np.zeros((4, 10))}).with_report(report)
    assert repr(samples).endswith("  ! It is wrong.")
    assert Samples({"theta": np.zeros(3)}).report is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_diagnostics_are_those_of_arviz(dtype: type) -> None:
    """Of every coordinate, in the order of the parameters."""
    rng = np.random.default_rng(1)
    draws = {
        "scalar": rng.normal(size=(4, 300)).astype(dtype),
        "matrix": rng.normal(size=(4, 300, 2, 3)).cumsum(1).astype(dtype),
    }
    found = diagnose(draws)
    assert found.draws == 300
    data = az.convert_to_dataset({k: v.astype(np.float64) for k, v in draws.items()})
    for mine, theirs in [
        (found.bulk, az.ess(data)),
        (found.tail, az.ess(data, method="tail", prob=(0.05, 0.95))),
        (found.rhat, az.rhat(data)),
    ]:
        expected = np.concatenate([np.ravel(theirs[name]) for name in draws])
        np.testing.assert_allclose(mine, expected)
        assert all(type(value) is float for value in mine)
    assert found.smallest == min(found.bulk + found.tail)


def test_enough() -> None:
    rng = np.random.default_rng(2)
    good = diagnose({"x": rng.normal(size=(4, 2000))})
    assert good.enough(1000) and good.warnings(1000) == []
    assert not good.enough(1e5)
    assert good.warnings(1e5)[0].endswith("(x), not 100000.")
    apart = diagnose({"x": rng.normal(size=(4, 2000)) + np.arange(4)[:, np.newaxis]})
    assert not apart.enough(1)
    assert "The chains do not agree: the largest R-hat is" in apart.warnings(1)[0]
    assert apart.warnings(1)[0].endswith("(x).")


def test_the_worst_coordinate_is_named() -> None:
    rng = np.random.default_rng(2)
    slow = rng.normal(size=(4, 400, 2, 3))
    slow[..., 1, 2] = np.repeat(slow[:, ::20, 1, 2], 20, axis=1)
    found = diagnose({"x": rng.normal(size=(4, 400)), "beta": slow})
    assert found.scarcest == "beta[1, 2]"
    assert found.names[:3] == ["x", "beta[0, 0]", "beta[0, 1]"]


@pytest.mark.some(1)
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_slow_coordinates_are_looked_at_first(scale: float) -> None:
    """In their values, or in their distances from the mean."""
    rng = np.random.default_rng(4)
    draws = rng.normal(size=(4, 1000, 30))
    rough = np.repeat(rng.normal(size=(4, 20)), 50, axis=1)
    draws[..., 17] = scale * rough + draws[..., 17] * np.exp((1 - scale) * rough)
    found = until_enough({"x": rng.normal(size=(4, 1000)), "beta": draws}, 2000)
    assert not found.complete and len(found.names) <= 7 and found.scarcest == "beta[17]"
    whole = diagnose({"beta": draws})
    assert found.smallest == whole.smallest and whole.complete
    assert until_enough({"beta": draws}, found.smallest).complete


def test_chains_that_have_not_moved_have_no_effective_draws() -> None:
    found = diagnose({"beta": np.full((4, 500, 2), 0.3)})
    assert not found.enough(100)
    assert found.warnings(100) == [
        "The smallest effective sample size is 0 (beta[0]), not 100."
    ]


def test_constant_entries_do_not_hinder() -> None:
    """Such as the zeros of a triangular matrix; ArviZ has no R-hat for them."""
    rng = np.random.default_rng(3)
    matrix = np.zeros((4, 500, 2, 2))
    matrix[..., 1, 0] = rng.normal(size=(4, 500))
    found = diagnose({"matrix": matrix})
    assert np.isnan(found.rhat).sum() == 3
    assert found.enough(100) and found.warnings(100) == []


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, 2.0], "1 to 2"),
        ([1.73501, 1.73502], "1.735"),
        ([-2.2e-16, 0.0], "0"),
        ([float("nan")], "not available"),
        (float("nan"), "not available"),
        ([], "none"),
    ],
)
def test_a_range_is_as_short_as_it_can_be(
    values: float | list[float], shown: str
) -> None:
    lines = str(Report({"Draws": {"R-hat": values}, "warnings": []})).splitlines()
    assert [line.split("R-hat")[1].strip() for line in lines if "R-hat" in line] == [
        shown
    ]


def test_coordinates_by_other_names() -> None:
    facts = {
        "method": "hmc",
        "Draws": {"farthest from 1": "b[1], 0.9", "sd_b[1]": [1.0, 2.0]},
        "later": lambda: {"R-hat": "b[10]"},
        "warnings": ["The SD of b[1] is large; b[10] is not."],
    }
    report = Report(facts).renamed({"b[1]": "x", "b[10]": "x:z"})
    assert report["Draws"] == {"farthest from 1": "x, 0.9", "sd_b[1]": [1.0, 2.0]}
    assert report["later"] == {"R-hat": "x:z"}
    assert report.warnings == ["The SD of x is large; x:z is not."]
