"""The planning problem: what tenants bring and need over a window of steps on one GPU.

Symbols used across the planner (all of the design's section 4):

===========  ==========================================================================
m            tenant index, 0 … n_tenants − 1, in the order of ``Problem.tenants``
s            step index, 0 … n_steps − 1; each lasts ``step_s`` seconds
p            profile index into ``Problem.profile_names``
a[m, s]      requests that tenant m brings in step s = ``arrivals_rps[s] · step_s``
c[m, p]      requests a second that one instance of p serves for m within its SLO
RT           ``time_s[p]`` of a retraining option and ``checkpoint_s`` for each of its checkpoints;
             d = max(1, ⌈RT/step_s − 1e-9⌉) steps
level        0: the accuracy is ``accuracy_before``; 1 … n_options: that after option level − 1; beyond those one
             level for each kept checkpoint, option by option (``planner.levels``)
T[m, s, k]   requests of step s that are expected to be answered in time if multiset k serves
A[m, s]      requests of step s that are expected at all
q            least share of them that a floor asks for: ``AttainmentFloor.share``
S[m, level]  what a window that ends at the level is worth beyond it: ``TenantTerms.salvage``
===========  ==========================================================================

All values are frozen and their arrays read-only. A ``Problem`` that exists is well formed:
:meth:`Problem.__post_init__` refuses anything else with :class:`~planner.errors.ProblemError`.
Whether it can be *met* is another question: ``planner.feasibility``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from executor.errors import ExecutorError
from executor.mig import GpuModel, Multiset, Placement, Profile, Variant
from planner.arrays import Floats
from planner.errors import ProblemError
from planner.unavailable import Unavailable

FoundT = TypeVar("FoundT")

MAX_PAPER_TENANTS = 6
"""What a step costs doubles with every tenant in ``paper``; ``physical`` is limited by the GPU alone."""

MOST_NUMBER, LEAST_STEP_S = 1e9, 1e-6
"""Rates, times and weights beyond these are slips of the pen, and sums of them lose what they are made of."""

MOST_SALVAGE = 1e15
"""Salvage beyond this is one, too; it may be worth windows of requests, so that more is allowed than of rates."""

SHORT_OPTION = "full"
"""The name of the only option where there is one way to retrain: ``retraining_s`` of a problem file."""

STEP_TOLERANCE = 1e-9
"""Durations this close above a whole number of steps count as that number."""


class Reconfiguration(StrEnum):
    """How a change of the held instances is charged."""

    PAPER = "paper"
    PHYSICAL = "physical"


class Task(StrEnum):
    """What a tenant does on an instance."""

    INFERENCE = "inference"
    RETRAINING = "retraining"


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The holder of a placement: a task of a tenant, or the inference of a pool of tenants.

    Attributes:
        tenant: The tenant; of a pool the first one, in the problem's order.
        task: What it does there.
        others: The further members of a pool, in the problem's order.
    """

    tenant: str
    task: Task
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'+'.join(self.members)}/{self.task}"

    @property
    def members(self) -> tuple[str, ...]:
        """All whose task it is."""
        return self.tenant, *self.others


