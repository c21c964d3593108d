"""Hamiltonian Monte Carlo, MALA and the No-U-Turn Sampler, by kernels of TensorFlow Probability."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.checks import describe, is_number, positive_number, whole_number
from sgmcmc.dynamics.base import ExactDynamics, LogPost
from sgmcmc.target.geometry import Space

if TYPE_CHECKING:
    import tensorflow_probability as tfp

_DIVERGED = -1000.0
"""A log acceptance ratio below which the trajectory has left the posterior."""

_ROUNDING = 1e-4
"""Tolerated excess of a length over an integer number of steps, for the rounding of float32."""

STEPS = 10
"""Steps of a trajectory by default."""

_MOST = 1024
"""Largest number of steps of a trajectory of a given length."""

_LEVELS, _MARGIN = (2, 3, 4, 5), 0.06
"""Tree depths at which circles go unseen, and by what a stepsize stays away from these bands."""


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


class ExactState(NamedTuple):
    """The state of Hamiltonian Monte Carlo in all its forms.

    Attributes:
        position: θ, flat and unconstrained.
        log_post: Log posterior at the position, in float64.
        gradient: Gradient of the log posterior at the position, flat.
        root: C, in warm-up: moves are made in z, θ = θ_now + Cz; nothing if the position's own
            coordinates are used.
        moves: Counts of events so far.
    """

    position: tf.Tensor
    log_post: tf.Tensor
    gradient: tf.Tensor
    root: tf.Tensor | tuple[()]
    moves: Moves


@dataclass(frozen=True)
class Hamiltonian(ExactDynamics):
    """Moves along trajectories of H(θ, ν) = −log p(θ | x) + ν·ν/2, by a kernel of TFP's.

    Positions are handed to the kernel as differences to where the move starts, in float64, so that
    energies are compared in float64 whatever the dtype of the chain.

    Attributes:
        metric: Form of the metric in warm-up, "dense" or "diagonal": the state then holds
            coordinates that may change between blocks; ``None`` for those of the position.
    """

    metric: str | None = field(default=None, repr=False, kw_only=True, metadata={"constant": False})

    def suitable(self, stepsize: float, whitened: bool) -> float:
        """Return the stepsize to use if one is chosen, at most this.

        Args:
            stepsize: Stepsize that gives the target acceptance rate.
            whitened: Whether the posterior is near N(0, I).
        """
        return stepsize

    @abstractmethod
    def move(
        self, log_prob: Callable[..., tf.Tensor], known: Callable[..., tf.Tensor],
        origin: tf.Tensor, stepsize: tf.Tensor, seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Moves]:  # fmt: skip
        """Return the end of one move, log posterior and gradient there, and counts.

        Args:
            log_prob: Function that returns the log posterior, with its gradient.
            known: Log posterior and gradient at the origin, at no cost.
            origin: Start of the move, (d,).
            stepsize: ε, a scalar or (d,), in float64.
            seed: Two int32.
        """

    def start(self, log_post: LogPost, position: tf.Tensor) -> ExactState:
        """Return the state at the start of a chain."""
        value, gradient = log_post(position)
        size, root = position.shape[0], ()
        if self.metric is not None:
            root = tf.ones([size], tf.float64)
            root = tf.linalg.diag(root) if self.metric == "dense" else root
        zero = tf.zeros([], tf.float64)
        return ExactState(
            position, value, tf.cast(gradient, position.dtype), root, Moves(*[zero] * 5)
        )

    def transition(
        self, log_post: LogPost, state: ExactState, stepsize: tf.Tensor, seed: tf.Tensor
    ) -> ExactState:
        """Return the state one move on."""
        start, dtype = tf.cast(state.position, tf.float64), state.position.dtype
        root = state.root

        def there(z: tf.Tensor) -> tf.Tensor:
            return start + _times(root, z)

        @tf.custom_gradient
        def log_prob(z: tf.Tensor) -> Any:
            value, gradient = log_post(there(z))
            gradient = _transposed_times(root, gradient)
            return value, lambda upstream: upstream * gradient

        @tf.custom_gradient
        def known(z: tf.Tensor) -> Any:
            gradient = _transposed_times(root, tf.cast(state.gradient, tf.float64))
            return tf.identity(state.log_post), lambda upstream: upstream * gradient

        z, value, gradient, moved = self.move(
            log_prob, known, tf.zeros_like(start), tf.cast(stepsize, tf.float64), seed
        )
        gradient = _transposed_solve(root, gradient)
        moves = Moves(
            *[a + tf.cast(b, tf.float64) for a, b in zip(state.moves, moved, strict=True)]
        )
        return ExactState(tf.cast(there(z), dtype), value, tf.cast(gradient, dtype), root, moves)

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
    return tf.where(tf.math.is_nan(probability), tf.zeros_like(probability), probability)


def split(seed: tf.Tensor) -> tf.Tensor:
    """Return two seeds of one."""
    return libraries.tensorflow_probability().random.split_seed(seed, n=2)


def _times(root: Any, z: tf.Tensor) -> tf.Tensor:
    if isinstance(root, tuple):
        return z
    return root * z if root.shape.rank == 1 else tf.linalg.matvec(root, z)


def _transposed_times(root: Any, gradient: tf.Tensor) -> tf.Tensor:
    if isinstance(root, tuple):
        return gradient
    if root.shape.rank == 1:
        return root * gradient
    return tf.linalg.matvec(root, gradient, transpose_a=True)


def _transposed_solve(root: Any, gradient: tf.Tensor) -> tf.Tensor:
    if isinstance(root, tuple):
        return gradient
    if root.shape.rank == 1:
        return gradient / root
    return tf.linalg.triangular_solve(root, gradient[:, tf.newaxis], adjoint=True)[:, 0]


@dataclass(frozen=True)
class HMC(Hamiltonian):
    """Draws ν ~ N(0, I), takes leapfrog steps, and accepts with probability min(1, e^(H − H')).

    A leapfrog step is ν += (ε/2) ∇log p(θ | x); θ += εν; ν += (ε/2) ∇log p(θ | x). In each
    iteration ε is multiplied by a number drawn uniformly from 1 − jitter to 1 + jitter, so that no
    direction is periodic. The posterior is the stationary distribution, whatever ε is.

    Args:
        n_leapfrog: Number of leapfrog steps per trajectory; ``None`` for 10, or for as many as
            ``length`` requires.
        length: Length of a trajectory, instead of ``n_leapfrog``: there are as many steps of the
            mean ε as it requires, at most 1024. π/2 is right if the posterior is near N(0, I).
        jitter: Relative width of the random stepsize, from 0 to below 1.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.HMC(n_leapfrog=20).n_leapfrog
        20

    Source:
        Duane, Kennedy, Pendleton & Roweth, Physics Letters B 195, 1987; Neal, *MCMC using
        Hamiltonian dynamics*, Handbook of Markov Chain Monte Carlo, 2011, sections 3.2 and 4.2.
    """

    n_leapfrog: int | None = None
    length: float | None = None
    jitter: float = 0.2

    name = "hmc"
    acceptance = 0.85

    def bind(self, space: Space) -> HMC:
        """Return this dynamics with its constants checked."""
        if self.n_leapfrog is not None and self.length is not None:
            raise ValueError("`n_leapfrog` and `length` say the same; give one of them.")
        steps = STEPS if self.n_leapfrog is None else self.n_leapfrog
        return replace(
            self,
            n_leapfrog=whole_number("n_leapfrog", steps, 1) if self.length is None else None,
            length=None if self.length is None else positive_number("length", self.length),
            jitter=_below_one("jitter", self.jitter),
        )

    def suitable(self, stepsize: float, whitened: bool) -> float:
        """Return a stepsize of which an integer multiple is the length of a trajectory."""
        if self.length is None:
            return stepsize
        return self.length / max(1, math.ceil(self.length / stepsize))

    def move(
        self, log_prob: Callable[..., tf.Tensor], known: Callable[..., tf.Tensor],
        origin: tf.Tensor, stepsize: tf.Tensor, seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Moves]:  # fmt: skip
        """Return the end of one trajectory, or its start if that was not accepted."""
        steps, cut = tf.constant(self.n_leapfrog or STEPS), tf.constant(False)
        if self.length is not None:
            wanted = tf.math.ceil(self.length / tf.reduce_min(stepsize) - _ROUNDING)
            cut = wanted > _MOST
            steps = tf.cast(tf.clip_by_value(wanted, 1.0, _MOST), tf.int32)
        own, inner = tf.unstack(split(seed))
        uniform = tf.random.stateless_uniform([], own, -1.0, 1.0, tf.float64)
        jittered = stepsize * (1.0 + self.jitter * uniform)
        results = _kernel(known, jittered, steps).bootstrap_results(origin)
        end, results = _kernel(log_prob, jittered, steps).one_step(origin, results, seed=inner)
        found, ratio = results.accepted_results, results.log_accept_ratio
        moved = Moves(1.0, acceptance_of(ratio), ~(ratio > _DIVERGED), steps, cut)
        return end, found.target_log_prob, found.grads_target_log_prob[0], moved


def _below_one(argument: str, value: Any) -> float:
    message = f"`{argument}` must be a number from 0 to below 1; it is {describe(value)}."
    if not is_number(value):
        raise TypeError(message)
    if not 0 <= value < 1:
        raise ValueError(message)
    return float(value)


def _kernel(
    log_prob: Callable[..., tf.Tensor], stepsize: tf.Tensor, steps: tf.Tensor
) -> tfp.mcmc.TransitionKernel:
    mcmc = libraries.tensorflow_probability().mcmc
    return mcmc.HamiltonianMonteCarlo(log_prob, step_size=stepsize, num_leapfrog_steps=steps)


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

    def bind(self, space: Space) -> MALA:
        """Return this dynamics, which has no constants."""
        return self

    def move(
        self, log_prob: Callable[..., tf.Tensor], known: Callable[..., tf.Tensor],
        origin: tf.Tensor, stepsize: tf.Tensor, seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Moves]:  # fmt: skip
        """Return where a step leads, or its start if that was not accepted."""
        return HMC(n_leapfrog=1, jitter=0.0).move(log_prob, known, origin, stepsize, seed)


@dataclass(frozen=True)
class NUTS(Hamiltonian):
    """Hamiltonian Monte Carlo whose trajectories are doubled until they turn back.

    Of the points of a trajectory one is drawn with probability in proportion to e^(−H). The
    posterior is the stationary distribution, whatever ε is.

    Args:
        max_tree_depth: Largest depth: a trajectory has at most 2^max_tree_depth − 1 leapfrog steps.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.NUTS(max_tree_depth=8)
        NUTS(max_tree_depth=8)

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014; with the multinomial
        sampling of Betancourt, *A Conceptual Introduction to Hamiltonian Monte Carlo*, 2017,
        appendix A.
    """

    max_tree_depth: int = 10

    name = "nuts"
    acceptance = 0.85

    def bind(self, space: Space) -> NUTS:
        """Return this dynamics with its constant checked."""
        return replace(self, max_tree_depth=whole_number("max_tree_depth", self.max_tree_depth, 1))

    def suitable(self, stepsize: float, whitened: bool) -> float:
        """Return the stepsize, or near N(0, I) a smaller one at which turns are seen.

        There all coordinates turn by the same angle, 2 arcsin(ε/2), in a step. At angles from π/2ᵏ
        to π/(2ᵏ − 1) a tree of 2ᵏ points has not turned back yet, one of twice as many has come
        round, which is not seen, and doubling goes on to the last.
        """
        for k in _LEVELS if whitened else ():
            low, high = (2 * math.sin(math.pi / n / 2) for n in (2**k, 2**k - 1))
            if low * (1 - _MARGIN) < stepsize < high * (1 + _MARGIN):
                return low * (1 - _MARGIN)
        return stepsize

    def move(
        self, log_prob: Callable[..., tf.Tensor], known: Callable[..., tf.Tensor],
        origin: tf.Tensor, stepsize: tf.Tensor, seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Moves]:  # fmt: skip
        """Return the point drawn from one trajectory."""
        results = self._kernel(known, stepsize).bootstrap_results(origin)
        end, results = self._kernel(log_prob, stepsize).one_step(origin, results, seed=seed)
        moved = Moves(
            1.0,
            acceptance_of(results.log_accept_ratio),
            results.has_divergence,
            results.leapfrogs_taken,
            results.reach_max_depth,
        )
        return end, results.target_log_prob, results.grads_target_log_prob[0], moved

    def _kernel(
        self, log_prob: Callable[..., tf.Tensor], stepsize: tf.Tensor
    ) -> tfp.mcmc.TransitionKernel:
        mcmc = libraries.tensorflow_probability().mcmc
        return mcmc.NoUTurnSampler(
            log_prob, step_size=stepsize, max_tree_depth=self.max_tree_depth, parallel_iterations=1
        )
