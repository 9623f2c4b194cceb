"""Engines of the ``physical`` cost model."""
