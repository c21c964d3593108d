"""Large posteriors, held to references: `make bench-large`."""
