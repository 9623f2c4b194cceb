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


_LIVE = "safetensors scipy sklearn starlette torch torchvision uvicorn zmq"

EXTRAS: Mapping[str, Extra] = {
    "avalanche": Extra(("avalanche",), "trainer: avalanche"),
    "forecast": Extra(("lightgbm",), "forecasters that are trained"),
    "live": Extra(tuple(_LIVE.split()), "models that really serve and learn"),
    "metrics": Extra(("prometheus_client",), "what Prometheus reads of a run"),
    "neural": Extra(("neuralforecast", "safetensors", "torch"), "networks that forecast"),
    "nvml": Extra(("pynvml",), "a real GPU"),
    "plot": Extra(("plotly", "jinja2"), "--plot"),
    "ray": Extra(("ray",), "a cluster on several nodes"),
}
"""By name; gurobi is among the planner's solvers."""


def lacking(extra: str, modules: Iterable[str] | None = None) -> str | None:
    """What is absent and how to install it, to be put after the name of what needs it; ``None`` where all is there.

    ``modules`` are those that are needed, by default all of the extra's. Those of another extra are installed with it,
    others under their own names.
    """
    needed = EXTRAS[extra].modules if modules is None else modules
    absent = sorted(name for name in set(needed) if find_spec(name) is None)
    if not absent:
        return None
    bringing = dict.fromkeys([extra, *EXTRAS])
    of = {name: next((one for one in bringing if name in EXTRAS[one].modules), None) for name in absent}
    extras = [one for one in bringing if one in of.values()]
    others = [name for name, one in of.items() if one is None]
    command = " ".join([install(",".join(extras)) if extras else "pip install", *others])
    *first, last = absent
    return f"needs {', '.join(first)}{' and ' if first else ''}{last}: {command}"


def model_text(method: str) -> str:
    """In words, what ``forecast.model`` of a network is, and what is lacking to make and use it."""
    lacks = lacking("neural")
    return f"the folder that migrator forecast fit {method} makes{f'; that {lacks}' if lacks else ''}"
