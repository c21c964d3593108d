"""What a warm-up measures, how members share kernels, and what needs too much memory."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.reading import read_dataset
from sgmcmc.networks.chains import EnsembleChains, Scales
from sgmcmc.networks.training import Network, Schedule, Trained, Training, check_memory
from tests import seams


def start(rng: np.random.Generator, members: int) -> dict[str, Any]:
    shapes = {"W0": (3, 1), "b0": (3,), "W1": (1, 3), "b1": (1,)}
    return {
        name: rng.normal(size=(members, *shape)).astype("f")
        for name, shape in shapes.items()
    }


def forward(weights: dict[str, Any], X: Any) -> Any:
    h = tf.tanh(weights["W0"] @ tf.transpose(X) + weights["b0"][..., tf.newaxis])
    return tf.linalg.matrix_transpose(
        weights["W1"] @ h + weights["b1"][..., tf.newaxis]
    )


def log_density(y: Any, outputs: Any) -> Any:
    return -0.5 * (y - outputs[..., 0]) ** 2


NETWORK = Network(forward, log_density, {"W0": 1.0, "b0": 2.0, "W1": 0.5, "b1": 2.0})


@functools.cache
def trained() -> Trained:
    """Return two networks that were trained on all rows but twenty."""
    run = members(2)
    rows = np.arange(20, 200), np.arange(20)
    rng = np.random.default_rng(6)
    return Training(NETWORK, run.data, Schedule(60), rng).run(run.weights, rows)


def members(count: int, rows: int = 200) -> EnsembleChains:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 1)).astype("f")
    columns = {"X": X, "y": np.sin(X[:, 0]), "weight": np.ones(rows, "f")}
    return EnsembleChains(
        NETWORK, read_dataset(columns, tf.float32), start(rng, count), 1000, 1
    )


def test_the_curvature_is_that_of_the_stiffest_member() -> None:
    """The largest eigenvalue, in these units, of any member's Hessian, built column by column."""
    chains = members(3)
    rng = np.random.default_rng(5)
    variances = {name: rng.uniform(0.01, 0.1) for name in NETWORK.prior_sds}
    found = chains._largest_curvature(
        chains.weights, variances, np.arange(200), 200, rng
    )
    sizes = [3, 3, 3, 1]
    root = np.repeat(np.sqrt(list(variances.values())), sizes)
    X, y = (chains.data.whole[name] for name in ("X", "y"))
    largest = []
    for member in range(3):
        flat = tf.concat(
            [tf.reshape(each[member], [-1]) for each in chains.weights.values()], 0
        )
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(flat)
            with tf.GradientTape() as inner:
                inner.watch(flat)
                pieces = zip(chains.weights.items(), tf.split(flat, sizes), strict=True)
                one = {
                    name: tf.reshape(piece, (1, *each.shape[1:]))
                    for (name, each), piece in pieces
                }
                value = tf.reduce_sum(
                    log_density(y, forward(one, X))
                ) + NETWORK.log_prior(one)
            slope = inner.gradient(value, flat)
        hessian = (
            outer.jacobian(slope, flat, experimental_use_pfor=False).numpy()
            * root
            * root[:, np.newaxis]
        )
        largest.append(np.abs(np.linalg.eigvalsh(hessian)).max())
    assert np.argmax(largest) > 0  # one stepsize is for all, not for the first alone
    assert found == pytest.approx(max(largest), rel=0.02)


