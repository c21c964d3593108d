"""The engine: compiled blocks of iterations, what they consume, and the threads they run on."""
