"""What all rungs of the correctness ladder share.

The table of samplers, the models whose exact laws are known, an independent NumPy transcription
of every update equation, the exact stationary moments of the linear chains, and the statistical
comparisons, each of which fails by chance for about one seed in ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import sgmcmc
from sgmcmc.streams import Phase, Purpose, generator

FALSE_ALARM = 1e-4
"""How often a statistical test fails by chance, all its comparisons taken together."""

Array = np.ndarray
Shapes = dict[str, tuple[int, ...]]
SHAPES: dict[int, Shapes] = {
    1: {"theta": ()},
    3: {"beta": (2,), "bias": ()},
    4: {"first": (2,), "second": (2,)},
    10: {"weights": (2, 3), "offsets": (4,)},
}
"""Named parameters for each dimension."""


# ---------------------------------------------------------------------------------- the table


@dataclass(frozen=True, eq=False)
class Case:
    """One row of the table: a sampler with an estimator, called as a user calls it.

    Attributes:
        name: what the test is called.
        function: the public function.
        kind: the update equation: sgld, sghmc, euler or sgnht.
        control_variates: whether the gradient is estimated with control variates.
        tuning: tuning constants, never those that make a wrong constant invisible.
    """

    name: str
    function: Callable[..., sgmcmc.Samples]
    kind: str
    control_variates: bool
    tuning: Mapping[str, Any] = field(default_factory=dict)

    def run(
        self,
        problem: Problem,
        stepsize: Any,
        minibatch_size: int,
        *,
        opt_stepsize: float = 1e-3,
        n_iters_opt: int = 0,
        **keywords: Any,
    ) -> sgmcmc.Samples:
        """Run it on a problem. Without mode-finding the control variate is centred at the start."""
        arguments: dict[str, Any] = {
            "minibatch_size": minibatch_size,
            "verbose": False,
            "seed": 1,
            **self.tuning,
        }
        if self.control_variates:
            arguments |= {"opt_stepsize": opt_stepsize, "n_iters_opt": n_iters_opt}
        return self.function(
            problem.log_lik,
            problem.dataset,
            problem.split(problem.start),
            stepsize,
            log_prior=problem.log_prior,
            **{**arguments, **keywords},
        )


_SGHMC = {"alpha": 0.4, "L": 3}
_EULER = {**_SGHMC, "integrator": "euler"}
_SGNHT = {"a": 0.05}
TABLE = (
    Case("sgld", sgmcmc.sgld, "sgld", False),
    Case("sghmc", sgmcmc.sghmc, "sghmc", False, _SGHMC),
    Case("sghmc-euler", sgmcmc.sghmc, "euler", False, _EULER),
    Case("sgnht", sgmcmc.sgnht, "sgnht", False, _SGNHT),
    Case("sgldcv", sgmcmc.sgldcv, "sgld", True),
    Case("sghmccv", sgmcmc.sghmccv, "sghmc", True, _SGHMC),
    Case("sghmccv-euler", sgmcmc.sghmccv, "euler", True, _EULER),
    Case("sgnhtcv", sgmcmc.sgnhtcv, "sgnht", True, _SGNHT),
)
LINEAR = tuple(case for case in TABLE if case.kind != "sgnht")
THERMOSTATS = tuple(case for case in TABLE if case.kind == "sgnht")


def every(
    cases: tuple[Case, ...], slow: Callable[[Case], bool] = lambda case: False
) -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each of these rows, some only among the slow."""
    rows = [
        pytest.param(case, id=case.name, marks=pytest.mark.slow if slow(case) else ())
        for case in cases
    ]
    return pytest.mark.parametrize("case", rows)


# --------------------------------------------------------------------------------- the models


