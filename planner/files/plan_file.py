"""Plans as files: the JSON answer of ``migrator plan --json``, read back by ``migrator verify``.

Reading checks form only: names that the problem knows, steps that are whole numbers. Whether the
plan keeps the rules is checked by ``planner.verify``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
from pydantic import Field

from planner.errors import PlanFileError
from planner.files.strict import Count, Number, StrictModel, Text, placement_of, read_document, validated
from planner.plan import (
    Certificate,
    Infeasibility,
    InferenceSpan,
    Lifetime,
    MigPlan,
    RetrainingSpan,
    Status,
    TenantSchedule,
)
from planner.problem import Owner, Problem, Reconfiguration, Task

GAP_TOLERANCE = 1e-9
"""How far a file's gap may lie from what its own objective and bound make."""


class _Reason(StrictModel):
    tenant: Text | None
    rule: Text
    message: Text


class _Retraining(StrictModel):
    profile: Text
    start_step: Count
    end_step: Count
    option: Text | None = None


class _Schedule(StrictModel):
    name: Text
    inference: list[tuple[Count, Count, list[Text]]]
    retraining: _Retraining | None = None


class _Lifetime(StrictModel):
    placement: Text
    tenant: Text
    task: Text
    create_step: Count
    serve_step: Count
    end_step: Count
    option: Text | None = None


class _Certificate(StrictModel):
    profiles: list[Text]
    prices: list[list[Number]]
    multipliers: dict[str, Number] = Field(default_factory=dict)


WALL_KEYS = ("solve_s", "load_s")
"""What differs each time that the same problem is solved."""


class _File(StrictModel):
    status: Text
    objective: Number | None
    bound: Number | None
    gap: Number | None = None
    expected_goodput: Number | None = None
    salvage: Number = 0.0
    goodput_gap: Number | None = None
    solve_s: Number
    load_s: Number = 0.0
    engine: Text
    reconfiguration: Text
    n_steps: Count
    tenants: list[_Schedule] | None = None
    lifetimes: list[_Lifetime] | None = None
    next_epoch_step: Count = 0
    reason: _Reason | None = None
    certificate: _Certificate | None = None
    missed: list[Text] = Field(default_factory=list)
    work: dict[str, Count] = Field(default_factory=dict)
    # What ``plan --json`` adds on how the plan was made and why; no part of the plan.
    overhead_from: dict[str, object] | None = None
    assumed: list[dict[str, object]] | None = None
    plan_from_step: Count | None = None
    in_time: dict[str, object] | None = None
    explain: dict[str, object] | None = None


def plan_to_json(plan: MigPlan) -> dict[str, object]:
    """The plan in the answer format, of JSON values only; :func:`plan_of` reads it back.

    A plan that exists has ``tenants`` (``paper``) or ``lifetimes`` and ``next_epoch_step``
    (``physical``); an infeasible one has ``reason``. A ``certificate`` is there if the engine gives one, and ``missed``
    where a floor of in-time answers is. Where salvage is part of the objective, both parts stand apart, too.
    """
    apart = {"expected_goodput": plan.expected_goodput, "salvage": plan.salvage, "goodput_gap": plan.goodput_gap}
    document: dict[str, object] = {
        "status": plan.status.value,
        "objective": plan.objective,
        "bound": plan.bound,
        "gap": plan.gap,
        **(apart if plan.salvage else {}),
        "solve_s": plan.solve_s,
        "load_s": plan.load_s,
        "engine": plan.engine,
        "reconfiguration": plan.reconfiguration.value,
        "n_steps": plan.n_steps,
        "work": dict(plan.work),
    }
    if plan.infeasibility is not None:
        document["reason"] = asdict(plan.infeasibility)
    if plan.status.has_plan and plan.reconfiguration is Reconfiguration.PAPER:
        document["tenants"] = [_schedule_to_json(schedule) for schedule in plan.schedules]
    if plan.status.has_plan and plan.reconfiguration is Reconfiguration.PHYSICAL:
        document["lifetimes"] = [_lifetime_to_json(lifetime) for lifetime in plan.lifetimes]
        document["next_epoch_step"] = plan.next_epoch_step
    if plan.certificate is not None:
        names, prices = plan.certificate.profile_names, plan.certificate.prices
        multipliers = {"multipliers": dict(plan.certificate.multipliers)} if plan.certificate.multipliers else {}
        document["certificate"] = {"profiles": list(names), "prices": prices.tolist(), **multipliers}
    if plan.missed:
        document["missed"] = list(plan.missed)
    return document


