"""Arithmetic operations of a graph, against those that are counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import tensorflow as tf

from sgmcmc.graphs.counting import count_operations
from sgmcmc.graphs.tracing import trace

SPECIAL = 20.0


def operations(function: Callable[..., Any], *sizes: int) -> float:
    return count_operations(trace(function, tf.zeros(sizes)).graph)


@tf.function
def squared(x: tf.Tensor) -> tf.Tensor:
    return x * x


def rounds(x: tf.Tensor, most: int | None) -> tf.Tensor:
    return tf.while_loop(
        lambda a: tf.reduce_sum(a) < 1.0,
        lambda a: (a * a,),
        (x,),
        maximum_iterations=most,
    )[0]


@pytest.mark.parametrize(
    ("function", "sizes", "expected"),
    [
        (lambda x: x + x, (7,), 7),
        (lambda x: tf.exp(x), (7,), SPECIAL * 7),
        (lambda x: tf.reduce_sum(x, 1), (3, 5), 15),
        (lambda x: tf.reshape(x, (15,)), (3, 5), 0),
        (lambda x: x @ tf.ones((5, 4)), (3, 5), 2 * 3 * 5 * 4),
        (
            lambda x: tf.linalg.matmul(x, tf.ones((3, 4)), transpose_a=True),
            (3, 5),
            2 * 3 * 5 * 4,
        ),
        (lambda x: tf.linalg.matvec(x, tf.ones(5)), (2, 3, 5), 2 * 2 * 3 * 5),
        (
            lambda x: tf.einsum("bij,jk->bik", x, tf.ones((5, 4))),
            (2, 3, 5),
            2 * 2 * 3 * 5 * 4,
        ),
        (lambda x: tf.linalg.cholesky(x), (2, 6, 6), 2 * 6**3 / 3),
        (lambda x: squared(x) + squared(x), (7,), 21),
        (
            lambda x: tf.cond(x[0] > 0, lambda: x, lambda: tf.exp(x)),
            (7,),
            SPECIAL * 7 + 4,
        ),
    ],
)
def test_operations_are_counted(
    function: Callable[..., Any], sizes: tuple[int, ...], expected: float
) -> None:
    # A slice of one number and a comparison cost a few operations more.
    assert operations(function, *sizes) == pytest.approx(expected, abs=4)


def test_rounds_of_loops_multiply() -> None:
    """A loop of a known largest number of rounds; each also adds, compares and sums."""
    ten, twenty = (operations(partial(rounds, most=most), 1000) for most in (10, 20))
    assert twenty == 2 * ten and ten >= 10 * 2 * 1000
    assert operations(partial(rounds, most=None), 1000) > ten


def test_numbers_of_sparse_matrices_count() -> None:
    def product(x: tf.SparseTensor) -> tf.Tensor:
        return tf.sparse.sparse_dense_matmul(x, tf.ones((5, 4)))

    matrix = tf.sparse.from_dense(tf.eye(5))
    assert count_operations(trace(product, matrix).graph, 5) == 2 * 5 * 4
