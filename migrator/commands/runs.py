"""``migrator runs``: which runs lie in a folder, and their state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from migrator.commands.options import RUNS, Json, with_examples
from migrator.errors import LogError, MigratorError
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, is_being_written, read_log
from migrator.terminal.console import escape, output, print_json


@with_examples("runs", "runs results --json")
def runs_command(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where they lie.")] = RUNS,
    *,
    as_json: Json = False,
) -> None:
    """Print the runs in a folder: policy, workload, windows done, goodput, and each one's state.

    Raises:
        MigratorError: There is no such folder.
    """
    if not folder.is_dir():
        raise MigratorError(f"{folder}: is no folder; runs lie in {RUNS} unless --out says otherwise")
    found = [_standing(path.parent) for path in sorted(folder.glob(f"*/{EVENTS_FILE}"))]
    if as_json:
        print_json({"schema": 1, "runs": found})
        return
    if not found:
        output().print(f"no runs in {escape(str(folder))}")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("run", "policy", "workload", "windows", "goodput %", "state"):
        table.add_column(heading, justify="right" if heading in ("windows", "goodput %") else "left", overflow="fold")
    for one in found:
        goodput = "–" if one["goodput_pct"] is None else f"{one['goodput_pct']:.2f}"
        done, of = one["windows_done"], one["windows"]
        windows = "–" if done is None else f"{done}" if of is None else f"{done} of {of}"
        texts = (one["run"], one["policy"] or "–", one["workload"] or "–", windows, goodput, one["state"])
        table.add_row(*(escape(str(text)) for text in texts))
    output().print(table)


def _standing(folder: Path) -> dict[str, object]:
    """The state of the run in the folder; ``state`` says what is wrong with a log that cannot be read."""
    known: dict[str, object] = dict.fromkeys(("policy", "workload", "windows_done", "windows", "goodput_pct"))
    is_open = is_being_written(folder)
    try:
        report = report_of(read_log(folder))
    except LogError as error:
        return {"run": str(folder), **known, "state": f"damaged: {error}"}
    return {
        "run": str(folder),
        "policy": report.header.policy,
        "workload": report.header.name,
        "windows_done": sum(not window.is_void for window in report.windows),
        "windows": None if report.header.service else report.header.windows,
        "goodput_pct": None if report.total is None else report.total.requests.goodput_pct,
        "state": "running" if is_open and report.ending != "finished" else report.ending,
    }
