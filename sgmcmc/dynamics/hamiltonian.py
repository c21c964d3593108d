"""What Hamiltonian Monte Carlo and the No-U-Turn Sampler share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.dynamics.exact import ExactDynamics, LogPost


class Moves(NamedTuple):
    """What happened in the moves so far, each number in float64.

    Attributes:
        number: of moves.
        acceptance: sum of the acceptance probabilities.
        divergences: moves whose trajectory left the energy it began with by 1000 and more.
        gradients: full gradients taken.
        cut: moves that were ended by the largest number of gradients that a move may take.
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
        log_post: the log posterior there, in float64.
        gradient: of the log posterior there, flat.
        root: C, in warm-up: moves are made in z, θ = θ_now + Cz; nothing where the position's own
            coordinates are used.
        moves: what happened so far.
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
        metric: in warm-up "dense" or "diagonal": coordinates in the state that may be changed
            between blocks; ``None`` for those of the position.
    """

    metric: str | None = field(default=None, repr=False, kw_only=True, metadata={"constant": False})

    def suitable(self, stepsize: float, whitened: bool) -> float:
        """Return the stepsize to take where one is chosen, at most this.

        Args:
            stepsize: which gives the acceptance rate that is wanted.
            whitened: whether the posterior is near N(0, I).
        """
        return stepsize

    @abstractmethod
    def move(
        self, log_prob: Callable[..., tf.Tensor], known: Callable[..., tf.Tensor],
        origin: tf.Tensor, stepsize: tf.Tensor, seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Moves]:  # fmt: skip
        """Return the end of one move, log posterior and gradient there, and what happened.

        Args:
            log_prob: the log posterior, with its gradient.
            known: the same at the origin, where it costs nothing.
            origin: where the move starts, (d,).
            stepsize: ε, a scalar or (d,), in float64.
            seed: two int32.
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
    """Return the probability of acceptance; zero where the ratio is not a number."""
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
