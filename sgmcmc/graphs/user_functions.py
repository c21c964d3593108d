"""Calls a user's function, and explains its errors."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.interrupts import pass_on

_DTYPE_CLASH = re.compile(
    r"does not match type|expected to be a \w+ tensor but is a|Tensor conversion requested dtype"
    r"|to have the same dtype"
    r"|incompatible with dtype|incompatible dtypes|have types? .* that (do|does)|must be same type",
    re.IGNORECASE,
)
_FLOAT_INDEX = re.compile(
    r"has DataType float\d+ not in list of allowed values:[ \w,]*int32"
    r"|Only integers, slices .* valid indices, got .*float\d+",
    re.DOTALL,
)
_GRAPH_ERROR = "Graph execution error"
_LOCATION_LINE = re.compile(
    r"Graph execution error|Detected at node|\s+File |<stack|\s*\[\[|\s+\S.*$"
)
_OUT_OF_RANGE = re.compile(r"indices\[.*\] = \S+ is not in \[0, \d+\)")
_PYTHON_CONTROL = re.compile(r"(as a Python `bool`|Iterating over a symbolic)")


def call(
    argument: str,
    dtype: tf.DType,
    function: Callable[..., Any],
    described: str,
    **inputs: Any,
) -> Any:
    """Return the value of a user's function for ``inputs``, or explain its error.

    ``argument`` is the function's name, ``described`` describes its inputs.
    """
    names = " and ".join(f"`{name}`" for name in inputs)
    with contextlib.suppress(ValueError):  # some builtins have no signature
        try:
            inspect.signature(function).bind(*inputs.values())
        except TypeError as error:
            raise TypeError(
                f"`{argument}` must be a function of {names}, called with {len(inputs)} argument"
                f"{'s' * (len(inputs) > 1)}; it cannot be: {error}."
            ) from None
    with _explained(lambda error: explain(argument, described, error, dtype)):
        return function(*(copy.copy(value) for value in inputs.values()))


@contextlib.contextmanager
def _explained(explanation: Callable[[Exception], Exception]) -> Iterator[None]:
    """Explain an error of the ``with`` block; those of memory and of Ctrl-C stay as they are."""
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError):
        raise
    except Exception as error:
        pass_on(error)
        explained = explanation(error)
        if explained is error:
            raise
        raise explained from error


def as_tensor(argument: str, returned: Any, what: str) -> tf.Tensor:
    """Return the result of a user's function as a tensor of numbers."""
    if returned is None:
        raise TypeError(
            f"`{argument}` returned None; it must return {what}. Is `return` missing?"
        )
    try:
        tensor = tf.convert_to_tensor(returned)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.dtype == tf.string:
        raise TypeError(
            f"`{argument}` must return {what}; it returned {describe(returned)}."
        )
    return tensor


def explain(
    argument: str, described: str, error: Exception, dtype: tf.DType
) -> Exception:
    """Return an error that explains an exception in a user's function."""
    text = first_lines(error)
    if _DTYPE_CLASH.search(str(error)):
        return TypeError(
            f"`{argument}` mixes dtypes; params and dataset are {dtype.name} (a tf.Tensor in "
            f"`dataset` keeps its own dtype). Declare constants with tf.constant(..., dtype=tf."
            f"{dtype.name}) and convert with tf.cast. TensorFlow says: {text}"
        )
    if _FLOAT_INDEX.search(str(error)):
        return TypeError(
            f"`{argument}` uses a {dtype.name} where TensorFlow needs integers, such as the index "
            f"of tf.gather. Numbers in `dataset` become {dtype.name}. Name the column in "
            "`integers=['g']`, pass it as tf.constant(g, tf.int32), or write "
            "tf.cast(dataset['g'], tf.int32). pandas categoricals stay integers, too. TensorFlow "
            f"says: {text}"
        )
    if _PYTHON_CONTROL.search(str(error)):
        return TypeError(
            f"`{argument}` lets Python branch or loop on the value of a tensor, which is unknown "
            "when the chain is compiled. Use tf.where or tf.cond, tf.map_fn or sums instead."
        )
    if "symbolic" in str(error) and "numpy" in str(error).lower():
        return TypeError(
            f"`{argument}` must be written in TensorFlow (tf.math.log, not np.log). {text}"
        )
    return ValueError(
        f"`{argument}` failed when it was tried. It was called with {described}. {text}"
    )


def first_lines(error: Exception) -> str:
    """Return the beginning of an error; TensorFlow's can fill a screen."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    if message.startswith(_GRAPH_ERROR):  # what went wrong comes after where it did
        lines = [
            line
            for line in message.splitlines()
            if line and not _LOCATION_LINE.match(line)
        ]
        message = " ".join(lines) or message
    text = f"{type(error).__name__}: {message}".split("\n\n")[0]
    text = text if len(text) <= 400 else f"{text[:400]} ..."
    if _OUT_OF_RANGE.search(text):
        text += (
            ". An index, such as that of tf.gather, is out of range: they start at 0."
        )
    return text


def is_sum(whole: float, parts: Any, relative: float, absolute: float = 0.0) -> bool:
    """Return whether a log-likelihood on some rows is the sum of its values on parts of them.

    Args:
        whole: Value on all of the rows, or its change from one position to another.
        parts: Values on parts that have no row in common, such as single rows or halves.
        relative: Error that may be rounding, relative to the sum of the sizes of the parts.
        absolute: Error that may be rounding besides.
    """
    values = np.asarray(parts, np.float64)
    error = abs(float(values.sum()) - float(whole))
    rounding = relative * float(np.abs(values).sum()) + absolute
    # Parts that are infinite allow no error of any size.
    return bool(np.isfinite(error)) and error <= rounding


def need_sum(whole: float, parts: np.ndarray, advice: str = "") -> None:
    """Raise an error if a log-likelihood is not the sum of its values on single rows.

    Args:
        whole: Value on all of some rows.
        parts: Value on each of them.
        advice: End of the message.
    """
    rounding = 1e-3  # of single precision, in the sizes of the terms
    terms = np.asarray(parts, np.float64)
    undefined = not np.isfinite([terms.sum(), whole]).any()  # which is said elsewhere
    if undefined or is_sum(whole, terms, rounding, 1e-33):
        return
    raise ValueError(
        f"`log_lik` must be a sum over the observations. On {len(terms)} of them it is "
        f"{float(whole):g}, and the sum of its values on each of them alone is "
        f"{terms.sum():g}{advice or '.'}"
    )


@contextlib.contextmanager
def naming(component: object, method: str, condition: str = "") -> Iterator[None]:
    """Name class and method in an error that a user's own class raises in the ``with`` block."""
    label = f"{type(component).__name__}.{method}".rstrip(".")

    def explanation(error: Exception) -> Exception:
        if label in str(error):
            return error
        kind = TypeError if isinstance(error, TypeError) else ValueError
        return kind(
            f"`{label}` failed when it was tried{condition}. {first_lines(error)}"
        )

    with _explained(explanation):
        yield
