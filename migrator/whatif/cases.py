"""The points of a grid made concrete: the config as changed, and how its window is solved.

A point changes the config and nothing else, so ``migrator plan`` gives the same plan for the changed config. The
traffic is the config's own at every point, unless ``load`` changes it: scale factors that follow from the config's
``load`` are worked out once, for the config as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from migrator.config import Config, validate_config
from migrator.errors import ConfigError, ConfigSloError, GridError
from migrator.execution.planning import Solving
from migrator.inputs import assemble
from migrator.whatif.grid import Choice, Factor, Grid, Point, point_text
from planner.build import TYPICAL_INSTANCES
from planner.problem import Reconfiguration
from planner.solve import PAPER, PHYSICAL, engine_names
from workloads.errors import ProfileTableError
from workloads.profiles.table import read_profiles
from workloads.tenants import default_worker_start, worker_start

_Entry = dict[str, Any]
"""A part of a config as plain values, to be changed and then validated anew."""


@dataclass(frozen=True)
class Case:
    """A point made concrete.

    Attributes:
        point: Where in the grid it lies.
        config: As changed.
        origin: The config's file and the point, for messages.
        window: Which one is planned.
        solving: How.
    """

    point: Point
    config: Config
    origin: str
    window: int
    solving: Solving


def cases_of(grid: Grid, config: Config, origin: str, time_limit_s: float | None = None) -> tuple[Case, ...]:
    """A case for every point, in the grid's order; ``origin`` is the config's file.

    Raises:
        ConfigError: The config itself cannot be used.
        GridError: A choice that the config has no place for; names it and what is allowed.
    """
    _check_tenants(grid, config, origin)
    resolved = _with_own_methods(assemble(config, origin)[0].config, config)
    load_followers = frozenset(tenant.name for tenant in config.tenants if tenant.arrivals.scale.factor is None)
    cases = []
    for point in grid.points:
        where = f"{origin} with {point_text(point)}"
        changed = validate_config(_changed(resolved, load_followers, point), where)
        cases.append(Case(point, changed, where, _window(changed, point), _solving(point, time_limit_s)))
    return tuple(cases)


def _with_own_methods(resolved: Config, config: Config) -> Config:
    """The resolved config without the scale methods that followed from its factors: other factors, other methods."""
    tenants = []
    for made, given in zip(resolved.tenants, config.tenants, strict=True):
        scale = made.arrivals.scale.model_copy(update={"method": given.arrivals.scale.method})
        tenants.append(made.model_copy(update={"arrivals": made.arrivals.model_copy(update={"scale": scale})}))
    return resolved.model_copy(update={"tenants": tenants})


def check(case: Case) -> None:
    """Refuse a case that cannot be put together; an SLO that no profile meets is a result, not an error.

    Raises:
        ConfigError: It cannot be put together.
    """
    with suppress(ConfigSloError):
        assemble(case.config, case.origin)


def misfit(case: Case) -> str | None:
    """Why a case cannot be put together, as :func:`check` says; ``None`` if it can."""
    try:
        check(case)
    except ConfigError as error:
        return str(error).removeprefix(f"{case.origin}: ")
    return None


def _check_tenants(grid: Grid, config: Config, origin: str) -> None:
    names = [tenant.name for tenant in config.tenants]
    for variation in grid.variations:
        tenant = variation.choices[0].tenant
        if tenant is not None and tenant not in names:
            nearest = get_close_matches(tenant, names, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise GridError(f"--vary {variation.name}: {origin} has the tenants {', '.join(names)}{hint}")


def _changed(resolved: Config, load_followers: frozenset[str], point: Point) -> _Entry:
    """The resolved config with the point's choices, for every tenant's first, then for single ones.

    Raises:
        GridError: A choice that has no meaning there.
    """
    data: _Entry = resolved.model_dump()
    for choice in sorted(point, key=_order):
        match choice.key:
            case "gpu":
                data["gpu"]["model"] = choice.value
            case "step_s":
                data["step_s"] = choice.value
            case "tenants":
                data["tenants"] = _first_tenants(data["tenants"], choice)
            case "window" | "model" | "engine":
                pass  # no part of a config
            case _:
                for entry in _concerned(data["tenants"], choice, point):
                    _change_tenant(entry, choice, data, load_followers)
    return data


def _order(choice: Choice) -> tuple[bool, bool, bool]:
    # The number of tenants decides whom a choice concerns; the GPU, how many workers may start at once.
    return (choice.key != "tenants", choice.key != "gpu", choice.tenant is not None)


def _first_tenants(entries: Sequence[_Entry], choice: Choice) -> Sequence[_Entry]:
    assert isinstance(choice.value, int)
    if choice.value > len(entries):
        raise GridError(f"--vary {choice}: the config has {len(entries)} tenants; 1 to {len(entries)} are allowed")
    return entries[: choice.value]


def _concerned(entries: Sequence[_Entry], choice: Choice, point: Point) -> Sequence[_Entry]:
    found = [entry for entry in entries if choice.tenant in (None, entry["name"])]
    if not found:
        raise GridError(f"--vary {choice}: {point_text(point)} leaves no tenant {choice.tenant}")
    return found


def _change_tenant(entry: _Entry, choice: Choice, config: _Entry, load_followers: frozenset[str]) -> None:
    value = choice.value
    match choice.key:
        case "slo_ms":
            entry["slo_ms"] = entry["slo_ms"] * value.by if isinstance(value, Factor) else value
        case "batch":
            entry["batch"], entry["max_batch"] = "auto", None if value == "auto" else value
        case "load":
            entry["arrivals"]["scale"]["factor"] *= _load_factor(entry, choice, config["load"], load_followers)
        case "overhead_s":
            _change_overhead(entry, choice, config["gpu"]["model"], config["profiles"])
        case _:
            raise AssertionError(choice.key)


def _load_factor(entry: _Entry, choice: Choice, load: float | None, load_followers: frozenset[str]) -> float:
    """The growth of the tenant's arrivals. A load that is no factor moves only what follows the config's ``load``."""
    if isinstance(choice.value, Factor):
        return choice.value.by
    assert isinstance(choice.value, float)
    if choice.tenant is not None:
        raise GridError(f"--vary {choice}: a load is that of all tenants; for one, a factor such as x1.5 is needed")
    if load is None:
        raise GridError(f"--vary {choice}: the config has no load to replace; a factor such as x1.5 is needed")
    return choice.value / load if entry["name"] in load_followers else 1.0


def _change_overhead(entry: _Entry, choice: Choice, gpu: str, profiles: str | None) -> None:
    """Set the start-up of inference and retraining workers so that the plan's overheads are as chosen."""
    start = default_worker_start(entry["model"])
    if profiles is not None:
        with suppress(ProfileTableError):  # which the check of the case tells
            start = worker_start(read_profiles(Path(profiles)), gpu, entry["model"])
    if isinstance(choice.value, Factor):
        serving_s = start.base_s if entry["worker_start_s"] is None else entry["worker_start_s"]
        training_s = serving_s if entry["retraining_start_s"] is None else entry["retraining_start_s"]
        entry["worker_start_s"], entry["retraining_start_s"] = serving_s * choice.value.by, training_s * choice.value.by
    else:
        assert isinstance(choice.value, float)
        # The plan's overhead is the start of one of several at once, which takes longer than one alone.
        slowdown = 1.0 + start.slowdown_per_other * (TYPICAL_INSTANCES - 1)
        entry["worker_start_s"] = entry["retraining_start_s"] = choice.value / slowdown


def _window(config: Config, point: Point) -> int:
    window = next((choice.value for choice in point if choice.key == "window"), 0)
    assert isinstance(window, int)
    if window >= config.windows:
        raise GridError(f"--vary window={window}: the config has windows 0 to {config.windows - 1}")
    return window


def _solving(point: Point, time_limit_s: float | None) -> Solving:
    chosen = {choice.key: str(choice.value) for choice in point}
    engine = chosen.get("engine")
    model = chosen.get("model") or (PHYSICAL if engine is None or engine in engine_names(PHYSICAL) else PAPER)
    if engine is not None and engine not in engine_names(model):
        raise GridError(
            f"--vary engine={engine}, model={model}: engines for {model} are {', '.join(engine_names(model))}"
        )
    return Solving(Reconfiguration(model), engine, time_limit_s=time_limit_s)
