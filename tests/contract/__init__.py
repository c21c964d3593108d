"""What users hold: public names alone are imported here, so that a rebuild inside passes them."""
