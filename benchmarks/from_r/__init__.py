"""What an iteration costs from R and from Python: the driver and its two sides."""
