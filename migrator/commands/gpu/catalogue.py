"""``migrator gpu models|layouts|describe``: what GPUs can be cut into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from executor.catalogue import gpu_model, gpu_model_names
from executor.described import toml_of
from executor.mig import GpuModel, Layout, Profile
from executor.names import spelled_as
from migrator.commands.options import Backend, Card, Index, Json, with_examples
from migrator.commands.where import Where
from migrator.errors import MigratorError
from migrator.terminal.console import counted, output, print_json
from migrator.views.as_json import gpu_to_json
from migrator.views.table import Column, Sheet


@with_examples("gpu models", "gpu models A100-80GB")
def models_command(
    models: Annotated[list[str] | None, typer.Argument(metavar="[MODEL]…", help="Only these.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Print the named GPU models, or all, with their slices and profiles; unknown figures show as ``?``.

    Raises:
        UnknownGpuModelError: One of them is not catalogued.
    """
    found = [gpu_model(name) for name in models or gpu_model_names()]
    if as_json:
        print_json({"models": [gpu_to_json(model) for model in found]})
        return
    for model in found:
        _print_profiles(model, output())


@with_examples("gpu layouts a100-40gb")
def layouts_command(
    model: Annotated[str, typer.Argument(help="A GPU model, e.g. a100-80gb; see gpu models.")],
    *,
    every: Annotated[bool, typer.Option("--all", help="Every layout, not only the maximal ones.")] = False,
    profiles: Annotated[str | None, typer.Option(help="Comma-separated; default: the standard ones.")] = None,
    as_json: Json = False,
) -> None:
    """Print a GPU model's maximal layouts, or all of them, as text or JSON."""
    gpu = gpu_model(model)
    names = None if profiles is None else _profile_names(gpu, profiles)
    if names == []:
        raise MigratorError(f"--profiles names none; {gpu.name} has {', '.join(gpu.profile_names)}")
    layouts = gpu.layouts(names) if every else gpu.maximal_layouts(names)
    n_multisets = len({layout.multiset(gpu.profile_names) for layout in layouts})
    if as_json:
        kind = "layouts" if every else "maximal layouts"
        listed = [[str(placement) for placement in layout] for layout in layouts]
        print_json({"gpu": gpu.name, "kind": kind, "n_multisets": n_multisets, "layouts": listed})
        return
    kind = counted(len(layouts), "layout" if every else "maximal layout")
    title = f"{gpu.title}: {kind}, {n_multisets:,} if places do not count"
    table = Table(title=title, title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("memory slices")
    table.add_column("placements")
    for number, layout in enumerate(layouts, start=1):
        table.add_row(str(number), memory_strip(layout, gpu.memory_slices), str(layout))
    output().print(table)


@with_examples("gpu describe --index 1 > h20.toml")
def describe_command(*, card: Card = None, index: Index = 0, backend: Backend = "auto") -> None:
    """Print what the driver says that the GPU can be cut into, as a file for the config's ``gpu.model``.

    Raises:
        GpuError: There is no driver or no such GPU, or its MIG mode is off.
    """
    with Where(index, backend, card=card).opened() as gpu:
        typer.echo(toml_of(gpu.model), nl=False)


def _profile_names(model: GpuModel, profiles: str) -> list[str]:
    return [spelled_as(name.strip(), model.profile_names) for name in profiles.split(",") if name.strip()]


def memory_strip(layout: Layout, memory_slices: int) -> str:
    """One character a memory slice: a placement's compute slices at its start, ``─`` behind, ``·`` where idle."""
    strip = ["·"] * memory_slices
    for placement in layout:
        strip[placement.start] = str(placement.profile.compute_slices)
        strip[placement.start + 1 : placement.end] = ["─"] * (placement.profile.memory_slices - 1)
    return "".join(strip)


def _print_profiles(model: GpuModel, console: Console) -> None:
    title = f"{model.name}  {model.title}: {model.compute_slices} compute, {model.memory_slices} memory slices"
    frame = {"title": title, "title_justify": "left"}
    Sheet(_PROFILES, [model.profiles], spare=_SPARE, layout={"no_wrap": True}, frame=frame).print(console)
    for note in model.notes:
        console.print(f"  note: {note}", style="dim")


_LEFT = {"justify": "left"}

_PROFILES: Sequence[Column[Profile]] = (
    Column("profile", "name", layout=_LEFT),
    Column("id", "gi_profile_id"),
    Column("kind", get=lambda one: one.variant.value, layout=_LEFT),
    Column("compute", "compute_slices"),
    Column("memory", "memory_slices"),
    Column("GiB", "memory_gib", form="g", unknown="?"),
    Column("SMs", "sm_count", unknown="?"),
    Column("most", "max_instances"),
    Column("starts", get=lambda one: " ".join(map(str, one.starts)), layout=_LEFT),
)
_SPARE = ("kind", "SMs", "id", "most", "GiB", "starts")
"""Figures that a narrower terminal does without, the first named first."""
