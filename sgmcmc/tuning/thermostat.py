"""SGNHT with its thermostats at rest, so that it moves linearly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from sgmcmc.dynamics import SGNHT, Dynamics
from sgmcmc.dynamics.momentum import ThermostatState
from sgmcmc.target.layout import Layout
from sgmcmc.tuning.laws import LinearLaw

_LEAST, _MOST = 1e-8, 1.0
"""Between what frictions one is looked for; at 1 a momentum is forgotten in a step."""


class RestingState(NamedTuple):
    """The state of SGNHT without its thermostats.

    Attributes:
        momentum: ν.
        position: θ.
    """

    momentum: tf.Tensor
    position: tf.Tensor


@dataclass(frozen=True)
class Resting(Dynamics):
    """SGNHT with all thermostats held at ξ.

    Args:
        dynamics: the thermostat's dynamics.
        friction: ξ.
    """

    dynamics: SGNHT
    friction: float

    start_normals = 1

    def init(
        self, position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> RestingState:
        """Return the state at the start of a chain."""
        return RestingState(tf.sqrt(stepsize) * normals[0], position)

    def step(
        self, state: RestingState, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
    ) -> RestingState:
        """Return the state one step on, of which the thermostat's move is dropped."""
        shape = tuple(state.position.shape)
        inner = replace(self.dynamics, layout=Layout({"all": shape}))
        friction = tf.constant([self.friction], tf.float64)
        at = ThermostatState(state.position, state.momentum, friction)
        moved = inner.step(at, gradient, stepsize, normals)
        return RestingState(moved.momentum, moved.position)


def has_thermostat(dynamics: Dynamics) -> bool:
    """Tell whether a dynamics moves linearly once its thermostats are held."""
    return isinstance(dynamics, SGNHT)


def at_rest(dynamics: SGNHT, stepsize: float, curvatures: np.ndarray, noise: np.ndarray) -> Resting:
    """Return the dynamics with the friction at which the mean kinetic energy is right.

    A thermostat settles where ν·ν is pε on average. It is held there for all coordinates alike,
    which is exact in the limit of many of them.

    Args:
        dynamics: the thermostat's dynamics, bound.
        stepsize: ε.
        curvatures: of each direction, (m,).
        noise: variance of the gradient noise in each, (m,).
    """

    def excess(friction: float) -> float:
        law = LinearLaw(Resting(dynamics, friction), stepsize, curvatures)
        return law.mean_square(0, noise) / stepsize - 1.0 if law.stable else np.inf

    if excess(_MOST) > 0:
        return Resting(dynamics, _MOST)  # no friction is enough
    if excess(_LEAST) < 0:
        return Resting(dynamics, _LEAST)
    ends = np.log(_LEAST), np.log(_MOST)
    found = scipy.optimize.brentq(lambda log: min(excess(np.exp(log)), 1e12), *ends, xtol=1e-6)
    return Resting(dynamics, float(np.exp(found)))
