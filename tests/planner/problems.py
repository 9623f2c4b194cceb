"""Small random planning problems, the same for a seed every time; shared by this folder's tests.

They are made to be awkward: tenants with unequal profile keys, tight windows, no arrivals, retrainings that do
not pay, smallest profiles that hardly fit, and some that no plan can meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from executor.catalogue import gpu_model
from executor.mig import GpuModel, Placement, Variant
from planner.errors import ProblemError
from planner.gains import carry_over_gains
from planner.problem import (
    AttainmentFloor,
    Checkpoint,
    HeldInstance,
    PaperState,
    Per,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    TenantTerms,
)
from planner.replan import remaining_problem
from planner.solve import solve
from planner.unavailable import Unavailable

GPU_NAMES = ("a30-24gb", "a100-40gb", "a100-80gb", "h100-80gb")


def paper_problem(seed: int) -> Problem:
    """One to three tenants, 4 to 8 steps, with an initial state in one of three."""
    rng = np.random.default_rng([seed, 1])
    gpu = gpu_model(GPU_NAMES[seed % len(GPU_NAMES)])
    n_tenants = int(rng.choice([1, 2, 3], p=[0.15, 0.7, 0.15]))
    step_s, n_steps = _steps(rng)
    tenants = tuple(_tenant(rng, gpu, index, n_tenants, step_s, n_steps) for index in range(n_tenants))
    initial = _paper_state(rng, gpu, tenants) if rng.random() < 1 / 3 else None
    return Problem(gpu, step_s, n_steps, Reconfiguration.PAPER, tenants, initial=initial)


def short_paper_problem(seed: int) -> Problem:
    """One to three tenants on an A30, 2 to 4 steps, every other one with an initial state: all plans can be listed."""
    rng = np.random.default_rng([seed, 3])
    gpu = gpu_model("a30-24gb")
    n_tenants = int(rng.choice([1, 2, 3], p=[0.2, 0.5, 0.3]))
    step_s, n_steps = float(rng.choice([1.0, 5.0])), int(rng.choice([2, 3, 4], p=[0.2, 0.3, 0.5]))
    tenants = tuple(_tenant(rng, gpu, index, n_tenants, step_s, n_steps) for index in range(n_tenants))
    initial = _paper_state(rng, gpu, tenants) if rng.random() < 1 / 2 else None
    return Problem(gpu, step_s, n_steps, Reconfiguration.PAPER, tenants, initial=initial)


def any_paper_problem(seed: int) -> Problem:
    """One to three tenants, two of five on any GPU, the others on an A30, with each feature in some."""
    rng = np.random.default_rng([seed, 8])
    problem = paper_problem(seed) if rng.random() < 0.4 else short_paper_problem(seed)
    if rng.random() < 0.3:
        problem = with_checkpoints(problem, seed)
    return _with_more(rng, problem, seed)


def any_physical_problem(seed: int) -> Problem:
    """One to three tenants and three to eight steps, some the rest of a plan, with each feature in some of them."""
    rng = np.random.default_rng([seed, 7])
    n_tenants = int(rng.choice([1, 2, 3], p=[0.1, 0.75, 0.15]))
    problem = physical_problem(1000 + seed, int(rng.integers(3, 4 if n_tenants == 3 else 8 - n_tenants)), n_tenants)
    if rng.random() < 0.3:
        problem = with_checkpoints(problem, seed)
    elif rng.random() < 0.4 and (plan := solve(problem)).status.has_plan:
        problem = remaining_problem(problem, plan, 1)
    return _with_more(rng, problem, seed)


def pooled_problem(seed: int) -> Problem:
    """Two or three tenants, of which two or all hold instances together, three to six steps; each feature in some.

    What the window starts with is held by the same pools, or by those of another partition; some are the rest of a
    plan.
    """
    rng = np.random.default_rng([seed, 10])
    n_tenants = int(rng.choice([2, 3]))
    n_steps = int(rng.integers(4, 8 if n_tenants == 2 else 6))
    problem = physical_problem(2000 + seed, n_steps, n_tenants)
    problem = replace(problem, initial=None, tenants=tuple(_more_modest(rng, t, problem.gpu) for t in problem.tenants))
    pairs = [*combinations(range(n_tenants), 2)] if n_tenants > 2 else []
    choices = [range(n_tenants), range(n_tenants), *pairs]
    members = choices[int(rng.integers(len(choices)))]
    pool = _pool(rng, problem.gpu, [problem.tenants[m] for m in members], is_alone=len(members) == n_tenants)
    problem = replace(problem, pools=(pool,))
    if rng.random() < 0.65:
        problem = _with_pooled_state(rng, problem)
    if rng.random() < 0.3:
        problem = with_checkpoints(problem, seed)
    elif rng.random() < 0.35 and (plan := solve(problem)).status.has_plan:
        problem = remaining_problem(problem, plan, int(rng.integers(1, n_steps)))
    return _with_more(rng, problem, seed)


def _more_modest(rng: np.random.Generator, terms: TenantTerms, gpu: GpuModel) -> TenantTerms:
    """The tenant with one way to retrain at most, and mostly with less that it asks for: more problems have a plan."""
    some = _with(terms, options=terms.options[:1], retraining_required=terms.retraining_required and rng.random() < 0.6)
    return some if rng.random() < 0.3 else _with_least(some, gpu)


def _pool(rng: np.random.Generator, gpu: GpuModel, members: list[TenantTerms], *, is_alone: bool) -> Pool:
    """A pool on one profile or more; on the whole GPU mostly where it is alone there."""
    sizes = {profile.name: profile.compute_slices for profile in gpu.profiles if profile.variant is Variant.STANDARD}
    if not is_alone and rng.random() < 0.9:
        sizes = {name: size for name, size in sizes.items() if size < gpu.compute_slices}
    names = [name for name in sizes if rng.random() < 0.6]
    if not names or rng.random() < 0.5:
        names = [name for name in sizes if name in names or name == rng.choice([*sizes])] or [[*sizes][-1]]
    rates = {n: {t.name: round(float(rng.uniform(20, 60)) * sizes[n] ** 0.9, 1) for t in members} for n in names}
    return Pool(tuple(t.name for t in members), rates, float(rng.choice([0.0, 0.5, 1.0, 2.0, 3.0])))


def _with_pooled_state(rng: np.random.Generator, problem: Problem) -> Problem:
    """The same problem with an initial state: instances held by its pools, or by others; retrainings in progress."""
    gpu, names, next_epoch_step = problem.gpu, problem.tenant_names, int(rng.choice(4, p=[0.55, 0.2, 0.15, 0.1]))
    if next_epoch_step:
        problem = replace(problem, tenants=tuple(_with_least(tenant, gpu) for tenant in problem.tenants))
    places = gpu.placements(profile_names(gpu))
    while True:
        if rng.random() < 0.35:
            owners = [[problem.tenant_names[m] for m in members] for members in problem.partition]
        else:
            part = rng.integers(0, len(names), len(names))
            owners = [
                [n for n, at in zip(names, part, strict=True) if at == number] for number in sorted(set(part.tolist()))
            ]
        owners += [owners[int(rng.integers(len(owners)))] for _ in range(int(rng.integers(0, 3)))]
        used: list[Placement] = []
        held: list[HeldInstance] = []
        for first, *others in owners:
            free = [place for place in places if gpu.fits([*used, place])]
            if free and (len(free) < 6 or rng.random() < 0.9):
                used.append(free[int(len(free) * rng.random() ** 2)])
                held.append(HeldInstance(used[-1], first, int(rng.integers(0, next_epoch_step + 1)), tuple(others)))
        running: list[RunningRetraining] = []
        for tenant in problem.tenants:
            free = [place for place in places if gpu.fits([*used, place])]
            if tenant.options and free and rng.random() < 0.4:
                used.append(free[0])
                running.append(RunningRetraining(free[0], tenant.name, int(rng.integers(1, problem.n_steps + 1))))
        try:
            found = replace(problem, initial=PhysicalState(tuple(held), tuple(running), next_epoch_step))
        except ProblemError:  # what a tenant alone keeps has to serve it
            continue
        pairs = zip(held, found.heirs, strict=True)
        if not next_epoch_step or all(found.may_serve(heir, item.placement) for item, heir in pairs):
            return found


def _with_more(rng: np.random.Generator, problem: Problem, seed: int) -> Problem:
    """The problem with salvage, slices of others, floors and gain tables, each or none of them."""
    if rng.random() < 0.3:
        problem = with_salvage(problem, seed)
    if rng.random() < 0.4:
        problem = with_unavailable(problem, seed)
    if rng.random() < 0.25 and not any(tenant.swap_s for tenant in problem.tenants):
        problem = with_floors(problem, seed, str(rng.choice(["step", "window"])))
    return with_gain_tables(problem, seed) if rng.random() < 0.2 else problem


def with_gain_tables(problem: Problem, seed: int) -> Problem:
    """The same problem with gain tables of two sample paths, on which what waits is served later."""
    rng = np.random.default_rng([seed, 9])
    paths = [t.arrivals_rps * rng.uniform(0.5, 1.5, (2, problem.n_steps)) for t in problem.tenants]
    slack_s = [dict.fromkeys(problem.gpu.profile_names, float(rng.choice([0.05, 0.3]))) for _ in problem.tenants]
    return replace(problem, gains=carry_over_gains(problem, paths, slack_s))


def with_unavailable(problem: Problem, seed: int) -> Problem:
    """The same problem on a GPU of which others hold some memory slices for some of the time."""
    rng = np.random.default_rng([seed, 4])
    items = []
    for _ in range(int(rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1]))):
        size = int(rng.integers(1, 1 + problem.gpu.memory_slices // 3))
        first = int(rng.integers(0, problem.gpu.memory_slices - size + 1))
        from_step = int(rng.integers(0, problem.n_steps)) if rng.random() < 0.7 else 0
        to_step = int(rng.integers(from_step + 1, problem.n_steps + 1)) if rng.random() < 0.7 else None
        items.append(Unavailable(tuple(range(first, first + size)), from_step, to_step))
    return replace(problem, unavailable=tuple(items))


def with_floors(problem: Problem, seed: int, per: str) -> Problem:
    """The same problem with a floor for one tenant or more: ``step``, ``window``, or ``mixed``."""
    rng = np.random.default_rng([seed, 4])
    kinds = {"step": [Per.STEP], "window": [Per.WINDOW], "mixed": [Per.STEP, Per.WINDOW]}[per]
    first = int(rng.integers(len(problem.tenants)))
    tenants = []
    for index, tenant in enumerate(problem.tenants):
        floor = AttainmentFloor(
            float(rng.choice([0.15, 0.3, 0.5, 0.7, 0.95, 1.0])), kinds[int(rng.integers(len(kinds)))]
        )
        tenants.append(_with(tenant, min_slo_attainment=floor if index == first or rng.random() < 0.4 else None))
    return replace(problem, tenants=tuple(tenants))


def with_salvage(problem: Problem, seed: int) -> Problem:
    """The same problem with a worth beyond the window for some tenants' levels, from nothing to windows of requests."""
    rng = np.random.default_rng([seed, 5])
    tenants = []
    for tenant in problem.tenants:
        most = float(rng.choice([0.1, 1.0, 3.0])) * float(tenant.arrivals_rps.sum()) * problem.step_s
        salvage = tuple(np.round(rng.uniform(0.0, most, 1 + len(tenant.options)), 2).tolist())
        tenants.append(_with(tenant, salvage=salvage if rng.random() < 0.8 else ()))
    return replace(problem, tenants=tuple(tenants))


