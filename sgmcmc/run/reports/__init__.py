"""Reports on draws."""

from sgmcmc.run.reports.reporting import report_on

__all__ = ["report_on"]
