"""Requests over time: traces, their scaling, and what chance decides."""
