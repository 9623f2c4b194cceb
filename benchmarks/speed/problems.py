"""The planner's benchmark problems, and the cases that ask them of the engines.

Problems are random ones, some cut from recorded traces, and windows to re-plan midway. The same arguments give the same
problem every time; what a tenant is does not depend on model or step length.

Best known values (``best_known.json``, with engine, seconds and a fingerprint of the problem) are claimed optima for
all problems of two tenants, and in ``paper`` for 23 of 24 with three and 11 of 24 with four. The others are the best of
several searches: up to 60 s of ``exact``; ``physical`` to its own end and 40 s of random moves of one to three
retrainings, which found more on 12 of 24 problems, 2.2 % at most.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from executor.catalogue import gpu_model
from executor.mig import GpuModel, Variant
from migrator.config.reading import read_config
from migrator.config.sections import DecisionConfig, OptionConfig, RetrainingConfig
from migrator.execution.ahead import plan_through
from migrator.execution.planning import Solving
from migrator.inputs.assembly import assemble
from planner.arrays import Floats
from planner.budget import planning_time_s
from planner.files.plan_file import plan_of
from planner.files.problem_file import problem_to_json
from planner.plan import MigPlan
from planner.problem import GainTable, Problem, Reconfiguration, RetrainingOption, TenantTerms
from planner.replan import remaining_plan, remaining_problem
from planner.solve import solve
from workloads.profiles.operating_point import operating_points
from workloads.profiles.table import shipped_profiles
from workloads.tenants import default_worker_start, most_instances, retraining_times_s
from workloads.traffic.arrivals import Span, mean_rps
from workloads.traffic.scaling import Scale, scaled_arrivals
from workloads.traffic.trace_file import shipped_trace

N_TRACE_PROBLEMS = 4
"""How many cuts :func:`trace_problem` knows: its index runs from 0 to one less."""

N_RANDOM_PROBLEMS = 20
RANDOM_PER_TRACE = N_RANDOM_PROBLEMS // N_TRACE_PROBLEMS

CONFIGS = Path(__file__).parents[2] / "configs"

WINDOW_PLANS = Path(__file__).with_name("window_plans.json")
"""Plans of whole windows, kept so that the windows to re-plan stay the same when the engine gets better."""


FREE_WINDOWS = ("w1-0", "w1-1", "w8-0", "w8-1")
"""The windows of :func:`free_window`."""

REPLANNED_STEPS = (10, 50, 90)
"""Where those are planned anew."""

MEASURED_GPU = "a100-80gb"
"""Where the shipped service profiles were measured; other GPUs take the figures of as many compute slices."""

_TENANT, _WINDOW, _FORECAST = 0, 1, 2
"""Second words of the seeds, so that tenants, whole windows and new forecasts share no numbers."""


def profiles_with_double_memory(gpu: str) -> tuple[str, ...]:
    """The standard profiles and the 1g that has twice the memory, in catalogue order."""
    known = {Variant.STANDARD, Variant.DOUBLE_MEMORY}
    return tuple(profile.name for profile in gpu_model(gpu).profiles if profile.variant in known)


def random_problem(
    seed: int,
    *,
    n_tenants: int,
    n_steps: int = 200,
    step_s: float = 1.0,
    gpu: str = "a100-40gb",
    model: str = "paper",
    profiles: Sequence[str] | None = None,
) -> Problem:
    """The random problem numbered ``seed``; its tenants bring together about what the whole GPU can serve.

    The tenants do not depend on model, step or GPU (but for the names of its profiles), nor does the
    load that they share.

    Args:
        seed: Which problem, ≥ 0.
        n_tenants: 1 to 7.
        n_steps: Steps of the window.
        step_s: Seconds a step; periods, bursts and retrainings are drawn in seconds.
        gpu: A GPU model of the catalogue.
        model: ``paper`` or ``physical``.
        profiles: What may be held; the standard profiles of ``gpu`` by default.
    """
    gpu_terms = gpu_model(gpu)
    names = gpu_terms.standard_profile_names if profiles is None else tuple(profiles)
    window = np.random.default_rng([seed, _WINDOW])
    load, weights = float(window.uniform(0.8, 1.1)), window.uniform(0.5, 1.5, 7)[:n_tenants]
    tenants = [
        _random_tenant(seed, tenant, gpu_terms, names, load * share, n_steps, step_s)
        for tenant, share in enumerate(weights / weights.sum())
    ]
    return Problem(gpu_terms, step_s, n_steps, Reconfiguration(model), tuple(tenants))


def _random_tenant(
    seed: int, tenant: int, gpu: GpuModel, names: Sequence[str], load: float, n_steps: int, step_s: float
) -> TenantTerms:
    rng = np.random.default_rng([seed, _TENANT, tenant])
    per_slice_rps, exponent, boost = rng.uniform(30, 90), rng.uniform(0.75, 1.0), rng.uniform(1.0, 1.3)
    speeds = {name: boost if gpu.profile(name).variant is Variant.DOUBLE_MEMORY else 1.0 for name in names}
    slices = {name: gpu.profile(name).compute_slices for name in names}
    capability = {name: round(float(per_slice_rps * slices[name] ** exponent * speeds[name]), 2) for name in names}
    one_slice_s = rng.uniform(0.40, 0.75) * n_steps * step_s
    time_s = {name: round(float(one_slice_s / (slices[name] ** 0.85 * speeds[name])), 2) for name in names}
    before, gain = rng.uniform(0.50, 0.68), rng.uniform(0.02, 0.30)
    overhead_s = rng.uniform(0.5, 6.0)
    shape = _random_shape(rng, n_steps, step_s)
    mean = load * _most_rps(gpu, capability)
    return TenantTerms(
        name=f"tenant-{tenant}",
        arrivals_rps=np.round(shape * mean / shape.mean(), 2),
        capability_rps=capability,
        accuracy_before=round(float(before), 4),
        overhead_s=round(float(overhead_s), 2),
        min_profile=min(names, key=lambda name: (slices[name], gpu.profile(name).memory_slices)),
        options=(RetrainingOption("full", time_s, round(float(before + gain), 4)),),
    )


def _random_shape(rng: np.random.Generator, n_steps: int, step_s: float) -> Floats:
    """A sinusoid times Gamma(6)/6 noise, for one tenant in three tripled in a tenth of the seconds; ``(n_steps,)``."""
    period_s, phase, swing = rng.uniform(30, 150), rng.uniform(0, 2 * np.pi), rng.uniform(0.3, 0.9)
    has_bursts = bool(rng.random() < 1 / 3)
    at_s = np.arange(n_steps) * step_s
    wave = 1 + swing * np.sin(2 * np.pi * at_s / period_s + phase)
    noise = rng.gamma(6, 1 / 6, n_steps)
    is_burst = (rng.random(int(at_s[-1]) + 1) < 0.1)[at_s.astype(np.int64)]
    shape: Floats = wave * noise * np.where(has_bursts & is_burst, 3.0, 1.0)
    return shape


def _most_rps(gpu: GpuModel, capability_rps: Mapping[str, float]) -> float:
    """What the whole GPU serves for one tenant: the highest sum over all layouts."""
    rates = list(capability_rps.values())
    return max(float(np.dot(multiset, rates)) for multiset in gpu.multisets(tuple(capability_rps)))


@dataclass(frozen=True, slots=True)
class _Model:
    """A measured model: its SLO, and the trace that it is asked by."""

    name: str
    slo_s: float
    trace: str
    accuracy: tuple[float, float]


_MODELS = (
    _Model("resnet50", 0.150, "azure-conv", (0.66, 0.84)),
    _Model("bert-large", 0.330, "azure-code", (0.70, 0.81)),
    _Model("inception-v3", 0.150, "azure-code", (0.62, 0.80)),
    _Model("mobilenet-v2", 0.100, "azure-conv", (0.58, 0.70)),
)
"""Accuracies are illustrative figures; everything else is measured."""


def trace_problem(
    index: int,
    *,
    n_tenants: int,
    n_steps: int = 200,
    step_s: float = 1.0,
    gpu: str = "a100-40gb",
    model: str = "paper",
    profiles: Sequence[str] | None = None,
) -> Problem:
    """A problem cut from recorded traces: Azure LLM arrivals, models as ParvaGPU measured them.

    Cut ``index`` has a load of 0.8, 0.9, 1.0 or 1.1 times what the whole GPU serves, in equal shares.
    Arguments are as in :func:`random_problem`; up to four tenants.

    Raises:
        ValueError: There is no such cut, or too many tenants.
    """
    if not (0 <= index < N_TRACE_PROBLEMS and 1 <= n_tenants <= len(_MODELS)):
        raise ValueError(f"index {index}, n_tenants {n_tenants}: 0 to {N_TRACE_PROBLEMS - 1}, 1 to {len(_MODELS)}")
    gpu_terms = gpu_model(gpu)
    names = gpu_terms.standard_profile_names if profiles is None else tuple(profiles)
    load = (0.8 + 0.1 * index) / n_tenants
    tenants = [
        _trace_tenant(_MODELS[(tenant + index) % len(_MODELS)], index, gpu_terms, names, load, n_steps, step_s)
        for tenant in range(n_tenants)
    ]
    return Problem(gpu_terms, step_s, n_steps, Reconfiguration(model), tuple(tenants))


def _trace_tenant(
    model: _Model, index: int, gpu: GpuModel, names: Sequence[str], load: float, n_steps: int, step_s: float
) -> TenantTerms:
    points = operating_points(shipped_profiles(), MEASURED_GPU, model.name, model.slo_s)
    capability = _by_slices(gpu, names, {name: point.rate_rps for name, point in points.items()})
    window_s = n_steps * step_s
    share = 0.40 + 0.1 * index
    return TenantTerms(
        name=model.name,
        arrivals_rps=_trace_rates(model, index, load * _most_rps(gpu, capability), n_steps, step_s),
        capability_rps=capability,
        accuracy_before=model.accuracy[0],
        overhead_s=round(default_worker_start(model.name).planned_s(most_instances(gpu)), 2),
        min_profile=min(capability, key=lambda name: gpu.profile(name).memory_slices),
        options=(RetrainingOption("full", _training_s(model, gpu, names, share * window_s), model.accuracy[1]),),
    )


def _training_s(model: _Model, gpu: GpuModel, names: Sequence[str], longest_s: float) -> dict[str, float]:
    """Retraining times, as many samples as take ``longest_s`` on the slowest profile."""
    per_10k_s = retraining_times_s(shipped_profiles(), MEASURED_GPU, model.name, n_samples=10_000, n_epochs=1)
    factor = longest_s / max(per_10k_s.values())
    return _by_slices(gpu, names, {name: seconds * factor for name, seconds in per_10k_s.items()})


def _by_slices(gpu: GpuModel, names: Sequence[str], measured: Mapping[str, float]) -> dict[str, float]:
    """The figures of :data:`MEASURED_GPU` for those of ``names`` that have as many compute slices."""
    source = gpu_model(MEASURED_GPU)
    by_slices = {source.profile(name).compute_slices: value for name, value in measured.items()}
    slices = {name: gpu.profile(name).compute_slices for name in names}
    return {name: round(by_slices[slices[name]], 2) for name in names if slices[name] in by_slices}


def _trace_rates(model: _Model, index: int, wanted_rps: float, n_steps: int, step_s: float) -> Floats:
    """Arrival rates by step of the trace's cut, scaled to ``wanted_rps``, ``(n_steps,)``."""
    trace = shipped_trace(model.trace)
    # Consecutive cuts of the trace; two models on one trace see different parts of it.
    offset_s = 200 + 800 * index + 400 * (_MODELS.index(model) % 2)
    span = Span(offset_s=offset_s, duration_s=int(np.ceil(n_steps * step_s)), loop=True)
    scale = Scale(factor=wanted_rps / mean_rps(trace, span))
    arrivals = scaled_arrivals(trace, scale, span, seed=index, tenant=model.name)
    edges_s = np.arange(n_steps + 1) * step_s
    rates: Floats = np.round(np.diff(np.searchsorted(arrivals.times_s, edges_s)) / step_s, 4)
    return rates


