"""What each sharing policy gets out of a config: the same requests, GPU and luck, simulated once for each of them.

A *segment* is the config's run on a later piece of its traces, disjoint from the others: what differs between
segments is real, where another seed would only draw the same piece anew.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from migrator.config.sections import Config
from migrator.errors import ConfigError
from migrator.execution.loop import Loop, View, log_of
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.inputs.assumed import assumed_in
from migrator.inputs.pools import require_shareable
from migrator.inputs.provenance import simulated_provenance, without_folder
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log.account import Account, SecondAccounts, accounts
from migrator.log.changes import changes_in
from migrator.log.records import Assumed, Shares, WindowFinished, WindowStarted
from migrator.log.report import totals_of
from migrator.log.runlog import ReadLog
from migrator.log.surprise import Surprise, surprises
from migrator.log.timeline import Holding, holding
from planner.policies.policy import AnyPolicy, Batching, Policy
from planner.policies.registry import policy_of
from workloads.serving.tally import Totals

FLOOR, CEILING = "static", "oracle"
"""The policies between which a share of the gap is measured."""

MOST_SEGMENTS = 1000
"""Of a comparison; each is a config of its own, simulated under every policy."""


class Fairness(StrEnum):
    """What is compared."""

    POLICY_ONLY = "policy-only"
    """Decisions alone: batches are free, forecasts are by the same forecaster, serving processes never restart."""

    AS_PUBLISHED = "as-published"
    """Each policy with its own batching, forecast and switching; one without batching uses the config's ``batch``."""


@dataclass(frozen=True, slots=True)
class Match:
    """One policy on one segment of a config; picklable."""

    policy: str
    config: Config
    origin: str
    segment: int
    fairness: Fairness = Fairness.POLICY_ONLY


@dataclass(frozen=True, slots=True)
class MatchScore:
    """The score of a match.

    Attributes:
        policy: Its name.
        workload: The config's name.
        segment: The segment's number.
        totals: Requests of all tenants by window.
        accounts: Where each tenant's requests went; ``forecast`` stays 0.
        n_changes: Changes of the layout after the first, in which an instance was created or destroyed.
        n_unplanned: Windows in which the policy had no plan, or one that was refused, so that the old layout was kept.
        notes: What was not measured, by ``simulated_provenance``.
        has_partitions: Whether tenants had MIG instances; only then can ``oracle`` tell what a forecast cost.
        assumed: What was neither given nor measured.
        surprises: Windows that came out far from their plans.
        setup: On what it was simulated: GPU, service profiles and more, (kind, text) each, the same for every policy.
        refusals: Windows whose plan was refused, each with the first rule that it breaks.
        holding: Who held what; of the first segment alone.
    """

    policy: str
    workload: str
    segment: int
    totals: tuple[Totals, ...]
    accounts: Mapping[str, SecondAccounts]
    n_changes: int
    n_unplanned: int
    notes: tuple[tuple[str, str], ...] = ()
    has_partitions: bool = True
    assumed: tuple[Assumed, ...] = ()
    surprises: tuple[Surprise, ...] = ()
    setup: tuple[tuple[str, str], ...] = ()
    refusals: tuple[str, ...] = ()
    holding: Holding | None = None

    @property
    def total(self) -> Totals:
        """All windows together."""
        return sum(self.totals, Totals())


