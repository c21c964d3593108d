"""The geodesic stochastic gradient Nosé–Hoover thermostat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.geodesic import GeodesicDynamics
from sgmcmc.target.constants import positive_constant
from sgmcmc.target.geometry import Space


class GSGNHTState(NamedTuple):
    """The state of gSGNHT.

    Attributes:
        position: θ, flat, on all manifolds.
        momentum: ν, flat, tangent at θ, on the scale of one step.
        thermostat: ξ, one for each named parameter.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    thermostat: tf.Tensor


@dataclass(frozen=True)
class GSGNHT(GeodesicDynamics):
    """A symmetric splitting of the thermostat on manifolds and in ℝᵈ.

    B: ν += (ε/2) Λ(θ) ĝ(θ); A: (θ, ν) half a step along the geodesic, ξ += (ν·ν/m − ε)/2;
    O: ν ← e^(−ξ) ν + √(aε (1 − e^(−2ξ))/ξ) Λ(θ) ζ; A; B.

    There is one thermostat ξ for each named parameter, and m is the dimension of its manifold; the
    speed ‖ν‖ does not change along a geodesic. O is the exact solution of dν = −ξν dt + √(2aε) dW,
    whatever the sign of ξ. At the start ν ~ N(0, ε) in the tangent space and ξ = a. The thermostat
    takes up the noise of the gradient, whose size need not be known.

    Args:
        a: the diffusion, positive: a number, or a dict with one for each parameter.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.GSGNHT(a=0.05)
        GSGNHT(a=0.05)

    Source:
        Liu, Zhu & Song, NeurIPS 2016, eq. 6 and section 3.3.
    """

    a: Any = 0.01

    name = "gsgnht"

    def bind(self, space: Space) -> GSGNHT:
        """Return these dynamics with their constant checked."""
        return replace(self, space=space, a=positive_constant("a", self.a, space.layout))

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> GSGNHTState:
        """Return the state at the start of a chain."""
        layout = self.known_space.layout
        a = np.broadcast_to(self.a, layout.size)
        starts = [a[part.start] for part in layout.slices.values()]
        momentum = tf.sqrt(stepsize) * self.known_space.tangent(position, normals[0])
        return GSGNHTState(position, momentum, tf.constant(starts, position.dtype))

    def step(
        self, state: GSGNHTState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> GSGNHTState:
        """Return the state at the next position; ``normals`` is ζ, of shape (1, d)."""
        space = self.known_space
        momentum = self.kicked(state.position, state.momentum, gradient, stepsize)
        position, momentum = space.flow(state.position, momentum, 0.5)
        thermostat = state.thermostat + 0.5 * self._excess(momentum, stepsize)
        friction = space.layout.spread(thermostat)
        twice = 2.0 * tf.constant(self.a, gradient.dtype)
        spread = tf.sqrt(twice * stepsize * _mean_decay(2.0 * friction))
        noise = spread * space.tangent(position, normals[0])
        momentum = tf.exp(-friction) * momentum + noise
        position, momentum = space.flow(position, momentum, 0.5)
        thermostat += 0.5 * self._excess(momentum, stepsize)
        return GSGNHTState(*self.settled(position, momentum), thermostat)

    def finish_step(
        self, state: GSGNHTState, gradient: tf.Tensor, stepsize: tf.Tensor
    ) -> GSGNHTState:
        """Return the state after the closing half kick."""
        momentum = self.kicked(state.position, state.momentum, gradient, stepsize)
        return state._replace(momentum=momentum)

    def _excess(self, momentum: tf.Tensor, stepsize: tf.Tensor) -> tf.Tensor:
        """Return ν·ν/m − ε of each parameter."""
        space = self.known_space
        layout, dimensions = space.layout, space.dimensions()
        shares = [layout.sizes[name] / dimensions[name] for name in layout.names]
        wanted = stepsize if stepsize.shape.rank == 0 else layout.means(stepsize)
        return tf.constant(shares, momentum.dtype) * layout.means(momentum * momentum) - wanted


def _mean_decay(rate: tf.Tensor) -> tf.Tensor:
    """Return (1 − e^(−x))/x, the mean of e^(−xt) over 0 < t < 1, which is 1 at x = 0."""
    small = tf.abs(rate) < _SMALL
    safe = tf.where(small, tf.ones_like(rate), rate)
    return tf.where(small, 1.0 - 0.5 * rate, -tf.math.expm1(-safe) / safe)


_SMALL = 1e-8
