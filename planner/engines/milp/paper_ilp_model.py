"""The paper's program as a formulation: which configurations it has, how a plan becomes its start and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import pulp

from executor.mig import GpuModel, Multiset
from planner.counts import feasible_multisets
from planner.engines.milp.hull import maximal_multisets
from planner.engines.milp.paper_ilp_formulas import formulate
from planner.engines.milp.paper_ilp_symbols import Held, PaperSymbols
from planner.engines.paper.plan import TenantDecision, running_at
from planner.errors import EngineError
from planner.problem import Problem, Retraining


class Configs(StrEnum):
    """Which configurations Λ holds."""

    PAPER12 = "paper12"
    ALL = "all"


PAPER12_COMPUTE_SLICES = (1, 2, 3, 4, 7)
"""Sizes of the profiles in the paper's Figure 1."""


def configs_of(name: Configs | str) -> Configs:
    """The set of configurations of that name.

    Raises:
        EngineError: There is none; names those known.
    """
    try:
        return Configs(name)
    except ValueError:
        raise EngineError(f"unknown configs {name!r}; known: {', '.join(Configs)}") from None


def configurations(problem: Problem, configs: Configs) -> tuple[Multiset, ...]:
    """Λ as counts over ``problem.profile_names``, none contained in another one of all profiles considered.

    ``all``: every way to cut the GPU into the problem's profiles. ``paper12``: the paper's twelve, without
    instances of profiles that no task of the problem uses.

    Raises:
        EngineError: ``paper12`` for a GPU or a profile that the twelve do not have.
    """
    match configs:
        case Configs.ALL:
            return maximal_multisets(feasible_multisets(problem.gpu, problem.profile_names))
        case Configs.PAPER12:
            names = _paper12_profiles(problem.gpu)
            _check_paper12(problem, names)
            twelve = maximal_multisets(feasible_multisets(problem.gpu, names))
            return tuple(
                tuple(counts[names.index(name)] if name in names else 0 for name in problem.profile_names)
                for counts in twelve
            )
        case _:
            assert_never(configs)


def _paper12_profiles(gpu: GpuModel) -> tuple[str, ...]:
    names = gpu.standard_profile_names
    if tuple(gpu.profile(name).compute_slices for name in names) != PAPER12_COMPUTE_SLICES:
        raise EngineError(
            f"configs 'paper12' are those of a GPU with 7 compute slices; {gpu.name} has {gpu.compute_slices}: "
            "use configs 'all'"
        )
    return names


def _check_paper12(problem: Problem, names: Sequence[str]) -> None:
    for tenant in problem.tenants:
        used = {*tenant.capability_rps, *(name for option in tenant.options for name in option.time_s)}
        foreign = [name for name in problem.gpu.profile_names if name in used and name not in names]
        if foreign:
            raise EngineError(
                f"configs 'paper12' have no {', '.join(foreign)}, which tenant {tenant.name} may use; they have "
                f"{', '.join(names)}: use configs 'all'"
            )


@dataclass(frozen=True)
class PaperModel:
    """The paper's program of a problem; a ``Formulation``."""

    symbols: PaperSymbols

    @property
    def program(self) -> pulp.LpProblem:
        """To be minimised; its objective is minus goodput, times ``scale``."""
        return self.symbols.variables.program

    @property
    def scale(self) -> float:
        """Units of the program's objective per request."""
        return 1.0 / (self.symbols.unit * self.symbols.worth)

    def start_from(self, decisions: Sequence[TenantDecision]) -> None:
        """Give every variable the value that it has in these decisions, which keep the rules."""
        symbols = self.symbols
        for step in range(symbols.problem.n_steps):
            free = self._free_instances(decisions, step)
            for m, decision in enumerate(decisions):
                _hold(symbols.held[m][step], _take(free, decision.held[step]))
                for option_index, task in enumerate(symbols.tasks[m]):
                    choice = decision.retraining
                    own = choice if choice is not None and choice.level == option_index + 1 else None
                    _hold(task.held[step], _take(free, running_at(symbols.problem, (own,), step)))
        symbols.variables.work_out()

    def _free_instances(self, decisions: Sequence[TenantDecision], step: int) -> list[list[int]]:
        """The instances, by profile, of the first configuration that has room for all that is held in the step."""
        symbols = self.symbols
        running = running_at(symbols.problem, tuple(decision.retraining for decision in decisions), step)
        total = [sum(counts) for counts in zip(*(d.held[step] for d in decisions), running, strict=True)]
        config = next(
            index
            for index, counts in enumerate(symbols.configs)
            if all(n <= most for n, most in zip(total, counts, strict=True))
        )
        own = [(i, instance.profile_index) for i, instance in enumerate(symbols.instances) if instance.config == config]
        return [[i for i, profile in own if profile == p] for p in range(len(total))]

    def decisions(self) -> tuple[TenantDecision, ...]:
        """What the variables' values decide, each binary rounded; not checked."""
        symbols = self.symbols
        return tuple(
            TenantDecision(tuple(self._counts(held) for held in symbols.held[m]), self._started(m))
            for m in range(len(symbols.problem.tenants))
        )

    def _counts(self, held: Held) -> Multiset:
        profiles = [self.symbols.instances[i].profile_index for i, x in held.items() if _is_one(x)]
        return tuple(profiles.count(p) for p in range(len(self.symbols.problem.profile_names)))

    def _started(self, m: int) -> Retraining | None:
        """The retraining that starts first, if one does and holds an instance."""
        for option_index, task in enumerate(self.symbols.tasks[m]):
            for step, (starts, held) in enumerate(zip(task.starts, task.held, strict=True)):
                profiles = [p for p, count in enumerate(self._counts(held)) if count]
                if _is_one(starts) and profiles:
                    end_step = step + task.durations[profiles[0]]
                    profile = self.symbols.problem.profile_names[profiles[0]]
                    return Retraining(m, option_index + 1, profile, step, end_step)
        return None


def paper_model(problem: Problem, configs: Sequence[Multiset]) -> PaperModel:
    """The paper's program of a ``paper`` problem over these configurations, counts over its profiles."""
    return PaperModel(formulate(problem, configs))


def _take(free: list[list[int]], counts: Multiset) -> list[int]:
    """As many instances of each profile as ``counts`` says, which are then free no more."""
    return [free[p].pop() for p, count in enumerate(counts) for _ in range(count)]


def _hold(held: Held, taken: Iterable[int]) -> None:
    chosen = set(taken)
    for i, x in held.items():
        x.setInitialValue(float(i in chosen))


def _is_one(variable: pulp.LpVariable) -> bool:
    return bool((variable.value() or 0.0) > 0.5)