def _schedule_to_json(schedule: TenantSchedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "inference": [[span.from_step, span.to_step, list(span.profiles)] for span in schedule.inference],
        "retraining": None if schedule.retraining is None else asdict(schedule.retraining),
    }


def _lifetime_to_json(lifetime: Lifetime) -> dict[str, object]:
    document: dict[str, object] = {
        "placement": str(lifetime.placement),
        "tenant": lifetime.owner.tenant,
        "task": lifetime.owner.task.value,
        "create_step": lifetime.create_step,
        "serve_step": lifetime.serve_step,
        "end_step": lifetime.end_step,
    }
    if lifetime.option is not None:
        document["option"] = lifetime.option
    return document


def read_plan(path: Path, problem: Problem) -> MigPlan:
    """The plan that the file at ``path`` gives as an answer to ``problem``.

    Raises:
        PlanFileError: One line naming the file, the key, its value and what is allowed.
    """
    return plan_of(read_document(path, PlanFileError), problem, str(path))


def plan_of(document: dict[str, object], problem: Problem, origin: str) -> MigPlan:
    """The plan that a parsed document gives as an answer to ``problem``; ``origin`` names it in messages.

    Raises:
        PlanFileError: One line naming ``origin``, the key, its value and what is allowed.
    """
    content = validated(_File, document, origin, PlanFileError)
    try:
        return _plan(content, problem)
    except PlanFileError as error:
        raise PlanFileError(f"{origin}: {error}") from None


def _plan(content: _File, problem: Problem) -> MigPlan:
    statuses = [status.value for status in Status]
    if content.status not in statuses:
        raise PlanFileError(f"status is {content.status!r}; {', '.join(statuses)} are allowed")
    if content.reconfiguration != problem.reconfiguration.value:
        raise PlanFileError(
            f"reconfiguration is {content.reconfiguration!r}; the problem's is {problem.reconfiguration}"
        )
    status = Status(content.status)
    needed = "tenants" if problem.reconfiguration is Reconfiguration.PAPER else "lifetimes"
    if status.has_plan and getattr(content, needed) is None:
        raise PlanFileError(f"{needed} is missing; a {status} {problem.reconfiguration} plan needs it")
    plan = MigPlan(
        status=status,
        objective=content.objective,
        bound=content.bound,
        solve_s=content.solve_s,
        load_s=content.load_s,
        engine=content.engine,
        reconfiguration=problem.reconfiguration,
        n_steps=content.n_steps,
        schedules=_schedules(content.tenants or [], problem),
        lifetimes=tuple(_lifetime(item, index, problem) for index, item in enumerate(content.lifetimes or [])),
        next_epoch_step=content.next_epoch_step,
        infeasibility=None if content.reason is None else Infeasibility(**content.reason.model_dump()),
        work=tuple(content.work.items()),
        certificate=_certificate(content, problem),
        missed=tuple(content.missed),
        salvage=content.salvage,
    )
    _check_made("gap", content.gap, plan.gap, "objective and bound")
    _check_made("goodput_gap", content.goodput_gap, plan.goodput_gap, "objective, bound and salvage")
    _check_made("expected_goodput", content.expected_goodput, plan.expected_goodput, "objective and salvage")
    return plan