@dataclass(frozen=True)
class Problem:
    """A model as a user writes it, its data, and where a chain starts.

    Attributes:
        log_lik: the log-likelihood.
        log_prior: the log-prior.
        dataset: the data.
        shapes: the parameters.
        start: where chains start, flat.
        gradients: the gradients of the observations at a flat position, (N, d), in NumPy.
        prior_gradient: the gradient of the log-prior at a flat position, in NumPy.
    """

    log_lik: Callable[..., tf.Tensor]
    log_prior: Callable[..., tf.Tensor]
    dataset: dict[str, Array]
    shapes: Shapes
    start: Array
    gradients: Callable[[Array], Array]
    prior_gradient: Callable[[Array], Array]

    @property
    def size(self) -> int:
        """N, the number of observations."""
        return len(next(iter(self.dataset.values())))

    @property
    def dimension(self) -> int:
        """The number of coordinates, d."""
        return self.start.size

    def gradient(self, position: Array) -> Array:
        """Return the gradient of the log posterior over the whole dataset."""
        return self.prior_gradient(position) + self.gradients(position).sum(0)

    def split(self, flat: Array) -> dict[str, Array]:
        """Return the named parameters at a flat position."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])[:-1]
        parts = np.split(flat, ends)
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def spread(self, values: Mapping[str, float] | float) -> Array:
        """Return one value per coordinate of a constant that may be given per parameter."""
        if not isinstance(values, Mapping):
            return np.full(self.dimension, float(values))
        return np.concatenate(
            [np.full(int(np.prod(shape)), values[name]) for name, shape in self.shapes.items()]
        )

    def blocks(self) -> list[slice]:
        """Return the places of the named parameters in a flat position."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes.values())])
        return [slice(a, b) for a, b in pairwise(ends)]


@dataclass(frozen=True)
class LinearProblem(Problem):
    """A model whose log posterior is quadratic: observation i has gradient h_i − K_i θ.

    Attributes:
        h: (N, d).
        K: (N, d, d).
        prior_precision: Λ, (d, d).
        prior_mean: (d,).
    """

    h: Array
    K: Array
    prior_precision: Array
    prior_mean: Array

    @property
    def precision(self) -> Array:
        """H, the precision of the posterior."""
        return self.prior_precision + self.K.sum(0)

    @property
    def covariance(self) -> Array:
        """The covariance of the posterior."""
        return np.linalg.inv(self.precision)

    @property
    def mean(self) -> Array:
        """The mean of the posterior."""
        return self.covariance @ (self.prior_precision @ self.prior_mean + self.h.sum(0))


def flat(params: Mapping[str, Any], leading: int = 0) -> Any:
    """Return named parameters as vectors; tensors, or arrays with so many leading axes."""
    parts = list(params.values())
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([p.reshape(*p.shape[:leading], -1) for p in parts], -1)
    return tf.concat([tf.reshape(part, [-1]) for part in parts], 0)


def _linear_problem(
    log_lik: Callable[..., tf.Tensor],
    dataset: dict[str, Array],
    h: Array,
    K: Array,
    rng: np.random.Generator,
) -> LinearProblem:
    """Return a linear problem with a correlated prior, started one posterior sd off the mode."""
    d = h.shape[1]
    prior_precision = 2.0 * _positive_matrix(rng, d)
    prior_mean = rng.normal(size=d)

    def log_prior(params: Mapping[str, tf.Tensor]) -> tf.Tensor:
        gap = flat(params) - tf.constant(prior_mean, next(iter(params.values())).dtype)
        return -0.5 * tf.reduce_sum(gap * tf.linalg.matvec(_like(prior_precision, gap), gap))

    covariance = np.linalg.inv(prior_precision + K.sum(0))
    mean = covariance @ (prior_precision @ prior_mean + h.sum(0))
    return LinearProblem(
        log_lik=log_lik,
        log_prior=log_prior,
        dataset=dataset,
        shapes=SHAPES[d],
        start=mean + np.sqrt(np.diag(covariance)),
        gradients=lambda position: h - K @ position,
        prior_gradient=lambda position: prior_precision @ (prior_mean - position),
        h=h,
        K=K,
        prior_precision=prior_precision,
        prior_mean=prior_mean,
    )


def _positive_matrix(rng: np.random.Generator, d: int) -> Array:
    """Return a random positive definite matrix with eigenvalues from 0.6 to 1.6."""
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix = basis @ np.diag(np.linspace(0.6, 1.6, d)) @ basis.T
    return (matrix + matrix.T) / 2


