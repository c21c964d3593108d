"""The likelihood of ratings given factors and biases, with its gradient in two scatters."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sgmcmc.data.minibatch import Tensors


def predicted(params: Tensors, user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
    """Return U_i·V_j + a_i + b_j for each user i and item j, (n,).

    The gradient puts the derivatives of a user's factors and bias together, so that they are added
    up in one pass over the rows, and those of an item in another. Adding up is what takes the
    time: twice as long if factors and biases were added up one by one.

    Args:
        params: ``"U"`` (L, D), ``"V"`` (M, D), ``"a"`` (L,), ``"b"`` (M,).
        user: number of each rating's user, int32 (n,).
        item: number of each rating's item, int32 (n,).
    """

    @tf.custom_gradient
    def of(U: tf.Tensor, V: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Any]:
        of_user, of_item = tf.gather(U, user), tf.gather(V, item)
        means = tf.reduce_sum(of_user * of_item, 1) + tf.gather(a, user) + tf.gather(b, item)

        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            each = upstream[:, tf.newaxis]
            users = _added(each, of_item, user, U.shape[0])
            items = _added(each, of_user, item, V.shape[0])
            return users[:, 1:], items[:, 1:], users[:, 0], items[:, 0]

        return means, gradients

    return of(params["U"], params["V"], params["a"], params["b"])


def _added(each: tf.Tensor, factors: tf.Tensor, number: tf.Tensor, size: int) -> tf.Tensor:
    """Return Σ e (1, factors) over the rows of each number, (size, 1 + D)."""
    rows = tf.concat([each, each * factors], 1)
    return tf.math.unsorted_segment_sum(rows, number, size)
