"""Components of a Dirichlet-process mixture: weights, the slice sampler's moves, predictions.

With weights w_j = v_j Π_{l<j} (1 − v_l) an observation in component z has a slice u ~ U(0, w_z),
and given it

    p(z = j | u, v, θ, x) ∝ 1(w_j > u) Π_w θ_jw^{x_w}.

The components above the slice are finitely many, and if u > Π_j (1 − v_j) over those that are held,
they are all among these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.scores import score_probabilities

# Least log ratio of a starting component's weight to that of all that are not held, or half of the
# largest ratio: a slice is below the latter with probability e⁻³⁰
_FAR = 30.0


def log_weights(sticks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return log w_j of the stored components, (K,), and log Π_j (1 − v_j), that of all others.

    Row j of ``sticks``, (K, 2), is v_j and 1 − v_j.
    """
    logs = tf.math.log(sticks)
    return logs[:, 0] + tf.cumsum(logs[:, 1], exclusive=True), tf.reduce_sum(logs[:, 1])


def word_table(
    words: tf.Tensor, lengths: tf.Tensor, n_words: int, dtype: tf.DType
) -> tf.Tensor:
    """Return the count of each word in each row, (n, W).

    ``words`` is (n, T), with anything after the end of a row, and ``lengths`` (n,).
    """
    rows = words.shape[0]
    cell = tf.range(rows)[:, tf.newaxis] * n_words + words
    return tf.reshape(
        _add_up(cell, is_word(words, lengths), rows * n_words, dtype), [rows, n_words]
    )


