"""Models with effects of groups: effects that are integrated out, and draws of them."""

from sgmcmc.groups.spec import Groups

__all__ = ["Groups"]
