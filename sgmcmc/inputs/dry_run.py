"""The trial of the user's functions, before anything else runs.

1. They are called, and errors in them are explained (`sgmcmc.inputs.user_model`).
2. Values and gradients must be finite: at each start, and on rows that hold infinite numbers.
3. Functions must not draw random numbers, and the log-likelihood must be a sum over the rows
   (`sgmcmc.inputs.silent_mistakes`).
4. Gradients must be those of the values (`sgmcmc.inputs.slopes`).

Steps 3 and 4 need further positions and rows, and are taken once for each model. Test functions
and reductions are called here, too. User-defined parts of samplers are tried in
`sgmcmc.inputs.part_checks`.
"""

from __future__ import annotations

import functools
import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe
from sgmcmc.data.dataset import ArrayColumn, Data, Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.graphs.tracing import begin_call, trace
from sgmcmc.graphs.user_functions import (
    as_tensor,
    call,
    explain,
    first_lines,
    need_sum,
)
from sgmcmc.inputs.silent_mistakes import refuse_silent_mistakes, rows_from_everywhere
from sgmcmc.inputs.slopes import check_slopes
from sgmcmc.inputs.user_model import UserModel, shapes_in_words
from sgmcmc.interrupts import pass_on
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class _Settings:
    models: int = 64  # that are remembered
    compared_rows: int = 512  # by which datasets are told apart


_SETTINGS = _Settings()


@dataclass(frozen=True)
class Demands:
    """Requirements of a sampler on the user's functions.

    Attributes:
        terms: Whether the terms of single observations are needed.
        in_parts: Whether the dataset is read in parts; ``None`` if a minibatch has fewer rows.
        corrected: Whether moves are accepted or rejected by values, so that gradients may be wrong.
    """

    terms: bool = False
    in_parts: bool | None = None
    corrected: bool = False


def dry_run(
    model: UserModel, starts: list[np.ndarray], demands: Demands
) -> dict[str, float]:
    """Evaluate the model and its gradient at every start, on the first rows of the data.

    A model that was not tried before is evaluated near the first start, too, and on other rows.

    Args:
        model: User's functions and data.
        starts: Starting positions.
        demands: What the sampler needs.

    Returns:
        Values of the functions at the first start: log-likelihood, log-prior, and the length of the
        gradient.

    Raises:
        TypeError, ValueError: A user's function is wrong; the message explains how.
    """
    begin_call()
    target, data = model.target, model.data
    first_rows = data.rows(np.arange(model.rows))
    # Ready models say more than a trial can, such as that labels should be numbered from zero.
    check_rows = getattr(target.log_lik, "check_rows", None)
    if check_rows is not None:
        check_rows(first_rows)
    evaluated = partial(model.evaluated, demands.terms)
    trial = _ModelGraph(model, trace(evaluated, tf.constant(starts[0]), first_rows))
    values_at_starts: list[dict[str, np.ndarray]] = []
    for number, start in enumerate(starts):
        values = trial.run(start, first_rows)
        label = "params" if len(starts) == 1 else f"params[{number}]"
        _need_finite(label, target.space.layout, values, _infinite_entry(first_rows))
        _check_geometries(target, values["gradient"], values.pop("nearer", None))
        values_at_starts.append(values)
    in_parts = model.rows < data.size if demands.in_parts is None else demands.in_parts
    trial_rows = first_rows
    if model.rows < data.size and model.latents is None:
        trial_rows = data.rows(rows_from_everywhere(data.size, model.rows))
    compared = {"first": first_rows, "some": trial_rows}
    tried = Tried(model.functions, data, trial.graph, compared, in_parts)
    if not tried.before:
        refuse_silent_mistakes(model, starts[0], in_parts)
        if model.latents is None:
            trial.need_finite_on_infinite_rows(starts[0])
            evaluate = trial.evaluator(trial_rows)
            check_slopes(model, trial_rows, starts[0], evaluate, demands.corrected)
        tried.remember()
    for values in values_at_starts if demands.terms else ():
        need_sum(
            float(values["log_lik"]),
            values.pop("terms"),
            ". Let it return one term for each "
            "observation, a tensor of shape (n,), or use uniform minibatches.",
        )
    gradient = values_at_starts[0].pop("gradient")
    numbers = {name: float(value) for name, value in values_at_starts[0].items()}
    return {**numbers, "the length of the gradient": float(np.linalg.norm(gradient))}


