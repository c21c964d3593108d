"""SAGA: a control variate for each observation, the gradient of its term when it was last used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.memory import available_bytes
from sgmcmc.data.minibatch import Minibatch
from sgmcmc.gradients.base import Gradient
from sgmcmc.gradients.tables import AtCoordinates, AtRows, TableContents
from sgmcmc.gradients.whole_data import WholeData
from sgmcmc.model.target import Target

_COPIES = (
    3  # copies of a table in memory while a block runs: input, output, and checkpoint
)
_PASSES = 10  # passes over the data after which the table's total is summed again, against rounding


class SAGAState(NamedTuple):
    """The last gradient of each term.

    Attributes:
        table: ∇log p(x_i | φ_i), φ_i the position at which row i was last in a minibatch, for
            the k coordinates on which the log-likelihood depends, or those of the rows that
            observation i looks up, (N, k).
        total: Their sum, (k,), or with lookups flat, (d,).
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
        lookups: Columns of row numbers, for models in which an observation depends on single rows
            of the parameters, such as the factors of its user and its item: a dict that names, for
            each parameter, the column of the dataset that numbers the row. The table then holds the
            gradients of these rows, and not N gradients that are zero almost everywhere.
        held: Coordinates of each gradient that the table holds; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.SAGA().needs_rows
        True
        >>> model = sgmcmc.models.matrix_factorization(
        ...     {"user": [0, 1, 1], "item": [0, 0, 1], "rating": [5, 3, 1]}, rank=2)
        >>> saga = sgmcmc.gradients.SAGA(lookups=model.lookups)  # 6 numbers a row, not 12
        >>> chain = sgmcmc.sample(
        ...     model.log_lik, model.dataset, model.start(seed=1), model.log_prior,
        ...     dynamics="sgld", gradient=saga, minibatches="uniform", minibatch_size=2,
        ...     preconditioner="none", stepsize=1e-3, n_iters=100, burn_in=10,
        ...     seed=1, verbose=False)

    Source:
        Dubey, Reddi, Póczos, Smola, Xing & Williamson, NeurIPS 2016, algorithm 1.
    """

    lookups: Mapping[str, str] | None = None
    held: TableContents | None = field(
        default=None, repr=False, metadata={"constant": False}
    )

    name = "saga"
    needs_rows = True

    def bind(self, whole: WholeData) -> SAGA:
        """Return this estimator, bound to the contents of its table.

        Raises:
            MemoryError: The table would not fit.
            ValueError, TypeError: The lookups are wrong.
        """
        contents: TableContents
        if self.lookups is None:
            contents = AtCoordinates(whole.data_places())
        else:
            contents = AtRows.of(self.lookups, whole)
        needed = whole.chains * whole.size * contents.width * whole.target.dtype.size
        free = available_bytes()
        if _COPIES * needed > free:
            looks_up = " (or `lookups`)" if self.lookups is None else ""
            raise MemoryError(
                f"`gradient`: SAGA keeps a gradient for each observation, {needed:,} bytes for "
                f"{whole.size:,} observations, {contents.width} coordinates and {whole.chains} "
                f"chain{'s' * (whole.chains > 1)}, and {_COPIES} copies while it runs; {free:,} "
                f"bytes are free. Use control variates or SVRG, which keep one gradient{looks_up}."
            )
        return replace(self, held=contents)

    def init(self, whole: WholeData, position: np.ndarray) -> SAGAState:
        """Return the table of all gradients at the chain's start."""
        assert self.held is not None, "not bound"
        table = self.held.table(whole, position)
        return SAGAState(tf.constant(table), tf.constant(self.held.total(table)))

    def estimate(
        self,
        target: Target,
        state: SAGAState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, SAGAState]:
        """Return ĝ at ``position`` from one minibatch, and the table with its rows replaced."""
        assert self.held is not None, "not bound"
        rows, weights = tf.convert_to_tensor(minibatch.rows), minibatch.weights
        new = self.held.gradients(target, position, minibatch.columns)
        change = new - tf.gather(state.table, rows)
        # A row that is in twice, next to itself, changes the table once.
        first = tf.concat([[True], tf.not_equal(rows[1:], rows[:-1])], 0)
        once = tf.cast(first, change.dtype)
        row_weights = (
            tf.fill(once.shape, weights) if isinstance(weights, float) else weights
        )
        both = tf.stack([tf.cast(row_weights, change.dtype), once])
        sums = self.held.sums(both, change, minibatch.columns)
        estimate, total = tf.unstack(state.total + sums)
        # XLA writes the rows in place if all that depends on the old ones must be known first;
        # else it copies the table, twice a step.
        barrier = tf.reduce_sum(sums)
        new = tf.where(tf.math.is_nan(barrier), barrier, new)
        table = tf.tensor_scatter_nd_update(state.table, rows[:, tf.newaxis], new)
        slope = target.prior_gradient(position) + self.held.flat(target, estimate)
        return slope, SAGAState(table, total)

    def refresh_every(self, whole: WholeData) -> int:
        """Return the number of iterations between sums of the total."""
        return max(1, _PASSES * whole.size // whole.minibatch_size)

    def refresh(
        self, whole: WholeData, state: SAGAState, position: np.ndarray, visit: int
    ) -> tuple[None, SAGAState]:
        """Return the state with the total summed again."""
        assert self.held is not None, "not bound"
        total = self.held.total(state.table.numpy())
        return None, SAGAState(state.table, tf.constant(total))
