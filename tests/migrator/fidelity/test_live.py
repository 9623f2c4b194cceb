"""What was counted in a live run beside what the simulation makes of it.

The live runs here are simulated ones, written as if they were real: the simulation must then come out as they did. And
runs made by hand, of one worker that takes 0.1 s a request, of which one can say what must become of each.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

from executor.extras import install
from migrator.config.reading import config_yaml, validate_config
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.fidelity.live import (
    LiveFidelity,
    LostGoodput,
    Nearness,
    TenantSeconds,
    _in_service,
    replayed,
    total_of,
    verdict_of,
)
from migrator.inputs.assembly import assemble
from migrator.log.live import LiveFacts
from migrator.log.records import Finished, WindowFinished
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, RunLog, read_log
from migrator.views.fidelity import print_fidelity
from tests.migrator.conftest import SMALL, changed
from tests.migrator.log import records
from tests.migrator.log.records import Json
from workloads.live.generator import Stream, write_streams

ENDING = {"sent_late_s": [0.001, 0.002, 0.003], "stolen_share": 0.01}
HEARD = ("in_time", "late", "dropped", "refused", "failed")
FACTS = LiveFacts((), {}, (0.0, 0.0, 0.0), 0.01)

# --- runs that were simulated, written as live ones


def stream(tenant: str, slo_s: float, arrival_s: Sequence[float]) -> Stream:
    return Stream(tenant, slo_s, tuple(arrival_s), (0,) * len(arrival_s), (b"",))


def written(folder: Path, config: str, events: Sequence[Json], streams: Sequence[Stream]) -> Path:
    with RunLog(folder, config) as log:
        records.append(log, *events)
    (folder / "live").mkdir()
    write_streams(folder / "live" / "requests.msgpack", streams)
    return folder


def as_live(record: Json) -> Json:
    """The record, as a live run would have written it."""
    match record["kind"]:
        case "run_started":
            return {**record, "simulated": False, "backend": "cpu"}
        case "run_finished":
            return {**record, **ENDING}
    return record


def simulated(folder: Path, changes: Mapping[str, Any], alter: Callable[[Json], Json] = as_live) -> Path:
    """A simulated run of the small config, with some of its keys changed, as a live one's folder."""
    setting, traffic = assemble(validate_config(changed(SMALL, changes), "small"), "small")
    config = config_yaml(setting.config)
    with RunLog(folder / "simulated", config) as log:
        Loop(setting, simulated_parts(setting, traffic)).carry_out(log)
    events = [alter(record) for record in records.as_json(read_log(folder / "simulated"))]
    requests = traffic.requests(0, round(setting.config.windows * setting.config.window_s))
    return written(
        folder / "live-run", config, events, [stream(own.tenant, own.slo_s, own.arrival_s.tolist()) for own in requests]
    )


BUSY = {"tenants.0.arrivals.rate_rps": 2500, "tenants.1.arrivals.scale.factor": 60.0}

