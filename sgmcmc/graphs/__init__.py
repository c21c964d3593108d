"""Python functions made into TensorFlow graphs, and called fast."""
