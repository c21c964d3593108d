"""Models from other libraries, and simulation-based calibration."""

from sgmcmc.neighbours.calibration import Calibration, sbc
from sgmcmc.neighbours.joint import JointModel, from_joint

__all__ = ["Calibration", "JointModel", "from_joint", "sbc"]