CASES: dict[str, dict[str, Any]] = {
    "calm": {},
    "busy": {**BUSY, "seed": 4},
    "refused": {**BUSY, "simulation": {"driver": {"error_share": 0.1, "in_use_share": 0.3, "in_use_s": 2.0}}},
    "two processes": {**BUSY, "tenants.1.processes": 2},
    "late starts": {**BUSY, "simulation": {"start_jitter": 0.5}},
    "pooled": {
        **BUSY,
        "tenants.0.slo_ms": 400,
        "tenants.1.slo_ms": 600,
        "sharing": {"pools": [["vision", "language"]]},
        "planner.planning_s": 2,
        # The lane's turns are the other one's as soon as this is measured.
        "tenants.0.accuracy": [{"before": 0.9, "after": 0.9}, {"before": 0.05, "after": 0.9}],
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_simulated_run_is_simulated_as_it_was(tmp_path: Path, case: str) -> None:
    run = replayed(simulated(tmp_path, CASES[case]))
    log = read_log(run.folder)
    assert run.windows == (0, 1)
    for own in run.tenants.values():
        assert (own.simulated_in_time == own.live_in_time).all()
    # Where the old model's answers end and the new one's begin is known to the second.
    mixed = [int(ended.finish_s) for ended in log.of(Finished)]
    n_mixed = sum(own.arrivals[mixed].sum() for own in run.tenants.values())
    assert run.total.simulated_goodput == pytest.approx(run.total.live_goodput, abs=1e-6 + n_mixed)
    verdict = verdict_of([run])
    assert verdict.shortfalls == ()
    assert (verdict.in_time_points, verdict.goodput_pct) == (0.0, pytest.approx(0.0, abs=1.0))


def test_a_busy_run_loses_requests_so_that_agreement_says_something(tmp_path: Path) -> None:
    total = replayed(simulated(tmp_path, CASES["busy"])).total
    assert 0.2 * total.arrivals < total.live_in_time < 0.98 * total.arrivals


def test_a_run_that_was_cut_off_is_compared_as_far_as_it_is_settled(call, tmp_path: Path) -> None:
    folder = simulated(tmp_path, CASES["busy"])
    settled = read_log(folder).entries_of(WindowFinished)[0].n
    lines = (folder / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    (folder / EVENTS_FILE).write_bytes(b"".join(lines[: settled + 1]))
    run = replayed(folder)
    assert (run.windows, run.total.in_time_points) == ((0,), 0.0)
    code, out, _ = call("fidelity", folder)
    assert code == 0
    assert "1 of 2 windows were finished; the others are left out" in out
    assert "CPU time the machine was refused is not known" in out


# --- runs made by hand

SLO_S, BATCH_S = 0.25, 0.1
ROW = "hand,a100-80gb,slow,7g.80gb,1,1,100,10\nhand,a100-80gb,slow,3g.40gb,1,1,100,10\n"
EVERY_FIFTH = tuple(np.arange(0, 60, 0.2).round(3).tolist())
ALL_RIGHT = {"in_time": [5] * 20, "dropped": [0] * 20, "correct": [5] * 20}


def by_hand(
    folder: Path, *events: Json, name: str = "run", arrival_s: Sequence[float] = EVERY_FIFTH, pool: Sequence[str] = "a"
) -> Path:
    """A run of tenant a, with windows of 20 s and a worker of 0.1 s a request, all of which were answered right.

    Others of its pool have no requests.
    """
    folder.mkdir(exist_ok=True)
    (folder / "profiles.csv").write_text(f"source,gpu,model,profile,batch,processes,latency_ms,throughput_rps\n{ROW}")
    data = changed(SMALL, {"window_s": 20, "windows": 3, "profiles": str(folder / "profiles.csv")})
    first = {**data["tenants"][0], "model": "slow", "slo_ms": 1000 * SLO_S}
    first.pop("retraining")
    data |= {"tenants": [{**first, "name": tenant} for tenant in pool]}
    data |= {"sharing": {"pools": [[*pool]]}} if len(pool) > 1 else {}
    header = records.header(20.0, *pool, simulated=False, backend="cpu", windows=3)
    points = {name: {"batch": 1, "processes": 1, "rate_rps": 10.0, "derived": ""} for name in ("7g.80gb", "3g.40gb")}
    for tenant in header["tenants"]:
        tenant |= {"model": "slow", "slo_ms": 1000 * SLO_S, "operating_points": points}
    streams = [stream(tenant, SLO_S, arrival_s if tenant == "a" else ()) for tenant in pool]
    return written(folder / name, yaml.safe_dump(data, sort_keys=False), [header, *events], streams)


def began(window: int, pool: Sequence[str] = "a") -> Json:
    return records.window_started(window, 20.0, *pool)  # the model gives half of the answers right


def ended(window: int, pool: Sequence[str] = "a", **counts: list[int]) -> Json:
    own = records.counts(**{**ALL_RIGHT, **counts})
    idle = records.counts(*[[0] * 20] * 3)
    finished = records.window_finished(window, **{tenant: own if tenant == "a" else idle for tenant in pool})
    return {**finished, "at_s": 20.0 * (window + 1)}


def up(instance: str = "x", ready_s: float = -1.0, placement: str = "7g.80gb@0", task: str = "inference") -> list[Json]:
    change = records.change(0, -9.0, [records.started(instance, -9.0, placement, task=task)])
    return [change, records.ready(0, instance, ready_s)]


def first_window(*happenings: Json, **counts: list[int]) -> list[Json]:
    return [began(0), *up(), *happenings, ended(0, **counts)]


def in_time(folder: Path, n_seconds: int = 20) -> list[int]:
    """By second, in the simulation."""
    run = replayed(folder)
    return [round(value) for value in run.tenants["a"].simulated_in_time[:n_seconds]]


def but(second: int, n: int) -> list[int]:
    return [n if place == second else 5 for place in range(20)]


def test_a_worker_that_keeps_up_answers_all(tmp_path: Path) -> None:
    run = replayed(by_hand(tmp_path, *first_window()))
    assert run.total == Nearness(100, 100, 100, 100, 100.0)
    assert run.lost == LostGoodput(0.0, 0.0)


def test_before_a_worker_is_ready_and_after_it_ended_requests_are_dropped(tmp_path: Path) -> None:
    stop = records.change(0, 15.0, [], [records.stopped("x", 15.05, 16.0)])
    events = [began(0), *up(ready_s=3.0), stop, ended(0)]
    # What arrived at 2.8 s cannot be answered in time any more; the batch of 15.0 is done.
    assert in_time(by_hand(tmp_path, *events)) == [0] * 3 + [5] * 12 + [1] + [0] * 4


def test_the_answer_under_way_is_lost_with_its_worker_which_serves_when_it_is_ready_again(tmp_path: Path) -> None:
    events = first_window(records.failed(0, "x", 5.05), records.ready(0, "x", 6.1))
    assert in_time(by_hand(tmp_path, *events)) == but(5, 0)


def swapped(*swap_s: float) -> list[Json]:
    """Training ends at 5.05 s."""
    finish = {**records.finished(0, "t", 6.5), "trained_s": 4.05, "swap_s": list(swap_s)}
    return [*up("t", 1.0, "3g.40gb@4", "retraining"), finish]


def test_a_worker_takes_weights_over_when_its_batch_is_done(tmp_path: Path) -> None:
    # The batch of 5.0 is done at 5.1, and at 6.1 that of 6.0 can still be answered in time.
    assert in_time(by_hand(tmp_path, *first_window(*swapped(1.0)))) == but(5, 1)


def test_workers_take_weights_over_one_after_the_other_and_the_others_serve(tmp_path: Path) -> None:
    events = first_window(*up("y", -1.0, "3g.40gb@0"), *swapped(1.0, 1.0))
    assert in_time(by_hand(tmp_path, *events)) == [5] * 20


def test_a_worker_that_is_gone_is_not_awaited(tmp_path: Path) -> None:
    events = first_window(*up("y", 19.0, "3g.40gb@0"), *swapped(1.0, 1.0, 1.0))
    assert in_time(by_hand(tmp_path, *events)) == but(5, 1)


def test_members_of_a_pool_wait_for_each_other(tmp_path: Path) -> None:
    """Weights that one takes over hold the lane up for all; the end of its worker does not."""
    shared = [
        records.change(0, -9.0, [{**records.started("x", -9.0), "tenant": ["a", "b"]}]),
        *(records.ready(0, "x", -1.0, tenant=tenant) for tenant in "ab"),
    ]
    swap = [{**one, "tenant": "b"} if one["kind"] == "finished" else one for one in swapped(1.0)]
    for happenings, expected in ((swap, but(5, 1)), ([records.failed(0, "x", 5.05, "b")], [5] * 20)):
        events = [began(0, "ab"), *shared, *happenings, ended(0, "ab")]
        assert in_time(by_hand(tmp_path / happenings[-1]["kind"], *events, pool="ab")) == expected


def test_turns_go_by_what_models_gave_as_the_run_knew_it() -> None:
    measured = [
        {"kind": "measured", "window": window, "measured_s": at_s, "tenants": {"a": {"accuracy_before": 0.3}}}
        for window, at_s in ((1, 22.0), (2, 45.0))
    ]
    log = records.log_of(
        records.header(20.0),
        *first_window(*swapped(0.001)),
        {**began(1), "asked_s": 18.0},
        measured[0],
        {**began(2), "asked_s": 38.0},
        *up("late", 30.0, "3g.40gb@0", "retraining"),
        records.finished(1, "late", 41.0),  # it was measured what the weights give that this replaces
        measured[1],
    )
    known = _in_service(log, "a")
    assert list(zip(known.from_s, known.accuracy, strict=True)) == [(0.0, 0.5), (6.5, 0.9), (22.0, 0.3), (41.0, 0.9)]


def test_goodput_is_expected_by_the_share_of_right_answers_before_and_after(tmp_path: Path) -> None:
    correct = [2] * 5 + [3, 4] + [4] * 13
    events = first_window(*swapped(0.001), correct=correct)
    own = replayed(by_hand(tmp_path, *events)).tenants["a"]
    # New weights answered at 6.5 s: that second has half of each; before, 13 of 30 answers were right.
    expected = [5 * 13 / 30] * 6 + [5 * (13 / 30 + 0.8) / 2] + [4] * 13
    assert own.simulated_goodput.tolist() == pytest.approx(expected)


def test_where_nothing_was_answered_the_measured_accuracies_count(tmp_path: Path) -> None:
    nothing = {"in_time": [0] * 20, "dropped": [5] * 20, "correct": [0] * 20}
    own = replayed(by_hand(tmp_path, *first_window(*swapped(0.001), **nothing))).tenants["a"]
    assert own.simulated_goodput.tolist() == pytest.approx([2.5] * 6 + [5 * 0.7] + [4.5] * 13)


def test_a_run_that_was_joined_again_is_compared_without_its_void_windows(call, tmp_path: Path) -> None:
    joined = {"kind": "resumed", "window": 2, "void": [1]}
    again = [began(2), *up("y", 39.0), ended(2)]
    folder = by_hand(
        tmp_path, *first_window(), began(1), joined, *again, {"kind": "run_finished", "windows": 3, **ENDING}
    )
    run = replayed(folder)
    assert run.windows == (0, 2)
    assert run.total == Nearness(200, 200, 200, 200, 200.0)
    assert run.is_resumed
    assert "the machine was refused 1.0% of its CPU time since it was joined again" in call("fidelity", folder)[1]


def test_what_waits_when_a_run_is_joined_is_nobodys(tmp_path: Path) -> None:
    joined = {"kind": "resumed", "window": 1, "void": []}
    nothing = {"in_time": [0] * 20, "dropped": [0] * 20, "correct": [0] * 20}
    before = [began(0), *up(), ended(0, **{**nothing, "dropped": [0] * 19 + [3]})]
    after = [began(1), *up("y", 19.0), ended(1, **{**nothing, "dropped": [1] + [0] * 19})]
    folder = by_hand(tmp_path, *before, joined, *after, arrival_s=(19.95, 19.95, 19.95, 20.0))
    # The third could be answered at 20.15, by the worker of the second part, were it not of the first.
    assert in_time(folder, 40) == [0] * 19 + [2, 1] + [0] * 19


# --- what several runs say


def run_of(live: Sequence[float], simulated: Sequence[float], **facts: Any) -> LiveFidelity:
    """A run of one tenant and one window: goodput of ten a second; what is in time is right."""
    columns = [np.array(column, dtype=np.float64) for column in (live, simulated)]
    own = TenantSeconds(np.full(len(live), 10.0), *columns, *columns)
    return LiveFidelity(Path("run"), len(live), 1, (0,), {"a": own}, replace(FACTS, **facts), is_resumed=False)


def off_by(points: float) -> LiveFidelity:
    """A run that loses half in every other ten seconds; simulated with so many points of arrivals more or fewer."""
    live = ([5.0] * 10 + [10.0] * 10) * 3
    return run_of(live, [value - points / 10 for value in live])


def test_the_median_of_sizes_counts() -> None:
    verdict = verdict_of([off_by(-9), off_by(1), off_by(4)])
    assert verdict.in_time_points == pytest.approx(4.0)
    assert verdict.goodput_pct == pytest.approx(100 * 4 / 75)
    assert verdict.lost_ratio == pytest.approx(4 / 50)
    assert verdict.shortfalls == ()


def test_differences_of_both_signs_do_not_make_up_for_each_other() -> None:
    assert verdict_of([off_by(-8), off_by(8)]).in_time_points == pytest.approx(8.0)


def test_a_simulation_that_is_far_off_is_told_in_each_regard() -> None:
    found = verdict_of([run_of([5.0] * 10 + [6.0] * 10, [9.0] * 20)]).shortfalls
    assert [text.split(",")[0].rpartition(" by ")[0] for text in found[:2]] == [
        "the share in time differs",
        "goodput differs",
    ]
    assert found[2] == "lost goodput by 10 s is no nearer than the live one of 10 s before"


@pytest.mark.parametrize("n_void", [1, 3])
def test_void_runs_do_not_count(n_void: int) -> None:
    for facts in (replace(FACTS, stolen_share=0.06), replace(FACTS, others_share=0.21)):
        verdict = verdict_of([replace(off_by(50), facts=facts)] * n_void + [off_by(1)] * (3 - n_void))
        assert (verdict.n_runs, verdict.n_void) == (3 - n_void, n_void)
        assert verdict.shortfalls == (() if n_void < 3 else ("every run is void",))


def test_the_table_of_a_run_is_whole_at_80_columns() -> None:
    run = off_by(1.0)
    out = StringIO()
    print_fidelity([run], verdict_of([run]), Console(file=out, width=80))
    assert "…" not in out.getvalue()
    assert "by points" in out.getvalue()


def test_where_there_is_nothing_to_compare_with_that_is_said() -> None:
    assert verdict_of([run_of([0.0] * 20, [5.0] * 20)]).shortfalls[1:] == (
        "no goodput was counted live",
        "the lost goodput that was counted live does not change from 10 s to 10 s",
    )


def test_one_tenants_loss_does_not_make_up_for_anothers() -> None:
    a, b = run_of([5.0] * 20, [4.0] * 20).tenants["a"], run_of([5.0] * 20, [6.0] * 20).tenants["a"]
    run = replace(run_of([5.0] * 20, [5.0] * 20), tenants={"a": a, "b": b})
    assert run.total.goodput_pct == 0
    assert run.lost == LostGoodput(20.0, 0.0)


def test_the_series_does_not_reach_across_a_gap() -> None:
    live = [10.0] * 20 + [0.0] * 20 + [5.0] * 20
    run = replace(run_of(live, live), window_s=20, windows=(0, 2))
    assert run.lost == LostGoodput(0.0, 0.0)


def test_a_window_shorter_than_two_pieces_has_no_series() -> None:
    assert run_of([5.0] * 15, [5.0] * 15).lost is None


def test_sums_of_nobody_are_nothing() -> None:
    assert total_of([Nearness(1, 1, 1, 1, 0.5), Nearness(2, 1, 0, 1, 0.25)]) == Nearness(3, 2, 1, 2, 0.75)
    nothing = Nearness(0, 0, 0, 0, 0.0)
    assert (nothing.in_time_points, nothing.goodput_pct, nothing.is_near) == (None, None, False)


# --- the command


@pytest.fixture
def live_run(tmp_path: Path) -> Path:
    finish = {"kind": "run_finished", "windows": 3, **ENDING}
    half = {"in_time": [5, 0] * 10, "dropped": [0, 5] * 10, "correct": [5, 0] * 10}
    return by_hand(tmp_path, *first_window(), began(1), ended(1, **half), began(2), ended(2), finish)


def test_the_report_says_what_differs_and_by_how_much(call, live_run: Path) -> None:
    code, out, _ = call("fidelity", live_run)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert ["1", "a", "100", "50.00", "100.00", "+50.00", "50.00", "100.00", "+100.00"] in rows
    assert ["all", "a", "300", "83.33", "100.00", "+16.67", "83.33", "100.00", "+20.00"] in rows
    assert "not near enough: the share in time differs by 16.7 points, more than 5; goodput differs by 20.0 %" in out
    assert "the machine was refused 1.0% of its CPU time\n" in out
    assert "3.0 ms" not in out
    assert "2.0 ms at the 99th percentile, at most 3 ms" in out


def test_check_ends_with_1_where_the_simulation_is_not_near(call, live_run: Path, tmp_path: Path) -> None:
    assert call("fidelity", live_run, "--check")[0] == 1
    near = simulated(tmp_path / "near", CASES["busy"])
    assert call("fidelity", near, "--check")[0] == 0


def test_a_void_run_is_called_void(call, tmp_path: Path) -> None:
    causes = {
        "stolen_share": (
            0.07,
            "void: this machine was refused 7.0% of its CPU time, more than 5%; the run does not count",
        ),
        "others_share": (
            0.3,
            "void: others took 30.0% of this machine's CPU time, more than 20%; the run does not count",
        ),
    }
    for key, (share, said) in causes.items():

        def voided(record: Json, change: Json = {key: share}) -> Json:  # noqa: B006 - it is only read
            return {**as_live(record), **change} if record["kind"] == "run_finished" else as_live(record)

        (tmp_path / key).mkdir()
        code, out, _ = call("fidelity", simulated(tmp_path / key, {}, voided), "--check")
        assert (code, said in out) == (1, True)
        assert "not near enough: every run is void" in out


def test_requests_of_others_are_told(call, tmp_path: Path) -> None:
    requests = {"a": {**dict.fromkeys(HEARD, 0), "sent": 300, "dispatcher": records.dispatched(arrived=1300)}}
    finish = {"kind": "run_finished", "windows": 3, **ENDING, "requests": requests}
    folder = by_hand(tmp_path, *first_window(), began(1), ended(1), began(2), ended(2), finish)
    assert "1,000 requests of others, on both sides left out, took time of the workers" in call("fidelity", folder)[1]


def test_several_runs_are_shown_and_their_median_is_told(call, live_run: Path) -> None:
    again = live_run.parent / "again"
    shutil.copytree(live_run, again)
    code, out, _ = call("fidelity", live_run, again)
    assert code == 0
    assert [line for line in out.splitlines() if "counted live" in line] == [
        f"{folder}: counted live, and simulated with what the run recorded" for folder in (live_run, again)
    ]
    assert "median of 2 runs: in time 16.7 points (at most 5), goodput 20.0 % (at most 15)" in out


def test_json_has_all_of_it(call, live_run: Path) -> None:
    code, out, _ = call("fidelity", live_run, "--json")
    found = json.loads(out)
    (run,) = found["runs"]
    assert code == 0
    assert run["windows"][1]["tenants"]["a"] == {
        "arrivals": 100,
        "live_in_time": 50,
        "simulated_in_time": 100,
        "live_goodput": 50,
        "simulated_goodput": 100.0,
        "in_time_points": 50.0,
        "goodput_pct": 100.0,
    }
    assert (run["void"], run["stolen_share"], run["sent_late_s"]) == (False, 0.01, [0.001, 0.002, 0.003])
    assert run["lost_goodput_by_10_s"]["ratio"] == pytest.approx(run["lost_goodput_by_10_s"]["simulated"] / 10)
    assert (found["verdict"]["n_runs"], found["verdict"]["near"]) == (1, False)
    assert found["verdict"]["in_time_points"] == pytest.approx(50 / 3)


# --- what is refused


def complaint(call, folder: Path) -> str:
    code, out, err = call("fidelity", folder)
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if line.startswith("error:")]
    return str(line)


def test_a_simulated_run_is_refused(call, tmp_path: Path) -> None:
    folder = simulated(tmp_path, {}).parent / "simulated"
    assert "its requests were simulated" in complaint(call, folder)


def test_no_run_is_refused(call, tmp_path: Path) -> None:
    assert "is no run" in complaint(call, tmp_path)


def test_a_run_without_a_settled_window_is_refused(call, tmp_path: Path) -> None:
    assert "no window of it was finished" in complaint(call, by_hand(tmp_path, began(0), *up()))


def test_a_run_whose_requests_are_gone_is_refused(call, live_run: Path) -> None:
    path = live_run / "live" / "requests.msgpack"
    path.write_bytes(b"\xc1")
    assert f"{path}: not a file of streams" in complaint(call, live_run)
    path.unlink()
    assert f"{path}: No such file" in complaint(call, live_run)


def test_requests_of_another_run_are_refused(call, live_run: Path) -> None:
    path = live_run / "live" / "requests.msgpack"
    write_streams(path, [stream("a", SLO_S, EVERY_FIFTH[1:])])
    assert "in second 0 4 requests of a arrive by live/requests.msgpack, 5 by the log" in complaint(call, live_run)
    write_streams(path, [stream("b", SLO_S, EVERY_FIFTH)])
    assert f"{path}: has no requests of tenant a" in complaint(call, live_run)


def test_another_service_profile_is_refused(call, live_run: Path) -> None:
    table = live_run.parent / "profiles.csv"
    table.write_text(table.read_text().replace("7g.80gb,1,1,100,10", "7g.80gb,1,1,90,11"))
    said = complaint(call, live_run)
    assert (
        f"{live_run / CONFIG_FILE}: tenants.a: serves on 7g.80gb with batch 1, processes 1, 11.0000 requests/s" in said
    )
    table.write_text(table.read_text().replace("slow", "other"))
    assert f"{live_run / CONFIG_FILE}: tenants.a:" in complaint(call, live_run)


def test_a_config_without_one_of_the_tenants_is_refused(call, live_run: Path) -> None:
    path = live_run / CONFIG_FILE
    path.write_text(path.read_text().replace("name: a\n", "name: c\n"))
    assert "tenants.a: is missing" in complaint(call, live_run)


def test_the_extra_that_is_missing_is_named(call, live_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("workloads.live.generator", "workloads.live.wire"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert f"requests need zmq: {install('live')}" in complaint(call, live_run)
