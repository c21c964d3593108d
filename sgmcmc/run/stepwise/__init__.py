"""Step by step: the user writes the loop, and each step is the same compiled chain.

A :class:`StepwiseSampler` is what was set up, a :class:`Session` is one run of it: R's package
has the same two.
"""

from sgmcmc.run.stepwise.sampler import Session, StepwiseSampler
from sgmcmc.run.stepwise.steps import get_params, init_sess, sgmcmc_step

__all__ = [
    "Session",
    "StepwiseSampler",
    "get_params",
    "init_sess",
    "sgmcmc_step",
]
