"""Rows in order: each once an epoch, resumed bit for bit, with the exact moments over an epoch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.dynamics import SGHMC, SGLD, Underdamped
from sgmcmc.engine.vectorized import Group
from sgmcmc.minibatches.reshuffled import Reshuffled, SequenceStart
from sgmcmc.plan.recursion import LinearRecursion
from tests import seams

KINDS = [
    Reshuffled(), Reshuffled(symmetric=True), Reshuffled(block=4), Reshuffled(4, symmetric=True),
]  # fmt: skip


def _place(first: int = 0) -> SequenceStart:
    return SequenceStart(
        (1, 0, 1), lambda epoch: np.random.default_rng([7, epoch]), first
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "size"), [(12, 3), (13, 5), (50, 7), (9, 9), (30, 1)])
def test_every_row_comes_once_an_epoch(kind: Reshuffled, rows: int, size: int) -> None:
    draws = kind.bind(rows, size)
    found = draws.in_order(_place(), 4 * rows).reshape(-1)
    epochs = found.reshape(-1, rows) if rows % size == 0 else None
    if epochs is not None:
        assert (np.sort(epochs, 1) == np.arange(rows)).all()
    # Over any whole number of epochs the counts are equal, up to the minibatch at the end.
    counts = np.bincount(found, minlength=rows)
    assert counts.max() - counts.min() <= 1
    assert (np.diff(draws.in_order(_place(), 20), axis=1) >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_minibatches_do_not_depend_on_where_a_block_begins(kind: Reshuffled) -> None:
    whole = kind.bind(23, 4).in_order(_place(), 40)
    for first in (1, 5, 6, 17):
        np.testing.assert_array_equal(
            kind.bind(23, 4).in_order(_place(first), 9), whole[first:][:9]
        )


def test_symmetric_epochs_are_the_one_before_backwards() -> None:
    found = (
        Reshuffled(symmetric=True).bind(20, 4).in_order(_place(), 20).reshape(4, 5, 4)
    )
    np.testing.assert_array_equal(found[1], found[0][::-1])
    np.testing.assert_array_equal(found[3], found[2][::-1])
    assert (found[2] != found[0]).any()


def test_blocks_are_read_in_runs() -> None:
    found = Reshuffled(block=10).bind(95, 10).in_order(_place(), 9)
    runs = 1 + (np.diff(found, axis=1) != 1).sum(1)
    assert (
        runs.max() <= 2 + 1
    )  # the short block at the end of the dataset may fall into one


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_single_minibatch_is_unbiased(kind: Reshuffled) -> None:
    values = np.random.default_rng(1).normal(size=24) ** 3
    rows = kind.bind(24, 6).draw(np.random.default_rng(2), 4000)
    means = values[rows].mean(1)
    assert abs(means.mean() - values.mean()) < 4 * means.std() / np.sqrt(4000)


DATA = {"x": np.random.default_rng(3).normal(2.0, 1.0, 60)}


def log_lik(params: dict[str, Any], dataset: dict[str, Any]) -> tf.Tensor:
    return -0.5 * (dataset["x"] - params["theta"]) ** 2


def _run(**keywords: Any) -> sgmcmc.Samples:
    given = {
        "minibatch_size": 7,
        "n_iters": 60,
        "verbose": False,
        "seed": 1,
        **keywords,
    }
    given.setdefault("jit_compile", False)
    function = given.pop("function", sgmcmc.sgld)
    return function(log_lik, DATA, {"theta": 0.0}, 1e-3, **given)


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["reshuffled", "symmetric"])
def test_thinning_stores_and_chains_leave_the_draws_as_they_are(
    kind: str, tmp_path: Any
) -> None:
    plain = _run(minibatches=kind)["theta"]
    thin = _run(minibatches=kind, burn_in=3, thin=3, n_iters=57)["theta"]
    np.testing.assert_allclose(thin, plain[5::3], rtol=1e-5)
    _run(minibatches=kind, n_iters=23, store=tmp_path / "a")
    resumed = _run(minibatches=kind, store=tmp_path / "a")
    np.testing.assert_allclose(resumed["theta"], plain, rtol=1e-6)
    several = _run(minibatches=kind, n_chains=3)["theta"]
    np.testing.assert_allclose(several[0], plain, rtol=1e-5)
    with ThreadPoolExecutor(2) as executor:
        elsewhere = _run(minibatches=kind, n_chains=3, executor=executor)["theta"]
    np.testing.assert_array_equal(elsewhere, several)
    extended = _run(minibatches=kind, n_iters=20).extend(40)
    np.testing.assert_allclose(extended["theta"], plain, rtol=1e-5)
    other = _run(minibatches="uniform")["theta"]
    assert (other != plain).any()


@pytest.mark.slow
def test_groups_of_chains_take_them_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups of two, which are compiled, against chains by themselves."""
    alone = _run(minibatches="reshuffled", n_chains=8)["theta"]
    small = {"min_chains": 2, "min_group": 2, "max_group": 2}
    groups = seams.changed(seams.EXECUTOR_SETTINGS, **small)
    monkeypatch.setattr(seams.EXECUTOR_SETTINGS, groups)
    advanced, advance = [], Group.advance

    def counted(self: Group, most: int | None = None) -> int:
        advanced.append(self)
        return advance(self, most)

    monkeypatch.setattr(seams.GROUP_ADVANCE, counted)
    grouped = _run(minibatches="reshuffled", n_chains=8, jit_compile=None)["theta"]
    assert len(set(map(id, advanced))) == 4
    np.testing.assert_allclose(grouped, alone, rtol=1e-4, atol=1e-5)


