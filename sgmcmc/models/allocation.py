"""Latent Dirichlet allocation: documents as mixtures of topics, topics as points of a simplex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from sgmcmc.counts import Counts

from .completion import Completion
from .documents import unrolled
from .sweeps import sweep_topics

Tensors = dict[str, tf.Tensor]


@dataclass(frozen=True, eq=False)
class TopicModel:
    """What a sampler needs of latent Dirichlet allocation; made by :func:`lda`.

    Attributes:
        dataset: the documents: ``"words"`` int32 (N, T) and ``"lengths"`` int32 (N,), T the
            words of the longest.
        n_topics: K.
        n_words: W, the words in the vocabulary.
        alpha: Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps for each minibatch.
    """

    dataset: Tensors
    n_topics: int
    n_words: int
    alpha: float
    n_sweeps: int

    def gibbs(self, params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
        """Draw the topic of every word of a minibatch by Gibbs sampling, given the topics.

        p(z_i = k | z_-i, ω) ∝ (α + n_dk) ω_{k, w_i}, n_dk without word i; the proportions of the
        topics in a document are integrated out. Half of the sweeps are dropped. They go on from
        the last visit of a document if the sampler was given ``latents=model.latents``; else they
        start anew, and it takes more of them to get to the same.

        Args:
            params: ``{"topics": (K, W)}``.
            minibatch: rows of ``dataset``, n of them, and of ``latents``.
            seed: two int32.

        Returns:
            The minibatch with ``"assignments"``, int32 (n, T, kept sweeps), -1 for no word, and
            with ``"assigned"`` (n, T), the last of them, if it was there before.

        Raises:
            KeyError: there are no ``"topics"`` among the parameters.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import lda
            >>> model = lda([[2, 0, 1], [0, 3, 0]], n_topics=2, n_sweeps=2)
            >>> topics = tf.constant([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
            >>> drawn = model.gibbs({"topics": topics}, model.dataset, tf.constant([1, 2]))
            >>> drawn["assignments"][..., 0].numpy().tolist()
            [[0, 0, 0], [1, 1, 1]]

        Source:
            Patterson and Teh, NeurIPS 2013, section 4; Griffiths and Steyvers, PNAS 101 (2004).
        """
        words, lengths = minibatch["words"], minibatch["lengths"]
        topics, before = params["topics"], minibatch.get("assigned")
        drawn = sweep_topics(topics, words, lengths, self.alpha, self.n_sweeps, seed, before)
        after = {} if before is None else {"assigned": drawn[..., -1]}
        return {**minibatch, **after, "assignments": drawn}

    @property
    def latents(self) -> Tensors:
        """What a sampler has to keep for Gibbs sweeps that go on from visit to visit.

        ``{"assigned": (N, T)}``, the topic of each word, none at the start: hand it over as
        ``latents=model.latents``.
        """
        return {"assigned": tf.fill(self.dataset["words"].shape, -1)}

    def log_lik(self, params: Tensors, minibatch: Tensors) -> tf.Tensor:
        """Return the log-likelihood of the words given their topics, mean over the kept sweeps.

        Σ_d Σ_k Σ_w c_dkw log ω_kw, with c_dkw how often word w of document d has topic k, averaged
        over the kept sweeps.

        Args:
            params: ``{"topics": (K, W)}``.
            minibatch: what :meth:`gibbs` returned.

        Returns:
            A scalar.

        Raises:
            KeyError: the minibatch has no assignments: the sampler was not given
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
            Patterson and Teh, NeurIPS 2013, equation 13.
        """
        if "assignments" not in minibatch:
            raise KeyError(
                "the minibatch has no 'assignments': pass gibbs=model.gibbs to the sampler"
            )
        assigned, topics = minibatch["assignments"], params["topics"]
        place = assigned * self.n_words + minibatch["words"][..., tf.newaxis]
        place = tf.where(assigned >= 0, place, -1)  # which the sum leaves out
        ones = tf.ones(tf.shape(place), topics.dtype)
        counts = tf.math.unsorted_segment_sum(ones, place, self.n_topics * self.n_words)
        counts = tf.reshape(counts, [self.n_topics, self.n_words]) / assigned.shape[2]
        return tf.reduce_sum(tf.math.xlogy(counts, topics))

    def start(self, seed: int | None = None, concentration: float = 1.0) -> dict[str, np.ndarray]:
        """Return starting values: topics drawn from a symmetric Dirichlet distribution.

        Args:
            seed: of the draw.
            concentration: of the distribution; above 1, all topics resemble each other.

        Returns:
            ``{"topics": (K, W)}``, float64.

        Raises:
            ValueError: ``concentration`` is not a positive number.

        Example:
            >>> from sgmcmc.models import lda
            >>> lda([[2, 0, 1]], n_topics=4).start(seed=1)["topics"].sum(axis=1).round(6)
            array([1., 1., 1., 1.])
        """
        _need_positive("concentration", concentration)
        shape = (self.n_topics, self.n_words)
        weights = np.random.default_rng(seed).gamma(concentration, size=shape)
        weights = np.maximum(weights, 1e-30)  # a small concentration gives zeros
        return {"topics": weights / weights.sum(axis=1, keepdims=True)}

    def completion(self, counts: Any, n_sweeps: int = 20, every: int = 10) -> Completion:
        """Return the task of completing documents that the chain has not seen.

        Args:
            counts: held-out documents, in any form that :func:`lda` takes.
            n_sweeps: Gibbs sweeps with which the proportions of the topics are estimated from
                the words that are shown; half are dropped.
            every: one word in so many is hidden.

        Returns:
            A :class:`Completion`, which scores topics inside the chain.

        Raises:
            ValueError: the vocabulary is another, or no word is hidden.
        """
        table = Counts.read(counts)
        if table.shape[1] != self.n_words:
            raise ValueError(
                f"`counts` has {table.shape[1]} words, and the model {self.n_words}: held-out "
                "documents must be counted in the same vocabulary."
            )
        return Completion.of(table, self.alpha, n_sweeps, every)


def lda(counts: Any, n_topics: int, alpha: float = 0.1, n_sweeps: int = 10) -> TopicModel:
    """Return latent Dirichlet allocation on counted words, for samplers on the simplex.

    Document d has topic proportions π_d ~ Dir(α, ..., α); each of its words has a topic
    z_i ~ π_d and is drawn from that topic's probabilities ω_{z_i}. The proportions are integrated
    out, the z_i are drawn for each minibatch by Gibbs sampling (``gibbs``), and the sampler moves
    the topics ω, with the Dirichlet prior that its argument ``alpha`` names.

    Args:
        counts: how often each word stands in each document, (N, W): an array, a sparse matrix of
            SciPy, or `sgmcmc.counts.Counts`, which ``get_dataset("kos")`` returns.
        n_topics: K.
        alpha: α, Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps over each minibatch, of which the first half is dropped.

    Returns:
        A :class:`TopicModel`.

    Raises:
        TypeError: ``counts`` holds no numbers.
        ValueError: a count is negative or not whole, a document has no words, ``n_topics`` or
            ``n_sweeps`` is not a whole number of at least 1, ``alpha`` is not positive.

    Example:
        >>> from sgmcmc.models import lda
        >>> model = lda([[2, 0, 1], [0, 3, 0]], n_topics=2)
        >>> model.dataset["words"].numpy().tolist()
        [[0, 0, 2], [1, 1, 1]]

    Source:
        Blei, Ng and Jordan, JMLR 3 (2003); Patterson and Teh, NeurIPS 2013, section 4.
    """
    table = Counts.read(counts)
    _need_whole("n_topics", n_topics)
    _need_whole("n_sweeps", n_sweeps)
    _need_positive("alpha", alpha)
    empty = np.flatnonzero(table.row_totals == 0)
    if empty.size:
        raise ValueError(f"`counts`: document {empty[0]} has no words. Leave such documents out.")
    if table.shape[1] * n_topics >= 2**31:
        raise ValueError(f"`n_topics` × words must be below 2**31; {n_topics} is too many topics.")
    documents = unrolled(table)
    dataset = {name: tf.constant(part) for name, part in documents._asdict().items()}
    return TopicModel(dataset, int(n_topics), table.shape[1], float(alpha), int(n_sweeps))


def top_words(topics: ArrayLike, vocab: ArrayLike, n: int = 10) -> list[list[str]]:
    """Return the most probable words of each topic, the first of them first.

    Args:
        topics: probabilities, (K, W): a draw, or a mean of draws.
        vocab: the W words.
        n: how many to give of each topic.

    Returns:
        K lists of n words.

    Raises:
        ValueError: ``topics`` does not have two axes, or not as many columns as there are words.

    Example:
        >>> from sgmcmc.models import top_words
        >>> top_words([[0.1, 0.7, 0.2], [0.8, 0.1, 0.1]], ["cat", "dog", "eel"], n=2)
        [['dog', 'eel'], ['cat', 'dog']]
    """
    table, words = np.asarray(topics), np.asarray(vocab)
    if table.ndim != 2 or table.shape[1] != len(words):
        raise ValueError(
            f"`topics` must have the shape (topics, {len(words)}), a column for each word of "
            f"`vocab`; it has {table.shape}."
        )
    _need_whole("n", n)
    return [[str(word) for word in words[np.argsort(-row, kind="stable")[:n]]] for row in table]


def _need_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of at least 1; it is {value!r}.")


def _need_positive(name: str, value: Any) -> None:
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not good or not 0 < value < np.inf:
        raise ValueError(f"`{name}` must be a positive number; it is {value!r}.")
