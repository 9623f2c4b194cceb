"""The paper's program: equal to the plain oracle wherever it solves; plans that keep the rules keep its formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from operator import le

import pulp
import pytest
from claims import Claims
from paper_oracle import best_objective
from problems import paper_problem, short_paper_problem
from solvers import SOLVERS, WITHOUT_GUROBI
from windows import NAMES, tenant, window

from executor.catalogue import gpu_model
from executor.mig import Multiset
from planner.budget import Budget
from planner.counts import feasible_multisets, multiset_of
from planner.engines.milp import paper_ilp
from planner.engines.milp.paper_ilp import Configs, Held, PaperModel, configurations, formulate, solve_paper_ilp
from planner.engines.milp.solvers import Solver, SolverAnswer, ask
from planner.engines.paper.exact import solve_exact
from planner.engines.paper.plan import TenantDecision, decisions_of, schedule_in, value_of
from planner.engines.paper.static import solve_greedy
from planner.engines.schedule import WindowFacts, profiles_at
from planner.errors import EngineError
from planner.gains import gain_tables
from planner.plan import MigPlan, RetrainingSpan, Status
from planner.problem import PaperState, Problem, Reconfiguration, Retraining, RetrainingOption
from planner.unavailable import Unavailable

# Small and quick: each takes HiGHS less than a second. They have one to three tenants, an initial state, two options,
# retrainings that are not required or do not pay, the double-memory 1g, debts of changes, weights and loads of zero.
A30 = (0, 20, 44, 48, 52, 64, 68, 76, 80, 88, 112, 124, 132, 136)
A100 = (21, 22, 33, 53, 61, 74, 77, 89, 90, 93, 101, 102, 118, 122, 126, 137)
H100 = (7, 35, 39, 55, 91, 95, 103, 115, 135)
SEEDS = (*A30, *A100, *H100)
ON_CBC = (20, 44, 48, 52, 68, 76, 22, 101, 118, 55)
"""Quick on CBC too; the last one has an objective without terms."""
QUICK = {"highs": {*SEEDS[::4]}, "cbc": {*ON_CBC[1::4]}}
"""What is asked of each solver by default."""


def no_greedy(*_: object) -> list[object]:
    return []


@cache
def oracle(seed: int) -> float:
    best = best_objective(paper_problem(seed))
    assert best is not None
    return best


@pytest.mark.parametrize(
    ("solver", "seed"),
    [
        *(
            pytest.param(solver, seed, marks=() if seed in QUICK[solver] else pytest.mark.long)
            for solver, seeds in (("highs", SEEDS), ("cbc", ON_CBC))
            for seed in seeds
        ),
        *(pytest.param("gurobi", seed, marks=WITHOUT_GUROBI) for seed in SEEDS[::3]),
    ],
)
def test_the_solvers_own_plan_is_the_best(solver: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_ilp, "candidates", no_greedy)
    plan = solve_paper_ilp(paper_problem(seed), solver=solver)
    assert (plan.status, plan.objective) == (Status.OPTIMAL, pytest.approx(oracle(seed), rel=1e-6, abs=1e-6))


def plans_of(seed: int) -> tuple[tuple[Problem, tuple[TenantDecision, ...]], ...]:
    """The best plan and greedy's of a random problem, where there is one."""
    problem = paper_problem(seed)
    found = (decisions_of(problem, plan) for plan in (solve_exact(problem), solve_greedy(problem)))
    return tuple((problem, decisions) for decisions in found if decisions is not None)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("budget", [Budget(max_nodes=0), Budget(max_nodes=1), Budget(time_limit_s=0.0)])
def test_within_a_small_budget_the_plan_is_no_worse_than_greedy_and_the_bound_holds(
    solver: str, budget: Budget
) -> None:
    problem = paper_problem(77)
    plan, floor, best = solve_paper_ilp(problem, budget, solver=solver), solve_greedy(problem), oracle(77)
    assert None not in (plan.objective, plan.claimed_bound, floor.objective)
    assert floor.objective <= plan.objective <= best * (1 + 1e-6) <= plan.claimed_bound * (1 + 2e-6)  # type: ignore[operator]


def test_without_any_plan_in_time_the_status_is_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_ilp, "candidates", no_greedy)
    plan = solve_paper_ilp(paper_problem(77), Budget(max_nodes=0))
    assert (plan.status, plan.objective, plan.gap) == (Status.TIMEOUT, None, None)


