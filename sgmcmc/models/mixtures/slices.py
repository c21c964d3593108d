"""The slice sampler's moves for the observations of a minibatch, given all components.

With weights w_j = v_j Π_{l<j} (1 − v_l) an observation in component z has a slice u ~ U(0, w_z),
and given it

    p(z = j | u, v, θ, x) ∝ 1(w_j > u) Π_w θ_jw^{x_w}.

The components above the slice are finitely many, and if u > Π_j (1 − v_j) over those that are held,
they are all among these.
"""

from __future__ import annotations

import tensorflow as tf


def log_weights(sticks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return log w_j of the components held, (K,), and log Π_j (1 − v_j), what is left for others.

    Args:
        sticks: v_j and 1 − v_j, (K, 2).
    """
    logs = tf.math.log(sticks)
    return logs[:, 0] + tf.cumsum(logs[:, 1], exclusive=True), tf.reduce_sum(logs[:, 1])


def word_table(words: tf.Tensor, lengths: tf.Tensor, n_words: int, dtype: tf.DType) -> tf.Tensor:
    """Return how often each word stands in each row, (n, W).

    Args:
        words: (n, T), with anything after the end of a row.
        lengths: words of each row, (n,).
        n_words: W.
        dtype: of the table.
    """
    rows = words.shape[0]
    place = tf.range(rows)[:, tf.newaxis] * n_words + words
    return tf.reshape(_add_up(place, there(words, lengths), rows * n_words, dtype), [rows, n_words])


def component_counts(
    component: tf.Tensor,
    words: tf.Tensor,
    lengths: tf.Tensor,
    shape: tuple[int, int],
    dtype: tf.DType,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return how many rows each component has, (K,), and how often each word, (K, W).

    Args:
        component: of each row, (n,).
        words: (n, T).
        lengths: words of each row, (n,).
        shape: K and W.
        dtype: of the counts.
    """
    K, W = shape
    rows = tf.math.unsorted_segment_sum(tf.ones(component.shape, dtype), component, K)
    place = component[:, tf.newaxis] * W + words
    return rows, tf.reshape(_add_up(place, there(words, lengths), K * W, dtype), [K, W])


def there(words: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Return which places of the rows hold a word, (n, T)."""
    return tf.range(words.shape[1]) < lengths[:, tf.newaxis]


def _add_up(place: tf.Tensor, counted: tf.Tensor, size: int, dtype: tf.DType) -> tf.Tensor:
    ones = tf.ones(place.shape, dtype)
    return tf.math.unsorted_segment_sum(ones, tf.where(counted, place, -1), size)


def draw_components(
    log_w: tf.Tensor,
    log_rest: tf.Tensor,
    log_lik: tf.Tensor,
    before: tf.Tensor,
    uniforms: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draw a slice and then a component for each row.

    A row without a component is given one with probability ∝ w_j Π_w θ_jw^{x_w}, of those held.

    Args:
        log_w: log w_j, (K,).
        log_rest: log Π_j (1 − v_j).
        log_lik: Σ_w x_w log θ_jw, (n, K).
        before: component of each row, int32 (n,), -1 for none.
        uniforms: uniform numbers in [0, 1), (2, n).

    Returns:
        The components, int32 (n,), and whether all slices are above what is left for components
        that are not held.
    """
    K, fresh = log_w.shape[0], before < 0
    present = tf.maximum(before, 0)
    # 1 − U is as uniform as U, and never zero.
    log_u = tf.gather(log_w, present) + tf.math.log1p(-uniforms[0])
    enough = tf.reduce_all(fresh | (log_u > log_rest))
    log_p = log_lik + tf.where(fresh[:, tf.newaxis], log_w, tf.zeros_like(log_w))
    # Of two roundings of the same number one may be the larger: the present one is always above.
    above = (log_w > log_u[:, tf.newaxis]) | (tf.range(K) == present[:, tf.newaxis])
    log_p = tf.where(above | fresh[:, tf.newaxis], log_p, -float("inf"))
    weights = tf.exp(log_p - tf.reduce_max(log_p, axis=1, keepdims=True))
    cumulative = tf.cumsum(weights, axis=1)
    # The limit is below the total, as U is below 1 by more than rounding, so one is always found.
    found = (cumulative > uniforms[1][:, tf.newaxis] * cumulative[:, -1:]) & (weights > 0)
    return tf.argmax(tf.cast(found, tf.int8), axis=1, output_type=tf.int32), enough
