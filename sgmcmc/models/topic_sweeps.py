"""Gibbs sweeps over the topics of the words, for many documents side by side.

With the proportions of the topics in a document integrated out, a word's topic given all others is

    p(z_i = k | z_-i, ω, w) ∝ (α + n_dk) ω_{k, w_i},

n_dk the number of the other words of document d with topic k. So the words of a document must be
visited one after another, but documents can be treated at the same time: a step of the loop
visits the i-th word of each. Documents are sorted by length, and as the short ones end the loop
goes on with half as many, so that little is computed for words that are not there.

One sweep is a separate cluster for XLA, which a plain graph may hold; the uniform numbers come
from outside.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sgmcmc.models.scores import nth_seed

_LEAST_WIDTH = 8  # a step for fewer documents than these takes no less time


def sweep_topics(
    topics: tf.Tensor,
    words: tf.Tensor,
    lengths: tf.Tensor,
    alpha: float,
    n_sweeps: int,
    seed: tf.Tensor,
    keep: int = 1,
    before: tf.Tensor | None = None,
) -> tf.Tensor:
    """Draw the topics of all words, and keep those after each of the last sweeps.

    Words without a topic count in no n_dk. So if none has one yet, the first sweep draws each
    given those that were visited before it.

    Args:
        topics: ω, the words' probabilities in each topic, (K, W).
        words: Documents, (n, T), in any order.
        lengths: Words in each document, (n,); the rest of its row is padding.
        alpha: Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Number of sweeps.
        seed: Two int32.
        keep: Number of the last sweeps that are kept.
        before: Topics to start from, int32 (n, T), -1 for none; ``None`` is none at all.

    Returns:
        int32 (n, T, keep): the topic of each word at the end of each kept sweep, or -1 if
        there is no word, or none of the topics gives it a positive probability.
    """
    order = tf.argsort(lengths, direction="DESCENDING")
    sorted_lengths = tf.gather(lengths, order)
    by_place = tf.transpose(tf.gather(words, order))
    by_word = tf.transpose(topics)
    dropped = n_sweeps - keep
    stored = tf.TensorArray(
        tf.int32, keep, element_shape=by_place.shape, clear_after_read=False
    )

    def one_sweep(
        sweep: tf.Tensor, assigned: tf.Tensor, counts: tf.Tensor, stored: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        uniforms = tf.random.stateless_uniform(
            by_place.shape, nth_seed(seed, sweep), dtype=topics.dtype, alg="philox"
        )
        assigned, counts = _sweep(
            by_word,
            by_place,
            sorted_lengths,
            tf.cast(alpha, topics.dtype),
            uniforms,
            assigned,
            counts,
        )
        # A dropped sweep is written over by the first that is kept.
        return (
            sweep + 1,
            assigned,
            counts,
            stored.write(tf.maximum(sweep - dropped, 0), assigned),
        )

    if before is None:
        assigned = tf.fill(by_place.shape, -1)
        counts = tf.zeros([by_place.shape[1], topics.shape[0]], topics.dtype)
    else:
        rows = tf.gather(before, order)
        assigned, counts = (
            tf.transpose(rows),
            topic_counts(rows, topics.shape[0], topics.dtype),
        )
    start = (tf.constant(0), assigned, counts, stored)
    *_, stored = tf.while_loop(
        lambda sweep, *_: sweep < n_sweeps, one_sweep, start, parallel_iterations=1
    )
    return tf.gather(tf.transpose(stored.stack(), [2, 1, 0]), tf.argsort(order))


@tf.function(jit_compile=True, autograph=False)
def _sweep(
    by_word: tf.Tensor,
    by_place: tf.Tensor,
    lengths: tf.Tensor,
    alpha: tf.Tensor,
    uniforms: tf.Tensor,
    assigned: tf.Tensor,
    counts: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Visit every word once, and return the topics after, and their counts.

    Args:
        by_word: ω transposed, (W, K).
        by_place: Words, (T, n), the longest document first.
        lengths: Lengths of the documents, (n,), descending.
        alpha: Dirichlet concentration.
        uniforms: Uniform numbers in [0, 1), (T, n).
        assigned: Topics before, (T, n), -1 for none.
        counts: Words of each topic in each document, (n, K).
    """
    after = tf.fill(assigned.shape, -1)
    position = tf.constant(0)
    widths = _widths(int(by_place.shape[1]))
    for width, narrower in zip(widths, [*widths[1:], 0], strict=True):
        end = lengths[
            narrower
        ]  # from there on no more than `narrower` documents have words

        def visit(
            i: tf.Tensor, counts: tf.Tensor, after: tf.Tensor, width: int = width
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            counts -= tf.one_hot(
                tf.gather(assigned, i)[:width], counts.shape[1], dtype=alpha.dtype
            )
            likelihood = tf.gather(by_word, tf.gather(by_place, i)[:width])
            drawn = _draw((alpha + counts) * likelihood, tf.gather(uniforms, i)[:width])
            drawn = tf.where(i < lengths[:width], drawn, -1)
            counts += tf.one_hot(drawn, counts.shape[1], dtype=alpha.dtype)
            row = tf.pad(drawn, [[0, after.shape[1] - width]], constant_values=-1)
            return (
                i + 1,
                counts,
                tf.tensor_scatter_nd_update(after, [[i]], row[tf.newaxis]),
            )

        position, active, after = tf.while_loop(
            lambda i, *_, end=end: i < end,
            visit,
            (position, counts[:width], after),
            parallel_iterations=1,
        )
        counts = tf.concat([active, counts[width:]], 0)
    return after, counts


def _widths(documents: int) -> list[int]:
    widths = [documents]
    while widths[-1] > _LEAST_WIDTH:
        widths.append(-(-widths[-1] // 2))
    return widths


def _draw(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Draw from each row of (n, K) by inversion; -1 if all weights are 0.

    Nothing of weight 0 is ever drawn, rounding or not: in ``log_lik`` it would be log 0.
    """
    K = weights.shape[1]
    # A product with a triangle of ones: with XLA's cumulative sum a sweep takes a third longer.
    ones = tf.linalg.band_part(tf.ones([K, K], weights.dtype), 0, -1)
    cumulative = weights @ ones
    limit = uniform[:, tf.newaxis] * cumulative[:, -1:]
    positive, topic = weights > 0, tf.range(K)
    first = tf.reduce_min(tf.where((cumulative > limit) & positive, topic, K), axis=1)
    return tf.minimum(first, tf.reduce_max(tf.where(positive, topic, -1), axis=1))


def topic_counts(assigned: tf.Tensor, n_topics: int, dtype: tf.DType) -> tf.Tensor:
    """Return the number of words of each document with each topic, (n, K).

    Topics are int32 (n, ...), -1 for none.
    """
    documents = assigned.shape[0]
    rows = tf.reshape(assigned, [documents, -1])
    cell = tf.range(documents)[:, tf.newaxis] * n_topics + rows
    counts = tf.math.unsorted_segment_sum(
        tf.ones(rows.shape, dtype), tf.where(rows >= 0, cell, -1), documents * n_topics
    )
    return tf.reshape(counts, [documents, n_topics])


def log_likelihood(
    topics: tf.Tensor, words: tf.Tensor, assigned: tf.Tensor, alpha: float
) -> tf.Tensor:
    """Return Σ_d Σ_i log Σ_k π_dik ω_{k, w_i}, whose derivative is the expected counts over ω.

    ``topics`` is ω, (K, W), ``words`` (n, T), and ``assigned`` the topic of each, -1 for no word.
    """
    concentration = tf.constant(alpha, topics.dtype)

    @tf.custom_gradient
    def of_topics(topics: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value, counts = _expected_counts(topics, words, assigned, concentration)
        return value, lambda upstream: upstream * tf.math.divide_no_nan(counts, topics)

    return of_topics(topics)


@tf.function(jit_compile=True, autograph=False)
def _expected_counts(
    topics: tf.Tensor, words: tf.Tensor, assigned: tf.Tensor, alpha: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the log-likelihood, and the expected counts of each topic and word, (K, W).

    Both come of one pass over (n, T, K) numbers, a separate cluster for XLA, which takes less
    than half of the time of separate operations and their derivatives.
    """
    K, W = topics.shape
    counts = topic_counts(assigned, K, topics.dtype)
    counts_of_others = counts[:, tf.newaxis] - tf.one_hot(
        assigned, K, dtype=topics.dtype
    )
    joint = (alpha + counts_of_others) * tf.gather(tf.transpose(topics), words)
    sums = tf.reduce_sum(joint, axis=2, keepdims=True)
    is_word = (assigned >= 0)[..., tf.newaxis] & (sums > 0)
    shares = tf.where(is_word, joint / sums, 0.0)
    expected = tf.math.unsorted_segment_sum(
        tf.reshape(shares, [-1, K]), tf.reshape(words, [-1]), W
    )
    totals = tf.reduce_sum(counts, axis=1)[:, tf.newaxis, tf.newaxis] + (K * alpha - 1)
    value = tf.reduce_sum(tf.math.log(tf.where(is_word, sums / totals, 1.0)))
    return value, tf.transpose(expected)
