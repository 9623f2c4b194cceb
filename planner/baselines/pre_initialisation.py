"""Pre-initialisation as the paper does it, after planning; and how much of all warm-up is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from planner.baselines.realised import Held, Occupied, busy_in
from planner.engines.held_sets import Entries
from planner.engines.physical_schedule import Terms
from planner.plan import Lifetime, MigPlan
from planner.problem import Problem


def pre_initialised(terms: Terms, held: Held, occupied: Occupied) -> Held:
    """The same held sets, with new instances created Ω before their epoch where slices are idle for so long.

    An epoch is added Ω before one whose new instances, all or the most capable part of them, fit beside what is held
    and what retrains from then on, if that is at least Ω after the epoch before. It only adds. From every old epoch on
    the same is held as before, and it serves no later, so that no step earns less (gain tables are monotone).
    """
    out, allowed = list(held[:1]), 1 if terms.is_free else terms.first_step
    for step, entries in held[1:]:
        ahead, before = step - terms.epoch_steps, out[-1][1]
        extra = _on_idle_slices(terms, occupied, before, entries - before, ahead) if ahead >= allowed else frozenset()
        if extra:
            out.append((ahead, before | extra))
        if entries != out[-1][1]:
            out.append((step, entries))
        allowed = step + terms.epoch_steps
    return tuple(out)


def _on_idle_slices(terms: Terms, occupied: Occupied, held: Entries, new: Entries, ahead: int) -> Entries:
    """The most capable part of ``new`` that fits beside what is held and retrains in the Ω steps from ``ahead`` on."""
    ordered = sorted(new, key=lambda entry: (*entry[0].sort_key, entry[1]))
    parts = [frozenset(part) for n in range(len(ordered), 0, -1) for part in combinations(ordered, n)]
    moments = busy_in(occupied, ahead, ahead + terms.epoch_steps)

    def fits(part: Entries) -> bool:
        places = [place for place, _ in (*held, *part)]
        return all(terms.problem.gpu.fits((*places, *busy)) for busy in moments)

    def capability_rps(part: Entries) -> float:
        return sum(terms.problem.tenants[m].capability_rps[place.profile.name] for place, m in part)

    return max(filter(fits, parts), key=capability_rps, default=frozenset())


@dataclass(frozen=True, slots=True)
class WarmUps:
    """Steps between creation and service of the inference instances that a plan starts, added up over instances.

    Attributes:
        hidden_steps: Of instances created at a step at which no instance ended, a retraining's included: their slices
            had been idle, and everybody went on with all that it had.
        exposed_steps: Of all others.
    """

    hidden_steps: int = 0
    exposed_steps: int = 0

    def __add__(self, other: WarmUps) -> WarmUps:
        """Those of both."""
        return WarmUps(self.hidden_steps + other.hidden_steps, self.exposed_steps + other.exposed_steps)

    @property
    def steps(self) -> int:
        """All of them."""
        return self.hidden_steps + self.exposed_steps

    @property
    def hidden_share(self) -> float:
        """Hidden steps of all; 0 where nothing warmed up."""
        return self.hidden_steps / self.steps if self.steps else 0.0


def warm_ups(plan: MigPlan, before: MigPlan | None = None, tenant: str | None = None) -> WarmUps:
    """The warm-ups of a ``physical`` plan: up to service, or to the instance's end if that comes first.

    A warm-up that goes on in the next window counts here up to that window's start, and no further there.

    Args:
        plan: What was in force.
        before: The same for the window before, which says what was held at step 0; ``None`` stands for nothing.
        tenant: Count only this tenant's instances.
    """
    old = {} if before is None else _held_at_end(before)
    inference = [item for item in plan.lifetimes if item.is_inference and item.create_step < item.end_step]
    continued = {_who(item) for item in inference if item.create_step == 0} & old.keys()
    ends = {item.end_step for item in plan.lifetimes}
    if before is not None and (old.keys() - continued or any(_ends_with(before, item) for item in before.lifetimes)):
        ends.add(0)
    total = WarmUps()
    for item in inference:
        is_started = item.create_step > 0 or _who(item) not in continued
        if is_started and tenant in (None, item.owner.tenant):
            steps = min(item.serve_step, item.end_step) - item.create_step
            total += WarmUps(0, steps) if item.create_step in ends else WarmUps(steps, 0)
    return total


def hidden_share(plan: MigPlan, before: MigPlan | None = None) -> float:
    """The share of reconfiguration overhead that is hidden.

    Of all the time that started inference instances spend between creation and service, it is the share of those
    instances that were created at a step at which no instance, of inference or retraining, ended.
    """
    return warm_ups(plan, before).hidden_share


def fed_back_overhead_s(problem: Problem, plans: Sequence[MigPlan]) -> tuple[float, ...]:
    """Ψ by tenant: ``overhead_s`` times the exposed share of warm-up in the last window that started an instance of it.

    The whole ``overhead_s`` where no window has.
    """
    return tuple(tenant.overhead_s * _last_exposed_share(tenant.name, plans) for tenant in problem.tenants)


def _last_exposed_share(tenant: str, plans: Sequence[MigPlan]) -> float:
    for before, plan in reversed(list(zip((None, *plans), plans, strict=False))):
        found = warm_ups(plan, before, tenant)
        if found.steps:
            return 1.0 - found.hidden_share
    return 1.0


def _ends_with(plan: MigPlan, item: Lifetime) -> bool:
    """Whether it is a retraining that leaves its slices at the end of the window."""
    return not item.is_inference and item.end_step >= plan.n_steps


def _who(item: Lifetime) -> tuple[object, str]:
    return item.placement, item.owner.tenant


def _held_at_end(plan: MigPlan) -> dict[tuple[object, str], Lifetime]:
    return {_who(item): item for item in plan.lifetimes if item.is_inference and item.end_step >= plan.n_steps}
