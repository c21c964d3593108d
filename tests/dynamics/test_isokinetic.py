"""The tuner of SMILE: its rule, what it undoes, and where it leads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import sgmcmc
from sgmcmc.dynamics import SMILE, EnergyTuner
from sgmcmc.model.geometry import Space

Array = np.ndarray
d, N = 10, 200


class Rows:
    """Estimates from minibatches of rows of N(θ, diag(1, 4)), one after the other."""

    def __init__(self, steps: int) -> None:
        rng = np.random.default_rng(1)
        self.batches = rng.normal(size=(steps + 1, 5, 2))
        self.scales = np.array([1.0, 0.25])
        self.now = 0

    def gradient(self, position: Any) -> Array:
        """Return the gradient estimate from the present minibatch."""
        return 4.0 * (
            self.scales * (self.batches[self.now] - np.asarray(position))
        ).sum(0)

    def log_post(self, position: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the weighted terms of its rows, and a log prior."""
        apart = self.batches[self.now] - np.asarray(position)
        terms = -2.0 * (self.scales * apart**2).sum(1)
        return tf.constant(terms), tf.zeros([], tf.float64)


def half_turn(u: Array, slope: Array) -> tuple[Array, float]:
    """Return u half a step on, and (d − 1) log(cosh δ + (e·u) sinh δ)."""
    size = np.linalg.norm(slope)
    delta, e = size / 2 / (slope.size - 1), slope / size
    energy = np.cosh(delta) + (e @ u) * np.sinh(delta)
    turned = u + e * (np.sinh(delta) + (e @ u) * (np.cosh(delta) - 1))
    return turned / np.linalg.norm(turned), (slope.size - 1) * np.log(energy)


def test_the_tuner_is_the_transcription() -> None:
    steps, epsilon, friction = 60, 0.05, 0.4
    tuner = EnergyTuner(adaptation=0.6, strength=0.1, smoothing=0.2, reset=0.9)
    dynamics = SMILE(friction, until=50, tuner=tuner).bind(Space({"theta": (2,)}))
    rng, rows = np.random.default_rng(2), Rows(steps)
    start, noise = rng.normal(size=2), rng.normal(size=(steps + 1, 1, 2))
    step = tf.constant(epsilon, tf.float64)
    g = rows.gradient(start)
    state = dynamics.init(
        tf.constant(start), tf.constant(g), step, tf.constant(noise[-1])
    )
    theta, u = start, noise[-1, 0] / np.linalg.norm(noise[-1])
    eta, carried = np.sqrt(np.expm1(2 * friction) / 2), g
    factor, mean, variance, undone, factors = 1.0, 0.0, 0.0, 0, set()
    for k in range(steps):
        state = dynamics.step(state, tf.constant(carried), step, tf.constant(noise[k]))
        lengths = np.sqrt(2 * epsilon * factor)
        turned, first = half_turn(u, lengths * g)
        turned_again = turned + eta * noise[k, 0]
        turned_again /= np.linalg.norm(turned_again)
        there = theta + lengths / 2 * (turned + turned_again)
        np.testing.assert_allclose(state.position, there, rtol=1e-12)
        rows.now = k + 1
        carried = rows.gradient(state.position)
        state = dynamics.visit(state, rows)  # type: ignore[arg-type]
        state = dynamics.finish_step(state, tf.constant(carried), step)
        closed, second = half_turn(turned_again, lengths * carried)
        gain = rows.log_post(there)[0] - rows.log_post(theta)[0]
        error = abs(first + second - np.sum(gain))
        refuse = False
        if k < 50:
            if k >= 10:
                shape = mean**2 / variance

                def quantile(
                    p: float, shape: float = shape, mean: float = mean
                ) -> float:
                    root = (
                        1 - 1 / (9 * shape) + stats.norm.ppf(p) / (3 * np.sqrt(shape))
                    )
                    return mean * max(root, 0.0) ** 3

                refuse = error > quantile(0.9)
                factor *= (
                    0.9
                    if error > quantile(0.6)
                    else 1.1
                    if error < quantile(0.2)
                    else 1.0
                )
            w = max(0.2, 1 / (k + 1))
            off, mean = error - mean, mean + w * (error - mean)
            variance = (1 - w) * (variance + w * off**2)
        if refuse:
            u, undone = np.zeros(2), undone + 1
        else:
            theta, u, g = there, closed, carried
        factors.add(round(factor, 12))
        np.testing.assert_allclose(state.position, theta, rtol=1e-10)
        np.testing.assert_allclose(state.direction, u, rtol=1e-9, atol=1e-12)
    facts = dynamics.facts(state)
    assert facts["stepsize, tuned, over that given"] == pytest.approx(factor)
    assert facts["steps undone in the tuning"] == undone
    assert 2 <= undone < 20
    assert len(factors) > 10


