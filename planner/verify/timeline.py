"""Step by step what each tenant holds; the rules and the objective that follow from that in both models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from executor.mig import Profile
from planner.errors import ProblemError
from planner.problem import Problem, TenantTerms
from planner.verify.findings import Rule, Violation


@dataclass(frozen=True, slots=True)
class Timeline:
    """One tenant step by step; every list has ``n_steps`` entries.

    Attributes:
        held: Names of the profiles that inference holds, sorted.
        served: Names of those that serve, sorted; in ``paper`` all that are held.
        changed: R[m, s] of the ``paper`` model; all False in ``physical``.
        level: Accuracy level, an index into ``TenantTerms.accuracies``.
    """

    held: list[tuple[str, ...]]
    served: list[tuple[str, ...]]
    changed: list[bool]
    level: list[int]


def run_starts(broken: Sequence[bool]) -> list[int]:
    """Steps at which a run of broken steps begins."""
    return [s for s, now in enumerate(broken) if now and (s == 0 or not broken[s - 1])]


def training_steps(problem: Problem, tenant: TenantTerms, option_name: str | None, profile_name: str) -> int | None:
    """Steps d of rule 3; ``None`` if the tenant has no such option, or the option may not run on the profile."""
    times = {option.name: option.time_s for option in tenant.options}
    time_s = times.get(option_name or "", {}).get(profile_name)
    return None if time_s is None else steps_for(time_s, problem.step_s)


def steps_for(duration_s: float, step_s: float) -> int:
    """max(1, ⌈duration/step − 1e-9⌉), as rule 3 and the warm-ups have it."""
    return max(1, math.ceil(duration_s / step_s - 1e-9))


def level_of(tenant: TenantTerms, option_name: str | None) -> int:
    """The accuracy level that the option leads to; 0 for an option that the tenant does not offer."""
    names = [option.name for option in tenant.options]
    return 1 + names.index(option_name) if option_name in names else 0


def retraining_violation(tenant: TenantTerms, start_step: int | None, message: str) -> Violation:
    """A breach of rule 3 by the tenant."""
    return Violation(Rule.RETRAINING, tenant.name, start_step, message)


def holding_violations(problem: Problem, tenant: TenantTerms, timeline: Timeline) -> Iterator[Violation]:
    """Breaches of rule 2 (which profiles may serve) and rule 4 (one instance is large enough)."""
    for name in sorted({name for names in timeline.held for name in names} - set(tenant.capability_rps)):
        first = next(s for s, names in enumerate(timeline.held) if name in names)
        message = f"inference holds {name}; capability_rps allows {', '.join(tenant.capability_rps)}"
        yield Violation(Rule.PROFILE, tenant.name, first, message)
    least = problem.gpu.profile(tenant.min_profile)
    large = {profile.name for profile in problem.gpu.profiles if _is_as_large(profile, least)}
    for step in run_starts([not large.intersection(names) for names in timeline.held]):
        held = ", ".join(timeline.held[step]) or "nothing"
        message = f"inference holds {held}: no instance is as large as min_profile {least.name}"
        yield Violation(Rule.MIN_PROFILE, tenant.name, step, message)


def _is_as_large(profile: Profile, least: Profile) -> bool:
    return profile.compute_slices >= least.compute_slices and profile.memory_slices >= least.memory_slices


def objective_of(problem: Problem, timelines: Sequence[Timeline]) -> float | None:
    """Rule 5: the sum of all tenants' goodput in requests; ``None`` when some of it is undefined.

    Raises:
        ProblemError: ``problem.gains`` lacks the table of changed steps that a ``paper`` problem needs.
    """
    total = math.fsum(
        _goodput(problem, m, s, timeline) for m, timeline in enumerate(timelines) for s in range(problem.n_steps)
    )
    return None if math.isnan(total) else total


def _goodput(problem: Problem, m: int, s: int, timeline: Timeline) -> float:
    """Goodput (weight · accuracy · throughput) of tenant m in step s, in requests; NaN when it is undefined."""
    tenant, names, changed = problem.tenants[m], timeline.served[s], timeline.changed[s]
    if problem.gains is not None:
        return _tabled_goodput(problem, m, s, timeline)
    if not set(names) <= set(tenant.capability_rps):
        return math.nan
    arrivals = float(tenant.arrivals_rps[s]) * problem.step_s
    capacity = problem.step_s * sum(tenant.capability_rps[name] for name in names)
    # The N instances change one after the other, and each is away for Ψ seconds: Ψ/step/N of the capacity.
    lost = tenant.overhead_s / problem.step_s / len(names) * capacity if changed and names else 0.0
    return tenant.weight * tenant.accuracies[timeline.level[s]] * min(arrivals, capacity - lost)


def _tabled_goodput(problem: Problem, m: int, s: int, timeline: Timeline) -> float:
    assert problem.gains is not None
    table = problem.gains[m]
    rows = table.changed if timeline.changed[s] else table.steady
    if rows is None:
        raise ProblemError(f"gains of {problem.tenants[m].name}: a paper problem needs the table `changed`")
    counts = tuple(timeline.served[s].count(name) for name in problem.profile_names)
    column = table.column.get(counts)
    return math.nan if column is None else float(rows[timeline.level[s], s, column])
