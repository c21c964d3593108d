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
def short_run(demo, simulated):
    """A chain on 3000 rows; the stepsize keeps stepsize times N about what it is in the demo."""
    data, _, _ = simulated
    train, test = data.split(N_TEST, seed=1)
    samples = demo.sample(
        train,
        n_iters=4000,
        burn_in=100,
        n_iters_opt=2000,
        stepsize=6e-4,
        opt_stepsize=2.5e-4,
        verbose=False,
    )
    return samples, test


def test_simulated_data_are_of_covertype_kind(demo, simulated):
    data, bias, beta = simulated
    assert data.rows.shape == (N_ROWS, 55)
    assert set(np.unique(data.rows[:, 0])) == {0.0, 1.0}
    assert data.rows.min() >= 0 and data.rows.max() <= 1
    assert 0.3 < data.rows[:, 0].mean() < 0.7
    assert np.all(data.rows[:, 11:15].sum(1) == 1) and np.all(data.rows[:, 15:].sum(1) == 1)
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
    together = np.concatenate([np.column_stack([part["y"], part["X"]]) for part in (train, test)])
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


def test_log_loss_is_the_mean_negative_log_probability(demo):
    rng = np.random.default_rng(2)
    test = {"X": rng.random((7, 3)), "y": np.array([0, 1, 1, 0, 1, 0, 0], dtype=np.float32)}
    bias, beta = rng.normal(size=20), rng.normal(size=(20, 3, 1))
    mode = {"bias": bias[3], "beta": beta[3]}
    loss = demo.log_loss(FakeSamples({"bias": bias, "beta": beta}, mode), test, every=2)

    p_one = 1 / (1 + np.exp(-(bias[:, None] + beta[:, :, 0] @ test["X"].T)))
    p = np.where(test["y"] == 1, p_one, 1 - p_one)
    assert loss.draws == pytest.approx(-np.log(p[::2]).mean(), rel=1e-12)
    assert loss.predictive == pytest.approx(-np.log(p[::2].mean(0)).mean(), rel=1e-12)
    assert loss.mode == pytest.approx(-np.log(p[3]).mean(), rel=1e-12)


def test_log_loss_stays_finite_at_extreme_logits(demo):
    test = {"X": np.array([[1.0], [-1.0]]), "y": np.array([0.0, 1.0])}
    log_probs = demo.label_log_probs(np.zeros(1), np.full((1, 1, 1), 1e5), test)
    np.testing.assert_allclose(log_probs, [[-1e5, -1e5]])


def test_short_run_finds_the_posterior(demo, simulated, short_run):
    samples, test = short_run
    _, bias, beta = simulated
    assert samples["bias"].shape == (400,) and samples["beta"].shape == (400, 54, 1)
    assert samples.mode["beta"].shape == (54, 1)

    loss = demo.log_loss(samples, test)
    truth = -demo.label_log_probs(np.array(bias), beta, test).mean()
    base_rate = test["y"].mean()
    no_features = -(base_rate * np.log(base_rate) + (1 - base_rate) * np.log(1 - base_rate))
    assert loss.predictive <= loss.draws  # Jensen
    assert truth - 0.02 < loss.predictive < (truth + no_features) / 2
    assert truth - 0.02 < loss.mode < (truth + no_features) / 2


def test_table_and_plot(demo, simulated, short_run, tmp_path):
    samples, _ = short_run
    names = simulated[0].names
    draws = demo.coefficients(samples, names)
    assert list(draws) == ["bias", *names]

    table = demo.posterior_table(draws)
    mean, sd, ess = table["x3"]
    assert mean == pytest.approx(samples["beta"][:, 2, 0].mean(), rel=1e-5)
    assert sd == pytest.approx(samples["beta"][:, 2, 0].std(ddof=1), rel=1e-5)
    assert all(0 < row[2] < 4000 for row in table.values())

    lines = demo.format_table(table).splitlines()
    assert len(lines) == 56 and len({len(line) for line in lines}) == 1
    assert lines[4].split() == ["x3", f"{mean:.3f}", f"{sd:.4f}", f"{ess:.0f}"]

    demo.plot(draws, ["bias", "x1", "x3"]).savefig(tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_main_prints_and_saves(demo, simulated, short_run, monkeypatch, capsys, tmp_path):
    samples, _ = short_run
    asked = SimpleNamespace()

    def fake_sample(train, n_iters):
        asked.n_iters, asked.rows = n_iters, len(train["y"])
        return samples

    monkeypatch.setattr(demo, "simulate", lambda: simulated)
    monkeypatch.setattr(demo, "N_TEST", N_TEST)
    monkeypatch.setattr(demo, "sample", fake_sample)
    output = tmp_path / "figure.png"
    demo.main(["--simulate", "--n-iters", "400", "--output", str(output)])

    assert (asked.n_iters, asked.rows) == (400, N_ROWS - N_TEST)
    printed = capsys.readouterr().out
    assert "x54" in printed and "posterior predictive" in printed and str(output) in printed
    assert output.stat().st_size > 10_000


class FakeSamples(dict):
    """Draws with a mode, as the cv samplers return them."""

    def __init__(self, draws, mode):
        super().__init__(draws)
        self.mode = mode
