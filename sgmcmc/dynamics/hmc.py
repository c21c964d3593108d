"""Hamiltonian Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.checks import is_number, positive_number, whole_number
from sgmcmc.dynamics.hamiltonian import Hamiltonian, Moves, acceptance_of, split
from sgmcmc.target.geometry import Space
from sgmcmc.words import describe

if TYPE_CHECKING:
    import tensorflow_probability as tfp

_DIVERGED = -1000.0
"""A log acceptance ratio below which the trajectory has left the posterior."""

_ROUNDING = 1e-4
"""By how much a length may exceed a whole number of steps, which float32 rounds."""

STEPS = 10
"""Steps of a trajectory where nothing is said of them."""

_MOST = 1024
"""Steps that a trajectory of a given length takes at most."""


@dataclass(frozen=True)
class HMC(Hamiltonian):
    """Draws ν ~ N(0, I), takes leapfrog steps, and accepts with probability min(1, e^(H − H')).

    A leapfrog step is ν += (ε/2) ∇log p(θ | x); θ += εν; ν += (ε/2) ∇log p(θ | x). In each
    iteration ε is multiplied by a number drawn uniformly from 1 − jitter to 1 + jitter, so that no
    direction comes back to where it started for ever. The posterior is the stationary law,
    whatever ε is.

    Args:
        n_leapfrog: steps of a trajectory; ``None`` for 10, or for as many as ``length`` takes.
        length: of a trajectory, in place of ``n_leapfrog``: there are as many steps of the mean ε
            as it takes, at most 1024. π/2 is right where the posterior is near N(0, I).
        jitter: from 0 to below 1.

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
        """Return a stepsize of which a whole number makes the length of a trajectory."""
        if self.length is None:
            return stepsize
        return self.length / max(1, math.ceil(self.length / stepsize))

    def move(
        self, log_prob: Callable[..., tf.Tensor], known: Callable[..., tf.Tensor],
        origin: tf.Tensor, stepsize: tf.Tensor, seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Moves]:  # fmt: skip
        """Return the end of one trajectory, or its start where that was not accepted."""
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
