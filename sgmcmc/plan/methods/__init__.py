"""Methods that draw from a posterior: when one applies, what it costs, and its chains."""
