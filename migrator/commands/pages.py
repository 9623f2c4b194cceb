"""The page of a run: asked for by a new run, by one that is taken up again, and by a report."""

from __future__ import annotations

from pathlib import Path

from migrator.errors import LogError
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, read_log
from migrator.terminal.console import warn
from migrator.terminal.outputs import Kind, require_writable, write_output
from migrator.views.page import require_plot_extra

AGAINST = "against"
"""Of a run's folder, where the run of the policy lies that it was held against."""


def require_page(path: Path, *inputs: Path, run: Path | None = None, option: str = "--html") -> None:
    """Refuse a page that cannot be written, would take the place of an input, or needs an extra.

    It may lie in the folder ``run`` of a run that is about to begin. ``option`` asked for it; an input may be a run's
    folder.

    Raises:
        MigratorError: Names the file and the reason.
    """
    require_plot_extra(option)
    if run is not None and path.parent == run and path.name not in (EVENTS_FILE, CONFIG_FILE, AGAINST):
        return  # the folder is made when the run has a plan, and is its own
    files = [file for one in inputs for file in (one, one / EVENTS_FILE, one / CONFIG_FILE)]
    require_writable(option, path, Kind.PAGE, *files)


def write_page(path: Path, folder: Path, from_s: int = 0, to_s: int | None = None) -> None:
    """Write the page of the run in the folder, or of some of its seconds.

    Raises:
        LogError: The folder holds no log of ours.
        OutputError: The file cannot be written.
    """
    from migrator.views.run_page import run_to_html  # noqa: PLC0415 - a run without a page should not wait for it

    rival = None
    if (folder / AGAINST / EVENTS_FILE).is_file():
        try:
            rival = read_log(folder / AGAINST)
        except LogError as error:
            warn(f"left out of the page: {error}")
    write_output("--html", path, run_to_html(read_log(folder), rival, from_s, to_s), Kind.PAGE)
