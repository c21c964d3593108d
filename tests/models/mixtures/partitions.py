"""The posterior of a small Dirichlet-process mixture, all of whose partitions can be listed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import integrate
from scipy.special import gammaln


def partitions(size: int) -> Iterator[list[int]]:
    """Return all partitions of so many things, as restricted growth strings."""

    def grow(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == size:
            yield labels
            return
        for label in range(max(labels) + 2):
            yield from grow([*labels, label])

    return grow([0])


@dataclass(frozen=True)
class Exact:
    """The exact posterior.

    Attributes:
        clusters: probability of 1, 2, ..., N clusters.
        together: probability that two observations are in the same cluster, (N, N).
        concentration: posterior mean of α.
    """

    clusters: np.ndarray
    together: np.ndarray
    concentration: float


def exact_posterior(
    table: np.ndarray, base: float, prior: tuple[float, float]
) -> Exact:
    """Return the posterior by enumeration, α integrated out by quadrature.

    p(partition, α) ∝ Gamma(α; s, r) α^k Γ(α)/Γ(α + N) Π_c (n_c − 1)! ∫ Π θ^x dDir(θ).
    """
    N, W = table.shape
    every = np.array(list(partitions(N)))

    def marginal(counts: np.ndarray) -> float:
        return float(
            gammaln(W * base)
            - gammaln(W * base + counts.sum())
            + np.sum(gammaln(base + counts) - gammaln(base))
        )

    shape, rate = prior

    def of_sizes(k: int, power: int) -> float:
        def density(a: float) -> float:
            log_p = (
                (shape - 1 + k + power) * np.log(a)
                - rate * a
                + gammaln(a)
                - gammaln(a + N)
            )
            return float(np.exp(log_p))

        return integrate.quad(density, 0, np.inf)[0]

    sizes = every.max(axis=1) + 1
    log_p = np.array(
        [
            sum(
                gammaln((z == c).sum()) + marginal(table[z == c].sum(axis=0))
                for c in range(z.max() + 1)
            )
            for z in every
        ]
    )
    weight, moment = (
        np.array([of_sizes(k, p) for k in range(N + 1)])[sizes] for p in (0, 1)
    )
    p = np.exp(log_p - log_p.max())
    total = (p * weight).sum()
    concentration = float((p * moment).sum() / total)
    p = p * weight / total
    together = np.einsum(
        "p,pij->ij", p, every[:, :, np.newaxis] == every[:, np.newaxis]
    )
    return Exact(np.bincount(sizes, p, N + 1)[1:], together, concentration)