def with_checkpoints(problem: Problem, seed: int) -> Problem:
    """The same problem with up to three ways to retrain, checkpoints in most of them, and swaps of up to two steps.

    Some checkpoints are worse than what serves, than those before them, or better than the end.
    """
    rng = np.random.default_rng([seed, 6])
    tenants = []
    for tenant in problem.tenants:
        options = [_with_own_checkpoints(rng, tenant, option, problem.step_s) for option in tenant.options]
        if options and len(options) < 3 and rng.random() < 0.4:
            options.append(_with_own_checkpoints(rng, tenant, replace(options[0], name="another"), problem.step_s))
        swap_s = float(rng.choice([0.0, 0.0, 0.4, 1.0, 1.7])) * problem.step_s
        is_required = bool(rng.random() < 0.4)
        tenants.append(_with(tenant, options=tuple(options), swap_s=swap_s, retraining_required=is_required))
    return replace(problem, tenants=tuple(tenants))


def _with_own_checkpoints(
    rng: np.random.Generator, tenant: TenantTerms, option: RetrainingOption, step_s: float
) -> RetrainingOption:
    n_checkpoints = int(rng.choice([0, 1, 2, 3], p=[0.15, 0.3, 0.3, 0.25]))
    fractions = np.sort(rng.choice(np.arange(1, 10), size=n_checkpoints, replace=False)) / 10
    before, after = tenant.accuracy_before, option.accuracy_after
    accuracies = np.clip(before + fractions**0.5 * (after - before) + rng.uniform(-0.08, 0.08, n_checkpoints), 0, 1)
    return replace(
        option,
        checkpoints=tuple(Checkpoint(float(f), round(float(a), 3)) for f, a in zip(fractions, accuracies, strict=True)),
        checkpoint_s=float(rng.choice([0.0, 0.2])) * step_s,
    )