def test_a_window_with_no_plan_is_infeasible() -> None:
    seed = next(seed for seed in range(100) if best_objective(short_paper_problem(seed)) is None)
    plan = solve_paper_ilp(short_paper_problem(seed))
    assert (plan.status, plan.objective) == (Status.INFEASIBLE, None)


def test_a_bound_below_a_checked_plan_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SolverAnswer(has_solution=False, is_proven=True, is_infeasible=False, bound=-1.0, n_nodes=0)
    monkeypatch.setattr(paper_ilp, "ask", lambda *_, **__: answer)
    floor = solve_greedy(paper_problem(77))
    plan = solve_paper_ilp(paper_problem(77))
    assert (plan.status, plan.objective, plan.claimed_bound) == (Status.FEASIBLE, floor.objective, floor.claimed_bound)


def test_a_program_that_takes_too_long_to_make_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(paper_ilp, "_allocation", fail)
    plan = solve_paper_ilp(paper_problem(77), Budget(time_limit_s=0.0))
    assert plan.objective == solve_greedy(paper_problem(77)).objective


def test_checkpoints_and_swaps_are_refused() -> None:
    with pytest.raises(EngineError, match="knows no checkpoints and no swap_s, which tenant resnet50 has; exact does"):
        solve_paper_ilp(window(tenant(swap_s=0.5)))


def model_of(problem: Problem) -> PaperModel:
    """The whole program of a problem."""
    model = PaperModel.of(problem, configurations(problem, Configs.ALL))
    assert formulate(model)
    return model


def kept_by(model: PaperModel, decisions: Sequence[TenantDecision]) -> SolverAnswer:
    """What HiGHS makes of the program where each task holds what these decisions say, and all else is left open."""
    for step in range(model.problem.n_steps):
        free = free_instances(model, decisions, step)
        for m, decision in enumerate(decisions):
            hold(model.held[m][step], decision.held[step], free)
            for level, task in enumerate(model.tasks[m], start=1):
                run = decision.retraining
                own = run if run is not None and run.level == level else None
                running = () if own is None else profiles_at([own], step)
                hold(task.held[step], multiset_of(model.problem, running), free)
    return ask(Solver.HIGHS, model.program, Budget())


def free_instances(model: PaperModel, decisions: Sequence[TenantDecision], step: int) -> list[list[int]]:
    """The instances, by profile, of the first configuration with room for all that is held in the step."""
    running = multiset_of(model.problem, profiles_at(schedule_in(decisions), step))
    total = [sum(counts) for counts in zip(*(d.held[step] for d in decisions), running, strict=True)]
    mask = model.problem.unavailable_in(step, step + 1)
    ours = feasible_multisets(model.problem.gpu, model.problem.profile_names, mask)
    config = next(c for c, counts in enumerate(model.configs) if counts in ours and all(map(le, total, counts)))
    own = [(i, instance.profile_index) for i, instance in enumerate(model.instances) if instance.config == config]
    return [[i for i, profile in own if profile == p] for p in range(len(total))]


def hold(held: Held, counts: Multiset, free: list[list[int]]) -> None:
    taken = {free[p].pop() for p, count in enumerate(counts) for _ in range(count)}
    for i, variable in held.items():
        variable.setInitialValue(float(i in taken))
        variable.fixValue()


def worth_in(model: PaperModel) -> float:
    return float(-pulp.value(model.program.objective) / model.scale)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=pytest.mark.long if n % 9 else ()) for n in range(40)])
def test_every_plan_keeps_every_formula_at_its_worth_and_is_the_one_that_is_read(seed: int) -> None:
    with Claims(f"seed {seed}") as claim:
        for problem, decisions in plans_of(seed):
            model = model_of(problem)
            if not kept_by(model, decisions).is_proven:
                claim(False, f"{decisions} break a formula")
                continue
            value = value_of(WindowFacts.of(problem), decisions)
            worth = worth_in(model)
            claim(worth == pytest.approx(value, rel=1e-6, abs=1e-6), f"{decisions}: {value}; {worth} in the program")
            claim(model.decisions() == decisions, f"{decisions} are read as {model.decisions()}")


A_1G, A_2G = (1, 0, 0, 0, 0), (0, 1, 0, 0, 0)


def is_kept_by_one(held: list[Multiset], retraining: Retraining | None) -> bool:
    """Whether one tenant of six steps that retrains for two steps on a 2g may decide so."""
    return kept_by(model_of(window(tenant())), (TenantDecision(tuple(held), retraining),)).has_solution


