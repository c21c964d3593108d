"""The interface: signatures, docstrings, shapes, counts, forms of the inputs, what comes back."""

from __future__ import annotations

import functools
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from tests.conftest import METHODS, log_lik, short_call

Run = Callable[..., sgmcmc.Samples]

KEYWORDS = {
    "n_chains": None,
    "burn_in": 0,
    "thin": 1,
    "store_gradients": False,
    "test_functions": None,
    "store_params": True,
    "reductions": None,
    "store": None,
    "bijectors": None,
    "replace": False,
    "dtype": tf.float32,
    "jit_compile": None,
    "gibbs": None,
    "latents": None,
}
NONE = inspect.Parameter.empty
MODEL = {"log_lik": NONE, "dataset": NONE, "params": NONE, "stepsize": NONE}
OPT = {"opt_stepsize": NONE}
PRIOR = {"log_prior": None, "minibatch_size": 0.01}
HMC = {"alpha": 0.01, "L": 5}
NHT = {"a": 0.01}
ITERS = {"n_iters": 10_000}
ITERS_OPT = {"n_iters": 10_000, "n_iters_opt": 10_000}
LAST = {"verbose": True, "seed": None}
SIGNATURES = {
    "sgld": MODEL | PRIOR | ITERS | LAST,
    "sghmc": MODEL | PRIOR | HMC | ITERS | LAST,
    "sgnht": MODEL | PRIOR | NHT | ITERS | LAST,
    "sgldcv": MODEL | OPT | PRIOR | ITERS_OPT | LAST,
    "sghmccv": MODEL | OPT | PRIOR | HMC | ITERS_OPT | LAST,
    "sgnhtcv": MODEL | OPT | PRIOR | NHT | ITERS_OPT | LAST,
}
SIGNATURES |= {"scir": SIGNATURES["sgld"], "sgrld": SIGNATURES["sgld"]}
OF_THE_SIMPLEX = {"alpha": NONE, "theta0": None, "store_unnormalised": False}
OWN_KEYWORDS = {
    "sghmc": {"integrator": "symmetric"},
    "sghmccv": {"integrator": "symmetric"},
    "scir": OF_THE_SIMPLEX,
    "sgrld": OF_THE_SIMPLEX,
}


OF_A_RUN = (
    "burn_in",
    "thin",
    "store_gradients",
    "test_functions",
    "store_params",
    "reductions",
    "store",
    "store_unnormalised",
)


@pytest.mark.parametrize("method", SIGNATURES)
def test_signature_of_the_setup(method: str) -> None:
    """The one-call arguments less ``n_iters`` and those of a run."""
    gone = {"n_iters"} if method.endswith("cv") else {"n_iters", "verbose"}
    parameters = inspect.signature(getattr(sgmcmc, f"{method}_setup")).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = [entry for entry in SIGNATURES[method].items() if entry[0] not in gone]
    assert [(p.name, p.default) for p in positional] == expected
    keywords = KEYWORDS | OWN_KEYWORDS.get(method, {})
    found = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert found == {name: value for name, value in keywords.items() if name not in OF_A_RUN}


@pytest.mark.parametrize("method", SIGNATURES)
def test_signature(method: str) -> None:
    parameters = inspect.signature(getattr(sgmcmc, method)).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert [(p.name, p.default) for p in positional] == list(SIGNATURES[method].items())
    expected = KEYWORDS | OWN_KEYWORDS.get(method, {})
    assert {p.name: p.default for p in keyword_only} == expected
    assert len(positional) + len(keyword_only) == len(parameters)


MODULES = (sgmcmc, sgmcmc.models, sgmcmc.counts)
PUBLIC = {name: getattr(module, name) for module in MODULES for name in module.__all__}


@pytest.mark.parametrize("thing", PUBLIC.values(), ids=PUBLIC)
def test_docstring(thing: Any) -> None:
    text = inspect.getdoc(thing) or ""
    summary = text.split("\n")[0]
    assert summary.endswith(".") and len(summary) <= 100
    if not (inspect.isclass(thing) and "__init__" not in vars(thing)):
        assert "Args:" in text
        assert "\nExample:\n    >>> " in text
    if inspect.isfunction(thing):
        assert "\nReturns:\n" in text and "\nRaises:\n" in text
        for name in inspect.signature(thing).parameters:
            assert re.search(rf"^    {name}: \S", text, re.MULTILINE), name
    assert "{arguments}" not in text


