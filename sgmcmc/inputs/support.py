"""Where functions are finite: a log-prior, whose support parameters leave, and all in float32.

A prior that is zero outside an interval has no gradient at its ends, so that chains that move by
gradients walk past them. In the coordinates of a bijector there are no ends.
Float32 cannot hold some log posteriors where their mass is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Data, Minibatch, Tensors
from sgmcmc.data.passes import cast
from sgmcmc.graphs.tracing import trace, vectorized_map
from sgmcmc.graphs.user_functions import first_lines
from sgmcmc.inputs.silent_mistakes import rows_from_everywhere
from sgmcmc.interrupts import pass_on
from sgmcmc.model.geometry import root_of
from sgmcmc.model.target import Target, untempered
from sgmcmc.results.arrays import by_chain, coordinate_name, without_chains
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    bisections: int = 60  # number of halvings by which an end is found
    largest_distance: float = 1e12  # at which another end is searched
    round_number: float = 1e-4  # relative distance at which an end is rounded to one
    trial_rows: int = 1000  # largest number of rows on which float32 is tried
    draws: int = 8  # of the normal approximation, at which float32 is tried
    draws_examined: int = 1000  # of a chain, at which the log-prior is evaluated
    tolerated_failures: int = 2  # largest number of these at which float32 may fail
    negligible_depth: float = 100.0  # below the top, where errors do not matter
    largest_error: float = 2.0  # difference of two errors: densities are off by e²


_SETTINGS = _Settings()

# Operations that may lose most digits.
_LOSSY = (
    "Cholesky",
    "LogMatrixDeterminant",
    "Lu",
    "MatrixDeterminant",
    "MatrixInverse",
    "MatrixSolve",
    "MatrixTriangularSolve",
    "Qr",
    "SelfAdjointEigV2",
    "Svd",
)

LogPrior = Callable[[dict[str, Any]], Any]
Point = Mapping[str, np.ndarray]


class Support(NamedTuple):
    """The interval of a coordinate of a parameter on which the log-prior is finite.

    Attributes:
        name: Name of the parameter.
        coordinate: Number of the coordinate in it.
        shape: Shape of the parameter.
        low, high: Ends, infinite where there is none; both are if the set is no interval.
    """

    name: str
    coordinate: int
    shape: tuple[int, ...]
    low: float
    high: float

    @property
    def label(self) -> str:
        """Name of the coordinate."""
        return coordinate_name(self.name, self.shape, self.coordinate)

    @property
    def bijector(self) -> str | None:
        """The bijector that serves, as code; ``None`` if there is no interval."""
        low, high = f"{self.low:.6g}", f"{self.high:.6g}"
        if np.isfinite(self.low) and np.isfinite(self.high):
            return f"tfp.bijectors.Sigmoid({float(low)}, {float(high)})"
        if self.low == 0.0:
            return "tfp.bijectors.Exp()"
        if np.isfinite(self.low):
            return f"tfp.bijectors.Softplus(low={float(low)})"
        if np.isfinite(self.high):
            shift, scale = "tfp.bijectors.Shift", "tfp.bijectors.Scale(-1.0)"
            return f"tfp.bijectors.Chain([{shift}({float(high)}), {scale}, tfp.bijectors.Exp()])"
        return None

    @property
    def advice(self) -> str:
        """Advice, in a sentence."""
        bijector = self.bijector
        if bijector is None:
            return "Give it a bijector, see docs/automatic.md, or a prior that is positive there."
        return (
            f"Give bijectors={{{self.name!r}: {bijector}}}, "
            "so that the chain has no end to cross."
        )

    @property
    def interval(self) -> str:
        """The interval, in words."""
        if np.isinf(self.low) and np.isinf(self.high):
            return "outside a part of its space"
        return f"outside ({self.low:.6g}, {self.high:.6g})"


def finite_priors(log_prior: LogPrior, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return whether the log-prior is finite at each of some draws, (k,)."""

    def values(draws: dict[str, tf.Tensor]) -> tf.Tensor:
        return vectorized_map(
            lambda params: tf.convert_to_tensor(log_prior(dict(params))), draws
        )

    params = {name: tf.constant(array) for name, array in draws.items()}
    return np.isfinite(trace(values, params)(params).numpy())


