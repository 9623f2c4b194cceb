"""How often the rest of a window was planned anew though its plan could be followed, why, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from migrator.log.records import Kept, PlanKept, PlanRevised
from migrator.log.runlog import ReadLog


@dataclass(frozen=True, slots=True)
class Replans:
    """Plans of the rest of a window, made beside one that was followed.

    Attributes:
        every_s: The pace that was asked for.
        changed: How often the new plan took the running one's place, by cause.
        kept: How often the running one went on, by cause.
        late: How often that was because the new plan was not there in time.
        gain: Expected goodput of the new plans that were taken over that of going on, in requests; where going on was
            possible.
        solve_s: Median wall seconds of a solve; ``None`` where none is known.
    """

    every_s: float
    changed: Mapping[str, int]
    kept: Mapping[str, int]
    late: int
    gain: float
    solve_s: float | None

    @property
    def total(self) -> int:
        """How often there was a wish for another plan."""
        return sum(self.changed.values()) + sum(self.kept.values())


def replans_of(log: ReadLog) -> Replans | None:
    """What the log tells of them; ``None`` where the run planned each window once."""
    every_s = log.header.replan_every_s
    if every_s is None:
        return None
    changed = [entry for entry in log.entries_of(PlanRevised) if entry.record.cause is not None]
    kept = log.entries_of(PlanKept)
    took_s = [entry.wall.solve_s for entry in (*changed, *kept)]
    seconds = [solve_s for solve_s in took_s if solve_s is not None]
    return Replans(
        every_s=every_s,
        changed=dict(Counter(str(entry.record.cause) for entry in changed)),
        kept=dict(Counter(str(entry.record.cause) for entry in kept)),
        late=sum(entry.record.why is Kept.LATE for entry in kept),
        gain=sum(entry.record.gain or 0.0 for entry in changed),
        solve_s=median(seconds) if seconds else None,
    )
