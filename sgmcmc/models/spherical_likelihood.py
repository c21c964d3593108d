"""Likelihood of documents in the spherical admixture model, and Gibbs sweeps over proportions.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.scores import ProbabilityScores, nth_seed, score_probabilities

# Bounds of the odds: no proportion becomes 0, because the others are divided by their sum
_LEAST, _MOST = 1e-30, 1e26


# Below this a squared length is rounding: topics that point against each other cancel
_SHORTEST = 1e-12


def document_cosines(topics: tf.Tensor, documents: Tensors) -> tf.Tensor:
    """Return v'β_k of each document and topic, (n, K), given topics (K, W).

    Documents are ``"vectors"`` (n, W), or ``"places"`` and ``"values"`` (n, T) of their entries.
    """
    vectors = documents.get("vectors")
    if vectors is None:
        coordinates, values = documents["places"], documents["values"]
        # A dense table of a few documents: products with it are faster than (n, T, K) numbers.
        rows = tf.broadcast_to(
            tf.range(coordinates.shape[0])[:, tf.newaxis], coordinates.shape
        )
        shape = [coordinates.shape[0], topics.shape[1]]
        vectors = tf.scatter_nd(tf.stack([rows, coordinates], axis=2), values, shape)
    return tf.matmul(tf.cast(vectors, topics.dtype), topics, transpose_b=True)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Documents whose likelihood is estimated given topics.

    Made by :meth:`SphericalTopicModel.held_out`.

    Args:
        documents: Unit vectors, as columns.
        prior: Proportions drawn from their prior, (P, K).
        kappa: κ, the concentration of documents around their mixture of topics.
        alpha: Dirichlet concentration of the proportions.
        n_temperatures: T, steps from the prior to the posterior of a document's proportions.
        n_words: W, the coordinates of a document.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from scipy.special import i0
        >>> from sgmcmc.models import sam
        >>> task = sam([[3, 4]], n_topics=1, kappa=10.0).held_out([[0, 2]])
        >>> topics = tf.constant([[0.0, 1.0]])  # the very direction of the document
        >>> found = task.log_likelihood(topics, seed=tf.constant([1, 2]))
        >>> bool(abs(found[0] - (10 - np.log(2 * np.pi * i0(10.0)))) < 1e-4)
        True

    Source:
        Liu, Zhu & Song, NeurIPS 2016, section 5.3; Neal, Statistics and Computing 11, 2001.
    """

    documents: Tensors
    prior: tf.Tensor
    kappa: float
    alpha: float
    n_temperatures: int
    n_words: int

    def log_likelihood(self, topics: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return an estimate of log p(v | β) for each document, in float64.

        p(v | β) = c_W(κ) E exp(κ cos(v, r)), r = Σ_k θ_k β_k, over θ ~ Dir(α, ..., α). With T = 1
        the mean is over the P draws from the prior: importance sampling. Else these go on
        by Gibbs sweeps at the temperatures b_t = (t/T)³, and

            p̂ = c_W(κ) (1/P) Σ_p exp(Σ_t (b_t − b_{t−1}) κ cos(v, r_{p,t−1})),

        annealed importance sampling. Either estimate of p is unbiased, so its logarithm is too
        small on average, by half of the variance of p̂/p; that of T = 1 by very much if κ is
        large.

        Args:
            topics: β, (K, W).
            seed: Two int32, for the Gibbs sweeps.

        Returns:
            (documents,).
        """
        relative = tf.cast(self._relative(topics, seed), tf.float64)
        return relative + log_normalizer(self.kappa, self.n_words)

    def _relative(self, topics: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return the estimates less log c_W(κ), in the dtype of the topics."""
        cosines = document_cosines(topics, self.documents)
        gram = topics @ tf.transpose(topics)
        D, P = cosines.shape[0], self.prior.shape[0]
        kappa = tf.constant(self.kappa, topics.dtype)
        prior = tf.cast(self.prior, topics.dtype)
        if self.n_temperatures == 1:
            products = tf.matmul(cosines, prior, transpose_b=True)
            logs = kappa * products / mixed_lengths(prior, gram)
        else:
            posterior = Conditional(tf.repeat(cosines, P, 0), gram, kappa, self.alpha)
            logs = self._annealed(posterior, tf.tile(prior, [D, 1]), seed)
            logs = tf.reshape(logs, [D, P])
        return tf.reduce_logsumexp(logs, axis=1) - np.log(P)

    def _annealed(
        self, posterior: Conditional, prior: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """Return the log weight of each row of proportions, (documents · P,)."""
        cosines, gram, kappa, _ = posterior
        T = self.n_temperatures

        def temperature(t: tf.Tensor) -> tf.Tensor:
            # Most are small, where weights vary most.
            return (tf.cast(t, gram.dtype) / T) ** 3.0

        def one(
            t: tf.Tensor, proportions: tf.Tensor, logs: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            products = tf.reduce_sum(cosines * proportions, axis=1)
            cosine = products / mixed_lengths(proportions, gram)
            logs += (temperature(t + 1) - temperature(t)) * kappa * cosine
            tempered = posterior._replace(kappa=kappa * temperature(t + 1))
            drawn = sweep_proportions(tempered, 1, nth_seed(seed, t), proportions)
            return t + 1, drawn[:, 0], logs

        start = (tf.constant(0), prior, tf.zeros_like(prior[:, 0]))
        return tf.while_loop(lambda t, *_: t < T, one, start, parallel_iterations=1)[2]

    def log_perplexity(
        self, draws: int, seed: int = 0, parameter: str = "topics"
    ) -> Reduction:
        """Return the reduction that follows the log-perplexity along a chain.

        −(1/D) Σ_d log((1/M) Σ_m p̂(v_d | β_m)) over the M draws seen so far. Densities are with
        respect to the area of the sphere, which is tiny in many dimensions: values are negative
        and large; differences are what counts.

        Args:
            draws: Number of draws that the chain keeps, ``n_iters // thin``.
            seed: Seed of the Gibbs sweeps, which are fresh at each draw.
            parameter: Name of the topics among the parameters.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of ``"log_perplexity"`` (draws,) after each
            draw, NaN if there was none, and ``"log_likelihood"`` (documents,), the last
            logarithms of the mean.

        Raises:
            TypeError: ``draws`` is not a number.
            ValueError: It is not an integer ≥ 1.

        Example:
            >>> import numpy as np, tensorflow as tf
            >>> from scipy.special import i0
            >>> from sgmcmc.models import sam
            >>> task = sam([[1, 1]], n_topics=1, kappa=10.0).held_out([[0, 1]])
            >>> score, topics = task.log_perplexity(draws=1), {"topics": tf.constant([[0.0, 1.0]])}
            >>> state = score.update(score.start(topics, tf.float32), topics)
            >>> found = score.result(state)["log_perplexity"][0]
            >>> bool(abs(found + 10 - np.log(2 * np.pi * i0(10.0))) < 1e-4)
            True

        Source:
            Liu, Zhu & Song, NeurIPS 2016, section 5.3.
        """

        def relative(params: Tensors, at: tf.Tensor) -> tf.Tensor:
            return self._relative(params[parameter], at)

        def scores(mean: tf.Tensor, new: tf.Tensor) -> Tensors:
            return {"scores": -tf.reduce_mean(mean)}

        def finish(state: Tensors) -> Tensors:
            constant = log_normalizer(self.kappa, self.n_words)
            seen = tf.cast(tf.maximum(state["count"], 1), tf.float64)
            mean = tf.cast(state["total"], tf.float64) - tf.math.log(seen)
            return {
                "log_perplexity": tf.cast(state["scores"], tf.float64) - constant,
                "log_likelihood": mean + constant,
            }

        size = next(iter(self.documents.values())).shape[0]
        log_perplexity = ProbabilityScores(["scores"], size, relative, scores, finish)
        return score_probabilities(draws, log_perplexity, seed)


def log_normalizer(kappa: tf.Tensor | float, dimension: int) -> tf.Tensor:
    """Return log c_d(κ), with vMF(x | μ, κ) = c_d(κ) exp(κ μ'x) on the unit vectors of ℝᵈ.

    c_d(κ) = κ^ν / ((2π)^(d/2) I_ν(κ)) with ν = d/2 − 1, a density with respect to the area of the
    sphere. It is computed in float64: for thousands of dimensions log I_ν is in the tens of
    thousands, where SciPy's I_ν is 0. Its derivative is −A_d(κ), the mean of μ'x.

    Args:
        kappa: κ, positive, of any shape.
        dimension: d, at least 2.

    Returns:
        float64, of the shape of ``kappa``.

    Example:
        >>> round(math.exp(-log_normalizer(1e-6, 3)) / math.pi, 4)  # the area of the sphere, 4π
        4.0

    Source:
        Liu, Zhu & Song, NeurIPS 2016, section 4; Mardia & Jupp, Directional Statistics, 2000.
    """
    wide = tf.cast(kappa, tf.float64)
    order = 0.5 * dimension - 1
    powers = order * tf.math.log(wide) - 0.5 * dimension * math.log(2 * math.pi)
    return powers - _log_bessel(order)(wide)


def _log_bessel(order: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return log I_ν, from large orders down by I_{μ−1}/I_μ = 2μ/x + I_{μ+1}/I_μ.

    Its derivative is I_{ν+1}/I_ν + ν/x.
    """
    # From this order on the expansion is right to 1e-6; smaller ones are stepped down to.
    # TensorFlow Probability has log I_ν too, exactly, but with a separate loop for each kind of
    # order: a chain whose prior has it takes seconds longer to compile.
    smallest = 15
    steps = max(0, math.ceil(smallest - order))
    top = order + steps

    @tf.custom_gradient
    def log_bessel(x: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value = _expanded(top, x)
        ratio = tf.exp(_expanded(top + 1, x) - value)
        for step in range(steps):
            grown = 2 * (top - step) / x + ratio
            value, ratio = value + tf.math.log(grown), 1 / grown
        return value, lambda upstream: upstream * (ratio + order / x)

    return log_bessel


def _expanded(order: float, x: tf.Tensor) -> tf.Tensor:
    """Return log I_ν(x) by the uniform expansion for large orders.

    With z = x/ν, s = √(1 + z²), p = 1/s: ν(s + log(z/(1 + s))) − log(2πνs)/2 + log Σ_k U_k(p)/ν^k.

    Source:
        NIST Digital Library of Mathematical Functions, equations 10.41.3 and 10.41.10.
    """
    z = x / order
    s = tf.sqrt(1 + z * z)
    p, q = 1 / s, 1 / (1 + z * z)
    series = (
        p * (3 - 5 * q) / 24 / order
        + q * (81 + q * (-462 + q * 385)) / 1152 / order**2
        + p
        * q
        * (30375 + q * (-369603 + q * (765765 - q * 425425)))
        / 414720
        / order**3
        + q**2
        * (
            4465125
            + q * (-94121676 + q * (349922430 + q * (-446185740 + q * 185910725)))
        )
        / 39813120
        / order**4
    )
    exponent = order * (s + tf.math.log(z / (1 + s)))
    return exponent - 0.5 * tf.math.log(2 * math.pi * order * s) + tf.math.log1p(series)


def mixed_lengths(proportions: tf.Tensor, gram: tf.Tensor) -> tf.Tensor:
    """Return ‖Σ_k θ_k β_k‖, of proportions (..., K) and ββ' (K, K)."""
    squares = tf.reduce_sum((proportions @ gram) * proportions, axis=-1)
    return tf.sqrt(tf.maximum(squares, _SHORTEST))


class Conditional(NamedTuple):
    """The distribution of proportions given topics and documents, p(θ | β, v).

    Attributes:
        cosines: v'β_k of each document and topic, (n, K).
        gram: β_j'β_k, (K, K).
        kappa: κ, a scalar.
        alpha: Dirichlet concentration of the proportions.
    """

    cosines: tf.Tensor
    gram: tf.Tensor
    kappa: tf.Tensor
    alpha: Any


def sweep_proportions(
    conditional: Conditional,
    n_sweeps: int,
    seed: tf.Tensor,
    before: tf.Tensor,
    keep: int = 1,
) -> tf.Tensor:
    """Draw the proportions of the topics in each document, and keep those of the last sweeps.

    Args:
        conditional: Distribution of the proportions.
        n_sweeps: Number of sweeps; 0 leaves the proportions unchanged.
        seed: Two int32.
        before: Proportions to start from, positive, (n, K).
        keep: Number of the last sweeps that are kept.

    Returns:
        (n, keep, K).

    Source:
        The slices are those of Damien, Wakefield & Walker, JRSS B 61, 1999.
    """
    shape, dtype = conditional.cosines.shape, conditional.cosines.dtype
    documents, K = shape
    if K == 1 or n_sweeps == 0:
        return tf.repeat(before[:, tf.newaxis], keep, axis=1)
    target = conditional._replace(
        kappa=tf.cast(conditional.kappa, dtype),
        alpha=tf.constant(conditional.alpha, dtype),
    )
    dropped = n_sweeps - keep
    stored = tf.TensorArray(dtype, keep, element_shape=shape, clear_after_read=False)

    def one_sweep(
        sweep: tf.Tensor, proportions: tf.Tensor, stored: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        uniforms = tf.random.stateless_uniform(
            [K, 3, documents], nth_seed(seed, sweep), dtype=dtype, alg="philox"
        )
        proportions = _sweep(proportions, target, uniforms)
        # A dropped sweep is written over by the first that is kept.
        stored = stored.write(tf.maximum(sweep - dropped, 0), proportions)
        return sweep + 1, proportions, stored

    *_, stored = tf.while_loop(
        lambda sweep, *_: sweep < n_sweeps,
        one_sweep,
        (tf.constant(0), before, stored),
        parallel_iterations=1,
    )
    return tf.transpose(stored.stack(), [1, 0, 2])


@tf.function(jit_compile=True, autograph=False)
def _sweep(
    proportions: tf.Tensor, conditional: Conditional, uniforms: tf.Tensor
) -> tf.Tensor:
    """Move each topic's proportion once; uniform numbers in [0, 1) are (K, 3, n)."""
    K = proportions.shape[1]

    def update(k: tf.Tensor, proportions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_topic = tf.unstack(tf.gather(uniforms, k))
        return k + 1, _update_topic(k, proportions, conditional, of_topic)

    start = (tf.constant(0), proportions)
    return tf.while_loop(lambda k, _: k < K, update, start, parallel_iterations=1)[1]


class _Circle(NamedTuple):
    """The great circle from the direction of the other topics, w'β, to β_k, by document.

    Attributes:
        length: ‖w'β‖.
        cosine: Cos ψ, ψ the angle between the two.
        first: v'w'β / ‖w'β‖.
        target: v'β_k.
    """

    length: tf.Tensor
    cosine: tf.Tensor
    first: tf.Tensor
    target: tf.Tensor


def _update_topic(
    k: tf.Tensor,
    proportions: tf.Tensor,
    conditional: Conditional,
    uniforms: list[tf.Tensor],
) -> tf.Tensor:
    """Draw θ_k of every document, and with it the scale of the others."""
    cosines, gram, kappa, alpha = conditional
    K = proportions.shape[1]
    indicator = tf.one_hot(k, K, dtype=proportions.dtype)
    remaining = proportions * (1 - indicator)
    total = tf.reduce_sum(remaining, axis=1, keepdims=True)
    shares = remaining / total
    odds = tf.gather(proportions, k, axis=1) / total[:, 0]

    across = shares @ gram
    length = tf.sqrt(tf.maximum(tf.reduce_sum(across * shares, axis=1), _SHORTEST))
    cosine = tf.gather(across, k, axis=1) / length
    first = tf.reduce_sum(cosines * shares, axis=1) / length
    circle = _Circle(
        length,
        tf.clip_by_value(cosine, -1.0, 1.0),
        tf.clip_by_value(first, -1.0, 1.0),
        tf.gather(cosines, k, axis=1),
    )
    low, high = _arc(circle, odds, kappa, uniforms[0])

    bounded = tf.minimum(-tf.math.log1p(-uniforms[1]) / (K * alpha), math.log(_MOST))
    high = tf.minimum(high, odds + (1 + odds) * tf.math.expm1(bounded))
    low = tf.minimum(low, odds)
    high = tf.clip_by_value(tf.maximum(high, odds), _LEAST, _MOST)
    spread = uniforms[2] + (1 - uniforms[2]) * (low / high) ** alpha
    drawn = tf.clip_by_value(high * spread ** (1 / alpha), _LEAST, _MOST)[:, tf.newaxis]
    return (shares + drawn * indicator) / (1 + drawn)


def _arc(
    circle: _Circle, odds: tf.Tensor, kappa: tf.Tensor, uniform: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the odds between which κ cos stays above a level that is drawn below the present one.

    The direction is at the angle φ from the others' on their way to β_k, which is at ψ:
    o = ‖w'β‖ sin φ / sin(ψ − φ). The part of the level set that holds the present odds is an
    interval.

    Args:
        circle: Great circle.
        odds: Odds at present, (n,).
        kappa: κ, a scalar.
        uniform: Uniform numbers in [0, 1), (n,).
    """
    length, cosine, first, target = circle
    sine = tf.maximum(tf.sqrt((1 - cosine) * (1 + cosine)), 1e-6)
    psi = tf.atan2(sine, cosine)
    second = (target - cosine * first) / sine
    radius = tf.maximum(tf.sqrt(first**2 + second**2), _LEAST)
    phi = tf.atan2(odds * sine, length + odds * cosine)
    from_peak = phi - tf.atan2(second, first)
    from_peak -= 2 * math.pi * tf.round(from_peak / (2 * math.pi))
    level = tf.cos(from_peak) + tf.math.log1p(-uniform) / (kappa * radius)
    half_width = tf.acos(tf.clip_by_value(level, -1.0, 1.0))
    is_free = level <= -1.0
    low = tf.maximum(phi - from_peak - half_width, 0.0)
    low = tf.where(is_free, tf.zeros_like(phi), low)
    high = tf.where(is_free, psi, phi - from_peak + half_width)
    inside = tf.minimum(high, psi * (1 - 1e-6))
    low_odds = length * tf.sin(low) / tf.maximum(tf.sin(psi - low), _LEAST)
    high_odds = length * tf.sin(inside) / tf.sin(psi - inside)
    return low_odds, tf.where(high < psi, high_odds, _MOST * psi)
