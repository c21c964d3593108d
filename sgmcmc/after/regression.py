"""Regression of quantities on their control variates, from draws in pieces."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class Moments:
    """Mean and variance of rows, in pieces."""

    def __init__(self, size: int) -> None:
        self._count = 0
        self.mean = np.zeros(size)
        self._squares = np.zeros(size)

    @property
    def variance(self) -> np.ndarray:
        """The variance of each column."""
        return self._squares / max(1, self._count - 1)

    def add(self, rows: np.ndarray) -> None:
        """Add more rows."""
        count, mean = len(rows), rows.mean(axis=0)
        step, total = mean - self.mean, self._count + count
        self._squares += ((rows - mean) ** 2).sum(axis=0) + step**2 * self._count * count / total
        self.mean = self.mean + step * count / total
        self._count = total


class Regression:
    """Means and products of control variates f and quantities h, in double precision.

    Args:
        features: Number of control variates.
        values: Number of quantities that are corrected.
    """

    def __init__(self, features: int, values: int) -> None:
        self._features = features
        self._count = 0
        self._mean = np.zeros(features + values)
        self._products = np.zeros((features, features + values))

    def add(self, h: np.ndarray, f: np.ndarray) -> None:
        """Add more rows."""
        rows = np.concatenate([f, h], axis=1)
        mean = rows.mean(axis=0)
        centered = rows - mean
        self._merge(len(rows), mean, centered[:, : self._features].T @ centered)

    def _merge(self, count: int, mean: np.ndarray, products: np.ndarray) -> None:
        if not count:
            return
        step, total = mean - self._mean, self._count + count
        self._products += products
        self._products += np.outer(step[: self._features], step) * (self._count * count / total)
        self._mean = self._mean + step * (count / total)
        self._count = total

    @classmethod
    def of_all(cls, parts: Iterable[Regression]) -> Regression:
        """Return the union of several regressions."""
        parts = list(parts)
        features, size = parts[0]._products.shape
        found = cls(features, size - features)
        for part in parts:
            found._merge(part._count, part._mean, part._products)
        return found

    def coefficients(self, dtype: np.dtype) -> tuple[np.ndarray, str]:
        """Return a = −Var(f)⁻¹ Cov(f, h), and a warning, if there is one.

        Args:
            dtype: Dtype in which the gradients were stored.
        """
        k = self._features
        # Unit variances: the scale of a gradient has nothing to do with how well it is determined.
        scale = np.sqrt(np.diag(self._products) / self._count)
        scale[scale == 0] = 1.0
        joint = self._products / (self._count * scale[:, np.newaxis])
        solution, complaint = _solve(joint[:, :k] / scale, joint[:, k:], self._count, dtype)
        return -solution / scale[:, np.newaxis], complaint


def _solve(
    correlation: np.ndarray, cross: np.ndarray, rows: int, dtype: np.dtype
) -> tuple[np.ndarray, str]:
    """Return the least-squares solution, truncated in directions that are not determined.

    With too few draws (or batches) for the number of control variates any values can be fitted,
    noise included; then the solution is shrunk, as in ridge regression.
    """
    k = len(correlation)
    weights, directions = np.linalg.eigh(correlation)
    known = weights > k * np.finfo(dtype).eps * max(weights[-1], np.finfo(np.float64).tiny)
    complaint = ""
    if 2 * k > rows:
        complaint = (
            f"{k} control variates are too many for {rows} draws or batches: their coefficients "
            "are shrunk. Use more of them, or degree 1."
        )
        weights = weights + k / rows
    elif not known.all():
        complaint = (
            f"The control variates are collinear: {np.count_nonzero(~known)} of {k} directions are "
            "left out."
        )
    directions, weights = directions[:, known], weights[known]
    return directions @ ((directions.T @ cross) / weights[:, np.newaxis]), complaint