def _like(matrix: Array, tensor: tf.Tensor) -> tf.Tensor:
    return tf.constant(matrix, tensor.dtype)


def gaussian(d: int, N: int, *, isotropic_noise: bool = False) -> LinearProblem:
    """Return x_i ~ N(θ, Σ) with Σ known: minibatch noise that does not depend on θ.

    With ``isotropic_noise`` the per-observation gradients have unit sample covariance, as a
    thermostat needs that is shared by several coordinates.
    """
    rng = np.random.default_rng([d, N])
    sigma = _positive_matrix(rng, d)
    inverse = np.linalg.inv(sigma)
    x = rng.normal(size=(N, d))
    if isotropic_noise:
        x -= x.mean(0)
        root = np.linalg.cholesky(np.atleast_2d(np.cov(x.T)))
        x = x @ np.linalg.inv(root).T @ sigma
    x += rng.normal(size=d)

    def log_lik(params: Mapping[str, tf.Tensor], data: Mapping[str, tf.Tensor]) -> tf.Tensor:
        gap = data["x"] - flat(params)
        return -0.5 * tf.reduce_sum(gap * (gap @ _like(inverse, gap)))

    return _linear_problem(log_lik, {"x": x}, x @ inverse, np.tile(inverse, (N, 1, 1)), rng)


def regression(d: int, N: int) -> LinearProblem:
    """Return y_i ~ N(x_i θ, 1): minibatch noise that grows with the distance to the centre."""
    rng = np.random.default_rng([d, N, 1])
    x = rng.normal(size=(N, d)) * rng.uniform(0.3, 1.7, size=(N, 1))
    y = x @ rng.normal(size=d) + rng.normal(size=N)

    def log_lik(params: Mapping[str, tf.Tensor], data: Mapping[str, tf.Tensor]) -> tf.Tensor:
        gap = data["y"] - tf.linalg.matvec(data["x"], flat(params))
        return -0.5 * tf.reduce_sum(gap**2)

    K = x[:, :, None] * x[:, None, :]
    return _linear_problem(log_lik, {"x": x, "y": y}, x * y[:, None], K, rng)


def logistic(d: int, N: int) -> Problem:
    """Return a logistic regression with a standard normal prior: gradients not linear in θ."""
    rng = np.random.default_rng([d, N, 2])
    x = rng.normal(size=(N, d))
    y = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-x.sum(1)))).astype(float)

    def log_lik(params: Mapping[str, tf.Tensor], data: Mapping[str, tf.Tensor]) -> tf.Tensor:
        logits = tf.linalg.matvec(data["x"], flat(params))
        return tf.reduce_sum(data["y"] * logits - tf.math.softplus(logits))

    def gradients(position: Array) -> Array:
        return (y - 1.0 / (1.0 + np.exp(-x @ position)))[:, None] * x

    return Problem(
        log_lik=log_lik,
        log_prior=lambda params: -0.5 * tf.reduce_sum(flat(params) ** 2),
        dataset={"x": x, "y": y},
        shapes=SHAPES[d],
        start=rng.normal(size=d),
        gradients=gradients,
        prior_gradient=lambda position: -position,
    )


# ------------------------------------------------- the update equations, transcribed in NumPy

Gradient = Callable[[Array], Array]


def reference_chain(
    kind: str,
    start: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    noise: Array,
    start_noise: Array,
    blocks: list[slice],
) -> Array:
    """Return the draws of a chain that is handed its random numbers, in float64.

    Args:
        kind: the update equation.
        start: θ at the start.
        gradient: called once for each new position; it may draw a minibatch each time.
        stepsize: ε, one for each coordinate.
        tuning: α and L, or a; one number or one for each coordinate.
        noise: standard normals, (iterations, vectors, d).
        start_noise: standard normals, (d,), for the momentum that SGNHT starts with.
        blocks: the places of the named parameters.
    """
    theta, g = start.copy(), gradient(start)
    if kind == "sgnht":
        return _reference_sgnht(theta, g, gradient, stepsize, tuning, noise, start_noise, blocks)
    draws = []
    for normals in noise:
        if kind == "sgld":
            theta = theta + stepsize / 2 * g + np.sqrt(stepsize) * normals[0]
            g = gradient(theta)
        else:
            one_iteration = _reference_euler if kind == "euler" else _reference_sghmc
            theta, g = one_iteration(theta, g, gradient, stepsize, tuning, normals)
        draws.append(theta)
    return np.array(draws)


