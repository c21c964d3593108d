"""How well a Dirichlet-process mixture predicts observations that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from sgmcmc.data.minibatch import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.mixtures.slices import log_weights, word_table
from sgmcmc.models.scores import score_draws


def joint(params: Tensors, rows: Tensors, base: float) -> tf.Tensor:
    """Return log of weight times likelihood, for each observation and component, (n, K + 1).

    The last column is for all components that are not held: with θ ~ Dir(a, ..., a) their
    likelihood is Γ(Wa) / Γ(Wa + n_i) Π_w Γ(a + x_iw) / Γ(a).

    Args:
        params: ``{"sticks": (K, 2), "components": (K, W)}``.
        rows: ``"words"`` (n, T) and ``"lengths"`` (n,).
        base: a.
    """
    sticks, components = params["sticks"], params["components"]
    W, words, lengths = components.shape[1], rows["words"], rows["lengths"]
    log_w, log_rest = log_weights(sticks)
    table = word_table(words, lengths, W, sticks.dtype)
    held = log_w + tf.matmul(table, tf.math.log(components), transpose_b=True)
    a, total = tf.constant(base, table.dtype), tf.constant(W * base, table.dtype)
    each = tf.reduce_sum(tf.math.lgamma(a + table) - tf.math.lgamma(a), axis=1)
    sizes = tf.cast(lengths, table.dtype)
    new = log_rest + each + tf.math.lgamma(total) - tf.math.lgamma(total + sizes)
    return tf.concat([held, new[:, tf.newaxis]], axis=1)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Held-out observations, to be predicted; made by :meth:`DPMixture.prediction`.

    Args:
        words: their words, int32 (n, T).
        lengths: words of each, int32 (n,).
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
            draws: how many draws the chain keeps, ``n_iters // thin``.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of ``"log_predictive"``, ``"perplexity"``
            and ``"of_draw"``, the log predictive of each draw alone, all (draws,), NaN where there
            was none.

        Raises:
            TypeError: ``draws`` is not a number.
            ValueError: it is not a whole number of at least 1.

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

        def update(state: Tensors, params: Tensors) -> tuple[Tensors, Tensors]:
            new = self.log_probabilities(params)
            seen = tf.cast(state["count"], new.dtype)
            before = state["log_mean"] + tf.math.log(seen) - tf.math.log(seen + 1)
            log_mean = tf.reduce_logsumexp(tf.stack([before, new - tf.math.log(seen + 1)]), axis=0)
            now = tf.reduce_mean(log_mean)
            scores = now, tf.reduce_mean(new), tf.exp(-now / words_each)
            return {"log_mean": log_mean}, dict(zip(names, scores, strict=True))

        def start(params: Tensors) -> Tensors:
            return {"log_mean": tf.zeros(self.lengths.shape, params["sticks"].dtype)}

        def finish(state: Tensors) -> Tensors:
            return {name: state[name] for name in names}

        return score_draws(draws, names, start, update, finish)
