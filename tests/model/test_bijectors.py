"""Constrained parameters: exact posteriors with few data, where the Jacobian matters."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import sgmcmc
from sgmcmc.dynamics import Underdamped
from sgmcmc.inputs.parameters import Constraints, read_geometries
from tests import seams
from tests.conftest import CENTERED, METHODS, PLAIN, short_call

tfb = tfp.bijectors
Run = Callable[..., sgmcmc.Samples]

# y_i ~ N(0, 1 / precision) with precision ~ Gamma(1, 1): the posterior is Gamma(SHAPE, RATE). Were
# the Jacobian left out, or counted twice, SHAPE would be wrong by one: the mean by a quarter.
Y = np.array([0.3, -1.1, 0.8, -0.2, 1.4, 0.6])
SHAPE, RATE = 1.0 + len(Y) / 2.0, 1.0 + (Y**2).sum() / 2.0


def precision_lik(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the log-likelihood of the precision."""
    precision = params["precision"]
    return tf.reduce_sum(
        0.5 * tf.math.log(precision) - 0.5 * precision * dataset["y"] ** 2
    )


def precision_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log density of Gamma(1, 1)."""
    return -tf.reduce_sum(params["precision"])


def precision_call(bijector: Any, **given: Any) -> dict[str, Any]:
    """Return the arguments of a call on the precision model; nothing is left to minibatches."""
    return {
        "log_lik": precision_lik,
        "log_prior": precision_prior,
        "dataset": {"y": Y},
        "params": {"precision": 1.0},
        "minibatch_size": len(Y),
        "bijectors": {"precision": bijector},
        **given,
    }


def check_mean(values: np.ndarray, expected: Any, bias: float) -> None:
    """Compare the mean over chains and draws with the exact one.

    The standard error comes from the spread of the chains' means. Five of them, and the bias of
    the discretised chain, are allowed; and they must be few enough to see an error of a tenth.

    Args:
        values: chains first, draws second.
        expected: the exact mean.
        bias: relative bias of the discretised chain that is allowed.
    """
    means = values.astype(np.float64).mean(axis=1)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    allowed = 5.0 * error + bias * np.abs(expected)
    assert (allowed < 0.1 * np.abs(expected)).all(), "the test could not see an error"
    assert (np.abs(means.mean(axis=0) - expected) < allowed).all()


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("method", "bijector", "given"),
    [
        # The splitting has no bias in the variance of a Gaussian, and little here.
        ("sghmc", tfb.Exp(), {"stepsize": 0.04, "alpha": 0.2, "n_iters": 5_000}),
        ("sghmc", tfb.Softplus(), {"stepsize": 0.04, "alpha": 0.2, "n_iters": 5_000}),
        # The variance of SGLD is too large by the factor 1 / (1 - stepsize * curvature / 4) on a
        # Gaussian: by one part in a hundred with the curvature SHAPE = 4 of this one.
        (
            "sgldcv",
            tfb.Exp(),
            {"stepsize": 0.01, "opt_stepsize": 0.1, "n_iters": 25_000},
        ),
    ],
    ids=["sghmc, exp", "sghmc, softplus", "sgldcv, exp"],
)
def test_gamma_posterior(
    method: str, bijector: Any, given: dict[str, Any], run: Run
) -> None:
    if method == "sgldcv":
        given = {**given, "n_iters_opt": 200}
    call = precision_call(bijector, n_chains=24, burn_in=500, jit_compile=None, **given)
    draws = run(method, **call)["precision"].astype(np.float64)
    assert (draws > 0.0).all()
    check_mean(draws, SHAPE / RATE, bias=0.01)
    check_mean((draws - SHAPE / RATE) ** 2, SHAPE / RATE**2, bias=0.02)


def test_gradient_is_of_the_unconstrained_space(run: Run) -> None:
    """With u = log precision the log posterior is SHAPE u - RATE e^u, Jacobian included."""
    samples = run(**precision_call(tfb.Exp(), stepsize=0.05, store_gradients=True))
    expected = SHAPE - RATE * samples["precision"]
    np.testing.assert_allclose(
        samples.gradients["precision"], expected, rtol=1e-4, atol=1e-5
    )


def test_gradient_with_softplus(run: Run) -> None:
    """With precision = log(1 + e^u) the slope of the map is 1 - e^-precision."""
    samples = run(**precision_call(tfb.Softplus(), stepsize=0.05, store_gradients=True))
    precision = samples["precision"].astype(np.float64)
    slope = 1.0 - np.exp(-precision)
    expected = ((SHAPE - 1.0) / precision - RATE) * slope + (1.0 - slope)
    np.testing.assert_allclose(
        samples.gradients["precision"], expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("method", CENTERED)
def test_mode_is_of_the_unconstrained_space(method: str, run: Run) -> None:
    """In u = log precision the mode lies at SHAPE / RATE; it is shown in the user's space."""
    call = precision_call(tfb.Exp(), stepsize=1e-3, opt_stepsize=0.2, n_iters_opt=300)
    samples = run(method, **call)
    np.testing.assert_allclose(samples.mode["precision"], SHAPE / RATE, rtol=1e-4)
    np.testing.assert_allclose(samples.mode_gradient["precision"], 0.0, atol=1e-3)


