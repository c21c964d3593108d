"""Networks of Keras, sampled: members are trained, then chains, judged by their predictions."""

from sgmcmc.keras.sampled import SampledNetwork
from sgmcmc.keras.sampling import sample_network

__all__ = ["SampledNetwork", "sample_network"]
