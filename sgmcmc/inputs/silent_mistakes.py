"""Mistakes in the user's functions that raise no error, found before anything runs.

A chain runs all the same if a log-likelihood is no sum over the observations (a mean, an (n, 1)
set against an (n,), a prior within it) or draws random numbers, and its draws are wrong.

1. Each function is evaluated at the start, near it and farther away, on a few rows; the
   log-likelihood also on their two halves. It is in the graph twice, and the graph runs twice.
2. Values for the same arguments that differ are random numbers.
3. The change of the log-likelihood from one position to another must be the sum of its changes on
   the halves: what does not depend on the parameters counts as often as it likes.
4. If it is not, columns are reshaped, from (n, 1) to (n,) or back: if it is a sum then, the
   function broadcasts. If the change is the mean over the halves, the function is a mean.
5. Otherwise it is compared with the changes on single rows, unless the dataset is never read in
   parts: the error may be rounding alone, or a constant part such as the prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.data.sparse import RowSlices
from sgmcmc.graphs.tracing import trace
from sgmcmc.graphs.user_functions import is_sum
from sgmcmc.inputs.user_model import UserModel, row_count
from sgmcmc.interrupts import pass_on


@dataclass(frozen=True)
class _Settings:
    # Distances of the second position from the start, on the scale of one and of the coordinates:
    # the first of these at which the log-likelihood is finite is used.
    distances: tuple[float, ...] = (0.1, 0.01, 1e-3)
    # Distance of a third position, left out if the log-likelihood is not finite.
    far_distance: float = 0.7
    tolerance: float = 1e-3  # error of a sum, relative to the sizes of its terms
    rounding: float = 1e-5  # error relative to the values whose differences are summed
    trial_rows: int = 64  # what rows have in common is easier to see the fewer they are
    same_value: float = 1e-4  # relative difference of two values of one function


_SETTINGS = _Settings()


def refuse_silent_mistakes(model: UserModel, start: np.ndarray, in_parts: bool) -> None:
    """Raise an error if functions draw random numbers or `log_lik` is no sum over the rows.

    If the dataset is never read in parts, `log_lik` need not be a sum.

    Args:
        model: User's functions and data.
        start: Flat position.
        in_parts: Whether the dataset is read in parts.

    Raises:
        ValueError: A function is wrong; the message says how to correct it.
    """
    data = model.data
    size = min(data.size, _SETTINGS.trial_rows, max(2, model.rows))
    rows = rows_from_everywhere(data.size, size)
    if model.latents is not None:  # what `gibbs` completes belongs to the first rows
        rows = np.arange(size)
    columns = data.rows(rows)
    try:
        trial = Trial(model, start, columns)
    except Exception as error:  # it may be written for minibatches of n rows only
        pass_on(error)
        # It was evaluated on the first rows before: no error is expected.
        first_rows = data.rows(np.arange(model.rows))
        trial = Trial(model, start, first_rows, on_halves=False)
    for evaluated in trial.values:
        for name, values in evaluated.items():
            if name != "halves":
                _refuse_randomness(name, values)
    changes = trial.changes() if size > 1 else []
    for change in changes:
        if change.is_sum:
            continue
        _refuse_broadcasting(model, start, columns)
        if change.is_mean:
            raise ValueError(
                "`log_lik` must be a sum over the observations; it is a mean over them, or divides "
                f"by their number: on two halves of {sum(change.rows)} of them it is as large as "
                "on all. Write tf.reduce_sum for tf.reduce_mean, and neither divide by n nor "
                "multiply by N/n: the sampler scales minibatches."
            )
        if in_parts:
            by_row = trial.changes_by_row(change.number)
            _compare_with_single_rows(change, by_row)


class LogLikChange(NamedTuple):
    """Change of a log-likelihood from the start to another position.

    Attributes:
        number: Number of that position, from 1.
        whole: Change on all rows.
        halves: Changes on the first half of them, and on the rest.
        rows: Number of rows in the halves.
        rounding: Error that may be rounding.
    """

    number: int
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
        tolerance = _SETTINGS.tolerance
        allowed = tolerance * abs(self.whole) + self.rounding
        return is_sum(self.whole, self.halves, tolerance, allowed)

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean over the halves, which are not the same."""
        first, second = self.halves
        mean = (self.rows[0] * first + self.rows[1] * second) / sum(self.rows)
        return self.equals(mean) and not (self.equals(first) and self.equals(second))


