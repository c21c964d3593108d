"""Checks and conversions of the user's input.

Every error message about an argument is written in this folder. Each function takes the name of
the argument, so that the message can name it.
"""
