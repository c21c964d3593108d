"""Noise of gradients of minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.checks import from_outside
from sgmcmc.data.dataset import Data, Minibatch, Tensors
from sgmcmc.data.passes import Pass
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.data.sparse import RowSlices
from sgmcmc.gradients import (
    SAGA,
    SVRG,
    ControlVariate,
    Gradient,
    MinibatchGradient,
    WholeData,
)
from sgmcmc.minibatches import RowDraws
from sgmcmc.minibatches.base import check_bound, drawn
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target

_ROUND_OF_PAIRS = 64  # pairs of minibatches that are gathered at once

# Estimators whose center, or whose centers of single rows, are where the chain was before: in the
# long run the difference to it has twice the variance of that to the mode.
_MOVING_CENTER = (SVRG, SAGA)


class NoiseMeter:
    """Measures the noise of a gradient estimator by pairs of independent minibatches.

    Args:
        target: Log posterior, in the coordinates of the chain.
        data: Dataset.
        draws: Way of drawing rows.
        gradient: Estimator; ``None`` for control variates. One of the package's whose center
            follows the chain is measured with its center at another of the positions, as it is in
            the long run; a user's with its initial state at the center.
        graphs: Dict of graphs of the target without its preconditioner; ``None`` keeps none.
    """

    def __init__(
        self,
        target: Target,
        data: Data,
        draws: RowDraws,
        gradient: Gradient | None = None,
        graphs: dict[Any, Any] | None = None,
    ) -> None:
        if from_outside(draws):
            check_bound(draws, data.size)
        self._gradient = gradient or ControlVariate()
        # Without it the graphs of a model serve every preconditioner.
        whitening = target.space.preconditioner
        self._whitening = (
            whitening
            if self._has_known_difference and type(whitening) is Preconditioner
            else None
        )
        self._graphs = None if self._whitening is None else graphs
        self._target = (
            target if self._whitening is None else target.preconditioned(None)
        )
        self._data, self._draws = data, draws
        dtype = target.dtype.as_numpy_dtype
        self._weights = None if draws.weights is None else draws.weights.astype(dtype)
        self._pass: Pass | None = None
        self._whole = WholeData(self._target.shared, data, draws.size)
        self._own = (
            None if self._has_known_difference else self._gradient.bind(self._whole)
        )

    def factor(self, n: int) -> float:
        """Return the factor of the noise for minibatches of n rows."""
        N = self._data.size
        size = self._draws.size
        drawn_once = self._weights is None and not getattr(
            self._draws, "replace", False
        )
        return size / n * ((N - n) / (N - size) if drawn_once and N > size else 1.0)

    def covariance(
        self, positions: np.ndarray, center: np.ndarray, seed: int
    ) -> np.ndarray:
        """Return the mean covariance of the noise at these positions, (d, d)."""
        noise = self.at(positions, center, seed)
        return noise.T @ noise / len(noise)

    def at(self, positions: np.ndarray, center: np.ndarray, seed: int) -> np.ndarray:
        """Return the noise at each position: half the difference of two estimates, ×√2.

        Args:
            positions: Positions, (k, d).
            center: θ̂ of the control variates, (d,).
            seed: Seed of the rows.

        Returns:
            (k, d), with the covariance of the noise.
        """
        dtype = self._target.dtype
        rng = generator(seed, 0, RunPhase.MODE, Purpose.MINIBATCH)
        if self._whitening is not None:
            origin = self._whitening.origin
            times = self._whitening.times
            positions = origin + times(positions)
            center = origin + times(center)
        name = self._name
        if self._pass is None:
            differences = self._differences(self._estimate())
            self._pass = Pass(self._data, {name: differences}, graphs=self._graphs)
        state: Any = ()
        if self._own is not None:
            state = self._own.init(self._whole, center.astype(dtype.as_numpy_dtype))
        rounds = []
        centers = np.broadcast_to(center, positions.shape)
        if isinstance(self._gradient, _MOVING_CENTER):
            centers = np.roll(positions, len(positions) // 2, 0)
        pairs_per_round = _ROUND_OF_PAIRS
        for start in range(0, len(positions), pairs_per_round):
            chunk = positions[start : start + pairs_per_round]
            rows = drawn(self._draws, self._data.size, rng, 2 * pairs_per_round)
            rows = rows.reshape(pairs_per_round, 2, -1)[: len(chunk)]
            columns = self._data.rows(rows.reshape(-1))
            zeros = np.zeros((len(chunk), 2), dtype.as_numpy_dtype)
            row_weights = tf.constant(
                zeros if self._weights is None else self._weights[rows]
            )
            chunk_centers = tf.constant(centers[start : start + pairs_per_round], dtype)
            arguments = (
                tf.constant(chunk, dtype),
                columns,
                row_weights,
                tf.constant(rows, tf.int32),
                chunk_centers,
                state,
            )
            rounds.append(self._pass.run(name, *arguments).numpy())
        noise = np.concatenate(rounds).astype(np.float64)
        return (
            noise
            if self._whitening is None
            else self._whitening.transposed_times(noise)
        )

    @property
    def _has_known_difference(self) -> bool:
        """Whether the estimator is one whose difference of two minibatches is known by its kind."""
        if from_outside(self._gradient):
            return False
        plain = type(self._gradient) is MinibatchGradient
        return plain or isinstance(self._gradient, (ControlVariate, *_MOVING_CENTER))

    @property
    def _name(self) -> str:
        """Name of the graph: it depends on the estimator and on the weight of a row."""
        plain = type(self._gradient) is MinibatchGradient
        weight = (
            "own"
            if self._weights is not None
            else f"{self._data.size}/{self._draws.size}"
        )
        return f"noise, {'plain' if plain else 'centered'}, {weight}"

    def _estimate(self) -> Callable[..., tf.Tensor]:
        """Return the function of position, minibatch, center, and the state of a user's estimator.

        For the package's own it lacks what is the same for both minibatches of a pair.
        """
        target, own = self._target.shared, self._own
        if own is not None:
            return lambda position, minibatch, middle, state: own.estimate(
                target, state, position, minibatch, minibatch
            )[0]
        if type(self._gradient) is MinibatchGradient:
            return lambda position, minibatch, middle, state: target.gradient(
                position, minibatch, False
            )
        return lambda position, minibatch, middle, state: (
            target.gradient(position, minibatch, False)
            - target.gradient(middle, minibatch, False)
        )

    def _differences(
        self, estimate: Callable[..., tf.Tensor]
    ) -> Callable[..., tf.Tensor]:
        """Return the function of a round of positions and pairs of minibatches."""
        scale = self._data.size / self._draws.size

        def differences(
            positions: tf.Tensor,
            columns: Tensors,
            row_weights: tf.Tensor,
            rows: tf.Tensor,
            centers: tf.Tensor,
            state: Any,
        ) -> tf.Tensor:
            minibatches = RowSlices(columns)
            size = rows.shape[2]

            def difference(arguments: tuple[Any, ...]) -> tf.Tensor:
                number, position, row_weights, rows, center = arguments
                first, second = (
                    Minibatch(
                        minibatches.rows((2 * number + k) * size, size),
                        scale if self._weights is None else row_weights[k],
                        rows[k],
                    )
                    for k in (0, 1)
                )
                one = estimate(position, first, center, state)
                two = estimate(position, second, center, state)
                return (one - two) / np.sqrt(2.0)

            return tf.map_fn(
                difference,
                (tf.range(rows.shape[0]), positions, row_weights, rows, centers),
                fn_output_signature=positions.dtype,
            )

        return differences
