"""From a goodput Problem to a Plan: engines, policies, and a checker that shares no code with them.

``planner.solve(problem, engine=…, budget=…, initial=…)`` is the entry. ``import planner`` brings in
nothing heavy: what needs numpy is loaded when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from planner.budget import Budget

# Imported here, not on first use: loading the submodule later would put it in the function's place.
from planner.solve import solve

if TYPE_CHECKING:
    from planner.plan import MigPlan
    from planner.problem import Problem

__all__ = ["Budget", "MigPlan", "Problem", "solve"]

_HOMES = {"MigPlan": "planner.plan", "Problem": "planner.problem"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
