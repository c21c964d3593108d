"""Benchmarks of `sgmcmc` and other packages: `python -m benchmarks.run` in the project's root."""