def test_scales_are_those_of_the_information() -> None:
    """1 / (N mean squared score + 1 / prior SD²), the mean over members and weights of a name."""
    rows = 100
    chains = members(4, rows)
    scales = chains._measured(np.ones(rows, np.float32))
    at = {name: tf.constant(each) for name, each in chains.weights.items()}
    X, y = (chains.data.whole[name] for name in ("X", "y"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(at)
        by_row = tf.reduce_sum(log_density(y, forward(at, X)), 0)
    scores = tape.jacobian(by_row, at, experimental_use_pfor=False)
    for name, score in scores.items():
        # A row's density of a member depends on its own weights alone.
        information = (
            rows * score.numpy().var(0).mean() + 1 / NETWORK.prior_sds[name] ** 2
        )
        # 32 pairs of 64 rows: a standard error of a tenth or so, less in the mean over weights.
        assert 1 / scales.variances[name] == pytest.approx(information, rel=0.4)


@pytest.mark.parametrize(
    ("count", "together"), [(1, 1), (2, 1), (10, 5), (7, 1), (9, 3), (16, 4)]
)
def test_members_share_kernels_two_or_more_whatever_the_machine(
    count: int, together: int
) -> None:
    assert NETWORK.together(count, 10) == together
    assert NETWORK.together(count, 10**6) == 1


def test_memory_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="`members`: 1000 networks .* at most"):
        check_memory(1000, 10**7, 50)


def test_rows_are_weighted_in_training_by_their_outputs() -> None:
    """The loss by hand; its gradient leaves the weights of rows constant."""
    rng = np.random.default_rng(5)
    network = replace(NETWORK, emphasis=lambda outputs: outputs[..., 0] ** 2)
    rows = {
        "X": rng.normal(size=(7, 1)).astype("f"),
        "y": rng.normal(size=7).astype("f"),
    }
    rows["weight"] = np.ones(7, "f")
    weights = {name: tf.constant(each) for name, each in start(rng, 2).items()}
    outputs = forward(weights, rows["X"]).numpy()[..., 0]
    factors = outputs**2 / (outputs**2).mean(1, keepdims=True)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = network.loss(weights, rows)
    assert float(loss) == pytest.approx(
        0.5 * (factors * (rows["y"] - outputs) ** 2).mean(1).sum()
    )
    slope = tape.gradient(loss, weights)["b1"].numpy()[:, 0]
    np.testing.assert_allclose(
        slope, (factors * (outputs - rows["y"])).mean(1), rtol=1e-4
    )


def test_training_keeps_the_best_epoch_and_the_last() -> None:
    run = members(2, rows=60)
    schedule = Schedule(epochs=200, batch_size=20)
    rows = np.arange(50), np.arange(50, 60)
    training = Training(NETWORK, run.data, schedule, np.random.default_rng(6))
    found = training.run(run.weights, rows)
    y = run.data.rows(rows[1])["y"].numpy()
    best, last = (
        log_density(y, replace(run, weights=weights).outputs(rows[1])).mean(-1)
        for weights in (found.best, found.last)
    )
    assert (best >= last - 1e-6).all()
    training = replace(training, rng=np.random.default_rng(6))
    none = training.run(run.weights, (rows[0], rows[1][:0]))
    for name in none.last:
        np.testing.assert_array_equal(none.best[name], none.last[name])
        np.testing.assert_array_equal(none.last[name], found.last[name])


@pytest.mark.parametrize("good", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_chains_begin_where_held_out_rows_are_not_clearly_worse_predicted(
    good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = members(2)
    held = np.arange(20)

    def near(run: EnsembleChains, start: Any, rows: Any, _: int, draws: int) -> Any:
        """Draws of short chains that stay where they start."""
        outputs = forward(start, run.data.rows(rows)["X"])
        return np.repeat(np.asarray(outputs)[:, np.newaxis], draws, axis=1)

    monkeypatch.setattr(seams.SHORT_CHAINS, near)
    best = trained().best
    far = {name: each + 3.0 for name, each in best.items()}
    last, called = (best, far)[not good], []

    def retrained() -> dict[str, Any]:
        called.append(1)
        return best

    others = {name: each.copy() for name, each in last.items()}
    run.fit(Trained(best, others, retrained), held, 40, 10)
    assert called == [1] * good
    assert run.began.startswith("end of training" if good else "best epochs")


@pytest.mark.some(1)
@pytest.mark.parametrize("reach", [2.0, 1.0, 4.0])
def test_the_noise_of_minibatches_is_as_predicted(reach: float) -> None:
    """A regression through the origin: the variance of draws, in those of the posterior."""
    rng = np.random.default_rng(7)
    N, count = 2200, 40
    X = rng.normal(size=(N, 1)).astype("f")
    y = X[:, 0] + rng.normal(size=N).astype("f")
    network = Network(lambda w, X: w["w"][:, tf.newaxis] * X, log_density, {"w": 100.0})
    data = read_dataset({"X": X, "y": y, "weight": np.ones(N, "f")}, tf.float32)
    mean, information = float(X[:, 0] @ y / (X[:, 0] @ X[:, 0])), float((X**2).sum())
    start = {
        "w": (mean + rng.normal(size=(count, 1)) / np.sqrt(information)).astype("f")
    }
    run = EnsembleChains(network, data, start, 220, 1, reach=reach)
    use = np.ones(N, np.float32)
    # Curvature in units of the true variance, so that nothing is left to the warm-up's estimate.
    run.scales = Scales({"w": 1 / information}, 1.0)
    chains = run.run(use, 12_000, 3000, 120)
    predicted = run.facts(chains, 120)[
        "variance along the largest curvature, over the exact"
    ]
    residuals = y - mean * X[:, 0]
    noise = float(
        N * (X[:, 0] * residuals).var() / information
    )  # of gradients, over the curvature
    draws = run.by_member(chains)["w"][..., 0]
    # Sorted by member, five in a kernel, and members go on from their last draws.
    assert draws.shape == (count, 120)
    np.testing.assert_array_equal(draws[8], chains["w"][1, :, 3, 0])
    np.testing.assert_array_equal(run.weights["w"][:, 0], draws[:, -1])
    found = ((draws - mean) ** 2).mean() * information
    # Members of a kernel have the same minibatches, so that there are eight chains; the energy of
    # an oscillation has an SD as large as its mean, and 1000/reach iterations of memory.
    error = np.sqrt(1 / (8 * 6 * reach))
    assert found == pytest.approx(1 + noise * (predicted - 1), rel=3.5 * error)


def test_chains_that_diverge_slowly_begin_again_with_shorter_steps() -> None:
    """A regression through the origin, stable for ε times the curvature below 4; here it is 4.05.

    A step is 1.25 times the last one, 10⁷ of the SD at the end, and no number is infinite.
    """
    rng = np.random.default_rng(7)
    N = 400
    X = rng.normal(size=(N, 1)).astype("f")
    y = X[:, 0] + rng.normal(size=N).astype("f")
    network = Network(lambda w, X: w["w"][:, tf.newaxis] * X, log_density, {"w": 100.0})
    data = read_dataset({"X": X, "y": y, "weight": np.ones(N, "f")}, tf.float32)
    mean, information = float(X[:, 0] @ y / (X[:, 0] @ X[:, 0])), float((X**2).sum())
    run = EnsembleChains(network, data, {"w": np.full((2, 1), mean, "f")}, N, 1)
    run.scales = Scales({"w": 8.1 / information}, 1.0)
    draws = run.run(np.ones(N, np.float32), 60, 20, 60)
    assert draws.settings["stepsize"] == pytest.approx(0.5 / 3)
    assert np.abs(draws["w"] - mean).max() < 6 / np.sqrt(information)


def test_networks_whose_chains_diverge_at_every_stepsize_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = members(2)
    run.scales = Scales(dict.fromkeys(NETWORK.prior_sds, 1e6), 1.0)
    monkeypatch.setattr(
        seams.CHAINS_SETTINGS, seams.changed(seams.CHAINS_SETTINGS, restarts=1)
    )
    with pytest.raises(sgmcmc.DivergenceError, match="`prior_scale`"):
        run.run(np.ones(200, np.float32), 4, 0, 4)
