"""The copying in native code: bit for bit what NumPy copies, from Python and from within XLA."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.data import native

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
def test_rows_are_taken_as_numpy_takes_them(dtype: str, row_shape: tuple[int, ...]) -> None:
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
            return native.gather_rows(address, rows, step, row_shape, np.dtype(dtype))

        for step in range(4):
            found = gather(address, tf.constant(rows), tf.constant(step))
            np.testing.assert_array_equal(found, array[rows[step]])


@pytest.mark.usefixtures("xla")
@pytest.mark.parametrize("dtype", DTYPES)
def test_xla_copies_a_minibatch_of_a_block(dtype: str) -> None:
    block = array_of(dtype, (30, 7), rows=4)

    @tf.function(jit_compile=True, autograph=False)
    def copy(block: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        return native.copy_minibatch(block, step)

    for step in range(4):
        np.testing.assert_array_equal(copy(tf.constant(block), tf.constant(step)), block[step])


@pytest.mark.usefixtures("xla")
def test_many_threads_may_call_at_once() -> None:
    array = array_of("float32", (54,), rows=5000)
    rows = np.random.default_rng(7).integers(0, 5000, (50, 500), dtype=np.int32)

    @tf.function(jit_compile=True, autograph=False)
    def sums(address: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        def add(step: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            part = native.gather_rows(address, rows, step, (54,), np.dtype("float32"))
            return step + 1, total + tf.reduce_sum(part, 0)

        start = (tf.constant(0), tf.zeros([54]))
        return tf.while_loop(lambda step, _: step < 50, add, start, parallel_iterations=1)[1]

    def run(_: int) -> np.ndarray:
        return sums(tf.constant(array.ctypes.data, tf.int64), tf.constant(rows)).numpy()

    expected = array[rows].sum((0, 1))  # whole numbers below 2**24: exact in any order
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(run, range(8)):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("xla")
def test_what_copies_wrongly_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    native._registered.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(native, "copy_minibatch", lambda block, step: tf.zeros_like(block[0]))
            assert not native.callable_by_xla()
        native._registered.cache_clear()
        assert native.callable_by_xla()
    finally:
        native._registered.cache_clear()
