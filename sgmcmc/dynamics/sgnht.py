"""The stochastic gradient Nosé–Hoover thermostat."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.dynamics.base import Dynamics
from sgmcmc.target.constants import positive_constant
from sgmcmc.target.geometry import Space
from sgmcmc.target.layout import Layout


class SGNHTState(NamedTuple):
    """The state of SGNHT.

    Attributes:
        position: θ, flat and unconstrained.
        momentum: ν, flat, on the scale of one step.
        thermostat: ξ, one for each named parameter.
    """

    position: tf.Tensor
    momentum: tf.Tensor
    thermostat: tf.Tensor


@dataclass(frozen=True)
class SGNHT(Dynamics):
    """ν ← (1 − ξ) ν + ε ĝ(θ) + √(2aε) ζ; θ ← θ + ν; ξ ← ξ + (ν·ν)/p − ε.

    There is one thermostat ξ for each named parameter, and p is that parameter's size. At the
    start ν ~ N(0, ε) and ξ = a. The thermostat takes up the noise of the gradient, whose size
    need not be known.

    Args:
        a: the diffusion, positive: a number, or a dict with one for each parameter.
        layout: the places of the named parameters in the flat position; set by ``bind``.

    Example:
        >>> import sgmcmc
        >>> sgmcmc.dynamics.SGNHT(a=0.05)
        SGNHT(a=0.05)

    Source:
        Ding et al., NeurIPS 2014, algorithm 2; Baker, *Large-Scale Bayesian Computation Using
        Stochastic Gradient MCMC*, Lancaster 2018, section 4.3.3.
    """

    a: Any = 0.01
    layout: Layout | None = field(default=None, repr=False, metadata={"constant": False})

    name = "sgnht"
    start_normals = 1

    def bind(self, space: Space) -> SGNHT:
        """Return this dynamics with its constant checked, knowing which coordinates share a ξ."""
        a = positive_constant("a", self.a, space.layout)
        return replace(self, a=a, layout=space.layout)

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGNHTState:
        """Return the state at the start of a chain."""
        assert self.layout is not None, "not bound"
        a = np.broadcast_to(self.a, self.layout.size)
        starts = [a[part.start] for part in self.layout.slices.values()]
        thermostat = tf.constant(starts, position.dtype)
        return SGNHTState(position, tf.sqrt(stepsize) * normals[0], thermostat)

    def step(
        self, state: SGNHTState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> SGNHTState:
        """Return the state one step on; ``normals`` is ζ, of shape (1, d)."""
        assert self.layout is not None, "not bound"
        a = tf.constant(self.a, gradient.dtype)
        friction = self.layout.spread(state.thermostat)
        momentum = (1.0 - friction) * state.momentum + stepsize * gradient
        momentum += tf.sqrt(2.0 * a * stepsize) * normals[0]
        excess = self.layout.means(momentum * momentum - stepsize)
        return SGNHTState(state.position + momentum, momentum, state.thermostat + excess)
