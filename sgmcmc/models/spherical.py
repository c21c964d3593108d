"""The spherical admixture model: documents and topics as unit vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from sgmcmc.checks import choice, positive_number, whole_number
from sgmcmc.data.dataset import Tensors
from sgmcmc.models.documents import WEIGHTINGS, columns, unit_vectors
from sgmcmc.models.spherical_likelihood import (
    Conditional,
    HeldOut,
    document_cosines,
    log_normalizer,
    mixed_lengths,
    sweep_proportions,
)


def sam(
    documents: Any,
    n_topics: int,
    kappa: float = 2000.0,
    sigma: float = 2000.0,
    kappa0: float = 10.0,
    alpha: float = 1.0,
    n_sweeps: int = 4,
    weighting: str = "tf-idf",
) -> SphericalTopicModel:
    """Return the spherical admixture model of documents, for samplers on the sphere.

    The mean of the topics is μ ~ vMF(m, κ₀), a topic β_k ~ vMF(μ, σ); document d has proportions
    θ_d ~ Dir(α, ..., α) and the direction v_d ~ vMF(r / ‖r‖, κ), r = Σ_k θ_dk β_k. μ is integrated
    out, the θ_d are drawn for each minibatch by Gibbs sampling (``gibbs``), and the sampler moves
    the topics on the sphere. m is the direction of all ones.

    Args:
        documents: Count of each word in each document, (N, W): an array, a sparse matrix
            of SciPy, or `sgmcmc.counts.Counts`; or unit vectors, with ``weighting="unit"``.
        n_topics: K, the number of topics.
        kappa: κ, the concentration of documents around their mixture of topics.
        sigma: σ, the concentration of topics around their common mean.
        kappa0: κ₀, the concentration of that mean around the direction of all ones.
        alpha: α, Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps over each minibatch.
        weighting: Source of the unit vectors: ``"tf-idf"``, each count times
            log((1 + N) / (1 + documents that hold the word)) + 1; ``"counts"``, the counts;
            ``"unit"``, unit vectors as they are, with entries of any sign.

    Returns:
        A :class:`SphericalTopicModel`.

    Raises:
        TypeError: ``documents`` hold no numbers, or another argument is not one.
        ValueError: A count is negative or not whole, a document has no words, or is not of length
            1 with ``weighting="unit"``; there are fewer than two coordinates; ``n_topics`` or
            ``n_sweeps`` is not an integer ≥ 1; a concentration is not positive.

    Example:
        >>> from sgmcmc.models import sam
        >>> model = sam([[2, 0, 1], [0, 3, 0]], n_topics=2, weighting="counts")
        >>> model.dataset["vectors"].numpy().round(3)
        array([[0.894, 0.   , 0.447],
               [0.   , 1.   , 0.   ]], dtype=float32)

    Source:
        Reisinger et al., ICML 2010; Liu, Zhu & Song, NeurIPS 2016, section 4.
    """
    n_topics = whole_number("n_topics", n_topics, 1)
    n_sweeps = whole_number("n_sweeps", n_sweeps, 1)
    kappa, sigma = positive_number("kappa", kappa), positive_number("sigma", sigma)
    kappa0, alpha = positive_number("kappa0", kappa0), positive_number("alpha", alpha)
    weighting = choice("weighting", weighting, WEIGHTINGS)
    rows, frequencies = unit_vectors(documents, weighting)
    if rows.shape[1] < 2:
        raise ValueError(
            "`documents` have one coordinate; a direction needs at least two."
        )
    if rows.shape[1] * n_topics >= 2**31:
        raise ValueError(
            f"`n_topics` × words must be below 2**31; {n_topics} is too many topics."
        )
    return SphericalTopicModel(
        columns(rows),
        n_topics,
        rows.shape[1],
        kappa,
        sigma,
        kappa0,
        alpha,
        n_sweeps,
        weighting,
        frequencies,
    )


@dataclass(frozen=True, eq=False)
class SphericalTopicModel:
    """The spherical admixture model, as a sampler uses it; made by :func:`sam`.

    Args:
        dataset: Documents: ``"places"`` and ``"values"`` (N, T), or ``"vectors"`` (N, W).
        n_topics: K, the number of topics.
        n_words: W, the coordinates of a document.
        kappa: κ, the concentration of documents around their mixture of topics.
        sigma: σ, the concentration of topics around their common mean.
        kappa0: κ₀, the concentration of that mean around the direction of all ones.
        alpha: Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Number of Gibbs sweeps for each minibatch; the gradient is that of the second
            half.
        weighting: Weighting by which counts became unit vectors.
        frequencies: Inverse document frequencies of the words, (W,), if they were used.

    Example:
        >>> from sgmcmc.models import sam
        >>> model = sam([[2, 0, 1], [0, 3, 0]], n_topics=2)
        >>> model.n_words, model.dataset["vectors"].shape.as_list()
        (3, [2, 3])
    """

    dataset: Tensors
    n_topics: int
    n_words: int
    kappa: float
    sigma: float
    kappa0: float
    alpha: float
    n_sweeps: int
    weighting: str
    frequencies: NDArray[np.float64] | None

    def gibbs(self, params: Tensors, minibatch: Tensors, seed: tf.Tensor) -> Tensors:
        """Draw the proportions of the topics in the documents of a minibatch, given the topics.

        p(θ | β, v) ∝ Π_k θ_k^(α − 1) exp(κ v'r / ‖r‖), r = Σ_k θ_k β_k. Each sweep moves every
        θ_k against the others by an exact slice. The sweeps continue from the last visit of a
        document if the sampler was given ``latents=model.latents``; else they start from equal
        parts.

        Args:
            params: ``{"topics": (K, W)}``.
            minibatch: Rows of ``dataset``, n of them, and of ``latents``.
            seed: Two int32.

        Returns:
            The minibatch with ``"drawn"``, the proportions after each sweep of the second half,
            (n, sweeps, K), and ``"proportions"``, the last of them, (n, K).

        Raises:
            KeyError: There are no ``"topics"`` among the parameters.

        Example:
            >>> import numpy as np, tensorflow as tf
            >>> from sgmcmc.models import sam
            >>> model = sam([[1, 0, 0], [0, 1, 0]], 2, kappa=1e4)
            >>> topics = {"topics": tf.constant([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])}
            >>> drawn = model.gibbs(topics, model.dataset, tf.constant([1, 2]))
            >>> np.argmax(drawn["proportions"], axis=1).tolist()
            [0, 1]

        Source:
            Liu, Zhu & Song, NeurIPS 2016, section 4, with Gibbs sweeps for geodesic Monte Carlo.
        """
        topics = params["topics"]
        cosines = document_cosines(topics, minibatch)
        before = minibatch.get("proportions")
        if before is None:
            equal_part = tf.constant(1 / self.n_topics, topics.dtype)
            before = tf.fill(cosines.shape, equal_part)
        gram = topics @ tf.transpose(topics)
        kappa = tf.constant(self.kappa, topics.dtype)
        drawn = sweep_proportions(
            Conditional(cosines, gram, kappa, self.alpha),
            self.n_sweeps,
            seed,
            before=tf.cast(before, topics.dtype),
            keep=self.n_sweeps - self.n_sweeps // 2,
        )
        return {**minibatch, "drawn": drawn, "proportions": drawn[:, -1]}

    @property
    def latents(self) -> Tensors:
        """Latent variables to keep, for Gibbs sweeps that continue from visit to visit.

        ``{"proportions": (N, K)}``, equal parts at the start: pass it as ``latents=model.latents``.
        """
        shape = [next(iter(self.dataset.values())).shape[0], self.n_topics]
        return {"proportions": tf.fill(shape, 1 / self.n_topics)}

    def log_lik(self, params: Tensors, minibatch: Tensors) -> tf.Tensor:
        """Return the log-likelihood of each document given its proportions, less log c_W(κ).

        κ v'r / ‖r‖ with r = Σ_k θ_k β_k, on average over the proportions drawn: its derivative
        estimates that of log p(v | β) without bias.

        Args:
            params: ``{"topics": (K, W)}``.
            minibatch: Result of :meth:`gibbs`.

        Returns:
            (n,).

        Raises:
            KeyError: The minibatch has no proportions: the sampler was not given
                ``gibbs=model.gibbs``.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import sam
            >>> model = sam([[3, 4]], n_topics=1, kappa=10.0)
            >>> topics = {"topics": tf.constant([[1.0, 0.0]])}
            >>> drawn = model.gibbs(topics, model.dataset, tf.constant([1, 2]))
            >>> model.log_lik(topics, drawn).numpy().round(4)
            array([6.], dtype=float32)

        Source:
            Liu, Zhu & Song, NeurIPS 2016, equation 10.
        """
        if "drawn" not in minibatch:
            raise KeyError("the minibatch lacks 'drawn': pass gibbs=model.gibbs")
        topics, drawn = params["topics"], tf.stop_gradient(minibatch["drawn"])
        cosines = document_cosines(topics, minibatch)
        lengths = mixed_lengths(drawn, topics @ tf.transpose(topics))
        cosines_of_draws = tf.linalg.matvec(drawn, cosines) / lengths
        return self.kappa * tf.reduce_mean(cosines_of_draws, axis=1)

    def log_prior(self, params: Tensors) -> tf.Tensor:
        """Return the log density of the topics, their common mean integrated out.

        −log c_W(‖κ₀ m + σ Σ_k β_k‖) + const, m the direction of all ones.

        Args:
            params: ``{"topics": (K, W)}``.

        Returns:
            A scalar.

        Example:
            >>> import tensorflow as tf
            >>> from sgmcmc.models import sam
            >>> model = sam([[3, 4]], n_topics=1, sigma=2.0, kappa0=1.0)
            >>> near, far = ({"topics": tf.constant([[x, x]])} for x in (0.5**0.5, -0.5**0.5))
            >>> bool(model.log_prior(near) > model.log_prior(far))
            True

        Source:
            Liu, Zhu & Song, NeurIPS 2016, equation 9.
        """
        topics = params["topics"]
        total = tf.reduce_sum(topics, axis=0)
        resultant = self.kappa0 / np.sqrt(self.n_words) + self.sigma * total
        return -tf.cast(log_normalizer(tf.norm(resultant), self.n_words), topics.dtype)

    def start(
        self, seed: int | None = None, n_documents: int = 10
    ) -> dict[str, np.ndarray]:
        """Return starting values: the directions of sums of a few random documents.

        Args:
            seed: Seed of the choice.
            n_documents: Number of documents to a topic, at most N.

        Returns:
            ``{"topics": (K, W)}``, float64.

        Raises:
            TypeError: ``n_documents`` is not a number.
            ValueError: It is not an integer ≥ 1.

        Example:
            >>> import numpy as np
            >>> from sgmcmc.models import sam
            >>> topics = sam([[2, 0, 1], [0, 1, 1]], n_topics=4).start(seed=1)["topics"]
            >>> np.linalg.norm(topics, axis=1).round(6)
            array([1., 1., 1., 1.])
        """
        rng = np.random.default_rng(seed)
        N = next(iter(self.dataset.values())).shape[0]
        size = min(whole_number("n_documents", n_documents, 1), N)
        chosen = np.stack(
            [rng.choice(N, size, replace=False) for _ in range(self.n_topics)]
        )
        topics = np.zeros((self.n_topics, self.n_words))
        if "vectors" in self.dataset:
            topics += self.dataset["vectors"].numpy()[chosen].sum(axis=1)
        else:
            coordinates = self.dataset["places"].numpy()
            values = self.dataset["values"].numpy()
            topic = np.arange(self.n_topics)[:, np.newaxis, np.newaxis]
            np.add.at(topics, (topic, coordinates[chosen]), values[chosen])
        lengths = np.linalg.norm(topics, axis=1, keepdims=True)
        # Vectors may cancel if coordinates have both signs; then any direction will do.
        topics = np.where(lengths > 1e-6, topics, rng.normal(size=topics.shape))
        return {"topics": topics / np.linalg.norm(topics, axis=1, keepdims=True)}

    def held_out(
        self,
        documents: Any,
        n_particles: int = 10,
        n_temperatures: int = 50,
        seed: int = 0,
    ) -> HeldOut:
        """Return the task of predicting held-out documents.

        Args:
            documents: Held-out documents, in the form that :func:`sam` was given.
            n_particles: P, proportions drawn from their prior for the estimate of a document's
                likelihood.
            n_temperatures: Number of steps from prior to posterior; 1 is plain
                importance sampling from the prior.
            seed: Seed of the draws from the prior.

        Returns:
            A :class:`HeldOut`, which scores topics inside the chain.

        Raises:
            TypeError: ``documents`` hold no numbers, or another argument is not one.
            ValueError: They are of the wrong form, as for :func:`sam`, or another vocabulary's.

        Example:
            >>> from sgmcmc.models import sam
            >>> task = sam([[2, 0, 1], [0, 3, 0]], n_topics=2).held_out([[1, 1, 2]], n_particles=5)
            >>> task.prior.shape.as_list()
            [5, 2]
        """
        rows, _ = unit_vectors(
            documents, self.weighting, self.frequencies, self.n_words
        )
        P = whole_number("n_particles", n_particles, 1)
        T = whole_number("n_temperatures", n_temperatures, 1)
        gammas = np.random.default_rng(seed).gamma(self.alpha, size=(P, self.n_topics))
        gammas = np.maximum(gammas, 1e-30)  # a small concentration gives zeros
        prior = tf.constant(gammas / gammas.sum(axis=1, keepdims=True), tf.float32)
        return HeldOut(columns(rows), prior, self.kappa, self.alpha, T, self.n_words)
