"""Runs the user's model once, and test functions and reductions, before anything else runs."""

from __future__ import annotations

import functools
import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Data, Minibatch, Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.gradients.latents import Latents
from sgmcmc.graphs.tracing import begin_call, trace
from sgmcmc.graphs.user_functions import as_tensor, call, explain, first_lines, need_sum
from sgmcmc.inputs.silent_mistakes import (
    Complete,
    refuse_silent_mistakes,
    rows_from_everywhere,
)
from sgmcmc.inputs.slopes import Evaluate, check_slopes
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target

_MOST = 64  # number of models kept

_COMPARED_ROWS = 512  # rows by which models are compared

Functions = tuple[Callable[..., Any] | None, ...]

_contents: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_of_data: weakref.WeakKeyDictionary[Data, list[tuple[list[Callable[[], Any]], bool]]]
_of_data = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Tried:
    """A model, which an earlier call may have tried already.

    The same are: the same functions with the same dataset, as a call comes by them more than once;
    and functions of the same code that made the same graph, on the same rows. What draws random
    numbers makes another graph each time.

    Args:
        functions: User's functions.
        data: Dataset.
        graph: Graph of the functions on some rows.
        columns: Rows on which it is tried, nested.
        in_parts: Whether the dataset is read in parts, which needs more.
    """

    def __init__(
        self, functions: Functions, data: Data, graph: Any, columns: Any, in_parts: bool
    ) -> None:
        self._functions, self._data, self._graph = functions, data, graph
        self._in_parts = in_parts
        self._content: tuple[Any, ...] | None = None
        codes = [_code(function) for function in functions]
        if None not in codes:
            self._content = (id(graph), tuple(codes), _digest(columns), in_parts)

    @property
    def before(self) -> bool:
        """Whether the functions were tried on the dataset before."""
        with _lock:
            for references, in_parts in _of_data.get(self._data, ()):
                pairs = zip(references, self._functions, strict=True)
                if in_parts >= self._in_parts and all(a() is b for a, b in pairs):
                    return True
            return self._content is not None and self._content in _contents

    def remember(self) -> None:
        """Record it as one that was."""
        with _lock:
            references = [_reference(function) for function in self._functions]
            _of_data.setdefault(self._data, []).append((references, self._in_parts))
            if self._content is not None:
                _contents[self._content] = (
                    self._graph
                )  # as long as it lives none else has its id
                if len(_contents) > _MOST:
                    _contents.popitem(last=False)


def _reference(function: Callable[..., Any] | None) -> Callable[[], Any]:
    try:
        return weakref.ref(function) if function is not None else lambda: None
    except TypeError:  # there are no weak references to some objects
        return object