def _steps(rng: np.random.Generator) -> tuple[float, int]:
    step_s = float(rng.choice([0.3, 1.0, 5.0], p=[0.25, 0.5, 0.25]))
    return step_s, int(rng.integers(7, 9) if step_s == 0.3 else rng.integers(4, 9))


def profile_names(gpu: GpuModel) -> tuple[str, ...]:
    """Standard profiles, and on an H100 the double-memory 1g as well."""
    variants = {Variant.STANDARD} | ({Variant.DOUBLE_MEMORY} if gpu.name.startswith("h100") else set())
    return tuple(profile.name for profile in gpu.profiles if profile.variant in variants)


def _some(rng: np.random.Generator, names: tuple[str, ...], n_most: int) -> list[str]:
    """One name or n_most of them, smaller profiles more often, in catalogue order."""
    weights = np.array([1.0 / (1 + index) ** 1.5 for index in range(len(names))])
    n_chosen = min(1 if rng.random() < 0.15 else n_most, len(names))
    chosen = rng.choice(len(names), size=n_chosen, replace=False, p=weights / weights.sum())
    return [names[index] for index in sorted(chosen)]


def _tenant(
    rng: np.random.Generator, gpu: GpuModel, index: int, n_tenants: int, step_s: float, n_steps: int
) -> TenantTerms:
    names = profile_names(gpu)
    # With three tenants, many small instances make more joint states than a plain oracle likes.
    serving = _some(rng, names[1:] if n_tenants == 3 and index > 0 and len(names) > 3 else names, 4 - min(n_tenants, 2))
    capability = {
        name: round(float(rng.uniform(20, 60)) * gpu.profile(name).compute_slices ** 0.9, 1) for name in serving
    }
    load = float(rng.uniform(0.2, 1.6)) * max(capability.values())
    arrivals = np.round(load * rng.uniform(0.2, 2.0, n_steps) * (rng.random(n_steps) > 0.15), 1)
    if rng.random() < 0.06:
        arrivals[:] = 0.0
    before = float(rng.choice([0.4, 0.55, 0.7]))
    return TenantTerms(
        name=f"tenant-{index}",
        arrivals_rps=arrivals,
        capability_rps=capability,
        accuracy_before=before,
        overhead_s=float(rng.choice([0.0, 0.2, 0.6, 1.0, 2.5])) * step_s,
        min_profile=_min_profile(rng, gpu, serving),
        options=_options(rng, names, before, step_s, n_steps),
        retraining_required=bool(rng.random() < 0.6),
        weight=float(rng.choice([1.0, 1.0, 0.5, 2.0, 0.0], p=[0.4, 0.25, 0.15, 0.15, 0.05])),
    )


