"""Log-likelihood and log-prior at a temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import tensorflow as tf


@dataclass(frozen=True)
class Tempered:
    """A function of the model divided by a temperature.

    Args:
        function: Log-likelihood or log-prior.
        temperature: T, positive.
    """

    function: Callable[..., tf.Tensor]
    temperature: float

    def __call__(self, *arguments: Any) -> tf.Tensor:
        """Return the value of the function divided by T."""
        return tf.convert_to_tensor(self.function(*arguments)) / self.temperature


def tempered(function: Any, temperature: float) -> Any:
    """Return a function at a temperature: as it is at 1, or if there is none."""
    if temperature == 1.0 or function is None:
        return function
    return Tempered(function, temperature)


def untempered(function: Any) -> Any:
    """Return the user's function, which may have been divided by a temperature."""
    return cast(Any, function).function if isinstance(function, Tempered) else function
