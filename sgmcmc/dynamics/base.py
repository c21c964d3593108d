"""The interface of the dynamics, given gradients or the log posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sgmcmc.model.geometry import Space

LogPost = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Returns the log posterior over the whole dataset, a scalar, and its gradient, (d,), in float64,
at a flat position."""


class Elsewhere(Protocol):
    """Estimates at other positions, from the minibatch of the present step.

    Attributes:
        gradient: Function of a flat position that returns the gradient estimate there, (d,).
        log_post: Function of a flat position that returns the weighted terms of the minibatch's
            rows, (n,), and the log prior there, with the log-Jacobian.
    """

    def gradient(self, position: tf.Tensor) -> tf.Tensor:
        """Return the gradient estimate at a position, (d,)."""

    def log_post(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the weighted terms of the rows at a position, (n,), and the log prior there."""


class Dynamics(ABC):
    """Moves of the state of a chain, given a gradient and random numbers.

    The state is a ``NamedTuple`` of tensors that has a ``position``. An iteration is

    1. ``refresh``, once;
    2. ``step``, to the next position, with the gradient estimate at the present one;
    3. a new gradient estimate, at that next position, from a new minibatch;
    4. ``finish_step``, with that gradient; 2 to 4 are repeated ``steps`` times.

    The constants of a dynamics are its attributes; as a dataclass it is compared, shown and
    recognized in a store by them.

    Attributes:
        name: Name that a user may write, for default constants; empty if the class has no name.
        needs: Names of constants that have no default.
        steps: Number of gradients per iteration, each from a new minibatch.
        start_normals: Number of vectors of standard normals that ``init`` uses.
        refresh_normals: Number of vectors of standard normals that ``refresh`` uses, once an
            iteration.
        step_normals: Number of vectors of standard normals that ``step`` uses, once a step.
        seeds: Number of seeds that ``step`` uses instead of normals, if it draws from other
            distributions itself; each is a pair of int32 that is used nowhere else.
        compilable: Whether XLA can compile what it does.
        on_manifolds: Whether it moves parameters on manifolds along them, by ``flow``, ``tangent``
            and ``retracted`` of the space that ``bind`` receives.
        learns_noise: Whether ``learn`` is called in each step, for the noise of the gradient.
        learns_information: Whether ``learn`` gets the rows' own gradients, times N/n, whatever
            the way of drawing them, from which the information is estimated.
        visits: Whether ``visit`` is called in each step, for estimates at other positions.
        separable: Whether a parameter can move without the others.

    Example:
        >>> import dataclasses, sgmcmc, tensorflow as tf
        >>> from typing import NamedTuple
        >>> class State(NamedTuple):
        ...     position: tf.Tensor
        >>> @dataclasses.dataclass(frozen=True)
        ... class Langevin(sgmcmc.dynamics.Dynamics):
        ...     def init(self, position, gradient, stepsize, normals):
        ...         return State(position)
        ...     def step(self, state, gradient, stepsize, normals):
        ...         drift = 0.5 * stepsize * gradient
        ...         return State(state.position + drift + tf.sqrt(stepsize) * normals[0])
        >>> Langevin().normals
        1
    """

    name: str = ""
    needs: tuple[str, ...] = ()
    steps: int = 1
    start_normals: int = 0
    refresh_normals: int = 0
    step_normals: int = 1
    seeds: int = 0
    compilable: bool = True
    on_manifolds: bool = False
    learns_noise: bool = False
    learns_information: bool = False
    visits: bool = False
    separable: bool = True

    @property
    def normals(self) -> int:
        """Number of vectors of standard normals that one iteration uses."""
        return self.refresh_normals + self.steps * self.step_normals

    def after_burn_in(self, burn_in: int) -> Dynamics:
        """Return these dynamics for a chain with a given number of burn-in iterations.

        It is for those that learn until then; by default nothing changes.
        """
        return self

    def for_rows(self, rows: int, size: int, unseen: float) -> Dynamics:
        """Return these dynamics for minibatches of a given size; by default nothing changes.

        Args:
            rows: Number of observations, N.
            size: Number of rows in a minibatch, n.
            unseen: Variance of the gradient noise, as a part of that of rows drawn with
                replacement: 1 − n/N of rows drawn without.
        """
        return self

    def bind(self, space: Space) -> Dynamics:
        """Return this dynamics bound to the places of the parameters in the position.

        Constants are checked here, and those that are given by parameter become vectors.

        Raises:
            ValueError, TypeError: A constant is wrong; the message names it.
        """
        return self

    @abstractmethod
    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> Any:
        """Return the state at the start of a chain.

        Args:
            position: θ, flat, (d,).
            gradient: Gradient estimate at the position, (d,).
            stepsize: ε, a scalar or (d,).
            normals: Standard normals, (start_normals, d).
        """

    def refresh(self, state: Any, stepsize: tf.Tensor, normals: tf.Tensor) -> Any:
        """Return the state at the start of an iteration; by default nothing is drawn."""
        return state

    @abstractmethod
    def step(
        self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Return the state at the next position; ``gradient`` is that at the present one.

        ``normals`` has shape (step_normals, d); in its place comes an array of seeds, (seeds, 2),
        if ``seeds`` asks for them.
        """

    def finish_step(self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor) -> Any:
        """Return the state at the end of a step; ``gradient`` is that at its new position.

        By default the step ended with ``step``.
        """
        return state

    def learn(self, state: Any, parts: tf.Tensor) -> Any:
        """Return the state updated by the noise of a new gradient; unchanged by default.

        It is called between ``step`` and ``finish_step`` if ``learns_noise`` asks for it. The
        gradient estimate is, up to a constant, the sum of ``parts``, (n, d), one for each row of
        the minibatch, whose covariance over the minibatch, times n, is that of the sum.
        """
        return state

    def visit(self, state: Any, elsewhere: Elsewhere) -> Any:
        """Return the state updated by estimates at other positions; unchanged by default.

        It is called between ``step`` and ``finish_step`` if ``visits`` asks for it.

        Args:
            state: State after ``step``.
            elsewhere: Estimates at any positions, from the minibatch of the next gradient.
        """
        return state

    def check_stepsize(self, stepsize: np.ndarray) -> None:  # noqa: B027
        """Raise an error if the constants are not compatible with a stepsize; by default they are.

        Args:
            stepsize: ε of the first iteration, a number or (d,).

        Raises:
            ValueError: A constant is too large or too small; the message names it.
        """

    def advice(self, state: Any) -> str | None:
        """Return advice for a chain that has become NaN; by default that is a smaller stepsize."""
        return None

    def facts(self, state: Any) -> dict[str, float]:
        """Return diagnostics of the moves so far, by name; empty by default."""
        return {}


class ExactDynamics(Dynamics):
    """Moves of the state of a chain, given the log posterior over the whole dataset.

    In place of ``refresh``, ``step`` and ``finish_step`` an iteration is one ``transition``. The
    state is a ``NamedTuple`` of tensors that has a ``position``, the ``log_post`` there, in
    float64, and its ``gradient``, in the dtype of the position. They require ``gradient="full"``
    alone.

    Attributes:
        acceptance: Acceptance rate that the stepsize is chosen for.
        tells_log_post: Whether the state has the log posterior and its gradient.
        in_step: Whether chains of one stepsize compute as many gradients as each other in every
            move.

    Example:
        >>> import dataclasses, sgmcmc, tensorflow as tf
        >>> from typing import NamedTuple
        >>> class State(NamedTuple):
        ...     position: tf.Tensor
        ...     log_post: tf.Tensor
        ...     gradient: tf.Tensor
        >>> @dataclasses.dataclass(frozen=True)
        ... class RandomWalk(sgmcmc.dynamics.ExactDynamics):
        ...     def start(self, log_post, position):
        ...         value, gradient = log_post(position)
        ...         return State(position, value, tf.cast(gradient, position.dtype))
        ...     def transition(self, log_post, state, stepsize, seed):
        ...         now = state.position
        ...         move = tf.random.stateless_normal(now.shape, seed, dtype=now.dtype)
        ...         there = self.start(log_post, now + stepsize * move)
        ...         u = tf.random.stateless_uniform([], seed + 1, dtype=tf.float64)
        ...         accept = tf.math.log(u) < there.log_post - state.log_post
        ...         return tf.nest.map_structure(lambda a, b: tf.where(accept, a, b), there, state)
        >>> RandomWalk().seeds
        1
    """

    step_normals = 0
    seeds = 1
    acceptance: float = 0.8
    tells_log_post: bool = True
    in_step: bool = False

    def drawn(self, seed: tf.Tensor, size: int) -> Any:
        """Return the random numbers of a transition, or the seed if they are drawn on the way.

        Args:
            seed: Two int32, used nowhere else.
            size: d.
        """
        return seed

    @abstractmethod
    def start(self, log_post: LogPost, position: tf.Tensor) -> Any:
        """Return the state at the start of a chain.

        Args:
            log_post: Function of the position that returns the log posterior and its gradient.
            position: θ, flat, (d,).
        """

    def of_iteration(self, number: tf.Tensor) -> ExactDynamics:
        """Return the dynamics of one iteration; these, unless they differ by iteration.

        Args:
            number: Number of the iteration, from 1.
        """
        return self

    @abstractmethod
    def transition(
        self, log_post: LogPost, state: Any, stepsize: tf.Tensor, seed: Any
    ) -> Any:
        """Return the state after a move that leaves the posterior as it is.

        Args:
            log_post: Function of the position that returns the log posterior and its gradient.
            state: State.
            stepsize: ε, a scalar or (d,).
            seed: Result of ``drawn``: by default two int32.
        """

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> Any:
        """Raise an error: ``start`` takes its place."""
        raise TypeError(
            f"{type(self).__name__} needs the log posterior, not only its gradient"
        )

    def step(
        self, state: Any, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> Any:
        """Raise an error: ``transition`` takes its place."""
        raise TypeError(
            f"{type(self).__name__} needs the log posterior, not only its gradient"
        )