class Trial:
    """Values of the user's functions at the start, and near it.

    Args:
        model: User's functions and data.
        start: Flat position.
        columns: Some rows.
        on_halves: Whether `log_lik` is evaluated on halves of the rows, too.

    Attributes:
        positions: Start and other positions.
        values: Values of each function at each of them.
    """

    def __init__(
        self,
        model: UserModel,
        start: np.ndarray,
        columns: Tensors,
        on_halves: bool = True,
    ) -> None:
        self._model = model
        self._columns = columns
        self._on_halves = on_halves
        self._graph = trace(self._values, tf.constant(start), columns)
        self.positions = [start]
        self.values = [self._values_at(start)]
        rng = np.random.default_rng(0)
        scale = 1.0 + np.abs(start)
        near, far = rng.standard_normal((2, start.size)) * scale
        self._add_position([distance * near for distance in _SETTINGS.distances])
        self._add_position([_SETTINGS.far_distance * far])

    def _add_position(self, displacements: list[np.ndarray]) -> None:
        """Add the first displaced position at which the log-likelihood is finite."""
        start = self.positions[0]
        for displacement in displacements:
            displaced = tf.constant((start + displacement).astype(start.dtype))
            position = self._model.target.space.retracted(displaced).numpy()
            try:
                values = self._values_at(position)
            except tf.errors.OpError:  # it checks its numbers by itself
                continue
            if np.isfinite(values["log_lik"]).all():
                self.positions.append(position)
                self.values.append(values)
                return

    def _values_at(self, position: np.ndarray) -> dict[str, list[Any]]:
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

    def _values(self, position: tf.Tensor, columns: Tensors) -> dict[str, Any]:
        """Return two values of each function, and the log-likelihood on halves, in a graph."""
        model, log_prior = self._model, self._model.target.log_prior
        params, minibatch = model.target.space.constrain(position), columns
        values: dict[str, Any] = {}
        if model.latents is not None:
            values["gibbs"] = [model.completed(params, columns) for _ in range(2)]
            columns = values["gibbs"][0]
        if log_prior is not None:
            values["log_prior"] = [
                tf.cast(log_prior(dict(params)), tf.float64) for _ in range(2)
            ]
        values["log_lik"] = [_log_lik(model, params, columns) for _ in range(2)]
        if not self._on_halves:
            return values
        try:
            if self._has_entry_per_row(params, minibatch, columns):
                rows, selection = row_count(minibatch), RowSlices(columns)
                middle = rows // 2
                values["halves"] = [
                    _log_lik(model, params, selection.rows(start, length))
                    for start, length in ((0, middle), (middle, rows - middle))
                ]
        except Exception as error:  # it may be written for minibatches of n rows only
            pass_on(error)
            values.pop("halves", None)
        return values

    def _has_entry_per_row(
        self, params: Tensors, minibatch: Tensors, columns: Tensors
    ) -> bool:
        """Return whether all that `gibbs` adds has one entry for each row."""
        if self._model.latents is None:
            return True
        rows = row_count(minibatch)
        middle = rows // 2
        fewer = self._model.completed(params, RowSlices(minibatch).rows(0, middle))
        return all(
            column.shape.rank
            and column.shape[0] == rows
            and fewer[name].shape[0] == middle
            for name, column in columns.items()
        )

    def changes(self) -> list[LogLikChange]:
        """Return the changes from the start to each other position, where they are known.

        Of halves that are finite at no position the changes are NaN: all rows together are finite,
        so that it is no sum.
        """
        if any("halves" not in values for values in self.values):
            return []
        start, *displaced = (
            np.array([values["log_lik"][0], *values["halves"]])
            for values in self.values
        )
        rows = row_count(self._columns)
        half = rows // 2
        changes = []
        for number, values in enumerate(displaced, 1):
            pair = np.stack([start, values])
            if np.isfinite(pair[:, 0]).all():
                with np.errstate(invalid="ignore"):
                    whole, first, second = (values - start).tolist()
                rounding = _SETTINGS.rounding * np.abs(pair[np.isfinite(pair)]).max()
                halves, sizes = (first, second), (half, rows - half)
                changes.append(LogLikChange(number, whole, halves, sizes, rounding))
        finite = [change for change in changes if np.isfinite(change.halves).all()]
        return finite or changes

    def changes_by_row(self, number: int) -> np.ndarray | None:
        """Return the changes of `log_lik` on single rows, (n,); ``None`` if it takes no such.

        Args:
            number: Number of the position to which it changes.
        """
        model = self._model

        def terms(position: tf.Tensor, columns: Tensors) -> tf.Tensor:
            params = model.target.space.constrain(position)
            if model.latents is not None:
                columns = model.completed(params, columns)
            selection = RowSlices(columns)
            return tf.map_fn(
                lambda row: _log_lik(model, params, selection.rows(row, 1)),
                tf.range(row_count(self._columns)),
                fn_output_signature=tf.float64,
            )

        start, end = self.positions[0], self.positions[number]
        try:
            graph = trace(terms, tf.constant(start), self._columns)
            before = graph(tf.constant(start), self._columns).numpy()
            after = graph(tf.constant(end), self._columns).numpy()
        except Exception as error:  # single rows may be too few for it
            pass_on(error)
            return None
        with np.errstate(invalid="ignore"):
            return after - before


