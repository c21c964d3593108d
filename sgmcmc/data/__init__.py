"""The user's dataset as the chain reads it, and random numbers."""
