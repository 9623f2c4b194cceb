"""Service profiles: what was measured of each model, and the operating points that follow."""
