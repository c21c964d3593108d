"""The elimination of large crossed factors, as polynomials of the scales.

To integrate out m effects takes m³/3 multiplications at each position. What it leaves, a log
determinant and the products of a few columns, are functions of ℓ, the logs of the scales of
effects over that of the noise, whose nearest poles have imaginary parts of π/2. So polynomials
through Chebyshev's nodes in a box of half width w have relative errors of ρ⁻ⁿ with n nodes along
an axis, log ρ = arsinh(π/2w); with many levels the posterior of ℓ is narrow, and few will do.

Source: Trefethen, *Approximation theory and approximation practice*, SIAM, 2013, chapter 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sgmcmc.reduce.elliptical import at_mode
from sgmcmc.reduce.marginal import Elimination, MarginalDensity


@dataclass(frozen=True)
class _Settings:
    # Relative precision of the polynomials, times the number of rows or a hundred thousand: log
    # densities are of that order.
    precision: float = 1e-5
    fewest_rows: float = 1e5
    nodes: int = 150  # at most, at each of which the factors are eliminated
    axes: int = 2  # factors among the ratios, at most: nodes are those of a grid
    # Half width of the boxes in which the mode is searched, and nodes along each axis: the first
    # find where it is, the others how the data see it, if there are many rows.
    boxes: tuple[tuple[float, int], ...] = ((0.5, 3), (0.2, 5))
    searches: int = 12  # boxes of a width, at most
    draws: int = 1000  # of the t at the mode, by which the last box is made
    reach: float = 1.5  # half width of that box, over the largest distance of these
    error: float = 1e-3  # of differences of the log density, at most
    checked: int = 3  # positions at which it is measured
    step: float = 0.5  # from the mode, in standard deviations, to see that it is one
    slope: float = 0.25  # of the log density there, at most, in the same unit


_SETTINGS = _Settings()


@dataclass(frozen=True)
class ChebyshevTable:
    """Polynomials through the values of a function at the nodes of a box.

    Attributes:
        center: Center of the box, (axes,).
        half_width: Half its width along each axis, (axes,).
        coefficients: Coefficients of the products of Chebyshev's polynomials, (n, …, n, values).
    """

    center: np.ndarray
    half_width: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def of(
        cls,
        function: Elimination,
        center: np.ndarray,
        half_width: np.ndarray,
        nodes: int,
    ) -> ChebyshevTable:
        """Return that of a function, with so many nodes along each axis."""
        angles = np.pi * (np.arange(nodes) + 0.5) / nodes
        axes = np.meshgrid(*[np.cos(angles)] * len(center), indexing="ij")
        points = np.stack([axis.ravel() for axis in axes], 1)
        values = function(center + half_width * points)
        coefficients = values.reshape(*[nodes] * len(center), -1)
        # Their discrete orthogonality; the first polynomial is 1, of twice the square.
        k = np.arange(nodes)[:, np.newaxis]
        transform = np.where(k == 0, 1.0, 2.0) / nodes * np.cos(k * angles)
        for axis in range(len(center)):
            moved = np.tensordot(transform, coefficients, (1, axis))
            coefficients = np.moveaxis(moved, 0, axis)
        return cls(center, half_width, coefficients)

    def __call__(self, logs: np.ndarray) -> np.ndarray:
        """Return the values at points, (c, values); NaN outside of the box."""
        inside = (np.abs(logs - self.center) <= self.half_width).all(1)
        return np.where(inside[:, np.newaxis], self.at_nearest(logs), np.nan)

    def at_nearest(self, logs: np.ndarray) -> np.ndarray:
        """Return the values at points, those outside at the nearest point of the box."""
        x = np.nan_to_num((logs - self.center) / self.half_width)
        angles = np.arccos(np.clip(x, -1.0, 1.0))
        values = np.broadcast_to(self.coefficients, (len(x), *self.coefficients.shape))
        for axis in range(x.shape[1]):
            k = np.arange(self.coefficients.shape[axis])
            polynomials = np.cos(angles[:, [axis]] * k)
            values = np.einsum("cn,cn...->c...", polynomials, values)
        return values


def interpolated(
    density: MarginalDensity, start: np.ndarray
) -> tuple[MarginalDensity, np.ndarray] | None:
    """Return a density whose crossed factors are eliminated by polynomials, and its mode.

    Args:
        density: Posterior of scales, of which each factor has one effect for each level.
        start: Position from which the mode is searched.

    Returns:
        ``None`` if the polynomials would take too many nodes, as where data leave a scale open.
    """
    center = density.log_ratios(start[np.newaxis])[0]
    if len(center) > _SETTINGS.axes:
        return None
    position = start
    for half_width, nodes in _SETTINGS.boxes:
        widths = np.full(len(center), half_width)
        for _ in range(_SETTINGS.searches):
            table = ChebyshevTable.of(density.eliminated_at, center, widths, nodes)
            local = replace(density, table=table.at_nearest)
            approximation = at_mode(local, position)
            position = approximation.mean
            mode = density.log_ratios(position[np.newaxis])[0]
            is_inside = (np.abs(mode - center) < 0.5 * widths).all()
            center = np.clip(mode, center - widths, center + widths)
            if is_inside:
                break
        else:
            return None
    rng = np.random.default_rng(0)
    z = rng.standard_normal((_SETTINGS.draws, len(start)))
    near = approximation.positions(z)
    distances = np.abs(density.log_ratios(near) - mode)
    widths = _SETTINGS.reach * distances.max(0)
    rows = max(density.sums.total, _SETTINGS.fewest_rows)
    digits = np.log(rows / _SETTINGS.precision)
    nodes = math.ceil(digits / np.arcsinh(0.5 * np.pi / widths.max()))
    if nodes ** len(center) > _SETTINGS.nodes:
        return None
    table = ChebyshevTable.of(density.eliminated_at, mode, widths, nodes)
    smooth = replace(density, table=table)
    checked = near[: _SETTINGS.checked]
    errors = smooth(checked) - density(checked)
    approximation = at_mode(smooth, position)
    steps = _SETTINGS.step * np.eye(len(start))
    ends = [smooth(approximation.positions(sign * steps)) for sign in (1.0, -1.0)]
    slopes = (ends[0] - ends[1]) / (2.0 * _SETTINGS.step)
    if np.ptp(errors) < _SETTINGS.error and (np.abs(slopes) < _SETTINGS.slope).all():
        return smooth, approximation.mean
    return None
