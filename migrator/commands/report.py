"""``migrator report``: what a log says, as tables or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Json, with_examples
from migrator.console import escape, output, print_json, program
from migrator.log.report import report_of
from migrator.log.runlog import read_log
from migrator.views.as_json import report_to_json
from migrator.views.report import print_report


@with_examples("report runs/quickstart --json")
def report_command(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    *,
    as_json: Json = False,
) -> None:
    """Print the report of a run.

    Raises:
        LogError: The folder holds no log of ours.
    """
    report = report_of(read_log(run))
    if as_json:
        print_json(report_to_json(report))
    else:
        print_report(report, output())
        if report.ending != "finished":
            is_real = report.header.backend is not None  # the log does not say where the journals are
            state = ", with --state DIR if it was begun with that" if is_real else ""
            again = f"{escape(program())} run --resume {escape(str(run))}"
            output().print(f"To go on with it: {again}{state}", soft_wrap=True)