def find_support(log_prior: LogPrior, inside: Point, outside: Point) -> Support | None:
    """Return the support of the coordinate by which one point is inside it and another is not.

    Args:
        log_prior: Log-prior.
        inside: Parameters at which it is finite.
        outside: Parameters at which it is not.
    """

    def finite(params: Point) -> bool:
        try:
            tensors = {name: tf.constant(value) for name, value in params.items()}
            return bool(np.isfinite(float(log_prior(tensors))))
        except (ValueError, tf.errors.OpError) as error:
            pass_on(error)
            return False

    for name, start in inside.items():
        start, end = np.asarray(start), np.asarray(outside[name])
        for coordinate in range(start.size):
            crossed = start.copy()
            crossed.flat[coordinate] = end.flat[coordinate]
            if finite({**inside, name: crossed}):
                continue

            def at(
                value: float, name: str = name, coordinate: int = coordinate
            ) -> bool:
                changed = np.asarray(inside[name]).copy()
                changed.flat[coordinate] = value
                return finite({**inside, name: changed})

            first, last = float(start.flat[coordinate]), float(end.flat[coordinate])
            ends = sorted(
                [_end(at, first, last), _other_end(at, first, np.sign(first - last))]
            )
            return Support(name, coordinate, start.shape, *ends)
        if not finite({**inside, name: end}):
            return Support(name, 0, (), -np.inf, np.inf)
    return None


def overflows(
    log_prior: LogPrior, support: Support, inside: Point, outside: Point
) -> bool:
    """Return whether an end of the support is another one in float64: numbers overflow there."""
    inside, outside = (
        {name: array.astype(np.float64) for name, array in point.items()}
        for point in (inside, outside)
    )
    try:
        if not finite_priors(
            log_prior, {k: v[np.newaxis] for k, v in inside.items()}
        ).all():
            return False
    except (TypeError, ValueError, tf.errors.OpError) as error:  # constants in float32
        pass_on(error)
        return False
    wide = find_support(log_prior, inside, outside)
    return wide is None or not np.allclose(
        wide[-2:], support[-2:], rtol=1e-3, atol=1e-6
    )


