"""Copies rows in native code, where it could be built; elsewhere NumPy does.

It asks for rows some time before their turn, which halves the time that scattered rows take; and
XLA can call it from inside a graph it compiles for a CPU, where its own gather is slower by far.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType

import numpy as np
import tensorflow as tf

_rows: ModuleType | None
try:
    from sgmcmc.native import _rows
except ImportError:  # there was no C++ compiler
    _rows = None

try:
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
except ImportError:  # a TensorFlow that keeps it elsewhere
    gen_xla_ops = None

_TARGET = "sgmcmc_gather_minibatch"
_INTERFACE = "API_VERSION_STATUS_RETURNING_UNIFIED"
"""How XLA calls what we register, as the documentation of TensorFlow's op has it."""


def take(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> bool:
    """Copy rows of an array into ``out``, if native code can; tell whether it did.

    Args:
        array: contiguous.
        rows: int32 or int64, of any shape, known to be in range.
        out: contiguous, of the same dtype.
    """
    if _rows is None or not (rows.flags.c_contiguous and out.flags.c_contiguous):
        return False
    addresses = (each.ctypes.data for each in (array, rows, out))
    source, numbers, target = addresses
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    _rows.take(source, numbers, rows.itemsize, target, rows.size, row_bytes)
    return True


@functools.cache
def callable_by_xla() -> bool:
    """Tell whether graphs that XLA compiles for a CPU can call ``gather``."""
    if _rows is None or gen_xla_ops is None:
        return False
    op = getattr(gen_xla_ops, "xla_custom_call_v2", None)
    if op is None or _INTERFACE not in (op.__doc__ or ""):
        return False
    library = Path(tf.sysconfig.get_lib()) / "libtensorflow_cc.so.2"
    return _rows.register(str(library), _TARGET)


def gather(
    address: tf.Tensor,
    rows: tf.Tensor,
    step: tf.Tensor,
    row_shape: tuple[int, ...],
    dtype: np.dtype,
) -> tf.Tensor:
    """Return the rows of one minibatch, in a graph that XLA compiles for a CPU.

    Args:
        address: of the array, an int64 scalar; the array must outlive the graph's runs.
        rows: the row numbers of a block, a minibatch in a row; known to be in range.
        step: which minibatch.
        row_shape: the shape of one row of the array.
        dtype: of the array.
    """
    size, row_bytes = rows.shape[1], dtype.itemsize * int(np.prod(row_shape))
    shape = tf.constant([size, row_bytes, rows.dtype.size], tf.int64)
    (minibatch,) = gen_xla_ops.xla_custom_call_v2(
        [address, rows, tf.cast(step, tf.int32), shape],
        call_target_name=_TARGET,
        backend_config="",
        has_side_effect=False,
        result_dtypes=[tf.as_dtype(dtype)],
        result_shapes=[(size, *row_shape)],
    )
    return minibatch
