"""Minibatches: one file for each way of drawing rows, and the streams.

:class:`Uniform` draws every subset of n rows with equal chance (or rows with replacement),
:class:`Weighted` rows in proportion to probabilities, and :class:`Reshuffled` goes through them in
a new order in each epoch. A stream brings the drawn rows to the chain: gathered ahead on the host,
in place, or on the device.
"""

from sgmcmc.data.dataset import Minibatch
from sgmcmc.minibatches.base import Minibatches, RowDraws
from sgmcmc.minibatches.reshuffled import Reshuffled
from sgmcmc.minibatches.uniform import Uniform, Weighted

__all__ = ["Minibatch", "Minibatches", "Reshuffled", "RowDraws", "Uniform", "Weighted"]
