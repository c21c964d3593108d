"""Predicted seconds of full-data chains, from counts: a busy machine makes the same choices."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.checks import outside
from sgmcmc.data.dataset import Data
from sgmcmc.graphs.counting import count_operations
from sgmcmc.graphs.tracing import trace
from sgmcmc.model.target import Target
from sgmcmc.model.whole_posterior import WholePosterior
from sgmcmc.plan.stopping import Goal

# Predicted seconds above which a warning comes before the run begins.
WARN_SECONDS = 180.0

# Largest predicted seconds of a full-data method, if the user sets no limit.
_AFFORDABLE = 900.0


@dataclass(frozen=True)
class _Settings:
    counted_rows: int = 50_000  # of a gradient whose operations are counted
    # Seconds of a gradient without its operations, and of an operation: fourteen models of 200 to
    # 100,000 rows took a quarter to four times what these say, on two cores.
    of_gradient: float = 1e-4
    of_operation: float = 1.25e-10
    of_iteration: float = 2e-5  # with a minibatch, without its gradients
    chains_at_once: int = (
        2  # whatever the machine has, or choices would differ between machines
    )
    moves_of_warm_up: int = 200  # of each chain of HMC, until the first draw
    # Of each chain of HMC, before coordinates are known.
    gradients_before_warm_up: int = 600
    first_draws: int = 250  # least number of draws of HMC
    gradients_of_move: float = 0.9  # of HMC near N(0, I), in units of d^(1/4)
    nuts_warm_up: int = 320  # of each chain of NUTS before the first draw is kept
    gradients_of_nuts: int = 25  # of a move of NUTS if the posterior is far from normal
    quick: float = 60.0  # predicted seconds up to which HMC samples effects of groups
    share_of_limit: float = 0.8  # of `max_seconds` that the prediction may be at most
    # Largest multiple of the predicted gradients that a chain may compute.
    overrun: float = 4.0


_SETTINGS = _Settings()


def seconds_of_gradient(target: Target, data: Data) -> float:
    """Return the predicted seconds of a gradient of the log posterior over all rows.

    Its operations are counted: of very many rows, those of some.
    """
    size = min(data.size, max(1, _SETTINGS.counted_rows // target.row_terms))
    columns = data.slice(0, size)

    def gradient(u: tf.Tensor, columns: dict[str, tf.Tensor]) -> tf.Tensor:
        return WholePosterior(target, columns, rows=size)(u)[1]

    position = tf.zeros(target.size, target.dtype)
    graph = trace(gradient, position, columns).graph
    nonzeros = max(
        (
            int(tf.size(column.values))
            for column in columns.values()
            if isinstance(column, tf.SparseTensor)
        ),
        default=1,
    )
    seconds = _SETTINGS.of_operation * count_operations(graph, nonzeros)
    return _SETTINGS.of_gradient + seconds * data.size / size


def seconds_of_minibatches(gradient: float, share: float, iterations: float) -> float:
    """Return the predicted seconds of iterations, each with two gradients of a minibatch.

    Args:
        gradient: Seconds of a gradient over all rows.
        share: Share of the rows that are in a minibatch.
        iterations: Iterations of all chains.
    """
    seconds = _SETTINGS.of_iteration + 2 * share * gradient
    return seconds * iterations / _SETTINGS.chains_at_once


@dataclass(frozen=True)
class Cost:
    """Predicted cost of full-data sampling.

    Args:
        gradient: Seconds of a gradient over all rows.
        gradients: Gradients of all chains.
        goal: Requested precision and length.
    """

    gradient: float
    gradients: float
    goal: Goal

    @classmethod
    def of_hmc(cls, gradient: float, d: int, goal: Goal) -> Cost:
        """Return the cost of HMC in d coordinates that are near N(0, I)."""
        steps = math.ceil(_SETTINGS.gradients_of_move * d**0.25)
        draws = max(_SETTINGS.first_draws, 2.0 * goal.ess / goal.n_chains)
        trajectories = _SETTINGS.moves_of_warm_up + draws
        gradients = goal.n_chains * (
            _SETTINGS.gradients_before_warm_up + trajectories * steps
        )
        return cls(gradient, gradients, goal)

    @classmethod
    def of_nuts(cls, gradient: float, goal: Goal) -> Cost:
        """Return the cost of NUTS for a posterior that is far from normal."""
        trajectories = goal.n_chains * (_SETTINGS.nuts_warm_up + 2.0 * goal.ess)
        return cls(gradient, trajectories * _SETTINGS.gradients_of_nuts, goal)

    @property
    def seconds(self) -> float:
        """Seconds, with chains side by side."""
        at_once = min(self.goal.n_chains, _SETTINGS.chains_at_once)
        return self.gradient * self.gradients / at_once

    @property
    def max_gradients(self) -> float:
        """Gradients of all chains after which they end, if the user sets no limit."""
        overrun = max(_SETTINGS.overrun, WARN_SECONDS / self.seconds)
        return overrun * self.gradients

    @property
    def affordable(self) -> bool:
        """Whether that is within the user's time limit, or a few minutes."""
        limit = self.goal.max_seconds
        if limit is None:
            return self.seconds <= _AFFORDABLE
        return self.seconds <= _SETTINGS.share_of_limit * limit

    @property
    def quick(self) -> bool:
        """Whether that is within the user's time limit, and about a minute."""
        return self.seconds <= _SETTINGS.quick and self.affordable

    def warn(self, function: str) -> None:
        """Warn of a long run before it begins, if the user has set no limit."""
        if self.goal.max_seconds is None and self.seconds > WARN_SECONDS:
            warnings.warn(
                f"{function}() will take about {self.seconds / 60:.0f} minutes: a gradient over "
                f"all rows takes {self.gradient:.2g} s. `max_seconds` bounds it; effects of groups "
                "are integrated out by `groups=`, which takes a fraction of that.",
                UserWarning,
                stacklevel=outside(),
            )
