"""``migrator diff``: why one run was better than another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Json, with_examples
from migrator.commands.pages import require_page
from migrator.comparison.matches import CEILING, simulated
from migrator.config.reading import read_config
from migrator.errors import MigratorError
from migrator.inputs.assembly import assemble
from migrator.log.diff import diff_of
from migrator.log.runlog import CONFIG_FILE, ReadLog, read_log
from migrator.terminal.console import output, print_json, progress
from migrator.terminal.outputs import Kind, write_output
from migrator.views.as_json import diff_to_json
from migrator.views.diff import print_diff
from migrator.views.run_page import diff_to_html
from planner.policies.registry import policy_of


@with_examples("diff runs/quickstart runs/static")
def diff_command(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    other: Annotated[Path, typer.Argument(help="The folder of the run that it is held against.")],
    *,
    hindsight: Annotated[
        bool,
        typer.Option(
            "--hindsight", help="Simulate the requests once with arrivals known: tells forecast from capacity."
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a page of it into this file; needs the extra plot.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what was not the same in two runs, and where their goodput differs, by window, tenant and cause.

    Raises:
        LogError: A folder holds no log of ours.
        MigratorError: The runs have nothing in common; or ``hindsight`` is asked of a run that is not simulated, that
            has no instances, or whose config now has other requests, or of runs on other requests.
        ConfigError: The first run's config cannot be used for ``hindsight``.
    """
    if html is not None:
        require_page(html, run, other)
    one, against = read_log(run), read_log(other)
    found = diff_of(one, against)
    if hindsight:
        for log in (one, against):
            _require_simulated(log)
        if not found.same_requests:
            raise MigratorError(f"--hindsight: {run} and {other} had other requests, so that no simulation fits both")
        longer = one if one.header.windows >= against.header.windows else against
        found = diff_of(one, against, _known(longer))
    if html is not None:
        write_output("--html", html, diff_to_html(found, str(run), str(other)), Kind.PAGE)
    if as_json:
        print_json(diff_to_json(found))
    else:
        print_diff(found, output())


def _require_simulated(log: ReadLog) -> None:
    if log.header.backend is not None:
        raise MigratorError(
            f"--hindsight: {log.folder} was no simulated run; what its requests would have had is unknown"
        )


def _known(log: ReadLog) -> ReadLog:
    """The requests of the run's config under the planner that knows them before they come."""
    path = log.folder / CONFIG_FILE
    setting, traffic = assemble(read_config(path), str(path))
    with progress().status("simulating the same requests with arrivals known"):
        return simulated(setting, traffic, policy_of(CEILING))
