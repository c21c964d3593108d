"""The posterior density of a regression of few rows, effects of one factor integrated out.

Those of further factors are coordinates.

Source: Pinheiro & Bates (1995), *Approximations to the log-likelihood function in the nonlinear
mixed-effects model*, section 2.4, for the quadrature; Liu & Pierce (1994), *A note on Gauss–Hermite
quadrature*, eq. 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from sgmcmc.graphs.compiler import Compiled, FlatGraph
from sgmcmc.graphs.tracing import vectorized_map
from sgmcmc.groups.marginal import DEGREES, gauss_hermite
from sgmcmc.model.layout import Layout
from sgmcmc.regression.building import parameters_of
from sgmcmc.regression.families import Tensors
from sgmcmc.regression.model import Effects, RegressionModel
from sgmcmc.regression.priors import log_prior
from sgmcmc.regression.scales import matrices_of

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Settings:
    evaluated: int = 2**21  # terms of rows that are computed at a time
    steps: int = 40  # of Newton to the modes of groups, at most
    longest: float = 2.0  # step, as a change of the linear predictor of a row
    gain: float = 1e-3  # in log density, that a step must promise
    # Precision of standardized effects, at most: beyond, rounding makes matrices singular.
    precision: float = 1e13
    difference: float = 0.5  # of positions whose modes are compared, in their SDs
    floor: float = 1e-10  # of the information of a group's rows, which may have none


_SETTINGS = _Settings()


class RowTerms:
    """The log-likelihood of each row, a function of linear predictors and auxiliary parameters.

    Args:
        model: Model.
        rows: Columns of the log-likelihood, (rows,) each.
    """

    def __init__(self, model: RegressionModel, rows: Arrays) -> None:
        self._model = model
        self._rows = {name: tf.constant(v, tf.float64) for name, v in rows.items()}
        spec = tf.TensorSpec([None, None, None], tf.float64)
        of_aux = tf.TensorSpec([None, 1, 1], tf.float64)
        self._specs = spec, {aux.name: of_aux for aux in model.family.aux}

    def __call__(self, eta: np.ndarray, params: Arrays) -> np.ndarray:
        """Return the log-likelihoods of rows, (c, k, rows).

        Args:
            eta: Linear predictors, as :meth:`Model.predictor` has them, (c, k, rows).
            params: Parameters, (c, ...), auxiliary ones among them.
        """
        return np.asarray(self._graph(*self._tensors(eta, params)))

    def of_rows(self, rows: np.ndarray) -> RowTerms:
        """Return the same of some rows."""
        columns = {name: values.numpy()[rows] for name, values in self._rows.items()}
        return RowTerms(self._model, columns)

    def differentiated(
        self, eta: np.ndarray, params: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return first and second derivatives with respect to predictors, (c, rows) each."""
        slopes, curvatures = self._derivatives(
            *self._tensors(eta[:, np.newaxis], params)
        )
        return np.asarray(slopes)[:, 0], np.asarray(curvatures)[:, 0]

    def _tensors(self, eta: np.ndarray, params: Arrays) -> tuple[tf.Tensor, Tensors]:
        names = self._specs[1]
        return tf.constant(eta), {
            name: tf.constant(params[name].reshape(-1, 1, 1)) for name in names
        }

    @cached_property
    def _graph(self) -> Compiled:
        return Compiled(FlatGraph(self.at, *self._specs))

    @cached_property
    def _derivatives(self) -> Compiled:
        return Compiled(FlatGraph(self._slopes_and_curvatures, *self._specs))

    def at(self, eta: tf.Tensor, aux: Tensors) -> tf.Tensor:
        """Return the log-likelihoods of rows, (..., rows), in a graph."""
        return self._model.terms_of(eta, aux, self._rows)

    def _slopes_and_curvatures(
        self, eta: tf.Tensor, aux: Tensors
    ) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            outer.watch(eta)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(eta)
                terms = self.at(eta, aux)
            slopes = inner.gradient(terms, eta)
        return slopes, outer.gradient(slopes, eta, unconnected_gradients="zero")


