"""Jaxprs as graphs of TensorFlow.

JAX writes a function as a list of equations, its jaxpr, each of which applies a primitive to the
results of those before. Here every equation becomes operations of TensorFlow, so that the function
is compiled with the chain, batched, and fused with what surrounds it. Derivatives are JAX's: they
are jaxprs too (:mod:`sgmcmc.neighbours.jax_functions`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.neighbours.jax_calls import CALLS
from sgmcmc.neighbours.jax_equations import Equation, as_tensors
from sgmcmc.neighbours.jax_operations import RULES

_FOLDED = 4096
"""The largest result of constants alone, in elements, that is computed while a graph is traced."""


def replay(jaxpr: Any, inputs: Sequence[Any], lengths: Mapping[str, Any] | None = None) -> list:
    """Return the outputs of a jaxpr as tensors, or as arrays if they are constants.

    Args:
        jaxpr: Jaxpr, closed or not.
        inputs: Value of each of its inputs.
        lengths: Lengths that are unknown while JAX traces, by their names.

    Raises:
        ValueError: A primitive has no counterpart, which is named.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    known = dict(zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=True))
    values = {var: np.asarray(value) for var, value in known.items()}
    values.update(zip(inner.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val, atom.aval.dtype) if hasattr(atom, "val") else values[atom]

    def size(length: Any) -> Any:
        return int(length) if isinstance(length, Integral) else _length(length, lengths or {})

    def again(jaxpr: Any, *inputs: Any) -> list[Any]:
        return replay(jaxpr, inputs, lengths)

    for line in _used(inner):
        outs = [var.aval for var in line.outvars]
        shapes = [[size(length) for length in getattr(aval, "shape", ())] for aval in outs]
        dtypes = [getattr(aval, "dtype", None) for aval in outs]
        equation = Equation(line.primitive, line.params, shapes, dtypes, again)
        found = _apply(equation, [read(atom) for atom in line.invars])
        values.update(zip(line.outvars, found, strict=True))
    return [read(atom) for atom in inner.outvars]


def _used(jaxpr: Any) -> list[Any]:
    """Return the equations that the outputs of a jaxpr depend on, in order."""
    needed = {id(atom) for atom in jaxpr.outvars}
    found = []
    for line in reversed(jaxpr.eqns):
        if any(id(var) in needed for var in line.outvars):
            found.append(line)
            needed.update(id(atom) for atom in line.invars)
    return found[::-1]


def _length(length: Any, lengths: Mapping[str, Any]) -> Any:
    """Return a length that JAX knows by a name."""
    try:
        return lengths[str(length)]
    except KeyError:
        raise ValueError(
            f"the length {length} is a function of the number of rows, which is not known here"
        ) from None


def _apply(equation: Equation, inputs: list[Any]) -> list[Any]:
    """Return the outputs of an equation."""
    name = equation.primitive.name
    rule = RULES.get(name)
    constant = all(isinstance(value, np.ndarray) for value in inputs)
    if rule is None:
        return _elsewhere(equation, inputs, constant)
    if name in CALLS:
        return list(rule(equation, *inputs))
    sizes = [math.prod(s) for s in equation.shapes if all(isinstance(n, Integral) for n in s)]
    if constant and len(sizes) == len(equation.shapes) and max(sizes, default=0) <= _FOLDED:
        with tf.init_scope():
            found = rule(equation, *inputs)
            return [np.asarray(value) for value in _as_list(found)]
    return _as_list(rule(equation, *inputs))


def _as_list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _elsewhere(equation: Equation, inputs: list[Any], constant: bool) -> list[Any]:
    """Return what JAX itself makes of a primitive: of constants now, or by jax2tf.

    jax2tf hands over a module that is compiled apart, and only what the StableHLO of TensorFlow
    knows.
    """

    def bound(*inputs: Any) -> Any:
        return equation.primitive.bind(*inputs, **equation.params)

    if constant:
        return [np.asarray(value) for value in _as_list(bound(*inputs))]
    name = equation.primitive.name
    if "random" in name or name == "threefry2x32":
        raise ValueError(f"it draws random numbers ({name}), so that it is no density")
    try:
        converted = importlib.import_module("jax.experimental.jax2tf").convert(
            bound, with_gradient=False
        )
        tensors = as_tensors(inputs)
        if all(tensor.shape.is_fully_defined() for tensor in tensors):
            with tf.init_scope():  # so that what cannot be compiled is found out now
                converted(*[tf.ones(tensor.shape, tensor.dtype) for tensor in tensors])
        return _as_list(converted(*tensors))
    except Exception as error:
        raise ValueError(
            f"it uses the primitive {name!r} of JAX, which has no counterpart here; write that "
            "part in another way, or in TensorFlow"
        ) from error
