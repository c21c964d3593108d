"""Tries the user's functions once, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data import Data
from sgmcmc.layout import Layout
from sgmcmc.model import LogLik, LogPrior, Model, Tensors
from sgmcmc.tracing import trace

_DTYPE_CLASH = re.compile(
    r"does not match type|expected to be a \w+ tensor but is a|Tensor conversion requested dtype"
    r"|to have the same dtype"
    r"|incompatible with dtype|have types? .* that (do|does)|must be same type",
    re.IGNORECASE,
)


def make_model(
    log_lik: LogLik,
    log_prior: LogPrior | None,
    starts: list[dict[str, np.ndarray]],
    bijectors: Mapping[str, Any],
    dtype: tf.DType,
) -> Model:
    """Return the model, once the bijectors have been found to fit the starting values."""
    shapes = {name: value.shape for name, value in starts[0].items()}
    try:
        model = Model(log_lik, log_prior, shapes, bijectors, dtype)
    except (ValueError, TypeError) as error:
        raise ValueError(f"`bijectors` do not fit the shapes of `params`: {error}") from error
    for start in starts:
        for name, bijector in bijectors.items():
            _try_bijector(name, bijector, start[name], dtype)
    return model


def _try_bijector(name: str, bijector: Any, value: np.ndarray, dtype: tf.DType) -> None:
    try:
        free = bijector.inverse(tf.constant(value, dtype))
        back = bijector.forward(tf.identity(free)).numpy()
        good = np.isfinite(free.numpy()).all() and np.allclose(back, value, rtol=1e-2, atol=1e-4)
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise ValueError(
            f"`bijectors[{name!r}]` cannot be applied to params[{name!r}]: {error}"
        ) from error
    if not good:
        raise ValueError(
            f"`params[{name!r}]` must start inside the range of its bijector "
            f"{bijector.name!r}; {value.tolist()!r} is not."
        )


def try_model(model: Model, data: Data, rows: int, starts: list[np.ndarray]) -> None:
    """Evaluate the model and its gradient once at every start, on the first rows of the data.

    Raises:
        TypeError, ValueError: what a function of the user's does wrong, in words.
    """
    minibatch = {name: tf.convert_to_tensor(a) for name, a in data.rows(np.arange(rows)).items()}
    scale = data.size / rows

    def trial(position: tf.Tensor, minibatch: Tensors) -> tuple[tf.Tensor, tf.Tensor]:
        params = model.constrain(position)
        _try_function(
            "log_lik", lambda: model.log_lik(dict(params), dict(minibatch)), model, minibatch
        )
        if model.log_prior is not None:
            prior = model.log_prior
            _try_function("log_prior", lambda: prior(dict(params)), model, {})
        missing = model.missing_gradients(position, minibatch)
        if missing:
            raise ValueError(
                f"`log_lik` does not depend on the parameter {missing[0]!r}, and neither does "
                "`log_prior` (the gradient is None). Use it, or take it out of `params`."
            )
        return (
            model.log_post(position, minibatch, scale),
            model.gradient(position, minibatch, scale),
        )

    tried = trace(trial, tf.constant(starts[0]), minibatch)
    for number, start in enumerate(starts):
        label = "params" if len(starts) == 1 else f"params[{number}]"
        try:
            value, gradient = tried(tf.constant(start), minibatch)
        except tf.errors.OpError as error:
            raise ValueError(f"`log_lik` failed when it was run: {error.message}") from error
        _need_finite(label, model.layout, value.numpy(), gradient.numpy())


def _try_function(
    argument: str, call: Callable[[], Any], model: Model, minibatch: Mapping[str, Any]
) -> None:
    shapes = ", ".join(f"{k!r} {shape}" for k, shape in model.user_layout.shapes.items())
    given = f"params {shapes}"
    if minibatch:
        given += "; dataset " + ", ".join(f"{k!r} {tuple(v.shape)}" for k, v in minibatch.items())
    try:
        returned = call()
    except Exception as error:
        raise _explain(argument, given, error, model.dtype) from error
    if returned is None:
        raise TypeError(f"`{argument}` returned None; it must return the sum. Is `return` missing?")
    own_dtype = getattr(returned, "dtype", model.dtype)
    try:
        returned = tf.convert_to_tensor(returned)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{argument}` must return a scalar tensor; it returned {returned!r}."
        ) from error
    if returned.shape != ():
        raise ValueError(
            f"`{argument}` must return a scalar; it returned a tensor of shape "
            f"{returned.shape}. Sum it with tf.reduce_sum. It was called with {given}."
        )
    if own_dtype != model.dtype:
        raise TypeError(
            f"`{argument}` returned {tf.as_dtype(own_dtype).name}, but the chain runs in "
            f"{model.dtype.name}. Declare constants with tf.constant(..., dtype=tf."
            f"{model.dtype.name}), or choose the `dtype` of the sampler."
        )


def _explain(argument: str, given: str, error: Exception, dtype: tf.DType) -> Exception:
    text = f"{type(error).__name__}: {error}".split("\n\n")[0]
    if _DTYPE_CLASH.search(str(error)):
        return TypeError(
            f"`{argument}` mixes dtypes; params and dataset are {dtype.name} (a tf.Tensor in "
            f"`dataset` keeps its own dtype). Declare constants with tf.constant(..., dtype=tf."
            f"{dtype.name}) and convert with tf.cast. TensorFlow says: {text}"
        )
    if "symbolic" in str(error) and "numpy" in str(error).lower():
        return TypeError(
            f"`{argument}` must be written in TensorFlow (tf.math.log, not np.log). {text}"
        )
    return ValueError(f"`{argument}` failed when it was tried. It was called with {given}. {text}")


def _need_finite(label: str, layout: Layout, value: np.ndarray, gradient: np.ndarray) -> None:
    if not np.isfinite(value):
        raise ValueError(
            f"`{label}`: the log posterior is {value} at the starting values; start where it is "
            "finite."
        )
    bad = np.flatnonzero(~np.isfinite(gradient))
    if bad.size:
        name = layout.parameter_at(int(bad[0]))
        raise ValueError(
            f"`{label}`: the gradient of the log posterior with respect to {name!r} is "
            f"{gradient[bad[0]]} at the starting values; start where it is finite."
        )


def try_test_functions(
    functions: Mapping[str, Callable[[Tensors], Any]], model: Model, start: np.ndarray
) -> dict[str, np.ndarray]:
    """Return what each test function returns at the start."""
    values = {}
    for name, function in functions.items():
        label = f"test_functions[{name!r}]"
        try:
            params = model.constrain(tf.constant(start))
            value = trace(function, params)(params)
            values[name] = tf.convert_to_tensor(value).numpy()
        except Exception as error:
            raise _explain(label, "params alone", error, model.dtype) from error
    return values
