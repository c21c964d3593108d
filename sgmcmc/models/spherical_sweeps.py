"""Gibbs sweeps over the proportions of topics in spherical documents, many documents at once.

A document v has the direction r = Σ_k θ_k β_k, and θ the density

    p(θ | β, v) ∝ Π_k θ_k^(α − 1) exp(κ cos(v, r)),    cos(v, r) = v'r / ‖r‖.

A step moves one θ_k against all others, whose shares w_j = θ_j / (1 − θ_k) stay: with the odds
o = θ_k / (1 − θ_k) the direction is w'β + o β_k, on the great circle from w'β to β_k, and

    p(o | w, β, v) ∝ o^(α − 1) (1 + o)^(−Kα) exp(κ cos(o)).

Two slices make that an exact draw from a power law on an interval, without trial and error: a
level below κ cos(o), which is an arc, since the cosine along a great circle is R cos(φ − φ₀), and
one below (1 + o)^(−Kα), which is an upper bound; on what is left, o^α is uniform. No stepsize
has to be chosen, and α > 0 is arbitrary. Of the vocabulary only β v and ββ' are needed.
"""

from __future__ import annotations

import math

import tensorflow as tf

from sgmcmc.models.scores import nth_seed

# Bounds of the odds: no proportion becomes 0, because the others are divided by their sum
_LEAST, _MOST = 1e-30, 1e26

# Below this a squared length is rounding: topics that point against each other cancel
_SHORTEST = 1e-12


def mixed_lengths(proportions: tf.Tensor, gram: tf.Tensor) -> tf.Tensor:
    """Return ‖Σ_k θ_k β_k‖, of proportions (..., K) and ββ' (K, K)."""
    squares = tf.reduce_sum((proportions @ gram) * proportions, axis=-1)
    return tf.sqrt(tf.maximum(squares, _SHORTEST))