def _min_profile(rng: np.random.Generator, gpu: GpuModel, serving: list[str]) -> str:
    """Mostly the smallest profile of the GPU; else one that serves, now and then any at all."""
    kind = rng.random()
    if kind < 0.7:
        return gpu.profile_names[0]
    return str(rng.choice(serving)) if kind < 0.95 else str(rng.choice(profile_names(gpu)))


def _options(
    rng: np.random.Generator, names: tuple[str, ...], before: float, step_s: float, n_steps: int
) -> tuple[RetrainingOption, ...]:
    """None in one of five tenants, else one or two; at step 0.3 they take 2.1 s, 7 steps, on some profile."""
    n_options = int(rng.choice([0, 1, 2], p=[0.2, 0.6, 0.2]))
    options = []
    for index in range(n_options):
        held_on = _some(rng, names, 2)
        times = {name: round(float(rng.uniform(0.4, 4.0)) * step_s, 2) for name in held_on}
        if step_s == 0.3:
            times[held_on[0]] = 2.1
        elif rng.random() < 0.1:
            times = dict.fromkeys(held_on, n_steps * step_s)
        after = float(np.clip(before + rng.choice([-0.1, 0.1, 0.25, 0.3]), 0, 1))
        options.append(RetrainingOption(f"option-{index}", times, after))
    return tuple(options)


