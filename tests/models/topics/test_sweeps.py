"""Latent Dirichlet allocation: the Gibbs sweeps against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import sgmcmc
from sgmcmc.models import lda, top_words
from sgmcmc.models import topics as sweeps
from sgmcmc.models.documents import Documents
from tests.models.topics.enumeration import (
    ALPHA,
    DOCUMENT,
    TOPICS,
    exact_posterior,
    one_hot_counts,
)


def sweep(
    words: np.ndarray, lengths: np.ndarray, assigned: np.ndarray, uniforms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Run one sweep in float64; arrays are (T, n), the longest document first."""
    documents = sweeps._SortedDocuments(
        tf.constant(TOPICS.T),
        tf.constant(words, tf.int32),
        tf.constant(lengths, tf.int32),
        tf.constant(ALPHA, tf.float64),
    )
    after, counts = sweeps._sweep(
        documents,
        tf.constant(uniforms),
        tf.constant(assigned, tf.int32),
        tf.constant(one_hot_counts(assigned), tf.float64),
    )
    return after.numpy(), counts.numpy()


def transcribed(
    words: np.ndarray, lengths: np.ndarray, assigned: np.ndarray, uniforms: np.ndarray
) -> np.ndarray:
    """Do what a sweep does, a document and a word at a time."""
    after = np.full_like(assigned, -1)
    for d, length in enumerate(lengths):
        z = assigned[:, d].copy()
        for i in range(length):
            z[i] = -1
            others = np.bincount(z[z >= 0], minlength=len(TOPICS))
            cumulative = np.cumsum((ALPHA + others) * TOPICS[:, words[i, d]])
            z[i] = np.searchsorted(
                cumulative, uniforms[i, d] * cumulative[-1], side="right"
            )
        after[:length, d] = z[:length]
    return after


