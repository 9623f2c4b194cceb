"""From a log to a report: per window and tenant, and totals. Reads the log and nothing else."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from migrator.log import records
from migrator.log.changes import INFERENCE, RETRAINING, LayoutChange, Tenure, changes_in
from migrator.log.live import LiveFacts, known_of, live_facts, model_ages
from migrator.log.runlog import ReadLog
from migrator.log.surprise import Surprise, surprises
from migrator.log.trouble import BlindSpan, Replans, Trouble, blind_in, replans_of, trouble_of
from workloads.serving.tally import COUNTED, Added, Totals, latency_percentile_ms, merge_histograms, rank_of

PHASES = ("destruction", "initialisation", "library_load", "model_load")
"""What a change goes through, in this order: the four phases of the paper's Figure 5."""


@dataclass(frozen=True, slots=True)
class Phase(Added):
    """How often a phase was gone through, and the seconds that it took in all. Phases add up with ``+``."""

    count: int = 0
    total_s: float = 0.0

    @property
    def mean_s(self) -> float | None:
        """Seconds of one; ``None`` where there was none."""
        return self.total_s / self.count if self.count else None


StartUps = Mapping[str, Mapping[str, Phase]]
"""By tenant, and then by phase; driver calls for an instance of a pool are under all its members' names, ``a+b``."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile of latency over all requests, to the next full millisecond.

    Attributes:
        ms: ``None`` where it falls on a request that was dropped or lost, and without arrivals.
        is_over_slo: Whether it falls on a request that was not in time, by its own tenant's SLO.
        answered_ms: The same percentile of the answered alone; ``None`` without answers.
    """

    ms: int | None = None
    is_over_slo: bool = False
    answered_ms: int | None = None

    @classmethod
    def of(cls, requests: Totals, latency_ms: Mapping[int, int], fraction: float) -> Percentile:
        """That of these requests, whose answered have this histogram."""
        n_unanswered = requests.arrivals - requests.in_time - requests.late
        return cls(
            ms=latency_percentile_ms(latency_ms, fraction, n_unanswered),
            is_over_slo=rank_of(fraction, requests.arrivals) > requests.in_time,
            answered_ms=latency_percentile_ms(latency_ms, fraction),
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """What a tenant, a window, or a whole run came to.

    Attributes:
        requests: Counts of arrivals and their outcomes.
        p50: Median latency.
        p99: The 99th percentile.
        forecast_error_pct: Σ |forecast − arrivals| over the seconds, of the arrivals; ``None`` without arrivals.
        reconfigurations: Changes that started or stopped an inference instance, or changed inference's share.
        outage_s: Seconds in which nothing could serve the tenant (summed over tenants in totals).
        capacity_lost_s: Seconds of the whole GPU's compute that were held by inference instances not
            serving yet (creation, start-up) or no more (draining, destruction); of a pool's, each member's equal part.
        late_ready_s: Seconds by which instances were ready later than planned, summed; of a pool's, each member's part.
        retrainings: Retrainings that began; without instances, those that ended.
        expected_goodput: Of requests of which nobody knows what is right: those in time, each worth the accuracy in
            force; else ``None``.
        judged: Of how many answers clients said which label was right, and how many had it; ``None`` where none did.
    """

    requests: Totals
    p50: Percentile
    p99: Percentile
    forecast_error_pct: float | None
    reconfigurations: int
    outage_s: float
    capacity_lost_s: float
    late_ready_s: float
    retrainings: int
    expected_goodput: float | None = None
    judged: tuple[int, int] | None = None

    @property
    def expected_goodput_pct(self) -> float | None:
        """The same as a share of all arrivals."""
        if self.expected_goodput is None or not self.requests.arrivals:
            return None
        return 100 * self.expected_goodput / self.requests.arrivals


@dataclass(frozen=True, slots=True)
class Promise:
    """What a plan promises a tenant that has a floor of in-time answers.

    Attributes:
        floor_pct: The least share of requests in time that is asked for.
        per: ``window`` or ``step``.
        promised_pct: The share that the plan expects, over the steps that it covers; ``None`` without arrivals or plan.
        missed: What the plan lacks of the floor, in words; ``None`` if it keeps it.
    """

    floor_pct: float
    per: str
    promised_pct: float | None
    missed: str | None


@dataclass(frozen=True, slots=True)
class WindowReport:
    """One window; ``tenants`` is empty and ``total`` ``None`` when the run was cut off before it was settled (void).

    Where tenants have no instances there is no plan: its status, expected goodput and gap are ``None``. ``promised`` is
    by tenant with a floor of in-time answers. ``violation`` is the first rule that the policy's own plan breaks, which
    was not carried out then. ``floor_costs`` is what the plan loses by floors of in-time answers, as a share of the
    requests that arrive, and ``keeping_costs`` what the best plan found that keeps every floor would. ``salvage`` is
    what the plan expects the models to be worth beyond the window, in requests; ``model_ages`` says by tenant how many
    windows old the data was, as the window began, that the model had learned last: 1 where each retraining is done in
    its window. ``gap`` is what the plan's certificate proves, ``claimed_gap`` its
    engine's word. ``blind_s`` are the seconds
    that are in no figure, as the GPU's state is unknown. ``driver_changes`` are the instances that the driver made or
    destroyed, without the bring-up's; ``None`` where tenants have none.
    """

    window: int
    plan_status: str | None
    expected_goodput: float | None
    gap: float | None
    claimed_gap: float | None
    tenants: Mapping[str, Figures]
    total: Figures | None
    promised: Mapping[str, Promise] = field(default_factory=dict)
    violation: str | None = None
    floor_costs: float | None = None
    keeping_costs: float | None = None
    salvage: float = 0.0
    model_ages: Mapping[str, int] = field(default_factory=dict)
    blind_s: int = 0
    driver_changes: int | None = None

    @property
    def is_void(self) -> bool:
        """Whether the run was cut off before every request of the window was resolved."""
        return self.total is None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run.

    Attributes:
        header: What the run is about.
        windows: Every window that was begun, in order.
        tenants: Totals by tenant over the settled windows.
        total: Over all tenants and settled windows; ``None`` when there are none.
        ending: ``finished``, ``stopped`` (a service, in order), ``interrupted`` or ``torn``: how the log ends.
        start_ups: What its changes took, by whose instance it was and by phase.
        open_call: The driver call in which the run ended, if it did.
        surprises: Where a window's goodput is far from what its plan promised.
        trouble: What the driver refused, and what others did to the GPU; ``None`` if nothing.
        replans: How often the rest of a window was planned anew; ``None`` where the run did not ask for that.
        stayed: How often a layout that stays took the place of a plan that might lose much by bursts.
        failed_forecasts: Where the forecaster returned nothing usable, a sentence each.
        unknown_s: By window, the seconds of its clients' past that nobody counted, and that its forecast filled.
        blind: Where the GPU's state is unknown.
        is_labelled: Whether it is known which answers are right, so that goodput is counted, not expected.
        reason: Why the run was ended before its time, if not by whoever runs it.
        outside: By tenant, requests that a service answered before its first window after a start.
        unknown: By tenant, requests offered before a kill, of unknown outcome.
        live: What really was answered and learned; ``None`` where requests were simulated.
    """

    header: records.RunStarted
    windows: tuple[WindowReport, ...]
    tenants: Mapping[str, Figures]
    total: Figures | None
    ending: str
    start_ups: StartUps
    open_call: str | None
    surprises: tuple[Surprise, ...] = ()
    trouble: Trouble | None = None
    live: LiveFacts | None = None
    replans: Replans | None = None
    stayed: int = 0
    failed_forecasts: tuple[str, ...] = ()
    unknown_s: Mapping[int, int] = field(default_factory=dict)
    blind: tuple[BlindSpan, ...] = ()
    reason: str | None = None
    is_labelled: bool = True
    outside: Mapping[str, Totals] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)

    @property
    def driver_changes(self) -> int | None:
        """Instances that the driver made or destroyed, without bring-ups; ``None`` where tenants have none."""
        own = [window.driver_changes for window in self.windows if window.driver_changes is not None]
        return sum(own) if own else None

    @property
    def blind_s(self) -> int:
        """Seconds of settled windows that are in no figure."""
        return sum(window.blind_s for window in self.windows)


@dataclass(frozen=True, slots=True)
class _Moves:
    """What changes cost one tenant in one window."""

    reconfigured_at: frozenset[float]
    outage_s: float
    capacity_lost_s: float
    late_ready_s: float
    retrainings: int


@dataclass(frozen=True, slots=True)
class _Part:
    """One tenant's raw figures in one window, from which any sum of them is made."""

    requests: Totals
    expected_goodput: float | None
    judged: tuple[int, int] | None
    latency_ms: Mapping[int, int]
    forecast_error: float
    moves: _Moves


def report_of(log: ReadLog) -> Report:
    """The report of a log, whole or torn."""
    names = [tenant.name for tenant in log.header.tenants]
    changes = changes_in(log)
    moves_of = _moves_of_instances(log, changes) if log.header.sharing == "instances" else _moves_of_shares(log)
    windows: list[WindowReport] = []
    parts: dict[str, list[_Part]] = {name: [] for name in names}
    begun, made = log.of(records.WindowStarted), _driver_changes(changes)
    for started in begun:
        closing = log.settled.get(started.window)
        own = (
            {}
            if closing is None
            else {name: _part(name, log, started, closing, moves_of) for name in names if name in closing.tenants}
        )
        for name, part in own.items():
            parts[name].append(part)
        windows.append(_window(log, started, closing, own, made[started.window]))
    left_out = {window for joined in log.of(records.Resumed) for window in joined.void} - {one.window for one in begun}
    windows += [WindowReport(window, None, None, None, None, {}, None) for window in left_out]
    windows.sort(key=lambda window: window.window)
    every = [part for own_parts in parts.values() for part in own_parts]
    plans = (*(started.plan for started in begun), *(revised.plan for revised in log.of(records.PlanRevised)))
    last = log.entries[-1].record
    return Report(
        header=log.header,
        windows=tuple(windows),
        tenants={name: _figures(own_parts) for name, own_parts in parts.items() if own_parts},
        total=_figures(every) if every else None,
        ending=_ending(log),
        start_ups=_start_ups(changes),
        open_call=_open_call(log),
        surprises=surprises(log),
        trouble=trouble_of(log),
        live=live_facts(log),
        replans=replans_of(log),
        stayed=sum(plan is not None and plan.burst_loss is not None for plan in plans),
        failed_forecasts=tuple(map(_failed_forecast, log.of(records.ForecastFailed))),
        unknown_s={one.window: one.forecast.unknown_s for one in begun if one.forecast.unknown_s},
        blind=blind_in(log),
        reason=last.reason if isinstance(last, records.Interrupted) else None,
        is_labelled=all(closing.is_labelled for closing in log.settled.values()),
        outside=_outside(log),
        unknown=Counter[str]() + sum((Counter(joined.unknown) for joined in log.of(records.Resumed)), Counter[str]()),
    )


def _outside(log: ReadLog) -> dict[str, Totals]:
    found = defaultdict[str, Totals](Totals)
    for record in log.of(records.Outside):
        for name, own in record.tenants.items():
            found[name] += Totals(
                own.arrivals,
                own.in_time,
                own.late,
                own.dropped,
                unlabelled=own.arrivals,
                refused=own.refused,
                failed=own.failed,
            )
    return {name: totals for name, totals in found.items() if totals.arrivals}


def _window(
    log: ReadLog,
    started: records.WindowStarted,
    closing: records.WindowFinished | None,
    own: Mapping[str, _Part],
    driver_changes: int,
) -> WindowReport:
    plan, rejected = started.plan, started.rejected_plan
    expected = None if plan is None else plan.objective if plan.expected_goodput is None else plan.expected_goodput
    return WindowReport(
        window=started.window,
        plan_status=None if plan is None else plan.status,
        expected_goodput=expected,
        floor_costs=None if plan is None else plan.floor_costs,
        keeping_costs=None if plan is None else plan.keeping_costs,
        salvage=0.0 if plan is None else plan.salvage or 0.0,
        model_ages=model_ages(log, started),
        gap=None if plan is None else plan.gap,
        claimed_gap=None if plan is None else plan.claimed_gap,
        tenants={name: _figures([part]) for name, part in own.items()},
        total=_figures(own.values()) if own else None,
        promised=_promised(log.header, started),
        blind_s=0 if closing is None else closing.blind_s,
        violation=None if rejected is None else next(iter(started.violations), None),
        driver_changes=driver_changes if log.header.sharing == "instances" else None,
    )


def _driver_changes(changes: Sequence[LayoutChange]) -> Counter[int]:
    """By window, the instances made or destroyed in its changes; nothing of a bring-up."""
    made = (change for change in changes if not change.is_bring_up)
    return Counter(change.window for change in made for one in change.calls if one.call != "repair")


def _failed_forecast(failure: records.ForecastFailed) -> str:
    where = f"window {failure.window}, step {failure.from_step}"
    return f"{where}: {failure.forecaster} failed ({failure.reason}); {failure.instead} took its place"


def _promised(header: records.RunStarted, started: records.WindowStarted) -> Mapping[str, Promise]:
    promised = {}
    for tenant in header.tenants:
        if (floor := tenant.min_slo_attainment) and tenant.name in started.forecast.tenants:
            own = (started.in_time or {}).get(tenant.name, _UNTOLD)
            promised_pct = None if own.promised is None else 100 * own.promised
            promised[tenant.name] = Promise(100 * floor.share, floor.per, promised_pct, own.missed)
    return promised


_UNTOLD = records.InTime(promised=None, missed=None)


def _ending(log: ReadLog) -> str:
    if log.of(records.RunFinished):
        return "finished"
    last = log.entries[-1].record
    stopped = isinstance(last, records.ServiceStopped)
    return "stopped" if stopped else "interrupted" if isinstance(last, records.Interrupted) else "torn"


def _open_call(log: ReadLog) -> str | None:
    closed = {outcome.intent for outcome in log.of(records.Outcome)}
    # What was open when a run was joined again is not what ended it.
    joined = max((entry.n for entry in log.entries_of(records.Resumed)), default=0)
    calls = [entry.record for entry in log.entries_of(records.Intent) if entry.n > joined and entry.n not in closed]
    return f"{calls[-1].call} {calls[-1].placement}" if calls else None


def _part(
    name: str, log: ReadLog, started: records.WindowStarted, closing: records.WindowFinished, moves_of: _MovesOf
) -> _Part:
    counts, forecast = closing.tenants[name], started.forecast.tenants.get(name)
    uncounted = {second - round(started.start_s) for second in closing.blind_seconds}
    return _Part(
        requests=totals_of(counts),
        expected_goodput=None if counts.is_labelled else _expected_goodput(name, log, started, counts),
        judged=counts.judged,
        latency_ms=dict(counts.latency_ms),
        forecast_error=_absolute_error(
            counts.arrivals, [] if forecast is None else forecast.mean_rps, log.header.step_s, uncounted
        ),
        moves=moves_of(name, started, counts),
    )


def totals_of(counts: records.Counts) -> Totals:
    """Sums over all seconds of a tenant's window."""
    totals = Totals(*(sum(getattr(counts, name)) for name in COUNTED))
    if counts.is_labelled:
        return totals
    return replace(totals, unlabelled=totals.arrivals, refused=sum(counts.refused), failed=sum(counts.failed))


def _expected_goodput(name: str, log: ReadLog, started: records.WindowStarted, counts: records.Counts) -> float | None:
    """Answers in time, each worth the accuracy in force as its request arrived, in requests."""
    known = known_of(log)[started.window].get(name)
    came = (one.accuracies[name] for one in log.of(records.TenantsChanged) if name in one.accuracies)
    before = next(came, None) if known is None else known.accuracy_before
    ended = [one for one in log.of(records.Finished) if one.tenant == name]
    back = [one for one in log.of(records.RolledBack) if one.tenant == name]
    return None if before is None else worth_in_time(counts, started.start_s, before, [*ended, *back])


def worth_in_time(
    counts: records.Counts,
    start_s: float,
    accuracy_before: float,
    ended: Iterable[records.Finished | records.RolledBack],
) -> float:
    """A tenant's answers in time of a window, each worth the accuracy in force as its request arrived, in requests.

    ``ended`` are the tenant's retrainings and returns to older weights, of other windows as well.
    """
    accuracy = [accuracy_before] * len(counts.in_time)
    for one in sorted(ended, key=lambda one: one.from_s):
        first = math.ceil(one.from_s - start_s)
        if 0 <= first < len(accuracy):
            accuracy[first:] = [one.accuracy] * (len(accuracy) - first)
    return math.fsum(n * share for n, share in zip(counts.in_time, accuracy, strict=True))


_MovesOf = Callable[[str, records.WindowStarted, records.Counts], _Moves]
"""From a tenant, a window, and the tenant's counts in it.

What a log says of all windows is sorted by window once, so that a report takes as long for each window, however many.
"""


def _moves_of_instances(log: ReadLog, changes: Sequence[LayoutChange]) -> _MovesOf:
    in_window: defaultdict[int, list[LayoutChange]] = defaultdict(list)
    for change in changes:
        in_window[change.window].append(change)
    serving = _serving_in(log, changes)
    blind = [(first, end) for closing in log.settled.values() for first, end in closing.blind]

    def moves_of(name: str, started: records.WindowStarted, _: records.Counts) -> _Moves:
        def own(items: Iterable[Tenure], task: str = INFERENCE) -> list[Tenure]:
            return [item for item in items if item.tenant == name and item.task == task]

        window, begin_s = started.window, started.start_s
        moved = [
            (change.begin_s, own(change.started), own(change.stopped))
            for change in in_window[window]
            if not change.is_bring_up
        ]
        workers = [
            item
            for change in in_window[window]
            for item in (*own(change.started), *own((*change.started, *change.loans), RETRAINING))
        ]
        idle_s = sum(_held_idle_s(begun, ended) for _, begun, ended in moved)
        return _Moves(
            reconfigured_at=frozenset(moment_s for moment_s, begun, ended in moved if begun or ended),
            outage_s=_uncovered_s(
                [*serving[window, name], *blind, *log.absent.get(name, ())], begin_s, begin_s + log.header.window_s
            ),
            capacity_lost_s=idle_s / log.header.compute_slices,
            late_ready_s=sum(item.ready.late_ready_s / len(item.members) for item in workers if item.ready is not None),
            retrainings=sum(item.task == RETRAINING for item in workers),
        )

    return moves_of


def _serving_in(log: ReadLog, changes: Iterable[LayoutChange]) -> Mapping[tuple[int, str], list[tuple[float, float]]]:
    """By window and tenant, the spans in which an inference instance served; at least those that reach into it."""
    windows = sorted((started.start_s, started.window) for started in log.of(records.WindowStarted))
    starts_s = [start_s for start_s, _ in windows]
    found: defaultdict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for change in changes:
        for item in change.begun:
            for span_s in item.served if item.task == INFERENCE else ():
                first = bisect_right(starts_s, span_s[0] - log.header.window_s)
                for _, window in windows[first : bisect_left(starts_s, span_s[1])]:
                    found[window, item.tenant].append(span_s)
    return found


def _moves_of_shares(log: ReadLog) -> _MovesOf:
    """The same where tenants have no instances; no compute is theirs to lose then."""
    late_s: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for ready in log.of(records.Ready):
        late_s[ready.window, ready.tenant].append(ready.late_ready_s)
    retrainings = Counter((ended.window, ended.tenant) for ended in log.of(records.Finished))
    changed_at: defaultdict[tuple[int, str], set[float]] = defaultdict(set)
    for tenant in log.header.tenants:
        for at_s, window in _shares_changed(tenant.name, log):
            changed_at[window, tenant.name].add(at_s)

    def moves_of(name: str, started: records.WindowStarted, counts: records.Counts) -> _Moves:
        place = (started.window, name)
        return _Moves(
            reconfigured_at=frozenset(changed_at[place]),
            outage_s=float(sum(could == 0 for could in counts.could_serve)),
            capacity_lost_s=0.0,
            late_ready_s=sum(late_s[place]),
            retrainings=retrainings[place],
        )

    return moves_of


def _shares_changed(name: str, log: ReadLog) -> Iterator[tuple[float, int]]:
    """When, and in which window, the tenant's inference got another share than before; the first one is none.

    The same share of the GPU's time is another than of its processors.
    """
    before: object = None
    for entry in log.entries_of(records.Shares):
        held = entry.record
        twentieths = next((quanta for *owner, quanta in held.shares if owner == [name, INFERENCE]), 0)
        share = twentieths, held.in_turns
        if before not in (None, share):
            yield entry.at_s, held.window
        before = share


def _held_idle_s(started: Iterable[Tenure], stopped: Iterable[Tenure]) -> float:
    """Compute-slice seconds that a change's inference instances held before they served, and after.

    Of an instance of a pool each member has an equal part, so that the members' seconds add up to the instance's.
    """
    warming = sum((item.up_s - item.begin_s) * item.compute_slices / len(item.members) for item in started)
    leaving = sum((item.gone_s - item.end_s) * item.compute_slices / len(item.members) for item in stopped)
    return float(warming + leaving)


def _uncovered_s(spans: Iterable[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Seconds of ``[begin_s, end_s)`` in which no span holds."""
    uncovered_s, covered_until_s = 0.0, begin_s
    for from_s, to_s in sorted(spans):
        if to_s <= from_s:
            continue
        uncovered_s += max(0.0, min(from_s, end_s) - covered_until_s)
        covered_until_s = min(end_s, max(covered_until_s, to_s))
    return uncovered_s + max(0.0, end_s - covered_until_s)


def _absolute_error(
    arrivals: Sequence[int], mean_rps: Sequence[float], step_s: float, uncounted: Container[int]
) -> float:
    """Σ |forecast − arrivals| in requests, compared second by second; a step's forecast is spread evenly over it."""
    expected = [0.0, *accumulate(rate * step_s for rate in mean_rps)]  # of who came later nothing was expected

    def until(second: int) -> float:
        step, share = divmod(second / step_s, 1.0)
        index = min(int(step), len(expected) - 1)
        return expected[index] + (share * (expected[index + 1] - expected[index]) if index + 1 < len(expected) else 0.0)

    return sum(abs(until(s + 1) - until(s) - count) for s, count in enumerate(arrivals) if s not in uncounted)


def _figures(parts: Iterable[_Part]) -> Figures:
    parts = list(parts)
    requests = sum((part.requests for part in parts), Totals())
    latency_ms = merge_histograms([part.latency_ms for part in parts])
    error = sum(part.forecast_error for part in parts)
    expected = [part.expected_goodput for part in parts if part.expected_goodput is not None]
    judged = [part.judged for part in parts if part.judged is not None]
    return Figures(
        requests=requests,
        p50=Percentile.of(requests, latency_ms, 0.5),
        p99=Percentile.of(requests, latency_ms, 0.99),
        forecast_error_pct=100 * error / requests.arrivals if requests.arrivals else None,
        reconfigurations=len(frozenset().union(*(part.moves.reconfigured_at for part in parts))),
        outage_s=sum(part.moves.outage_s for part in parts),
        capacity_lost_s=sum(part.moves.capacity_lost_s for part in parts),
        late_ready_s=sum(part.moves.late_ready_s for part in parts),
        retrainings=sum(part.moves.retrainings for part in parts),
        expected_goodput=math.fsum(expected) if len(expected) == len(parts) else None,
        judged=(sum(n for n, _ in judged), sum(right for _, right in judged)) if judged else None,
    )


def _start_ups(changes: Iterable[LayoutChange]) -> StartUps:
    """The phases of all that lost or got an instance; a worker that is started again is no change."""
    phases: defaultdict[str, dict[str, Phase]] = defaultdict(lambda: dict.fromkeys(PHASES, Phase()))
    for change in changes:
        if not change.is_bring_up:
            for tenant, phase, seconds in _taken(change):
                phases[tenant][phase] += Phase(1, seconds)
    return dict(phases)


def _taken(change: LayoutChange) -> Iterator[tuple[str, str, float]]:
    """Whose it was, phase and seconds of all that a change went through."""
    owner_of = {("destroy", item.placement): "+".join(item.members) for item in change.stopped}
    owner_of |= {("create", item.placement): "+".join(item.members) for item in change.started}
    for call in change.calls:
        phase = "destruction" if call.call == "destroy" else "initialisation"
        if owner := owner_of.get((call.call, call.placement)):
            yield owner, phase, call.end_s - call.begin_s
    for item in change.started:
        if item.ready is not None:
            yield item.tenant, "library_load", item.ready.library_s
            yield item.tenant, "model_load", item.ready.model_s
