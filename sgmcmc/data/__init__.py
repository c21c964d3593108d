"""The user's dataset as the chain reads it, and the values that are made of it."""
