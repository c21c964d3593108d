"""Document completion: how well topics predict the hidden words of held-out documents."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from sgmcmc.checks import whole_number
from sgmcmc.counts import Counts
from sgmcmc.data.minibatch import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.documents import held_out, unrolled
from sgmcmc.models.scores import score_draws
from sgmcmc.models.seeds import nth_seed
from sgmcmc.models.topics.sweeps import sweep_topics, topic_counts


@dataclass(frozen=True, eq=False)
class Completion:
    """Documents of which every ``every``-th word is hidden and to be predicted.

    Made by :meth:`TopicModel.completion`.

    Args:
        words: the words shown, int32 (documents, T).
        lengths: how many are shown of each document, int32 (documents,).
        document: document of each hidden word, int32 (hidden,).
        word: the hidden words, int32 (hidden,).
        alpha: Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps for an estimate of the proportions; half are dropped.

    Example:
        >>> import tensorflow as tf
        >>> from sgmcmc.models import lda
        >>> task = lda([[1, 1, 1]], n_topics=1).completion([[3, 1, 0]], every=4)
        >>> topics = tf.constant([[0.5, 0.25, 0.25]])
        >>> task.probabilities(topics, seed=tf.constant([1, 2])).numpy().tolist()
        [0.25]

    Source:
        Wallach, Murray, Salakhutdinov and Mimno, ICML 2009.
    """

    words: tf.Tensor
    lengths: tf.Tensor
    document: tf.Tensor
    word: tf.Tensor
    alpha: float
    n_sweeps: int

    @classmethod
    def of(cls, counts: Counts, alpha: float, n_sweeps: int, every: int) -> Completion:
        """Return the task for held-out documents; see `TopicModel.completion`."""
        n_sweeps, every = whole_number("n_sweeps", n_sweeps, 1), whole_number("every", every, 1)
        shown, document, word = held_out(counts, every)
        if not len(word):
            raise ValueError(
                f"`counts`: no document has {every} words, so none is hidden. "
                "Take a smaller `every`."
            )
        words, lengths, document, word = map(tf.constant, (*unrolled(shown), document, word))
        return cls(words, lengths, document, word, alpha, n_sweeps)

    def proportions(self, topics: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Estimate the proportions of the topics in each document from the words shown.

        π_dk is the mean over the kept sweeps of (α + n_dk) / (Kα + n_d).

        Args:
            topics: ω, (K, W).
            seed: two int32.

        Returns:
            π, (documents, K).
        """
        K = topics.shape[0]
        keep = self.n_sweeps - self.n_sweeps // 2
        drawn = sweep_topics(
            topics, self.words, self.lengths, self.alpha, self.n_sweeps, seed, keep
        )
        weights = self.alpha + topic_counts(drawn, K, topics.dtype) / keep
        return weights / tf.reduce_sum(weights, axis=1, keepdims=True)

    def probabilities(self, topics: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return the probability of each hidden word, Σ_k π_dk ω_kw.

        Args:
            topics: ω, (K, W).
            seed: two int32, for the Gibbs sweeps.

        Returns:
            (hidden,).
        """
        proportions = tf.gather(self.proportions(topics, seed), self.document)
        return tf.reduce_sum(proportions * tf.gather(tf.transpose(topics), self.word), axis=1)

    def perplexity(self, draws: int, seed: int = 0, parameter: str = "topics") -> Reduction:
        """Return the reduction that follows the perplexity along a chain.

        exp(−Σ_i log p̄_i / M) over the M hidden words, p̄_i the mean over the draws seen so far of
        the probability of word i. It is W for a uniform guess, and 1 if every word is certain.

        Args:
            draws: how many draws the chain keeps, ``n_iters // thin``.
            seed: of the Gibbs sweeps, which are fresh at each draw.
            parameter: name of the topics among the parameters.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of ``"perplexity"`` (draws,) after each
            draw, NaN where there was none, and ``"probabilities"`` (hidden,), the last p̄.

        Raises:
            TypeError: ``draws`` is not a number.
            ValueError: it is not a whole number of at least 1.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import lda
            >>> score = lda([[1, 1]], n_topics=1).completion([[5, 5]]).perplexity(draws=1)
            >>> topics = {"topics": tf.constant([[0.5, 0.5]])}
            >>> state = score.update(score.start(topics, tf.float32), topics)
            >>> float(score.result(state)["perplexity"][0])
            2.0

        Source:
            Patterson and Teh, NeurIPS 2013, section 4.1, equation 15.
        """

        def update(state: Tensors, params: Tensors) -> tuple[Tensors, Tensors]:
            at = nth_seed(tf.constant([seed, 0]), state["count"])
            new = self.probabilities(params[parameter], at)
            mean = state["probabilities"]
            mean += (new - mean) / tf.cast(state["count"] + 1, mean.dtype)
            now = tf.exp(-tf.reduce_mean(tf.math.log(mean)))
            return {"probabilities": mean}, {"perplexity": now}

        def start(params: Tensors) -> Tensors:
            return {"probabilities": tf.zeros(self.word.shape, params[parameter].dtype)}

        def finish(state: Tensors) -> Tensors:
            return {name: state[name] for name in ("perplexity", "probabilities")}

        return score_draws(draws, ["perplexity"], start, update, finish)
