"""The target: the log posterior and its gradient in the coordinates of the chain."""
