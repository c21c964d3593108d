"""Tries the user's functions once, before anything runs."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data import Data
from sgmcmc.inputs.numbers import describe
from sgmcmc.layout import Layout
from sgmcmc.model import LogLik, LogPrior, Model, Tensors
from sgmcmc.reductions import Reduction
from sgmcmc.tracing import trace

_DTYPE_CLASH = re.compile(
    r"does not match type|expected to be a \w+ tensor but is a|Tensor conversion requested dtype"
    r"|to have the same dtype"
    r"|incompatible with dtype|have types? .* that (do|does)|must be same type",
    re.IGNORECASE,
)


_PYTHON_CONTROL = re.compile(r"(as a Python `bool`|Iterating over a symbolic)")


def make_model(
    log_lik: LogLik,
    log_prior: LogPrior | None,
    starts: list[dict[str, np.ndarray]],
    bijectors: Mapping[str, Any],
    dtype: tf.DType,
) -> Model:
    """Return the model, once the bijectors have been found to fit the starting values."""
    for number, start in enumerate(starts):
        label = "params" if len(starts) == 1 else f"params[{number}]"
        for name, bijector in bijectors.items():
            _try_bijector(f"{label}[{name!r}]", name, bijector, start[name], dtype)
    shapes = {name: value.shape for name, value in starts[0].items()}
    return Model(log_lik, log_prior, shapes, bijectors, dtype)


def _try_bijector(start: str, name: str, bijector: Any, value: np.ndarray, dtype: tf.DType) -> None:
    try:
        rank = len(bijector.inverse_event_shape(tf.TensorShape(value.shape)).as_list())
        free = bijector.inverse(tf.constant(value, dtype))
        back = bijector.forward(tf.identity(free)).numpy()
        bijector.forward_log_det_jacobian(tf.identity(free), event_ndims=rank)
    except Exception as error:
        raise ValueError(
            f"`bijectors[{name!r}]` cannot be applied to `{start}`, of shape {value.shape} and "
            f"dtype {dtype.name}. {_first_lines(error)}"
        ) from error
    good = np.isfinite(free.numpy()).all() and back.shape == value.shape
    if not (good and np.allclose(back, value, rtol=1e-2, atol=1e-4)):
        raise ValueError(
            f"`{start}` must start inside the range of its bijector {bijector.name!r}; "
            f"{value.tolist()!r} is not."
        )


def try_model(model: Model, data: Data, rows: int, starts: list[np.ndarray]) -> dict[str, float]:
    """Evaluate the model and its gradient once at every start, on the first rows of the data.

    Returns:
        What the functions gave at the first start: log-likelihood, log-prior, and the length of
        the gradient.

    Raises:
        TypeError, ValueError: what a function of the user's does wrong, in words.
    """
    minibatch = {name: tf.convert_to_tensor(a) for name, a in data.rows(np.arange(rows)).items()}
    scale = data.size / rows

    def trial(position: tf.Tensor, minibatch: Tensors) -> dict[str, tf.Tensor]:
        terms = _try_terms(model, model.constrain(position), minibatch)
        missing = model.layout.names
        if any(tf.is_tensor(term) for term in terms.values()):
            missing = tuple(model.missing_gradients(position, minibatch))
        if missing:
            raise ValueError(
                f"`log_lik` does not depend on the parameter {missing[0]!r}, and neither does "
                "`log_prior` (the gradient is None). Use it, or take it out of `params`."
            )
        return {
            **{name: tf.convert_to_tensor(term, model.dtype) for name, term in terms.items()},
            "log_post": model.log_post(position, minibatch, scale),
            "gradient": model.gradient(position, minibatch, scale),
        }

    tried = trace(trial, tf.constant(starts[0]), minibatch)
    found: list[dict[str, np.ndarray]] = []
    for number, start in enumerate(starts):
        label = "params" if len(starts) == 1 else f"params[{number}]"
        try:
            values = tried(tf.constant(start), minibatch)
        except tf.errors.OpError as error:
            raise ValueError(
                f"`log_lik` or `log_prior` failed when it was run. {_first_lines(error)}"
            ) from error
        found.append({name: value.numpy() for name, value in values.items()})
        _need_finite(label, model.layout, found[-1])
    gradient = found[0].pop("gradient")
    terms = {name: float(value) for name, value in found[0].items()}
    return {**terms, "the length of the gradient": float(np.linalg.norm(gradient))}


def _try_terms(model: Model, params: Tensors, minibatch: Tensors) -> dict[str, Any]:
    """Return what the user's log-likelihood and log-prior give."""
    shapes = ", ".join(f"{k!r} {shape}" for k, shape in model.user_layout.shapes.items())
    given = f"params {shapes}"
    rows = ", ".join(f"{k!r} {tuple(v.shape)}" for k, v in minibatch.items())
    terms = {
        "log_lik": _call(
            "log_lik",
            model,
            model.log_lik,
            f"{given}; dataset {rows}",
            params=params,
            dataset=minibatch,
        )
    }
    if model.log_prior is not None:
        terms["log_prior"] = _call("log_prior", model, model.log_prior, given, params=params)
    for argument, returned in terms.items():
        tensor = _as_tensor(argument, returned, "a scalar tensor")
        if tensor.shape != ():
            raise ValueError(
                f"`{argument}` must return a scalar; it returned a tensor of shape "
                f"{tensor.shape}. Sum it with tf.reduce_sum. It was called with {given}"
                + (f"; dataset {rows}." if argument == "log_lik" else ".")
            )
        if getattr(returned, "dtype", model.dtype) != model.dtype:
            raise TypeError(
                f"`{argument}` returned {tensor.dtype.name}, but the chain runs in "
                f"{model.dtype.name}. Declare constants with tf.constant(..., dtype=tf."
                f"{model.dtype.name}), or choose the `dtype` of the sampler."
            )
    return terms


