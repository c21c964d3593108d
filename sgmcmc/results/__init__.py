"""What comes back: draws in memory or on disk, and what their arrays are."""