def test_inner_steps_and_parameters_in_turn_take_them_in_order() -> None:
    inner = _run(function=sgmcmc.sghmc, minibatches="reshuffled", n_iters=20)
    assert np.isfinite(inner["theta"]).all()
    in_turn = _run(minibatches="reshuffled", updates="in_turn")
    np.testing.assert_allclose(
        in_turn["theta"], _run(minibatches="reshuffled")["theta"], rtol=1e-5
    )


@pytest.mark.slow
def test_every_gradient_takes_them() -> None:
    for gradient in ("svrg", "saga", "minibatch"):
        found = sgmcmc.sample(
            log_lik, DATA, {"theta": 0.0}, dynamics="sgld", gradient=gradient, stepsize=1e-3,
            minibatches=Reshuffled(block=3), minibatch_size=7, preconditioner="none", n_iters=20,
            n_chains=1, burn_in=0, verbose=False, seed=1, jit_compile=False,
        )  # fmt: skip
        assert np.isfinite(found["theta"]).all()
        assert found.settings["minibatches"] == {
            "name": "reshuffled", "block": 3, "symmetric": False,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("dynamics", "R", "epsilon", "independent", "reshuffled"),
    [
        (Underdamped(0.5), 100, 1e-3, 4.98, 0.31),
        (Underdamped(0.5), 100, 1e-4, 0.51, 0.003),
        (Underdamped(0.5), 600, 1e-4, 3.02, 0.12),
        (SGLD(), 100, 1e-3, 1.25, 0.033),
    ],
)
def test_the_moments_over_an_epoch_are_as_published(
    dynamics: Any, R: int, epsilon: float, independent: float, reshuffled: float
) -> None:
    """Errors of SDs in per cent, of a whitened normal with V = R, to the digits that are known."""
    law, noise = LinearRecursion(dynamics, epsilon), np.full((1, 1), float(R))
    found = 100 * (
        np.sqrt([law.covariance(noise, epoch)[0][0, 0] for epoch in (None, R)]) - 1
    )
    digits = [len(str(value).partition(".")[2]) for value in (independent, reshuffled)]
    assert round(found[0], digits[0]) == independent
    assert abs(found[1] - reshuffled) < 10.0 ** -digits[1]


@pytest.mark.slow
def test_the_moments_over_an_epoch_solve_the_recursion() -> None:
    """Against the recursion itself, minibatch by minibatch, in two directions."""
    R, V, curvatures = 6, np.array([[3.0, 1.2], [1.2, 2.0]]), np.array([1.0, 0.4])
    law = LinearRecursion(Underdamped(0.7), 0.02, curvatures)
    A = np.zeros((2 * len(law._A[0]), 2 * len(law._A[0])))
    size = len(law._A[0])
    K, Q = np.zeros((2 * size, 2)), np.zeros_like(A)
    for k in range(2):
        part = slice(k * size, (k + 1) * size)
        A[part, part], K[part, k] = law._A[k], law._estimated[k][:, 0]
        Q[part, part] = law._injected[k] @ law._injected[k].T
    d = len(A)
    S, mean = np.zeros((d + 2, d + 2)), np.zeros((2, 2))
    for _ in range(4000):
        S[d:], S[:, d:], mean = 0.0, 0.0, np.zeros((2, 2))
        for t in range(R):
            move = np.zeros_like(S)
            move[:d, :d], move[:d, d:] = A, -K / (R - t)
            move[d:, d:] = np.eye(2) * (1 - 1 / (R - t))
            S = move @ S @ move.T
            S[:d, :d] += Q
            kick = np.vstack([K, np.eye(2)])
            S += kick @ (V * (1 - t / ((R - 1) * (R - t)))) @ kick.T
            places = [law._position_leaf, size + law._position_leaf]
            mean += S[np.ix_(places, places)] / R
    np.testing.assert_allclose(law.covariance(V, R)[0], mean, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dynamics", "stepsize"),
    [
        (SGLD(), 4e-3),
        pytest.param(SGHMC(0.1, 3), 4e-4, marks=pytest.mark.slow),
        pytest.param(
            SGHMC(0.4, 10), 1e-3, id="an iteration is an epoch", marks=pytest.mark.slow
        ),
        pytest.param(Underdamped(0.5), 1e-3, marks=pytest.mark.slow),
    ],
)
def test_chains_have_the_moments_over_an_epoch(dynamics: Any, stepsize: float) -> None:
    """A normal mean: the noise of minibatches does not depend on the position."""
    x, n, chains, iterations = DATA["x"], 6, 64, 4000
    N = len(x)
    found = sgmcmc.sample(
        log_lik, DATA, {"theta": x.mean()}, dynamics=dynamics, gradient="minibatch",
        minibatches="reshuffled", minibatch_size=n, stepsize=stepsize, preconditioner="none",
        n_chains=chains, n_iters=iterations, burn_in=400, dtype=tf.float64, verbose=False, seed=2,
    )["theta"]  # fmt: skip
    noise = N * (N - n) / n * x.var(ddof=1)
    law = LinearRecursion(dynamics, stepsize, np.array([float(N)]))
    exact = law.covariance(np.full((1, 1), noise), N / n)[0][0, 0]
    independent = law.variance(noise)
    each = ((found - x.mean()) ** 2).mean(1)
    error = each.std(ddof=1) / np.sqrt(chains)
    assert abs(each.mean() - exact) < 4.5 * error
    assert abs(each.mean() - independent) > 4.5 * error  # which the test can tell apart


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(ValueError, match="`block`"):
        Reshuffled(block=0)
    with pytest.raises(TypeError, match="`symmetric`"):
        Reshuffled(symmetric=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`block` is 100, longer than an epoch"):
        _run(minibatches=Reshuffled(block=100))
    with pytest.raises(ValueError, match="`replace=True`"):
        _run(minibatches="reshuffled", replace=True)
