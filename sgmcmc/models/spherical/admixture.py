"""The spherical admixture model of documents, made from counts or unit vectors."""

from __future__ import annotations

from typing import Any

from sgmcmc.checks import choice, positive_number, whole_number
from sgmcmc.models.spherical.model import SphericalTopicModel
from sgmcmc.models.spherical.unit_vectors import WEIGHTINGS, columns, unit_vectors


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
        documents: how often each word stands in each document, (N, W): an array, a sparse matrix
            of SciPy, or `sgmcmc.counts.Counts`; or unit vectors, with ``weighting="unit"``.
        n_topics: K.
        kappa: κ.
        sigma: σ.
        kappa0: κ₀.
        alpha: α, Dirichlet concentration of the topics' proportions in a document.
        n_sweeps: Gibbs sweeps over each minibatch.
        weighting: what unit vectors are made of: ``"tf-idf"``, each count times
            log((1 + N) / (1 + documents that hold the word)) + 1; ``"counts"``, the counts;
            ``"unit"``, unit vectors as they are, with entries of any sign.

    Returns:
        A :class:`SphericalTopicModel`.

    Raises:
        TypeError: ``documents`` hold no numbers, or another argument is not one.
        ValueError: a count is negative or not whole, a document has no words, or is not of length
            1 with ``weighting="unit"``; there are fewer than two coordinates; ``n_topics`` or
            ``n_sweeps`` is not a whole number of at least 1; a concentration is not positive.

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
        raise ValueError("`documents` have one coordinate; a direction needs at least two.")
    if rows.shape[1] * n_topics >= 2**31:
        raise ValueError(f"`n_topics` × words must be below 2**31; {n_topics} is too many topics.")
    return SphericalTopicModel(
        columns(rows), n_topics, rows.shape[1], kappa, sigma, kappa0, alpha, n_sweeps, weighting,
        frequencies,
    )  # fmt: skip
