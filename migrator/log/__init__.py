"""A run's log, and what is computed from it alone."""
