"""Trials of models of other libraries: is the log-likelihood a sum, and the prior without rows?

A minibatch stands for all rows only if each row has a density of its own. So the density of a row
must be the same whatever other rows come with it, how many, and in which order; and the log prior
must be the same for any rows. Both are tried at several positions, since a dependence can be hidden
at one of them, as by a coefficient that starts at zero, and on rows from everywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.graphs.tracing import trace


@dataclass(frozen=True)
class Settings:
    """Settings of the trials of densities of other libraries."""

    rows: int = 24  # that densities are tried on
    # Distances of positions from the start, in units of one and of unconstrained coordinates
    distances: tuple[float, ...] = (1.0, 0.3, 0.1, 0.01, 1e-3)
    positions: int = 2  # next to the start
    group_positions: int = 2  # at which groups are tried, with the start
    prior_rows: int = 7  # that a prior is made with if it does not depend on them
    few_rows: int = 12  # with which a log prior must be that with all rows
    prior_draws: int = 32  # whose median is where chains start
    short_integer: int = 1000  # products of three do not wrap around
    # Relative and absolute difference of equal densities
    close_double: tuple[float, float] = (1e-9, 1e-9)
    close_single: tuple[float, float] = (1e-4, 1e-5)
    close_prior: tuple[float, float] = (1e-6, 1e-6)


SETTINGS = Settings()


class RowModel(Protocol):
    """Densities that are tried, as :class:`sgmcmc.bridges.models.ConvertedModel` has them."""

    dataset: dict[str, Any]
    params: dict[str, Any]
    bijectors: dict[str, Any]
    dtype: tf.DType
    N: int

    def log_lik(self, params: Tensors, dataset: Tensors) -> tf.Tensor:
        """Return the log density of each row, (n,)."""


def positions(model: RowModel, seed: int = 0) -> Iterator[Tensors]:
    """Yield the start, and positions around it in the unconstrained space."""
    rng = np.random.default_rng(seed)
    start = {
        name: tf.constant(value, model.dtype) for name, value in model.params.items()
    }
    yield start
    for distance in SETTINGS.distances:
        position = {}
        for name, value in start.items():
            bijector = model.bijectors.get(name)
            # TFP keeps pairs of inputs and outputs by identity: the copy has none.
            u = value if bijector is None else bijector.inverse(tf.identity(value))
            sizes = 1.0 + np.minimum(np.abs(u), 1e3)
            step = distance * rng.normal(size=u.shape) * sizes
            u = u + tf.constant(step, model.dtype)
            position[name] = u if bijector is None else bijector.forward(u)
        yield position


def close(values: Any, expected: Any, dtype: tf.DType) -> bool:
    """Return whether densities are the same up to rounding; NaN is the same as NaN.

    A density near zero may be a difference of numbers as large as the other densities.
    """
    is_double = dtype == tf.float64
    relative, absolute = SETTINGS.close_double if is_double else SETTINGS.close_single
    values, expected = np.asarray(values), np.asarray(expected)
    if values.shape != expected.shape:
        return False
    sizes = np.abs(expected[np.isfinite(expected)])
    absolute *= 1.0 + (float(sizes.mean()) if sizes.size else 0.0)
    return np.allclose(values, expected, rtol=relative, atol=absolute, equal_nan=True)


def rows_for_trial(dataset: Mapping[str, Any], size: int) -> np.ndarray:
    """Return rows from everywhere, with the smallest and largest integer of each column."""
    rng = np.random.default_rng(1)
    chosen = [0, size - 1]
    for column in dataset.values():
        values = np.asarray(column)
        if values.dtype.kind in "iu" and values.size:
            flat = values.reshape(len(values), -1)
            smallest, largest = flat.min(axis=1), flat.max(axis=1)
            chosen += [int(smallest.argmin()), int(largest.argmax())]
    chosen += rng.choice(size, min(size, SETTINGS.rows), replace=False).tolist()
    return np.array(list(dict.fromkeys(chosen)))


def some_of(dataset: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """Return some rows of a dataset, as tensors."""
    return {
        name: tf.convert_to_tensor(np.asarray(values)[rows])
        for name, values in dataset.items()
    }


def refuse_dependent_rows(
    model: RowModel, observed: Mapping[str, str]
) -> list[Tensors]:
    """Refuse rows whose density depends on other rows.

    Args:
        model: Model.
        observed: Names of the observed variables by their columns.

    Returns:
        The positions where they were tried: the start, and others with finite densities.

    Raises:
        ValueError: Rows depend on each other.
    """
    rng = np.random.default_rng(2)
    rows = rows_for_trial(model.dataset, model.N)
    count = len(rows)
    columns = some_of(model.dataset, rows)
    first = next(iter(observed.values()), "model")
    half = rng.choice(count, max(1, count // 2), replace=False)
    orders = {
        "without the others": np.sort(half),
        "in another order": rng.permutation(count),
    }
    log_lik = by_shape(model.log_lik)
    tried: list[Tensors] = []
    for params in positions(model):
        terms = log_density_of_rows(log_lik, params, columns, model.dataset)
        if terms.shape != (count,):
            reason = f"for {count} rows the density has the shape {terms.shape}"
            raise ValueError(dependent(first, reason))
        if tried and not np.isfinite(terms).any():
            continue
        for condition, order in orders.items():
            subset = {name: tf.gather(a, order) for name, a in columns.items()}
            alone = log_density_of_rows(log_lik, params, subset, model.dataset)
            if not close(alone, terms[order], model.dtype):
                reason = f"{condition}, a row has another density"
                raise ValueError(dependent(first, reason))
        for column, name in observed.items():
            replaced = rng.permutation(count)[: max(2, count // 2)]
            same = np.setdiff1d(np.arange(count), replaced)
            changed = columns[column].numpy().copy()
            changed[replaced] = changed[np.roll(replaced, 1)]
            with_replaced = {**columns, column: tf.constant(changed)}
            changed_terms = log_density_of_rows(
                log_lik, params, with_replaced, model.dataset
            )
            if not close(changed_terms[same], terms[same], model.dtype):
                reason = "the density of a row changes with another row"
                raise ValueError(dependent(name, reason))
        tried.append(params)
        if len(tried) > SETTINGS.positions:
            break
    return tried


def by_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of dicts of tensors that is compiled once for each of their shapes."""
    graphs: dict[Any, Any] = {}

    def compiled(*arguments: Any) -> Any:
        tensors = tf.nest.map_structure(
            tf.convert_to_tensor, [dict(argument) for argument in arguments]
        )
        form = str([(leaf.shape, leaf.dtype) for leaf in tf.nest.flatten(tensors)])
        if form not in graphs:
            graphs[form] = trace(function, *tensors)
        return graphs[form](*tensors)

    return compiled


