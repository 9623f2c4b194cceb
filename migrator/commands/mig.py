"""``migrator gpu list|diff|apply|assert|clear|export``: what stands on a real GPU, and what should."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
import yaml
from rich import box
from rich.table import Table

from executor.clock import WallClock
from executor.driver import DriverGpu
from executor.errors import TargetNotReachedError
from executor.gpu import GpuInstance
from executor.journal import Journal
from executor.mig import GpuModel, Layout
from executor.names import spelled_as
from executor.opening import Backend, open_gpu
from executor.reconcile import Decision, Outcome, Reconciler
from migrator.console import complain, escape, output, print_json
from migrator.errors import ExitCode
from migrator.views.fitted import fitted, left_out_text

_HEADINGS = ("id", "whose", "processes", "UUID")


@dataclass(frozen=True, slots=True)
class Where:
    """Which GPU, how to speak to it, and where what is ours is written down."""

    index: int = 0
    backend: Backend = "auto"
    state: Path | None = None


def list_command(where: Where, *, as_json: bool) -> None:
    """Print every instance on the GPU: its place, id, owner, processes and UUID."""
    with _controlled(where) as (gpu, journal):
        instances, processes = gpu.instances(), gpu.processes()
        ours = {item.gi_id for item in instances if journal.is_ours(item)}
        if as_json:
            listed = [_to_json(item, item.gi_id in ours, processes.get(item.gi_id, ())) for item in instances]
            print_json({"gpu": gpu.model.name, "index": gpu.index, "backend": gpu.backend, "instances": listed})
            return
        output().print(f"[bold]{escape(gpu.model.title)}[/] (GPU {gpu.index}, by {gpu.backend}): {_counted(instances)}")
        if instances:
            table, left_out = fitted(
                lambda shown: _table(instances, ours, processes, shown), _HEADINGS, ("UUID", "processes"), output()
            )
            output().print(table)
            if left_out:
                output().print(left_out_text(left_out), style="dim")


def diff_command(text: str, where: Where, *, as_json: bool) -> None:
    """Print what would have to be done for the layout to stand, and do nothing."""
    with _controlled(where) as (gpu, journal):
        decision = _reconciler(gpu, journal).decision(layout_in(text, gpu.model))
        if as_json:
            print_json(_decision_to_json(decision))
        else:
            _print_decision(decision, gpu.index)


def apply_command(text: str, where: Where, *, dry_run: bool, adopt: bool) -> None:
    """Bring the GPU to the layout; what others made stays, unless it is adopted."""
    with _controlled(where) as (gpu, journal):
        target = layout_in(text, gpu.model)
        reconciler = _reconciler(gpu, journal)
        if dry_run:
            _print_decision(reconciler.decision(target), gpu.index)
            return
        if adopt:
            for item in reconciler.adopt():
                output().print(f"adopted {item.placement} (GPU instance ID {item.gi_id})")
        _end(reconciler.apply(target))


def clear_command(where: Where, *, dry_run: bool) -> None:
    """Take away every instance of ours, and nobody else's."""
    apply_command("", where, dry_run=dry_run, adopt=False)


def assert_command(text: str, where: Where) -> None:
    """End with 0 if just this layout stands, whoever made it, else with 1 and what differs."""
    with open_gpu(where.backend, where.index) as gpu:
        target = layout_in(text, gpu.model)
        instances = gpu.instances()
        missing = [str(placement) for placement in target if placement not in {i.placement for i in instances}]
        surplus = [str(item.placement) for item in instances if item.placement not in target]
        half = [str(item.placement) for item in instances if not item.is_whole]
    said = (("missing", missing), ("too much", surplus), ("without compute instance", half))
    if any(names for _, names in said):
        complain("; ".join(f"{word}: {' '.join(names)}" for word, names in said if names))
        raise typer.Exit(ExitCode.FAILED)


def export_command(where: Where, form: Literal["mig-parted", "nvidia-smi"]) -> None:
    """Print what stands as another tool's configuration, or as the commands that make it."""
    with open_gpu(where.backend, where.index) as gpu:
        instances = gpu.instances()
        if form == "nvidia-smi":
            for command in _creations(gpu.index, Layout(tuple(item.placement for item in instances))):
                typer.echo(command)
            return
        counts = Counter(item.placement.profile.name for item in instances)
        device = {"devices": [gpu.index], "mig-enabled": True, "mig-devices": dict(counts)}
        typer.echo(yaml.safe_dump({"version": "v1", "mig-configs": {"current": [device]}}, sort_keys=False), nl=False)


