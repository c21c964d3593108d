"""Scores of each draw, followed along a chain inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import whole_number
from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction

Carried = dict[str, tf.Tensor]


@dataclass(frozen=True)
class ProbabilityScores:
    """Scores of held-out data by the means of probabilities over the draws.

    Attributes:
        names: Names of the scores.
        size: Number of probabilities.
        log_probabilities: Logs of the probabilities at a draw, (size,), given the parameters and
            two int32 that are fresh at each draw.
        scores: Scores by name, given logs of the means over the draws so far, and logs at the
            last draw.
        finish: Result for the user, given the scores, ``"count"`` and ``"total"``, logs of the sums
            over the draws.
    """

    names: Sequence[str]
    size: int
    log_probabilities: Callable[[Tensors, tf.Tensor], tf.Tensor]
    scores: Callable[[tf.Tensor, tf.Tensor], Carried]
    finish: Callable[[Carried], Any]


def score_probabilities(draws: Any, of: ProbabilityScores, seed: int = 0) -> Reduction:
    """Return the reduction of these scores.

    Args:
        draws: Number of draws.
        of: Scores.
        seed: Seed of the random numbers that ``log_probabilities`` uses.
    """

    def start(params: Tensors) -> Carried:
        dtype = next(iter(params.values())).dtype
        return {"total": tf.fill([of.size], tf.constant(-np.inf, dtype))}

    def update(state: Carried, params: Tensors) -> tuple[Carried, Carried]:
        seed_of_draw = nth_seed(tf.constant([seed, 0]), state["count"])
        new = of.log_probabilities(params, seed_of_draw)
        total = tf.reduce_logsumexp(tf.stack([state["total"], new]), axis=0)
        mean = total - tf.math.log(tf.cast(state["count"] + 1, total.dtype))
        return {"total": total}, of.scores(mean, new)

    return score_draws(draws, of.names, start, update, of.finish)


def score_draws(
    draws: Any,
    names: Sequence[str],
    start: Callable[[Tensors], Carried],
    update: Callable[[Carried, Tensors], tuple[Carried, Carried]],
    finish: Callable[[Carried], Any],
) -> Reduction:
    """Return a reduction that keeps some scores of each draw, and its own state.

    Args:
        draws: Number of draws.
        names: Names of the scores; each is an array, (draws,), NaN if there was no draw.
        start: State before the first draw, given the starting values.
        update: State after a draw, and its scores, given the state before, with ``"count"``, the
            number of draws before, and the parameters.
        finish: Result for the user, given state, scores and ``"count"``.

    Raises:
        TypeError, ValueError: ``draws`` is not an integer of at least 1.
    """
    draws = whole_number("draws", draws, 1)
    slots = tf.range(draws)

    def begin(params: Tensors) -> Carried:
        dtype = next(iter(params.values())).dtype
        none = tf.fill([draws], tf.constant(np.nan, dtype))
        return {"count": tf.constant(0), **start(params), **dict.fromkeys(names, none)}

    def fold(state: Carried, params: Tensors) -> Carried:
        carried, now = update(state, params)
        is_slot = tf.equal(slots, state["count"])
        written = {name: tf.where(is_slot, now[name], state[name]) for name in names}
        return {"count": state["count"] + 1, **carried, **written}

    return Reduction(begin, fold, finish)


def nth_seed(seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return the seed of the stream of random numbers that has this number."""
    return tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