def _end(at: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the end of an interval between two numbers, rounded if that is near."""
    for _ in range(_SETTINGS.bisections):
        middle = 0.5 * (inside + outside)
        if at(middle):
            inside = middle
        else:
            outside = middle
    end = 0.5 * (inside + outside)
    if abs(end) < 1e-6:
        return 0.0
    nearest = float(f"{end:.3g}")
    return nearest if abs(nearest - end) <= _SETTINGS.round_number * abs(end) else end


def _other_end(at: Callable[[float], bool], inside: float, sign: float) -> float:
    distance = 1.0 + abs(inside)
    while distance < _SETTINGS.largest_distance:
        if not at(inside + sign * distance):
            return _end(at, inside, inside + sign * distance)
        distance *= 10.0
    return float(sign * np.inf)


def need_precision(
    target: Target, data: Data, position: np.ndarray, covariance: np.ndarray
) -> None:
    """Raise an error if the log posterior has no value in float32 where it has one in float64.

    The same if it has linear algebra, and values far from those in float64. Examples are a Cholesky
    factor of a matrix that is nearly singular, and parameters so near to a pole that float32 does
    not tell them from it.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        position: Mode, flat.
        covariance: Covariance of the normal approximation.
    """
    if target.dtype != tf.float32 or data.sparse:
        return
    columns = data.rows(
        rows_from_everywhere(data.size, min(data.size, _SETTINGS.trial_rows))
    )
    normals = np.random.default_rng(1).standard_normal((_SETTINGS.draws, target.size))
    points = (
        np.concatenate([np.zeros((1, target.size)), normals @ root_of(covariance).T])
        + position
    )
    evaluations, lossy = _values(target, columns, points)
    values = np.array([value for value, _ in evaluations])
    bad = np.flatnonzero(~np.isfinite(values))
    few = not len(bad) or (bad[0] > 0 and len(bad) <= _SETTINGS.tolerated_failures)
    if few and not lossy:
        return
    double = Target(target.log_lik, target.log_prior, target.space, tf.float64)
    exact = np.array([value for value, _ in _values(double, columns, points)[0]])
    if few:
        errors = values - exact
        top = np.max(exact, initial=-np.inf, where=np.isfinite(exact))
        errors = errors[
            np.isfinite(errors) & (exact > top - _SETTINGS.negligible_depth)
        ]
        spread = float(np.ptp(errors)) if len(errors) else 0.0
        if spread <= _SETTINGS.largest_error:
            return
        what = f"the errors of the log posterior around its mode differ by {spread:.2g}"
    elif not np.isfinite(exact[bad]).all():
        return
    else:
        where = (
            "at the mode"
            if bad[0] == 0
            else f"at {len(bad)} of {_SETTINGS.draws} draws around the mode"
        )
        what = f"the log posterior has no finite value {where} of the posterior; in float64 it has"
    reason = next((text for _, text in evaluations if text), "")
    raise ValueError(
        f"`dtype` is float32, in which {what}. A Cholesky factor of a matrix that is nearly "
        "singular is lost to rounding, or a parameter near an end of its space is rounded to it. "
        f"Use dtype=tf.float64. {reason}".rstrip()
    )


def _values(
    target: Target, columns: Tensors, points: np.ndarray
) -> tuple[list[tuple[float, str]], bool]:
    """Return the log posterior of some rows at each point, and whether it may lose most digits.

    Of a point that fails the value is NaN, with the reason.
    """
    columns = cast(columns, target.dtype)
    spec = tf.TensorSpec(points.shape[1:], target.dtype)
    evaluations = []
    try:
        log_post = trace(
            lambda u, rows: target.log_post(u, Minibatch(rows)), spec, columns
        )
    except (TypeError, ValueError) as error:  # constants in float32
        pass_on(error)
        return [(np.nan, "")] * len(points), False
    for point in points:
        try:
            evaluations.append(
                (float(log_post(tf.constant(point, target.dtype), columns)), "")
            )
        except tf.errors.OpError as error:
            pass_on(error)
            evaluations.append((np.nan, first_lines(error)))
    return evaluations, any(op.type in _LOSSY for op in log_post.graph.get_operations())


def support_warnings(
    samples: Samples, target: Target, start: Mapping[str, np.ndarray]
) -> list[str]:
    """Return a warning if draws lie where the log-prior is not finite.

    Args:
        samples: Draws.
        target: Log posterior that they were drawn from.
        start: Parameters where a chain began.
    """
    log_prior = untempered(target.log_prior)
    if log_prior is None or set(samples) != set(target.space.layout.names):
        return []
    flat = without_chains(by_chain(samples.settings, samples))
    count = len(next(iter(flat.values())))
    indices = np.unique(np.linspace(0, count - 1, _SETTINGS.draws_examined).astype(int))
    draws = {name: np.asarray(array[indices]) for name, array in flat.items()}
    fine = finite_priors(log_prior, draws)
    if fine.all():
        return []
    share = f"{1 - fine.mean():.2g} of the draws lie where `log_prior` is not finite"
    inside = dict(start)
    if fine.any():
        inside = {name: array[fine][0] for name, array in draws.items()}
    outside = {name: array[~fine][0] for name, array in draws.items()}
    support = find_support(log_prior, inside, outside)
    if support is None:
        return [
            f"{share}: they do not follow the posterior. Use a bijector, or another prior."
        ]
    return [
        f"{share}, {support.label} being {support.interval}: they do not follow the posterior, "
        f"since gradients do not keep a chain from crossing an end. {support.advice}"
    ]


def infinite_value_warnings(
    samples: Samples, target: Target, start: Mapping[str, np.ndarray]
) -> list[str]:
    """Return warnings about log posteriors along a chain that are not finite."""
    bad = ~np.isfinite(samples.log_post.values)
    if not bad.any():
        return []
    warnings = support_warnings(samples, target, start)
    if warnings or not all(g.affine for g in target.space.geometries.values()):
        return warnings
    return [
        f"The estimated log posterior is not finite at {bad.sum()} of {bad.size} points of the "
        "chain: some rows have a density of zero there, which their gradient may not show. Look "
        "for rows that are mistakes, or use a density that is positive everywhere."
    ]
