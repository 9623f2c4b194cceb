"""``migrator gpu watch``: what is on a GPU, then every change of it, until it is interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from executor.clock import Clock, WallClock
from executor.driver import DriverGpu
from executor.errors import RetryableGpuError
from executor.gpu import BELIEVE_FOR_S, LOOK_EVERY_S, GpuInstance
from migrator.commands.options import Backend, Card, Index, State, with_examples
from migrator.commands.where import Where
from migrator.terminal.console import warn

_SIGNS = {"stands": " ", "came": "+", "went": "−", "changed": "~"}


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """One instance as it was seen.

    Attributes:
        what: ``stands`` at first; ``came``, ``went``, or ``changed`` when it got another owner or compute instance.
        instance: As it is now, or was last.
        is_ours: Whether the journal says that we made it.
    """

    what: Literal["stands", "came", "went", "changed"]
    instance: GpuInstance
    is_ours: bool


@with_examples("gpu watch --json")
def watch_command(
    *,
    card: Card = None,
    index: Index = 0,
    backend: Backend = "auto",
    state: State = None,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Read everything so often. Default: when the driver tells of a change."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print the GPU's instances, then a line for each change.

    Everything is read anew ``every`` so many seconds; else when the driver tells of a change, and now and then.
    """
    if every is not None and not 0.1 <= every <= 86_400:
        raise typer.BadParameter(f"--every is {every:g}; 0.1 to 86400 seconds are allowed")
    where = Where(index, backend, state, card)
    where.mind_other_managers(may_refuse=False)
    with where.opened() as gpu:
        for sight in sights(gpu, where, WallClock(), every):
            typer.echo(_as_json(sight) if as_json else _as_line(sight))


def sights(gpu: DriverGpu, where: Where, clock: Clock, every_s: float | None = None) -> Iterator[SeenInstance]:
    """What is there, then what changes, for ever; what goes before what comes.

    Raises:
        GpuError: The driver does not answer any more. A trouble that may pass is reported, and waited for.
    """
    seen: dict[tuple[int, str], SeenInstance] | None = None
    due_s = clock.now_s
    while True:
        if gpu.changed() or clock.now_s >= due_s:
            try:
                records = where.records_of(gpu)
                found = [SeenInstance("stands", item, records.is_ours(item)) for item in gpu.instances()]
            except RetryableGpuError as error:
                warn(f"{error}; looking again")
                due_s = clock.now_s
            else:
                now = {(sight.instance.gi_id, str(sight.instance.placement)): sight for sight in found}
                yield from found if seen is None else _differences(seen, now)
                seen, due_s = now, clock.now_s + (BELIEVE_FOR_S if every_s is None else every_s)
        clock.sleep_until(clock.now_s + (LOOK_EVERY_S if every_s is None else every_s))


def _differences(
    before: dict[tuple[int, str], SeenInstance], after: dict[tuple[int, str], SeenInstance]
) -> Iterator[SeenInstance]:
    for key, sight in before.items():
        if key not in after:
            yield SeenInstance("went", sight.instance, sight.is_ours)
    for key, sight in after.items():
        if key not in before:
            yield SeenInstance("came", sight.instance, sight.is_ours)
        elif sight != before[key]:
            yield SeenInstance("changed", sight.instance, sight.is_ours)


def _as_line(sight: SeenInstance) -> str:
    item = sight.instance
    whose = "ours" if sight.is_ours else "others'"
    state = f", {item.flaw}" if item.flaw else ""
    return f"{_now():%H:%M:%S} {_SIGNS[sight.what]} {item.placement} {whose} (GPU instance ID {item.gi_id}{state})"


def _as_json(sight: SeenInstance) -> str:
    item = sight.instance
    return json.dumps(
        {
            "time": _now().astimezone(UTC).isoformat(timespec="milliseconds"),
            "what": sight.what,
            "placement": str(item.placement),
            "gi_id": item.gi_id,
            "uuid": item.uuid or None,
            "ours": sight.is_ours,
        }
    )


def _now() -> datetime:
    return datetime.now().astimezone()
