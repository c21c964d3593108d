"""The No-U-Turn Sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import tensorflow as tf

from sgmcmc import libraries
from sgmcmc.checks import whole_number
from sgmcmc.dynamics.hamiltonian import Hamiltonian, Moves, acceptance_of
from sgmcmc.target.geometry import Space

if TYPE_CHECKING:
    import tensorflow_probability as tfp

_LEVELS, _MARGIN = (2, 3, 4, 5), 0.06
"""Tree depths at which circles go unseen, and by what a stepsize stays away from these bands."""


@dataclass(frozen=True)
class NUTS(Hamiltonian):
    """Hamiltonian Monte Carlo whose trajectories are doubled until they turn back.

    Of the points of a trajectory one is drawn with probability in proportion to e^(−H). The
    posterior is the stationary law, whatever ε is.

    Args:
        max_tree_depth: a trajectory has at most 2^max_tree_depth − 1 leapfrog steps.

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
