"""Pre-initialisation as the paper does it, after planning; and how much of all warm-up is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from executor.mig import Placement
from planner.course import in_order
from planner.engines.physical.held_sets import Entries, Held
from planner.engines.physical.plan import lifetimes, objective
from planner.engines.schedule import PlacedSchedule, WindowFacts
from planner.plan import Lifetime, MigPlan
from planner.policies.paper.realised import busy_in
from planner.problem import Problem


def pre_initialised(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> Held:
    """The same held sets, with new instances created early on idle slices while all that serves goes on.

    The new instances of an epoch, or the most capable part of them that has room, are created

    - Ω before the epoch, where they fit beside what is held and what retrains from then on, and where that is at least
      Ω after the epoch before. From the epoch on the same is held, and it serves no later, so no step earns less
      (gain tables are monotone);
    - otherwise at the epoch, where they fit beside what was held before it, mostly because a retraining has just ended.
      What they replace goes on, and the rest of the epoch follows Ω later. This is done where it is worth more by
      min(a, C) than the whole epoch at once, and where it delays no other epoch.
    """
    simple = simple_facts(facts.problem)
    out: Held = held[:1]
    allowed = 1 if facts.is_free else facts.first_step
    ends = [*(step for step, _ in held[1:]), facts.n_steps][1:]
    for (step, entries), end in zip(held[1:], ends, strict=True):
        ahead = _ahead(facts, placed, out[-1][1], step, entries) if step - facts.epoch_steps >= allowed else ()
        ways = [ahead or ((step, entries),)]
        if not ahead and step + 2 * facts.epoch_steps <= end:
            ways += _in_two(facts, placed, out[-1][1], step, entries)
        out = max(((*out, *way) for way in ways), key=lambda one: served(simple, one, placed))
        allowed = out[-1][0] + facts.epoch_steps
    return out


def simple_facts(problem: Problem) -> WindowFacts:
    """The problem's facts with the paper's gains, min(a, C) at the expected arrivals."""
    return WindowFacts.of(replace(problem, gains=None))


def served(facts: WindowFacts, held: Held, placed: PlacedSchedule[Placement]) -> float:
    """What these are worth by the gain tables of ``facts``, the last held set to the window's end."""
    return objective(facts, lifetimes(facts, held, placed))


def _ahead(facts: WindowFacts, placed: PlacedSchedule[Placement], before: Entries, step: int, entries: Entries) -> Held:
    """The epoch with those of its instances that have room created Ω before; empty where none has."""
    ahead = step - facts.epoch_steps
    extra = _on_idle_slices(facts, placed, before, entries - before, ahead)
    if not extra:
        return ()
    first = (ahead, before | extra)
    return (first,) if entries == first[1] else (first, (step, entries))


def _in_two(
    facts: WindowFacts, placed: PlacedSchedule[Placement], before: Entries, step: int, entries: Entries
) -> list[Held]:
    """The epoch, if it drops something, with those of its instances that have room at once, and the rest Ω later."""
    extra = _on_idle_slices(facts, placed, before, entries - before, step) if before - entries else frozenset()
    return [((step, before | extra), (step + facts.epoch_steps, entries))] if extra else []


def _on_idle_slices(
    facts: WindowFacts, placed: PlacedSchedule[Placement], held: Entries, new: Entries, ahead: int
) -> Entries:
    """The most capable part of ``new`` that fits beside what is held and retrains in the Ω steps from ``ahead`` on."""
    parts = [frozenset(part) for n in range(len(new), 0, -1) for part in combinations(in_order(new), n)]
    moments, until = busy_in(placed, ahead, ahead + facts.epoch_steps), ahead + facts.epoch_steps

    def fits(part: Entries) -> bool:
        places = [place for place, _ in (*held, *part)]
        are_ours = all(facts.problem.is_ours(place, ahead, until) for place in places)
        return are_ours and all(facts.problem.gpu.fits((*places, *busy)) for busy in moments)

    def capability_rps(part: Entries) -> float:
        return sum(facts.problem.tenants[m].capability_rps[place.profile.name] for place, m in part)

    return max(filter(fits, parts), key=capability_rps, default=frozenset())


@dataclass(frozen=True, slots=True)
class StartSteps:
    """Steps between creation and service of the inference instances that a plan starts, added up over instances.

    Attributes:
        idle_steps: Instances created on slices that had been idle; no instance ended at that step.
        left_steps: Instances created where a retraining has just ended; no inference instance was given up.
        exposed_steps: All others; an inference instance was given up at that step.
    """

    idle_steps: int = 0
    left_steps: int = 0
    exposed_steps: int = 0

    def __add__(self, other: StartSteps) -> StartSteps:
        """The sums of both."""
        return StartSteps(
            self.idle_steps + other.idle_steps,
            self.left_steps + other.left_steps,
            self.exposed_steps + other.exposed_steps,
        )

    @property
    def steps(self) -> int:
        """All of them."""
        return self.idle_steps + self.left_steps + self.exposed_steps


def warm_ups(plan: MigPlan, before: MigPlan | None = None, tenant: str | None = None) -> StartSteps:
    """The warm-ups of a ``physical`` plan: up to service, or to the instance's end if that comes first.

    A warm-up that goes on in the next window counts here up to that window's start, and not at all there.

    Args:
        plan: What was in force.
        before: The same for the window before, which says what was held at step 0; ``None`` stands for nothing.
        tenant: Count only this tenant's instances.
    """
    old = set() if before is None else _held_at_end(before)
    inference = [item for item in plan.lifetimes if item.is_inference and item.create_step < item.end_step]
    continued = {_who(item) for item in inference if item.create_step == 0} & old
    given_up = {item.end_step for item in plan.lifetimes if item.is_inference}
    left = {item.end_step for item in plan.lifetimes if not item.is_inference}
    if old - continued:
        given_up.add(0)
    if before is not None and any(run.end_step >= before.n_steps for run in before.lifetimes if not run.is_inference):
        left.add(0)
    total = StartSteps()
    for item in inference:
        is_started = item.create_step > 0 or _who(item) not in continued
        if is_started and tenant in (None, item.owner.tenant):
            steps, at = min(item.serve_step, item.end_step) - item.create_step, item.create_step
            if at in given_up:
                total += StartSteps(exposed_steps=steps)
            else:
                total += StartSteps(left_steps=steps) if at in left else StartSteps(idle_steps=steps)
    return total


def fed_back_overhead_s(problem: Problem, plans: Sequence[MigPlan]) -> tuple[float, ...]:
    """Ψ by tenant: ``overhead_s`` less the share of warm-up on idle slices in the last window that had warm-up.

    It is the whole ``overhead_s`` where no window had. What a retraining leaves is free only once, so it lowers no Ψ.
    """
    return tuple(tenant.overhead_s * (1.0 - _last_idle_share(tenant.name, plans)) for tenant in problem.tenants)


def _last_idle_share(tenant: str, plans: Sequence[MigPlan]) -> float:
    for before, plan in reversed(list(zip((None, *plans), plans, strict=False))):
        found = warm_ups(plan, before, tenant)
        if found.steps:
            return found.idle_steps / found.steps
    return 0.0


def _who(item: Lifetime) -> tuple[object, str]:
    return item.placement, item.owner.tenant


def _held_at_end(plan: MigPlan) -> set[tuple[object, str]]:
    return {_who(item) for item in plan.lifetimes if item.is_inference and item.end_step >= plan.n_steps}