def _call(
    argument: str, model: Model, function: Callable[..., Any], given: str, **inputs: Tensors
) -> Any:
    """Return what a function of the user's returns, or explain its error."""
    wanted = " and ".join(f"`{name}`" for name in inputs)
    with contextlib.suppress(ValueError):  # some builtins do not tell their arguments
        try:
            inspect.signature(function).bind(*inputs.values())
        except TypeError as error:
            raise TypeError(
                f"`{argument}` must be a function of {wanted}, called with {len(inputs)} argument"
                f"{'s' * (len(inputs) > 1)}; it cannot be: {error}."
            ) from None
    try:
        return function(*(dict(tensors) for tensors in inputs.values()))
    except Exception as error:
        raise _explain(argument, given, error, model.dtype) from error


def _as_tensor(argument: str, returned: Any, what: str) -> tf.Tensor:
    """Return what a function of the user's returned, as a tensor of numbers."""
    if returned is None:
        raise TypeError(f"`{argument}` returned None; it must return {what}. Is `return` missing?")
    try:
        tensor = tf.convert_to_tensor(returned)
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.dtype == tf.string:
        raise TypeError(f"`{argument}` must return {what}; it returned {describe(returned)}.")
    return tensor


def _explain(argument: str, given: str, error: Exception, dtype: tf.DType) -> Exception:
    text = _first_lines(error)
    if _DTYPE_CLASH.search(str(error)):
        return TypeError(
            f"`{argument}` mixes dtypes; params and dataset are {dtype.name} (a tf.Tensor in "
            f"`dataset` keeps its own dtype). Declare constants with tf.constant(..., dtype=tf."
            f"{dtype.name}) and convert with tf.cast. TensorFlow says: {text}"
        )
    if _PYTHON_CONTROL.search(str(error)):
        return TypeError(
            f"`{argument}` lets Python branch or loop on the value of a tensor, which is not known "
            "yet when the chain is compiled. Use tf.where or tf.cond, tf.map_fn or sums instead."
        )
    if "symbolic" in str(error) and "numpy" in str(error).lower():
        return TypeError(
            f"`{argument}` must be written in TensorFlow (tf.math.log, not np.log). {text}"
        )
    return ValueError(f"`{argument}` failed when it was tried. It was called with {given}. {text}")


def _first_lines(error: Exception) -> str:
    """Return the beginning of an error; TensorFlow's can fill a screen."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    text = f"{type(error).__name__}: {message}".split("\n\n")[0]
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _need_finite(label: str, layout: Layout, values: Mapping[str, np.ndarray]) -> None:
    for argument in ("log_lik", "log_prior", "log_post"):
        value = values.get(argument, np.float32(0.0))
        what = "the log posterior" if argument == "log_post" else f"`{argument}`"
        if not np.isfinite(value):
            raise ValueError(
                f"{what} is {value} at the starting values in `{label}`; start where it is finite."
            )
    gradient = values["gradient"]
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
    shapes = ", ".join(f"{k!r} {shape}" for k, shape in model.user_layout.shapes.items())
    values = {}
    for name, function in functions.items():
        label = f"test_functions[{name!r}]"

        def trial(position: tf.Tensor, label: str = label, function: Any = function) -> tf.Tensor:
            params = model.constrain(position)
            returned = _call(label, model, function, f"params {shapes}", params=params)
            return _as_tensor(label, returned, "a tensor")

        try:
            values[name] = trace(trial, tf.constant(start))(tf.constant(start)).numpy()
        except tf.errors.OpError as error:
            raise ValueError(f"`{label}` failed when it was run. {_first_lines(error)}") from error
    return values


def try_reductions(
    reductions: Mapping[str, Reduction], model: Model, start: np.ndarray
) -> dict[str, Reduction]:
    """Return the reductions, once each has taken a first step at the start.

    Raises:
        TypeError, ValueError: what a reduction does wrong, in words.
    """
    for name, reduction in reductions.items():
        label = f"reductions[{name!r}]"
        try:
            trace(_reduction_trial(label, reduction, model), tf.constant(start))(tf.constant(start))
        except tf.errors.OpError as error:
            raise ValueError(f"`{label}` failed when it was run. {_first_lines(error)}") from error
    return dict(reductions)


def _reduction_trial(label: str, fold: Reduction, model: Model) -> Callable[[tf.Tensor], Any]:
    """Return a function of the position that takes a reduction's first step."""

    def trial(position: tf.Tensor) -> Any:
        params = model.constrain(position)
        try:
            state = fold.start(dict(params), model.dtype)
            after = fold.update(state, dict(params))
            result = fold.result(state)
        except Exception as error:
            raise _explain(label, f"params {list(params)}", error, model.dtype) from error
        if not isinstance(result, tf.Tensor | dict):
            raise TypeError(
                f"`{label}` must result in a tensor or a dict of tensors; it is {describe(result)}."
            )
        before, now = (_structure(value) for value in (state, after))
        if before != now:
            raise ValueError(
                f"`{label}`: `update` must return a state like the one it was given. It was "
                f"given {before} and returned {now}."
            )
        return result

    return trial


def _structure(state: Any) -> str:
    """Return shapes and dtypes of a state, in words."""
    if isinstance(state, Mapping):
        return ", ".join(f"{name!r} {_structure(state[name])}" for name in sorted(state))
    if not tf.is_tensor(state):
        return describe(state)
    return f"{tuple(state.shape)} {state.dtype.name}"