def test_full_gradient_in_pieces_counts_the_jacobian_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.DATASET_PIECE_BYTES, 8)
    call = precision_call(tfb.Exp(), stepsize=1e-3, opt_stepsize=0.2, n_iters_opt=0)
    gradient = run("sgldcv", **call).mode_gradient["precision"]
    np.testing.assert_allclose(gradient, SHAPE - RATE, rtol=1e-5)


def test_log_post_holds_the_jacobian(run: Run) -> None:
    samples = run(**precision_call(tfb.Exp(), stepsize=0.05))
    precision = samples["precision"][-1].astype(np.float64)
    expected = SHAPE * np.log(precision) - (RATE - 1.0) * precision - precision
    np.testing.assert_allclose(samples.log_post.values[-1], expected, rtol=1e-4)


COUNTS = np.array([2, 3, 4])
DIRICHLET = 1.0 + COUNTS
SIMPLEX_START = [0.5, 0.3, 0.2]


def simplex_lik(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the log-likelihood of categories, under which the posterior is Dirichlet."""
    return tf.reduce_sum(dataset["seen"] * tf.math.log(params["omega"]))


def softmax_centered() -> Any:
    """Return a bijector that some versions of TFP cannot make with some of NumPy."""
    try:
        return tfb.SoftmaxCentered()
    except TypeError:
        pytest.skip("this TensorFlow Probability does not work with this NumPy")


@pytest.mark.slow
@pytest.mark.parametrize("make", [tfb.IteratedSigmoidCentered, softmax_centered])
def test_dirichlet_posterior(make: Callable[[], Any], run: Run) -> None:
    samples = run(
        "sghmc",
        log_lik=simplex_lik,
        dataset={"seen": np.repeat(np.eye(3), COUNTS, axis=0)},
        params={"omega": SIMPLEX_START},
        minibatch_size=COUNTS.sum(),
        bijectors={"omega": make()},
        stepsize=0.1,
        alpha=0.2,
        burn_in=500,
        n_iters=5_000,
        n_chains=24,
        jit_compile=None,
        store_gradients=True,
    )
    draws = samples["omega"]
    assert draws.shape == (24, 5_000, 3)
    assert samples.gradients["omega"].shape == (24, 5_000, 2)
    assert (draws > 0.0).all()
    np.testing.assert_allclose(draws.sum(-1), 1.0, rtol=1e-5)
    total = DIRICHLET.sum()
    mean = DIRICHLET / total
    check_mean(draws, mean, bias=0.01)
    check_mean((draws - mean) ** 2, mean * (1.0 - mean) / (total + 1.0), bias=0.02)


def mixed_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood of parameters with bijectors and without."""
    scale = tf.reduce_sum(params["scale"]) + tf.reduce_sum(params["omega"] ** 2)
    return -tf.reduce_sum((dataset["x"] - tf.reduce_sum(params["theta"])) ** 2) / scale


MIXED: dict[str, Any] = {
    "log_lik": mixed_lik,
    "log_prior": lambda params: -tf.reduce_sum(params["scale"]),
    "params": {
        "theta": np.zeros((2, 2)),
        "scale": [1.0, 2.0, 3.0],
        "omega": SIMPLEX_START,
    },
    "bijectors": {"omega": tfb.IteratedSigmoidCentered(), "scale": tfb.Exp()},
}


FUNCTIONS = {"total": lambda params: tf.reduce_sum(params["scale"])}


@functools.cache
def once() -> sgmcmc.Samples:
    """Return a chain of parameters with bijectors and without, run once for all tests."""
    return short_call(**MIXED, store_gradients=True, test_functions=FUNCTIONS)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("method", "n_chains"),
    [
        (PLAIN[0], None),
        ("sgnht", 2),
        (CENTERED[0], 2),
        *(
            pytest.param(method, 2, marks=pytest.mark.slow)
            for method in METHODS[1:]
            if method not in ("sgnht", CENTERED[0])
        ),
    ],
)
def test_shapes_beside_free_parameters(
    method: str, n_chains: int | None, run: Run
) -> None:
    samples = (
        run(
            method,
            **MIXED,
            n_chains=n_chains,
            store_gradients=True,
            test_functions=FUNCTIONS,
        )
        if n_chains or method != PLAIN[0]
        else once()
    )
    leading = (20,) if n_chains is None else (n_chains, 20)
    shapes = {name: array.shape for name, array in samples.items()}
    assert shapes == {
        "theta": (*leading, 2, 2),
        "scale": (*leading, 3),
        "omega": (*leading, 3),
    }
    assert samples.gradients["omega"].shape == (*leading, 2)
    assert (samples["scale"] > 0.0).all() and (samples["omega"] > 0.0).all()
    np.testing.assert_allclose(samples["omega"].sum(-1), 1.0, rtol=1e-5)
    total = samples.test_functions["total"]
    np.testing.assert_allclose(total, samples["scale"].sum(-1), rtol=1e-5)


