"""Posteriors with references, from data that ships with well-known packages."""