def sweep_proportions(
    cosines: tf.Tensor,
    gram: tf.Tensor,
    kappa: tf.Tensor,
    alpha: float,
    n_sweeps: int,
    seed: tf.Tensor,
    before: tf.Tensor,
    keep: int = 1,
) -> tf.Tensor:
    """Draw the proportions of the topics in each document, and keep those of the last sweeps.

    Args:
        cosines: v'β_k of each document and topic, (n, K).
        gram: β_j'β_k, (K, K).
        kappa: κ, a scalar.
        alpha: Dirichlet concentration of the proportions.
        n_sweeps: Number of sweeps; 0 leaves the proportions unchanged.
        seed: Two int32.
        before: Proportions to start from, positive, (n, K).
        keep: Number of the last sweeps that are kept.

    Returns:
        (n, keep, K).

    Source:
        The slices are those of Damien, Wakefield & Walker, JRSS B 61, 1999.
    """
    K, dtype = cosines.shape[1], cosines.dtype
    if K == 1 or n_sweeps == 0:
        return tf.repeat(before[:, tf.newaxis], keep, axis=1)
    dropped = n_sweeps - keep
    stored = tf.TensorArray(
        dtype, keep, element_shape=cosines.shape, clear_after_read=False
    )

    def one_sweep(
        sweep: tf.Tensor, proportions: tf.Tensor, stored: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        uniforms = tf.random.stateless_uniform(
            [K, 3, cosines.shape[0]], nth_seed(seed, sweep), dtype=dtype, alg="philox"
        )
        proportions = _sweep(
            proportions,
            cosines,
            gram,
            tf.cast(kappa, dtype),
            tf.constant(alpha, dtype),
            uniforms,
        )
        # A dropped sweep is written over by the first that is kept.
        return (
            sweep + 1,
            proportions,
            stored.write(tf.maximum(sweep - dropped, 0), proportions),
        )

    *_, stored = tf.while_loop(
        lambda sweep, *_: sweep < n_sweeps,
        one_sweep,
        (tf.constant(0), before, stored),
        parallel_iterations=1,
    )
    return tf.transpose(stored.stack(), [1, 0, 2])


@tf.function(jit_compile=True, autograph=False)
def _sweep(
    proportions: tf.Tensor,
    cosines: tf.Tensor,
    gram: tf.Tensor,
    kappa: tf.Tensor,
    alpha: tf.Tensor,
    uniforms: tf.Tensor,
) -> tf.Tensor:
    """Move each topic's proportion once; uniform numbers in [0, 1) are (K, 3, n)."""
    K = proportions.shape[1]

    def update(k: tf.Tensor, proportions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return k + 1, _update_topic(
            k,
            proportions,
            cosines,
            gram,
            kappa,
            alpha,
            tf.unstack(tf.gather(uniforms, k)),
        )

    start = (tf.constant(0), proportions)
    return tf.while_loop(lambda k, _: k < K, update, start, parallel_iterations=1)[1]


def _update_topic(
    k: tf.Tensor,
    proportions: tf.Tensor,
    cosines: tf.Tensor,
    gram: tf.Tensor,
    kappa: tf.Tensor,
    alpha: tf.Tensor,
    uniforms: list[tf.Tensor],
) -> tf.Tensor:
    """Draw θ_k of every document, and with it the scale of the others."""
    K = proportions.shape[1]
    indicator = tf.one_hot(k, K, dtype=proportions.dtype)
    remaining = proportions * (1 - indicator)
    total = tf.reduce_sum(remaining, axis=1, keepdims=True)
    shares = remaining / total
    odds = tf.gather(proportions, k, axis=1) / total[:, 0]

    across = shares @ gram
    length = tf.sqrt(tf.maximum(tf.reduce_sum(across * shares, axis=1), _SHORTEST))
    cosine = tf.clip_by_value(tf.gather(across, k, axis=1) / length, -1.0, 1.0)
    first = tf.clip_by_value(
        tf.reduce_sum(cosines * shares, axis=1) / length, -1.0, 1.0
    )
    low, high = _arc(
        odds, length, cosine, first, tf.gather(cosines, k, axis=1), kappa, uniforms[0]
    )

    bounded = tf.minimum(-tf.math.log1p(-uniforms[1]) / (K * alpha), math.log(_MOST))
    high = tf.minimum(high, odds + (1 + odds) * tf.math.expm1(bounded))
    low, high = (
        tf.minimum(low, odds),
        tf.clip_by_value(tf.maximum(high, odds), _LEAST, _MOST),
    )
    spread = uniforms[2] + (1 - uniforms[2]) * (low / high) ** alpha
    drawn = tf.clip_by_value(high * spread ** (1 / alpha), _LEAST, _MOST)[:, tf.newaxis]
    return (shares + drawn * indicator) / (1 + drawn)


def _arc(
    odds: tf.Tensor,
    length: tf.Tensor,
    cosine: tf.Tensor,
    first: tf.Tensor,
    target: tf.Tensor,
    kappa: tf.Tensor,
    uniform: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the odds between which κ cos stays above a level that is drawn below the present one.

    The direction is at the angle φ from the others' on their way to β_k, which is at ψ:
    o = ‖w'β‖ sin φ / sin(ψ − φ). The part of the level set that holds the present odds is an
    interval.

    Args:
        odds: Odds at present, (n,), like all of these.
        length: ‖w'β‖.
        cosine: Cos ψ.
        first: v'w'β / ‖w'β‖.
        target: v'β_k.
        kappa: κ, a scalar.
        uniform: Uniform numbers in [0, 1).
    """
    sine = tf.maximum(tf.sqrt((1 - cosine) * (1 + cosine)), 1e-6)
    psi = tf.atan2(sine, cosine)
    second = (target - cosine * first) / sine
    radius = tf.maximum(tf.sqrt(first**2 + second**2), _LEAST)
    phi = tf.atan2(odds * sine, length + odds * cosine)
    from_peak = phi - tf.atan2(second, first)
    from_peak -= 2 * math.pi * tf.round(from_peak / (2 * math.pi))
    level = tf.cos(from_peak) + tf.math.log1p(-uniform) / (kappa * radius)
    half_width = tf.acos(tf.clip_by_value(level, -1.0, 1.0))
    free = level <= -1.0
    low = tf.where(
        free, tf.zeros_like(phi), tf.maximum(phi - from_peak - half_width, 0.0)
    )
    high = tf.where(free, psi, phi - from_peak + half_width)
    inside = tf.minimum(high, psi * (1 - 1e-6))
    return (
        length * tf.sin(low) / tf.maximum(tf.sin(psi - low), _LEAST),
        tf.where(
            high < psi, length * tf.sin(inside) / tf.sin(psi - inside), _MOST * psi
        ),
    )