def _check_made(key: str, given: float | None, made: float | None, by: str) -> None:
    """Refuse a figure that others in the file contradict."""
    if given is not None and (made is None or abs(given - made) > GAP_TOLERANCE * max(1.0, abs(made))):
        raise PlanFileError(f"{key} is {given}; {by} make it {made}")


def _certificate(content: _File, problem: Problem) -> Certificate | None:
    """The certificate, if there is one: a row for each of the plan's steps, a column for each profile."""
    item = content.certificate
    if item is None:
        return None
    for step, row in enumerate(item.prices):
        if len(row) != len(item.profiles):
            raise PlanFileError(f"certificate.prices[{step}] has {len(row)} numbers; profiles has {len(item.profiles)}")
    prices = np.array(item.prices).reshape(len(item.prices), len(item.profiles))
    certificate = Certificate(tuple(item.profiles), prices, tuple(item.multipliers.items()))
    message = certificate.misfit(problem.gpu.profile_names, content.n_steps)
    message = message or certificate.multiplier_misfit(problem.tenants)
    if message is not None:
        raise PlanFileError(message)
    return certificate


def _schedules(items: list[_Schedule], problem: Problem) -> tuple[TenantSchedule, ...]:
    """The schedules in the problem's order."""
    by_name: dict[str, TenantSchedule] = {}
    for index, item in enumerate(items):
        _check_tenant(item.name, f"tenants[{index}].name", problem)
        if item.name in by_name:
            raise PlanFileError(f"tenants[{index}].name is {item.name!r}, which is given twice")
        by_name[item.name] = _schedule(item, index, problem)
    return tuple(by_name[name] for name in problem.tenant_names if name in by_name)


def _schedule(item: _Schedule, index: int, problem: Problem) -> TenantSchedule:
    where = f"tenants[{index}]"
    for _, _, profiles in item.inference:
        for name in profiles:
            _check_profile(name, f"{where}.inference", problem)
    retraining = None
    if item.retraining is not None:
        _check_profile(item.retraining.profile, f"{where}.retraining.profile", problem)
        option = _option(item.retraining.option, f"{where}.retraining.option", item.name, problem)
        retraining = RetrainingSpan(
            item.retraining.profile, item.retraining.start_step, item.retraining.end_step, option
        )
    spans = tuple(InferenceSpan(first, last, tuple(profiles)) for first, last, profiles in item.inference)
    return TenantSchedule(item.name, spans, retraining)


def _lifetime(item: _Lifetime, index: int, problem: Problem) -> Lifetime:
    where = f"lifetimes[{index}]"
    _check_tenant(item.tenant, f"{where}.tenant", problem)
    tasks = [task.value for task in Task]
    if item.task not in tasks:
        raise PlanFileError(f"{where}.task is {item.task!r}; {' or '.join(tasks)} is needed")
    owner = Owner(item.tenant, Task(item.task))
    placement = placement_of(item.placement, problem.gpu, f"{where}.placement", PlanFileError)
    return Lifetime(placement, owner, item.create_step, item.serve_step, item.end_step, item.option)


def _check_tenant(name: str, where: str, problem: Problem) -> None:
    if name not in problem.tenant_names:
        raise PlanFileError(f"{where} is {name!r}; the problem's tenants are {', '.join(problem.tenant_names)}")


def _check_profile(name: str, where: str, problem: Problem) -> None:
    if name not in problem.gpu.profile_names:
        allowed = ", ".join(problem.gpu.profile_names)
        raise PlanFileError(f"{where} names {name!r}; {problem.gpu.name} has {allowed}")


def _option(name: str | None, where: str, tenant_name: str, problem: Problem) -> str:
    """The option's name; it may be left out where the tenant has only one."""
    tenant = next(tenant for tenant in problem.tenants if tenant.name == tenant_name)
    known = [option.name for option in tenant.options]
    if name is None and len(known) == 1:
        return known[0]
    if name is None or name not in known:
        allowed = ", ".join(known) or "none: the tenant has no retraining"
        raise PlanFileError(f"{where} is {name!r}; allowed: {allowed}")
    return name