@pytest.mark.parametrize("method", [*SIGNATURES, "polynomial_decay"])
def test_source_is_named(method: str) -> None:
    assert re.search(r"\nSource:\n    \S", inspect.getdoc(getattr(sgmcmc, method)) or "")


def any_shape(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood of parameters of any names and shapes."""
    squares = [tf.reduce_sum(value**2) for value in params.values()]
    return -0.5 * tf.add_n(squares) * tf.reduce_sum(dataset["x"] ** 2)


ANY_SHAPE = {"scalar": 0.0, "vector": [0.0, 1.0], "matrix": np.zeros((3, 2)), "deep": [[[[1.0]]]]}


@functools.cache
def once(method: str) -> sgmcmc.Samples:
    """Return the short call of a method with parameters of all shapes; run once for all tests."""
    return short_call(method, log_lik=any_shape, params=ANY_SHAPE, store_gradients=True)


def check_shapes(samples: sgmcmc.Samples, leading: tuple[int, ...]) -> None:
    """Check names, shapes and dtypes, and that no two numbers are the same."""
    assert list(samples) == list(ANY_SHAPE)
    for name, value in ANY_SHAPE.items():
        assert samples[name].shape == leading + np.shape(value)
        assert samples[name].dtype == np.float32
        assert np.isfinite(samples[name]).all()
        assert len(np.unique(samples[name])) == samples[name].size


@pytest.mark.parametrize("method", METHODS)
def test_shapes(method: str) -> None:
    check_shapes(once(method), (20,))
    assert {name: array.shape for name, array in once(method).gradients.items()} == {
        name: array.shape for name, array in once(method).items()
    }


@pytest.mark.parametrize(("method", "n_chains"), [("sgld", 1), ("sghmc", 3), ("sgnhtcv", 3)])
def test_shapes_of_chains(method: str, n_chains: int, run: Run) -> None:
    samples = run(method, log_lik=any_shape, params=ANY_SHAPE, n_chains=n_chains, n_iters=7)
    check_shapes(samples, (n_chains, 7))


@pytest.mark.parametrize(("n_iters", "thin", "burn_in"), [(10, 3, 0), (11, 4, 5), (10, 10, 1)])
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


@pytest.mark.parametrize("method", ["sgld", "sghmc", "sgnht"])
def test_each_chain_begins_at_its_own_start(method: str, run: Run) -> None:
    starts = [{"theta": [-3.0, 0.0]}, {"theta": [0.0, 5.0]}, {"theta": [7.0, 7.0]}]
    samples = run(method, params=starts, n_chains=3, stepsize=1e-10, log_lik=any_shape, n_iters=3)
    for chain, start in zip(samples["theta"], starts, strict=True):
        np.testing.assert_allclose(chain, np.tile(start["theta"], (3, 1)), atol=1e-3)


def test_starts_may_name_the_parameters_in_any_order(run: Run) -> None:
    starts = [{"a": 1.0, "b": -1.0}, {"b": -1.0, "a": 1.0}]
    samples = run(params=starts, n_chains=2, stepsize=1e-12, log_lik=any_shape)
    np.testing.assert_allclose(samples["a"], 1.0, atol=1e-4)
    np.testing.assert_allclose(samples["b"], -1.0, atol=1e-4)


PAIR = {"still": [0.0, 0.0], "moving": [0.0, 0.0, 0.0]}


@pytest.mark.parametrize("method", ["sgld", "sghmc", "sgnht"])
def test_stepsize_of_each_parameter(method: str, run: Run) -> None:
    stepsize = {"moving": 1e-2, "still": 1e-14}
    samples = run(method, params=PAIR, stepsize=stepsize, log_lik=any_shape)
    assert np.abs(samples["still"]).max() < 1e-4
    assert np.abs(samples["moving"]).min(axis=0).max() > 1e-3


def test_opt_stepsize_of_each_parameter(run: Run) -> None:
    start = {"still": [1.0, 1.0], "moving": [1.0, 1.0]}
    samples = run(
        "sgldcv",
        params=start,
        log_lik=any_shape,
        opt_stepsize={"still": 1e-14, "moving": 1e-2},
        n_iters_opt=100,
    )
    np.testing.assert_allclose(samples.mode["still"], 1.0, atol=1e-6)
    assert np.abs(samples.mode["moving"]).max() < 0.1


@pytest.mark.parametrize(("method", "argument"), [("sghmc", "alpha"), ("sgnht", "a")])
def test_constant_of_each_parameter(method: str, argument: str, run: Run) -> None:
    same = run(method, params=PAIR, log_lik=any_shape, **{argument: 0.1})
    as_dict = {"moving": 0.1, "still": 0.1}
    dict_same = run(method, params=PAIR, log_lik=any_shape, **{argument: as_dict})
    other = run(method, params=PAIR, log_lik=any_shape, **{argument: as_dict | {"moving": 0.5}})
    np.testing.assert_allclose(dict_same["moving"], same["moving"], rtol=1e-5, atol=1e-8)
    # The parameters do not meet in this posterior, so only the one with another constant moves
    # in another way.
    np.testing.assert_allclose(other["still"], same["still"], rtol=1e-5, atol=1e-8)
    assert np.abs(other["moving"] - same["moving"]).max() > 1e-4


def test_a_schedule_sees_every_iteration_once_from_one(run: Run) -> None:
    seen: set[int] = set()

    def schedule(iteration: int) -> float:
        seen.add(iteration)
        return 1e-3

    samples = run(stepsize=schedule, burn_in=4, n_iters=6)
    assert min(seen) == 1 and set(range(1, 11)) <= seen
    np.testing.assert_array_equal(samples["theta"], run(burn_in=4, n_iters=6)["theta"])


def test_a_schedule_moves_the_chain_as_it_says(run: Run) -> None:
    """With a flat posterior the increments are sqrt(stepsize) times the normals."""
    flat = {"log_lik": lambda params, dataset: 0.0 * params["theta"], "n_iters": 50}
    plain = np.diff(run(stepsize=1.0, **flat)["theta"])
    decay = sgmcmc.polynomial_decay(1.0, tau=2.0, kappa=0.6)
    decayed = np.diff(run(stepsize=decay, **flat)["theta"])
    expected = (1.0 + np.arange(2, 51) / 2.0) ** -0.6
    np.testing.assert_allclose((decayed / plain) ** 2, expected, rtol=1e-3)


def test_a_schedule_for_one_parameter(run: Run) -> None:
    stepsize = {"still": lambda m: 1e-14, "moving": 1e-2}
    samples = run(params=PAIR, stepsize=stepsize, log_lik=any_shape)
    assert np.abs(samples["still"]).max() < 1e-4 < np.abs(samples["moving"]).max()


def test_a_schedule_that_fails_later_names_the_iteration(run: Run) -> None:
    with pytest.raises(ValueError, match="`stepsize`.*iteration 9.*-1"):
        run(stepsize=lambda m: 1e-3 if m < 9 else -1.0)


@pytest.mark.parametrize(
    ("given", "rows"), [(0.1, 2), (0.26, 5), (0.5, 10), (0.999, 20), (1, 1), (7.0, 7), (20, 20)]
)
def test_minibatch_size(given: float, rows: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sgmcmc.sgld.__globals__, "sample", lambda sampler, *_: sampler)
    assert run(minibatch_size=given).settings.items() >= {"n": rows, "N": 20}.items()


@pytest.mark.parametrize("rows", [1, 5, 20])
def test_log_lik_sees_minibatches(rows: int, run: Run) -> None:
    seen = []

    def spying(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        seen.append(dataset["x"].shape)
        return log_lik(params, dataset)

    run(log_lik=spying, minibatch_size=rows, n_iters=2)
    assert set(seen) == {(rows,)}


def test_the_estimate_is_scaled_by_n(run: Run) -> None:
    """With n = N at a fixed point the gradient is exact; with n < N its mean over draws is."""
    data = {"x": np.ones(20)}
    exact = run(dataset=data, stepsize=1e-12, minibatch_size=20, store_gradients=True)
    part = run(dataset=data, stepsize=1e-12, minibatch_size=4, store_gradients=True)
    np.testing.assert_allclose(exact.gradients["theta"], 20.0, rtol=1e-4)
    np.testing.assert_allclose(part.gradients["theta"], 20.0, rtol=1e-4)


@pytest.mark.parametrize("read_only", [False, True])
def test_inputs_are_never_modified(read_only: bool, run: Run) -> None:
    theta, data = np.array([1.0, 2.0], np.float32), np.arange(40.0, dtype=np.float32)
    theta.flags.writeable = data.flags.writeable = not read_only
    params, dataset = {"theta": theta, "list": [1.0]}, {"x": data, "more": [1.0] * 40}
    stepsize = {"theta": 1e-4, "list": 1e-4}

    def rude(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        value = any_shape(params, dataset)
        params.clear()
        dataset["x"] = None
        return value

    run("sghmccv", params=params, dataset=dataset, stepsize=stepsize, log_lik=rude)
    assert list(params) == ["theta", "list"] and params["theta"] is theta
    assert list(dataset) == ["x", "more"] and dataset["x"] is data
    assert stepsize == {"theta": 1e-4, "list": 1e-4}
    assert theta.tolist() == [1.0, 2.0] and params["list"] == [1.0]
    np.testing.assert_array_equal(data, np.arange(40.0))
    assert data.flags.writeable is not read_only


def on_disk(array: np.ndarray, path: Path) -> np.memmap:
    """Return the array as a file mapped into memory."""
    mapped = np.memmap(path, array.dtype, "w+", shape=array.shape)
    mapped[...] = array
    return mapped


def in_hdf5(array: np.ndarray, path: Path, chunks: tuple[int, ...] | None) -> Any:
    """Return the array as a dataset of an HDF5 file."""
    h5py = pytest.importorskip("h5py")
    return h5py.File(path, "w").create_dataset("x", data=array, chunks=chunks)


IN_MEMORY: dict[str, Callable[[np.ndarray], Any]] = {
    "float32": lambda x: x,
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(x.tolist()),
    "float64": lambda x: x.astype(np.float64),
    "float16": lambda x: x.astype(np.float16),
    "big endian": lambda x: x.astype(">f8"),
    "int64": lambda x: x.astype(np.int64),
    "uint8": lambda x: x.astype(np.uint8),
    "strided": lambda x: np.repeat(x, 2)[::2],
    "Series": lambda x: pd.Series(x, index=range(100, 100 + len(x))),
    "nullable Series": lambda x: pd.Series(x.astype(int), dtype="Int64"),
    "tensor": tf.constant,
    "variable": tf.Variable,
    "mask without masked values": lambda x: np.ma.masked_array(x, mask=False),
}


@pytest.mark.parametrize("minibatch_size", [5, 20])
def test_forms_of_a_vector(minibatch_size: int, run: Run) -> None:
    """The gradient of a linear log-likelihood is the sum of the column, whatever its form."""
    x = np.arange(20, dtype=np.float32) % 7

    def linear(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.add_n([params[name] * tf.reduce_sum(dataset[name]) for name in IN_MEMORY])

    samples = run(
        dataset={name: form(x) for name, form in IN_MEMORY.items()},
        params=dict.fromkeys(IN_MEMORY, 0.0),
        log_lik=linear,
        minibatch_size=minibatch_size,
        store_gradients=True,
    )
    expected = samples.gradients["float32"]
    assert (len(np.unique(expected)) == 1) == (minibatch_size == 20)
    for name in IN_MEMORY:
        np.testing.assert_array_equal(samples.gradients[name], expected, err_msg=name)


ON_DISK: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "memmap": on_disk,
    "memmap float64": lambda x, path: on_disk(x.astype(np.float64), path),
    "memmap int16": lambda x, path: on_disk(x.astype(np.int16), path),
    "HDF5": lambda x, path: in_hdf5(x.astype(np.float64), path, None),
    "HDF5 in chunks": lambda x, path: in_hdf5(x, path, (3,)),
}


VECTOR = np.arange(20, dtype=np.float32) % 7


@functools.cache
def from_vector_in_memory(minibatch_size: int, replace: bool) -> sgmcmc.Samples:
    """Return what the forms of the vector must give; run once for all of them."""
    given = {"minibatch_size": minibatch_size, "replace": replace}
    return short_call(dataset={"x": VECTOR}, n_iters=5, **given)


@pytest.mark.parametrize(
    ("form", "minibatch_size", "replace"),
    [(form, 5, False) for form in ON_DISK] + [("HDF5", 5, True), ("memmap float64", 20, False)],
)
def test_forms_on_disk(
    form: str, minibatch_size: int, replace: bool, run: Run, tmp_path: Path
) -> None:
    expected = from_vector_in_memory(minibatch_size, replace)
    column = ON_DISK[form](VECTOR, tmp_path / "x")
    given = {"minibatch_size": minibatch_size, "replace": replace}
    samples = run(dataset={"x": column}, n_iters=5, **given)
    np.testing.assert_array_equal(samples["theta"], expected["theta"])


MATRIX_FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "nested lists": lambda x, _: x.tolist(),
    "Fortran": lambda x, _: np.asfortranarray(x),
    "transposed": lambda x, _: np.ascontiguousarray(x.T).T,
    "DataFrame": lambda x, _: pd.DataFrame(x, columns=["a", "b", "c"]),
    "bool": lambda x, _: x.astype(bool),
    "memmap float64": lambda x, path: on_disk(x.astype(np.float64), path / "x"),
    "HDF5 in chunks": lambda x, path: in_hdf5(x, path / "x", (4, 2)),
    "xarray": lambda x, _: pytest.importorskip("xarray").DataArray(x),
}


def regression(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood of regression coefficients."""
    return -tf.reduce_sum((tf.linalg.matvec(dataset["x"], params["beta"]) - 1.0) ** 2)


MATRIX = (np.arange(60).reshape(20, 3) % 4 > 1).astype(np.float32)
MATRIX_CALL = {"log_lik": regression, "params": {"beta": np.zeros(3)}, "n_iters": 5}


@functools.cache
def from_matrix_in_memory() -> sgmcmc.Samples:
    """Return what the forms of the matrix must give; run once for all of them."""
    return short_call(dataset={"x": MATRIX}, **MATRIX_CALL)


@pytest.mark.parametrize("form", MATRIX_FORMS)
def test_forms_of_a_matrix(form: str, run: Run, tmp_path: Path) -> None:
    samples = run(dataset={"x": MATRIX_FORMS[form](MATRIX, tmp_path)}, **MATRIX_CALL)
    np.testing.assert_array_equal(samples["beta"], from_matrix_in_memory()["beta"])


@pytest.mark.parametrize(
    ("dtype", "minibatch_size", "jit_compile"),
    [(tf.int32, 5, True), (tf.int32, 20, True), (tf.int64, 5, False), (tf.uint8, 5, True)],
)
def test_a_tensor_keeps_its_dtype(
    dtype: tf.DType, minibatch_size: int, jit_compile: bool, run: Run
) -> None:
    groups = np.arange(20) % 3

    def by_group(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        assert dataset["group"].dtype == dtype
        means = tf.gather(params["means"], tf.cast(dataset["group"], tf.int32))
        return -0.5 * tf.reduce_sum((dataset["x"] - means) ** 2)

    samples = run(
        dataset={"x": 10.0 * groups, "group": tf.constant(groups, dtype)},
        params={"means": [0.0, 10.0, 20.0]},
        log_lik=by_group,
        minibatch_size=minibatch_size,
        jit_compile=jit_compile,
        stepsize=1e-6,
    )
    np.testing.assert_allclose(samples["means"][-1], [0.0, 10.0, 20.0], atol=0.1)


def test_large_integers_as_a_tensor(run: Run) -> None:
    def odd(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        odd = tf.cast(dataset["id"] % 2, tf.float32)
        return -0.5 * tf.reduce_sum((odd - params["theta"]) ** 2)

    ids = tf.constant(2**40 + 1 + 2 * np.arange(20), tf.int64)
    samples = run(dataset={"id": ids}, log_lik=odd, stepsize=1e-12, store_gradients=True)
    np.testing.assert_allclose(samples.gradients["theta"], 20.0, rtol=1e-4)


def test_double_precision(run: Run, x: np.ndarray) -> None:
    seen = []

    def spying(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        seen.extend([params["theta"].dtype, dataset["x"].dtype])
        return log_lik(params, dataset)

    samples = run("sghmccv", log_lik=spying, dtype=tf.float64, store_gradients=True)
    assert set(seen) == {tf.float64}
    assert samples["theta"].dtype == samples.gradients["theta"].dtype == np.float64
    assert samples.mode["theta"].dtype == samples.mode_gradient["theta"].dtype == np.float64
    assert samples.settings["dtype"] == "float64"


def test_store_params_list(run: Run) -> None:
    everything = run(params=ANY_SHAPE, log_lik=any_shape, store_gradients=True)
    some = run(
        params=ANY_SHAPE,
        log_lik=any_shape,
        store_gradients=True,
        store_params=["matrix", "scalar"],
    )
    assert list(some) == list(some.gradients) == ["scalar", "matrix"]
    for name in some:
        np.testing.assert_allclose(some[name], everything[name], rtol=1e-5)
        np.testing.assert_allclose(some.gradients[name], everything.gradients[name], rtol=1e-5)


def test_store_params_false(run: Run) -> None:
    functions = {"square": lambda params: params["theta"] ** 2}
    samples = run(store_params=False, test_functions=functions)
    assert len(samples) == 0 and dict(samples) == {}
    expected = run()["theta"] ** 2
    np.testing.assert_allclose(samples.test_functions["square"], expected, rtol=1e-5)


@pytest.mark.parametrize(("n_chains", "jit_compile"), [(None, True), (2, False)])
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


def test_silence(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run("sghmccv", n_chains=2)
    out, err = capfd.readouterr()
    assert out == "" and err == ""


QUIET_SCRIPT = """
import numpy as np
import sgmcmc
import tensorflow as tf
def log_lik(params, dataset):
    return -0.5 * tf.reduce_sum((dataset["x"] - params["theta"]) ** 2)
sgmcmc.sgldcv(log_lik, {"x": np.zeros(20)}, {"theta": 0.0}, 1e-3, 1e-3, minibatch_size=5,
              n_iters=20, n_iters_opt=20, verbose=False, seed=1)
"""


def test_silence_of_a_fresh_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUIET_SCRIPT], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("method", "bars"), [("sgld", 1), ("sgldcv", 2), ("sgnhtcv", 2)])
def test_progress(method: str, bars: int, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run(method, verbose=True, n_chains=2, n_iters=20, burn_in=5)
    out, err = capfd.readouterr()
    assert out == ""
    last = [line.split("\r")[-1] for line in err.strip().split("\n")]
    assert len(last) == bars
    for line in last:
        assert "100%" in line and re.search(r"log posterior estimate -?\d", line)
    assert f"{method}:" in last[-1] and "50/50" in last[-1]
    if bars == 2:
        assert "mode-finding" in last[0] and "20/20" in last[0]


def test_no_mode_finding_no_bar(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    samples = run("sgldcv", verbose=True, n_iters_opt=0, params={"theta": 0.25})
    assert "mode-finding" not in capfd.readouterr().err
    assert samples.mode["theta"] == 0.25


@pytest.mark.parametrize("n_chains", [None, 3])
def test_log_post(n_chains: int | None, run: Run) -> None:
    samples = run(n_chains=n_chains, minibatch_size=20, burn_in=10, n_iters=30)
    iterations, values = samples.log_post
    assert iterations.dtype.kind == "i" and iterations[-1] == 40
    assert (np.diff(iterations) > 0).all() and iterations[0] >= 1
    leading = () if n_chains is None else (n_chains,)
    assert values.shape == (*leading, len(iterations))


def test_values_of_log_post(run: Run, x: np.ndarray) -> None:
    """With n = N the estimate is exact, prior included."""

    def log_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
        return -3.0 * params["theta"] ** 2

    samples = run(minibatch_size=20, log_prior=log_prior)
    theta = samples["theta"][samples.log_post.iterations - 1]
    expected = -0.5 * ((x[:, None] - theta) ** 2).sum(0) - 3.0 * theta**2
    np.testing.assert_allclose(samples.log_post.values, expected, rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_settings(method: str) -> None:
    settings = once(method).settings
    assert json.loads(json.dumps(settings)) == settings
    expected = {"method": method, "N": 20, "n": 5, "seed": 1, "stepsize": 1e-3}
    assert expected.items() <= settings.items()
    # Where a chain lies on disk is not what it is: a folder may be moved.
    assert set(KEYWORDS) - {"store"} <= set(settings)
    assert {"sgmcmc", "tensorflow", "numpy"} <= set(settings["versions"])
    assert settings["versions"]["sgmcmc"] == sgmcmc.__version__
    own = {"sghmc": {"alpha": 0.01, "L": 5, "integrator": "symmetric"}, "sgnht": {"a": 0.01}}
    assert own.get(method.removesuffix("cv"), {}).items() <= settings.items()
    assert ("opt_stepsize" in settings) == method.endswith("cv")


def test_settings_of_everything(run: Run) -> None:
    decay = sgmcmc.polynomial_decay(1e-3, 1.0, 0.3)
    samples = run(
        stepsize={"theta": decay},
        test_functions={"double": lambda params: 2.0 * params["theta"]},
        store_params=["theta"],
        n_chains=2.0,
        thin=2,
        seed=13.0,
    )
    settings = samples.settings
    assert json.loads(json.dumps(settings)) == settings
    assert {"n_chains": 2, "thin": 2, "seed": 13}.items() <= settings.items()
    assert settings["test_functions"] == ["double"] and settings["store_params"] == ["theta"]
    assert "0.3" in settings["stepsize"]["theta"]


def test_a_drawn_seed_can_be_given_again(run: Run) -> None:
    first = run(seed=None)
    again = run(seed=first.settings["seed"])
    np.testing.assert_array_equal(first["theta"], again["theta"])
    assert run(seed=None).settings["seed"] != first.settings["seed"]


@pytest.mark.parametrize("method", ["sgld", "sghmccv"])
def test_the_same_seed_gives_the_same_bits(method: str, run: Run) -> None:
    again = run(method, log_lik=any_shape, params=ANY_SHAPE, store_gradients=True)
    for name, draws in once(method).items():
        np.testing.assert_array_equal(again[name], draws)
        np.testing.assert_array_equal(again.gradients[name], once(method).gradients[name])


def test_another_seed_gives_other_draws(run: Run) -> None:
    assert (run(seed=2)["theta"] != run(seed=1)["theta"]).all()


def quadratic_prior(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the log density of theta ~ N(0, 1/10)."""
    return -5.0 * params["theta"] ** 2


@pytest.mark.parametrize(
    ("method", "n_chains"), [("sgldcv", None), ("sghmccv", 2), ("sgnhtcv", None)]
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
    samples = once("sghmc")
    assert samples.mode is None and samples.mode_gradient is None
    assert samples.test_functions is None


@pytest.mark.parametrize("piece_bytes", [1, 12, 76])
def test_the_full_gradient_is_taken_in_pieces(
    piece_bytes: int, run: Run, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sgmcmc.data.dataset.PIECE_BYTES", piece_bytes)
    samples = run("sgldcv", log_prior=quadratic_prior, params={"theta": 0.5}, n_iters_opt=0)
    expected = x.sum() - 20 * 0.5 - 10 * 0.5
    np.testing.assert_allclose(samples.mode_gradient["theta"], expected, rtol=1e-5)


def test_opt_stepsize_may_not_be_none(run: Run) -> None:
    with pytest.raises(TypeError, match="opt_stepsize.*None"):
        run("sgldcv", opt_stepsize=None)
