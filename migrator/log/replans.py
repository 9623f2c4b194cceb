"""How often the rest of a window was planned anew though its plan could be followed, why, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from migrator.log.runlog import ReadLog


class Kept(StrEnum):
    """Why the plan in force went on, though another was asked for."""

    BETTER = "the other plan was worth no more"
    LATE = "the other plan was not there in time"
    ALONE = "there was no other plan"
    OVERTAKEN = "something else happened"
    STRAYED = "the plan could not be followed"
    ENDED = "the window ended"


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
    every_s = log.header.get("replan_every_s")
    if every_s is None:
        return None
    changed = [event for event in log.of_kind("plan_revised") if "cause" in event]
    kept = log.of_kind("plan_kept")
    seconds = [event["wall"]["solve_s"] for event in (*changed, *kept) if "solve_s" in event.get("wall", {})]
    return Replans(
        every_s=every_s,
        changed=dict(Counter(event["cause"] for event in changed)),
        kept=dict(Counter(event["cause"] for event in kept)),
        late=sum(event["why"] == Kept.LATE for event in kept),
        gain=sum(event.get("gain") or 0.0 for event in changed),
        solve_s=median(seconds) if seconds else None,
    )
