"""The interface of gradient estimators, and the plain estimate from a minibatch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc import checks
from sgmcmc.data.dataset import Minibatch
from sgmcmc.gradients.whole_data import WholeData
from sgmcmc.model.target import Target


@dataclass(frozen=True)
class Search:
    """A run of stochastic gradient ascent before the chain, which finds its start.

    Attributes:
        stepsize: User's stepsize: a number, a dict, or a schedule.
        n_iters: Number of its iterations; with none the chain starts at ``params``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.ControlVariate(1e-4).search()
        Search(stepsize=0.0001, n_iters=10000)
    """

    stepsize: Any
    n_iters: int


@checks.renamed("centre", "centred")
class Gradient(ABC):
    """An estimator of the gradient of the log posterior from minibatches.

    The state is a ``NamedTuple`` of tensors; it is carried from step to step, and saved with the
    chain. As a dataclass an estimator is compared, shown and recognized in a store by its fields.

    Attributes:
        name: Name that a user may write, for default constants; empty if the class has no name.
        needs: Names of constants that have no default.
        whole_dataset: Whether every gradient uses the whole dataset, so that n = N.
        needs_rows: Whether ``estimate`` needs the row numbers of the minibatch.
        centered: Whether ``estimate`` computes a second gradient, at the ``center`` of its state,
            where latent variables must be drawn too.

    Example:
        >>> import dataclasses, sgmcmc
        >>> from typing import NamedTuple
        >>> class Nothing(NamedTuple):
        ...     pass
        >>> @dataclasses.dataclass(frozen=True)
        ... class Halved(sgmcmc.gradients.Gradient):  # of the tempered posterior p(θ | x)^(1/2)
        ...     def init(self, whole, position):
        ...         return Nothing()
        ...     def estimate(self, target, state, position, minibatch, at_center):
        ...         return 0.5 * target.gradient(position, minibatch), state
        >>> Halved().needs_rows
        False
    """

    name: str = ""
    needs: tuple[str, ...] = ()
    whole_dataset: bool = False
    needs_rows: bool = False
    centered: bool = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        checks.adopt_renamed(cls, "centre", "centred")

    def search(self) -> Search | None:
        """Return the search for the start of chains; by default there is none."""
        return None

    def bind(self, whole: WholeData) -> Gradient:
        """Return this estimator bound to target and data, with its constants checked.

        Raises:
            ValueError, TypeError: A constant is wrong; the message names it.
            MemoryError: The state would not fit.
        """
        return self

    @abstractmethod
    def init(self, whole: WholeData, position: np.ndarray) -> Any:
        """Return the state at the start of a chain.

        Args:
            whole: Target with the whole dataset, for quantities that are computed once over all of
                it.
            position: Position at which the chain starts, (d,).
        """

    @abstractmethod
    def estimate(
        self,
        target: Target,
        state: Any,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, Any]:
        """Return the estimate ĝ at a position, (d,), and the state for the next call.

        Args:
            target: Target, which gives gradients of minibatches, of single terms and of the prior.
            state: State that the last call returned.
            position: θ, (d,).
            minibatch: Observations, their weights and, on request, their row numbers.
            at_center: Same observations, with latent variables drawn at the center if there are
                any.
        """

    def terms(
        self, target: Target, state: Any, position: tf.Tensor, minibatch: Minibatch
    ) -> tf.Tensor:
        """Return the contributions of the rows of a minibatch to ĝ before their weights, (n, d).

        Dynamics that estimate the gradient noise need it. By default it is not available.
        """
        raise ValueError(
            f"`noise_variance`: {type(self).__name__} does not estimate the noise of its "
            "estimates. Give a number, or use 'minibatch', 'control_variate' or 'svrg'."
        )

    def center(self, state: Any) -> tf.Tensor:
        """Return the position of the second gradient, (d,), of a ``centered`` estimator."""
        raise TypeError(f"{type(self).__name__} has no center")

    def refresh_every(self, whole: WholeData) -> int | None:
        """Return the number of iterations between calls of ``refresh``; ``None`` for never."""
        return None

    def refresh(
        self, whole: WholeData, state: Any, position: np.ndarray, visit: int
    ) -> tuple[np.ndarray | None, Any]:
        """Return the gradient and state after a refresh between two blocks, given the data.

        Args:
            whole: Target with the whole dataset.
            state: State.
            position: Position of the chain, (d,).
            visit: Number of the call, from 1.

        Returns:
            The gradient estimate at the position, or ``None`` to keep the last one; and the state.
        """
        return None, state

    def mode(self, state: Any) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Return the mode at which the estimate stays centered, and the gradient there, if any."""
        return None


class MinibatchState(NamedTuple):
    """Empty state: the plain estimate has no memory."""


@dataclass(frozen=True)
class MinibatchGradient(Gradient):
    """ĝ(θ) = ∇log p(θ) + Σ_{i∈S} w_i ∇log p(x_i | θ), with w_i = N/n for uniform minibatches.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.MinibatchGradient()
        MinibatchGradient()

    Source:
        Welling & Teh, ICML 2011, eq. 4.
    """

    name = "minibatch"

    def init(self, whole: WholeData, position: np.ndarray) -> MinibatchState:
        """Return the state at the start of a chain."""
        return MinibatchState()

    def estimate(
        self,
        target: Target,
        state: MinibatchState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, MinibatchState]:
        """Return ĝ at ``position`` from one minibatch, and the state for the next call."""
        return target.gradient(position, minibatch), state

    def terms(
        self,
        target: Target,
        state: MinibatchState,
        position: tf.Tensor,
        minibatch: Minibatch,
    ) -> tf.Tensor:
        """Return ∇log p(x_i | θ), (n, d)."""
        return target.term_gradients(position, minibatch.columns)


@dataclass(frozen=True)
class FullGradient(MinibatchGradient):
    """ĝ(θ) = ∇log p(θ | x), over the whole dataset at every step; the minibatch size is N.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.gradients.FullGradient().whole_dataset
        True

    Source:
        Roberts & Tweedie, Bernoulli 2, 1996, for Langevin dynamics with this gradient.
    """

    name = "full"
    whole_dataset = True
