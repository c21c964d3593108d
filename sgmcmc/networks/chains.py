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
from sgmcmc.engine.reductions import Reduction
from sgmcmc.errors import DivergenceError
from sgmcmc.graphs.tracing import trace
from sgmcmc.networks.held_out import clearly_worse, mixture
from sgmcmc.networks.training import Array, Batches, Network, Trained, Weights, count_of
from sgmcmc.results.samples import Samples


@dataclass(frozen=True)
class _Settings:
    stability: float = (
        0.5  # stepsize times the largest curvature, for gradients over all rows
    )
    full_gradient_rows: int = (
        2000  # up to so many rows, every gradient uses all of them
    )
    # Steps, with gradients over all rows, after which a momentum has decayed
    momentum_decay: int = 200
    held_out_divisor: int = (
        4  # iterations, divided by those of the chains that held-out rows judge
    )
    burn_in_divisor: int = 10  # iterations, divided by the burn-in before them
    step_of_trained: float = (
        0.5  # factor of the steps if the curvature is that of trained weights
    )
    restarts: int = 6  # largest number of restarts of chains that diverge
    restart_divisor: float = 3.0  # divisor of the stepsize at a restart
    minibatch_pairs: int = (
        32  # pairs of minibatches whose gradients measure the information
    )
    power_iterations: int = 16  # power iterations for the largest curvature
    power_rows: int = 2000  # rows that the power iterations use
    difference: float = (
        1e-2  # distance, in scaled weights, of the gradients of a Hessian product
    )


_SETTINGS = _Settings()


# The weights of the last draw
_LAST = Reduction(lambda params: params, lambda state, params: params)


