"""What a run's pages say: by a new run, by one that is taken up again, and by a report."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from migrator.errors import LogError
from migrator.log.follow import FollowedLog, RunState
from migrator.log.report import Report
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, PROGRESS_FILE, ReadLog, read_log
from migrator.terminal.console import escape, output, warn
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.terminal.signals import interruptible
from migrator.views.page import require_plot_extra
from migrator.views.sentences import print_goals
from migrator.views.summary import print_summary
from migrator.whatif.goals import goals_of_run
from migrator.whatif.search import Condition

AGAINST = "against"
"""Of a run's folder, where the run of the policy lies that it was held against."""

MOST_WINDOWS = 432
"""Of a service a page has the last ones: a day of 200 s each."""

PAUSE_S, REST = 0.8, 9.0
"""Between two pages of a run that goes on, at least; and how many times the processor's time that one took."""


def tell(log: ReadLog, report: Report, conditions: Sequence[Condition], html: Path | None = None) -> None:
    """Print what a run kept of the conditions, and its report in a screen; write its page into ``html``.

    Raises:
        OutputError: The page cannot be written.
    """
    rival = rival_of(log.folder)
    print_goals(goals_of_run(report, conditions), output())
    print_summary(log, report, rival, conditions, output())
    if html is not None:
        write_page(html, log, rival, conditions=conditions)


def require_page(path: Path, *inputs: Path, run: Path | None = None, option: str = "--html") -> None:
    """Refuse a page that cannot be written, would take the place of an input, or needs an extra.

    It may lie in the folder ``run`` of a run that is about to begin. ``option`` asked for it; an input may be a run's
    folder.

    Raises:
        MigratorError: Names the file and the reason.
    """
    require_plot_extra(option)
    if run is not None and path.parent == run and path.name not in (EVENTS_FILE, CONFIG_FILE, PROGRESS_FILE, AGAINST):
        return  # the folder is made when the run has a plan, and is its own
    files = [file for one in inputs for file in (one, one / EVENTS_FILE, one / CONFIG_FILE)]
    require_writable(option, path, Kind.PAGE, *files)


def write_page(
    path: Path,
    log: ReadLog,
    rival: ReadLog | None,
    from_s: int = 0,
    to_s: int | None = None,
    conditions: Sequence[Condition] = (),
) -> None:
    """Write the page of a run, or of some of its seconds, and say how to open it.

    ``rival`` is the log of another policy on the same requests; tenants are judged by the ``conditions`` of ``--keep``.

    Raises:
        OutputError: The file cannot be written.
    """
    from migrator.views.run_page import run_to_html  # noqa: PLC0415 - a run without a page should not wait for it

    write_output("--html", path, run_to_html(log, rival, from_s, to_s, conditions), Kind.PAGE)
    output().print(f"  {escape(how_to_open(path))}", soft_wrap=True)


def follow_page(path: Path, folder: Path) -> None:
    """Write the page of the run in the folder again and again, until the run is over or a signal ends that.

    Raises:
        LogError: There is no run in the folder, or its log is damaged; the page is as it was.
        OutputError: The file cannot be written.
    """
    from migrator.views.run_page import run_to_html  # noqa: PLC0415 - a run without a page should not wait for it

    followed, last, pause_s, is_told = FollowedLog(folder), None, PAUSE_S, False
    with suppress(KeyboardInterrupt), interruptible():
        while True:
            began_s, news = time.process_time(), followed.read()
            if followed.damage:
                raise LogError(followed.damage)
            is_over = news.state is not RunState.RUNNING
            if is_over or news.entries or news.progress != last:
                reload_s = None if is_over else round(pause_s) + 1
                log, rival = bounded(read_log(folder)), rival_of(folder) if is_over else None
                text = run_to_html(log, rival, progress=news.progress, reload_s=reload_s)
                write_output("--html", path, text, Kind.PAGE)
                pause_s = max(PAUSE_S, REST * (time.process_time() - began_s))
            if not is_told:
                output().print(f"  {escape(how_to_open(path))}", soft_wrap=True)
            if is_over:
                return
            last, is_told = news.progress, True
            time.sleep(pause_s)


def bounded(log: ReadLog) -> ReadLog:
    """What a page can have of a log: of a service, which has no end, the last :data:`MOST_WINDOWS` windows."""
    return log.last(MOST_WINDOWS * log.header.window_s) if log.header.service else log


def how_to_open(path: Path) -> str:
    """The command that shows the page on this system; where none is known, its address for a browser."""
    is_mac = sys.platform == "darwin"
    opener, has_screen = "open" if is_mac else "xdg-open", is_mac or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    if has_screen and shutil.which(opener):
        return f"{opener} {shlex.quote(str(path))}"
    return f"in a browser: {path.resolve().as_uri()}"


def rival_of(folder: Path) -> ReadLog | None:
    """The log of the policy that the run in the folder was held against; ``None`` where it was against none."""
    if not (folder / AGAINST / EVENTS_FILE).is_file():
        return None
    try:
        return read_log(folder / AGAINST)
    except LogError as error:
        warn(f"left out: {error}")
        return None
