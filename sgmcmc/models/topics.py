"""Latent Dirichlet allocation: documents as mixtures of topics, points of a simplex.

With the proportions of the topics in a document integrated out, a word's topic given all others is

    p(z_i = k | z_-i, ω, w) ∝ (α + n_dk) ω_{k, w_i},

n_dk the number of the other words of document d with topic k. So the words of a document must be
visited one after another, but documents can be treated at the same time: a step of a Gibbs sweep
visits the i-th word of each. Documents are sorted by length, and as the short ones end the loop
goes on with half as many, so that little is computed for words that are not there.

One sweep is a separate cluster for XLA, which a plain graph may hold; the uniform numbers come
from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from sgmcmc.checks import positive_number, whole_number
from sgmcmc.counts import Counts
from sgmcmc.data.dataset import Tensors
from sgmcmc.engine.reductions import Reduction
from sgmcmc.models.documents import (
    Documents,
    held_out,
    need_words,
    unrolled,
    word_columns,
)
from sgmcmc.models.scores import ProbabilityScores, nth_seed, score_probabilities

_LEAST_WIDTH = 8  # a step for fewer documents than these takes no less time


def lda(
    counts: Any, n_topics: int, alpha: float = 0.1, n_sweeps: int = 4
) -> TopicModel:
    """Return latent Dirichlet allocation on counted words, for samplers on the simplex.

    Document d has topic proportions π_d ~ Dir(α, ..., α); each of its words has a topic
    z_i ~ π_d and is drawn from that topic's probabilities ω_{z_i}. The proportions are integrated
    out, the z_i are drawn for each minibatch by Gibbs sampling (``gibbs``), and the sampler moves
    the topics ω, with the Dirichlet prior that its argument ``alpha`` names.

    Args:
        counts: Count of each word in each document, (N, W): an array, a sparse matrix of
            SciPy, or `sgmcmc.counts.Counts`, which ``get_dataset("kos")`` returns.
        n_topics: K, the number of topics.
        alpha: α, Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps over each minibatch.

    Returns:
        A :class:`TopicModel`.

    Raises:
        TypeError: ``counts`` holds no numbers, or another argument is not one.
        ValueError: A count is negative or not whole, a document has no words, ``n_topics`` or
            ``n_sweeps`` is not an integer ≥ 1, ``alpha`` is not positive.

    Example:
        >>> from sgmcmc.models import lda
        >>> model = lda([[2, 0, 1], [0, 3, 0]], n_topics=2)
        >>> model.dataset["words"].numpy().tolist()
        [[0, 0, 2], [1, 1, 1]]

    Source:
        Blei, Ng and Jordan, JMLR 3 (2003); Patterson and Teh, NeurIPS 2013, section 4.
    """
    table = Counts.read(counts)
    n_topics = whole_number("n_topics", n_topics, 1)
    n_sweeps = whole_number("n_sweeps", n_sweeps, 1)
    alpha = positive_number("alpha", alpha)
    need_words(table)
    if table.shape[1] * n_topics >= 2**31:
        raise ValueError(
            f"`n_topics` × words must be below 2**31; {n_topics} is too many topics."
        )
    return TopicModel(word_columns(table), n_topics, table.shape[1], alpha, n_sweeps)


@dataclass(frozen=True, eq=False)
class TopicModel:
    """Latent Dirichlet allocation, as a sampler uses it; made by :func:`lda`.

    Args:
        dataset: Documents: ``"words"`` int32 (N, T) and ``"lengths"`` int32 (N,), T the words of
            the longest.
        n_topics: K, the number of topics.
        n_words: W, the words in the vocabulary.
        alpha: Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps for each minibatch.

    Example:
        >>> from sgmcmc.models import lda
        >>> model = lda([[2, 0, 1], [0, 3, 0]], n_topics=2)
        >>> model.n_words, model.dataset["lengths"].numpy().tolist()
        (3, [3, 3])
    """

    dataset: Tensors
    n_topics: int
    n_words: int
    alpha: float
    n_sweeps: int

    def gibbs(self, params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
        """Draw the topic of every word of a minibatch by Gibbs sampling, given the topics.

        p(z_i = k | z_-i, ω) ∝ (α + n_dk) ω_{k, w_i}, n_dk without word i; the proportions of the
        topics in a document are integrated out. The sweeps continue from the last visit of a
        document if the sampler was given ``latents=model.latents``; else they start again.

        Args:
            params: ``{"topics": (K, W)}``.
            minibatch: Rows of ``dataset``, n of them, and of ``latents``.
            seed: Two int32.

        Returns:
            The minibatch with ``"assignments"``, int32 (n, T), -1 for no word.

        Raises:
            KeyError: There are no ``"topics"`` among the parameters.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import lda
            >>> model = lda([[2, 0, 1], [0, 3, 0]], n_topics=2)
            >>> topics = tf.constant([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
            >>> drawn = model.gibbs({"topics": topics}, model.dataset, tf.constant([1, 2]))
            >>> drawn["assignments"].numpy().tolist()
            [[0, 0, 0], [1, 1, 1]]

        Source:
            Patterson and Teh, NeurIPS 2013, section 4; Griffiths and Steyvers, PNAS 101 (2004).
        """
        drawn = sweep_topics(
            params["topics"],
            Documents(minibatch["words"], minibatch["lengths"]),
            Sweeps(self.alpha, self.n_sweeps),
            seed,
            before=minibatch.get("assignments"),
        )
        return {**minibatch, "assignments": drawn[..., 0]}

    @property
    def latents(self) -> Tensors:
        """Latent variables to keep, for Gibbs sweeps that continue from visit to visit.

        ``{"assignments": (N, T)}``, the topic of each word, none at the start: pass it as
        ``latents=model.latents``.
        """
        return {"assignments": tf.fill(self.dataset["words"].shape, -1)}

    def log_lik(self, params: Tensors, minibatch: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each word given the topics of its document's others.

        Σ_d Σ_i log Σ_k π_dik ω_{k, w_i}, with π_dik = (α + n_dk) / (Kα + n_d) and neither count
        containing word i. The counts that the sampler makes of it, ω ∂/∂ω, are the sums of the
        probabilities p(z_i = k | z_-i, ω): their expectation is that of the counts of the drawn
        z_i, and their variance far smaller, since drawing z_i once more adds nothing but noise.

        Args:
            params: ``{"topics": (K, W)}``.
            minibatch: Result of :meth:`gibbs`.

        Returns:
            A scalar.

        Raises:
            KeyError: The minibatch has no assignments: the sampler was not given
                ``gibbs=model.gibbs``.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import lda
            >>> model = lda([[2, 0, 1]], n_topics=1)
            >>> topics = {"topics": tf.constant([[0.25, 0.25, 0.5]])}
            >>> drawn = model.gibbs(topics, model.dataset, tf.constant([1, 2]))
            >>> float(model.log_lik(topics, drawn) / tf.math.log(2.0))
            -5.0

        Source:
            Patterson and Teh, NeurIPS 2013, equation 13, with z_i integrated out.
        """
        if "assignments" not in minibatch:
            raise KeyError("the minibatch lacks 'assignments': pass gibbs=model.gibbs")
        words, assigned = minibatch["words"], minibatch["assignments"]
        return log_likelihood(params["topics"], words, assigned, self.alpha)

    def start(
        self, seed: int | None = None, concentration: float = 1.0
    ) -> dict[str, np.ndarray]:
        """Return starting values: topics drawn from a symmetric Dirichlet distribution.

        Args:
            seed: Seed of the draw.
            concentration: Concentration of the distribution; above 1, topics resemble each other.

        Returns:
            ``{"topics": (K, W)}``, float64.

        Raises:
            TypeError: ``concentration`` is not a number.
            ValueError: It is not positive.

        Example:
            >>> from sgmcmc.models import lda
            >>> lda([[2, 0, 1]], n_topics=4).start(seed=1)["topics"].sum(axis=1).round(6)
            array([1., 1., 1., 1.])
        """
        concentration = positive_number("concentration", concentration)
        shape = (self.n_topics, self.n_words)
        weights = np.random.default_rng(seed).gamma(concentration, size=shape)
        weights = np.maximum(weights, 1e-30)  # a small concentration gives zeros
        return {"topics": weights / weights.sum(axis=1, keepdims=True)}

    def completion(
        self, counts: Any, n_sweeps: int = 20, every: int = 10
    ) -> Completion:
        """Return the task of completing held-out documents.

        Args:
            counts: Held-out documents, in any form that :func:`lda` accepts.
            n_sweeps: Number of Gibbs sweeps with which the proportions of the topics are estimated
                from the words that are shown; half are dropped.
            every: Spacing of the hidden words: every ``every``-th of a document.

        Returns:
            A :class:`Completion`, which scores topics inside the chain.

        Raises:
            TypeError: ``counts`` holds no numbers, or ``n_sweeps`` or ``every`` is not one.
            ValueError: The vocabulary is another, or no word is hidden.

        Example:
            >>> from sgmcmc.models import lda
            >>> task = lda([[2, 0, 1], [0, 3, 0]], n_topics=2).completion([[1, 1, 2]], every=4)
            >>> task.words.numpy().tolist(), task.word.numpy().tolist()
            ([[0, 1, 2]], [2])
        """
        table = Counts.read(counts)
        if table.shape[1] != self.n_words:
            raise ValueError(
                f"`counts` has {table.shape[1]} words, and the model {self.n_words}: held-out "
                "documents must be counted in the same vocabulary."
            )
        n_sweeps = whole_number("n_sweeps", n_sweeps, 1)
        every = whole_number("every", every, 1)
        shown, document, word = held_out(table, every)
        if not len(word):
            raise ValueError(
                f"`counts`: no document has {every} words, so that none is hidden. Use a smaller "
                "`every`."
            )
        words, lengths = map(tf.constant, unrolled(shown))
        hidden = tf.constant(document), tf.constant(word)
        return Completion(words, lengths, *hidden, self.alpha, n_sweeps)


@dataclass(frozen=True, eq=False)
class Completion:
    """Documents of which every ``every``-th word is hidden and to be predicted.

    Made by :meth:`TopicModel.completion`.

    Args:
        words: Words shown, int32 (documents, T).
        lengths: Number of words shown of each document, int32 (documents,).
        document: Document of each hidden word, int32 (hidden,).
        word: Hidden words, int32 (hidden,).
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

    def proportions(self, topics: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Estimate the proportions of the topics in each document from the words shown.

        π_dk is the mean over the kept sweeps of (α + n_dk) / (Kα + n_d).

        Args:
            topics: ω, (K, W).
            seed: Two int32.

        Returns:
            π, (documents, K).
        """
        K = topics.shape[0]
        keep = self.n_sweeps - self.n_sweeps // 2
        documents = Documents(self.words, self.lengths)
        drawn = sweep_topics(
            topics, documents, Sweeps(self.alpha, self.n_sweeps, keep), seed
        )
        weights = self.alpha + topic_counts(drawn, K, topics.dtype) / keep
        return weights / tf.reduce_sum(weights, axis=1, keepdims=True)

    def probabilities(self, topics: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return the probability of each hidden word, Σ_k π_dk ω_kw.

        Args:
            topics: ω, (K, W).
            seed: Two int32, for the Gibbs sweeps.

        Returns:
            (hidden,).
        """
        proportions = tf.gather(self.proportions(topics, seed), self.document)
        of_word = tf.gather(tf.transpose(topics), self.word)
        return tf.reduce_sum(proportions * of_word, axis=1)

    def perplexity(
        self, draws: int, seed: int = 0, parameter: str = "topics"
    ) -> Reduction:
        """Return the reduction that follows the perplexity along a chain.

        exp(−Σ_i log p̄_i / M) over the M hidden words, p̄_i the mean over the draws seen so far of
        the probability of word i. It is W for a uniform guess, and 1 if every word is certain.

        Args:
            draws: Number of draws that the chain keeps, ``n_iters // thin``.
            seed: Seed of the Gibbs sweeps, which are fresh at each draw.
            parameter: Name of the topics among the parameters.

        Returns:
            A `sgmcmc.Reduction`; its result is a dict of ``"perplexity"`` (draws,) after each
            draw, NaN if there was none, and ``"probabilities"`` (hidden,), the last p̄.

        Raises:
            TypeError: ``draws`` is not a number.
            ValueError: It is not an integer ≥ 1.

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

        def log_probabilities(params: Tensors, at: tf.Tensor) -> tf.Tensor:
            return tf.math.log(self.probabilities(params[parameter], at))

        def scores(mean: tf.Tensor, new: tf.Tensor) -> Tensors:
            return {"perplexity": tf.exp(-tf.reduce_mean(mean))}

        def finish(state: Tensors) -> Tensors:
            seen = tf.cast(tf.maximum(state["count"], 1), state["total"].dtype)
            return {
                "perplexity": state["perplexity"],
                "probabilities": tf.exp(state["total"]) / seen,
            }

        perplexity = ProbabilityScores(
            ["perplexity"], len(self.word), log_probabilities, scores, finish
        )
        return score_probabilities(draws, perplexity, seed)


def top_words(topics: ArrayLike, vocab: ArrayLike, n: int = 10) -> list[list[str]]:
    """Return the most probable words of each topic, the first of them first.

    Args:
        topics: Probabilities, (K, W): a draw, or a mean of draws.
        vocab: The W words.
        n: Number of words to give of each topic.

    Returns:
        K lists of n words.

    Raises:
        TypeError: ``n`` is not a number.
        ValueError: ``topics`` does not have two axes, or not as many columns as there are words;
            ``n`` is not whole, or below 1.

    Example:
        >>> from sgmcmc.models import top_words
        >>> top_words([[0.1, 0.7, 0.2], [0.8, 0.1, 0.1]], ["cat", "dog", "eel"], n=2)
        [['dog', 'eel'], ['cat', 'dog']]
    """
    n = whole_number("n", n, 1)
    table, words = np.asarray(topics), np.asarray(vocab)
    if table.ndim != 2 or table.shape[1] != len(words):
        raise ValueError(
            f"`topics` must have the shape (topics, {len(words)}), a column for each word of "
            f"`vocab`; it has {table.shape}."
        )
    return [
        [str(word) for word in words[np.argsort(-row, kind="stable")[:n]]]
        for row in table
    ]


class Sweeps(NamedTuple):
    """Gibbs sweeps over the topics of the words.

    Attributes:
        alpha: Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Number of sweeps.
        keep: Number of the last sweeps whose topics are kept.
    """

    alpha: float
    n_sweeps: int
    keep: int = 1


def sweep_topics(
    topics: tf.Tensor,
    documents: Documents,
    sweeps: Sweeps,
    seed: tf.Tensor,
    before: tf.Tensor | None = None,
) -> tf.Tensor:
    """Draw the topics of all words, and keep those after each of the last sweeps.

    Words without a topic count in no n_dk. So if none has one yet, the first sweep draws each
    given those that were visited before it.

    Args:
        topics: ω, the words' probabilities in each topic, (K, W).
        documents: Words, (n, T), in any order, and lengths, (n,); the rest of a row is padding.
        sweeps: Sweeps.
        seed: Two int32.
        before: Topics to start from, int32 (n, T), -1 for none; ``None`` is none at all.

    Returns:
        int32 (n, T, keep): the topic of each word at the end of each kept sweep, or -1 if
        there is no word, or none of the topics gives it a positive probability.
    """
    order = tf.argsort(documents.lengths, direction="DESCENDING")
    sorted_documents = _SortedDocuments(
        lengths=tf.gather(documents.lengths, order),
        words=tf.transpose(tf.gather(documents.words, order)),
        by_word=tf.transpose(topics),
        alpha=tf.cast(sweeps.alpha, topics.dtype),
    )
    shape = sorted_documents.words.shape
    dropped = sweeps.n_sweeps - sweeps.keep
    stored = tf.TensorArray(
        tf.int32, sweeps.keep, element_shape=shape, clear_after_read=False
    )

    def one_sweep(
        sweep: tf.Tensor, assigned: tf.Tensor, counts: tf.Tensor, stored: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        uniforms = tf.random.stateless_uniform(
            shape, nth_seed(seed, sweep), dtype=topics.dtype, alg="philox"
        )
        assigned, counts = _sweep(sorted_documents, uniforms, assigned, counts)
        # A dropped sweep is written over by the first that is kept.
        stored = stored.write(tf.maximum(sweep - dropped, 0), assigned)
        return sweep + 1, assigned, counts, stored

    if before is None:
        assigned = tf.fill(shape, -1)
        counts = tf.zeros([shape[1], topics.shape[0]], topics.dtype)
    else:
        rows = tf.gather(before, order)
        assigned = tf.transpose(rows)
        counts = topic_counts(rows, topics.shape[0], topics.dtype)
    start = (tf.constant(0), assigned, counts, stored)
    *_, stored = tf.while_loop(
        lambda sweep, *_: sweep < sweeps.n_sweeps,
        one_sweep,
        start,
        parallel_iterations=1,
    )
    by_document = tf.transpose(stored.stack(), [2, 1, 0])
    return tf.gather(by_document, tf.argsort(order))


class _SortedDocuments(NamedTuple):
    """Documents as a sweep reads them, the longest first.

    Attributes:
        by_word: ω transposed, (W, K).
        words: Words, (T, n).
        lengths: Lengths of the documents, (n,), descending.
        alpha: Dirichlet concentration, a scalar.
    """

    by_word: tf.Tensor
    words: tf.Tensor
    lengths: tf.Tensor
    alpha: tf.Tensor


@tf.function(jit_compile=True, autograph=False)
def _sweep(
    documents: _SortedDocuments,
    uniforms: tf.Tensor,
    assigned: tf.Tensor,
    counts: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Visit every word once, and return the topics after, and their counts.

    Args:
        documents: Documents.
        uniforms: Uniform numbers in [0, 1), (T, n).
        assigned: Topics before, (T, n), -1 for none.
        counts: Words of each topic in each document, (n, K).
    """
    by_word, words, lengths, alpha = documents
    after = tf.fill(assigned.shape, -1)
    position = tf.constant(0)
    widths = _widths(int(words.shape[1]))
    for width, narrower in zip(widths, [*widths[1:], 0], strict=True):
        # From there on no more than `narrower` documents have words.
        end = lengths[narrower]

        def visit(
            i: tf.Tensor, counts: tf.Tensor, after: tf.Tensor, width: int = width
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            K, dtype = counts.shape[1], alpha.dtype
            counts -= tf.one_hot(tf.gather(assigned, i)[:width], K, dtype=dtype)
            likelihood = tf.gather(by_word, tf.gather(words, i)[:width])
            drawn = _draw((alpha + counts) * likelihood, tf.gather(uniforms, i)[:width])
            drawn = tf.where(i < lengths[:width], drawn, -1)
            counts += tf.one_hot(drawn, K, dtype=dtype)
            row = tf.pad(drawn, [[0, after.shape[1] - width]], constant_values=-1)
            after = tf.tensor_scatter_nd_update(after, [[i]], row[tf.newaxis])
            return i + 1, counts, after

        position, active, after = tf.while_loop(
            lambda i, *_, end=end: i < end,
            visit,
            (position, counts[:width], after),
            parallel_iterations=1,
        )
        counts = tf.concat([active, counts[width:]], 0)
    return after, counts


def _widths(documents: int) -> list[int]:
    widths = [documents]
    while widths[-1] > _LEAST_WIDTH:
        widths.append(-(-widths[-1] // 2))
    return widths


def _draw(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Draw from each row of (n, K) by inversion; -1 if all weights are 0.

    Nothing of weight 0 is ever drawn, rounding or not: in ``log_lik`` it would be log 0.
    """
    K = weights.shape[1]
    # A product with a triangle of ones: with XLA's cumulative sum a sweep takes a third longer.
    ones = tf.linalg.band_part(tf.ones([K, K], weights.dtype), 0, -1)
    cumulative = weights @ ones
    limit = uniform[:, tf.newaxis] * cumulative[:, -1:]
    positive, topic = weights > 0, tf.range(K)
    first = tf.reduce_min(tf.where((cumulative > limit) & positive, topic, K), axis=1)
    return tf.minimum(first, tf.reduce_max(tf.where(positive, topic, -1), axis=1))


def topic_counts(assigned: tf.Tensor, n_topics: int, dtype: tf.DType) -> tf.Tensor:
    """Return the number of words of each document with each topic, (n, K).

    Topics are int32 (n, ...), -1 for none.
    """
    documents = assigned.shape[0]
    rows = tf.reshape(assigned, [documents, -1])
    cell = tf.range(documents)[:, tf.newaxis] * n_topics + rows
    counts = tf.math.unsorted_segment_sum(
        tf.ones(rows.shape, dtype), tf.where(rows >= 0, cell, -1), documents * n_topics
    )
    return tf.reshape(counts, [documents, n_topics])


def log_likelihood(
    topics: tf.Tensor, words: tf.Tensor, assigned: tf.Tensor, alpha: float
) -> tf.Tensor:
    """Return Σ_d Σ_i log Σ_k π_dik ω_{k, w_i}, whose derivative is the expected counts over ω.

    ``topics`` is ω, (K, W), ``words`` (n, T), and ``assigned`` the topic of each, -1 for no word.
    """
    concentration = tf.constant(alpha, topics.dtype)

    @tf.custom_gradient
    def of_topics(topics: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value, counts = _expected_counts(topics, words, assigned, concentration)
        return value, lambda upstream: upstream * tf.math.divide_no_nan(counts, topics)

    return of_topics(topics)


@tf.function(jit_compile=True, autograph=False)
def _expected_counts(
    topics: tf.Tensor, words: tf.Tensor, assigned: tf.Tensor, alpha: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the log-likelihood, and the expected counts of each topic and word, (K, W).

    Both come of one pass over (n, T, K) numbers, a separate cluster for XLA, which takes less
    than half of the time of separate operations and their derivatives.
    """
    K, W = topics.shape
    counts = topic_counts(assigned, K, topics.dtype)
    counts_of_others = counts[:, tf.newaxis] - tf.one_hot(
        assigned, K, dtype=topics.dtype
    )
    joint = (alpha + counts_of_others) * tf.gather(tf.transpose(topics), words)
    sums = tf.reduce_sum(joint, axis=2, keepdims=True)
    is_word = (assigned >= 0)[..., tf.newaxis] & (sums > 0)
    shares = tf.where(is_word, joint / sums, 0.0)
    expected = tf.math.unsorted_segment_sum(
        tf.reshape(shares, [-1, K]), tf.reshape(words, [-1]), W
    )
    lengths = tf.reduce_sum(counts, axis=1)
    totals = lengths[:, tf.newaxis, tf.newaxis] + (K * alpha - 1)
    value = tf.reduce_sum(tf.math.log(tf.where(is_word, sums / totals, 1.0)))
    return value, tf.transpose(expected)
