"""Latent Dirichlet allocation: topics as points of a simplex."""

from __future__ import annotations

from sgmcmc.models.topics.allocation import TopicModel, lda
from sgmcmc.models.topics.completion import Completion
from sgmcmc.models.topics.reading import top_words

__all__ = ["Completion", "TopicModel", "lda", "top_words"]