def test_store_params_of_constrained_ones(run: Run) -> None:
    everything, some = (
        once(),
        run(**MIXED, store_params=["omega"], store_gradients=True),
    )
    assert list(some) == ["omega"] and some.gradients["omega"].shape == (20, 2)
    np.testing.assert_allclose(some["omega"], everything["omega"], rtol=1e-5)


def test_starts_in_the_users_space(run: Run) -> None:
    starts = [{"precision": value} for value in (0.01, 1.0, 500.0)]
    call = precision_call(tfb.Exp(), params=starts, n_chains=3, stepsize=1e-12)
    draws = run(**call)["precision"]
    np.testing.assert_allclose(draws, np.tile([[0.01], [1.0], [500.0]], 20), rtol=1e-4)


def test_a_start_out_of_range_is_named(run: Run) -> None:
    starts = [{"precision": 1.0}, {"precision": -1.0}]
    with pytest.raises(ValueError, match=r"params\[1\]\['precision'\].*range.*-1"):
        run(**precision_call(tfb.Exp(), params=starts, n_chains=2))


@pytest.mark.slow
def test_stepsize_is_of_the_unconstrained_space(run: Run) -> None:
    """With a flat posterior in u, u moves by sqrt(stepsize) times the normals."""

    def flat(params: dict[str, tf.Tensor]) -> tf.Tensor:
        return -tf.math.log(params["precision"])

    call = precision_call(tfb.Exp(), stepsize=1e-4, n_iters=2_000)
    call |= {
        "log_lik": lambda params, dataset: 0.0 * params["precision"],
        "log_prior": flat,
    }
    steps = np.diff(np.log(run(**call)["precision"].astype(np.float64)))
    error = 1e-4 * np.sqrt(2.0 / len(steps))
    assert abs(steps.var() - 1e-4) < 4.0 * error


