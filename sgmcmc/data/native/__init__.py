"""Copies minibatches and makes random numbers in native code, if it could be built.

Elsewhere NumPy and XLA do, bit for bit alike.

Rows are asked for some time before their turn, which halves the time that scattered rows take. XLA
can call what is here from inside a graph it compiles for a CPU: its own gather is slower by far,
and its own copy of a minibatch goes number by number if rows are short. That way in is not
public: it is tried before it is used. The environment variable ``SGMCMC_NO_NATIVE`` switches all of
this off.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.graphs.tracing import trace

_rows: ModuleType | None
try:
    from sgmcmc.data.native import _rows
except ImportError:  # there was no C++ compiler
    _rows = None

_numbers: ModuleType | None
try:
    from sgmcmc.data.native import _numbers
except ImportError:
    _numbers = None

try:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
except ImportError:  # a TensorFlow that keeps it elsewhere
    gen_xla_ops = None

_GATHER_ROWS, _COPY_MINIBATCH = "sgmcmc_gather_rows", "sgmcmc_copy_minibatch"
# XLA's interface for the functions that we register, by the documentation of TensorFlow's op.
_INTERFACE = "API_VERSION_STATUS_RETURNING_UNIFIED"


def available() -> bool:
    """Return whether native code was built and is not switched off."""
    return _rows is not None and not libraries.no_native()


def take(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> bool:
    """Copy rows of an array into ``out``, if native code can; return whether it did.

    The array is contiguous; rows are int32 or int64, of any shape, known to be in range.
    """
    if not available() or rows.dtype not in (np.int32, np.int64):
        return False
    if not (rows.flags.c_contiguous and out.flags.c_contiguous):
        return False
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    source, numbers, target = (buffer.ctypes.data for buffer in (array, rows, out))
    assert _rows is not None
    _rows.take(source, numbers, rows.itemsize, target, rows.size, row_bytes)
    return True


def standard_normals(rng: np.random.Generator, out: np.ndarray) -> bool:
    """Fill a float32 vector with standard normals, if native code can; return whether it did."""
    return _from_stream(rng, out, "normals")


def below(rng: np.random.Generator, bound: int, out: np.ndarray) -> bool:
    """Fill an int32 vector with integers below a bound, if native code can; return whether it did.

    The bound is from 1 to 2³¹ - 1; -1 marks a number that must be drawn again.
    """
    return _from_stream(rng, out, "below", bound)


def _from_stream(
    rng: np.random.Generator, out: np.ndarray, name: str, *parameters: int
) -> bool:
    """Fill a vector by the function of this name, and move the stream on."""
    generator = rng.bit_generator
    usable = isinstance(generator, np.random.SFC64) and out.flags.c_contiguous
    if _numbers is None or libraries.no_native() or not usable:
        return False
    with generator.lock:
        state = generator.state
        words = state["state"]["state"]
        getattr(_numbers, name)(
            words.ctypes.data, out.ctypes.data, out.size, *parameters
        )
        generator.state = state
    return True


def callable_by_xla() -> bool:
    """Return whether graphs that XLA compiles for a CPU can call the functions below."""
    return available() and _registered()


@functools.cache
def _registered() -> bool:
    """Return whether XLA calls the functions, registered once, as it should."""
    op = getattr(gen_xla_ops, "xla_custom_call_v2", None)
    if op is None or _INTERFACE not in (op.__doc__ or ""):
        return False
    library = Path(tf.sysconfig.get_lib()) / "libtensorflow_cc.so.2"
    assert _rows is not None
    return (
        _rows.register(str(library), _GATHER_ROWS, _COPY_MINIBATCH)
        and _copies_are_right()
    )


def _copies_are_right() -> bool:
    """Test the functions: this TensorFlow may call them in another way than tested versions."""
    array = np.arange(12, dtype=np.int32).reshape(4, 3)
    rows = np.array([[0, 1], [3, 2]], np.int32)

    def copies(
        address: tf.Tensor, rows: tf.Tensor, block: tf.Tensor, step: tf.Tensor
    ) -> tf.Tensor:
        of_array = ArrayRows(address, (3,), array.dtype)
        gathered = [gather_rows(of_array, rows, step, threads) for threads in (1, 2)]
        return tf.stack([*gathered, copy_minibatch(block, step)])

    with tf.init_scope():  # another function may be traced just now
        arguments = (array.ctypes.data, rows, array[rows], 1)
        dtypes = (tf.int64, tf.int32, tf.int32, tf.int32)
        tensors = [tf.constant(*pair) for pair in zip(arguments, dtypes, strict=True)]
        try:
            copied = trace(copies, *tensors, jit_compile=True)(*tensors).numpy()
        except tf.errors.OpError:
            return False
    return bool((copied == array[rows[1]]).all())


class ArrayRows(NamedTuple):
    """The rows of an array in memory.

    Attributes:
        address: Address of the array, an int64 scalar; the array must outlive the graph's runs.
        shape: Shape of one row.
        dtype: Dtype of the array.
    """

    address: tf.Tensor
    shape: tuple[int, ...]
    dtype: np.dtype


def gather_rows(
    array: ArrayRows, rows: tf.Tensor, step: tf.Tensor, threads: int = 1
) -> tf.Tensor:
    """Return the rows of one minibatch, read from the array's memory.

    Args:
        array: Array.
        rows: Row numbers of a block, one minibatch per row; known to be in range.
        step: Number of the minibatch.
        threads: Number of threads that copy the rows, 1 or 2.
    """
    size = rows.shape[1]
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape))
    sizes = [size, row_bytes, rows.dtype.size, threads]
    result = tf.TensorSpec((size, *array.shape), array.dtype)
    return _call(_GATHER_ROWS, [array.address, rows], step, sizes, result)


def copy_minibatch(block: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Return one minibatch of a block, whose first axis counts them."""
    shape = tuple(block.shape[1:])
    sizes = [block.dtype.size * int(np.prod(shape))]
    result = tf.TensorSpec(shape, block.dtype)
    return _call(_COPY_MINIBATCH, [block], step, sizes, result)


def _call(
    target: str,
    arrays: Sequence[tf.Tensor],
    step: tf.Tensor,
    sizes: Sequence[int],
    result: tf.TensorSpec,
) -> tf.Tensor:
    (minibatch,) = gen_xla_ops.xla_custom_call_v2(
        [*arrays, tf.cast(step, tf.int32), tf.constant(sizes, tf.int64)],
        call_target_name=target,
        backend_config="",
        has_side_effect=False,
        result_dtypes=[result.dtype],
        result_shapes=[result.shape],
    )
    return minibatch
