"""The spherical admixture model against quadrature, and what goes into it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse, special, stats

import sgmcmc
from sgmcmc.counts import Counts
from sgmcmc.models import SphericalTopicModel, sam, top_words
from sgmcmc.models.documents import unit_vectors
from sgmcmc.models.spherical_likelihood import (
    Conditional,
    log_normalizer,
    sweep_proportions,
)

SEED = tf.constant([1, 2])


def units(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return unit vectors with entries of both signs."""
    vectors = rng.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


# ------------------------------------------------------------------------ von Mises–Fisher


def test_normalizer_on_spheres_that_have_a_formula() -> None:
    kappa = np.array([1e-3, 1.0, 30.0, 400.0])
    on_circle = -np.log(2 * np.pi * special.ive(0, kappa)) - kappa
    np.testing.assert_allclose(log_normalizer(kappa, 2), on_circle, atol=1e-6)
    log_sinh = kappa + np.log(-np.expm1(-2 * kappa) / 2)
    on_sphere = np.log(kappa / (4 * np.pi)) - log_sinh
    np.testing.assert_allclose(log_normalizer(kappa, 3), on_sphere, atol=1e-6)


@pytest.mark.some(1)
@pytest.mark.parametrize("dimension", [5, 6906])
def test_normalizer_is_that_of_another_library(dimension: int) -> None:
    """And its derivative the continued fraction of Gauss, 1/(d/κ + 1/((d + 2)/κ + ...))."""
    bessel = pytest.importorskip("tensorflow_probability").math.log_bessel_ive
    kappa, order = (
        tf.constant([0.5, 40.0, 2000.0, 1e5], tf.float64),
        0.5 * dimension - 1,
    )
    with tf.GradientTape() as tape:
        tape.watch(kappa)
        value = log_normalizer(kappa, dimension)
    constant = order * tf.math.log(kappa) - 0.5 * dimension * np.log(2 * np.pi)
    np.testing.assert_allclose(
        value, constant - kappa - bessel(order, kappa), rtol=1e-12, atol=1e-8
    )
    fraction = np.zeros(4)
    for j in range(100_000, -1, -1):
        fraction = 1 / ((dimension + 2 * j) / kappa.numpy() + fraction)
    np.testing.assert_allclose(-tape.gradient(value, kappa), fraction, rtol=1e-6)


# ------------------------------------------------------------------------ proportions


class Case(NamedTuple):
    """One document and three topics."""

    alpha: float
    kappa: float
    topics: np.ndarray
    document: np.ndarray

    def cosine(self, theta: np.ndarray) -> np.ndarray:
        """Return cos(v, r) at proportions (..., K)."""
        r = theta @ self.topics
        return np.asarray((r @ self.document) / np.linalg.norm(r, axis=-1))


