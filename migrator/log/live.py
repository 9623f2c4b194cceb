"""What really was answered and learned in a live run, from its log alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.log import records
from migrator.log.runlog import ReadLog
from workloads.training import FULL, reached

BECAME = ("in_time", "late", "dropped", "refused", "failed")
"""The possible outcomes of a request; only the first counts."""

MOST_STOLEN = 0.05
MOST_OTHERS = 0.2
"""A run whose machine was refused more of its CPU time than the one, or in which processes of others took more than the
other, says nothing of what the machine can do."""


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """One tenant's model in one window; shares of right answers are of the requests that were answered.

    Attributes:
        age: How many windows old the data was, as the window began, that the model had learned last; 1 where each
            retraining is done in its window.
        before_pct: Right answers to requests that arrived before the retraining ended, or in the whole window where
            none did; ``None`` where there was none.
        after_pct: To those that arrived in the seconds after; ``None`` without.
        finish_s: When the retraining's weights answered, in seconds of the window; ``None``: not in this window.
        estimated_pct: What micro-profiling, or the config, expected of the retraining.
        tested_pct: What its end was worth on the whole test set.
        swap_s: What each worker took to load the weights.
        failure: Why there are no new weights; empty where there are, or none were asked for.
    """

    window: int
    tenant: str
    age: int
    before_pct: float | None
    after_pct: float | None
    finish_s: float | None
    estimated_pct: float | None
    tested_pct: float | None
    swap_s: tuple[float, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True)
class LiveFacts:
    """What is to be said of a live run beside its requests.

    Attributes:
        learned: By window, then in the tenants' order; settled windows only.
        requests: By tenant how many the generator has ``sent``, and by status what it heard of them; ``dispatcher``:
            its own counts, of all clients' requests. Empty where the run has not ended.
        sent_late_s: How late the generator itself sent: median, 99th percentile, worst; ``None`` likewise.
        stolen_share: Of the machine's CPU time, what it was refused; ``None`` where the system does not say.
        others_share: Of that time, what processes of others took; likewise.
        from_window: Where the run was joined last after a crash; requests, lateness and what was refused are from there
            on. 0 where it was not.
    """

    learned: tuple[ModelWindow, ...]
    requests: Mapping[str, records.LiveRequests]
    sent_late_s: tuple[float, ...] | None
    stolen_share: float | None
    others_share: float | None = None
    from_window: int = 0

    @property
    def void_because(self) -> str:
        """Why the machine was so little the run's that it says nothing; empty where it was the run's."""
        if self.stolen_share is not None and self.stolen_share > MOST_STOLEN:
            return f"this machine was refused {self.stolen_share:.1%} of its CPU time, more than {MOST_STOLEN:.0%}"
        if self.others_share is not None and self.others_share > MOST_OTHERS:
            return f"others took {self.others_share:.1%} of this machine's CPU time, more than {MOST_OTHERS:.0%}"
        return ""

    @property
    def is_void(self) -> bool:
        """Whether the run says nothing."""
        return bool(self.void_because)

    @property
    def unaccounted(self) -> int:
        """Requests that were sent, and of which it is unknown what became."""
        return self.total("sent") - sum(map(self.total, BECAME))

    @property
    def of_others(self) -> int:
        """Requests that others than the generator have sent."""
        return sum(one.dispatcher.arrived for one in self.requests.values()) - self.total("sent")

    def total(self, key: str) -> int:
        """Over all tenants."""
        return sum(getattr(one, key) for one in self.requests.values())


Known = records.TenantForecast | records.MeasuredModel
"""What is known of a tenant's model as a window begins."""


def known_of(log: ReadLog) -> dict[int, Mapping[str, Known]]:
    """By window and tenant, what was measured as it began; what its plan knew, where that is all there is."""
    known: dict[int, Mapping[str, Known]] = {one.window: one.forecast.tenants for one in log.of(records.WindowStarted)}
    return known | {one.window: one.tenants for one in log.of(records.Measured)}


