"""Diagnostics, plots and ArviZ."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest

import sgmcmc
from sgmcmc import Samples, libraries
from sgmcmc.after import panels
from sgmcmc.results.samples import LogPost
from tests import seams
from tests.conftest import short_call


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    plt.close("all")


# ----------------------------------------------------------------------------------- summary


def test_summary_adds_up_in_double_precision() -> None:
    """In float32 the mean of these draws is off by 0.02, a third of their SD."""
    theta = (
        np.random.default_rng(1)
        .normal(-11.04, 0.05, size=(400_000, 3))
        .astype(np.float32)
    )
    table = sgmcmc.summary(Samples({"theta": theta}))
    exact = theta.mean(0, dtype=np.float64), theta.std(0, dtype=np.float64, ddof=1)
    np.testing.assert_allclose(table["mean"], exact[0], rtol=1e-9)
    np.testing.assert_allclose(table["sd"], exact[1], rtol=1e-5)


def test_summary_has_everything_and_is_right() -> None:
    theta = np.random.default_rng(1).normal(3.0, 2.0, size=(4, 1000, 2))
    table = sgmcmc.summary(
        Samples({"theta": theta, "b": theta[..., 0]}, settings={"n_chains": 4}),
        ["theta"],
    )
    assert list(table.index) == ["theta[0]", "theta[1]"]
    wanted = {
        "mean",
        "sd",
        "q5",
        "q50",
        "q95",
        "mcse_mean",
        "ess_bulk",
        "ess_tail",
        "r_hat",
    }
    assert wanted <= set(table.columns)
    assert not [name for name in table.columns if name.startswith("hdi")]
    np.testing.assert_allclose(table["mean"], theta.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(
        table["q95"], np.quantile(theta, 0.95, axis=(0, 1)), rtol=1e-12
    )
    # The error of an effective size of 4000 independent draws is a few per cent.
    np.testing.assert_allclose(table["mcse_mean"], 2 / np.sqrt(4000), rtol=0.2)
    assert (abs(table["r_hat"] - 1) < 0.02).all()


def test_summary_of_one_chain_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    table = sgmcmc.summary(short_call(n_iters=100))
    assert table.loc["theta", "ess_bulk"] > 0
    # But for what speaks against its draws, which is said in one warning.
    assert all(
        "These draws may not be reliable" in str(one.message) for one in recwarn.list
    )


@pytest.mark.skipif(libraries.arviz_is_new(), reason="ArviZ 1 does not log")
def test_summary_of_one_chain_keeps_arviz_from_logging() -> None:
    said: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = said.append  # type: ignore[method-assign]
    az._log.addHandler(listener)
    try:
        # Of a length that nothing else in the process has, because ArviZ says everything once.
        sgmcmc.summary(Samples({"theta": np.random.default_rng(1).normal(size=1237)}))
        assert not said
        az.rhat(np.zeros((1, 1237)))
        assert said
    finally:
        az._log.removeHandler(listener)


def test_summary_refuses_what_is_not_there() -> None:
    chain = short_call()
    with pytest.raises(ValueError, match="`var_names`"):
        sgmcmc.summary(chain, ["beta"])
    with pytest.raises(TypeError, match="`var_names`"):
        sgmcmc.summary(chain, "theta")
    with pytest.raises(ValueError, match="`quantiles`"):
        sgmcmc.summary(chain, quantiles=[50])
    nothing = short_call(
        store_params=False, test_functions={"f": lambda params: params["theta"]}
    )
    with pytest.raises(ValueError, match="no draws"):
        sgmcmc.summary(nothing)


def test_batch_means_are_those_of_the_draws() -> None:
    reduction = sgmcmc.running_batch_means(lambda params: params["theta"], 25)
    chain = short_call(n_iters=240, reductions={"theta": reduction})
    batches = chain["theta"][:225].reshape(9, 25).mean(axis=1)
    found = chain.reductions["theta"]
    np.testing.assert_allclose(found["mean"], batches.mean(), rtol=1e-4)
    error = batches.std(ddof=1) / 3
    np.testing.assert_allclose(found["standard_error"], error, rtol=1e-3)


# ------------------------------------------------------------------------------------- ArviZ


@pytest.mark.skipif(
    not (find_spec("netCDF4") or find_spec("h5netcdf")),
    reason="ArviZ 1 brings no NetCDF",
)
def test_arviz_round_trips_through_netcdf(tmp_path: Path) -> None:
    x = np.arange(20.0)
    chains = short_call(
        n_chains=2,
        n_iters=60,
        test_functions={"square": lambda params: params["theta"] ** 2},
    )
    data = chains.to_arviz(observed_data={"x": x})
    data.to_netcdf(str(tmp_path / "chain.nc"))
    again = az.from_netcdf(str(tmp_path / "chain.nc"))
    np.testing.assert_array_equal(again.posterior["theta"], chains["theta"])
    assert again.posterior["theta"].dims == ("chain", "draw")
    np.testing.assert_array_equal(
        again.test_functions["square"], chains.test_functions["square"]
    )
    np.testing.assert_array_equal(again.observed_data["x"], x)
    np.testing.assert_array_equal(again.sample_stats["lp"], chains.log_post.values)
    iterations = again.sample_stats["lp_iteration"]
    np.testing.assert_array_equal(iterations, chains.log_post.iterations)
    assert again.attrs["sampling_method"] == "sgld"


def test_arviz_has_the_users_names() -> None:
    data = Samples({"beta": np.zeros((10, 2, 3))}).to_arviz(
        dims={"beta": ["feature", "group"]},
        coords={"feature": ["age", "height"], "group": [1, 2, 3]},
    )
    assert data.posterior["beta"].sel(feature="age").shape == (1, 10, 3)


# ------------------------------------------------------------------------------------- plots


@pytest.mark.parametrize("arviz_is_new", [False, True])
def test_plots_with_matplotlib_alone(
    monkeypatch: pytest.MonkeyPatch, arviz_is_new: bool
) -> None:
    """With ArviZ 1 all plots are ours; their panels are drawn here with any ArviZ."""
    if not arviz_is_new and libraries.arviz_is_new():
        pytest.skip("ArviZ 0 is not installed")
    monkeypatch.setattr(seams.ARVIZ_IS_NEW, lambda: arviz_is_new)
    draws = np.random.default_rng(1).normal(
        [0.0, 1e5, 7.0], [1.0, 1e-2, 0.0], (2, 100, 3)
    )
    samples = Samples({"beta": draws}, settings={"n_chains": 2})
    traces = sgmcmc.plot_trace(samples)
    assert traces.shape == (3, 2) and traces[1, 1].get_title() == "beta[1]"
    if not arviz_is_new:
        return
    (forest,) = sgmcmc.plot_forest(samples)
    labels = [label.get_text() for label in forest.get_yticklabels()]
    assert labels == ["beta[2]", "beta[1]", "beta[0]"]
    assert sgmcmc.plot_pairs(samples).shape == (3, 3)
    shown = sgmcmc.plot_posterior(samples)
    ends = [float(text.get_text()) for text in shown[1].texts[:2]]
    assert 0.02 < ends[1] - ends[0] < 0.06 and len(shown) == 3
    with pytest.raises(TypeError, match="with ArviZ 1 only `figsize`"):
        sgmcmc.plot_trace(samples, kind="rank_bars")
    _, ax = plt.subplots()
    panels.plot_rank("beta[0]", draws[:, :, 0], ax)
    assert len(ax.patches) == 40 and ax.get_title() == "beta[0]"
    plt.close("all")


def test_plots_are_drawn_and_labelled(tmp_path: Path) -> None:
    chains = short_call(n_chains=2, n_iters=100)
    traces = sgmcmc.plot_trace(chains)
    assert traces.shape == (1, 2) and traces[0, 1].get_xlabel() == "draw"
    sgmcmc.plot_posterior(chains)
    sgmcmc.plot_forest(chains)
    ax = sgmcmc.plot_log_post(chains)
    assert ax.get_xlabel() == "iteration" and len(ax.lines) == 2
    assert len(ax.get_legend().get_texts()) == 2
    for number in plt.get_fignums():
        plt.figure(number).savefig(tmp_path / f"{number}.png")


def test_each_coordinate_has_its_own_scale() -> None:
    draws = np.random.default_rng(1).normal([0.0, 1e5], [1.0, 1e-2], (2, 100, 2))
    samples = Samples({"beta": draws}, settings={"n_chains": 2})
    traces = sgmcmc.plot_trace(samples)
    assert traces.shape == (2, 2) and traces[1, 1].get_title() == "beta[1]"
    assert np.ptp(traces[0, 1].get_ylim()) > 1.0 > np.ptp(traces[1, 1].get_ylim())
    # The ends of an interval near 10⁵, where the sd is 10⁻², are told apart.
    ends = [text.get_text() for text in sgmcmc.plot_posterior(samples)[1].texts[:2]]
    assert 0.02 < float(ends[1]) - float(ends[0]) < 0.06


def test_the_worst_of_many_coordinates_are_shown() -> None:
    draws = np.random.default_rng(1).normal(size=(2, 100, 30))
    draws[:, :, 7] = np.cumsum(draws[:, :, 7], axis=1)
    samples = Samples({"beta": draws}, settings={"n_chains": 2})
    traces = sgmcmc.plot_trace(samples, most=2)
    assert "beta[7]" in {row[0].get_title() for row in traces}
    assert "2 of 30 coordinates" in traces[0, 0].figure.get_suptitle()
    pairs = sgmcmc.plot_pairs(samples, most=3)
    assert pairs.shape == (3, 3)
    with pytest.raises(ValueError, match="`samples` has a single coordinate"):
        sgmcmc.plot_pairs(Samples({"theta": np.zeros(30)}))


def test_box_plots_before_and_after() -> None:
    chain = short_call(n_iters=200, store_gradients=True)
    ax = sgmcmc.plot_zero_variance(chain, sgmcmc.zero_variance(chain), "theta")
    assert ax.get_ylabel() == "theta" and len(ax.get_xticks()) == 1
    with pytest.raises(ValueError, match="`before`"):
        sgmcmc.plot_zero_variance(chain, chain, "beta")


def test_plots_refuse_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="no log posterior"):
        sgmcmc.plot_log_post(Samples({"theta": np.zeros(3)}))
    with pytest.raises(ValueError, match="`var_names`"):
        sgmcmc.plot_trace(Samples({"theta": np.zeros(30)}), ["beta"])


def test_one_chain_has_no_legend() -> None:
    chain = Samples({}, log_post=LogPost(np.arange(1, 4), np.zeros(3)))
    assert sgmcmc.plot_log_post(chain).get_legend() is None
