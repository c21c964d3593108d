"""Ready-made models: log-likelihood, log-prior, starting values and predictions of each."""

from __future__ import annotations

from typing import Any

from sgmcmc import checks
from sgmcmc.models.factorization import (
    HeldOutRatings,
    MatrixFactorization,
    matrix_factorization,
)
from sgmcmc.models.mixtures import DPMixture, Prediction, dp_mixture
from sgmcmc.models.spherical import SphericalTopicModel, sam
from sgmcmc.models.spherical_likelihood import HeldOut
from sgmcmc.models.topics import Completion, TopicModel, lda, top_words
from sgmcmc.networks.keras_models import KerasModel, keras_model

__all__ = [
    "Completion",
    "DPMixture",
    "HeldOut",
    "HeldOutRatings",
    "KerasModel",
    "MatrixFactorization",
    "Prediction",
    "SphericalTopicModel",
    "TopicModel",
    "dp_mixture",
    "keras_model",
    "lda",
    "matrix_factorization",
    "sam",
    "top_words",
]


def __getattr__(name: str) -> Any:
    return checks.looked_up_renamed(globals(), name)
