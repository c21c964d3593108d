"""A small topic model, all of whose assignments can be listed."""

from __future__ import annotations

import itertools
from math import lgamma

import numpy as np

TOPICS = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]])
ALPHA = 0.4
DOCUMENT = [0, 0, 1, 2]


def exact_posterior(words: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return all assignments of topics to words, (K^n, n), and their probabilities.

    p(z | w, ω) ∝ Π_k Γ(α + n_k) Π_i ω_{z_i, w_i}.
    """
    K = len(TOPICS)
    every = np.array(list(itertools.product(range(K), repeat=len(words))))
    counts = np.array([np.bincount(z, minlength=K) for z in every])
    log_p = np.vectorize(lgamma)(ALPHA + counts).sum(axis=1)
    log_p += np.log(TOPICS[every, words]).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    return every, p / p.sum()


def one_hot_counts(assigned: np.ndarray) -> np.ndarray:
    """Return counts of the topics, (n, K), of assignments (T, n)."""
    K = len(TOPICS)
    return np.stack([np.bincount(z[z >= 0], minlength=K) for z in assigned.T])
