"""Gain tables against plain loops over the design's formulas."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import le

import numpy as np
import pytest
from claims import Claims
from stages import in_order_of_service
from windows import tenant, window

from executor.mig import Multiset
from planner.errors import ProblemError
from planner.gains import carry_over_gains, expected_gains, gain_tables, make_monotone
from planner.problem import GainTable, Pool, Problem, Reconfiguration

CAPABILITY = {"1g.5gb": 40.0, "2g.10gb": 90.0, "3g.20gb": 110.0}
SLACK = {"1g.5gb": 0.05, "2g.10gb": 0.1, "3g.20gb": 0.3}


def problem_of(step_s: float = 0.5, **changes: object) -> Problem:
    arrivals = (0.0, 30.0, 95.0, 500.0)
    terms = {"arrivals_rps": arrivals, "capability_rps": CAPABILITY, "weight": 2.0, **changes}
    return window(tenant(**terms), step_s=step_s)  # type: ignore[arg-type]


def capacity(problem: Problem, multiset: Multiset) -> float:
    names = problem.profile_names
    return problem.step_s * sum(n * CAPABILITY[name] for n, name in zip(multiset, names, strict=True) if n)


def paths_of(problem: Problem, n_paths: int = 5) -> np.ndarray:
    return np.random.default_rng(3).uniform(0, 300, (n_paths, problem.n_steps))


def test_steady_gain_is_weight_times_accuracy_times_the_least_of_arrivals_and_capacity() -> None:
    problem = problem_of()
    table = gain_tables(problem)[0]
    for (level, accuracy), (step, rate) in (
        (one, other) for one in enumerate((0.5, 0.8)) for other in enumerate((0.0, 30.0, 95.0, 500.0))
    ):
        expected = [2.0 * accuracy * min(rate * 0.5, capacity(problem, multiset)) for multiset in table.multisets]
        assert table.steady[level, step].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("overhead_s", [0.0, 0.3, 0.5, 4.0])
def test_a_change_takes_the_overhead_share_of_one_instance_off_the_capacity(overhead_s: float) -> None:
    problem = problem_of(overhead_s=overhead_s)
    table = gain_tables(problem)[0]
    assert table.changed is not None
    for k, multiset in enumerate(table.multisets):
        full, n_instances = capacity(problem, multiset), max(1, sum(multiset))
        expected = [0.5 * 2 * min(a, full - overhead_s / 0.5 / n_instances * full) for a in (0.0, 15.0, 47.5, 250.0)]
        assert table.changed[0, :, k].tolist() == pytest.approx(expected)


def test_a_change_that_takes_longer_than_the_step_leaves_a_debt() -> None:
    table = gain_tables(problem_of(overhead_s=4.0))[0]
    assert table.changed is not None
    assert table.changed[0, 3, table.column[1, 0, 0]] == pytest.approx(0.5 * 2 * (20 - 8 * 20))


def test_the_empty_multiset_gains_nothing() -> None:
    table = gain_tables(problem_of())[0]
    assert table.changed is not None
    assert not table.steady[:, :, 0].any()
    assert not table.changed[:, :, 0].any()


def test_physical_tables_have_no_changed_part() -> None:
    problem = replace(problem_of(), reconfiguration=Reconfiguration.PHYSICAL)
    assert gain_tables(problem)[0].changed is None


def test_expected_gains_are_the_mean_over_paths_not_the_gain_of_the_mean() -> None:
    problem = problem_of()
    paths = paths_of(problem)
    table = expected_gains(problem, [paths])[0]
    for k, multiset in enumerate(table.multisets):
        served = np.mean([[min(a * 0.5, capacity(problem, multiset)) for a in path] for path in paths], axis=0)
        assert table.steady[1, :, k].tolist() == pytest.approx((2 * 0.8 * served).tolist())


def test_carry_over_loses_only_what_waits_in_vain() -> None:
    problem = problem_of(capability_rps={"2g.10gb": 90.0})
    paths = paths_of(problem)
    table = carry_over_gains(problem, [paths], [SLACK])[0]
    served = np.zeros(problem.n_steps)
    for path in paths:
        waiting = 0.0
        for step, rate in enumerate(path):
            too_late = max(0.0, waiting + rate * 0.5 - 45.0 - 90.0 * 0.1)
            waiting = min(max(0.0, waiting + rate * 0.5 - 45.0), 90.0 * 0.1)
            served[step] += (rate * 0.5 - too_late) / len(paths)
    assert table.steady[0, :, table.column[1,]].tolist() == pytest.approx((2 * 0.5 * served).tolist())


def test_carry_over_without_slack_is_the_expected_gain() -> None:
    problem, paths = problem_of(), [paths_of(problem_of())]
    carried = carry_over_gains(problem, paths, [dict.fromkeys(CAPABILITY, 0.0)])[0]
    assert np.allclose(carried.steady, expected_gains(problem, paths)[0].steady, rtol=1e-12)


def test_what_is_served_later_counts_where_it_arrives_and_no_request_counts_twice() -> None:
    problem = problem_of(capability_rps={"1g.5gb": 40.0}, arrivals_rps=(46.0, 30.0, 0.0, 0.0))
    table = carry_over_gains(problem, [problem.tenants[0].arrivals_rps[None]], [{"1g.5gb": 1.0}])[0]
    # 3 of the 23 requests of step 0 wait for step 1; whichever multisets a plan holds, they count once, in step 0.
    assert table.steady[0, :, table.column[1, 0]].tolist() == pytest.approx([23.0, 15.0, 0.0, 0.0])
    assert table.steady[0].max(axis=1).tolist() == pytest.approx([23.0, 15.0, 0.0, 0.0])


def test_carry_over_is_worth_between_what_is_served_at_once_and_what_arrives() -> None:
    problem, paths = problem_of(), [paths_of(problem_of())]
    carried, at_once = carry_over_gains(problem, paths, [SLACK])[0], expected_gains(problem, paths)[0]
    most = 2.0 * 0.8 * 0.5 * paths[0].mean(axis=0)[:, None]
    assert (carried.steady >= at_once.steady - 1e-12).all()
    assert (carried.steady[1] <= most + 1e-12).all()


def test_carry_over_gains_never_fall_for_a_superset() -> None:
    problem = problem_of()
    table = carry_over_gains(problem, [paths_of(problem)], [SLACK])[0]
    for k, multiset in enumerate(table.multisets):
        for j, other in enumerate(table.multisets):
            if all(a <= b for a, b in zip(other, multiset, strict=True)):
                assert (table.steady[:, :, k] >= table.steady[:, :, j]).all()


def test_monotone_is_the_most_of_all_sub_multisets() -> None:
    multisets = [(0, 0), (1, 0), (0, 1), (1, 1)]
    values = np.array([[0.0, 5.0, 3.0, 4.0], [1.0, 0.0, 0.0, 0.5]])
    assert make_monotone(multisets, values).tolist() == [[0, 5, 3, 5], [1, 1, 1, 1]]


def test_given_gains_are_used() -> None:
    problem = problem_of()
    simple = gain_tables(problem)[0]
    better = GainTable(simple.multisets, simple.steady * 1.5, simple.changed)
    assert (gain_tables(replace(problem, gains=(better,)))[0].steady == simple.steady * 1.5).all()


def test_given_gains_without_a_changed_part_get_the_simple_one() -> None:
    problem = problem_of()
    simple = gain_tables(problem)[0]
    filled = gain_tables(replace(problem, gains=(GainTable(simple.multisets, simple.steady * 1.5),)))[0]
    assert filled.changed is not None
    assert simple.changed is not None
    assert (filled.changed == simple.changed).all()


def test_given_gains_of_another_shape_are_refused() -> None:
    problem = problem_of()
    table = gain_tables(problem)[0]
    short = GainTable(table.multisets, table.steady[:, :-1].copy())
    with pytest.raises(ProblemError, match=r"steady has shape \(2, 3, 30\); \(2, 4, 30\) is needed"):
        gain_tables(replace(problem, gains=(short,)))


def test_given_gains_that_lack_a_multiset_are_refused() -> None:
    problem = problem_of()
    table = gain_tables(problem)[0]
    with pytest.raises(ProblemError, match="gains lack the multiset"):
        gain_tables(replace(problem, gains=(GainTable(table.multisets[:-1], table.steady[:, :, :-1].copy()),)))


def test_paths_of_another_length_are_refused() -> None:
    with pytest.raises(ProblemError, match=r"paths_rps has shape \(5, 3\); \(n_paths, 4\) is needed"):
        expected_gains(problem_of(), [np.ones((5, 3))])


def test_a_profile_without_slack_is_refused() -> None:
    problem = problem_of()
    with pytest.raises(ProblemError, match=r"slack_s lacks 3g\.20gb"):
        carry_over_gains(problem, [paths_of(problem)], [{"1g.5gb": 0.1, "2g.10gb": 0.1}])


def pooled_case(seed: int) -> tuple[Problem, list[np.ndarray], list[dict[str, float]]]:
    """Two or three tenants in a pool, sample paths on which what waits is served later, and slacks by profile."""
    rng = np.random.default_rng([seed, 12])
    names = [f"t{m}" for m in range(int(rng.integers(2, 4)))]
    tenants = [
        tenant(name, arrivals_rps=rng.uniform(0, 90, 4), weight=float(rng.choice([0.0, 0.5, 1.0]))) for name in names
    ]
    rates = {p: {name: float(rng.uniform(20, 120)) for name in names} for p in ("1g.5gb", "3g.20gb")}
    pool = Pool(tuple(names), rates, 1.0)
    problem = replace(window(*tenants, step_s=0.5, model=Reconfiguration.PHYSICAL), pools=(pool,))
    paths = [own.arrivals_rps * rng.uniform(0.3, 2.0, (5, 4)) for own in tenants]
    slack_s = [{p: float(rng.choice([0.02, 0.2, 0.8])) for p in rates} for _ in names]
    return problem, paths, slack_s


def served_in_turn(
    problem: Problem, paths: list[np.ndarray], slack_s: list[dict[str, float]], held: Counter[str], path: int
) -> np.ndarray:
    """T of each member in each step on one path, straight from the design's formulas, ``(n_members, n_steps)``."""
    (pool,), step_s, found = problem.pools, problem.step_s, np.zeros((len(paths), problem.n_steps))
    waiting = [0.0] * len(paths)
    for step in range(problem.n_steps):
        left, waited = 1.0, 0.0
        for i in in_order_of_service(problem, pool):
            name, a = problem.tenants[i].name, float(paths[i][path, step]) * step_s
            rate = sum(n * pool.capability_rps[p][name] for p, n in held.items())
            b, most = waiting[i], step_s * rate
            if not rate:
                continue
            y = min(a + b, most * left)
            left -= y / most
            slack = sum(n * pool.capability_rps[p][name] * slack_s[i][p] for p, n in held.items()) / rate / step_s
            waiting[i] = min(a + b - y, a * slack, most * max(0.0, slack - waited))
            waited += waiting[i] / most
            found[i, step] = a - (a + b - y - waiting[i])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_members_of_a_pool_carry_over_is_what_the_design_says(seed: int) -> None:
    problem, paths, slack_s = pooled_case(seed)
    tables = carry_over_gains(problem, paths, slack_s)
    by_part: dict[Multiset, np.ndarray] = {}
    for multiset in tables[0].multisets:
        held = Counter({p: n for p, n in zip(problem.profile_names, multiset, strict=True) if n})
        runs = [served_in_turn(problem, paths, slack_s, held, path) for path in range(5)]
        by_part[multiset] = np.mean(runs, axis=0)
    with Claims(f"seed {seed}") as claim:
        for multiset, column in tables[0].column.items():
            parts = [own for part, own in by_part.items() if all(map(le, part, multiset))]
            for m, table in enumerate(tables):
                expected = np.max([own[m] for own in parts], axis=0)
                claim(np.allclose(table.in_time[:, column], expected), f"{multiset} serves {m} otherwise")
                worth = problem.tenants[m].weight * 0.8 * expected
                claim(np.allclose(table.steady[1, :, column], worth), f"{multiset} earns {m} otherwise")


def test_members_of_a_pool_without_slack_are_served_what_is_left_of_the_step() -> None:
    problem, paths, slack_s = pooled_case(0)
    carried = carry_over_gains(problem, paths, [dict.fromkeys(own, 0.0) for own in slack_s])
    for table, expected in zip(carried, expected_gains(problem, paths), strict=True):
        assert np.allclose(table.steady, expected.steady, rtol=1e-12)
