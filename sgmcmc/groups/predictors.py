"""Linear predictors of a likelihood whose effects are integrated out.

With h(z) = log p(z | θ) + Σ_i log p(y_i | θ, z) of a group, and z distributed as p(z | y, θ),

    ∇² log ∫ exp(h) dz = E[∇²h] + Var[∇h].

Given z, the rows are functions f_i(η_i, φ, z) of predictors η_i = x_i A. So E[∇²h] has a number for
each row and pair of predictors, as without effects, and Var[∇h] has one for each pair of rows of a
group: Hessians cost a few gradients, whatever the number of coordinates. Expectations are sums over
the nodes of the quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.data.passes import cast
from sgmcmc.data.sparse import has_sparse
from sgmcmc.groups.normal import Normal
from sgmcmc.groups.packs import (
    COLUMNS,
    FILLED,
    SLOT,
    number_of_packs,
    row_by_row,
    slots_of_rows,
)
from sgmcmc.groups.spec import Groups
from sgmcmc.model.designs import Columns, PairWeights
from sgmcmc.model.factors import Factors, PredictorDerivatives, Predictors, find_factors
from sgmcmc.model.target import Target

_EFFECTS = "groups/effects"  # column of rows, or of groups: the effects, (n, q)


@dataclass(frozen=True)
class _Settings:
    # Nodes in each direction for a height that is quadratic: exact for the variance of its slope.
    nodes: int = 3
    # Coordinates from which on predictors are used: Hessians of fewer are differentiated in less
    # time.
    min_coordinates: int = 50


_SETTINGS = _Settings()


class Integrated(Protocol):
    """A likelihood of packs: :class:`~sgmcmc.groups.marginal.Marginal`, which imports this one."""

    log_lik: Any
    groups: Groups
    packs: Any
    most: int
    nodes: int

    def rule(self, dtype: tf.DType, nodes: int | None = None) -> Any:
        """Return the nodes and weights in all directions."""

    def nearest(self, params: Tensors, dataset: Tensors) -> Normal:
        """Return mode and information of the effects of every slot."""


class _Derivatives(NamedTuple):
    """Derivatives at some effects: of n rows, and of m groups.

    Attributes:
        terms: Terms of the rows, (n,).
        slopes, phi_slopes: By predictor and by number φ, (c, n) and (r, n).
        eta_curvatures, cross_curvatures, phi_curvatures: Second derivatives, (c, c, n), (r, c, n)
            and (r, r, n).
        log_density: Log density of the effects, (m,).
        density_slopes, density_curvatures: By the numbers φ of the density, (l, m) and (l, l, m).
    """

    terms: tf.Tensor
    slopes: tf.Tensor
    phi_slopes: tf.Tensor
    eta_curvatures: tf.Tensor
    cross_curvatures: tf.Tensor
    phi_curvatures: tf.Tensor
    log_density: tf.Tensor
    density_slopes: tf.Tensor
    density_curvatures: tf.Tensor


@dataclass(frozen=True)
class GroupedPredictors(Predictors):
    """Linear predictors of the likelihood of packs of groups.

    Attributes:
        likelihood: Likelihood of packs.
        target: Log posterior of which it is a part.
        of_likelihood: Predictors of the user's log-likelihood, effects being data.
        of_density: Density of the effects, of numbers φ alone.
    """

    likelihood: Integrated
    target: Target
    of_likelihood: Factors
    of_density: Factors

    @property
    def rows(self) -> int:
        """Number of the user's rows in a pack."""
        return int(self.likelihood.packs.rows.shape[1])

    @property
    def width(self) -> int:
        """Size of the data of a row."""
        return self.of_likelihood.width

    def values(self, u: tf.Tensor, columns: Tensors) -> list[tf.Tensor]:
        """Return the parts of v."""
        slots = self.likelihood.most * number_of_packs(columns[SLOT])
        effects = tf.zeros([slots, self.likelihood.groups.size], u.dtype)
        predictor_values = self.of_likelihood.values(u, self._rows(columns, effects))
        return [*predictor_values, *self.of_density.values(u, {_EFFECTS: effects})]

    def derivatives(self, u: tf.Tensor, columns: Tensors) -> PredictorDerivatives:
        """Return derivatives of the likelihood of some packs."""
        params = self.target.space.constrain(u)
        normal = self.likelihood.nearest(params, cast(columns, u.dtype))
        rule = self.likelihood.rule(
            u.dtype, _SETTINGS.nodes if self.likelihood.groups.normal else None
        )
        nodes = normal.mode + normal.from_standard(rule.x[:, tf.newaxis, :])

        def derivatives_at(effects: tf.Tensor) -> _Derivatives:
            likelihood_derivatives = self.of_likelihood.derivatives(
                u, self._rows(columns, effects), by_row=True
            )
            density_derivatives = self.of_density.derivatives(
                u, {_EFFECTS: effects}, by_row=True
            )
            return _Derivatives(
                likelihood_derivatives.terms,
                _stack(likelihood_derivatives.slopes, u.dtype),
                _stack(likelihood_derivatives.phi_slopes, u.dtype),
                _square(likelihood_derivatives.eta_curvatures, u.dtype),
                _square(likelihood_derivatives.cross_curvatures, u.dtype),
                _square(likelihood_derivatives.phi_curvatures, u.dtype),
                density_derivatives.terms,
                _stack(density_derivatives.phi_slopes, u.dtype),
                _square(density_derivatives.phi_curvatures, u.dtype),
            )

        kinds = _Derivatives(*[u.dtype] * len(_Derivatives._fields))
        derivatives = tf.map_fn(
            derivatives_at, nodes, fn_output_signature=kinds, parallel_iterations=1
        )
        data = self.of_likelihood.designs(u, self._rows(columns, nodes[0]))
        return self._combined(data, columns, rule.log_w, derivatives)

    def _rows(self, columns: Tensors, effects: tf.Tensor) -> Tensors:
        """Return the user's columns, row by row, and the effects of each row's group."""
        slots = slots_of_rows(columns[SLOT], self.likelihood.most)
        return {**row_by_row(columns), _EFFECTS: tf.gather(effects, slots)}

    def _combined(
        self,
        data: list[Columns],
        columns: Tensors,
        log_w: tf.Tensor,
        derivatives: _Derivatives,
    ) -> PredictorDerivatives:
        """Return E[∇²h] and Var[∇h] together.

        Args:
            data: X of each predictor.
            columns: Packs.
            log_w: Logarithms of the weights of the nodes, (k,).
            derivatives: Derivatives at each node, (k, ...).
        """
        slot = columns[SLOT]
        dtype = derivatives.terms.dtype
        row_slots = slots_of_rows(slot, self.likelihood.most)
        k = log_w.shape[0]
        n = tf.size(slot)
        slots = tf.shape(derivatives.log_density)[1]
        real = tf.cast(tf.reshape(slot >= 0, [-1]), dtype)
        filled = tf.ones([slots], dtype)
        if self.likelihood.most > 1:
            is_filled = tf.range(self.likelihood.most) < columns[FILLED][:, tf.newaxis]
            filled = tf.cast(tf.reshape(is_filled, [-1]), dtype)

        def by_slot(rows: tf.Tensor) -> tf.Tensor:
            shape = tf.shape(rows)[:-1]
            flat = tf.transpose(tf.reshape(real * rows, [tf.reduce_prod(shape), n]))
            sums = tf.math.unsorted_segment_sum(flat, row_slots, slots)
            return tf.reshape(tf.transpose(sums), tf.concat([shape, [slots]], 0))

        heights = (
            by_slot(derivatives.terms) + derivatives.log_density + log_w[:, tf.newaxis]
        )
        weights = filled * tf.nn.softmax(heights, 0)
        row_weights = real * tf.gather(weights, row_slots, axis=1)
        slope = _mean(row_weights, derivatives.slopes)
        centered_slopes = tf.sqrt(row_weights)[:, tf.newaxis] * (
            derivatives.slopes - slope
        )
        r = derivatives.phi_slopes.shape[1]
        density_size = derivatives.density_slopes.shape[1]
        numbers = by_slot(tf.broadcast_to(derivatives.phi_slopes, [k, r, n]))
        of_density = tf.broadcast_to(
            derivatives.density_slopes, [k, density_size, slots]
        )
        numbers = tf.concat([numbers, of_density], 1)
        number = _mean(weights, numbers)
        centered_numbers = tf.sqrt(weights)[:, tf.newaxis] * (numbers - number)
        square = tf.einsum("krm,ksm->rs", centered_numbers, centered_numbers)
        of_terms = _mean(row_weights, derivatives.phi_curvatures)
        of_groups = _mean(weights, derivatives.density_curvatures)
        square += tf.pad(
            tf.reduce_sum(of_terms, -1), [[0, density_size], [0, density_size]]
        )
        square += tf.pad(tf.reduce_sum(of_groups, -1), [[r, 0], [r, 0]])
        row_numbers = tf.gather(centered_numbers, row_slots, axis=2)
        crossed = tf.einsum("krn,kcn->rcn", row_numbers, centered_slopes)
        if r:
            same_row = _mean(row_weights, derivatives.cross_curvatures)
            crossed += tf.pad(same_row, [[0, density_size], [0, 0], [0, 0]])
        within = _mean(row_weights, derivatives.eta_curvatures)
        c = derivatives.slopes.shape[1]
        packed = tf.reshape(centered_slopes, [k, c, -1, self.rows])
        packed = tf.transpose(packed, [1, 2, 3, 0])
        same = tf.cast(slot[:, :, tf.newaxis] == slot[:, tf.newaxis, :], dtype)

        def pair_weights(a: int, b: int) -> PairWeights:
            pairs = same * tf.matmul(packed[a], packed[b], transpose_b=True)
            return PairWeights(within[a, b], pairs)

        return PredictorDerivatives(
            tf.reduce_sum(row_weights * derivatives.terms, 0),
            data,
            tf.unstack(slope),
            tf.unstack(tf.reduce_sum(number, 1)) if r + density_size else [],
            [[pair_weights(a, b) for b in range(c)] for a in range(c)],
            [tf.unstack(row) for row in tf.unstack(crossed)]
            if r + density_size
            else [],
            [tf.unstack(row) for row in tf.unstack(square)] if r + density_size else [],
        )


