"""Functions written in JAX as functions of TensorFlow: their jaxprs, equation by equation.

Equations that call other jaxprs, such as loops and branches, are here; all others are in
``jax_operations``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc import checks, libraries
from sgmcmc.bridges.jax_operations import RULES, Equation, Rule

_ROWS = "rows"  # name of the length of the first axis, if it is not known while a graph is traced


# Parameters of the primitives that call another jaxpr once
_INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def from_jax(function: Callable[..., Any]) -> JaxFunction:
    """Return a function written in JAX as one of TensorFlow.

    The function is traced by JAX, and each primitive becomes operations of TensorFlow, so that XLA
    compiles it with the chain. Derivatives of any order are those of JAX, ``jax.custom_jvp`` and
    ``jax.custom_vjp`` included.

    Args:
        function: Function of dicts of arrays, in JAX: ``log_lik(params, dataset)``,
            ``log_prior(params)``, or the ``f(params, dataset)`` of ``samples.predict`` and
            ``samples.export``. It must not draw random numbers.

    Returns:
        The same function of tensors, wherever a function of TensorFlow is expected.

    Raises:
        ImportError: JAX is not installed.
        ValueError: The function uses something of JAX that has no counterpart; said when it is
            called.

    Example:
        >>> import jax.numpy as jnp, numpy as np, sgmcmc  # doctest: +SKIP
        >>> X = np.random.default_rng(1).normal(size=(500, 10))  # doctest: +SKIP
        >>> y = (X[:, 0] > 0).astype(np.float32)  # doctest: +SKIP
        >>> def log_lik(params, dataset):  # doctest: +SKIP
        ...     logits = dataset["X"] @ params["beta"]
        ...     return dataset["y"] * logits - jnp.logaddexp(0.0, logits)
        >>> def log_prior(params):  # doctest: +SKIP
        ...     return -0.5 * jnp.sum(params["beta"] ** 2)
        >>> samples = sgmcmc.sample(  # doctest: +SKIP
        ...     sgmcmc.from_jax(log_lik), {"X": X, "y": y}, {"beta": np.zeros(10)},
        ...     sgmcmc.from_jax(log_prior))

    Source:
        Frostig, Johnson & Leary, *Compiling machine learning programs via high-level tracing*,
        SysML 2018.
    """
    checks.function("function", function, "of arrays of JAX")
    jax()
    return JaxFunction(function)


def jax() -> ModuleType:
    """Return JAX, which only its users need."""
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise ImportError(
            "Models in JAX, NumPyro and PyMC need JAX, which is not installed: "
            "pip install 'sgmcmc[jax]'."
        ) from error


class JaxFunction:
    """A function of tensors that JAX has traced, as :func:`sgmcmc.from_jax` returns it.

    Args:
        function: Function in JAX.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._traced: dict[Any, Any] = {}

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "_traced": {}}

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *arguments: Any) -> Any:
        """Return the value, a tensor or a structure of them.

        Args:
            arguments: Arguments of the function, in which arrays are tensors.
        """
        tree = jax().tree_util
        leaves, structure = tree.tree_flatten(arguments)
        if any(isinstance(leaf, tf.SparseTensor) for leaf in leaves):
            raise ValueError(
                "a sparse column has no counterpart in JAX; pass a dense one"
            )
        tensors = [tf.convert_to_tensor(leaf) for leaf in leaves]
        wide = any(t.dtype in (tf.float64, tf.complex128) for t in tensors)
        if not wide:
            tensors = [
                tf.cast(t, tf.int32) if t.dtype == tf.int64 else t for t in tensors
            ]
        output_structures: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            outputs = self.function(*tree.tree_unflatten(structure, list(leaves)))
            output_leaves, output_structure = tree.tree_flatten(outputs)
            output_structures.append(output_structure)
            return output_leaves

        with in_precision(wide):
            outputs = self._run(flat, tensors, (structure, wide), output_structures)
        output_structure = self._traced[structure, wide, _form(tensors)][1]
        return tree.tree_unflatten(output_structure, outputs)

    def _run(
        self,
        flat: Callable[..., list[Any]],
        tensors: Sequence[tf.Tensor],
        key: Any,
        output_structures: list[Any],
    ) -> list[tf.Tensor]:
        """Return the outputs of a function of arrays, with derivatives by JAX.

        Args:
            flat: Function of arrays that returns a list of arrays.
            tensors: Inputs.
            key: What the jaxpr depends on beside dtypes and shapes.
            output_structures: Structures of the outputs, to which a trace of ``flat`` adds its own.
        """
        key = (*key, _form(tensors))
        if key not in self._traced:
            jaxpr = jax().make_jaxpr(flat)(*_specs(tensors))
            structure = output_structures[-1] if output_structures else None
            self._traced[key] = jaxpr, structure
        jaxpr = self._traced[key][0]
        smooth = [i for i, t in enumerate(tensors) if t.dtype.is_floating]

        def vector_jacobian(*arrays: Any) -> list[Any]:
            """Return the gradients, of the inputs and of the upstream gradients after them."""
            inputs = arrays[: len(tensors)]
            upstream = list(arrays[len(tensors) :])

            def of_smooth(*values: Any) -> list[Any]:
                all_inputs = list(inputs)
                for i, value in zip(smooth, values, strict=True):
                    all_inputs[i] = value
                issubdtype = jax().numpy.issubdtype
                outputs = flat(*all_inputs)
                return [out for out in outputs if issubdtype(out.dtype, np.floating)]

            _, pull_back = jax().vjp(of_smooth, *[inputs[i] for i in smooth])
            return list(pull_back(upstream))

        @tf.custom_gradient
        def run(*tensors: tf.Tensor) -> Any:
            wide = any(t.dtype == tf.float64 for t in tensors)
            values = replay(jaxpr, tensors, _lengths(tensors))
            outputs = []
            for value, var in zip(values, jaxpr.jaxpr.outvars, strict=True):
                static = [n if isinstance(n, int) else None for n in var.aval.shape]
                outputs.append(tf.ensure_shape(tf.convert_to_tensor(value), static))

            def gradient(*upstream: tf.Tensor, variables: Any = None) -> Any:
                pairs = zip(upstream, outputs, strict=True)
                of_smooth = [one for one, out in pairs if out.dtype.is_floating]
                with in_precision(wide):
                    gradients = self._run(
                        vector_jacobian, [*tensors, *of_smooth], (*key, "slope"), []
                    )
                by_input = dict(zip(smooth, gradients, strict=True))
                return [by_input.get(i) for i in range(len(tensors))]

            return outputs, gradient

        return list(run(*tensors))


