"""Engines: one Problem in, one Plan out. They see arrays, neither forecasts nor workloads."""
