"""Noise of gradients of minibatches, and leverage, by which rows are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from sgmcmc.minibatches import RowDraws, Weighted
from sgmcmc.minibatches.base import check_bound, drawn
from sgmcmc.model.geometry import Preconditioner
from sgmcmc.model.target import Target
from sgmcmc.plan.objective import Objective, kept_graphs, of_likelihood

PROBES = 48  # directions in which leverage is measured


@dataclass(frozen=True)
class _Settings:
    few_probes: int = 16  # directions in which leverage of many terms is measured
    # Smallest number of terms of the log-likelihood for which there are fewer directions.
    many_terms: float = 1e7
    # Fraction of the probability that is spread evenly, so that every row is drawn now and then.
    uniform_share: float = 0.1
    # Distance of probes to each side, in posterior SDs; smaller ones have rounding errors.
    step: float = 1.5
    round_of_pairs: int = 64  # pairs of minibatches that are gathered at once


_SETTINGS = _Settings()

_PIECE_NUMBERS = 2**22


def leverage(
    target: Target,
    data: Data,
    whitening: Preconditioner,
    seed: int,
    probes: int | None = None,
    objective: Objective | None = None,
) -> np.ndarray:
    """Return the whitened curvature of each observation's term at the mode, (N,), in float64.

    h_i is the trace of Cᵀ(−∇² log p(x_i | θ̂))C with CCᵀ = M. It is computed for log-likelihoods of
    linear predictors, and estimated for others by the mean over random directions z of
    −[ℓ_i(θ̂ + sCz) − 2ℓ_i(θ̂) + ℓ_i(θ̂ − sCz)]/s². In one pass over the data.

    Args:
        target: Log posterior, without a preconditioner.
        data: Dataset.
        whitening: θ̂ and C.
        seed: Seed of the directions.
        probes: Number of directions; by default 48, or 16 of very many terms.
        objective: Log posterior over the dataset in the dtype of the chain, if there is one.
    """
    root = whitening.root
    objective = objective or Objective(target, data, double=False)
    exact = objective.leverages(
        whitening.origin, root if whitening.dense else np.diag(root)
    )
    if exact is not None:
        return np.maximum(exact, 0.0)
    if probes is None:
        many = data.size * target.row_terms > _SETTINGS.many_terms
        probes = _SETTINGS.few_probes if many else PROBES
    rng = generator(seed, 0, RunPhase.MODE, Purpose.PROBES)
    signs = rng.choice([-1.0, 1.0], (probes, target.size))
    offsets = _SETTINGS.step * (signs @ root.T if whitening.dense else signs * root)
    points = (
        np.concatenate([[np.zeros(target.size)], offsets, -offsets]) + whitening.origin
    )
    graphs = kept_graphs(target, data)
    passes = Pass(
        data, of_likelihood(target), row_terms=target.row_terms, graphs=graphs
    )
    points = points.astype(target.dtype.as_numpy_dtype)
    (second_differences,) = passes.joined(
        "bends", points, max_terms=_PIECE_NUMBERS // len(points)
    )
    bad = np.flatnonzero(~np.isfinite(second_differences))
    if bad.size:
        params = target.space.params(whitening.origin, target.dtype)
        where = ", ".join(
            f"{name} = {np.array2string(value, precision=4, threshold=6)}"
            for name, value in params.items()
        )
        raise ValueError(
            f"`log_lik`: the term of row {bad[0]} is not finite at the mode of the posterior, or "
            f"near it ({where}); rows like that: {bad.size}. A row whose density is zero there "
            "makes the log posterior -inf. Look at that row for a mistake, or use a density that "
            "is positive everywhere."
        )
    return np.maximum(second_differences, 0.0) / _SETTINGS.step**2


STRATA, STRATUM_ROWS = 5, 10_000


def strata_by_leverage(
    leverages: np.ndarray, rng: np.random.Generator
) -> list[tuple[np.ndarray, float]]:
    """Return rows that represent all, with the number that each represents.

    The rows are sorted by leverage and cut into strata that have the same part of its sum, or more
    if that would be few rows; of each stratum as many are drawn. So those that hardly any other
    is like are all there.

    Args:
        leverages: Leverages of all rows, (N,).
        rng: Generator of the rows.
    """
    order = np.argsort(-leverages, kind="stable")
    strata = []
    sums = np.cumsum(leverages[order])
    begin = 0
    for remaining in range(STRATA, 0, -1):
        before = sums[begin - 1] if begin else 0.0
        share = before + (sums[-1] - before) / remaining
        end = max(int(np.searchsorted(sums, share)) + 1, begin + STRATUM_ROWS)
        end = (
            min(end, len(order) - (remaining - 1) * STRATUM_ROWS)
            if remaining > 1
            else len(order)
        )
        chosen = rng.choice(end - begin, STRATUM_ROWS, replace=False)
        strata.append((np.sort(order[begin + chosen]), (end - begin) / STRATUM_ROWS))
        begin = end
    return strata


def leverage_minibatches(leverages: np.ndarray) -> Weighted:
    """Return minibatches whose rows are drawn mostly in proportion to leverage."""
    N = len(leverages)
    total = leverages.sum()
    share = leverages / total if total > 0 else np.full(N, 1 / N)
    return Weighted((1 - _SETTINGS.uniform_share) * share + _SETTINGS.uniform_share / N)


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
        pairs_per_round = _SETTINGS.round_of_pairs
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
