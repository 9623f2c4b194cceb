"""The loop that observes, forecasts, plans, applies and reports; its log; the command line; and calls from Python.

The calls are those of :mod:`migrator.api`, which is imported when one of them is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrator.api import Comparison, Run, WindowPlan, compare, load_config, load_run, plan, run

__version__ = "0.1.0.dev0"

__all__ = ["Comparison", "Run", "WindowPlan", "compare", "load_config", "load_run", "plan", "run"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("migrator.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
