"""Hamiltonian Monte Carlo and MALA: the motion, its discretization, and moves of given length."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc.checks import describe, is_number, positive_number, whole_number
from sgmcmc.dynamics.base import ExactDynamics, LogPost
from sgmcmc.model.geometry import Space

STEPS = 10
"""Steps of a trajectory by default."""


@dataclass(frozen=True)
class _TrajectorySettings:
    diverged: float = -1000.0  # log acceptance ratio of one that has left the posterior
    rounding: float = 1e-4  # of a length over an integer number of steps, in float32
    steps: int = 1024  # at most, of a given length


SETTINGS = _TrajectorySettings()


class Moves(NamedTuple):
    """Counts of the moves so far, in float64.

    Attributes:
        number: Number of moves.
        acceptance: Sum of the acceptance probabilities.
        divergences: Number of moves whose trajectory left its initial energy by 1000 or more.
        gradients: Number of full gradients computed.
        cut: Number of moves that reached the largest number of gradients per move.
    """

    number: tf.Tensor
    acceptance: tf.Tensor
    divergences: tf.Tensor
    gradients: tf.Tensor
    cut: tf.Tensor


class Drawn(NamedTuple):
    """Random numbers of a trajectory, in float64.

    Attributes:
        uniforms: For the stepsize and for the acceptance, (2,).
        velocity: ν at its start, (d,).
    """

    uniforms: tf.Tensor
    velocity: tf.Tensor


class ExactState(NamedTuple):
    """The state of Hamiltonian Monte Carlo in all its forms.

    Attributes:
        position: θ, flat and unconstrained.
        log_post: Log posterior at the position, in float64.
        gradient: Gradient of the log posterior at the position, flat.
        root: C, in warm-up: moves are made in z, θ = θ_now + Cz; nothing if the position's own
            coordinates are used.
        frequency: ω, of the part of the potential whose flow is exact.
        moves: Counts of events so far.
    """

    position: tf.Tensor
    log_post: tf.Tensor
    gradient: tf.Tensor
    root: tf.Tensor | tuple[()]
    frequency: tf.Tensor
    moves: Moves


class Point(NamedTuple):
    """A point of a trajectory, in float64.

    Attributes:
        z: Position, as the difference to where the move starts.
        log_post: Log posterior there.
        gradient: Its gradient.
    """

    z: tf.Tensor
    log_post: tf.Tensor
    gradient: tf.Tensor


@dataclass(frozen=True)
class Motion:
    """The motion of one move: H(z, ν) = −log p(z) + ν·ν/2, discretized by a splitting.

    With ω = 0 a step is the leapfrog's. With ω > 0 the flow of ω²ζ²/2 + ν²/2, a rotation, is exact,
    and kicks are those of the rest of the potential: ν += (ε/2) (∇log p + ω²ζ); rotation by ωε;
    ν += (ε/2) (∇log p + ω²ζ). ζ is the distance to the origin of the chain's coordinates.

    Args:
        log_post: Function of z that returns the log posterior and its gradient.
        start: ζ where the move starts, (d,).
        frequency: ω, a scalar.
    """

    log_post: LogPost
    start: tf.Tensor
    frequency: tf.Tensor

    def step(
        self, point: Point, velocity: tf.Tensor, stepsize: tf.Tensor
    ) -> tuple[Point, tf.Tensor]:
        """Return point and velocity one step on."""
        omega = self.frequency
        velocity += stepsize / 2 * self._force(point)
        angle, zeta = omega * stepsize, self.start + point.z
        # sin(ωε)/ω, which is ε for ω = 0.
        across = tf.where(omega > 0, tf.sin(angle) / tf.maximum(omega, 1e-9), stepsize)
        along = tf.cos(angle)
        z = along * zeta + across * velocity - self.start
        velocity = along * velocity - omega * tf.sin(angle) * zeta
        end = Point(z, *self.log_post(z))
        return end, velocity + stepsize / 2 * self._force(end)

    def _force(self, point: Point) -> tf.Tensor:
        return point.gradient + self.frequency**2 * (self.start + point.z)


@dataclass(frozen=True)
class Hamiltonian(ExactDynamics):
    """Moves along trajectories of H(θ, ν) = −log p(θ | x) + ν·ν/2.

    Positions are differences to where the move starts, in float64, so that energies are compared in
    float64 whatever the dtype of the chain.

    Attributes:
        metric: Form of the metric in a warm-up, "dense" or "diagonal": the state then holds
            coordinates that may change between blocks; "none" for those of the position. The chain
            after the warm-up has the same, because the two are then compiled once. ``None`` without
            a warm-up.
    """

    metric: str | None = field(
        default=None, repr=False, kw_only=True, metadata={"constant": False}
    )

    def suitable(self, stepsize: float, frequency: float) -> float:
        """Return the stepsize to use if one is chosen, at most this.

        Args:
            stepsize: Stepsize that gives the target acceptance rate.
            frequency: ω, of the part of the potential whose flow is exact.
        """
        return stepsize

    @abstractmethod
    def move(
        self, motion: Motion, here: Point, stepsize: tf.Tensor, seed: Any
    ) -> tuple[Point, Moves]:
        """Return the end of one move, and counts.

        Args:
            motion: Motion of the move.
            here: Start of it, whose z is zero.
            stepsize: ε, a scalar or (d,), in float64.
            seed: Result of ``drawn``.
        """

    def start(self, log_post: LogPost, position: tf.Tensor) -> ExactState:
        """Return the state at the start of a chain."""
        value, gradient = log_post(position)
        size, root = position.shape[0], ()
        if self.metric in ("dense", "diagonal"):
            root = tf.ones([size], tf.float64)
            root = tf.linalg.diag(root) if self.metric == "dense" else root
        zero = tf.zeros([], tf.float64)
        return ExactState(
            position,
            value,
            tf.cast(gradient, position.dtype),
            root,
            tf.constant(getattr(self, "frequency", 0.0), tf.float64),
            Moves(*[zero] * 5),
        )

    def transition(
        self, log_post: LogPost, state: ExactState, stepsize: tf.Tensor, seed: Any
    ) -> ExactState:
        """Return the state one move on."""
        start, dtype = tf.cast(state.position, tf.float64), state.position.dtype
        root = _Root(state.root)

        def position_of(z: tf.Tensor) -> tf.Tensor:
            return start + root.times(z)

        def at(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            value, gradient = log_post(position_of(z))
            return value, root.times(gradient, transposed=True)

        gradient = root.times(tf.cast(state.gradient, tf.float64), transposed=True)
        here = Point(tf.zeros_like(start), state.log_post, gradient)
        motion = Motion(at, root.solve(start), state.frequency)
        end, counts = self.move(motion, here, tf.cast(stepsize, tf.float64), seed)
        gradient = root.solve(end.gradient, transposed=True)
        pairs = zip(state.moves, counts, strict=True)
        return ExactState(
            tf.cast(position_of(end.z), dtype),
            end.log_post,
            tf.cast(gradient, dtype),
            state.root,
            state.frequency,
            Moves(*[total + tf.cast(count, tf.float64) for total, count in pairs]),
        )

    def facts(self, state: ExactState) -> dict[str, float]:
        """Return acceptance rate, divergences and gradients of the moves so far."""
        moves = Moves(*[float(value) for value in state.moves])
        return {
            "moves": moves.number,
            "acceptance rate": moves.acceptance / max(1.0, moves.number),
            "divergences": moves.divergences,
            "gradients of a move": moves.gradients / max(1.0, moves.number),
            "moves cut short": moves.cut,
        }


def acceptance_of(log_ratio: tf.Tensor) -> tf.Tensor:
    """Return the probability of acceptance; zero if the ratio is not a number."""
    probability = tf.exp(tf.minimum(log_ratio, 0.0))
    zero = tf.zeros_like(probability)
    return tf.where(tf.math.is_nan(probability), zero, probability)


@dataclass(frozen=True)
class _Root:
    """C of θ = θ_now + Cz: a lower triangle, the entries of a diagonal, or nothing for I."""

    entries: Any

    @property
    def _is_identity(self) -> bool:
        return isinstance(self.entries, tuple)

    @property
    def _is_diagonal(self) -> bool:
        return self.entries.shape.rank == 1

    def times(self, vector: tf.Tensor, transposed: bool = False) -> tf.Tensor:
        """Return C v, or Cᵀ v."""
        if self._is_identity:
            return vector
        if self._is_diagonal:
            return self.entries * vector
        return tf.linalg.matvec(self.entries, vector, transpose_a=transposed)

    def solve(self, vector: tf.Tensor, transposed: bool = False) -> tf.Tensor:
        """Return C⁻¹ v, or C⁻ᵀ v."""
        if self._is_identity:
            return vector
        if self._is_diagonal:
            return vector / self.entries
        column = vector[:, tf.newaxis]
        return tf.linalg.triangular_solve(self.entries, column, adjoint=transposed)[
            :, 0
        ]


@dataclass(frozen=True)
class HMC(Hamiltonian):
    """Draws ν ~ N(0, I), takes leapfrog steps, and accepts with probability min(1, e^(H − H')).

    A leapfrog step is ν += (ε/2) ∇log p(θ | x); θ += εν; ν += (ε/2) ∇log p(θ | x). In each
    iteration ε is multiplied by a number drawn uniformly from 1 − jitter to 1 + jitter, so that no
    direction is periodic. The posterior is the stationary distribution, whatever ε is.

    With a ``frequency`` ω the motion under ω²ζ²/2 alone, ζ the chain's whitened coordinates, is
    exact, a rotation, and only the rest of the log posterior is discretized. Near N(0, I) and with
    ω = 1 little is left, so that steps may be long: a normal posterior needs one.

    Args:
        n_leapfrog: Number of leapfrog steps per trajectory; ``None`` for 10, or for as many as
            ``length`` requires.
        length: Length of a trajectory, instead of ``n_leapfrog``: there are as many steps of the
            mean ε as it requires, at most 1024. π/2 is right if the posterior is near N(0, I).
        jitter: Relative width of the random stepsize, from 0 to below 1.
        frequency: ω, from 0 to 1; 0 for plain leapfrog steps.
        spread: Half the width of the range of lengths, relative to ``length``, from 0 to below 1.
            In iteration i a trajectory has length · (1 + spread (2 (iφ mod 1) − 1)),
            φ = (√5 − 1)/2, in all chains: if the posterior is not as wide in all directions, no
            length suits them all.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.HMC(n_leapfrog=20).n_leapfrog
        20

    Source:
        Duane, Kennedy, Pendleton & Roweth, Physics Letters B 195, 1987; Neal, *MCMC using
        Hamiltonian dynamics*, Handbook of Markov Chain Monte Carlo, 2011, sections 3.2 and 4.2;
        frequency: Shahbaba, Lan, Johnson & Neal, Statistics and Computing 24, 2014, section 3.1;
        lengths: Hoffman, Radul & Sountsov, AISTATS 2021, section 3.1.
    """

    n_leapfrog: int | None = None
    length: float | None = None
    jitter: float = 0.2
    frequency: float = 0.0
    spread: float = 0.0

    name = "hmc"
    acceptance = 0.85
    in_step = True

    def bind(self, space: Space) -> HMC:
        """Return this dynamics with its constants checked."""
        if self.n_leapfrog is not None and self.length is not None:
            raise ValueError(
                "`n_leapfrog` and `length` say the same; give one of them."
            )
        if self.spread != 0 and self.length is None:
            raise ValueError("`spread` is that of lengths: give `length`, too.")
        if self.length is None:
            steps = STEPS if self.n_leapfrog is None else self.n_leapfrog
            given = replace(self, n_leapfrog=whole_number("n_leapfrog", steps, 1))
        else:
            given = replace(self, length=positive_number("length", self.length))
        return replace(
            given,
            jitter=_below_one("jitter", self.jitter),
            frequency=read_frequency(self.frequency),
            spread=_below_one("spread", self.spread),
        )

    def of_iteration(self, number: tf.Tensor) -> HMC:
        """Return the dynamics with the length of trajectories in one iteration."""
        if self.length is None or self.spread == 0:
            return self
        # Multiples of this, modulo 1, cover the interval evenly from the first few on.
        golden = (math.sqrt(5.0) - 1.0) / 2.0
        share = tf.cast(number, tf.float64) * golden % 1.0
        return replace(
            self, length=self.length * (1.0 + self.spread * (2.0 * share - 1.0))
        )

    def suitable(self, stepsize: float, frequency: float) -> float:
        """Return a stepsize of which an integer multiple is the length of a trajectory."""
        if self.length is None:
            return stepsize
        return self.length / max(1, math.ceil(self.length / stepsize))

    def drawn(self, seed: tf.Tensor, size: int) -> Drawn:
        """Return the random numbers of a move."""
        first, second = tf.unstack(tf.random.split(seed, 2, alg="philox"))
        uniforms = tf.random.stateless_uniform(
            [2], first, dtype=tf.float64, alg="philox"
        )
        return Drawn(uniforms, normals([size], second))

    def move(
        self, motion: Motion, here: Point, stepsize: tf.Tensor, seed: Drawn
    ) -> tuple[Point, Moves]:
        """Return the end of one trajectory, or its start if that was not accepted."""
        steps, cut = tf.constant(self.n_leapfrog or STEPS), tf.constant(False)
        if self.length is not None:
            exact = self.length / tf.reduce_min(stepsize)
            n_steps = tf.math.ceil(exact - SETTINGS.rounding)
            cut = n_steps > SETTINGS.steps
            steps = tf.cast(tf.clip_by_value(n_steps, 1.0, SETTINGS.steps), tf.int32)
        uniforms, velocity = seed
        jittered = stepsize * (1.0 + self.jitter * (2.0 * uniforms[0] - 1.0))
        _, end, final = tf.while_loop(
            lambda i, *_: i < steps,
            lambda i, point, velocity: (i + 1, *motion.step(point, velocity, jittered)),
            (tf.constant(0), here, velocity),
            parallel_iterations=1,
        )
        ratio = log_weight(end, final) - log_weight(here, velocity)
        accepted = tf.math.log(uniforms[1]) < ratio
        pairs = zip(end, here, strict=True)
        chosen = Point(*[tf.where(accepted, new, old) for new, old in pairs])
        diverged = ~(ratio > SETTINGS.diverged)
        return chosen, Moves(1.0, acceptance_of(ratio), diverged, steps, cut)


def log_weight(point: Point, velocity: tf.Tensor) -> tf.Tensor:
    """Return −H."""
    return point.log_post - tf.reduce_sum(velocity**2) / 2


def normals(shape: Any, seed: tf.Tensor) -> tf.Tensor:
    """Return standard normals in float64; XLA makes others of a seed than a plain graph."""
    return tf.random.stateless_normal(shape, seed, dtype=tf.float64, alg="philox")


def read_frequency(value: Any) -> float:
    """Return the user's frequency, checked."""
    return 1.0 if is_number(value) and value == 1 else _below_one("frequency", value)


def _below_one(argument: str, value: Any) -> float:
    message = (
        f"`{argument}` must be a number from 0 to below 1; it is {describe(value)}."
    )
    if not is_number(value):
        raise TypeError(message)
    if not 0 <= value < 1:
        raise ValueError(message)
    return float(value)


@dataclass(frozen=True)
class MALA(Hamiltonian):
    """The Metropolis-adjusted Langevin algorithm: a Langevin step, accepted or refused.

    θ' = θ + (ε²/2) ∇log p(θ | x) + ε ν, ν ~ N(0, I), is accepted with probability
    min(1, p(θ' | x) q(θ | θ') / (p(θ | x) q(θ' | θ))), q(· | θ) the density of such a step from θ.
    That is one leapfrog step of Hamiltonian Monte Carlo, whose H − H' is the log of this ratio; the
    stepsize of SGLD would be ε². The posterior is the stationary distribution, whatever ε is.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.MALA()
        MALA()

    Source:
        Roberts & Tweedie, Bernoulli 2, 1996, section 1.4.2; acceptance rate 0.574: Roberts &
        Rosenthal, Journal of the Royal Statistical Society B 60, 1998, theorem 2.
    """

    name = "mala"
    acceptance = 0.574
    in_step = True

    def bind(self, space: Space) -> MALA:
        """Return this dynamics, which has no constants."""
        return self

    def drawn(self, seed: tf.Tensor, size: int) -> Drawn:
        """Return the random numbers of a step."""
        return _ONE_STEP.drawn(seed, size)

    def move(
        self, motion: Motion, here: Point, stepsize: tf.Tensor, seed: Drawn
    ) -> tuple[Point, Moves]:
        """Return the end of a step, or its start if the step was not accepted."""
        return _ONE_STEP.move(motion, here, stepsize, seed)


_ONE_STEP = HMC(n_leapfrog=1, jitter=0.0)
