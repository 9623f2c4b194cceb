"""A simulated run that was cut off, made to be carried out again: the plans that its log holds are not solved again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from msgspec import to_builtins

from migrator.log.records import Json, Kept, OfRest, Plan, PlanKept, WindowStarted
from migrator.log.runlog import EVENTS_FILE, ReadLog
from planner.errors import PlanFileError
from planner.files.plan_file import plan_of
from planner.plan import MigPlan
from planner.policies.policy import AnyPolicy, Knows, Policy, Traits, Window

Answers = Mapping[tuple[int, int], deque[Plan | None]]
"""Plans of a log by window and by how many steps they cover; several in the order in which they were made.

``None`` stands for the plan that was in force, where it went on.
"""


def replayed(stands: ReadLog, policy: AnyPolicy, *, is_own: bool = False) -> AnyPolicy:
    """The policy for a run that is carried out again into a :class:`~migrator.log.resumed.ResumedLog`.

    ``stands`` is the log so far. A policy of one's own (``is_own``) is asked again, since it may remember what it was
    asked. Its answers are then compared with the log; under a limit of seconds, where it may answer otherwise each
    time, the log's count.
    """
    if isinstance(policy, Policy) and not (is_own and stands.header.repeatable):
        return Replayed.of(policy, stands, asks=is_own)
    return policy


@dataclass(frozen=True)
class Replayed(Policy):
    """A policy with each answer in the log, and then its own.

    Attributes:
        policy: Whose they are.
        origin: Names the log in messages.
        answers: Those that were not given again yet.
        pools: By window, those that it was planned with.
        asks: Whether the policy is asked all the same, because it may remember what it was asked.
    """

    policy: Policy
    origin: str
    answers: Answers
    pools: Mapping[int, Sequence[tuple[str, ...]]]
    asks: bool = False

    @classmethod
    def of(cls, policy: Policy, log: ReadLog, *, asks: bool = False) -> Self:
        """``policy`` with the plans of ``log``, also those that broke a rule and were not carried out."""
        answers: defaultdict[tuple[int, int], deque[Plan | None]] = defaultdict(deque)
        told: dict[int, Json | None] = {}
        for entry in log.entries:
            record = entry.record
            if isinstance(record, WindowStarted | OfRest) and record.plan is not None:
                answer = (record.rejected_plan or record.plan).with_prices(told.get(record.window))
                told[record.window] = answer.certificate or told.get(record.window)
                answers[record.window, answer.n_steps].append(answer)
            elif isinstance(record, PlanKept) and record.why is not Kept.ALONE:  # that needs to be found out again
                answers[record.window, record.n_steps].append(None)
        pools = {started.window: [pool.members for pool in started.pools] for started in log.of(WindowStarted)}
        return cls(policy, str(log.folder / EVENTS_FILE), MappingProxyType(dict(answers)), pools, asks)

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def knows(self) -> Knows:
        """The policy's."""
        return self.policy.knows

    @property
    def traits(self) -> Traits:
        """The policy's."""
        return self.policy.traits

    @property
    def replans(self) -> bool:
        """The policy's."""
        return self.policy.replans

    @property
    def has_pools(self) -> bool:
        """The policy's."""
        return self.policy.has_pools

    def pools_in(self, window: int) -> Sequence[tuple[str, ...]] | None:
        """The log's, where it has the window; else the policy's."""
        return self.pools.get(window, self.policy.pools_in(window))

    @property
    def looks_ahead_s(self) -> float | None:
        """The policy's."""
        return self.policy.looks_ahead_s

    @property
    def needs_hindsight(self) -> bool:
        """The policy's."""
        return self.policy.needs_hindsight

    def prepared(self, run: Sequence[Any]) -> Self:
        """The same of the policy as it is when it has seen the run."""
        return replace(self, policy=self.policy.prepared(run))

    def plan(self, window: Window) -> MigPlan:
        """The log's plan of this window, or of its rest; the policy's where the log has none that answers it."""
        recorded = self._recorded(window)
        if recorded is not None and not self.asks:
            return recorded
        made = self.policy.plan(window)
        return made if recorded is None else recorded

    def _recorded(self, window: Window) -> MigPlan | None:
        waiting = self.answers.get((window.number, window.problem.n_steps))
        if not waiting:
            return None
        try:
            recorded = waiting.popleft()
            if recorded is None:
                return window.running
            return plan_of({**to_builtins(recorded), "solve_s": 0.0}, window.problem, self.origin)
        except PlanFileError:
            return None  # it answers another problem; what this one yields differs from the log, which is reported
