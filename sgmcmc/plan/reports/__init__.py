"""Reports on draws."""

from sgmcmc.plan.reports.reporting import CurvatureReporter, report_on

__all__ = ["CurvatureReporter", "report_on"]
