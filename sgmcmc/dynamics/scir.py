"""The stochastic Cox–Ingersoll–Ross process, and the gamma and Poisson numbers that it draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.checks import flag
from sgmcmc.dynamics.langevin import overdamped
from sgmcmc.dynamics.riemannian import SimplexDynamics, SimplexState
from sgmcmc.model.geometry import Space
from sgmcmc.model.geometry.gamma import HalfLines, OnHalfLine
from sgmcmc.model.layout import Layout


@dataclass(frozen=True)
class _DrawSettings:
    few: int = 4096  # values, all drawn by TensorFlow at 50 to 100 ns; of more most cost a tenth
    proposals: int = 16  # of a gamma number, of which 0.95 and more are accepted
    largest_rate: float = 3.0  # of a Poisson number that is drawn by inversion
    terms: int = 20  # of its distribution; it is larger once in 10^11 times
    smallest_rate: float = 1e-6  # over that by which time is measured


_SETTINGS = _DrawSettings()


def gamma(shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return draws of Gamma(shape, 1).

    One round of rejection settles 95 % and more; what it rejects is drawn again, which is what a
    second round would do.

    Args:
        shape: Shape parameters, finite and at least 1; a vector.
        seeds: Seeds, (3, 2).

    Source:
        Marsaglia & Tsang, ACM Transactions on Mathematical Software 26, 2000.
    """
    if shape.shape[0] <= _SETTINGS.few:
        return tf.random.stateless_gamma(
            shape.shape, seeds[0], shape, dtype=shape.dtype
        )
    normals = tf.random.stateless_normal(shape.shape, seeds[1], dtype=shape.dtype)
    uniforms = tf.random.stateless_uniform(shape.shape, seeds[2], dtype=shape.dtype)
    proposed, accepted = _compiled(_propose_gamma)(shape, normals, uniforms)

    def draw(rejected: tf.Tensor) -> tf.Tensor:
        size = [tf.shape(rejected)[0]]
        shapes = tf.gather(shape, rejected)
        return tf.random.stateless_gamma(size, seeds[0], shapes, dtype=shape.dtype)

    return _redraw(proposed, ~accepted, draw)


