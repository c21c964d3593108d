"""Latent variables, drawn by the user's function before each gradient.

The stage is between the data stream and the gradient estimator. It completes a minibatch with
latent variables drawn given the present parameters; values that are kept for each observation are
passed with the minibatch and updated after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Minibatch, Tensors
from sgmcmc.model.geometry import Space

Gibbs = Callable[[Tensors, Tensors, tf.Tensor], Mapping[str, Any]]


class LatentState(NamedTuple):
    """Latent variables kept from step to step.

    Attributes:
        here: Values kept for each observation, drawn given the chain's positions.
        center: Values drawn given the center of the control variates.
        log_post: Log posterior estimate at the position, from the completed minibatch, which cannot
            be recomputed.
    """

    here: Tensors
    center: Tensors
    log_post: tf.Tensor


@dataclass(frozen=True)
class Latents:
    """A user's function that draws latent variables, and starting values of the kept ones.

    Args:
        gibbs: Function of parameters, minibatch and seed that returns the minibatch with the latent
            variables added.
        starts: Starting values of those that are kept, with an entry for each observation.
        advice: Advice for a chain that became NaN, if the function may be the cause.
    """

    gibbs: Gibbs
    starts: Mapping[str, np.ndarray] = field(default_factory=dict)
    advice: str | None = None

    def start(self) -> Tensors:
        """Return the kept values at the start."""
        return {name: tf.constant(value) for name, value in self.starts.items()}

    def state(self, centered: bool, dtype: tf.DType) -> LatentState:
        """Return the state at the start of a chain, whose estimator may have a center."""
        latent_values = self.start()
        return LatentState(
            latent_values, dict(latent_values) if centered else {}, tf.zeros([], dtype)
        )

    def complete(
        self,
        space: Space,
        state: LatentState,
        position: tf.Tensor,
        center: tf.Tensor | None,
        minibatch: Minibatch,
        seeds: tf.Tensor,
    ) -> tuple[Minibatch, Minibatch, LatentState]:
        """Return the minibatch completed at the position and at the center, and the state.

        An estimator with a center needs latent variables drawn there too: those drawn at the
        position would bias its gradient there.

        Args:
            space: Space of the parameters.
            state: Values kept before.
            position: Position of the chain, flat.
            center: Center of the estimator, flat; ``None`` if it has none.
            minibatch: Observations, with their rows if latent values are kept.
            seeds: Seeds, one for each of the two.
        """
        columns, rows = minibatch.columns, minibatch.rows
        drawn, latent_values = self.draw(
            space.constrain(position), columns, rows, state.here, seeds[0]
        )
        completed = minibatch._replace(columns=drawn)
        state = state._replace(here=latent_values)
        if center is None:
            return completed, completed, state
        drawn_at_center, latent_values = self.draw(
            space.constrain(center), columns, rows, state.center, seeds[1]
        )
        at_center = minibatch._replace(columns=drawn_at_center)
        return completed, at_center, state._replace(center=latent_values)

    def draw(
        self,
        params: Tensors,
        minibatch: Tensors,
        rows: tf.Tensor | tuple[()],
        latent_values: Tensors,
        seed: tf.Tensor,
    ) -> tuple[Tensors, Tensors]:
        """Return the completed minibatch, and the kept values.

        Args:
            params: User's parameters.
            minibatch: Observations.
            rows: Their row numbers, used only if values are kept.
            latent_values: Values kept of all observations.
            seed: Pair of int32 that is used nowhere else.
        """
        gathered = {
            name: tf.gather(values, rows) for name, values in latent_values.items()
        }
        inputs = {**minibatch, **gathered}
        completed = {**inputs, **self.gibbs(dict(params), dict(inputs), seed)}
        after = {
            name: tf.tensor_scatter_nd_update(
                values, tf.expand_dims(rows, 1), tf.cast(completed[name], values.dtype)
            )
            for name, values in latent_values.items()
        }
        tensors = {
            name: value
            if isinstance(value, tf.SparseTensor)
            else tf.convert_to_tensor(value)
            for name, value in completed.items()
        }
        return tensors, after
