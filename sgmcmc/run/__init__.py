"""Runs of a sampler: its parts checked and put together, its phases run one after another."""
