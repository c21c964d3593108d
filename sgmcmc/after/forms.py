"""The forms of a zero-variance correction, judged on draws that they were not fitted to.

The criterion is the variance of a mean, measured by the means of long batches of draws, of each
chain around the chain's own mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sgmcmc.after.draws import DrawSegment, DrawSource, TestFunctions
from sgmcmc.results.samples import Samples

# Least number of batches, over all chains, from which variances of means are estimated.
_BATCHES = 40

_COARSER = 4  # ratio of the batch lengths of successive forms
_LARGEST = 2000  # largest number of control variates of a form that is tried


class RunningMoments:
    """Mean and variance of rows that come in chunks."""

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
        self._squares += ((rows - mean) ** 2).sum(
            axis=0
        ) + step**2 * self._count * count / total
        self.mean = self.mean + step * count / total
        self._count = total


class ControlVariateRegression:
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
        self._products += np.outer(step[: self._features], step) * (
            self._count * count / total
        )
        self._mean = self._mean + step * (count / total)
        self._count = total

    @classmethod
    def of_all(
        cls, regressions: Iterable[ControlVariateRegression]
    ) -> ControlVariateRegression:
        """Return the union of several regressions."""
        regressions = list(regressions)
        features, size = regressions[0]._products.shape
        union = cls(features, size - features)
        for regression in regressions:
            union._merge(regression._count, regression._mean, regression._products)
        return union

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
        solution, complaint = _solve(
            joint[:, :k] / scale, joint[:, k:], self._count, dtype
        )
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
    determined = weights > k * np.finfo(dtype).eps * max(
        weights[-1], np.finfo(np.float64).tiny
    )
    complaint = ""
    if 2 * k > rows:
        complaint = (
            f"{k} control variates are too many for {rows} draws or batches: their coefficients "
            "are shrunk. Use more of them, or degree 1."
        )
        weights = weights + k / rows
    elif not determined.all():
        complaint = (
            f"The control variates are collinear: {np.count_nonzero(~determined)} of {k} "
            "directions are left out."
        )
    directions, weights = directions[:, determined], weights[determined]
    return directions @ ((directions.T @ cross) / weights[:, np.newaxis]), complaint


@dataclass(frozen=True)
class Form:
    """A form of the correction, by the arguments of :func:`sgmcmc.zero_variance`.

    Attributes:
        degree: Degree of the polynomials.
        fit: Source of the coefficients.
        batches: Number of batches of each chain to whose means they were fitted; ``None`` if they
            were fitted to draws.
    """

    degree: int
    fit: str
    batches: int | None

    def described(self, several: bool) -> str:
        """Return the form in words.

        Args:
            several: Whether there are several chains.
        """
        what = (
            "draws"
            if self.batches is None
            else f"means of {self.batches} batches of each chain"
        )
        where = {
            "pooled": "",
            "own": ", for each chain its own",
            "others": ", for each chain those of the others",
        }[self.fit]
        if not several:
            where = ", for each half those of the other" if self.fit == "others" else ""
            what = what.replace("each", "the")
        return f"degree {self.degree}, coefficients fitted to {what}{where}"


@dataclass(frozen=True)
class Fitted:
    """A form with its coefficients.

    Attributes:
        form: Form.
        source: Draws to correct.
        plan: Pairs of the parts that coefficients were fitted to and the parts that they correct.
        coefficients: Coefficients of each pair.
        complaints: Warnings.
        gain: Ratio of the variances of batch means, before over after, by quantity.
    """

    form: Form
    source: DrawSource
    plan: list[tuple[list[DrawSegment], list[DrawSegment]]]
    coefficients: list[np.ndarray]
    complaints: set[str]
    gain: np.ndarray


def fitted(source: DrawSource, form: Form, judge: Judge | None = None) -> Fitted:
    """Return a form with its coefficients.

    Args:
        source: Draws, with control variates of the form's degree.
        form: Form.
        judge: Object that measures the gain; ``None`` creates one.
    """
    segments = _segments(source, form.fit)
    length = 1 if form.batches is None else source.draws // form.batches
    sums = {segment: _regression(source, segment, length) for segment in segments}
    plan = {
        "pooled": [(segments, segments)],
        "own": [([segment], [segment]) for segment in segments],
        "others": [
            ([left_in for left_in in segments if left_in != segment], [segment])
            for segment in segments
        ],
    }[form.fit]
    coefficients, complaints = [], set()
    for fit_to, _ in plan:
        solution, complaint = ControlVariateRegression.of_all(
            sums[segment] for segment in fit_to
        ).coefficients(source.gradient_dtype)
        coefficients.append(solution)
        complaints.add(complaint)
    by_segment = {
        segment: a
        for (_, corrected), a in zip(plan, coefficients, strict=True)
        for segment in corrected
    }
    gain = (judge or Judge(source, segments)).gain(by_segment)
    return Fitted(form, source, plan, coefficients, complaints - {""}, gain)


def best(
    samples: Samples, test_functions: TestFunctions | None, bijectors: Mapping[str, Any]
) -> Fitted:
    """Return the form whose gain is largest in the median over the quantities."""
    best_form = None
    for degree in (1, 2):
        if degree == 2 and not _has_positions(samples, bijectors):
            break
        source = DrawSource(samples, degree, test_functions, bijectors)
        segments = _segments(source, "others")
        enough = source.features <= _LARGEST and 10 * source.features <= _fewest(
            segments, 1
        )
        if degree == 2 and not enough:
            break
        judge = Judge(source, segments)
        for batches in _batches(source, segments):
            candidate = fitted(source, Form(degree, "others", batches), judge)
            if best_form is None or np.median(candidate.gain) > np.median(
                best_form.gain
            ):
                best_form = candidate
    assert best_form is not None
    return best_form


class Judge:
    """Measures the variance reduction of batch means by coefficients.

    Args:
        source: Draws to correct.
        segments: Segments of the draws that have separate coefficients.
    """

    def __init__(self, source: DrawSource, segments: list[DrawSegment]) -> None:
        self._means = {}
        for segment in segments:
            length = max(
                1,
                (segment.stop - segment.start)
                // max(10, -(-_BATCHES // len(segments))),
            )
            rows = list(source.batch_means([segment], length))
            self._means[segment] = [
                np.concatenate(means) for means in zip(*rows, strict=True)
            ]

    def gain(self, coefficients: Mapping[DrawSegment, np.ndarray]) -> np.ndarray:
        """Return the variance of batch means before over after, by quantity."""
        before = after = np.zeros(())
        for segment, a in coefficients.items():
            h, f = self._means[segment]
            before = before + h.var(axis=0)
            after = after + (h + f @ a).var(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(before == after, 1.0, before / after)


def _regression(
    source: DrawSource, segment: DrawSegment, length: int
) -> ControlVariateRegression:
    regression = ControlVariateRegression(source.features, source.layout.size)
    for h, f in source.batch_means([segment], length):
        regression.add(h, f)
    return regression


def _segments(source: DrawSource, fit: str) -> list[DrawSegment]:
    """Return the segments of the draws that have separate coefficients."""
    segments = [DrawSegment(chain, 0, source.draws) for chain in range(source.chains)]
    if fit == "others" and len(segments) == 1:
        middle = source.draws // 2
        return [DrawSegment(0, 0, middle), DrawSegment(0, middle, source.draws)]
    return segments


def _fewest(segments: list[DrawSegment], length: int) -> int:
    """Return the least number of batches of this length in all segments but one."""
    sizes = sorted((segment.stop - segment.start) // length for segment in segments)
    return sum(sizes[:-1])


def _batches(source: DrawSource, segments: list[DrawSegment]) -> list[int | None]:
    """Return the numbers of batches of each chain to try: all draws, then fewer and fewer."""
    counts: list[int | None] = [None]
    batches = source.draws // _COARSER
    while batches > 1 and _fewest(segments, source.draws // batches) >= max(
        20, 2 * source.features
    ):
        counts.append(batches)
        batches //= _COARSER
    return counts


def _has_positions(samples: Samples, bijectors: Mapping[str, Any]) -> bool:
    """Return whether the draws are available in the space in which the chain moved."""
    gradients: Mapping[str, Any] = samples.gradients or {}
    run_bijectors = samples.settings.get("bijectors") or {}
    return not samples.settings.get("own_coordinates") and all(
        name in samples and (name not in run_bijectors or name in bijectors)
        for name in gradients
    )