def steps_of(duration_s: float, step_s: float) -> int:
    """Steps that ``duration_s`` takes: max(1, ⌈duration/step − 1e-9⌉); 2.1 s at 0.3 s are 7."""
    return max(1, math.ceil(duration_s / step_s - STEP_TOLERANCE))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights as they are after a ``fraction`` of a training, above 0 and below 1, and the accuracy that they give."""

    fraction: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class RetrainingOption:
    """One way to retrain: how long it takes on each profile that can hold it, and what it yields.

    Attributes:
        name: Unique within the tenant.
        time_s: Seconds of training by profile name, without checkpoints.
        accuracy_after: What the tenant has once it has ended.
        checkpoints: Weights that can be served before its end, by rising fraction.
        checkpoint_s: Seconds that each of them adds to the training, served or not.
    """

    name: str
    time_s: Mapping[str, float]
    accuracy_after: float
    checkpoints: tuple[Checkpoint, ...] = ()
    checkpoint_s: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class Retraining:
    """A tenant's retraining that holds one instance of ``profile`` over ``[start_step, end_step)``.

    Attributes:
        tenant: Index of the tenant.
        level: The tenant's level from ``end_step`` on; its option ``level − 1`` runs.
        profile: Name of the profile.
        start_step: First step in which it holds its instance.
        end_step: First step with the new accuracy.
    """

    tenant: int
    level: int
    profile: str
    start_step: int
    end_step: int

    @property
    def n_steps(self) -> int:
        """Steps of start-up and training."""
        return self.end_step - self.start_step

    def at(self, start_step: int) -> Retraining:
        """The same retraining, started at another step."""
        return replace(self, start_step=start_step, end_step=start_step + self.n_steps)


class Per(StrEnum):
    """Over what a floor of in-time answers holds."""

    WINDOW = "window"
    STEP = "step"


FLOOR_TOLERANCE = 1e-9
"""Requests by which a floor may be missed: rounding. Per window, the same share of what it asks for above one."""


@dataclass(frozen=True, slots=True)
class AttainmentFloor:
    """The least share of a tenant's requests that a plan has to answer in time, whatever that costs in goodput.

    Attributes:
        share: q, above 0 and at most 1.
        per: ``window``: Σ_s T ≥ q · Σ_s A over the problem's steps. ``step``: T ≥ q · A in each step that binds
            (``planner.floors``).
        due: ``window``: requests that are owed from before the problem's first step, on top of q · Σ A; below 0
            where more than the share was answered. It comes from planning again inside a window.
    """

    share: float
    per: Per = Per.WINDOW
    due: float = 0.0

    def __str__(self) -> str:
        return f"{100 * self.share:.10g} % in time per {self.per}"


@dataclass(frozen=True, eq=False)
class TenantTerms:
    """What the planner knows of one tenant in this window; equal only to itself, as arrays have no one equality.

    Attributes:
        name: Unique within the problem.
        arrivals_rps: Requests a second in each step, ``(n_steps,)``, read-only.
        capability_rps: Requests a second within the SLO, by profile name; its keys are the
            profiles that may serve the tenant's inference.
        accuracy_before: Share of answers that are correct until a retraining ends.
        options: Ways to retrain; empty when there is none in this window.
        overhead_s: Seconds from a created instance to a serving worker (Ψ of the paper).
        min_profile: Inference holds at least one instance as large as this at every step.
        retraining_required: Whether exactly one option must run, also when it does not pay.
        weight: Factor on the tenant's goodput.
        retraining_start_s: Start-up of a retraining worker; ``None`` stands for ``overhead_s``.
        min_slo_attainment: The floor of its in-time answers; ``None`` for none.
        salvage: S in requests, weight included, by the level at the window's end (a retraining that ends with the
            window counts), ``(1 + n_options,)``; empty stands for zeros.
        swap_s: Seconds in which it serves nothing while new weights are taken over.
    """

    name: str
    arrivals_rps: Floats
    capability_rps: Mapping[str, float]
    accuracy_before: float
    overhead_s: float
    min_profile: str
    options: tuple[RetrainingOption, ...] = ()
    retraining_required: bool = True
    weight: float = 1.0
    retraining_start_s: float | None = None
    min_slo_attainment: AttainmentFloor | None = None
    salvage: tuple[float, ...] = ()
    swap_s: float = 0.0

    def __post_init__(self) -> None:
        arrivals = np.array(self.arrivals_rps, dtype=np.float64)
        arrivals.setflags(write=False)
        object.__setattr__(self, "arrivals_rps", arrivals)
        object.__setattr__(self, "capability_rps", MappingProxyType(dict(self.capability_rps)))

    @property
    def must_retrain(self) -> bool:
        """Whether a retraining has to start in the window (unless one is already running)."""
        return bool(self.options) and self.retraining_required

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Accuracy by level: before, after each option, then of each kept checkpoint; ``(n_levels,)``."""
        ended = (self.accuracy_before, *(option.accuracy_after for option in self.options))
        kept = (pair for level in range(1, len(ended)) for pair in self.kept_checkpoints(level))
        return (*ended, *(checkpoint.accuracy for _, checkpoint in kept))

    def kept_checkpoints(self, level: int) -> tuple[tuple[int, Checkpoint], ...]:
        """(own level, checkpoint) of option ``level − 1``: those better than the model before and all before them."""
        number = len(self.options)
        for option in self.options[:level]:
            kept, best = [], self.accuracy_before
            for checkpoint in option.checkpoints:
                if checkpoint.accuracy > best:
                    number, best = number + 1, checkpoint.accuracy
                    kept.append((number, checkpoint))
        return tuple(kept)

    def level_of(self, option: str | None) -> int:
        """The level by the option of that name; without a name by the first, which is in progress as a window opens."""
        return 1 if option is None else 1 + [own.name for own in self.options].index(option)

    @property
    def has_swaps(self) -> bool:
        """Whether levels may change otherwise than at once and at a retraining's end."""
        return bool(self.options) and (self.swap_s > 0 or any(option.checkpoints for option in self.options))

    @property
    def ending_names(self) -> tuple[str, ...]:
        """What a window may end with, by level: no retraining, ``none``, or an option by name; ``(1 + n_options,)``."""
        return ("none", *(option.name for option in self.options))

    @property
    def salvages(self) -> tuple[float, ...]:
        """``salvage`` by level, written out where it stands for zeros; ``(1 + n_options,)``."""
        return self.salvage or (0.0,) * (1 + len(self.options))


@dataclass(frozen=True, slots=True)
class Pool:
    """Tenants whose inference holds instances together: each of these has the weights of all, and serves one at a time.

    Attributes:
        members: Two or more, in the problem's order.
        capability_rps: By profile that serves the pool, then by member: requests a second within its SLO that one
            instance answers if it serves no other member, a turn's cost taken off.
        overhead_s: Seconds from a created instance until all members' workers serve in it.
    """

    members: tuple[str, ...]
    capability_rps: Mapping[str, Mapping[str, float]]
    overhead_s: float

    def __post_init__(self) -> None:
        rates = {name: MappingProxyType(dict(by_member)) for name, by_member in self.capability_rps.items()}
        object.__setattr__(self, "capability_rps", MappingProxyType(rates))

    def __hash__(self) -> int:
        return hash((self.members, tuple(self.capability_rps), self.overhead_s))


