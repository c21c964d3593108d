"""The vignettes in their short forms, and the Python blocks of the README and the docs."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

import sgmcmc
from tests.ladder import DISTINCT

ROOT = Path(__file__).parents[2]
NAMED = [case.public for case in DISTINCT if case.public and not case.of_points]
"""The functions that the vignettes compare."""
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def vignette(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return the import of a vignette, which may import its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "vignettes"))
    return importlib.import_module


@pytest.fixture
def shown(
    vignette: Callable[[str], ModuleType],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], str]:
    """Return what runs a vignette in short, looks for its figure, and returns what it prints."""

    def run(name: str) -> str:
        output = tmp_path / "figure.png"
        vignette(name).main(["--short", "--output", str(output)])
        assert output.read_bytes().startswith(b"\x89PNG")
        return capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "logistic_regression",
        "gaussian_mixture",
        "neural_network",
    ],
)
def test_runs_from_top_to_bottom(
    name: str, shown: Callable[[str], str], tmp_path: Path
) -> None:
    printed = shown(name)
    assert str(tmp_path / "figure.png") in printed
    for method in NAMED:
        assert f"{method} " in printed


@pytest.mark.slow
def test_step_by_step_as_published(
    vignette: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    vignette("step_by_step").main(["--short"])
    printed = capsys.readouterr().out
    assert printed.count("log loss") == len(NAMED)
    found = re.search(r"differ by at most (\S+)\.", printed)
    assert found is not None and float(found.group(1)) < 1e-4


@pytest.mark.slow
def test_own_likelihood_as_shown(
    vignette: Callable[[str], ModuleType], shown: Callable[[str], str]
) -> None:
    """A mean is refused; no warnings; the films that are shown are good ones."""
    printed = shown("own_likelihood")
    assert "A mean of rows: `log_lik` must return one term" in printed
    assert re.search(r"^Warnings\n  none$", printed, re.M)
    number = r" +(-?\d+\.\d+)"
    best = printed.partition("By the lower end")[2]
    films = re.findall(rf"^(\d+) +\d+{4 * number}$", best, re.M)
    quality = vignette("own_likelihood").simulate(60, 3000)[1]
    assert len(films) == 10 and quality[[int(f[0]) for f in films]].mean() > 0.5


@pytest.mark.slow
def test_comparing_models_as_shown(shown: Callable[[str], str]) -> None:
    """The true model is best, and that without age worst."""
    printed = shown("comparing_models")
    found = re.findall(r"^(no age|linear|square) .* -?\d+\.\d +\d+\.\d$", printed, re.M)
    assert found == ["square", "linear", "no age"]


@pytest.mark.slow
def test_regression_in_one_line_as_shown(shown: Callable[[str], str]) -> None:
    """No warnings; the family plan and spending raise the probability, and age bends it."""
    printed = shown("regression_in_one_line")
    assert "Warnings: none" in printed
    rows = dict(
        re.findall(r"^(plan: \w+ - basic|spent: \+10) +(-?\d\.\d+)", printed, re.M)
    )
    assert len(rows) == 3 and all(float(change) > 0 for change in rows.values())
    found = re.search(r"spline adds (-?\d+) ± (\d+) to", printed)
    assert found is not None and int(found.group(1)) > 2 * int(found.group(2))


def test_elevations_by_soil_as_shown(shown: Callable[[str], str]) -> None:
    """Sums in place of rows; the interval of a new soil is wider than that of any other."""
    printed = shown("elevations_by_soil")
    assert "4000 rows as 20 groups of" in printed and "Warnings: none" in printed
    rows = re.findall(r"^(\d+|a new one) +\d+ +(\S+) +\S+ +(\S+) +\S+$", printed, re.M)
    widths = {name: float(high) - float(low) for name, low, high in rows}
    assert len(widths) == 21 and max(widths, key=widths.__getitem__) == "a new one"
    assert "measured on the others" in printed


@pytest.mark.slow
def test_mixed_models_as_shown(shown: Callable[[str], str]) -> None:
    """SDs and correlation within four SDs of the truth; a new school is wider than known ones."""
    printed = shown("mixed_models")
    truth = {"sd(school: Intercept)": 4.0, "sd(school: hours)": 1.0}
    for term, value in truth.items():
        found = re.search(rf"^{re.escape(term)} +(\S+) +(\S+) ", printed, re.M)
        assert found is not None
        assert abs(float(found.group(1)) - value) < 4 * float(found.group(2))
    widths = [
        float(high) - float(low)
        for low, high in re.findall(r"\((\S+) to (\S+)\)$", printed, re.M)
    ]
    assert len(widths) == 3 and widths[2] > 1.5 * max(widths[:2])


@pytest.mark.slow
def test_network_intervals_as_shown(shown: Callable[[str], str]) -> None:
    """The refusal of dropout, coverage near its level by the posterior, and two decisions."""
    printed = shown("network_intervals")
    assert "With dropout: `model` draws random numbers in 'dropout'" in printed
    found = re.search(r"^sampled +(.*)$", printed, re.M)
    assert found is not None
    held = np.array([float(part.rstrip("%")) for part in found.group(1).split()])
    np.testing.assert_allclose(held, [50, 80, 90, 95, 99], atol=8)
    assert len(re.findall(r"^(?:trained once|sampled): ", printed, re.M)) == 2


@pytest.mark.slow
def test_hand_chosen_stepsizes_as_shown(shown: Callable[[str], str]) -> None:
    printed = shown("hand_chosen_stepsizes")
    rows = re.findall(r"^(sgld|sgldcv|sample), .* 0\.\d{4}$", printed, re.M)
    assert rows == ["sgld", "sgldcv", "sample"]
    assert printed.count("  ! ") >= 2


@pytest.mark.slow
def test_topic_variance_as_shown(shown: Callable[[str], str]) -> None:
    """Perplexities of thirty words are between one and thirty, or a little worse than that."""
    rows = re.findall(
        r"^1 +(sgld|sgldcv) ((?: +\d+\.\d){3})$", shown("topic_variance"), re.M
    )
    assert [name for name, _ in rows] == ["sgld", "sgldcv"]
    assert all(1.0 < float(value) < 60.0 for _, row in rows for value in row.split())


@pytest.mark.slow
def test_million_groups_as_shown(
    vignette: Callable[[str], ModuleType], shown: Callable[[str], str]
) -> None:
    """No warnings, and the truth within four SDs."""
    printed = shown("million_groups")
    assert re.search(r"^Warnings\n  none$", printed, re.M)
    row = re.search(r"^ +200 .*$", printed, re.M)
    assert row is not None
    found = re.findall(r"(-?\d+\.\d+) ± (\d+\.\d+)", row.group())
    truth = vignette("million_groups").TRUTH.values()
    for (mean, sd), value in zip(found, truth, strict=True):
        assert abs(float(mean) - value) < 4 * float(sd)


@pytest.mark.slow
def test_growing_table_as_shown(shown: Callable[[str], str]) -> None:
    """An update is the posterior of a call with all rows, within the errors of 400 draws each."""
    row = re.search(r"^ +9000 .* (\d\.\d\d) +(\d+\.\d)%$", shown("growing_table"), re.M)
    assert row is not None
    assert float(row[1]) < 0.35 and float(row[2]) < 20  # five standard errors


@pytest.mark.slow
def test_zero_variance_as_shown(shown: Callable[[str], str]) -> None:
    printed = shown("zero_variance")
    assert "median" in printed and "r_hat" in printed


@pytest.mark.slow
def test_variance_reduction_as_shown(shown: Callable[[str], str]) -> None:
    printed = shown("variance_reduction")
    for name, count in (("SGLD", 2), ("SGLD-CV", 2), ("SAGA", 2)):
        assert len(re.findall(rf" {name} +-0\.\d+ ", printed)) == count


@pytest.mark.slow
def test_against_nuts_as_shown(
    vignette: Callable[[str], ModuleType], shown: Callable[[str], str]
) -> None:
    """The divergence of a normal from itself is none, and shifting it by an sd is a half."""
    x = np.random.default_rng(1).normal(size=1000)
    mean, variance = vignette("as_n_grows").true_posterior(x)
    draws = mean + np.sqrt(variance) * np.array([-1.0, 1.0])
    assert vignette("as_n_grows").divergence(x, draws) == pytest.approx(0.0, abs=1e-12)
    shifted = vignette("as_n_grows").divergence(x, draws + np.sqrt(variance))
    assert shifted == pytest.approx(0.5, rel=1e-6)
    found = re.findall(r"^ +1000  (\S+).* (\S+) +\d+\.\d\d$", shown("as_n_grows"), re.M)
    assert [name for name, _ in found] == ["sgldcv,", "sample,", "NUTS"]
    # Of exact draws with an effective number n the divergence is about 1/n.
    assert max(float(divergence) for _, divergence in found[1:]) < 0.02


@pytest.mark.slow
def test_matrix_factorization_as_shown(
    vignette: Callable[[str], ModuleType],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = [tmp_path / "chains.png", tmp_path / "zero.png"]
    arguments = [
        "--short",
        "--output",
        str(outputs[0]),
        "--zero-variance",
        str(outputs[1]),
    ]
    vignette("matrix_factorization").main(
        [*arguments, "--keep", str(tmp_path / "kept")]
    )
    printed = capsys.readouterr().out
    for output in outputs:
        assert output.read_bytes().startswith(b"\x89PNG")
        assert str(output) in printed
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 3
    rmse = {
        name: float(value)
        for name, value in re.findall(
            r"^(Gibbs|SGLD-CV, h of SGLD) +(\d\.\d+)", printed, re.M
        )
    }
    assert len(rmse) == 2 and min(rmse, key=rmse.__getitem__) == "Gibbs"


@pytest.mark.slow
def test_decreasing_stepsizes_of_the_matrix_factorization_vignette(
    vignette: Callable[[str], ModuleType],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "chains.png"
    arguments = ["--short", "--decreasing", "--output", str(output)]
    vignette("matrix_factorization").main(
        [*arguments, "--zero-variance", str(tmp_path / "no.png")]
    )
    assert (
        output.read_bytes().startswith(b"\x89PNG")
        and not (tmp_path / "no.png").exists()
    )
    assert re.findall(r"^(SGLD.*?)  ", capsys.readouterr().out, re.M) == [
        "SGLD, decreasing h"
    ]


def test_gibbs_of_the_matrix_factorization_vignette(
    vignette: Callable[[str], ModuleType],
) -> None:
    """Its conditional laws, one by one."""
    matrix = vignette("matrix_factorization")
    rng = np.random.default_rng(3)
    i, j = rng.integers(4, size=24), rng.integers(3, size=24)
    ratings = {"user": i, "item": j, "rating": 3 + rng.normal(size=24)}
    model = sgmcmc.models.matrix_factorization(
        ratings, 2, prior=(3, 2), n_users=4, n_items=3
    )
    sampler = matrix.Gibbs(model, seed=1)
    sampler.precisions = np.array([[0.5, 2.0], [1.0, 3.0]])
    sampler.rows = [rng.normal(size=(4, 3)), rng.normal(size=(3, 3))]
    users, items = sampler.rows
    for side, own, other in ((0, i, j), (1, j, i)):
        mean, precision = sampler.conditional(side)
        for number in range(len(sampler.rows[side])):
            rows = own == number
            others = sampler.rows[1 - side][other[rows]]
            x = np.column_stack([np.ones(rows.sum()), others[:, 1:]])
            left = ratings["rating"][rows] - ratings["rating"].mean() - others[:, 0]
            prior = np.diag(sampler.precisions[side][[0, 1, 1]])
            expected = prior + 3 * x.T @ x
            np.testing.assert_allclose(precision[number], expected, rtol=1e-12)
            at = np.linalg.solve(expected, 3 * x.T @ left)
            np.testing.assert_allclose(mean[number], at, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_gibbs_of_the_matrix_factorization_vignette_against_hmc(
    vignette: Callable[[str], ModuleType],
) -> None:
    """The same posterior, precisions drawn there and integrated out here."""
    rng = np.random.default_rng(3)
    i, j = rng.integers(4, size=24), rng.integers(3, size=24)
    ratings = {"user": i, "item": j, "rating": 3 + rng.normal(size=24)}
    model = sgmcmc.models.matrix_factorization(
        ratings, 2, prior=(3, 2), n_users=4, n_items=3
    )
    sampler = vignette("matrix_factorization").Gibbs(model, seed=1)
    swept = [(sampler.sweep(), sampler.precisions.copy()) for _ in range(6000)][500:]
    mean = np.array(
        [(p["U"] @ p["V"].T + p["a"][:, None] + p["b"]).ravel() for p, _ in swept]
    )
    lam = np.log([lam[[0, 1, 0, 1], [1, 1, 0, 0]] for _, lam in swept])
    chain = sgmcmc.hmc(
        model.log_lik, model.dataset, model.start(seed=1), model.log_prior, n_leapfrog=15,
        preconditioner="none", stepsize=0.06, n_iters=3000, burn_in=300, n_chains=2, seed=1,
        verbose=False,
    )  # fmt: skip
    theta = {
        name: chain[name].reshape(6000, *shape) for name, shape in model.shapes.items()
    }
    means = np.einsum("sik,sjk->sij", theta["U"], theta["V"]) + theta["a"][:, :, None]
    means = (means + theta["b"][:, None]).reshape(6000, -1)
    s, t = model.shape, model.rate
    d = np.array([np.prod(shape) for shape in model.shapes.values()])
    squares = np.stack(
        [(theta[n].reshape(6000, -1) ** 2).sum(1) for n in model.shapes], 1
    )
    log_lam = np.log(rng.gamma(s + d / 2, size=squares.shape) / (t + squares / 2))
    for ours, theirs in ((mean, means), (lam, log_lam)):
        batches = [x.reshape(len(x) // 250, 250, -1).mean(1) for x in (ours, theirs)]
        errors = [b.std(0, ddof=1) / np.sqrt(len(b)) for b in batches]
        gap = batches[0].mean(0) - batches[1].mean(0)
        # Standard errors of 22 and 24 batches are themselves known to a sixth.
        assert (np.abs(gap) < 5 * np.hypot(*errors)).all()
        np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.15)


@pytest.mark.slow
def test_topic_model_as_shown(shown: Callable[[str], str]) -> None:
    printed = shown("topic_model")
    for method in ("scir", "hybrid"):
        assert re.search(rf"^{method}( +\d+\.\d){{4}} +\d+$", printed, re.MULTILINE)
    # Five topics of eight words each, of which the samplers know nothing.
    topics = {
        frozenset(line.split())
        for line in printed.splitlines()
        if line.startswith("word")
    }
    assert frozenset(f"word{i}" for i in range(8)) in topics


@pytest.mark.slow
def test_dirichlet_process_as_shown(shown: Callable[[str], str]) -> None:
    printed = shown("dirichlet_process")
    for method in ("scir", "sgrld"):
        found = re.search(rf"truly 0\.300: (0\.\d+) by {method}", printed)
        assert found is not None and abs(float(found.group(1)) - 0.3) < 0.02
    found = re.search(r"truly 0\.300: (0\.\d+) by lopsided", printed)
    assert found is not None and abs(float(found.group(1)) - 0.19) < 0.02
    rows = re.findall(r"^(?:SCIR|SGRLD|Gibbs).*(?: +-?\d+\.\d+){7}$", printed, re.M)
    assert len(rows) == 3


def test_topic_model_vignette_reads_documents_from_a_file(
    vignette: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    table = np.random.default_rng(1).poisson(1.0, (16, 5))
    rows, columns = np.nonzero(table)
    np.savez(
        tmp_path / "counts.npz",
        data=table[rows, columns].astype(np.uint16),
        indices=columns.astype(np.uint16),
        indptr=np.searchsorted(rows, np.arange(17)),
        shape=table.shape,
        vocab=np.array(list("abcde")),
    )
    corpus = vignette("topic_model").load(str(tmp_path / "counts.npz"))
    assert corpus.train.shape == (
        14,
        5,
    ) and corpus.tuning.shape == corpus.test.shape == (1, 5)
    assert corpus.train.total + corpus.tuning.total + corpus.test.total == table.sum()


@pytest.mark.slow
def test_simplex_as_shown(
    vignette: Callable[[str], ModuleType],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = [tmp_path / "scores.png", tmp_path / "unseen.png"]
    arguments = ["--short", "--output", str(outputs[0]), "--unseen", str(outputs[1])]
    vignette("simplex").main(arguments)
    printed = capsys.readouterr().out
    for output in outputs:
        assert output.read_bytes().startswith(b"\x89PNG")
        assert str(output) in printed
    assert "Scores, sparse" in printed and "Scores, dense" in printed


@pytest.mark.slow
def test_gamma_parameters_as_shown(shown: Callable[[str], str]) -> None:
    printed = shown("gamma_parameters")
    ratios = {
        name: [float(ratio) for ratio in row.split()]
        for name, row in re.findall(
            r"^(formula|minibatch|svrg) +([\d. ]+)$", printed, re.M
        )
    }
    # 600 draws: the standard error of a variance is at most a sixth.
    np.testing.assert_allclose(ratios["svrg"], [1, 1], atol=0.7)
    assert ratios["minibatch"][1] > 3 and ratios["formula"][1] > 5
    assert "scir with svrg, h = 0.1" in printed and "diverged" not in printed


@pytest.mark.slow
def test_parameterizations_as_shown(
    vignette: Callable[[str], ModuleType], shown: Callable[[str], str]
) -> None:
    """And a move and its reverse have densities that belong to it."""
    assert shown("parameterizations").count("expanded natural") == 7
    module = vignette("parameterizations")
    rng = np.random.default_rng(1)
    u, step = np.log(rng.dirichlet(module.A + 1.0)), np.full((1, 1), 0.1)
    for name in module.NAMES:
        at = u - u[-1] if name == "reduced_natural" else u
        slope = [
            (module.log_density(name, at + d) - module.log_density(name, at - d)) / 2e-6
            for d in 1e-6 * np.eye(10)
        ]
        if name == "expanded_mean":  # θ (∂ log p + curvature 1/θ), with respect to θ
            slope = np.array(slope) + 1.0
        np.testing.assert_allclose(
            np.array(slope)[:9], module.drift(name, at)[:9], rtol=1e-5, atol=1e-5
        )
        draws = module.propose(
            name, np.tile(at, (20_000, 1)), step, rng.normal(size=(20_000, 10))
        )
        density = np.exp(
            module.log_proposal(name, np.tile(at, (20_000, 1)), draws, step)
        )
        assert np.isfinite(density).all() and (density > 0).all()


@pytest.mark.slow
def test_keras_network_as_shown(
    vignette: Callable[[str], ModuleType], shown: Callable[[str], str]
) -> None:
    """Both tables, and scores of predictions that are known."""
    network = vignette("keras_network")
    y = np.repeat(np.eye(10), 2, axis=0)
    half = 0.5 * (y + np.roll(y, 1, axis=1)) + 1e-6 * np.tile([[1], [-1]], (10, 1)) * y
    np.testing.assert_allclose(
        network.scores(half, y), [0.5, np.log(2), 0.0], atol=1e-5
    )
    printed = shown("keras_network")
    assert len(re.findall(r"^(?:single|ensemble|posterior) .*%", printed, re.M)) == 6


@pytest.mark.slow
def test_sparse_text_as_shown(shown: Callable[[str], str]) -> None:
    """The coefficients are drawn from the prior, so nine in ten intervals hold them."""
    printed = shown("sparse_text")
    losses = {
        name: float(loss)
        for name, loss in re.findall(
            r"^  (truth|posterior|mode) +(0\.\d+)$", printed, re.M
        )
    }
    assert losses["truth"] < losses["posterior"] < losses["mode"] + 0.02
    found = re.findall(r"^ +\d+ +(\d+) +\d\.\d+ +(\d\.\d+)$", printed, re.M)
    words, held = np.array(found, float).T
    # Four standard errors, and the error of intervals that come of few independent draws.
    assert (
        abs(np.average(held, weights=words) - 0.9)
        < 4 * np.sqrt(0.09 / words.sum()) + 0.05
    )


@pytest.mark.slow
def test_manifolds_as_shown(
    vignette: Callable[[str], ModuleType], shown: Callable[[str], str]
) -> None:
    """Exact draws are near the truth, others are not, and the true densities are ones."""
    manifolds = vignette("manifolds")
    truth = manifolds.true_circle(manifolds.ROUND)
    assert np.mean(truth) * 2 * np.pi == pytest.approx(1.0, abs=0.02)
    weights = truth / truth.sum()
    exact = np.random.default_rng(1).choice(manifolds.ROUND, 5000, p=weights)
    assert manifolds.distance(exact, manifolds.ROUND, truth) < 0.03
    assert manifolds.distance(exact + 0.3, manifolds.ROUND, truth) > 0.1
    joint = manifolds.true_mixture(manifolds.directions(), manifolds.NEAR)
    step = manifolds.NEAR[1] - manifolds.NEAR[0]
    assert joint.sum() * step**2 == pytest.approx(1.0)
    printed = shown("manifolds")
    for name in (*manifolds.CIRCLES, *manifolds.MIXTURES):
        assert f"{name}, v" in printed


@pytest.mark.slow
def test_spherical_topics_as_shown(shown: Callable[[str], str]) -> None:
    """Five runs, the best of them better than the uniform distribution, and topics as simulated."""
    printed = shown("spherical_topics")
    rows = re.findall(r"^[a-zA-Z ]+? +\d+ +\d+\.\d +(-?\d+\.\d)  ", printed, re.M)
    assert len(rows) == 5 and min(map(float, rows)) < 0
    topics = {
        frozenset(line.split())
        for line in printed.splitlines()
        if line.startswith("word")
    }
    assert frozenset(f"word{i}" for i in range(8)) in topics


@pytest.mark.slow
def test_divide_and_conquer_as_shown(
    shown: Callable[[str], str], vignette: Callable[[str], ModuleType]
) -> None:
    """The divergence of normals is the closed form; consensus is right for normal shards."""
    rng = np.random.default_rng(1)
    module = vignette("divide_and_conquer")
    truth, other = rng.normal(size=(4000, 2)), 1.5 * rng.normal(size=(4000, 2))
    exact = 2 * (np.log(1.5) + 1 / (2 * 1.5**2) - 0.5)
    assert module.divergence(truth, other) == pytest.approx(exact, abs=0.05)
    found = re.findall(r"^  Consensus +(-?\d\.\d+) ", shown("divide_and_conquer"), re.M)
    assert len(found) == 3
    assert all(abs(float(value)) < 0.1 for value in found)


def test_every_vignette_is_run_somewhere() -> None:
    names = {path.stem for path in (ROOT / "vignettes").glob("[a-z]*.py")}
    assert names == {
        "as_n_grows",
        "comparing_models",
        "demo",
        "gamma_parameters",
        "dirichlet_process",
        "divide_and_conquer",
        "elevations_by_soil",
        "gaussian_mixture",
        "growing_table",
        "hand_chosen_stepsizes",
        "keras_network",
        "logistic_regression",
        "manifolds",
        "matrix_factorization",
        "million_groups",
        "mixed_models",
        "network_intervals",
        "neural_network",
        "own_likelihood",
        "own_parts",  # by tests/samplers/test_own_parts.py
        "parameterizations",
        "regression_in_one_line",
        "simplex",
        "sparse_text",
        "spherical_topics",
        "step_by_step",
        "topic_model",
        "topic_variance",
        "variance_reduction",
        "zero_variance",
    }


def test_moments_of_the_mixture_vignette(vignette: Callable[[str], ModuleType]) -> None:
    mixture = vignette("gaussian_mixture")
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2, 5000, 4)) * [1.0, 2.0, 3.0, 4.0]
    found = mixture.moments(draws)
    flat = draws.reshape(-1, 4)
    np.testing.assert_allclose(found.covariance, np.cov(flat.T))
    np.testing.assert_allclose(found.midpoint_variance, [2.5, 5.0], rtol=0.1)
    np.testing.assert_allclose(found.difference_square, [10.0, 20.0], rtol=0.1)
    assert found.share == pytest.approx(0.5, abs=0.03)
    # Independent draws change sides every other time, and never across two chains.
    assert found.changes == pytest.approx(4999, abs=250)


def test_score_of_the_simplex_vignette(vignette: Callable[[str], ModuleType]) -> None:
    """Exact draws make independent uniform numbers, however small their components are."""
    simplex = vignette("simplex")
    a = np.array([800.1, 1e-2, 0.1, 0.1, 2.0])
    theta = np.random.default_rng(1).gamma(a, size=(2, 4000, 5))
    assert theta.min() < 1e-200
    u = simplex.uniforms(theta, a)
    distances = [
        [stats.kstest(u[c, :, j], "uniform") for j in range(4)] for c in range(2)
    ]
    assert min(d.pvalue for of_chain in distances for d in of_chain) > 1e-3
    correlation = stats.spearmanr(u.reshape(-1, 4)).statistic[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 4.0 / np.sqrt(8000)
    means = [np.mean([d.statistic for d in of_chain]) for of_chain in distances]
    np.testing.assert_allclose(simplex.score(theta, a), means, rtol=1e-12)
    np.testing.assert_allclose(
        simplex.uniforms(theta / theta.sum(-1, keepdims=True), a), u
    )
    wrong = simplex.score(theta, a * [1, 1, 3, 1, 1])
    assert (wrong > 3 * np.array(means)).all()


def test_a_step_of_the_published_sgrld(vignette: Callable[[str], ModuleType]) -> None:
    """The two readings differ by a (1 − θ), and at a tiny stepsize the chain stays put."""
    simplex = vignette("simplex")
    theta, pull = np.array([0.5, 2.0]), np.array([3.0, -1.0])
    first, second = (drift(theta, pull) for drift in simplex.READINGS.values())
    np.testing.assert_allclose(first, 1.1 + theta * (pull - theta))
    np.testing.assert_allclose(first - second, simplex.ALPHA * (1 - theta))
    counts, length = simplex.COUNTS["sparse"], simplex.Length(3, 2, 4)
    for reading in simplex.READINGS:
        draws = simplex.published_sgrld(reading, counts, 10, [1e-20], length)
        assert draws.shape == (1, 4, 2, 10)
        np.testing.assert_allclose(draws[0, 0, 0], simplex.ALPHA + counts, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "stepsize", "most"),
    [
        (10, 0.1, 0.1),
        (100, 0.1, 0.065),
        (500, 0.5, 0.045),
    ],
)
def test_scir_is_near_exact_on_the_sparse_posterior(
    n: int, stepsize: float, most: float, vignette: Callable[[str], ModuleType]
) -> None:
    simplex = vignette("simplex")
    counts = simplex.COUNTS["sparse"]
    draws = simplex.sample("scir", counts, n, stepsize, simplex.Length(chains=20))
    assert simplex.score(draws, simplex.ALPHA + counts).mean() < most


@pytest.mark.slow
def test_mixture_vignette_names_a_divergence(
    vignette: Callable[[str], ModuleType],
) -> None:
    mixture = vignette("gaussian_mixture")
    run = mixture.Run("sgldcv", 1e-2, 10_000)
    said = mixture.sample(run, mixture.simulate(), shorter=20)
    assert isinstance(said, str) and said.startswith("diverged between iterations")
    table = mixture.format_moments(
        {"NUTS": np.random.default_rng(1).normal(size=(9, 4)), "a": said}
    )
    assert said in table


def test_largest_curvature_of_the_regression_vignette(
    vignette: Callable[[str], ModuleType],
) -> None:
    regression = vignette("logistic_regression")
    train = {"X": np.zeros((40, 2), np.float32), "y": np.zeros(40, np.float32)}
    mode = {"bias": np.zeros(()), "beta": np.zeros((2, 1))}
    assert regression.largest_curvature(train, mode) == pytest.approx(10.0)  # 40 × ¼


# ------------------------------------------------------------------------ the written pages


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """Return the Python blocks of a Markdown page, each with its first line's number."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(1)) + 1, match.group(1))
        for match in BLOCK.finditer(text)
    ]


