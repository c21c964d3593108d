"""Equations of jaxprs, and those that call others: loops, branches, functions in functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Parameters of the primitives that call another jaxpr once
_INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class Equation(NamedTuple):
    """An equation of a jaxpr, less its inputs.

    Attributes:
        primitive: Primitive.
        params: Its parameters.
        shapes: Shape of each output; a length that is not known is a tensor.
        dtypes: Dtype of each output.
        replay: Function that computes another jaxpr from its inputs.
    """

    primitive: Any
    params: Mapping[str, Any]
    shapes: Sequence[list[Any]]
    dtypes: Sequence[Any]
    replay: Callable[..., list[Any]]


Rule = Callable[..., Any]


def equation_dtype(value: Any) -> np.dtype:
    """Return the dtype of a tensor or an array."""
    return np.dtype(
        value.dtype if isinstance(value, np.ndarray) else value.dtype.as_numpy_dtype
    )


def as_tensors(values: Sequence[Any]) -> list[tf.Tensor]:
    """Return tensors or arrays as tensors."""
    return [tf.convert_to_tensor(value) for value in values]


def as_list(outputs: Any) -> list[Any]:
    """Return one output, or several, as a list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def _call(equation: Equation, *inputs: Any) -> list[Any]:
    jaxpr = next(equation.params[name] for name in _INLINED if name in equation.params)
    return equation.replay(jaxpr, *inputs)


def _platform(equation: Equation, *_: Any) -> list[Any]:
    """Return the number of the branch for any platform, or that for the CPU."""
    platforms = equation.params["platforms"]
    default = [
        i for i, names in enumerate(platforms) if names is None or "cpu" in names
    ]
    return [np.asarray(default[0], np.int32)]


def _cond(equation: Equation, index: Any, *inputs: Any) -> list[Any]:
    branches = equation.params["branches"]
    if isinstance(index, np.ndarray):
        return equation.replay(
            branches[int(np.clip(index, 0, len(branches) - 1))], *inputs
        )

    def of(branch: Any) -> Callable[[], list[tf.Tensor]]:
        return lambda: as_tensors(equation.replay(branch, *inputs))

    index = tf.clip_by_value(tf.cast(index, tf.int32), 0, len(branches) - 1)
    return as_list(tf.switch_case(index, [of(branch) for branch in branches]))


def _while(equation: Equation, *inputs: Any) -> list[Any]:
    options = equation.params
    first, second = options["cond_nconsts"], options["body_nconsts"]
    of_cond, of_body = inputs[:first], inputs[first : first + second]
    return list(
        tf.while_loop(
            lambda *state: equation.replay(options["cond_jaxpr"], *of_cond, *state)[0],
            lambda *state: as_tensors(
                equation.replay(options["body_jaxpr"], *of_body, *state)
            ),
            as_tensors(inputs[first + second :]),
            parallel_iterations=1,
        )
    )


def _scan(equation: Equation, *inputs: Any) -> list[Any]:
    jaxpr, length = equation.params["jaxpr"], equation.params["length"]
    body = getattr(jaxpr, "jaxpr", jaxpr)
    # Inputs are constants, carries and columns; outputs are carries and columns, which have an axis
    # more than in the body.
    columns = sum(
        len(x.shape) > var.aval.ndim for x, var in zip(inputs, body.invars, strict=True)
    )
    carries = sum(
        len(shape) == var.aval.ndim
        for shape, var in zip(equation.shapes, body.outvars, strict=True)
    )
    constants = len(inputs) - columns - carries
    fixed, varying = inputs[:constants], as_tensors(inputs[constants:])
    start, rows = varying[:carries], varying[carries:]
    arrays = [
        tf.TensorArray(dtype, length, element_shape=shape[1:])
        for dtype, shape in zip(
            equation.dtypes[carries:], equation.shapes[carries:], strict=True
        )
    ]

    def step(count: tf.Tensor, carry: list[Any], arrays: list[Any]) -> Any:
        i = length - 1 - count if equation.params["reverse"] else count
        outputs = as_tensors(
            equation.replay(jaxpr, *fixed, *carry, *[tf.gather(r, i) for r in rows])
        )
        written = [
            a.write(i, value)
            for a, value in zip(arrays, outputs[carries:], strict=True)
        ]
        return count + 1, outputs[:carries], written

    _, carry, arrays = tf.while_loop(
        lambda count, *_: count < length,
        step,
        (tf.constant(0), start, arrays),
        parallel_iterations=1,
        maximum_iterations=length,
    )
    return [*carry, *[array.stack() for array in arrays]]


CALLS: dict[str, Rule] = {
    **dict.fromkeys(
        [
            "jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint",
            "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
        ],
        _call,
    ),
    "platform_index": _platform,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
}  # fmt: skip
"""Primitives that call other jaxprs."""