def gamma_number(shape: float, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return one draw of Gamma(shape, 1), by operations that XLA compiles.

    It is the first accepted one of many proposals; NaN if none is, which happens less than once in
    10^20 times.

    Args:
        shape: Shape parameter, at least 1.
        seed: Two int32.
        dtype: Dtype of the number.

    Source:
        Marsaglia & Tsang, ACM Transactions on Mathematical Software 26, 2000.
    """
    seeds = tf.random.split(seed, 2, alg="philox")
    normals = tf.random.stateless_normal(
        [_SETTINGS.proposals], seeds[0], dtype=dtype, alg="philox"
    )
    uniforms = tf.random.stateless_uniform(
        [_SETTINGS.proposals], seeds[1], dtype=dtype, alg="philox"
    )
    proposed, accepted = _propose_gamma(tf.constant(shape, dtype), normals, uniforms)
    first = tf.argmax(tf.cast(accepted, tf.int32))
    return tf.where(tf.reduce_any(accepted), tf.gather(proposed, first), np.nan)


def poisson(rate: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return draws of Poisson(rate), as floats.

    Small rates by inversion of the distribution function, large ones by TensorFlow.

    Args:
        rate: Rates, finite; a vector.
        seeds: Seeds, (2, 2).
    """
    dtype = rate.dtype
    if rate.shape[0] <= _SETTINGS.few:
        return tf.random.stateless_poisson(rate.shape, seeds[0], rate, dtype=dtype)
    uniforms = tf.random.stateless_uniform(rate.shape, seeds[1], dtype=dtype)
    large = rate > _SETTINGS.largest_rate
    small_rate = tf.where(large, tf.zeros_like(rate), rate)
    inverted = _compiled(_invert_poisson)(small_rate, uniforms)

    def draw(indices: tf.Tensor) -> tf.Tensor:
        shape = [tf.shape(indices)[0]]
        rates = tf.gather(rate, indices)
        return tf.random.stateless_poisson(shape, seeds[0], rates, dtype=dtype)

    return _redraw(inverted, large, draw)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled by XLA, for one use within a graph."""
    return tf.function(function, autograph=False, jit_compile=True)


def _propose_gamma(
    shape: tf.Tensor, normals: tf.Tensor, uniforms: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return proposals, and which of them are accepted."""
    d = shape - 1 / 3
    root = 1.0 + normals * tf.math.rsqrt(9.0 * d)
    cube = root * root * root
    log_uniform = tf.math.log1p(-uniforms)
    good = log_uniform < 0.5 * normals * normals + d * (1.0 - cube + tf.math.log(cube))
    return d * cube, (root > 0.0) & good


def _invert_poisson(rate: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
    """Return the number of first values of the distribution function that a uniform exceeds."""
    probability = tf.exp(-rate)
    below, number = probability, tf.zeros_like(rate)
    for k in range(1, _SETTINGS.terms + 1):
        number += tf.cast(uniforms > below, rate.dtype)
        probability *= rate / k
        below += probability
    return number


def _redraw(
    values: tf.Tensor, marked: tf.Tensor, draw: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Return the values, with those marked drawn again."""
    indices = tf.where(marked)
    return tf.tensor_scatter_nd_update(values, indices, draw(indices[:, 0]))


class CIR(NamedTuple):
    """dλ = (a − bλ) ds + √(2λ) dW over a time s, with the stationary distribution Gamma(a, b).

    Attributes:
        u: Log λ, a vector.
        degrees: Degrees of freedom, a.
        time: bs, the time in units of which λ's autocorrelation is e^(−bs).
        log_rate: log b; ``None`` if b is one.
    """

    u: tf.Tensor
    degrees: tf.Tensor
    time: tf.Tensor
    log_rate: tf.Tensor | None = None


def transition(process: CIR, seeds: tf.Tensor) -> tf.Tensor:
    """Return a draw of log λ after that time; ``seeds`` has shape (6, 2)."""
    u, degrees, time, log_rate = process
    scaled = u if log_rate is None else u + log_rate
    rate = tf.exp(scaled) / tf.math.expm1(time)
    # TensorFlow's Poisson draws never return from what is not finite.
    good = tf.math.is_finite(rate) & tf.math.is_finite(degrees)
    rate, degrees = tf.where(good, rate, 1.0), tf.where(good, degrees, 1.0)
    degrees += poisson(rate, seeds[:2])
    log_lambda = tf.math.log(-tf.math.expm1(-time)) + log_gamma(degrees, seeds[2:6])
    if log_rate is not None:
        log_lambda -= log_rate
    return tf.where(good, log_lambda, np.nan)


def log_gamma(shape: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """Return logs of draws of Gamma(shape, 1), however small; seeds are (4, 2)."""
    # TensorFlow's gamma draws never return from what is not finite.
    good = tf.math.is_finite(shape)
    shape = tf.where(good, shape, 1.0)
    # 1 − V is as uniform as V, and never zero.
    uniform = tf.random.stateless_uniform(shape.shape, seeds[0], dtype=shape.dtype)
    drawn = tf.math.log(gamma(shape + 1.0, seeds[1:])) + tf.math.log1p(-uniform) / shape
    return tf.where(good, drawn, np.nan)


class GammaState(NamedTuple):
    """The state of a chain with gamma parameters.

    Attributes:
        position: Flat position: u = log θ for points of the simplex; log λ and log b̄ for gamma
            parameters, with b̄ the rate that time is measured by; the parameter itself for others.
        steps: Number of steps made, in each coordinate.
    """

    position: tf.Tensor
    steps: tf.Tensor


@checks.renamed("store_unnormalised")
@dataclass(frozen=True)
class SCIR(SimplexDynamics):
    """θ' = (1 − e^(−h))/2 · W, W ~ χ²(2â, 2θ e^(−h)/(1 − e^(−h))), with â = alpha + ĉ.

    The non-central chi-squared distribution is a chi-squared distribution whose degrees of freedom
    are raised by twice a Poisson number: θ' = (1 − e^(−h)) Γ with Γ ~ Gamma(â + N) and
    N ~ Poisson(θ e^(−h)/(1 − e^(−h))). To compute log θ' however small it is, Γ is drawn as G
    V^(1/(â + N)) with G ~ Gamma(â + N + 1) and V uniform.

    Σθ of the last step depends on the counts of the last step. If latent variables are drawn and
    the totals Σĉ of several points differ from draw to draw, it is not independent of ω, and the
    distribution of ω is wrong at any h. ``fresh_scale`` draws Σθ ~ Gamma(Σâ) before each step; then
    ω ~ Dirichlet(â) goes to ω' ~ Dirichlet(â) whatever Σθ was. That is for all data in each step: ω
    moves toward â/Σâ, whose mean over minibatches is not that of all data if totals differ.

    A gamma parameter λ, with likelihood λ^c e^(−eλ), moves by the same transition over a time t:
    λ' = (1 − e^(−b̂t))/(2b̂) · W, W ~ χ²(2â, 2b̂λ e^(−b̂t)/(1 − e^(−b̂t))), with â = shape + ĉ and
    b̂ = rate + ê. Time is measured by t = h/b̄, with log b̄ the mean of log b̂ over the steps before:
    were it b̂ of this very step, the mean of λ would be off by as much as that of â/b̂ is from a/b,
    however small h is.

    A count below zero, as the difference of counts that a control variate takes may be, acts as a
    rate: −|ĉ| = −(|ĉ|/θ)θ. A negative exposure acts as a count.

    Args:
        alpha: Dirichlet concentrations: a number or an array for all parameters except those that
            ``gamma`` names, or a dict that names the points of the simplex.
        theta0: Dict of starting values of the unnormalized θ > 0; without it θ starts at ω Σâ.
        store_unnormalized: Whether to store θ with each draw.
        fresh_scale: Whether Σθ ~ Gamma(Σâ) is drawn again before each step; not with minibatches.
        gamma: Dict of priors, (shape, rate), of parameters on (0, ∞); with a third entry the
            parameter is λ raised to that power, so that (shape, rate, -1) is a variance.
        half_lines: Places of gamma parameters among the coordinates off the simplex; set by
            ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SCIR(alpha=0.1).alpha
        0.1
        >>> sgmcmc.dynamics.SCIR(gamma={"rate": (2.0, 1.0)}).gamma
        {'rate': (2.0, 1.0)}

    Source:
        Baker, Fearnhead, Fox & Nemeth, NeurIPS 2018, algorithm 1 and section 2.3; Baker,
        *Large-Scale Bayesian Computation Using Stochastic Gradient MCMC*, Lancaster 2018, section
        5.3.3.
    """

    alpha: Any = None
    fresh_scale: bool = False
    gamma: Mapping[str, Any] | None = None
    half_lines: HalfLines = field(
        default_factory=lambda: HalfLines(Layout({}), {}),
        repr=False,
        metadata={"constant": False},
    )

    name = "scir"
    step_normals = 0
    seeds = 7
    compilable = False

    def bind(self, space: Space) -> SCIR:
        """Return these dynamics, knowing which coordinates are on simplices and half-lines."""
        flag("fresh_scale", self.fresh_scale)
        bound = super().bind(space)
        half_lines = {
            n: g for n, g in space.geometries.items() if isinstance(g, OnHalfLine)
        }
        return replace(
            bound, half_lines=HalfLines(bound.simplices.remaining, half_lines)
        )

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> Any:
        """Return the state at the start of a chain; ``gradient`` holds ĉ, and ê."""
        simplices, lines = self.simplices, self.half_lines
        started = super().init(position, gradient, stepsize, normals)
        if lines.has_none:
            return started
        u, remaining = simplices.divide(started.position)
        of_lines, free = lines.divide(remaining)
        slopes, _ = lines.divide(simplices.divide(gradient)[1])
        log_lambda, _ = lines.halves(of_lines)
        exposures = _positive(lines.halves(slopes)[1])
        rates = tf.constant(lines.rate, u.dtype) + exposures
        tiny = tf.constant(tf.as_dtype(u.dtype).as_numpy_dtype(1e-30))
        of_lines = lines.join(log_lambda, tf.math.log(tf.maximum(rates, tiny)))
        position = simplices.unite(u, lines.unite(of_lines, free))
        return GammaState(position, tf.zeros_like(position))

    def step(
        self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, seeds: tf.Tensor
    ) -> Any:
        """Return the state one step on; ``seeds`` has shape (7, 2)."""
        simplices, lines = self.simplices, self.half_lines
        u, remaining = simplices.divide(state.position)
        counts, slopes = simplices.divide(gradient)
        h, epsilon = simplices.divide(stepsize)
        process = self._on_simplices(u, counts, h, seeds[6])
        if lines.has_none:
            u = transition(process, seeds)
            if not simplices.has_all:
                remaining = _langevin(remaining, slopes, epsilon, seeds)
            return SimplexState(simplices.unite(u, remaining))
        on, free = lines.divide(remaining)
        slopes, slopes_free = lines.divide(slopes)
        epsilon, epsilon_free = lines.divide(epsilon)
        steps, _ = lines.halves(lines.divide(simplices.divide(state.steps)[1])[0])
        log_lambda, log_unit = lines.halves(on)
        of_lines, log_rate = self._on_half_lines(
            log_lambda, log_unit, lines.halves(slopes), lines.halves(epsilon)[0]
        )
        log_values = transition(_both(process, of_lines), seeds)
        u, log_lambda = tf.split(log_values, [u.shape[0], -1])
        log_unit += (log_rate - log_unit) / (steps + 2.0)
        if not lines.has_all:
            free = _langevin(free, slopes_free, epsilon_free, seeds)
        remaining = lines.unite(lines.join(log_lambda, log_unit), free)
        return GammaState(simplices.unite(u, remaining), state.steps + 1.0)

    def _on_simplices(
        self, u: tf.Tensor, counts: tf.Tensor, h: tf.Tensor, seed: tf.Tensor
    ) -> CIR:
        """Return the process of θ for points of the simplex."""
        counts = self.usable(counts)
        positive = _positive(counts) if self.differences else counts
        degrees = tf.constant(self.simplices.alpha, u.dtype) + positive
        if self.fresh_scale and not self.simplices.has_none:
            # The same ω, with Σθ ~ Gamma(Σâ).
            seeds = tf.random.split(seed, 4, alg="philox")
            log_scale = log_gamma(self.simplices.sums(degrees), seeds)
            u = self.simplices.log_points(u) + self.simplices.per_coordinate(log_scale)
        if not self.differences:
            return CIR(u, degrees, h)
        lacking = _positive(-counts)
        log_rate = tf.where(lacking > 0.0, tf.math.log(tf.exp(u) + lacking) - u, 0.0)
        return CIR(u, degrees, h * tf.exp(log_rate), log_rate)

    def _on_half_lines(
        self,
        log_lambda: tf.Tensor,
        log_unit: tf.Tensor,
        slopes: tuple[tf.Tensor, tf.Tensor],
        h: tf.Tensor,
    ) -> tuple[CIR, tf.Tensor]:
        """Return the process of λ, and log b̂."""
        lines, dtype = self.half_lines, log_lambda.dtype
        counts, exposures = slopes
        lambda_, unit = tf.exp(log_lambda), tf.exp(log_unit)
        degrees = tf.constant(lines.shape, dtype) + _positive(counts)
        degrees += _positive(-exposures) * lambda_
        rate = tf.constant(lines.rate, dtype) + _positive(exposures)
        # λ may be zero here, of which only the log is an ordinary number.
        rate += tf.math.divide_no_nan(_positive(-counts), lambda_)
        smallest_rate = _SETTINGS.smallest_rate * unit
        rate = tf.where(rate < smallest_rate, smallest_rate, rate)
        log_rate = tf.math.log(rate)
        return CIR(log_lambda, degrees, h * rate / unit, log_rate), log_rate


def _positive(values: tf.Tensor) -> tf.Tensor:
    """Return the positive part; NaN stays NaN."""
    return tf.where(values < 0.0, tf.zeros_like(values), values)


def _langevin(
    position: tf.Tensor, slopes: tf.Tensor, stepsize: tf.Tensor, seeds: tf.Tensor
) -> tf.Tensor:
    """Return the next values of parameters that are on neither."""
    normals = tf.random.stateless_normal(position.shape, seeds[6], dtype=position.dtype)
    return overdamped(position, slopes, stepsize, normals)


def _both(first: CIR, second: CIR) -> CIR:
    """Return the process of two vectors of coordinates, one after the other."""
    ones = tf.ones_like(first.u)
    log_rate = tf.zeros_like(first.u) if first.log_rate is None else first.log_rate
    time = first.time * ones
    assert second.log_rate is not None
    return CIR(
        tf.concat([first.u, second.u], 0),
        tf.concat([first.degrees, second.degrees], 0),
        tf.concat([time, second.time], 0),
        tf.concat([log_rate, second.log_rate], 0),
    )
