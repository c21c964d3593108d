"""Regressions and networks as estimators of scikit-learn, sampled by :func:`sgmcmc.sample`.

They need scikit-learn: ``pip install "sgmcmc[scikit-learn]"``.
"""

try:
    import sklearn  # noqa: F401
except (
    ImportError
) as error:  # the one optional dependency that classes here are made of
    raise ImportError(
        'sgmcmc.estimators needs scikit-learn: pip install "sgmcmc[scikit-learn]"'
    ) from error

from sgmcmc.estimators.linear import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
)
from sgmcmc.networks.estimators import (
    BayesianNetworkClassifier,
    BayesianNetworkRegressor,
)

__all__ = [
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianNetworkClassifier",
    "BayesianNetworkRegressor",
    "BayesianPoissonRegression",
]