def matches_of(
    config: Config,
    origin: str,
    policies: Sequence[str],
    n_segments: int,
    fairness: Fairness = Fairness.POLICY_ONLY,
    stride_s: int | None = None,
) -> list[Match]:
    """Every policy on every segment; segments begin ``stride_s`` seconds apart, by default one where another ends.

    ``load_over`` says whether each of them is brought to the load, or all together.

    Raises:
        ConfigError: A segment does not lie within the traces, or tenants without a trace have but one piece, or
            segments overlap, so that they would be no samples of their own; or a policy lacks the pools that the
            config lists, or has fewer shares than there are tenants.
    """
    length_s = round(config.windows * config.window_s)
    if n_segments > MOST_SEGMENTS:
        raise ConfigError(f"{origin}: {n_segments:,} segments; at most {MOST_SEGMENTS:,} are simulated")
    if stride_s is not None and stride_s < length_s:
        raise ConfigError(
            f"{origin}: --stride {stride_s}: segments of {length_s} s would overlap; at least {length_s} is needed"
        )
    for tenant in config.tenants if n_segments > 1 else ():
        if tenant.arrivals.trace is None or tenant.arrivals.loop:
            raise ConfigError(
                f"{origin}: tenants.{tenant.name}.arrivals: --segments {n_segments} needs a trace that does not loop; "
                "other arrivals have no later piece that differs"
            )
    for name in policies:
        require_shareable(config, origin, policy_of(name))
    # A resolved config has the factors that its own windows give.
    is_over_run = config.load_over == "run"
    scaled = assemble(config, origin)[0].config if is_over_run else over_each_segment(config)
    segments = list[Config]()
    for number in range(n_segments):
        segments.append(_on_segment(scaled, number * (stride_s or length_s)))
        try:
            assemble(segments[-1], origin)
        except ConfigError as error:
            if number == 0:
                raise
            raise ConfigError(f"segment {number} of {n_segments}: {error}") from None
    return [
        Match(name, segment, origin, number, fairness) for number, segment in enumerate(segments) for name in policies
    ]


def over_each_segment(config: Config) -> Config:
    """The config with each compared segment brought to its load, as ``load_over: segment`` asks."""
    return config.model_copy(update={"load_over": "segment", "load_windows": None})


def _on_segment(config: Config, later_s: int) -> Config:
    """The config with every trace begun so many seconds later."""
    if later_s == 0:
        return config
    history_s = math.ceil(config.forecast.history_s)
    tenants = []
    for tenant in config.tenants:
        offset_s = history_s if tenant.arrivals.offset_s is None else tenant.arrivals.offset_s
        arrivals = tenant.arrivals.model_copy(update={"offset_s": offset_s + later_s})
        tenants.append(tenant.model_copy(update={"arrivals": arrivals}))
    return config.model_copy(update={"tenants": tenants})


def score_of(match: Match) -> MatchScore:
    """The match simulated; same match, same score.

    Raises:
        InfeasibleError: The policy has no plan for window 0.
        PlannerError: The policy cannot answer.
    """
    policy = policy_of(match.policy)
    setting, traffic = _with_batches(match, policy)
    log = simulated(setting, traffic, policy, fairness=match.fairness)
    begun = log.of(WindowStarted)
    n_changes = len(log.of(Shares)[1:]) + sum(1 for change in changes_in(log)[1:] if change.calls)
    notes = simulated_provenance(setting.config, setting.tenants, traffic)
    if (strength := log.header.interference) is not None:
        notes = (
            *notes,
            ("interference", f"{policy.name}: {strength:g} of what {_whose(setting)}, see docs/policies.md"),
        )
    return MatchScore(
        policy=policy.name,
        workload=setting.config.name,
        segment=match.segment,
        totals=tuple(map(_totals, log.settled.values())),
        accounts=accounts(log),
        n_changes=n_changes,
        n_unplanned=sum(one.plan is not None and one.expected is None for one in begun),
        notes=notes,
        has_partitions=log.header.sharing == "instances",
        assumed=assumed_in(setting, log.header.sharing, policy, is_planned=log.header.planning_s is not None),
        surprises=surprises(log),
        setup=_setup(setting),
        refusals=tuple(f"window {one.window}: {one.violations[0]}" for one in begun if one.rejected_plan is not None),
        holding=None if match.segment else holding(log),
    )


def _whose(setting: Setting) -> str:
    """Who measured interference, in words."""
    return "Mudi measured" if setting.shares is None else "was measured on shares, or by Mudi"


