"""SAGA: a control variate for each observation, its gradient when it was last seen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.memory import available_bytes
from sgmcmc.data.minibatch import Minibatch
from sgmcmc.gradients.base import Gradient
from sgmcmc.gradients.whole_data import WholeData
from sgmcmc.target.target import Target

_COPIES = 3
"""How often a table is in memory while a block runs: what goes in, comes out, and is saved."""

_PASSES = 10
"""Passes over the data after which the table's total is summed anew, lest rounding add up."""


class SAGAState(NamedTuple):
    """The gradients that were last seen.

    Attributes:
        table: ∇log p(x_i | φ_i), φ_i the position at which row i was last in a minibatch, for
            the k coordinates on which the log-likelihood depends, (N, k).
        total: their sum, (k,).
    """

    table: tf.Tensor
    total: tf.Tensor


@dataclass(frozen=True)
class SAGA(Gradient):
    """ĝ(θ) = ∇log p(θ) + Σ_i g_i + Σ_{i∈S} w_i [∇log p(x_i|θ) − g_i].

    g_i is the gradient of observation i's own term when it was last in a minibatch, at the start
    of the chain for all of them; after the estimate those of the minibatch are replaced. No mode
    and no further pass over the data are needed, but a table of N rows.

    Args:
        places: coordinates on which the log-likelihood depends, which the table holds; ``bind``
            finds them.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.SAGA().needs_rows
        True

    Source:
        Dubey, Reddi, Póczos, Smola, Xing & Williamson, NeurIPS 2016, algorithm 1.
    """

    places: np.ndarray | None = field(default=None, repr=False, metadata={"constant": False})

    name = "saga"
    needs_rows = True

    def bind(self, whole: WholeData) -> SAGA:
        """Return this estimator with the places of the table's columns.

        Raises:
            MemoryError: the table would not fit.
        """
        places = whole.data_places()
        row = len(places) * whole.target.dtype.size
        needed, free = whole.chains * whole.size * row, available_bytes()
        if _COPIES * needed > free:
            raise MemoryError(
                f"`gradient`: SAGA keeps a gradient for each observation, {needed:,} bytes for "
                f"{whole.size:,} observations, {len(places)} coordinates and {whole.chains} "
                f"chain{'s' * (whole.chains > 1)}, and {_COPIES} copies while it runs; "
                f"{free:,} bytes are free. Use control variates or SVRG, which keep one gradient."
            )
        return replace(self, places=places)

    def init(self, whole: WholeData, position: np.ndarray) -> SAGAState:
        """Return the table of all gradients at the chain's start."""
        assert self.places is not None, "not bound"
        table = whole.term_gradients(position, self.places)
        return SAGAState(tf.constant(table), _total(table))

    def estimate(
        self,
        target: Target,
        state: SAGAState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_centre: Minibatch,
    ) -> tuple[tf.Tensor, SAGAState]:
        """Return ĝ at ``position`` from one minibatch, and the table with its rows replaced."""
        assert self.places is not None, "not bound"
        rows, weights = tf.convert_to_tensor(minibatch.rows), minibatch.weights
        all_coordinates = len(self.places) == target.size
        new = target.term_gradients(position, minibatch.columns)
        if not all_coordinates:
            new = tf.gather(new, self.places, axis=1)
        change = new - tf.gather(state.table, rows)
        # A row that is in twice, its places neighbours, changes the table once.
        first = tf.concat([[True], tf.not_equal(rows[1:], rows[:-1])], 0)
        once = tf.cast(first, change.dtype)
        each = tf.fill(once.shape, weights) if isinstance(weights, float) else weights
        sums = tf.matmul(tf.stack([tf.cast(each, change.dtype), once]), change)
        estimate, total = tf.unstack(state.total + sums)
        # XLA writes the rows in place if all that is made of the old ones has to be known first;
        # else it copies the table, twice a step.
        known = tf.reduce_sum(sums)
        new = tf.where(tf.math.is_nan(known), known, new)
        table = tf.tensor_scatter_nd_update(state.table, rows[:, tf.newaxis], new)
        if not all_coordinates:
            estimate = tf.tensor_scatter_nd_update(
                tf.zeros([target.size], estimate.dtype), self.places[:, np.newaxis], estimate
            )
        return target.prior_gradient(position) + estimate, SAGAState(table, total)

    def refresh_every(self, whole: WholeData) -> int:
        """Return after how many iterations the total is summed anew."""
        return max(1, _PASSES * whole.size // whole.minibatch_size)

    def refresh(
        self, whole: WholeData, state: SAGAState, position: np.ndarray, visit: int
    ) -> tuple[None, SAGAState]:
        """Return the state with the total summed anew."""
        return None, SAGAState(state.table, _total(state.table.numpy()))


def _total(table: np.ndarray) -> tf.Tensor:
    """Return the sum over all rows, taken in float64."""
    return tf.constant(table.sum(0, dtype=np.float64).astype(table.dtype))