def find_predictors(
    likelihood: Integrated, target: Target, columns: Tensors
) -> GroupedPredictors | None:
    """Return the linear predictors of a likelihood of packs, if it is one of few of them.

    Args:
        likelihood: Likelihood of packs.
        target: Log posterior of which it is a part, without a preconditioner.
        columns: Some packs.
    """
    groups = likelihood.groups
    if (
        likelihood.nodes == 1 and not groups.normal
    ):  # Laplace's approximation is another function
        return None
    if target.size < _SETTINGS.min_coordinates or has_sparse(columns):
        return None

    def log_lik(params: Tensors, columns: Tensors) -> tf.Tensor:
        rows = dict(columns)
        return likelihood.log_lik({**params, **groups.named(rows.pop(_EFFECTS))}, rows)

    def density(params: Tensors, columns: Tensors) -> tf.Tensor:
        return groups.log_prior(groups.named(columns[_EFFECTS]), dict(params))

    effects = tf.TensorSpec([1, groups.size], target.dtype)
    rows = {
        name: tf.TensorSpec([1, *column.shape[2:]], column.dtype)
        for name, column in columns.items()
        if name not in COLUMNS
    }
    of_likelihood = find_factors(
        _target_of(target, log_lik), {**rows, _EFFECTS: effects}, drawn=_EFFECTS
    )
    of_density = find_factors(
        _target_of(target, density), {_EFFECTS: effects}, min_predictors=0
    )
    if of_likelihood is None or of_density is None:
        return None
    return GroupedPredictors(likelihood, target, of_likelihood, of_density)


def _target_of(target: Target, log_lik: Any) -> Target:
    return Target(log_lik, None, target.space, target.dtype)


def _stack(rows: list[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Return numbers by row, one under another, (c, n); n is 1 if there are none."""
    return tf.stack(rows) if rows else tf.zeros([0, 1], dtype)


def _square(rows: list[list[Any]], dtype: tf.DType) -> tf.Tensor:
    return (
        tf.stack([tf.stack(row) for row in rows])
        if rows
        else tf.zeros([0, 0, 1], dtype)
    )


def _mean(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Return sums over the nodes with these weights, (k, n), of values (k, ..., n)."""
    ones = [1] * (values.shape.rank - 2)
    return tf.reduce_sum(
        tf.reshape(weights, [weights.shape[0], *ones, tf.shape(weights)[1]]) * values, 0
    )
