"""What arrives, told before anything is planned: a line a tenant, and a warning for whatever was taken for granted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from migrator.config.sections import ArrivalsConfig, Config
from migrator.inputs.provenance import scaling_text
from migrator.inputs.traffic import Origin, Traffic
from migrator.terminal.console import counted, escape, warn
from workloads.traffic.scaling import ScaleMethod


def print_traffic(config: Config, traffic: Traffic, console: Console) -> None:
    """Print what arrives for each tenant; ``config`` is as it was read, or with scales resolved."""
    for line in traffic_lines(config, traffic):
        console.print(escape(line), soft_wrap=not console.is_terminal)
    for note in trace_notes(config, traffic):
        warn(note)


def trace_notes(config: Config, traffic: Traffic) -> tuple[str, ...]:
    """What was taken for granted or filled in the tenants' traces, a line each."""
    return tuple(
        f"tenants.{tenant.name}: {_shown(origin.source)}: {note}"
        for tenant, origin in zip(config.tenants, traffic.origins, strict=True)
        for note in origin.notes
    )


def traffic_lines(config: Config, traffic: Traffic) -> Iterator[str]:
    """A line for each tenant: source, its requests, scale, and the run's requests; and one on the load's windows."""
    history_s = math.ceil(config.forecast.history_s)
    for entry, origin in zip(config.tenants, traffic.origins, strict=True):
        if entry.arrivals.live:
            yield f"{entry.name}: {_shown(origin.source)}"
            continue
        again = again_text(entry.arrivals, origin, history_s)
        yield f"{entry.name}: {_source_text(origin)}; {_scale_text(origin)}; {again}{_run_text(origin)}"
    n_load, n = config.n_load_windows, config.windows
    if n_load != n and config.load is not None and any(one.arrivals.scale.factor is None for one in config.tenants):
        does = "cut to" if n < n_load else "extended to"
        own, run = counted(n_load, "window"), counted(n, "window")
        yield f"load {config.load:g} is over the config's own {own}; the run is {does} {run}"


def print_load_of_segments(config: Config, console: Console) -> None:
    """Print over which seconds a comparison's traces are brought to the load, if there is one."""
    if config.load is None:
        return
    if config.load_over == "segment":
        text = "each segment is brought to it by itself (load_over: segment)"
    else:
        text = f"over the config's own {counted(config.n_load_windows, 'window')}, the same factors on all segments"
    console.print(f"{config.name}: load {config.load:g}: {text}", soft_wrap=not console.is_terminal)


def _source_text(origin: Origin) -> str:
    source, known = _shown(origin.source), origin.recorded
    if known is None:
        return source
    mean_rps = known.n_requests / known.n_seconds
    return (
        f"{source}, {known.n_requests:,} requests over {known.n_seconds:,} s, mean {mean_rps:,.4g}/s, "
        f"peak {known.peak_rps:,}/s"
    )


def _scale_text(origin: Origin) -> str:
    if origin.recorded is None:
        return f"drawn × {origin.scale.factor:,.4g}"
    text = scaling_text(origin.scale.method.value, origin.scale.factor, origin.scale.smooth_s)
    is_as_recorded = origin.scale.method is ScaleMethod.THIN
    return f"{text}, at times drawn inside the second" if is_as_recorded and not origin.recorded.has_times else text


def again_text(arrivals: ArrivalsConfig, origin: Origin, history_s: int) -> str:
    """How often a trace that loops begins again in the run, and how much of the history lies before its begin."""
    if origin.recorded is None or not arrivals.loop:
        return ""
    n_seconds = origin.recorded.n_seconds
    first_s = (history_s if arrivals.offset_s is None else arrivals.offset_s) % n_seconds
    n_times = (first_s + origin.n_seconds - 1) // n_seconds
    text = ""
    if n_times:
        times = "once" if n_times == 1 else f"{n_times:,} times"
        text = f"the trace begins again {times}, in the run's last {first_s + origin.n_seconds - n_seconds:,} s; "
    if first_s < history_s:
        text += f"the first {history_s - first_s:,} of {history_s:,} s of history go back over its begin to its end; "
    return text


def _run_text(origin: Origin) -> str:
    return f"{origin.n_requests:,} requests in the run's {origin.n_seconds:,} s, load {origin.load:.2f}"


def _shown(source: str) -> str:
    """A shipped trace's name, a file's without its folder."""
    return Path(source).name if "/" in source and Path(source).is_absolute() else source
