"""No damage to a log gives other numbers: it is named with its line, or what is left gives the numbers that it gave."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import LogError
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog, log_in, read_log
from tests.migrator.log import records
from tests.migrator.log.records import change, counts, started, stopped, window_finished

FOLDER = Path("run")

ASSUMED = {"tenant": "a", "what": "start", "value": 1.0, "unit": "s", "source": "them"}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of the small log."""
    return records.write(tmp_path_factory.mktemp("tiny") / "run", *records.tiny())


def others(byte: int, rng: random.Random) -> set[int]:
    """Bytes to stand in its place: four bits flipped, and another digit for a digit, any or a newline for others."""
    other = ord(rng.choice("0123456789")) if chr(byte).isdecimal() else rng.choice((rng.randrange(256), ord("\n")))
    return ({byte ^ 1 << bit for bit in rng.sample(range(8), 4)} | {other}) - {byte}


def changed(raw: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Every byte from ``start`` on changed in turn, with its place."""
    rng = random.Random(0)
    for place in range(start, len(raw)):
        for byte in others(raw[place], rng):
            yield place, b"%b%c%b" % (raw[:place], byte, raw[place + 1 :])


def damage_in(raw: bytes) -> str:
    try:
        log_in(raw, FOLDER)
    except LogError as error:
        return str(error)
    return ""


def test_the_small_log_is_whole(raw: bytes) -> None:
    report = report_of(log_in(raw, FOLDER))
    assert report.ending == "finished"
    assert report.total is not None
    assert report.total.requests.arrivals == 48
    assert 4000 < len(raw) < 8000


@pytest.mark.long
def test_every_changed_byte_is_named_with_its_line(raw: bytes) -> None:
    for place, altered in changed(raw):
        line = raw[:place].count(b"\n") + 1
        assert damage_in(altered).startswith(f"run/events.jsonl: line {line}: "), (place, altered[place])


def test_a_changed_byte_of_a_torn_line_changes_no_number(raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    whole = b"".join(lines[:7])
    torn = whole + lines[7][:-20]
    events = log_in(torn, FOLDER).entries
    for _, altered in changed(torn, len(whole)):
        damage = damage_in(altered)
        assert "line 8: " in damage if damage else log_in(altered, FOLDER).entries == events


def test_a_lost_line_is_named(raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    for lost in range(len(lines) - 1):
        before = f"between {lost - 1} and {lost + 1}" if lost else "before 1"
        assert f"line {lost + 1}: a line is missing {before}" in damage_in(b"".join(lines[:lost] + lines[lost + 1 :]))


def test_a_doubled_line_is_named(raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    for doubled in range(len(lines)):
        altered = b"".join(lines[: doubled + 1] + lines[doubled:])
        assert f"line {doubled + 2}: record {doubled} is after record {doubled}" in damage_in(altered)


def test_swapped_lines_are_named(raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    for first, then in combinations(range(len(lines)), 2):
        altered = list(lines)
        altered[first], altered[then] = lines[then], lines[first]
        assert f"line {first + 1}: a line is missing" in damage_in(b"".join(altered))


def test_a_log_cut_at_any_byte_ends_early_and_counts_the_settled_windows(raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    reports = {n: report_of(log_in(b"".join(lines[:n]), FOLDER)) for n in range(1, len(lines) + 1)}
    for size in range(len(lines[0]), len(raw)):
        log = log_in(raw[:size], FOLDER)
        assert len(log.entries) == raw[:size].count(b"\n")
        assert log.torn == (not raw[:size].endswith(b"\n"))
        report = reports[len(log.entries)]
        settled = raw[:size].split(b"\n")[:-1]
        assert sum(not window.is_void for window in report.windows) == sum(b"window_finished" in x for x in settled)
        assert report.ending == "torn"


def test_a_log_cut_within_its_first_line_holds_nothing(raw: bytes) -> None:
    for size in range(raw.index(b"\n") + 1):
        said = "holds no whole record: nothing was begun; `run CONFIG --out run` begins it"
        assert damage_in(raw[:size]) == f"run/events.jsonl: {said}"


def test_every_cut_window_has_its_numbers(raw: bytes) -> None:
    whole, lines = report_of(log_in(raw, FOLDER)), raw.splitlines(keepends=True)
    cut = report_of(log_in(b"".join(lines[:21]), FOLDER))
    assert cut.windows[0] == whole.windows[0]
    assert cut.windows[1].is_void


Alter = Callable[[list[dict[str, Any]]], object]


def put(place: int, record: dict[str, Any]) -> Alter:
    return lambda log: log.insert(place, record)


def but(place: int, **fields: Any) -> Alter:
    return lambda log: log[place].update(fields)


def second(key: str, value: int, tenant: str = "a") -> Alter:
    """The last second of window 0 with another count."""

    def alter(log: list[dict[str, Any]]) -> None:
        own = log[19]["tenants"][tenant]
        own[key] = [*own[key][:2], value]

    return alter


WINDOW_1 = counts([1, 1, 1], [0, 0, 0], [0, 0, 0])


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (second("arrivals", 8), "line 20: window 0, tenant a, second 2: 8 arrivals but 0 in time + 0 late + 9 dropped"),
        (second("correct", 8, "b"), "line 20: window 0, tenant b, second 2: 8 correct of 7 in time"),
        (second("correct_late", 1), "line 20: window 0, tenant a, second 2: 1 correct of 0 late"),
        (
            second("in_time", -1),
            "line 20: window_finished.tenants.*.in_time.2: expected `int` >= 0",
        ),
        (but(19, tenants={"a": WINDOW_1}), "line 20: window 0 has other tenants than the run"),
        (
            but(19, tenants={"a": WINDOW_1, "b": {**WINDOW_1, "late": [0]}}),
            "tenant b: late has 1 seconds, the window 3",
        ),
        (
            but(19, tenants={"a": WINDOW_1, "b": {**WINDOW_1, "latency_ms": [[20, 2]]}}),
            "tenant b: 3 answered, but the latencies are those of 2",
        ),
        (but(19, window=1), "line 20: window_finished of window 1 is where that of window 0 must be"),
        (but(17, window=2), "line 18: window_started of window 2 is where that of window 1 must be"),
        (put(1, window_finished(0, a=WINDOW_1, b=WINDOW_1)), "line 2: window 0 is finished before it is started"),
        (lambda log: log[17]["forecast"]["tenants"].pop("b"), "line 18: the forecast lacks tenant b"),
        (but(0, assumed=[ASSUMED | {"value": {}}]), "line 1: run_started.assumed.0.value"),
        (but(3, intent=1), "line 4: outcome of record 1, which is no intent, or was answered before"),
        (but(5, intent=2), "line 6: outcome of record 2, which is no intent, or was answered before"),
        (but(7, instance="1g.10gb@0#9"), "line 8: ready names instance 1g.10gb@0#9, which was not started"),
        (put(9, records.finished(0, "x", 0.0)), "line 10: finished names instance x, which was not started"),
        (put(9, change(0, 0.0, [], [stopped("x", 0.0, 0.0)])), "line 10: instance x stops, but is not there"),
        (put(15, change(0, 0.0, [], [stopped("1g.10gb@0#1", 0.0, 0.0)])), "1g.10gb@0#1 stops, but is not there"),
        (put(9, change(0, 0.0, [started("1g.10gb@0#1", 0.0)])), "line 10: instance 1g.10gb@0#1 starts twice"),
        (put(9, change(0, 0.0, [started("x", 0.0, "3g.40gb@0")])), "instance x starts for a, which cannot use it"),
        (put(9, records.header(3.0, "a", "b")), "line 10: there is more than one run_started record"),
        (lambda log: log.pop(-2), "line 23: the run ends after 1 of 2 windows"),
        (put(24, {"kind": "interrupted"}), "line 25: interrupted is after run_finished, which ends a log"),
        (put(23, {"kind": "interrupted"}), "line 25: run_finished is after interrupted, which ends a log"),
        (put(23, {"kind": "service_stopped"}), "line 24: service_stopped: the run is no service"),
        (put(9, {"kind": "guess"}), "line 10: kind 'guess' is unknown"),
        (but(6, started=None), "line 7: change.started: expected `array`, got `null`"),
        (
            lambda log: log[0]["tenants"][0].update(notes="a gap"),
            "line 1: run_started.tenants.0.notes: expected `array`, got `str`",
        ),
        (but(1, plan={"status": "optimal"}), "line 2: window_started.plan.objective: field required"),
    ],
)
def test_records_that_do_not_fit_together_are_named(alter: Alter, message: str) -> None:
    log = records.tiny()
    alter(log)
    assert message in damage_in(records.lines_of(*log))


def everybody() -> list[dict[str, Any]]:
    """The small log with every field that names tenants in at least one record."""
    log = records.tiny()
    whole = {"a": 1.0, "b": 1.0}
    pool = {"members": ["a", "b"], "overhead_s": 1.0, "capability_rps": {"2g.20gb": {"a": 5.0, "b": 5.0}}}
    outlook = {"drift": 0.5, "stays": 0.5, "in_time": 0.5, "ahead": [True], "still": 0.5}
    log[0]["assumed"] = [ASSUMED]
    log[9] |= {"tenant": "a", "instance": "1g.10gb@0#1"}
    log[1] |= {
        "queues": {name: {"waiting": 0, "busy_until_s": {}, "batches": 0} for name in whole},
        "expected": {name: {"arrivals": 1.0, "in_time": 1.0, "goodput": 1.0} for name in whole},
        "warm_up": {"switch_s": 1.0, "start_s": whole, "training_start_s": whole},
        "outlook": dict.fromkeys(whole, outlook),
        "in_time": {name: {"promised": 0.5, "missed": None} for name in whole},
        "pools": [pool],
    }
    log[6] |= {"layout": [["1g.10gb@0", "a", "inference"], ["2g.20gb@2", ["a", "b"], "inference"]]}
    log[6]["passed"] = [{**log[6]["started"][0], "tenant": ["a", "b"]}]
    rest = {"accuracy_before": 0.5, "options": ["full"], "retraining_required": False, "mean_rps": 1.0}
    log[-1:-1] = [
        {"kind": "shares", "window": 0, "shares": [["a", "inference", 9], ["b", "inference", 9]]},
        {"kind": "measured", "window": 0, "measured_s": 1.0, "tenants": {"a": {"accuracy_before": 0.5}}},
        *(records.rest_of(kind, 0, rest={"a": rest, "b": rest}) for kind in ("plan_revised", "not_revised")),
        {**records.finished(0, None, 2.0), "kind": "checkpoint", "part": 0.5},
    ]
    counted = dict.fromkeys(("sent", "in_time", "late", "dropped", "refused", "failed"), 0)
    log[-1]["requests"] = {"a": {**counted, "dispatcher": records.dispatched()}}
    return log


def renamed(document: Any) -> Iterator[tuple[Any, str]]:
    """The document with one mention of tenant ``a`` after the other renamed, and where it stood."""
    places = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in places if isinstance(document, (dict, list)) else ():
        if value == "a":
            yield _with(document, key, "nobody"), str(key)
        elif isinstance(value, (dict, list)):
            yield from ((_with(document, key, inner), f"{key}.{where}") for inner, where in renamed(value))
        if key == "a":
            others = {name: one for name, one in document.items() if name != "a"}
            yield {"nobody": value, **others}, "its key"


def _with(document: Any, key: Any, value: Any) -> Any:
    result = copy.copy(document)
    result[key] = value
    return result


def test_a_tenant_whom_the_run_does_not_have_is_named_wherever_it_stands() -> None:
    log = everybody()
    assert damage_in(records.lines_of(*log)) == ""
    mentions = [(n, record, where) for n, one in enumerate(log) for record, where in renamed(one)]
    found = [(n, record, where) for n, record, where in mentions if n or "assumed" in where]  # the header makes names
    assert {record["kind"] for _, record, _ in found} == {one["kind"] for one in log} - {"intent", "outcome"}
    for n, record, where in found:
        told = damage_in(records.lines_of(*log[:n], record, *log[n + 1 :]))
        assert f"line {n + 1}: {record['kind']}." in told, (where, told)
        assert "the run has no tenant nobody" in told, (where, told)


def log_with_shares(tmp_path: Path, **tenant: Any) -> ReadLog:
    log = [
        records.header(2.0, sharing="shares", windows=1),
        {**records.window_started(0, 2.0), "plan": None},
        window_finished(0, a=counts([1, 1], [0, 0], [1, 1], **tenant)),
    ]
    return log_in(records.write(tmp_path / "run", *log), FOLDER)


def test_shares_need_what_could_have_been_served(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="tenant a: changing has 0 seconds, the window 2"):
        log_with_shares(tmp_path, could_serve=[1.0, 2.0])


@pytest.mark.parametrize(
    ("others_share", "reason"),
    [([0.5], "others_share has 1 seconds, the window 2"), ([0.5, 1.5], "others had 1.5 of what it shared")],
)
def test_of_shared_instances_others_had_a_part_in_each_second(
    tmp_path: Path, others_share: list[float], reason: str
) -> None:
    with pytest.raises(LogError, match=f"tenant a: {reason}"):
        log_with_shares(tmp_path, could_serve=[1.0, 2.0], changing=[0.0, 0.0], others_share=others_share)


def test_no_more_were_refused_and_failed_than_were_dropped(tmp_path: Path) -> None:
    fields: Any = {"refused": [0, 2], "correct_late": []}
    log = {**records.header(2.0, "a"), "simulated": False}, records.window_started(0, 2.0, "a")
    for failed, reason in (
        ([0, 1], ", second 1: 2 refused and 1 failed of 2 dropped"),
        ([0], ": failed has 1 seconds"),
    ):
        counts = records.counts([1, 0], [0, 2], [], **fields, failed=failed)
        records.write(tmp_path / str(len(failed)), *log, records.window_finished(0, a=counts))
        with pytest.raises(LogError, match=f"tenant a{reason}"):
            read_log(tmp_path / str(len(failed)))


@pytest.mark.parametrize(
    ("fields", "starts", "said"),
    [
        ({}, 0, "outside: no start is before it"),
        ({}, 1, None),
        ({"arrivals": 8}, 1, "outside, tenant a: its 8 arrivals do not add up"),
        ({"refused": 3}, 1, "outside, tenant a: its 9 arrivals do not add up"),
    ],
)
def test_what_came_before_a_first_window_follows_a_start_and_adds_up(
    fields: dict[str, Any], starts: int, said: str | None, tmp_path: Path
) -> None:
    counts = {"arrivals": 9, "in_time": 6, "late": 1, "dropped": 2, "refused": 1, "failed": 1}
    told = {"kind": "outside", "window": 2, "tenants": {"a": {**counts, **fields}}}
    header = {**records.header(2.0, "a"), "service": True, "backend": "cpu", "simulated": False}
    again = [{"kind": "resumed", "window": 2, "void": [0, 1]}] * starts
    records.write(tmp_path / "run", header, *again, told)
    if said is None:
        assert read_log(tmp_path / "run").entries[-1].record.kind == "outside"
        records.write(tmp_path / "twice", header, *again, told, told)
        said = "another one is since"
        tmp_path /= "twice"
    else:
        tmp_path /= "run"
    with pytest.raises(LogError, match=said):
        read_log(tmp_path)


def test_shares_need_no_plan(tmp_path: Path) -> None:
    assert report_of(log_with_shares(tmp_path, could_serve=[1.0, 0.0], changing=[0.0, 0.0])).windows[0].gap is None


def test_a_call_without_an_outcome_is_told_and_no_damage(raw: bytes) -> None:
    lines = raw.splitlines(keepends=True)
    assert report_of(log_in(b"".join(lines[:5]), FOLDER)).open_call == "create 2g.20gb@2"
    assert report_of(log_in(raw, FOLDER)).open_call is None
