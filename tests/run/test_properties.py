"""Whatever is accepted runs, gives finite draws of the promised shapes, and the same bits twice.

Shapes, dtypes and options are drawn at random, for all samplers.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import sgmcmc
from sgmcmc.engine.kernel import Kernel
from sgmcmc.run import builder, driver
from sgmcmc.run.sampler_origin import SamplerOrigin
from tests import seams
from tests.ladder.table import BY_NAME, DISTINCT, EXACT, GEODESIC
from tests.run.stopping import same

METHODS = tuple(case.name for case in (*DISTINCT, *EXACT, *GEODESIC))
OF_EXACT = tuple(case.name for case in EXACT)
OF_GEODESIC = tuple(case.name for case in GEODESIC)
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
POINT_SHAPES = st.tuples(st.integers(2, 3)) | st.tuples(
    st.integers(1, 2), st.integers(2, 3)
)
CALLS, SEED = (
    int(os.environ.get(name, usual)) for name, usual in (("CALLS", 1000), ("SEED", 0))
)
"""Others in place of these: ``CALLS=200 SEED=1 make test-faults PYTEST_ARGS=...``."""
TIMES: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # making a failing call simpler takes minutes
}


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood of parameters of any names and shapes, the point a probability."""
    x, values = dataset["x"], dict(params)
    terms = [tf.zeros([], x.dtype)]
    if (point := values.pop("point", None)) is not None:
        terms.append(tf.reduce_sum(x**2) * tf.reduce_sum(tf.math.log(point[..., 0])))
    if (direction := values.pop("direction", None)) is not None:
        terms.append(tf.reduce_sum(x * direction[0]))
    terms += [
        -0.5 * tf.reduce_sum((x - tf.reduce_mean(value)) ** 2)
        for value in values.values()
    ]
    return tf.add_n(terms)


def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log density of N(0, 1), but for a constant; nothing of points and directions."""
    first, *_ = params.values()
    free = [tf.reduce_sum(value**2) for name, value in params.items() if name in "abc"]
    return -0.5 * tf.add_n([tf.zeros([], first.dtype), *free])


@st.composite
def calls(
    draw: st.DrawFn, methods: tuple[str, ...] = METHODS
) -> tuple[str, dict[str, Any]]:
    """Return a sampler and arguments that are all right."""
    # First what no two calls have in common, so that two that Hypothesis makes alike still differ.
    seed = draw(st.integers(0, 2**31))
    method = draw(st.sampled_from(methods))
    case, exact = BY_NAME[method], method in OF_EXACT
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    size = draw(st.integers(2, 40))
    n_iters = draw(st.integers(1, 25))
    own = case.of_points or (method in OF_GEODESIC and draw(st.booleans()))
    names = st.sampled_from("abc")
    shapes = draw(st.dictionaries(names, SHAPES, min_size=1 - own, max_size=2 - own))
    params = {name: np.zeros(shape, dtype) for name, shape in shapes.items()}
    given: dict[str, Any] = {
        "params": params,
        "dataset": {"x": np.linspace(-1, 1, size).astype(dtype)},
        "n_iters": n_iters,
        "burn_in": draw(st.integers(0, 5)),
        "thin": draw(st.integers(1, n_iters)),
        "n_chains": draw(st.sampled_from([None, 1, 2])),
        "dtype": draw(st.sampled_from([tf.float32, tf.float64])),
        "seed": seed,
        "stepsize": 1e-3,
    }
    if case.of_points:
        shape = draw(POINT_SHAPES)
        params["point"] = np.full(shape, 1 / shape[-1], dtype)
        given["alpha"] = {"point": draw(st.sampled_from([0.1, 1.0, 10.0]))}
    elif own:
        params["direction"] = np.eye(draw(st.integers(2, 4)), dtype=dtype)[1]
        given["manifolds"] = {"direction": sgmcmc.manifolds.Sphere()}
    if not exact:
        if draw(st.booleans()):
            scales = {name: draw(st.sampled_from([0.5, 1.0])) for name in params}
            given["stepsize"] = {name: 1e-3 * scale for name, scale in scales.items()}
        elif draw(st.booleans()):
            given["stepsize"] = sgmcmc.polynomial_decay(1e-3, 10.0, 0.55)
        sizes = st.integers(1, size) | st.sampled_from([0.5, 1.0])
        given |= {
            "minibatch_size": draw(sizes),
            "replace": draw(st.booleans()),
            "updates": draw(st.sampled_from(["joint", "in_turn"])),
            "store_gradients": draw(st.booleans()),
        }
    if case.centered:
        given |= {"opt_stepsize": 1e-4, "n_iters_opt": draw(st.integers(1, 10))}
    return method, given


def check(call: tuple[str, dict[str, Any]], compile_again: bool) -> None:
    """Make a call twice; what comes back is finite, as promised, and the same.

    Args:
        call: a sampler and arguments.
        compile_again: whether the second call is one as the first, from its checks to its graphs.
            If not, it runs the sampler and the graphs of the first from the start, in half
            the time.
    """
    method, given = call
    keywords = {"verbose": False, "jit_compile": False, "log_prior": log_prior, **given}
    function = BY_NAME[method].function
    made: list[Kernel] = []

    def keep(*arguments: Any) -> Kernel:
        made.append(make_kernel(*arguments))
        return made[-1]

    make_kernel = builder.make_kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seams.MAKE_KERNEL, keep)
        samples = function(log_lik, **keywords)
    draws, chains = given["n_iters"] // given["thin"], given["n_chains"]
    for name, start in given["params"].items():
        for array in (samples[name], (samples.gradients or samples)[name]):
            leading = (draws,) if chains is None else (chains, draws)
            assert array.shape == leading + start.shape
            assert array.dtype == given["dtype"].as_numpy_dtype
            assert np.isfinite(array).all()
    for name, size in (("point", np.sum), ("direction", np.linalg.norm)):
        if name in given["params"]:
            np.testing.assert_allclose(size(samples[name], axis=-1), 1.0, rtol=1e-5)
    if compile_again:
        same(function(log_lik, **keywords), samples)
        return
    origin, kernels = samples.origin, iter(made)
    assert isinstance(origin, SamplerOrigin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seams.MAKE_KERNEL, lambda *_: next(kernels))
        patch.setattr(seams.KERNEL_COMPILE, lambda *_: True)
        again = driver._Run(origin.sampler, given["n_iters"], None).finish(
            verbose=False
        )
    assert next(kernels, None) is None
    same(again, samples)


@settings(max_examples=3, derandomize=True, **TIMES)
@given(calls())
def test_what_is_accepted_runs(call: tuple[str, dict[str, Any]]) -> None:
    check(call, compile_again=False)


@pytest.mark.faults
def test_a_thousand_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """As many calls of each sampler; says how far it is."""
    done: dict[str, int] = {}
    each = -(-CALLS // len(METHODS))
    for number, method in enumerate(METHODS):

        @seed(SEED * len(METHODS) + number)
        @settings(max_examples=each, **TIMES)
        @given(calls((method,)))
        def run(call: tuple[str, dict[str, Any]]) -> None:
            check(call, compile_again=False)
            done[call[0]] = done.get(call[0], 0) + 1

        run()
        with capsys.disabled():
            print(
                f"{method}: {done[method]} calls, {sum(done.values())} in all",
                flush=True,
            )
    assert (
        sum(done.values()) >= 0.9 * CALLS
    )  # Hypothesis leaves out calls that it has made before
