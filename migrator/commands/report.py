"""``migrator report``: what a log says, in a screen, as tables, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from migrator.commands.options import Json, Keep, with_examples
from migrator.commands.pages import MOST_WINDOWS, bounded, follow_page, require_page, rival_of, tell, write_page
from migrator.errors import MigratorError
from migrator.log.report import Report, report_of
from migrator.log.runlog import ReadLog, read_log
from migrator.log.timeline import n_seconds
from migrator.terminal.console import escape, note, output, print_json, program
from migrator.views.as_json import report_to_json
from migrator.views.ending import print_full
from migrator.views.report import print_assumed, print_by_window
from migrator.views.sentences import print_goals
from migrator.whatif.goals import conditions_of, goals_of_run, require_kept
from migrator.whatif.search import Condition

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str | None) -> float | None:
    """How many seconds a length such as ``24h`` has.

    Raises:
        BadParameter: It is none.
    """
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9}(?:[.][0-9]{1,9})?)([smhd])", text)
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"{text!r}: a number above 0 and s, m, h or d is needed, as in 24h")
    return float(found[1]) * UNITS_S[found[2]]


@with_examples(
    "report runs/quickstart --full",
    "report runs/shop --last 24h",
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
    last: Annotated[
        str | None,
        typer.Option(metavar="24h", help="Only the windows that began in the log's last seconds, s, m, h or d."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Print no report, and write the page again and again, until the run is over."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="All that there is: tables, the layout over time, every retraining.")
    ] = False,
    by_window: Annotated[
        bool, typer.Option("--by-window", help="Only the table of windows and tenants, with its totals.")
    ] = False,
    assumed: Annotated[
        bool, typer.Option("--assumed", help="Only what was neither given nor measured, with its source.")
    ] = False,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Print the report of a run, and write a page of it, or of some of its seconds, once or while the run goes on.

    Of a run it is what ``run`` has printed. ``full``, ``by_window`` and ``assumed`` take its place. ``last`` leaves
    windows out.

    Raises:
        LogError: The folder holds no log of ours.
        GridError: What is to be kept is no condition, or names no tenant or figure.
        MigratorError: The page cannot be written, or has no seconds.
        MissedGoalError: What was to be kept was not.
    """
    options = {"--full": full, "--by-window": by_window, "--assumed": assumed, "--json": as_json}
    given = [name for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)}: give one of them; --json has the figures of all")
    if html is None and (from_s or to_s is not None):
        raise typer.BadParameter("--from and --to are of a page; give --html FILE as well")
    if follow and (html is None or from_s or to_s is not None or keep or given or last):
        raise typer.BadParameter("--follow writes the page of a whole run; give --html FILE, and no other option")
    last_s = seconds_of(last)
    if html is not None:
        require_page(html, run)
        if follow:
            follow_page(html, run)
            return
    log = read_log(run, last_s)
    if log.begins is not None:
        why = "older segments of its log are gone" if last_s is None else f"the last {last}"
        note(f"from window {log.first_window} on: {why}")
    report = report_of(log)
    conditions = conditions_of(keep, [tenant.name for tenant in log.header.tenants])
    goals = goals_of_run(report, conditions)
    shown = log if html is None else bounded(log)
    if html is not None:
        first_s, end_s = round(shown.first_window * log.header.window_s), n_seconds(log)
        if not max(from_s, first_s) < min(end_s, end_s if to_s is None else to_s):
            there = f"the page has seconds {first_s} to {end_s}"
            raise MigratorError(f"--from {from_s}: {there}, and --to must lie behind it")
    if as_json:
        print_json(report_to_json(report, goals))
    else:
        _print(log, report, conditions, given)
    if html is not None:
        if shown is not log:
            note(f"the page begins with window {shown.first_window}: it has at most {MOST_WINDOWS:,} of a service")
        write_page(html, shown, rival_of(run), from_s, to_s, conditions)
    require_kept(goals)


def _print(log: ReadLog, report: Report, conditions: Sequence[Condition], given: Sequence[str]) -> None:
    match given:
        case []:
            tell(log, report, conditions)
        case [option]:
            print_goals(goals_of_run(report, conditions), output())
            if option == "--full":
                print_full(log, report, rival_of(log.folder), output())
            elif option == "--by-window":
                print_by_window(report, output())
            else:
                print_assumed(log.header, output())
    if report.ending != "finished" and not report.header.service:
        is_real = report.header.backend is not None  # the log does not say where the journals are
        state = ", with --state DIR if it was begun with that" if is_real else ""
        again = f"{escape(program())} run --resume {escape(str(log.folder))}"
        output().print(f"To go on with it: {again}{state}", soft_wrap=True)
