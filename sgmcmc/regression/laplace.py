"""Coordinates in which coefficients and effects hardly depend on the scales, from their modes.

Given the scales ξ, coefficients and effects w are nearly normal around their mode ŵ(ξ), with the
precision H(ξ) = K + Σ P_k(ξ), of which P_k is that of effects with the k-th standard deviation, as
if they were uncorrelated. In units of C, CC' = H(ξ₀)⁻¹, it is I + Σ a_k B_k, with B_k = C'P_k(ξ₀)C
and a_k = exp(−2(ξ − ξ₀)_k) − 1. With T = Π (I + a_k B_k)^(−½), which is a root of its inverse for
one of them, and nearly for more,

    w = C T (T' (C⁻¹ ŵ(ξ₀) + J (ξ − ξ₀)) + v)

has a v that is nearly standard normal, whatever ξ is. J completes its derivative at ξ₀ to that of
ŵ. The map is one to one for any numbers: they change how well chains mix, and not what they draw.

Source: Rue, Martino & Chopin, *Approximate Bayesian inference for latent Gaussian models by using
integrated nested Laplace approximations*, JRSS B 71 (2009), section 3, for the modes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, cho_solve, solve_triangular

from sgmcmc.reduce.elliptical import StudentApproximation, at_mode
from sgmcmc.regression.density import Arrays, RegressionDensity
from sgmcmc.regression.priors import normal_priors


@dataclass(frozen=True)
class _Settings:
    steps: int = 40  # of Newton, at most
    longest: float = 2.0  # step, as a change of the linear predictor of a row
    # In log density, that a step must promise: differences of values are slopes of the scales
    gain: float = 1e-7
    slope: float = 0.03  # of the log density of scales, where its mode is found
    difference: float = 0.5  # of scales whose modes are compared, in their SDs
    largest_part: float = (
        1.0 - 1e-9
    )  # of a precision that a prior has: 1 comes from rounding


_SETTINGS = _Settings()


class _Newton(NamedTuple):
    """A step of Newton's method.

    Attributes:
        w, u: Step of coefficients and further effects, (p + m,), and of groups, (groups, q).
        gain: Log density that it promises.
        root: Triangular root of the precision of w, (p + m, p + m).
        half_log_det: Half the log determinant of that of w and u.
    """

    w: np.ndarray
    u: np.ndarray
    gain: float
    root: np.ndarray
    half_log_det: float


class _ConditionalMode(NamedTuple):
    """The mode of coefficients and effects given the scales.

    Attributes:
        w: Coefficients and further effects, (p + m,).
        u: Standardized effects of groups, (groups, q).
        root: Triangular root of the precision of w.
        log_density: Log posterior of the scales by Laplace's approximation, up to a constant.
    """

    w: np.ndarray
    u: np.ndarray
    root: np.ndarray
    log_density: float


class LaplaceModes:
    """Modes of coefficients and effects as functions of the scales.

    Args:
        density: Log posterior, with effects of groups and further ones.

    Attributes:
        of_b, of_scales: Coordinates of coefficients and of scales among those of parameters.
    """

    def __init__(self, density: RegressionDensity) -> None:
        assert density.groups is not None and density.further is not None
        self._density, self._groups = density, density.groups
        self.further, layout = density.further, density.prior.layout
        every = np.arange(layout.size)
        self.of_b = every[layout.slices["b"]] if "b" in layout.names else every[:0]
        self.of_scales = np.setdiff1d(every, self.of_b)
        self._columns = np.concatenate([density.x, density.further.z.toarray()], 1)
        self._w = np.zeros(self._columns.shape[1])
        self._u = np.zeros((self._groups.codes[-1] + 1, len(self._groups.z)))

    def __call__(self, scales: np.ndarray) -> np.ndarray:
        """Return the log posterior of scales, (c, k), by Laplace's approximation, (c,)."""
        values = []
        for position in scales:
            try:
                values.append(self.at(position).log_density)
            except np.linalg.LinAlgError:  # scales out of range
                values.append(-np.inf)
        return np.array(values)

    def positions(self, scales: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Return positions of the density, (c, d), of scales, (c, k), and w, (c, p + m)."""
        p = len(self.of_b)
        parameters = np.empty((len(scales), p + len(self.of_scales)))
        parameters[:, self.of_scales], parameters[:, self.of_b] = scales, w[:, :p]
        return np.concatenate([parameters, w[:, p:]], 1)

    def at(self, scales: np.ndarray) -> _ConditionalMode:
        """Return the mode at scales, (k,), searched from the one before.

        Raises:
            LinAlgError: A precision is not positive definite, or there is no mode.
        """
        density, w, u = self._density, self._w, self._u
        _, params = self._prior_and_params(scales, w)
        columns = density.columns(density.root(self._groups.effects, params))[0]
        mean, precision = self._normal_prior(params)
        for _ in range(_SETTINGS.steps):
            eta = self._predictors(columns, w, u)
            slopes, curvatures = density.terms.differentiated(eta[np.newaxis], params)
            weights = np.maximum(-curvatures[0], 0.0)
            slope = self._columns.T @ slopes[0] - precision @ (w - mean)
            slope_u = self._groups.sums(columns * slopes[0]).T - u
            step = self._newton(columns, weights, precision, slope, slope_u)
            if step.gain < _SETTINGS.gain:
                break
            change = np.abs(self._predictors(columns, step.w, step.u)).max()
            shorter = _SETTINGS.longest / max(_SETTINGS.longest, change)
            w, u = w + shorter * step.w, u + shorter * step.u
        else:
            raise np.linalg.LinAlgError("Newton's method did not find the mode.")
        log_prior, params = self._prior_and_params(scales, w)
        terms = density.terms(eta[np.newaxis, np.newaxis], params).sum()
        value = log_prior + terms - 0.5 * (u**2).sum() - step.half_log_det
        if np.isfinite(value):
            self._w, self._u = w, u
        return _ConditionalMode(w, u, step.root, float(value))

    def _predictors(
        self, columns: np.ndarray, w: np.ndarray, u: np.ndarray
    ) -> np.ndarray:
        (of_groups,) = self._groups.predictors(columns[np.newaxis], u[np.newaxis])
        return np.asarray(self._columns @ w + of_groups)

    def _prior_and_params(
        self, scales: np.ndarray, w: np.ndarray
    ) -> tuple[float, Arrays]:
        position = self.positions(scales[np.newaxis], w[np.newaxis])
        log_prior, params = self._density.prior_and_params(position)
        return float(log_prior[0]), params

    def _normal_prior(self, params: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and precision of w, without priors that are not normal."""
        mean, sd = normal_priors(self._density.model)
        blocks = [np.diag(sd**-2.0)]
        for effects, levels in self.further.factors:
            inverse = np.linalg.inv(self._density.root(effects, params)[0])
            blocks.append(np.kron(np.eye(levels), inverse.T @ inverse))
        mean = np.where(np.isfinite(sd), mean, 0.0)
        return np.append(mean, np.zeros(self.further.size)), block_diag(*blocks)

    def _newton(
        self,
        columns: np.ndarray,
        weights: np.ndarray,
        precision: np.ndarray,
        slope: np.ndarray,
        slope_u: np.ndarray,
    ) -> _Newton:
        """Return a step, the effects of groups eliminated.

        Args:
            columns: Factors of standardized effects of groups, (q, rows).
            weights: Curvatures of the terms of rows, (rows,).
            precision: That of the prior of w.
            slope, slope_u: Gradient with respect to w and u.
        """
        groups, A = self._groups, self._columns
        squares = groups.sums(columns[:, np.newaxis] * columns * weights)
        of_groups = np.eye(len(columns)) + squares.transpose(2, 0, 1)
        mixed = [groups.sums(column * weights * A.T).T for column in columns]
        between = np.stack(mixed, 1)
        explained = np.linalg.solve(of_groups, between)
        alone = np.linalg.solve(of_groups, slope_u[..., np.newaxis])[..., 0]
        H = (A.T * weights) @ A + precision
        H -= np.tensordot(between, explained, ([0, 1], [0, 1]))
        if not (np.isfinite(H).all() and np.isfinite(slope).all()):
            raise np.linalg.LinAlgError("The scales are out of range.")
        root = np.linalg.cholesky(H)
        step = cho_solve((root, True), slope - np.tensordot(alone, between, 2))
        step_u = alone - explained @ step
        half_log_det = np.log(np.diagonal(root)).sum()
        half_log_det += 0.5 * np.linalg.slogdet(of_groups)[1].sum()
        gain = 0.5 * float(slope @ step + (slope_u * step_u).sum())
        return _Newton(step, step_u, gain, root, float(half_log_det))


class _Stretch(NamedTuple):
    """(I + a B)^(−½) as a function of one scale.

    Attributes:
        scale: Number of the scale.
        vectors: Eigenvectors of B, (p + m, p + m).
        values: Its eigenvalues, (p + m,).
    """

    scale: int
    vectors: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, scale: int, root: np.ndarray, precisions: np.ndarray) -> _Stretch:
        """Return that of a scale, with C, (p + m, p + m), and the diagonal of P, (p + m,)."""
        values, vectors = np.linalg.eigh((root.T * precisions) @ root)
        return cls(scale, vectors, np.clip(values, 0.0, _SETTINGS.largest_part))

    def factors(self, change: np.ndarray) -> np.ndarray:
        """Return the eigenvalues of the map at changes of the scales, (c, p + m)."""
        with np.errstate(over="ignore", invalid="ignore"):  # NaN is no position
            a = np.expm1(-2.0 * change[:, self.scale, np.newaxis])
            return np.asarray((1.0 + a * self.values) ** -0.5)

    def __call__(self, change: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return vectors, (c, p + m), after the map, which is symmetric."""
        along = (v @ self.vectors) * self.factors(change)
        return np.asarray(along @ self.vectors.T)


@dataclass(frozen=True)
class LaplaceCoordinates:
    """Scales ξ and coordinates v, in this order, of positions of a density.

    Attributes:
        modes: Modes of coefficients and effects.
        scales: Approximation of the scales, ξ₀ its mean.
        root: C, (p + m, p + m).
        center: C⁻¹ ŵ(ξ₀), (p + m,).
        slopes: J', (k, p + m).
        stretches: The parts of T.
    """

    modes: LaplaceModes
    scales: StudentApproximation
    root: np.ndarray
    center: np.ndarray
    slopes: np.ndarray
    stretches: tuple[_Stretch, ...]

    @classmethod
    def of(cls, density: RegressionDensity) -> LaplaceCoordinates:
        """Return those of the log posterior of a regression.

        Raises:
            LinAlgError: There is no mode.
        """
        modes, layout = LaplaceModes(density), density.prior.layout
        start = density.prior.start[modes.of_scales]
        scales = at_mode(modes, start, _SETTINGS.slope)
        mode = modes.at(scales.mean)
        root = solve_triangular(mode.root, np.eye(len(mode.w)), lower=True).T
        center, place_of_w = mode.root.T @ mode.w, len(modes.of_b)
        stretches = []
        for effects, levels in modes.further.factors:
            of_factor = np.arange(layout.size)[layout.slices[effects.sds_name]]
            for term, place in enumerate(np.searchsorted(modes.of_scales, of_factor)):
                sd = np.exp(scales.mean[place]) * effects.scale[term]
                precisions = np.zeros(len(mode.w))
                of_term = place_of_w + term + len(of_factor) * np.arange(levels)
                precisions[of_term] = (density.model.unit / sd) ** 2
                stretches.append(_Stretch.of(int(place), root, precisions))
            place_of_w += len(of_factor) * levels
        slopes = []
        for k, sd in enumerate(np.sqrt((scales.root**2).sum(1))):
            step = np.zeros(len(scales.mean))
            step[k] = _SETTINGS.difference * sd
            above, below = modes.at(scales.mean + step), modes.at(scales.mean - step)
            slopes.append(mode.root.T @ (above.w - below.w) / (2.0 * step[k]))
        for stretch in stretches:
            along = (center @ stretch.vectors) * stretch.values
            slopes[stretch.scale] -= 2.0 * along @ stretch.vectors.T
        return cls(modes, scales, root, center, np.array(slopes), tuple(stretches))

    @property
    def size(self) -> int:
        """Number of coordinates v."""
        return len(self.center)

    def positions(self, x: np.ndarray) -> np.ndarray:
        """Return positions of the density, (c, d)."""
        change, v = self._change(x), x[:, -self.size :]
        center = self.center + change @ self.slopes
        w = self._transposed(change, center) + v
        for stretch in reversed(self.stretches):
            w = stretch(change, w)
        scales = self.scales.mean + change
        return self.modes.positions(scales, w @ self.root.T)

    def along(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the gradient along v of that at positions of the density, (c, p + m)."""
        modes = self.modes
        first = len(modes.of_b) + len(modes.of_scales)
        of_w = np.concatenate([gradient[:, modes.of_b], gradient[:, first:]], 1)
        return self._transposed(self._change(x), of_w @ self.root)

    def log_jacobian(self, x: np.ndarray) -> np.ndarray:
        """Return the log-Jacobian of positions, but for a constant, (c,)."""
        change = self._change(x)
        parts = [np.log(stretch.factors(change)).sum(1) for stretch in self.stretches]
        return np.asarray(sum(parts))

    def _change(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x[:, : -self.size] - self.scales.mean)

    def _transposed(self, change: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return T'v."""
        for stretch in self.stretches:
            v = stretch(change, v)
        return v