@dataclass
class _ModelGraph:
    """The graph of a model's values and gradient, run on some rows.

    Attributes:
        model: User's functions and data.
        graph: Graph.
    """

    model: UserModel
    graph: Any

    def run(self, position: np.ndarray, columns: Tensors) -> dict[str, np.ndarray]:
        """Return values and gradient at a position."""
        try:
            values = self.graph(tf.constant(position), columns)
        except tf.errors.OpError as error:
            functions = "`log_lik` or `log_prior`"
            if self.model.latents is not None:
                functions = f"`gibbs`, {functions}"
            raise ValueError(
                f"{functions} failed when it was run. {first_lines(error)}"
            ) from error
        return {name: value.numpy() for name, value in values.items()}

    def evaluator(
        self, columns: Tensors
    ) -> Callable[[np.ndarray], tuple[float, np.ndarray, float]]:
        """Return a function of a position, for `check_slopes`; NaN if functions fail there."""
        cache: dict[bytes, tuple[float, np.ndarray, float]] = {}
        dtype = self.graph.inputs[0].dtype

        def evaluate(position: np.ndarray) -> tuple[float, np.ndarray, float]:
            key = position.tobytes()
            if key in cache:
                return cache[key]
            try:
                values = self.graph(tf.constant(position, dtype), columns)
                value, likelihood = float(values["log_post"]), float(values["log_lik"])
                cache[key] = value, values["gradient"].numpy(), likelihood
            except tf.errors.OpError:  # functions may check their numbers by themselves
                cache[key] = np.nan, np.full(len(position), np.nan), np.nan
            return cache[key]

        return evaluate

    def need_finite_on_infinite_rows(self, start: np.ndarray) -> None:
        """Raise an error if the model is not finite on rows that hold an infinite number."""
        data, rows = self.model.data, self.model.rows
        infinite = infinite_rows(data)[:rows]
        if not infinite.size or infinite[-1] < rows:  # which were evaluated already
            return
        finite = np.setdiff1d(np.arange(min(data.size, 2 * rows)), infinite)
        chosen = np.concatenate([infinite, finite[: rows - infinite.size]])
        if len(chosen) < rows:
            return
        columns = data.rows(chosen)
        layout = self.model.target.space.layout
        blame = _infinite_entry(columns, chosen)
        _need_finite("params", layout, self.run(start, columns), blame)


def infinite_rows(data: Data) -> np.ndarray:
    """Return the numbers of rows that hold an infinite number, of entries in memory, in order."""
    infinite = [np.empty(0, int)]
    for column in data.columns.values():
        if not isinstance(column, ArrayColumn) or column.array.dtype.kind != "f":
            continue
        array = column.array
        if array.size and (np.isinf(array.min()) or np.isinf(array.max())):
            by_row = np.isinf(array.reshape(len(array), -1)).any(1)
            infinite.append(np.flatnonzero(by_row))
    return np.unique(np.concatenate(infinite))


def _check_geometries(
    target: Target, gradient: np.ndarray, nearer: np.ndarray | None
) -> None:
    """Raise an error if the gradient shows that a likelihood is not valid for a geometry."""
    geometries, layout = target.space.geometries, target.space.layout
    slopes = layout.split(gradient)
    for name, slope in slopes.items():
        geometries[name].check_slope(name, slope)
    if nearer is None:
        return
    nearer_slopes = layout.split(nearer)
    for name, geometry in geometries.items():
        geometry.check_limit(name, slopes[name], nearer_slopes[name])


