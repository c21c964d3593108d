"""Ready-made models: what a sampler needs of each, to be handed to it."""

from __future__ import annotations

from sgmcmc.models.factors import HeldOutRatings, MatrixFactorisation, matrix_factorisation
from sgmcmc.models.mixtures import DPMixture, Prediction, dp_mixture
from sgmcmc.models.networks import KerasModel, keras_model
from sgmcmc.models.spherical import HeldOut, SphericalTopicModel, sam
from sgmcmc.models.topics import Completion, TopicModel, lda, top_words

__all__ = [
    "Completion",
    "DPMixture",
    "HeldOut",
    "HeldOutRatings",
    "KerasModel",
    "MatrixFactorisation",
    "Prediction",
    "SphericalTopicModel",
    "TopicModel",
    "dp_mixture",
    "keras_model",
    "lda",
    "matrix_factorisation",
    "sam",
    "top_words",
]
