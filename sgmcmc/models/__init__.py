"""Ready-made models: what a sampler needs of each, to be handed to it."""

from __future__ import annotations

from sgmcmc.models.allocation import TopicModel, lda
from sgmcmc.models.completion import Completion
from sgmcmc.models.dirichlet_process import DPMixture, dp_mixture
from sgmcmc.models.factorisation import MatrixFactorisation, matrix_factorisation
from sgmcmc.models.held_out import HeldOut
from sgmcmc.models.held_out_ratings import HeldOutRatings
from sgmcmc.models.networks import KerasModel, keras_model
from sgmcmc.models.prediction import Prediction
from sgmcmc.models.reading import top_words
from sgmcmc.models.spherical import SphericalTopicModel, sam

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
