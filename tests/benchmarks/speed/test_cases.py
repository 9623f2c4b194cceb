import pytest

from benchmarks.speed.cases import CASES, SLOW_CASES, Case, labels, tasks
from planner.problem import Reconfiguration


def test_a_case_has_twenty_random_problems_and_four_from_traces() -> None:
    found = list(labels(24))
    assert sorted(found) == sorted([f"random-{n}" for n in range(20)] + [f"trace-{n}" for n in range(4)])
    assert found[:7] == ["random-0", "random-1", "random-2", "random-3", "random-4", "trace-0", "random-5"]


def test_no_two_cases_have_the_same_name() -> None:
    names = [case.name for case in (*CASES, *SLOW_CASES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", [*CASES, *SLOW_CASES], ids=lambda case: case.name)
def test_a_case_makes_the_problems_that_it_names(case: Case) -> None:
    (task,) = tasks(case, 1)
    problem = task.problem
    assert (problem.gpu.name, problem.step_s, len(problem.tenants)) == (case.gpu, case.step_s, case.n_tenants)
    assert problem.reconfiguration is Reconfiguration(case.model)
    assert (problem.n_steps < case.n_steps) == (task.initial is not None) == case.is_replan


def test_other_problems_have_other_fingerprints() -> None:
    case = CASES[0]
    first, second = tasks(case, 2)
    (again,) = tasks(case, 1)
    assert first.fingerprint == again.fingerprint != second.fingerprint