def _log_lik(model: UserModel, params: Tensors, columns: Tensors) -> tf.Tensor:
    value = model.target.log_lik(dict(params), dict(columns))
    return tf.reduce_sum(tf.cast(value, tf.float64))


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
    third = -(-(count - first) // 3)
    middle = (size - third) // 2
    spread = min(size, 4 * count)
    rows = np.concatenate(
        [
            np.arange(first),
            np.arange(size - third, size),
            np.arange(middle, middle + third),
            np.random.default_rng(size).permutation(spread) * size // spread,
        ]
    )
    _, first_uses = np.unique(rows, return_index=True)
    return np.sort(rows[np.sort(first_uses)[:count]])


def _refuse_randomness(name: str, values: list[Any]) -> None:
    first, *others = values
    if name == "gibbs":
        for key, value in first.items():
            if not all(_equal(value, other[key]) for other in others):
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
    other = max(values, key=lambda value: abs(value - first))
    if abs(first - other) > _SETTINGS.same_value * max(abs(first), abs(other)):
        raise ValueError(
            f"`{name}` draws random numbers: for the same arguments it is {first:g}, and then "
            f"{other:g}. A chain needs a function of its arguments alone, and what NumPy draws "
            "would be drawn once and for all when the chain is compiled. Leave out tf.random and "
            "np.random, call networks with training=False so that there is no dropout, and draw "
            "latent variables in `gibbs`."
        )


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    if first.dtype.kind != "f":
        return bool((first == second).all())
    finite = np.isfinite(first)
    sizes = np.abs(first, where=finite, out=np.zeros_like(first))
    tolerance = _SETTINGS.same_value * float(sizes.max(initial=0.0))
    return np.allclose(first, second, rtol=0.0, atol=tolerance, equal_nan=True)


def _refuse_broadcasting(model: UserModel, start: np.ndarray, columns: Tensors) -> None:
    # One column at a time becomes a vector in place of an (n, 1), or the other way.
    dense = [
        (name, column)
        for name, column in columns.items()
        if not isinstance(column, tf.SparseTensor)
    ]
    reshaped = [
        (name, column[:, 0])
        for name, column in dense
        if column.shape.rank == 2 and column.shape[1] == 1
    ]
    reshaped += [
        (name, column[:, tf.newaxis])
        for name, column in dense
        if column.shape.rank == 1
    ]
    for name, column in reshaped:
        try:
            changes = Trial(model, start, {**columns, name: column}).changes()
        except Exception as error:  # in that shape the model makes no sense
            pass_on(error)
            continue
        if not changes or not all(change.is_sum for change in changes):
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


def _compare_with_single_rows(change: LogLikChange, by_row: np.ndarray | None) -> None:
    """Raise an error unless it is rounding alone by which `log_lik` is no sum.

    Args:
        change: LogLikChange that is not the sum over the halves.
        by_row: Changes on single rows, (n,); ``None`` if they are not known.
    """
    whole, halves = change.whole, change.halves
    advice = (
        "Look at the shapes in it: an (n, 1) set against an (n,) makes (n, n). Sum over the "
        "observations with tf.reduce_sum, and do not divide by their number."
    )
    if by_row is not None:
        if is_sum(whole, by_row, _SETTINGS.rounding, change.rounding):
            return
        constant = sum(halves) - whole
        if change.equals(by_row.sum() - (len(by_row) - 1) * constant):
            advice = (
                "A part of it is the same for any number of observations. If that is the prior, "
                "give it as `log_prior`; minibatches of n count N/n times."
            )
    raise ValueError(
        f"`log_lik` must be a sum over the observations. Near the start it changes by {whole:g} on "
        f"{sum(change.rows)} of them, and by {halves[0]:g} and {halves[1]:g} on the two halves of "
        f"these. {advice}"
    )