def jax_bijector(
    name: str,
    forward: Callable[[Any], Any],
    inverse: Callable[[Any], Any],
    log_det: Callable[[Any], Any],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> Any:
    """Return a transform that is written in JAX as a bijector of TensorFlow Probability.

    Args:
        name: Name.
        forward: f(u), the parameter of an unconstrained array.
        inverse: f⁻¹(θ).
        log_det: log |det f'(u)|, a scalar.
        shapes: Shape of u, and of the parameter.
    """
    base: Any = libraries.tensorflow_probability().bijectors.Bijector
    free, bound = (tf.TensorShape(shape) for shape in shapes)
    ranks = (free.rank, bound.rank, free.rank)
    functions = [
        JaxFunction(_over_leading_axes(function, rank))
        for function, rank in zip((forward, inverse, log_det), ranks, strict=True)
    ]

    class Transform(base):
        """One parameter as a whole: all of its axes are its event."""

        def __init__(self) -> None:
            super().__init__(
                forward_min_event_ndims=free.rank,
                inverse_min_event_ndims=bound.rank,
                validate_args=False,
                name=name,
            )

        def _forward(self, x: Any) -> Any:
            return functions[0](x)

        def _inverse(self, y: Any) -> Any:
            return functions[1](y)

        def _forward_log_det_jacobian(self, x: Any) -> Any:
            return functions[2](x)

        def _inverse_log_det_jacobian(self, y: Any) -> Any:
            return -functions[2](functions[1](y))

        def _forward_event_shape(self, input_shape: Any) -> Any:
            return bound

        def _inverse_event_shape(self, output_shape: Any) -> Any:
            return free

    return Transform()


def _over_leading_axes(
    function: Callable[[Any], Any], rank: int
) -> Callable[[Any], Any]:
    """Return the function of one value, of so many axes, for arrays with more axes before them."""

    def of_all(x: Any) -> Any:
        mapped = function
        for _ in range(len(x.shape) - rank):
            mapped = jax().vmap(mapped)
        return mapped(x)

    return of_all


def _form(tensors: Sequence[tf.Tensor]) -> tuple[Any, ...]:
    """Return the dtypes and shapes on which a jaxpr depends."""
    return tuple((t.dtype, *t.shape) for t in tensors)


def _lengths(tensors: Sequence[tf.Tensor]) -> dict[str, Any]:
    """Return the number of rows, if it is unknown."""
    for tensor in tensors:
        if tensor.shape.rank and tensor.shape[0] is None:
            return {_ROWS: tf.shape(tensor)[0]}
    return {}


def _specs(tensors: Sequence[tf.Tensor]) -> list[Any]:
    for tensor in tensors:
        if tensor.shape.rank is None or None in tensor.shape[1:]:
            raise ValueError(
                f"JAX needs to know shapes but for the first axis; got {tensor.shape}"
            )
    rows = None
    if any(t.shape.rank and t.shape[0] is None for t in tensors):
        (rows,) = importlib.import_module("jax.export").symbolic_shape(_ROWS)
    specs = []
    for tensor in tensors:
        shape = [rows if length is None else length for length in tensor.shape]
        specs.append(jax().ShapeDtypeStruct(shape, tensor.dtype.as_numpy_dtype))
    return specs


@contextlib.contextmanager
def in_precision(wide: bool) -> Iterator[None]:
    """Let JAX compute in double precision, or in single, within the ``with`` block."""
    enable = getattr(jax(), "enable_x64", None)
    if not callable(enable):
        enable = importlib.import_module("jax.experimental").enable_x64
    with enable(wide), warnings.catch_warnings():
        # PyTensor writes float64 into its graphs, whatever precision JAX has.
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        yield


def replay(
    jaxpr: Any, inputs: Sequence[Any], lengths: Mapping[str, Any] | None = None
) -> list:
    """Return the outputs of a jaxpr as tensors, or as arrays if they are constants.

    JAX writes a function as a list of equations, its jaxpr, each of which applies a primitive to
    the results of those before. Here every equation becomes operations of TensorFlow, so that the
    function is compiled with the chain, batched, and fused with what surrounds it.

    Args:
        jaxpr: Jaxpr, closed or not.
        inputs: Value of each of its inputs.
        lengths: Lengths that are unknown while JAX traces, by their names.

    Raises:
        ValueError: A primitive has no counterpart, which is named.
    """
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    constants = dict(zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=True))
    values = {var: np.asarray(value) for var, value in constants.items()}
    values.update(zip(inner.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        is_literal = hasattr(atom, "val")
        return np.asarray(atom.val, atom.aval.dtype) if is_literal else values[atom]

    def size(length: Any) -> Any:
        is_static = isinstance(length, Integral)
        return int(length) if is_static else _length(length, lengths or {})

    def call(jaxpr: Any, *inputs: Any) -> list[Any]:
        return replay(jaxpr, inputs, lengths)

    for line in _used(inner):
        avals = [var.aval for var in line.outvars]
        shapes = [[size(n) for n in getattr(aval, "shape", ())] for aval in avals]
        dtypes = [getattr(aval, "dtype", None) for aval in avals]
        equation = Equation(line.primitive, line.params, shapes, dtypes, call)
        outputs = _apply(equation, [read(atom) for atom in line.invars])
        values.update(zip(line.outvars, outputs, strict=True))
    return [read(atom) for atom in inner.outvars]


def _used(jaxpr: Any) -> list[Any]:
    """Return the equations that the outputs of a jaxpr depend on, in order."""
    needed = {id(atom) for atom in jaxpr.outvars}
    equations = []
    for line in reversed(jaxpr.eqns):
        if any(id(var) in needed for var in line.outvars):
            equations.append(line)
            needed.update(id(atom) for atom in line.invars)
    return equations[::-1]


def _length(length: Any, lengths: Mapping[str, Any]) -> Any:
    """Return a length that has a name in JAX."""
    try:
        return lengths[str(length)]
    except KeyError:
        raise ValueError(
            f"the length {length} is a function of the number of rows, which is not known here"
        ) from None


def _apply(equation: Equation, inputs: list[Any]) -> list[Any]:
    name = equation.primitive.name
    if name in CALLS:
        return list(CALLS[name](equation, *inputs))
    rule = RULES.get(name)
    constant = all(isinstance(value, np.ndarray) for value in inputs)
    if rule is None:
        return _by_jax(equation, inputs, constant)
    largest = 4096  # elements of a result of constants that is computed in a trace
    are_small = all(
        all(isinstance(n, Integral) for n in shape) and math.prod(shape) <= largest
        for shape in equation.shapes
    )
    if constant and are_small:
        with tf.init_scope():
            outputs = rule(equation, *inputs)
            return [np.asarray(value) for value in as_list(outputs)]
    return as_list(rule(equation, *inputs))


def _by_jax(equation: Equation, inputs: list[Any], constant: bool) -> list[Any]:
    """Return the result of a primitive by JAX itself: of constants now, or by jax2tf.

    jax2tf passes on a module that is compiled separately, and only with operations of TensorFlow's
    StableHLO.
    """

    def bound(*inputs: Any) -> Any:
        return equation.primitive.bind(*inputs, **equation.params)

    if constant:
        return [np.asarray(value) for value in as_list(bound(*inputs))]
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
        return as_list(converted(*tensors))
    except Exception as error:
        raise ValueError(
            f"it uses the primitive {name!r} of JAX, which has no counterpart here; write that "
            "part in another way, or in TensorFlow"
        ) from error


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
        branch = branches[int(np.clip(index, 0, len(branches) - 1))]
        return equation.replay(branch, *inputs)

    def of(branch: Any) -> Callable[[], list[tf.Tensor]]:
        return lambda: as_tensors(equation.replay(branch, *inputs))

    index = tf.clip_by_value(tf.cast(index, tf.int32), 0, len(branches) - 1)
    return as_list(tf.switch_case(index, [of(branch) for branch in branches]))


def _while(equation: Equation, *inputs: Any) -> list[Any]:
    options = equation.params
    end_cond = options["cond_nconsts"]
    end_body = end_cond + options["body_nconsts"]
    of_cond, of_body = inputs[:end_cond], inputs[end_cond:end_body]

    def goes_on(*state: Any) -> Any:
        return equation.replay(options["cond_jaxpr"], *of_cond, *state)[0]

    def body(*state: Any) -> list[tf.Tensor]:
        return as_tensors(equation.replay(options["body_jaxpr"], *of_body, *state))

    start = as_tensors(inputs[end_body:])
    return list(tf.while_loop(goes_on, body, start, parallel_iterations=1))


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
        row = [tf.gather(column, i) for column in rows]
        outputs = as_tensors(equation.replay(jaxpr, *fixed, *carry, *row))
        pairs = zip(arrays, outputs[carries:], strict=True)
        written = [array.write(i, value) for array, value in pairs]
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
