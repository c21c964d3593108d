"""Gradients of the user's functions, compared with the changes of their values.

Samplers that move by gradients follow the gradient that TensorFlow returns, not the function. It is
zero where a function rounds or compares (tf.round, tf.argmax, tf.cast to integers), and lacks what
tf.stop_gradient or Python code hides, so that draws would come from the prior, or from something
else, without a word.

By the fundamental theorem of calculus the change along a line is the integral of the gradient. It
is computed by Simpson's rule, whose error is that of the trapezoid rule at most; where the two are
not close, as at a kink, nothing is concluded. A difference counts if it does not vanish when the
line is halved again and again, in float64 if the functions can be computed in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import outside
from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.data.passes import cast
from sgmcmc.graphs.tracing import trace
from sgmcmc.inputs.user_model import UserModel
from sgmcmc.interrupts import pass_on
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class _Settings:
    line_lengths: tuple[float, ...] = (1.0, -3.0, 0.1, 0.01, 1e-3, 30.0, -100.0)
    # What rounds, but has the gradient of what does not, is right on long lines alone.
    right_lines: int = 3  # lines with the right gradient after which no more are tried
    same: float = 0.05  # relative difference of change and integral that are the same
    different: float = 0.2  # least such difference of those that are not
    reliable: float = 0.25  # largest difference of the two rules, relative to the error
    rounding: float = 16.0  # error of a value, in units of its rounding
    halvings: int = 16  # number of times that a line is halved
    least_halvings: int = 3  # number of these after which the error may be rounding
    max_parameters: int = 24  # largest number of parameters that are tried


_SETTINGS = _Settings()

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray, float]]
"""Returns the log posterior and its gradient at a flat position, and the log-likelihood of its
rows; NaN if that fails."""


class Line(NamedTuple):
    """Values and slopes at the start, the middle and the end of a line.

    Attributes:
        ends: Positions of start and end, (2, d).
        values: Values, (3,).
        slopes: Derivatives along the line, from 0 to 1, (3,).
        rounding: Relative rounding error of the values.
        likelihood: Change of the log-likelihood, in units of its rounding.
    """

    ends: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    rounding: float
    likelihood: float

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return bool(np.isfinite(self.values).all() and np.isfinite(self.slopes).all())

    @property
    def change(self) -> float:
        """Change of the value."""
        return float(self.values[2] - self.values[0])

    @property
    def integral(self) -> float:
        """Integral of the derivative, by Simpson's rule."""
        return float(self.slopes @ [1.0, 4.0, 1.0]) / 6.0

    @property
    def error(self) -> float:
        """Difference of change and integral."""
        return abs(self.change - self.integral)

    @property
    def noise(self) -> float:
        """Rounding error of the change; terms of a value near zero may be of size one."""
        return (
            _SETTINGS.rounding
            * self.rounding
            * max(1.0, float(np.abs(self.values).max()))
        )

    @property
    def size(self) -> float:
        """Size of what is compared."""
        return max(abs(self.change), abs(self.integral))

    @property
    def is_same(self) -> bool:
        """Whether the change is clearly the integral."""
        return (
            self.size > 4 * self.noise
            and self.error <= _SETTINGS.same * self.size + self.noise
        )

    @property
    def is_different(self) -> bool:
        """Whether the change is clearly not the integral."""
        trapezoid = float(self.slopes[0] + self.slopes[2]) / 2.0
        reliable = abs(self.integral - trapezoid) <= _SETTINGS.reliable * self.error
        return (
            reliable and self.error > _SETTINGS.different * self.size + 4 * self.noise
        )


