"""Bayesian sampling by stochastic gradient MCMC on TensorFlow 2, for data too large for Stan."""

import warnings

from sgmcmc.quiet import without_chatter

with without_chatter(), warnings.catch_warnings():
    # What these two have to say of their own dependencies is no news to the user.
    warnings.simplefilter("ignore")
    import tensorflow  # noqa: F401
    import tensorflow_probability  # noqa: F401

__version__ = "0.1.0"

from sgmcmc import models as models
from sgmcmc.after.diagnostics import summary
from sgmcmc.after.plots import plot_log_post, plot_posterior, plot_trace, plot_zero_variance
from sgmcmc.after.stein import ksd
from sgmcmc.after.zero_variance import ZeroVarianceSamples, zero_variance
from sgmcmc.datasets import DamagedFileError, DownloadError, get_dataset
from sgmcmc.errors import DivergenceError
from sgmcmc.reductions import (
    Reduction,
    running_batch_means,
    running_mean,
    running_moments,
)
from sgmcmc.samplers import (
    scir,
    scir_setup,
    sghmc,
    sghmc_setup,
    sghmccv,
    sghmccv_setup,
    sgld,
    sgld_setup,
    sgldcv,
    sgldcv_setup,
    sgnht,
    sgnht_setup,
    sgnhtcv,
    sgnhtcv_setup,
    sgrld,
    sgrld_setup,
)
from sgmcmc.samples import Samples
from sgmcmc.schedules import polynomial_decay
from sgmcmc.stepwise import Session, StepwiseSampler, get_params, init_sess, sgmcmc_step

__all__ = [
    "DamagedFileError",
    "DivergenceError",
    "DownloadError",
    "Reduction",
    "Samples",
    "Session",
    "StepwiseSampler",
    "ZeroVarianceSamples",
    "get_dataset",
    "get_params",
    "init_sess",
    "ksd",
    "plot_log_post",
    "plot_posterior",
    "plot_trace",
    "plot_zero_variance",
    "polynomial_decay",
    "running_batch_means",
    "running_mean",
    "running_moments",
    "scir",
    "scir_setup",
    "sghmc",
    "sghmc_setup",
    "sghmccv",
    "sghmccv_setup",
    "sgld",
    "sgld_setup",
    "sgldcv",
    "sgldcv_setup",
    "sgmcmc_step",
    "sgnht",
    "sgnht_setup",
    "sgnhtcv",
    "sgnhtcv_setup",
    "sgrld",
    "sgrld_setup",
    "summary",
    "zero_variance",
]
