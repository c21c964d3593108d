"""Which observations a gradient sees: one file for each way to draw rows, and the streams.

:class:`Uniform` draws every subset of n rows with equal chance (or rows with replacement),
:class:`Weighted` rows in proportion to probabilities, and :class:`Reshuffled` takes them in an
order that is new in each epoch. A stream brings what was drawn to the
chain: gathered ahead on the host, in place from where the data lie, or on the device.
"""

from sgmcmc.data.minibatch import Minibatch
from sgmcmc.minibatches.base import Minibatches, RowDraws
from sgmcmc.minibatches.reshuffled import Reshuffled
from sgmcmc.minibatches.uniform import Uniform
from sgmcmc.minibatches.weighted import Weighted

__all__ = ["Minibatch", "Minibatches", "Reshuffled", "RowDraws", "Uniform", "Weighted"]
