"""The figure of a report: what it shows, and what it says where a report has less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import sgmcmc
from sgmcmc import Samples
from sgmcmc.after.plots import ReportLists, warning_line, worst_places
from sgmcmc.results.arrays import coordinate_names
from tests.conftest import short_call


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    plt.close("all")


PREDICTED = {
    "SD error (noise along the chain)": [0.01, 0.02, 0.03],
    "whitened gradient noise, along the chain": [0.1, 0.2, 0.3, 0.2],
}
DRAWS = {
    "SD of draws / Laplace SD": [1.0, 1.1, 0.9],
    "ESS, bulk": [400.0, 100.0, 900.0],
}


def reported(report: dict[str, Any], chains: int | None = 4) -> Samples:
    """Draws of three coordinates with this report."""
    rng = np.random.default_rng(1)
    shape = (200,) if chains is None else (chains, 200)
    draws = {"a": rng.normal(size=shape), "b": rng.normal(size=(*shape, 2))}
    return Samples(
        draws, settings={"n_chains": chains, "method": "sgld"}, report=report
    )


def test_all_panels(tmp_path: Path) -> None:
    warnings = ["The first.", "The second."]
    samples = reported({"Predicted": PREDICTED, "Draws": DRAWS, "warnings": warnings})
    sds, worst, second, noise = sgmcmc.plot_report(samples)
    figure = sds.figure
    assert figure.get_suptitle() == "! The first. (and 1 more: print(samples.report))"
    assert [tick.get_text() for tick in sds.get_xticklabels()] == ["a", "b[0]", "b[1]"]
    predicted = next(line for line in sds.lines if line.get_label() == "predicted")
    np.testing.assert_allclose(predicted.get_ydata(), [1.01, 1.02, 1.03])
    container = sds.containers[0]
    np.testing.assert_allclose(container.lines[0].get_ydata(), [1.0, 1.1, 0.9])
    # Two standard errors of an sd: 2/√(2 × 100) of it.
    ends = container.lines[2][0].get_segments()[1][:, 1]
    np.testing.assert_allclose(
        ends, 1.1 * np.array([1 - 2 / 200**0.5, 1 + 2 / 200**0.5])
    )
    assert "b[0]" in worst.get_title() and "a" in second.get_title()
    np.testing.assert_allclose(
        [bar.get_height() for bar in noise.patches], [0.1, 0.2, 0.3, 0.2]
    )
    figure.savefig(tmp_path / "report.png")


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"Predicted": {"not available": "latent variables are drawn by `gibbs`"}},
        {
            "Predicted": {"SD error (noise along the chain)": "unbounded"},
            "Draws": DRAWS,
        },
        {"Predicted": PREDICTED},
    ],
)
@pytest.mark.parametrize("chains", [None, 2])
def test_a_list_that_is_lacking_is_said(
    report: dict[str, Any], chains: int | None
) -> None:
    axes = sgmcmc.plot_report(reported({**report, "method": "sgld"}, chains))
    texts = [text.get_text() for ax in axes for text in ax.texts]
    known = ReportLists.of(report)
    assert any("no prediction" in t for t in texts) == (
        known.predicted is None and known.measured is None
    )
    assert any("noise" in t for t in texts) == (known.noise is None)
    assert any("single chain" in t for t in texts) == (chains is None)


@pytest.mark.slow
def test_the_report_of_a_run(tmp_path: Path) -> None:
    chains = short_call(n_chains=2, n_iters=200)
    assert chains.report is not None
    axes = sgmcmc.plot_report(chains)
    assert axes.shape == (4,)
    axes[0].figure.savefig(tmp_path / "report.png")


def test_no_report_is_an_error() -> None:
    with pytest.raises(ValueError, match="no report"):
        sgmcmc.plot_report(Samples({"theta": np.zeros(30)}))


def test_traces_say_what_the_report_warns_of() -> None:
    samples = reported({"warnings": ["The stepsize is too large."]})
    assert (
        sgmcmc.plot_trace(samples)[0, 0].figure.get_suptitle()
        == "! The stepsize is too large."
    )
    assert sgmcmc.plot_trace(reported({}))[0, 0].figure.get_suptitle() == ""


def test_a_long_warning_is_cut_between_words() -> None:
    line = warning_line(["word " * 100])
    assert len(line) <= 114 and line.endswith("word …")
    assert warning_line([]) == ""


def test_coordinates() -> None:
    samples = reported({"Draws": DRAWS})
    assert coordinate_names("a", ()) + coordinate_names("b", (2,)) == [
        "a",
        "b[0]",
        "b[1]",
    ]
    assert worst_places(ReportLists.of(samples.report), 3) == [1, 0]
    assert worst_places(ReportLists.of({}), 1) == [0]