def _reference_sghmc(
    theta: Array,
    g: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    normals: Array,
) -> tuple[Array, Array]:
    nu = np.sqrt(stepsize) * normals[0]
    c = np.exp(-np.asarray(tuning["alpha"]))
    for zeta in normals[1 : tuning["L"] + 1]:
        nu = nu + stepsize / 2 * g
        theta = theta + nu / 2
        nu = c * nu + np.sqrt(stepsize * (1 - c**2)) * zeta
        theta = theta + nu / 2
        g = gradient(theta)
        nu = nu + stepsize / 2 * g
    return theta, g


def _reference_euler(
    theta: Array,
    g: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    normals: Array,
) -> tuple[Array, Array]:
    nu = np.sqrt(stepsize) * normals[0]
    alpha = np.asarray(tuning["alpha"])
    for zeta in normals[1 : tuning["L"] + 1]:
        nu = (1 - alpha) * nu + stepsize * g + np.sqrt(2 * alpha * stepsize) * zeta
        theta = theta + nu
        g = gradient(theta)
    return theta, g


def _reference_sgnht(
    theta: Array,
    g: Array,
    gradient: Gradient,
    stepsize: Array,
    tuning: Mapping[str, Any],
    noise: Array,
    start_noise: Array,
    blocks: list[slice],
) -> Array:
    a = np.broadcast_to(tuning["a"], theta.shape)
    nu, xi, draws = np.sqrt(stepsize) * start_noise, a.copy(), []
    for normals in noise:
        nu = (1 - xi) * nu + stepsize * g + np.sqrt(2 * a * stepsize) * normals[0]
        theta = theta + nu
        for block in blocks:
            xi[block] += nu[block] @ nu[block] / nu[block].size - stepsize[block]
        g = gradient(theta)
        draws.append(theta)
    return np.array(draws)


def vectors_per_iteration(kind: str, tuning: Mapping[str, Any]) -> int:
    """Return how many vectors of standard normals an iteration takes."""
    return 1 + tuning["L"] if kind in ("sghmc", "euler") else 1


def remade_noise(seed: int, shape: tuple[int, int, int]) -> tuple[Array, Array]:
    """Return the noise of the first iterations of chain 0 in float64, and that of its start."""
    noise = generator(seed, 0, Phase.CHAIN, Purpose.NOISE, 0).standard_normal(shape)
    start = generator(seed, 0, Phase.CHAIN, Purpose.START_NOISE).standard_normal(shape[-1])
    return noise, start


# ------------------------------------------------------- the exact laws of the linear chains


@dataclass(frozen=True)
class Stage:
    """One stage of an update, z ← A z + noise of covariance Q, on z = (1, θ, ν, ĝ)."""

    A: Array
    Q: Array

    def then(self, later: Stage) -> Stage:
        """Return this stage followed by another."""
        return Stage(later.A @ self.A, later.A @ self.Q @ later.A.T + later.Q)

    def operator(self) -> Array:
        """Return what the stage does to vec E[z zᵀ]; the noise rides on the entry that is 1."""
        operator = np.kron(self.A, self.A)
        operator[:, 0] += self.Q.ravel()
        return operator


