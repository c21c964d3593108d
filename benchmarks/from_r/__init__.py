"""What an iteration costs from R, beside Python: the driver and its two sides."""
