"""A layout as it is given on the command line, and as the commands that make it."""

from __future__ import annotations

from typing import Annotated

import typer

from executor.mig import GpuModel, Layout
from executor.names import spelled_as

LayoutText = Annotated[str, typer.Argument(metavar="LAYOUT", help="Placements, e.g. 2g.10gb@0,3g.20gb@4.")]


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


def creations(index: int, layout: Layout) -> list[str]:
    """The commands that make the layout on an empty GPU."""
    return [
        f"nvidia-smi mig -i {index} -cgi {placement.profile.gi_profile_id}:{placement.start} -C" for placement in layout
    ]