def case(alpha: float, kappa: float, W: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    return Case(alpha, kappa, units(rng, 3, W), units(rng, W))


CASES = [
    case(0.5, 3.0, 3, 1),
    case(1.0, 40.0, 6, 2),
    case(2.5, 40.0, 3, 3),
    case(0.5, 60.0, 4, 4),
]


def quadrature(c: Case, n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Return proportions and their prior weights, by sticks that are sin² of a grid."""
    half = (np.arange(n) + 0.5) / n * np.pi / 2
    stick, jacobian = np.sin(half) ** 2, np.sin(2 * half) * np.pi / 2 / n
    u, v = stick[:, np.newaxis], stick[np.newaxis]
    weights = stats.beta(c.alpha, 2 * c.alpha).pdf(u) * jacobian[:, np.newaxis]
    weights = weights * stats.beta(c.alpha, c.alpha).pdf(v) * jacobian
    return np.stack([u + 0 * v, (1 - u) * v, (1 - u) * (1 - v)], axis=-1), weights


@pytest.mark.parametrize("c", CASES, ids=["0.5, 3", "1, 40", "2.5, 40", "0.5, 60"])
@pytest.mark.some(1)
def test_sweeps_have_the_exact_posterior(c: Case) -> None:
    """Many copies of one document: from a far start, and one sweep on from exact draws."""
    theta, prior = quadrature(c)
    weights = prior * np.exp(c.kappa * c.cosine(theta))
    weights /= weights.sum()
    copies = 10_000
    rng = np.random.default_rng(5)
    exact = theta.reshape(-1, 3)[rng.choice(weights.size, copies, p=weights.ravel())]
    cosines = tf.constant(np.tile(c.topics @ c.document, (copies, 1)))
    gram = tf.constant(c.topics @ c.topics.T)
    for before, n_sweeps in ((exact, 1), (np.full((copies, 3), 1 / 3), 60)):
        kappa = tf.constant(c.kappa, tf.float64)
        conditional = Conditional(cosines, gram, kappa, c.alpha)
        drawn = sweep_proportions(
            conditional, n_sweeps, SEED, tf.constant(before)
        ).numpy()[:, 0]
        assert np.any(drawn != before)
        np.testing.assert_allclose(drawn.sum(axis=1), 1, rtol=1e-12)
        for function in (np.array, np.square, np.sqrt):
            expected = np.einsum("ij,ijk->k", weights, function(theta))
            found = function(drawn)
            error = found.std(axis=0) / np.sqrt(copies)
            assert np.all(np.abs(found.mean(axis=0) - expected) < 4.5 * error)


def model_of(c: Case, n_sweeps: int = 4) -> SphericalTopicModel:
    """Return a model of the document and its opposite, with the constants of a case."""
    both = np.stack([c.document, -c.document])
    return sam(both, 3, c.kappa, alpha=c.alpha, n_sweeps=n_sweeps, weighting="unit")


@pytest.mark.parametrize(
    "n_temperatures", [10, pytest.param(1, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("c", CASES[1:3], ids=["1, 40", "2.5, 40"])
@pytest.mark.some(1)
def test_likelihood_by_importance_is_that_of_quadrature(
    c: Case, n_temperatures: int
) -> None:
    theta, prior = quadrature(c)
    exact = (prior * np.exp(c.kappa * c.cosine(theta))).sum()
    task = model_of(c).held_out(c.document[np.newaxis], 20_000, n_temperatures)
    topics, draws = tf.constant(c.topics), tf.cast(task.prior, tf.float64)
    cosines = tf.constant(np.tile(c.topics @ c.document, (len(draws), 1)))
    kappa = tf.constant(c.kappa, draws.dtype)
    posterior = Conditional(cosines, topics @ tf.transpose(topics), kappa, c.alpha)
    logs = task._annealed(posterior, draws, SEED).numpy()
    ratios = np.exp(logs) / exact
    assert abs(ratios.mean() - 1) < 4.5 * ratios.std() / np.sqrt(len(ratios))
    found = task.log_likelihood(topics, SEED).numpy()
    constant = float(log_normalizer(c.kappa, len(c.document)))
    np.testing.assert_allclose(
        found, [np.log(ratios.mean() * exact) + constant], rtol=1e-6
    )


def test_log_perplexity_is_that_of_the_mean_over_draws() -> None:
    c = CASES[1]
    task = model_of(c).held_out(
        np.stack([c.document, -c.document]), n_particles=50, n_temperatures=5
    )
    draws = [c.topics, np.roll(c.topics, 1, axis=1)]
    reduction = task.log_perplexity(draws=3, seed=7)
    state = reduction.start({"topics": tf.constant(c.topics)}, tf.float64)
    update, each = tf.function(reduction.update), []
    for number, draw in enumerate(draws):
        state = update(state, {"topics": tf.constant(draw)})
        seed = tf.random.experimental.stateless_fold_in(
            tf.constant([7, 0]), number, alg="philox"
        )
        each.append(task.log_likelihood(tf.constant(draw), seed).numpy())
    found = reduction.result(state)
    means = [special.logsumexp(each[: m + 1], axis=0) - np.log(m + 1) for m in range(2)]
    expected = [*(-mean.mean() for mean in means), np.nan]
    np.testing.assert_allclose(found["log_perplexity"], expected, rtol=1e-8)
    np.testing.assert_allclose(found["log_likelihood"], means[-1], rtol=1e-8)


# ------------------------------------------------------------------------ the target


def test_gradient_is_that_of_the_likelihood_without_proportions() -> None:
    """On average over the proportions drawn, E ∇ log p(v, θ | β) = ∇ log p(v | β), in 4 SE."""
    c = CASES[1]
    model, copies = model_of(c, n_sweeps=20), 4000
    params = {"topics": tf.constant(c.topics)}
    minibatch = {"vectors": tf.constant(np.tile(c.document, (copies, 1)))}
    drawn = tf.function(model.gibbs)(params, minibatch, SEED)
    assert drawn["drawn"].shape == (copies, 10, 3)
    np.testing.assert_array_equal(drawn["drawn"][:, -1], drawn["proportions"])

    # One document at a time, by the formula: κ θ_k (v/‖r‖ − cos(v, r) r/‖r‖²).
    theta = drawn["drawn"].numpy()
    r = theta @ c.topics
    length = np.linalg.norm(r, axis=-1, keepdims=True)
    cosine = c.cosine(theta)[..., np.newaxis]
    slopes = c.kappa * (c.document / length - cosine * r / length**2)
    each = np.einsum("nsk,nsw->nkw", theta, slopes) / theta.shape[1]
    with tf.GradientTape() as tape:
        tape.watch(params["topics"])
        value = model.log_lik(params, drawn)
    gradient = tape.gradient(value, params["topics"])
    np.testing.assert_allclose(value, c.kappa * cosine[..., 0].mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(gradient, each.sum(axis=0), rtol=1e-8, atol=1e-8)

    grid, prior = quadrature(c, 300)
    exact, step = np.zeros_like(c.topics), 1e-4
    for place in np.ndindex(exact.shape):
        logs = []
        for side in (step, -step):
            moved = c.topics.copy()
            moved[place] += side
            logs.append(
                np.log(
                    (
                        prior * np.exp(c.kappa * c._replace(topics=moved).cosine(grid))
                    ).sum()
                )
            )
        exact[place] = (logs[0] - logs[1]) / (2 * step)
    error = each.std(axis=0) / np.sqrt(copies)
    assert np.all(np.abs(each.mean(axis=0) - exact) < 4.5 * error)


def test_prior_is_that_of_topics_around_a_mean() -> None:
    """On the circle, with μ integrated out by quadrature."""
    rng, model = np.random.default_rng(1), sam(np.eye(2), 2, sigma=3.0, kappa0=1.5)
    angle = np.arange(1000) * 2 * np.pi / 1000
    mu, m = np.stack([np.cos(angle), np.sin(angle)], axis=-1), np.sqrt([0.5, 0.5])
    found, expected = [], []
    for _ in range(3):
        topics = units(rng, 2, 2)
        found.append(float(model.log_prior({"topics": tf.constant(topics)})))
        expected.append(
            np.log(np.exp(1.5 * mu @ m + 3 * (mu @ topics.T).sum(axis=-1)).mean())
        )
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-5)


@pytest.mark.slow
def test_the_chain_has_the_exact_posterior_of_two_topics_on_the_circle() -> None:
    """Angles of both topics by quadrature, with the proportions integrated out likewise."""
    kappa, sigma, kappa0 = 6.0, 8.0, 0.5
    angles = np.array([0.2, 0.5, 1.6, 2.0])
    documents = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    n = 90
    grid = np.arange(n) * 2 * np.pi / n
    point = np.stack([np.cos(grid), np.sin(grid)], axis=-1)
    share = (np.arange(200) + 0.5)[:, np.newaxis, np.newaxis, np.newaxis] / 200
    r = share * point[:, np.newaxis] + (1 - share) * point
    r /= np.maximum(np.linalg.norm(r, axis=-1, keepdims=True), 1e-300)
    log_p = np.log(np.exp(kappa * r @ documents.T).mean(axis=0)).sum(axis=-1)
    mean = kappa0 * np.sqrt(0.5) + sigma * (point[:, np.newaxis] + point)
    log_p += np.log(special.i0(np.linalg.norm(mean, axis=-1)))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    inner = point @ point.T
    expected = np.array(
        [*p.sum(axis=1) @ point, np.sum(p * inner), np.sum(p * inner**2)]
    )

    model = sam(documents, 2, kappa, sigma, kappa0, n_sweeps=4, weighting="unit")
    chain = sgmcmc.sggmc(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        0.02,
        model.log_prior,
        minibatch_size=4,
        alpha=0.3,
        manifolds={"topics": sgmcmc.manifolds.Sphere()},
        gibbs=model.gibbs,
        n_iters=20_000,
        burn_in=500,
        seed=2,
        verbose=False,
    )["topics"]
    between = (chain[:, 0] * chain[:, 1]).sum(axis=-1)
    found = np.stack([*chain.mean(axis=1).T, between, between**2], axis=-1)
    batches = found[: len(found) // 30 * 30].reshape(30, -1, 4).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(30)
    # Four standard errors by 30 batches, and the bias of the integrator, of the order of εκN = 0.5.
    assert np.all(error < 0.02)
    assert np.all(np.abs(found.mean(axis=0) - expected) < 4 * error + 0.01)


# ------------------------------------------------------------------------ what goes in


def test_tf_idf_is_that_of_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    counts = np.random.default_rng(1).poisson(0.5, (20, 9)) + np.eye(20, 9, dtype=int)
    counts[:, 4] = 0
    rows, frequencies = unit_vectors(counts, "tf-idf")
    expected = text.TfidfTransformer().fit(counts)
    np.testing.assert_allclose(rows.toarray(), expected.transform(counts).toarray())
    others = np.random.default_rng(2).poisson(0.5, (5, 9)) + 1
    again, _ = unit_vectors(others, "tf-idf", frequencies)
    np.testing.assert_allclose(again.toarray(), expected.transform(others).toarray())


def test_documents_come_in_several_forms() -> None:
    counts = np.random.default_rng(1).poisson(0.3, (12, 40)) + np.eye(12, 40, dtype=int)
    counts[:, 12:] *= counts[:, 12:] > 1
    dense = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    forms = [
        sam(counts, 2, weighting="counts"),
        sam(sparse.csr_array(counts), 2, weighting="counts"),
        sam(Counts.read(counts), 2, weighting="counts"),
        sam(dense, 2, weighting="unit"),
        sam(sparse.coo_array(dense), 2, weighting="unit"),
    ]
    topics = {"topics": tf.constant(units(np.random.default_rng(2), 2, 40), tf.float32)}
    values, starts = [], []
    for model in forms:
        drawn = model.gibbs(topics, model.dataset, SEED)
        values.append(model.log_lik(topics, drawn))
        starts.append(model.start(seed=1)["topics"])
    assert set(forms[0].dataset) == {"places", "values"}
    np.testing.assert_allclose(values, np.tile(values[0], (5, 1)), rtol=1e-4)
    np.testing.assert_allclose(starts, np.tile(starts[0], (5, 1, 1)), rtol=1e-6)
    full = sam(np.abs(units(np.random.default_rng(3), 12, 40)), 2, weighting="unit")
    assert set(full.dataset) == {"vectors"}
    np.testing.assert_allclose(np.linalg.norm(full.start(1)["topics"], axis=1), 1)


@pytest.mark.parametrize(
    ("documents", "changes", "error", "message"),
    [
        ([[1, -2]], {}, ValueError, "`documents` must hold integers of at least 0"),
        ([[1, 0.5]], {"weighting": "counts"}, ValueError, "it holds 0.5"),
        ([["a", "b"]], {}, TypeError, "`documents` must hold integers"),
        ([1, 2], {}, ValueError, "`documents` must have two axes"),
        ([[1, 2], [0, 0]], {}, ValueError, "`documents`: document 1 has no words"),
        (
            [[1.0, 0.0], [3.0, 4.0]],
            {"weighting": "unit"},
            ValueError,
            "document 1 has length 5",
        ),
        (
            [[1.0, 0.0], [0.0, 0.0]],
            {"weighting": "unit"},
            ValueError,
            "document 1 has length 0",
        ),
        (
            [[1.0, np.nan]],
            {"weighting": "unit"},
            ValueError,
            "document 0 has length nan",
        ),
        (
            [["a", "b"]],
            {"weighting": "unit"},
            TypeError,
            "`documents` must hold real numbers",
        ),
        (
            [1.0, 0.0],
            {"weighting": "unit"},
            ValueError,
            "`documents` must have two axes",
        ),
        ([[1]], {}, ValueError, "at least two"),
        ([[1, 2]], {"weighting": "tfidf"}, ValueError, "`weighting` must be 'tf-idf'"),
        ([[1, 2]], {"n_topics": 0}, ValueError, "`n_topics` must be an integer"),
        ([[1, 2]], {"n_topics": 2**31}, ValueError, "too many topics"),
        ([[1, 2]], {"n_sweeps": 1.5}, ValueError, "`n_sweeps` must be an integer"),
        ([[1, 2]], {"kappa": 0}, ValueError, "`kappa` must be positive"),
        ([[1, 2]], {"sigma": -1}, ValueError, "`sigma` must be positive"),
        ([[1, 2]], {"kappa0": np.inf}, ValueError, "`kappa0` must be positive"),
        ([[1, 2]], {"alpha": "1"}, TypeError, "`alpha` must be a positive number"),
    ],
)
def test_wrong_arguments_are_named(
    documents: Any, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sam(documents, **{"n_topics": 2, **changes})


def test_wrong_arguments_of_the_methods_are_named() -> None:
    model = sam([[1, 2]], n_topics=2)
    with pytest.raises(KeyError, match="gibbs=model.gibbs"):
        model.log_lik({"topics": tf.eye(2)}, model.dataset)
    with pytest.raises(ValueError, match="`n_documents`"):
        model.start(n_documents=0)
    with pytest.raises(
        ValueError, match="`documents` have 3 coordinates, and the model 2"
    ):
        model.held_out([[1, 2, 3]])
    with pytest.raises(ValueError, match="document 0 has no words"):
        model.held_out([[0, 0]])
    with pytest.raises(ValueError, match="`n_particles`"):
        model.held_out([[1, 1]], n_particles=0)
    with pytest.raises(ValueError, match="`n_temperatures`"):
        model.held_out([[1, 1]], n_temperatures=0)
    with pytest.raises(ValueError, match="`draws`"):
        model.held_out([[1, 1]]).log_perplexity(draws=0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sggmc", "gsgnht"])
def test_a_chain_finds_topics_that_share_no_word(method: str) -> None:
    rng = np.random.default_rng(1)
    truth = np.kron(np.eye(2), np.full(10, 0.1))
    counts = np.stack([rng.multinomial(30, truth[i % 2]) for i in range(60)])
    model = sam(counts[:50], n_topics=2, kappa=200.0, sigma=1.0)
    held_out = model.held_out(counts[50:])
    chain = getattr(sgmcmc, method)(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        1e-4,
        model.log_prior,
        manifolds={"topics": sgmcmc.manifolds.Sphere()},
        gibbs=model.gibbs,
        latents=model.latents,
        minibatch_size=10,
        n_iters=300,
        burn_in=200,
        thin=50,
        reductions={"held out": held_out.log_perplexity(draws=2)},
        seed=1,
        verbose=False,
    )
    start = held_out.log_likelihood(tf.constant(model.start(seed=1)["topics"]), SEED)
    found = chain.reductions["held out"]["log_perplexity"]
    assert np.isfinite(found).all() and found[-1] < -float(tf.reduce_mean(start)) - 10
    best = {
        frozenset(words)
        for words in top_words(chain["topics"].mean(0), np.arange(20), n=10)
    }
    assert best == {frozenset(map(str, range(10))), frozenset(map(str, range(10, 20)))}
