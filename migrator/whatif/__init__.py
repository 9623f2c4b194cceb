"""One window planned over a grid of configs."""