@pytest.mark.some(3)
@pytest.mark.parametrize("n_documents", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("first", [True, False], ids=["first sweep", "later sweep"])
def test_a_sweep_does_what_its_equation_says(n_documents: int, first: bool) -> None:
    rng = np.random.default_rng(n_documents)
    lengths = np.sort(rng.geometric(0.1, n_documents))[::-1].copy()
    shape = (lengths[0] + 2, n_documents)
    words, uniforms = rng.integers(3, size=shape), rng.random(shape)
    inside = np.arange(shape[0])[:, np.newaxis] < lengths
    assigned = np.where(inside & (not first), rng.integers(3, size=shape), -1)
    after, counts = sweep(words, lengths, assigned, uniforms)
    np.testing.assert_array_equal(
        after, transcribed(words, lengths, assigned, uniforms)
    )
    np.testing.assert_allclose(counts, one_hot_counts(after), atol=1e-12)


@pytest.mark.usefixtures("undivided")
def test_a_sweep_leaves_the_exact_posterior_as_it_is() -> None:
    """Assignments from the posterior, one sweep on: counts in all 81 cells by the χ² test."""
    every, p = exact_posterior(DOCUMENT)
    rng, copies = np.random.default_rng(1), 20_000
    before = every[rng.choice(len(p), copies, p=p)].T
    words = np.repeat(np.array(DOCUMENT)[:, np.newaxis], copies, axis=1)
    after, _ = sweep(words, np.full(copies, 4), before, rng.random(words.shape))
    assert np.any(after != before)
    cell = np.ravel_multi_index(tuple(after), (3,) * 4)
    observed = np.bincount(cell, minlength=len(p))
    common = copies * p >= 5
    observed = np.append(observed[common], observed[~common].sum())
    expected = copies * np.append(p[common], p[~common].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.usefixtures("undivided")
def test_the_counts_are_the_exact_expectation() -> None:
    """Two documents of different lengths, many copies of each, through the public functions."""
    copies, texts = 3000, [DOCUMENT, [2, 2]]
    table = np.array([np.bincount(words, minlength=3) for words in texts])
    model = lda(np.repeat(table, copies, axis=0), n_topics=3, alpha=ALPHA, n_sweeps=20)
    params = {"topics": tf.constant(TOPICS, tf.float32)}
    drawn = tf.function(model.gibbs)(params, model.dataset, tf.constant([3, 4]))
    assigned = drawn["assignments"].numpy()
    assert assigned.shape == (2 * copies, 4)
    assert (assigned[copies:, 2:] == -1).all() and (assigned[:copies] >= 0).all()
    for number, words in enumerate(texts):
        rows = slice(number * copies, (number + 1) * copies)
        # By hand, the probability of each topic of each word, given those of the others.
        probabilities = np.zeros((copies, len(words), 3))
        counts = one_hot_counts(assigned[rows].T)
        for i, word in enumerate(words):
            others = counts - np.eye(3)[assigned[rows, i]]
            probabilities[:, i] = (ALPHA + others) * TOPICS[:, word]
        log_means = np.log(probabilities.sum(axis=2) / (3 * ALPHA + len(words) - 1))
        probabilities /= probabilities.sum(axis=2, keepdims=True)
        every, p = exact_posterior(words)
        for k in range(3):
            found, error = probabilities[..., k].mean(0), probabilities[..., k].std(0)
            assert np.all(
                np.abs(found - p @ (every == k)) < 4.5 * error / np.sqrt(copies)
            )

        # The gradient of log_lik is their sums over ω.
        sums = np.zeros((3, 3))
        for i, word in enumerate(words):
            sums[:, word] += probabilities[:, i].sum(axis=0)
        with tf.GradientTape() as tape:
            tape.watch(params["topics"])
            value = model.log_lik(
                params, {name: part[rows] for name, part in drawn.items()}
            )
        gradient = tape.gradient(value, params["topics"])
        np.testing.assert_allclose(gradient * TOPICS, sums, rtol=1e-4)
        np.testing.assert_allclose(value, log_means.sum(), rtol=1e-4)


@pytest.mark.usefixtures("undivided")
def test_sweeps_go_on_from_the_topics_kept() -> None:
    """From exact draws a single sweep leads to exact draws; from nothing it does not."""
    copies, texts = 4000, [DOCUMENT, [2, 2]]
    model = lda(
        np.repeat([np.bincount(words, minlength=3) for words in texts], copies, axis=0),
        n_topics=3,
        alpha=ALPHA,
        n_sweeps=1,
    )
    assert model.latents["assignments"].shape == (2 * copies, 4)
    before, rng = np.full((2 * copies, 4), -1), np.random.default_rng(2)
    for number, words in enumerate(texts):
        every, p = exact_posterior(words)
        rows = slice(number * copies, (number + 1) * copies)
        before[rows, : len(words)] = every[rng.choice(len(p), copies, p=p)]

    def deviations(minibatch: dict[str, tf.Tensor]) -> float:
        params = {"topics": tf.constant(TOPICS, tf.float32)}
        drawn = tf.function(model.gibbs)(params, minibatch, tf.constant([1, 2]))
        assigned = drawn["assignments"].numpy()
        worst = 0.0
        for number, words in enumerate(texts):
            every, p = exact_posterior(words)
            mine = assigned[number * copies : (number + 1) * copies, : len(words)]
            for k in range(3):
                expected = p @ (every == k)
                error = np.sqrt(expected * (1 - expected) / copies)
                worst = max(
                    worst, np.max(np.abs((mine == k).mean(axis=0) - expected) / error)
                )
        return worst

    kept = {"assignments": tf.constant(before, tf.int32)}
    assert deviations({**model.dataset, **kept}) < 4.5
    assert deviations(dict(model.dataset)) > 10


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("method", "keep", "jit_compile"),
    [("scir", False, False), ("sgrld", True, True)],
    ids=["SCIR", "SGRLD by XLA, topics kept"],
)
def test_a_chain_finds_topics_that_share_no_word(
    method: str, keep: bool, jit_compile: bool
) -> None:
    rng = np.random.default_rng(1)
    truth = np.kron(np.eye(2), np.full(5, 0.2))
    documents = np.stack([rng.multinomial(30, truth[i % 2]) for i in range(60)])
    model = lda(documents[:50], n_topics=2, n_sweeps=4)
    score = model.completion(documents[50:])
    chain = getattr(sgmcmc, method)(
        model.log_lik,
        model.dataset,
        model.start(seed=1),
        0.1,
        alpha=0.5,
        gibbs=model.gibbs,
        latents=model.latents if keep else None,
        minibatch_size=10,
        n_iters=100,
        burn_in=60,
        thin=25,
        reductions={"completion": score.perplexity(draws=4)},
        seed=1,
        verbose=False,
        jit_compile=jit_compile,
    )
    # Five words that are equally probable: the perplexity is 5 if the topics are known.
    found = chain.reductions["completion"]["perplexity"]
    assert np.isfinite(found).all() and 4.5 < found[-1] < 6
    best = {
        tuple(sorted(words))
        for words in top_words(chain["topics"].mean(0), range(10), n=5)
    }
    assert best == {tuple("01234"), tuple("56789")}


def test_seeds_and_sweeps_are_fresh() -> None:
    model = lda(np.full((8, 3), 3), n_topics=3)
    params = {"topics": tf.constant(TOPICS, tf.float32)}
    gibbs = tf.function(model.gibbs)
    one, again, other = (
        gibbs(params, model.dataset, tf.constant(seed))["assignments"].numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(one, again)
    assert np.any(one != other)
    documents = Documents(model.dataset["words"], model.dataset["lengths"])
    kept = sweeps.sweep_topics(
        params["topics"], documents, sweeps.Sweeps(0.1, 6, 3), tf.constant([1, 2])
    )
    for a, b in itertools.combinations(range(3), 2):
        assert np.any(kept[..., a] != kept[..., b])


def test_nothing_of_probability_zero_is_drawn() -> None:
    weights = tf.constant(
        [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1e-30], [3e-39, 0, 0, 0]]
    )
    for uniform in (0.0, 0.5, 1 - 2**-24):
        drawn = sweeps._draw(weights, tf.fill([4], uniform)).numpy().tolist()
        assert drawn[:2] == [2, -1] and drawn[2] == 0 and drawn[3] in (0, -1)


def test_words_that_no_topic_has_are_left_out_and_gradients_stay_finite() -> None:
    topics = tf.constant([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    model = lda([[2, 1, 1]], n_topics=2)
    drawn = model.gibbs({"topics": topics}, model.dataset, tf.constant([1, 2]))
    assert drawn["assignments"][0].numpy().tolist() == [0, 0, 1, -1]
    with tf.GradientTape() as tape:
        tape.watch(topics)
        value = model.log_lik({"topics": topics}, drawn)
    gradient = tape.gradient(value, topics)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    np.testing.assert_allclose(topics * gradient, [[2, 0, 0], [0, 1, 0]], rtol=1e-6)