@dataclass(frozen=True)
class Scales:
    """Result of a warm-up.

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
        reach: Distance that an epoch of minibatches covers, in steps with all rows. The variance
            along the largest curvature is 180 times too large with 4, which chains of many epochs
            need to go far, and 1.5 times with 1; elsewhere it is much nearer to the exact one.
    """

    network: Network
    data: Data
    weights: Weights
    batch_size: int
    seed: int
    verbose: bool = False
    reach: float = 4.0
    scales: Scales | None = None
    began: str = ""
    _step_factor: float = 1.0
    _calls: int = 0
    _graphs: dict[tuple[int, int], Any] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> int:
        """Number of members."""
        return len(next(iter(self.weights.values())))

    def fit(
        self,
        members: Trained,
        held_rows: Array,
        n_iters: int,
        draws: int,
        **keywords: Any,
    ) -> tuple[Array, Samples]:
        """Run the chains that the held-out rows judge, then those of all rows.

        Some of the first begin where training ended, the others at the best epochs: they are short,
        with shorter steps, and half of them is burn-in. If draws of those from the end are clearly
        worse, as they are where there is much noise, the second go on from the others; else they
        begin at members that are trained on all rows. Their scales are measured again.

        Args:
            members: Members.
            held_rows: Numbers of the rows that are held out from the first chains.
            n_iters: Number of iterations of the second.
            draws: Number of draws to keep of each member.
            keywords: Further arguments of :func:`sgmcmc.sample` for the second.

        Returns:
            Outputs at the held-out rows of the draws of the first chains, (members, draws, n, ...),
            and the samples of the second.
        """
        everything = np.ones(self.data.size, np.float32)
        use = everything.copy()
        use[held_rows if len(held_rows) < len(use) else []] = 0.0
        n_iters, short = (
            max(n_iters, draws),
            max(draws, n_iters // _SETTINGS.held_out_divisor),
        )
        outputs = self._short(members.best, use, held_rows, short, draws)
        self.began = "weights as they were given"
        if members.retrain is not None:
            self.began, weights = "best epochs", self.weights
            try:
                outputs_of_last = self._short(
                    members.last, use, held_rows, short, draws
                )
            except DivergenceError:
                outputs_of_last = np.full_like(outputs, np.nan)
            if not clearly_worse(
                self._mixture(outputs_of_last, held_rows),
                self._mixture(outputs, held_rows),
            ):
                outputs, weights = outputs_of_last, members.retrain()
                self.began = "end of training, on all rows"
            self.weights = weights
        self.scales, self._step_factor = self._measured(everything), 1.0
        burn_in = n_iters // _SETTINGS.burn_in_divisor
        return outputs, self.run(everything, n_iters, burn_in, draws, **keywords)

    def _short(
        self, start: Weights, use: Array, held_rows: Array, n_iters: int, draws: int
    ) -> Array:
        """Return the outputs at the held-out rows of the draws of short chains."""
        self.weights = start
        X = self.data.rows(held_rows)["X"]
        self.scales, self._step_factor = self._measured(use), _SETTINGS.step_of_trained
        test_functions = {"outputs": lambda weights: self.network.forward(weights, X)}
        samples = self.run(
            use,
            n_iters,
            n_iters,
            draws,
            store_params=False,
            test_functions=test_functions,
        )
        return self.values(samples, "outputs")

    def _mixture(self, outputs: Array, held_rows: Array) -> Array:
        by_draw = outputs.reshape(-1, *outputs.shape[2:])
        return mixture(self.network.densities(self.data.rows(held_rows)["y"], by_draw))

    def outputs(self, rows: Array) -> Array:
        """Return the outputs of the members as they are at some rows, (members, n, ...)."""
        weights = {
            name: tf.constant(array, tf.float32) for name, array in self.weights.items()
        }
        return np.asarray(self.network.forward(weights, self.data.rows(rows)["X"]))

    def facts(self, samples: Samples, draws: int) -> dict[str, Any]:
        """Return the report's facts on the chains."""
        members = {"members": self.count, "weights of each": count_of(self.weights)}
        settings = samples.settings
        if "stepsize" not in settings:
            return {**members, "dynamics": "none: members as they were trained"}
        all_rows = settings["n"] == self.data.size
        excess = "variance along the largest curvature, over the exact"
        return {
            **members,
            "dynamics": str(settings["method"]),
            "began at": self.began,
            "draws of each": draws,
            "gradients over all rows": all_rows,
            **({} if all_rows else {excess: self._excess(settings)}),
            "stepsize": float(settings["stepsize"]),
            "thinning": int(settings["thin"]),
        }

    def _excess(self, settings: Mapping[str, Any]) -> float:
        """Return the variance along the largest curvature, divided by the exact one.

        With x = √(ελ) R the angle that an oscillation of curvature λ turns in an epoch of R
        minibatches, friction γ per step, and gradients of rows with covariance λ/N, it is
        1 + ελ R²/(R − 1) (1 + sin 2x/2x − 2 sin²x/x²)/2γ: minibatches in the order of an epoch and
        then backwards have little noise where x is small.
        """
        assert self.scales is not None
        R = self.data.size / settings["n"]
        squared_angle = settings["stepsize"] * self.scales.curvature
        x = np.sqrt(squared_angle) * R
        left = 1 + np.sin(2 * x) / (2 * x) - 2 * (np.sin(x) / x) ** 2
        return float(
            1 + squared_angle * R**2 / (R - 1) * left / (2 * settings["friction"])
        )

    def values(self, samples: Samples, name: str) -> Array:
        """Return the values of a test function that has a value for each member of a kernel.

        (members, draws, ...)
        """
        assert samples.test_functions is not None
        draws = samples.test_functions[name]
        return _by_member(draws if samples.settings["n_chains"] else draws[np.newaxis])

    def run(
        self,
        use: Array,
        n_iters: int,
        burn_in: int,
        draws: int,
        **keywords: Any,
    ) -> Samples:
        """Return draws of the chains, which continue from their present positions.

        Args:
            use: Weight of each row.
            n_iters: Number of iterations.
            burn_in: Number of iterations before these.
            draws: Number of draws to keep of each chain.
            keywords: Further arguments of :func:`sgmcmc.sample`; weights that are not stored are
                known at the end all the same.
        """
        assert self.scales is not None, "not measured"
        together = self.network.together(self.count, count_of(self.weights))
        groups = self.count // together
        starts = [
            {
                name: array[k * together : (k + 1) * together]
                for name, array in self.weights.items()
            }
            for k in range(groups)
        ]
        variances = {
            name: np.full(starts[0][name].shape, variance)
            for name, variance in self.scales.variances.items()
        }
        data: Any = Data(
            {**self.data.columns, "weight": ArrayColumn(use)}, self.data.size
        )
        stored = keywords.get("store_params", True)
        if not stored:
            keywords["reductions"] = {"last": _LAST}
        thin = max(1, n_iters // draws)
        all_rows, n, stepsize, friction = self._constants()
        self._calls += 1
        for _ in range(_SETTINGS.restarts):
            try:
                samples = sgmcmc.samplers.sample(
                    self.network.log_lik,
                    data,
                    starts if groups > 1 else starts[0],
                    self.network.log_prior,
                    dynamics=Underdamped(friction=friction),
                    gradient="full" if all_rows else "minibatch",
                    minibatches="uniform" if all_rows else "symmetric",
                    minibatch_size=None if all_rows else n,
                    preconditioner=variances,
                    stepsize=stepsize,
                    n_chains=groups if groups > 1 else None,
                    n_iters=thin * draws,
                    burn_in=burn_in,
                    thin=thin,
                    seed=self.seed + self._calls,
                    verbose=self.verbose,
                    jit_compile=self.network.jit_compile,
                    **keywords,
                )
            except DivergenceError as error:
                diverged = error
                stepsize /= _SETTINGS.restart_divisor
                friction /= _SETTINGS.restart_divisor**0.5
                continue
            if samples.reductions is None:
                self.weights = {
                    name: array[:, -1]
                    for name, array in self.by_member(samples).items()
                }
            else:
                self.weights = {
                    name: np.asarray(array, np.float32).reshape(
                        self.weights[name].shape
                    )
                    for name, array in samples.reductions["last"].items()
                }
            return samples
        raise diverged

    def by_member(self, draws: Samples) -> Weights:
        """Return draws of the chains as arrays (members, draws, ...)."""
        chains = draws.settings["n_chains"] is not None
        return {
            name: _by_member(array if chains else array[np.newaxis])
            for name, array in draws.items()
        }

    def _constants(self) -> tuple[bool, int, float, float]:
        """Return whether gradients use all rows, n, the stepsize, and the friction of a step."""
        assert self.scales is not None
        N = self.data.size
        n, all_rows = min(self.batch_size, N), whole(N, self.batch_size)
        step = self._step_factor * np.sqrt(
            _SETTINGS.stability / max(1.0, self.scales.curvature)
        )
        friction = self._step_factor / _SETTINGS.momentum_decay
        if not all_rows:
            shorter = min(1.0, self.reach * n / N)
            step, friction = step * shorter, friction * shorter
        return all_rows, n, float(step**2), float(friction)

    def _measured(self, use: Array) -> Scales:
        """Return the scales of the weights at the members' positions, and the largest curvature."""
        rng = np.random.default_rng([self.seed, self._calls])
        used = np.flatnonzero(use)
        at = {
            name: tf.constant(array, tf.float32) for name, array in self.weights.items()
        }
        n = max(1, min(64, len(used) // 2))
        squares = {name: 0.0 for name in at}
        for _ in range(_SETTINGS.minibatch_pairs):
            first, second = (
                self._slopes(at, rng.choice(used, n), len(used)) for _ in range(2)
            )
            for name in at:
                difference = (first[name] - second[name]).numpy()
                squares[name] += (
                    float(np.mean(difference**2)) / 2 / _SETTINGS.minibatch_pairs
                )
        variances = {}
        for name, square in squares.items():
            prior = float(np.mean(1.0 / np.square(self.network.prior_sds[name])))
            variances[name] = 1.0 / (square * n / len(used) + prior)
        probed = rng.permutation(used)[: _SETTINGS.power_rows]
        return Scales(variances, self._stiffest(at, variances, probed, len(used), rng))

    def _slopes(self, weights: Weights, rows: Array, size: int) -> Weights:
        """Return the gradients of the log posteriors, with these rows weighted to represent all."""
        batches = Batches(self.data)

        def function(weights: Weights, tensors: Any) -> Weights:
            inside = {**batches.inside(tensors), "weight": tf.ones([len(rows)])}
            with tf.GradientTape() as tape:
                tape.watch(weights)
                log_lik = tf.reduce_sum(self.network.log_lik(weights, inside))
                value = size / len(rows) * log_lik + self.network.log_prior(weights)
            return tape.gradient(value, weights)

        arguments = weights, batches.graph_arguments(rows)
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
        roots = {name: float(np.sqrt(variance)) for name, variance in variances.items()}
        v = {name: rng.normal(size=array.shape) for name, array in at.items()}
        norms, distance = np.ones(1), _SETTINGS.difference
        for _ in range(_SETTINGS.power_iterations):
            norms = np.sqrt(
                sum(
                    np.square(array).sum(tuple(range(1, array.ndim)))
                    for array in v.values()
                )
            )
            unit = {name: distance * _over(array, norms) for name, array in v.items()}
            ahead, behind = (
                self._slopes(
                    {
                        name: array
                        + tf.constant(sign * roots[name] * unit[name], tf.float32)
                        for name, array in at.items()
                    },
                    rows,
                    size,
                )
                for sign in (1.0, -1.0)
            )
            v = {
                name: -roots[name]
                * (ahead[name] - behind[name]).numpy()
                / (2 * distance)
                for name in at
            }
        largest = float(np.max(norms))
        return largest if np.isfinite(largest) and largest > 1.0 else 1.0


def whole(rows: int, batch_size: int) -> bool:
    """Return whether gradients use all rows."""
    return rows <= max(_SETTINGS.full_gradient_rows, batch_size)


def _by_member(array: Array) -> Array:
    """Return (chains, draws, members of a kernel, ...) as (members, draws, ...)."""
    array = np.moveaxis(array, 2, 1)
    return array.reshape(-1, *array.shape[2:])


def _over(array: Array, norms: Array) -> Array:
    return array / norms.reshape(-1, *[1] * (array.ndim - 1))