def _totals(closing: WindowFinished) -> Totals:
    own = closing.tenants.values()
    return sum(map(totals_of, own), Totals())


def _setup(setting: Setting) -> tuple[tuple[str, str], ...]:
    """On what the setting is simulated, whatever the policy."""
    config = setting.config
    load = "each tenant's own scale" if config.load is None else f"{config.load:g}"
    return (
        ("GPU", f"{setting.gpu.name}, simulated"),
        ("service profiles", f"{without_folder(setting.profiles.name)}, {config.profile_variant}"),
        *(() if setting.shares is None else (("share profiles", without_folder(setting.shares.name)),)),
        ("load", load),
        ("interference without partitions", f"{config.simulation.interference:g} of what {_whose(setting)}"),
    )


def _with_batches(match: Match, policy: AnyPolicy) -> tuple[Setting, RecordedTraffic]:
    """The match's setting; where batches are free, with the arrivals that the config's own batches give."""
    setting, traffic = assemble(match.config, match.origin)
    are_given = match.fairness is Fairness.AS_PUBLISHED and policy.traits.batching is Batching.GIVEN
    if are_given or all(tenant.batch == "auto" for tenant in setting.config.tenants):
        return setting, traffic
    tenants = [
        tenant if tenant.batch == "auto" else tenant.model_copy(update={"batch": "auto", "processes": "auto"})
        for tenant in setting.config.tenants
    ]
    # The resolved config has the scale factors, so the same requests come.
    return assemble(setting.config.model_copy(update={"tenants": tenants}), match.origin)


def simulated(
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy,
    view: View | None = None,
    fairness: Fairness = Fairness.POLICY_ONLY,
    *,
    into: Path | None = None,
) -> ReadLog:
    """The log of the setting's run under the policy, on a simulated GPU whatever the config has.

    ``view`` hears of it. The log lies in the new folder ``into``, if one is given, and nowhere else.

    Raises:
        InfeasibleError: The policy has no plan for window 0.
        PlannerError: The policy cannot answer.
    """
    return prepared(setting, traffic, policy, view, fairness)(into)


Simulation = Callable[[Path | None], ReadLog]
"""Carries out a run whose first window is planned; its log lies in the new folder that is given, or nowhere."""


def prepared(
    setting: Setting,
    traffic: RecordedTraffic,
    policy: AnyPolicy,
    view: View | None = None,
    fairness: Fairness = Fairness.POLICY_ONLY,
) -> Simulation:
    """The same run, its first window planned: a policy that cannot begin it is refused now, and nothing is simulated.

    Raises:
        ConfigError: The policy cannot run on what was measured, or has no pools and the config lists some.
        InfeasibleError: The policy has no plan for window 0, or there are more tenants than compute slices.
        PlannerError: The policy cannot answer.
    """
    gpu = setting.config.gpu.model_copy(update={"backend": "sim", "index": 0})
    setting = replace(setting, config=setting.config.model_copy(update={"gpu": gpu}))
    parts = simulated_parts(setting, traffic, policy, as_published=fairness is Fairness.AS_PUBLISHED)
    return partial(log_of, Loop(setting, parts, view), setting.config)


@dataclass(frozen=True, slots=True)
class Difference:
    """By how many points of goodput % a policy is ahead of another, on the same segments.

    Attributes:
        points: The mean over segments; a segment's own goodput % counts once, however many requests it has.
        low: Lower end of the interval that holds 95 % of the means of resampled segments, each with all its workloads.
        high: Its upper end; both ``None`` with fewer than ``LEAST_SEGMENTS`` segments.
    """

    points: float
    low: float | None
    high: float | None


LEAST_SEGMENTS = 5
"""Of fewer segments resampling says nothing."""

