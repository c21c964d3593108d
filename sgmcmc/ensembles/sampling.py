"""Sampling of the members: chains that start where training ended, with scales from a warm-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

import sgmcmc.samplers
from sgmcmc.data.dataset import ArrayColumn, Data
from sgmcmc.dynamics import Underdamped
from sgmcmc.ensembles.batches import Batches
from sgmcmc.ensembles.network import Array, Network, Weights, count_of
from sgmcmc.errors import DivergenceError
from sgmcmc.graphs.tracing import trace
from sgmcmc.results.samples import Samples

_STABLE = 0.5
"""Stepsize times the largest curvature, for gradients over all rows."""

_WHOLE_UP_TO = 2000
"""Rows up to which every gradient uses all of them."""

_MEMORY = 200
"""Steps of gradients over all rows after which friction has forgotten a momentum."""

_TRIES, _SMALLER = 6, 3.0
"""Largest number of restarts of chains that diverge, and the factor of the stepsize."""

_PAIRS, _POWERS, _PROBED = 32, 16, 2000
"""Minibatches whose gradients measure the information; power iterations; rows of these."""

_NUDGE = 1e-2
"""Distance, in scaled weights, of the gradients whose difference is a product with the Hessian."""


@dataclass(frozen=True)
class Scales:
    """What a warm-up found.

    Attributes:
        variances: Variance of a weight with all others held, by name, the mean over members.
        curvature: Largest curvature of any member in units of these.
    """

    variances: dict[str, float]
    curvature: float


@dataclass
class Members:
    """The chains of an ensemble.

    Args:
        network: Network.
        data: Features ``X`` and targets ``y``.
        weights: Weights of the members, where the chains begin; later where they are.
        batch_size: Rows of a minibatch, for more than 2000 rows.
        seed: Seed.
        verbose: Whether to show progress.
    """

    network: Network
    data: Data
    weights: Weights
    batch_size: int
    seed: int
    verbose: bool = False
    scales: Scales | None = None
    _part: float = 1.0
    _calls: int = 0
    _graphs: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> int:
        """Number of members."""
        return len(next(iter(self.weights.values())))

    def measure(self, use: Array, part: float = 1.0) -> None:
        """Measure scales and curvature where the chains are.

        Args:
            use: Weight of each row.
            part: Factor of the steps, smaller than one where the curvature is not yet that of a
                typical draw.
        """
        self.scales = self._measured(use)
        self._part = part

    def run(
        self,
        use: Array,
        n_iters: int,
        burn_in: int,
        draws: int,
        **keywords: Any,
    ) -> Samples:
        """Return draws of the chains, which go on from where they are.

        Args:
            use: Weight of each row.
            n_iters: Number of iterations.
            burn_in: Number of iterations before these.
            draws: Number of draws to keep of each chain.
            keywords: Further arguments of :func:`sgmcmc.sample`.
        """
        assert self.scales is not None, "not measured"
        together = self.network.together(self.count, count_of(self.weights))
        groups = self.count // together
        starts = [
            {name: each[k * together : (k + 1) * together] for name, each in self.weights.items()}
            for k in range(groups)
        ]
        variances = {
            name: np.full(starts[0][name].shape, variance)
            for name, variance in self.scales.variances.items()
        }
        data: Any = Data({**self.data.columns, "weight": ArrayColumn(use)}, self.data.size)
        thin = max(1, n_iters // draws)
        whole, n, stepsize, friction = self._constants()
        self._calls += 1
        for _ in range(_TRIES):
            try:
                samples = sgmcmc.samplers.sample(
                    self.network.log_lik, data, starts if groups > 1 else starts[0],
                    self.network.log_prior, dynamics=Underdamped(friction=friction),
                    gradient="full" if whole else "minibatch",
                    minibatches="uniform" if whole else "symmetric",
                    minibatch_size=None if whole else n, preconditioner=variances,
                    stepsize=stepsize, n_chains=groups if groups > 1 else None,
                    n_iters=thin * draws, burn_in=burn_in, thin=thin,
                    seed=self.seed + self._calls, verbose=self.verbose,
                    jit_compile=self.network.jit_compile, **keywords,
                )  # fmt: skip
            except DivergenceError as error:
                stepsize, friction, diverged = stepsize / _SMALLER, friction / _SMALLER**0.5, error
                continue
            if keywords.get("store_params", True):
                self.weights = {name: each[:, -1] for name, each in self.by_member(samples).items()}
            return samples
        raise diverged

    def by_member(self, draws: Mapping[str, Array]) -> Weights:
        """Return draws of the chains as arrays (members, draws, ...)."""
        found = {}
        for name, each in draws.items():
            array = np.asarray(each)
            array = array if self._groups(array, name) else array[np.newaxis]
            array = np.moveaxis(array, 2, 1)  # (groups, together, draws, ...)
            found[name] = array.reshape(-1, *array.shape[2:])
        return found

    def _groups(self, array: Array, name: str) -> bool:
        """Return whether an array of draws has an axis of chains."""
        return array.ndim == self.weights[name].ndim + 2

    def _constants(self) -> tuple[bool, int, float, float]:
        """Return whether gradients use all rows, n, the stepsize, and the friction of a step."""
        assert self.scales is not None
        N = self.data.size
        n = min(self.batch_size, N)
        whole = N <= max(_WHOLE_UP_TO, n)
        step = self._part * np.sqrt(_STABLE / max(1.0, self.scales.curvature))
        friction = self._part / _MEMORY
        if not whole:
            # An epoch of shorter steps covers the distance of a few steps of all rows.
            shorter = min(1.0, 4.0 * n / N)
            step, friction = step * shorter, friction * shorter
        return whole, n, float(step**2), float(friction)

    def _measured(self, use: Array) -> Scales:
        """Return the scales of the weights where the members are, and the largest curvature."""
        rng = np.random.default_rng([self.seed, self._calls])
        used = np.flatnonzero(use)
        at = {name: tf.constant(each, tf.float32) for name, each in self.weights.items()}
        n = max(1, min(64, len(used) // 2))
        squares = {name: 0.0 for name in at}
        for _ in range(_PAIRS):
            one, other = (self._slopes(at, rng.choice(used, n), len(used)) for _ in range(2))
            for name in at:
                squares[name] += float(np.mean((one[name] - other[name]).numpy() ** 2)) / 2 / _PAIRS
        variances = {}
        for name, square in squares.items():
            prior = float(np.mean(1.0 / np.square(self.network.prior_sds[name])))
            variances[name] = 1.0 / (square * n / len(used) + prior)
        probed = rng.permutation(used)[:_PROBED]
        return Scales(variances, self._stiffest(at, variances, probed, len(used), rng))

    def _slopes(self, weights: Weights, rows: Array, size: int) -> Weights:
        """Return the gradients of the log posteriors, with these rows for so many."""
        batches = Batches(self.data)

        def function(weights: Weights, given: Any) -> Weights:
            inside = {**batches.inside(given), "weight": tf.ones([len(rows)])}
            with tf.GradientTape() as tape:
                tape.watch(weights)
                log_lik = tf.reduce_sum(self.network.log_lik(weights, inside))
                value = size / len(rows) * log_lik + self.network.log_prior(weights)
            return tape.gradient(value, weights)

        arguments = weights, batches.given(rows)
        key = len(rows), size
        if key not in self._graphs:
            self._graphs[key] = trace(function, *arguments)
        return self._graphs[key](*arguments)

    def _stiffest(
        self,
        at: Weights,
        variances: Mapping[str, float],
        rows: Array,
        size: int,
        rng: np.random.Generator,
    ) -> float:
        """Return the largest curvature of any member in units of these variances.

        Power iteration, the Hessian times a vector from the difference of two gradients.
        """
        roots = {name: float(np.sqrt(each)) for name, each in variances.items()}
        v = {name: rng.normal(size=each.shape) for name, each in at.items()}
        norms = np.ones(1)
        for _ in range(_POWERS):
            norms = np.sqrt(
                sum(np.square(each).sum(tuple(range(1, each.ndim))) for each in v.values())
            )
            unit = {name: _NUDGE * _over(each, norms) for name, each in v.items()}
            ahead, behind = (
                self._slopes(
                    {
                        name: each + tf.constant(sign * roots[name] * unit[name], tf.float32)
                        for name, each in at.items()
                    },
                    rows,
                    size,
                )
                for sign in (1.0, -1.0)
            )
            v = {
                name: -roots[name] * (ahead[name] - behind[name]).numpy() / (2 * _NUDGE)
                for name in at
            }
        largest = float(np.max(norms))
        return largest if np.isfinite(largest) and largest > 1.0 else 1.0


def _over(array: Array, norms: Array) -> Array:
    return array / norms.reshape(-1, *[1] * (array.ndim - 1))