@pytest.mark.slow
def test_chained_and_double_precision(run: Run) -> None:
    half = tfb.Chain([tfb.Shift(np.float64(0.5)), tfb.Exp()])
    samples = run(
        **precision_call(half, stepsize=0.05, dtype=tf.float64, store_gradients=True)
    )
    precision = samples["precision"]
    assert (precision > 0.5).all() and precision.dtype == np.float64
    expected = ((SHAPE - 1.0) / precision - RATE) * (precision - 0.5) + 1.0
    np.testing.assert_allclose(
        samples.gradients["precision"], expected, rtol=1e-9, atol=1e-9
    )


# The table of docs/automatic.md.

A, B = 0.25, 3
ROOT = np.linalg.cholesky(np.array([[1.0, 0.3], [0.3, 1.0]]))
IN_RANGE: dict[str, Any] = {
    "Exp": 2.0,
    "Softplus": 2.0,
    "Sigmoid": [1.0, 2.0],
    "CorrelationCholesky": ROOT,
    "Chain": ROOT @ ROOT.T,
    "SoftmaxCentered": [0.2, 0.3, 0.5],
    "Ascending": [-1.0, 0.5, 0.7],
}


def of_the_table() -> dict[str, Any]:
    """Return the bijectors of docs/automatic.md, by their code."""
    text = (Path(__file__).parents[2] / "docs" / "automatic.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    codes = [code for line in lines for code in re.findall(r"`(tfb\..*?\))`", line)]
    return {code: eval(code, {"tfb": tfb, "a": A, "b": B}) for code in codes}


def start_of(code: str) -> np.ndarray:
    """Return a value in the range of a bijector of the table."""
    return np.asarray(IN_RANGE[code.split(".")[1].split("(")[0]], float)


OTHERS = {
    "integers": (lambda: tfb.Sigmoid(0, 3), 2.0),
    "one integer": (lambda: tfb.Sigmoid(0.5, 3), 2.0),
    "arrays": (lambda: tfb.Sigmoid([0.0, 1.0], [3.0, 4.0]), [2.0, 2.0]),
    "float64": (lambda: tfb.Sigmoid(np.float64(0), np.float64(3)), 2.0),
    "tensors": (lambda: tfb.Softplus(low=tf.constant(0.5)), 2.0),
    "shifts": (lambda: tfb.Shift(0.5)(tfb.Scale(2.0)(tfb.Exp())), 2.0),
    "inverse": (lambda: tfb.Invert(tfb.Softplus(low=0.1)), 2.0),
    "blocks": (lambda: tfb.Blockwise([tfb.Exp(), tfb.Softplus(low=0.1)]), [1.0, 2.0]),
    "diagonal": (lambda: tfb.TransformDiagonal(tfb.Softplus(low=0.1)), ROOT),
    "matrix": (lambda: tfb.ScaleMatvecTriL([[1.0, 0.0], [0.5, 1.0]]), [1.0, 2.0]),
    "reshaped": (
        lambda: tfb.Chain([tfb.Reshape([2, 2], [4]), tfb.Softplus(low=1)]),
        [[2.0, 3.0], [4.0, 5.0]],
    ),
    "softer": (lambda: tfb.SoftClip(0, 3, hinge_softness=0.5), 2.0),
    "shifted covariance": (
        lambda: tfb.Chain(
            [tfb.CholeskyOuterProduct(), tfb.FillScaleTriL(diag_shift=1e-3)]
        ),
        ROOT @ ROOT.T,
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
def test_bijectors_map_the_dtype_of_the_chain(dtype: tf.DType) -> None:
    """Constants of Python, NumPy and TensorFlow become those of the chain, to its last digit."""
    cases = {
        code: (bijector, start_of(code)) for code, bijector in of_the_table().items()
    }
    assert len(cases) == 8
    cases |= {
        name: (make(), np.asarray(value, float))
        for name, (make, value) in OTHERS.items()
    }
    for name, (bijector, value) in cases.items():
        starts = [{"theta": value.astype(dtype.as_numpy_dtype)}]
        (own,) = read_geometries(
            Constraints({"theta": bijector}), Underdamped(), starts, dtype
        ).values()
        u = own.start(starts[0]["theta"], dtype)
        assert u.dtype == dtype.as_numpy_dtype, name
        back = own.constrain(tf.constant(u))
        assert back.dtype == own.log_jacobian(tf.constant(u)).dtype == dtype, name
        tolerance = 1e-5 if dtype == tf.float32 else 1e-12
        np.testing.assert_allclose(
            back, value, atol=tolerance, rtol=tolerance, err_msg=name
        )


def test_constants_are_those_that_were_given() -> None:
    """In float64 a bound of 0.1 is 0.1, not the nearest float32."""
    starts = [{"theta": np.array(2.0)}]
    (own,) = read_geometries(
        Constraints({"theta": tfb.Softplus(low=0.1)}), Underdamped(), starts, tf.float64
    ).values()
    assert float(own.constrain(tf.constant(-100.0, tf.float64))) == 0.1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
@pytest.mark.parametrize(
    "function", [sgmcmc.hmc, sgmcmc.nuts, sgmcmc.mala, sgmcmc.sample, sgmcmc.sgld]
)
def test_every_row_of_the_table_runs(function: Any, dtype: tf.DType) -> None:
    """All parameters of the table at once, each near its start by a prior."""
    bijectors = of_the_table()
    names = {code: f"theta{number}" for number, code in enumerate(bijectors)}
    start = {name: start_of(code) for code, name in names.items()}

    def log_lik(params: Any, dataset: Any) -> tf.Tensor:
        return -0.5 * (dataset["y"] - params[names["tfb.Exp()"]]) ** 2

    def log_prior(params: Any) -> tf.Tensor:
        terms = [tf.reduce_sum((params[name] - start[name]) ** 2) for name in start]
        return -50.0 * tf.add_n(terms)

    given: dict[str, Any] = {
        "n_iters": 100,
        "seed": 1,
        "verbose": False,
        "dtype": dtype,
    }
    if function is sgmcmc.sgld:
        given |= {"stepsize": 1e-4, "minibatch_size": 10}
    chain = function(
        log_lik, {"y": np.linspace(1, 3, 20)}, start, log_prior=log_prior,
        bijectors={name: bijectors[code] for code, name in names.items()}, **given,
    )  # fmt: skip
    for code, name in names.items():
        assert chain[name].dtype == dtype.as_numpy_dtype
        assert np.isfinite(chain[name]).all(), code
        mean = chain[name].reshape(-1, *start[name].shape).mean(0)
        np.testing.assert_allclose(mean, start[name], atol=0.2, err_msg=code)
    low = chain[names["tfb.Softplus(low=a)"]]
    assert (low > A).all() and (chain[names["tfb.Sigmoid(a, b)"]] < B).all()


@pytest.mark.slow
def test_hmc_in_its_own_dtype() -> None:
    """Bounds that are integers of Python, in float64."""
    call = precision_call(
        tfb.Sigmoid(0, 60), stepsize=0.3, n_leapfrog=4, preconditioner="none"
    )
    call.pop("minibatch_size")
    chain = sgmcmc.hmc(
        **call, n_iters=100, burn_in=20, seed=1, verbose=False, jit_compile=False
    )
    assert chain["precision"].dtype == np.float64
    assert 0.3 * SHAPE / RATE < chain["precision"].mean() < 3 * SHAPE / RATE