def model_ages(log: ReadLog, started: records.WindowStarted) -> dict[str, int]:
    """By tenant, how old its model is as a window begins; all have learned what came before the run."""
    learned, is_back = dict.fromkeys(started.forecast.tenants, -1), set[str]()
    for entry in log.entries:
        match entry.record:
            case records.Finished(rejected=None) as one if type(one) is records.Finished and _is_before(one, started):
                before = -1 if one.tenant in is_back else learned.get(one.tenant, -1)
                learned[one.tenant] = max(before, one.window)
                is_back.discard(one.tenant)
            case records.RolledBack() as one if _is_before(one, started):
                learned[one.tenant] = one.learned
                is_back.add(one.tenant)
            case _:
                pass
    return {name: started.window - learned[name] for name in started.forecast.tenants}


def _is_before(one: records.Finished | records.RolledBack, started: records.WindowStarted) -> bool:
    return one.from_s <= started.start_s


def live_facts(log: ReadLog) -> LiveFacts | None:
    """What a live run's log says; ``None`` where requests were simulated."""
    if log.header.simulated:
        return None
    ended = log.of(records.Finished)
    finished = {(one.tenant, one.window): one for one in ended if one.rejected is None}
    failed = {(one.tenant, one.window): one.reason for one in log.of(records.Failed) if one.task == "retraining"}
    failed |= {(one.tenant, one.window): rejection(one) for one in ended if one.rejected is not None}
    learned, begun_with = [], known_of(log)
    for started in log.of(records.WindowStarted):
        closing = log.settled.get(started.window)
        if closing is None:
            continue
        for name, age in model_ages(log, started).items():
            key = name, started.window
            model, failure = begun_with[started.window][name], failed.get(key, "")
            learned.append(_learned(started, name, model, age, closing.tenants[name], finished.get(key), failure))
    ending = next(iter(log.of(records.RunFinished)), None)
    return LiveFacts(
        tuple(learned),
        {} if ending is None else ending.requests,
        None if ending is None else ending.sent_late_s,
        None if ending is None else ending.stolen_share,
        None if ending is None else ending.others_share,
        max((joined.window for joined in log.of(records.Resumed)), default=0),
    )


def rejection(ended: records.Finished) -> str:
    """Why the weights of a retraining are kept aside, in words."""
    assert ended.rejected is not None
    if ended.pinned is not None:
        return f"its weights answer {ended.rejected:.1%} of the held-out samples right, and {ended.pinned} is pinned"
    old = "" if ended.accuracy_before is None else f", those in service {ended.accuracy_before:.1%}"
    return f"its weights answer {ended.rejected:.1%} of the held-out samples right{old}"


def _learned(
    started: records.WindowStarted,
    name: str,
    model: Known,
    age: int,
    counts: records.Counts,
    finished: records.Finished | None,
    failure: str,
) -> ModelWindow:
    n_seconds = len(counts.arrivals)
    finish_s = None if finished is None else finished.finish_s - started.start_s
    if finish_s is not None and finish_s >= n_seconds:
        finish_s = None  # it answered in the next window only
    cut = n_seconds if finish_s is None else int(finish_s)
    return ModelWindow(
        window=started.window,
        tenant=name,
        age=age,
        before_pct=_right_pct(counts, range(cut)),
        # The second in which it ended has answers of both.
        after_pct=_right_pct(counts, range(min(cut + 1, n_seconds), n_seconds)),
        finish_s=finish_s,
        estimated_pct=_expected_pct(model, finished),
        tested_pct=None if finished is None else 100 * finished.accuracy,
        swap_s=() if finished is None else finished.swap_s,
        failure=failure if finished is None else "",
    )


def _expected_pct(model: Known, finished: records.Finished | None) -> float | None:
    """What was expected of the option by which it was retrained; of the full one where it was not."""
    estimate = model.estimate
    if estimate is None:
        return None
    gain = estimate.gains.get(FULL if finished is None else finished.option or FULL, 1.0)
    return 100 * reached(model.accuracy_before, estimate.accuracy_after, gain)


def _right_pct(counts: records.Counts, seconds: Sequence[int]) -> float | None:
    if not counts.is_labelled:
        return None
    right = sum(counts.correct[second] + counts.correct_late[second] for second in seconds)
    answered = sum(counts.in_time[second] + counts.late[second] for second in seconds)
    return 100 * right / answered if answered else None
