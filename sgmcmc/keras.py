"""Networks of Keras, sampled: members are trained, then chains, judged by their predictions."""

from sgmcmc.networks.keras_sampling import SampledNetwork, sample_network

__all__ = ["SampledNetwork", "sample_network"]
