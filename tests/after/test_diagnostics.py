"""Diagnostics, plots and ArviZ."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest

import sgmcmc
from sgmcmc import Samples, ksd
from sgmcmc.results.samples import LogPost
from tests.conftest import short_call


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    plt.close("all")


def normal(draws: int, d: int, *, seed: int = 1, scale: float = 1.0) -> tuple[Samples, np.ndarray]:
    theta = scale * np.random.default_rng(seed).normal(size=(draws, d))
    return Samples({"theta": theta}, gradients={"theta": -theta}), theta


# --------------------------------------------------------------------------------------- KSD


def direct_ksd(theta: np.ndarray, g: np.ndarray, c: float, beta: float) -> float:
    """KSD from the kernel's derivatives by hand, pair by pair."""
    total = 0.0
    for x, gx in zip(theta, g, strict=True):
        for y, gy in zip(theta, g, strict=True):
            u = x - y
            base = c**2 + u @ u
            k = base**-beta
            slope = -2 * beta * base ** (-beta - 1)
            trace = -slope * len(x) - 4 * beta * (beta + 1) * base ** (-beta - 2) * (u @ u)
            total += gx @ gy * k + gx @ (-slope * u) + gy @ (slope * u) + trace
    return float(np.sqrt(total) / len(theta))


@pytest.mark.parametrize(("c", "beta"), [(1.0, 0.5), (0.7, 0.3)])
def test_ksd_is_the_sum_over_pairs(c: float, beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    theta, g = rng.normal(size=(20, 3)) + 5, rng.normal(size=(20, 3))
    chain = Samples({"a": theta[:, :2], "b": theta[:, 2]})
    gradients = {"a": g[:, :2], "b": g[:, 2]}
    for block in (7, 2048):
        monkeypatch.setattr("sgmcmc.after.stein._BLOCK", block)
        found = ksd(chain, gradients=gradients, c=c, beta=beta)
        np.testing.assert_allclose(found, direct_ksd(theta, g, c, beta), rtol=1e-10)


def test_ksd_of_exact_draws_falls_like_one_over_root_draws() -> None:
    """E KSD² = E k₀(θ, θ)/S = (d + d)/S for a standard normal, c = 1 and β = ½."""
    squares = [ksd(normal(500, 2, seed=seed)[0]) ** 2 for seed in range(40)]
    error = np.std(squares, ddof=1) / np.sqrt(40)
    assert abs(np.mean(squares) - 4 / 500) < 5 * error


def test_ksd_sees_a_wrong_variance() -> None:
    right, _ = normal(1000, 2)
    theta = 1.3 * right["theta"]
    assert ksd(Samples({"theta": theta}), gradients={"theta": -theta}) > 2 * ksd(right)


def test_ksd_of_chains_and_with_stored_gradients() -> None:
    chains = short_call(n_chains=3, n_iters=50, store_gradients=True)
    found = ksd(chains)
    assert found.shape == (3,)
    one = Samples({"theta": chains["theta"][1]}, gradients={"theta": chains.gradients["theta"][1]})
    assert found[1] == pytest.approx(ksd(one))


def test_ksd_never_holds_all_pairs() -> None:
    chain, _ = normal(6000, 2)
    tracemalloc.start()
    ksd(chain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000**2 * 8


def test_ksd_refuses_what_it_cannot_judge() -> None:
    plain = short_call()
    with pytest.raises(ValueError, match="store_gradients=True"):
        ksd(plain)
    with pytest.raises(ValueError, match=r"`gradients\['theta'\]`"):
        ksd(plain, gradients={"theta": np.zeros(3)})
    with pytest.raises(ValueError, match="`beta`"):
        ksd(plain, gradients={"theta": plain["theta"]}, beta=1.5)
    with pytest.raises(TypeError, match="`samples`"):
        ksd({"theta": plain["theta"]})


# ----------------------------------------------------------------------------------- summary


def test_summary_has_everything_and_is_right() -> None:
    theta = np.random.default_rng(1).normal(3.0, 2.0, size=(4, 1000, 2))
    table = sgmcmc.summary(
        Samples({"theta": theta, "b": theta[..., 0]}, settings={"n_chains": 4}), ["theta"]
    )
    assert list(table.index) == ["theta[0]", "theta[1]"]
    wanted = {"mean", "sd", "q5", "q50", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"}
    assert wanted <= set(table.columns)
    assert not [name for name in table.columns if name.startswith("hdi")]
    np.testing.assert_allclose(table["mean"], theta.mean(axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(table["q95"], np.quantile(theta, 0.95, axis=(0, 1)), rtol=1e-12)
    # The error of an effective size of 4000 independent draws is a few per cent.
    np.testing.assert_allclose(table["mcse_mean"], 2 / np.sqrt(4000), rtol=0.2)
    assert (abs(table["r_hat"] - 1) < 0.02).all()


def test_summary_of_one_chain_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    table = sgmcmc.summary(short_call(n_iters=100))
    assert table.loc["theta", "ess_bulk"] > 0
    assert not recwarn.list


def test_summary_refuses_what_is_not_there() -> None:
    chain = short_call()
    with pytest.raises(ValueError, match="`var_names`"):
        sgmcmc.summary(chain, ["beta"])
    with pytest.raises(TypeError, match="`var_names`"):
        sgmcmc.summary(chain, "theta")
    with pytest.raises(ValueError, match="`quantiles`"):
        sgmcmc.summary(chain, quantiles=[50])
    nothing = short_call(store_params=False, test_functions={"f": lambda params: params["theta"]})
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


def test_arviz_round_trips_through_netcdf(tmp_path: Path) -> None:
    x = np.arange(20.0)
    chains = short_call(
        n_chains=2, n_iters=60, test_functions={"square": lambda params: params["theta"] ** 2}
    )
    data = chains.to_arviz(observed_data={"x": x})
    data.to_netcdf(str(tmp_path / "chain.nc"))
    again = az.from_netcdf(str(tmp_path / "chain.nc"))
    np.testing.assert_array_equal(again.posterior["theta"], chains["theta"])
    assert again.posterior["theta"].dims == ("chain", "draw")
    np.testing.assert_array_equal(again.test_functions["square"], chains.test_functions["square"])
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


def test_plots_are_drawn_and_labelled(tmp_path: Path) -> None:
    chains = short_call(n_chains=2, n_iters=100)
    traces = sgmcmc.plot_trace(chains)
    assert traces.shape == (1, 2) and traces[0, 1].get_xlabel() == "draw"
    sgmcmc.plot_posterior(chains)
    ax = sgmcmc.plot_log_post(chains)
    assert ax.get_xlabel() == "iteration" and len(ax.lines) == 2
    assert len(ax.get_legend().get_texts()) == 2
    for number in plt.get_fignums():
        plt.figure(number).savefig(tmp_path / f"{number}.png")


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
