"""The preconditioner: the chain of the model that a user would whiten by hand.

The statistical test fails by chance for one seed in ten thousand.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import linalg

import sgmcmc
from sgmcmc.engine.runner import Runner
from sgmcmc.gradients import SAGA, SVRG, ControlVariate
from tests import seams
from tests.linear_chains import Array, Model, compare, flat, vector

SHAPES = {"W": (2, 2), "b": (), "v": (2,)}
P, ROWS, SMALL, ITERATIONS = 7, 24, 4, 50
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def split(
    values: Array, shapes: Mapping[str, tuple[int, ...]] = SHAPES
) -> dict[str, Array]:
    """Return named parameters at a flat position."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1]
    parts = np.split(values, ends)
    return {
        n: part.reshape(s) for (n, s), part in zip(shapes.items(), parts, strict=True)
    }


def regression() -> Model:
    """Return a logistic regression whose seven coefficients come in three parameters."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(ROWS, P)) * np.linspace(0.3, 3.0, P)
    y = (rng.uniform(size=ROWS) < 0.5).astype(float)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        logits = tf.linalg.matvec(data["x"], vector(params))
        return tf.reduce_sum(data["y"] * logits - tf.math.softplus(logits))

    return Model(
        log_lik,
        lambda params: -0.5 * tf.reduce_sum(vector(params) ** 2),
        {"x": x, "y": y},
        split(rng.normal(size=P)),
        lambda position: (y - 1 / (1 + np.exp(-x @ position)))[:, None] * x,
        lambda position: -position,
    )


MODEL = regression()


def covariance(size: int, seed: int = 3) -> Array:
    """Return a covariance matrix with correlations."""
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


def blocks(*parts: Any) -> Array:
    """Return the matrix with these numbers and matrices on its diagonal."""
    return linalg.block_diag(*parts)


VARIANCES = np.linspace(0.2, 2.0, P)
GIVEN: dict[str, tuple[Any, Array]] = {
    "variances": (VARIANCES, np.diag(VARIANCES)),
    "a list": (VARIANCES.tolist(), np.diag(VARIANCES)),
    "a tensor": (tf.constant(VARIANCES), np.diag(VARIANCES)),
    "a matrix": (covariance(P), covariance(P)),
    "vectors by name": (
        {"v": VARIANCES[5:], "W": VARIANCES[:4], "b": [VARIANCES[4]]},
        np.diag(VARIANCES),
    ),
    "shaped like the parameters": (
        {"W": VARIANCES[:4].reshape(2, 2), "b": VARIANCES[4], "v": VARIANCES[5:]},
        np.diag(VARIANCES),
    ),
    "matrices by name": (
        {"W": covariance(4), "b": [[0.5]], "v": covariance(2)},
        blocks(covariance(4), 0.5, covariance(2)),
    ),
    "some of each, one not named": (
        {"W": covariance(4), "b": 0.5},
        blocks(covariance(4), 0.5, np.eye(2)),
    ),
    "variances of one": ({"v": [0.3, 4.0]}, blocks(np.eye(5), np.diag([0.3, 4.0]))),
    "no parameter": ({}, np.eye(P)),
    "nothing": ("none", np.eye(P)),
}
"""What a user may give, and the matrix M that it means."""


def whitened(model: Model, C: Array, origin: Array) -> Model:
    """Return a model in ζ, where θ = θ₀ + Cζ is put in by hand."""
    names = {name: part.shape for name, part in model.start.items()}

    def outward(params: Any) -> Any:
        theta = origin + tf.linalg.matvec(C, vector(params))
        sizes = [int(np.prod(shape)) for shape in names.values()]
        parts = tf.split(theta, sizes)
        return {
            n: tf.reshape(part, s)
            for (n, s), part in zip(names.items(), parts, strict=True)
        }

    return Model(
        lambda params, data: model.log_lik(outward(params), data),
        lambda params: model.log_prior(outward(params)),
        model.data,
        split(np.zeros(len(origin)), names),
        lambda zeta: model.terms(origin + C @ zeta) @ C,
        lambda zeta: C.T @ model.prior(origin + C @ zeta),
    )


def agree(
    found: sgmcmc.Samples,
    by_hand: sgmcmc.Samples,
    C: Array,
    origin: Array,
    leading: int = 1,
) -> None:
    """Assert that draws, gradients and log posterior of a preconditioned chain are those by hand,
    taken back to θ."""
    assert {n: a.shape for n, a in found.items()} == {
        n: a.shape for n, a in by_hand.items()
    }
    expected = origin + flat(by_hand, leading) @ C.T
    np.testing.assert_allclose(flat(found, leading), expected, **EXACT)
    assert found.gradients is not None and by_hand.gradients is not None
    gradients = flat(by_hand.gradients, leading) @ np.linalg.inv(C)
    np.testing.assert_allclose(
        flat(found.gradients, leading), gradients, rtol=1e-8, atol=1e-8
    )
    np.testing.assert_allclose(found.log_post.values, by_hand.log_post.values, **EXACT)


def run(model: Model = MODEL, **given: Any) -> sgmcmc.Samples:
    """Run a short chain with its gradients."""
    keeps = {
        "minibatch_size": SMALL,
        "n_iters": ITERATIONS,
        "store_gradients": True,
        "jit_compile": False,
        **given,
    }
    return model.chain(**keeps)


@functools.cache
def of_covariance() -> tuple[sgmcmc.Samples, Array]:
    """Return the chain of the model that is whitened by hand with a dense matrix, and its root."""
    C = np.linalg.cholesky(covariance(P))
    return run(whitened(MODEL, C, MODEL.origin)), C


@functools.cache
def preconditioned() -> sgmcmc.Samples:
    """Return the chain with this matrix as its preconditioner."""
    return run(preconditioner=covariance(P))


@pytest.mark.some(1)
@pytest.mark.parametrize("form", list(GIVEN))
def test_whatever_form_it_is_given_in(form: str) -> None:
    """Each form of M gives the chain of the model that is whitened by hand."""
    given, M = GIVEN[form]
    C = np.linalg.cholesky(M)
    by_hand = run(whitened(MODEL, C, MODEL.origin))
    agree(run(preconditioner=given), by_hand, C, MODEL.origin)


GRADIENTS = {
    "minibatch": "minibatch",
    "cv": ControlVariate(0.01, 30),
    "cv at the start": ControlVariate(0.01, 0),
    "svrg": SVRG(7),
    "saga": SAGA(),
    "full": "full",
}


EACH_ONCE = {
    *[("sgld", gradient, True) for gradient in GRADIENTS],
    ("sghmc", "saga", True),
    ("sgnht", "cv", True),
    ("underdamped", "minibatch", True),
}
"""Each gradient and each dynamics; every combination is among the slow."""


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("dynamics", "gradient", "dense"),
    [
        pytest.param(*parts, marks=() if parts in EACH_ONCE else pytest.mark.slow)
        for parts in itertools.product(
            ["sgld", "sghmc", "sgnht", "underdamped"], GRADIENTS, [True, False]
        )
    ],
)
def test_every_dynamics_with_every_gradient(
    dynamics: str, gradient: str, dense: bool
) -> None:
    """A preconditioned chain of any parts is the chain that is whitened by hand, and so are its
    gradients, its log posterior and its mode."""
    M = covariance(P) if dense else np.diag(VARIANCES)
    stepsize = 0.001 if dynamics == "sgnht" else 0.01  # SGNHT explodes at more
    given: dict[str, Any] = {
        **{"dynamics": dynamics, "gradient": GRADIENTS[gradient], "stepsize": stepsize}
    }
    if gradient == "full":
        given["minibatch_size"] = None
    if (dynamics, gradient, dense) == ("sgld", "minibatch", True):
        found, (by_hand, C) = preconditioned(), of_covariance()
    else:
        C = np.linalg.cholesky(M)
        found = run(preconditioner=M if dense else VARIANCES, **given)
        by_hand = run(whitened(MODEL, C, MODEL.origin), **given)
    agree(found, by_hand, C, MODEL.origin)
    assert (found.mode is not None) == gradient.startswith("cv")
    if found.mode is not None and by_hand.mode is not None:
        expected = MODEL.origin + C @ flat(by_hand.mode, 0)
        np.testing.assert_allclose(flat(found.mode, 0), expected, **EXACT)
        assert found.mode_gradient is not None and by_hand.mode_gradient is not None
        expected = np.linalg.solve(C.T, flat(by_hand.mode_gradient, 0))
        np.testing.assert_allclose(
            flat(found.mode_gradient, 0), expected, rtol=1e-8, atol=1e-8
        )


@pytest.mark.parametrize(
    "jit_compile", [True, pytest.param(None, marks=pytest.mark.slow)]
)
def test_compiled_or_not(jit_compile: bool | None) -> None:
    """XLA and the plain graph give the same preconditioned chain."""
    by_hand, C = of_covariance()
    agree(
        run(preconditioner=covariance(P), jit_compile=jit_compile),
        by_hand,
        C,
        MODEL.origin,
    )


def test_the_named_functions_take_it_too() -> None:
    """sgmcmc.sgld with a preconditioner is sgmcmc.sample with the same parts."""
    named = sgmcmc.sgld(
        MODEL.log_lik, MODEL.data, MODEL.start, 0.01, MODEL.log_prior, minibatch_size=SMALL,
        n_iters=ITERATIONS, preconditioner=covariance(P), verbose=False, seed=1, dtype=tf.float64,
        jit_compile=False,
    )  # fmt: skip
    np.testing.assert_array_equal(flat(named), flat(preconditioned()))


@pytest.mark.slow
def test_the_named_functions_with_control_variates_take_it_too() -> None:
    named = sgmcmc.sgldcv(
        MODEL.log_lik, MODEL.data, MODEL.start, 0.01, 0.01, MODEL.log_prior, minibatch_size=SMALL,
        n_iters=ITERATIONS, n_iters_opt=30, preconditioner=VARIANCES, verbose=False, seed=1,
        dtype=tf.float64, jit_compile=False,
    )  # fmt: skip
    found = run(gradient=ControlVariate(0.01, 30), preconditioner=VARIANCES)
    np.testing.assert_array_equal(flat(named), flat(found))


@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", ["minibatch", "saga", "svrg"])
def test_several_starts_and_stepsizes(gradient: str) -> None:
    """With a start for each chain all of them move in the coordinates around the first.

    Stepsizes by parameter and by coordinate, and schedules, act on ζ.
    """
    M = covariance(P)
    C = np.linalg.cholesky(M)
    starts = [MODEL.origin, MODEL.origin + 1.0, MODEL.origin * 0.5]
    given: dict[str, Any] = {
        **{"dynamics": "sghmc", "gradient": gradient, "minibatches": "uniform"},
        **{
            "minibatch_size": SMALL,
            "stepsize": {
                "W": np.array([[0.01, 0.02], [0.005, 0.01]]),
                "b": sgmcmc.polynomial_decay(0.01, 10.0, 0.5),
                "v": 0.003,
            },
            "n_chains": 3,
            "n_iters": ITERATIONS,
        },
        **{"burn_in": 0, "seed": 1, "verbose": False, "dtype": tf.float64},
        "store_gradients": True,
        "jit_compile": False,
    }
    found = sgmcmc.sample(
        MODEL.log_lik,
        MODEL.data,
        [split(start) for start in starts],
        MODEL.log_prior,
        preconditioner=M,
        **given,
    )
    hand = whitened(MODEL, C, starts[0])
    by_hand = sgmcmc.sample(
        hand.log_lik,
        hand.data,
        [split(np.linalg.solve(C, start - starts[0])) for start in starts],
        hand.log_prior,
        preconditioner="none",
        **given,
    )
    agree(found, by_hand, C, starts[0], leading=2)


@pytest.mark.some(1)
@pytest.mark.parametrize("gradient", ["minibatch", "cv", "svrg", "saga"])
def test_bijectors(gradient: str) -> None:
    """With a bijector M is that of the unconstrained coordinates, and draws are constrained."""
    rng = np.random.default_rng(2)
    data = {"x": rng.normal(2.0, 1.5, ROWS)}
    shapes: dict[str, tuple[int, ...]] = {"scale": (), "weights": (3,), "mean": ()}
    coordinates = {"scale": (), "weights": (2,), "mean": ()}
    start = {"scale": 2.0, "weights": np.array([0.2, 0.3, 0.5]), "mean": 1.0}
    bijectors = {
        "scale": tfp.bijectors.Exp(),
        "weights": tfp.bijectors.SoftmaxCentered(),
    }

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        gap = (data["x"] - params["mean"]) / params["scale"]
        centers = tf.constant([-1.0, 0.0, 1.0], gap.dtype)
        mixed = params["weights"] * tf.exp(-0.5 * (gap[:, None] - centers) ** 2)
        return tf.reduce_sum(
            tf.math.log(tf.reduce_sum(mixed, 1)) - tf.math.log(params["scale"])
        )

    def log_prior(params: Any) -> tf.Tensor:
        log_weights = tf.reduce_sum(tf.math.log(params["weights"]))
        return -params["scale"] + log_weights - 0.5 * params["mean"] ** 2

    M = covariance(4)
    C = np.linalg.cholesky(M)
    free = {
        name: np.asarray(bijectors[name].inverse(tf.constant(value, tf.float64)))
        if name in bijectors
        else np.asarray(value)
        for name, value in start.items()
    }
    origin = np.concatenate([np.ravel(free[name]) for name in shapes])

    def outward(params: Any) -> Any:
        u = origin + tf.linalg.matvec(C, vector(params))
        return {"scale": u[0], "weights": u[1:3], "mean": u[3]}

    def constrained(u: Any) -> Any:
        """Return the parameters and the log-Jacobian."""
        params = {name: bijectors[name].forward(u[name]) for name in bijectors}
        jacobian = [
            bijectors[name].forward_log_det_jacobian(
                u[name], event_ndims=len(coordinates[name])
            )
            for name in bijectors
        ]
        return {**params, "mean": u["mean"]}, tf.add_n(jacobian)

    def by_hand_prior(params: Any) -> tf.Tensor:
        inside, jacobian = constrained(outward(params))
        return log_prior(inside) + jacobian

    given: dict[str, Any] = {
        **{
            "dynamics": "sgld",
            "gradient": GRADIENTS[gradient],
            "minibatches": "uniform",
        },
        **{
            "minibatch_size": SMALL,
            "stepsize": 0.002,
            "n_chains": None,
            "n_iters": ITERATIONS,
        },
        **{"burn_in": 0, "seed": 1, "verbose": False, "dtype": tf.float64},
        "store_gradients": True,
        "jit_compile": False,
    }
    found = sgmcmc.sample(
        log_lik, data, start, log_prior, preconditioner=M, bijectors=bijectors, **given
    )
    by_hand = sgmcmc.sample(
        lambda params, data: log_lik(constrained(outward(params))[0], data),
        data,
        split(np.zeros(4), coordinates),
        by_hand_prior,
        preconditioner="none",
        **given,
    )
    u = origin + flat(by_hand) @ C.T
    np.testing.assert_allclose(found["scale"], np.exp(u[:, 0]), **EXACT)
    np.testing.assert_allclose(
        found["weights"], bijectors["weights"].forward(tf.constant(u[:, 1:3])), **EXACT
    )
    np.testing.assert_allclose(found["mean"], u[:, 3], **EXACT)
    assert found.gradients is not None and by_hand.gradients is not None
    assert {n: a.shape[1:] for n, a in found.gradients.items()} == coordinates
    expected = flat(by_hand.gradients) @ np.linalg.inv(C)
    np.testing.assert_allclose(flat(found.gradients), expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.log_post.values, by_hand.log_post.values, **EXACT)


class StopError(Exception):
    """In place of a kill."""


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["cv", "svrg", "saga"])
def test_a_stopped_run_goes_on_with_the_same_bits(
    gradient: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preconditioned run with a store that fails and is called again ends as one that never
    failed."""
    monkeypatch.setattr(seams.LONGEST_BLOCK, 16)
    monkeypatch.setattr(seams.SAVE_EVERY, 0.0)
    given: dict[str, Any] = {
        **{"preconditioner": covariance(P), "gradient": GRADIENTS[gradient]},
        **{"n_chains": 2, "n_iters": 90},
    }
    expected, keep, count = run(**given), Runner._keep, 0

    def failing(self: Runner, *arguments: Any) -> None:
        nonlocal count
        keep(self, *arguments)
        count += 1
        if count > 9:
            raise StopError

    monkeypatch.setattr(seams.RUNNER_KEEP, failing)
    with pytest.raises(StopError):
        run(**given, store=tmp_path / "chain")
    monkeypatch.setattr(seams.RUNNER_KEEP, keep)
    for found in (
        run(**given, store=tmp_path / "chain"),
        sgmcmc.Samples.open(tmp_path / "chain"),
    ):
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
            assert found.gradients is not None and expected.gradients is not None
            np.testing.assert_array_equal(
                found.gradients[name], expected.gradients[name]
            )
            if expected.mode is not None and found.mode is not None:
                np.testing.assert_array_equal(found.mode[name], expected.mode[name])
        np.testing.assert_array_equal(found.log_post.values, expected.log_post.values)


