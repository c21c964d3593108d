"""Control variates of draws, made of their gradients, and the forms of a correction by them.

Draws are read in chunks, from memory or from a store. Forms are judged on draws that they were not
fitted to. The criterion is the variance of a mean, measured by the means of long batches of draws,
of each chain around the chain's own mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import describe, known_keys
from sgmcmc.data.dataset import PIECE_BYTES
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.model.geometry.bijectors import fitting
from sgmcmc.model.layout import Layout
from sgmcmc.results.arrays import by_chain, has_chains, matrix
from sgmcmc.results.samples import Samples

TestFunctions = (
    Mapping[str, Callable[[dict[str, tf.Tensor]], tf.Tensor]] | Sequence[str]
)


@dataclass(frozen=True)
class _FormSettings:
    batches: int = 40  # over all chains at least, for variances of means
    coarser: int = 4  # ratio of the batch lengths of successive forms
    largest: int = 2000  # control variates of a form that is tried
    draws_each: int = 10  # for a control variate, at least, of a form of degree 2
    least_batches: int = 20  # that coefficients are fitted to


_SETTINGS = _FormSettings()


class DrawSegment(NamedTuple):
    """A slice of the draws of one chain."""

    chain: int
    start: int
    stop: int

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return these draws of an array, chains first."""
        return array[self.chain, self.start : self.stop]

    def chunks(self, length: int) -> Iterator[DrawSegment]:
        """Yield segments of this length, the last of which may be shorter."""
        for start in range(self.start, self.stop, length):
            yield DrawSegment(self.chain, start, min(start + length, self.stop))


