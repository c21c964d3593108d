"""Tries the user's test functions and reductions once, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.minibatch import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.graphs.tracing import trace
from sgmcmc.graphs.user_functions import as_tensor, call, explain, first_lines
from sgmcmc.target.target import Target


def try_test_functions(
    functions: Mapping[str, Callable[[Tensors], Any]], target: Target, start: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the value of each test function at the start."""
    shapes = ", ".join(f"{k!r} {shape}" for k, shape in target.space.user_layout.shapes.items())
    values = {}
    for name, function in functions.items():
        label = f"test_functions[{name!r}]"

        def trial(position: tf.Tensor, label: str = label, function: Any = function) -> tf.Tensor:
            params = target.space.constrain(position)
            returned = call(label, target.dtype, function, f"params {shapes}", params=params)
            return as_tensor(label, returned, "a tensor")

        try:
            values[name] = trace(trial, tf.constant(start))(tf.constant(start)).numpy()
        except tf.errors.OpError as error:
            raise ValueError(f"`{label}` failed when it was run. {first_lines(error)}") from error
    return values


def try_reductions(
    reductions: Mapping[str, Reduction], target: Target, start: np.ndarray
) -> dict[str, Reduction]:
    """Return the reductions, after a first step of each at the start.

    Raises:
        TypeError, ValueError: A reduction is wrong; the message explains how.
    """
    for name, reduction in reductions.items():
        label = f"reductions[{name!r}]"
        try:
            trace(_first_fold(label, reduction, target), tf.constant(start))(tf.constant(start))
        except tf.errors.OpError as error:
            raise ValueError(f"`{label}` failed when it was run. {first_lines(error)}") from error
    return dict(reductions)


def _first_fold(label: str, fold: Reduction, target: Target) -> Callable[[tf.Tensor], Any]:
    """Return the first step of a reduction at a position, as a function to be traced.

    The reduction must not be an argument of that function, not even by default: TensorFlow would
    make tensors of the arrays in it, in their own dtype.
    """

    def trial(position: tf.Tensor) -> Any:
        params = target.space.constrain(position)
        try:
            state = fold.start(dict(params), target.dtype)
            after = fold.update(state, dict(params))
            result = fold.result(state)
        except Exception as error:
            raise explain(label, f"params {list(params)}", error, target.dtype) from error
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
