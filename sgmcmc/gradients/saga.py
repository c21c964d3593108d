"""SAGA: a table of the gradients of all terms, some coordinates of each or the rows it looks up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.checks import describe, known_keys
from sgmcmc.data.dataset import DenseColumn, Minibatch, Tensors
from sgmcmc.gradients.base import Gradient
from sgmcmc.gradients.whole_data import WholeData
from sgmcmc.model.layout import Layout
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class _Settings:
    compared_rows: int = 500  # whose gradients are compared with those of their terms
    sum_error: float = 1e-3  # relative error of the sum of these gradients
    # Copies of a table in memory while a block runs: input, output, and checkpoint.
    copies: int = 3
    # Passes over the data after which the table's total is summed again, against rounding.
    passes_of_total: int = 10


_SETTINGS = _Settings()


class TableContents(Protocol):
    """Part of each term's gradient that is held, k numbers.

    Attributes:
        width: Number of coordinates, k.
    """

    @property
    def width(self) -> int:
        """Number of held coordinates, k."""

    def table(self, whole: WholeData, position: np.ndarray) -> np.ndarray:
        """Return the held parts of all terms at a position, (N, k)."""

    def gradients(
        self, target: Target, position: tf.Tensor, columns: Tensors
    ) -> tf.Tensor:
        """Return the held parts of the terms of a minibatch, (n, k)."""

    def total(self, table: np.ndarray) -> np.ndarray:
        """Return the sum over all terms, added up in float64."""

    def sums(
        self, weights: tf.Tensor, values: tf.Tensor, columns: Tensors
    ) -> tf.Tensor:
        """Return weighted sums over a minibatch, (m, k) or (m, d), for weights (m, n)."""

    def flat(self, target: Target, sum_of_terms: tf.Tensor) -> tf.Tensor:
        """Return a sum as a gradient in the coordinates of the chain, (d,)."""


@dataclass(frozen=True)
class AtCoordinates:
    """The coordinates on which the log-likelihood depends.

    Args:
        coordinates: Indices of the coordinates, (k,).
    """

    coordinates: np.ndarray

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    def table(self, whole: WholeData, position: np.ndarray) -> np.ndarray:
        """Return the held parts of all terms at a position, (N, k)."""
        return whole.term_gradients(position, self.coordinates)

    def gradients(
        self, target: Target, position: tf.Tensor, columns: Tensors
    ) -> tf.Tensor:
        """Return the held parts of the terms of a minibatch, (n, k)."""
        gradients = target.term_gradients(position, columns)
        if self.width == target.size:
            return gradients
        return tf.gather(gradients, self.coordinates, axis=1)

    def total(self, table: np.ndarray) -> np.ndarray:
        """Return the sum over all terms, added up in float64."""
        return table.sum(0, dtype=np.float64).astype(table.dtype)

    def sums(
        self, weights: tf.Tensor, values: tf.Tensor, columns: Tensors
    ) -> tf.Tensor:
        """Return weighted sums over a minibatch, (m, k)."""
        return tf.matmul(weights, values)

    def flat(self, target: Target, sum_of_terms: tf.Tensor) -> tf.Tensor:
        """Return a sum as a gradient in the coordinates of the chain, (d,)."""
        if self.width == target.size:
            return sum_of_terms
        zeros = tf.zeros([target.size], sum_of_terms.dtype)
        return tf.tensor_scatter_nd_update(
            zeros, self.coordinates[:, np.newaxis], sum_of_terms
        )


@dataclass(frozen=True)
class AtRows:
    """The rows of parameters that an observation looks up.

    With i and j its user and item, they are those of U_i and V_j, without the zeros of all others.

    Args:
        lookups: Column of the dataset that holds the row's number, for each parameter.
        numbers: These columns, int32 (N,) each.
        layout: Layout of the parameters.
    """

    lookups: Mapping[str, str]
    numbers: Mapping[str, np.ndarray] = field(repr=False)
    layout: Layout = field(repr=False)

    @classmethod
    def of(cls, lookups: Any, whole: WholeData) -> AtRows:
        """Return the table for a user's lookups, which are checked here."""
        space, data = whole.target.space, whole.data
        if not isinstance(lookups, Mapping):
            raise TypeError(
                "`lookups` must be a dict that names a column of `dataset` for each parameter; it "
                f"is {describe(lookups)}."
            )
        known_keys("lookups", lookups, space.layout.names, "the parameters are")
        known_keys(
            "lookups", lookups.values(), data.columns, "the columns of `dataset` are"
        )
        for name in space.layout.names:
            if name not in lookups:
                raise ValueError(f"`lookups` lacks the parameter {name!r}.")
            if not space.layout.shapes[name] or not space.geometries[name].in_place:
                raise ValueError(
                    f"`lookups`: {name!r} must be an array without a bijector, whose first axis "
                    "the column numbers."
                )
        numbers = {}
        for name, column in lookups.items():
            stored = data.columns[column]
            size = space.layout.shapes[name][0]
            values = np.zeros(0)
            if isinstance(stored, DenseColumn):
                values = stored.slice(0, data.size)
            is_vector = values.ndim == 1 and len(values)
            if not is_vector or values.min() < 0 or values.max() >= size:
                raise ValueError(
                    f"`lookups`: the column {column!r} must be a vector of integers from 0 to "
                    f"{size - 1}, rows of {name!r}."
                )
            numbers[column] = values.astype(np.int32)
        return cls(dict(lookups), numbers, space.layout)

    @property
    def width(self) -> int:
        """Entries of the rows of all parameters together."""
        return sum(self._widths.values())

    def table(self, whole: WholeData, position: np.ndarray) -> np.ndarray:
        """Return the held parts of all terms at a position, (N, k).

        Raises:
            ValueError: Terms depend on more of the parameters than the rows that they look up.
        """
        self._check(whole, position)
        return whole.term_gradients(position, np.arange(self.width), self.lookups)

    def _check(self, whole: WholeData, position: np.ndarray) -> None:
        """Raise an error if the gradients of the rows are not those of the terms.

        They are compared on some rows, a little away from the start, so that nothing is zero that
        need not be.
        """
        target = whole.target
        count = min(_SETTINGS.compared_rows, whole.size)
        columns = whole.data.rows(np.arange(count))
        normals = np.random.default_rng(0).standard_normal(len(position))
        point = tf.constant(position + 0.1 * normals.astype(position.dtype))
        values = self.gradients(target, point, columns)
        ones = tf.ones([1, count], values.dtype)
        sum_of_rows = self.sums(ones, values, columns)[0]
        expected = target.gradient(point, Minibatch(columns), with_prior=False).numpy()
        error = np.linalg.norm(self.flat(target, sum_of_rows).numpy() - expected)
        if not error <= _SETTINGS.sum_error * np.linalg.norm(expected):
            raise ValueError(
                "`lookups`: a term of `log_lik` must depend on each parameter through the row "
                "alone that its column numbers. The gradients of these rows do not add up to the "
                "gradient of their terms."
            )

    def gradients(
        self, target: Target, position: tf.Tensor, columns: Tensors
    ) -> tf.Tensor:
        """Return the held parts of the terms of a minibatch, (n, k)."""
        return target.lookup_gradients(position, columns, self.lookups)

    def total(self, table: np.ndarray) -> np.ndarray:
        """Return the sum over all terms, flat, added up in float64."""
        N, sums = len(table), []
        for name, values in self._split(table).items():
            entries = np.ones(N), (self.numbers[self.lookups[name]], np.arange(N))
            shape = self.layout.shapes[name][0], N
            indicators = scipy.sparse.csr_array(entries, shape=shape)
            sums.append(np.reshape(indicators @ values, -1))
        return np.concatenate(sums).astype(table.dtype)

    def sums(
        self, weights: tf.Tensor, values: tf.Tensor, columns: Tensors
    ) -> tf.Tensor:
        """Return weighted sums over a minibatch, flat, (m, d).

        Parameters with as many rows that are looked up by the same column are added up together:
        time goes by the rows of the minibatch, not by the entries of a row.
        """
        by_parameter = self._split(values)
        names_by_column: dict[tuple[str, int], list[str]] = {}
        for name, column in self.lookups.items():
            key = column, self.layout.shapes[name][0]
            names_by_column.setdefault(key, []).append(name)
        sums: Tensors = {}
        for (column, size), names in names_by_column.items():
            rows = tf.concat([by_parameter[name] for name in names], 1)
            weighted = [tf.expand_dims(w, 1) * rows for w in tf.unstack(weights)]
            many = tf.concat(weighted, 1)
            number = tf.cast(columns[column], tf.int32)
            added = tf.math.unsorted_segment_sum(many, number, size)
            widths = [self._widths[name] for name in names] * weights.shape[0]
            for i, block in enumerate(tf.split(added, widths, 1)):
                label = names[i % len(names)]
                flat = tf.reshape(block, [1, -1])
                if label in sums:
                    flat = tf.concat([sums[label], flat], 0)
                sums[label] = flat
        return tf.concat([sums[name] for name in self.layout.names], 1)

    def flat(self, target: Target, sum_of_terms: tf.Tensor) -> tf.Tensor:
        """Return a sum as a gradient in the coordinates of the chain, (d,)."""
        preconditioner = target.space.preconditioner
        if preconditioner is None:
            return sum_of_terms
        return preconditioner.slope(sum_of_terms)

    @property
    def _widths(self) -> dict[str, int]:
        """Entries of a row of each parameter, in the order of the layout."""
        sizes, shapes = self.layout.sizes, self.layout.shapes
        return {name: sizes[name] // shapes[name][0] for name in self.layout.names}

    def _split(self, values: Any) -> dict[str, Any]:
        """Return the rows of each parameter, (n, entries of a row)."""
        start, by_parameter = 0, {}
        for name, width in self._widths.items():
            by_parameter[name] = values[:, start : start + width]
            start += width
        return by_parameter


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
        copies = _SETTINGS.copies
        if copies * needed > free:
            looks_up = " (or `lookups`)" if self.lookups is None else ""
            raise MemoryError(
                f"`gradient`: SAGA keeps a gradient for each observation, {needed:,} bytes for "
                f"{whole.size:,} observations, {contents.width} coordinates and {whole.chains} "
                f"chain{'s' * (whole.chains > 1)}, and {copies} copies while it runs; {free:,} "
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
        is_one = isinstance(weights, float)
        row_weights = tf.fill(once.shape, weights) if is_one else weights
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
        passes = _SETTINGS.passes_of_total
        return max(1, passes * whole.size // whole.minibatch_size)

    def refresh(
        self, whole: WholeData, state: SAGAState, position: np.ndarray, visit: int
    ) -> tuple[None, SAGAState]:
        """Return the state with the total summed again."""
        assert self.held is not None, "not bound"
        total = self.held.total(state.table.numpy())
        return None, SAGAState(state.table, tf.constant(total))


def available_bytes() -> int:
    """Return the available memory in bytes; a large number if the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 2**62
