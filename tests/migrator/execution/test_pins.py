"""What is pinned stays: what stands, and models. Requests are counted as ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from migrator.config.reading import validate_config
from migrator.execution import events
from migrator.execution.instances import Instances
from migrator.execution.posing import tenants_that_run
from migrator.execution.simulated import simulated_parts
from migrator.execution.tenancies import Tenancy
from migrator.inputs.assembly import assemble_run
from migrator.inputs.setting import Setting
from migrator.log import records
from migrator.log.changes import LayoutChange, changes_in
from migrator.log.runlog import ReadLog, read_log
from planner.policies.registry import policy_of
from planner.verify import Rule
from tests.migrator.config.test_models import LEARNS, both_live
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_loans import LENT
from tests.migrator.execution.test_reposing import REPLANNING, checked, run_in
from tests.migrator.execution.test_tenancies import ALL, BOTH, carried_out, counts, of
from tests.seeds import examples

CHANGING: dict[str, Any] = {
    **REPLANNING,
    "windows": 3,
    "planner.prove": "never",
    "planner.max_schedules": 100,
    "retraining": {"required": False, "drift": "compound"},
}
"""Without pins its retrainings make and destroy instances, and its plans of rests move others."""

PINNED = {**CHANGING, "pin": {"layout": True}}


def moves(log: ReadLog, from_s: float = 0.0) -> list[LayoutChange]:
    """Changes that made, destroyed or passed on an instance, after the first one's bring-up."""
    done = [one for one in changes_in(log) if not one.is_bring_up and one.begin_s >= from_s]
    return [one for one in done if one.calls or one.started or one.stopped or one.passed]


def invalid(log: ReadLog, changes: Mapping[str, Any]) -> list[object]:
    """What the checker says of plans that break a rule, or cannot be told."""
    found = checked(log, changes)
    return [one.reason or one.verification.broken_rules for one in found if one.reason or one.verification.broken_rules]


@pytest.mark.parametrize("policy", ["migrator", "window", "paris", "reactive"])
def test_no_instance_is_made_or_destroyed_while_the_layout_is_pinned(tmp_path: Path, policy: str) -> None:
    log = read_log(run_in(tmp_path / "run", PINNED, policy))
    assert (moves(log), log.of(records.Finished)) == ([], ())
    assert invalid(log, PINNED) == []
    assert {len(one.tenants) for one in log.of(records.WindowFinished)} == {2}


def test_reports_and_their_page_show_what_is_pinned(call, write_config) -> None:
    changes = {"windows": 1, "pin": {"layout": True, "retraining": False}}
    assert "pinned: layout, retraining" in call("run", write_config(changes), "--out", "run")[1]
    assert "pinned: layout, retraining" in call("report", "run", "--full")[1]
    assert call("report", "run", "--html", "page.html")[0] == 0
    assert "<b>pinned</b>: layout, retraining" in Path("page.html").read_text("utf-8")


def test_without_the_pin_instances_come_and_go(tmp_path: Path) -> None:
    log = read_log(run_in(tmp_path / "run", CHANGING))
    assert len(moves(log)) > 1
    assert log.of(records.Finished)


def test_a_plan_that_moves_what_is_pinned_is_found(tmp_path: Path) -> None:
    log = read_log(run_in(tmp_path / "run", CHANGING))
    broken = {one.rule for found in checked(log, PINNED) if found.verification for one in found.verification.violations}
    assert broken & {Rule.EPOCHS, Rule.RETRAINING}


@pytest.mark.parametrize("required", [True, False])
def test_nobody_is_retrained_while_that_is_pinned_and_models_fall_behind(tmp_path: Path, required: bool) -> None:
    changes = {**CHANGING, "retraining.required": required, "pin": {"retraining": False}}
    log = read_log(run_in(tmp_path / "run", changes))
    assert log.of(records.Finished) == ()
    assert invalid(log, changes) == []
    ages = [one.model_age["vision"] for one in log.of(records.WindowStarted)]
    assert ages == [1, 2, 3]


def test_whose_weights_are_pinned_is_not_retrained_and_that_is_told() -> None:
    of_both = {f"tenants.{m}.retraining": {"samples": 100, "required": True} for m in range(2)}
    live = {**both_live(LEARNS, LEARNS), **of_both, "tenants.0.pin": {"weights": "first"}}
    setting, traffic = assemble_run(validate_config(changed(SMALL, live), "small"), "small")
    assert [one.is_offered(0, 0.0) for one in setting.tenants] == [False, True]
    told = events.tenants_changed(setting, traffic.origins, 0, {})
    assert told.pinned == ("weights of vision (first)",)


