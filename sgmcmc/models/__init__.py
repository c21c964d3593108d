"""Ready-made models: what a sampler needs of each, to be handed to it."""

from __future__ import annotations

from sgmcmc.models.allocation import TopicModel, lda
from sgmcmc.models.completion import Completion
from sgmcmc.models.reading import top_words

__all__ = ["Completion", "TopicModel", "lda", "top_words"]
