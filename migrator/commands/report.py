"""``migrator report``: what a log says, as tables or JSON."""

from __future__ import annotations

from pathlib import Path

from migrator.console import escape, output, print_json, program
from migrator.log.report import report_of
from migrator.log.runlog import SCHEMA, read_log
from migrator.views.as_json import report_to_json
from migrator.views.report import print_report


def report_command(folder: Path, *, as_json: bool) -> None:
    """Print the report of the run in ``folder``.

    Raises:
        LogError: The folder holds no log of ours.
    """
    report = report_of(read_log(folder))
    if as_json:
        print_json(report_to_json(report))
    else:
        print_report(report, output())
        if report.ending != "finished" and report.header["schema"] == SCHEMA:
            is_real = "backend" in report.header  # the log does not say where the journals are
            state = ", with --state DIR if it was begun with that" if is_real else ""
            again = f"{escape(program())} run --resume {escape(str(folder))}"
            output().print(f"To go on with it: {again}{state}", soft_wrap=True)