def test_a_stored_chain_does_not_go_on_with_another_matrix(tmp_path: Path) -> None:
    run(preconditioner=covariance(P), store=tmp_path / "chain")
    with pytest.raises(ValueError, match="preconditioner"):
        run(preconditioner=1.01 * covariance(P), store=tmp_path / "chain", n_iters=60)


@pytest.mark.parametrize(
    ("gradient", "n_chains"),
    [("minibatch", None), pytest.param(SVRG(7), 2, marks=pytest.mark.slow)],
)
def test_step_by_step(gradient: Any, n_chains: int | None) -> None:
    """A preconditioned session shows the parameters, not ζ, and gives the draws of one call."""
    given: dict[str, Any] = {
        "preconditioner": covariance(P), "gradient": gradient, "n_chains": n_chains,
        "jit_compile": False,
    }  # fmt: skip
    expected = run(**given) if n_chains else preconditioned()
    sampler = MODEL.stepwise(**given, minibatch_size=SMALL)
    leading = 1 if n_chains else 0
    start = {name: value.numpy() for name, value in sampler.params.items()}
    origin = np.tile(MODEL.origin, (2, 1)) if n_chains else MODEL.origin
    np.testing.assert_allclose(flat(start, leading), origin)
    session = sgmcmc.init_sess(sampler)
    for steps, at in ((3, 2), (20, 22), (27, 49)):
        sgmcmc.sgmcmc_step(sampler, session, steps)
        params = sgmcmc.get_params(sampler, session)
        for name in expected:
            there = np.take(expected[name], at, axis=leading)
            np.testing.assert_allclose(params[name], there, **EXACT)


