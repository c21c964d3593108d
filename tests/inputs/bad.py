"""Calls that must be refused: what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

NAN, INF = float("nan"), float("inf")
TWO = {"theta": 0.0, "phi": [1.0, 2.0]}
X = np.linspace(-1.0, 1.0, 20)


def log_lik(params: dict[str, tf.Tensor], dataset: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return a log-likelihood that uses whatever parameters there are."""
    center = sum(tf.reduce_sum(value) for value in params.values())
    return -0.5 * tf.reduce_sum((dataset["x"] - center) ** 2)


@dataclass(frozen=True)
class Bad:
    """A call that must be refused.

    Attributes:
        arguments: what is wrong with it; the rest is as it should be.
        error: the exception expected.
        says: parts of the message.
        method: the function called.
    """

    arguments: dict[str, Any]
    error: type[Exception]
    says: tuple[str, ...]
    method: str = "sgld"


def bad_value(*says: str, method: str = "sgld", **arguments: Any) -> Bad:
    """Return a call refused with ValueError."""
    return Bad(arguments, ValueError, says, method)


def bad_type(*says: str, method: str = "sgld", **arguments: Any) -> Bad:
    """Return a call refused with TypeError."""
    return Bad(arguments, TypeError, says, method)


def returning(value: Any) -> Callable[..., Any]:
    """Return a user's function that returns a constant."""
    return lambda *_: value


def fails(*_: Any) -> tf.Tensor:
    """Stand for a user's function with a bug of its own."""
    raise ArithmeticError("the matrix is not positive definite")