def test_beside_a_layout_that_stays_retrainings_go_on_by_loans(tmp_path: Path) -> None:
    changes = {**LENT, "pin": {"layout": True}}
    pinned, free = (read_log(run_in(tmp_path / name, own)) for name, own in (("pinned", changes), ("free", LENT)))
    assert pinned.of(records.Finished) == free.of(records.Finished) != ()


def reloaded(
    folder: Path, coming: Mapping[float, tuple[tuple[str, ...], Mapping[str, Any]]], first: Mapping[str, Any]
) -> ReadLog:
    """A run whose config is another one from moments on: whose tenants it has, and its keys."""
    setting, traffic = of(*BOTH, changes=first)
    parts = simulated_parts(setting, traffic, policy_of("migrator"))
    tenancies = (Tenancy(at_s, *of(*names, changes=own)) for at_s, (names, own) in coming.items())
    return carried_out(folder, setting, replace(parts, coming=deque(tenancies)))


MOVING: dict[str, Any] = {
    "planner.replan_every_s": 10,
    "retraining.required": False,
    "tenants.0.retraining": {"samples": 1000},
    "tenants.1.retraining": {"samples": 1000},
}


@pytest.mark.parametrize("pools", ["off", "auto"])
@pytest.mark.parametrize("at_s", [60.0, 75.0, 91.25])
def test_what_stands_stays_from_when_it_is_pinned(tmp_path: Path, at_s: float, pools: str) -> None:
    free = {**MOVING, "sharing": {"pools": pools}}
    log = reloaded(tmp_path / "run", {at_s: (BOTH, {**free, "pin": {"layout": True}})}, free)
    made = [one for one in moves(log, at_s) if one.started or one.passed]
    assert made == []
    stopped = [item for one in moves(log, at_s) for item in one.stopped]
    assert {item.task for item in stopped} <= {"retraining"}  # what was under way ends
    assert [one.pinned for one in log.of(records.TenantsChanged)] == [("layout",)]


@pytest.mark.parametrize(("pin", "told"), [({"layout": True}, ("layout",)), ({}, ())])
def test_reports_show_the_pins_that_hold_last(tmp_path: Path, pin: Mapping[str, Any], told: tuple[str, ...]) -> None:
    first = {**MOVING, "windows": 1, "pin": {"retraining": False}}
    reloaded(tmp_path / "run", {20.0: (BOTH, {**first, "pin": pin})}, first)
    assert read_log(tmp_path / "run").header.pinned == told


def test_who_comes_gets_what_is_free_and_nothing_else_moves(tmp_path: Path) -> None:
    pin = {**MOVING, "pin": {"layout": True}, "tenants.0.arrivals.rate_rps": 90.0}
    log = reloaded(tmp_path / "run", {75.0: (ALL, pin)}, pin)
    made = moves(log)
    assert [{item.tenant for item in one.started} for one in made] == [{"third"}]
    assert [item for one in made for item in (*one.stopped, *one.passed)] == []
    assert sum(counts(log, "third")["in_time"]) > 0


@pytest.mark.parametrize("at_s", [60.0, 61.0, 75.0])
def test_no_retraining_begins_from_when_that_is_pinned(tmp_path: Path, at_s: float) -> None:
    log = reloaded(tmp_path / "run", {at_s: (BOTH, {**MOVING, "pin": {"retraining": False}})}, MOVING)
    begun = [item for one in moves(log, at_s) for item in one.started if item.task == "retraining"]
    assert begun == []
    assert [one.pinned for one in log.of(records.TenantsChanged)] == [("retraining",)]


@pytest.mark.parametrize("pools", ["off", [[*BOTH]]])
def test_another_slo_counts_at_once_in_what_stands(tmp_path: Path, pools: Any) -> None:
    own = {**MOVING, "sharing": {"pools": pools}, "pin": {"layout": True}}
    setting, traffic = of(*BOTH, changes=own)
    parts = simulated_parts(setting, traffic, policy_of("migrator"))
    shorter = of(*BOTH, changes={**own, "tenants.0.slo_ms": 40, "tenants.1.slo_ms": 130})
    log = carried_out(tmp_path / "run", setting, replace(parts, coming=deque([Tenancy(75.0, *shorter)])))
    assert moves(log) == []
    assert isinstance(parts.sharing, Instances)
    applier = parts.sharing._applier
    serving = [*chain(*applier.servers.values()), *(server for lane in applier.lanes for server in lane.servers)]
    found = {server.tenant: server.batch_limit for server in serving}

    def limits(setting: Setting) -> dict[str, int]:
        points = {tenant.name: tenant.operating_points for tenant in setting.tenants}
        limits = {}
        for placement, holder, _ in log.of(records.Change)[-1].layout:
            profile = placement.partition("@")[0]
            for name in [holder] if isinstance(holder, str) else holder:
                joint = setting.joint_servings(BOTH)[profile][name]
                limits[name] = points[name][profile].batch if pools == "off" else joint.batch * joint.processes
        return limits

    assert found == limits(shorter[0]) != limits(setting)