# ------------------------------------------------------------- stationary distribution


def normal_means() -> tuple[Model, Array, Array, Array]:
    """Return a Gaussian model, its precision, the covariance of the minibatch gradient's noise
    with ten rows, and its mean: three coordinates of very different scales."""
    rng = np.random.default_rng(11)
    root = rng.normal(size=(3, 3)) * np.array([[0.3], [3.0], [30.0]])
    inverse = np.linalg.inv(root @ root.T)
    N, n = 40, 10
    x = rng.normal(size=(N, 3)) @ root.T
    factor = np.linalg.cholesky(inverse)

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        gap = (data["x"] - vector(params)) @ tf.constant(factor, data["x"].dtype)
        return -0.5 * tf.reduce_sum(gap**2)

    terms = x @ inverse
    noise = N * (N - n) / n * np.cov(terms.T)
    mean = x.mean(0)
    model = Model(
        log_lik,
        lambda params: tf.zeros([], tf.float64) * tf.reduce_sum(vector(params)),
        {"x": x},
        split(mean, {"first": (2,), "last": ()}),
        lambda position: (x - position) @ inverse,
        lambda position: np.zeros(3),
    )
    return model, N * inverse, noise, mean


@pytest.mark.slow
def test_stationary_law() -> None:
    """The covariance of preconditioned SGLD is that of the Lyapunov equation in ζ, taken back to
    θ, minibatch noise and all; plain SGLD would explode with this stepsize."""
    model, H, noise, mean = normal_means()
    M, stepsize = np.linalg.inv(H) * 1.3 + np.diag(np.diag(np.linalg.inv(H))) * 0.2, 0.4
    C = np.linalg.cholesky(M)

    def law(noise: Array) -> Array:
        A = np.eye(3) - stepsize / 2 * C.T @ H @ C
        Q = stepsize * np.eye(3) + stepsize**2 / 4 * C.T @ noise @ C
        return C @ linalg.solve_discrete_lyapunov(A, Q) @ C.T

    chain = model.chain(
        preconditioner=M,
        minibatch_size=10,
        stepsize=stepsize,
        n_chains=64,
        n_iters=2500,
        burn_in=100,
    )
    draws, scale = flat(chain, 2) - mean, np.sqrt(np.diag(law(noise)))
    found = compare(draws / scale, np.zeros(3), law(noise) / np.outer(scale, scale))
    assert found.precision < 0.01, "the run is too short to tell"
    assert found.accepts, found
    exact = compare(draws / scale, np.zeros(3), law(0 * noise) / np.outer(scale, scale))
    assert not exact.accepts
    assert stepsize * np.linalg.eigvalsh(H)[-1] > 4