def check_slopes(
    model: UserModel,
    columns: Tensors,
    start: np.ndarray,
    evaluate: Evaluate,
    corrected: bool,
) -> None:
    """Raise an error if the gradient along a parameter is not that of the log posterior.

    Args:
        model: User's functions and data.
        columns: Some rows.
        start: Flat position.
        evaluate: Function that evaluates the log posterior on these rows.
        corrected: Whether moves are accepted or rejected by values: a warning is enough then.

    Raises:
        ValueError: A function is wrong; the message names it and the parameter.
    """
    target, space = model.target, model.target.space
    if space.joint is not None:
        return
    rounding = float(np.finfo(start.dtype).eps)
    center = space.preconditioner
    u = start if center is None else center.out_of(tf.constant(start)).numpy()
    rng = np.random.default_rng(1)
    signs = rng.choice([-1.0, 1.0], u.shape) * rng.uniform(0.5, 1.0, u.shape)
    for names, indices in _directions(target, start, evaluate):
        direction = np.zeros_like(u)
        direction[indices] = signs[indices] * (1.0 + np.abs(u[indices]))

        def at(length: float, direction: np.ndarray = direction) -> np.ndarray:
            position = u + length * direction
            return position if center is None else center.into(position)

        line, others_agree = _first_wrong_line(at, evaluate, rounding)
        if line is None:
            continue
        minibatch = Minibatch(columns, model.weight)
        terms = _confirmed(target, minibatch, line, others_agree)
        if terms is None:
            continue
        message = _message(names, target.log_prior is None, *terms)
        if not corrected:
            raise ValueError(message)
        warnings.warn(
            f"{message} Moves of this sampler are accepted by values, so that its draws are right, "
            "but it explores this parameter slowly.",
            stacklevel=outside(),
        )


def _directions(
    target: Target, start: np.ndarray, evaluate: Evaluate
) -> list[tuple[list[str], np.ndarray]]:
    """Return the parameters along which gradients are compared, with their coordinates.

    A few coordinates whose gradient is that of the prior alone are lost among the others of their
    parameter, and have a line of their own.
    """
    space = target.space
    plain = [name for name, g in space.geometries.items() if g.affine and not g.curved]
    everything = np.arange(space.layout.size)
    coordinates = {
        name: everything[space.layout.slices[name]].reshape(-1) for name in plain
    }
    directions = [
        ([name], coordinates[name]) for name in plain[: _SETTINGS.max_parameters]
    ]
    single = all(indices.size <= 1 for _, indices in directions)
    if single and len(plain) == len(directions):
        return directions
    gradient = evaluate(start)[1]
    try:
        of_prior = target.prior_gradient(tf.constant(start)).numpy()
    except Exception as error:  # some functions, such as tf.hessians, need a graph
        pass_on(error)
        return directions
    rounding = _SETTINGS.rounding * float(np.finfo(start.dtype).eps)
    flat = np.abs(gradient - of_prior) <= rounding * np.abs(of_prior)
    hidden = {
        name: indices[flat[indices]]
        for name, indices in coordinates.items()
        if flat[indices].any()
    }
    if hidden:
        directions.append((list(hidden), np.concatenate(list(hidden.values()))))
    return directions


def _first_wrong_line(
    at: Callable[[float], np.ndarray], evaluate: Evaluate, rounding: float
) -> tuple[Line | None, bool]:
    """Return the first line whose change is clearly not the integral; ``None`` if there is none.

    A line on which the log-likelihood is constant says nothing of it. The second result is whether
    the change was the integral on one tried before.
    """
    right = 0
    for scale in _SETTINGS.line_lengths:
        line = _line(np.stack([at(0.0), at(scale)]), evaluate, rounding)
        if line.finite and line.is_different:
            return line, right > 0
        right += line.finite and line.is_same and line.likelihood > _SETTINGS.rounding
        if right == _SETTINGS.right_lines:
            break
    return None, right > 0


def _line(ends: np.ndarray, evaluate: Evaluate, rounding: float) -> Line:
    points = [ends[0], ends.mean(0), ends[1]]
    evaluations = [evaluate(point) for point in points]
    direction = ends[1].astype(np.float64) - ends[0]
    values = np.array([value for value, _, _ in evaluations])
    gradients = [gradient.astype(np.float64) for _, gradient, _ in evaluations]
    likelihoods = np.array([likelihood for *_, likelihood in evaluations])
    # A line that is not finite has infinite numbers.
    with np.errstate(invalid="ignore"):
        slopes = np.array([float(gradient @ direction) for gradient in gradients])
        unit = rounding * np.abs(likelihoods).max() + np.finfo(float).tiny
        change = float(np.abs(likelihoods[1:] - likelihoods[0]).max() / unit)
    return Line(ends, values, slopes, rounding, change)