def test_formula_3f_ends_a_retraining_after_its_time() -> None:
    # A step as the paper's text would have it, one longer, breaks the corrected formula.
    assert is_kept_by_one([A_1G] * 6, Retraining(0, 1, "2g.10gb", 1, 3))
    assert not is_kept_by_one([A_1G] * 6, Retraining(0, 1, "2g.10gb", 1, 4))


def test_formula_3f_keeps_a_retraining_until_its_time() -> None:
    assert not is_kept_by_one([A_1G] * 6, Retraining(0, 1, "2g.10gb", 1, 2))


def test_formula_4_wants_the_retraining_started_and_ended_in_the_window() -> None:
    assert not is_kept_by_one([A_1G] * 6, None)
    assert is_kept_by_one([A_1G] * 6, Retraining(0, 1, "2g.10gb", 4, 6))
    assert not is_kept_by_one([A_1G] * 6, Retraining(0, 1, "2g.10gb", 5, 7))


def test_formula_5b_wants_one_instance_large_enough_not_many_small_ones() -> None:
    problem = window(tenant(min_profile="2g.10gb", retraining_s={}))
    for held, is_valid in (((3, 0, 0, 0, 0), False), (A_2G, True)):
        assert kept_by(model_of(problem), (TenantDecision((held,) * 6, None),)).has_solution is is_valid


def test_formula_11_sees_a_change_of_profiles_with_as_many_gpcs_and_instances() -> None:
    # 1g + 3g and 2g + 2g: four GPCs and two instances both.
    problem = window(tenant(retraining_s={}, overhead_s=0.5, arrivals_rps=[500.0] * 6))
    model = model_of(problem)
    held = ((1, 0, 1, 0, 0),) * 3 + ((0, 2, 0, 0, 0),) * 3
    assert kept_by(model, (TenantDecision(held, None),)).is_proven
    # 160 requests a step, a quarter less in the step of the change, at an accuracy of 0.5.
    assert worth_in(model) == pytest.approx(0.5 * (6 * 160 - 40))


@pytest.mark.parametrize("factor", [1e-5, 1e5])
def test_loads_may_be_tiny_or_huge(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_ilp, "candidates", no_greedy)
    problem = paper_problem(44)
    scaled = tuple(
        replace(
            terms,
            arrivals_rps=terms.arrivals_rps * factor,
            capability_rps={name: rate * factor for name, rate in terms.capability_rps.items()},
        )
        for terms in problem.tenants
    )
    plan = solve_paper_ilp(replace(problem, tenants=scaled))
    assert (plan.status, plan.objective) == (Status.OPTIMAL, pytest.approx(oracle(44) * factor, rel=1e-6))


def test_the_same_problem_gives_the_same_plan() -> None:
    plans: list[MigPlan] = [replace(solve_paper_ilp(paper_problem(44)), solve_s=0.0) for _ in range(2)]
    assert plans[0] == plans[1]


def test_a_window_of_changes_that_only_cost_may_end_below_zero() -> None:
    terms = tenant(retraining_s={}, overhead_s=40.0, capability_rps={"1g.5gb": 40.0})
    problem = window(terms, initial=PaperState({"resnet50": ("7g.40gb",)}))
    plan = solve_paper_ilp(problem)
    assert (plan.status, plan.objective) == (Status.OPTIMAL, pytest.approx(best_objective(problem)))
    assert (plan.objective or 0.0) < 0


def test_the_option_that_pays_most_is_chosen() -> None:
    options = (RetrainingOption("short", {"1g.5gb": 1.0}, 0.6), RetrainingOption("long", {"1g.5gb": 2.0}, 0.9))
    plan = solve_paper_ilp(window(tenant(options=options, capability_rps={"1g.5gb": 40.0})))
    assert plan.schedules[0].retraining == RetrainingSpan("1g.5gb", 0, 2, "long")


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_bound_holds_also_where_the_plan_is_not_proven_best(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_ilp, "candidates", no_greedy)
    plan = solve_paper_ilp(paper_problem(88), Budget(rel_gap=0.9), solver=solver)
    assert None not in (plan.objective, plan.claimed_bound)
    assert plan.objective < oracle(88) * (1 + 1e-6) <= plan.claimed_bound * (1 + 2e-6)  # type: ignore[operator]


PAPERS_TWELVE = {
    (0, 0, 0, 0, 1),
    (0, 0, 1, 1, 0),
    (1, 1, 0, 1, 0),
    (3, 0, 0, 1, 0),
    (0, 0, 2, 0, 0),
    (0, 2, 1, 0, 0),
    (2, 1, 1, 0, 0),
    (4, 0, 1, 0, 0),
    (1, 3, 0, 0, 0),
    (3, 2, 0, 0, 0),
    (5, 1, 0, 0, 0),
    (7, 0, 0, 0, 0),
}
"""How many of 1g, 2g, 3g, 4g and 7g: the maximal configurations without 3+2+1 and 3+1+1+1, which leave a place idle."""


