"""Tenants that come and go: at a window and inside one. Each request is counted once, and those of others as before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.config.reading import config_yaml, validate_config
from migrator.errors import MigratorError
from migrator.execution.loop import Loop
from migrator.execution.parts import Parts
from migrator.execution.reposing import RunCheck
from migrator.execution.simulated import simulated_parts
from migrator.execution.tenancies import Tenancy
from migrator.inputs.assembly import assemble
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records
from migrator.log.account import accounts
from migrator.log.eras import eras_of
from migrator.log.integrity import SoFar
from migrator.log.report import report_of
from migrator.log.runlog import ReadLog, RunLog, read_log, whole_log
from migrator.log.segments import older_segments
from migrator.log.timeline import courses
from planner.by_hand import inference, plan_of
from planner.plan import MigPlan
from planner.policies.ours import Migrator
from planner.policies.policy import AnyPolicy, Knows, Policy, Window
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from workloads.serving.requests import Requests
from workloads.serving.tally import COUNTED

PLACES = {"vision": "2g.20gb@0", "language": "2g.20gb@2", "third": "3g.40gb@4"}
BASE = {
    "windows": 3,
    "tenants.0.arrivals": {"rate_rps": 400.0, "scale": {"factor": 1.0}},
    "tenants.1.arrivals": {"rate_rps": 60.0, "scale": {"factor": 1.0}},
    "tenants.0.retraining": {"samples": 1000, "windows": 0},
    "tenants.1.retraining": {"samples": 1000, "windows": 0},
}


@dataclass(frozen=True)
class Fixed(Policy):
    """Leaves every tenant on the placement that it has, whoever else is there."""

    name: str = "fixed"
    knows: Knows = Knows.FORECAST

    def plan(self, window: Window) -> MigPlan:
        problem = window.problem
        places = [problem.gpu.placement(PLACES[tenant.name]) for tenant in problem.tenants]
        held = (inference(problem, *both) for both in zip(problem.tenants, places, strict=True))
        return plan_of(problem, held, self.name)


def of(*names: str, changes: Mapping[str, Any] = MappingProxyType({})) -> tuple[Setting, RecordedTraffic]:
    """The setting and the traffic of these tenants."""
    config = changed(SMALL, {**BASE, **changes})
    third = {**config["tenants"][0], "name": "third", "arrivals": {"rate_rps": 200.0, "scale": {"factor": 1.0}}}
    config["tenants"] = [one for one in (*config["tenants"], third) if one["name"] in names]
    return assemble(validate_config(config, "small"), "small")


BOTH, ALL = ("vision", "language"), ("vision", "language", "third")


def ran(
    folder: Path,
    policy: AnyPolicy,
    begin: Sequence[str],
    coming: Mapping[float, Sequence[str]],
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> ReadLog:
    setting, traffic = of(*begin, changes=changes)
    parts = simulated_parts(setting, traffic, policy)
    tenancies = (Tenancy(at_s, *of(*names, changes=changes)) for at_s, names in coming.items())
    return carried_out(folder, setting, replace(parts, coming=deque(tenancies)))


def carried_out(folder: Path, setting: Setting, parts: Parts) -> ReadLog:
    with RunLog(folder, config_yaml(setting.config)) as log:
        Loop(setting, parts).carry_out(log)
    return whole_log(folder)


def counts(log: ReadLog, tenant: str) -> dict[str, list[int]]:
    """The tenant's by second of the run."""
    found: dict[str, list[int]] = {name: [] for name in COUNTED}
    window_s = round(log.header.window_s)
    for settled in log.of(records.WindowFinished):
        for name, by_second in found.items():
            own = settled.tenants.get(tenant)
            by_second.extend([0] * window_s if own is None else getattr(own, name))
    return found


class Absent(RecordedTraffic):
    """The same requests, but for those of a tenant outside some seconds; luck stays with its request."""

    def __init__(self, traffic: RecordedTraffic, tenant: str, from_s: float, to_s: float) -> None:
        self.__dict__.update(traffic.__dict__)
        self._absent, self._there = tenant, (from_s, to_s)

    def requests(self, first_s: int, end_s: int) -> tuple[Requests, ...]:
        drawn = super().requests(first_s, end_s)
        return tuple(self._cut(own, first_s) if own.tenant == self._absent else own for own in drawn)

    def _cut(self, own: Requests, first_s: int) -> Requests:
        from_s, to_s = self._there
        (whole,) = (one for one in super().requests(0, first_s) if one.tenant == own.tenant)
        first = int(((whole.arrival_s >= from_s) & (whole.arrival_s < to_s)).sum())
        is_there = (own.arrival_s >= from_s) & (own.arrival_s < to_s)
        return Requests(own.tenant, own.slo_s, own.arrival_s[is_there], own.luck[is_there], first)