def log_density_of_rows(
    log_lik: Callable[..., tf.Tensor], params: Tensors, columns: Tensors, dataset: Any
) -> np.ndarray:
    """Return the log density of each row, computed on the CPU, where bad indices are errors."""
    with indices_explained(dataset):
        return np.asarray(log_lik(params, columns))


@contextlib.contextmanager
def indices_explained(columns: Mapping[str, Any]) -> Iterator[None]:
    """Compute on the CPU, and explain errors of operations by the ranges of integer columns."""
    try:
        with tf.device("CPU:0"):
            yield
    except tf.errors.InvalidArgumentError as error:
        arrays = {name: np.asarray(column) for name, column in columns.items()}
        ranges = [
            f"{name!r} {array.min()} to {array.max()}"
            for name, array in arrays.items()
            if array.dtype.kind in "iu"
        ]
        raise ValueError(
            "`data`: the log density of some rows cannot be computed: "
            f"{error.message.splitlines()[0]} If an index is out of range: the integers of these "
            f"columns are {', '.join(ranges) or 'none'}; groups are counted from 0, and each needs "
            "an element in the variable that it indexes."
        ) from error


def depends_on_count(
    size: int,
    made_with: Callable[[np.ndarray], Callable[[Tensors], Any]],
    tried: Sequence[Tensors],
    refusal: str,
) -> bool:
    """Return whether a log prior depends on the number of rows, and refuse one of their values.

    Args:
        size: Number of rows, N.
        made_with: Function of the numbers of rows that returns the log prior as these rows make it.
        tried: Positions of all variables.
        refusal: Message.

    Raises:
        ValueError: It depends on the values of rows.
    """
    # One row many times: whatever a prior reads of all rows, it finds something else in it.
    row = int(np.random.default_rng(3).integers(size))

    def log_priors(rows: np.ndarray) -> np.ndarray:
        log_prior = by_shape(made_with(rows))
        return np.array([float(log_prior(params)) for params in tried])

    whole = log_priors(np.arange(size))
    relative, absolute = SETTINGS.close_prior

    def as_whole(values: np.ndarray) -> bool:
        return np.allclose(values, whole, relative, absolute, equal_nan=True)

    count = SETTINGS.few_rows
    if as_whole(log_priors(np.full(count if size != count else count + 1, row))):
        return False
    if not as_whole(log_priors(np.full(size, row))):
        raise ValueError(refusal)
    return True


def dependent(name: str, reason: str) -> str:
    """Return the message about rows that depend on each other."""
    return (
        f"`rows`: the rows of {name!r} are not independent given the parameters: {reason}. A "
        "log-likelihood that is no sum over rows cannot be estimated from minibatches."
    )
