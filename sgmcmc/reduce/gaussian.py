"""Gaussian regressions from their sums: coefficients and effects of groups integrated out.

Rows y_i ~ N(x_i b + z_i r_g, σ²) of groups g have effects r_g = L u_g, with standard normal u_g,
and coefficients have normal priors. With Z_g = Q_g K_g, Q_g with orthonormal columns,

    −log p(y | b, σ, L) = n log σ + Σ_g ½ log |M_g| + (w(b) + Σ_g e_g' M_g⁻¹ e_g) / 2σ² + constant,

where M_g = I + K_g L L' K_g' / σ², e_g = Q_g'(y − X b), and w(b) is the sum of squares of what is
left of y − X b after its projection on the columns of Z_g. All terms are squares, so that nothing
cancels however small σ is: `GaussianSums` has the triangular root of the products that w(b) is made
of, and the projections. Groups with the same K_g are summed up in turn, by a QR decomposition. As a
function of b it is a sum of squares, and the integral over b is closed.

Source: Bates, Mächler, Bolker & Walker, Journal of Statistical Software 67 (2015), for the integral
over effects and coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse
from scipy.linalg import solve_triangular

_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class _Settings:
    # Square of a singular value of a group's columns, relative to the largest, that is rounding.
    rank: float = 1e-12
    numbers: int = 2**21  # of a matrix whose QR decomposition is made at a time
    evaluated: int = 2**22  # numbers of projections that are whitened at a time


_SETTINGS = _Settings()


@dataclass(frozen=True)
class RegressionRows:
    """Rows of a Gaussian regression, in float64.

    Attributes:
        xy: Columns of coefficients, with the response behind them, (rows, p + 1).
        weights: Number of repeated rows that each stands for, (rows,).
        z: Columns of the effects of a row's group, (rows, q).
        codes: Number of each row's group, (rows,).
    """

    xy: np.ndarray
    weights: np.ndarray
    z: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class GroupSums:
    """Sums of the rows of each group.

    Attributes:
        roots: K with K'K = Σ w z z', one for each kind of group, (kinds, q, q).
        counts: Number of groups of each kind, (kinds,).
        projections: Q'[X y], (groups, q, p + 1); or fewer with the same products within each kind.
        kinds: Kind that each of these is of, (groups,).
    """

    roots: np.ndarray
    counts: np.ndarray
    projections: np.ndarray
    kinds: np.ndarray

    def of_groups(self, groups: np.ndarray) -> GroupSums:
        """Return the sums of some groups, each of which is a kind of its own."""
        kinds, own = self.kinds[groups], np.arange(len(groups))
        return GroupSums(
            self.roots[kinds], np.ones(len(groups)), self.projections[groups], own
        )

    def pooled(self) -> GroupSums:
        """Return the same with no more projections of a kind than there are products of them."""
        _, q, columns = self.projections.shape
        projections: list[np.ndarray] = []
        kinds: list[np.ndarray] = []
        order = np.argsort(self.kinds, kind="stable")
        ends = np.cumsum(np.bincount(self.kinds, minlength=len(self.roots)))
        for kind, groups in enumerate(np.split(order, ends[:-1])):
            of_kind = self.projections[groups].reshape(len(groups), q * columns)
            if len(of_kind) > q * columns:
                of_kind = np.asarray(np.linalg.qr(of_kind, "r"))
            projections.append(of_kind.reshape(-1, q, columns))
            kinds.append(np.full(len(of_kind), kind))
        return GroupSums(
            self.roots, self.counts, np.concatenate(projections), np.concatenate(kinds)
        )


@dataclass(frozen=True)
class GaussianSums:
    """Sums that the likelihood of a Gaussian regression is a function of.

    Attributes:
        total: Sum of the weights.
        root: Triangular R, R'R the products of the columns of [X y], less their projections on
            those of the effects of each group, (p + 1, p + 1).
        groups: Sums of groups, pooled; ``None`` without groups.
        selected: Sums of the groups whose effects are drawn; ``None`` for none.
    """

    total: float
    root: np.ndarray
    groups: GroupSums | None = None
    selected: GroupSums | None = None


def gaussian_sums(
    chunks: Callable[[], Iterable[RegressionRows]],
    groups: int,
    selected: Sequence[int] = (),
) -> GaussianSums:
    """Return the sums of rows; with groups in two passes, else in one.

    Args:
        chunks: Function that returns all rows, in chunks.
        groups: Number of groups, 0 for none.
        selected: Groups whose effects are drawn.
    """
    if not groups:
        return GaussianSums(*_within(chunks(), None, np.zeros((0, 0, 0))))
    of_groups, inverses = _projected(chunks, groups)
    total, root = _within(chunks(), of_groups, inverses)
    drawn = of_groups.of_groups(np.asarray(selected, int)) if len(selected) else None
    return GaussianSums(total, root, of_groups.pooled(), drawn)


def _projected(
    chunks: Callable[[], Iterable[RegressionRows]], groups: int
) -> tuple[GroupSums, np.ndarray]:
    """Return the sums of groups, and for each kind W with Q = Z W', (kinds, q, q)."""
    squares: np.ndarray | float = 0.0
    products: np.ndarray | float = 0.0
    for rows in chunks():
        n, q = rows.z.shape
        indicators = scipy.sparse.csr_matrix(
            (rows.weights, (rows.codes, np.arange(n))), (groups, n)
        )
        pairs = (rows.z[:, :, np.newaxis] * rows.z[:, np.newaxis]).reshape(n, q * q)
        squares = squares + (indicators @ pairs).reshape(groups, q, q)
        by_effect = [indicators @ (rows.z[:, [k]] * rows.xy) for k in range(q)]
        products = products + np.stack(by_effect, 1)
    assert isinstance(squares, np.ndarray) and isinstance(products, np.ndarray)
    flat = np.ascontiguousarray(squares.reshape(groups, -1))
    distinct, kinds, counts = np.unique(
        flat, axis=0, return_inverse=True, return_counts=True
    )
    kinds = kinds.reshape(-1)
    values, vectors = np.linalg.eigh(distinct.reshape(-1, *squares.shape[1:]))
    kept = values > _SETTINGS.rank * np.maximum(values[:, -1:], 0.0)
    sizes = np.sqrt(np.where(kept, values, 0.0))
    transposed = vectors.transpose(0, 2, 1)
    inverses = np.where(kept, 1.0 / np.where(kept, sizes, 1.0), 0.0)
    inverses = inverses[:, :, np.newaxis] * transposed
    roots = sizes[:, :, np.newaxis] * transposed
    projections = np.matmul(inverses[kinds], products)
    return GroupSums(roots, counts.astype(np.float64), projections, kinds), inverses


