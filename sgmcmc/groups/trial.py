"""A trial of the user's functions of groups on a few rows, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data
from sgmcmc.groups.spec import Groups

Tensors = dict[str, tf.Tensor]

_ROWS = 20
"""Rows, or groups, that functions are tried on."""

_STEP = 0.5
"""Distance by which the effects of the first group are moved."""

_CLOSE = 1e-4, 1e-5
"""Relative and absolute difference of what is the same up to rounding."""


def try_functions(
    log_lik: Callable[[Tensors, Tensors], tf.Tensor],
    factors: Sequence[Groups],
    rows: Data,
    codes: Mapping[str, np.ndarray],
    params: Mapping[str, Any],
    dtype: tf.DType,
) -> None:
    """Refuse functions that do not return a term for each row, or for each group.

    Args:
        log_lik: Log-likelihood.
        factors: Groups.
        rows: Rows.
        codes: Group of each row, for each factor.
        params: Starting values of the global parameters.
        dtype: Dtype of the chain.

    Raises:
        ValueError: A function returns another shape, mixes groups or rows, or ignores an effect.
    """
    order = np.argsort(codes[factors[0].by], kind="stable")[:_ROWS]
    columns = {name: column.tensor_at(order) for name, column in rows.columns.items()}
    own = {name: tf.constant(np.asarray(value), dtype) for name, value in params.items()}
    n = len(order)
    effects: Tensors = {}
    for factor in factors:
        flat = tf.repeat(tf.constant(factor.start, dtype)[tf.newaxis], n, axis=0)
        effects |= factor.named(flat)
        _need_terms_of_groups(factor, factor.named(flat), own)

    def terms(given: Tensors) -> tf.Tensor:
        value = tf.convert_to_tensor(log_lik({**own, **given}, dict(columns)))
        if value.shape != (n,):
            raise ValueError(
                f"`log_lik` must return one term for each row if there are `groups`: for {n} rows "
                f"a tensor of shape ({n},); it returned one of shape {value.shape}."
            )
        return value

    whole, half = terms(effects), (n + 1) // 2
    few = {name: column.tensor_at(order[:half]) for name, column in rows.columns.items()}
    alone = log_lik({**own, **{name: value[:half] for name, value in effects.items()}}, few)
    if not np.allclose(alone, whole[:half], *_CLOSE, equal_nan=True):
        raise ValueError(
            "`log_lik` mixes rows: the terms of some rows differ without the others. The term of "
            "a row may depend on nothing of another row: a mean or sum over rows belongs into "
            "`dataset`, computed once."
        )
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(effects)
        total = tf.reduce_sum(terms(effects))
    for name, slope in tape.gradient(total, effects).items():
        if slope is None:
            raise ValueError(
                f"`log_lik` ignores the effect {name!r} of `groups`: params[{name!r}], which "
                "has an entry for each row there."
            )
        if (other := _mixed(terms, effects, name)) is not None:
            raise ValueError(
                f"`log_lik` mixes rows: the term of row {other} depends on the effect {name!r} of "
                f"another row. In `log_lik`, params[{name!r}] has an entry for each row already."
            )


def _need_terms_of_groups(factor: Groups, effects: Tensors, params: Tensors) -> None:
    n = next(iter(effects.values())).shape[0]

    def density(given: Tensors) -> tf.Tensor:
        value = tf.convert_to_tensor(factor.log_prior(dict(given), dict(params)))
        if value.shape != (n,):
            raise ValueError(
                f"`groups`: the log_prior of {factor.by!r} must return the log density of the "
                f"effects of each group: for {n} groups a tensor of shape ({n},); it returned one "
                f"of shape {value.shape}."
            )
        return value

    density(effects)
    for name in effects:
        if _mixed(density, effects, name) is not None:
            raise ValueError(
                f"`groups`: the log_prior of {factor.by!r} mixes groups: the density of a group "
                f"depends on the effect {name!r} of another. Sum over the axes of one group's "
                "effects, axis=1 and on, not over the first axis."
            )


def _mixed(function: Callable[[Tensors], tf.Tensor], effects: Tensors, name: str) -> int | None:
    """Return the first other entry that changes with the effect of the first; ``None`` if none."""
    moved = effects[name]
    n, ones = moved.shape[0], [1] * (len(moved.shape) - 1)
    step = tf.reshape(_STEP * tf.one_hot(0, n, dtype=moved.dtype), [n, *ones])
    before, after = (
        function({**effects, name: value}).numpy().astype(np.float64)
        for value in (moved, moved + step)
    )
    unlike = ~np.isclose(after, before, *_CLOSE, equal_nan=True)
    others = np.flatnonzero(unlike[1:])
    return int(others[0]) + 1 if others.size else None
