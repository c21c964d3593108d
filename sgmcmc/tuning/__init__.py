"""Constants chosen by the package: the mode, the information there, leverage, stepsizes."""
