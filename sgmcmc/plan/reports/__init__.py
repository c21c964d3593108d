"""Reports on draws."""

from sgmcmc.plan.reports.reporting import CurvatureReporter, report_around_mode

__all__ = ["CurvatureReporter", "report_around_mode"]
