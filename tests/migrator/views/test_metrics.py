"""The metrics of a run are what its report has, and never fall."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from migrator.commands.metrics import _bound, _Server, metrics_command
from migrator.log.follow import FollowedLog
from migrator.log.progress import OpenCounts, Progress
from migrator.log.records import Change
from migrator.log.report import report_of
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import EVENTS_FILE, PROGRESS_FILE, identity_of, read_log
from migrator.views.metrics import RunMetrics
from tests.migrator.execution.resuming import SHORT
from tests.migrator.log import records
from tests.standin.cards import A100_80
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import DriverClock

ROOT = Path(__file__).parents[3]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(metrics: RunMetrics) -> Samples:
    families = text_string_to_metric_families(metrics.text().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def metrics_of(folder: Path) -> tuple[RunMetrics, list[str]]:
    told: list[str] = []
    return RunMetrics(FollowedLog(folder), told.append), told


@pytest.fixture
def run(tmp_path: Path) -> Path:
    records.write(tmp_path / "run", *records.tiny())
    return tmp_path / "run"


def test_sums_are_those_of_the_report(run: Path) -> None:
    found, total = samples(metrics_of(run)[0]), report_of(read_log(run)).total
    assert total is not None
    for outcome in ("in_time", "late", "dropped"):
        of_all = [
            n
            for (name, labels), n in found.items()
            if name == "migrator_requests_total" and ("outcome", outcome) in labels
        ]
        assert (len(of_all), sum(of_all)) == (2, getattr(total.requests, outcome))
    assert (
        sum(n for (name, _), n in found.items() if name == "migrator_goodput_requests_total") == total.requests.goodput
    )
    assert found["migrator_driver_calls_total", (("call", "create"), ("outcome", "refused"))] == 1
    assert found["migrator_worker_failures_total", ()] == 1


@pytest.mark.parametrize("tenant", ["turned", "grown"])
def test_a_bucket_at_the_slo_has_what_was_in_time_and_the_last_all(tenant: str) -> None:
    found = samples(metrics_of(ROOT / "tests/golden/live")[0])  # SLOs of 250 ms, which nothing took twice
    in_time, late, dropped = (
        found["migrator_requests_total", (("outcome", outcome), ("tenant", tenant))]
        for outcome in ("in_time", "late", "dropped")
    )
    within = [
        found["migrator_latency_seconds_bucket", (("le", bound), ("tenant", tenant))]
        for bound in ("0.25", "0.5", "+Inf")
    ]
    assert within == [in_time, in_time + late, in_time + late + dropped]
    assert min(in_time, late, dropped) > 0


def counters(found: Samples) -> Samples:
    return {key: n for key, n in found.items() if key[0].endswith(("_total", "_bucket", "_count"))}


def none_falls(before: Samples, now: Samples) -> bool:
    return counters(now).keys() == counters(before).keys() and all(n >= before[key] for key, n in counters(now).items())


def hold_line_by_line(log: Path, again: Path) -> None:
    """No counter falls, and none appears late, while the log grows in another folder."""
    first, *lines = log.read_bytes().splitlines(keepends=True)
    again.mkdir()
    (again / EVENTS_FILE).write_bytes(first)
    metrics, _ = metrics_of(again)
    before = samples(metrics)
    for line in lines:
        with (again / EVENTS_FILE).open("ab") as file:
            file.write(line)
        now = samples(metrics)
        assert none_falls(before, now)
        before = now


def test_no_counter_falls_while_a_log_grows_and_none_appears_late(run: Path) -> None:
    hold_line_by_line(run / EVENTS_FILE, run.parent / "again")


@pytest.mark.parametrize("backend", ["sim", "nvml"])
def test_where_a_run_is_killed_and_resumed_no_counter_falls_and_what_was_held_is_gone(
    call, write_config, make_standin: MakeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    standin = make_standin(A100_80)
    monkeypatch.setattr("migrator.execution.real.WallClock", lambda start_s=0.0: DriverClock(standin, start_s))
    config = write_config({**SHORT, "windows": 4, "gpu.backend": backend})
    where = ("--state", tmp_path / "state") if backend == "nvml" else ()
    assert call("run", config, "--out", "run", *where)[0] == 0
    path = Path("run") / EVENTS_FILE
    *_, last = (one for one in read_log(Path("run")).entries_of(Change) if one.record.window == 1)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: last.n + 1]))
    metrics, told = metrics_of(Path("run"))
    before = samples(metrics)
    assert {name for name, _ in of_instances(metrics)} == {"migrator_placement", "migrator_tenant_up"}
    assert call("run", "--resume", "run", *where)[0] == 0
    now = samples(metrics)
    assert none_falls(before, now)
    assert sum(counters(now).values()) > sum(counters(before).values())
    assert ("migrator_placement" in {name for name, _ in now}, now["migrator_log_ok", ()], told) == (False, 1, [])
    hold_line_by_line(path, Path("again"))


def test_what_is_held_is_a_series_of_its_own_until_the_run_ends(run: Path) -> None:
    path = run / EVENTS_FILE
    *before, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(before))
    metrics, _ = metrics_of(run)
    held = [dict(labels) for name, labels in samples(metrics) if name == "migrator_placement"]
    assert {(one["placement"], one["tenant"]) for one in held} == {
        (place, holder) for place, holder, _ in read_log(run).of(Change)[-1].layout
    }
    with path.open("ab") as file:
        file.write(last)
    assert "migrator_placement" not in {name for name, _ in samples(metrics)}
    assert "migrator_record_age_seconds" not in {name for name, _ in samples(metrics)}


def test_a_run_that_is_resumed_holds_again_what_it_held(tmp_path: Path) -> None:
    records.write(tmp_path / "run", *records.tiny()[:17])
    metrics, path = metrics_of(tmp_path / "run")[0], tmp_path / "run" / EVENTS_FILE
    held, raw = of_instances(metrics), path.read_bytes()
    records.write(tmp_path / "end", *records.tiny()[:17], {"kind": "interrupted"})
    path.write_bytes((tmp_path / "end" / EVENTS_FILE).read_bytes())
    assert {name for name, _ in of_instances(metrics)} == {"migrator_tenant_up"}
    records.write(tmp_path / "whole", *records.tiny()[:18])
    path.write_bytes((tmp_path / "whole" / EVENTS_FILE).read_bytes())
    assert path.read_bytes().startswith(raw)
    assert of_instances(metrics) == held


def of_instances(metrics: RunMetrics) -> Samples:
    names = ("migrator_placement", "migrator_tenant_up")
    return {(name, labels): value for (name, labels), value in samples(metrics).items() if name in names}


def test_whether_a_tenant_is_served_is_told_only_where_the_log_says_so(tmp_path: Path) -> None:
    for sharing in ("instances", "shares", "turns"):
        records.write(tmp_path / sharing, {**records.header(3.0), "sharing": sharing})
        assert bool(of_instances(metrics_of(tmp_path / sharing)[0])) is (sharing == "instances")


def test_refusals_are_counted_from_zero_in_a_live_run_and_not_at_all_in_another(tmp_path: Path) -> None:
    for simulated in (True, False):
        folder = tmp_path / str(simulated)
        records.write(folder, {**records.header(3.0, "a"), "simulated": simulated})
        key = ("migrator_requests_total", (("outcome", "refused"), ("tenant", "a")))
        assert samples(metrics_of(folder)[0]).get(key) == (None if simulated else 0)


def test_of_clients_requests_all_are_counted_and_those_in_time_are_worth_the_accuracy(
    tmp_path: Path,
) -> None:
    refused = {"refused": [0, 0, 1], "failed": [0, 0, 1]}
    counts = records.counts([4, 4, 4], [0, 0, 2], [], **refused, correct_late=[], judged=[8, 7])
    folder = tmp_path / "run"
    began = [{**records.header(3.0, "a"), "simulated": False}, records.window_started(0, 3.0, "a")]
    up = records.change(0, 0.0, [records.started("1g.10gb@0#1", 0.0, "1g.10gb@0", task="retraining")])
    trained = records.finished(0, "1g.10gb@0#1", 1.5)
    records.write(folder, *began, up, trained, records.window_finished(0, a=counts))
    found, report = samples(metrics_of(folder)[0]), report_of(read_log(folder))
    (window,) = report.windows
    own = window.tenants["a"]
    assert own.expected_goodput is not None
    assert found["migrator_window_expected_goodput_ratio", (("tenant", "a"),)] == own.expected_goodput / 14
    assert found["migrator_offered_requests_total", (("tenant", "a"),)] == 14
    became = {dict(key)["outcome"]: n for (name, key), n in found.items() if name == "migrator_requests_total"}
    assert became == {"in_time": 12, "late": 0, "dropped": 0, "refused": 1, "failed": 1}
    judged = {dict(key)["answer"]: n for (name, key), n in found.items() if name == "migrator_labels_total"}
    assert judged == {"right": 7, "wrong": 1}
    assert not {"migrator_window_goodput_ratio", "migrator_goodput_requests_total"} & {key for key, _ in found}


def test_what_a_service_answers_before_its_first_window_is_counted_by_itself(tmp_path: Path) -> None:
    folder, sums = tmp_path / "run", {"arrivals": 9, "in_time": 3, "late": 1, "dropped": 5, "refused": 2, "failed": 1}
    records.write(
        folder,
        {**records.header(3.0, "a"), "simulated": False, "service": True, "backend": "cpu", "index": 0},
        {"kind": "resumed", "window": 1, "void": [0]},
        {"kind": "outside", "window": 1, "tenants": {"a": sums}},
    )
    metrics, told = metrics_of(folder)
    found = samples(metrics)
    assert (told, found["migrator_log_ok", ()]) == ([], 1)
    outside = {
        dict(key)["outcome"]: n for (name, key), n in found.items() if name == "migrator_requests_outside_windows_total"
    }
    assert outside == {"in_time": 3, "late": 1, "dropped": 2, "refused": 2, "failed": 1}
    assert found["migrator_offered_requests_total", (("tenant", "a"),)] == 0


def test_open_windows_are_told_while_the_run_says_them_and_gone_otherwise(tmp_path: Path) -> None:
    folder, name = tmp_path / "run", 'a"}\n'
    records.write(folder, {**records.header(3.0, name), "simulated": False})
    counts = OpenCounts(in_time=3, late=2, dropped=1, refused=5, failed=6, waiting=4)
    line = (folder / EVENTS_FILE).read_bytes()
    progress = Progress(
        log=identity_of(line), record=0, wall_s=time.time(), served_s=1.0, tenants={name: counts, "who": counts}
    )
    with ResumedLog(folder):
        (folder / PROGRESS_FILE).write_bytes(progress.as_json)
        metrics, _ = metrics_of(folder)
        found = samples(metrics)
    told = {dict(labels).get("outcome"): n for (key, labels), n in found.items() if key == "migrator_open_requests"}
    assert told == {"in_time": 3, "late": 2, "dropped": 1, "refused": 5, "failed": 6}
    assert found["migrator_queue_requests", (("tenant", name),)] == 4
    assert not {"migrator_open_requests", "migrator_queue_requests"} & {key for key, _ in samples(metrics)}


def test_a_file_has_them_until_the_command_is_ended(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("migrator.commands.metrics.time.sleep", end)
    metrics_command(run, textfile=tmp_path / "migrator.prom")
    assert (tmp_path / "migrator.prom").read_bytes() == metrics_of(run)[0].text()


def test_a_log_that_is_cut_keeps_the_last_figures_and_says_why_once(run: Path) -> None:
    metrics, told = metrics_of(run)
    before = samples(metrics)
    (run / EVENTS_FILE).write_bytes(b"")
    after = samples(metrics)
    assert samples(metrics) == after == before | {("migrator_log_ok", ()): 0}
    assert len(told) == 1
    assert "cut short" in told[0]


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    name = 'a"} 1\nmigrator_log_ok{x="\\'
    records.write(tmp_path / "run", records.header(3.0, name))
    found = samples(metrics_of(tmp_path / "run")[0])
    assert found["migrator_tenant_up", (("tenant", name),)] == 0
    assert found["migrator_log_ok", ()] == 1


@pytest.fixture(params=[None, "a-token-of-20-letters"])
def port(run: Path, request: pytest.FixtureRequest) -> Iterator[tuple[int, str | None]]:
    token: str | None = request.param
    digest = None if token is None else sha256(token.encode()).digest()
    with _Server(_bound("127.0.0.1", 0, "--port"), metrics_of(run)[0].text, digest) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1], token
        server.shutdown()
        thread.join()


def test_foreign_hosts_wrong_tokens_and_posts_are_refused(port: tuple[int, str | None]) -> None:
    number, token = port

    def asked(method: str, path: str = "/metrics", **headers: str) -> int:
        line = HTTPConnection("127.0.0.1", number, timeout=5)
        line.request(method, path, headers=headers)
        status = line.getresponse().status
        line.close()
        return status

    right = {} if token is None else {"Authorization": f"Bearer {token}"}
    assert asked("GET", **right) == 200
    assert asked("GET", "/other", **right) == 404
    assert asked("POST", **right) == 501
    if token is None:
        assert asked("GET", Host="example.org") == 403
    else:
        assert [asked("GET"), asked("GET", Authorization="Bearer no")] == [401, 401]
