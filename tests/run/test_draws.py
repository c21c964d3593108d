"""What comes back of a run: shapes, kept draws, starts, gradients, test functions, the mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import sgmcmc
from tests import seams
from tests.conftest import (
    ANY_SHAPE,
    CENTERED,
    METHODS,
    PLAIN,
    any_shape,
    log_lik,
    once,
    short_setup,
)

Run = Callable[..., sgmcmc.Samples]


def check_shapes(samples: sgmcmc.Samples, leading: tuple[int, ...]) -> None:
    """Check names, shapes and dtypes, and that no two numbers are the same."""
    assert list(samples) == list(ANY_SHAPE)
    for name, value in ANY_SHAPE.items():
        assert samples[name].shape == leading + np.shape(value)
        assert samples[name].dtype == np.float32
        assert np.isfinite(samples[name]).all()
        assert len(np.unique(samples[name])) == samples[name].size


@pytest.mark.some(2)
@pytest.mark.parametrize("method", METHODS)
def test_shapes(method: str) -> None:
    check_shapes(once(method), (20,))
    assert {name: array.shape for name, array in once(method).gradients.items()} == {
        name: array.shape for name, array in once(method).items()
    }


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("method", "n_chains"),
    [("sgld", 1), *((method, 3) for method in (*METHODS[1:], "sgld"))],
)
def test_shapes_of_chains(method: str, n_chains: int, run: Run) -> None:
    samples = run(
        method, log_lik=any_shape, params=ANY_SHAPE, n_chains=n_chains, n_iters=7
    )
    check_shapes(samples, (n_chains, 7))


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("n_iters", "thin", "burn_in"), [(10, 3, 0), (11, 4, 5), (10, 10, 1)]
)
def test_kept_draws(n_iters: int, thin: int, burn_in: int, run: Run) -> None:
    kept = run(
        log_lik=any_shape,
        params=ANY_SHAPE,
        store_gradients=True,
        n_iters=n_iters,
        thin=thin,
        burn_in=burn_in,
    )
    rows = burn_in + thin * np.arange(1, n_iters // thin + 1) - 1
    for name, draws in once("sgld").items():
        assert len(kept[name]) == n_iters // thin
        np.testing.assert_allclose(kept[name], draws[rows], rtol=1e-5)
        gradients = once("sgld").gradients[name][rows]
        np.testing.assert_allclose(kept.gradients[name], gradients, rtol=1e-5)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", PLAIN)
def test_each_chain_begins_at_its_own_start(method: str, run: Run) -> None:
    starts = [{"theta": [-3.0, 0.0]}, {"theta": [0.0, 5.0]}, {"theta": [7.0, 7.0]}]
    samples = run(
        method, params=starts, n_chains=3, stepsize=1e-10, log_lik=any_shape, n_iters=3
    )
    for chain, start in zip(samples["theta"], starts, strict=True):
        np.testing.assert_allclose(chain, np.tile(start["theta"], (3, 1)), atol=1e-3)


def test_starts_may_name_the_parameters_in_any_order(run: Run) -> None:
    starts = [{"a": 1.0, "b": -1.0}, {"b": -1.0, "a": 1.0}]
    samples = run(params=starts, n_chains=2, stepsize=1e-12, log_lik=any_shape)
    np.testing.assert_allclose(samples["a"], 1.0, atol=1e-4)
    np.testing.assert_allclose(samples["b"], -1.0, atol=1e-4)


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("given", "rows"),
    [(0.1, 2), (0.26, 5), (0.5, 10), (0.999, 20), (1, 1), (7.0, 7), (20, 20)],
)
def test_minibatch_size(given: float, rows: int) -> None:
    sampler = short_setup(minibatch_size=given)
    assert (sampler.n, sampler.N) == (rows, 20)
    assert sampler._sampler.settings.items() >= {"n": rows, "N": 20}.items()


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", [1, 5, 20])
def test_log_lik_sees_minibatches(rows: int, run: Run) -> None:
    seen = []

    def spying(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        seen.append(dataset["x"].shape)
        return log_lik(params, dataset)

    run(log_lik=spying, minibatch_size=rows, n_iters=2)
    # The checks before the chain begins look at halves of a minibatch, and at two rows at least.
    assert (rows,) in seen and set(seen) <= {
        (rows,),
        (max(2, rows),),
        (rows // 2,),
        (-(-rows // 2),),
    }


def test_the_estimate_is_scaled_by_n(run: Run) -> None:
    """With n = N at a fixed point the gradient is exact; with n < N its mean over draws is."""
    data = {"x": np.ones(20)}
    exact = run(dataset=data, stepsize=1e-12, minibatch_size=20, store_gradients=True)
    part = run(dataset=data, stepsize=1e-12, minibatch_size=4, store_gradients=True)
    np.testing.assert_allclose(exact.gradients["theta"], 20.0, rtol=1e-4)
    np.testing.assert_allclose(part.gradients["theta"], 20.0, rtol=1e-4)


def test_double_precision(run: Run, x: np.ndarray) -> None:
    seen = []

    def spying(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        seen.extend([params["theta"].dtype, dataset["x"].dtype])
        return log_lik(params, dataset)

    samples = run("sghmccv", log_lik=spying, dtype=tf.float64, store_gradients=True)
    assert set(seen) == {tf.float64}
    assert samples["theta"].dtype == samples.gradients["theta"].dtype == np.float64
    assert (
        samples.mode["theta"].dtype
        == samples.mode_gradient["theta"].dtype
        == np.float64
    )
    assert samples.settings["dtype"] == "float64"


def test_store_params_list(run: Run) -> None:
    everything = once("sgld")
    some = run(
        params=ANY_SHAPE,
        log_lik=any_shape,
        store_gradients=True,
        store_params=["matrix", "scalar"],
    )
    assert list(some) == list(some.gradients) == ["scalar", "matrix"]
    for name in some:
        np.testing.assert_allclose(some[name], everything[name], rtol=1e-5)
        np.testing.assert_allclose(
            some.gradients[name], everything.gradients[name], rtol=1e-5
        )


def test_store_params_false(run: Run) -> None:
    functions = {"square": lambda params: params["theta"] ** 2}
    samples = run(store_params=False, test_functions=functions)
    assert len(samples) == 0 and dict(samples) == {}
    expected = run()["theta"] ** 2
    np.testing.assert_allclose(samples.test_functions["square"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("n_chains", "jit_compile"),
    [(None, True), pytest.param(2, False, marks=pytest.mark.slow)],
)
def test_test_functions(n_chains: int | None, jit_compile: bool, run: Run) -> None:
    functions = {
        "norm": lambda params: tf.norm(params["matrix"]),
        "outer": lambda params: params["vector"][:, None] * params["vector"],
        "a / b": lambda params: params["scalar"] > 0.0,
        "count": lambda params: tf.shape(params["matrix"])[0],
    }
    samples = run(
        params=ANY_SHAPE,
        log_lik=any_shape,
        test_functions=functions,
        n_chains=n_chains,
        burn_in=3,
        thin=4,
        n_iters=21,
        jit_compile=jit_compile,
    )
    values, vector = samples.test_functions, samples["vector"]
    assert list(values) == list(functions)
    norm = np.sqrt((samples["matrix"] ** 2).sum((-2, -1)))
    np.testing.assert_allclose(values["norm"], norm, rtol=1e-5)
    outer = vector[..., :, None] * vector[..., None, :]
    np.testing.assert_allclose(values["outer"], outer, rtol=1e-5)
    np.testing.assert_array_equal(values["a / b"], samples["scalar"] > 0.0)
    assert values["a / b"].dtype == bool and (values["count"] == 3).all()


def quadratic_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log density of theta ~ N(0, 1/10)."""
    return -5.0 * params["theta"] ** 2


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("method", "n_chains"), [("sghmccv", 2), *((method, None) for method in CENTERED)]
)
def test_mode(method: str, n_chains: int | None, run: Run, x: np.ndarray) -> None:
    samples = run(
        method,
        log_prior=quadratic_prior,
        n_chains=n_chains,
        minibatch_size=10,
        opt_stepsize=1e-3,
        n_iters_opt=1000,
    )
    leading = () if n_chains is None else (n_chains,)
    mode, gradient = samples.mode["theta"], samples.mode_gradient["theta"]
    assert mode.shape == gradient.shape == leading
    # Stochastic gradient ascent ends within its own noise: each step of size 1e-3 has a gradient
    # of standard deviation sd(x) sqrt(N (N - n) / n), over a curvature of N + 10 = 30.
    noise = x.std(ddof=1) * np.sqrt(20 * 10 / 10)
    spread = noise * np.sqrt(1e-3 / (2 * 30))
    np.testing.assert_allclose(mode, x.sum() / 30, atol=5 * spread)
    expected = x.sum() - 20 * mode - 10 * mode
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)
    if n_chains == 2:
        assert mode[0] != mode[1]


