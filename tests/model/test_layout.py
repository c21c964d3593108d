"""Long flat vectors: put together and filled without a concatenation, which XLA may be slow at."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from sgmcmc.data.dataset import Minibatch
from sgmcmc.model.geometry.space import Space
from sgmcmc.model.layout import LONGEST_CONCATENATION, Layout, joined
from sgmcmc.model.target import Target

SHAPES = {"out": (30, 4), "hidden": (60, 40), "a": (4,), "b": (40,), "log_scale": ()}
LAYOUT = Layout(SHAPES)


def _parts(vector: tf.Tensor) -> list[tf.Tensor]:
    return list(LAYOUT.split(vector).values())


@pytest.fixture(scope="module")
def vectors() -> tuple[tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, LAYOUT.size)).astype(np.float32)
    return tf.constant(x), tf.constant(y)


def test_the_vector_is_long_enough_to_be_written() -> None:
    assert LAYOUT.size * tf.float32.size > LONGEST_CONCATENATION


@pytest.mark.parametrize("jit_compile", [False, True])
def test_written_over_another_vector_parts_are_where_they_belong(
    vectors, jit_compile
) -> None:
    x, y = vectors

    @tf.function(jit_compile=jit_compile)
    def both(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            whole = joined(_parts(x), onto=y)
            value = tf.reduce_sum(whole**2)
        return whole, tape.gradient(value, [x, y], unconnected_gradients="zero")

    whole, (slope, of_what_was_there) = both(x, y)
    np.testing.assert_array_equal(whole, x)
    np.testing.assert_array_equal(slope, 2 * x)
    np.testing.assert_array_equal(of_what_was_there, np.zeros(LAYOUT.size))


def test_short_vectors_and_those_of_another_length_are_concatenated(vectors) -> None:
    x, y = vectors
    np.testing.assert_array_equal(joined(_parts(x)[2:], onto=y[:45]), x[-45:])
    np.testing.assert_array_equal(joined(_parts(x), onto=y[:-1]), x)


def test_one_value_for_each_array_is_spread(vectors) -> None:
    values = np.arange(5, dtype=np.float32)
    expected = np.repeat(values, list(LAYOUT.sizes.values()))
    np.testing.assert_array_equal(LAYOUT.per_coordinate(tf.constant(values)), expected)


def _log_lik(params, data):
    hidden = tf.nn.softmax(data["X"] @ params["hidden"] + params["b"])
    scale = tf.exp(params["log_scale"])
    return (
        -tf.reduce_sum((hidden[:, :30] @ params["out"] + params["a"] - data["y"]) ** 2)
        * scale
    )


def test_a_chain_s_gradient_has_no_long_concatenation(vectors) -> None:
    """Nor anything else that runs through more places of a part than it has."""
    target = Target(_log_lik, None, Space(SHAPES), tf.float32)
    rng = np.random.default_rng(2)
    X, y = (tf.constant(rng.random((50, k), dtype=np.float32)) for k in (60, 4))

    @tf.function(jit_compile=True)
    def chain(position, X, y):
        minibatch = Minibatch({"X": X, "y": y}, 2.0)
        values = tf.constant([1e-4, 2e-4, 1e-4, 1e-4, 1e-4])

        def step(i, position, gradient):
            position += (
                LAYOUT.per_coordinate(values * tf.cast(i, tf.float32)) * gradient
            )
            return i + 1, position, target.gradient(position, minibatch)

        return tf.while_loop(lambda i, *_: i < 3, step, (0, position, position))[1:]

    compiled = chain.experimental_get_compiler_ir(vectors[0], X, y)(
        stage="optimized_hlo"
    )
    long = re.findall(rf"(\w+ )?%?\S+ = f32\[{LAYOUT.size}\]\S* ([\w-]+)\(", compiled)
    assert long
    assert not [op for _, op in long if op in ("concatenate", "pad")]
    writes = [root for root, op in long if op == "dynamic-update-slice"]
    assert writes == ["ROOT "] * len(SHAPES)
