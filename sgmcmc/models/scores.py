"""Scores of each draw, followed along a chain inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import whole_number
from sgmcmc.data.minibatch import Tensors
from sgmcmc.engine.reductions import Reduction

Carried = dict[str, tf.Tensor]


def score_draws(
    draws: Any,
    names: Sequence[str],
    start: Callable[[Tensors], Carried],
    update: Callable[[Carried, Tensors], tuple[Carried, Carried]],
    finish: Callable[[Carried], Any],
) -> Reduction:
    """Return a reduction that keeps some scores of each draw, beside what it carries along.

    Args:
        draws: how many draws there will be.
        names: of the scores; each is an array, (draws,), NaN where there was no draw.
        start: what is carried before the first draw, given the starting values.
        update: what is carried after a draw and the scores of now, given what was carried, with
            ``"count"``, the draws before, and the parameters.
        finish: what the user sees, given all that was carried, the scores and ``"count"``.

    Raises:
        TypeError, ValueError: ``draws`` is not a whole number of at least 1.
    """
    draws = whole_number("draws", draws, 1)
    slots = tf.range(draws)

    def begin(params: Tensors) -> Carried:
        dtype = next(iter(params.values())).dtype
        none = tf.fill([draws], tf.constant(np.nan, dtype))
        return {"count": tf.constant(0), **start(params), **dict.fromkeys(names, none)}

    def fold(state: Carried, params: Tensors) -> Carried:
        carried, now = update(state, params)
        here = tf.equal(slots, state["count"])
        written = {name: tf.where(here, now[name], state[name]) for name in names}
        return {"count": state["count"] + 1, **carried, **written}

    return Reduction(begin, fold, finish)