def test_a_worker_starts_again_where_its_pool_cannot_be_served_as_is_asked(tmp_path: Path) -> None:
    own = {**MOVING, "windows": 1, "sharing": {"pools": [[*BOTH]]}}
    setting, traffic = of(*BOTH, changes=own)
    parts = simulated_parts(setting, traffic, policy_of("migrator"))
    carried_out(tmp_path / "run", setting, parts)
    shorter, _ = of(*BOTH, changes={**own, "tenants.0.slo_ms": 12, "tenants.1.slo_ms": 30})
    assert shorter.joint_points.of(BOTH).infeasible
    assert isinstance(parts.sharing, Instances)
    applier = parts.sharing._applier
    applier.change_tenants(tenants_that_run(shorter), shorter.joint_servings)
    live = next(one for one in applier._live.values() if one.is_inference)
    applier._workers.stop(live.instance_id, "vision")
    applier.failed(live, "vision")
    assert live.worker("vision").n_starts == 1


def test_a_layout_that_is_listed_stays_whoever_comes_and_whatever_is_asked(tmp_path: Path) -> None:
    own = {**MOVING, "sharing": {"pools": "auto"}, "planner.layout": ["3g.40gb", "4g.40gb"]}
    log = reloaded(tmp_path / "run", {75.0: (ALL, {**own, "tenants.0.slo_ms": 90}), 131.0: (("vision",), own)}, own)
    places = {tuple(place for place, _, _ in one.layout) for one in log.of(records.Change)}
    assert len(places) == 1
    requests = [counts(log, name) for name in ALL]
    assert all(sum(one["in_time"]) > 0.9 * sum(one["arrivals"]) for one in requests)
    assert log.of(records.Finished)


PINS = st.sampled_from([{}, {"layout": True}, {"retraining": False}, {"layout": True, "retraining": False}])


@settings(max_examples=examples(15), deadline=None)
@example(first={}, coming=[(13, ("vision",), {})], pools="off")  # who goes is being retrained
@given(
    first=PINS,
    coming=st.lists(st.tuples(st.integers(4, 700), st.sampled_from([BOTH, ALL, ("vision",)]), PINS), max_size=3),
    pools=st.sampled_from(["off", "auto"]),
)
def test_whatever_is_pinned_and_whoever_comes_each_request_is_in_one_account(
    first: Mapping[str, Any], coming: list[tuple[int, tuple[str, ...], Mapping[str, Any]]], pools: str
) -> None:
    own = {**MOVING, "sharing": {"pools": pools}}
    changes = {quarters / 4: (names, {**own, "pin": pin}) for quarters, names, pin in sorted(coming)}
    names_by_s: dict[float, tuple[str, ...]] = {0.0: BOTH}
    for at_s, (names, _) in list(changes.items()):
        last_s, last = max(names_by_s), names_by_s[max(names_by_s)]
        if set(names) - set(last) and at_s < 60 * (last_s // 60 + 2):
            del changes[at_s]  # who left comes again only when their last window is settled
        else:
            names_by_s[at_s] = names
    with TemporaryDirectory() as folder:
        log = reloaded(Path(folder) / "run", changes, {**own, "pin": first})
    edges_s = [*names_by_s, 180.0]
    for requests in of(*ALL, changes=own)[1].requests(0, 180):
        found, spans = counts(log, requests.tenant), zip(names_by_s.values(), edges_s, edges_s[1:], strict=False)
        n_came = sum(
            requests.n_before(to_s) - requests.n_before(from_s)
            for names, from_s, to_s in spans
            if requests.tenant in names
        )
        assert sum(found["arrivals"]) == n_came
        assert sum(sum(found[key]) for key in ("in_time", "late", "dropped")) == n_came
    pins = {0.0: first, **{at_s: own["pin"] for at_s, (_, own) in changes.items()}}
    for one in moves(log):
        since_s = max(at_s for at_s in pins if at_s <= one.begin_s)
        if pins[since_s].get("layout"):
            came, gone = names_by_s[since_s], {*ALL} - {*names_by_s[since_s]}
            assert not [item for item in one.stopped if item.task == "inference" and not {*item.members} & gone]
            assert {item.task for item in one.started} <= {"inference"}
            assert {item.tenant for item in one.started} <= {*came}
