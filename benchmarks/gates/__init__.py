"""What a change of the inside must not worsen: errors, warnings and time, beside those before."""