def shortened(code: str, seen: list[str], quick: bool = False) -> str:
    """Return a block in which every sampler runs for a few iterations and shows no progress.

    Args:
        code: the block.
        seen: gains the names of the samplers that it calls.
        quick: whether ``sample`` too runs for few iterations, on short arrays of random numbers,
            and nothing is compiled by XLA.
    """
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if quick and isinstance(node, ast.keyword) and node.arg == "size":
            node.value = ast.Constant(1000)
        if quick and isinstance(node, ast.Constant) and node.value == 1_000_000:
            node.value = 2000
        if not isinstance(node, ast.Call) or not _is_of_the_package(node.func):
            continue
        name = node.func.attr
        few: dict[str, Any] = {"verbose": False}
        if quick:
            few["jit_compile"] = False
        if name in {case.public for case in DISTINCT}:
            seen.append(name)
            few |= {"n_iters": 120, "burn_in": 10}
            if name.endswith("cv"):
                few["n_iters_opt"] = 40
        elif not quick or name != "sample":
            continue
        elif "n_iters" not in {k.arg for k in node.keywords}:
            few["n_iters"] = 200
        node.keywords = [k for k in node.keywords if k.arg not in few]
        node.keywords += [
            ast.keyword(arg, ast.Constant(value)) for arg, value in few.items()
        ]
    return ast.unparse(ast.fix_missing_locations(tree))


