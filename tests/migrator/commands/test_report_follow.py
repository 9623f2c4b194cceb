"""``report --html FILE --follow``: a page that is written again and again while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.log.progress import OpenCounts, Progress
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import EVENTS_FILE, PROGRESS_FILE, identity_of
from tests.migrator.log import records

pytest.importorskip("plotly")

Call = Callable[..., Any]
Steps = list[Callable[[], object]]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """What happens while nothing is written, one after the other; then somebody presses Ctrl-C."""
    found: Steps = []

    def sleep(_: float) -> None:
        if not found:
            raise KeyboardInterrupt
        found.pop(0)()

    monkeypatch.setattr("migrator.commands.pages.time.sleep", sleep)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[Path, bytes, ResumedLog]]:
    """A run that goes on, its whole log to be, and what writes it."""
    raw = records.write(tmp_path / "run", *records.tiny())
    (tmp_path / "run" / EVENTS_FILE).write_bytes(b"".join(raw.splitlines(keepends=True)[:-2]))
    with closing(ResumedLog(tmp_path / "run")) as log:
        yield tmp_path / "run", raw, log


def test_the_page_is_written_anew_until_the_run_is_over(
    call: Call, run: tuple[Path, bytes, ResumedLog], steps: Steps, tmp_path: Path
) -> None:
    folder, raw, log = run
    page, pages = tmp_path / "run.html", list[str]()
    n_records = (folder / EVENTS_FILE).read_bytes().count(b"\n")
    counts = OpenCounts(in_time=1234, late=2, dropped=1, waiting=7)

    def say() -> None:
        pages.append(page.read_text())
        known: Any = {"log": identity_of(raw.splitlines(keepends=True)[0]), "record": n_records - 1}
        progress = Progress(**known, wall_s=time.time(), served_s=5.0, tenants={"<b>&": counts})
        (folder / PROGRESS_FILE).write_bytes(progress.as_json)

    def end() -> None:
        pages.append(page.read_text())
        (folder / EVENTS_FILE).write_bytes(raw)
        log.close()

    steps += [say, end]
    code, out, err = call("report", folder, "--html", page, "--follow")
    assert (code, out.count(str(page)), err) == (0, 1, "")
    reloads = "location.reload()"
    assert [reloads in text for text in (*pages, page.read_text())] == [True, True, False]
    assert ["&lt;b&gt;&amp; 1,234 in time, 2 late, 1 dropped, 7 waiting." in text for text in pages] == [False, True]
    assert call("report", folder, "--html", tmp_path / "once.html")[0] == 0
    assert page.read_text() == (tmp_path / "once.html").read_text()


def test_nothing_is_written_where_nothing_is_new_and_ctrl_c_ends_it(
    call: Call, run: tuple[Path, bytes, ResumedLog], steps: Steps, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    steps += [page.unlink, lambda: None]
    assert call("report", run[0], "--html", page, "--follow")[0] == 0
    assert not page.exists()


def test_a_log_that_is_damaged_ends_it_and_the_last_page_stays(
    call: Call, run: tuple[Path, bytes, ResumedLog], steps: Steps, tmp_path: Path
) -> None:
    page = tmp_path / "run.html"
    steps.append(lambda: (run[0] / EVENTS_FILE).write_bytes(b""))
    code, _, err = call("report", run[0], "--html", page, "--follow")
    assert (code, "cut short" in err, page.exists()) == (2, True, True)


@pytest.mark.parametrize("more", [[], ["--html", "p.html", "--json"], ["--html", "p.html", "--from", "1"]])
def test_it_is_of_a_whole_page_alone(call: Call, tmp_path: Path, more: list[str]) -> None:
    code, _, err = call("report", tmp_path, "--follow", *more)
    assert (code, "--follow writes the page of a whole run" in err) == (2, True)
