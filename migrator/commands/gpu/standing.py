"""``migrator gpu list|assert|export``: what is on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import typer
import yaml
from rich.text import Text

from executor.discovery import card_name
from executor.driver import DriverGpu
from executor.errors import GpuError, InvalidPlacementError, TargetNotReachedError
from executor.gpu import GpuInstance
from executor.journal import JournalError, Records, in_doubt
from executor.mig import GpuModel, Layout, Placement, placed
from executor.names import spelled_as
from executor.opening import card_facts, driver_facts
from executor.processes import Process, gpu_process
from migrator.commands.options import Backend, Card, Index, Json, State, with_examples
from migrator.commands.where import Where
from migrator.errors import ExitCode, MigratorError
from migrator.terminal.console import complain, counted, escape, output, print_json, printable, warn, warn_of
from migrator.views.table import WORDS, Column, Sheet


def _some(text: str) -> str:
    """Refuse a layout of nothing, as from an unset variable of a shell."""
    if not text.strip(", "):
        raise typer.BadParameter("names no placement; `migrator gpu clear` destroys all that is ours")
    return text


_MOST_DIGITS = 3
"""Digits of the largest count of a profile that is read."""

LayoutText = Annotated[
    str,
    typer.Argument(
        metavar="LAYOUT",
        help="Placements, e.g. 2g.10gb@0,3g.20gb@4, or counts, e.g. 3g.20gb:1,1g.5gb:2.",
        callback=_some,
    ),
]


def layout_in(
    text: str, model: GpuModel, standing: Iterable[GpuInstance] = (), others: Iterable[GpuInstance] = ()
) -> Layout:
    """The layout written as ``2g.10gb@0,3g.20gb@4``, or by counts, as ``3g.20gb:1,1g.5gb:2``; none for the empty text.

    Counts find their places: around ``others``, and where most of what is ``standing`` stays.

    Raises:
        ExecutorError: A placement that the GPU does not have, or what does not go together.
        TargetNotReachedError: The counts find no room beside others.
    """
    placements, counts = list[Placement](), Counter[str]()
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, count = part.rpartition(":")
        if colon and count.isascii() and count.isdecimal() and len(count) <= _MOST_DIGITS and int(count) > 0:
            counts[model.profile(spelled_as(name, model.profile_names)).name] += int(count)
        elif colon:
            raise InvalidPlacementError(f"{part!r} is no count; write profile:count, e.g. {model.profiles[0]}:2")
        else:
            name, at, start = part.rpartition("@")
            placements.append(model.placement(f"{spelled_as(name, model.profile_names)}{at}{start}"))
    layout = model.layout(placements)
    return layout if not counts else _with_counts(model, layout, counts, standing, tuple(others))


def _with_counts(
    model: GpuModel,
    at: Layout,
    counts: Mapping[str, int],
    standing: Iterable[GpuInstance],
    others: Sequence[GpuInstance],
) -> Layout:
    stays = tuple(item.placement for item in standing)
    taken = Layout(tuple(item.placement for item in others)).memory_mask
    found = placed(model, counts, at, stays, taken)
    if found is not None:
        return found
    told = " and ".join([*(f"{n} × {name}" for name, n in counts.items()), *map(str, at)])
    if placed(model, counts, at, stays) is None:
        raise InvalidPlacementError(f"{told} cannot be placed together on {model.name}; see migrator gpu layouts")
    names = ", ".join(f"{item.placement} (GPU instance ID {item.gi_id})" for item in others)
    raise TargetNotReachedError(f"{told} cannot be placed beside what is not ours: {names}; nothing was changed")


def creations(index: int, layout: Layout) -> list[str]:
    """The commands that make the layout on an empty GPU."""
    return [
        f"nvidia-smi mig -i {index} -cgi {placement.profile.gi_profile_id}:{placement.start} -C" for placement in layout
    ]


@dataclass(frozen=True, slots=True)
class _Listed:
    """The instances of one GPU, whose each is, and who is in it.

    Without ``records`` it is unknown what is ours, without ``processes`` who is in it.
    """

    gpu: DriverGpu
    instances: tuple[GpuInstance, ...]
    records: Records | None
    processes: Mapping[int, tuple[Process, ...]] | None

    def held(self, item: GpuInstance) -> tuple[Process, ...] | None:
        """The processes in the instance; ``None`` where the driver does not tell them."""
        return None if self.processes is None else self.processes.get(item.gi_id, ())

    def whose(self, item: GpuInstance) -> Literal["ours", "others'", "perhaps ours", "unknown"]:
        """Whose instance it is."""
        if self.records is None:
            return "unknown"
        if self.records.is_ours(item):
            return "ours"
        return "perhaps ours" if self.records.is_perhaps_ours(item) else "others'"


@with_examples("gpu list", "gpu list --index 1 --json", "gpu list --gpu sim:a100-80gb")
def list_command(
    *,
    card: Card = None,
    index: Annotated[
        int | None, typer.Option("--index", "-i", min=0, help="Only this GPU, as in nvidia-smi -i. Default: all.")
    ] = None,
    backend: Backend = "auto",
    state: State = None,
    as_json: Json = False,
) -> None:
    """Print every instance on the GPU, or on all GPUs: its place, id, owner, processes and UUID.

    Raises:
        GpuError: There is no driver, or the GPU that was asked for, or each of them, cannot be listed.
    """
    answers: list[dict[str, object]] = []
    errors: list[GpuError] = []
    first = Where(index or 0, backend, state, card)
    first.mind_other_managers(may_refuse=False)
    is_one = index is not None or card is not None
    places = (first,) if is_one else [replace(first, index=one) for one in range(max(1, driver_facts().n_gpus))]
    for where in places:
        try:
            with where.opened() as gpu:
                listed = _listed(gpu, _records_or_none(where, gpu))
        except GpuError as error:
            errors.append(error)
            answers.append(_unlisted(where.index, error))
            continue
        if as_json:
            answers.append(_to_json(listed))
        else:
            _print_list(listed)
    if as_json and any(answer["uuid"] for answer in answers):
        print_json({"gpus": answers})
    if len(errors) == len(places):
        raise errors[0]
    warn_of(map(str, errors))


@with_examples("gpu assert 2g.10gb@0,3g.20gb@4")
def assert_command(
    layout: LayoutText, *, card: Card = None, index: Index = 0, backend: Backend = "auto", state: State = None
) -> None:
    """End with 0 if the GPU has just this layout, whoever made it, else with 1 and what differs."""
    with Where(index, backend, state, card).opened() as gpu:
        instances = gpu.instances()
        target = layout_in(layout, gpu.model, instances)
        missing = [str(placement) for placement in target if placement not in {i.placement for i in instances}]
        surplus = [str(item.placement) for item in instances if item.placement not in target]
        half = [str(item.placement) for item in instances if not item.uuids]
        split = [f"{item.placement} ({item.flaw.removeprefix('split: ')})" for item in instances if item.parts]
    said = (("missing", missing), ("too much", surplus), ("without compute instance", half), ("split", split))
    if any(names for _, names in said):
        complain("; ".join(f"{word}: {' '.join(names)}" for word, names in said if names))
        raise typer.Exit(ExitCode.FAILED)


@with_examples("gpu export --format mig-parted > config.yaml")
def export_command(
    *,
    card: Card = None,
    index: Index = 0,
    backend: Backend = "auto",
    state: State = None,
    form: Annotated[
        Literal["mig-parted", "nvidia-smi"], typer.Option("--format", help="mig-parted's file, or commands.")
    ] = "mig-parted",
) -> None:
    """Print the instances as another tool's configuration, or as the commands that make it.

    Raises:
        MigratorError: An instance is split, which the commands cannot make again.
    """
    with Where(index, backend, state, card).opened() as gpu:
        instances = gpu.instances()
        split = ", ".join(f"{item.placement} ({item.flaw})" for item in instances if item.parts)
        if form == "nvidia-smi" and split:
            raise MigratorError(f"{split}: -cgi -C makes whole ones only; take --format mig-parted")
        if form == "nvidia-smi":
            for command in creations(gpu.index, Layout(tuple(item.placement for item in instances))):
                typer.echo(command)
            return
        names = ([part.name for part in item.parts] or [item.placement.profile.name] for item in instances)
        counts = Counter(name for own in names for name in own)
        device = {"devices": [gpu.index], "mig-enabled": True, "mig-devices": dict(counts)}
        typer.echo(yaml.safe_dump({"version": "v1", "mig-configs": {"current": [device]}}, sort_keys=False), nl=False)


def _records_or_none(where: Where, gpu: DriverGpu) -> Records | None:
    """What is written of our instances; none, with a warning, where the file is damaged: a list is needed then, too."""
    try:
        return where.records_of(gpu)
    except JournalError as error:
        warn(str(error))
        return None


def _listed(gpu: DriverGpu, records: Records | None) -> _Listed:
    instances, held = gpu.instances(), None
    try:
        held = {gi_id: tuple(map(gpu_process, pids)) for gi_id, pids in gpu.processes().items()}
    except GpuError as error:
        warn(f"processes unknown: {error}")
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
        "reason": None,
        "instances": [
            {
                "placement": str(item.placement),
                "gi_id": item.gi_id,
                "uuid": item.uuid or None,
                "compute_instances": [
                    {"name": name, "uuid": uuid}
                    for name, uuid in (
                        [(item.placement.profile.name, item.uuid)]
                        if item.is_whole
                        else [(part.name, part.uuid) for part in item.parts]
                    )
                ],
                "ours": None if listed.records is None else listed.whose(item) == "ours",
                "perhaps_ours": None if listed.records is None else listed.whose(item) == "perhaps ours",
                "processes": None
                if (held := listed.held(item)) is None
                else [{"pid": holder.pid, "command": holder.command, "user": holder.user} for holder in held],
            }
            for item in listed.instances
        ],
    }


def _unlisted(index: int, error: GpuError) -> dict[str, object]:
    """A GPU whose instances cannot be listed, and why; without its name and UUID where the driver tells neither."""
    try:
        facts = card_facts(index)
    except GpuError:
        return {"gpu": None, "index": index, "uuid": None, "backend": None, "reason": str(error), "instances": None}
    name = card_name(facts.title, None if facts.memory_mib is None else facts.memory_mib / 1024)
    return {"gpu": name, "index": index, "uuid": facts.uuid, "backend": None, "reason": str(error), "instances": None}


def _print_list(listed: _Listed) -> None:
    gpu = listed.gpu
    n_instances = counted(len(listed.instances), "GPU instance") if listed.instances else "no GPU instance"
    output().print(f"[bold]{escape(gpu.model.title)}[/] (GPU {gpu.index}, by {gpu.backend}): {n_instances}")
    if listed.instances:
        whole: Mapping[str, object] = {"justify": "left", "no_wrap": True}
        columns: list[Column[GpuInstance]] = [
            Column("placement", text=_places, layout=whole),
            Column("id", "gi_id", form="d", layout={"no_wrap": True}),
            Column("whose", get=listed.whose, layout=whole),
            Column("processes", text=lambda item: _processes(listed.held(item)), layout=WORDS),
            Column("UUID", text=_uuids, layout=whole),
        ]
        Sheet(columns, [listed.instances], spare=("UUID", "processes")).print(output())


def _places(item: GpuInstance) -> Text:
    return Text("\n".join([str(item.placement), *(f"  {part.name}" for part in item.parts)]))


def _processes(held: Sequence[Process] | None) -> Text:
    return Text("unknown" if held is None else "\n".join(printable(str(one)) for one in held))


def _uuids(item: GpuInstance) -> Text:
    return Text("\n".join(["split:" if item.parts else item.flaw or item.uuid, *(part.uuid for part in item.parts)]))
