"""Exact dynamics that use a few rows in each move: zig-zag, and Metropolis–Hastings.

Both use the gradient of the log posterior over the whole dataset at one point, the center, and
bounds on the difference between the gradient of each row and its value at the center.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.checks import function, positive_number
from sgmcmc.data.random_numbers import AliasTable
from sgmcmc.dynamics.base import ExactDynamics, LogPost
from sgmcmc.model.geometry import Space


@dataclass(frozen=True)
class _SubsamplingSettings:
    largest_excess: float = 1.0 + 1e-4  # of a row over its bound, for rounding
    rows: int = 64  # that Metropolis–Hastings reads together


_SETTINGS = _SubsamplingSettings()


@dataclass(frozen=True, eq=False)
class RowBounds:
    """The log posterior around a center, and bounds on its rows, in the coordinates of the chain.

    The center is the origin. The second derivatives of the term of row j are c r_j r_jᵀ, with
    |c| ≤ 1 at every position.

    Attributes:
        factors: r_j, (N, d).
        gradients: Gradient of the term of each row at the center, (N, d).
        table: AliasTable that draws rows in proportion to their bounds.
        whole: Gradient of the log posterior at the center, (d,).
        prior: Bounds on |∂_i log p(ζ) − ∂_i log p(0)| / ‖ζ‖ for the prior, (d,).
    """

    factors: np.ndarray
    gradients: np.ndarray
    table: AliasTable
    whole: np.ndarray
    prior: np.ndarray


def _as_input(array: np.ndarray, dtype: tf.DType) -> tf.Tensor:
    """Return a tensor that the graph is handed, and does not hold as a constant."""
    with tf.init_scope():
        return tf.constant(array, dtype)


def _drawn(table: AliasTable, uniforms: tf.Tensor) -> tf.Tensor:
    """Return rows drawn from a table, one for each uniform number in float64."""
    scaled = uniforms * len(table.keep)
    row = tf.minimum(tf.cast(scaled, tf.int32), len(table.keep) - 1)
    left = scaled - tf.cast(row, tf.float64)
    keep = tf.gather(_as_input(table.keep, tf.float64), row)
    return tf.where(left < keep, row, tf.gather(_as_input(table.other, tf.int32), row))


def _uniforms(seed: tf.Tensor, number: tf.Tensor, count: int) -> tf.Tensor:
    """Return uniform numbers in float64, those of a numbered event."""
    event_seed = tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
    return tf.random.stateless_uniform(
        [count], event_seed, dtype=tf.float64, alg="philox"
    )


@dataclass(frozen=True)
class Subsampled(ExactDynamics):
    """Exact dynamics that use a few rows in each move.

    Args:
        curvature_bound: Function of the parameters and rows of the dataset that returns the r_j of
            each row: a dict with an array ``(n, *shape)`` for each parameter.
        bounds: The bounds around the center; known once the center is.
    """

    curvature_bound: Callable[..., Any]
    bounds: RowBounds | None = field(
        default=None,
        repr=False,
        compare=False,
        kw_only=True,
        metadata={"constant": False},
    )

    needs = ("curvature_bound",)
    tells_log_post = False

    def bind(self, space: Space) -> Any:
        """Return these dynamics, if their bounds are known."""
        function("curvature_bound", self.curvature_bound, "of `params` and `dataset`")
        return self

    def check_stepsize(self, stepsize: np.ndarray) -> None:
        """Raise an error if the bounds are not known."""
        assert self.known

    def advice(self, state: Any) -> str | None:
        """Return advice if a bound did not hold."""
        excess = float(state.excess)
        if not excess > _SETTINGS.largest_excess:
            return None
        return (
            f"`curvature_bound` does not bound the second derivatives of the rows, or the prior's "
            f"its own: a row, or the prior, exceeded its bound {excess:.3g} times. Return larger "
            "factors; for a prior that is not normal give `prior_bound`."
        )

    @abstractmethod
    def pace(self, size: int) -> tuple[float, float]:
        """Return a stepsize, and a guess of the autocorrelation time at it, in iterations.

        Args:
            size: Number of coordinates.
        """

    @staticmethod
    @abstractmethod
    def weights(factors: np.ndarray) -> np.ndarray:
        """Return weights in proportion to which rows are drawn, (N,), from the r_j, (N, d)."""

    @property
    def known(self) -> RowBounds:
        """Bounds around the center."""
        if self.bounds is None:
            raise ValueError(
                f"`dynamics`: {type(self).__name__} needs the mode and bounds around it, which "
                f"sgmcmc.{self.name}() finds. Call that."
            )
        return self.bounds


class ZigZagState(NamedTuple):
    """The state of the zig-zag process.

    Attributes:
        position: ζ.
        velocity: Direction in each coordinate, 1 or −1, (d,).
        iterations, rows, switches: Numbers of iterations, rows read, and changes of direction.
        excess: Largest rate so far, as a part of its bound.
    """

    position: tf.Tensor
    velocity: tf.Tensor
    iterations: tf.Tensor
    rows: tf.Tensor
    switches: tf.Tensor
    excess: tf.Tensor


@dataclass(frozen=True)
class ZigZag(Subsampled):
    """ζ moves along v ∈ {−1, 1}^d; v_i changes its sign at rate Σ_j (−v_i Δ_ij(ζ))⁺ + ….

    Δ_ij(ζ) = ∂_i log p(x_j|ζ) − ∂_i log p(x_j|0), with control variates at the center 0; to the
    rate are added (−v_i ∂_i log p(0|x))⁺ and that of the prior, with Δ_i = ∂_i log p(ζ) − ∂_i log
    p(0). With these rates the posterior is the stationary distribution, without any error. That of
    row j is at most |r_ji| ‖r_j‖ ‖ζ‖, so that a switch is proposed by the sum of the bounds, at a
    time found in closed form, for a row and coordinate drawn in proportion to theirs, and made with
    the probability of rate over bound: one row at a time.

    An iteration is a time of length ε, at whose end the position is a draw. If a rate exceeds its
    bound, the bound was wrong, and the chain ends with an error that says by how much.

    Args:
        curvature_bound: Function of the parameters and rows of the dataset that returns r_j, a dict
            with an array ``(n, *shape)`` for each parameter, such that the second derivatives of
            the term of row j are c r_j r_jᵀ with |c| ≤ 1 everywhere.
        bounds: Bounds around the center; set by :func:`sgmcmc.zigzag`.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.ZigZag(lambda params, dataset: {"beta": 0.5 * dataset["X"]}).name
        'zigzag'

    Source:
        Bierkens, Fearnhead & Roberts, Annals of Statistics 47, 2019, section 4, algorithm 3. There
        rows are drawn uniformly; in proportion to their bounds as in Sen, Sachs, Lu & Dunson,
        Biometrika 107, 2020.
    """

    name = "zigzag"

    def start(self, log_post: LogPost, position: tf.Tensor) -> ZigZagState:
        """Return the state at the start of a chain, with all directions positive."""
        zero = tf.zeros([], tf.float64)
        return ZigZagState(position, tf.ones_like(position), zero, zero, zero, zero)

    def transition(
        self, log_post: Any, state: ZigZagState, stepsize: tf.Tensor, seed: tf.Tensor
    ) -> ZigZagState:
        """Return the state a time ε later."""
        number = tf.constant(0)
        left = tf.cast(stepsize, state.position.dtype)

        def one_event(left: tf.Tensor, number: tf.Tensor, state: ZigZagState) -> Any:
            left, state = self._event(log_post, left, state, _uniforms(seed, number, 5))
            return left, number + 1, state

        *_, state = tf.while_loop(
            lambda left, *_: left > 0.0,
            one_event,
            (left, number, state),
            parallel_iterations=1,
        )
        broken = state.excess > _SETTINGS.largest_excess
        nan = tf.fill(state.position.shape, tf.constant(np.nan, state.position.dtype))
        return state._replace(
            position=tf.where(broken, nan, state.position),
            iterations=state.iterations + 1.0,
        )

    def _event(
        self, log_post: Any, left: tf.Tensor, state: ZigZagState, u: tf.Tensor
    ) -> tuple[tf.Tensor, ZigZagState]:
        """Return the time left and the state after the next proposal, or at the end of the time."""
        bounds, table, dtype = self.known, self.known.table, state.position.dtype
        position, velocity = state.position, state.velocity
        prior = _as_input(bounds.prior, dtype)
        constant = tf.nn.relu(-velocity * _as_input(bounds.whole, dtype))
        growing = tf.cast(table.total + bounds.prior.sum(), dtype)
        distance, speed = tf.norm(position), math.sqrt(position.shape[0])
        rate, slope = tf.reduce_sum(constant) + growing * distance, growing * speed
        waited = -tf.cast(tf.math.log(u[0]), dtype)
        time = 2.0 * waited / (rate + tf.sqrt(rate * rate + 2.0 * slope * waited))
        ends = time >= left
        position += velocity * tf.minimum(time, left)
        reach = distance + speed * time
        pick = tf.cast(u[1], dtype) * (tf.reduce_sum(constant) + growing * reach)
        of_row = pick < table.total * reach
        of_prior = pick < growing * reach

        def by_row() -> tuple[tf.Tensor, tf.Tensor]:
            row = _drawn(table, u[2])
            factor = tf.gather(_as_input(bounds.factors, dtype), row)
            i = _drawn_index(tf.abs(factor), u[3])
            at_center = tf.gather(_as_input(bounds.gradients, dtype), row)
            differences = log_post.term_gradient(position, row) - at_center
            bound = tf.abs(tf.gather(factor, i)) * tf.norm(factor) * reach
            return i, -tf.gather(velocity, i) * tf.gather(differences, i) / bound

        def by_prior_or_whole() -> tuple[tf.Tensor, tf.Tensor]:
            i = _drawn_index(tf.where(of_prior, prior, constant), u[3])
            at_center = log_post.prior(tf.zeros_like(position))[1]
            differences = log_post.prior(position)[1] - at_center
            bound = tf.gather(prior, i) * reach
            ratio = -tf.gather(velocity, i) * tf.gather(differences, i) / bound
            return i, tf.where(of_prior, ratio, tf.ones_like(ratio))

        i, ratio = tf.cond(of_row, by_row, by_prior_or_whole)
        switches = ~ends & (tf.cast(u[4], dtype) < ratio)
        sign = tf.where(tf.range(position.shape[0]) == i, -1.0, 1.0)
        switched = velocity * tf.cast(sign, dtype)
        one = tf.cast(~ends, tf.float64)
        state = state._replace(
            position=position,
            velocity=tf.where(switches, switched, velocity),
            rows=state.rows + one * tf.cast(of_row, tf.float64),
            switches=state.switches + tf.cast(switches, tf.float64),
            excess=tf.maximum(state.excess, one * tf.cast(ratio, tf.float64)),
        )
        return tf.where(ends, tf.zeros_like(left), left - time), state

    def pace(self, size: int) -> tuple[float, float]:
        """Return the time for a move by an SD, and a guess of the autocorrelation time."""
        return 1.0, 5.0

    @staticmethod
    def weights(factors: np.ndarray) -> np.ndarray:
        """Return ‖r_j‖₁ ‖r_j‖, the sum over coordinates of the bounds of each row."""
        return np.abs(factors).sum(1) * np.linalg.norm(factors, axis=1)

    def facts(self, state: ZigZagState) -> dict[str, float]:
        """Return the cost of a move, and the tightness of the bounds."""
        iterations = max(1.0, float(state.iterations))
        return {
            "rows per iteration": float(state.rows) / iterations,
            "switches per iteration": float(state.switches) / iterations,
            "largest rate over its bound": float(state.excess),
        }


class SubsampledState(NamedTuple):
    """The state of Metropolis–Hastings with subsamples.

    Attributes:
        position: ζ.
        iterations, rows, accepted: Numbers of iterations, of rows read, and of accepted moves.
        excess: Largest difference of a row so far, as a part of its bound.
    """

    position: tf.Tensor
    iterations: tf.Tensor
    rows: tf.Tensor
    accepted: tf.Tensor
    excess: tf.Tensor


@dataclass(frozen=True)
class MHSS(Subsampled):
    """ζ' = ζ + εη, accepted by a ratio estimated from a Poisson number of rows.

    With D_j = log p(x_j|ζ') − log p(x_j|ζ) − ∇log p(x_j|0)·(ζ' − ζ), |D_j| ≤ B_j =
    ‖r_j‖² ‖ζ' − ζ‖ max(‖ζ‖, ‖ζ'‖), row j is drawn S_j ~ Poisson(D_j⁻ + γB_j) times, D⁻ the negative
    part, and the move accepted with probability min(1, e^a),

    a = log p(ζ') − log p(ζ) + ∇log p(x|0)·(ζ' − ζ) + Σ_j S_j log[(D_j⁺ + γB_j)/(D_j⁻ + γB_j)].

    Together with the S_j, the chain satisfies detailed balance with respect to the posterior: the
    normalizing constants of the Poisson distributions make up for Σ_j D_j, which is never
    computed. Rows are proposed by a Poisson process of rate (1 + γ) Σ_j B_j and thinned, so that a
    move uses about (1 + γ) Σ_j B_j rows, whatever N is. A larger γ uses more rows,
    and makes the ratio less noisy.

    Args:
        curvature_bound: Function of the parameters and rows of the dataset that returns r_j, a dict
            with an array ``(n, *shape)`` for each parameter, such that the second derivatives of
            the term of row j are c r_j r_jᵀ with |c| ≤ 1 everywhere.
        gamma: γ, positive.
        bounds: Bounds around the center; set by :func:`sgmcmc.mhss`.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.MHSS(lambda params, dataset: {"beta": 0.5 * dataset["X"]}).gamma
        0.5

    Source:
        Prado, Nemeth & Sherlock, *Metropolis–Hastings with Scalable Subsampling*, 2024, with
        control variates of first order.
    """

    gamma: float = 0.5

    name = "mhss"

    def bind(self, space: Space) -> MHSS:
        """Return these dynamics with their constant checked."""
        return replace(super().bind(space), gamma=positive_number("gamma", self.gamma))

    def start(self, log_post: LogPost, position: tf.Tensor) -> SubsampledState:
        """Return the state at the start of a chain."""
        zero = tf.zeros([], tf.float64)
        return SubsampledState(position, zero, zero, zero, zero)

    def transition(
        self,
        log_post: Any,
        state: SubsampledState,
        stepsize: tf.Tensor,
        seed: tf.Tensor,
    ) -> SubsampledState:
        """Return the state one move on."""
        bounds, current, dtype = self.known, state.position, state.position.dtype
        seeds = tf.random.split(seed, 3, alg="philox")
        normals = tf.random.stateless_normal(
            current.shape, seeds[0], dtype=dtype, alg="philox"
        )
        proposal = current + tf.cast(stepsize, dtype) * normals
        step = proposal - current
        (value, _), (before, _) = log_post.prior(proposal), log_post.prior(current)
        zero = tf.zeros_like(current)
        of_rows = _as_input(bounds.whole, dtype) - log_post.prior(zero)[1]
        ratio = tf.cast(value - before + tf.reduce_sum(of_rows * step), tf.float64)
        log_ratio, rows, excess = self._rows(log_post, current, proposal, seeds[1])
        log_uniform = tf.math.log(_uniforms(seeds[2], tf.constant(0), 1)[0])
        accept = log_uniform < ratio + log_ratio
        excess = tf.maximum(state.excess, excess)
        position = tf.where(accept, proposal, current)
        nan = tf.fill(current.shape, tf.constant(np.nan, dtype))
        return SubsampledState(
            tf.where(excess > _SETTINGS.largest_excess, nan, position),
            state.iterations + 1.0,
            state.rows + rows,
            state.accepted + tf.cast(accept, tf.float64),
            excess,
        )

    def _rows(
        self,
        log_post: Any,
        position: tf.Tensor,
        proposal: tf.Tensor,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the sum over the rows that are drawn, the number of proposed rows, and the excess.

        Args:
            log_post: Log posterior.
            position, proposal: Ends of the move.
            seed: Two int32.
        """
        bounds, table, dtype = self.known, self.known.table, position.dtype
        step, squares = proposal - position, self.weights(bounds.factors)
        farthest = tf.maximum(tf.norm(position), tf.norm(proposal))
        size = tf.cast(tf.norm(step) * farthest, tf.float64)
        total = (1.0 + self.gamma) * table.total * size
        batch = _SETTINGS.rows

        def add_batch(
            passed: tf.Tensor,
            number: tf.Tensor,
            log_ratio: tf.Tensor,
            rows: tf.Tensor,
            largest: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            u = tf.reshape(_uniforms(seed, number, 3 * batch), [3, batch])
            arrivals = passed - tf.cumsum(tf.math.log(u[0]))
            in_time = arrivals < total
            row = _drawn(table, u[1])
            gradients = tf.gather(_as_input(bounds.gradients, dtype), row)
            terms = log_post.terms(proposal, row) - log_post.terms(position, row)
            differences = tf.cast(terms - tf.linalg.matvec(gradients, step), tf.float64)
            bound = tf.gather(_as_input(squares, tf.float64), row) * size
            up, down = tf.nn.relu(differences), tf.nn.relu(-differences)
            floor = self.gamma * bound
            used = in_time & (u[2] * (1.0 + self.gamma) * bound < down + floor)
            gains = tf.math.log(up + floor) - tf.math.log(down + floor)
            excess = tf.where(in_time, tf.abs(differences) / bound, 0.0)
            return (
                arrivals[-1],
                number + 1,
                log_ratio + tf.reduce_sum(tf.where(used, gains, 0.0)),
                rows + tf.reduce_sum(tf.cast(in_time, tf.float64)),
                tf.maximum(largest, tf.reduce_max(excess)),
            )

        zero = tf.zeros([], tf.float64)
        _, _, log_ratio, rows, excess = tf.while_loop(
            lambda passed, *_: passed < total,
            add_batch,
            (zero, tf.constant(0), zero, zero, zero),
            parallel_iterations=1,
        )
        return log_ratio, rows, excess

    def pace(self, size: int) -> tuple[float, float]:
        """Return the stepsize 1.5/√d, and a guess of the random walk's autocorrelation time."""
        return 1.5 / math.sqrt(size), 5.0 + 5.0 * size

    @staticmethod
    def weights(factors: np.ndarray) -> np.ndarray:
        """Return ‖r_j‖², by which differences of a row are bounded."""
        return (factors**2).sum(1)

    def facts(self, state: SubsampledState) -> dict[str, float]:
        """Return the cost of a move, and the tightness of the bounds."""
        iterations = max(1.0, float(state.iterations))
        return {
            "rows per iteration": float(state.rows) / iterations,
            "acceptance rate": float(state.accepted) / iterations,
            "largest difference over its bound": float(state.excess),
        }


def _drawn_index(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Return an index drawn in proportion to the weights."""
    below = tf.cumsum(tf.cast(weights, tf.float64))
    index = tf.reduce_sum(tf.cast(below <= uniform * below[-1], tf.int32))
    return tf.minimum(index, weights.shape[0] - 1)
