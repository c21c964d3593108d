"""Checks and converts, once, what the user hands over.

Every error message about an argument is written in this folder. Each function takes the name of
the argument, so that the message can name it.
"""
