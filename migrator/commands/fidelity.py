"""``migrator fidelity``: live runs beside the simulation of their requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from migrator.console import output, print_json, progress
from migrator.errors import ExitCode
from migrator.fidelity.live import replayed, verdict_of
from migrator.views.as_json import fidelity_to_json
from migrator.views.fidelity import print_fidelity


def fidelity_command(folders: Sequence[Path], *, must_be_near: bool, as_json: bool) -> None:
    """Print how near the simulation comes to each run, and to all of them; with ``must_be_near``, end with 1 if not.

    Raises:
        LogError: A folder holds no live run, or one of which no window is settled.
        ConfigError: A run's config cannot be used.
        StreamError: A run's requests cannot be read.
        MigratorError: A run's service profile is not the one that it began with; or an extra is missing.
    """
    with progress().status("simulating the requests of live runs"):
        runs = [replayed(folder) for folder in folders]
    verdict = verdict_of(runs)
    if as_json:
        print_json(fidelity_to_json(runs, verdict))
    else:
        print_fidelity(runs, verdict, output())
    if must_be_near and verdict.shortfalls:
        raise typer.Exit(ExitCode.FAILED)
