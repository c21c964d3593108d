"""Small models, minibatches one by one, and the exact laws of chains that move linearly.

A model is written twice, for TensorFlow as a user would and in NumPy. All minibatches of a tiny
dataset are listed with their chances, so that whatever is random in a gradient estimate can be
averaged over exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats

import sgmcmc
from sgmcmc.data.dataset import ArrayColumn, Data, Minibatch
from sgmcmc.data.random_numbers import Purpose, RunPhase, generator
from sgmcmc.engine.kernel import LONGEST_BLOCK
from sgmcmc.gradients import Gradient, WholeData
from sgmcmc.graphs.tracing import trace
from sgmcmc.minibatches import Minibatches, Uniform, Weighted
from sgmcmc.model.geometry import Space
from sgmcmc.model.target import Target

Array = np.ndarray

FALSE_ALARM = 1e-4
"""How often a statistical test fails by chance, all its comparisons taken together."""


# ------------------------------------------------------------------------------------ models


@dataclass(frozen=True)
class Model:
    """A model as a user writes it, with its gradients in NumPy.

    Attributes:
        log_lik: the log-likelihood, as the terms of the observations or as their sum.
        log_prior: the log-prior.
        data: the dataset.
        start: the parameters where a chain starts.
        terms: the gradients of the observations' terms at a flat position, (N, d).
        prior: the gradient of the log-prior at a flat position.
    """

    log_lik: Callable[..., tf.Tensor]
    log_prior: Callable[..., tf.Tensor]
    data: dict[str, Array]
    start: dict[str, Array]
    terms: Callable[[Array], Array]
    prior: Callable[[Array], Array]

    @property
    def size(self) -> int:
        """N."""
        return len(next(iter(self.data.values())))

    @property
    def origin(self) -> Array:
        """Where a chain starts, flat."""
        return np.concatenate([np.ravel(part) for part in self.start.values()])

    def full(self, position: Array) -> Array:
        """Return the gradient of the log posterior at a flat position."""
        return self.prior(position) + self.terms(position).sum(0)

    def chain(self, **given: Any) -> sgmcmc.Samples:
        """Sample with SGLD in float64, one chain, every draw; everything can be overridden."""
        return sgmcmc.sample(
            self.log_lik, self.data, self.start, self.log_prior, **defaults(given)
        )

    def stepwise(self, **given: Any) -> sgmcmc.StepwiseSampler:
        """Set the same chain up to be run step by step."""
        given = defaults(given)
        for name in ("n_iters", "burn_in", "thin", "store", "store_gradients"):
            given.pop(name, None)
        return sgmcmc.setup(
            self.log_lik, self.data, self.start, self.log_prior, **given
        )


def defaults(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a chain."""
    return {
        "dynamics": "sgld",
        "gradient": "minibatch",
        "minibatches": "uniform",
        "preconditioner": "none",
        "stepsize": 0.01,
        "n_chains": None,
        "n_iters": 40,
        "burn_in": 0,
        "seed": 1,
        "verbose": False,
        "dtype": tf.float64,
        **given,
    }