@dataclass(frozen=True, eq=False)
class GainTable:
    """Expected goodput of one tenant by level, step and the multiset its inference serves with.

    Attributes:
        multisets: Columns, each a tuple of counts over ``Problem.profile_names``; column 0 is the
            empty multiset.
        steady: Goodput in requests (weight and accuracy included) when the multiset serves the
            whole step, ``(n_levels, n_steps, n_multisets)``; never lower for a superset.
        changed: The same in a step where the multiset has just changed (``paper`` only: the
            step's capacity is reduced by the overhead, and may be negative), else ``None``.
        in_time: T, the requests that are served in time: what ``steady`` is before weight and accuracy,
            ``(n_steps, n_multisets)``; ≥ 0, never lower for a superset. Needed where the tenant has a floor.
        in_time_changed: The same for ``changed``: never above ``in_time``, and negative where a change takes longer
            than its step, as goodput is.
        arrived: A, the mean arrivals that ``in_time`` is a part of, ``(n_steps,)``; ``None`` stands for the tenant's.
    """

    multisets: tuple[Multiset, ...]
    steady: Floats
    changed: Floats | None = None
    in_time: Floats | None = None
    in_time_changed: Floats | None = None
    arrived: Floats | None = None
    column: Mapping[Multiset, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for table in (self.steady, self.changed, self.in_time, self.in_time_changed, self.arrived):
            if table is not None:
                table.setflags(write=False)
        columns = {multiset: index for index, multiset in enumerate(self.multisets)}
        object.__setattr__(self, "column", MappingProxyType(columns))


@dataclass(frozen=True, slots=True)
class HeldInstance:
    """An instance that inference holds when the window opens, serving from ``serve_step``.

    ``tenant`` holds it, or a pool of it and of ``others``, which need not be a pool of this window.
    """

    placement: Placement
    tenant: str
    serve_step: int
    others: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """All whose weights are in it."""
        return self.tenant, *self.others


@dataclass(frozen=True, slots=True)
class RunningRetraining:
    """A retraining in progress when the window opens; it ends before ``end_step`` (always on option 0).

    On a loan it runs in an instance that is held, too, and which serves nobody from ``lent_from`` to its end; ``None``
    where the instance is its own.
    """

    placement: Placement
    tenant: str
    end_step: int
    lent_from: int | None = None


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


@dataclass(frozen=True)
class Problem:
    """One window to plan on one GPU.

    Attributes:
        gpu: The GPU model.
        step_s: Seconds a step.
        n_steps: Steps of the window.
        reconfiguration: Which cost model holds.
        tenants: One to as many as the GPU has compute slices, in ``paper`` six at most; with distinct names. Those of a
            pool count as one.
        switch_s: ``physical``: seconds for draining a batch and the largest change's serial driver
            calls; ``None`` stands for the default derived from the GPU model's driver times.
        initial: What the window starts from; ``None`` when the first layout is free.
        gains: Gain tables, one a tenant, when they are better than min(a, C); ``None`` for those.
        unavailable: Memory slices that are not ours; empty where the whole GPU is.
        pools: ``physical``: tenants that hold instances together; a tenant that is in none holds its own.
        layout: ``physical``: the one layout that all tenants together hold, from when it can be there to the window's
            end; retrainings run on loans of its instances alone, one at a time. Empty where plans choose layouts.

    Raises:
        ProblemError: Naming tenant, key, value and what is allowed.
    """

    gpu: GpuModel
    step_s: float
    n_steps: int
    reconfiguration: Reconfiguration
    tenants: tuple[TenantTerms, ...]
    switch_s: float | None = None
    initial: InitialState | None = None
    gains: tuple[GainTable, ...] | None = field(default=None, compare=False)
    unavailable: tuple[Unavailable, ...] = ()
    pools: tuple[Pool, ...] = ()
    layout: tuple[Placement, ...] = ()

    def __post_init__(self) -> None:
        _check_problem(self)

    @cached_property
    def profile_names(self) -> tuple[str, ...]:
        """Profiles that any task of any tenant may use or already holds, in catalogue order."""
        used = {name for tenant in self.tenants for name in self.capability_rps(tenant)}
        used |= {n for tenant in self.tenants for option in tenant.options for n in option.time_s}
        used |= {item.placement.profile.name for item in self.opening.held}
        used |= {item.placement.profile.name for item in self.opening.retrainings}
        used |= {placement.profile.name for placement in self.layout}
        if self.paper_initial is not None:
            used |= {name for names in self.paper_initial.held.values() for name in names}
        return tuple(name for name in self.gpu.profile_names if name in used)

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of ``profile_names``."""
        return tuple(self.gpu.profile(name) for name in self.profile_names)

    @property
    def tenant_names(self) -> tuple[str, ...]:
        """The tenants' names in order."""
        return tuple(tenant.name for tenant in self.tenants)

    def tenant(self, name: str) -> TenantTerms:
        """The tenant of this name.

        Raises:
            ProblemError: There is none.
        """
        if name not in self.tenant_names:
            raise ProblemError(f"{name!r} is no tenant of the problem; those are {', '.join(self.tenant_names)}")
        return self.tenants[self.tenant_names.index(name)]

    def rates_rps(self, tenant: TenantTerms) -> Floats:
        """Requests a second that one instance of each of ``profile_names`` serves for the tenant, ``(n_profiles,)``."""
        rates = self.capability_rps(tenant)
        return np.array([rates.get(name, 0.0) for name in self.profile_names])

    @cached_property
    def partition(self) -> tuple[tuple[int, ...], ...]:
        """Which tenants hold instances together, by index: the pools, and each other tenant alone; by their first."""
        names = self.tenant_names
        pools = {names.index(pool.members[0]): tuple(map(names.index, pool.members)) for pool in self.pools}
        pooled = {m for members in pools.values() for m in members}
        return tuple(pools.get(m, (m,)) for m in range(len(names)) if m in pools or m not in pooled)

    @cached_property
    def holder_of(self) -> tuple[int, ...]:
        """By tenant, the place in ``partition`` of those with whom it holds instances."""
        holder = {m: number for number, members in enumerate(self.partition) for m in members}
        return tuple(holder[m] for m in range(len(self.tenants)))

    def owner(self, holder: int) -> Owner:
        """The inference of those at a place in ``partition``."""
        first, *others = (self.tenant_names[m] for m in self.partition[holder])
        return Owner(first, Task.INFERENCE, tuple(others))

    def pool_of(self, name: str) -> Pool | None:
        """The pool of the tenant of this name; ``None`` if it holds its own instances."""
        return next((pool for pool in self.pools if name in pool.members), None)

    def capability_rps(self, tenant: TenantTerms) -> Mapping[str, float]:
        """Requests a second that one instance serves for the tenant, by the profiles that serve it, or its pool."""
        pool = self.pool_of(tenant.name)
        if pool is None:
            return tenant.capability_rps
        return {name: rates[tenant.name] for name, rates in pool.capability_rps.items()}

    def may_serve(self, holder: int, placement: Placement) -> bool:
        """Whether an instance there may serve those at a place in ``partition``."""
        return placement.profile.name in self.capability_rps(self.tenants[self.partition[holder][0]])

    @cached_property
    def heirs(self) -> tuple[int, ...]:
        """Of each instance held when the window opens, which holder keeps it: a place in ``partition``.

        That are those that share most tenants with its holder, the first of equals; those that it cannot serve come
        last.
        """
        by_name = dict(zip(self.tenant_names, self.holder_of, strict=True))

        def rank(item: HeldInstance, holder: int) -> tuple[bool, int, int]:
            shared = sum(by_name[name] == holder for name in item.members)
            return self.may_serve(holder, item.placement), shared, -holder

        found = ((item, {by_name[name] for name in item.members}) for item in self.opening.held)
        return tuple(max(holders, key=lambda holder: rank(item, holder)) for item, holders in found)

    @cached_property
    def kept_at_start(self) -> Mapping[tuple[Placement, Owner], HeldInstance]:
        """Each instance held when the window opens, in order, by its placement and the holder that keeps it."""
        pairs = zip(self.opening.held, self.heirs, strict=True)
        return {(item.placement, self.owner(heir)): item for item, heir in pairs}

    @cached_property
    def is_repartitioned(self) -> bool:
        """Whether some instance is held otherwise than by all of those who keep it, and by them alone, or serves none.

        Processes that are missing in what is kept start when the held set may change for the first time: there is an
        epoch then, whether or not anything else changes.
        """
        pairs = zip(self.opening.held, self.heirs, strict=True)
        is_new = any(
            set(item.members) != set(self.owner(heir).members) or not self.may_serve(heir, item.placement)
            for item, heir in pairs
        )
        return is_new and self.opening.next_epoch_step < self.n_steps

    def joins_at(self, placement: Placement, tenant: TenantTerms) -> int:
        """The step before which no process of the tenant's serves in an instance kept from the initial state.

        0 where it has one there already, or where nothing is kept.
        """
        item = next((item for item in self.opening.held if item.placement == placement), None)
        if item is None or tenant.name in item.members:
            return 0
        return self.opening.next_epoch_step + self.warm_up_steps(tenant)

    @property
    def physical_initial(self) -> PhysicalState | None:
        """The initial state of a ``physical`` problem, if it has one."""
        return self.initial if isinstance(self.initial, PhysicalState) else None

    @property
    def opening(self) -> PhysicalState:
        """What a ``physical`` window starts from; nothing where that is free."""
        return self.physical_initial or PhysicalState()

    @property
    def paper_initial(self) -> PaperState | None:
        """The initial state of a ``paper`` problem, if it has one."""
        return self.initial if isinstance(self.initial, PaperState) else None

    @property
    def most_goodput(self) -> float:
        """Σ weight · arrivals over tenants and steps: what goodput would be if every answer were in time and right."""
        return sum(tenant.weight * float(tenant.arrivals_rps.sum()) * self.step_s for tenant in self.tenants)

    @cached_property
    def unavailable_spans(self) -> tuple[tuple[int, int, int], ...]:
        """(first step, end step, memory slices that are not ours, one bit each): stretches that make up the window."""
        ends = [self.n_steps if item.to_step is None else item.to_step for item in self.unavailable]
        edges = sorted({0, self.n_steps, *(item.from_step for item in self.unavailable), *ends})
        spans: list[tuple[int, int, int]] = []
        for begin, end in pairwise(edges):
            taken = zip(self.unavailable, ends, strict=True)
            mask = reduce(or_, (item.memory_mask for item, last in taken if item.from_step <= begin < last), 0)
            since = spans.pop()[0] if spans and spans[-1][2] == mask else begin
            spans.append((since, end, mask))
        return tuple(spans)

    def unavailable_in(self, from_step: int, to_step: int) -> int:
        """The memory slices, one bit each, that are not ours in some step of ``[from_step, to_step)``."""
        spans = self.unavailable_spans
        return reduce(or_, (mask for begin, end, mask in spans if begin < to_step and from_step < end), 0)

    def is_ours(self, placement: Placement, from_step: int, to_step: int) -> bool:
        """Whether all its memory slices are ours throughout ``[from_step, to_step)``."""
        return not placement.memory_mask & self.unavailable_in(from_step, to_step)

    @cached_property
    def switching_s(self) -> float:
        """``switch_s``, or its default: see :func:`default_switch_s`."""
        n_retraining = sum(bool(tenant.options) for tenant in self.tenants)
        return default_switch_s(self.gpu, n_retraining) if self.switch_s is None else self.switch_s

    def warm_up_steps(self, tenant: TenantTerms) -> int:
        """Ω[m] of the ``physical`` model: steps from an epoch until the tenant's new instances serve."""
        pool = self.pool_of(tenant.name)
        overhead_s = tenant.overhead_s if pool is None else pool.overhead_s
        return steps_of(self.switching_s + overhead_s, self.step_s)

    def retraining_warm_up_steps(self, tenant: TenantTerms) -> int:
        """Ω_r[m]: steps from claiming the placement until training runs; 0 in ``paper``, where RT includes them.

        Beside a layout the instance exists: for a loan nothing is drained, destroyed or made.
        """
        if self.reconfiguration is Reconfiguration.PAPER:
            return 0
        start_s = tenant.overhead_s if tenant.retraining_start_s is None else tenant.retraining_start_s
        return steps_of(start_s if self.layout else self.switching_s + start_s, self.step_s)

    @property
    def has_floors(self) -> bool:
        """Whether some tenant has a floor of in-time answers."""
        return any(tenant.min_slo_attainment is not None for tenant in self.tenants)

    @property
    def epoch_steps(self) -> int:
        """Ω of the ``physical`` model: least number of steps between two epochs, max over the tenants."""
        return max(map(self.warm_up_steps, self.tenants))

    def training_steps(self, option: RetrainingOption, profile_name: str) -> int:
        """d: steps that training itself takes on the profile (``paper``: start-up included in RT)."""
        checkpoints_s = len(option.checkpoints) * option.checkpoint_s
        return steps_of(option.time_s[profile_name] + checkpoints_s, self.step_s)

    def occupied_steps(self, tenant: TenantTerms, option: RetrainingOption, profile_name: str) -> int:
        """Steps that a retraining holds its instance: d in ``paper``, Ω_r + d in ``physical``."""
        return self.retraining_warm_up_steps(tenant) + self.training_steps(option, profile_name)


DRAIN_S = 0.25
"""Allowance in the default ``switch_s`` for the batch that a dropped instance still finishes."""


def default_switch_s(gpu: GpuModel, n_retraining: int = 0) -> float:
    """Seconds that covers draining one batch and the driver calls of the largest change.

    The driver works one call after the other per GPU. The largest change destroys the layout
    that is slowest to destroy and creates the one that is slowest to create; beside it, each
    retraining of the window may start and end within the same warm-up, which is one more creation
    and one more destruction of the slowest profile each. 2.8 s on an A100 without retrainings.
    """
    profiles = [profile for profile in gpu.profiles if profile.variant is Variant.STANDARD]
    n_most = {p.name: min(p.max_instances, gpu.compute_slices // p.compute_slices) for p in profiles}
    destroy_s = max(p.destroy_s * n_most[p.name] for p in profiles)
    create_s = max(p.create_s * n_most[p.name] for p in profiles)
    extra_s = n_retraining * (max(p.create_s for p in profiles) + max(p.destroy_s for p in profiles))
    return DRAIN_S + destroy_s + create_s + extra_s


def with_measured_overhead(problem: Problem, measured_s: Mapping[str, float]) -> Problem:
    """``problem`` with these overheads in the place of its own; tenants that are not named keep theirs.

    Gain tables lose what they say of steps with a change: it rests on the overhead, and is worked
    out anew from the arrivals.

    Args:
        problem: A ``paper`` problem. In ``physical``, where a change takes driver calls and a worker's
            start apart, one number for both is no overhead.
        measured_s: Seconds from the beginning of a change until its new instances serve, by tenant.

    Raises:
        ProblemError: The problem is not ``paper``, a name is none of its tenants, or a value is below 0.

    Source: MIGRator, Table 2, Ψ: "the average reconfiguration overhead … during the last retraining window".
    """
    if problem.reconfiguration is not Reconfiguration.PAPER:
        raise ProblemError(f"a measured overhead is for paper problems; this one is {problem.reconfiguration}")
    for name in measured_s:
        _found(problem.tenant, name, "measured overhead")
    tenants = tuple(replace(own, overhead_s=measured_s.get(own.name, own.overhead_s)) for own in problem.tenants)
    gains = problem.gains and tuple(replace(table, changed=None, in_time_changed=None) for table in problem.gains)
    return replace(problem, tenants=tenants, gains=gains)


def with_arrivals(problem: Problem, rates_rps: Floats) -> Problem:
    """The problem with other arrivals, ``(n_steps, n_tenants)``, and no gain tables."""
    pairs = zip(problem.tenants, rates_rps.T, strict=True)
    return replace(problem, tenants=tuple(replace(own, arrivals_rps=rates) for own, rates in pairs), gains=None)


def without_floors(problem: Problem) -> Problem:
    """The problem as it would be without floors of in-time answers."""
    if not problem.has_floors:
        return problem
    return replace(problem, tenants=tuple(replace(tenant, min_slo_attainment=None) for tenant in problem.tenants))


def without_salvage(problem: Problem) -> Problem:
    """The problem as it would be if nothing counted beyond the window's end."""
    return replace(problem, tenants=tuple(replace(tenant, salvage=()) for tenant in problem.tenants))


def _check_problem(problem: Problem) -> None:
    if problem.n_steps < 1:
        raise ProblemError(f"n_steps is {problem.n_steps}; at least 1 is needed")
    _check_number("step_s", problem.step_s, least=LEAST_STEP_S)
    _check_number("switch_s", problem.switch_s)
    _check_number_of_tenants(problem)
    names = [tenant.name for tenant in problem.tenants]
    for index, tenant in enumerate(problem.tenants):
        _check_name(f"tenants[{index}].name", tenant.name, names)
        _check_tenant(problem, tenant)
    _check_pools(problem)
    match problem.reconfiguration, problem.initial:
        case Reconfiguration.PAPER, PaperState() as state:
            _check_paper_state(problem, state)
        case Reconfiguration.PHYSICAL, PhysicalState() as state:
            _check_physical_state(problem, state)
        case model, PaperState() | PhysicalState() as state:
            kind = Reconfiguration.PAPER if isinstance(state, PaperState) else Reconfiguration.PHYSICAL
            raise ProblemError(f"initial: the state is a {kind} one; the problem is {model}")
    for index, item in enumerate(problem.unavailable):
        _check_unavailable(problem, f"unavailable[{index}]", item)
    _check_layout(problem)


def _check_pools(problem: Problem) -> None:
    """Each tenant in one pool at most, pools in the problem's order, with a rate of each member on each profile."""
    names, pooled = problem.tenant_names, set[str]()
    if problem.pools and problem.reconfiguration is Reconfiguration.PAPER:
        raise ProblemError("pools: tenants hold instances together in physical problems only; this one is paper")
    for index, pool in enumerate(problem.pools):
        where = f"pools[{index}]"
        for name in pool.members:
            _found(problem.tenant, name, f"{where}.members")
            if name in pooled:
                raise ProblemError(f"{where}.members has {name}, which is in a pool already; one is allowed")
            pooled.add(name)
        if len(pool.members) < 2 or list(pool.members) != sorted(pool.members, key=names.index):
            shown = ", ".join(pool.members) or "no tenant"
            raise ProblemError(f"{where}.members is {shown}; two tenants or more in the problem's order are needed")
        _check_number(f"{where}.overhead_s", pool.overhead_s)
        if not pool.capability_rps:
            raise ProblemError(f"{where}.capability_rps is empty; at least one profile is needed")
        for name, rates in pool.capability_rps.items():
            _found(problem.gpu.profile, name, f"{where}.capability_rps")
            if rates.keys() != set(pool.members):
                shown = ", ".join(rates) or "no tenant"
                raise ProblemError(f"{where}.capability_rps.{name} has rates of {shown}; one of each member is needed")
            for member, rate in rates.items():
                _check_number(f"{where}.capability_rps.{name}.{member}", rate, above=True)


def _check_layout(problem: Problem) -> None:
    """A layout is a physical problem's, fits the GPU, and all hold it together; loans are of what is held."""
    loans = [run for run in problem.opening.retrainings if run.lent_from is not None]
    if not problem.layout:
        if loans:
            raise ProblemError(f"initial.retrainings: {loans[0].tenant} runs on a loan, and there is no layout")
        return
    if problem.reconfiguration is Reconfiguration.PAPER:
        raise ProblemError("layout: one that stays is for physical problems; this one is paper")
    if not problem.gpu.fits(problem.layout):
        raise ProblemError(f"layout: {', '.join(map(str, problem.layout))} do not fit {problem.gpu.name} together")
    if len(problem.partition) > 1:
        raise ProblemError("layout: one pool of all tenants has to hold it; this problem has several holders")
    if len(loans) < len(problem.opening.retrainings) or len(loans) > 1:
        raise ProblemError("initial.retrainings: beside a layout one at most runs, and on a loan")


def _check_number_of_tenants(problem: Problem) -> None:
    n, gpu = len(problem.tenants), problem.gpu
    n_holders = n - sum(len(pool.members) - 1 for pool in problem.pools)
    if not 1 <= n_holders <= gpu.compute_slices:
        counted = f" in {n_holders} pools" if problem.pools else ""
        raise ProblemError(
            f"tenants: {n} given{counted}; 1 to {gpu.compute_slices} are allowed, as {gpu.name} has "
            f"{gpu.compute_slices} compute slices and each {'pool' if problem.pools else 'tenant'} needs one"
        )
    if problem.reconfiguration is Reconfiguration.PAPER and n > MAX_PAPER_TENANTS:
        raise ProblemError(
            f"tenants: {n} given; the paper model takes {MAX_PAPER_TENANTS} at most, as each doubles its work; "
            "the physical model takes them"
        )


def _check_number(
    where: str, value: float | None, *, least: float = 0.0, most: float = MOST_NUMBER, above: bool = False
) -> None:
    """A number between finite limits, the lower one excluded where it has to be ``above``, or none at all."""
    if value is not None and not ((value > least if above else value >= least) and value <= most):
        bound = f"> {least:g}" if above else f"≥ {least:g}"
        raise ProblemError(f"{where} is {value}; a finite number {bound} and ≤ {most:g} is needed")


def _check_step(where: str, step: int, first: int, last: int, what_is_last: str) -> None:
    if not first <= step <= last:
        raise ProblemError(f"{where} is {step}; {first} to {what_is_last} ({last}) is allowed")


def _check_tenant(problem: Problem, tenant: TenantTerms) -> None:
    where, gpu = f"tenants.{tenant.name}", problem.gpu
    arrivals = tenant.arrivals_rps
    if arrivals.shape != (problem.n_steps,):
        raise ProblemError(f"{where}.arrivals_rps has {arrivals.size} numbers; n_steps is {problem.n_steps}")
    for step in np.flatnonzero(~((arrivals >= 0) & (arrivals <= MOST_NUMBER))):
        _check_number(f"{where}.arrivals_rps[{step}]", float(arrivals[step]))
    _check_by_profile(gpu, f"{where}.capability_rps", tenant.capability_rps)
    _found(gpu.profile, tenant.min_profile, f"{where}.min_profile")
    _check_number(f"{where}.accuracy.before", tenant.accuracy_before, most=1.0)
    _check_options(gpu, where, tenant.options)
    for key in ("overhead_s", "weight", "retraining_start_s", "swap_s"):
        _check_number(f"{where}.{key}", getattr(tenant, key))
    _check_floor(f"{where}.min_slo_attainment", tenant.min_slo_attainment)
    _check_salvage(f"{where}.salvage", tenant)
    if tenant.swap_s > 0 and tenant.options and tenant.min_slo_attainment is not None:
        raise ProblemError(
            f"{where}.swap_s is {tenant.swap_s} beside min_slo_attainment; with a floor of in-time answers 0 is "
            "needed, as floors do not count the seconds in which weights are taken over"
        )


def _check_salvage(where: str, tenant: TenantTerms) -> None:
    names = tenant.ending_names
    if tenant.salvage and len(tenant.salvage) != len(names):
        raise ProblemError(f"{where} has {len(tenant.salvage)} numbers; one for each of {', '.join(names)} is needed")
    for name, value in zip(names, tenant.salvage, strict=False):
        _check_number(f"{where}.{name}", value, most=MOST_SALVAGE)


def _check_floor(where: str, floor: AttainmentFloor | None) -> None:
    if floor is None:
        return
    # Forms of the files: a share alone, or with what it holds over.
    _check_number(where, floor.share, most=1.0, above=True)
    if not math.isfinite(floor.due) or (floor.due and floor.per is Per.STEP):
        raise ProblemError(f"{where}.due is {floor.due}; a finite number is needed, and 0 with per: step")


def _check_options(gpu: GpuModel, where: str, options: tuple[RetrainingOption, ...]) -> None:
    names = [option.name for option in options]
    is_short = names == [SHORT_OPTION]
    for index, option in enumerate(options):
        own = f"{where}.retraining_options[{index}]"
        _check_name(f"{own}.name", option.name, names)
        _check_by_profile(gpu, f"{where}.retraining_s" if is_short else f"{own}.time_s", option.time_s)
        accuracy_key = f"{where}.accuracy.after" if is_short else f"{own}.accuracy_after"
        _check_number(accuracy_key, option.accuracy_after, most=1.0)
        _check_number(f"{own}.checkpoint_s", option.checkpoint_s)
        last = 0.0
        for number, checkpoint in enumerate(option.checkpoints):
            key, fraction = f"{own}.checkpoints[{number}]", checkpoint.fraction
            if not last < fraction < 1:
                raise ProblemError(f"{key}.fraction is {fraction}; a number above {last:g} and below 1 is needed")
            _check_number(f"{key}.accuracy", checkpoint.accuracy, most=1.0)
            last = fraction


def _check_name(where: str, name: str, names: Sequence[str]) -> None:
    # Names reach terminals and logs, where control characters would do things instead of being shown.
    if not name or not name.isprintable():
        raise ProblemError(f"{where} is {name!r}; printable text is needed")
    if names.count(name) > 1:
        raise ProblemError(f"{where} is {name!r}, which is given twice; names must differ")


def _check_by_profile(gpu: GpuModel, where: str, values: Mapping[str, float]) -> None:
    """Times or rates by profile: at least one, of profiles that the GPU has, above zero."""
    if not values:
        raise ProblemError(f"{where} is empty; at least one profile is needed")
    for name, value in values.items():
        _found(gpu.profile, name, where)
        _check_number(f"{where}.{name}", value, above=True)


def _check_paper_state(problem: Problem, state: PaperState) -> None:
    """Tenants and profiles exist, and the profiles fit the GPU together."""
    gpu = problem.gpu
    for tenant, names in state.held.items():
        _found(problem.tenant, tenant, "initial")
        for index, name in enumerate(names):
            _found(gpu.profile, name, f"initial.{tenant}[{index}]")
    counts = Counter(name for names in state.held.values() for name in names)
    if tuple(counts.values()) not in gpu.multisets(tuple(counts)):
        shown = ", ".join(f"{count} × {name}" for name, count in counts.items())
        raise ProblemError(f"initial holds {shown} in all, which no layout of {gpu.name} does")


def _check_physical_state(problem: Problem, state: PhysicalState) -> None:
    """Tenants exist, placements form a layout, and steps are possible."""
    if state.next_epoch_step < 0:
        raise ProblemError(f"initial.next_epoch_step is {state.next_epoch_step}; ≥ 0 is needed")
    for index, held in enumerate(state.held):  # all of them first, as `heirs` are found for all at once
        for name in held.members:
            _found(problem.tenant, name, f"initial.held[{index}]")
            if held.members.count(name) > 1:
                raise ProblemError(f"initial.held[{index}] names {name} twice")
    for index, held in enumerate(state.held):
        where = f"initial.held[{index}]"
        _check_step(
            f"{where}: {held.placement}'s serve_step", held.serve_step, 0, state.next_epoch_step, "next_epoch_step"
        )
        may_serve = problem.capability_rps(problem.tenant(held.tenant))
        is_alone = len(held.members) == len(problem.partition[problem.heirs[index]]) == 1
        if is_alone and held.placement.profile.name not in may_serve:
            raise ProblemError(f"{where}: {held.placement} cannot serve {held.tenant}; {', '.join(may_serve)} can")
    for index, item in enumerate(state.retrainings):
        _check_running(problem, state, f"initial.retrainings[{index}]", item)
    placements = [item.placement for item in state.held]
    placements += [item.placement for item in state.retrainings if item.lent_from is None]
    if not problem.gpu.fits(placements):
        shown = ", ".join(map(str, placements))
        raise ProblemError(f"initial.held and initial.retrainings, {shown}, are no layout of {problem.gpu.name}")


def _check_running(problem: Problem, state: PhysicalState, where: str, item: RunningRetraining) -> None:
    """Its tenant exists, may retrain and runs nothing else, steps are possible, and what is lent is held."""
    name = item.tenant
    terms = _found(problem.tenant, name, where)
    if [own.tenant for own in state.retrainings].count(name) > 1:
        raise ProblemError(f"{where}: {name} runs two retrainings; one is allowed")
    if not terms.options:
        raise ProblemError(f"{where}: {name} runs one but offers none, so its outcome is unknown")
    _check_step(f"{where}: {name}'s end_step", item.end_step, 1, problem.n_steps, "n_steps")
    if item.lent_from is not None:
        _check_step(f"{where}: {name}'s lent_from", item.lent_from, 0, item.end_step, "end_step")
        if item.placement not in [held.placement for held in state.held]:
            raise ProblemError(f"{where}: {name} runs on a loan of {item.placement}, which is not held")


def _check_unavailable(problem: Problem, where: str, item: Unavailable) -> None:
    if not item.memory_slices:
        raise ProblemError(f"{where}.memory_slices is empty; at least one memory slice is needed")
    for index, number in enumerate(item.memory_slices):
        own, n_slices = f"{where}.memory_slices[{index}]", problem.gpu.memory_slices
        if not 0 <= number < n_slices:
            raise ProblemError(f"{own} is {number}; {problem.gpu.name} has memory slices 0 to {n_slices - 1}")
        if item.memory_slices.count(number) > 1:
            raise ProblemError(f"{own} is {number}, which is given twice")
    _check_step(f"{where}.from_step", item.from_step, 0, problem.n_steps - 1, "n_steps - 1")
    if item.to_step is not None:
        _check_step(f"{where}.to_step", item.to_step, item.from_step + 1, problem.n_steps, "n_steps")


def _found(find: Callable[[str], FoundT], name: str, where: str) -> FoundT:
    """What is found by the name at ``where``."""
    try:
        return find(name)
    except (ExecutorError, ProblemError) as error:
        raise ProblemError(f"{where}: {error}") from None