class RegressionPrior:
    """The log prior of a regression in the coordinates of a chain, without constraints.

    Args:
        model: Model.

    Attributes:
        layout: Layout of the parameters, which have as many coordinates as numbers.
        start: Position of the starting values.
    """

    def __init__(self, model: RegressionModel) -> None:
        self._model = model
        params, self._bijectors = parameters_of(model)
        arrays = {name: np.asarray(v, np.float64) for name, v in params.items()}
        self.layout = Layout({name: array.shape for name, array in arrays.items()})
        self.start = self.positions(arrays)[0]

    def positions(self, params: Arrays) -> np.ndarray:
        """Return the positions of parameters, (c, ...) or those of one, as (c, d)."""
        columns = []
        for name, size in self.layout.sizes.items():
            values = np.asarray(params[name], np.float64).reshape(-1, size)
            if name in self._bijectors:
                values = np.asarray(self._bijectors[name].inverse(values))
            columns.append(values)
        return np.concatenate(columns, 1)

    def __call__(
        self, positions: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the log prior, with the log-Jacobian, and the parameters, at positions, (c, d)."""
        value, params = self._graph(tf.constant(positions))
        return np.asarray(value), {name: np.asarray(v) for name, v in params.items()}

    @cached_property
    def _graph(self) -> Compiled:
        spec = tf.TensorSpec([None, len(self.start)], tf.float64)

        def at_all(positions: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
            return vectorized_map(self.at, positions)

        return Compiled(FlatGraph(at_all, spec))

    def at(self, position: tf.Tensor) -> tuple[tf.Tensor, Tensors]:
        """Return the same of one position, (d,), in a graph."""
        params = self.layout.split(position)
        log_jacobian = tf.zeros([], position.dtype)
        for name, bijector in self._bijectors.items():
            of_entries = bijector.forward_log_det_jacobian(params[name], 0)
            log_jacobian += tf.reduce_sum(of_entries)
            params[name] = bijector.forward(params[name])
        return log_prior(self._model, params) + log_jacobian, params


@dataclass(frozen=True)
class GroupedRows:
    """Groups of rows, which are in the order of groups.

    Attributes:
        effects: Their effects.
        z: Factors of the effects of the group of each row, (q, rows).
        codes: Number of the group of each row, (rows,), in ascending order, none left out.
    """

    effects: Effects
    z: np.ndarray
    codes: np.ndarray

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.flatnonzero(np.diff(self.codes, prepend=-1))

    def sums(self, of_rows: np.ndarray) -> np.ndarray:
        """Return the sums over the rows of each group, (..., groups)."""
        return np.asarray(np.add.reduceat(of_rows, self._starts, -1))

    def predictors(self, columns: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Return their part of the linear predictors, (c, rows).

        Args:
            columns: Factors of standardized effects, (c, q, rows).
            u: Standardized effects, (c, groups, q).
        """
        return np.einsum("cin,cni->cn", columns, u[:, self.codes])

    def largest(self, of_rows: np.ndarray) -> np.ndarray:
        """Return the largest value in the rows of each group, (..., groups)."""
        return np.asarray(np.maximum.reduceat(of_rows, self._starts, -1))


@dataclass(frozen=True)
class FurtherEffects:
    """Effects of further factors, which are coordinates of positions.

    Attributes:
        factors: Effects of each factor, and the number of its levels.
        z: Their columns, level by level, (rows, m).
    """

    factors: tuple[tuple[Effects, int], ...]
    z: scipy.sparse.csr_matrix

    @property
    def size(self) -> int:
        """Number of effects, m."""
        return int(self.z.shape[1])

    @cached_property
    def layout(self) -> Layout:
        """Layout of the effects."""
        return Layout(
            {
                effects.effects_name: (levels, len(effects.terms))
                for effects, levels in self.factors
            }
        )

    def joined(self, params: Arrays) -> np.ndarray:
        """Return effects by name as coordinates, (c, m)."""
        flat = [params[name].reshape(-1, n) for name, n in self.layout.sizes.items()]
        return np.concatenate(flat, 1)

    def predictors(self, params: Arrays) -> np.ndarray:
        """Return their part of the linear predictors, (c, rows)."""
        return np.asarray((self.z @ self.joined(params).T).T)


class QuadratureRule(NamedTuple):
    """Where the nodes of each group are, to first order in the position.

    Known so is the likelihood of a group's effects r, −½ r'Mr + h'r to second order around their
    mode. It hardly depends on the scales: with their root L standardized effects have the precision
    P = I + L'ML and the mode P⁻¹L'h, which is right for scales near zero, too.

    Attributes:
        center: The position around which they are known, (d,).
        values: There h, the logs of the diagonal of the root of M, and what is below it,
            (groups, q + q + q (q − 1) / 2).
        slopes: Their derivatives, (d, groups, ...).
    """

    center: np.ndarray
    values: np.ndarray
    slopes: np.ndarray

    def at(
        self, positions: np.ndarray, root: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return modes, (c, groups, q), and inverse roots of P, (c, groups, q, q), at positions.

        Args:
            positions: Positions, (c, d).
            root: L, (c, q, q).
        """
        q = root.shape[-1]
        values = self.values + np.tensordot(positions - self.center, self.slopes, 1)
        of_data = np.zeros((*values.shape[:2], q, q))
        of_data[..., np.arange(q), np.arange(q)] = np.exp(values[..., q : 2 * q])
        of_data[(..., *np.tril_indices(q, -1))] = values[..., 2 * q :]
        standard = np.einsum("cgji,cjk->cgik", of_data, root)
        precision = np.eye(q) + np.einsum("cgji,cgjk->cgik", standard, standard)
        inverses = _inverse_roots(precision)
        toward = np.einsum("cji,cgj->cgi", root, values[..., :q])
        toward = np.einsum("cgij,cgj->cgi", inverses, toward)
        return np.einsum("cgji,cgj->cgi", inverses, toward), inverses

    @staticmethod
    def values_of(
        modes: np.ndarray, precision_roots: np.ndarray, root: np.ndarray
    ) -> np.ndarray:
        """Return the values of modes, (c, groups, q), and roots of precisions at L, (c, q, q)."""
        q = root.shape[-1]
        inverse = np.linalg.inv(root)
        precision = np.matmul(precision_roots, precision_roots.swapaxes(-1, -2))
        of_data = precision - np.eye(q)
        of_data = np.einsum("cji,cgjk,ckl->cgil", inverse, of_data, inverse)
        sizes = 1.0 + np.trace(of_data, axis1=-2, axis2=-1)
        floor = _SETTINGS.floor * sizes[..., np.newaxis, np.newaxis] * np.eye(q)
        roots = np.linalg.cholesky(of_data + floor)
        toward = np.einsum("cji,cgjk,cgk->cgi", inverse, precision, modes)
        diagonal = np.log(np.diagonal(roots, axis1=-2, axis2=-1))
        below = roots[(..., *np.tril_indices(q, -1))]
        return np.concatenate([toward, diagonal, below], -1)


def _inverse_roots(precision: np.ndarray) -> np.ndarray:
    """Return R⁻¹ of precisions RR', (..., q, q), NaN where one is out of range."""
    valid = (np.abs(precision) < _SETTINGS.precision).all((-2, -1))[..., None, None]
    inside = np.where(valid, precision, np.eye(precision.shape[-1]))
    return np.where(valid, np.linalg.inv(np.linalg.cholesky(inside)), np.nan)


class Proposals(NamedTuple):
    """Random numbers for draws of effects at c positions by k − 1 moves.

    Attributes:
        normals: Standard normals, (c, k, groups, q).
        squares: χ² numbers with ``DEGREES`` degrees of freedom, (c, k, groups).
        bars: Logarithms of uniform numbers, (c, k − 1, groups).
    """

    normals: np.ndarray
    squares: np.ndarray
    bars: np.ndarray


@dataclass(frozen=True)
class RegressionDensity:
    """The log posterior of a regression, up to the constants that priors leave out.

    Attributes:
        prior: Prior, in the coordinates of positions.
        terms: Log-likelihood of each row.
        model: Model.
        x: Design, centered and scaled, (rows, p).
        groups: Groups of rows; ``None`` for none.
        further: Effects of further factors, the last coordinates; ``None`` for none.
        nodes: Nodes of the quadrature in each direction.
        rule: Where the nodes are; ``None`` if modes are searched at each position.
    """

    prior: RegressionPrior
    terms: RowTerms
    model: RegressionModel
    x: np.ndarray
    groups: GroupedRows | None = None
    further: FurtherEffects | None = None
    nodes: int = 1
    rule: QuadratureRule | None = None

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the log density at positions, (c, d), −∞ where it is not a number."""
        with np.errstate(all="ignore"):
            values = [self._at(part) for part in self._parts(positions)]
        joined = np.concatenate(values)
        return np.where(np.isnan(joined), -np.inf, joined)

    def around(self, position: np.ndarray, sds: np.ndarray) -> RegressionDensity:
        """Return the same with nodes whose places are known to first order near a position.

        Args:
            position: Position, (d,).
            sds: Standard deviations of its coordinates, (d,).
        """
        if self.groups is None:
            return self
        steps = np.diag(_SETTINGS.difference * sds)
        positions = np.concatenate([position + steps, position - steps, [position]])
        parts = []
        for part in self._parts(positions):
            params = self.params(part)
            root = self.root(self.groups.effects, params)
            modes, precision_roots = self._modes(
                self._fixed(params), self.columns(root), params
            )
            if not np.isfinite(precision_roots).all():
                return self
            parts.append(QuadratureRule.values_of(modes, precision_roots, root))
        values = np.concatenate(parts)
        if not np.isfinite(values).all():
            return self
        above, below = np.split(values[:-1], 2)
        slopes = (above - below) / (2.0 * steps.diagonal()[:, np.newaxis, np.newaxis])
        return replace(self, rule=QuadratureRule(position, values[-1], slopes))

    def params(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters at positions, (c, ...), by name."""
        return self.prior_and_params(positions)[1]

    def positions(self, params: Arrays) -> np.ndarray:
        """Return the positions of parameters, (c, ...) by name, as (c, d)."""
        positions = self.prior.positions(params)
        if self.further is None:
            return positions
        return np.concatenate([positions, self.further.joined(params)], 1)

    def prior_and_params(
        self, positions: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the log prior, that of further effects included, and parameters."""
        size = len(self.prior.start)
        log_prior, params = self.prior(positions[:, :size])
        if self.further is None:
            return log_prior, params
        effects = self.further.layout.split(positions[:, size:])
        for of_factor, levels in self.further.factors:
            root = self.root(of_factor, params)
            of_levels = effects[of_factor.effects_name]
            standard = np.einsum("cij,cgj->cgi", np.linalg.inv(root), of_levels)
            log_roots = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
            squares = (standard**2 + np.log(2.0 * np.pi)).sum((1, 2))
            log_prior = log_prior - 0.5 * squares - levels * log_roots
        return log_prior, params | effects

    @property
    def terms_of_a_position(self) -> int:
        """Number of terms of rows at one position."""
        q = 0 if self.groups is None else len(self.groups.z)
        return len(self.x) * self.nodes**q

    def _parts(self, positions: np.ndarray) -> list[np.ndarray]:
        length = max(1, _SETTINGS.evaluated // self.terms_of_a_position)
        return [positions[k : k + length] for k in range(0, len(positions), length)]

    def _at(self, positions: np.ndarray) -> np.ndarray:
        prior, params = self.prior_and_params(positions)
        fixed = self._fixed(params)
        if self.groups is None:
            return prior + self.terms(fixed[:, np.newaxis], params).sum((1, 2))
        root = self.root(self.groups.effects, params)
        columns = self.columns(root)
        if self.rule is None:
            modes, precision_roots = self._modes(fixed, columns, params)
            inverses = np.linalg.inv(precision_roots)
        else:
            modes, inverses = self.rule.at(positions, root)
        x, log_w = self.nodes_and_weights
        u = modes[:, np.newaxis] + np.einsum("cgji,kj->ckgi", inverses, x)
        # Linear in the nodes: predictors of rows at all of them are one product of matrices.
        codes = self.groups.codes
        center = fixed + self.groups.predictors(columns, modes)
        slopes = np.einsum("cin,cnji->cjn", columns, inverses[:, codes])
        eta = center[:, np.newaxis] + x @ slopes
        heights = self.groups.sums(self.terms(eta, params)) - 0.5 * (u**2).sum(-1)
        heights += log_w[:, np.newaxis]
        highest = heights.max(1)
        below = np.exp(heights - highest[:, np.newaxis]).sum(1)
        log_scales = np.log(np.diagonal(inverses, axis1=-2, axis2=-1)).sum(-1)
        constant = 0.5 * x.shape[1] * np.log(np.pi)
        return prior + (highest + np.log(below) + log_scales - constant).sum(1)

    @cached_property
    def nodes_and_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of the quadrature, (k, q), and the logs of their weights, (k,)."""
        assert self.groups is not None
        return gauss_hermite(self.nodes, len(self.groups.z))

    def draw_effects(self, params: Arrays, random: Proposals) -> np.ndarray:
        """Return a draw of the effects of each group given parameters, (c, groups, q).

        An independence sampler makes it. Proposals are Student-t around the mode, wider than the
        density in its tails.

        Args:
            params: Parameters, (c, ...), by name.
            random: Random numbers.
        """
        assert self.groups is not None
        fixed, root = self._fixed(params), self.root(self.groups.effects, params)
        columns = self.columns(root)
        modes, precision_roots = self._modes(fixed, columns, params)
        q = random.normals.shape[-1]
        x = random.normals * np.sqrt(DEGREES / random.squares)[..., np.newaxis]
        inverses = np.linalg.inv(precision_roots)
        u = modes[:, np.newaxis] + np.einsum("cgji,ckgj->ckgi", inverses, x)
        log_t = -0.5 * (DEGREES + q) * np.log1p((x**2).sum(-1) / DEGREES)
        weights = self._heights(u, fixed, columns, params) - log_t
        chosen, weight = u[:, 0], weights[:, 0]
        for k in range(1, u.shape[1]):
            accepted = random.bars[:, k - 1] < weights[:, k] - weight
            chosen = np.where(accepted[..., np.newaxis], u[:, k], chosen)
            weight = np.where(accepted, weights[:, k], weight)
        return np.asarray(np.einsum("cij,cgj->cgi", root, chosen))

    def of_groups(self, numbers: np.ndarray) -> RegressionDensity:
        """Return the same with the rows of some groups alone, in the order of ``numbers``."""
        assert self.groups is not None
        codes = self.groups.codes
        of_groups = [np.flatnonzero(codes == number) for number in numbers]
        rows = np.concatenate(of_groups)
        sizes = [len(of_group) for of_group in of_groups]
        groups = GroupedRows(
            self.groups.effects,
            self.groups.z[:, rows],
            np.repeat(np.arange(len(numbers)), sizes),
        )
        further = self.further and replace(self.further, z=self.further.z[rows])
        return replace(
            self,
            terms=self.terms.of_rows(rows),
            x=self.x[rows],
            groups=groups,
            further=further,
            rule=None,
        )

    def _heights(
        self, u: np.ndarray, fixed: np.ndarray, columns: np.ndarray, params: Arrays
    ) -> np.ndarray:
        """Return log p(y_g, u_g | θ) + ½ q log 2π of groups, (c, k, groups).

        Args:
            u: Standardized effects, (c, k, groups, q).
            fixed: Predictors without effects, (c, rows).
            columns: Factors of standardized effects, (c, q, rows).
            params: Parameters.
        """
        assert self.groups is not None
        standard = u[:, :, self.groups.codes]
        of_effects = np.einsum("cin,ckni->ckn", columns, standard)
        terms = self.terms(fixed[:, np.newaxis] + of_effects, params)
        return np.asarray(self.groups.sums(terms) - 0.5 * (u**2).sum(-1))

    def _fixed(self, params: Arrays) -> np.ndarray:
        """Return the predictors of rows without effects of these groups, (c, rows)."""
        if "b" in params:
            fixed = params["b"] @ self.x.T
        else:
            fixed = np.zeros((len(next(iter(params.values()))), len(self.x)))
        return (
            fixed if self.further is None else fixed + self.further.predictors(params)
        )

    def root(self, effects: Effects, params: Arrays) -> np.ndarray:
        """Return L, LL' the covariance of the effects of a group of a factor, (c, q, q)."""
        sds = params[effects.sds_name] * (effects.scale / self.model.unit)
        rows = effects.root(sds, params.get(effects.correlations_name))
        return matrices_of(rows, len(sds))

    def columns(self, root: np.ndarray) -> np.ndarray:
        """Return the factors of standardized effects, L'z of each row, (c, q, rows)."""
        assert self.groups is not None
        return np.einsum("cji,jn->cin", root, self.groups.z)

    def _modes(
        self, fixed: np.ndarray, columns: np.ndarray, params: Arrays
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return modes of standardized effects, (c, groups, q), and roots of their precisions.

        Roots are NaN where a precision is out of range.

        Newton's method finds them, in steps that change no predictor much. Directions in which a
        likelihood is not concave have the curvature of the density of effects alone.

        Args:
            fixed: Predictors without effects, (c, rows).
            columns: Factors of standardized effects, (c, q, rows).
            params: Parameters.
        """
        groups = self.groups
        assert groups is not None
        q = len(groups.z)
        u = np.zeros((len(fixed), groups.codes[-1] + 1, q))
        products = columns[:, :, np.newaxis] * columns[:, np.newaxis]
        for _ in range(_SETTINGS.steps):
            eta = fixed + groups.predictors(columns, u)
            slopes, curvatures = self.terms.differentiated(eta, params)
            of_groups = groups.sums(columns * slopes[:, np.newaxis])
            gradient = of_groups.transpose(0, 2, 1) - u
            weights = np.maximum(-curvatures, 0.0)[:, np.newaxis, np.newaxis]
            information = groups.sums(products * weights).transpose(0, 3, 1, 2)
            valid = (np.abs(information) < _SETTINGS.precision).all((2, 3))
            valid = valid[..., np.newaxis, np.newaxis]
            precision = np.where(valid, information, 0.0) + np.eye(q)
            step = np.linalg.solve(precision, gradient[..., np.newaxis])[..., 0]
            gain = (step * gradient).sum(-1)
            is_left = gain > _SETTINGS.gain
            if not is_left.any():
                break
            largest = groups.largest(np.abs(groups.predictors(columns, step)))
            shorter = _SETTINGS.longest / np.maximum(largest, _SETTINGS.longest)
            u = u + np.where(is_left, shorter, 0.0)[..., np.newaxis] * step
        return u, np.where(valid, np.linalg.cholesky(precision), np.nan)
