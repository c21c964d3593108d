"""Document completion against enumeration, and what goes into a topic model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse

from sgmcmc.counts import Counts
from sgmcmc.models import documents, dp_mixture, lda, sam, top_words
from sgmcmc.models import topics as sweeps
from tests.models.topics.enumeration import (
    ALPHA,
    DOCUMENT,
    TOPICS,
    exact_posterior,
    one_hot_counts,
)


def test_held_out_words() -> None:
    table = np.random.default_rng(1).integers(0, 4, (6, 12))
    rest, document, word = documents.held_out(Counts.read(table), every=5)
    again = rest.toarray()
    np.add.at(again, (document, word), 1)
    np.testing.assert_array_equal(again, table)
    np.testing.assert_array_equal(np.bincount(document), table.sum(axis=1) // 5)


@pytest.mark.usefixtures("undivided")
def test_completion_agrees_with_enumeration() -> None:
    """One shown document, many copies: the mean predictive probability is the exact one."""
    copies = 2000
    score = lda([[1, 1, 1]], n_topics=3, alpha=ALPHA).completion(
        np.repeat([[2, 1, 2]], copies, axis=0), n_sweeps=20, every=5
    )
    assert score.word.numpy().tolist() == [2] * copies  # the last of 0 0 1 2 2
    probabilities = score.probabilities(
        tf.constant(TOPICS), tf.constant([1, 2])
    ).numpy()
    every, p = exact_posterior(DOCUMENT)
    proportions = (ALPHA + p @ one_hot_counts(every.T)) / (3 * ALPHA + 4)
    error = probabilities.std() / np.sqrt(copies)
    assert abs(probabilities.mean() - proportions @ TOPICS[:, 2]) < 4 * error


def test_perplexity_is_that_of_the_mean_over_draws() -> None:
    score = lda([[1, 1, 1]], n_topics=3).completion([[9, 5, 6], [0, 0, 1]])
    draws = [TOPICS, TOPICS[::-1] ** 2 / (TOPICS[::-1] ** 2).sum(axis=1, keepdims=True)]
    reduction = score.perplexity(draws=3, seed=7)
    state = reduction.start({"topics": tf.constant(TOPICS)}, tf.float64)
    update, each = tf.function(reduction.update), []
    for number, draw in enumerate(draws):
        state = update(state, {"topics": tf.constant(draw)})
        seed = sweeps.nth_seed(tf.constant([7, 0]), tf.constant(number))
        each.append(score.probabilities(tf.constant(draw), seed).numpy())
    found = reduction.result(state)
    expected = [
        np.exp(-np.log(np.mean(each[: i + 1], axis=0)).mean()) for i in range(2)
    ]
    np.testing.assert_allclose(found["perplexity"], [*expected, np.nan], rtol=1e-10)
    np.testing.assert_allclose(
        found["probabilities"], np.mean(each, axis=0), rtol=1e-10
    )


# ------------------------------------------------------------------------ what goes in


def test_counts_come_in_three_forms() -> None:
    table = np.random.default_rng(1).poisson(0.5, (7, 5))
    for form in (
        table,
        table.astype(float),
        sparse.csr_array(table),
        Counts.read(table),
    ):
        np.testing.assert_array_equal(Counts.read(form).toarray(), table)
    counts = Counts.read(table)
    for rows in (slice(1, 6, 2), [3, 0, 3], table[:, 0] > 0, np.array([], int)):
        np.testing.assert_array_equal(counts[rows].toarray(), table[rows])
    np.testing.assert_array_equal(counts.row_totals, table.sum(axis=1))
    assert "7 × 5" in repr(counts)
    with pytest.raises(TypeError, match="rows"):
        counts[3]


@pytest.mark.parametrize(
    ("counts", "changes", "error", "message"),
    [
        ([1, 2], {}, ValueError, "`counts` must have two axes"),
        (
            [[1, -2]],
            {},
            ValueError,
            "`counts` must hold integers of at least 0; it holds -2",
        ),
        ([[1, 0.5]], {}, ValueError, "it holds 0.5"),
        ([[1, np.nan]], {}, ValueError, "it holds nan"),
        ([["a", "b"]], {}, TypeError, "`counts` must hold integers; its dtype"),
        (np.zeros((0, 3)), {}, ValueError, "`counts` is empty"),
        ([[1, 2], [0, 0]], {}, ValueError, "`counts`: document 1 has no words"),
        ([[1, 2]], {"n_topics": 0}, ValueError, "`n_topics` must be an integer"),
        ([[1, 2]], {"n_topics": 2.5}, ValueError, "`n_topics` must be an integer"),
        ([[1, 2]], {"n_topics": 2**31}, ValueError, "too many topics"),
        ([[1, 2]], {"n_sweeps": True}, TypeError, "`n_sweeps` must be an integer"),
        ([[1, 2]], {"alpha": 0}, ValueError, "`alpha` must be positive and finite"),
        ([[1, 2]], {"alpha": "1"}, TypeError, "`alpha` must be a positive number"),
    ],
)
def test_wrong_arguments_are_named(
    counts: Any, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lda(counts, **{"n_topics": 2, **changes})


def test_wrong_arguments_of_the_methods_are_named() -> None:
    model = lda([[1, 2]], n_topics=2)
    params = {"topics": tf.constant([[0.5, 0.5]] * 2)}
    with pytest.raises(KeyError, match="gibbs=model.gibbs"):
        model.log_lik(params, model.dataset)
    with pytest.raises(ValueError, match="`concentration`"):
        model.start(concentration=-1.0)
    with pytest.raises(ValueError, match="`counts` has 3 words, and the model 2"):
        model.completion([[1, 2, 3]])
    with pytest.raises(ValueError, match="no document has 10 words"):
        model.completion([[1, 2]])
    with pytest.raises(ValueError, match="`every`"):
        model.completion([[1, 2]], every=0)
    with pytest.raises(ValueError, match="`draws`"):
        model.completion([[9, 9]]).perplexity(draws=0)
    with pytest.raises(ValueError, match="`topics` must have the shape"):
        top_words([[0.5, 0.5]], ["a"])
    with pytest.raises(ValueError, match="`n` must"):
        top_words([[0.5, 0.5]], ["a", "b"], n=0)


def test_starting_topics_are_positive_even_where_the_concentration_is_small() -> None:
    topics = lda([[1, 2, 3]], n_topics=4).start(seed=1, concentration=1e-4)["topics"]
    assert topics.min() > 0
    np.testing.assert_allclose(topics.sum(axis=1), 1)


@pytest.mark.parametrize("make", [lambda x: lda(x, 2), dp_mixture, lambda x: sam(x, 2)])
def test_rows_of_unequal_lengths(make: Any) -> None:
    with pytest.raises(ValueError, match="its rows have unequal lengths.*np.bincount"):
        make([[1, 2], [3]])
