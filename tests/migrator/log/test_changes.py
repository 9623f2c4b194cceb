"""What the records say of an instance's life."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path

import pytest

from executor.catalogue import gpu_model
from migrator.errors import LogError
from migrator.log.changes import MadeCall, Tenure, changes_in, measured_overhead, with_overhead_of_run
from migrator.log.runlog import ReadLog
from planner.errors import ProblemError
from planner.problem import Problem, Reconfiguration, TenantTerms
from tests.migrator.log import records
from tests.migrator.log.records import Json, change, failed, ready, started, stopped

HEADER = records.header(60.0)
BEGUN = change(0, 10.0, [started("x", 10.5, "2g.20gb@2")])
ENDED = change(0, 30.0, [], [stopped("x", 30.0, 31.5)])


def life(*events: Json) -> Tenure:
    return changes_in(records.log_of(HEADER, *events))[0].started[0]


def test_an_instance_serves_from_ready_until_it_ends() -> None:
    instance = life(BEGUN, ready(0, "x", 14.0), ENDED)
    assert (instance.begin_s, instance.up_s, instance.end_s, instance.gone_s) == (10.5, 14.0, 30.0, 31.5)
    assert instance.served == ((14.0, 30.0),)
    assert instance.profile == "2g.20gb"


def test_an_instance_that_lives_serves_without_end() -> None:
    assert life(BEGUN, ready(0, "x", 14.0)).served == ((14.0, math.inf),)


def test_a_failed_worker_serves_again_when_it_is_ready_again() -> None:
    served = life(BEGUN, ready(0, "x", 14.0), failed(0, "x", 20.0), ready(0, "x", 24.0), ENDED).served
    assert served == ((14.0, 20.0), (24.0, 30.0))


def test_a_start_that_was_given_up_ends_the_start_up() -> None:
    instance = life(BEGUN, failed(0, "x", 12.0), ENDED)
    assert (instance.up_s, instance.served, instance.ready) == (12.0, (), None)


PASSED: list[Json] = [
    change(0, 10.0, [started("x", 10.5, "2g.20gb@2") | {"tenant": ["a", "b"]}]),
    ready(0, "x", 14.0, tenant="a"),
    ready(0, "x", 16.0, tenant="b"),
    failed(0, "x", 20.0, tenant="a"),
    ready(0, "x", 24.0, tenant="a"),
    change(1, 60.0) | {"passed": [started("x", 60.0, "2g.20gb@2") | {"tenant": ["b", "c"]}]},
    ready(1, "x", 63.0, tenant="c"),
    change(2, 120.0) | {"passed": [started("x", 120.0, "2g.20gb@2") | {"tenant": ["a", "b"]}]},
    ready(2, "x", 125.0, tenant="a"),
    change(2, 130.0, [], [stopped("x", 130.0, 131.5) | {"tenant": ["a", "b"]}]),
]
"""An instance of two tenants, of whom one makes room for a third and then comes back."""


def test_an_instance_of_a_pool_is_each_member_s_while_it_is_in_it() -> None:
    first, then, last, ended = changes_in(records.log_of(records.header(60.0, "a", "b", "c"), *PASSED))
    assert {one.tenant: one.served for one in first.started} == {
        "a": ((14.0, 20.0), (24.0, 60.0)),
        "b": ((16.0, 60.0),),
    }
    assert {one.tenant: one.served for one in then.passed} == {"b": ((60.0, 120.0),), "c": ((63.0, 120.0),)}
    assert {one.tenant: one.served for one in last.passed} == {"a": ((125.0, 130.0),), "b": ((120.0, 130.0),)}
    assert {one.tenant: (one.begin_s, one.up_s, one.gone_s) for one in last.passed} == {
        "a": (120.0, 125.0, 131.5),
        "b": (120.0, 120.0, 131.5),
    }
    assert [one.members for one in then.begun] == [("b", "c")] * 2
    assert ended.stopped == last.passed


def test_an_instance_that_ended_before_it_was_ready_never_served() -> None:
    instance = life(BEGUN, ENDED)
    assert (instance.up_s, instance.served) == (30.0, ())


def test_calls_belong_to_the_change_after_them_and_refused_ones_to_none() -> None:
    calls = [records.intent(0, "create", "2g.20gb@2"), records.outcome(0, 1, 10.0, 10.5)]
    refused = [records.intent(0, "destroy", "2g.20gb@2"), records.outcome(0, 4, 30.0, 30.5, "busy")]
    first, then = changes_in(records.log_of(HEADER, *calls, BEGUN, *refused, ENDED))
    assert (first.calls, then.calls) == ((MadeCall("create", "2g.20gb@2", 10.0, 10.5),), ())


def test_the_first_layout_is_the_bring_up() -> None:
    changes = changes_in(records.log_of(HEADER, change(0, -9.0, [started("x", -9.0)]), change(0, 0.0)))
    assert [item.is_bring_up for item in changes] == [True, False]


def test_calls_of_a_change_that_was_cut_off_are_no_later_changes() -> None:
    log = records.log_of(
        records.header(10.0),
        records.intent(0, "create", "1g.10gb@0"),
        records.outcome(0, 1, 3.0, 3.2),
        {"kind": "resumed", "window": 1, "void": [0], "at_s": 4.0},
        records.intent(1, "create", "1g.10gb@1"),
        records.outcome(1, 4, 12.0, 12.2),
        records.change(1, 12.0, [records.started("x", 12.0, "1g.10gb@1")]),
    )
    (found,) = changes_in(log)
    assert [call.placement for call in found.calls] == ["1g.10gb@1"]


TENANTS_HEADER = records.header(60.0, "a", "b", "other")
NUMBERS = count()


def giving(window: int, begin_s: float, *new: tuple[str, float], task: str = "inference") -> list[Json]:
    """A change that starts an instance for each of the tenants, and when these are ready."""
    ids = [f"1g.10gb@0#{next(NUMBERS)}" for _ in new]
    items = [
        records.started(name, ready_s - 1.0, "1g.10gb@0", tenant, task)
        for name, (tenant, ready_s) in zip(ids, new, strict=True)
    ]
    ready = [records.ready(window, name, ready_s) for name, (_, ready_s) in zip(ids, new, strict=True)]
    return [records.change(window, begin_s, items), *ready]


def log_of(*events: Json) -> ReadLog:
    return records.log_of(TENANTS_HEADER, *events)


def problem_of(*names: str, model: Reconfiguration = Reconfiguration.PAPER) -> Problem:
    tenants = tuple(TenantTerms(name, [5.0, 5.0], {"1g.5gb": 9.0}, 0.5, 1.0, "1g.5gb") for name in names)  # type: ignore[arg-type]
    return Problem(gpu_model("a100-40gb"), 1.0, 2, model, tenants)


def test_overhead_lasts_from_the_beginning_of_a_change_until_the_new_instance_is_ready() -> None:
    # The instance's own creation begins later than the change, when others are destroyed.
    assert measured_overhead(log_of(*giving(0, 10.0, ("a", 14.5)))).by_window == {0: {"a": 4.5}}


def test_it_is_the_mean_of_a_windows_new_instances_by_tenant() -> None:
    first, second = giving(0, 10.0, ("a", 12.0), ("a", 14.0), ("b", 13.0)), giving(0, 20.0)
    third = giving(0, 30.0, ("a", 36.0))
    assert measured_overhead(log_of(*first, *second, *third)).by_window == {0: {"a": 4.0, "b": 3.0}}


def test_windows_are_kept_apart_and_the_last_one_that_has_a_value_counts() -> None:
    events = (*giving(0, 10.0, ("a", 12.0), ("b", 13.0)), *giving(1, 70.0, ("a", 75.0)))
    measured = measured_overhead(log_of(*events, *giving(2, 130.0)))
    assert measured.by_window == {0: {"a": 2.0, "b": 3.0}, 1: {"a": 5.0}}
    assert measured.last_s == {"a": 5.0, "b": 3.0}


def test_bring_up_and_retrainings_do_not_count() -> None:
    events = (*giving(0, -9.0, ("a", -2.0)), *giving(0, 5.0, ("a", 7.0), task="retraining"))
    assert measured_overhead(log_of(*events)).by_window == {}


def test_an_instance_that_never_was_ready_does_not_count() -> None:
    assert measured_overhead(log_of(*giving(0, 5.0, ("a", 7.0))[:1])).by_window == {}


@pytest.mark.parametrize("simulated", [True, False])
def test_it_says_whether_it_was_simulated(simulated: bool) -> None:
    assert measured_overhead(records.log_of({**TENANTS_HEADER, "simulated": simulated})).is_simulated is simulated


def write_run(folder: Path, *events: Json) -> Path:
    records.write(folder / "run", TENANTS_HEADER, records.window_started(0, 60.0, "a", "b", "other"), *events)
    return folder / "run"


def test_a_problem_gets_what_a_run_measured_of_its_tenants(tmp_path: Path) -> None:
    run = write_run(tmp_path, *giving(0, 10.0, ("a", 14.0), ("other", 19.0)))
    problem, measured = with_overhead_of_run(problem_of("a", "b"), run)
    assert [tenant.overhead_s for tenant in problem.tenants] == [4.0, 1.0]
    assert measured.last_s == {"a": 4.0, "other": 9.0}


def test_a_run_that_measured_nothing_of_the_tenants_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path, *giving(0, 10.0, ("other", 19.0)))
    with pytest.raises(LogError, match=r"no change made a new instance for a, b; the run's changes gave some to other"):
        with_overhead_of_run(problem_of("a", "b"), run)


def test_a_physical_problem_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, *giving(0, 10.0, ("a", 14.0)))
    with pytest.raises(ProblemError, match="for paper problems; this one is physical"):
        with_overhead_of_run(problem_of("a", model=Reconfiguration.PHYSICAL), run)


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is no run"):
        with_overhead_of_run(problem_of("a"), tmp_path)


def test_a_real_runs_log_is_read(call, write_config, tmp_path: Path) -> None:
    busy = {"tenants.0.arrivals.rate_rps": 1200, "tenants.1.arrivals.scale.factor": 60.0}
    assert call("run", write_config(busy), "--out", tmp_path / "run")[0] == 0
    problem, measured = with_overhead_of_run(problem_of("vision", "language"), tmp_path / "run")
    assert measured.is_simulated
    # Workers start in 1 and 2 s alone, slower together, after driver calls of a few tenths of a second.
    assert all(0.5 < tenant.overhead_s < 20.0 for tenant in problem.tenants)
