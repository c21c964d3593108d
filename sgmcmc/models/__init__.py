"""Models that ship: what a sampler needs of them, ready to be handed over."""

from __future__ import annotations

from .allocation import TopicModel, lda, top_words
from .completion import Completion

__all__ = ["Completion", "TopicModel", "lda", "top_words"]
