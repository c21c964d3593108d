"""Trials of models of other libraries: is the log-likelihood a sum, and the prior without rows?

A minibatch stands for all rows only if each row has a density of its own. So the density of a row
must be the same whatever other rows come with it, how many, and in which order; and the log prior
must be the same for any rows. Both are tried at several positions, since a dependence can be hidden
at one of them, as by a coefficient that starts at zero, and on rows from everywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Tensors

_ROWS = 24
"""Number of rows that densities are tried on."""

_MOVES = (1.0, 0.3, 0.1, 0.01, 1e-3)
"""Distances of positions from the start, in units of one and of the unconstrained coordinates."""

_POSITIONS = 3
"""Number of positions next to the start."""

_CLOSE = {tf.float64: (1e-9, 1e-9)}
"""Relative and absolute difference of equal densities, by dtype."""

_CLOSE_SINGLE = (1e-4, 1e-5)


class Model(Protocol):
    """Densities that are tried, as :class:`sgmcmc.neighbours.models.Model` has them."""

    dataset: dict[str, Any]
    params: dict[str, Any]
    bijectors: dict[str, Any]
    dtype: tf.DType
    N: int

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log density of each row, (n,)."""


def positions(model: Model, seed: int = 0) -> Iterator[Tensors]:
    """Yield the start, and positions around it in the unconstrained space."""
    rng = np.random.default_rng(seed)
    start = {name: tf.constant(value, model.dtype) for name, value in model.params.items()}
    yield start
    for move in _MOVES:
        moved = {}
        for name, value in start.items():
            bijector = model.bijectors.get(name)
            # TFP keeps pairs of inputs and outputs by identity: the copy has none.
            u = value if bijector is None else bijector.inverse(tf.identity(value))
            step = move * rng.normal(size=u.shape) * (1.0 + np.minimum(np.abs(u), 1e3))
            u = u + tf.constant(step, model.dtype)
            moved[name] = u if bijector is None else bijector.forward(u)
        yield moved


def close(values: Any, expected: Any, dtype: tf.DType) -> bool:
    """Return whether densities are the same up to rounding; NaN is the same as NaN."""
    relative, absolute = _CLOSE.get(dtype, _CLOSE_SINGLE)
    values, expected = np.asarray(values), np.asarray(expected)
    if values.shape != expected.shape:
        return False
    return np.allclose(values, expected, rtol=relative, atol=absolute, equal_nan=True)


def rows_for_trial(dataset: Mapping[str, Any], size: int) -> np.ndarray:
    """Return rows from everywhere, with the smallest and largest integer of each column."""
    rng = np.random.default_rng(1)
    chosen = [0, size - 1]
    for column in dataset.values():
        values = np.asarray(column)
        if values.dtype.kind in "iu" and values.size:
            flat = values.reshape(len(values), -1)
            chosen += [int(flat.min(axis=1).argmin()), int(flat.max(axis=1).argmax())]
    chosen += rng.choice(size, min(size, _ROWS), replace=False).tolist()
    return np.array(list(dict.fromkeys(chosen)))


def some_of(dataset: Mapping[str, Any], places: np.ndarray) -> dict[str, Any]:
    """Return some rows of a dataset, as tensors."""
    return {
        name: tf.convert_to_tensor(np.asarray(values)[places]) for name, values in dataset.items()
    }


def refuse_dependent_rows(model: Model, observed: Mapping[str, str]) -> None:
    """Refuse rows whose density depends on other rows.

    Args:
        model: Model.
        observed: Names of the observed variables by their columns.

    Raises:
        ValueError: Rows depend on each other.
    """
    rng = np.random.default_rng(2)
    places = rows_for_trial(model.dataset, model.N)
    count = len(places)
    columns = some_of(model.dataset, places)
    first = next(iter(observed.values()), "model")
    orders = [rng.permutation(count), np.sort(rng.choice(count, max(1, count // 2), replace=False))]
    tried = 0
    for params in positions(model):
        terms = log_density_of_rows(model, params, columns)
        if terms.shape != (count,):
            reason = f"for {count} rows the density has the shape {terms.shape}"
            raise ValueError(dependent(first, reason))
        if tried and not np.isfinite(terms).any():
            continue
        for order in orders:
            subset = {name: tf.gather(values, order) for name, values in columns.items()}
            if not close(log_density_of_rows(model, params, subset), terms[order], model.dtype):
                reason = "without the others, or in another order, a row has another density"
                raise ValueError(dependent(first, reason))
        for column, name in observed.items():
            half = rng.permutation(count)[: max(2, count // 2)]
            same = np.setdiff1d(np.arange(count), half)
            changed = columns[column].numpy().copy()
            changed[half] = changed[np.roll(half, 1)]
            other = {**columns, column: tf.constant(changed)}
            if not close(
                log_density_of_rows(model, params, other)[same], terms[same], model.dtype
            ):
                reason = "the density of a row changes with another row"
                raise ValueError(dependent(name, reason))
        tried += 1
        if tried > _POSITIONS:
            return


def log_density_of_rows(model: Model, params: Tensors, columns: Tensors) -> np.ndarray:
    """Return the log density of each row, computed on the CPU, where bad indices are errors."""
    with indices_explained(model.dataset):
        return np.asarray(model.log_lik(params, columns))


@contextlib.contextmanager
def indices_explained(columns: Mapping[str, Any]) -> Iterator[None]:
    """Compute on the CPU, and explain errors of operations by the ranges of integer columns."""
    try:
        with tf.device("CPU:0"):
            yield
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            "`data`: the log density of some rows cannot be computed: "
            f"{error.message.splitlines()[0]} If an index is out of range: the integers of these "
            f"columns are {_ranges(columns)}; groups are counted from 0, and each needs an element "
            "in the variable that it indexes."
        ) from error


def _ranges(dataset: Mapping[str, Any]) -> str:
    """Return the range of each column of integers, as text."""
    integers = {n: np.asarray(c) for n, c in dataset.items() if np.asarray(c).dtype.kind in "iu"}
    return ", ".join(f"{n!r} {c.min()} to {c.max()}" for n, c in integers.items()) or "none"


def depends_on_count(
    model: Model, made_with: Callable[[np.ndarray], Callable[[Tensors], Any]], refusal: str
) -> bool:
    """Return whether a log prior depends on the number of rows, and refuse one of their values.

    Args:
        model: Model, whose ``params`` hold all variables.
        made_with: Function of the numbers of rows that returns the log prior as these rows make it.
        refusal: Message.

    Raises:
        ValueError: It depends on the values of rows.
    """
    rng = np.random.default_rng(3)
    few = [made_with(rng.integers(model.N, size=size)) for size in (7, 12)]
    whole, again = made_with(np.arange(model.N)), None
    counts, tried = False, 0
    for params in positions(model):
        expected = np.asarray(whole(params))
        if tried and not np.isfinite(expected):
            continue
        if not all(close(prior(params), expected, model.dtype) for prior in few):
            counts = True
            again = again or made_with(rng.integers(model.N, size=model.N))
            if not close(again(params), expected, model.dtype):
                raise ValueError(refusal)
        tried += 1
        if tried > _POSITIONS:
            break
    return counts


def dependent(name: str, reason: str) -> str:
    """Return the message about rows that depend on each other."""
    return (
        f"`rows`: the rows of {name!r} are not independent given the parameters: {reason}. A "
        "log-likelihood that is no sum over rows cannot be estimated from minibatches."
    )
