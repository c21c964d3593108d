"""What a notebook shows of draws, reports and samplers."""

from __future__ import annotations

import numpy as np

from sgmcmc import Samples
from sgmcmc.results.report import Report
from tests.conftest import short_setup


def test_draws_are_a_table_with_the_worst_of_each_parameter() -> None:
    report = {
        "method": "sgld",
        "Draws": {"ESS, bulk": [400.0, 90.0, 300.0], "R-hat": [1.001, 1.02, 1.003]},
        "warnings": ["ESS < 100"],
    }
    draws = {"beta": np.zeros((2, 50, 2)), "<b>": np.zeros((2, 50))}
    shown = Samples(
        draws, settings={"method": "sgld", "n_chains": 2}, report=report
    )._repr_html_()
    assert "Samples of sgld, 2 chains" in shown
    assert (
        "<td>beta</td><td>(2, 50, 2)</td><td>float64</td><td>90</td><td>1.020</td>"
        in shown
    )
    assert "<td>&lt;b&gt;</td>" in shown and "<td>300</td>" in shown
    assert "<li>ESS &lt; 100</li>" in shown


def test_without_a_report_there_are_shapes_alone() -> None:
    shown = Samples({"theta": np.zeros(5)})._repr_html_()
    assert "<td>(5,)</td>" in shown and "ESS" not in shown and "Warnings" not in shown
    assert "no draws kept" in Samples({})._repr_html_()


def test_a_report_has_a_table_for_each_section() -> None:
    shown = Report(
        {"method": "sgld", "Chain": {"stepsize": 0.1}, "warnings": []}
    )._repr_html_()
    assert "<th>Chain</th>" in shown and "<td>stepsize</td><td>0.1</td>" in shown
    assert "<li>none</li>" in shown


def test_a_sampler_shows_its_constants() -> None:
    shown = short_setup("sgld")._repr_html_()
    assert (
        "<td>theta</td><td>()</td>" in shown
        and "<td>stepsize</td><td>0.001</td>" in shown
    )
