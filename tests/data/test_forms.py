"""The forms that data and parameters may come in, and that nothing is done to them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import sgmcmc
from sgmcmc.data.reading import read_dataset
from tests.conftest import any_shape, short_call

Run = Callable[..., sgmcmc.Samples]


@pytest.mark.some(1)
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


@pytest.mark.some(1)
@pytest.mark.parametrize("minibatch_size", [5, 20])
def test_forms_of_a_vector(minibatch_size: int, run: Run) -> None:
    """The gradient of a linear log-likelihood is the sum of the column, whatever its form."""
    x = np.arange(20, dtype=np.float32) % 7

    def linear(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        return tf.add_n(
            [params[name] * tf.reduce_sum(dataset[name]) for name in IN_MEMORY]
        )

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


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("form", "minibatch_size", "replace"),
    [(form, 5, False) for form in ON_DISK]
    + [("HDF5", 5, True), ("memmap float64", 20, False)],
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


def regression(
    params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return a log-likelihood of regression coefficients."""
    return -tf.reduce_sum((tf.linalg.matvec(dataset["x"], params["beta"]) - 1.0) ** 2)


MATRIX = (np.arange(60).reshape(20, 3) % 4 > 1).astype(np.float32)
MATRIX_CALL = {"log_lik": regression, "params": {"beta": np.zeros(3)}, "n_iters": 5}


@functools.cache
def from_matrix_in_memory() -> sgmcmc.Samples:
    """Return what the forms of the matrix must give; run once for all of them."""
    return short_call(dataset={"x": MATRIX}, **MATRIX_CALL)


@pytest.mark.some(3)
@pytest.mark.parametrize("form", MATRIX_FORMS)
def test_forms_of_a_matrix(form: str, run: Run, tmp_path: Path) -> None:
    samples = run(dataset={"x": MATRIX_FORMS[form](MATRIX, tmp_path)}, **MATRIX_CALL)
    np.testing.assert_array_equal(samples["beta"], from_matrix_in_memory()["beta"])


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("dtype", "minibatch_size", "jit_compile"),
    [
        (tf.int32, 5, True),
        (tf.int32, 20, True),
        (tf.int64, 5, False),
        (tf.uint8, 5, True),
    ],
)
def test_a_tensor_keeps_its_dtype(
    dtype: tf.DType, minibatch_size: int, jit_compile: bool, run: Run
) -> None:
    groups = np.arange(20) % 3

    def by_group(
        params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]
    ) -> tf.Tensor:
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


@pytest.mark.slow
def test_large_integers_as_a_tensor(run: Run) -> None:
    def odd(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
        odd = tf.cast(dataset["id"] % 2, tf.float32)
        return -0.5 * tf.reduce_sum((odd - params["theta"]) ** 2)

    ids = tf.constant(2**40 + 1 + 2 * np.arange(20), tf.int64)
    samples = run(
        dataset={"id": ids}, log_lik=odd, stepsize=1e-12, store_gradients=True
    )
    np.testing.assert_allclose(samples.gradients["theta"], 20.0, rtol=1e-4)


def test_tensors_of_rows_outlive_and_ignore_the_array() -> None:
    """They are handed over without a copy of the copy, which lives as long as they do."""
    array = np.arange(40, dtype=np.float32).reshape(10, 4)
    column = read_dataset({"x": array}, tf.float32).columns["x"]
    part, rows = column.tensor(2, 6), column.tensor_at(np.array([3, 3, 0]))
    array[:] = -1.0
    del column
    np.testing.assert_array_equal(part, np.arange(8, 24).reshape(4, 4))
    np.testing.assert_array_equal(rows[:, 0], [12, 12, 0])


DECIMALS = [Decimal("0.5"), Decimal("-2"), Decimal("0.25")]


@pytest.mark.parametrize(
    "dataset",
    [
        {"x": DECIMALS},
        {"x": pd.Series(DECIMALS)},
        {"x": np.array([Decimal("0.5"), -2, 0.25], dtype=object)},
        pd.DataFrame({"x": DECIMALS}),
        pd.DataFrame({"x": DECIMALS, "g": pd.Categorical(["a", "b", "a"])}),
    ],
)
def test_objects_that_are_numbers_are_numbers(dataset: Any) -> None:
    """As in a formula: decimals of a database are no text."""
    column = read_dataset(dataset, tf.float64).whole["x"]
    np.testing.assert_array_equal(np.ravel(column), [0.5, -2.0, 0.25])


@pytest.mark.parametrize("entry", [True, "a", None, 1j, 10**400])
def test_objects_that_are_no_numbers_are_refused(entry: Any) -> None:
    objects = np.array([*DECIMALS, entry], dtype=object)
    with pytest.raises(TypeError, match=r"`dataset\['x'\]` must hold real numbers"):
        read_dataset({"x": objects}, tf.float64)
