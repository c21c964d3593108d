"""The Python half of the R package: calls whose errors are values, and TensorFlow 1's sessions."""

from sgmcmc.graphs.tracing import quiet_start
from sgmcmc_r import progress
from sgmcmc_r.calls import Table, call
from sgmcmc_r.graphs import placeholder

__all__ = ["Table", "call", "placeholder", "progress"]

# Before R code makes the first tensor, which would have TensorFlow chatter about devices.
quiet_start()
