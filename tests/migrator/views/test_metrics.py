"""The metrics of a run are what its report has, and never fall."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from migrator.commands.metrics import _listening, metrics_command
from migrator.log.follow import FollowedLog
from migrator.log.records import Change
from migrator.log.report import report_of
from migrator.log.runlog import EVENTS_FILE, read_log
from migrator.views.metrics import RunMetrics
from tests.migrator.log import records

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


def test_no_counter_falls_while_a_log_grows_and_none_appears_late(run: Path) -> None:
    raw, path = (run / EVENTS_FILE).read_bytes(), run / EVENTS_FILE
    lines = raw.splitlines(keepends=True)
    path.write_bytes(lines[0])
    metrics, _ = metrics_of(run)
    before = samples(metrics)
    for line in lines[1:]:
        with path.open("ab") as file:
            file.write(line)
        now = samples(metrics)
        counters = {key for key in now if key[0].endswith(("_total", "_bucket", "_count"))}
        assert counters == {key for key in before if key[0].endswith(("_total", "_bucket", "_count"))}
        assert all(now[key] >= before[key] for key in counters)
        before = now


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
    with _listening("127.0.0.1", 0, metrics_of(run)[0].text, digest) as server:
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
