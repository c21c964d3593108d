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
    stability: float = 0.5  # stepsize² times the largest curvature, with all rows
    full_gradient_rows: int = 2000  # up to so many rows, every gradient uses all
    momentum_decay: int = 200  # steps with all rows after which a momentum has decayed
    held_out_divisor: int = 4  # iterations over those of chains judged by held-out rows
    burn_in_divisor: int = 10  # iterations over the burn-in before them
    step_of_trained: float = 0.5  # of steps if the curvature is that of trained weights
    restarts: int = 6  # of chains that diverge, at most
    # SDs of the noise of the log posterior that are no divergence
    noise_of_log_post: float = 5.0
    restart_divisor: float = 3.0  # of the stepsize at a restart
    minibatch_pairs: int = 32  # whose gradients measure the information
    information_rows: int = 64  # of each of these minibatches, at most
    power_iterations: int = 16  # for the largest curvature
    power_rows: int = 2000  # that the power iterations use
    difference: float = 1e-2  # of positions, in scaled weights, in a Hessian product


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
class EnsembleChains:
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
        short = max(draws, n_iters // _SETTINGS.held_out_divisor)
        n_iters = max(n_iters, draws)
        outputs = self._short_chains(members.best, held_rows, short, draws)
        self.began = "weights as they were given"
        if members.retrain is not None:
            self.began, weights = "best epochs", self.weights
            try:
                outputs_of_last = self._short_chains(
                    members.last, held_rows, short, draws
                )
            except DivergenceError:
                outputs_of_last = np.full_like(outputs, np.nan)
            log_density_of_last, log_density_of_best = (
                self._log_density(draws_of, held_rows)
                for draws_of in (outputs_of_last, outputs)
            )
            if not clearly_worse(log_density_of_last, log_density_of_best):
                outputs, weights = outputs_of_last, members.retrain()
                self.began = "end of training, on all rows"
            self.weights = weights
        all_rows = np.ones(self.data.size, np.float32)
        self.scales, self._step_factor = self._measured(all_rows), 1.0
        burn_in = n_iters // _SETTINGS.burn_in_divisor
        return outputs, self.run(all_rows, n_iters, burn_in, draws, **keywords)

    def _short_chains(
        self, start: Weights, held_rows: Array, n_iters: int, draws: int
    ) -> Array:
        """Return the outputs at the held-out rows of the draws of short chains without these."""
        use = np.ones(self.data.size, np.float32)
        if len(held_rows) < len(use):
            use[held_rows] = 0.0
        self.weights = start
        self.scales, self._step_factor = self._measured(use), _SETTINGS.step_of_trained
        X = self.data.rows(held_rows)["X"]
        samples = self.run(
            use,
            n_iters,
            n_iters,
            draws,
            store_params=False,
            test_functions={
                "outputs": lambda weights: self.network.forward(weights, X)
            },
        )
        return self.values(samples, "outputs")

    def _log_density(self, outputs: Array, held_rows: Array) -> Array:
        """Return the log density of each held-out row, of outputs (members, draws, n, ...)."""
        by_draw = outputs.reshape(-1, *outputs.shape[2:])
        return mixture(self.network.densities(self.data.rows(held_rows)["y"], by_draw))

    def outputs(self, rows: Array) -> Array:
        """Return the outputs of the members as they are at some rows, (members, n, ...)."""
        X = self.data.rows(rows)["X"]
        return np.asarray(self.network.forward(self._tensors(), X))

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
        kernels = [slice(k * together, (k + 1) * together) for k in range(groups)]
        starts = [
            {name: array[kernel] for name, array in self.weights.items()}
            for kernel in kernels
        ]
        variances = {
            name: np.full(starts[0][name].shape, variance)
            for name, variance in self.scales.variances.items()
        }
        columns = {**self.data.columns, "weight": ArrayColumn(use)}
        data: Any = Data(columns, self.data.size)
        if not keywords.get("store_params", True):
            keywords["reductions"] = {"last": _LAST}
        thin = max(1, n_iters // draws)
        all_rows, n, stepsize, friction = self._constants()
        largest_drop = max(self._largest_drop(start, use, n) for start in starts)
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
                self._need_no_drop(samples, largest_drop)
            except DivergenceError as error:
                diverged = error
                stepsize /= _SETTINGS.restart_divisor
                friction /= _SETTINGS.restart_divisor**0.5
                continue
            self.weights = self._last_weights(samples)
            return samples
        raise DivergenceError(
            f"The chains of the networks diverged at {_SETTINGS.restarts} stepsizes, first in the "
            f"parameter {diverged.parameter!r}. Use a smaller `prior_scale`, a smaller network, or "
            "more `epochs`, so that the chains begin nearer to the posterior.",
            iterations=diverged.iterations,
            parameter=diverged.parameter,
            samples=diverged.samples,
        ) from diverged

    def _largest_drop(self, start: Weights, use: Array, n: int) -> float:
        """Return how far log posteriors of a kernel may lie below the highest of its chain.

        A draw of a normal posterior of d weights lies χ²/2 below the mode, d/2 in the mean and with
        SD √(d/2); here it is twice the mean, for other posteriors. Minibatches add their noise.

        Args:
            start: Weights of the kernel's members.
            use: Weight of each row.
            n: Rows of a minibatch.
        """
        d = sum(array.size for array in start.values())
        used = np.flatnonzero(use)
        variance = 0.5 * d
        if n < len(use):
            rng = np.random.default_rng([self.seed, self._calls])
            some = rng.permutation(used)[: _SETTINGS.power_rows]
            weights = {name: tf.constant(a, tf.float32) for name, a in start.items()}
            rows = {**self.data.rows(some), "weight": tf.ones([len(some)])}
            terms = self.network.log_lik(weights, rows).numpy()
            # Of a difference of two estimates
            variance += 2 * len(used) ** 2 / n * float(terms.var(dtype=np.float64))
        return d + _SETTINGS.noise_of_log_post * float(np.sqrt(variance))

    def _need_no_drop(self, samples: Samples, largest: float) -> None:
        """Raise an error if the log posterior fell further, of weights that are finite still."""
        values = np.atleast_2d(np.asarray(samples.log_post.values, np.float64))
        drop = np.max(np.maximum.accumulate(values, -1) - values)
        if drop <= largest:
            return
        sizes = {
            name: float(np.max(np.abs(array / self.network.prior_sds[name])))
            for name, array in self._last_weights(samples).items()
        }
        iterations = samples.log_post.iterations
        raise DivergenceError(
            f"The log posterior fell by {drop:.3g}, that of a posterior's draws by {largest:.3g} "
            "at most.",
            iterations=(int(iterations[0]), int(iterations[-1])),
            parameter=max(sizes, key=lambda name: sizes[name]),
            samples=samples,
        )

    def _last_weights(self, samples: Samples) -> Weights:
        if samples.reductions is None:
            by_member = self.by_member(samples)
            return {name: array[:, -1] for name, array in by_member.items()}
        return {
            name: np.asarray(array, np.float32).reshape(self.weights[name].shape)
            for name, array in samples.reductions["last"].items()
        }

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
        weights = self._tensors()
        n = max(1, min(_SETTINGS.information_rows, len(used) // 2))
        pairs = _SETTINGS.minibatch_pairs
        squares = {name: 0.0 for name in weights}
        for _ in range(pairs):
            first, second = (
                self._gradients(weights, rng.choice(used, n), len(used))
                for _ in range(2)
            )
            for name in weights:
                difference = (first[name] - second[name]).numpy()
                squares[name] += float(np.mean(difference**2)) / 2 / pairs
        variances = {}
        for name, square in squares.items():
            prior = float(np.mean(1.0 / np.square(self.network.prior_sds[name])))
            variances[name] = 1.0 / (square * n / len(used) + prior)
        probed = rng.permutation(used)[: _SETTINGS.power_rows]
        curvature = self._largest_curvature(weights, variances, probed, len(used), rng)
        return Scales(variances, curvature)

    def _tensors(self) -> Weights:
        """Return the weights as tensors, float32."""
        return {n: tf.constant(array, tf.float32) for n, array in self.weights.items()}

    def _gradients(self, weights: Weights, rows: Array, size: int) -> Weights:
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

    def _largest_curvature(
        self,
        weights: Weights,
        variances: Mapping[str, float],
        rows: Array,
        size: int,
        rng: np.random.Generator,
    ) -> float:
        """Return the largest curvature of any member in units of these variances.

        Power iteration, the Hessian times a vector from the difference of two gradients.
        """
        roots = {name: float(np.sqrt(variance)) for name, variance in variances.items()}
        distance = _SETTINGS.difference

        def gradients(direction: Weights, sign: float) -> Weights:
            moved = {
                name: array
                + tf.constant(sign * roots[name] * direction[name], tf.float32)
                for name, array in weights.items()
            }
            return self._gradients(moved, rows, size)

        v = {name: rng.normal(size=array.shape) for name, array in weights.items()}
        norms = np.ones(1)
        for _ in range(_SETTINGS.power_iterations):
            squares = [
                np.square(array).sum(tuple(range(1, array.ndim)))
                for array in v.values()
            ]
            norms = np.sqrt(sum(squares))
            direction = {}
            for name, array in v.items():
                member_norms = norms.reshape(-1, *[1] * (array.ndim - 1))
                direction[name] = distance * (array / member_norms)
            ahead, behind = gradients(direction, 1.0), gradients(direction, -1.0)
            for name, root in roots.items():
                difference = (ahead[name] - behind[name]).numpy()
                v[name] = -root * difference / (2 * distance)
        largest = float(np.max(norms))
        return largest if np.isfinite(largest) and largest > 1.0 else 1.0


def whole(rows: int, batch_size: int) -> bool:
    """Return whether gradients use all rows."""
    return rows <= max(_SETTINGS.full_gradient_rows, batch_size)


def _by_member(array: Array) -> Array:
    """Return (chains, draws, members of a kernel, ...) as (members, draws, ...)."""
    array = np.moveaxis(array, 2, 1)
    return array.reshape(-1, *array.shape[2:])
