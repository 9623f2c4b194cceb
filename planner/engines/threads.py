"""How many threads engines use. What they find does not depend on it."""

from __future__ import annotations

import os

_MOST = 8
"""Beyond this the longest table or schedule sets the pace."""

N_THREADS = max(
    1, min(_MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
)
"""Threads that work side by side in compiled code, which holds no lock."""