@pytest.mark.parametrize(("comes_s", "goes_s"), [(60.0, 120.0), (75.0, 131.0), (60.0, 140.5), (91.25, 120.0)])
def test_counts_are_those_of_a_run_with_all_in_which_the_absent_ask_nothing(
    tmp_path: Path, comes_s: float, goes_s: float
) -> None:
    log = ran(tmp_path / "change", Fixed(), BOTH, {comes_s: ALL, goes_s: BOTH})
    setting, traffic = of(*ALL)
    parts = simulated_parts(setting, Absent(traffic, "third", comes_s, goes_s), Fixed())
    whole = carried_out(tmp_path / "whole", setting, parts)
    for name in BOTH:
        assert counts(log, name) == counts(whole, name)
    own, expected = counts(log, "third"), counts(whole, "third")
    assert own["arrivals"] == expected["arrivals"]
    ready_s, ends_s = int(comes_s) + 10, int(goes_s) - 1  # it starts up first, and its last requests may be dropped
    for key, by_second in own.items():
        assert by_second[ready_s:ends_s] == expected[key][ready_s:ends_s]
    assert sum(own["in_time"][ready_s:ends_s]) > 0.9 * sum(own["arrivals"][ready_s:ends_s])
    assert [[one.name for one in change.tenants] for change in log.of(records.TenantsChanged)] == [[*ALL], [*BOTH]]


@pytest.mark.parametrize("pools", ["off", "auto"])
@pytest.mark.parametrize(
    "coming",
    [
        {60.0: ALL, 120.0: ("vision", "third")},
        {75.0: ALL, 131.0: ("vision", "third")},
        {12.5: ("vision", "third"), 64.0: ALL, 171.0: ("language",)},
        {33.0: ("third",)},
        {0.0: ALL, 60.0: ("vision", "third")},
    ],
    ids=str,
)
def test_each_request_is_in_one_account_whoever_comes_and_goes(
    tmp_path: Path, pools: str, coming: Mapping[float, Sequence[str]]
) -> None:
    changes = {"planner.replan_every_s": 10, "tenants.0.retraining.windows": None, "sharing": {"pools": pools}}
    log = ran(tmp_path / "run", Migrator(), BOTH, coming, changes)
    traffic = {own.tenant: own for own in of(*ALL, changes=changes)[1].requests(0, 180)}
    edges_s = [0.0, *coming, 180.0]
    for name, own in traffic.items():
        found = counts(log, name)
        sets = zip([BOTH, *coming.values()], edges_s, edges_s[1:], strict=False)
        n_came = sum(own.n_before(to_s) - own.n_before(from_s) for names, from_s, to_s in sets if name in names)
        assert sum(found["arrivals"]) == n_came
        assert sum(found["in_time"]) + sum(found["late"]) + sum(found["dropped"]) == n_came
    assert log.entries[-1].record.kind == "run_finished"


COMES_AND_GOES = {75.0: ALL, 131.0: ("vision", "third")}


def test_a_report_has_everybody_who_ever_was_there_and_no_outage_while_they_were_not(tmp_path: Path) -> None:
    whole = ran(tmp_path / "run", Fixed(), BOTH, COMES_AND_GOES)
    report = report_of(read_log(tmp_path / "run"))
    assert [*report.tenants] == [*ALL]
    for name, figures in report.tenants.items():
        assert figures.requests.arrivals == sum(counts(whole, name)["arrivals"])
    assert report.tenants["third"].outage_s < 15.0  # from its coming until its worker is up
    assert report.tenants["vision"].outage_s == 0.0
    assert report.tenants["language"].outage_s < 10.0  # between its last batch and its going
    assert [[*one.tenants] for one in report.windows] == [[*BOTH], [*ALL], [*ALL]]
    assert report.total is not None
    assert report.total.requests.arrivals == sum(sum(counts(whole, name)["arrivals"]) for name in ALL)
    assert courses(read_log(tmp_path / "run"))
    assert set(accounts(read_log(tmp_path / "run"))) == {*ALL}


