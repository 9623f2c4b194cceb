"""``migrator gpu list|diff|apply|assert|clear|restore|export``: what stands on a real GPU, and what should."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
import yaml
from rich import box
from rich.table import Table

from executor.clock import WallClock
from executor.driver import DriverGpu
from executor.errors import GpuError, InUseError, OtherControllerError, TargetNotReachedError
from executor.gpu import GpuInstance
from executor.journal import Journal, JournalError, Records, file_of, in_doubt, recorded
from executor.mig import GpuModel, Layout
from executor.names import spelled_as
from executor.opening import BackendName, driver_facts, open_gpu
from executor.processes import Process, gpu_process, other_managers
from executor.reconcile import Decision, Outcome, Reconciler, decide
from migrator.console import complain, counted, escape, output, print_json, warn, warn_of
from migrator.errors import ExitCode, MigratorError
from migrator.views.fitted import fitted, left_out_text

_HEADINGS = ("id", "whose", "processes", "UUID")


@dataclass(frozen=True, slots=True)
class Where:
    """Which GPU, how to speak to it, and where what is ours is written down."""

    index: int = 0
    backend: BackendName = "auto"
    state: Path | None = None

    def journal_of(self, gpu: DriverGpu) -> Path:
        """The file of our instances on the GPU."""
        return file_of(self.state or state_folder(), gpu.uuid)

    def records_of(self, gpu: DriverGpu) -> Records:
        """What is written of our instances on the GPU.

        Raises:
            JournalError: The file cannot be read, or it is not ours.
        """
        return recorded(self.journal_of(gpu), gpu.boot)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a GPU is changed.

    Attributes:
        dry_run: Print the commands, and change nothing.
        adopt: Take over what others made.
        beside_others: Go on although another manager of this node may undo it.
    """

    dry_run: bool = False
    adopt: bool = False
    beside_others: bool = False


@dataclass(frozen=True, slots=True)
class _Listed:
    """What stands on one GPU, whose it is, and who is in it; without ``records`` nobody knows what is ours."""

    gpu: DriverGpu
    instances: tuple[GpuInstance, ...]
    records: Records | None
    processes: Mapping[int, tuple[Process, ...]]

    def whose(self, item: GpuInstance) -> Literal["ours", "others'", "perhaps ours", "unknown"]:
        """Whose instance it is."""
        if self.records is None:
            return "unknown"
        if self.records.is_ours(item):
            return "ours"
        return "perhaps ours" if self.records.is_perhaps_ours(item) else "others'"


def list_command(index: int | None, backend: BackendName, state: Path | None, *, as_json: bool) -> None:
    """Print every instance on the GPU, or on all GPUs: its place, id, owner, processes and UUID.

    Raises:
        GpuError: There is no driver, or the GPU that was asked for, or each of them, cannot be listed.
    """
    answers: list[dict[str, object]] = []
    errors: list[GpuError] = []
    mind_other_managers(may_refuse=False)
    indices = (index,) if index is not None else range(max(1, driver_facts(backend).n_gpus))
    for one in indices:
        where = Where(one, backend, state)
        try:
            with open_gpu(backend, one) as gpu:
                listed = _listed(gpu, _records_or_none(where, gpu))
        except GpuError as error:
            errors.append(error)
            continue
        if as_json:
            answers.append(_to_json(listed))
        else:
            _print_list(listed)
    if len(errors) == len(indices):
        raise errors[0]
    warn_of(map(str, errors))
    if as_json:
        print_json({"gpus": answers})


def diff_command(text: str, where: Where, *, as_json: bool) -> None:
    """Print what would have to be done for the layout to stand, and do nothing."""
    mind_other_managers(may_refuse=False)
    with open_gpu(where.backend, where.index) as gpu:
        standing, records = gpu.instances(), where.records_of(gpu)
        decision = decide(standing, records.is_ours, layout_in(text, gpu.model))
        warn_of(map(in_doubt, filter(records.is_perhaps_ours, standing)))
        if as_json:
            print_json(_decision_to_json(decision))
        else:
            print_decision(decision, gpu.index)


def apply_command(text: str, where: Where, manner: Manner) -> None:
    """Bring the GPU to the layout; what others made stays, unless it is adopted.

    Raises:
        OtherControllerError: Another controller has the GPU, or another manager of this node would undo the layout.
        TargetNotReachedError: Something is missing, would not go, or is in the way.
    """
    with open_gpu(where.backend, where.index) as gpu:
        _bring(gpu, layout_in(text, gpu.model), where, manner)


def clear_command(where: Where, manner: Manner) -> None:
    """Take away every instance of ours, and nobody else's."""
    apply_command("", where, manner)


def restore_command(where: Where, manner: Manner) -> None:
    """Bring back the layout that was last asked for, as after a reboot.

    Raises:
        MigratorError: None ever was.
    """
    with open_gpu(where.backend, where.index) as gpu:
        records = where.records_of(gpu)
        target = records.target
        if target is None:
            raise MigratorError(f"no layout to restore on GPU {gpu.index}: gpu apply writes it to {records.path}")
        output().print(f"last asked for: {escape(' '.join(target)) or 'no instance of ours'}", soft_wrap=True)
        _bring(gpu, layout_in(",".join(target), gpu.model), where, manner)


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


