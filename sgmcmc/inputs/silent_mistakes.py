"""Finds mistakes in the user's functions that no error gives away, before anything runs.

A chain runs all the same where a log-likelihood is no sum over the observations (a mean, an (n, 1)
set against an (n,), a prior within it) or draws random numbers, and its draws are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.data.minibatch import Tensors
from sgmcmc.inputs.trial import ROUNDING, Complete, Sums, Trial, row_by_row
from sgmcmc.interrupts import pass_on
from sgmcmc.target.target import Target

_MOST_ROWS = 512
_REPEATED = 1e-4
"""How far two values of one function may be apart, as a part of their size."""


def refuse_silent_mistakes(
    target: Target,
    data: Data,
    rows: int,
    start: np.ndarray,
    complete: Complete | None,
    in_parts: bool,
) -> None:
    """Raise an error where functions draw random numbers or `log_lik` is no sum over the rows.

    A dataset that is never taken in parts need not be a sum; what is a mistake there too is.

    Args:
        target: the log posterior.
        data: the dataset.
        rows: n.
        start: a flat position.
        complete: adds latent variables to a minibatch; ``None`` if there are none.
        in_parts: whether the dataset is taken in parts.

    Raises:
        ValueError: says what was found and what to write.
    """
    size = min(data.size, _MOST_ROWS, max(2, rows))
    columns = data.rows(np.arange(size))
    try:
        trial = Trial(target, complete, start, columns)
    except Exception as error:  # it may be written for minibatches of n rows and no others
        pass_on(error)
        return
    for found in trial.found:
        for name, pair in found.items():
            if name != "halves":
                _refuse_randomness(name, *pair)
    once, again = trial.repeated
    for name in once:
        if name != "halves":
            _refuse_randomness(name, once[name][0], again[name][0])
    sums = trial.sums()
    if size < 2 or sums is None or sums.is_sum:
        return
    _refuse_broadcasting(target, complete, start, columns)
    if sums.is_mean:
        raise ValueError(_mean(sums))
    if in_parts:
        _refuse_what_is_no_sum(target, complete, trial, columns, sums)


def _refuse_randomness(name: str, first: Any, second: Any) -> None:
    """Raise an error where a function gives two values for the same arguments."""
    if name == "gibbs":
        for key, value in first.items():
            if not _equal(value, second[key]):
                raise ValueError(
                    f"`gibbs` returns different values of {key!r} for the same arguments, seed "
                    "included. Random numbers must come from the seed that it is handed, "
                    "tf.random.stateless_uniform(shape, seed=seed) and the like: those of "
                    "tf.random cannot be drawn again when a chain is resumed, and what NumPy "
                    "draws would be drawn once and for all when the chain is compiled."
                )
        return
    if not np.isfinite([first, second]).all():
        return
    if abs(first - second) > _REPEATED * max(abs(first), abs(second)):
        raise ValueError(
            f"`{name}` draws random numbers: for the same arguments it is {first:g}, and then "
            f"{second:g}. A chain needs a function of its arguments alone, and what NumPy draws "
            "would be drawn once and for all when the chain is compiled. Leave out tf.random and "
            "np.random, call networks with training=False so that there is no dropout, and draw "
            "latent variables in `gibbs`."
        )


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    """Tell whether two arrays hold the same, up to rounding."""
    if first.dtype.kind != "f":
        return bool((first == second).all())
    size = np.abs(first, where=np.isfinite(first), out=np.zeros_like(first)).max(initial=0.0)
    return np.allclose(first, second, rtol=0.0, atol=_REPEATED * float(size), equal_nan=True)


def _refuse_broadcasting(
    target: Target, complete: Complete | None, start: np.ndarray, columns: Tensors
) -> None:
    """Raise an error where `log_lik` is a sum once a column is a vector, or a vector a column."""
    for name, changed in _reshaped(columns):
        try:
            sums = Trial(target, complete, start, changed).sums()
        except Exception as error:  # in that shape the model makes no sense
            pass_on(error)
            continue
        if sums is None or not sums.is_sum:
            continue
        if columns[name].shape.rank == 2:
            found, advice = "(N, 1)", f"hand it in as a vector, {name}[:, 0]"
        else:
            found = "(N,), and `log_lik` sets it against an (n, 1)"
            advice = f"make that a vector, tf.squeeze(prediction, 1), or hand in {name}[:, None]"
        raise ValueError(
            f"`log_lik` must be a sum over the observations; it sums over n × n pairs of them. "
            f"`dataset[{name!r}]` has the shape {found}: an (n, 1) and an (n,) broadcast to "
            f"(n, n). Please {advice}."
        )


def _reshaped(columns: Tensors) -> Iterator[tuple[str, Tensors]]:
    """Yield the columns with one of them a vector in place of an (n, 1), or the other way."""
    dense = {name: c for name, c in columns.items() if not isinstance(c, tf.SparseTensor)}
    for name, column in dense.items():
        if column.shape.rank == 2 and column.shape[1] == 1:
            yield name, {**columns, name: column[:, 0]}
    for name, column in dense.items():
        if column.shape.rank == 1:
            yield name, {**columns, name: column[:, tf.newaxis]}


def _mean(sums: Sums) -> str:
    return (
        "`log_lik` must be a sum over the observations; it is a mean over them, or divides by "
        f"their number: on two halves of {sum(sums.rows)} of them it is as large as on all. Write "
        "tf.reduce_sum for tf.reduce_mean, and neither divide by n nor multiply by N/n: the "
        "sampler scales minibatches."
    )


def _refuse_what_is_no_sum(
    target: Target, complete: Complete | None, trial: Trial, columns: Tensors, sums: Sums
) -> None:
    """Raise an error unless it is rounding alone by which `log_lik` is no sum."""
    whole, halves = sums.whole, sums.halves
    advice = (
        "Look at the shapes in it: an (n, 1) set against an (n,) makes (n, n). Sum over the "
        "observations with tf.reduce_sum, and do not divide by their number."
    )
    alone = row_by_row(target, complete, trial, columns)
    if alone is not None:
        if abs(alone.sum() - whole) <= ROUNDING * np.abs(alone).sum() + sums.rounding:
            return
        common = sum(halves) - whole
        if sums.equals(alone.sum() - (len(alone) - 1) * common):
            advice = (
                "A part of it is the same for any number of observations. If that is the prior, "
                "give it as `log_prior`; minibatches of n count N/n times."
            )
    raise ValueError(
        f"`log_lik` must be a sum over the observations. Near the start it changes by {whole:g} on "
        f"{sum(sums.rows)} of them, and by {halves[0]:g} and {halves[1]:g} on the two halves of "
        f"these. {advice}"
    )