class Law:
    """The exact first and second moments of a chain on a linear problem, minibatch noise and all.

    The state is z = (1, θ, ν, ĝ) at the end of an iteration: ĝ belongs to θ, and the minibatch
    that made it pushes once more at the start of the next iteration. Every stage maps
    M = E[z zᵀ] linearly; that of a new gradient does so with the covariance of the random matrix
    Σ_{i∈S} (h_i, −K_i) over all minibatches. The stationary M solves M = T(M) with M₀₀ = 1.

    Args:
        problem: the problem.
        case: the row of the table.
        n: the minibatch size.
        stepsize: ε, a number or one for each parameter.
        tuning: the tuning constants, where they are not those of the table.
        replace: whether minibatches are drawn with replacement.
        refresh_variance: of the refreshed ν, in units of ε; other than 1 makes a wrong law.
        ddof: of the covariance of the observations' gradients; other than the default likewise.
    """

    def __init__(
        self,
        problem: LinearProblem,
        case: Case,
        n: int,
        stepsize: Any,
        *,
        tuning: Mapping[str, Any] | None = None,
        replace: bool = False,
        refresh_variance: float = 1.0,
        ddof: int | None = None,
    ) -> None:
        self.d = d = problem.dimension
        self.eye, self.zero = np.eye(d), np.zeros((d, d))
        step = _steps(case.kind, self, problem.spread(stepsize), tuning or case.tuning, problem)
        new_gradient = self._new_gradient(problem, case, n, replace, ddof)
        one_step = step.close.operator() @ new_gradient @ step.move.operator()
        refresh = Stage(step.refresh.A, step.refresh.Q * refresh_variance)
        self.operator = np.linalg.matrix_power(one_step, step.count) @ refresh.operator()
        self.second = self._stationary()

    def matrix(self, rows: Mapping[str, Mapping[str, Array]]) -> Array:
        """Return A from the blocks that differ from the identity: {row: {column: block}}."""
        size = 1 + 3 * self.d
        A = np.eye(size)
        for row, columns in rows.items():
            A[self.place(row)] = 0.0
            for column, block in columns.items():
                A[self.place(row), self.place(column)] = block
        return A

    def place(self, name: str) -> slice:
        """Return the place of θ, ν or g in z."""
        first = 1 + self.d * "θνg".index(name)
        return slice(first, first + self.d)

    def stage(
        self, rows: Mapping[str, Mapping[str, Array]], noise: Mapping[str, Array] | None = None
    ) -> Stage:
        """Return a stage; ``noise`` holds the variances of independent noise, by row."""
        Q = np.zeros((1 + 3 * self.d, 1 + 3 * self.d))
        for row, variances in (noise or {}).items():
            Q[self.place(row), self.place(row)] = np.diag(variances)
        return Stage(self.matrix(rows), Q)

    def _new_gradient(
        self, problem: LinearProblem, case: Case, n: int, replace: bool, ddof: int | None
    ) -> Array:
        N, d, size = problem.size, self.d, 1 + 3 * self.d
        A = self.matrix({"g": {"θ": -problem.precision}})
        A[self.place("g"), 0] = problem.precision @ problem.mean
        constant = problem.K @ problem.start if case.control_variates else problem.h
        terms = np.concatenate([constant[:, :, None], -problem.K], 2).reshape(N, -1)
        terms = terms - terms.mean(0)
        ddof = (0 if replace else 1) if ddof is None else ddof
        spread = terms.T @ terms / (N - ddof) * (N**2 if replace else N * (N - n)) / n
        noise = np.zeros((size,) * 4)
        g = self.place("g")
        noise[g, g, : 1 + d, : 1 + d] = spread.reshape((d, 1 + d) * 2).transpose(0, 2, 1, 3)
        return np.kron(A, A) + noise.reshape(size**2, size**2)

    def _stationary(self) -> Array:
        system = self.operator - np.eye(len(self.operator))
        system[0, 0] = 1.0
        right = np.zeros(len(system))
        right[0] = 1.0
        return np.linalg.solve(system, right).reshape(1 + 3 * self.d, -1)

    def after(self, iterations: int, start: Array) -> Array:
        """Return E[z zᵀ] so many iterations after a start at a point."""
        z = np.zeros(len(self.second))
        z[0] = 1.0
        z[self.place("θ")] = start
        second = np.outer(z, z).ravel()
        for _ in range(iterations):
            second = self.operator @ second
        return second.reshape(self.second.shape)

    def settles(self, burn_in: int, start: Array) -> bool:
        """Return whether a burn-in brings the moments of θ within 0.01 % of the least variance."""
        theta = self.place("θ")
        gap = np.abs(self.after(burn_in, start) - self.second)[theta, theta]
        return bool(gap.max() < 1e-4 * np.diag(self.moments("θ")[1]).min())

    def moments(self, names: str) -> tuple[Array, Array]:
        """Return mean and covariance of, say, ``"θ"`` or ``"θg"``."""
        places = np.concatenate([np.arange(len(self.second))[self.place(n)] for n in names])
        mean = self.second[0, places]
        return mean, self.second[np.ix_(places, places)] - np.outer(mean, mean)


