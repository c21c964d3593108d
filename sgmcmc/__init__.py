"""Bayesian sampling by stochastic gradient MCMC on TensorFlow 2, for data too large for Stan."""

import warnings

from sgmcmc.quiet import without_chatter

with without_chatter(), warnings.catch_warnings():
    # What these two have to say of their own dependencies is no news to the user.
    warnings.simplefilter("ignore")
    import tensorflow  # noqa: F401
    import tensorflow_probability  # noqa: F401

__version__ = "0.1.0"

from sgmcmc.datasets import DamagedFileError, DownloadError, get_dataset
from sgmcmc.errors import DivergenceError
from sgmcmc.samplers import sghmc, sghmccv, sgld, sgldcv, sgnht, sgnhtcv
from sgmcmc.samples import Samples
from sgmcmc.schedules import polynomial_decay

__all__ = [
    "DamagedFileError",
    "DivergenceError",
    "DownloadError",
    "Samples",
    "get_dataset",
    "polynomial_decay",
    "sghmc",
    "sghmccv",
    "sgld",
    "sgldcv",
    "sgnht",
    "sgnhtcv",
]
