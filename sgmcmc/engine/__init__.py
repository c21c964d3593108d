"""The engine: compiled blocks of iterations, their inputs, and their threads."""