_N_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """A policy over all segments of a workload, or of several.

    Attributes:
        policy: Its name.
        total: Requests.
        account: Where they went.
        n_changes: Changes of the layout.
        n_unplanned: Windows without a plan.
        gap_closed: Which share of the goodput between ``static`` and ``oracle`` it gets; ``None`` where one of
            them is missing or they are less than a thousandth of the arrivals apart.
        relative_gain: Its goodput over that of ``static``, less 1; ``None`` where that is missing or 0.
        ahead: Of the reference; ``None`` for the reference itself.
    """

    policy: str
    total: Totals
    account: Account
    n_changes: int
    n_unplanned: int
    gap_closed: float | None
    relative_gain: float | None
    ahead: Difference | None


def with_hindsight(matches: Sequence[Match]) -> list[Match]:
    """The matches, and for each segment of a policy on partitions one of ``oracle`` where that has none.

    It alone separates what a forecast costs from what is beyond all layouts; see :func:`told_apart`.
    """
    policies = {match.policy: policy_of(match.policy) for match in matches}
    needed = {
        (match.config.name, match.segment): replace(match, policy=CEILING)
        for match in matches
        if isinstance(policies[match.policy], Policy)
    }
    asked = {(one.config.name, one.segment) for one in matches if policies[one.policy].name == CEILING}
    return [*matches, *(match for place, match in needed.items() if place not in asked)]


def told_apart(scores: Sequence[MatchScore], n_asked: int) -> tuple[MatchScore, ...]:
    """The first ``n_asked`` scores, with what not knowing the arrivals cost in a class of its own: by ``oracle``'s."""
    known = {(score.workload, score.segment): score.accounts for score in scores if score.policy == CEILING}

    def apart(score: MatchScore) -> MatchScore:
        ceiling = known.get((score.workload, score.segment)) if score.has_partitions else None
        if ceiling is None:
            return score
        accounts = {name: own.with_forecast(ceiling[name].in_time) for name, own in score.accounts.items()}
        return replace(score, accounts=accounts)

    return tuple(map(apart, scores[:n_asked]))


def standings(scores: Sequence[MatchScore]) -> tuple[Standing, ...]:
    """One for each policy, in the order in which they first appear; the first is the reference of differences."""
    names = list(dict.fromkeys(score.policy for score in scores))
    own = {name: [score for score in scores if score.policy == name] for name in names}
    totals = {name: sum((score.total for score in own[name]), Totals()) for name in names}
    floor, ceiling = totals.get(FLOOR), totals.get(CEILING)
    return tuple(
        Standing(
            policy=name,
            total=totals[name],
            account=sum((seconds.total for score in own[name] for seconds in score.accounts.values()), Account()),
            n_changes=sum(score.n_changes for score in own[name]),
            n_unplanned=sum(score.n_unplanned for score in own[name]),
            gap_closed=_gap_closed(totals[name], floor, ceiling),
            relative_gain=None if floor is None or not floor.correct else totals[name].correct / floor.correct - 1,
            ahead=None if name == names[0] else _difference(own[name], own[names[0]]),
        )
        for name in names
    )


def _gap_closed(total: Totals, floor: Totals | None, ceiling: Totals | None) -> float | None:
    if floor is None or ceiling is None or ceiling.correct - floor.correct < 1e-3 * floor.arrivals:
        return None
    return (total.correct - floor.correct) / (ceiling.correct - floor.correct)


def _difference(own: Sequence[MatchScore], reference: Sequence[MatchScore]) -> Difference:
    by_place = {(score.workload, score.segment): score.total.goodput_pct or 0.0 for score in reference}
    by_segment: defaultdict[int, list[float]] = defaultdict(list)
    for score in own:
        points = (score.total.goodput_pct or 0.0) - by_place[score.workload, score.segment]
        by_segment[score.segment].append(points)
    # Workloads may share traces, so that those of one segment are drawn together.
    means = np.array([fmean(points) for points in by_segment.values()])
    if len(means) < LEAST_SEGMENTS:
        return Difference(float(means.mean()), None, None)
    drawn = means[np.random.default_rng(0).integers(0, len(means), (_N_RESAMPLES, len(means)))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Difference(float(means.mean()), float(low), float(high))
