"""The posterior of the scales of a Gaussian regression, and coefficients and effects given them.

:mod:`sgmcmc.reduce.gaussian` has the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.linalg import solve_triangular

from sgmcmc.reduce.crossed import Eliminated, inverses_of
from sgmcmc.reduce.gaussian import GaussianSums, GroupSums

_LOG_2PI = float(np.log(2.0 * np.pi))

Elimination = Callable[[np.ndarray], np.ndarray]
"""Function of logs of ratios, (c, factors), that returns what elimination leaves, (c, values)."""


@dataclass(frozen=True)
class _Settings:
    evaluated: int = 2**22  # numbers of projections that are whitened at a time


_SETTINGS = _Settings()


class ScaleModel(Protocol):
    """The scales of a Gaussian regression, as functions of unconstrained positions, (c, d)."""

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        """Return σ, (c,)."""

    def roots(self, positions: np.ndarray) -> list[np.ndarray]:
        """Return L of each factor, LL' the covariance of the effects of a group, (c, q, q).

        The factor that is integrated out first is the first, and crossed ones are the last.
        """

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        """Return the log prior density of positions, with the log-Jacobian, (c,)."""


@dataclass(frozen=True)
class _CoefficientForm:
    """The quadratic form of coefficients at some positions, |X b − y|² + prior.

    Attributes:
        constant: Log density without that form and the integral, (c,).
        root: Cholesky factor of the precision of coefficients, (c, p, p).
        mean: Mean of coefficients, (c, p).
        squares: The form at the mean, (c,).
    """

    constant: np.ndarray
    root: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def log_marginal(self) -> np.ndarray:
        """Log density, coefficients integrated out, (c,)."""
        integral = 0.5 * self.mean.shape[1] * _LOG_2PI - _log_diagonal(self.root)
        return self.constant - 0.5 * self.squares + integral


@dataclass(frozen=True)
class MarginalDensity:
    """The posterior of scales with coefficients and effects integrated out.

    Log densities are those of data and parameters together, with a normal prior's exponent alone
    of coefficients.

    Args:
        sums: Sums of the data.
        mean, sd: Means and standard deviations of the priors of coefficients, (p,).
        scales: Model of the scales.
        table: Function of :meth:`log_ratios` in the place of :meth:`eliminated_at`.
    """

    sums: GaussianSums
    mean: np.ndarray
    sd: np.ndarray
    scales: ScaleModel
    table: Elimination | None = None

    @cached_property
    def _dense(self) -> int:
        """Number of effects among the columns, which the coefficients follow."""
        return len(self.sums.root) - 1 - len(self.mean)

    @cached_property
    def _prior(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of standard normal effects and of coefficients."""
        mean = np.append(np.zeros(self._dense), self.mean)
        return mean, np.append(np.ones(self._dense), self.sd)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the log density at positions, (c, d), −∞ where it is not a number."""
        with np.errstate(all="ignore"):
            parts = [
                self._whitened(part).log_marginal for part in self._parts(positions)
            ]
        values = np.concatenate(parts)
        return np.where(np.isnan(values), -np.inf, values)

    def draw(
        self, positions: np.ndarray, normals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients given scales, and the log density of both.

        Args:
            positions: Positions, (c, d).
            normals: Standard normals, (c, p).
        """
        coefficients, log_densities = np.empty_like(normals), np.empty(len(positions))
        s, p = self._dense, len(self.mean)
        start = 0
        for part in self._parts(positions):
            there = slice(start, start + len(part))
            start = there.stop
            form, z = self._whitened(part), normals[there]
            root = form.root[:, s:, s:]
            moves = np.linalg.solve(root.transpose(0, 2, 1), z[..., np.newaxis])
            coefficients[there] = form.mean[:, s:] + moves[..., 0]
            conditional = _log_diagonal(root) - 0.5 * p * _LOG_2PI
            log_densities[there] = form.log_marginal + conditional - 0.5 * (z**2).sum(1)
        return coefficients, log_densities

    def draw_others(
        self, positions: np.ndarray, coefficients: np.ndarray, normals: np.ndarray
    ) -> np.ndarray:
        """Return effects of all factors but the first given scales and coefficients, (c, effects).

        They come factor by factor and level by level.

        Args:
            positions: Positions, (c, d).
            coefficients: Coefficients, (c, p).
            normals: Standard normals, (c, effects).
        """
        s, effects = self._dense, np.empty_like(normals)
        start = 0
        for part in self._parts(positions):
            there = slice(start, start + len(part))
            start = there.stop
            form = self._whitened(part)
            uu, bu = form.root[:, :s, :s], form.root[:, s:, :s]
            from_mean = coefficients[there] - form.mean[:, s:]
            toward = normals[there, :s] - np.einsum("cbu,cb->cu", bu, from_mean)
            moves = np.linalg.solve(uu.transpose(0, 2, 1), toward[..., np.newaxis])
            standard = form.mean[:, :s] + moves[..., 0]
            roots = self.scales.roots(part)
            transposed = [root.transpose(0, 2, 1) for root in roots]
            of_standard = self._of_effects(standard[:, np.newaxis], transposed)
            effects[there, :s] = of_standard[:, 0]
            if self.sums.crossed is None:
                continue
            sigma = self.scales.sigma(part)
            given = np.concatenate([effects[there, :s], coefficients[there]], 1)
            for k, eliminated in enumerate(self._eliminated(self._ratios(part))):
                of_crossed = normals[start - len(part) + k, s:]
                drawn = eliminated.effects(given[k], sigma[k], of_crossed)
                effects[start - len(part) + k, s:] = drawn
        return effects

    def of_groups(self, groups: np.ndarray) -> MarginalDensity:
        """Return the same with some of the groups whose effects are drawn."""
        return replace(self, sums=self.sums.of_groups(groups))

    def draw_effects(
        self, positions: np.ndarray, coefficients: np.ndarray, normals: np.ndarray
    ) -> np.ndarray:
        """Return effects of the selected groups given scales and coefficients, (c, groups, q).

        Args:
            positions: Positions, (c, d).
            coefficients: Effects of all other factors, then coefficients, (c, effects + p).
            normals: Standard normals, (c, groups, q).
        """
        groups = self.sums.selected
        assert groups is not None
        root, sigma = self.scales.roots(positions)[0], self.scales.sigma(positions)
        columns = np.matmul(groups.roots, root[:, np.newaxis])
        columns = columns / sigma[:, np.newaxis, np.newaxis, np.newaxis]
        transposed = columns.transpose(0, 1, 3, 2)
        precision = np.eye(root.shape[1]) + np.matmul(transposed, columns)
        x, y = groups.projections[..., :-1], groups.projections[..., -1]
        if self.sums.crossed is not None:
            assert self.sums.crossed_selected is not None
            s, m = self._dense, self.sums.crossed.size
            explained = self.sums.crossed_selected @ coefficients[:, s : s + m].T
            y = y - explained.T.reshape(-1, *y.shape)
            coefficients = np.delete(coefficients, slice(s, s + m), 1)
        left = y - np.einsum("gqp,cp->cgq", x, coefficients)
        left = left / sigma[:, np.newaxis, np.newaxis]
        factor = np.linalg.cholesky(precision)
        toward = np.linalg.solve(factor, np.matmul(transposed, left[..., np.newaxis]))
        shifted = toward + normals[..., np.newaxis]
        u = np.linalg.solve(factor.transpose(0, 1, 3, 2), shifted)[..., 0]
        return np.einsum("cij,cgj->cgi", root, u)

    def _parts(self, positions: np.ndarray) -> list[np.ndarray]:
        """Return positions in parts whose projections are few enough to be whitened together."""
        numbers = self.sums.root.size
        if self.sums.groups is not None and self.table is None:
            numbers += self.sums.groups.projections.size
        if self.sums.crossed is not None and self.table is None:
            numbers += self.sums.crossed.within.size + self.sums.crossed.terms.shape[0]
        length = max(1, _SETTINGS.evaluated // numbers)
        return [positions[k : k + length] for k in range(0, len(positions), length)]

    def _whitened(self, positions: np.ndarray) -> _CoefficientForm:
        sigma, roots = self.scales.sigma(positions), self.scales.roots(positions)
        constant = self.scales.log_prior(positions) - 0.5 * self._dense * _LOG_2PI
        constant = constant - self.sums.total * (np.log(sigma) + 0.5 * _LOG_2PI)
        if self.sums.crossed is None:
            constant, stacked = self._without_groups(constant, roots, sigma)
        else:
            if self.table is None:
                values = self._left(self._ratios(positions))
            else:
                values = self.table(self.log_ratios(positions))
            constant = constant + values[:, 0]
            k = len(self.sums.root)
            stacked = _root_of(values[:, 1:].reshape(-1, k, k))
        stacked = stacked / sigma[:, np.newaxis, np.newaxis]
        x, y = self._of_effects(stacked, roots)[..., :-1], stacked[..., -1]
        prior_mean, sd = self._prior
        transposed = x.transpose(0, 2, 1)
        precision = np.matmul(transposed, x) + np.diag(sd**-2.0)
        toward = np.matmul(transposed, y[..., np.newaxis])[..., 0] + prior_mean / sd**2
        valid = np.isfinite(precision).all((1, 2)) & np.isfinite(constant)
        identity = np.eye(len(sd))
        precision = np.where(valid[:, np.newaxis, np.newaxis], precision, identity)
        root = _precision_root(precision, x, sd)
        mean = _solve(root, toward)
        left = y - np.matmul(x, mean[..., np.newaxis])[..., 0]
        # What rounding leaves of the gradient, which is small: of terms that are alike.
        change = np.matmul(transposed, left[..., np.newaxis])[..., 0]
        mean = mean + _solve(root, change + (prior_mean - mean) / sd**2)
        left = y - np.matmul(x, mean[..., np.newaxis])[..., 0]
        squares = (left**2).sum(1) + (((mean - prior_mean) / sd) ** 2).sum(1)
        constant = np.where(valid, constant, -np.inf)
        return _CoefficientForm(constant, root, mean, squares)

    def _without_groups(
        self, constant: np.ndarray, roots: Sequence[np.ndarray], sigma: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a constant less half a log determinant, and rows without effects of groups.

        Args:
            constant: Constant, (c,).
            roots: L of each factor, (c, q, q).
            sigma: σ, (c,).
        """
        root = self.sums.root.T
        columns = [np.broadcast_to(root, (len(sigma), *root.shape))]
        if self.sums.groups is not None:
            groups = self.sums.groups
            factor = _factor(groups.by_entry, roots[0], sigma)
            for i, row in enumerate(factor):
                constant = constant - np.log(row[i]) @ groups.counts
            columns += _solved(factor, groups)
        return constant, np.concatenate(columns, 2).transpose(0, 2, 1)

    def log_ratios(self, positions: np.ndarray) -> np.ndarray:
        """Return the logs of the scales of eliminated effects over σ, (c, factors).

        They are of the factor that is integrated out first, and of the crossed ones, each of which
        has one effect for each level.
        """
        ratios = [ratio[:, 0, 0] for ratio in self._ratios(positions)]
        return np.log(np.stack(ratios, 1))

    def eliminated_at(self, log_ratios: np.ndarray) -> np.ndarray:
        """Return the values that elimination leaves at such logs, (c, 1 + k²), for k other columns.

        That is minus half the log determinant, and the products of what is left of the columns.
        """
        ratios = np.exp(log_ratios)[:, :, np.newaxis, np.newaxis]
        return np.concatenate([self._left(at_one[:, np.newaxis]) for at_one in ratios])

    def _left(self, ratios: Sequence[np.ndarray]) -> np.ndarray:
        """Return the same at roots over σ, of the first factor and of the crossed ones."""
        zero = np.zeros(len(ratios[0]))
        minus_half, rows = self._without_groups(zero, ratios, np.ones_like(zero))
        products = np.matmul(rows.transpose(0, 2, 1), rows)
        for k, eliminated in enumerate(self._eliminated(ratios)):
            minus_half[k] -= eliminated.half_log_det
            products[k] -= eliminated.explained.T @ eliminated.explained
        return np.column_stack([minus_half, products.reshape(len(products), -1)])

    def _ratios(self, positions: np.ndarray) -> list[np.ndarray]:
        """Return L over σ, of the first factor and of the crossed ones, (c, q, q)."""
        assert self.sums.crossed is not None
        first, *others = self.scales.roots(positions)
        sigma = self.scales.sigma(positions)[:, np.newaxis, np.newaxis]
        crossed = others[-len(self.sums.crossed.levels) :]
        return [root / sigma for root in (first, *crossed)]

    def _eliminated(self, ratios: Sequence[np.ndarray]) -> list[Eliminated]:
        """Return the effects of crossed factors, integrated out, at each position.

        Args:
            ratios: Roots over σ, of the first factor and of the crossed ones, (c, q, q).
        """
        crossed, groups = self.sums.crossed, self.sums.groups
        assert crossed is not None and groups is not None
        first, *own = ratios
        inverse = inverses_of(groups.roots, first)
        weighted = np.matmul(inverse[:, groups.kinds], groups.projections)
        by_group = weighted.transpose(1, 2, 0, 3)
        flat = by_group.reshape(-1, len(first) * weighted.shape[-1])
        products = (crossed.projections @ flat).reshape(crossed.size, len(first), -1)
        entries = crossed.entries(first)
        return [
            crossed.eliminated(
                entries[:, k],
                crossed.within + products[:, k],
                [ratio[k] for ratio in own],
            )
            for k in range(len(first))
        ]

    def _of_effects(self, rows: np.ndarray, roots: Sequence[np.ndarray]) -> np.ndarray:
        """Return rows whose columns of effects are those of standard normal ones."""
        if not self._dense:
            return rows
        rows, start = rows.copy(), 0
        for levels, root in zip(self.sums.dense, roots[1:], strict=False):
            q = root.shape[1]
            columns = slice(start, start + levels * q)
            start = columns.stop
            by_level = rows[..., columns].reshape(*rows.shape[:2], levels, q)
            scaled = np.matmul(by_level, root[:, np.newaxis])
            rows[..., columns] = scaled.reshape(*rows.shape[:2], -1)
        return rows


def _root_of(products: np.ndarray) -> np.ndarray:
    """Return R with R'R = a positive semidefinite matrix, with rounding or not a number."""
    products = np.where(np.isfinite(products), products, 0.0)
    sizes = np.sqrt(np.maximum(np.diagonal(products, axis1=1, axis2=2), 0.0))
    sizes = np.where(sizes > 0.0, sizes, 1.0)[:, np.newaxis]
    correlations = products / sizes / sizes.transpose(0, 2, 1)
    values, vectors = np.linalg.eigh(correlations)
    roots = np.sqrt(np.maximum(values, 0.0))[..., np.newaxis]
    return np.asarray(roots * vectors.transpose(0, 2, 1) * sizes)


def _log_diagonal(root: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1))


def _precision_root(precision: np.ndarray, x: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor of X'X + prior, also where that is not positive by rounding."""
    try:
        return np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        prior = np.broadcast_to(np.diag(1.0 / sd), precision.shape)
        x = np.where(np.isfinite(x), x, 0.0)
        upper = np.linalg.qr(np.concatenate([x, prior], 1), "r")
        signs = np.sign(np.diagonal(upper, axis1=1, axis2=2))
        return np.asarray((signs[..., np.newaxis] * upper).transpose(0, 2, 1))


def _solve(root: np.ndarray, toward: np.ndarray) -> np.ndarray:
    """Return the solution for a matrix with a triangular root, (c, p)."""
    half = np.linalg.solve(root, toward[..., np.newaxis])
    return np.asarray(np.linalg.solve(root.transpose(0, 2, 1), half)[..., 0])


def _factor(
    roots: np.ndarray, covariance_root: np.ndarray, sigma: np.ndarray
) -> list[list[np.ndarray]]:
    """Return the Cholesky factors of M of each kind, entry by entry, (c, kinds).

    Kinds are the last axis of K, (q, q, kinds), so that each step is one over contiguous numbers.
    """
    q = roots.shape[1]
    covariance_root = covariance_root / sigma[:, np.newaxis, np.newaxis]
    columns = np.einsum("ilg,clk->ikcg", roots, covariance_root)
    factor: list[list[np.ndarray]] = []
    for i in range(q):
        row: list[np.ndarray] = []
        for j in range(i + 1):
            entry = float(i == j) + sum(columns[i, k] * columns[j, k] for k in range(q))
            for k in range(j):
                entry = entry - row[k] * (row if i == j else factor[j])[k]
            row.append(np.sqrt(entry) if i == j else entry / factor[j][j])
        factor.append(row)
    return factor


def _solved(factor: list[list[np.ndarray]], groups: GroupSums) -> list[np.ndarray]:
    """Return the projections whitened, (c, p + 1, groups) for each effect."""
    whitened: list[np.ndarray] = []
    for i, row in enumerate(factor):
        value = groups.by_column[i]
        of_groups = [groups.of_kinds(entry)[:, np.newaxis] for entry in row]
        for k in range(i):
            value = value - of_groups[k] * whitened[k]
        whitened.append(value / of_groups[i])
    return whitened


@dataclass(frozen=True)
class SharedBasis:
    """The posterior of σ alone, at a cost of p for each value.

    With T from the Cholesky factor of X'X/s² + P₀ and the eigenvectors of what the prior has of it,
    T'(X'X)T/s² = δ and T'P₀T = ω are diagonal, and b = b* + Tγ with b* the mean at σ = s. The
    precision of γ is π = ρδ + ω with ρ = s²/σ², and its mean (ρ − 1)g/π, where g is the gradient of
    the log-likelihood at b* and s.

    Args:
        density: Posterior of scales, without groups.
        s: Noise, near the posterior's.
    """

    density: MarginalDensity
    s: float

    @cached_property
    def _basis(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return T, δ, ω and b*."""
        x, y = self._data
        mean, sd = self.density.mean, self.density.sd
        p = len(mean)
        prior_rows = np.column_stack([np.diag(1.0 / sd), mean / sd])
        stacked = np.concatenate([np.column_stack([x, y]), prior_rows])
        upper = np.asarray(np.linalg.qr(stacked, "r"))
        root, toward = upper[:p, :p], upper[:p, p]
        center = solve_triangular(root, toward)
        of_prior = solve_triangular(root, np.diag(1.0 / sd), trans=1)
        _, vectors = np.linalg.eigh(of_prior @ of_prior.T)
        T = solve_triangular(root, vectors)
        data, prior = x @ T, T / sd[:, np.newaxis]
        return T, (data**2).sum(0), (prior**2).sum(0), center

    @property
    def _data(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the root of the products of [X y], over s."""
        root = self.density.sums.root / self.s
        return root[:, :-1], root[:, -1]

    @cached_property
    def _forms(self) -> tuple[np.ndarray, float, float]:
        """Return g, and the squares of the data and of the prior at b* and s."""
        T, _, _, center = self._basis
        x, y = self._data
        left = y - x @ center
        from_mean = (center - self.density.mean) / self.density.sd
        return T.T @ (x.T @ left), float(left @ left), float(from_mean @ from_mean)

    def _at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the log density at b's mean, and precision and mean of γ."""
        _, delta, omega, _ = self._basis
        gradient, of_data, of_prior = self._forms
        sigma = self.density.scales.sigma(positions)
        ratio = (self.s / sigma)[:, np.newaxis] ** 2
        precision = ratio * delta + omega
        toward = (ratio - 1.0) * gradient
        squares = ratio[:, 0] * of_data + of_prior - (toward**2 / precision).sum(1)
        total = self.density.sums.total
        log_density = self.density.scales.log_prior(positions) - 0.5 * squares
        log_density = log_density - total * (np.log(sigma) + 0.5 * _LOG_2PI)
        return log_density, precision, toward / precision

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the log density at positions, (c, 1), coefficients integrated out."""
        with np.errstate(all="ignore"):
            log_density, precision, _ = self._at(positions)
            values = log_density - 0.5 * np.log(precision).sum(1) + self._log_volume
        return np.where(np.isnan(values), -np.inf, values)

    @cached_property
    def _log_volume(self) -> float:
        T = self._basis[0]
        return float(0.5 * len(T) * _LOG_2PI + np.linalg.slogdet(T)[1])

    def draw(
        self, positions: np.ndarray, normals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients given scales, and the log density, as `MarginalDensity.draw`."""
        T, _, _, center = self._basis
        log_density, precision, mean = self._at(positions)
        gamma = mean + normals / np.sqrt(precision)
        return center + gamma @ T.T, log_density - 0.5 * (normals**2).sum(1)