def vector(params: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the parameters as one vector."""
    return tf.concat([tf.reshape(part, [-1]) for part in params.values()], 0)


def flat(arrays: Mapping[str, Array], leading: int = 1) -> Array:
    """Return draws with all parameters in one last axis, after so many leading axes."""
    return np.concatenate(
        [a.reshape(*a.shape[:leading], -1) for a in arrays.values()], -1
    )


def logistic(d: int, N: int, *, summed: bool = False) -> Model:
    """Return a logistic regression: gradients that are not linear in the parameters.

    With d = 1 there is one scalar parameter, else a scalar and a vector.
    """
    rng = np.random.default_rng([d, N])
    x = rng.normal(size=(N, d)) * rng.uniform(0.3, 2.0, size=(N, 1))
    y = (rng.uniform(size=N) < 0.5).astype(float)
    start = rng.normal(size=d)

    def log_lik(params: dict[str, tf.Tensor], data: dict[str, tf.Tensor]) -> tf.Tensor:
        logits = tf.linalg.matvec(data["x"], vector(params))
        terms = data["y"] * logits - tf.math.softplus(logits)
        return tf.reduce_sum(terms) if summed else terms

    def terms(position: Array) -> Array:
        return (y - 1.0 / (1.0 + np.exp(-x @ position)))[:, None] * x

    params = {"bias": start[0]} | ({"beta": start[1:]} if d > 1 else {})
    return Model(
        log_lik,
        lambda params: -0.7 * tf.reduce_sum(vector(params) ** 2),
        {"x": x, "y": y},
        params,
        terms,
        lambda position: -1.4 * position,
    )


class Line(NamedTuple):
    """A Gaussian model of one parameter: term i has gradient h_i − K_i θ, the prior −Λ θ."""

    model: Model
    h: Array
    K: Array
    precision: float

    @property
    def total(self) -> float:
        """The precision of the posterior."""
        return self.precision + float(self.K.sum())


def line(N: int, *, summed: bool = False) -> Line:
    """Return N observations of one parameter, each with a precision of its own."""
    rng = np.random.default_rng(N)
    x, K, precision = rng.normal(1.0, 1.0, N), rng.uniform(0.2, 3.0, N), 0.5

    def log_lik(params: dict[str, tf.Tensor], data: dict[str, tf.Tensor]) -> tf.Tensor:
        terms = -0.5 * data["K"] * (params["theta"] - data["x"]) ** 2
        return tf.reduce_sum(terms) if summed else terms

    model = Model(
        log_lik,
        lambda params: -0.5 * precision * params["theta"] ** 2,
        {"x": x, "K": K},
        {"theta": np.array(2.0)},
        lambda position: (K * (x - position))[:, None],
        lambda position: -precision * position,
    )
    return Line(model, K * x, K, precision)


# ------------------------------------------------------------------------------- minibatches


class Choice(NamedTuple):
    """One of all the minibatches that there are.

    Attributes:
        chance: its probability.
        rows: in rising order.
        weights: what each of them counts.
    """

    chance: float
    rows: Array
    weights: Array


PROBABILITIES = np.array([0.05, 0.4, 0.1, 0.15, 0.08, 0.22])
"""Of six rows; of which one has n p > 1 with three rows in a minibatch."""

DRAWS: dict[str, Minibatches] = {
    "without": Uniform(),
    "with": Uniform(replace=True),
    "weighted": Weighted(PROBABILITIES),
}


def strata(p: Array, n: int) -> Array:
    """Return the chance of each row in each n-th of the probability, (n, N)."""
    upper = np.cumsum(p / p.sum())
    edges, lower = np.arange(n + 1) / n, np.concatenate([[0.0], upper[:-1]])
    left = np.maximum(edges[:-1, None], lower)
    return n * np.maximum(np.minimum(edges[1:, None], upper) - left, 0.0)


def choices(draws: str, N: int, n: int, p: Array = PROBABILITIES) -> Iterator[Choice]:
    """Yield all minibatches: ``"without"`` replacement, ``"with"`` it, or ``"weighted"``."""
    uniform = np.full(n, N / n)
    if draws == "without":
        subsets = list(itertools.combinations(range(N), n))
        for rows in subsets:
            yield Choice(1 / len(subsets), np.array(rows), uniform)
    elif draws == "with":
        for rows in itertools.product(range(N), repeat=n):
            yield Choice(N**-n, np.sort(rows), uniform)
    else:
        chance = strata(p, n)
        for rows in itertools.product(range(N), repeat=n):
            found = float(np.prod(chance[range(n), rows]))
            if found > 0:
                picked = np.array(rows)
                yield Choice(found, picked, (p.sum() / (n * p))[picked])


def variance(draws: str, terms: Array, n: int, p: Array = PROBABILITIES) -> Array:
    """Return the covariance of Σ_{i∈S} w_i t_i over all minibatches, by its formula, (d, d)."""
    N = len(terms)
    gap = terms - terms.mean(0)
    if draws == "without":
        return N * (N - n) / n * gap.T @ gap / (N - 1)
    if draws == "with":
        return N**2 / n * gap.T @ gap / N
    scaled, covariance = (
        terms * (p.sum() / (n * p))[:, None],
        np.zeros((terms.shape[1],) * 2),
    )
    for chance in strata(p, n):
        centered = scaled - chance @ scaled
        covariance += (centered * chance[:, None]).T @ centered
    return covariance


# ------------------------------------------------------------------- estimates of all minibatches


class Estimates(NamedTuple):
    """What an estimator gives of every minibatch that there is.

    Attributes:
        choices: the minibatches.
        values: the estimate of each, (minibatches, d).
        states: the state after each.
    """

    choices: list[Choice]
    values: Array
    states: list[Any]

    def moments(self) -> tuple[Array, Array]:
        """Return the exact mean and covariance of the estimate."""
        chances = np.array([choice.chance for choice in self.choices])
        np.testing.assert_allclose(chances.sum(), 1.0, rtol=1e-12)
        mean = chances @ self.values
        gap = self.values - mean
        return mean, (gap * chances[:, None]).T @ gap


def whole(model: Model, n: int) -> WholeData:
    """Return a model with its dataset at hand, as an estimator is handed it."""
    shapes = {name: part.shape for name, part in model.start.items()}
    target = Target(model.log_lik, model.log_prior, Space(shapes), tf.float64)
    columns = {name: ArrayColumn(array) for name, array in model.data.items()}
    return WholeData(target, Data(columns, model.size), n)


def over_all(
    estimator: Gradient, state: Any, model: Model, position: Array, draws: str, n: int
) -> Estimates:
    """Return the estimates of all minibatches from one state."""
    target, found = (
        whole(model, n).target,
        Estimates(list(choices(draws, model.size, n)), [], []),
    )
    graph: Any = None
    for _, rows, weights in found.choices:
        columns = {name: tf.constant(array[rows]) for name, array in model.data.items()}

        def estimate(
            state: Any,
            position: tf.Tensor,
            columns: Any,
            rows: tf.Tensor,
            weights: tf.Tensor,
        ) -> Any:
            counts = weights if draws == "weighted" else model.size / n
            minibatch = Minibatch(columns, counts, rows)
            return estimator.estimate(target, state, position, minibatch, minibatch)

        given = (
            state, tf.constant(position), columns, tf.constant(rows), tf.constant(weights)
        )  # fmt: skip
        graph = graph or trace(estimate, *given)
        value, after = graph(*given)
        found.values.append(value.numpy())
        found.states.append(after)
    return found._replace(values=np.array(found.values))


# ------------------------------------------------------------------------------ random numbers


class Numbers(NamedTuple):
    """The random numbers of a chain, as they are remade.

    Attributes:
        noise: standard normals, (iterations, vectors, d).
        start_noise: (vectors, d).
        rows: of the minibatches, (steps, n).
        start_rows: of the first, (n,).
    """

    noise: Array
    start_noise: Array
    rows: Array
    start_rows: Array


def remade(
    model: Model,
    draws: str,
    n: int,
    *,
    vectors: int = 1,
    steps: int = 1,
    starts: int = 0,
    iterations: int,
    length: int = LONGEST_BLOCK,
    seed: int = 1,
    chain: int = 0,
) -> Numbers:
    """Return the random numbers of a chain.

    Args:
        model: the model.
        draws: how rows are drawn.
        n: rows in a minibatch.
        vectors: of normals in an iteration.
        steps: gradients in an iteration.
        starts: vectors of normals at the start.
        iterations: how many to remake.
        length: of a block.
        seed: of the chain.
        chain: its number.
    """
    bound, d = DRAWS[draws].bind(model.size, n), model.origin.size

    def rng(purpose: Purpose, block: int = 0) -> np.random.Generator:
        return generator(seed, chain, RunPhase.CHAIN, purpose, block)

    blocks = range(-(-iterations // length))
    noise = [
        rng(Purpose.NOISE, b).standard_normal((length, vectors, d)) for b in blocks
    ]
    rows = [bound.draw(rng(Purpose.MINIBATCH, b), length * steps) for b in blocks]
    return Numbers(
        np.concatenate(noise)[:iterations],
        rng(Purpose.START_NOISE).standard_normal((starts, d)),
        np.concatenate(rows)[: iterations * steps],
        bound.draw(rng(Purpose.START_MINIBATCH), 1)[0],
    )


def weights_of(draws: str, N: int, rows: Array) -> Array:
    """Return what each row of a minibatch counts."""
    n = len(rows)
    return np.full(n, N / n) if draws != "weighted" else 1.0 / (n * PROBABILITIES[rows])


# ----------------------------------------------------------------------------------- the laws


def matrix(step: Callable[[Array], Array], size: int) -> Array:
    """Return the matrix of a linear map."""
    return np.column_stack([step(unit) for unit in np.eye(size)])


class Moves:
    """What an iteration does to M = E[z zᵀ], where z = (1, …) moves linearly given a minibatch.

    Args:
        size: of z.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.operator = np.eye(size**2)

    def then(self, steps: list[tuple[float, Callable[[Array], Array]]]) -> Moves:
        """Return these moves followed by one of some linear maps, each with its chance."""
        one = np.zeros((self.size**2,) * 2)
        for chance, step in steps:
            A = matrix(step, self.size)
            one += chance * np.kron(A, A)
        return self._followed(one)

    def noise(self, place: int, variance: float) -> Moves:
        """Return these moves followed by independent noise on one entry."""
        one = np.eye(self.size**2)
        one[place * self.size + place, 0] += variance
        return self._followed(one)

    def before(self, later: Moves) -> Moves:
        """Return these moves followed by others."""
        return self._followed(later.operator)

    def repeated(self, times: int) -> Moves:
        """Return these moves so many times over."""
        moves = Moves(self.size)
        moves.operator = np.linalg.matrix_power(self.operator, times)
        return moves

    def _followed(self, one: Array) -> Moves:
        moves = Moves(self.size)
        moves.operator = one @ self.operator
        return moves

    def __call__(self, second: Array) -> Array:
        """Return what becomes of second moments."""
        return (self.operator @ second.ravel()).reshape(second.shape)

    def stationary(self) -> Array:
        """Return the second moments that these moves leave as they are."""
        assert np.sort(np.abs(np.linalg.eigvals(self.operator)))[-2] < 1, (
            "the chain explodes"
        )
        system = self.operator - np.eye(len(self.operator))
        system[0], right = 0.0, np.zeros(len(system))
        system[0, 0] = right[0] = 1.0
        return np.linalg.solve(system, right).reshape(self.size, self.size)


THETA, GRADIENT = 1, 2
"""Places in z = (1, θ, ĝ, …)."""


def moved(change: Callable[[Array], None]) -> Callable[[Array], Array]:
    """Return a linear map that changes a copy."""

    def step(z: Array) -> Array:
        z = z.copy()
        change(z)
        return z

    return step


def plain_law(problem: Line, draws: str, n: int, stepsize: float) -> Array:
    """Return E[z zᵀ] of SGLD with the plain minibatch gradient, z = (1, θ, ĝ)."""
    h, K, prior, _ = *problem[1:], problem.total

    def drift(z: Array) -> None:
        z[THETA] += stepsize / 2 * z[GRADIENT]

    def estimate(choice: Choice) -> Callable[[Array], Array]:
        weights, rows = choice.weights, choice.rows

        def change(z: Array) -> None:
            z[GRADIENT] = -prior * z[THETA] + weights @ (
                h[rows] * z[0] - K[rows] * z[THETA]
            )

        return moved(change)

    one = Moves(3).then([(1.0, moved(drift))]).noise(THETA, stepsize)
    return one.then(
        [(c.chance, estimate(c)) for c in choices(draws, len(h), n)]
    ).stationary()


# -------------------------------------------------------------------------------- comparisons


def bound(comparisons: int, chains: int | None = None) -> float:
    """Return how many standard errors the worst of some statistics may lie off.

    Student's t where the standard error is estimated from independent chains, else the normal.
    """
    tail = FALSE_ALARM / (2 * comparisons)
    return float(
        stats.norm.isf(tail) if chains is None else stats.t.isf(tail, chains - 1)
    )


class Found(NamedTuple):
    """Draws against a law: how far off, how far they may be, and how much they can tell."""

    worst: float
    limit: float
    precision: float

    @property
    def accepts(self) -> bool:
        """Whether the draws are compatible with the law."""
        return self.worst < self.limit


def compare(draws: Array, mean: Array, covariance: Array) -> Found:
    """Compare draws, (chains, draws, d), with a mean and a covariance, every entry of both.

    Standard errors are those of the average over independent chains.
    """
    chains, length, d = draws.shape
    centered = draws - mean
    second = np.einsum("cti,ctj->cij", centered, centered) / length
    upper = np.triu_indices(d)
    estimates = np.concatenate([centered.mean(1), second[:, upper[0], upper[1]]], 1)
    expected = np.concatenate([np.zeros(d), covariance[upper]])
    errors = estimates.std(0, ddof=1) / np.sqrt(chains)
    own = second[:, range(d), range(d)].std(0, ddof=1) / np.sqrt(chains)
    worst = np.abs((estimates.mean(0) - expected) / errors).max()
    return Found(
        float(worst),
        bound(len(expected), chains),
        float((own / np.diag(covariance)).max()),
    )


def compare_line(draws: Array, second: Array, place: int = 1) -> Found:
    """Compare draws of one parameter, (chains, draws), with E[z zᵀ]."""
    mean = second[0, place]
    spread = second[place, place] - mean**2
    return compare(draws[..., None], np.array([mean]), np.array([[spread]]))
