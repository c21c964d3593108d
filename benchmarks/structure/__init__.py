"""Gaussian and binary regressions with structure, against tools that estimate a point."""
