"""What a window starts from: the instances held and the retrainings in progress when it opens.

Messages name keys as they stand in a problem file, ``initial.held[0]``; see :mod:`planner.files.problem_file`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from executor.mig import Placement
from planner.errors import ProblemError

if TYPE_CHECKING:  # planner.problem imports this module
    from planner.problem import Problem


@dataclass(frozen=True, slots=True)
class HeldInstance:
    """An instance that a tenant's inference holds when the window opens, serving from ``serve_step``."""

    placement: Placement
    tenant: str
    serve_step: int


@dataclass(frozen=True, slots=True)
class RunningRetraining:
    """A retraining in progress when the window opens; it ends before ``end_step`` (always on option 0)."""

    placement: Placement
    tenant: str
    end_step: int


@dataclass(frozen=True, slots=True)
class PhysicalState:
    """What a ``physical`` window starts from.

    ``next_epoch_step`` is the first step at which the held set may change; no held instance
    serves later than that.
    """

    held: tuple[HeldInstance, ...] = ()
    retrainings: tuple[RunningRetraining, ...] = ()
    next_epoch_step: int = 0


@dataclass(frozen=True, slots=True)
class PaperState:
    """What a ``paper`` window starts from: the profiles that each tenant's inference held, by tenant name."""

    held: Mapping[str, tuple[str, ...]]


InitialState = PaperState | PhysicalState


def check_paper_state(problem: Problem, state: PaperState) -> None:
    """Nothing, if ``problem`` may start from ``state``.

    Raises:
        ProblemError: A tenant or profile that does not exist, or profiles that do not fit the GPU together.
    """
    gpu = problem.gpu
    for tenant, names in state.held.items():
        _require_tenant(problem, "initial", tenant)
        for index, name in enumerate(names):
            if name not in gpu.profile_names:
                allowed = ", ".join(gpu.profile_names)
                raise ProblemError(f"initial.{tenant}[{index}] is {name!r}; {gpu.name} has {allowed}")
    counts = Counter(name for names in state.held.values() for name in names)
    if tuple(counts.values()) not in gpu.multisets(tuple(counts)):
        shown = ", ".join(f"{count} × {name}" for name, count in counts.items())
        raise ProblemError(f"initial holds {shown} in all, which no layout of {gpu.name} does")


def check_physical_state(problem: Problem, state: PhysicalState) -> None:
    """Nothing, if ``problem`` may start from ``state``.

    Raises:
        ProblemError: A tenant that does not exist, placements that are no layout, or steps that cannot be.
    """
    if state.next_epoch_step < 0:
        raise ProblemError(f"initial.next_epoch_step is {state.next_epoch_step}; ≥ 0 is needed")
    for index, held in enumerate(state.held):
        _check_held(problem, state, f"initial.held[{index}]", held)
    for index, running in enumerate(state.retrainings):
        _check_running(problem, state, f"initial.retrainings[{index}]", running)
    placements = [item.placement for item in state.held] + [item.placement for item in state.retrainings]
    if not problem.gpu.fits(placements):
        shown = ", ".join(map(str, placements))
        raise ProblemError(f"initial.held and initial.retrainings, {shown}, are no layout of {problem.gpu.name}")


def _check_held(problem: Problem, state: PhysicalState, where: str, item: HeldInstance) -> None:
    _require_tenant(problem, where, item.tenant)
    if not 0 <= item.serve_step <= state.next_epoch_step:
        raise ProblemError(
            f"{where}: {item.placement} serves from step {item.serve_step}; 0 to next_epoch_step "
            f"({state.next_epoch_step}) is allowed"
        )
    may_serve = problem.tenants[problem.tenant_names.index(item.tenant)].capability_rps
    if item.placement.profile.name not in may_serve:
        raise ProblemError(f"{where}: {item.placement} cannot serve {item.tenant}; {', '.join(may_serve)} can")


def _check_running(problem: Problem, state: PhysicalState, where: str, item: RunningRetraining) -> None:
    _require_tenant(problem, where, item.tenant)
    if [other.tenant for other in state.retrainings].count(item.tenant) > 1:
        raise ProblemError(f"{where}: {item.tenant} runs two retrainings; one is allowed")
    if not problem.tenants[problem.tenant_names.index(item.tenant)].options:
        raise ProblemError(f"{where}: {item.tenant} runs one but offers none, so its outcome is unknown")
    if not 0 < item.end_step <= problem.n_steps:
        raise ProblemError(
            f"{where}: {item.tenant}'s ends before step {item.end_step}; 1 to n_steps ({problem.n_steps}) is allowed"
        )


def _require_tenant(problem: Problem, where: str, name: str) -> None:
    names = problem.tenant_names
    if name not in names:
        raise ProblemError(f"{where}: {name!r} is no tenant of the problem; those are {', '.join(names)}")