def layout_in(text: str, model: GpuModel) -> Layout:
    """The layout written as ``2g.10gb@0,3g.20gb@4``; the empty text is the empty layout.

    Raises:
        ExecutorError: A placement that the GPU does not have, or placements that do not go together.
    """
    placements = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, start = part.rpartition("@")
        placements.append(model.placement(f"{spelled_as(name, model.profile_names)}{separator}{start}"))
    return model.layout(placements)


def state_folder() -> Path:
    """Where what is ours is written down, unless it is said: ``$XDG_STATE_HOME/migrator``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "migrator"


@contextmanager
def _controlled(where: Where) -> Iterator[tuple[DriverGpu, Journal]]:
    """The GPU with the journal of our instances on it, made to agree with what stands."""
    with open_gpu(where.backend, where.index) as gpu:
        path = (where.state or state_folder()) / f"{gpu.uuid}.jsonl"
        with Journal(path) as journal:
            journal.settle(gpu.instances())
            yield gpu, journal


def _reconciler(gpu: DriverGpu, journal: Journal) -> Reconciler:
    return Reconciler(gpu, journal, WallClock())


def _end(outcome: Outcome) -> None:
    for item in outcome.standing:
        output().print(f"{item.placement}  GPU instance ID {item.gi_id}  {item.uuid}", soft_wrap=True)
    if not outcome.is_complete:
        raise TargetNotReachedError("; ".join(map(str, (*outcome.undone, *outcome.blocked))))


def _commands(decision: Decision, index: int) -> list[str]:
    lines = []
    for item in decision.destroyed:
        compute = [f"nvidia-smi mig -i {index} -dci -gi {item.gi_id}"] if item.is_whole else []
        lines += [*compute, f"nvidia-smi mig -i {index} -dgi -gi {item.gi_id}"]
    lines += [f"nvidia-smi mig -i {index} -cci -gi {item.gi_id}" for item in decision.repaired]
    return [*lines, *_creations(index, Layout(decision.created))]


def _creations(index: int, layout: Layout) -> list[str]:
    return [
        f"nvidia-smi mig -i {index} -cgi {placement.profile.gi_profile_id}:{placement.start} -C" for placement in layout
    ]


def _print_decision(decision: Decision, index: int) -> None:
    for item in decision.kept:
        output().print(f"[dim]keep    {item.placement} (GPU instance ID {item.gi_id})[/]")
    for command in _commands(decision, index):
        output().print(command, soft_wrap=True)
    for blocked in decision.blocked:
        output().print(f"[yellow]blocked[/] {escape(str(blocked))}", soft_wrap=True)
    if decision.is_done:
        output().print("nothing to do")


def _decision_to_json(decision: Decision) -> dict[str, object]:
    def described(items: Iterable[GpuInstance]) -> list[dict[str, object]]:
        return [{"placement": str(item.placement), "gi_id": item.gi_id} for item in items]

    return {
        "kept": described(decision.kept),
        "repaired": described(decision.repaired),
        "destroyed": described(decision.destroyed),
        "created": [str(placement) for placement in decision.created],
        "blocked": [{"placement": str(item.placement), "by": described(item.by)} for item in decision.blocked],
        "is_done": decision.is_done,
    }


def _to_json(item: GpuInstance, is_ours: bool, processes: tuple[int, ...]) -> dict[str, object]:
    return {
        "placement": str(item.placement),
        "gi_id": item.gi_id,
        "uuid": item.uuid or None,
        "ours": is_ours,
        "processes": list(processes),
    }


def _table(
    instances: Iterable[GpuInstance],
    ours: set[int],
    processes: Mapping[int, tuple[int, ...]],
    shown: Iterable[str],
) -> Table:
    headings = tuple(shown)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("placement", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right" if heading == "id" else "left", no_wrap=heading != "processes")
    for item in instances:
        cells = {
            "id": str(item.gi_id),
            "whose": "ours" if item.gi_id in ours else "others'",
            "processes": " ".join(map(str, processes.get(item.gi_id, ()))),
            "UUID": item.uuid or "no compute instance",
        }
        table.add_row(str(item.placement), *(cells[heading] for heading in headings))
    return table


def _counted(instances: tuple[GpuInstance, ...]) -> str:
    return "no GPU instance" if not instances else f"{len(instances)} GPU instance{'s' if len(instances) > 1 else ''}"
