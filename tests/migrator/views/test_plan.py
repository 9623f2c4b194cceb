from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from plans import continued_case, lent_case, paper_case, physical_case
from rich.console import Console
from windows import tenant, window

from migrator.views.plan import SimplePlan, chart_of, print_explanation, print_plan
from planner.explain import Explanation, explain
from planner.plan import Certificate, MigPlan, Status
from planner.problem import Problem, Reconfiguration
from planner.solve import solve
from planner.unavailable import Unavailable
from planner.verify import verify, with_proof

CASES = (paper_case, physical_case, continued_case)


def printed(problem: Problem, plan: MigPlan, width: int = 80, *, checked: bool = True, **options: object) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False)
    verification = verify(problem, plan) if checked else None
    print_plan(problem, plan, verification, console, **options)  # type: ignore[arg-type]
    return text.getvalue()


def rows(text: str, name: str) -> list[str]:
    return re.findall(rf"^ *{name} ?\d* (\S.*)$", text, re.MULTILINE)


def test_slices_over_time_show_who_serves_retrains_and_starts_up() -> None:
    text = printed(*physical_case())
    a_step = 8
    assert rows(text, "slice 0") == ["2g" + "A" * (6 * a_step - 2)]
    assert rows(text, "slice 3") == ["░" * a_step + "1g" + "a" * (2 * a_step - 2) + "░" * 16 + "1g" + "A" * 6]


def test_as_many_tenants_as_the_largest_gpu_has_slices_are_shown() -> None:
    terms = tuple(tenant(f"t{n}", retraining_s={}) for n in range(7))
    seven = replace(window(terms[0]), reconfiguration=Reconfiguration.PHYSICAL, tenants=terms)
    text = printed(seven, solve(seven, "static"))
    assert [name for name in "ABCDEFG" if re.search(rf"^ *slice \d 1g{name}", text, re.MULTILINE)] == list("ABCDEFG")


def test_paper_plans_stack_compute_slices_by_tenant() -> None:
    problem, plan = paper_case()
    chart = chart_of(problem, plan, ("A", "B"))
    assert [name for name in chart.row_names if name] == ["A serves", "A retrains", "B serves"]
    assert len(chart.row_names) == 3 + 1 + 3


def test_a_loan_is_seen_in_place_of_the_instance_that_is_lent() -> None:
    bars = chart_of(*lent_case(), ("A", "B")).bars
    assert sorted((bar.create_step, bar.end_step) for bar in bars if bar.first_row == 2) == [(0, 1), (1, 3), (3, 8)]
    assert re.findall(r"│AB│([\w+])│· +(.*\S)", printed(*lent_case())) == [
        ("+", "A+B 2g.12gb@0 1g.6gb@2"),
        ("a", "a 1g.6gb@2 lent until 3"),
        ("+", "a 1g.6gb@2"),
    ]


def test_a_loan_is_hatched_from_when_the_instance_serves_nobody() -> None:
    a_step, text = 8, printed(*lent_case())
    (row,) = rows(text, "slice 2")
    assert (row[:2], row[a_step:][: 2 * a_step + 2]) == ("1g", "1ga╱a╱a╱a╱a╱a╱a╱1g")
    assert "· idle, ╱ lent" in text
    assert "lent" not in printed(*physical_case())


def test_slices_that_are_not_ours_are_crossed_out() -> None:
    problem, plan = physical_case()
    plan = replace(plan, lifetimes=plan.lifetimes[:3])
    text = printed(replace(problem, unavailable=(Unavailable((3,), 4),)), plan)
    assert rows(text, "slice 3")[0].endswith("·" * 8 + "×" * 16)
    assert re.search(r"not ours +memory slice 3 from step 4 on", text)
    assert "· idle, × not ours" in text


def test_a_paper_plan_lists_the_slices_that_are_not_ours_below_the_tenants() -> None:
    problem, plan = paper_case()
    text = printed(replace(problem, unavailable=(Unavailable((3, 7), 0, 2),)), plan, checked=False)
    assert re.findall(r"^ *not ours (\d) (\S+)$", text, re.MULTILINE) == [(n, "×" * 16 + "·" * 16) for n in "37"]


@pytest.mark.parametrize("case", CASES)
def test_without_any_nothing_is_said_of_slices_that_are_not_ours(case) -> None:
    assert "not ours" not in printed(*case())


def test_headline_bound_and_check_are_told() -> None:
    text = printed(*physical_case())
    assert "optimal physical plan by hand on a30-24gb: 6 steps of 1 s" in text
    assert "237.50 requests expected, 79.17 % of 300.00 arrivals" in text
    assert re.search(r"\bgap +–: nothing is proven", text)
    assert re.search(r"claimed gap +0 %: by its engine's word no plan exceeds 237.50", text)
    assert "valid by every rule" in text


def test_a_gap_and_a_certified_gap_are_told() -> None:
    problem, plan = physical_case()
    prices = Certificate(problem.profile_names, np.zeros((6, len(problem.profile_names))))
    plan = replace(plan, status=Status.FEASIBLE, claimed_bound=250.0, certificate=prices)
    found = verify(problem, plan)
    text = " ".join(printed(problem, with_proof(plan, found)).split())
    assert f" gap {100 * found.gap:.4g} %: by its certificate no plan exceeds {found.bound:.2f}" in text
    assert "claimed gap 5 %: by its engine's word no plan exceeds 250.00" in text


