"""The loop, and what it drives: planning, changes of the layout, workers, requests."""
