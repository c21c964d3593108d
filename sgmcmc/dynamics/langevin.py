"""Pieces of Langevin dynamics that several samplers are made of."""

from __future__ import annotations

import tensorflow as tf


def overdamped(
    position: tf.Tensor, gradient: tf.Tensor, stepsize: tf.Tensor, normals: tf.Tensor
) -> tf.Tensor:
    """Return θ + (ε/2) ĝ(θ) + √ε η."""
    return position + 0.5 * stepsize * gradient + tf.sqrt(stepsize) * normals


def baoa(
    position: tf.Tensor,
    momentum: tf.Tensor,
    gradient: tf.Tensor,
    stepsize: tf.Tensor,
    friction: tf.Tensor,
    normals: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return θ and ν after the first four stages of BAOAB, which lacks only a closing half kick.

    ν += (ε/2) ĝ(θ); θ += ν/2; ν ← cν + √(ε(1 − c²)) ζ with c = e^(−friction); θ += ν/2.
    """
    decay = tf.exp(-friction)
    # −expm1 keeps 1 − c² exact for the small friction that people use.
    spread = tf.sqrt(-stepsize * tf.math.expm1(-2.0 * friction))
    momentum += 0.5 * stepsize * gradient
    position += 0.5 * momentum
    momentum = decay * momentum + spread * normals
    position += 0.5 * momentum
    return position, momentum
