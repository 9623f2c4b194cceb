"""What a policy of one's own answered, read strictly: values of the types that the rest of the house relies on.

A plan may still break a rule; ``planner.verify`` says so. Whole numbers of numpy become plain ones, lists tuples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from numbers import Integral, Real
from typing import TypeVar

from executor.mig import Placement
from planner.plan import Certificate, Infeasibility, Lifetime, MigPlan, Status
from planner.policies.shares import Answer, Moment, Shares, violation
from planner.problem import Owner, Problem, Reconfiguration, Task

MOST_LIFETIMES = 100_000
"""More are a slip; a window of 200 steps holds some ten."""

Value = TypeVar("Value")


class AnswerError(ValueError):
    """An answer that cannot be used, as the end of a sentence that begins with the method's name."""


def checked_plan(answer: object, problem: Problem) -> MigPlan:
    """The plan with all its values of their types, and of a problem like this one.

    Raises:
        AnswerError: It is no plan, or one of another problem.
    """
    if not isinstance(answer, MigPlan):
        raise AnswerError(f"returned {_kind(answer)}; a MigPlan is needed")
    status = _of(Status, answer.status, "status")
    needed = (Reconfiguration.PHYSICAL, problem.n_steps)
    if (answer.reconfiguration, answer.n_steps) != needed:
        raise AnswerError(
            f"returned the plan of another problem: {_short(answer.reconfiguration)}, of "
            f"{_short(answer.n_steps)} steps; this one is {needed[0]}, of {needed[1]} steps"
        )
    lifetimes: object = answer.lifetimes
    if not isinstance(lifetimes, (tuple, list)) or len(lifetimes) > MOST_LIFETIMES:
        raise AnswerError(f"returned a plan whose lifetimes are {_kind(lifetimes)}; a tuple of Lifetime is needed")
    found = [_lifetime(item, f"lifetimes[{index}]", problem) for index, item in enumerate(lifetimes)]
    return replace(
        answer,
        status=status,
        objective=_number(answer.objective, "objective", may_lack=not status.has_plan),
        claimed_bound=_number(answer.claimed_bound, "claimed_bound", may_lack=True),
        bound=None,  # what its certificate proves is for the checker to say
        solve_s=_number(answer.solve_s, "solve_s") or 0.0,
        engine=_of(str, answer.engine, "engine"),
        schedules=(),
        lifetimes=tuple(sorted(found, key=lambda item: (item.create_step, item.placement.sort_key))),
        next_epoch_step=_step(answer.next_epoch_step, "next_epoch_step"),
        infeasibility=_optional(Infeasibility, answer.infeasibility, "infeasibility"),
        work=_work(answer.work),
        certificate=_optional(Certificate, answer.certificate, "certificate"),
    )


def _lifetime(item: object, where: str, problem: Problem) -> Lifetime:
    life = _of(Lifetime, item, where)
    placement, owner = _of(Placement, life.placement, f"{where}.placement"), _of(Owner, life.owner, f"{where}.owner")
    if placement not in problem.gpu.placements(problem.gpu.profile_names):
        raise AnswerError(f"returned {where}, {placement}, which {problem.gpu.name} does not have")
    _of(Task, owner.task, f"{where}.owner.task")
    names = ", ".join(problem.tenant_names)
    for name in (owner.tenant, *_of(tuple, owner.others, f"{where}.owner.others")):
        if name not in problem.tenant_names:
            raise AnswerError(f"returned {where} for tenant {_short(name)}; those of the problem are {names}")
    return replace(
        life,
        create_step=_step(life.create_step, f"{where}.create_step"),
        serve_step=_step(life.serve_step, f"{where}.serve_step"),
        end_step=_step(life.end_step, f"{where}.end_step"),
        option=_optional(str, life.option, f"{where}.option"),
    )


def _work(work: object) -> tuple[tuple[str, int], ...]:
    try:
        return tuple((_of(str, name, "work"), _step(count, "work")) for name, count in work)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise AnswerError(f"returned a plan whose work is {_kind(work)}; pairs of a name and a count are needed") from (
            None
        )


def _number(value: object, what: str, *, may_lack: bool = False) -> float | None:
    if value is None and may_lack:
        return None
    if not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise AnswerError(f"returned a plan whose {what} is {_short(value)}; a finite number is needed")


def _step(value: object, what: str) -> int:
    number = _whole(value)
    if number is not None and abs(number) <= 10**9:
        return number
    raise AnswerError(f"returned a plan whose {what} is {_short(value)}; a whole number is needed")


def _whole(value: object) -> int | None:
    return int(value) if not isinstance(value, bool) and isinstance(value, Integral) else None


def _of(kind: type[Value], value: object, what: str) -> Value:
    if isinstance(value, kind):
        return value
    raise AnswerError(f"returned a plan whose {what} is {_short(value)}; {kind.__name__} is needed")


def _optional(kind: type[Value], value: object, what: str) -> Value | None:
    return None if value is None else _of(kind, value, what)


def checked_shares(answer: object, moment: Moment) -> Shares:
    """The shares, which may be at this moment.

    Raises:
        AnswerError: They are none, or may not be.
    """
    if not isinstance(answer, Mapping):
        raise AnswerError(f"returned {_kind(answer)}; twentieths by Owner are needed")
    shares: dict[Owner, int] = {}
    for owner, value in answer.items():
        quanta = _whole(value)
        if not isinstance(owner, Owner) or quanta is None:
            whose = str(owner) if isinstance(owner, Owner) else _short(owner)
            raise AnswerError(f"returned {_short(value)} for {whose}; whole twentieths by Owner are needed")
        shares[owner] = quanta
    wrong = violation(shares, moment)
    if wrong is not None:
        raise AnswerError(f"returned shares that cannot be: {wrong}")
    return shares


def checked_answer(answer: object, moment: Moment) -> Answer:
    """The answer, which may be at this moment.

    Raises:
        AnswerError: It is none, or may not be.
    """
    if not isinstance(answer, Answer):
        raise AnswerError(f"returned {_kind(answer)}; an Answer is needed")
    if answer.in_turns and any(tenant.turns_rps is None for tenant in moment.tenants):
        raise AnswerError("returned turns; here no tenant may take any")
    ways = {tenant.name: [option.name for option in tenant.options] for tenant in moment.tenants}
    for name, option in answer.options.items():
        if option not in ways.get(name, ()):
            known = ", ".join(ways.get(name, ())) or "none"
            raise AnswerError(f"returned option {_short(option)} for {_short(name)}; allowed here: {known}")
    sizes = {tenant.name: tenant.batches for tenant in moment.tenants}
    for name, own in answer.batches.items():
        if own not in sizes.get(name, ()):
            raise AnswerError(f"returned batches for {_short(name)} that are none of the tenant's own at this moment")
    return replace(answer, shares=checked_shares(answer.shares, moment))


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _short(value: object) -> str:
    """The value, if it is short and can be shown."""
    try:
        text = str(value) if isinstance(value, StrEnum) else repr(value)
    except Exception:  # noqa: BLE001 - it is the file's
        return _kind(value)
    return text if len(text) <= 60 else _kind(value)
