"""The benchmark's table: a Markdown row for each case, with the targets that it misses."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.speed.best_known import BestKnown
from benchmarks.speed.cases import Case, Target
from planner.plan import Status

HEADER = (
    "| case | engine | tenants × steps | problems | time s, median / worst | value %, median / worst "
    "| bound %, median | gap %, median / worst | proven | MiB | asked |"
)


@dataclass(frozen=True, slots=True)
class Result:
    """One solve.

    Attributes:
        label: The problem's.
        fingerprint: The problem's.
        seconds: Wall seconds.
        status: The plan's.
        objective: Goodput in requests; ``None`` without a plan.
        bound: The plan's.
        gap: The plan's.
        violations: What the checker found.
        peak_mib: Most memory that the process has held so far.
    """

    label: str
    fingerprint: str
    seconds: float
    status: str
    objective: float | None
    bound: float | None
    gap: float | None
    violations: tuple[str, ...]
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Reference:
    """The case that another one on the same problems is compared with."""

    name: str
    results: Sequence[Result]


def row(case: Case, found: Sequence[Result], known: Mapping[str, BestKnown], reference: Reference | None = None) -> str:
    """The table's row for a case: what was measured, and which targets are missed.

    A case of which nothing is asked has its time as a multiple of the ``reference``'s instead.
    """
    planned = [result for result in found if result.objective is not None and result.gap is not None]
    seconds = [result.seconds for result in found]
    gaps = [result.gap for result in planned if result.gap is not None]
    values, bounds = _shares(planned, known)
    n_proven = sum(result.status == Status.OPTIMAL for result in found)
    peak_mib = max((result.peak_mib for result in found), default=0.0)
    cells = [
        case.name,
        case.engine,
        f"{case.n_tenants} × {case.n_steps}",
        f"{len(planned)}/{len(found)}" if len(planned) < len(found) else str(len(found)),
        _pair(seconds, max, 1, 2),
        _pair(values, min, 100, 2),
        f"{100 * statistics.median(bounds):.2f}" if bounds else "–",
        _pair(gaps, max, 100, 3),
        f"{n_proven}/{len(found)}",
        f"{peak_mib:.0f}",
        _verdict(case.target, found, values) or _multiple(found, reference),
    ]
    return "| " + " | ".join(cells) + " |"


def _shares(planned: Sequence[Result], known: Mapping[str, BestKnown]) -> tuple[list[float], list[float]]:
    """Objectives and bounds over the best known values, of the problems for which there is one."""
    values, bounds = [], []
    for result in planned:
        best = known.get(result.label)
        if best is not None and best.problem == result.fingerprint and result.objective and result.bound:
            values.append(result.objective / best.value)
            bounds.append(result.bound / best.value)
    return values, bounds


def _pair(values: Sequence[float], worst: Callable[[Sequence[float]], float], factor: float, digits: int) -> str:
    """Median and worst, times ``factor``."""
    if not values:
        return "–"
    return f"{factor * statistics.median(values):.{digits}f} / {factor * worst(values):.{digits}f}"


def _multiple(found: Sequence[Result], reference: Reference | None) -> str:
    """The time of the results as a multiple of the reference's on the same problems."""
    if reference is None:
        return "–"
    seconds = {result.label: result.seconds for result in reference.results}
    ratios = [result.seconds / seconds[result.label] for result in found if result.label in seconds]
    return f"{statistics.median(ratios):.0f} × the time of {reference.name}" if ratios else "–"


def _verdict(target: Target, found: Sequence[Result], values: Sequence[float]) -> str:
    missed = [*_missed(target, found, values)]
    n_broken = sum(bool(result.violations) for result in found)
    if n_broken:
        missed.append(f"{n_broken} plans break rules")
    if missed:
        return f"{target}; missed: {', '.join(missed)}".removeprefix("; ")
    return f"{target}; met" if str(target) else ""


def _missed(target: Target, found: Sequence[Result], values: Sequence[float]) -> Iterator[str]:
    """What is asked and not kept; a problem without a plan has the gap 1 and the value 0."""
    seconds = [result.seconds for result in found]
    gaps = [1.0 if result.gap is None else result.gap for result in found]
    n_without = sum(result.objective is None for result in found)
    limits = (
        ("median s", target.median_s, statistics.median(seconds)),
        ("worst s", target.worst_s, max(seconds)),
        ("median gap", target.median_gap, statistics.median(gaps)),
        ("worst gap", target.worst_gap, max(gaps)),
        ("MiB", target.most_mib, max(result.peak_mib for result in found)),
    )
    yield from (name for name, limit, figure in limits if limit is not None and figure > limit)
    if target.least_value is not None and (n_without or min(values, default=1.0) < target.least_value):
        yield "value"
    if target.is_proven and any(result.status != Status.OPTIMAL for result in found):
        yield "proof"