def _paper_state(rng: np.random.Generator, gpu: GpuModel, tenants: tuple[TenantTerms, ...]) -> PaperState:
    held = {tenant.name: (str(rng.choice(list(tenant.capability_rps))),) for tenant in tenants}
    if rng.random() < 0.3:
        held[tenants[0].name] = ()
    if rng.random() < 0.3:
        held[tenants[-1].name] = (profile_names(gpu)[0],) * 2
    names = [name for profiles in held.values() for name in profiles]
    counts = tuple(map(names.count, gpu.profile_names))
    return PaperState(held if counts in gpu.multisets(gpu.profile_names) else dict.fromkeys(held, ()))


def physical_problem(seed: int, n_steps: int | None = None, n_tenants: int | None = None) -> Problem:
    """Two tenants (now and then one, or as many as asked) on an A30 with a warm-up of one or two of at most 6 steps."""
    rng = np.random.default_rng([seed, 2])
    gpu = gpu_model("a30-24gb")
    drawn = int(rng.choice([1, 2], p=[0.2, 0.8]))
    n_tenants = drawn if n_tenants is None else n_tenants
    n_steps = int(rng.integers(3, 7)) if n_steps is None else n_steps
    tenants = []
    for index in range(n_tenants):
        terms = _tenant(rng, gpu, index, n_tenants, 1.0, n_steps)
        options = tuple(
            RetrainingOption(o.name, {n: min(t, n_steps / 2) for n, t in o.time_s.items()}, o.accuracy_after)
            for o in terms.options
        )
        overhead_s = float(rng.choice([0.0, 0.5, 1.0, 2.0], p=[0.25, 0.25, 0.25, 0.25]))
        tenants.append(_with(terms, options=options, overhead_s=overhead_s, retraining_start_s=rng.choice([None, 0.5])))
    problem = Problem(gpu, 1.0, n_steps, Reconfiguration.PHYSICAL, tuple(tenants), switch_s=0.0)
    return problem if rng.random() < 0.5 else _with_physical_state(rng, problem)


def _with(terms: TenantTerms, **changes: object) -> TenantTerms:
    return TenantTerms(**{**vars(terms), **changes})  # type: ignore[arg-type]


def _with_physical_state(rng: np.random.Generator, problem: Problem) -> Problem:
    """The same problem with an initial state: some instances held, perhaps a retraining in progress."""
    gpu = problem.gpu
    next_epoch_step = int(rng.integers(0, 4))
    used: list[Placement] = []
    held: list[HeldInstance] = []
    running: list[RunningRetraining] = []
    # Whoever waits for an epoch needs an instance to hold; the smallest one leaves room for the others'.
    tenants = problem.tenants if next_epoch_step == 0 else tuple(_with_least(t, gpu) for t in problem.tenants)
    for tenant in [*tenants, *tenants]:
        free = [p for p in gpu.placements(list(tenant.capability_rps)) if gpu.fits([*used, p])]
        smallest = [p for p in free if p.profile == free[0].profile]
        if free and (len(held) < len(tenants) or rng.random() < 0.3):
            used.append(smallest[int(rng.integers(len(smallest)))])
            held.append(HeldInstance(used[-1], tenant.name, int(rng.integers(0, next_epoch_step + 1))))
    for tenant in tenants:
        free = [p for p in gpu.placements() if gpu.fits([*used, p])]
        if tenant.options and free and rng.random() < 0.6:
            used.append(free[0])
            running.append(RunningRetraining(free[0], tenant.name, int(rng.integers(1, problem.n_steps + 1))))
    state = PhysicalState(tuple(held), tuple(running), next_epoch_step)
    return Problem(gpu, 1.0, problem.n_steps, problem.reconfiguration, tenants, switch_s=0.0, initial=state)


def _with_least(terms: TenantTerms, gpu: GpuModel) -> TenantTerms:
    return _with(terms, min_profile=gpu.profile_names[0])


def case_name(case: tuple[Callable[[int], Problem], int]) -> str:
    """The id of a case ``(maker, seed)``, the same in every process, unlike the address in the maker's own text."""
    make, seed = case
    return f"{make.__name__}-{seed}"


FEATURES: dict[str, Callable[[Problem, int], Problem]] = {
    "checkpoints": with_checkpoints,
    "salvage": with_salvage,
    "slices of others": with_unavailable,
    "floors per step": partial(with_floors, per="step"),
    "floors per window": partial(with_floors, per="window"),
    "gain tables": with_gain_tables,
}


def featured(problem: Problem, seed: int) -> tuple[str, Problem]:
    """The problem with one of the features, in turn by seed, and that feature's name."""
    name = list(FEATURES)[seed % len(FEATURES)]
    return name, FEATURES[name](problem, seed)
