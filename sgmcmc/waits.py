"""How long a thread waits at a time."""

TICK = 0.5
"""Some systems let Ctrl-C through only between waits, so none is longer, in seconds."""
