"""Runs without partitions: the same requests as with them, accounts that add up, and what changes of shares cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
import pytest

from migrator.comparison.matches import matches_of, score_of
from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from migrator.log import records as recorded
from migrator.log.account import Account
from planner.errors import EngineError
from planner.policies.astraea import Astraea
from planner.policies.ekya import Ekya
from planner.policies.mudi import Mudi
from planner.policies.policy import Knows
from planner.policies.shares import QUANTA, Answer, Moment, RetrainingStage, SharePolicy, Shares, Switching
from tests.migrator.execution.simulation import Assembled, Run, run_of

WINDOW_S = 15
SHORT = {
    "window_s": WINDOW_S,
    "tenants.0.retraining.samples": 1500,
    "retraining": {"required": False, "drift": "as_given"},
}
BOTH = pytest.mark.parametrize("policy", [Ekya(), Astraea(), Mudi()], ids=lambda policy: policy.name)
EITHER_WAY = pytest.mark.parametrize("as_published", [False, True])


@dataclass(frozen=True)
class Given(SharePolicy):
    """Says what it is told to say, and keeps what it was asked."""

    says: Callable[[Moment], Shares]
    name: str = "given"
    knows: Knows = Knows.PAST
    switching: Switching = Switching.POOL
    period_s: int | None = None
    asked: list[Moment] = field(default_factory=list)
    takes_turns: Callable[[Moment], bool] = lambda _: False
    options: Mapping[str, str] = field(default_factory=dict)

    def shares(self, moment: Moment) -> Shares:
        self.asked.append(moment)
        return self.says(moment)

    def answer(self, moment: Moment) -> Answer:
        return Answer(self.shares(moment), self.takes_turns(moment), self.options)


def divided(vision: int, language: int, retraining: int = 0) -> Callable[[Moment], Shares]:
    """The same shares at every moment."""

    def shares(moment: Moment) -> Shares:
        first, second = moment.tenants
        held = {first.inference: vision, second.inference: language}
        return {**held, first.retraining: retraining} if first.is_to_retrain else held

    return shares


def in_turn(moment: Moment) -> Shares:
    """Most to one tenant, then to the other, second by second."""
    return divided(*((2, 18) if round(moment.left_s) % 2 else (18, 2)))(moment)


@pytest.fixture
def assembled(write_config) -> Callable[..., Assembled]:
    def make(**changes: object) -> Assembled:
        path = write_config({**SHORT, **{key.replace("__", "."): value for key, value in changes.items()}})
        return assemble(read_config(path), str(path))

    return make


def in_time(run: Run) -> int:
    return sum(totals.in_time for totals in run.totals)


@BOTH
@EITHER_WAY
def test_the_same_arguments_are_the_same_run(assembled, policy: SharePolicy, as_published: bool):
    first, second = (run_of(assembled(), policy, as_published=as_published) for _ in range(2))
    assert first.log.entries == second.log.entries


@BOTH
def test_a_static_layout_meets_the_same_requests(write_config, policy: SharePolicy):
    path = write_config(SHORT)
    static, shared = (score_of(match) for match in matches_of(read_config(path), str(path), ["static", policy.name], 1))
    for tenant, own in static.accounts.items():
        assert own.arrivals.tolist() == shared.accounts[tenant].arrivals.tolist()


@BOTH
@EITHER_WAY
def test_accounts_add_up_to_the_arrivals_of_each_second(assembled, policy: SharePolicy, as_published: bool):
    for own in run_of(assembled(), policy, as_published=as_published).accounts.values():
        classes = sum(getattr(own, item.name) for item in fields(Account))
        assert classes.tolist() == pytest.approx(own.arrivals.tolist())


@BOTH
@EITHER_WAY
def test_no_class_of_an_account_is_negative(assembled, policy: SharePolicy, as_published: bool):
    for own in run_of(assembled(), policy, as_published=as_published).accounts.values():
        assert min(getattr(own, item.name).min() for item in fields(Account)) >= 0


@pytest.mark.parametrize("rate_rps", [1.0, 60.0, 5000.0])
def test_every_request_is_resolved(assembled, rate_rps: float):
    made = assembled(tenants__0__arrivals__rate_rps=rate_rps)
    run = run_of(made, Astraea())
    assert sum(totals.arrivals for totals in run.totals) == sum(len(own_s) for own_s in made[1].hindsight.arrival_s)


def test_every_window_has_its_requests(assembled):
    made = assembled()
    edges_s = [0.0, WINDOW_S, 2 * WINDOW_S]
    arrived = sum(np.histogram(own_s, edges_s)[0] for own_s in made[1].hindsight.arrival_s)
    assert [totals.arrivals for totals in run_of(made, Ekya()).totals] == arrived.tolist()


def test_interference_costs_answers_in_time(assembled):
    loads = {"tenants__0__arrivals__rate_rps": 1000.0, "tenants__1__arrivals": {"rate_rps": 100.0}}
    free, slowed = (
        run_of(assembled(**loads, simulation__interference=strength), Given(divided(8, 12))) for strength in (0.0, 1.0)
    )
    assert in_time(free) > in_time(slowed)


@BOTH
def test_no_interference_is_no_worse(assembled, policy: SharePolicy):
    found = [in_time(run_of(assembled(simulation__interference=strength), policy)) for strength in (0.0, 1.0)]
    assert found[0] >= found[1]


def test_a_larger_share_answers_more_in_time(assembled):
    made = assembled(tenants__0__arrivals__rate_rps=1000.0, simulation__interference=0.0)
    less, more = (run_of(made, Given(divided(vision, 5))).accounts["vision"] for vision in (5, 15))
    assert more.total.capacity < less.total.capacity


def test_processes_that_restart_miss_requests(assembled):
    assert run_of(assembled(), Ekya(), as_published=True).account.reconfiguration > 0


@BOTH
def test_processes_that_start_beside_the_old_miss_none(assembled, policy: SharePolicy):
    run = run_of(assembled(), policy)
    assert run.n_share_changes > 0
    assert run.account.reconfiguration == 0


@EITHER_WAY
def test_who_restarts_as_published_does_not_in_a_comparison_of_policies(assembled, as_published: bool):
    policy = Given(in_turn, switching=Switching.RESTART, period_s=5)
    lost = run_of(assembled(), policy, as_published=as_published).account.reconfiguration
    assert (lost > 0) is as_published


def test_a_retraining_is_told_in_the_answers_after_it(assembled):
    trained, untrained = (run_of(assembled(), Given(divided(6, 6, own))).account for own in (8, 0))
    assert trained.wrong_new > 0 == untrained.wrong_new


def test_a_retraining_raises_the_accuracy_afterwards(assembled):
    own = run_of(assembled(), Given(divided(6, 6, 8))).accounts["vision"]
    answered = own.goodput + own.wrong_old + own.wrong_new
    end = int(np.flatnonzero(own.wrong_new)[0])
    accuracy = [(own.goodput[part].sum() / answered[part].sum()) for part in (slice(0, end - 1), slice(end, WINDOW_S))]
    assert accuracy == pytest.approx([0.6, 0.9], abs=0.08)


def test_a_retraining_that_its_windows_end_meets_begins_anew(assembled):
    policy = Given(divided(6, 6, 8))
    run = run_of(assembled(tenants__0__retraining__samples=6000), policy)
    assert run.account.wrong_new == 0
    assert [(moment.tenants[0].stage, moment.tenants[0].done) for moment in policy.asked] == [
        (RetrainingStage.WAITING, 0.0)
    ] * 2


def test_a_retraining_without_a_share_waits(assembled):
    policy = Given(divided(10, 10), period_s=1)
    run_of(assembled(), policy)
    assert {moment.tenants[0].stage for moment in policy.asked} == {RetrainingStage.WAITING}


def test_a_policy_is_asked_again_when_a_retraining_ends(assembled):
    policy = Given(divided(6, 6, 8))
    run_of(assembled(), policy)
    assert [moment.tenants[0].stage for moment in policy.asked] == [RetrainingStage.WAITING, RetrainingStage.DONE] * 2


def test_a_policy_is_asked_as_often_as_it_asks_to_be(assembled):
    policy = Given(divided(10, 10), period_s=5)
    run_of(assembled(), policy)
    assert [moment.left_s for moment in policy.asked] == [15.0, 10.0, 5.0] * 2


def test_a_policy_is_told_of_no_second_that_has_not_passed(assembled):
    policy, made = Given(divided(6, 6, 8)), assembled()
    run_of(made, policy)
    n_before = round(made[0].config.forecast.history_s)
    now_s = [WINDOW_S - policy.asked[1].left_s, 2 * WINDOW_S - policy.asked[3].left_s]
    assert [len(policy.asked[k].past_rps) - n_before for k in (1, 3)] == [int(at_s) for at_s in now_s]


def test_a_policy_is_told_the_true_past(assembled):
    policy, made = Given(divided(10, 10)), assembled()
    run_of(made, policy)
    counts = [np.histogram(own_s, range(WINDOW_S + 1))[0] for own_s in made[1].hindsight.arrival_s]
    np.testing.assert_array_equal(policy.asked[0].past_rps, made[1].rates_before(0.0, 1.0))
    np.testing.assert_array_equal(policy.asked[1].past_rps, [*policy.asked[0].past_rps, *np.transpose(counts)])


def test_the_interference_that_a_policy_is_told_of_lowers_its_rates(assembled):
    free, slowed = Given(divided(10, 10)), Given(divided(10, 10))
    run_of(assembled(simulation__interference=0.0), free)
    run_of(assembled(), slowed)
    assert free.asked[0].tenants[0].rate_rps[-1] > slowed.asked[0].tenants[0].rate_rps[-1]


def test_shares_that_stay_are_no_change(assembled):
    assert run_of(assembled(), Given(divided(10, 10), period_s=1)).n_share_changes == 0


def test_every_change_of_a_pools_shares_counts(assembled):
    # One decision a second, each another; the first of a run is none.
    n_changes = run_of(assembled(windows=1), Given(in_turn, period_s=1)).n_share_changes
    assert n_changes == WINDOW_S - 1


def test_shares_that_start_beside_the_old_come_later(assembled):
    policy = Given(in_turn, switching=Switching.SHADOW, period_s=1)
    n_changes = run_of(assembled(windows=1), policy).n_share_changes
    assert 0 < n_changes < WINDOW_S - 1


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ({}, "vision/inference gets no share; at least 1 of 20 is needed"),
        (divided(QUANTA, 1), "shares are [0, 1, 20]; from 0 on, and 20 together, are allowed"),
    ],
    ids=["none", "too much"],
)
def test_a_policy_with_wrong_shares_is_named(assembled, shares: object, why: str):
    policy = Given(shares if callable(shares) else lambda _: {}, name="mistaken")
    with pytest.raises(EngineError) as caught:
        run_of(assembled(), policy)
    assert str(caught.value) == f"mistaken: {why}"


def test_a_tenant_without_retraining_is_told_to_train_nothing(assembled):
    policy = Given(divided(10, 10))
    run_of(assembled(), policy)
    language = policy.asked[0].tenants[1]
    assert (language.stage, language.training_rate.tolist()) == (RetrainingStage.NONE, [0.0] * (QUANTA + 1))


def test_a_policys_answer_is_not_changed_for_it(assembled):
    held: list[dict[object, int]] = []

    def shares(moment: Moment) -> Shares:
        held.append(dict(divided(6, 6, 8)(moment)))
        return held[-1]  # type: ignore[return-value]

    run_of(assembled(), Given(shares))
    assert [sum(own.values()) for own in held] == [20, 12] * 2


def test_a_policy_is_told_misjudged_rates_and_what_runs_stays(assembled):
    policies = [Given(divided(10, 10)), Given(divided(10, 10))]
    runs = [
        run_of(assembled(estimates__service_spread=spread, simulation__interference=0.0), policy)
        for spread, policy in zip((0.0, 0.3), policies, strict=True)
    ]
    told = [policy.asked[0].tenants[0].rate_rps for policy in policies]
    factors = told[0][1:] / told[1][1:]
    assert not np.allclose(factors, 1)
    assert runs[0].totals == runs[1].totals


# --- turns instead of interference

BUSY = {"tenants__0__arrivals__rate_rps": 1000.0, "tenants__1__arrivals": {"rate_rps": 100.0}}


def always(_: Moment) -> bool:
    return True


def test_in_turns_nobody_disturbs_anybody(assembled):
    policy = Given(divided(6, 10, 4), takes_turns=always)
    free, slowed = (run_of(assembled(**BUSY, simulation__interference=strength), policy) for strength in (0.0, 1.0))
    assert free.totals == slowed.totals


def test_turns_answer_more_where_neighbours_disturb(assembled):
    apart, beside = (
        run_of(assembled(**BUSY), Given(divided(8, 12), takes_turns=turns)) for turns in (always, lambda _: False)
    )
    assert in_time(apart) > in_time(beside)


def test_a_share_of_the_time_is_as_much_of_what_the_whole_gpu_could_serve(assembled):
    policy = Given(divided(5, 15), takes_turns=always)
    (event,) = run_of(assembled(windows=1), policy).log.of(recorded.WindowFinished)
    told = policy.asked[0].tenants[0].turns_rps
    assert told is not None
    assert event.tenants["vision"].could_serve == pytest.approx([told[5]] * WINDOW_S)


@BOTH
def test_no_policy_is_worse_off_for_interference_than_in_turns(assembled, policy: SharePolicy):
    made = assembled(**BUSY)
    runs = [run_of(made, own) for own in (policy, Given(policy.shares, period_s=policy.period_s))]
    assert in_time(runs[0]) >= in_time(runs[1])


@pytest.mark.parametrize(("strength", "as_published"), [(0.0, False), (1.0, True)])
def test_turns_are_for_who_suffers_interference_and_not_as_published(assembled, strength: float, as_published: bool):
    policy = Given(divided(10, 10))
    run_of(assembled(simulation__interference=strength), policy, as_published=as_published)
    assert policy.asked[0].tenants[0].turns_rps is None


def test_changing_to_turns_starts_everything_anew(assembled):
    policy = Given(
        divided(10, 10), switching=Switching.SHADOW, period_s=5, takes_turns=lambda moment: moment.left_s <= 5
    )
    run = run_of(assembled(windows=1), policy)
    first, then = run.log.entries_of(recorded.Shares)
    before, after = first.record, then.record
    assert (before.in_turns, after.in_turns, before.shares == after.shares) == (False, True, True)
    assert then.at_s > 10.0


# --- several ways to retrain

QUICK = {
    "tenants__0__retraining__options": [{"name": "quick", "samples": 750, "gain": 0.5}],
    "simulation__interference": 0.0,
}


def test_a_retraining_in_another_way_takes_its_time_and_gives_its_accuracy(assembled):
    full, quick = (
        run_of(assembled(**QUICK, windows=1), Given(divided(6, 6, 8), options=options)).retrainings[0]
        for options in ({}, {"vision": "quick"})
    )
    assert (full.option, quick.option) == (None, "quick")
    assert quick.accuracy == pytest.approx(0.6 + 0.5 * (full.accuracy - 0.6))
    assert quick.finish_s - 1.0 == pytest.approx((full.finish_s - 1.0) / 2)


def test_the_ways_to_retrain_are_told_while_it_waits(assembled):
    policy = Given(divided(6, 6, 8))
    run_of(assembled(**QUICK, windows=1), policy)
    waiting, done = (moment.tenants[0] for moment in policy.asked)
    assert [option.name for option in waiting.options] == ["full", "quick"]
    assert waiting.options[1].accuracy_after < waiting.accuracy_after == waiting.options[0].accuracy_after
    assert done.options == ()


def test_what_models_are_worth_later_is_told_where_retraining_is_a_decision(assembled):
    told = []
    for required in (False, True):
        policy = Given(divided(6, 6, 8))
        run_of(assembled(**QUICK, windows=1, retraining={"drift": "compound", "required": required}), policy)
        told.append(policy.asked[0].tenants[0])
    before, after = told[0].salvage
    assert 0 < before < told[0].options[1].salvage < after
    assert 0 < told[1].salvage[0] < told[1].salvage[1]  # it has options: how it retrains is a decision still
    policy = Given(divided(6, 6, 8))
    run_of(assembled(windows=1, retraining={"drift": "compound", "required": True}), policy)
    assert policy.asked[0].tenants[0].salvage == (0.0, 0.0)


@pytest.mark.parametrize("policy", [Ekya(), Astraea()], ids=lambda policy: policy.name)  # mudi puts SLOs before it
@EITHER_WAY
@pytest.mark.parametrize("due", [{"max_skipped": 0}, {"required": True}], ids=["overdue", "required"])
def test_a_retraining_that_is_due_is_done_though_it_brings_nothing(assembled, policy, as_published: bool, due):
    trained = [
        run_of(
            assembled(
                tenants__0__accuracy={"before": 0.9, "after": 0.9}, **load, retraining={"drift": "as_given", **own}
            ),
            policy,
            as_published=as_published,
        ).retrainings
        for load in ({}, {"tenants__1__arrivals__scale__factor": 400.0})
        for own in ({"required": False}, {"required": False, **due})
    ]
    assert [len(own) for own in trained[1::2]] == [2, 2]
    if isinstance(policy, Ekya):
        assert len(trained[2]) == 0  # who may leave it out does where the other tenant needs everything


@BOTH
@EITHER_WAY
def test_policies_take_the_way_that_ends_in_time(assembled, policy: SharePolicy, as_published: bool):
    options = [{"name": "quick", "samples": 300, "gain": 0.8}]
    made = assembled(tenants__0__retraining={"samples": 30000, "options": options})
    trained = run_of(made, policy, as_published=as_published).retrainings
    assert [item.option for item in trained] == ["quick"] * 2
