"""How a plan is followed and given up: its changes one after the other, and the plan that is to take its place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from migrator.execution.changes import NEVER_S, Change, ChangeOutcome
from migrator.execution.happenings import Asked
from migrator.execution.windows import Replan
from migrator.log.slow_plans import LATE_S
from planner.errors import PlannerError

LATE_ANSWER_S = 0.1
"""How often a plan that there must be, and that is late, is looked for."""

AGAIN_S = 10.0
"""Seconds after which a plan is asked for again, where the plan in force cannot be followed and there was none."""


class Schedule:
    """The changes of the plan in force that are still to be made, and when the next one may begin.

    What follows a change that was held up keeps its distance to it, up to the least one between changes of the held
    set.

    Attributes:
        plan_s: When the plan's step 0 is.
        held_up: The last change, if it began late; ``None`` if it was in time.
        changed_in: The window in which the last change began,
        changed_s: and when.
    """

    def __init__(self, *, runs_by_itself: bool) -> None:
        """A clock that ``runs_by_itself`` is never exactly in time."""
        self.plan_s = 0.0
        self.held_up: ChangeOutcome | None = None
        self.changed_in, self.changed_s = 0, -NEVER_S
        self._due: deque[Change] = deque()
        self._free_s = -NEVER_S
        self._is_late = False
        self._epoch_s = 0.0
        self._slack_s = LATE_S if runs_by_itself else 0.0

    @property
    def next(self) -> Change | None:
        """The next change."""
        return self._due[0] if self._due else None

    @property
    def due_s(self) -> float:
        """When the next change may begin, if nothing else holds it up; never without one."""
        if not self._due:
            return NEVER_S
        if self.held_up is None:
            return self._free_s
        distance_s = min(self._due[0].planned_s - self.held_up.planned_s, self._epoch_s)
        return max(self._free_s, self.held_up.begin_s + distance_s)

    def follow(self, changes: Iterable[Change], plan_s: float, epoch_s: float, now_s: float) -> None:
        """From now on make these changes; ``epoch_s`` is the least distance between changes of the held set."""
        self._due, self.plan_s, self._epoch_s, self.held_up = deque(changes), plan_s, epoch_s, None
        self._look_ahead(now_s)

    def revise(self, revised: Callable[[Change], Change]) -> None:
        """Each change that is still to be made is another from now on, at the same time."""
        self._due = deque(map(revised, self._due))

    def put_first(self, change: Change, now_s: float) -> None:
        """Make this change before all others."""
        self._due.appendleft(change)
        self._look_ahead(now_s)

    def begin(self, window: int, now_s: float) -> Change:
        """The next change, which begins now."""
        self._is_late = now_s > self._free_s + self._slack_s
        self.changed_in, self.changed_s = window, now_s
        return self._due.popleft()

    def end(self, outcome: ChangeOutcome, now_s: float) -> None:
        """The change that began last is over."""
        self.held_up = outcome if self._is_late else None
        self._look_ahead(now_s)

    def bring_forward(self, now_s: float) -> None:
        """Let the next change begin now, or as soon as its distance to the one before and its plan allow.

        Where the plan has it much later than now, it stays there.
        """
        if now_s < self._free_s <= now_s + self._epoch_s:
            self._free_s = min(self._free_s, max(now_s, self.plan_s, self.changed_s + self._epoch_s))

    def _look_ahead(self, now_s: float) -> None:
        """From when on the next change is late, if it does not begin: it is due and the driver is free."""
        self._free_s = max(self._due[0].planned_s, now_s) if self._due else -NEVER_S


@dataclass(frozen=True, eq=False)
class RestRequest:
    """A plan of the rest of a window that is being made, while the one in force is followed where it can be.

    Attributes:
        asked: What for.
        asked_s: When that was.
        n_steps: Of the rest.
        from_s: From when on it counts; it should be there then.
        answer: The plan, or why there is none.
    """

    asked: Asked
    asked_s: float
    n_steps: int
    from_s: float
    answer: Future[Replan | PlannerError]


class Following:
    """Whether the plan in force is followed, strayed from, or about to be replaced.

    Attributes:
        reasons: Why it cannot be followed, or need not be, any more; empty while it can.
        request: The plan of the window's rest that is being made, if one is.
        is_as_planned: Whether the GPU has been as the plan in force has it.
    """

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = ()
        self.request: RestRequest | None = None
        self.is_as_planned = True
        self._again_s = -NEVER_S
        self._last: RestRequest | None = None

    @property
    def is_out_of_force(self) -> bool:
        """Whether a plan is being made that must take the place of the one in force: nothing of that is done then."""
        return self.request is not None and self.request.asked.must

    @property
    def is_answering(self) -> bool:
        """Whether a plan is still being made, though perhaps nobody waits for it any more."""
        return self._last is not None and not self._last.answer.done()

    def why(self, now_s: float) -> Asked | None:
        """Why there must be another plan now; ``None`` if there need not be, or one is being made."""
        if not self.reasons or self.is_out_of_force or now_s < self._again_s:
            return None
        return Asked("; ".join(self.reasons))

    def looks_s(self, now_s: float) -> float:
        """When to look for the plan that is being made; never where none is."""
        if self.request is None:
            return NEVER_S
        return max(self.request.from_s, now_s + LATE_ANSWER_S) if self.is_out_of_force else self.request.from_s

    def stray(self, reason: str) -> None:
        """From now on the GPU is not as the plan has it."""
        self.is_as_planned, self.reasons, self._again_s = False, (*self.reasons, reason), -NEVER_S

    def follow(self) -> None:
        """A plan is in force from now on that can be followed."""
        self.reasons = ()

    def ask(self, request: RestRequest) -> None:
        """A plan is being made; for what there must be, all reasons have been named."""
        self.request = self._last = request
        if request.asked.must:
            self.reasons = ()

    def take(self) -> RestRequest | None:
        """The request, which nothing waits for from now on."""
        request, self.request = self.request, None
        return request

    def replaced(self, newer: tuple[str, ...]) -> None:
        """The plan that there must be is in force; ``newer`` reasons came while it was made."""
        self.is_as_planned, self.reasons = True, newer

    def unanswered(self, asked: Asked, newer: tuple[str, ...], now_s: float) -> None:
        """There is no plan where there must be one: it is asked for again later."""
        self.reasons, self._again_s = (asked.reason, *newer), now_s + AGAIN_S
