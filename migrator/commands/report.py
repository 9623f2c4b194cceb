"""``migrator report``: what a log says, as tables or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Json, Keep, with_examples
from migrator.commands.pages import require_page, write_page
from migrator.errors import MigratorError
from migrator.log.report import report_of
from migrator.log.runlog import read_log
from migrator.log.timeline import n_seconds
from migrator.terminal.console import escape, output, print_json, program
from migrator.views.as_json import report_to_json
from migrator.views.report import print_report
from migrator.views.sentences import print_goals
from migrator.whatif.goals import conditions_of, goals_of_run, require_kept


@with_examples(
    "report runs/quickstart --json",
    "report runs/quickstart --html run.html",
    "report runs/quickstart --keep 'goodput>=0.8'",
)
def report_command(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    *,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a page of the run into this file; needs the extra plot.")
    ] = None,
    from_s: Annotated[int, typer.Option("--from", min=0, help="Of the page: the first second.")] = 0,
    to_s: Annotated[int | None, typer.Option("--to", min=1, help="Of the page: the second at which it ends.")] = None,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Print the report of a run, and write a page of it, or of some of its seconds.

    Raises:
        LogError: The folder holds no log of ours.
        GridError: What is to be kept is no condition, or names no tenant or figure.
        MigratorError: The page cannot be written, or has no seconds.
        MissedGoalError: What was to be kept was not.
    """
    if html is None and (from_s or to_s is not None):
        raise typer.BadParameter("--from and --to are of a page; give --html FILE as well")
    if html is not None:
        require_page(html, run)
    log = read_log(run)
    report = report_of(log)
    goals = goals_of_run(report, conditions_of(keep, [tenant.name for tenant in log.header.tenants]))
    if html is not None:
        last_s = n_seconds(log)
        if not from_s < min(last_s, last_s if to_s is None else to_s):
            raise MigratorError(f"--from {from_s}: the run has seconds 0 to {last_s}, and --to must lie behind it")
        write_page(html, run, from_s, to_s)
    if as_json:
        print_json(report_to_json(report, goals))
    else:
        print_goals(goals, output())
        print_report(report, output())
        if report.ending != "finished":
            is_real = report.header.backend is not None  # the log does not say where the journals are
            state = ", with --state DIR if it was begun with that" if is_real else ""
            again = f"{escape(program())} run --resume {escape(str(run))}"
            output().print(f"To go on with it: {again}{state}", soft_wrap=True)
    require_kept(goals)