def test_its_quantiles_are_those_of_a_gamma_distribution() -> None:
    """The error of the approximation is 1.2 % at worst here."""
    dynamics = SMILE(tuner=EnergyTuner()).bind(Space({"theta": (2,)}))
    zeros = tf.zeros([2], tf.float64)
    state = dynamics.init(
        zeros, zeros, tf.constant(1.0, tf.float64), tf.ones([1, 2], tf.float64)
    )
    moments = {"mean": 3.0, "variance": 2.0}
    energy = state.energy._replace(
        **{k: tf.constant(v, tf.float64) for k, v in moments.items()}
    )
    for probability in (0.02, 0.5, 0.99):
        exact = stats.gamma.ppf(probability, 4.5, scale=2 / 3)
        assert float(EnergyTuner().quantile(energy, probability)) == pytest.approx(
            exact, rel=0.02
        )


@pytest.mark.slow
def test_without_errors_the_tuner_changes_nothing() -> None:
    """With ``adaptation`` 0 and ``reset`` 1 the draws are those without a tuner."""
    tuner = EnergyTuner(adaptation=0.0, reset=1.0)
    plain, tuned = tuned_chain(SMILE(), 0.02), tuned_chain(SMILE(tuner=tuner), 0.02)
    np.testing.assert_allclose(
        plain["theta"], tuned["theta"], atol=1e-6
    )  # rounding: XLA fuses
    assert tuned.report["Chain"]["stepsize, tuned, over that given"] == 1.0


def tuned_chain(dynamics: Any, epsilon: float, n_iters: int = 200) -> Any:
    """Return draws on N(0, I/N) in ten coordinates; ε is in units of the variance."""
    x = np.random.default_rng(1).normal(size=(N, d))
    x = (x - x.mean(0)) / x.std(0, ddof=1)

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2, 1)

    return sgmcmc.sample(
        log_lik, {"x": x}, {"theta": np.zeros(d)}, dynamics=dynamics, gradient="minibatch",
        minibatches="uniform", preconditioner="none", stepsize=epsilon / N, n_chains=4,
        n_iters=n_iters, burn_in=n_iters, minibatch_size=40, seed=1, verbose=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_tuned_stepsize_still_depends_on_the_one_given() -> None:
    """The rule has no size of errors to aim at: starts 10 000 times apart do not meet."""
    found = []
    for epsilon in (1e-4, 1.0):
        report = tuned_chain(SMILE(tuner=EnergyTuner()), epsilon, 4000).report["Chain"]
        found.append(epsilon * report["stepsize, tuned, over that given"])
        assert 0.003 < report["steps undone in the tuning"] / 4000 < 0.03
    assert found[1] / found[0] > 100


@pytest.mark.parametrize(
    ("tuner", "until", "message"),
    [
        (EnergyTuner(adaptation=1.0), "burn_in", r"`adaptation` must be in \[0, 1\)"),
        (EnergyTuner(strength=0.0), "burn_in", r"`strength` must be in \(0, 1\)"),
        (EnergyTuner(reset=1.5), "burn_in", r"`reset` must be in \(0, 1\]"),
        (EnergyTuner(), None, "tuned for ever"),
    ],
)
def test_constants_are_checked(tuner: EnergyTuner, until: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SMILE(tuner=tuner, until=until).bind(Space({"theta": (2,)}))


def test_what_is_no_tuner_is_refused() -> None:
    with pytest.raises(TypeError, match="`tuner` must be sgmcmc.dynamics.EnergyTuner"):
        SMILE(tuner="energy").bind(Space({"theta": (2,)}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must end with the burn-in"):
        SMILE(tuner=EnergyTuner(), until=20).after_burn_in(10)


def test_one_direction_is_not_divided_between_parameters() -> None:
    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * ((dataset["x"] - params["a"]) ** 2 + params["b"] ** 2)

    with pytest.raises(ValueError, match="SMILE moves all parameters in one direction"):
        sgmcmc.sample(
            log_lik, {"x": np.zeros(5)}, {"a": 0.0, "b": 0.0}, dynamics="smile", stepsize=0.1,
            gradient="full", preconditioner="none", updates="in_turn", n_iters=100, verbose=False,
        )  # fmt: skip
