"""Regressions by formula: many rows, references, and other packages."""
