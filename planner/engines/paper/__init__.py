"""Engines of the ``paper`` cost model."""
