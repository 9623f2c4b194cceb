"""``migrator report --last``: the windows that it tells of are those of the whole report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, last_segments, read_log
from migrator.log.segments import older_segments
from tests.migrator.log import records
from tests.migrator.log.test_segments import run

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A run of six windows of 30 s, in segments of two."""
    return run(tmp_path / "shop", **{"log.roll_windows": 2}).folder


@pytest.mark.parametrize(("last", "first"), [("30s", 5), ("1s", 5), ("45s", 5), ("1.5m", 3), ("2h", 0), ("1d", 0)])
def test_the_last_windows_are_those_of_the_whole_log(call: Call, shop: Path, last: str, first: int) -> None:
    code, out, err = call("report", shop, "--last", last, "--json")
    assert code == 0
    windows = json.loads(call("report", shop, "--json")[1])["windows"]
    assert json.loads(out)["windows"] == windows[first:]
    assert (f"from window {first} on: the last {last}" in err) == (first > 0)
    assert call("report", shop, "--last", last)[0] == 0


def test_what_is_gone_is_said(call: Call, shop: Path) -> None:
    windows = report_of(read_log(shop)).windows
    older_segments(shop)[1].unlink()
    code, out, err = call("report", shop, "--json")
    assert (code, [one["window"] for one in json.loads(out)["windows"]]) == (0, [one.window for one in windows[1:]])
    assert "from window 1 on: older segments of its log are gone" in err


def test_windows_that_are_not_settled_are_told_beside_the_last_one_that_is(shop: Path) -> None:
    raw = (shop / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    n = next(place for place, line in enumerate(raw) if b'"kind":"window_started","at_s":150' in line)
    (shop / EVENTS_FILE).write_bytes(b"".join(raw[: n + 1]))
    log = read_log(shop).last(1)
    assert [one.window for one in report_of(log).windows] == [max(log.settled), max(log.settled) + 1]


@pytest.mark.parametrize(("seconds", "n_older"), [(1.0, 0), (60.0, 0), (91.0, 1), (120.0, 1), (150.0, 2), (1e6, 2)])
def test_only_the_segments_that_hold_the_last_windows_are_read(shop: Path, seconds: float, n_older: int) -> None:
    whole = read_log(shop).last(seconds)
    for path in [*older_segments(shop).values()][: 2 - n_older]:
        path.write_bytes(b"what is no log")  # it would be told, were it read
    assert read_log(shop, seconds) == whole
    assert len(last_segments(shop, seconds)) == 1 + n_older


def test_a_damaged_segment_that_is_needed_is_told(call: Call, shop: Path) -> None:
    older_segments(shop)[2].write_bytes(b"what is no log")
    code, _, err = call("report", shop, "--last", "2m")
    assert (code, "events-2.jsonl: line 1:" in " ".join(err.split())) == (2, True)


def test_the_last_window_that_is_settled_may_lie_in_the_segment_before(shop: Path) -> None:
    raw = (shop / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    n = next(place for place, line in enumerate(raw) if b'"kind":"window_finished"' in line)
    (shop / EVENTS_FILE).write_bytes(b"".join(raw[:n]))
    assert read_log(shop, 1.0) == read_log(shop).last(1.0)


def served(folder: Path, n_windows: int) -> Path:
    """A service's log of so many windows of 10 s, in which clients asked ten requests each."""
    counts = records.counts([1] * 9 + [0], [0] * 9 + [1], [], refused=[0] * 9 + [1], correct_late=[])
    settled = ([records.window_started(n, 10.0), records.window_finished(n, a=counts)] for n in range(n_windows))
    timed = ({**one, "at_s": 10.0 * (n + place)} for n, both in enumerate(settled) for place, one in enumerate(both))
    service = {**records.header(10.0), "service": True, "backend": "cpu", "simulated": False}
    service["assumed"] = [{"tenant": "a", "what": "accuracy", "value": 0.9, "unit": "", "source": "the config"}]
    records.write(folder, service, *timed)
    return folder


def test_a_service_s_page_has_its_last_windows_says_which_and_does_not_grow(call: Call, tmp_path: Path) -> None:
    code, _, err = call("report", served(tmp_path / "long", 700), "--html", "long.html")
    assert (code, "the page begins with window 268: it has at most 432 of a service" in " ".join(err.split())) == (
        0,
        True,
    )
    page = Path("long.html").read_text()
    assert "seconds 2680 to 7000 alone</b>: but the figures of this screen are of windows from 268 on" in page
    assert "expected goodput" in page
    assert "right answers of the model in service, assumed, %: a" in page
    assert "<td>267</td>" not in page
    assert call("report", served(tmp_path / "longer", 1400), "--html", "longer.html", "--last", "4h")[0] == 0
    assert abs(Path("longer.html").stat().st_size - len(page.encode())) < 20_000
    code, _, err = call("report", tmp_path / "long", "--html", "none.html", "--to", "2000")
    assert (code, "the page has seconds 2680 to 7000" in " ".join(err.split())) == (2, True)


def test_what_was_right_is_not_told_on_a_service_s_page(call: Call, tmp_path: Path) -> None:
    assert call("report", served(tmp_path / "run", 3), "--html", "run.html")[0] == 0
    table = Path("run.html").read_text().partition('id="losses"')[2].partition("</table>")[0]
    assert "<th>in time</th><th>capacity</th><th>reconfiguration</th><th>queueing</th>" in table
    assert "wrong" not in table


@pytest.mark.parametrize("last", ["24", "h", "0h", "-1h", "1w", "1e3s", "inf", "\u0661h"])
def test_what_is_no_length_of_time_is_refused(call: Call, shop: Path, last: str) -> None:
    code, out, err = call("report", shop, f"--last={last}")
    assert (code, out) == (2, "")
    assert "a number above 0 and s, m, h or d is needed, as in 24h" in " ".join(err.split())


def test_a_page_of_the_last_windows_begins_with_them(call: Call, shop: Path) -> None:
    assert call("report", shop, "--last", "60s", "--html", "last.html")[0] == 0
    said = "seconds 120 to 180 alone</b>: but the figures of this screen are of windows from 4 on"
    assert said in Path("last.html").read_text()


def test_a_page_that_is_followed_is_of_the_whole_run(call: Call, shop: Path) -> None:
    code, _, err = call("report", shop, "--last", "1h", "--html", "p.html", "--follow")
    assert (code, "--follow writes the page of a whole run" in " ".join(err.split())) == (2, True)
