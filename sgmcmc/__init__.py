"""Bayesian sampling by stochastic gradient MCMC on TensorFlow 2, for data too large for Stan."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from sgmcmc.libraries import without_chatter

with without_chatter(), warnings.catch_warnings():
    # Its warnings about its own dependencies do not concern the user.
    warnings.simplefilter("ignore")
    import tensorflow

from sgmcmc import dynamics as dynamics
from sgmcmc import gradients as gradients
from sgmcmc import libraries as _libraries
from sgmcmc import manifolds as manifolds
from sgmcmc import minibatches as minibatches
from sgmcmc._version import __version__ as __version__
from sgmcmc.after.plots import (
    plot_forest,
    plot_log_post,
    plot_pairs,
    plot_posterior,
    plot_report,
    plot_trace,
    plot_zero_variance,
)
from sgmcmc.after.stein import ksd
from sgmcmc.after.summary import summary
from sgmcmc.after.zero_variance import ZeroVarianceSamples, zero_variance
from sgmcmc.dynamics.scaled import gradient_scaled
from sgmcmc.dynamics.schedules import cyclical, polynomial_decay
from sgmcmc.engine.reductions import (
    Reduction,
    running_batch_means,
    running_mean,
    running_moments,
)
from sgmcmc.errors import DivergenceError
from sgmcmc.groups import Groups
from sgmcmc.inputs.part_checks import check_part
from sgmcmc.reduce.rows import collapse
from sgmcmc.results.measured_error import MeasuredError
from sgmcmc.results.samples import Samples
from sgmcmc.run.stepwise import (
    Session,
    StepwiseSampler,
    get_params,
    init_sess,
    sgmcmc_step,
)
from sgmcmc.samplers import (
    gsgnht,
    gsgnht_setup,
    hmc,
    mala,
    mhss,
    nuts,
    predictor_bound,
    sample,
    scir,
    scir_setup,
    setup,
    sggmc,
    sggmc_setup,
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
    zigzag,
)

if TYPE_CHECKING:
    from sgmcmc import models as models
    from sgmcmc.bridges import (
        Calibration,
        JointModel,
        NumPyroModel,
        PyMCModel,
        from_jax,
        from_joint,
        from_numpyro,
        from_pymc,
        sbc,
    )
    from sgmcmc.datasets import DamagedFileError, DownloadError, get_dataset
    from sgmcmc.networks.keras_models import keras_model
    from sgmcmc.regression import Regression
    from sgmcmc.regression.combining import combine
    from sgmcmc.regression.glm import glm
    from sgmcmc.shards import divide

_libraries.let_probability_see_old_numpy()
_libraries.keep_compiled_chains(tensorflow.__version__)

# Leaves of the package, which nothing else in it imports: loaded when a name is first used
_LEAVES = {
    "bridges": (
        "Calibration",
        "JointModel",
        "NumPyroModel",
        "PyMCModel",
        "from_jax",
        "from_joint",
        "from_numpyro",
        "from_pymc",
        "sbc",
    ),
    "datasets": ("DamagedFileError", "DownloadError", "get_dataset"),
    "models": (),
    "networks.keras_models": ("keras_model",),
    "regression": ("Regression", "combine", "glm"),
    "shards": ("divide",),
}
_LEAF_OF = {name: leaf for leaf, names in _LEAVES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _LEAVES:
        return importlib.import_module(f"sgmcmc.{name}")
    if name not in _LEAF_OF:
        raise AttributeError(f"module 'sgmcmc' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"sgmcmc.{_LEAF_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LEAVES, *_LEAF_OF})


__all__ = [
    "Calibration",
    "DamagedFileError",
    "DivergenceError",
    "DownloadError",
    "Groups",
    "JointModel",
    "NumPyroModel",
    "PyMCModel",
    "Reduction",
    "Regression",
    "MeasuredError",
    "Samples",
    "Session",
    "StepwiseSampler",
    "ZeroVarianceSamples",
    "check_part",
    "collapse",
    "combine",
    "cyclical",
    "divide",
    "from_jax",
    "from_joint",
    "from_numpyro",
    "from_pymc",
    "get_dataset",
    "get_params",
    "glm",
    "gradient_scaled",
    "gsgnht",
    "gsgnht_setup",
    "hmc",
    "init_sess",
    "keras_model",
    "ksd",
    "mala",
    "mhss",
    "nuts",
    "plot_forest",
    "plot_log_post",
    "plot_pairs",
    "plot_posterior",
    "plot_report",
    "plot_trace",
    "plot_zero_variance",
    "polynomial_decay",
    "predictor_bound",
    "running_batch_means",
    "running_mean",
    "running_moments",
    "sample",
    "sbc",
    "scir",
    "scir_setup",
    "sggmc",
    "sggmc_setup",
    "sghmc",
    "sghmc_setup",
    "sghmccv",
    "sghmccv_setup",
    "sgld",
    "sgld_setup",
    "sgldcv",
    "sgldcv_setup",
    "setup",
    "sgmcmc_step",
    "sgnht",
    "sgnht_setup",
    "sgnhtcv",
    "sgnhtcv_setup",
    "sgrld",
    "sgrld_setup",
    "summary",
    "zero_variance",
    "zigzag",
]
