"""Plans as files: the JSON answer of ``migrator plan --json``, read back by ``migrator verify``.

Reading checks form only: names that the problem knows, steps that are whole numbers. Whether the
plan keeps the rules is checked by ``planner.verify``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from executor.mig import Placement
from planner.errors import PlanFileError, ProblemError
from planner.files.strict import (
    Number,
    StrictModel,
    Text,
    given,
    made_of,
    one_or_all,
    read_by,
    read_document,
    told_of,
    validated,
)
from planner.plan import (
    AnyCertificate,
    Certificate,
    Infeasibility,
    InferenceSpan,
    Lifetime,
    MigPlan,
    RetrainingSpan,
    Status,
    StatusCertificate,
    TenantSchedule,
    TenantStatus,
)
from planner.problem import Owner, Problem, Reconfiguration, Task, TenantTerms

GAP_TOLERANCE = 1e-9
"""How far a file's gap may lie from what its own objective and bound make."""


_Tenant = Annotated[TenantTerms, read_by(Problem.tenant)]
_Profile = Annotated[str, read_by(lambda problem, name: problem.gpu.profile(name).name)]
_Placement = Annotated[Placement, read_by(lambda problem, text: problem.gpu.placement(text))]


def _members_of(content: object, info: ValidationInfo) -> tuple[TenantTerms, ...]:
    """The tenant of a name, or those of a list of names."""
    names = [content] if isinstance(content, str) else content
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise PydanticCustomError("names", "a tenant's name, or a list of those of a pool")
    try:
        assert isinstance(info.context, Problem)
        return tuple(map(info.context.tenant, names))
    except ProblemError as error:
        raise ValueError(str(error)) from None


_MEMBERS = PlainValidator(_members_of)


class _Retraining(StrictModel):
    profile: _Profile
    start_step: int
    end_step: int
    option: Text | None = None


class _Schedule(StrictModel):
    name: _Tenant
    inference: list[tuple[int, int, tuple[_Profile, ...]]]
    retraining: _Retraining | None = None


class _Lifetime(StrictModel):
    placement: _Placement
    tenant: Annotated[tuple[TenantTerms, ...], _MEMBERS]
    task: Task
    create_step: int
    serve_step: int
    end_step: int
    option: Text | None = None
    lent: bool = False


class _Certificate(StrictModel):
    profiles: list[Text] | None = None
    statuses: list[tuple[Text, Text, Text]] | None = None
    prices: list[list[Number]]
    multipliers: dict[str, Number] = Field(default_factory=dict)


WALL_KEYS = ("solve_s", "load_s")
"""What differs each time that the same problem is solved."""


class _File(StrictModel):
    status: Status
    objective: Number | None
    bound: Number | None = None
    gap: Number | None = None
    claimed_bound: Number | None
    claimed_gap: Number | None = None
    expected_goodput: Number | None = None
    salvage: Number = 0.0
    goodput_gap: Number | None = None
    solve_s: Number
    load_s: Number = 0.0
    engine: Text
    reconfiguration: Reconfiguration
    n_steps: int
    tenants: list[_Schedule] | None = None
    lifetimes: list[_Lifetime] | None = None
    next_epoch_step: int = 0
    reason: Infeasibility | None = None
    certificate: _Certificate | None = None
    missed: tuple[Text, ...] = ()
    floor_costs: Number | None = None
    keeping_costs: Number | None = None
    burst_loss: Number | None = None
    work: dict[str, int] = Field(default_factory=dict)
    # What ``plan --json`` adds on how the plan was made and why; no part of the plan.
    overhead_from: dict[str, object] | None = None
    assumed: list[dict[str, object]] | None = None
    plan_from_step: int | None = None
    partitions: list[dict[str, object]] | None = None
    in_time: dict[str, object] | None = None
    explain: dict[str, object] | None = None


def plan_to_json(plan: MigPlan) -> dict[str, object]:
    """The plan in the answer format, of JSON values only; :func:`plan_of` reads it back.

    ``bound`` and ``gap`` are what is proven, ``claimed_bound`` and ``claimed_gap`` the engine's word, as is ``status``.
    A plan that exists has ``tenants`` (``paper``) or ``lifetimes`` and ``next_epoch_step``
    (``physical``); an infeasible one has ``reason``. A ``certificate`` is there if the engine has one, and ``missed``
    where a floor of in-time answers is, ``floor_costs`` and ``keeping_costs`` where what floors cost was limited,
    ``burst_loss`` where a layout that stays was chosen. Where salvage is part of the objective, both parts are apart,
    too.
    """
    is_paper, certificate = plan.reconfiguration is Reconfiguration.PAPER, plan.certificate
    apart = _APART if plan.salvage else ()
    figures = ("objective", "bound", "gap", "claimed_bound", "claimed_gap", *apart, "solve_s", "load_s", "engine")
    document: dict[str, object] = {
        "status": plan.status.value,
        **{key: getattr(plan, key) for key in figures},
        "reconfiguration": plan.reconfiguration.value,
        "n_steps": plan.n_steps,
        "work": dict(plan.work),
    }
    if plan.infeasibility is not None:
        document["reason"] = asdict(plan.infeasibility)
    if plan.status.has_plan and is_paper:
        document["tenants"] = [_schedule_to_json(schedule) for schedule in plan.schedules]
    if plan.status.has_plan and not is_paper:
        document["lifetimes"] = [_lifetime_to_json(lifetime) for lifetime in plan.lifetimes]
        document["next_epoch_step"] = plan.next_epoch_step
    if certificate is not None:
        document["certificate"] = given(
            profiles=list(certificate.profile_names) if isinstance(certificate, Certificate) else None,
            statuses=list(map(list, certificate.statuses)) if isinstance(certificate, StatusCertificate) else None,
            prices=certificate.prices.tolist(),
            multipliers=dict(certificate.multipliers) or None,
        )
    return document | given(
        missed=list(plan.missed) or None,
        floor_costs=plan.floor_costs,
        keeping_costs=plan.keeping_costs,
        burst_loss=plan.burst_loss,
    )