def component_counts(
    component: tf.Tensor,
    words: tf.Tensor,
    lengths: tf.Tensor,
    shape: tuple[int, int],
    dtype: tf.DType,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the number of rows of each component, (K,), and its count of each word, (K, W).

    ``component`` and ``lengths`` are (n,), ``words`` is (n, T), and ``shape`` is K and W.
    """
    K, W = shape
    rows = tf.math.unsorted_segment_sum(tf.ones(component.shape, dtype), component, K)
    cell = component[:, tf.newaxis] * W + words
    return rows, tf.reshape(
        _add_up(cell, is_word(words, lengths), K * W, dtype), [K, W]
    )


def is_word(words: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Return which places of the rows hold a word, (n, T)."""
    return tf.range(words.shape[1]) < lengths[:, tf.newaxis]


def _add_up(
    cell: tf.Tensor, counted: tf.Tensor, size: int, dtype: tf.DType
) -> tf.Tensor:
    ones = tf.ones(cell.shape, dtype)
    return tf.math.unsorted_segment_sum(ones, tf.where(counted, cell, -1), size)


def draw_components(
    log_w: tf.Tensor,
    log_rest: tf.Tensor,
    log_lik: tf.Tensor,
    before: tf.Tensor,
    uniforms: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draw a slice and then a component for each row.

    A row without a component is given one with probability ∝ w_j Π_w θ_jw^{x_w}, of those held
    but the last: from a weight near the rest the next slice could be below it. Long rows would
    choose such components, because the likelihood outweighs any weight.

    Args:
        log_w: log w_j, (K,).
        log_rest: Log Π_j (1 − v_j).
        log_lik: Σ_w x_w log θ_jw, (n, K).
        before: Component of each row, int32 (n,), -1 for none.
        uniforms: Uniform numbers in [0, 1), (2, n).

    Returns:
        The components, int32 (n,), and whether all slices are above what is left for components
        that are not held.
    """
    K, fresh = log_w.shape[0], before < 0
    present = tf.maximum(before, 0)
    # 1 − U is as uniform as U, and never zero.
    log_u = tf.gather(log_w, present) + tf.math.log1p(-uniforms[0])
    all_covered = tf.reduce_all(fresh | (log_u > log_rest))
    # Of two roundings of the same number one may be the larger: the present one is always above.
    above = (log_w > log_u[:, tf.newaxis]) | (tf.range(K) == present[:, tf.newaxis])
    first = log_w >= log_rest + tf.minimum(
        _FAR, 0.5 * (tf.reduce_max(log_w) - log_rest)
    )
    log_p = log_lik + tf.where(fresh[:, tf.newaxis], log_w, tf.zeros_like(log_w))
    log_p = tf.where(tf.where(fresh[:, tf.newaxis], first, above), log_p, -float("inf"))
    weights = tf.exp(log_p - tf.reduce_max(log_p, axis=1, keepdims=True))
    cumulative = tf.cumsum(weights, axis=1)
    # The limit is below the total, as U is below 1 by more than rounding, so one is always found.
    passed = (cumulative > uniforms[1][:, tf.newaxis] * cumulative[:, -1:]) & (
        weights > 0
    )
    return tf.argmax(
        tf.cast(passed, tf.int8), axis=1, output_type=tf.int32
    ), all_covered


def joint(params: Tensors, rows: Tensors, base: float) -> tf.Tensor:
    """Return log of weight times likelihood, for each observation and component, (n, K + 1).

    The last column is for all components that are not held: with θ ~ Dir(a, ..., a) their
    likelihood is Γ(Wa) / Γ(Wa + n_i) Π_w Γ(a + x_iw) / Γ(a).

    ``rows`` has ``"words"`` (n, T) and ``"lengths"`` (n,); ``base`` is a.
    """
    sticks, components = params["sticks"], params["components"]
    W, words, lengths = components.shape[1], rows["words"], rows["lengths"]
    log_w, log_rest = log_weights(sticks)
    table = word_table(words, lengths, W, sticks.dtype)
    log_joint = log_w + tf.matmul(table, tf.math.log(components), transpose_b=True)
    a, total = tf.constant(base, table.dtype), tf.constant(W * base, table.dtype)
    log_lik = tf.reduce_sum(tf.math.lgamma(a + table) - tf.math.lgamma(a), axis=1)
    sizes = tf.cast(lengths, table.dtype)
    new = log_rest + log_lik + tf.math.lgamma(total) - tf.math.lgamma(total + sizes)
    return tf.concat([log_joint, new[:, tf.newaxis]], axis=1)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Held-out observations, to be predicted; made by :meth:`DPMixture.prediction`.

    Args:
        words: Words of the observations, int32 (n, T).
        lengths: Number of words of each, int32 (n,).
        base: Dirichlet concentration of each word in a component.

    Example:
        >>> import tensorflow as tf
        >>> from sgmcmc.models import dp_mixture
        >>> task = dp_mixture([[1, 1]], base=1.0, max_components=1).prediction([[1, 0]])
        >>> params = {"sticks": tf.constant([[0.5, 0.5]]), "components": tf.constant([[0.1, 0.9]])}
        >>> round(float(tf.exp(task.log_probabilities(params))[0]), 6)  # ½ · 0.1 + ½ · ½
        0.3
    """

    words: tf.Tensor
    lengths: tf.Tensor
    base: float

    def log_probabilities(self, params: Tensors) -> tf.Tensor:
        """Return log p(x_i | v, θ) of each observation, (n,), components not held included.

        The multinomial coefficient, which no parameter bears on, is left out.

        Args:
            params: ``{"sticks": (K, 2), "components": (K, W)}``.
        """
        rows = {"words": self.words, "lengths": self.lengths}
        return tf.reduce_logsumexp(joint(params, rows, self.base), axis=1)

    def log_predictive(self, draws: int) -> Reduction:
        """Return the reduction that follows the log predictive probability along a chain.

        Σ_i log p̄_i / n, p̄_i the mean over the draws seen so far of p(x_i | v, θ), and the
        perplexity of a word, exp(−Σ_i log p̄_i / Σ_i n_i).

        Args:
            draws: Number of draws that the chain keeps, ``n_iters // thin``.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of ``"log_predictive"``, ``"perplexity"``
            and ``"of_draw"``, the log predictive of each draw alone, all (draws,), NaN if there
            was none.

        Raises:
            TypeError: ``draws`` is not a number.
            ValueError: It is not an integer ≥ 1.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import dp_mixture
            >>> model = dp_mixture([[1, 1]], base=1.0, max_components=1)
            >>> score = model.prediction([[1, 0]]).log_predictive(draws=1)
            >>> params = {"sticks": tf.constant([[0.5, 0.5]]),
            ...     "components": tf.constant([[0.5, 0.5]])}
            >>> state = score.update(score.start(params, tf.float32), params)
            >>> float(score.result(state)["perplexity"][0])
            2.0
        """
        names = ("log_predictive", "of_draw", "perplexity")
        words_each = float(np.mean(self.lengths.numpy()))

        def log_probabilities(params: Tensors, at: tf.Tensor) -> tf.Tensor:
            return self.log_probabilities(params)

        def scores(mean: tf.Tensor, new: tf.Tensor) -> Tensors:
            now = tf.reduce_mean(mean)
            values = now, tf.reduce_mean(new), tf.exp(-now / words_each)
            return dict(zip(names, values, strict=True))

        def finish(state: Tensors) -> Tensors:
            return {name: state[name] for name in names}

        return score_probabilities(
            draws, names, len(self.lengths), log_probabilities, scores, finish
        )
