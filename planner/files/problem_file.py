"""Problems as files: the JSON or YAML format of ``migrator plan --problem FILE``.

A file knows neither SLO nor latency, so a problem read from one has the simple gain table, min(a, C), unless the file
gives tables itself, as that of a config's window does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from executor.catalogue import gpu_model, is_catalogued
from executor.described import described, model_of
from executor.errors import ExecutorError
from executor.mig import GpuModel, Placement
from planner.errors import ProblemError
from planner.files.gain_table import GainEntry, gains_of, gains_to_json
from planner.files.strict import (
    Number,
    StrictModel,
    given,
    made_of,
    one_or_all,
    read_by,
    read_document,
    told_of,
    validated,
)
from planner.problem import (
    SHORT_OPTION,
    AttainmentFloor,
    HeldInstance,
    InitialState,
    PaperState,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.unavailable import Unavailable

SCHEMA = 1
"""The version of the format that this module reads and writes."""


class _Accuracy(StrictModel):
    before: float
    after: Annotated[Number, Field(ge=0, le=1)] | None = None


def _share_alone(content: object) -> object:
    if isinstance(content, int | float) and not isinstance(content, bool):
        return AttainmentFloor(float(content))
    return content


class _Tenant(StrictModel):
    name: str
    arrivals_rps: list[float]
    capability_rps: dict[str, float]
    accuracy: _Accuracy
    overhead_s: float
    min_profile: str
    retraining_s: dict[str, float] | None = None
    retraining_options: tuple[RetrainingOption, ...] | None = None
    retraining_required: bool = True
    retraining_start_s: float | None = None
    weight: float = 1.0
    gains: GainEntry | None = None
    min_slo_attainment: Annotated[AttainmentFloor | None, BeforeValidator(_share_alone)] = None
    salvage: dict[str, float] | None = None
    swap_s: float = 0.0


def _gpu(content: object) -> GpuModel:
    """The GPU model that is named, or described as ``migrator gpu describe`` does it."""
    if not isinstance(content, str | Mapping):
        raise PydanticCustomError("text", "a name, or a description")
    try:
        return gpu_model(content) if isinstance(content, str) else model_of(content)
    except ExecutorError as error:
        raise ValueError(str(error)) from None


class _File(StrictModel):
    schema_: int = Field(alias="schema")
    gpu: Annotated[GpuModel, PlainValidator(_gpu)]
    step_s: float
    n_steps: int
    reconfiguration: Reconfiguration
    tenants: list[_Tenant]
    switch_s: float | None = None
    initial: dict[str, object] | None = None
    unavailable: tuple[Unavailable, ...] = ()
    pools: tuple[Pool, ...] = ()
    layout: tuple[str, ...] = ()


class _Taken(StrictModel):
    unavailable: tuple[Unavailable, ...]


class _PaperInitial(StrictModel):
    initial: dict[str, tuple[str, ...]]


_Placed = tuple[Annotated[Placement, read_by(GpuModel.placement)], str, int]
"""A placement, the tenant in it and a step."""


def _as_members(content: object) -> object:
    """One name as those of a pool, which are a tuple once they are read."""
    if isinstance(content, list):
        return tuple(content)
    return (content,) if isinstance(content, str) else content


_Members = Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_as_members)]
"""A tenant, or a list of those of a pool."""

_Held = tuple[Annotated[Placement, read_by(GpuModel.placement)], _Members, int]
"""The same of what inference holds."""


def _held(item: tuple[Placement, tuple[str, ...], int]) -> HeldInstance:
    placement, (tenant, *others), serve_step = item
    return HeldInstance(placement, tenant, serve_step, tuple(others))


_Lent = tuple[Annotated[Placement, read_by(GpuModel.placement)], str, int, int]
"""The same of a retraining on a loan, with the step from which its instance serves nobody."""


class _Placements(StrictModel):
    held: tuple[Annotated[_Held, AfterValidator(_held)], ...] = ()
    retrainings: tuple[Annotated[_Placed, AfterValidator(lambda item: RunningRetraining(*item))], ...] = ()
    loans: tuple[Annotated[_Lent, AfterValidator(lambda item: RunningRetraining(*item))], ...] = ()
    next_epoch_step: int = 0


class _PhysicalInitial(StrictModel):
    initial: _Placements


def read_problem(path: Path) -> Problem:
    """The problem that the JSON or YAML file at ``path`` states.

    Raises:
        ProblemError: One line naming the file, the key, its value and what is allowed.
    """
    return problem_of(read_document(path, ProblemError), str(path))


def problem_of(document: dict[str, object], origin: str) -> Problem:
    """The problem that a parsed document states; ``origin`` names it in messages.

    Raises:
        ProblemError: One line naming ``origin``, the key, its value and what is allowed.
    """
    with told_of(origin, ProblemError):
        content = validated(_File, document, ProblemError)
        if content.schema_ != SCHEMA:
            raise ProblemError(f"schema is {content.schema_}; {SCHEMA} is the only one known")
        state = content.initial
        problem = made_of(
            Problem,
            content,
            tenants=tuple(_tenant(tenant, index) for index, tenant in enumerate(content.tenants)),
            initial=None if state is None else _state(state, content.reconfiguration, content.gpu),
            layout=_layout(content),
        )
        return replace(problem, gains=gains_of(problem, [tenant.gains for tenant in content.tenants]))


def _layout(content: _File) -> tuple[Placement, ...]:
    try:
        return tuple(map(content.gpu.placement, content.layout))
    except ExecutorError as error:
        raise ProblemError(f"layout: {error}") from None


def _tenant(content: _Tenant, index: int) -> TenantTerms:
    where, salvage = f"tenants[{index}]", content.salvage
    options, before = _options(content, where), content.accuracy.before
    terms = made_of(TenantTerms, content, accuracy_before=before, options=options, salvage=())
    if salvage is None:
        return terms
    names, given_names = terms.ending_names, ", ".join(salvage) or "no keys"
    if len(set(names)) < len(names):
        raise ProblemError(
            f"{where}.salvage: an option is named {names[0]!r}, which stands for no retraining; rename it"
        )
    if set(salvage) != set(names):
        raise ProblemError(f"{where}.salvage has {given_names}; exactly {', '.join(names)} are needed")
    return replace(terms, salvage=tuple(salvage[name] for name in names))


def _options(content: _Tenant, where: str) -> tuple[RetrainingOption, ...]:
    if content.retraining_options is not None:
        if content.retraining_s is not None:
            raise ProblemError(f"{where}: retraining_s and retraining_options are both given; one of them is allowed")
        return content.retraining_options
    if not content.retraining_s:
        return ()
    if content.accuracy.after is None:
        raise ProblemError(f"{where}.accuracy.after is missing; it may be left out only with an empty retraining_s")
    return (RetrainingOption(SHORT_OPTION, content.retraining_s, content.accuracy.after),)


def state_of_json(content: dict[str, object], model: Reconfiguration, gpu: GpuModel, origin: str) -> InitialState:
    """The initial state of a problem of ``model`` that the key ``initial`` of ``origin`` states.

    Raises:
        ProblemError: One line naming the key, its value and what is allowed.
    """
    with told_of(origin, ProblemError):
        return _state(content, model, gpu)


def _state(content: dict[str, object], model: Reconfiguration, gpu: GpuModel) -> InitialState:
    if model is Reconfiguration.PAPER:
        return PaperState(validated(_PaperInitial, {"initial": content}, ProblemError).initial)
    state = validated(_PhysicalInitial, {"initial": content}, ProblemError, gpu).initial
    return made_of(PhysicalState, state, retrainings=(*state.retrainings, *state.loans))


def unavailable_of_json(content: Iterable[Mapping[str, object]], origin: str) -> tuple[Unavailable, ...]:
    """Memory slices that the key ``unavailable`` of ``origin`` says are not ours.

    Raises:
        ProblemError: One line naming the key, its value and what is allowed.
    """
    with told_of(origin, ProblemError):
        return validated(_Taken, {"unavailable": list(content)}, ProblemError).unavailable


def problem_to_json(problem: Problem, *, with_gains: bool = False) -> dict[str, object]:
    """The problem in the file format, of JSON values only; :func:`problem_of` reads it back.

    Gain tables, if it has any, are left out unless they are asked for.

    Raises:
        ProblemError: A gain table that is asked for cannot be written.
    """
    tenants = [_tenant_to_json(tenant) for tenant in problem.tenants]
    if with_gains and problem.gains is not None:
        tenants = [{**tenant, "gains": gains_to_json(problem, index)} for index, tenant in enumerate(tenants)]
    return given(
        schema=SCHEMA,
        gpu=problem.gpu.name if is_catalogued(problem.gpu) else described(problem.gpu),
        step_s=problem.step_s,
        n_steps=problem.n_steps,
        reconfiguration=problem.reconfiguration.value,
        switch_s=problem.switch_s,
        initial=None if problem.initial is None else state_to_json(problem.initial),
        unavailable=[unavailable_to_json(item) for item in problem.unavailable] or None,
        pools=[_pool_to_json(pool) for pool in problem.pools] or None,
        layout=list(map(str, problem.layout)) or None,
        tenants=tenants,
    )


def problem_text(problem: Problem) -> str:
    """The text of a problem file with all that the problem holds: JSON, a row of numbers a line.

    Raises:
        ProblemError: A gain table cannot be written.
    """
    return _rows(problem_to_json(problem, with_gains=True), "")


def _rows(value: object, indent: str) -> str:
    """As ``json.dumps`` with an indent of 1 has it, but for lists of plain values, which take one line."""
    deeper = indent + " "
    match value:
        case dict() if value:
            entries = [f"{json.dumps(name)}: {_rows(item, deeper)}" for name, item in value.items()]
        case list() if any(isinstance(item, dict | list) for item in value):
            entries = [_rows(item, deeper) for item in value]
        case _:
            return json.dumps(value, allow_nan=False)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(deeper + entry for entry in entries) + f"\n{indent}{last}"


def state_to_json(state: InitialState) -> dict[str, object]:
    """The state as the key ``initial`` of a problem file has it; :func:`state_of_json` reads it back."""
    if isinstance(state, PaperState):
        return {name: list(profiles) for name, profiles in state.held.items()}
    runs, loans = (
        [item for item in state.retrainings if (item.lent_from is None) is is_own] for is_own in (True, False)
    )
    return {
        "held": [[str(item.placement), one_or_all(item.members), item.serve_step] for item in state.held],
        "retrainings": [[str(item.placement), item.tenant, item.end_step] for item in runs],
        **given(loans=[[str(item.placement), item.tenant, item.end_step, item.lent_from] for item in loans] or None),
        "next_epoch_step": state.next_epoch_step,
    }


def _pool_to_json(pool: Pool) -> dict[str, object]:
    rates = {profile: dict(by_member) for profile, by_member in pool.capability_rps.items()}
    return {"members": list(pool.members), "overhead_s": pool.overhead_s, "capability_rps": rates}


def unavailable_to_json(item: Unavailable) -> dict[str, object]:
    """As the key ``unavailable`` of a problem file has it."""
    return given(memory_slices=list(item.memory_slices), from_step=item.from_step, to_step=item.to_step)


def _tenant_to_json(tenant: TenantTerms) -> dict[str, object]:
    floor = tenant.min_slo_attainment
    return given(
        name=tenant.name,
        arrivals_rps=tenant.arrivals_rps.tolist(),
        capability_rps=dict(tenant.capability_rps),
        **_retraining_to_json(tenant),
        **{key: getattr(tenant, key) for key in _AS_THEY_ARE},
        swap_s=tenant.swap_s or None,
        salvage=dict(zip(tenant.ending_names, tenant.salvage, strict=True)) if tenant.salvage else None,
        min_slo_attainment=floor and given(share=floor.share, per=floor.per.value, due=floor.due or None),
    )


_AS_THEY_ARE = ("overhead_s", "min_profile", "weight", "retraining_required", "retraining_start_s")


def _retraining_to_json(tenant: TenantTerms) -> dict[str, object]:
    accuracy: dict[str, object] = {"before": tenant.accuracy_before}
    match tenant.options:
        case ():
            return {"retraining_s": {}, "accuracy": accuracy}
        case (RetrainingOption(name, time_s, after, checkpoints=(), checkpoint_s=0.0),) if name == SHORT_OPTION:
            return {"retraining_s": dict(time_s), "accuracy": {**accuracy, "after": after}}
        case options:
            return {"retraining_options": list(map(_option_to_json, options)), "accuracy": accuracy}


def _option_to_json(option: RetrainingOption) -> dict[str, object]:
    return given(
        name=option.name,
        time_s=dict(option.time_s),
        accuracy_after=option.accuracy_after,
        checkpoints=[asdict(checkpoint) for checkpoint in option.checkpoints] or None,
        checkpoint_s=option.checkpoint_s or None,
    )
