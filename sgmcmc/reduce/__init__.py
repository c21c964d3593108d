"""The same posterior from fewer numbers."""
