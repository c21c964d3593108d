"""Models that users have already, in the forms of other libraries, and what is made of them."""

from sgmcmc.neighbours.calibration import Calibration, sbc
from sgmcmc.neighbours.joint import JointModel, from_joint

__all__ = ["Calibration", "JointModel", "from_joint", "sbc"]
