"""What a large posterior of the collection is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Large:
    """A model with its data and a start, as a user would write them.

    Attributes:
        about: The model in a few words.
        rows: Number of observations.
        dataset: Arrays with one row for each observation.
        params: Start.
        log_lik: Log-likelihood, one term for each observation.
        log_prior: Log-prior.
        bijectors: Bijectors by parameter.
        normal: Function that returns the exact mean and covariance of a normal posterior, or its
            covariance at some coordinates; ``None`` if it is not normal.
        judged: Function of parameters whose values, by name, are judged in their place; ``None``
            if they are judged themselves.
    """

    about: str
    rows: int
    dataset: Mapping[str, Any]
    params: Mapping[str, Any]
    log_lik: Callable[..., tf.Tensor]
    log_prior: Callable[..., tf.Tensor] | None = None
    bijectors: Mapping[str, Any] = field(default_factory=dict)
    normal: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None
    judged: Callable[[Mapping[str, Any]], Mapping[str, tf.Tensor]] | None = None

    @property
    def coordinates(self) -> int:
        """Number of coordinates."""
        return sum(int(np.size(value)) for value in self.params.values())


POSTERIORS: dict[str, Callable[[], Large]] = {}
"""Functions that make the posteriors, by name."""


def large(name: str) -> Callable[[Callable[[], Large]], Callable[[], Large]]:
    """Return what enters a function in the collection."""

    def enter(make: Callable[[], Large]) -> Callable[[], Large]:
        POSTERIORS[name] = make
        return make

    return enter
