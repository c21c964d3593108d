"""Finds mistakes in the user's functions that raise no error, before anything runs.

A chain runs all the same if a log-likelihood is no sum over the observations (a mean, an (n, 1)
set against an (n,), a prior within it) or draws random numbers, and its draws are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Tensors
from sgmcmc.data.sparse import Parts
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class _Settings:
    # Distances of the second position from the start, on the scale of one and of the coordinates:
    # the first of these at which the log-likelihood is finite is used.
    distances: tuple[float, ...] = (0.1, 0.01, 1e-3)
    far_distance: float = (
        0.7  # of a third position, left out if the log-likelihood is not finite
    )
    tolerance: float = (
        1e-3  # largest error of a sum, relative to the sizes of its terms
    )
    trial_rows: int = 64  # what rows have in common is easier to see the fewer they are
    same_value: float = (
        1e-4  # largest relative difference of two values of one function
    )


_SETTINGS = _Settings()

ROUNDING = 1e-5
"""Largest error of it, relative to the values whose differences are summed."""

Complete = Callable[[Tensors, Tensors], Tensors]
"""Has the user's ``gibbs`` complete a minibatch."""


class Sums(NamedTuple):
    """Changes of a log-likelihood from one position to another.

    Attributes:
        whole: Value on all rows.
        halves: Values on the first half of them, and on the rest.
        rows: Number of rows in the halves.
        rounding: Part of this that may be rounding.
    """

    whole: float
    halves: tuple[float, float]
    rows: tuple[int, int]
    rounding: float

    def equals(self, change: float) -> bool:
        """Return whether the change over all rows is a certain number."""
        size = abs(self.whole) + sum(map(abs, self.halves))
        return abs(self.whole - change) <= _SETTINGS.tolerance * size + self.rounding

    @property
    def is_sum(self) -> bool:
        """Whether it is the sum over the halves."""
        return self.equals(sum(self.halves))

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean over the halves, which are not the same."""
        first, second = self.halves
        mean = (self.rows[0] * first + self.rows[1] * second) / sum(self.rows)
        return self.equals(mean) and not (self.equals(first) and self.equals(second))


class Trial:
    """Values of the user's functions at the start, and near it.

    Args:
        target: Log posterior.
        complete: Function that adds latent variables to a minibatch.
        start: Flat position.
        columns: Some rows.
        on_halves: Whether `log_lik` is evaluated on halves of the rows, too.
    """

    def __init__(
        self,
        target: Target,
        complete: Complete | None,
        start: np.ndarray,
        columns: Tensors,
        on_halves: bool = True,
    ) -> None:
        self.rows = next(iter(columns.values())).shape[0]
        self.positions = [start]
        self._columns = columns
        self._graph = trace(
            _values(target, complete, on_halves), tf.constant(start), columns
        )
        self.values = [self._at(start)]
        rng = np.random.default_rng(0)
        direction, far_direction = rng.standard_normal((2, start.size)) * (
            1.0 + np.abs(start)
        )
        attempts = [
            [displacement * direction for displacement in _SETTINGS.distances],
            [_SETTINGS.far_distance * far_direction],
        ]
        for displacements in attempts:
            for displacement in displacements:
                displaced = tf.constant((start + displacement).astype(start.dtype))
                position = target.space.retracted(displaced).numpy()
                try:
                    values = self._at(position)
                except tf.errors.OpError:  # it checks its numbers by itself
                    continue
                if np.isfinite(values["log_lik"]).all():
                    self.positions.append(position)
                    self.values.append(values)
                    break

    def _at(self, position: np.ndarray) -> dict[str, list[Any]]:
        """Return the values of each function at a position, which should all be the same.

        The graph has each function twice, for random numbers that are drawn when it is traced and
        operations with seeds of their own, and it is run twice: two values alone may be close to
        each other by chance.
        """
        runs = [self._graph(tf.constant(position), self._columns) for _ in range(2)]
        first, second = (
            tf.nest.map_structure(lambda tensor: tensor.numpy(), dict(run))
            for run in runs
        )
        return {
            name: values if name == "halves" else [*values, *second[name]]
            for name, values in first.items()
        }

    def sums(self) -> list[Sums]:
        """Return the changes from the start to each other position, where they are known."""
        if any("halves" not in values for values in self.values):
            return []
        start, *displaced = (
            np.array([values["log_lik"][0], *values["halves"]])
            for values in self.values
        )
        sums, half = [], self.rows // 2
        for changed in displaced:
            pair = np.stack([start, changed])
            if np.isfinite(pair).all():
                whole, *halves = (changed - start).tolist()
                rounding = ROUNDING * float(np.abs(pair).max())
                rows = (half, self.rows - half)
                sums.append(Sums(whole, (halves[0], halves[1]), rows, rounding))
        return sums


def _values(
    target: Target, complete: Complete | None, on_halves: bool
) -> Callable[..., dict[str, Any]]:
    def total(params: Tensors, columns: Tensors) -> tf.Tensor:
        return tf.reduce_sum(
            tf.cast(target.log_lik(dict(params), dict(columns)), tf.float64)
        )

    def evaluate(position: tf.Tensor, columns: Tensors) -> dict[str, Any]:
        params, minibatch = target.space.constrain(position), columns
        rows = next(iter(columns.values())).shape[0]
        values: dict[str, Any] = {}
        if complete is not None:
            values["gibbs"] = [complete(params, columns) for _ in range(2)]
            columns = values["gibbs"][0]
        if target.log_prior is not None:
            values["log_prior"] = [
                tf.cast(target.log_prior(dict(params)), tf.float64) for _ in range(2)
            ]
        values["log_lik"] = [total(params, columns) for _ in range(2)]
        try:
            if on_halves and _has_entry_per_row(complete, params, minibatch, columns):
                row_slices, middle = Parts(columns), rows // 2
                values["halves"] = [
                    total(params, row_slices.part(start, length))
                    for start, length in ((0, middle), (middle, rows - middle))
                ]
        except (
            Exception
        ) as error:  # it may be written for minibatches of n rows and no others
            pass_on(error)
            values.pop("halves", None)
        return values

    return evaluate


def _has_entry_per_row(
    complete: Complete | None, params: Tensors, minibatch: Tensors, columns: Tensors
) -> bool:
    if complete is None:
        return True
    rows = next(iter(minibatch.values())).shape[0]
    middle = rows // 2
    fewer = complete(params, Parts(minibatch).part(0, middle))
    return all(
        column.shape.rank and column.shape[0] == rows and fewer[name].shape[0] == middle
        for name, column in columns.items()
    )


def row_by_row(
    target: Target,
    complete: Complete | None,
    trial: Trial,
    columns: Tensors,
    number: int,
) -> np.ndarray | None:
    """Return the changes of `log_lik` on single rows, or ``None`` if there are none.

    Args:
        target: Log posterior.
        complete: Function that adds latent variables to a minibatch.
        trial: Trial.
        columns: Its rows.
        number: Number of the position, after the start, to which it changes.
    """

    def row_terms(position: tf.Tensor, columns: Tensors) -> tf.Tensor:
        params = target.space.constrain(position)
        if complete is not None:
            columns = complete(params, columns)

        row_slices = Parts(columns)

        def row_term(row: tf.Tensor) -> tf.Tensor:
            term = target.log_lik(dict(params), row_slices.part(row, 1))
            return tf.reduce_sum(tf.cast(term, tf.float64))

        return tf.map_fn(row_term, tf.range(trial.rows), fn_output_signature=tf.float64)

    try:
        graph = trace(row_terms, tf.constant(trial.positions[0]), columns)
        ends = (trial.positions[0], trial.positions[number])
        first, second = (graph(tf.constant(p), columns).numpy() for p in ends)
    except Exception as error:  # single rows may be too few for it
        pass_on(error)
        return None
    return second - first


def refuse_silent_mistakes(
    target: Target,
    data: Data,
    rows: int,
    start: np.ndarray,
    complete: Complete | None,
    in_parts: bool,
) -> None:
    """Raise an error if functions draw random numbers or `log_lik` is no sum over the rows.

    If the dataset is never read in parts, `log_lik` need not be a sum.

    Args:
        target: Log posterior.
        data: Dataset.
        rows: Number of rows, n.
        start: Flat position.
        complete: Function that adds latent variables to a minibatch; ``None`` if there are none.
        in_parts: Whether the dataset is read in parts.

    Raises:
        ValueError: A function is wrong; the message says how to correct it.
    """
    size = min(data.size, _SETTINGS.trial_rows, max(2, rows))
    # What `gibbs` completes belongs to the first rows.
    chosen = (
        np.arange(size)
        if complete is not None
        else rows_from_everywhere(data.size, size)
    )
    columns = data.rows(chosen)
    try:
        trial = Trial(target, complete, start, columns)
    except (
        Exception
    ) as error:  # it may be written for minibatches of n rows and no others
        pass_on(error)
        # It was evaluated on the first rows before: no error is expected.
        first_rows = data.rows(np.arange(rows))
        trial = Trial(target, complete, start, first_rows, on_halves=False)
    for evaluated in trial.values:
        for name, values in evaluated.items():
            if name != "halves":
                _refuse_randomness(name, values)
    changes = trial.sums() if size > 1 else []
    for number, sums in enumerate(changes, 1):
        if sums.is_sum:
            continue
        _refuse_broadcasting(target, complete, start, columns)
        if sums.is_mean:
            raise ValueError(_mean_message(sums))
        if in_parts:
            _refuse_no_sum(target, complete, trial, columns, sums, number)


def rows_from_everywhere(size: int, count: int) -> np.ndarray:
    """Return the numbers of some rows: the first ones, and then others from everywhere.

    The second half are the last rows, rows of the middle and random ones in equal parts, so that
    the halves differ.

    Args:
        size: Number of rows of the dataset.
        count: Number of rows to return, at most all.
    """
    if count >= size:
        return np.arange(size)
    first = count // 2
    share = -(-(count - first) // 3)
    middle = (size - share) // 2
    choices = [
        np.arange(first),
        np.arange(size - share, size),
        np.arange(middle, middle + share),
    ]
    spread = min(size, 4 * count)
    choices.append(np.random.default_rng(size).permutation(spread) * size // spread)
    rows = np.concatenate(choices)
    _, first_uses = np.unique(rows, return_index=True)
    return np.sort(rows[np.sort(first_uses)[:count]])


def _refuse_randomness(name: str, values: list[Any]) -> None:
    first = values[0]
    if name == "gibbs":
        for key, value in first.items():
            if not all(_equal(value, another[key]) for another in values[1:]):
                raise ValueError(
                    f"`gibbs` returns different values of {key!r} for the same arguments, seed "
                    "included. Random numbers must come from the seed that it receives, "
                    "tf.random.stateless_uniform(shape, seed=seed) and the like: those of "
                    "tf.random cannot be drawn again when a chain is resumed, and what NumPy "
                    "draws would be drawn once and for all when the chain is compiled."
                )
        return
    if not np.isfinite(values).all():
        return
    another = max(values, key=lambda value: abs(value - first))
    if abs(first - another) > _SETTINGS.same_value * max(abs(first), abs(another)):
        raise ValueError(
            f"`{name}` draws random numbers: for the same arguments it is {first:g}, and then "
            f"{another:g}. A chain needs a function of its arguments alone, and what NumPy draws "
            "would be drawn once and for all when the chain is compiled. Leave out tf.random and "
            "np.random, call networks with training=False so that there is no dropout, and draw "
            "latent variables in `gibbs`."
        )


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    if first.dtype.kind != "f":
        return bool((first == second).all())
    size = np.abs(first, where=np.isfinite(first), out=np.zeros_like(first)).max(
        initial=0.0
    )
    return np.allclose(
        first, second, rtol=0.0, atol=_SETTINGS.same_value * float(size), equal_nan=True
    )


def _refuse_broadcasting(
    target: Target, complete: Complete | None, start: np.ndarray, columns: Tensors
) -> None:
    for name, changed in _reshaped(columns):
        try:
            sums = Trial(target, complete, start, changed).sums()
        except Exception as error:  # in that shape the model makes no sense
            pass_on(error)
            continue
        if not sums or not all(change.is_sum for change in sums):
            continue
        if columns[name].shape.rank == 2:
            shape, advice = "(N, 1)", f"pass it as a vector, {name}[:, 0]"
        else:
            shape = "(N,), and `log_lik` sets it against an (n, 1)"
            advice = f"make that a vector, tf.squeeze(prediction, 1), or pass {name}[:, None]"
        raise ValueError(
            f"`log_lik` must be a sum over the observations; it sums over n × n pairs of them. "
            f"`dataset[{name!r}]` has the shape {shape}: an (n, 1) and an (n,) broadcast to "
            f"(n, n). Please {advice}."
        )


def _reshaped(columns: Tensors) -> Iterator[tuple[str, Tensors]]:
    """Yield the columns with one of them a vector in place of an (n, 1), or the other way."""
    dense = {
        name: c for name, c in columns.items() if not isinstance(c, tf.SparseTensor)
    }
    for name, column in dense.items():
        if column.shape.rank == 2 and column.shape[1] == 1:
            yield name, {**columns, name: column[:, 0]}
    for name, column in dense.items():
        if column.shape.rank == 1:
            yield name, {**columns, name: column[:, tf.newaxis]}


def _mean_message(sums: Sums) -> str:
    return (
        "`log_lik` must be a sum over the observations; it is a mean over them, or divides by "
        f"their number: on two halves of {sum(sums.rows)} of them it is as large as on all. Write "
        "tf.reduce_sum for tf.reduce_mean, and neither divide by n nor multiply by N/n: the "
        "sampler scales minibatches."
    )


def _refuse_no_sum(
    target: Target,
    complete: Complete | None,
    trial: Trial,
    columns: Tensors,
    sums: Sums,
    number: int,
) -> None:
    """Raise an error unless it is rounding alone by which `log_lik` is no sum."""
    whole, halves = sums.whole, sums.halves
    advice = (
        "Look at the shapes in it: an (n, 1) set against an (n,) makes (n, n). Sum over the "
        "observations with tf.reduce_sum, and do not divide by their number."
    )
    row_changes = row_by_row(target, complete, trial, columns, number)
    if row_changes is not None:
        if (
            abs(row_changes.sum() - whole)
            <= ROUNDING * np.abs(row_changes).sum() + sums.rounding
        ):
            return
        constant = sum(halves) - whole
        if sums.equals(row_changes.sum() - (len(row_changes) - 1) * constant):
            advice = (
                "A part of it is the same for any number of observations. If that is the prior, "
                "give it as `log_prior`; minibatches of n count N/n times."
            )
    raise ValueError(
        f"`log_lik` must be a sum over the observations. Near the start it changes by {whole:g} on "
        f"{sum(sums.rows)} of them, and by {halves[0]:g} and {halves[1]:g} on the two halves of "
        f"these. {advice}"
    )
