"""The optional extras: what each brings, and in words what is lacking of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from executor.extras import install


@dataclass(frozen=True, slots=True)
class Extra:
    """One extra of the package.

    Attributes:
        modules: What it brings, by the names that are imported.
        purpose: What it is for.
    """

    modules: tuple[str, ...]
    purpose: str


_LIVE = "avalanche safetensors scipy sklearn starlette torch torchvision uvicorn zmq"

EXTRAS: Mapping[str, Extra] = {
    "forecast": Extra(("lightgbm",), "forecasters that are trained"),
    "live": Extra(tuple(_LIVE.split()), "models that really serve and learn"),
    "neural": Extra(("neuralforecast", "safetensors", "torch"), "networks that forecast"),
    "nvml": Extra(("pynvml",), "a real GPU"),
    "plot": Extra(("plotly", "jinja2"), "--plot"),
}
"""By name; gurobi is among the planner's solvers."""


def lacking(extra: str, modules: Iterable[str] | None = None) -> str | None:
    """What is absent and how to install it, to be put after the name of what needs it; ``None`` where all is there.

    ``modules`` are those that are needed, by default all of the extra's; others are installed under their own names.
    """
    brought = EXTRAS[extra].modules
    absent = sorted(name for name in set(brought if modules is None else modules) if find_spec(name) is None)
    if not absent:
        return None
    others = [name for name in absent if name not in brought]
    command = " ".join([install(extra) if len(others) < len(absent) else "pip install", *others])
    *first, last = absent
    return f"needs {', '.join(first)}{' and ' if first else ''}{last}: {command}"


def model_text(method: str) -> str:
    """In words, what ``forecast.model`` of a network is, and what is lacking to make and use it."""
    lacks = lacking("neural")
    return f"the folder that migrator forecast fit {method} makes{f'; that {lacks}' if lacks else ''}"
