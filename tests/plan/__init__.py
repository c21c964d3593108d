"""Tests of what is chosen where the user gives no constants."""