def _within(
    chunks: Iterable[RegressionRows], groups: GroupSums | None, inverses: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the sum of the weights, and the root of the products within groups."""
    total, root = 0.0, np.zeros((0, 0))
    for rows in chunks:
        total += float(rows.weights.sum())
        columns = rows.xy.shape[1]
        length = max(4 * columns, _SETTINGS.numbers // columns)
        for start in range(0, len(rows.xy), length):
            part = slice(start, start + length)
            left = rows.xy[part]
            if groups is not None:
                codes = rows.codes[part]
                kinds = groups.kinds[codes]
                coordinates = np.einsum("rkj,rj->rk", inverses[kinds], rows.z[part])
                left = left.copy()
                for k in range(coordinates.shape[1]):
                    left -= coordinates[:, [k]] * groups.projections[codes, k]
            left = np.sqrt(rows.weights[part])[:, np.newaxis] * left
            stacked = np.concatenate([root, left]) if len(root) else left
            root = np.asarray(np.linalg.qr(stacked, "r"))
    size = root.shape[1]
    if len(root) < size:
        root = np.concatenate([root, np.zeros((size - len(root), size))])
    return total, root


class ScaleModel(Protocol):
    """The scales of a Gaussian regression, as functions of unconstrained positions, (c, d)."""

    def sigma(self, positions: np.ndarray) -> np.ndarray:
        """Return σ, (c,)."""

    def root(self, positions: np.ndarray) -> np.ndarray:
        """Return L, LL' the covariance of the effects of a group, (c, q, q)."""

    def log_prior(self, positions: np.ndarray) -> np.ndarray:
        """Return the log prior density of positions, with the log-Jacobian, (c,)."""


@dataclass(frozen=True)
class _CoefficientForm:
    """The quadratic form of coefficients at some positions, |rows (b, −1)|² + prior.

    Attributes:
        constant: Log density without that form and the integral, (c,).
        rows: Projections, over σ and whitened, (c, rows, p + 1).
        root: Cholesky factor of the precision of coefficients, (c, p, p).
        mean: Mean of coefficients, (c, p).
        squares: The form at the mean, (c,).
    """

    constant: np.ndarray
    rows: np.ndarray
    root: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def log_marginal(self) -> np.ndarray:
        """Log density, coefficients integrated out, (c,)."""
        log_diagonal = np.log(np.diagonal(self.root, axis1=1, axis2=2)).sum(1)
        integral = 0.5 * self.mean.shape[1] * _LOG_2PI - log_diagonal
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
    """

    sums: GaussianSums
    mean: np.ndarray
    sd: np.ndarray
    scales: ScaleModel

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
        start = 0
        for part in self._parts(positions):
            there = slice(start, start + len(part))
            start = there.stop
            whitened, z = self._whitened(part), normals[there]
            moves = np.linalg.solve(
                whitened.root.transpose(0, 2, 1), z[..., np.newaxis]
            )
            coefficients[there] = whitened.mean + moves[..., 0]
            log_densities[there] = (
                whitened.constant - 0.5 * whitened.squares - 0.5 * (z**2).sum(1)
            )
        return coefficients, log_densities

    def draw_effects(
        self, positions: np.ndarray, coefficients: np.ndarray, normals: np.ndarray
    ) -> np.ndarray:
        """Return effects of the selected groups given scales and coefficients, (c, groups, q).

        Args:
            positions: Positions, (c, d).
            coefficients: Coefficients, (c, p).
            normals: Standard normals, (c, groups, q).
        """
        groups = self.sums.selected
        assert groups is not None
        root, sigma = self.scales.root(positions), self.scales.sigma(positions)
        columns = np.matmul(groups.roots, root[:, np.newaxis])
        columns = columns / sigma[:, np.newaxis, np.newaxis, np.newaxis]
        transposed = columns.transpose(0, 1, 3, 2)
        precision = np.eye(root.shape[1]) + np.matmul(transposed, columns)
        x, y = groups.projections[..., :-1], groups.projections[..., -1]
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
        if self.sums.groups is not None:
            numbers += self.sums.groups.projections.size
        length = max(1, _SETTINGS.evaluated // numbers)
        return [positions[k : k + length] for k in range(0, len(positions), length)]

    def _whitened(self, positions: np.ndarray) -> _CoefficientForm:
        sigma = self.scales.sigma(positions)
        constant = self.scales.log_prior(positions)
        constant = constant - self.sums.total * (np.log(sigma) + 0.5 * _LOG_2PI)
        shape = (len(positions), *self.sums.root.shape)
        rows = [np.broadcast_to(self.sums.root, shape)]
        if self.sums.groups is not None:
            groups = self.sums.groups
            factor = _factor(groups.roots, self.scales.root(positions), sigma)
            for i, row in enumerate(factor):
                constant = constant - np.log(row[i]) @ groups.counts
            rows += _solved(factor, groups)
        stacked = np.concatenate(rows, 1) / sigma[:, np.newaxis, np.newaxis]
        x, y = stacked[..., :-1], stacked[..., -1]
        transposed = x.transpose(0, 2, 1)
        precision = np.matmul(transposed, x) + np.diag(self.sd**-2.0)
        toward = (
            np.matmul(transposed, y[..., np.newaxis])[..., 0] + self.mean / self.sd**2
        )
        valid = np.isfinite(precision).all((1, 2)) & np.isfinite(constant)
        identity = np.eye(len(self.mean))
        precision = np.where(valid[:, np.newaxis, np.newaxis], precision, identity)
        root = _precision_root(precision, x, self.sd)
        mean = _solve(root, toward)
        left = y - np.matmul(x, mean[..., np.newaxis])[..., 0]
        # What rounding leaves of the gradient, which is small: of terms that are alike.
        change = np.matmul(transposed, left[..., np.newaxis])[..., 0]
        mean = mean + _solve(root, change + (self.mean - mean) / self.sd**2)
        left = y - np.matmul(x, mean[..., np.newaxis])[..., 0]
        squares = (left**2).sum(1) + (((mean - self.mean) / self.sd) ** 2).sum(1)
        constant = np.where(valid, constant, -np.inf)
        return _CoefficientForm(constant, stacked, root, mean, squares)


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
    """Return the Cholesky factors of M of each kind, entry by entry, (c, kinds)."""
    q = roots.shape[1]
    columns = np.matmul(roots, covariance_root[:, np.newaxis])
    columns = columns / sigma[:, np.newaxis, np.newaxis, np.newaxis]
    factor: list[list[np.ndarray]] = []
    for i in range(q):
        row: list[np.ndarray] = []
        for j in range(i + 1):
            entry = (columns[:, :, i] * columns[:, :, j]).sum(-1) + float(i == j)
            for k in range(j):
                entry = entry - row[k] * (row if i == j else factor[j])[k]
            row.append(np.sqrt(entry) if i == j else entry / factor[j][j])
        factor.append(row)
    return factor


def _solved(factor: list[list[np.ndarray]], groups: GroupSums) -> list[np.ndarray]:
    """Return the projections whitened, (c, groups, p + 1) for each effect."""
    whitened: list[np.ndarray] = []
    for i, row in enumerate(factor):
        value = groups.projections[np.newaxis, :, i]
        for k in range(i):
            value = value - row[k][:, groups.kinds, np.newaxis] * whitened[k]
        whitened.append(value / row[i][:, groups.kinds, np.newaxis])
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