@pytest.mark.parametrize("gpu", ["a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb", "b200-180gb"])
def test_paper12_are_the_twelve_on_every_seven_slice_gpu(gpu: str) -> None:
    names = gpu_model(gpu).standard_profile_names
    rates = dict.fromkeys(names, 40.0)
    terms = tenant(capability_rps=rates, retraining_s={}, min_profile=names[0])
    found = configurations(window(terms, gpu=gpu), Configs.PAPER12)
    assert (len(found), set(found)) == (12, PAPERS_TWELVE)


def test_paper12_leaves_out_profiles_that_no_task_uses() -> None:
    problem = window(tenant(capability_rps={"3g.20gb": 90.0}, retraining_s={"1g.5gb": 2.0}))
    found = configurations(problem, Configs.PAPER12)
    assert problem.profile_names == ("1g.5gb", "3g.20gb")
    assert (len(found), set(found)) == (12, {(counts[0], counts[2]) for counts in PAPERS_TWELVE})


@pytest.mark.parametrize("names", [NAMES, NAMES[:2], ("1g.5gb", "1g.10gb", "2g.10gb")])
def test_all_are_the_layouts_of_the_problems_profiles_that_no_other_one_contains(names: tuple[str, ...]) -> None:
    problem = window(tenant(capability_rps=dict.fromkeys(names, 40.0), retraining_s={}))
    fitting = {layout.multiset(names) for layout in problem.gpu.layouts(names)}
    larger = {counts: [o for o in fitting if all(map(le, counts, o)) and o != counts] for counts in fitting}
    assert set(configurations(problem, Configs.ALL)) == {counts for counts in fitting if not larger[counts]}


@pytest.mark.parametrize("seed", [33, 101])
def test_paper12_and_all_agree_where_both_have_what_tasks_use(seed: int) -> None:
    plan = solve_paper_ilp(paper_problem(seed), configs="paper12")
    assert (plan.status, plan.objective) == (Status.OPTIMAL, pytest.approx(oracle(seed), rel=1e-6))


def test_paper12_is_refused_where_the_gpu_has_other_sizes() -> None:
    terms = tenant(capability_rps={"1g.6gb": 40.0}, min_profile="1g.6gb", retraining_s={})
    message = "configs 'paper12' are those of a GPU with 7 compute slices; a30-24gb has 4: use configs 'all'"
    with pytest.raises(EngineError, match=message):
        solve_paper_ilp(window(terms, gpu="a30-24gb"), configs="paper12")


@pytest.mark.parametrize("use", [{"capability_rps": {"1g.10gb": 40.0}}, {"retraining_s": {"1g.10gb": 2.0}}])
def test_paper12_is_refused_where_a_task_may_use_another_profile(use: dict[str, dict[str, float]]) -> None:
    with pytest.raises(
        EngineError, match=r"'paper12' have no 1g.10gb, which tenant resnet50 may use; they have 1g.5gb"
    ):
        solve_paper_ilp(window(tenant(**use)), configs="paper12")  # type: ignore[arg-type]


def test_unknown_configs_are_told_with_those_known() -> None:
    with pytest.raises(EngineError, match="unknown configs 'paper14'; known: paper12, all"):
        solve_paper_ilp(window(), configs="paper14")


def test_a_physical_problem_is_refused() -> None:
    with pytest.raises(EngineError, match="'paper-ilp' answers paper problems; this one is physical"):
        solve_paper_ilp(window(model=Reconfiguration.PHYSICAL))


def test_gain_tables_are_refused() -> None:
    problem = window()
    with pytest.raises(EngineError, match=r"'paper-ilp' counts .* this problem has gain tables of its own"):
        solve_paper_ilp(replace(problem, gains=gain_tables(problem)))


@pytest.mark.parametrize("configs", Configs)
def test_configurations_are_joined_by_those_of_the_slices_that_others_leave(configs: Configs) -> None:
    problem = window(tenant(capability_rps={"3g.20gb": 120.0, "4g.20gb": 160.0}))
    left = {(2, 0, 0), (0, 1, 0), (0, 0, 1)}  # of 2g, 3g and 4g, on slices 0 to 3
    beside = replace(problem, unavailable=(Unavailable((4, 5, 6, 7), 2),))
    assert set(configurations(beside, configs)) == set(configurations(problem, configs)) | left