def _confirmed(
    target: Target, minibatch: Minibatch, line: Line, others_agree: bool
) -> tuple[Line, Line] | None:
    """Return the line for the log-likelihood and for the log-prior, if a gradient is wrong.

    Args:
        target: Log posterior.
        minibatch: Rows with their weight.
        line: Line whose change is not the integral.
        others_agree: Whether it is on others.
    """
    double = Target(target.log_lik, target.log_prior, target.space, tf.float64)
    try:
        terms = _traced_terms(double, minibatch)
    except Exception as error:  # there are constants in float32
        pass_on(error)
        if others_agree:  # a sum with a large number changes in steps of its rounding
            return None
        double, terms = target, _traced_terms(target, minibatch)
    dtype = double.dtype.as_numpy_dtype
    rounding = float(np.finfo(dtype).eps)
    columns = cast(minibatch.columns, double.dtype)

    def both_terms(position: np.ndarray) -> list[tuple[float, np.ndarray]]:
        try:
            results = terms(tf.constant(position.astype(dtype)), columns)
        except tf.errors.OpError:
            nothing = tf.constant(np.nan), tf.fill([len(position)], np.nan)
            results = [nothing, nothing]
        return [(float(value), gradient.numpy()) for value, gradient in results]

    def total(position: np.ndarray) -> tuple[float, np.ndarray, float]:
        (value, gradient), (prior, slope) = both_terms(position)
        return value + prior, gradient + slope, value

    def one_term(term: int, position: np.ndarray) -> tuple[float, np.ndarray, float]:
        value, gradient = both_terms(position)[term]
        return value, gradient, 0.0

    whole = _line(line.ends.astype(np.float64), total, rounding)
    if not (whole.finite and whole.is_different):
        return None
    if not _stays_different(whole, total, rounding):
        return None
    of_likelihood, of_prior = (
        _line(whole.ends, partial(one_term, term), rounding) for term in range(2)
    )
    return of_likelihood, of_prior


def _stays_different(line: Line, evaluate: Evaluate, rounding: float) -> bool:
    """Return whether change and integral differ on ever shorter halves of a line."""
    for count in range(_SETTINGS.halvings):
        start, end = line.ends
        middle = line.ends.mean(0)
        halves = [
            _line(np.stack(ends), evaluate, rounding)
            for ends in ((start, middle), (middle, end))
        ]
        if not all(half.finite for half in halves):
            return False
        line = max(halves, key=lambda half: half.error)
        if not line.is_different:
            is_rounding = line.size <= 50 * line.noise
            return count >= _SETTINGS.least_halvings and is_rounding
    return True


def _traced_terms(target: Target, minibatch: Minibatch) -> Callable[..., list[tuple]]:
    """Return the graph of log-likelihood and log-prior, each with its gradient."""

    def terms(
        position: tf.Tensor, columns: Tensors
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        rows = Minibatch(columns, minibatch.weights)
        space = target.space
        params, u = space.constrain(position), space.coordinates(position)
        value = tf.reduce_sum(target.log_lik(dict(params), dict(columns)))
        slope = target.gradient(position, rows, with_prior=False)
        prior = target.prior_value(params, u)
        return [
            (minibatch.weights * value, slope),
            (prior, target.prior_gradient(position)),
        ]

    point = tf.TensorSpec([target.size], target.dtype)
    return trace(terms, point, cast(minibatch.columns, target.dtype))


def _message(names: list[str], flat: bool, likelihood: Line, prior: Line) -> str:
    """Return the message on the function whose gradient is more in error."""
    line, function = likelihood, "`log_lik`"
    if prior.error > likelihood.error:
        line = prior
        function = "The log-Jacobian of a bijector" if flat else "`log_prior`"
    name = ", ".join(map(repr, names[:4])) + " …" * (len(names) > 4)
    return (
        f"{function} depends on the parameter {name}, but its gradient does not show how: along "
        f"a line in {name} it changes by {line.change:.4g}, and by {line.integral:.4g} according "
        "to its gradient. That of tf.round, tf.floor, tf.argmax, tf.cast to integers and "
        "comparisons is zero, and tf.stop_gradient and Python code hide it. Use a smooth function, "
        "such as tf.sigmoid in place of a comparison, sum over the values of an integer, or draw "
        "it in `gibbs`."
    )
