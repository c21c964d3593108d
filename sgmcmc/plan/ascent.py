"""Ascent to the posterior, for models too large for Newton steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Minibatch
from sgmcmc.dynamics import Dynamics
from sgmcmc.gradients import Gradient, WholeData
from sgmcmc.model.target import Target


class AscentState(NamedTuple):
    """The state of an ascent.

    Attributes:
        position: ζ.
        first: Running mean of the gradient.
        second: Running mean of its squares.
        count: Number of iterations so far.
    """

    position: tf.Tensor
    first: tf.Tensor
    second: tf.Tensor
    count: tf.Tensor


@dataclass(frozen=True)
class Ascent(Dynamics):
    """ζ' = ζ + ε m / (√v + 1), with m and v the running means of the gradient and its squares.

    In coordinates whose posterior SDs are near one. A gradient of one, that of the log posterior
    one SD away, is not blown up to a whole step, so that coordinates of which the data say nothing
    stay where they are.

    Args:
        first: β₁, the decay rate of the running mean m.
        second: β₂, that of v.

    Source:
        Kingma & Ba, ICLR 2015, algorithm 1, with their ε = 1.
    """

    first: float = 0.9
    second: float = 0.99

    step_normals = 0

    def init(
        self,
        position: tf.Tensor,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> AscentState:
        """Return the state at the start."""
        nothing = tf.zeros_like(position)
        return AscentState(position, nothing, nothing, tf.zeros([], position.dtype))

    def step(
        self,
        state: AscentState,
        gradient: tf.Tensor,
        stepsize: tf.Tensor,
        normals: tf.Tensor,
    ) -> AscentState:
        """Return the state one step up."""
        count = state.count + 1.0
        first = self.first * state.first + (1.0 - self.first) * gradient
        second = self.second * state.second + (1.0 - self.second) * gradient**2
        mean = first / (1.0 - self.first**count)
        square = second / (1.0 - self.second**count)
        update = stepsize * mean / (tf.sqrt(square) + 1.0)
        return AscentState(state.position + update, first, second, count)


class ShareState(NamedTuple):
    """State of the estimate.

    Attributes:
        share: Fraction of the prior's gradient that counts, by coordinate.
    """

    share: tf.Tensor


class InformedGradient(Gradient):
    """The minibatch gradient of the likelihood, and a fraction of the prior's.

    The density of a large hierarchical model is highest where all weights are zero and their
    precision is huge, far from its posterior. So the prior's gradient counts by the part that the
    data have in the information on a coordinate: the weights go up the likelihood, within their
    prior, and the scales of priors stay where they are.

    Args:
        share: Fraction of the prior's gradient, (d,).
    """

    def __init__(self, share: np.ndarray) -> None:
        self._share = share

    def init(self, whole: WholeData, position: np.ndarray) -> ShareState:
        """Return the state at the start of an ascent."""
        return ShareState(tf.constant(self._share, whole.target.dtype))

    def estimate(
        self,
        target: Target,
        state: ShareState,
        position: tf.Tensor,
        minibatch: Minibatch,
        at_center: Minibatch,
    ) -> tuple[tf.Tensor, ShareState]:
        """Return the estimate, and the state as it was."""
        of_data = target.gradient(position, minibatch, with_prior=False)
        return of_data + state.share * target.prior_gradient(position), state


_FEWEST_UPDATES = 10
"""Least number of updates of a stepsize after which their average counts: the first ones leap."""


class DualAveraging:
    """Drives the mean acceptance rate to its target.

    log ε_t = μ − √t/(γ(t + t₀)) Σ (target − seen), with μ = log 10ε₁, γ = 0.05, t₀ = 10; in the end
    the average of log ε_t with weights t^(−0.75) counts, or ε₁ if there were too few updates to
    tell.

    Args:
        stepsize: ε₁, the first stepsize.
        target: Target acceptance rate.

    Source:
        Hoffman & Gelman, Journal of Machine Learning Research 15, 2014, section 3.2.
    """

    def __init__(self, stepsize: float, target: float) -> None:
        self._center = math.log(10 * stepsize)
        self._target = target
        self._sum = 0.0
        self._count = 0
        self._mean = 0.0
        self._first = self.stepsize = stepsize

    def see(self, acceptance: float) -> None:
        """Update by an acceptance rate."""
        self._count += 1
        t = self._count
        self._sum += self._target - acceptance
        log = self._center - math.sqrt(t) / (0.05 * (t + 10)) * self._sum
        weight = t**-0.75
        self._mean = weight * log + (1 - weight) * self._mean
        self.stepsize = math.exp(log)

    @property
    def settled(self) -> float:
        """Stepsize after the adaptation."""
        return math.exp(self._mean) if self._count >= _FEWEST_UPDATES else self._first