@dataclass(frozen=True)
class _Steps:
    refresh: Stage
    move: Stage
    close: Stage
    count: int


def _steps(
    kind: str, law: Law, stepsize: Array, tuning: Mapping[str, Any], problem: Problem
) -> _Steps:
    """Return the stages of an iteration of this kind, as SPEC writes them."""
    one, half, nothing = law.eye, law.eye / 2, law.stage({})
    E = np.diag(stepsize)
    fresh = law.stage({"ν": {}}, {"ν": stepsize})
    if kind == "sgld":
        move = law.stage({"θ": {"θ": one, "g": E / 2}}, {"θ": stepsize})
        return _Steps(law.stage({"ν": {}}), move, nothing, 1)
    alpha = problem.spread(tuning["alpha"])
    if kind == "euler":
        decay = np.diag(1 - alpha)
        kick = law.stage({"ν": {"ν": decay, "g": E}}, {"ν": 2 * alpha * stepsize})
        drift = law.stage({"θ": {"θ": one, "ν": one}})
        return _Steps(fresh, kick.then(drift), nothing, tuning["L"])
    c = np.exp(-alpha)
    kick = law.stage({"ν": {"ν": one, "g": E / 2}})
    drift = law.stage({"θ": {"θ": one, "ν": half}})
    friction = law.stage({"ν": {"ν": np.diag(c)}}, {"ν": stepsize * (1 - c**2)})
    move = kick.then(drift).then(friction).then(drift)
    return _Steps(fresh, move, kick, tuning["L"])


# ----------------------------------------------------------------- the statistical comparisons


def bound(comparisons: int, chains: int | None = None) -> float:
    """Return how many standard errors a statistic may lie off.

    All comparisons of a test together then fail for one seed in ten thousand. Student's t where
    the standard error is estimated from independent chains, else the normal.
    """
    tail = FALSE_ALARM / (2 * comparisons)
    return float(stats.norm.isf(tail) if chains is None else stats.t.isf(tail, chains - 1))


@dataclass(frozen=True)
class Comparison:
    """Estimated moments against a law.

    Attributes:
        z: deviations in standard errors.
        limit: how large the largest may be.
        precision: the largest standard error of a variance, as a part of that variance.
    """

    z: Array
    limit: float
    precision: float

    @property
    def worst(self) -> float:
        """The largest deviation, in standard errors."""
        return float(np.abs(self.z).max())

    @property
    def accepts(self) -> bool:
        """Whether the draws are compatible with the law."""
        return self.worst < self.limit


def compare(draws: Array, mean: Array, covariance: Array) -> Comparison:
    """Compare draws with a mean and a covariance, every entry of both.

    The standard error is that of the average of independent chains' own estimates, so no
    autocorrelation has to be estimated.

    Args:
        draws: (chains, draws, d).
        mean: (d,).
        covariance: (d, d).
    """
    chains, length, d = draws.shape
    centred = draws.astype(float) - mean
    second = np.einsum("cti,ctj->cij", centred, centred) / length
    upper = np.triu_indices(d)
    estimates = np.concatenate([centred.mean(1), second[:, upper[0], upper[1]]], 1)
    expected = np.concatenate([np.zeros(d), covariance[upper]])
    errors = estimates.std(0, ddof=1) / np.sqrt(chains)
    variances = second[:, range(d), range(d)].std(0, ddof=1) / np.sqrt(chains)
    return Comparison(
        (estimates.mean(0) - expected) / errors,
        bound(len(expected), chains),
        float((variances / np.diag(covariance)).max()),
    )


def check(comparison: Comparison, precision: float) -> None:
    """Assert that draws agree with a law, and that they are enough to tell."""
    assert comparison.precision < precision, "the run is too short to tell"
    assert comparison.worst < comparison.limit
