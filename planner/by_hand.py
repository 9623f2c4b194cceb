"""A plan from lifetimes that were decided elsewhere: what they are worth, and all else that a plan says of itself.

Saved as ``by_hand.py``, this is a policy for ``migrator run quickstart.yaml --policy by_hand.py``::

    # Holds a large instance for one tenant and a small one for the other; a third place retrains both, then serves.

    from dataclasses import dataclass

    from planner.by_hand import inference, plan_of, retraining
    from planner.plan import MigPlan
    from planner.policies.policy import Knows, Policy, Window


    @dataclass(frozen=True)
    class ByHand(Policy):
        name: str = "by-hand"
        knows: Knows = Knows.FORECAST

        def plan(self, window: Window) -> MigPlan:
            problem = window.problem  # steps, tenants, their arrivals, capabilities and retrainings, what is held now
            vision, language = problem.tenants
            large, small, spare = map(
                problem.gpu.placement, ("3g.40gb@4", "2g.20gb@0", "2g.20gb@2")
            )  # profile@memory slice
            lifetimes = [inference(problem, vision, large), inference(problem, language, small)]

            # The window before has left the spare place to language: take it back as soon as the held set may change.
            step = 0
            state = problem.physical_initial  # None in window 0, whose first layout is free
            if state is not None and (spare, language.name) in [(item.placement, item.tenant) for item in state.held]:
                step = state.next_epoch_step
                if step > 0:
                    lifetimes.append(inference(problem, language, spare, 0, step))

            # Both retrain there, one after the other; their start and end are no changes of the held set.
            for tenant in problem.tenants:
                if tenant.options:  # none in a window without a retraining
                    lifetimes.append(retraining(problem, tenant, spare, step))
                    step = lifetimes[-1].end_step

            # Then language serves from it as well: an epoch, at least Ω steps after the one before.
            step = max(step, problem.epoch_steps if state is None else state.next_epoch_step + problem.epoch_steps)
            if step < problem.n_steps:
                lifetimes.append(inference(problem, language, spare, step))
            return plan_of(problem, lifetimes, self.name)


    POLICY = ByHand
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from executor.mig import Placement
from planner.errors import ProblemError
from planner.plan import Lifetime, MigPlan, with_plan
from planner.problem import Owner, Problem, Task, TenantTerms
from planner.verify.holdings import objective_of


def inference(
    problem: Problem, tenant: TenantTerms, placement: Placement, create_step: int = 0, end_step: int | None = None
) -> Lifetime:
    """An instance that the tenant's inference, or its pool's, holds from ``create_step``, by default to the end.

    It serves when it is warm: at once where the first layout is free, from when it was promised where it is there
    already, else Ω[m] steps after its creation.
    """
    owner = problem.owner(problem.holder_of[problem.tenant_names.index(tenant.name)])
    serve_step = create_step + problem.warm_up_steps(tenant)
    if create_step == 0:
        kept = problem.kept_at_start.get((placement, owner))
        serve_step = kept.serve_step if kept is not None else serve_step if problem.initial else 0
    return Lifetime(placement, owner, create_step, serve_step, problem.n_steps if end_step is None else end_step)


def retraining(
    problem: Problem, tenant: TenantTerms, placement: Placement, create_step: int = 0, option: str | None = None
) -> Lifetime:
    """A retraining that holds the placement from ``create_step`` for as long as it takes; by default the first option.

    Raises:
        ProblemError: The tenant has no such option, or it cannot run on the profile.
    """
    profile_name = placement.profile.name
    fitting = [item for item in tenant.options if option in (None, item.name) and profile_name in item.time_s]
    if not fitting:
        offered = "; ".join(f"{item.name} on {', '.join(item.time_s)}" for item in tenant.options) or "none"
        wanted = "retraining" if option is None else f"retraining {option!r}"
        raise ProblemError(f"tenant {tenant.name}: no {wanted} on {profile_name}; offered: {offered}")
    chosen = fitting[0]
    end_step = create_step + problem.occupied_steps(tenant, chosen, profile_name)
    serve_step = create_step + problem.retraining_warm_up_steps(tenant)
    owner = Owner(tenant.name, Task.RETRAINING)
    return Lifetime(placement, owner, create_step, serve_step, end_step, chosen.name)


def plan_of(problem: Problem, lifetimes: Iterable[Lifetime], maker: str) -> MigPlan:
    """The ``physical`` plan that consists of these lifetimes; ``maker`` is who answers for it.

    Its objective is what they are worth, or 0 where that is undefined, its bound what no plan can exceed: every request
    answered in time and right, and the most salvage. Whether they keep the rules is for ``planner.verify`` to say.
    """
    items = tuple(sorted(lifetimes, key=lambda item: (item.create_step, item.placement.sort_key)))
    objective = objective_of(problem, items) or 0.0
    bound = max(objective, problem.most_goodput + sum(max(tenant.salvages) for tenant in problem.tenants))
    return replace(with_plan(problem, objective, bound, maker, 0.0, lifetimes=items), solve_s=0.0)
