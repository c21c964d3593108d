"""Ready-made models: what a sampler needs of each, to be handed to it."""

from __future__ import annotations

from sgmcmc.models.allocation import TopicModel, lda
from sgmcmc.models.completion import Completion
from sgmcmc.models.networks import KerasModel, keras_model
from sgmcmc.models.reading import top_words

__all__ = ["Completion", "KerasModel", "TopicModel", "keras_model", "lda", "top_words"]
