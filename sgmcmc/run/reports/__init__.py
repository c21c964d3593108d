"""What is said of draws: how far they can be trusted, and by what they were made."""

from sgmcmc.run.reports.reporting import report_on

__all__ = ["report_on"]