def mind_other_managers(*, may_refuse: bool) -> None:
    """Tell of other managers of MIG on this node, or refuse to work beside them.

    Raises:
        OtherControllerError: There is one, and it ``may_refuse``.
    """
    found = "; ".join(map(str, other_managers()))
    if found and may_refuse:
        raise OtherControllerError(f"{found}; stop it, or go on all the same with --beside-other-managers")
    if found:
        warn(f"{found}: layouts made here may be undone, and instances given away")


def _bring(gpu: DriverGpu, target: Layout, where: Where, manner: Manner) -> None:
    """Bring the GPU to the layout, or say how that would be done."""
    if not manner.dry_run:
        mind_other_managers(may_refuse=not manner.beside_others)
        with Journal(where.journal_of(gpu), gpu.boot) as journal:
            reconciler = Reconciler(gpu, journal, WallClock())
            reconciler.settle()
            if manner.adopt:
                for item in reconciler.adopt():
                    output().print(f"adopted {item.placement} (GPU instance ID {item.gi_id})")
            journal.aim(target)
            try:
                _end(reconciler.apply(target))
            finally:
                warn_of(journal.untold())
        return
    mind_other_managers(may_refuse=False)
    standing, records = gpu.instances(), where.records_of(gpu)
    warn_of(map(in_doubt, filter(records.is_perhaps_ours, () if manner.adopt else standing)))
    adopted = tuple(item for item in standing if manner.adopt and not records.is_ours(item))
    for item in adopted:
        output().print(f"[dim]adopt   {item.placement} (GPU instance ID {item.gi_id})[/]")
    print_decision(decide(standing, lambda item: item in adopted or records.is_ours(item), target), gpu.index)


def _end(outcome: Outcome) -> None:
    for item in outcome.standing:
        output().print(f"{item.placement}  GPU instance ID {item.gi_id}  {item.uuid}", soft_wrap=True)
    if not outcome.is_complete:
        unexplained = any(isinstance(item.error, InUseError) and not item.holders for item in outcome.undone)
        advice = ["migrator doctor looks for programs that hold instances unlisted"] if unexplained else []
        raise TargetNotReachedError("; ".join([*map(str, outcome.undone), *map(str, outcome.blocked), *advice]))


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


def print_decision(decision: Decision, index: int) -> None:
    """Print what would be done on the GPU, as ``nvidia-smi`` commands."""
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


def _records_or_none(where: Where, gpu: DriverGpu) -> Records | None:
    """What is written of our instances; none where the file is damaged, which is told: whoever looks has to see."""
    try:
        return where.records_of(gpu)
    except JournalError as error:
        warn(str(error))
        return None


def _listed(gpu: DriverGpu, records: Records | None) -> _Listed:
    instances = gpu.instances()
    held = {gi_id: tuple(map(gpu_process, pids)) for gi_id, pids in gpu.processes().items()}
    if records is not None:
        warn_of(map(in_doubt, filter(records.is_perhaps_ours, instances)))
    return _Listed(gpu, instances, records, held)


def _to_json(listed: _Listed) -> dict[str, object]:
    gpu = listed.gpu
    return {
        "gpu": gpu.model.name,
        "index": gpu.index,
        "uuid": gpu.uuid,
        "backend": gpu.backend,
        "instances": [
            {
                "placement": str(item.placement),
                "gi_id": item.gi_id,
                "uuid": item.uuid or None,
                "ours": None if listed.records is None else listed.whose(item) == "ours",
                "perhaps_ours": None if listed.records is None else listed.whose(item) == "perhaps ours",
                "processes": [
                    {"pid": holder.pid, "command": holder.command, "user": holder.user}
                    for holder in listed.processes.get(item.gi_id, ())
                ],
            }
            for item in listed.instances
        ],
    }


def _print_list(listed: _Listed) -> None:
    gpu = listed.gpu
    n_instances = counted(len(listed.instances), "GPU instance") if listed.instances else "no GPU instance"
    output().print(f"[bold]{escape(gpu.model.title)}[/] (GPU {gpu.index}, by {gpu.backend}): {n_instances}")
    if not listed.instances:
        return
    table, left_out = fitted(lambda shown: _table(listed, shown), _HEADINGS, ("UUID", "processes"), output())
    output().print(table)
    if left_out:
        output().print(left_out_text(left_out), style="dim")


def _table(listed: _Listed, shown: Iterable[str]) -> Table:
    headings = tuple(shown)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("placement", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right" if heading == "id" else "left", no_wrap=heading != "processes")
    for item in listed.instances:
        cells = {
            "id": str(item.gi_id),
            "whose": listed.whose(item),
            "processes": "\n".join(escape(str(holder)) for holder in listed.processes.get(item.gi_id, ())),
            "UUID": item.uuid or "no compute instance",
        }
        table.add_row(str(item.placement), *(cells[heading] for heading in headings))
    return table
