"""Ensembles of networks: members that are trained, then sampled as chains, and judged."""
