"""What is chosen for a posterior: mode, curvature, transforms, methods, and when chains stop."""
