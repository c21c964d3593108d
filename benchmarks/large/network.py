"""Hamiltonian Monte Carlo of the small network, long trajectories of many chains at once.

Momenta have the identity as their covariance, as the network's weights have no common scale that
holds from mode to mode. Chains start at random.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from benchmarks.large.base import Large

CHAINS, MOVES, BURN_IN = 16, 240, 60
LENGTH, ACCEPTED, FIRST = 1.5, 0.8, 0.002
Weights = dict[str, tf.Tensor]


def network(posterior: Large) -> dict[str, np.ndarray]:
    """Return draws of the weights."""
    data = {name: tf.constant(array) for name, array in posterior.dataset.items()}
    rng = np.random.default_rng(20261126)

    def log_density(weights: Weights) -> tf.Tensor:
        def one(own: Weights) -> tf.Tensor:
            return tf.reduce_sum(posterior.log_lik(own, data)) + posterior.log_prior(
                own
            )

        return tf.vectorized_map(one, weights)

    def at(weights: Weights) -> tuple[tf.Tensor, Weights]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = log_density(weights)
        return value, tape.gradient(value, weights)

    @tf.function(jit_compile=True)
    def moved(weights: Weights, momenta: Weights, step: tf.Tensor, steps: tf.Tensor):
        def turned(momenta: Weights, pull: Weights) -> Weights:
            return {name: momenta[name] + 0.5 * step * pull[name] for name in momenta}

        def leap(k, weights, momenta, pull, value):
            momenta = turned(momenta, pull)
            weights = {name: weights[name] + step * momenta[name] for name in weights}
            value, pull = at(weights)
            return k + 1, weights, turned(momenta, pull), pull, value

        value, pull = at(weights)
        before = value - _half_square(momenta)
        _, new, momenta, _, value = tf.while_loop(
            lambda k, *_: k < steps, leap, (0, weights, momenta, pull, value)
        )
        return new, value - _half_square(momenta) - before

    weights = {
        name: tf.constant(rng.normal(size=(CHAINS, *np.shape(start))) * 0.3, tf.float32)
        for name, start in posterior.params.items()
    }
    step, kept = FIRST, {name: [] for name in weights}
    for move in range(BURN_IN + MOVES):
        momenta = {
            name: tf.constant(rng.standard_normal(array.shape), tf.float32)
            for name, array in weights.items()
        }
        steps = max(1, round(rng.uniform(0.8, 1.2) * min(LENGTH, 500 * step) / step))
        new, gain = moved(
            weights, momenta, tf.constant(step, tf.float32), tf.constant(steps)
        )
        gain = np.nan_to_num(gain.numpy().astype(float), nan=-np.inf)
        taken = np.log(rng.random(CHAINS)) < gain
        weights = {
            name: tf.where(
                np.reshape(taken, (-1, *[1] * (len(array.shape) - 1))), new[name], array
            )
            for name, array in weights.items()
        }
        if move < BURN_IN:
            step *= float(
                np.exp(0.2 * (np.exp(np.minimum(gain, 0.0)).mean() - ACCEPTED))
            )
        else:
            for name, array in weights.items():
                kept[name].append(array.numpy())
    return {name: np.stack(values, 1) for name, values in kept.items()}


def _half_square(momenta: Weights) -> tf.Tensor:
    return 0.5 * tf.add_n(
        [tf.reduce_sum(p**2, tuple(range(1, len(p.shape)))) for p in momenta.values()]
    )
