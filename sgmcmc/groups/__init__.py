"""Models with effects of groups: effects that are integrated out, and draws of them."""

from sgmcmc.groups.marginal import Marginal
from sgmcmc.groups.model import GroupedModel, read_groups
from sgmcmc.groups.spec import Groups

__all__ = ["GroupedModel", "Groups", "Marginal", "read_groups"]
