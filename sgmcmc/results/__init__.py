"""Results: draws in memory or on disk, and the schema of their arrays."""
