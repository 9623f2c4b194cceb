"""``migrator gpu models`` and ``migrator gpu layouts``."""

from __future__ import annotations

from rich.table import Table

from executor.catalogue import gpu_model, gpu_model_names
from executor.mig import GpuModel, Layout
from migrator.console import output, print_json
from migrator.errors import MigratorError
from migrator.views.as_json import gpu_to_json


def models_command(*, as_json: bool) -> None:
    """Print every GPU model with its slices and profiles; unknown figures show as ``?``."""
    models = [gpu_model(name) for name in gpu_model_names()]
    if as_json:
        print_json({"models": [gpu_to_json(model) for model in models]})
        return
    for model in models:
        output().print(_profile_table(model))
        for note in model.notes:
            output().print(f"  note: {note}", style="dim")


def layouts_command(model_name: str, *, every: bool, profiles: str | None, as_json: bool) -> None:
    """Print a GPU model's maximal layouts, or all of them, as text or JSON."""
    model = gpu_model(model_name)
    names = None if profiles is None else [name.strip() for name in profiles.split(",") if name.strip()]
    if names == []:
        raise MigratorError(f"--profiles names none; {model.name} has {', '.join(model.profile_names)}")
    layouts = model.layouts(names) if every else model.maximal_layouts(names)
    n_multisets = len({layout.multiset(model.profile_names) for layout in layouts})
    kind = "layouts" if every else "maximal layouts"
    if as_json:
        listed = [[str(placement) for placement in layout] for layout in layouts]
        print_json({"gpu": model.name, "kind": kind, "n_multisets": n_multisets, "layouts": listed})
        return
    table = Table(title=f"{model.title}: {len(layouts)} {kind}, {n_multisets} multisets", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("memory slices")
    table.add_column("placements")
    for number, layout in enumerate(layouts, start=1):
        table.add_row(str(number), memory_strip(layout, model.memory_slices), str(layout))
    output().print(table)


def memory_strip(layout: Layout, memory_slices: int) -> str:
    """One character a memory slice: a placement's compute slices at its start, ``─`` behind, ``·`` where idle."""
    strip = ["·"] * memory_slices
    for placement in layout:
        strip[placement.start] = str(placement.profile.compute_slices)
        strip[placement.start + 1 : placement.end] = ["─"] * (placement.profile.memory_slices - 1)
    return "".join(strip)


def _profile_table(model: GpuModel) -> Table:
    title = f"{model.name}  {model.title}: {model.compute_slices} compute, {model.memory_slices} memory slices"
    table = Table(title=title, title_justify="left")
    for heading in ("profile", "id", "kind", "compute", "memory", "GiB", "SMs", "most", "starts"):
        table.add_column(heading, justify="left" if heading in ("profile", "kind", "starts") else "right")
    for profile in model.profiles:
        table.add_row(
            profile.name,
            str(profile.gi_profile_id),
            profile.variant.value,
            str(profile.compute_slices),
            str(profile.memory_slices),
            "?" if profile.memory_gib is None else f"{profile.memory_gib:g}",
            "?" if profile.sm_count is None else str(profile.sm_count),
            str(profile.max_instances),
            " ".join(map(str, profile.starts)),
        )
    return table