def test_what_was_not_asked_for_is_none() -> None:
    samples = once("sgld")
    assert samples.mode is None and samples.mode_gradient is None
    assert samples.test_functions is None


@pytest.mark.some(1)
@pytest.mark.parametrize("piece_bytes", [12, 1, 76])
def test_the_full_gradient_is_taken_in_pieces(
    piece_bytes: int, run: Run, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seams.DATASET_PIECE_BYTES, piece_bytes)
    samples = run(
        "sgldcv", log_prior=quadratic_prior, params={"theta": 0.5}, n_iters_opt=0
    )
    expected = x.sum() - 20 * 0.5 - 10 * 0.5
    np.testing.assert_allclose(samples.mode_gradient["theta"], expected, rtol=1e-5)


def test_opt_stepsize_may_not_be_none(run: Run) -> None:
    with pytest.raises(TypeError, match="opt_stepsize.*None"):
        run("sgldcv", opt_stepsize=None)


@pytest.mark.some(2)
@pytest.mark.parametrize("n_iters", [1, 2, 4096, 4097])
def test_lengths_around_a_block(n_iters: int, run: Run) -> None:
    samples = run(n_iters=n_iters)
    assert samples["theta"].shape == (n_iters,)
    assert len(np.unique(samples["theta"])) > 0.99 * n_iters
    assert samples.log_post.iterations[-1] == n_iters


def test_one_observation(run: Run) -> None:
    assert run(dataset={"x": [1.0]}, minibatch_size=1)["theta"].shape == (20,)


NAMES = ("a b", "ä", "a/b", "test/theta", "draws", "gradients", "1", "__0", "scale:0")


def test_any_name_will_do(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    def model(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return -tf.add_n([tf.reduce_sum((dataset[n] - params[n]) ** 2) for n in NAMES])

    def add_one(name: str) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
        return lambda params: params[name] + 1.0

    samples = run(
        "sgldcv",
        log_lik=model,
        params=dict.fromkeys(NAMES, 0.0),
        dataset={name: np.ones(20) for name in NAMES},
        test_functions={name: add_one(name) for name in NAMES},
        store_gradients=True,
    )
    assert tuple(samples) == tuple(samples.gradients) == tuple(samples.mode) == NAMES
    for name in NAMES:
        np.testing.assert_allclose(
            samples.test_functions[name], samples[name] + 1.0, rtol=1e-6
        )
    assert capfd.readouterr() == ("", "")