def free_window(label: str) -> Problem:
    """A window of a shipped config, ``w1-0`` is the first of w1, that need not retrain, but may in three ways.

    These are half, the whole, and one and a half of the config's samples. What it says of accuracy is reached by the
    longest, and by the others on the square-root curve; each has checkpoints at a quarter, half and three quarters.
    Arrivals are known, plans are there as windows begin, and the window before it went as a run plans it.
    """
    name, _, window = label.partition("-")
    return _free_windows(name)[int(window)]


@cache
def _free_windows(name: str) -> tuple[Problem, ...]:
    config = read_config(CONFIGS / f"{name}.yaml", sharing={"pools": "off"})
    tenants = [
        entry.model_copy(update={"retraining": _in_three_ways(entry.retraining)})
        for entry in config.tenants
        if entry.retraining is not None
    ]
    changes = {
        "tenants": tenants,
        "retraining": DecisionConfig(checkpoints=[0.25, 0.5, 0.75]),
        "forecast": config.forecast.model_copy(update={"method": "known"}),
        "planner": config.planner.model_copy(update={"planning_s": 0.0}),
    }
    setting, traffic = assemble(config.model_copy(update=changes), f"{name}.yaml")
    planned = plan_through(setting, traffic, 1, Solving(engine="greedy"))  # of the last one the problem is all we want
    return tuple(window.problem for window in planned)


