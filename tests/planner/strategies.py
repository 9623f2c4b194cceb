"""Small planning problems of both models for hypothesis, and what may be changed in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from executor.catalogue import gpu_model
from executor.mig import GpuModel, Placement
from planner.arrays import Floats
from planner.gains import carry_over_gains
from planner.problem import (
    HeldInstance,
    InitialState,
    PaperState,
    PhysicalState,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.unavailable import Unavailable

PROFILES = {
    "a30-24gb": ("1g.6gb", "2g.12gb", "4g.24gb"),
    "a100-40gb": ("2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
}
"""Profiles that are used of each GPU model; a few, so that engines are quick."""


@dataclass(frozen=True)
class Case:
    """A problem, and what its carry-over tables come from: sample paths by tenant, and slack; or min(a, C)."""

    bare: Problem
    paths_rps: tuple[Floats, ...] | None
    slack_s: float

    @property
    def problem(self) -> Problem:
        """The problem with its gain tables."""
        if self.paths_rps is None:
            return self.bare
        slack_s = [dict.fromkeys(self.bare.gpu.profile_names, self.slack_s) for _ in self.bare.tenants]
        return replace(self.bare, gains=carry_over_gains(self.bare, self.paths_rps, slack_s))

    def with_tenants(self, change: Callable[[TenantTerms], TenantTerms]) -> Case:
        """The case with every tenant changed."""
        return replace(self, bare=replace(self.bare, tenants=tuple(map(change, self.bare.tenants))))

    def scaled(self, factor: float) -> Case:
        """Arrivals and capabilities times ``factor``."""

        def more(tenant: TenantTerms) -> TenantTerms:
            rates = {name: rate * factor for name, rate in tenant.capability_rps.items()}
            return replace(tenant, arrivals_rps=tenant.arrivals_rps * factor, capability_rps=rates)

        paths = None if self.paths_rps is None else tuple(paths * factor for paths in self.paths_rps)
        return replace(self.with_tenants(more), paths_rps=paths)

    def reversed(self) -> Case:
        """The tenants in the other order."""
        paths = None if self.paths_rps is None else self.paths_rps[::-1]
        return replace(self, bare=replace(self.bare, tenants=self.bare.tenants[::-1]), paths_rps=paths)


def cases(model: Reconfiguration) -> st.SearchStrategy[Case]:
    """Cases of one model: one to three tenants on an A30, one or two on an A100, three to six steps."""
    return _cases(model)


@st.composite
def _cases(draw: st.DrawFn, model: Reconfiguration) -> Case:
    gpu = gpu_model(draw(st.sampled_from(["a30-24gb", "a30-24gb", "a100-40gb"])))
    n_tenants = draw(st.integers(1, 3 if gpu.name.startswith("a30") else 2))
    n_steps, step_s = draw(st.integers(3, 6)), draw(st.sampled_from([0.5, 1.0, 2.0]))
    tenants = tuple(draw(_tenants(gpu, f"t{index}", n_steps, step_s)) for index in range(n_tenants))
    initial = draw(st.none() | _initial_states(model, gpu, tenants, n_steps))
    unavailable = tuple(draw(st.just([]) | st.lists(_unavailable(gpu, n_steps), max_size=2)))
    switch_s = draw(st.sampled_from([0.0, 0.4 * step_s]))
    bare = Problem(gpu, step_s, n_steps, model, tenants, switch_s, initial, unavailable=unavailable)
    paths = draw(st.none() | st.lists(_rates(2 * n_steps), min_size=n_tenants, max_size=n_tenants))
    tables = None if paths is None else tuple(np.array(rates).reshape(2, n_steps) for rates in paths)
    return Case(bare, tables, draw(st.sampled_from([0.05, 0.3])))


@st.composite
def _unavailable(draw: st.DrawFn, gpu: GpuModel, n_steps: int) -> Unavailable:
    """A quarter or half of the GPU, from some step on and mostly to some step."""
    quarter = gpu.memory_slices // 4
    first, n = draw(st.integers(0, 3)), draw(st.sampled_from([1, 1, 2]))
    from_step = draw(st.integers(0, n_steps - 1))
    to_step = draw(st.none() | st.integers(from_step + 1, n_steps))
    return Unavailable(tuple(range(first * quarter, min(first + n, 4) * quarter)), from_step, to_step)


def _rates(n: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.integers(0, 240).map(float), min_size=n, max_size=n)


@st.composite
def _tenants(draw: st.DrawFn, gpu: GpuModel, name: str, n_steps: int, step_s: float) -> TenantTerms:
    names = PROFILES[gpu.name]
    serving = sorted({names[0], *draw(st.sets(st.sampled_from(names), max_size=1))})
    options = draw(st.lists(_options(names, step_s), max_size=2, unique_by=lambda option: option.name))
    return TenantTerms(
        name=name,
        arrivals_rps=np.array(draw(_rates(n_steps))),
        capability_rps={p: float(draw(st.integers(20, 60)) * gpu.profile(p).compute_slices) for p in serving},
        accuracy_before=draw(st.sampled_from([0.4, 0.6])),
        overhead_s=draw(st.sampled_from([0.0, 0.5, 1.0, 2.5])) * step_s,
        min_profile=draw(st.sampled_from([names[0], names[0], serving[-1]])),
        options=tuple(options),
        retraining_required=draw(st.booleans()),
        weight=draw(st.sampled_from([1.0, 1.0, 2.0, 0.0])),
        retraining_start_s=draw(st.sampled_from([None, 0.5 * step_s])),
    )


@st.composite
def _options(draw: st.DrawFn, names: tuple[str, ...], step_s: float) -> RetrainingOption:
    times = draw(st.dictionaries(st.sampled_from(names[:3]), st.floats(0.2, 2.5), min_size=1, max_size=2))
    after = draw(st.sampled_from([0.3, 0.7, 0.9]))
    return RetrainingOption(
        draw(st.sampled_from(["full", "last-layer"])), {n: t * step_s for n, t in times.items()}, after
    )


def _initial_states(
    model: Reconfiguration, gpu: GpuModel, tenants: tuple[TenantTerms, ...], n_steps: int
) -> st.SearchStrategy[InitialState]:
    if model is Reconfiguration.PAPER:
        held = {t.name: st.lists(st.sampled_from(sorted(t.capability_rps)), max_size=2).map(tuple) for t in tenants}
        fitting = st.fixed_dictionaries(held).filter(lambda drawn: _fit_together(gpu, sum(drawn.values(), ())))
        return fitting.map(PaperState)
    return _physical_states(gpu, tenants, n_steps)


def _fit_together(gpu: GpuModel, names: tuple[str, ...]) -> bool:
    distinct = tuple(sorted(set(names)))
    return tuple(map(names.count, distinct)) in gpu.multisets(distinct)


@st.composite
def _physical_states(draw: st.DrawFn, gpu: GpuModel, tenants: tuple[TenantTerms, ...], n_steps: int) -> PhysicalState:
    """Tenants in turn hold the first place that is left for them; some have a retraining in progress."""
    used: list[Placement] = []
    held: list[HeldInstance] = []
    running: list[RunningRetraining] = []
    next_epoch_step = draw(st.sampled_from([0, 0, 1, 2]))
    for tenant in tenants * 2:
        name = draw(st.sampled_from(sorted(tenant.capability_rps)))
        place = _free(gpu, used, name)
        if place is not None and (len(held) < len(tenants) or draw(st.booleans())):
            used.append(place)
            held.append(HeldInstance(place, tenant.name, draw(st.integers(0, next_epoch_step))))
    for tenant in tenants:
        place = _free(gpu, used, PROFILES[gpu.name][0])
        if tenant.options and place is not None and draw(st.booleans()):
            used.append(place)
            running.append(RunningRetraining(place, tenant.name, draw(st.integers(1, n_steps))))
    return PhysicalState(tuple(held), tuple(running), next_epoch_step)


def _free(gpu: GpuModel, used: list[Placement], name: str) -> Placement | None:
    return next((place for place in gpu.placements([name]) if gpu.fits([*used, place])), None)
