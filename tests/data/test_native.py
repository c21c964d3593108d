"""The copying in native code: bit for bit what NumPy copies, from Python and from within XLA."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.data import native
from tests import seams

DTYPES = ("float32", "float64", "int8", "int64", "bool")
ROW_SHAPES = ((), (1,), (3,), (54,), (7, 5), (1000,), (0,))


def array_of(dtype: str, row_shape: tuple[int, ...], rows: int = 300) -> np.ndarray:
    values = np.random.default_rng(4).integers(0, 2**7, (rows, *row_shape))
    return values.astype(dtype)


@pytest.fixture
def xla() -> None:
    """Skip where XLA cannot call native code."""
    if not native.callable_by_xla():
        pytest.skip("the native code is not built, or this TensorFlow cannot call it")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row_shape", ROW_SHAPES)
def test_rows_are_taken_as_numpy_takes_them(
    dtype: str, row_shape: tuple[int, ...]
) -> None:
    if native._rows is None:
        pytest.skip("the native code is not built")
    array = array_of(dtype, row_shape)
    for shape, kind in (
        ((40,), np.int32),
        ((3, 40), np.int64),
        ((5, 1), np.int32),
        ((0,), np.int64),
    ):
        rows = np.random.default_rng(5).integers(0, len(array), shape, dtype=kind)
        out = np.empty(shape + row_shape, dtype)
        assert native.take(array, rows, out)
        np.testing.assert_array_equal(out, array[rows])


def test_scattered_memory_is_left_to_numpy() -> None:
    array, rows = np.arange(20.0), np.arange(10)
    assert not native.take(array, rows[::2], np.empty(5))
    assert not native.take(array, rows, np.empty(20)[::2])


@pytest.mark.some(8)
@pytest.mark.usefixtures("xla")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row_shape", ROW_SHAPES[:-1])
def test_xla_gathers_a_minibatch(dtype: str, row_shape: tuple[int, ...]) -> None:
    array = array_of(dtype, row_shape)
    address = tf.constant(array.ctypes.data, tf.int64)
    for kind in (np.int32, np.int64):
        rows = np.random.default_rng(6).integers(0, len(array), (4, 30), dtype=kind)

        @tf.function(jit_compile=True, autograph=False)
        def gather(address: tf.Tensor, rows: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
            array = native.ArrayRows(address, row_shape, np.dtype(dtype))
            one, two = (
                native.gather_rows(array, rows, step, threads) for threads in (1, 2)
            )
            return tf.stack([one, two])

        for step in range(4):
            found = gather(address, tf.constant(rows), tf.constant(step))
            np.testing.assert_array_equal(found, [array[rows[step]]] * 2)


@pytest.mark.usefixtures("xla")
@pytest.mark.parametrize("dtype", DTYPES)
def test_xla_copies_a_minibatch_of_a_block(dtype: str) -> None:
    block = array_of(dtype, (30, 7), rows=4)

    @tf.function(jit_compile=True, autograph=False)
    def copy(block: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        return native.copy_minibatch(block, step)

    for step in range(4):
        np.testing.assert_array_equal(
            copy(tf.constant(block), tf.constant(step)), block[step]
        )


@pytest.mark.usefixtures("xla")
@pytest.mark.parametrize("threads", [1, 2])
def test_many_threads_may_call_at_once(threads: int) -> None:
    array = array_of("float32", (54,), rows=5000)
    rows = np.random.default_rng(7).integers(0, 5000, (50, 500), dtype=np.int32)

    @tf.function(jit_compile=True, autograph=False)
    def sums(address: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        def add(step: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            array = native.ArrayRows(address, (54,), np.dtype("float32"))
            part = native.gather_rows(array, rows, step, threads)
            return step + 1, total + tf.reduce_sum(part, 0)

        start = (tf.constant(0), tf.zeros([54]))
        return tf.while_loop(
            lambda step, _: step < 50, add, start, parallel_iterations=1
        )[1]

    def run(_: int) -> np.ndarray:
        return sums(tf.constant(array.ctypes.data, tf.int64), tf.constant(rows)).numpy()

    expected = array[rows].sum((0, 1))  # integers below 2**24: exact in any order
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(8)):
            np.testing.assert_array_equal(found, expected)


COPY_TOGETHER = """
import importlib.util, os, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np

spec = importlib.util.spec_from_file_location("_rows", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

def is_right(seed, calls):
    rng = np.random.default_rng(seed)
    array = rng.random((700, int(rng.integers(1, 600))), np.float32)
    for call in range(calls):
        rows = rng.integers(0, 700, 300, (np.int32, np.int64)[call % 2])
        out = np.full((300, array.shape[1]), np.nan, np.float32)
        source, numbers, target = (each.ctypes.data for each in (array, rows, out))
        module.take(source, numbers, rows.itemsize, target, 300, 4 * array.shape[1], 2)
        if not np.array_equal(out, array[rows]):
            return False
    return True

assert is_right(0, 20)
with ThreadPoolExecutor(4) as pool:
    assert all(pool.map(is_right, range(20), [50] * 20))
child = os.fork()
if child == 0:  # the second thread is not in it
    os._exit(0 if is_right(1, 20) else 1)
assert os.waitpid(child, 0)[1] == 0
assert is_right(2, 20)
"""


def test_two_threads_copy_as_one_does() -> None:
    """From many threads at once and after a fork too; and the process ends, thread or no thread."""
    if native._rows is None:
        pytest.skip("the native code is not built")
    assert native._rows.__file__ is not None
    command = [sys.executable, "-c", COPY_TOGETHER, native._rows.__file__]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.usefixtures("xla")
def test_what_copies_wrongly_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    native._registered.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(
                seams.COPY_MINIBATCH, lambda block, step: tf.zeros_like(block[0])
            )
            assert not native.callable_by_xla()
        native._registered.cache_clear()
        assert native.callable_by_xla()
    finally:
        native._registered.cache_clear()
