"""The demo in a short form: its own functions, on a small simulated dataset."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "vignettes" / "demo.py"
N_ROWS, N_TEST = 4000, 1000


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def simulated(demo):
    return demo.simulate(N_ROWS)


@pytest.fixture(scope="module")
def few_draws(demo, simulated):
    """Draws around the truth, for what is made of draws."""
    _, bias, beta = simulated
    noise = np.random.default_rng(2).normal(scale=0.1, size=(4, 100, 55))
    report = {"method": "underdamped", "Draws": {"kept": 100}, "warnings": []}
    draws = {
        "bias": (bias + noise[..., 0]).astype(np.float32),
        "beta": (beta + noise[..., 1:]).astype(np.float32),
    }
    return demo.sgmcmc.Samples(draws, settings={"n_chains": 4}, report=report)


def test_simulated_data_are_of_covertype_kind(demo, simulated):
    data, bias, beta = simulated
    assert data.rows.shape == (N_ROWS, 55)
    assert set(np.unique(data.rows[:, 0])) == {0.0, 1.0}
    assert data.rows.min() >= 0 and data.rows.max() <= 1
    assert 0.3 < data.rows[:, 0].mean() < 0.7
    assert np.all(data.rows[:, 11:15].sum(1) == 1) and np.all(
        data.rows[:, 15:].sum(1) == 1
    )
    assert np.array_equal(data.rows, demo.simulate(N_ROWS)[0].rows)
    # The labels follow the coefficients: the model's score is zero at the truth, within noise.
    X, y = data.rows[:, 1:], data.rows[:, 0]
    p = 1 / (1 + np.exp(-(bias + X @ beta)))
    score, sd = X.T @ (y - p), np.sqrt((X**2).T @ (p * (1 - p)))
    assert np.all(np.abs(score) < 5 * sd)


def test_split_partitions_the_rows(simulated):
    data, _, _ = simulated
    train, test = data.split(N_TEST, seed=1)
    assert train["X"].shape == (N_ROWS - N_TEST, 54) and test["y"].shape == (N_TEST,)
    together = np.concatenate(
        [np.column_stack([part["y"], part["X"]]) for part in (train, test)]
    )
    order, expected = (np.lexsort(rows.T) for rows in (together, data.rows))
    assert np.array_equal(together[order], data.rows[expected])


def test_falls_back_on_simulated_data(demo, simulated, monkeypatch, capsys):
    def unavailable(name):
        raise OSError("no network")

    monkeypatch.setattr(demo.sgmcmc, "get_dataset", unavailable)
    monkeypatch.setattr(demo, "simulate", lambda: simulated)
    assert demo.load() is simulated[0]
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and "no network" in printed


@pytest.mark.slow
def test_short_run_finds_the_posterior(demo, simulated):
    """Chains on 3000 rows."""
    data = simulated[0]
    train, test = data.split(N_TEST, seed=1)
    samples = demo.sample(train, ess=100, verbose=False)
    assert (demo.table(samples, data.names)["ess_bulk"] >= 100).all()
    assert samples["bias"].shape[0] == 4 and samples["beta"].shape[2:] == (54,)
    assert samples.report.warnings == []

    truth, no_features = log_losses(simulated, test)
    assert truth - 0.02 < demo.log_loss(samples, test) < (truth + no_features) / 2


def log_losses(simulated, test):
    """Return the log loss of the truth, and that of the share of ones."""
    _, bias, beta = simulated
    logits = bias + test["X"] @ beta
    base_rate = test["y"].mean()
    no_features = -(
        base_rate * np.log(base_rate) + (1 - base_rate) * np.log(1 - base_rate)
    )
    return np.logaddexp(0, -(2 * test["y"] - 1) * logits).mean(), no_features


def test_log_loss_of_draws_around_the_truth(demo, simulated, few_draws):
    _, test = simulated[0].split(N_TEST, seed=1)
    truth, no_features = log_losses(simulated, test)
    assert truth - 0.02 < demo.log_loss(few_draws, test) < (truth + no_features) / 2


def test_table_and_plot(demo, simulated, few_draws, tmp_path):
    samples = few_draws
    names = simulated[0].names
    table = demo.table(samples, names)
    assert list(table.index) == ["bias", *names]
    x3 = samples["beta"][..., 2].ravel()
    assert table.loc["x3", "mean"] == pytest.approx(x3.mean(), rel=1e-5)
    assert table.loc["x3", "sd"] == pytest.approx(x3.std(ddof=1), rel=1e-3)

    demo.plot(samples, names, [0, 2]).savefig(tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_main_prints_and_saves(
    demo, simulated, few_draws, monkeypatch, capsys, tmp_path
):
    asked = SimpleNamespace()

    def fake_sample(train, ess):
        asked.ess, asked.rows = ess, len(train["y"])
        return few_draws

    monkeypatch.setattr(demo, "simulate", lambda: simulated)
    monkeypatch.setattr(demo, "N_TEST", N_TEST)
    monkeypatch.setattr(demo, "sample", fake_sample)
    output = tmp_path / "figure.png"
    demo.main(["--simulate", "--ess", "50", "--output", str(output)])

    assert (asked.ess, asked.rows) == (50, N_ROWS - N_TEST)
    printed = capsys.readouterr().out
    assert "x54" in printed and "Warnings" in printed and str(output) in printed
    assert output.stat().st_size > 10_000
