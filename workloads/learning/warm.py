"""Imports what learning would import on its way: for a process from which learning ones are forked.

Libraries that only some models need are :func:`workloads.learning.models.libraries`'.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

for _module in ("torch", "torch._dynamo", "sklearn.datasets", "sklearn.model_selection", "scipy.ndimage"):
    with suppress(ImportError):  # the code that needs it says so
        import_module(_module)
