"""Goals of ``--keep``: what a run, or the first policy of a comparison, has *kept* of a share that was asked for.

Conditions are those of ``whatif``, which says what plans promise of them; here they are held against what was counted.
All requests count alike, as in a report's totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from migrator.errors import MissedGoalError
from migrator.whatif.search import Condition, read_conditions
from workloads.serving.tally import Totals

if TYPE_CHECKING:  # a command has one of these
    from migrator.comparison.matches import MatchScore
    from migrator.log.records import Tenant
    from migrator.log.report import Report

_EPS = 1e-9

USUAL = 0.99
"""Share in time that a tenant is judged by where nobody asked for another one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A condition, and what was kept of it.

    Attributes:
        condition: What was to be kept.
        requests: Of how many requests.
        share: What was kept, from 0 to 1; ``None`` without requests.
        reason: Why it is missed whatever was counted; ``None`` if the share decides.
        is_simulated: Whether requests and workers were.
    """

    condition: Condition
    requests: int
    share: float | None
    reason: str | None
    is_simulated: bool

    @property
    def is_kept(self) -> bool:
        """Whether all of the run shows that it was kept."""
        return self.reason is None and self.share is not None and self.condition.spare(self.share) >= -_EPS


def conditions_of(keep: Sequence[str] | None, tenant_names: Sequence[str]) -> tuple[Condition, ...]:
    """The conditions of ``--keep`` arguments; none where it is not given.

    Raises:
        GridError: One is no condition, or of an unknown figure or tenant, or of no share.
    """
    return read_conditions(keep, tenant_names) if keep else ()


def goals_of_run(report: Report, conditions: Iterable[Condition]) -> tuple[Goal, ...]:
    """What the run kept of each condition; of one that is not whole, nothing."""
    reason = _why_not_whole(report)
    found = []
    for one in conditions:
        figures = report.total if one.tenant is None else report.tenants.get(one.tenant)
        totals = Totals() if figures is None else figures.requests
        unknown = (
            "clients do not say which answers are right" if totals.unlabelled and one.metric == "goodput" else None
        )
        kept = _kept(one, totals.correct, totals.in_time)
        found.append(_goal(one, totals.arrivals, kept, reason or unknown, report.header.simulated))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a tenant is judged by.

    Attributes:
        conditions: Each is the tenant's; all are to be kept.
        by: ``keep``: ``--keep`` asked for it; ``floor``: its ``min_slo_attainment``, in each window; ``usual``: nobody.
        is_kept: By what was counted; ``None`` where that says nothing: no requests, or a void run.
    """

    conditions: tuple[Condition, ...]
    by: Literal["keep", "floor", "usual"]
    is_kept: bool | None


def judged(report: Report, conditions: Sequence[Condition]) -> dict[str, Judgement]:
    """By tenant, what it is judged by; those of which ``--keep`` says nothing are missing if it is given.

    A condition of all requests together is held against each tenant that has none of its own.
    """
    found = {}
    for tenant in report.header.tenants:
        own = tuple(one for one in conditions if one.tenant == tenant.name)
        own = own or tuple(replace(one, tenant=tenant.name) for one in conditions if one.tenant is None)
        if own or not conditions:
            found[tenant.name] = _judged(report, tenant, own)
    return found


def _judged(report: Report, tenant: Tenant, asked: tuple[Condition, ...]) -> Judgement:
    windows = [one.tenants[tenant.name].requests for one in report.windows if tenant.name in one.tenants]
    total, floor = sum(windows, Totals()), tenant.min_slo_attainment
    says_nothing = not total.arrivals or (report.live is not None and report.live.is_void)
    if asked:
        says_nothing |= bool(total.unlabelled) and any(one.metric == "goodput" for one in asked)
        return Judgement(asked, "keep", None if says_nothing else all(_keeps(one, total) for one in asked))
    share = USUAL if floor is None else floor.share
    one = Condition("slo_attainment", tenant.name, ">=", share)
    each = [total] if floor is None else [own for own in windows if own.arrivals]
    kept = None if says_nothing else all(_keeps(one, own) for own in each)
    return Judgement((one,), "usual" if floor is None else "floor", kept)


def _keeps(condition: Condition, totals: Totals) -> bool:
    return condition.spare(_kept(condition, totals.correct, totals.in_time) / totals.arrivals) >= -_EPS


def _why_not_whole(report: Report) -> str | None:
    if report.ending != "finished" and not report.header.service:
        return "the run was interrupted" if report.ending == "interrupted" else "the run has not ended"
    if report.live is not None and report.live.is_void:
        return f"the run is void: {report.live.void_because}"
    void = [window.window for window in report.windows if window.is_void]
    return f"void: window{'s' if len(void) > 1 else ''} {', '.join(map(str, void))}" if void else None


def goals_of_policy(scores: Sequence[MatchScore], conditions: Iterable[Condition]) -> tuple[Goal, ...]:
    """What the first policy kept of each condition, over all segments and workloads together."""
    own = [score for score in scores if score.policy == scores[0].policy]
    found = []
    for one in conditions:
        accounts = [each for score in own for name, each in score.accounts.items() if one.tenant in (None, name)]
        arrivals, correct, in_time = (
            round(sum(float(getattr(each, key).sum()) for each in accounts))
            for key in ("arrivals", "goodput", "in_time")
        )
        found.append(_goal(one, arrivals, _kept(one, correct, in_time), None, is_simulated=True))
    return tuple(found)


def _kept(condition: Condition, correct: int, in_time: int) -> int:
    return correct if condition.metric == "goodput" else in_time


def _goal(condition: Condition, requests: int, kept: int, reason: str | None, is_simulated: bool) -> Goal:
    whose = "" if condition.tenant is None else f" of {condition.tenant}"
    nothing = None if requests else f"no requests{whose} arrived"
    return Goal(condition, requests, kept / requests if requests else None, reason or nothing, is_simulated)


def require_kept(goals: Iterable[Goal]) -> None:
    """Raise unless all were kept; for the end of a command, when all else is written.

    Raises:
        MissedGoalError: Names those that were missed.
    """
    missed = [str(goal.condition) for goal in goals if not goal.is_kept]
    if missed:
        raise MissedGoalError(f"not kept: {', '.join(missed)}")
