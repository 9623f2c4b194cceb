"""``migrator fidelity``: live runs beside the simulation of their requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Json, with_examples
from migrator.errors import ExitCode
from migrator.fidelity.live import replayed, verdict_of
from migrator.terminal.console import output, print_json, progress
from migrator.views.as_json import fidelity_to_json
from migrator.views.fidelity import print_fidelity


@with_examples("fidelity runs/live-cpu runs/live-cpu-2 runs/live-cpu-3")
def fidelity_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of live runs; medians are taken.")],
    *,
    check: Annotated[bool, typer.Option("--check", help="End with 1 unless the simulation is near enough.")] = False,
    as_json: Json = False,
) -> None:
    """Print how near the simulation comes to each run, and to all of them; with ``check``, end with 1 if not.

    Raises:
        LogError: A folder holds no live run, or one of which no window is settled.
        ConfigError: A run's config cannot be used.
        StreamError: A run's requests cannot be read.
        MigratorError: A run's service profile is not the one that it began with; or an extra is missing.
    """
    with progress().status("simulating the requests of live runs"):
        replays = [replayed(folder) for folder in runs]
    verdict = verdict_of(replays)
    if as_json:
        print_json(fidelity_to_json(replays, verdict))
    else:
        print_fidelity(replays, verdict, output())
    if check and verdict.shortfalls:
        raise typer.Exit(ExitCode.FAILED)
