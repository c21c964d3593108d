"""Stepsizes scaled by gradients: the recursion, the law once they are frozen, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.dynamics import SGHMC, SGLD, Underdamped
from sgmcmc.dynamics.scaled import Scaled
from sgmcmc.model.geometry import Space

SHAPES = {"a": (2,), "b": (3, 1)}
DATA = {"x": np.random.default_rng(1).normal(size=(50, 5))}
START = {"a": np.zeros(2), "b": np.zeros((3, 1))}
SCALES = np.array([1.0, 1.0, 20.0, 20.0, 20.0])


def log_lik(params: Any, dataset: Any) -> tf.Tensor:
    theta = tf.concat([params["a"], params["b"][:, 0]], 0)
    return -0.5 * tf.reduce_sum((dataset["x"] - theta) ** 2 * SCALES, 1)


def run(stepsize: Any, function: Any = sgmcmc.sgld, **keywords: Any) -> sgmcmc.Samples:
    given: dict[str, Any] = {
        "minibatch_size": 50, "n_iters": 10, "seed": 1, "verbose": False, "jit_compile": False,
        **keywords,
    }  # fmt: skip
    return function(log_lik, DATA, START, stepsize, **given)


def spread(S: np.ndarray) -> np.ndarray:
    return np.repeat(S, [2, 3])


@pytest.mark.parametrize("until", [3, None])
def test_steps_of_sgld(until: int | None) -> None:
    """The published recursion, in NumPy, with the random numbers injected."""
    rng, h = np.random.default_rng(3), 0.1
    gradients, normals = rng.normal(size=(6, 5)), rng.normal(size=(6, 1, 5))
    dynamics = Scaled(SGLD(), until).bind(Space(SHAPES))
    theta, S = np.arange(5.0), np.zeros(2)
    state = dynamics.init(tf.constant(theta), tf.constant(gradients[0]), h, None)
    for k, (g, eta) in enumerate(zip(gradients, normals, strict=True), start=1):
        if until is None or k <= until:
            S = S + (np.array([(g[:2] ** 2).mean(), (g[2:] ** 2).mean()]) - S) / k
        eps = h / np.sqrt(spread(S))
        theta = theta + 0.5 * eps * g + np.sqrt(eps) * eta[0]
        state = dynamics.step(
            state, tf.constant(g), tf.constant(h, tf.float64), tf.constant(eta)
        )
        np.testing.assert_allclose(state.position, theta, rtol=1e-12)
        np.testing.assert_allclose(state.squares.mean, S, rtol=1e-12)


@pytest.mark.parametrize(
    "inner", [SGHMC(0.3, L=2), SGHMC(0.3, 2, "euler"), Underdamped(0.3)]
)
def test_once_frozen_the_dynamics_are_those_with_a_stepsize_for_each_parameter(
    inner: Any,
) -> None:
    rng, space, h = np.random.default_rng(3), Space(SHAPES), 0.1
    dynamics, plain = Scaled(inner, 1).bind(space), inner.bind(space)
    draw = lambda *shape: tf.constant(rng.normal(size=shape))  # noqa: E731
    stepsize = tf.constant(h, tf.float64)
    state = dynamics.init(draw(5), draw(5), stepsize, draw(dynamics.start_normals, 5))
    for _ in range(dynamics.steps):
        state = dynamics.step(state, draw(5), stepsize, draw(dynamics.step_normals, 5))
    frozen, alone = state.squares.mean.numpy(), state.inner
    own = stepsize / np.sqrt(spread(frozen))
    for _ in range(3):
        fresh, noise = draw(dynamics.refresh_normals, 5), draw(dynamics.step_normals, 5)
        g, after = draw(5), draw(5)
        state = dynamics.refresh(state, stepsize, fresh)
        state = dynamics.finish_step(
            dynamics.step(state, g, stepsize, noise), after, stepsize
        )  # fmt: skip
        alone = plain.refresh(alone, own, fresh)
        alone = plain.finish_step(plain.step(alone, g, own, noise), after, own)
    np.testing.assert_array_equal(state.squares.mean, frozen)
    np.testing.assert_allclose(state.position, alone.position, rtol=1e-12)


@pytest.mark.slow
def test_the_law_of_frozen_scales_is_exact() -> None:
    """SGLD on a Gaussian of precision λ has the variance 1 / (λ(1 − ελ/4)), ε = h / √S."""
    chains, h = 200, {"a": 0.1, "b": 0.03}
    draws = run(
        sgmcmc.gradient_scaled(h), n_chains=chains, burn_in=100, n_iters=600, dtype=tf.float64,
        jit_compile=True,
    )  # fmt: skip
    precision = 50 * SCALES[[0, 2]]
    facts = draws.origin.facts  # type: ignore[union-attr]
    for name, lam in zip(SHAPES, precision, strict=True):
        root = np.array(
            [of_chain[f"root mean square gradient of {name}"] for of_chain in facts]
        )
        eps = h[name] / root
        assert (
            0.05 < np.median(eps * lam) < 1.5
        )  # a stepsize that leaves a bias to be seen
        expected = 1 / (lam * (1 - eps * lam / 4))
        found = (
            draws[name].reshape(chains, 600, -1)
            - DATA["x"].mean(0)[slice(0, 2) if name == "a" else slice(2, 5)]
        )
        ratios = (found**2).mean(1) / expected[:, np.newaxis]
        error = ratios.std() / np.sqrt(ratios.size)
        assert abs(ratios.mean() - 1) < 4 * error < 0.1


def test_parameters_of_other_sizes_have_other_stepsizes() -> None:
    draws = run(sgmcmc.gradient_scaled(0.1), burn_in=200)
    roots = dict(draws.origin.facts[0])  # type: ignore[union-attr]
    # λ = 50 and 1000: the gradients of a chain are √λ in the root mean square.
    ratio = (
        roots["root mean square gradient of b"]
        / roots["root mean square gradient of a"]
    )
    assert 2.5 < ratio < 8.0
    assert "GradientScaled(h=0.1" in draws.settings["stepsize"]


def test_a_run_is_extended_with_the_scales_it_had() -> None:
    stepsize = sgmcmc.gradient_scaled(sgmcmc.polynomial_decay(0.1, 10.0, 0.3), until=12)
    whole, part = run(stepsize, n_iters=20), run(stepsize, n_iters=10)
    np.testing.assert_array_equal(part.extend(10, verbose=False)["b"], whole["b"])


def test_in_turn_and_by_parameter_and_in_the_search() -> None:
    by_parameter = sgmcmc.gradient_scaled({"a": 0.1, "b": 0.2})
    assert np.isfinite(run(by_parameter, burn_in=5, updates="in_turn")["b"]).all()
    centered = sgmcmc.sgldcv(
        log_lik, DATA, START, by_parameter, sgmcmc.gradient_scaled(0.002),
        minibatch_size=10, n_iters=5, n_iters_opt=1500, burn_in=5, seed=1, verbose=False,
        jit_compile=False,
    )  # fmt: skip
    # With ε = 0.002 / √S the ascent ends about 0.02 from the mode, by the noise of its gradients.
    mode = np.concatenate([np.ravel(centered.mode[name]) for name in SHAPES])
    assert np.abs(mode - DATA["x"].mean(0)).max() < 0.1


def test_a_parameter_without_gradients_stays() -> None:
    def flat(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * (dataset["x"][:, 0] - params["a"]) ** 2 + 0.0 * params["b"]

    draws = sgmcmc.sgld(
        flat, DATA, {"a": 0.0, "b": 3.0}, sgmcmc.gradient_scaled(0.1, until=5),
        minibatch_size=50, n_iters=10, seed=1, verbose=False, jit_compile=False,
    )  # fmt: skip
    assert (draws["b"] == 3.0).all() and (np.diff(draws["a"]) != 0).all()


@pytest.mark.parametrize("until", [0, 1.5, "end", True])
def test_until_is_checked(until: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="^`until` must be an integer"):
        sgmcmc.gradient_scaled(0.1, until)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stepsize": sgmcmc.gradient_scaled(0.1)}, "learns its scales in the burn-in"),
        ({"stepsize": sgmcmc.gradient_scaled(-1.0, 5)}, "`stepsize` must be positive"),
        (
            {"stepsize": {"a": sgmcmc.gradient_scaled(1.0, 5), "b": 1.0}},
            "scales all parameters",
        ),
        (
            {"stepsize": sgmcmc.gradient_scaled(1.0, 5), "minibatch_size": "auto"},
            "scales all",
        ),
    ],
)
def test_what_does_not_go_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**arguments)


def test_exact_dynamics_and_sessions_say_what_they_need() -> None:
    with pytest.raises(
        ValueError, match=r"gradient_scaled\(\) is not compatible with HMC"
    ):
        sgmcmc.sample(
            log_lik, DATA, START, dynamics=sgmcmc.dynamics.HMC(3), gradient="full",
            minibatches="uniform", preconditioner="none", stepsize=sgmcmc.gradient_scaled(0.1, 5),
            n_iters=100,
        )  # fmt: skip
    with pytest.raises(ValueError, match="until="):
        sgmcmc.sgld_setup(log_lik, DATA, START, sgmcmc.gradient_scaled(0.1))


@pytest.mark.slow
def test_the_noise_of_gradients_is_learned_beneath() -> None:
    given: dict[str, Any] = {
        "function": sgmcmc.sggmc,
        "noise_variance": "fisher",
        "burn_in": 5,
    }
    stepsize = sgmcmc.gradient_scaled(1e-2)
    learned, unheeded = (
        run(stepsize, **{**given, "minibatch_size": 5, "noise_variance": variance})
        for variance in ("fisher", 0.0)
    )
    assert (learned["a"] != unheeded["a"]).any()
    with pytest.raises(ValueError, match="`noise_variance` cannot be estimated"):
        run(stepsize, **given, minibatch_size=1)
