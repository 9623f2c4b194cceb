"""Problems as files: the JSON or YAML format of ``migrator plan --problem FILE``.

A file knows neither SLO nor latency, so a problem read from one has the simple gain table, min(a, C), unless the file
gives tables itself, as that of a config's window does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from executor.catalogue import gpu_model
from executor.errors import ExecutorError
from executor.mig import GpuModel, Placement
from planner.errors import ProblemError
from planner.files.gain_table import GainEntry, gains_of, gains_to_json
from planner.files.strict import Count, Number, StrictModel, Text, as_text, placement_of, read_document, validated
from planner.problem import (
    SHORT_OPTION,
    AttainmentFloor,
    Checkpoint,
    HeldInstance,
    InitialState,
    PaperState,
    Per,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.unavailable import Unavailable

NO_OPTION = "none"
"""What ``salvage`` calls a window that ends without a retraining."""

SCHEMA = 1
"""The version of the format that this module reads and writes."""


class _Accuracy(StrictModel):
    before: Number
    after: Number | None = None


class _Checkpoint(StrictModel):
    fraction: Number
    accuracy: Number


class _Option(StrictModel):
    name: Text
    time_s: dict[str, Number]
    accuracy_after: Number
    checkpoints: list[_Checkpoint] = Field(default_factory=list)
    checkpoint_s: Number = 0.0


class _Floor(StrictModel):
    share: Number
    per: Literal["window", "step"] = "window"
    due: Number = 0.0

    @model_validator(mode="before")
    @classmethod
    def _share_alone(cls, content: object) -> object:
        is_number = isinstance(content, (int, float)) and not isinstance(content, bool)
        return {"share": content} if is_number else content


class _Tenant(StrictModel):
    name: Text
    arrivals_rps: list[Number]
    capability_rps: dict[str, Number]
    accuracy: _Accuracy
    overhead_s: Number
    min_profile: Text
    retraining_s: dict[str, Number] | None = None
    retraining_options: list[_Option] | None = None
    retraining_required: bool = Field(default=True, strict=True)
    retraining_start_s: Number | None = None
    weight: Number = 1.0
    gains: GainEntry | None = None
    min_slo_attainment: _Floor | None = None
    salvage: dict[str, Number] | None = None
    swap_s: Number = 0.0


class _Unavailable(StrictModel):
    memory_slices: list[Count]
    from_step: Count = 0
    to_step: Count | None = None


class _File(StrictModel):
    schema_: Count = Field(alias="schema")
    gpu: Text
    step_s: Number
    n_steps: Count
    reconfiguration: Text
    tenants: list[_Tenant]
    switch_s: Number | None = None
    initial: dict[str, object] | None = None
    unavailable: list[_Unavailable] = Field(default_factory=list)


class _PhysicalInitial(StrictModel):
    held: list[tuple[Text, Text, Count]] = Field(default_factory=list)
    retrainings: list[tuple[Text, Text, Count]] = Field(default_factory=list)
    next_epoch_step: Count = 0


def read_problem(path: Path) -> Problem:
    """The problem that the JSON or YAML file at ``path`` states.

    Raises:
        ProblemError: One line naming the file, the key, its value and what is allowed.
    """
    document = read_document(path, ProblemError)
    return problem_of(document, str(path))


def problem_of(document: dict[str, object], origin: str) -> Problem:
    """The problem that a parsed document states; ``origin`` names it in messages.

    Raises:
        ProblemError: One line naming ``origin``, the key, its value and what is allowed.
    """
    content = validated(_File, document, origin, ProblemError)
    try:
        return _problem(content, origin)
    except ProblemError as error:
        raise ProblemError(str(error) if str(error).startswith(origin) else f"{origin}: {error}") from None


def _problem(content: _File, origin: str) -> Problem:
    if content.schema_ != SCHEMA:
        raise ProblemError(f"schema is {content.schema_}; {SCHEMA} is the only one known")
    models = [model.value for model in Reconfiguration]
    if content.reconfiguration not in models:
        raise ProblemError(f"reconfiguration is {content.reconfiguration!r}; {' or '.join(models)} is needed")
    try:
        gpu = gpu_model(content.gpu)
    except ExecutorError as error:
        raise ProblemError(f"gpu: {error}") from None
    model = Reconfiguration(content.reconfiguration)
    problem = Problem(
        gpu=gpu,
        step_s=content.step_s,
        n_steps=content.n_steps,
        reconfiguration=model,
        tenants=tuple(_tenant(tenant, index) for index, tenant in enumerate(content.tenants)),
        switch_s=content.switch_s,
        initial=None if content.initial is None else state_of_json(content.initial, model, gpu, origin),
        unavailable=tuple(map(_unavailable, content.unavailable)),
    )
    return replace(problem, gains=gains_of(problem, [tenant.gains for tenant in content.tenants]))


def _tenant(content: _Tenant, index: int) -> TenantTerms:
    options = _options(content, f"tenants[{index}]")
    return TenantTerms(
        name=content.name,
        arrivals_rps=np.array(content.arrivals_rps, dtype=np.float64),
        capability_rps=content.capability_rps,
        accuracy_before=content.accuracy.before,
        overhead_s=content.overhead_s,
        min_profile=content.min_profile,
        options=options,
        retraining_required=content.retraining_required,
        weight=content.weight,
        retraining_start_s=content.retraining_start_s,
        min_slo_attainment=_floor(content.min_slo_attainment),
        salvage=_salvage(content.salvage, options, f"tenants[{index}].salvage"),
        swap_s=content.swap_s,
    )


def _salvage(content: dict[str, float] | None, options: Sequence[RetrainingOption], where: str) -> tuple[float, ...]:
    """By level, from a number for ``none`` and for each option by name."""
    if content is None:
        return ()
    names = (NO_OPTION, *(option.name for option in options))
    if len(set(names)) < len(names):
        raise ProblemError(f"{where}: an option is named {NO_OPTION!r}, which stands for no retraining; rename it")
    if set(content) != set(names):
        raise ProblemError(f"{where} has {', '.join(content) or 'no keys'}; exactly {', '.join(names)} are needed")
    return tuple(content[name] for name in names)


def _floor(content: _Floor | None) -> AttainmentFloor | None:
    return None if content is None else AttainmentFloor(content.share, Per(content.per), content.due)


def _options(content: _Tenant, where: str) -> tuple[RetrainingOption, ...]:
    after = content.accuracy.after
    if after is not None and not 0 <= after <= 1:
        raise ProblemError(f"{where}.accuracy.after is {after}; a number from 0 to 1 is needed")
    if content.retraining_options is not None:
        if content.retraining_s is not None:
            raise ProblemError(f"{where}: retraining_s and retraining_options are both given; one of them is allowed")
        return tuple(map(_option, content.retraining_options))
    if not content.retraining_s:
        return ()
    if after is None:
        raise ProblemError(f"{where}.accuracy.after is missing; it may be left out only with an empty retraining_s")
    return (RetrainingOption(SHORT_OPTION, content.retraining_s, after),)


def _option(content: _Option) -> RetrainingOption:
    checkpoints = tuple(Checkpoint(one.fraction, one.accuracy) for one in content.checkpoints)
    return RetrainingOption(content.name, content.time_s, content.accuracy_after, checkpoints, content.checkpoint_s)


def state_of_json(content: dict[str, object], model: Reconfiguration, gpu: GpuModel, origin: str) -> InitialState:
    """The initial state of a problem of ``model`` that the key ``initial`` of ``origin`` states.

    Raises:
        ProblemError: One line naming the key, its value and what is allowed.
    """
    if model is Reconfiguration.PAPER:
        return PaperState({name: _profile_names(name, value) for name, value in content.items()})
    state = validated(_PhysicalInitial, content, origin, ProblemError, below="initial")
    return PhysicalState(
        held=tuple(HeldInstance(*item) for item in _placed(state.held, gpu, "initial.held")),
        retrainings=tuple(RunningRetraining(*item) for item in _placed(state.retrainings, gpu, "initial.retrainings")),
        next_epoch_step=state.next_epoch_step,
    )


def unavailable_of_json(content: Iterable[Mapping[str, object]], origin: str) -> tuple[Unavailable, ...]:
    """Memory slices that the key ``unavailable`` of ``origin`` says are not ours.

    Raises:
        ProblemError: One line naming the key, its value and what is allowed.
    """
    items = [
        validated(_Unavailable, dict(item), origin, ProblemError, below=f"unavailable[{index}]")
        for index, item in enumerate(content)
    ]
    return tuple(map(_unavailable, items))


def _unavailable(item: _Unavailable) -> Unavailable:
    return Unavailable(tuple(item.memory_slices), item.from_step, item.to_step)


def _placed(items: list[tuple[str, str, int]], gpu: GpuModel, where: str) -> Iterator[tuple[Placement, str, int]]:
    for index, (text, tenant, step) in enumerate(items):
        yield placement_of(text, gpu, f"{where}[{index}][0]", ProblemError), tenant, step


def _profile_names(tenant: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ProblemError(f"initial.{tenant} is {as_text(value)}; a list of profile names is needed")
    return tuple(value)


def problem_to_json(problem: Problem, *, with_gains: bool = False) -> dict[str, object]:
    """The problem in the file format, of JSON values only; :func:`problem_of` reads it back.

    Gain tables, if it has any, are left out unless they are asked for.

    Raises:
        ProblemError: A gain table that is asked for cannot be written.
    """
    document: dict[str, object] = {
        "schema": SCHEMA,
        "gpu": problem.gpu.name,
        "step_s": problem.step_s,
        "n_steps": problem.n_steps,
        "reconfiguration": problem.reconfiguration.value,
    }
    if problem.switch_s is not None:
        document["switch_s"] = problem.switch_s
    if problem.initial is not None:
        document["initial"] = state_to_json(problem.initial)
    if problem.unavailable:
        document["unavailable"] = [unavailable_to_json(item) for item in problem.unavailable]
    tenants = [_tenant_to_json(tenant) for tenant in problem.tenants]
    if with_gains and problem.gains is not None:
        tenants = [{**tenant, "gains": gains_to_json(problem, index)} for index, tenant in enumerate(tenants)]
    document["tenants"] = tenants
    return document


def problem_text(problem: Problem) -> str:
    """The text of a problem file with all that the problem holds: JSON, a row of numbers a line.

    Raises:
        ProblemError: A gain table cannot be written.
    """
    return _rows(problem_to_json(problem, with_gains=True), "")


def _rows(value: object, indent: str) -> str:
    """As ``json.dumps`` with an indent of 1 has it, but for lists of plain values, which stand on one line."""
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
    return {
        "held": [[str(item.placement), item.tenant, item.serve_step] for item in state.held],
        "retrainings": [[str(item.placement), item.tenant, item.end_step] for item in state.retrainings],
        "next_epoch_step": state.next_epoch_step,
    }


def unavailable_to_json(item: Unavailable) -> dict[str, object]:
    """As the key ``unavailable`` of a problem file has it."""
    document: dict[str, object] = {"memory_slices": list(item.memory_slices), "from_step": item.from_step}
    return document if item.to_step is None else {**document, "to_step": item.to_step}


def _tenant_to_json(tenant: TenantTerms) -> dict[str, object]:
    document: dict[str, object] = {
        "name": tenant.name,
        "arrivals_rps": tenant.arrivals_rps.tolist(),
        "capability_rps": dict(tenant.capability_rps),
        **_retraining_to_json(tenant),
        "overhead_s": tenant.overhead_s,
        "min_profile": tenant.min_profile,
        "weight": tenant.weight,
        "retraining_required": tenant.retraining_required,
    }
    if tenant.retraining_start_s is not None:
        document["retraining_start_s"] = tenant.retraining_start_s
    if tenant.swap_s:
        document["swap_s"] = tenant.swap_s
    if tenant.salvage:
        names = (NO_OPTION, *(option.name for option in tenant.options))
        document["salvage"] = dict(zip(names, tenant.salvage, strict=True))
    floor = tenant.min_slo_attainment
    if floor is not None:
        document["min_slo_attainment"] = {"share": floor.share, "per": floor.per.value}
        if floor.due:
            document["min_slo_attainment"] = {"share": floor.share, "per": floor.per.value, "due": floor.due}
    return document


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
    document: dict[str, object] = {
        "name": option.name,
        "time_s": dict(option.time_s),
        "accuracy_after": option.accuracy_after,
    }
    if option.checkpoints:
        document["checkpoints"] = [{"fraction": one.fraction, "accuracy": one.accuracy} for one in option.checkpoints]
    if option.checkpoint_s:
        document["checkpoint_s"] = option.checkpoint_s
    return document
