"""Taking turns on the whole GPU: what the policy settles when a window begins, and what comes of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.config.reading import read_config
from migrator.errors import ConfigError
from migrator.execution.happenings import Trained
from migrator.execution.turns import Turns
from migrator.inputs.assembly import assemble
from migrator.inputs.estimates import service_factors
from migrator.log import records as recorded
from planner.arrays import Floats
from planner.policies.policy import Knows
from planner.policies.registry import policy_of
from planner.policies.time_sharing import TimeSharing
from planner.policies.turns import TurnOption, TurnPolicy, TurnRetraining, TurnSchedule, TurnTenant, training_batch
from planner.policies.whole import Whole, batch_limits
from tests.migrator.execution.simulation import Assembled, Run, run_of
from tests.migrator.execution.test_seams import changed_after
from tests.seeds import examples
from workloads.serving.tally import Totals

SETTLED = settings(derandomize=True, max_examples=examples(200))

Assemble = Callable[..., Assembled]

QUIET = {"tenants.0.arrivals": {"rate_rps": 1e-9}, "tenants.1.arrivals": {"rate_rps": 1e-9}}
"""Nobody asks anything, so that training has the GPU to itself."""

PATIENT = {"tenants.0.slo_ms": 5000, "tenants.1.slo_ms": 5000}
"""SLOs that leave room for the best training batch."""


@pytest.fixture
def assembled(write_config: Callable[..., Path]) -> Assemble:
    def build(changes: Mapping[str, Any] | None = None) -> Assembled:
        path = write_config(changes)
        return assemble(read_config(path), str(path))

    return build


def finishes_s(run: Run) -> list[tuple[str, int, float]]:
    return [(item.tenant, item.window, item.finish_s) for item in run.retrainings]


# --- what the policy settles

TABLES = st.dictionaries(st.sampled_from([1, 2, 4, 8]), st.integers(1, 12).map(float), min_size=1)


def serving(table: dict[int, float], slo_s: float, rate_rps: float) -> TurnTenant:
    return TurnTenant(rate_rps, slo_s, table, weight=1.0, accuracy_before=0.5)


def busy(choice: tuple[int, ...], tables: list[dict[int, float]], rates_rps: list[float]) -> float:
    return sum(rate * own[b] / b for rate, own, b in zip(rates_rps, tables, choice, strict=True))


@SETTLED
@given(st.lists(st.tuples(TABLES, st.integers(2, 30), st.integers(1, 5)), min_size=1, max_size=3))
def test_batch_limits_are_the_best_of_all_choices(tenants: list[tuple[dict[int, float], int, int]]) -> None:
    tables, slos_s = [table for table, _, _ in tenants], [float(slo) for _, slo, _ in tenants]
    rates_rps = [float(rate) for _, _, rate in tenants]
    meeting = []
    for choice in product(*tables):
        own_s = [table[batch] for table, batch in zip(tables, choice, strict=True)]
        if all(2 * max(own_s) + 2 * own <= slo for own, slo in zip(own_s, slos_s, strict=True)):
            meeting.append(choice)
    found = batch_limits(list(map(serving, tables, slos_s, rates_rps)), slowdown=2.0)
    best = min(
        (busy(choice, tables, rates_rps) for choice in meeting),
        default=busy(tuple(map(min, tables)), tables, rates_rps),
    )
    assert busy(found, tables, rates_rps) == pytest.approx(best)
    assert found in meeting or not meeting


def test_another_tenant_s_long_batch_counts_against_the_slo() -> None:
    both = {1: 1.0, 8: 4.0}
    assert batch_limits([serving(both, 8.0, 1.0), serving({1: 1.0}, 4.0, 1.0)]) == (1, 1)


def test_without_arrivals_batches_are_as_large_as_with_equal_rates() -> None:
    assert batch_limits([serving({1: 1.0, 8: 2.0}, 8.0, 0.0)]) == (8,)


def test_the_training_batch_is_the_fastest_that_is_short_enough() -> None:
    assert training_batch({1: 1.0, 2: 1.5, 4: 2.0}, {1: 10.0, 2: 13.0, 4: 20.0}, 1.75) == 2


def test_without_a_short_step_the_shortest_is_taken() -> None:
    assert training_batch({1: 1.0, 2: 1.5}, {1: 10.0, 2: 13.0}, 0.5) == 1


@pytest.mark.parametrize(
    ("work_s", "salvage", "taken"), [(3.0, 0.0, "full"), (50.0, 0.0, "quick"), (30.0, 1e6, "full")]
)
def test_of_two_ways_to_retrain_the_one_that_gains_more_in_the_gaps_is_taken(
    work_s: float, salvage: float, taken: str
) -> None:
    options = TurnOption("full", work_s, 0.9, salvage), TurnOption("quick", 2.0, 0.7)
    asked = TurnRetraining(options, {1: 0.01}, {1: 1.0}, ready_s=0.0)
    vision = TurnTenant(40.0, 0.1, {1: 0.01}, 1.0, 0.5, retraining=asked)  # serving takes four tenths of the time
    (done,) = Whole().course([vision], window_s=60.0).retrainings
    assert done.option.name == taken


def test_where_no_way_to_retrain_gains_anything_it_is_the_full_one() -> None:
    options = TurnOption("full", 3.0, 0.4), TurnOption("quick", 2.0, 0.45)
    asked = TurnRetraining(options, {1: 0.01}, {1: 1.0}, ready_s=0.0)
    vision = TurnTenant(40.0, 0.1, {1: 0.01}, 1.0, 0.5, retraining=asked)
    assert Whole().course([vision], window_s=60.0).retrainings[0].option.name == "full"


def test_retrainings_go_by_what_a_second_of_work_gains() -> None:
    tenants = [
        replace(
            serving({1: 0.001}, 0.1, 100.0),
            retraining=TurnRetraining((TurnOption("full", work_s, 0.5 + gain),), {1: 0.01}, {1: 1.0}, ready_s=0.0),
        )
        for gain, work_s in ((0.1, 1.0), (0.2, 1.0), (0.4, 8.0))
    ]
    assert [one.tenant_index for one in Whole().course(tenants, 60.0).retrainings] == [1, 0, 2]


@pytest.mark.parametrize("slowdown", [0.0, -1.0, float("nan"), float("inf")])
def test_a_slowdown_is_above_zero(slowdown: float) -> None:
    with pytest.raises(ValueError, match="slowdown"):
        Whole(slowdown=slowdown)


# --- what comes of a run


def test_every_arrival_is_counted_in_its_window(assembled: Assemble) -> None:
    made = assembled()
    arrived = sum(np.histogram(own_s, (0, 60, 120))[0] for own_s in made[1].hindsight.arrival_s)
    assert [window.arrivals for window in run_of(made, Whole()).totals] == arrived.tolist()


def test_accounts_add_up_to_the_totals(assembled: Assemble) -> None:
    run = run_of(assembled(), Whole())
    total = sum(run.totals, Totals())
    accounts = [own.total for own in run.accounts.values()]
    assert sum(one.arrivals for one in accounts) == pytest.approx(total.arrivals)
    assert sum(one.goodput for one in accounts) == total.correct


def test_no_class_is_negative(assembled: Assemble) -> None:
    run = run_of(assembled({"tenants.0.arrivals": {"rate_rps": 3000}}), Whole())
    assert all((getattr(own, item.name) >= 0).all() for own in run.accounts.values() for item in fields(own))


def test_the_same_arguments_give_the_same_run(assembled: Assemble) -> None:
    changes = {"simulation": {"service_jitter": 0.3}}
    first, second = (run_of(assembled(changes), Whole()) for _ in range(2))
    assert first.log.entries == second.log.entries


def test_answers_are_late_only_with_jitter(assembled: Assemble) -> None:
    n_late = [
        sum(one.late for one in run_of(assembled({"simulation": {"service_jitter": sigma}}), Whole()).totals)
        for sigma in (0.0, 1.0)
    ]
    assert n_late[0] == 0 < n_late[1]


def test_training_alone_takes_its_start_up_and_its_work(assembled: Assemble) -> None:
    made = assembled(QUIET | PATIENT)
    work_s = made[0].tenants[0].retraining_time_s["7g.80gb"]
    expected: list[Any] = [("vision", window, pytest.approx(60 * window + 1.0 + work_s)) for window in range(2)]
    assert finishes_s(run_of(made, Whole())) == expected


def test_short_steps_make_training_longer(assembled: Assemble) -> None:
    patient, hasty = (run_of(assembled(QUIET | slos), Whole()) for slos in (PATIENT, {}))
    assert hasty.retrainings[0].finish_s > patient.retrainings[0].finish_s


def test_a_slowdown_makes_training_longer(assembled: Assemble) -> None:
    made = assembled(QUIET | PATIENT)
    work_s = made[0].tenants[0].retraining_time_s["7g.80gb"]
    assert run_of(made, Whole(slowdown=2.0)).retrainings[0].finish_s == pytest.approx(1.0 + 2 * work_s)


def test_estimates_are_paid_and_waited_for(assembled: Assemble) -> None:
    made = assembled(QUIET | PATIENT | {"estimates": {"cost_gpu_s": 2.0, "delay_s": 5.0}})
    work_s = made[0].tenants[0].retraining_time_s["7g.80gb"]
    assert run_of(made, Whole()).retrainings[0].finish_s == pytest.approx(5.0 + 1.0 + 2.0 + work_s)


def test_training_that_a_window_s_end_meets_goes_on(assembled: Assemble) -> None:
    made = assembled(QUIET | PATIENT | {"tenants.0.retraining": {"samples": 60000}, "windows": 3})
    work_s = made[0].tenants[0].retraining_time_s["7g.80gb"]
    expected: list[Any] = [("vision", 0, pytest.approx(1.0 + work_s)), ("vision", 1, pytest.approx(1.0 + 2 * work_s))]
    assert work_s > 60
    assert finishes_s(run_of(made, Whole())) == expected


def test_newer_training_replaces_one_that_has_not_begun(assembled: Assemble) -> None:
    made = assembled(QUIET | PATIENT | {"tenants.0.retraining_start_s": 61.0})
    assert [item.window for item in run_of(made, Whole()).retrainings] == [1]


def test_from_its_end_on_the_new_model_answers(assembled: Assemble) -> None:
    run = run_of(assembled({"tenants.0.accuracy": {"before": 0.0, "after": 1.0}, "windows": 1}), Whole())
    finish_s, goodput = run.retrainings[0].finish_s, run.accounts["vision"].goodput
    assert np.flatnonzero(goodput)[0] == pytest.approx(finish_s, abs=1.0)
    assert run.accounts["vision"].wrong_new.sum() == 0


def test_wrong_answers_after_it_are_the_new_model_s(assembled: Assemble) -> None:
    run = run_of(assembled({"windows": 1}), Whole())
    seconds = np.flatnonzero(run.accounts["vision"].wrong_new)
    assert len(seconds) > 0
    assert seconds[0] >= run.retrainings[0].finish_s


def test_what_the_gpu_cannot_serve_alone_is_capacity(assembled: Assemble) -> None:
    quiet_neighbour = {"tenants.1.arrivals": {"rate_rps": 1e-9}, "tenants.0.arrivals": {"rate_rps": 4000}}
    vision = run_of(assembled(quiet_neighbour), Whole()).accounts["vision"].total
    assert vision.capacity > 10 * vision.queueing > 0


def test_training_in_slack_ends_sooner_when_the_gpu_is_busy(assembled: Assemble) -> None:
    made = assembled({"tenants.0.arrivals": {"rate_rps": 900}})
    only_idle, in_slack = (run_of(made, Whole(trains_in_slack=on)).retrainings[0].finish_s for on in (False, True))
    assert in_slack < only_idle - 5


def test_a_model_not_measured_on_the_whole_gpu_is_refused(assembled: Assemble, tmp_path: Path) -> None:
    table = tmp_path / "profiles.csv"
    rows = [f"me,a100-80gb,{model},1g.10gb,1,1,5,200" for model in ("resnet50", "bert-large")]
    table.write_text("\n".join(["source,gpu,model,profile,batch,processes,latency_ms,throughput_rps", *rows]))
    with pytest.raises(ConfigError, match=r"tenants\.vision: .*no row of resnet50 on 7g\.80gb"):
        run_of(assembled({"profiles": str(table)}), Whole())


# --- what comes of retrainings at a pace


def test_required_retrainings_at_a_pace_end_in_their_window(assembled: Assemble) -> None:
    run = run_of(assembled({"tenants.0.arrivals": {"rate_rps": 900}}), TimeSharing())
    assert [item.window for item in run.retrainings] == [0, 1]
    assert all(item.finish_s <= 60 * (item.window + 1) for item in run.retrainings)


def test_time_sharing_by_the_same_arguments_gives_the_same_run(assembled: Assemble) -> None:
    first, second = (run_of(assembled({"simulation": {"service_jitter": 0.3}}), TimeSharing()) for _ in range(2))
    assert first.log.entries == second.log.entries


def test_turns_that_cost_more_answer_less(assembled: Assemble) -> None:
    made = assembled({"tenants.0.arrivals": {"rate_rps": 2000}})
    free, dear = (sum(one.correct for one in run_of(made, TimeSharing(turn_cost=c)).totals) for c in (0.0, 0.5))
    assert dear < free


def test_all_processes_of_a_tenant_serve_in_its_turn(assembled: Assemble, tmp_path: Path) -> None:
    table = tmp_path / "profiles.csv"
    rows = [f"me,a100-80gb,{model},7g.80gb,8,{n},10,{800 * n}" for model in ("resnet50", "bert-large") for n in (1, 3)]
    table.write_text("\n".join(["source,gpu,model,profile,batch,processes,latency_ms,throughput_rps", *rows]))
    made = assembled({"profiles": str(table), "tenants.0.arrivals": {"rate_rps": 2000}})
    apart, together = (sum(run_of(made, policy).totals, Totals()).in_time for policy in (Whole(), TimeSharing()))
    assert together > 2 * apart


def test_a_policy_is_told_misjudged_latencies_and_turns_take_what_they_take(assembled: Assemble) -> None:
    class Spy(Whole):
        def course(self, tenants: Sequence[TurnTenant], window_s: float) -> TurnSchedule:
            self.told = [dict(tenant.serving_s) for tenant in tenants]
            return super().course([replace(one, serving_s={1: 0.01}) for one in tenants], window_s)

    spies, runs = [Spy(), Spy()], []
    for spread, spy in zip((0.0, 0.3), spies, strict=True):
        runs.append(run_of(assembled({"estimates.service_spread": spread}), spy))
    made = assembled({"estimates.service_spread": 0.3})[0]
    for true, told, tenant in zip(spies[0].told, spies[1].told, made.tenants, strict=True):
        factor = service_factors(made.config.estimates, made.config.seed, made.gpu, tenant.model)["7g.80gb"]
        assert told == pytest.approx({batch: factor * seconds for batch, seconds in true.items()})
    assert runs[0].totals == runs[1].totals


class Told(TimeSharing):
    """Time sharing that keeps what it is told of each window."""

    windows: ClassVar[list[Sequence[TurnTenant]]] = []

    def course(self, tenants: Sequence[TurnTenant], window_s: float) -> TurnSchedule:
        self.windows.append(tenants)
        return super().course(tenants, window_s)


def told_of(made: Assembled) -> tuple[Run, list[Sequence[TurnTenant]]]:
    """The run, and what time sharing was told of its windows."""
    Told.windows = []
    return run_of(made, Told()), Told.windows


def test_time_sharing_is_told_the_forecast(assembled: Assemble) -> None:
    made = assembled()
    run, told = told_of(made)
    n_paths, n_steps = made[0].config.forecast.n_paths, made[0].config.n_steps
    for started, tenants in zip(run.log.of(recorded.WindowStarted), told, strict=True):
        for own, tenant in zip(started.forecast.tenants.values(), tenants, strict=True):
            assert tenant.rate_rps == pytest.approx(np.mean(own.mean_rps), abs=1e-3)
            assert tenant.paths_rps is not None
            assert tenant.paths_rps.shape == (n_paths, n_steps)
    assert run.log.header.knows == "forecast"


def test_who_goes_by_the_past_is_told_its_mean_alone(assembled: Assemble) -> None:
    made = assembled({"forecast.method": "known"})
    Told.windows = []
    run_of(made, Told(knows=Knows.PAST))
    past_rps = np.mean(made[1].rates_before(0.0, 1.0, made[0].config.n_history_steps), axis=0)
    assert [one.rate_rps for one in Told.windows[0]] == pytest.approx(list(past_rps))
    assert all(one.paths_rps is None for one in Told.windows[0])


# --- checkpoints

CHECKPOINTS: dict[str, Any] = {
    "windows": 1,
    "retraining.checkpoints": [0.25, 0.5],
    "retraining.curve": "linear",
    "tenants.0.accuracy": {"before": 0.6, "after": 0.9},
}


def test_each_part_of_a_retraining_is_served_when_it_is_done(assembled: Assemble) -> None:
    run = run_of(assembled(QUIET | PATIENT | CHECKPOINTS), TimeSharing())
    told, (ended,) = run.log.of(recorded.Checkpoint), run.retrainings
    assert [one.part for one in told] == [0.25, 0.5]
    assert [one.accuracy for one in told] == pytest.approx([0.675, 0.75])
    begun_s = 1.0  # workers' start
    passed_s = [(one.finish_s - begun_s) / (ended.finish_s - begun_s) for one in told]
    assert passed_s == pytest.approx([0.25, 0.5], abs=0.01)


def test_writing_checkpoints_makes_a_retraining_longer(assembled: Assemble) -> None:
    found = []
    for checkpoint_s in (0.0, 1.5):
        run, (told,) = told_of(assembled(PATIENT | CHECKPOINTS | {"retraining.checkpoint_s": checkpoint_s}))
        found.append((run.retrainings[0].finish_s, told[0].options[0].work_s))
    (short_s, less_s), (long_s, more_s) = found
    assert more_s - less_s == pytest.approx(2 * 1.5)
    assert long_s - short_s >= 2 * 1.5


def test_a_checkpoint_that_is_no_better_is_not_served(assembled: Assemble) -> None:
    worse = {"tenants.0.accuracy": {"before": 0.9, "after": 0.6}}
    run = run_of(assembled(QUIET | PATIENT | CHECKPOINTS | worse), TimeSharing())
    assert [one.accuracy for one in run.log.of(recorded.Checkpoint)] == [0.9, 0.9]
    assert run.retrainings[0].accuracy == 0.6


def test_a_turn_is_worth_more_once_a_checkpoint_is_served(assembled: Assemble, monkeypatch: pytest.MonkeyPatch) -> None:
    worths: list[tuple[float | None, float]] = []
    revalue = Turns._revalue

    def revalued(turns: Turns, trained: Trained) -> None:
        revalue(turns, trained)
        worths.append((trained.checkpoint, turns._worths[0]))

    monkeypatch.setattr(Turns, "_revalue", revalued)
    run_of(assembled(CHECKPOINTS), TimeSharing())
    assert [part for part, _ in worths] == [0.25, 0.5, None]
    quarter, half, whole = (worth for _, worth in worths)
    assert (quarter / whole, half / whole) == pytest.approx((0.675 / 0.9, 0.75 / 0.9))


def test_who_serves_no_checkpoints_writes_none(assembled: Assemble) -> None:
    plain, with_ = (
        run_of(assembled({"windows": 1, "retraining.checkpoints": parts, "retraining.checkpoint_s": 2.0}), Whole())
        for parts in ([], [0.5])
    )
    assert (plain.totals, plain.retrainings) == (with_.totals, with_.retrainings)
    assert not with_.log.of(recorded.Checkpoint)


# --- planned ahead

LATER: dict[str, Any] = {"planner.planning_s": 6, "tenants.0.arrivals": {"rate_rps": 900}}


def test_a_course_is_made_from_what_is_known_and_expected_when_ours_are(assembled: Assemble) -> None:
    falls = {"tenants.0.accuracy": [{"before": 0.6, "after": 0.9}, {"before": 0.5, "after": 0.9}]}
    run, (_, told) = told_of(assembled(LATER | falls))
    first, second = run.log.of(recorded.WindowStarted)
    assert (first.asked_s, second.asked_s) == (None, 54)
    assert [one.accuracy_before for one in told] == [
        second.forecast.tenants[name].accuracy_before for name in ("vision", "language")
    ]
    (measured,) = run.log.of(recorded.Measured)
    assert measured.tenants["vision"].accuracy_before != told[0].accuracy_before


def test_a_course_does_not_know_what_comes_after_it_was_begun(assembled: Assemble) -> None:
    setting, traffic = assembled(LATER)
    told = [told_of((setting, own))[1][1] for own in (traffic, changed_after(setting, traffic, 54.0, variant=1))]
    for one, other in zip(*told, strict=True):
        assert one == other
        assert np.array_equal(none_is_none(one.paths_rps), none_is_none(other.paths_rps))


def none_is_none(paths_rps: Floats | None) -> Floats:
    assert paths_rps is not None
    return paths_rps


def test_where_a_retraining_does_not_end_as_promised_the_course_is_waited_for(assembled: Assemble) -> None:
    slow = {"tenants.0.retraining": {"samples": 20000}, "estimates": {"time_bias": -0.7}}
    run, (first, second) = told_of(assembled(LATER | QUIET | slow))
    assert [one.asked_s for one in run.log.of(recorded.WindowStarted)] == [None, None]
    ready_s = [one[0].retraining.ready_s for one in (first, second) if one[0].retraining is not None]
    assert ready_s == [1.0, 1.0 + 6.0]


def test_whoever_goes_by_the_past_plans_nothing_ahead(assembled: Assemble) -> None:
    log = run_of(assembled(LATER), Whole()).log
    assert [one.asked_s for one in log.of(recorded.WindowStarted)] == [None, None]
    assert not log.of(recorded.Measured)


# --- several ways to retrain


@pytest.mark.parametrize("policy", [Whole(), TimeSharing()], ids=lambda policy: policy.name)
def test_a_way_to_retrain_that_ends_in_its_window_is_taken(assembled: Assemble, policy: TurnPolicy) -> None:
    options = [{"name": "quick", "samples": 3000, "gain": 0.8}]
    made = assembled(PATIENT | {"tenants.0.retraining": {"samples": 60000, "options": options}})
    first, second = run_of(made, policy).retrainings
    assert (first.option, first.accuracy, first.finish_s < 60) == ("quick", pytest.approx(0.84), True)
    assert (second.option, second.window) == ("quick", 1)


def test_another_way_to_retrain_has_the_error_of_its_own_estimate(assembled: Assemble) -> None:
    """What is misjudged by half takes twice as long as thought, and so as long as it does."""
    options = [{"name": "quick", "samples": 3000, "gain": 0.8}]
    changes = PATIENT | {"tenants.0.retraining": {"samples": 60000, "options": options}}
    exact, misjudged = (
        run_of(assembled(changes | {"estimates": {"time_bias": bias}}), Whole()).retrainings for bias in (0.0, -0.5)
    )
    assert exact == misjudged


def test_time_sharing_leaves_all_ways_out_where_none_pays(assembled: Assemble) -> None:
    retraining = {"samples": 6000, "required": False, "options": [{"name": "quick", "samples": 3000}]}
    made = assembled({"tenants.0.retraining": retraining, "tenants.0.accuracy": {"before": 0.9, "after": 0.6}})
    assert len(run_of(made, TimeSharing()).retrainings) == 0


# --- Salus's schedulers

LONG = {"tenants.0.retraining": {"samples": 8000}, "tenants.1.retraining": {"samples": 2000}}


def test_where_retrainings_share_the_time_the_shorter_one_ends_later_and_the_longer_one_when_it_would(
    assembled: Assemble,
) -> None:
    ends_s = {
        name: sorted(at_s for _, window, at_s in finishes_s(run_of(made, policy_of(name))) if window == 0)
        for name in ("salus", "salus-fair", "salus-pack")
        for made in [assembled(QUIET | PATIENT | LONG)]
    }
    (first, last), (fair_first, fair_last), (_, packed_last) = ends_s.values()
    assert fair_first > first + 1
    assert fair_last == pytest.approx(last, abs=0.5)
    assert packed_last < last - 0.5


@pytest.mark.parametrize(
    ("name", "later_s", "order"),
    [
        ("salus", 1.0, ["vision", "language"]),
        ("salus", 5.0, ["language", "vision"]),  # it comes while the other one runs, which takes 18 s
        ("salus-srtf", 1.0, ["vision", "language"]),
        ("salus-srtf", 5.0, ["vision", "language"]),
    ],
)
def test_fifo_ends_what_came_first_and_srtf_what_is_shorter(
    assembled: Assemble, name: str, later_s: float, order: list[str]
) -> None:
    made = assembled(QUIET | PATIENT | LONG | {"windows": 1, "tenants.0.retraining_start_s": later_s})
    assert [tenant for tenant, _, _ in finishes_s(run_of(made, policy_of(name)))] == order


def test_srtf_ends_a_shorter_one_before_one_that_came_first(assembled: Assemble) -> None:
    short = {"tenants.1.retraining": {"samples": 500}}
    made = assembled(QUIET | PATIENT | LONG | short | {"windows": 1})
    found = [[own[0] for own in finishes_s(run_of(made, policy_of(name)))] for name in ("salus", "salus-srtf")]
    assert found == [["vision", "language"], ["language", "vision"]]