@pytest.mark.parametrize("pools", ["off", "auto"])
def test_plans_are_checked_by_set_of_tenants(tmp_path: Path, pools: str) -> None:
    changes = {"tenants.0.retraining.windows": None, "sharing": {"pools": pools}, "windows": 4}
    coming = {60.0: ALL, 131.0: ("vision", "third")}
    ran(tmp_path / "run", Migrator(), BOTH, coming, changes)
    log = whole_log(tmp_path / "run")
    eras = [*eras_of(log)]
    assert [[one.name for one in era.header.tenants] for era in eras] == [[*BOTH], [*ALL], ["vision", "third"]]
    checked = [
        one
        for era in eras
        for one in RunCheck(era, *of(*(own.name for own in era.header.tenants), changes=changes)).plans()
    ]
    assert [one.window for one in checked if one.anew_from_step is None] == [0, 1, 2, 3]
    for one in checked:
        assert one.verification is not None, one.reason
        assert one.verification.is_valid or one.tells_floors


@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_whatever_comes_and_goes_each_request_is_in_one_account_and_a_segment_may_begin_at_any_window(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sets = [ALL, BOTH, ("vision", "third"), ("language", "third"), ("third",)]
    at_s = sorted(data.draw(st.sets(st.integers(0, 38), min_size=1, max_size=4)))
    changes = {"log": {"roll_windows": data.draw(st.sampled_from([1, 2, 9]))}}
    coming, there, left_s = dict[float, Sequence[str]](), set(BOTH), dict[str, float]()
    for place in at_s:
        names, moment_s = data.draw(st.sampled_from(sets)), 4.5 * place + 3
        if any(name not in there and moment_s < left_s.get(name, -180.0) + 121 for name in names):
            continue  # their last window is not settled
        left_s |= dict.fromkeys(there - {*names}, moment_s)
        coming[moment_s], there = names, {*names}
    folder = tmp_path_factory.mktemp("run") / "run"
    ran(folder, Fixed(), BOTH, coming, changes)
    whole = whole_log(folder)
    edges_s, spans = [0.0, *coming, 180.0], [BOTH, *coming.values()]
    for own in of(*ALL)[1].requests(0, 180):
        found = counts(whole, own.tenant)
        pairs = zip(spans, edges_s, edges_s[1:], strict=False)
        n_came = sum(own.n_before(to_s) - own.n_before(from_s) for there, from_s, to_s in pairs if own.tenant in there)
        assert sum(found["arrivals"]) == n_came
        assert sum(found["in_time"]) + sum(found["late"]) + sum(found["dropped"]) == n_came
    for started in whole.of(records.WindowStarted):
        part = whole.since(started.window)
        so_far = SoFar(part.header, part.begins)
        for entry in part.entries[1:]:
            so_far.take(entry.n, entry.record)
    for path in older_segments(folder).values():
        path.unlink()
    assert report_of(read_log(folder)).total is not None  # what is left can be read alone


def test_a_change_of_the_set_draws_no_requests_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def requests(own: RecordedTraffic, first_s: int, end_s: int) -> tuple[Requests, ...]:
        asked.append(end_s)
        return drawn(own, first_s, end_s)

    drawn = RecordedTraffic.requests
    monkeypatch.setattr(RecordedTraffic, "requests", requests)
    monkeypatch.setattr(Loop, "_change_tenants", changing := _Counting(Loop._change_tenants, asked))
    ran(tmp_path / "run", Fixed(), BOTH, {75.0: ALL})
    assert changing.most_s == [120]  # the window that is under way


class _Counting:
    """The method, and up to which second requests had been drawn when it was done."""

    def __init__(self, method: Any, asked: list[int]) -> None:
        self._method, self._asked = method, asked
        self.most_s: list[int] = []

    def __get__(self, loop: Loop, _: type[Loop]) -> Any:
        def change(window: int) -> None:
            self._method(loop, window)
            self.most_s.append(max(self._asked))

        return change


def test_who_left_comes_again_only_when_their_last_window_is_settled(tmp_path: Path) -> None:
    with pytest.raises(MigratorError, match="language left, and comes again before its last window is settled"):
        ran(tmp_path / "run", Fixed(), BOTH, {70.0: ("vision",), 80.0: BOTH})


@pytest.mark.parametrize("policy", ["ekya", "time-sharing"])
def test_tenants_come_and_go_only_where_they_have_instances(tmp_path: Path, policy: str) -> None:
    with pytest.raises(MigratorError, match="only where the GPU is shared by MIG instances"):
        ran(tmp_path / "run", policy_of(policy), BOTH, {70.0: ALL})