_APART = ("expected_goodput", "salvage", "goodput_gap")
"""Figures of plans whose objective is salvage in part."""


def _schedule_to_json(schedule: TenantSchedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "inference": [[span.from_step, span.to_step, list(span.profiles)] for span in schedule.inference],
        "retraining": None if schedule.retraining is None else asdict(schedule.retraining),
    }


def _lifetime_to_json(lifetime: Lifetime) -> dict[str, object]:
    own, steps = lifetime.owner, ("create_step", "serve_step", "end_step", "option")
    placed = {"placement": str(lifetime.placement), "tenant": one_or_all(own.members), "task": own.task.value}
    return placed | given(**{key: getattr(lifetime, key) for key in steps}, lent=lifetime.lent or None)


def read_plan(path: Path, problem: Problem) -> MigPlan:
    """The plan in the file at ``path``, an answer to ``problem``.

    Raises:
        PlanFileError: One line naming the file, the key, its value and what is allowed.
    """
    return plan_of(read_document(path, PlanFileError), problem, str(path))


def plan_of(document: dict[str, object], problem: Problem, origin: str) -> MigPlan:
    """The plan in a parsed document, an answer to ``problem``; ``origin`` names it in messages.

    Raises:
        PlanFileError: One line naming ``origin``, the key, its value and what is allowed.
    """
    with told_of(origin, PlanFileError):
        content, model = validated(_File, document, PlanFileError, problem), problem.reconfiguration
        if content.reconfiguration is not model:
            raise PlanFileError(f"reconfiguration is {content.reconfiguration.value!r}; the problem's is {model}")
        needed = "tenants" if model is Reconfiguration.PAPER else "lifetimes"
        if content.status.has_plan and getattr(content, needed) is None:
            raise PlanFileError(f"{needed} is missing; a {content.status} {model} plan needs it")
        plan = made_of(
            MigPlan,
            content,
            schedules=_schedules(content.tenants or [], problem),
            lifetimes=tuple(made_of(Lifetime, item, owner=_owner(item)) for item in content.lifetimes or []),
            infeasibility=content.reason,
            work=tuple(content.work.items()),
            certificate=_certificate(content, problem),
        )
        for key, by in _MADE.items():
            stated, made = getattr(content, key), getattr(plan, key)
            if stated is not None and (made is None or abs(stated - made) > GAP_TOLERANCE * max(1.0, abs(made))):
                raise PlanFileError(f"{key} is {stated}; {by} make it {made}")
        return plan


_MADE = {
    "gap": "objective and bound",
    "claimed_gap": "objective and claimed_bound",
    "goodput_gap": "objective, bound and salvage",
    "expected_goodput": "objective and salvage",
}
"""Figures that others in the file make, and those others."""


def _owner(item: _Lifetime) -> Owner:
    first, *others = (tenant.name for tenant in item.tenant)
    return Owner(first, item.task, tuple(others))


def _certificate(content: _File, problem: Problem) -> AnyCertificate | None:
    """The certificate, if there is one: a row for each of the plan's steps, a column for each profile or status."""
    item = content.certificate
    if item is None:
        return None
    if (item.profiles is None) == (item.statuses is None):
        raise PlanFileError("certificate needs profiles or statuses, what its prices are of, and not both")
    key, columns = ("statuses", item.statuses) if item.profiles is None else ("profiles", item.profiles)
    n_columns = len(columns or ())
    for step, row in enumerate(item.prices):
        if len(row) != n_columns:
            raise PlanFileError(f"certificate.prices[{step}] has {len(row)} numbers; {key} has {n_columns}")
    numbers = np.array(item.prices).reshape(len(item.prices), n_columns), tuple(item.multipliers.items())
    certificate: AnyCertificate
    if item.profiles is None:
        certificate = StatusCertificate(tuple(TenantStatus(*status) for status in item.statuses or ()), *numbers)
    else:
        certificate = Certificate(tuple(item.profiles), *numbers)
    message = certificate.misfit(problem, content.n_steps)
    if message is not None:
        raise PlanFileError(message)
    return certificate


def _schedules(items: list[_Schedule], problem: Problem) -> tuple[TenantSchedule, ...]:
    """The schedules in the problem's order."""
    by_name: dict[str, TenantSchedule] = {}
    for index, item in enumerate(items):
        if item.name.name in by_name:
            raise PlanFileError(f"tenants[{index}].name is {item.name.name!r}, which is given twice")
        by_name[item.name.name] = _schedule(item, f"tenants[{index}].retraining.option")
    return tuple(by_name[name] for name in problem.tenant_names if name in by_name)


def _schedule(item: _Schedule, where: str) -> TenantSchedule:
    """The schedule; its retraining's option, the key ``where``, may be left out where the tenant has only one."""
    spans, retraining = tuple(InferenceSpan(*span) for span in item.inference), None
    if item.retraining is not None:
        option, known = item.retraining.option, [option.name for option in item.name.options]
        if option is None and len(known) == 1:
            option = known[0]
        if option not in known:
            allowed = ", ".join(known) or "none: the tenant has no retraining"
            raise PlanFileError(f"{where} is {option!r}; allowed: {allowed}")
        retraining = made_of(RetrainingSpan, item.retraining, option=option)
    return TenantSchedule(item.name.name, spans, retraining)