# ------------------------------------------------------------------- beside points of the simplex


def on_the_simplex(**given: Any) -> sgmcmc.Samples:
    """Run SCIR with a parameter beside the point of the simplex."""
    rng = np.random.default_rng(0)
    data = {"k": tf.constant(rng.integers(0, 3, 50)), "y": rng.normal(1.0, 1.0, 50)}

    def log_lik(params: Any, data: Any) -> tf.Tensor:
        chosen = tf.math.log(tf.gather(params["omega"], data["k"]))
        return tf.reduce_sum(
            chosen - 0.5 * (data["y"] - tf.reduce_sum(params["mu"])) ** 2
        )

    return sgmcmc.sample(
        log_lik,
        data,
        {"omega": np.array([0.2, 0.3, 0.5]), "mu": np.array([0.3, 0.1])},
        lambda params: -0.5 * tf.reduce_sum(params["mu"] ** 2),
        dynamics=sgmcmc.dynamics.SCIR(alpha={"omega": 0.5}),
        gradient="minibatch",
        minibatches="uniform",
        minibatch_size=5,
        n_chains=None,
        n_iters=50,
        burn_in=0,
        seed=1,
        verbose=False,
        dtype=tf.float64,
        store_gradients=True,
        jit_compile=False,
        **given,
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("M", [[[0.25, 0.0], [0.0, 0.25]], [0.25, 0.25]])
def test_beside_points_of_the_simplex(M: Any) -> None:
    """A parameter beside points of the simplex can be preconditioned, which is as good as another
    stepsize where M is a number, and the points of the simplex move as before."""
    found = on_the_simplex(
        preconditioner={"mu": M}, stepsize={"omega": 0.5, "mu": 0.04}
    )
    plain = on_the_simplex(preconditioner="none", stepsize={"omega": 0.5, "mu": 0.01})
    assert found.gradients is not None and plain.gradients is not None
    for name in plain:
        np.testing.assert_allclose(found[name], plain[name], **EXACT)
        np.testing.assert_allclose(
            found.gradients[name], plain.gradients[name], **EXACT
        )


@pytest.mark.parametrize("given", [{"omega": [1.0, 1.0, 1.0]}, np.ones(5), np.eye(5)])
def test_points_of_the_simplex_are_refused(given: Any) -> None:
    """A preconditioner that covers a point of the simplex is refused, and the message names it."""
    with pytest.raises(ValueError, match="`preconditioner`: 'omega'"):
        on_the_simplex(preconditioner=given, stepsize=0.01)


# -------------------------------------------------------------------------------------- errors

WRONG: dict[str, tuple[Any, str]] = {
    "too few": (np.ones(6), r"`preconditioner` must hold 7 or 7 × 7 numbers"),
    "one number": (1.0, r"`preconditioner` must hold 7 or 7 × 7 numbers"),
    "not square": (np.ones((7, 6)), r"`preconditioner` must hold 7 or 7 × 7 numbers"),
    "three axes": (
        np.ones((7, 7, 7)),
        r"`preconditioner` must hold 7 or 7 × 7 numbers",
    ),
    "empty": ([], r"`preconditioner`"),
    "not symmetric": (covariance(P) + np.eye(P, k=1), "symmetric"),
    "not definite": (covariance(P) - 10 * np.eye(P), "positive definite"),
    "singular": (np.ones((P, P)), "positive definite"),
    "zero": (np.r_[0.0, np.ones(6)], "positive numbers"),
    "negative": (np.r_[np.ones(6), -1.0], "positive numbers"),
    "nan": (np.r_[np.ones(6), np.nan], "finite"),
    "nan in a matrix": (np.full((P, P), np.nan), "finite"),
    "infinite": (np.r_[np.ones(6), np.inf], "finite"),
    "a name": ("diagnal", "must be 'none', 'dense', 'diagonal', an array"),
    "strings": (["1"] * P, r"`preconditioner`"),
    "an object": (object(), r"`preconditioner`"),
    "unknown": ({"w": np.ones(4)}, r"`preconditioner` names 'w'.*W"),
    "wrong shape by name": (
        {"v": np.ones(3)},
        r"`preconditioner\['v'\]` must hold 2 or 2 × 2",
    ),
    "negative by name": ({"b": -1.0}, r"`preconditioner\['b'\]` must hold positive"),
    "not definite by name": (
        {"v": [[1.0, 2.0], [2.0, 1.0]]},
        r"`preconditioner\['v'\]`.*definite",
    ),
    "not symmetric by name": (
        {"v": [[1.0, 0.5], [0.0, 1.0]]},
        r"`preconditioner\['v'\]`.*symm",
    ),
    "a string by name": ({"v": "none"}, r"`preconditioner\['v'\]`"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_what_is_no_preconditioner_is_refused(case: str) -> None:
    """Numbers that are no variances or covariances, or name no parameter, are refused in words
    that name the argument."""
    given, message = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=message):
        run(preconditioner=given)
