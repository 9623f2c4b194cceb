"""What a search may spend: work, which is the same on every machine, time, and threads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from executor.compiled import working_s
from planner.budget import Budget

DEFAULT_WORK = 20_000
"""Units for a window of 200 steps when a budget names neither work nor time; longer windows get fewer, in proportion.

That is half a minute at most. Two tenants seldom take a tenth of it.
"""

_MOST_THREADS = 8
"""Beyond this the longest table or schedule sets the pace."""

N_THREADS = max(
    1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
)
"""Threads that work side by side in compiled code, which holds no lock. What engines find does not depend on it."""


@dataclass
class Meter:
    """What has been spent of a budget.

    Attributes:
        limit: Units of work; ``None`` for no limit.
        deadline_s: ``executor.compiled.working_s`` at which to stop; ``None`` for no limit.
        n_counted: Schedules valued on counts.
        n_placed: Placed schedules valued on placements.
        spent: Units of work.
    """

    limit: int | None
    deadline_s: float | None
    n_counted: int = 0
    n_placed: int = 0
    spent: int = 0
    _reserved_s: float = 0.0

    @classmethod
    def of(cls, budget: Budget, n_steps: int, begin_s: float) -> Meter:
        """A meter for ``budget`` and a window of ``n_steps``, started at ``begin_s``."""
        limit = budget.max_nodes
        if limit is None and budget.time_limit_s is None:
            limit = DEFAULT_WORK * 200 // max(n_steps, 200)
        deadline_s = None if budget.time_limit_s is None else begin_s + budget.time_limit_s
        return cls(limit, deadline_s)

    @property
    def is_spent(self) -> bool:
        """Whether to stop."""
        return self.left <= 0 or self.is_late()

    @property
    def left(self) -> float:
        """Units of work that are left, ∞ without a limit."""
        return math.inf if self.limit is None else max(0, self.limit - self.spent)

    def is_late(self) -> bool:
        """Whether time is up."""
        return self.deadline_s is not None and self.left_s <= 0.0

    @contextmanager
    def share(self, of_work: float, of_time: float) -> Iterator[None]:
        """In here there is no more than these shares of the work and of the time that are left."""
        limit, final_s = self.limit, self.deadline_s
        if limit is not None:
            self.limit = self.spent + int(of_work * self.left)
        if final_s is not None:
            self.deadline_s = final_s - (1.0 - of_time) * self.left_s
        yield
        self.limit, self.deadline_s = limit, final_s

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, less those that are reserved; ∞ without one."""
        return math.inf if self.deadline_s is None else max(0.0, self.deadline_s - self._reserved_s - working_s())

    def reserve(self, duration_s: float) -> None:
        """Keep at least so long before the deadline for what is done in the end."""
        self._reserved_s = max(self._reserved_s, duration_s)