def _is_of_the_package(node: ast.expr) -> bool:
    """Tell whether an expression is ``sgmcmc.sgld`` or the like."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "sgmcmc"
    )


def few_rows_of_covertype(name: str) -> np.ndarray:
    """Stand in for ``get_dataset``: rows of covertype's shape and kind."""
    assert name == "covertype"
    rng = np.random.default_rng(1)
    rows = rng.random((2000, 55), dtype=np.float32)
    rows[:, 0] = rows[:, 0] < 0.5
    return rows


NEEDED = {"from-pymc": ("jax", "numpyro", "pymc")}
"""What the blocks of a page need that the tests do not install; without it they are skipped."""

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def with_code_of_their_own() -> list[Any]:
    """Return the pages that have blocks which the README has not, and whether they are short."""
    seen = {code for _, code in python_blocks(ROOT / "README.md")}
    return [pytest.param(ROOT / "README.md", True, id="README.md in short")] + [
        pytest.param(page, False, id=page.name, marks=pytest.mark.slow)
        for page in PAGES
        if page.name == "README.md"
        or not {code for _, code in python_blocks(page)} <= seen
    ]


@pytest.mark.parametrize(("page", "quick"), with_code_of_their_own())
def test_python_blocks_run(
    page: Path, quick: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All blocks of a page run in order, in one namespace, on few rows and for few iterations.

    In short, of the calls of ``sample`` the first.
    """
    for needed in NEEDED.get(page.stem, ()):
        pytest.importorskip(needed)
    monkeypatch.setattr(sgmcmc, "get_dataset", few_rows_of_covertype)
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.zeros((100, 3), np.float32))
    np.save("y.npy", np.zeros(100, np.float32))
    namespace: dict[str, Any] = {}
    calls: list[str] = []
    sampled = False
    for line, code in python_blocks(page):
        short = shortened(
            without_sample(code) if quick and sampled else code, calls, quick
        )
        sampled |= "sgmcmc.sample(" in code
        try:
            exec(compile(short, f"{page.name}:{line}", "exec"), namespace)
        except Exception as error:
            raise AssertionError(
                f"the block at {page.name}:{line} failed: {error}"
            ) from error
    if page.name == "README.md":
        assert list(namespace["fit"].summary().index)[-1] == "plan[T.plus]"


def without_sample(code: str) -> str:
    """Return a block without its statements that call ``sample``."""
    tree = ast.parse(code)
    tree.body = [
        each for each in tree.body if "sgmcmc.sample(" not in ast.unparse(each)
    ]
    return ast.unparse(tree)


def called_in(code: str) -> list[ast.Call]:
    """Return the calls of what is public in the package."""
    return [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and _is_of_the_package(node.func)
        and not any(k.arg is None for k in node.keywords)
    ]


@pytest.mark.parametrize(
    "path",
    [*PAGES, *sorted((ROOT / "vignettes").glob("[a-z]*.py"))],
    ids=lambda path: path.name,
)
def test_calls_are_of_what_there_is(path: Path) -> None:
    """Of pages and vignettes that are not run too: functions of such names and such arguments."""
    codes = (
        [code for _, code in python_blocks(path)]
        if path.suffix == ".md"
        else [path.read_text(encoding="utf-8")]
    )
    for call in itertools.chain.from_iterable(map(called_in, codes)):
        function = getattr(sgmcmc, call.func.attr)
        given: list[Any] = [a for a in call.args if not isinstance(a, ast.Starred)]
        starred = len(given) < len(call.args)
        named = {k.arg: k.value for k in call.keywords}
        signature = inspect.signature(function)
        try:
            (signature.bind_partial if starred else signature.bind)(*given, **named)
        except TypeError as error:
            raise AssertionError(
                f"{path.name}: {ast.unparse(call)}: {error}"
            ) from error


def test_the_readme_shows_the_commands_and_eight_lines_first() -> None:
    page = ROOT / "README.md"
    first_screen = page.read_text(encoding="utf-8").split("\n")[:40]
    assert [line.split(" #")[0].rstrip() for line in first_screen if "make " in line][
        :2
    ] == ["make demo", "make test"]
    line, code = python_blocks(page)[0]
    assert line < 20 and len(code.split("\n\n")[1].splitlines()) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_what_is_printed_is_what_is_shown(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words are those shown below the block; numbers are near those shown."""
    text = (ROOT / name).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {}
    pairs = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.M | re.S
    )
    assert len(pairs) >= 2
    for code, shown in pairs:
        exec(compile(code, name, "exec"), namespace)
        found, wanted = (
            re.split(r"[\s\[\]]+", t.strip(" \n[]"))
            for t in (capsys.readouterr().out, shown)
        )
        assert len(found) == len(wanted)
        for word, expected in zip(found, wanted, strict=True):
            try:
                assert float(word) == pytest.approx(float(expected), rel=0.3, abs=0.1)
            except ValueError:
                assert word == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_blocks_are_shortened() -> None:
    calls: list[str] = []
    code = shortened("sgmcmc.sgldcv(1, 2, n_iters=10_000_000, seed=1)", calls)
    assert calls == ["sgldcv"]
    assert "10000000" not in code and "n_iters=120" in code and "seed=1" in code
