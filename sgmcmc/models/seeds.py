"""Seeds of streams of random numbers that are told apart by a number."""

from __future__ import annotations

import tensorflow as tf


def nth_seed(seed: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Return the seed of the stream that has this number."""
    return tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