def _in_three_ways(retraining: RetrainingConfig) -> RetrainingConfig:
    n_samples = retraining.samples
    options = [OptionConfig(name="half", samples=n_samples // 2), OptionConfig(name="whole", samples=n_samples)]
    return retraining.model_copy(update={"samples": n_samples * 3 // 2, "options": options})


def mid_window(problem: Problem, plan: MigPlan, step: int, *, seed: int = 0) -> Problem:
    """The re-planning problem at ``step`` of a ``physical`` window whose ``plan`` was followed up to there.

    Arrivals come from a new forecast: each tenant's level is off by up to 15 %, each step by some 14 %. Gain tables
    are scaled as the arrivals are.

    Args:
        problem: The whole window.
        plan: A plan for it.
        step: From 1 to n_steps − 1.
        seed: Which new forecast.
    """
    rng = np.random.default_rng([seed, _FORECAST, step])
    rest = remaining_problem(problem, plan, step)
    off = [(float(rng.uniform(0.85, 1.15)), rng.gamma(50, 1 / 50, rest.n_steps)) for _ in rest.tenants]
    tenants = tuple(
        replace(tenant, arrivals_rps=np.round(tenant.arrivals_rps * level * noise, 4))
        for tenant, (level, noise) in zip(rest.tenants, off, strict=True)
    )
    if rest.gains is None:
        return replace(rest, tenants=tenants)
    gains = tuple(
        GainTable(table.multisets, table.steady * (level * noise)[:, None])
        for table, (level, noise) in zip(rest.gains, off, strict=True)
    )
    return replace(rest, tenants=tenants, gains=gains)


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a case over all its problems; ``None`` where nothing is.

    Gaps and values are shares: a gap of 0.01 is 1 %, a value of 0.995 is 99.5 % of the best known.
    """

    median_s: float | None = None
    worst_s: float | None = None
    is_optimal: bool = False
    median_gap: float | None = None
    worst_gap: float | None = None
    least_value: float | None = None
    worst_of_limit: float | None = None
    most_mib: float | None = None

    def __str__(self) -> str:
        parts = {
            "claimed optimal": self.is_optimal or None,
            "median ≤ {:g} s": self.median_s,
            "worst ≤ {:g} s": self.worst_s,
            "median claimed gap ≤ {:.1%}": self.median_gap,
            "worst claimed gap ≤ {:.1%}": self.worst_gap,
            "value ≥ {:.1%}": self.least_value,
            "worst ≤ {:g} × the limit": self.worst_of_limit,
            "≤ {:g} MiB": self.most_mib,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    Attributes:
        name: What ``--only`` takes.
        engine: Who solves.
        model: ``paper`` or ``physical``.
        n_tenants: How many tenants.
        target: What is asked.
        n_steps: Steps of the window.
        step_s: Seconds a step.
        gpu: The GPU model.
        has_double_memory: Whether the 1g with double memory may be held.
        time_limit_s: What the engine is given; ``None`` for as long as it takes.
        is_free: Whether its problems are those of :func:`free_window`.
        is_replan: Whether windows are planned anew midway, warm-started from the rest of their plan.
        is_command: Whether the whole process of ``migrator plan --problem`` is measured.
        n_most: Most problems; slow cases take a few.
        max_schedules: Work that the engine may do at most; ``None`` for as much as its time allows. Where windows are
            planned anew, none of it goes into proofs, as in a run.
        training: What retrainings take, as a share of what they take in the other cases.
    """

    name: str
    engine: str
    model: str
    n_tenants: int
    target: Target
    n_steps: int = 200
    step_s: float = 1.0
    gpu: str = "a100-40gb"
    has_double_memory: bool = False
    time_limit_s: float | None = None
    is_free: bool = False
    is_replan: bool = False
    is_command: bool = False
    n_most: int = N_RANDOM_PROBLEMS + N_TRACE_PROBLEMS
    max_schedules: int | None = None
    training: float = 1.0

    @property
    def problem_set(self) -> str:
        """Cases of one problem set share their best known values."""
        memory = "+double-memory" if self.has_double_memory else ""
        midway = (" free" if self.is_free else "") + (" midway" if self.is_replan else "")
        training = "" if self.training == 1.0 else f" training × {self.training:g}"
        return (
            f"{self.model} {self.n_tenants} × {self.n_steps} × {self.step_s:g} s {self.gpu}{memory}{midway}{training}"
        )


_HURRIED = Target(least_value=0.95, worst_of_limit=1.2)
"""What a limit of 0.3 s asks; values are shares of what the case before, on the same problems, finds in 10 s."""

RUN_SCHEDULES, REPLAN_SCHEDULES = 4000, 100
"""As ``planner.max_schedules`` and ``replan_schedules`` of a config without them; a test holds them equal."""


def _free_case(name: str, target: Target, *, n_most: int = len(FREE_WINDOWS), **terms: Any) -> Case:
    return Case(name, "physical", "physical", 2, target, gpu=MEASURED_GPU, is_free=True, n_most=n_most, **terms)


CASES = (
    Case("paper-2", "exact", "paper", 2, Target(median_s=0.3, worst_s=2, is_optimal=True, most_mib=500)),
    Case("paper-2-fine", "exact", "paper", 2, Target(median_s=2, is_optimal=True), n_steps=400, step_s=0.5),
    Case(
        "paper-2-h100",
        "exact",
        "paper",
        2,
        Target(median_s=1, is_optimal=True),
        gpu="h100-80gb",
        has_double_memory=True,
    ),
    # An engine is given a little less than the target, for what it does after its clock has run out.
    Case("paper-3", "exact", "paper", 3, Target(worst_s=2, worst_gap=0.01), time_limit_s=1.9),
    Case("paper-4", "exact", "paper", 4, Target(worst_s=2, worst_gap=0.03), time_limit_s=1.9),
    Case(
        "physical-2",
        "physical",
        "physical",
        2,
        Target(worst_s=2, median_gap=0.01, worst_gap=0.02, least_value=0.995),
        time_limit_s=1.9,
    ),
    Case("physical-2-long", "physical", "physical", 2, Target(worst_s=20, worst_gap=0.005), time_limit_s=19.5),
    Case(
        "physical-2-midway",
        "physical",
        "physical",
        2,
        Target(worst_s=0.3, least_value=0.995),
        time_limit_s=0.26,
        is_replan=True,
    ),
    _free_case("physical-2-free-long", Target(worst_s=20, is_optimal=True), time_limit_s=19.5),
    _free_case("physical-2-free", Target(worst_s=2, least_value=0.995), time_limit_s=1.8),
    _free_case(
        "physical-2-free-midway",
        Target(worst_s=0.3),
        is_replan=True,
        max_schedules=REPLAN_SCHEDULES,
        n_most=len(FREE_WINDOWS) * len(REPLANNED_STEPS),
    ),
    Case("physical-3", "physical", "physical", 3, Target(worst_s=4, least_value=0.99), time_limit_s=3.8),
    Case("physical-3-hurried", "physical", "physical", 3, _HURRIED, time_limit_s=0.3, n_most=6),
    Case("physical-4", "physical", "physical", 4, Target(), time_limit_s=10, n_most=6),
    Case("physical-4-hurried", "physical", "physical", 4, _HURRIED, time_limit_s=0.3, n_most=6),
    Case("physical-4-2000", "physical", "physical", 4, Target(), n_steps=2000, time_limit_s=10, n_most=3),
    Case("physical-4-2000-hurried", "physical", "physical", 4, _HURRIED, n_steps=2000, time_limit_s=0.3, n_most=3),
    Case("paper-4-hurried", "exact", "paper", 4, _HURRIED, time_limit_s=0.3, n_most=6),
    Case("command-paper-2", "exact", "paper", 2, Target(median_s=3), is_command=True, n_most=6),
    Case(
        "command-physical-2", "physical", "physical", 2, Target(median_s=3), time_limit_s=1.9, is_command=True, n_most=6
    ),
)
"""The cases of the targets."""

SLOW_CASES = (Case("paper-ilp-2", "paper-ilp", "paper", 2, Target(), time_limit_s=60, n_most=3),)
"""HiGHS on the problems of ``paper-2``, for comparison."""


def _run_case(n_tenants: int, n_steps: int = 200) -> Case:
    """What ``migrator run`` asks of the planner for a window, from a first start to a plan."""
    return Case(
        f"run-{n_tenants}" if n_steps == 200 else f"run-{n_tenants}-{n_steps}",
        "physical",
        "physical",
        n_tenants,
        Target(worst_s=planning_time_s(n_tenants, n_steps)),
        n_steps=n_steps,
        max_schedules=RUN_SCHEDULES,
        training=_TRAINING[n_tenants],
        n_most=12 if n_tenants < 4 and n_steps == 200 else 5,
    )


_TRAINING = {1: 1.0, 2: 1.0, 3: 0.3, 4: 0.3, 5: 0.3, 6: 0.1}
"""By tenants. So many retrainings would not find room in a window else, or leave the search little to do."""

RUN_CASES = (
    *(_run_case(n_tenants) for n_tenants in range(1, 7)),
    *(_run_case(n_tenants, n_steps) for n_tenants in (1, 2, 3) for n_steps in (50, 800)),
    replace(
        _run_case(2),
        name="run-2-h100",
        gpu="h100-80gb",
        has_double_memory=True,
        target=Target(worst_s=planning_time_s(2, 200, has_double_memory=True)),
    ),
)
"""What a run charges for planning, ``planner.budget.planning_time_s``, against what planning takes."""


@dataclass(frozen=True)
class Task:
    """One problem of a case.

    Attributes:
        label: ``random-<seed>``, ``trace-<index>`` or ``<config>-<window>``, with the step where it is planned anew.
        problem: The problem.
        initial: The plan that the engine may start from.
    """

    label: str
    problem: Problem
    initial: MigPlan | None = None

    @property
    def fingerprint(self) -> str:
        """Differs whenever the problem does; a stored value with another one is void."""
        text = json.dumps(problem_to_json(self.problem), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def labels(n_problems: int) -> Iterator[str]:
    """The names of the first problems of a case: five random ones, one from traces, and so on."""
    for number in range(n_problems):
        block, place = divmod(number, RANDOM_PER_TRACE + 1)
        is_trace = place == RANDOM_PER_TRACE
        yield f"trace-{block}" if is_trace else f"random-{block * RANDOM_PER_TRACE + place}"


def tasks(case: Case, n_problems: int | None = None) -> Iterator[Task]:
    """The case's problems, the first ``n_problems`` of them."""
    n_most = min(case.n_most, n_problems or case.n_most)
    if case.is_free:
        yield from islice(_free_tasks(case.is_replan), n_most)
        return
    for label in labels(n_most):
        whole = Task(label, whole_window(case, label))
        yield _midway(whole) if case.is_replan else whole


def _free_tasks(is_replan: bool) -> Iterator[Task]:
    """The windows of :func:`free_window`, or their rests after some steps of the plan of ``greedy``: ``w1-0-10``."""
    for label in FREE_WINDOWS:
        problem = free_window(label)
        if not is_replan:
            yield Task(label, problem)
            continue
        plan = solve(problem, engine="greedy")
        for step in REPLANNED_STEPS:
            yield Task(f"{label}-{step}", mid_window(problem, plan, step), remaining_plan(plan, step))


def whole_window(case: Case, label: str) -> Problem:
    """The whole window called ``label``."""
    kind, _, number = label.partition("-")
    make = random_problem if kind == "random" else trace_problem
    problem = make(
        int(number),
        n_tenants=case.n_tenants,
        n_steps=case.n_steps,
        step_s=case.step_s,
        gpu=case.gpu,
        model=case.model,
        profiles=profiles_with_double_memory(case.gpu) if case.has_double_memory else None,
    )
    return problem if case.training == 1.0 else _with_training(problem, case.training)


def _with_training(problem: Problem, share: float) -> Problem:
    """The problem with retrainings that take this share of their time."""

    def shortened(option: RetrainingOption) -> RetrainingOption:
        return replace(option, time_s={name: round(seconds * share, 2) for name, seconds in option.time_s.items()})

    tenants = [replace(tenant, options=tuple(map(shortened, tenant.options))) for tenant in problem.tenants]
    return replace(problem, tenants=tuple(tenants))


def _midway(whole: Task) -> Task:
    """The window at a step drawn from its second fifth to its seventh tenth, after the plan that is kept for it."""
    kept = json.loads(WINDOW_PLANS.read_text("utf-8"))
    plan = plan_of(kept[whole.label], whole.problem, f"{WINDOW_PLANS.name}: {whole.label}")
    number = int(whole.fingerprint, 16)
    n_steps = whole.problem.n_steps
    step = int(np.random.default_rng(number).integers(n_steps // 5, 7 * n_steps // 10))
    return Task(whole.label, mid_window(whole.problem, plan, step, seed=number), remaining_plan(plan, step))