def _code(function: Callable[..., Any] | None) -> CodeType | str | None:
    """Return the code of a function, or ``None`` if it is unknown."""
    if function is None:
        return "none"
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _digest(columns: Any) -> bytes:
    digest = hashlib.sha256()
    for tensor in tf.nest.flatten(columns, expand_composites=True):
        array = np.ascontiguousarray(
            tensor.numpy()[:_COMPARED_ROWS] if tensor.shape.rank else tensor
        )
        digest.update(f"{tensor.shape} {array.dtype}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.digest()


def dry_run(
    target: Target,
    data: Data,
    rows: int,
    starts: list[np.ndarray],
    latents: Latents | None,
    with_terms: bool,
    in_parts: bool | None = None,
    corrected: bool = False,
) -> dict[str, float]:
    """Evaluate the model and its gradient at every start, on the first rows of the data.

    A model that was not tried before is evaluated near the first start, too, and on other rows.

    Args:
        target: Log posterior.
        data: Dataset.
        rows: Number of rows, n.
        starts: Starting positions.
        latents: Function that draws latent variables; ``None`` if there are none.
        with_terms: Whether the terms of single observations will be needed.
        in_parts: Whether the dataset will be read in parts; by default unless these rows are all.
        corrected: Whether moves will be accepted or rejected by values, so that gradients may be
            wrong.

    Returns:
        Values of the functions at the first start: log-likelihood, log-prior, and the length of the
        gradient.

    Raises:
        TypeError, ValueError: A user's function is wrong; the message explains how.
    """
    begin_call()
    columns = data.rows(np.arange(rows))
    # Ready models say more than a trial can, such as that labels should be numbered from zero.
    check_rows = getattr(target.log_lik, "check_rows", None)
    if check_rows is not None:
        check_rows(columns)
    evaluated = partial(_evaluated, target, latents, data.size / rows, with_terms)
    graph = trace(evaluated, tf.constant(starts[0]), columns)
    values_at_starts: list[dict[str, np.ndarray]] = []
    for number, start in enumerate(starts):
        label = "params" if len(starts) == 1 else f"params[{number}]"
        values_at_starts.append(_run(graph, start, columns, latents is not None))
        _need_finite(label, target.space.layout, values_at_starts[-1], columns)
        _need_suitable_slopes(
            target,
            values_at_starts[-1]["gradient"],
            values_at_starts[-1].pop("nearer", None),
        )
    in_parts = rows < data.size if in_parts is None else in_parts
    gibbs = None if latents is None else latents.gibbs
    trial_rows = columns
    if rows < data.size and latents is None:
        trial_rows = data.rows(rows_from_everywhere(data.size, rows))
    functions = (target.log_lik, target.log_prior, gibbs)
    tried = Tried(
        functions, data, graph, {"first": columns, "some": trial_rows}, in_parts
    )
    if not tried.before:
        refuse_silent_mistakes(
            target, data, rows, starts[0], _completer(target, latents), in_parts
        )
        if latents is None:
            _need_finite_with(graph, starts[0], target.space.layout, data, columns)
            evaluate = _evaluator(graph, trial_rows)
            check_slopes(
                target, trial_rows, data.size / rows, starts[0], evaluate, corrected
            )
        tried.remember()
    for values in values_at_starts if with_terms else ():
        need_sum(
            float(values["log_lik"]),
            values.pop("terms"),
            ". Let it return one term for each "
            "observation, a tensor of shape (n,), or use uniform minibatches.",
        )
    gradient = values_at_starts[0].pop("gradient")
    numbers = {name: float(value) for name, value in values_at_starts[0].items()}
    return {**numbers, "the length of the gradient": float(np.linalg.norm(gradient))}


def _evaluated(
    target: Target,
    latents: Latents | None,
    weight: float,
    with_terms: bool,
    position: tf.Tensor,
    columns: Tensors,
) -> dict[str, tf.Tensor]:
    """Return the model's values and its gradient at a position, in a graph."""
    params = target.space.constrain(position)
    if latents is not None:
        columns = _try_gibbs(target, latents, params, columns)
    values = _try_values(target, params, columns)
    missing = list(target.space.layout.names)
    if any(tf.is_tensor(value) for value in values.values()):
        missing = target.missing_gradients(position, columns)
    _need_free_prior(target, position)
    if missing:
        raise ValueError(
            f"`log_lik` does not depend on the parameter {missing[0]!r}, and neither does "
            "`log_prior` (the gradient is None). Use it, or remove it from `params`."
        )
    minibatch = Minibatch(columns, weight)
    returned = {
        **{
            name: tf.convert_to_tensor(value, target.dtype)
            for name, value in values.items()
        },
        "log_post": target.log_post(position, minibatch),
        "gradient": target.shared.gradient(position, minibatch),
    }
    if target.space.limits(target.space.differentiated(position)[1]) is not None:
        returned["nearer"] = target.nearer().gradient(position, minibatch)
    if with_terms:
        returned["terms"] = _try_terms(target, params, columns)
    return returned


def _run(
    graph: Any, start: np.ndarray, columns: Tensors, with_gibbs: bool
) -> dict[str, np.ndarray]:
    try:
        values = graph(tf.constant(start), columns)
    except tf.errors.OpError as error:
        functions = (
            "`gibbs`, `log_lik` or `log_prior`"
            if with_gibbs
            else "`log_lik` or `log_prior`"
        )
        raise ValueError(
            f"{functions} failed when it was run. {first_lines(error)}"
        ) from error
    return {name: value.numpy() for name, value in values.items()}


def _evaluator(graph: Any, columns: Tensors) -> Evaluate:
    """Return a function that evaluates the model at a position: NaN where functions fail."""
    cache: dict[bytes, tuple[float, np.ndarray, float]] = {}

    def evaluate(position: np.ndarray) -> tuple[float, np.ndarray, float]:
        key = position.tobytes()
        if key not in cache:
            try:
                values = graph(tf.constant(position, graph.inputs[0].dtype), columns)
                value, likelihood = float(values["log_post"]), float(values["log_lik"])
                cache[key] = value, values["gradient"].numpy(), likelihood
            except tf.errors.OpError:  # functions may check their numbers by themselves
                cache[key] = np.nan, np.full(len(position), np.nan), np.nan
        return cache[key]

    return evaluate


def _need_finite_with(
    graph: Any, start: np.ndarray, layout: Layout, data: Data, columns: Tensors
) -> None:
    """Raise an error if the model is not finite on rows that hold an infinite number."""
    rows = next(iter(columns.values())).shape[0]
    infinite = infinite_rows(data)[:rows]
    if not infinite.size or infinite[-1] < rows:  # which were evaluated already
        return
    finite = np.setdiff1d(np.arange(min(data.size, 2 * rows)), infinite)[
        : rows - infinite.size
    ]
    chosen = np.concatenate([infinite, finite])
    if len(chosen) == rows:
        some_columns = data.rows(chosen)
        _need_finite(
            "params",
            layout,
            _run(graph, start, some_columns, False),
            some_columns,
            chosen,
        )


def infinite_rows(data: Data) -> np.ndarray:
    """Return the numbers of rows that hold an infinite number, of entries in memory, in order."""
    infinite = [np.empty(0, int)]
    for column in data.columns.values():
        if (
            isinstance(column, ArrayColumn)
            and column.array.dtype.kind == "f"
            and data.size
        ):
            array = column.array
            if array.size and (np.isinf(array.min()) or np.isinf(array.max())):
                infinite.append(
                    np.flatnonzero(np.isinf(array.reshape(len(array), -1)).any(1))
                )
    return np.unique(np.concatenate(infinite))


def _completer(target: Target, latents: Latents | None) -> Complete | None:
    if latents is None:
        return None
    return lambda params, columns: _try_gibbs(target, latents, params, columns)


def _try_values(target: Target, params: Tensors, columns: Tensors) -> dict[str, Any]:
    """Return the values of the user's log-likelihood and log-prior."""
    shapes = ", ".join(
        f"{k!r} {shape}" for k, shape in target.space.user_layout.shapes.items()
    )
    described_params = f"params {shapes}"
    rows = ", ".join(f"{k!r} {tuple(v.shape)}" for k, v in columns.items())
    size = next(iter(columns.values())).shape[0]
    returned = {
        "log_lik": call(
            "log_lik",
            target.dtype,
            target.log_lik,
            f"{described_params}; dataset {rows}",
            params=params,
            dataset=columns,
        )
    }
    if target.log_prior is not None:
        returned["log_prior"] = call(
            "log_prior", target.dtype, target.log_prior, described_params, params=params
        )
    for argument, value in returned.items():
        is_likelihood = argument == "log_lik"
        tensor = as_tensor(argument, value, "a scalar tensor")
        if tensor.shape != () and not (is_likelihood and tensor.shape == (size,)):
            terms = (
                f", or one term for each of the {size} observations"
                if is_likelihood
                else ""
            )
            raise ValueError(
                f"`{argument}` must return a scalar{terms}; it returned a tensor of shape "
                f"{tensor.shape}. Sum it with tf.reduce_sum. It was called with {described_params}"
                + (f"; dataset {rows}." if is_likelihood else ".")
            )
        if getattr(value, "dtype", target.dtype) != target.dtype:
            raise TypeError(
                f"`{argument}` returned {tensor.dtype.name}, but the chain runs in "
                f"{target.dtype.name}. Declare constants with tf.constant(..., dtype=tf."
                f"{target.dtype.name}), or choose the `dtype` of the sampler."
            )
    if tf.is_tensor(returned["log_lik"]):
        returned["log_lik"] = tf.reduce_sum(returned["log_lik"])
    return returned


def _try_terms(target: Target, params: Tensors, columns: Tensors) -> tf.Tensor:
    """Return the terms of single observations."""
    try:
        return target.terms(params, columns)
    except Exception as error:
        raise ValueError(
            "`log_lik` was asked for the terms of single observations, by being called with one at "
            "a time, and failed. Let it return them: a tensor of shape (n,) in place of its sum. "
            f"{first_lines(error)}"
        ) from error


def _try_gibbs(
    target: Target, latents: Latents, params: Tensors, columns: Tensors
) -> Tensors:
    """Return the minibatch that ``gibbs`` completed."""
    rows = next(iter(columns.values())).shape[0]
    latent_values = {
        name: tf.constant(values[:rows]) for name, values in latents.starts.items()
    }
    minibatch = {**columns, **latent_values}
    shapes = ", ".join(f"{k!r} {tuple(v.shape)}" for k, v in minibatch.items())
    returned = call(
        "gibbs",
        target.dtype,
        latents.gibbs,
        f"params {list(params)}; dataset {shapes}",
        params=params,
        dataset=minibatch,
        seed=tf.constant([0, 1]),
    )
    if not isinstance(returned, Mapping):
        raise TypeError(
            "`gibbs` must return the minibatch, a dict of tensors, with the latent variables added "
            f"to it; it returned {describe(returned)}."
        )
    completed = {
        **minibatch,
        **{
            k: v
            if isinstance(v, tf.SparseTensor)
            else as_tensor("gibbs", v, "a dict of tensors")
            for k, v in returned.items()
        },
    }
    for name, value in latent_values.items():
        after = completed[name]
        if after.shape != value.shape:
            raise ValueError(
                f"`gibbs` must return {name!r}, which `latents` keeps, in the shape "
                f"{tuple(value.shape)}; it returned {tuple(after.shape)}."
            )
        if after.dtype.is_floating and not value.dtype.is_floating:
            raise TypeError(
                f"`latents[{name!r}]` holds integers, and `gibbs` returned {after.dtype.name} for "
                "it. Start it with floats, or return integers."
            )
    return completed


def _need_free_prior(target: Target, position: tf.Tensor) -> None:
    """Raise an error if the user's prior depends on parameters whose geometry includes one."""
    log_prior = target.log_prior
    if log_prior is None:
        return
    params = target.space.constrain(position)
    for name, geometry in target.space.geometries.items():
        if geometry.prior_included:
            geometry.check_prior(name, params, log_prior)


def _need_suitable_slopes(
    target: Target, gradient: np.ndarray, nearer: np.ndarray | None
) -> None:
    """Raise an error if the gradient shows that a likelihood is not valid for a geometry."""
    geometries, layout = target.space.geometries, target.space.layout
    for name, slope in layout.split(gradient).items():
        geometries[name].check_slope(name, slope)
    if nearer is not None:
        slopes, nearer_slopes = layout.split(gradient), layout.split(nearer)
        for name, geometry in geometries.items():
            geometry.check_limit(name, slopes[name], nearer_slopes[name])


def _need_finite(
    label: str,
    layout: Layout,
    values: Mapping[str, np.ndarray],
    columns: Tensors,
    rows: np.ndarray | None = None,
) -> None:
    """Raise an error if values or gradient are not finite.

    Args:
        label: Name of the start.
        layout: Places of the parameters.
        values: Values and gradient.
        columns: Rows on which they were computed.
        rows: Numbers of these rows; ``None`` for the first ones.
    """
    blame = _infinite_entry(columns, rows)
    for argument in ("log_lik", "log_prior", "log_post"):
        value = values.get(argument, np.float32(0.0))
        what = "the log posterior" if argument == "log_post" else f"`{argument}`"
        if not np.isfinite(value):
            if blame and argument != "log_prior":
                raise ValueError(
                    f"{blame}, and {what} is {value} on these rows. {_MEND_DATA}"
                )
            raise ValueError(
                f"{what} is {value} at the starting values in `{label}`; start where it is finite."
            )
    gradient = values["gradient"]
    bad = np.flatnonzero(~np.isfinite(gradient))
    if not bad.size:
        return
    name, slope = layout.parameter_at(int(bad[0])), gradient[bad[0]]
    if blame:
        raise ValueError(
            f"{blame}, and the gradient of the log posterior with respect to {name!r} is {slope} "
            f"on these rows. {_MEND_DATA}"
        )
    advice = "start where it is finite."
    if np.isnan(slope):
        advice = (
            "the value is finite there. Either start elsewhere, or look for a tf.where: where the "
            "branch that is not chosen has a derivative that is not finite, the gradient is NaN. "
            "Give that branch an argument that is safe: tf.where(x > 0, tf.math.log(tf.where(x > "
            "0, x, 1.0)), 0.0)."
        )
    raise ValueError(
        f"`{label}`: the gradient of the log posterior with respect to {name!r} is {slope} at the "
        f"starting values; {advice}"
    )


_MEND_DATA = (
    "Replace infinite numbers, or have the function leave them out, by tf.where with arguments "
    "that are finite in both branches."
)


def _infinite_entry(columns: Tensors, rows: np.ndarray | None) -> str:
    """Return the place of the first infinite number in some columns; nothing if there is none."""
    for name, column in columns.items():
        dense = column.values if isinstance(column, tf.SparseTensor) else column
        if not dense.dtype.is_floating:
            continue
        indices = np.argwhere(np.isinf(dense.numpy()))
        if indices.size:
            index = [int(k) for k in indices[0]]
            if isinstance(column, tf.SparseTensor):
                index = [int(k) for k in column.indices[index[0]]]
            if rows is not None:
                index[0] = int(rows[index[0]])
            written = ", ".join(map(str, index))
            return f"`dataset[{name!r}]` holds an infinite number, first at index {written}"
    return ""


def try_test_functions(
    functions: Mapping[str, Callable[[Tensors], Any]], target: Target, start: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the value of each test function at the start."""
    shapes = ", ".join(
        f"{k!r} {shape}" for k, shape in target.space.user_layout.shapes.items()
    )
    values = {}
    for name, function in functions.items():
        label = f"test_functions[{name!r}]"

        def trial(
            position: tf.Tensor, label: str = label, function: Any = function
        ) -> tf.Tensor:
            params = target.space.constrain(position)
            returned = call(
                label, target.dtype, function, f"params {shapes}", params=params
            )
            return as_tensor(label, returned, "a tensor")

        try:
            values[name] = trace(trial, tf.constant(start))(tf.constant(start)).numpy()
        except tf.errors.OpError as error:
            raise ValueError(
                f"`{label}` failed when it was run. {first_lines(error)}"
            ) from error
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
            trace(_first_fold(label, reduction, target), tf.constant(start))(
                tf.constant(start)
            )
        except tf.errors.OpError as error:
            raise ValueError(
                f"`{label}` failed when it was run. {first_lines(error)}"
            ) from error
    return dict(reductions)


def _first_fold(
    label: str, fold: Reduction, target: Target
) -> Callable[[tf.Tensor], Any]:
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
            raise explain(
                label, f"params {list(params)}", error, target.dtype
            ) from error
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
        return ", ".join(
            f"{name!r} {_structure(state[name])}" for name in sorted(state)
        )
    if not tf.is_tensor(state):
        return describe(state)
    return f"{tuple(state.shape)} {state.dtype.name}"
