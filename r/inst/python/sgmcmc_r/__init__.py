"""The Python half of the R package: calls whose errors are values, and TensorFlow 1's sessions."""

from sgmcmc_r.calls import Table, call
from sgmcmc_r.graphs import placeholder

__all__ = ["Table", "call", "placeholder"]
