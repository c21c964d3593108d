"""Choices for a posterior: mode, curvature, transforms, methods, and when chains stop."""