class DrawSource:
    """Draws and their control variates, in chunks."""

    def __init__(
        self,
        samples: Samples,
        degree: int,
        test_functions: TestFunctions | None,
        bijectors: Mapping[str, Any],
    ) -> None:
        if samples.gradients is None:
            raise ValueError(
                "`samples` has no gradients: run the sampler with `store_gradients=True`."
            )
        manifolds = samples.settings.get("manifolds") or {}
        for name in samples.gradients:
            if name in manifolds:
                raise ValueError(
                    f"`samples`: {name!r} is on a manifold, {manifolds[name]}, where the mean of "
                    "the gradient is not zero, so that it is not a control variate."
                )
        self.has_chains = has_chains(samples.settings)
        self._degree = degree
        self._gradients = by_chain(samples.settings, samples.gradients)
        self.chains, self.draws = next(iter(self._gradients.values())).shape[:2]
        if self.draws < 2:
            raise ValueError(
                f"`samples` must hold at least two draws; it holds {self.draws}."
            )
        self._params = by_chain(samples.settings, samples)
        self._bijectors = dict(bijectors)
        if degree == 2:
            self._check_positions(samples)
        self._functions = _functions(samples, test_functions)
        self._traced: dict[int, Callable[..., dict[str, tf.Tensor]]] = {}
        stored: Mapping[str, np.ndarray] = samples.test_functions or {}
        names = list(test_functions) if test_functions is not None else []
        if test_functions is None:
            self._targets = self._params
        elif self._functions:
            self._targets = {}
        else:
            named = {name: stored[name] for name in names}
            self._targets = by_chain(samples.settings, named)
        first = self._values(DrawSegment(0, 0, 1))
        self.layout = Layout({name: value.shape[1:] for name, value in first.items()})
        self._size = sum(int(np.prod(g.shape[2:])) for g in self._gradients.values())
        self._center = self._mean_position() if degree == 2 else None

    @property
    def features(self) -> int:
        """The number of control variates."""
        d = self._size
        return d if self._degree == 1 else d * (d + 3) // 2

    @property
    def gradient_dtype(self) -> np.dtype:
        """Dtype in which the gradients were stored."""
        return next(iter(self._gradients.values())).dtype

    def batch_means(
        self, segments: list[DrawSegment], length: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield means over ``length`` draws, of the quantities and of their control variates."""
        for _, *rows in self.chunks(segments, length):
            batches = len(rows[0]) // length
            if batches:
                shape = batches, length, -1
                h, f = (row[: batches * length].reshape(shape).mean(1) for row in rows)
                yield h, f

    def chunks(
        self, segments: list[DrawSegment], multiple: int = 1
    ) -> Iterator[tuple[DrawSegment, np.ndarray, np.ndarray]]:
        """Yield chunks, with their quantities and control variates, in float64.

        All chunks but the last of a segment hold a multiple of ``multiple`` draws.
        """
        limit = PIECE_BYTES // (8 * (self.features + self.layout.size))
        length = max(1, limit // multiple) * multiple
        for segment in segments:
            for chunk in segment.chunks(length):
                values = matrix(self._values(chunk))
                gradients = {name: chunk.of(a) for name, a in self._gradients.items()}
                z = -0.5 * matrix(gradients)
                variates = z
                if self._center is not None:
                    theta = self._positions(chunk) - self._center
                    i, j = np.triu_indices(z.shape[1], 1)
                    mixed = theta[:, i] * z[:, j] + theta[:, j] * z[:, i]
                    variates = np.concatenate([z, theta * z - 0.5, mixed], axis=1)
                yield chunk, values, variates

    def _values(self, segment: DrawSegment) -> dict[str, np.ndarray]:
        if not self._functions:
            return {name: segment.of(a) for name, a in self._targets.items()}
        params = {
            name: tf.constant(np.asarray(segment.of(a)))
            for name, a in self._params.items()
        }
        size = segment.stop - segment.start
        if size not in self._traced:
            self._traced[size] = trace(self._evaluate, params)
        values = self._traced[size](params)
        return {name: value.numpy() for name, value in values.items()}

    def _evaluate(self, params: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: vectorized_map(f, params) for name, f in self._functions.items()}

    def _positions(self, segment: DrawSegment) -> np.ndarray:
        """Return draws in the space that the chain moves in."""
        positions = {}
        for name in self._gradients:
            value = np.asarray(segment.of(self._params[name]))
            if name in self._bijectors:
                tensor = tf.constant(value)
                bijector = fitting(self._bijectors[name], value[0], tensor.dtype)
                value = bijector.inverse(tensor).numpy()
            positions[name] = value
        return matrix(positions)

    def _mean_position(self) -> np.ndarray:
        total = np.zeros(self._size)
        length = max(1, PIECE_BYTES // (8 * self._size))
        for chain in range(self.chains):
            for chunk in DrawSegment(chain, 0, self.draws).chunks(length):
                total += self._positions(chunk).sum(axis=0)
        return total / (self.chains * self.draws)

    def _check_positions(self, samples: Samples) -> None:
        missing = [name for name in self._gradients if name not in self._params]
        if missing:
            raise ValueError(
                f"`samples` lacks the draws of {missing[0]!r}; degree 2 needs them."
            )
        for name, coordinates in (
            samples.settings.get("own_coordinates") or {}
        ).items():
            raise ValueError(
                "`degree`: degree 2 needs the draws in the space that the chain moved in; "
                f"{name!r} moved in {coordinates}, which are not kept. Use degree 1."
            )
        run_bijectors = samples.settings.get("bijectors") or {}
        known_keys(
            "bijectors",
            self._bijectors,
            run_bijectors,
            "the chain was run with bijectors for",
        )
        for name in run_bijectors:
            if name in self._gradients and name not in self._bijectors:
                raise ValueError(
                    f"`bijectors`: degree 2 needs the draws in the space that the chain moved in; "
                    f"give the bijector of {name!r} that it was run with, or use degree 1."
                )


def _functions(
    samples: Samples, test_functions: TestFunctions | None
) -> dict[str, Callable[..., Any]]:
    """Return the functions to evaluate; none for stored values or parameters."""
    if test_functions is None:
        if not len(samples):
            raise ValueError(
                "`samples` holds no draws of parameters; name its `test_functions`."
            )
        return {}
    if isinstance(test_functions, Mapping):
        for name, function in test_functions.items():
            if not callable(function):
                raise TypeError(
                    f"`test_functions[{name!r}]` must be a function of `params`; it is "
                    f"{describe(function)}."
                )
        return dict(test_functions)
    if isinstance(test_functions, str) or not isinstance(test_functions, Sequence):
        raise TypeError(
            "`test_functions` must be a list of names or a dict of functions; it is "
            f"{describe(test_functions)}."
        )
    known_keys(
        "test_functions", test_functions, samples.test_functions or {}, "there are"
    )
    return {}


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


class Correction(NamedTuple):
    """Segments of the draws, and the coefficients that correct them."""

    segments: list[DrawSegment]
    coefficients: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """A form with its coefficients.

    Attributes:
        form: Form.
        source: Draws to correct.
        corrections: Corrections of all segments.
        complaints: Warnings.
        gain: Ratio of the variances of batch means, before over after, by quantity.
    """

    form: Form
    source: DrawSource
    corrections: list[Correction]
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
    sums = {}
    for segment in segments:
        regression = ControlVariateRegression(source.features, source.layout.size)
        for h, f in source.batch_means([segment], length):
            regression.add(h, f)
        sums[segment] = regression
    if form.fit == "pooled":
        fitted_and_corrected = [(segments, segments)]
    elif form.fit == "own":
        fitted_and_corrected = [([segment], [segment]) for segment in segments]
    else:
        fitted_and_corrected = []
        for segment in segments:
            others = [other for other in segments if other != segment]
            fitted_and_corrected.append((others, [segment]))
    corrections, complaints = [], set()
    for fitted_to, corrected in fitted_and_corrected:
        regression = ControlVariateRegression.of_all(sums[s] for s in fitted_to)
        coefficients, complaint = regression.coefficients(source.gradient_dtype)
        corrections.append(Correction(corrected, coefficients))
        complaints.add(complaint)
    by_segment = {
        segment: correction.coefficients
        for correction in corrections
        for segment in correction.segments
    }
    gain = (judge or Judge(source, segments)).gain(by_segment)
    return Fitted(form, source, corrections, complaints - {""}, gain)


def best(
    samples: Samples, test_functions: TestFunctions | None, bijectors: Mapping[str, Any]
) -> Fitted:
    """Return the form whose gain is largest in the median over the quantities."""
    gradients: Mapping[str, Any] = samples.gradients or {}
    run_bijectors = samples.settings.get("bijectors") or {}
    # Whether the draws are available in the space in which the chain moved.
    has_positions = not samples.settings.get("own_coordinates") and all(
        name in samples and (name not in run_bijectors or name in bijectors)
        for name in gradients
    )
    best_form = None
    for degree in (1, 2) if has_positions else (1,):
        source = DrawSource(samples, degree, test_functions, bijectors)
        segments = _segments(source, "others")
        needed = _SETTINGS.draws_each * source.features
        enough = _fewest(segments, 1) >= needed
        if degree == 2 and not (enough and source.features <= _SETTINGS.largest):
            break
        judge = Judge(source, segments)
        # The numbers of batches of each chain to try: all draws, then fewer and fewer.
        counts: list[int | None] = [None]
        fewer = source.draws // _SETTINGS.coarser
        least = max(_SETTINGS.least_batches, 2 * source.features)
        while fewer > 1 and _fewest(segments, source.draws // fewer) >= least:
            counts.append(fewer)
            fewer //= _SETTINGS.coarser
        for batches in counts:
            candidate = fitted(source, Form(degree, "others", batches), judge)
            gain = np.median(candidate.gain)
            if best_form is None or gain > np.median(best_form.gain):
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
                // max(10, -(-_SETTINGS.batches // len(segments))),
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
