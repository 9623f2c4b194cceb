"""What did not go as planned, from the log alone: refusals of the driver, deeds of others, and plans made anew.

What a run would have come to on a GPU that does what it is asked to is not in its log. What its windows' first plans
promised is. So the goodput of the windows in which something was refused is held against their plans, and that of the
other windows against theirs: plans are cautious, and forecasts err, without any refusal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from migrator.log import records
from migrator.log.runlog import ReadLog
from migrator.log.surprise import first_second


@dataclass(frozen=True, slots=True)
class Achieved:
    """What plans promised of some windows, and what came; over the seconds that the first plan of each covers.

    Attributes:
        windows: How many.
        promised_pct: Goodput by those plans, of the requests expected.
        achieved_pct: Goodput, of the requests that came.
    """

    windows: int
    promised_pct: float
    achieved_pct: float

    @property
    def lost_points(self) -> float:
        """Promised less achieved; negative where more came than was promised."""
        return self.promised_pct - self.achieved_pct

    def __str__(self) -> str:
        side = "less" if self.lost_points >= 0 else "more"
        return (
            f"goodput {self.achieved_pct:.1f} %, by their first plans {self.promised_pct:.1f} %: "
            f"{abs(self.lost_points):.1f} points {side}"
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """What did not go as asked for on a run's GPU.

    Attributes:
        calls: Driver calls,
        refused: and those of them that were refused.
        undone: What stayed undone, or would not go, in spite of all attempts.
        others: How often others were seen to have done something to the GPU.
        revised: How often a window's rest was planned anew,
        not_revised: and how often there was no plan for it.
        troubled: The windows in which anything of this happened; ``None`` where no plan promised anything.
        quiet: The other windows, likewise.
    """

    calls: int
    refused: int
    undone: int
    others: int
    revised: int
    not_revised: int
    troubled: Achieved | None
    quiet: Achieved | None


@dataclass(frozen=True, slots=True)
class BlindSpan:
    """Seconds of unknown GPU state.

    Attributes:
        from_s: The last moment of which it is known.
        to_s: When the driver listed instances again; ``None`` if it did not, or not yet.
        reason: What it said instead, or what was missing then.
    """

    from_s: float
    to_s: float | None
    reason: str

    def __str__(self) -> str:
        begin = f"{self.from_s:,.1f}"
        when = f"from second {begin} on" if self.to_s is None else f"second {begin} to {self.to_s:,.1f}"
        return f"{when}: {self.reason}"


def blind_in(log: ReadLog) -> tuple[BlindSpan, ...]:
    """The log's blind seconds, in order; the end of the last may be unknown."""
    found: list[BlindSpan] = []
    for seen in log.of(records.Blind):
        if found and found[-1].to_s is None and seen.to_s is not None:
            found.pop()  # its beginning was reported at once
        found.append(BlindSpan(seen.from_s, seen.to_s, seen.reason))
    return tuple(found)


def trouble_of(log: ReadLog) -> Trouble | None:
    """What the log tells of refusals and others' deeds; ``None`` if nothing."""
    outcomes, others = log.of(records.Outcome), log.of(records.Others)
    refused = [one for one in outcomes if one.error is not None]
    undone = [change for change in log.of(records.Change) if change.undone]
    if not (refused or undone or others):
        return None
    windows = {record.window for record in (*refused, *undone, *others)}
    settled = [(one, log.settled[one.window]) for one in log.of(records.WindowStarted) if one.window in log.settled]
    whole = [(started, closing) for started, closing in settled if not closing.blind]
    return Trouble(
        calls=len(outcomes),
        refused=len(refused),
        undone=sum(len(change.undone) for change in undone),
        others=len(others),
        revised=sum(revised.cause is None for revised in log.of(records.PlanRevised)),
        not_revised=len(log.of(records.NotRevised)),
        troubled=kept_in(log, [pair for pair in whole if pair[0].window in windows]),
        quiet=kept_in(log, [pair for pair in whole if pair[0].window not in windows]),
    )


def kept_in(log: ReadLog, windows: Iterable[tuple[records.WindowStarted, records.WindowFinished]]) -> Achieved | None:
    """What was achieved of these windows' first plans; each is its start and its end in the log.

    ``None`` where no plan promised anything, or nothing arrived.
    """
    n_windows, expected, promised, arrivals, goodput = 0, 0.0, 0.0, 0, 0
    for started, closing in windows:
        if not closing.is_labelled:
            continue
        own = {name: promise for name, promise in (started.expected or {}).items() if promise.goodput is not None}
        first = first_second(log.header, started)
        n_windows += bool(own)
        for name, promise in own.items():
            counts = closing.tenants[name]
            expected, promised = expected + promise.arrivals, promised + (promise.goodput or 0.0)
            arrivals, goodput = arrivals + sum(counts.arrivals[first:]), goodput + sum(counts.correct[first:])
    if expected <= 0 or not arrivals:
        return None
    return Achieved(n_windows, 100 * promised / expected, 100 * goodput / arrivals)


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
    changed = [entry for entry in log.entries_of(records.PlanRevised) if entry.record.cause is not None]
    kept = log.entries_of(records.PlanKept)
    took_s = [entry.wall.solve_s for entry in (*changed, *kept)]
    seconds = [solve_s for solve_s in took_s if solve_s is not None]
    return Replans(
        every_s=every_s,
        changed=dict(Counter(str(entry.record.cause) for entry in changed)),
        kept=dict(Counter(str(entry.record.cause) for entry in kept)),
        late=sum(entry.record.why is records.Kept.LATE for entry in kept),
        gain=sum(entry.record.gain or 0.0 for entry in changed),
        solve_s=median(seconds) if seconds else None,
    )