def _need_finite(
    label: str, layout: Layout, values: Mapping[str, np.ndarray], blame: str
) -> None:
    """Raise an error if values or gradient are not finite.

    Args:
        label: Name of the start.
        layout: Layout of the parameters.
        values: Values and gradient.
        blame: Sentence about an infinite number in the rows; empty if there is none.
    """
    advice_on_data = (
        "Replace infinite numbers, or have the function leave them out, by tf.where with arguments "
        "that are finite in both branches."
    )
    for argument in ("log_lik", "log_prior", "log_post"):
        value = values.get(argument, np.float32(0.0))
        what = "the log posterior" if argument == "log_post" else f"`{argument}`"
        if np.isfinite(value):
            continue
        if blame and argument != "log_prior":
            raise ValueError(
                f"{blame}, and {what} is {value} on these rows. {advice_on_data}"
            )
        raise ValueError(
            f"{what} is {value} at the starting values in `{label}`; start where it is finite."
        )
    gradient = values["gradient"]
    bad = np.flatnonzero(~np.isfinite(gradient))
    if not bad.size:
        return
    name = layout.parameter_at(int(bad[0]))
    slope = gradient[bad[0]]
    if blame:
        raise ValueError(
            f"{blame}, and the gradient of the log posterior with respect to {name!r} is {slope} "
            f"on these rows. {advice_on_data}"
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


def _infinite_entry(columns: Tensors, rows: np.ndarray | None = None) -> str:
    """Return a sentence about the first infinite number in some columns, if there is one.

    Args:
        columns: Some rows.
        rows: Their numbers; ``None`` for the first ones.
    """
    for name, column in columns.items():
        dense = column.values if isinstance(column, tf.SparseTensor) else column
        if not dense.dtype.is_floating:
            continue
        indices = np.argwhere(np.isinf(dense.numpy()))
        if not indices.size:
            continue
        index = [int(k) for k in indices[0]]
        if isinstance(column, tf.SparseTensor):
            index = [int(k) for k in column.indices[index[0]]]
        if rows is not None:
            index[0] = int(rows[index[0]])
        written = ", ".join(map(str, index))
        return f"`dataset[{name!r}]` holds an infinite number, first at index {written}"
    return ""


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
        if None in codes:
            return
        digest = hashlib.sha256()
        for tensor in tf.nest.flatten(columns, expand_composites=True):
            rows = tensor.numpy()
            if tensor.shape.rank:
                rows = rows[: _SETTINGS.compared_rows]
            array = np.ascontiguousarray(rows)
            digest.update(f"{tensor.shape} {array.dtype}".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
        self._content = (id(graph), tuple(codes), digest.digest(), in_parts)

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
            references = list(map(_reference, self._functions))
            _of_data.setdefault(self._data, []).append((references, self._in_parts))
            if self._content is not None:
                # As long as the graph lives none else has its id.
                _contents[self._content] = self._graph
                if len(_contents) > _SETTINGS.models:
                    _contents.popitem(last=False)


def _reference(function: Callable[..., Any] | None) -> Callable[[], Any]:
    if function is None:
        return lambda: None
    try:
        return weakref.ref(function)
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


def try_test_functions(
    functions: Mapping[str, Callable[[Tensors], Any]], target: Target, start: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the value of each test function at the start."""
    of_params = f"params {shapes_in_words(target.space.user_layout.shapes)}"
    values = {}
    for name, function in functions.items():
        label = f"test_functions[{name!r}]"

        def trial(
            position: tf.Tensor, label: str = label, function: Any = function
        ) -> tf.Tensor:
            params = target.space.constrain(position)
            returned = call(label, target.dtype, function, of_params, params=params)
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
        first_fold = _first_fold(label, reduction, target)
        try:
            trace(first_fold, tf.constant(start))(tf.constant(start))
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
            pass_on(error)
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
