"""Integer programs for general solvers, and the solvers."""
