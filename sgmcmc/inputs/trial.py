"""Tries the user's functions near the start: each twice on the same rows, and on halves of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Tensors
from sgmcmc.data.sparse import Parts
from sgmcmc.graphs.tracing import trace
from sgmcmc.interrupts import pass_on
from sgmcmc.target.target import Target

_MOVES = (0.1, 0.01, 1e-3)
"""How far from the start the second position lies, on the scale of one and of the coordinates: the
first of these at which the log-likelihood is finite."""
_PART = 1e-3
"""How far a sum may be off, as a part of the sizes of what is summed."""
ROUNDING = 1e-5
"""How far it may be off as a part of the values whose differences are summed."""

Complete = Callable[[Tensors, Tensors], Tensors]
"""Has the user's ``gibbs`` complete a minibatch."""


class Sums(NamedTuple):
    """By how much a log-likelihood changes from one position to another.

    Attributes:
        whole: of all rows.
        halves: of the first half of them, and of the rest.
        rows: how many there are in the halves.
        rounding: what of this may be rounding.
    """

    whole: float
    halves: tuple[float, float]
    rows: tuple[int, int]
    rounding: float

    def equals(self, other: float) -> bool:
        """Tell whether the change over all rows is a certain number."""
        size = abs(self.whole) + sum(map(abs, self.halves))
        return abs(self.whole - other) <= _PART * size + self.rounding

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
    """What the user's functions give at the start, and near it.

    Args:
        target: the log posterior.
        complete: adds latent variables to a minibatch.
        start: a flat position.
        columns: some rows.
    """

    def __init__(
        self, target: Target, complete: Complete | None, start: np.ndarray, columns: Tensors
    ) -> None:
        self.rows = next(iter(columns.values())).shape[0]
        self.positions = [start]
        graph = trace(_values(target, complete), tf.constant(start), columns)
        # An operation with a seed of its own gives what another of that seed gives, but not twice.
        self.found = [self._numbers(graph(tf.constant(start), columns)) for _ in range(2)]
        draw = np.random.default_rng(0).standard_normal(start.size) * (1.0 + np.abs(start))
        for move in _MOVES:
            moved = tf.constant((start + move * draw).astype(start.dtype))
            position = target.space.retracted(moved).numpy()
            try:
                found = self._numbers(graph(tf.constant(position), columns))
            except tf.errors.OpError:  # it checks its numbers by itself
                continue
            if np.isfinite(found["log_lik"]).all():
                self.positions.append(position)
                self.found.append(found)
                return

    @property
    def repeated(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was found at the start, and once more."""
        return self.found[0], self.found[1]

    @staticmethod
    def _numbers(found: Mapping[str, Any]) -> dict[str, Any]:
        return tf.nest.map_structure(lambda tensor: tensor.numpy(), dict(found))

    def sums(self) -> Sums | None:
        """Return the changes between the positions, or ``None`` where there are none to be had."""
        found = self.found[1:]
        if len(found) < 2 or any("halves" not in each for each in found):
            return None
        values = [np.array([each["log_lik"][0], *each["halves"]]) for each in found]
        if not np.isfinite(values).all():
            return None
        whole, *halves = (values[1] - values[0]).tolist()
        first = self.rows // 2
        rounding = ROUNDING * float(np.abs(values).max())
        return Sums(whole, (halves[0], halves[1]), (first, self.rows - first), rounding)


def _values(target: Target, complete: Complete | None) -> Callable[..., dict[str, Any]]:
    """Return the function that evaluates the user's, each twice, and `log_lik` on halves."""

    def total(params: Tensors, columns: Tensors) -> tf.Tensor:
        return tf.reduce_sum(tf.cast(target.log_lik(dict(params), dict(columns)), tf.float64))

    def evaluate(position: tf.Tensor, columns: Tensors) -> dict[str, Any]:
        params, given = target.space.constrain(position), columns
        rows = next(iter(columns.values())).shape[0]
        found: dict[str, Any] = {}
        if complete is not None:
            found["gibbs"] = [complete(params, columns) for _ in range(2)]
            columns = found["gibbs"][0]
        if target.log_prior is not None:
            found["log_prior"] = [
                tf.cast(target.log_prior(dict(params)), tf.float64) for _ in range(2)
            ]
        found["log_lik"] = [total(params, columns) for _ in range(2)]
        try:
            if _of_rows(complete, params, given, columns):
                parts, half = Parts(columns), rows // 2
                found["halves"] = [
                    total(params, parts.part(start, length))
                    for start, length in ((0, half), (half, rows - half))
                ]
        except Exception as error:  # it may be written for minibatches of n rows and no others
            pass_on(error)
            found.pop("halves", None)
        return found

    return evaluate


def _of_rows(complete: Complete | None, params: Tensors, given: Tensors, columns: Tensors) -> bool:
    """Tell whether each tensor of a minibatch, as it was completed, has an entry for each row."""
    if complete is None:
        return True
    rows = next(iter(given.values())).shape[0]
    half = rows // 2
    fewer = complete(params, Parts(given).part(0, half))
    return all(
        column.shape.rank and column.shape[0] == rows and fewer[name].shape[0] == half
        for name, column in columns.items()
    )


def row_by_row(
    target: Target, complete: Complete | None, trial: Trial, columns: Tensors
) -> np.ndarray | None:
    """Return the changes of `log_lik` on single rows, or ``None`` where there are none."""

    def each(position: tf.Tensor, columns: Tensors) -> tf.Tensor:
        params = target.space.constrain(position)
        if complete is not None:
            columns = complete(params, columns)

        parts = Parts(columns)

        def one(row: tf.Tensor) -> tf.Tensor:
            found = target.log_lik(dict(params), parts.part(row, 1))
            return tf.reduce_sum(tf.cast(found, tf.float64))

        return tf.map_fn(one, tf.range(trial.rows), fn_output_signature=tf.float64)

    try:
        graph = trace(each, tf.constant(trial.positions[0]), columns)
        first, second = (graph(tf.constant(p), columns).numpy() for p in trial.positions)
    except Exception as error:  # single rows may be too few for it
        pass_on(error)
        return None
    return second - first