def test_floors_are_told_by_how_the_plan_stands_to_them() -> None:
    floors = [
        SimplePlan("static", 190.0),
        SimplePlan("greedy", 237.5),
        SimplePlan("other", 250.0),
        SimplePlan("none", None),
    ]
    text = printed(*physical_case(), floors=floors)
    assert "beats    " in text
    assert "static 190.00 by 25 %, none, which finds no plan" in text
    assert re.search(r"equals +greedy 237.50\b", text)
    assert re.search(r"short of +other 250.00 by 5 %", text)


def test_each_tenant_has_its_share_retraining_arrivals_and_capability() -> None:
    text = printed(*physical_case())
    assert "A a  117.50 requests, 65.28 % of arrivals  █ is 35 requests/s" in text
    assert "retrains 1g.6gb@3, steps 0–3, trains from 1, accuracy 0.500 → 1.000" in text
    assert rows(text, "arrivals")[0] == "▇" * 48
    assert rows(text, "capability")[0] == "▆" * 40 + "█" * 8


def test_a_tenant_without_arrivals_has_no_share() -> None:
    problem = window(tenant(arrivals_rps=[0.0] * 6, retraining_s={}))
    assert "0.00 requests  █" in printed(problem, solve(problem))


def test_the_only_thing_said_without_a_plan_is_why() -> None:
    problem = window(tenant(retraining_s={"2g.10gb": 60.0}))
    text = printed(problem, solve(problem), checked=False)
    assert text.startswith("infeasible")
    assert "rule 3" in text
    assert "slice" not in text


def test_a_broken_rule_is_told() -> None:
    problem, plan = physical_case()
    assert "breaks rule 5" in printed(problem, replace(plan, objective=1.0))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("n_steps", [3, 60, 700])
@pytest.mark.parametrize("model", list(Reconfiguration))
def test_no_line_is_wider_than_the_terminal(width: int, n_steps: int, model: Reconfiguration) -> None:
    names = ("a tenant with quite a long name", "b", "c")
    terms = [tenant(name, [60.0] * n_steps, retraining_s={}) for name in names]
    problem = window(*terms, model=model, switch_s=0.0)
    text = printed(problem, solve(problem, "static"), width)
    assert max(map(len, text.splitlines())) <= width


def test_many_changes_are_listed_only_when_asked_for() -> None:
    arrivals = [[200.0, 20.0] * 10, [20.0, 200.0] * 10]
    terms = [tenant(name, own, retraining_s={}, overhead_s=0.0) for name, own in zip("ab", arrivals, strict=True)]
    problem = window(*terms)
    plan = solve(problem, "greedy")
    assert "--changes lists them" in printed(problem, plan)
    assert "holds" in printed(problem, plan, all_changes=True)


@pytest.mark.parametrize("case", CASES)
def test_short_timetables_are_listed_anyway(case) -> None:
    assert "--changes" not in printed(*case())


def test_the_timetable_groups_what_starts_and_ends_by_owner() -> None:
    text = printed(*physical_case())
    assert "A 1g.6gb@3 from 5" in text
    assert "a 1g.6gb@3 until 3" in text


def test_profiles_of_one_compute_size_are_told_apart() -> None:
    capability = {"1g.10gb": 40.0, "1g.20gb": 45.0}
    terms = tenant(capability_rps=capability, retraining_s={}, min_profile="1g.20gb", arrivals_rps=[40.0] * 60)
    problem = window(terms, model=Reconfiguration.PHYSICAL, gpu="h100-80gb", switch_s=0.0)
    assert "1g.20gbRRR" in printed(problem, solve(problem, "static"))


def test_without_colours_nothing_but_text_is_printed() -> None:
    assert "\x1b" not in printed(*physical_case())


def explained(found: Explanation, width: int = 80) -> str:
    text = io.StringIO()
    print_explanation(found, Console(file=text, width=width, highlight=False))
    return text.getvalue()


def test_the_step_the_layouts_and_the_reason_are_explained() -> None:
    found = explain(*physical_case(), step=5)
    text = explained(found, 120)
    assert "Step 5" in text
    assert "What could be held in steps 5–6" in text
    assert "held" in text
    assert found.reason in text


def test_profiles_held_more_than_once_are_counted() -> None:
    problem = window(tenant(arrivals_rps=[280.0] * 6, capability_rps={"1g.5gb": 40.0}, retraining_s={}))
    assert "7 × 1g.5gb" in explained(explain(problem, solve(problem), 0))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_an_explanation_is_wider_than_the_terminal(width: int) -> None:
    text = explained(explain(*physical_case(), step=3), width)
    assert max(map(len, text.splitlines())) <= width


def test_loans_are_explained_in_place_of_other_layouts() -> None:
    text = explained(explain(*lent_case(), step=1))
    assert re.search(r"\ba 1g\.6gb@2 +0, 1–3 +-10\.00 +\+0\.00 +\+75\.00 +\+65\.00 *\n", text)
    assert "What could be held" not in text


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_of_explained_loans_is_wider_than_the_terminal(width: int) -> None:
    lines = explained(explain(*lent_case(), step=1), width).splitlines()
    assert [line for line in lines if len(line) > width and "share what they hold" not in line] == []
    assert any(re.search(r"a 1g\.6gb@2 .*\+65\.00", line) for line in lines)


def test_a_narrow_terminal_leaves_figures_out_but_no_names() -> None:
    found = explain(*physical_case(), step=3)
    text = explained(found, 40)
    assert max(map(len, text.splitlines())) <= 40
    assert "…" not in text
    for words in ("A a", "B b", "goodput", "net", *found.held.holds[0]):
        assert words in text
    assert "switching" not in text
