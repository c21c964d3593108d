"""The result: draws of a network, predictions, report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from sgmcmc.ensembles.network import Array, Weights, chunked
from sgmcmc.ensembles.report import mixture
from sgmcmc.keras.parts import Parts
from sgmcmc.results.report import Report
from sgmcmc.results.samples import Samples

_NUMBERS = 2**24
"""Largest number of features and outputs that predictions hold at a time."""


@dataclass(frozen=True)
class SampledNetwork:
    """The draws of a network; :func:`sgmcmc.keras.sample_network` makes it.

    Attributes:
        samples: Weights by layer and kind, a chain for each member, (members, draws, ...); none if
            weights were not stored.
        report: Report on held-out rows: log density of the best member, of the trained members
            together and of the draws, gains, calibration, disagreement of members, warnings.
        predictions: Outputs at the rows of ``predict_at``, (members, draws, n, ...), or ``None``.

    Example:
        >>> import keras, numpy as np, sgmcmc.keras
        >>> X = np.random.default_rng(1).normal(size=(200, 2)).astype("float32")
        >>> network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        >>> fit = sgmcmc.keras.sample_network(
        ...     network, (X, X.sum(1, keepdims=True)), "mean_squared_error", members=1, epochs=20,
        ...     n_iters=50, draws=10, seed=1, verbose=False)
        >>> fit.predict(X[:3]).shape, len(fit.samples)
        ((3, 1), 2)
    """

    samples: Samples
    report: Report
    predictions: Array | None
    _parts: Parts = field(repr=False)

    def predict(self, X: Any, function: Any = None) -> Array:
        """Return the mean over all draws of a function of the network's outputs.

        Args:
            X: Features, in the form of those that were sampled.
            function: Function of outputs (n, ...) that returns a tensor with a first axis of n, or
                the name of an activation of Keras, such as ``"softmax"``; ``None`` for the outputs
                themselves.

        Returns:
            An array with a first axis of n, float64.

        Raises:
            ValueError: No weights were stored.
        """
        import keras

        activation = keras.activations.get(function)
        return self._over_draws(X, None, lambda outputs, _: activation(outputs), np.mean)

    def log_score(self, X: Any, y: Any) -> float:
        """Return the mean log predictive density of targets: that of the mixture of all draws.

        Args:
            X: Features.
            y: Targets.

        Raises:
            ValueError: No weights were stored.
        """

        def density(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            return self._parts.log_density(targets, outputs)

        return float(self._over_draws(X, np.asarray(y), density, lambda a, _: mixture(a)).mean())

    def _over_draws(self, X: Any, y: Array | None, function: Any, reduce: Any) -> Array:
        """Return reduced values of a function of outputs and targets, in pieces of rows."""
        if not len(self.samples):
            raise ValueError("`store_weights` was False: only `predictions` were kept.")
        draws = {
            name: np.asarray(each).reshape(-1, *each.shape[2:])
            for name, each in self.samples.items()
        }
        count = len(next(iter(draws.values())))
        features, found = self._parts.features(self._parts.typed(X)), []

        @tf.function(autograph=False, reduce_retracing=True)
        def value(weights: Weights, rows: tf.Tensor, targets: Any) -> tf.Tensor:
            return function(self._parts.outputs(weights, rows), targets)

        for part in chunked(len(features), _NUMBERS, count + int(np.prod(features.shape[1:]))):
            rows = tf.constant(features[part])
            targets = None if y is None else tf.constant(y[part])
            each = [
                value({name: tf.constant(a[k]) for name, a in draws.items()}, rows, targets)
                for k in range(count)
            ]
            found.append(reduce(np.asarray(each, np.float64), 0))
        return np.concatenate(found)
