"""Problem files: the design's example, both formats, round trips, and one line for each thing that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from problems import paper_problem, physical_problem, with_unavailable

from planner.errors import ProblemError
from planner.files.problem_file import problem_text, problem_to_json, read_problem
from planner.gains import expected_gains
from planner.problem import AttainmentFloor, PaperState, Per, PhysicalState, Problem
from planner.solve import solve
from planner.unavailable import Unavailable
from planner.verify import verify

EXAMPLE = """
{"schema": 1, "gpu": "a100-40gb", "step_s": 1.0, "n_steps": 3, "reconfiguration": "paper",
 "tenants": [{"name": "resnet50", "arrivals_rps": [221, 246, 218], "capability_rps": {"1g.5gb": 45, "2g.10gb": 88},
   "retraining_s": {"1g.5gb": 2.5, "2g.10gb": 1.4}, "accuracy": {"before": 0.62, "after": 0.86},
   "overhead_s": 4.0, "min_profile": "1g.5gb"}]}
"""


def written(folder: Path, text: str, name: str = "problem.json") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def changed(folder: Path, *keys: str | int, value: object = None, delete: bool = False) -> Path:
    """The example with one value set or deleted."""
    document = json.loads(EXAMPLE)
    place = document
    for key in keys[:-1]:
        place = place[key]
    if delete:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return written(folder, json.dumps(document))


def message_of(path: Path) -> str:
    with pytest.raises(ProblemError) as caught:
        read_problem(path)
    return str(caught.value)


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    terms = read_problem(written(tmp_path, EXAMPLE)).tenants[0]
    assert terms.arrivals_rps.tolist() == [221, 246, 218]
    assert (terms.accuracies, terms.options[0].name) == ((0.62, 0.86), "full")


@pytest.mark.parametrize(
    ("written_as", "read_as"),
    [
        (0.99, AttainmentFloor(0.99)),
        (1, AttainmentFloor(1.0)),
        ({"share": 0.5}, AttainmentFloor(0.5)),
        ({"share": 0.5, "per": "step"}, AttainmentFloor(0.5, Per.STEP)),
        ({"share": 0.5, "per": "window", "due": -3.5}, AttainmentFloor(0.5, Per.WINDOW, -3.5)),
    ],
)
def test_a_floor_of_in_time_answers_has_a_short_and_a_long_form(tmp_path: Path, written_as, read_as) -> None:
    problem = read_problem(changed(tmp_path, "tenants", 0, "min_slo_attainment", value=written_as))
    assert problem.tenants[0].min_slo_attainment == read_as


def test_floors_survive_writing_and_reading(tmp_path: Path) -> None:
    floored = changed(tmp_path, "tenants", 0, "min_slo_attainment", value={"share": 0.5, "per": "window", "due": 2.0})
    document = problem_to_json(read_problem(floored))
    again = read_problem(written(tmp_path, json.dumps(document), "again.json"))
    assert again.tenants[0].min_slo_attainment == AttainmentFloor(0.5, Per.WINDOW, 2.0)


@pytest.mark.parametrize(
    ("floor", "said"),
    [
        (0, "min_slo_attainment is 0.0; a finite number > 0 and ≤ 1 is needed"),
        (1.01, "min_slo_attainment is 1.01; a finite number > 0 and ≤ 1 is needed"),
        ({"share": 0.5, "per": "hour"}, "per"),
        ({"per": "step"}, "share is missing"),
        ({"share": 0.5, "per": "step", "due": 1}, "min_slo_attainment.due is 1.0"),
        ("0.9", "min_slo_attainment"),
    ],
)
def test_a_floor_that_cannot_be_is_refused_in_one_line(tmp_path: Path, floor, said: str) -> None:
    message = message_of(changed(tmp_path, "tenants", 0, "min_slo_attainment", value=floor))
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["p.yaml", "p.yml", "p.txt", "p"])
def test_yaml_states_the_same_problem(tmp_path: Path, name: str) -> None:
    as_yaml = written(tmp_path, yaml.safe_dump(json.loads(EXAMPLE)), name)
    expected = problem_to_json(read_problem(written(tmp_path, EXAMPLE)))
    assert problem_to_json(read_problem(as_yaml)) == expected


def test_json_under_another_name_is_told_by_its_brace(tmp_path: Path) -> None:
    assert read_problem(written(tmp_path, EXAMPLE.replace("{", "{\t", 1), "problem")).n_steps == 3


def test_yaml_reads_1e2_as_a_number(tmp_path: Path) -> None:
    text = yaml.safe_dump(json.loads(EXAMPLE)).replace("- 221", "- 1e2")
    assert read_problem(written(tmp_path, text, "p.yaml")).tenants[0].arrivals_rps[0] == 100.0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("make", [paper_problem, physical_problem])
def test_a_problem_survives_writing_and_reading(tmp_path: Path, make: type[Problem], seed: int) -> None:
    problem = make(seed)  # type: ignore[call-arg, arg-type]
    document = problem_to_json(problem)
    again = read_problem(written(tmp_path, json.dumps(document)))
    assert problem_to_json(again) == document
    assert again.initial == problem.initial


def test_several_ways_to_retrain_are_read(tmp_path: Path) -> None:
    document = json.loads(EXAMPLE)
    terms = document["tenants"][0]
    del terms["retraining_s"]
    terms["retraining_options"] = [{"name": "short", "time_s": {"1g.5gb": 1}, "accuracy_after": 0.7}]
    terms |= {"retraining_required": False, "weight": 2, "retraining_start_s": 1.5, "accuracy": {"before": 0.6}}
    tenant = read_problem(written(tmp_path, json.dumps(document))).tenants[0]
    assert (tenant.accuracies, tenant.must_retrain, tenant.weight, tenant.retraining_start_s) == (
        (0.6, 0.7),
        False,
        2,
        1.5,
    )


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"accuracy_after": 2.0}, "tenants.resnet50.retraining_options[0].accuracy_after is 2.0; a finite number"),
        ({"time_s": {"1g.5gb": 0.0}}, "tenants.resnet50.retraining_options[0].time_s.1g.5gb is 0.0; a finite number"),
        ({"name": "\x1b"}, "tenants.resnet50.retraining_options[0].name is '\\x1b'; printable text is needed"),
    ],
)
def test_a_wrong_way_to_retrain_is_told_by_its_key(tmp_path: Path, change: dict[str, object], part: str) -> None:
    document = json.loads(EXAMPLE)
    del document["tenants"][0]["retraining_s"]
    option = {"name": "short", "time_s": {"1g.5gb": 1}, "accuracy_after": 0.7}
    document["tenants"][0]["retraining_options"] = [option | change]
    assert part in message_of(written(tmp_path, json.dumps(document)))


@pytest.mark.parametrize("times", [{}, None])
def test_without_a_retraining_no_accuracy_after_is_needed(tmp_path: Path, times: object) -> None:
    document = json.loads(EXAMPLE)
    document["tenants"][0] |= {"retraining_s": times, "accuracy": {"before": 0.6}}
    assert read_problem(written(tmp_path, json.dumps(document))).tenants[0].accuracies == (0.6,)


def test_a_paper_state_is_read(tmp_path: Path) -> None:
    path = changed(tmp_path, "initial", value={"resnet50": ["1g.5gb", "1g.5gb"]})
    assert read_problem(path).initial == PaperState({"resnet50": ("1g.5gb", "1g.5gb")})


def test_a_physical_state_is_read(tmp_path: Path) -> None:
    document = json.loads(EXAMPLE) | {"reconfiguration": "physical", "switch_s": 1}
    document["initial"] = {"held": [["2g.10gb@0", "resnet50", 0]], "retrainings": [["1g.5gb@6", "resnet50", 2]]}
    problem = read_problem(written(tmp_path, json.dumps(document)))
    state = problem.initial
    assert isinstance(state, PhysicalState)
    assert (str(state.held[0].placement), state.retrainings[0].end_step, state.next_epoch_step) == ("2g.10gb@0", 2, 0)


WRONG_VALUES = [
    (("schema",), 2, "schema is 2; 1 is the only one known"),
    (("schema",), 1.0, "schema is 1.0; a whole number is needed"),
    (("schema",), True, "schema is True; a whole number is needed"),
    (("gpu",), "a100-40", "gpu: unknown GPU model 'a100-40' (did you mean a100-40gb?)"),
    (("step_s",), 0, "step_s is 0.0; a finite number ≥ 1e-06 and ≤ 1e+09 is needed"),
    (("step_s",), "1", "step_s is '1'; a number is needed"),
    (("n_steps",), 2, "tenants.resnet50.arrivals_rps has 3 numbers; n_steps is 2"),
    (("n_steps",), 3.5, "n_steps is 3.5; a whole number is needed"),
    (("n_steps",), -1, "n_steps is -1; at least 1 is needed"),
    (("reconfiguration",), "papers", "reconfiguration is 'papers'; 'paper' or 'physical' is needed"),
    (("tenants",), {}, "tenants is {}; a list is needed"),
    (("tenants", 0, "name"), "", "tenants[0].name is ''; printable text is needed"),
    (("tenants", 0, "arrivals_rps", 1), float("nan"), "arrivals_rps[1] is nan; a finite number ≥ 0 and ≤ 1e+09"),
    (("tenants", 0, "arrivals_rps", 1), float("inf"), "arrivals_rps[1] is inf; a finite number ≥ 0 and ≤ 1e+09"),
    (("tenants", 0, "arrivals_rps", 1), True, "tenants[0].arrivals_rps[1] is True; a number is needed"),
    (("tenants", 0, "arrivals_rps", 1), -4, "tenants.resnet50.arrivals_rps[1] is -4.0; a finite number ≥ 0 and ≤"),
    (("tenants", 0, "arrivals_rps", 1), 10**400, "arrivals_rps[1] is inf; a finite number ≥ 0"),
    (("tenants", 0, "capability_rps", "2g.10gb"), 0, "capability_rps.2g.10gb is 0.0; a finite number > 0 and ≤"),
    (("tenants", 0, "capability_rps", "2g.20gb"), 9, "a100-40gb has no MIG profile '2g.20gb'"),
    (("tenants", 0, "accuracy", "after"), 1.5, "[0].accuracy.after is 1.5; at most 1 is needed"),
    (("tenants", 0, "accuracy", "before"), -0.5, "tenants.resnet50.accuracy.before is -0.5"),
    (("tenants", 0, "accuracy"), 3, "tenants[0].accuracy is 3; a mapping of keys to values is needed"),
    (("tenants", 0, "retraining_s", "1g.5gb"), 0, "tenants.resnet50.retraining_s.1g.5gb is 0.0; a finite number > 0"),
    (("tenants", 0, "name"), "a\nb", "tenants[0].name is 'a\\nb'; printable text is needed"),
    (("tenants", 0, "overhead_s"), -1, "overhead_s is -1.0"),
    (("tenants", 0, "overheads"), 4, "unknown key tenants[0].overheads (did you mean overhead_s?)"),
    (("tenants", 0, "accuracy", "afterwards"), 1, "unknown key tenants[0].accuracy.afterwards (did you mean after?)"),
    (("shema",), 1, "unknown key shema (did you mean schema?)"),
    (("tenants", 0, "retraining_options"), [], "retraining_s and retraining_options are both given"),
    (("tenants", 0, "retraining_required"), 1, "retraining_required is 1; true or false is needed"),
    (("initial",), {"bert": []}, "initial: 'bert' is no tenant of the problem"),
    (("initial",), {"resnet50": "1g.5gb"}, "initial.resnet50 is '1g.5gb'; a list is needed"),
    (("initial",), [], "initial is []; a mapping of keys to values is needed"),
    (("tenants", 0, "name"), "\ud800", '"name": "\\ud800'),
    (("gpu",), 3, "gpu is 3; text is needed"),
]


@pytest.mark.parametrize(("keys", "value", "part"), WRONG_VALUES)
def test_a_wrong_value_is_told_in_one_line(
    tmp_path: Path, keys: tuple[str | int, ...], value: object, part: str
) -> None:
    path = changed(tmp_path, *keys, value=value)
    message = message_of(path)
    assert part in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        (("gpu",), "gpu is missing"),
        (("tenants", 0, "min_profile"), "tenants[0].min_profile is missing"),
        (("tenants", 0, "accuracy", "after"), "tenants[0].accuracy.after is missing"),
    ],
)
def test_a_missing_key_is_named(tmp_path: Path, keys: tuple[str | int, ...], part: str) -> None:
    assert part in message_of(changed(tmp_path, *keys, delete=True))


def test_a_misspelt_key_is_told_before_the_missing_one(tmp_path: Path) -> None:
    path = written(tmp_path, EXAMPLE.replace("min_profile", "min_profiles"))
    assert "unknown key tenants[0].min_profiles (did you mean min_profile?); known: name, " in message_of(path)


def test_slices_that_are_not_ours_are_read(tmp_path: Path) -> None:
    items = [{"memory_slices": [4, 5], "from_step": 1, "to_step": 2}, {"memory_slices": [7]}]
    problem = read_problem(changed(tmp_path, "unavailable", value=items))
    assert problem.unavailable == (Unavailable((4, 5), 1, 2), Unavailable((7,)))


@pytest.mark.parametrize("seed", range(10))
def test_slices_that_are_not_ours_survive_writing_and_reading(tmp_path: Path, seed: int) -> None:
    problem = with_unavailable(paper_problem(seed), seed)
    again = read_problem(written(tmp_path, json.dumps(problem_to_json(problem))))
    assert again.unavailable == problem.unavailable


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (
            {"memory_slices": [4], "until": 2},
            "unknown key unavailable[0].until; known: memory_slices, from_step, to_step",
        ),
        ({"from_step": 1}, ": unavailable[0].memory_slices is missing"),
        ({"memory_slices": 4}, ": unavailable[0].memory_slices is 4; a list is needed"),
        ({"memory_slices": [1.0]}, ": unavailable[0].memory_slices[0] is 1.0; a whole number is needed"),
        ({"memory_slices": [8]}, ": unavailable[0].memory_slices[0] is 8; a100-40gb has memory slices 0 to 7"),
        ({"memory_slices": [1], "to_step": 4}, ": unavailable[0].to_step is 4; 1 to n_steps (3) is allowed"),
        ("4-7", ": unavailable[0] is '4-7'; "),
    ],
)
def test_slices_that_are_not_ours_are_refused_in_one_line(tmp_path: Path, item: object, part: str) -> None:
    message = message_of(changed(tmp_path, "unavailable", value=[item]))
    assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("initial", "part"),
    [
        ({"heldd": []}, "unknown key initial.heldd (did you mean held?)"),
        (
            {"held": [["2g.10gb@1", "resnet50", 0]]},
            "initial.held[0][0]: 2g.10gb cannot start at memory slice 1",
        ),
        ({"held": [["2g.10gb", "resnet50", 0]]}, "'2g.10gb' is no placement"),
        ({"retrainings": [["9g@0", "resnet50", 1]]}, "initial.retrainings[0][0]: a100-40gb has no MIG profile '9g'"),
        ({"held": [["2g.10gb@0", "resnet50", 0, 0]]}, "'resnet50', 0, 0]; a list of at most 3 "),
        ({"held": [["2g.10gb@0", "resnet50"]]}, ": initial.held[0][2] is missing"),
        ({"next_epoch_step": 1.0}, ": initial.next_epoch_step is 1.0; a whole number"),
    ],
)
def test_a_wrong_physical_state_is_told(tmp_path: Path, initial: object, part: str) -> None:
    document = json.loads(EXAMPLE) | {"reconfiguration": "physical", "initial": initial}
    assert part in message_of(written(tmp_path, json.dumps(document).replace("1.0}", "1.0 }")))


# ---- gain tables ----


def tabled(make: Callable[[int], Problem], seed: int) -> Problem:
    """A random problem with the mean of five sample paths as its gain tables."""
    problem, rng = make(seed), np.random.default_rng([seed, 11])
    paths = [tenant.arrivals_rps * rng.uniform(0.5, 1.5, (5, problem.n_steps)) for tenant in problem.tenants]
    return replace(problem, gains=expected_gains(problem, paths))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("make", [paper_problem, physical_problem])
def test_gain_tables_survive_writing_and_reading_bit_by_bit(tmp_path: Path, make, seed: int) -> None:
    problem = tabled(make, seed)
    again = read_problem(written(tmp_path, problem_text(problem)))
    for table, read in zip(problem.gains, again.gains, strict=True):
        assert read.multisets == table.multisets
        assert np.array_equal(read.steady, table.steady)
        assert np.array_equal(read.arrived, table.arrived)
        assert (read.changed is None and table.changed is None) or np.array_equal(read.changed, table.changed)


def test_a_plan_is_worth_the_same_by_the_file_as_by_the_problem(tmp_path: Path) -> None:
    problem = tabled(physical_problem, 3)
    plan = solve(problem, "greedy")
    again = read_problem(written(tmp_path, problem_text(problem)))
    assert verify(again, plan).objective == verify(problem, plan).objective == plan.objective


def test_without_being_asked_for_gain_tables_are_left_out() -> None:
    assert "gains" not in problem_to_json(tabled(paper_problem, 1))["tenants"][0]


def test_gain_tables_of_another_form_are_no_file() -> None:
    problem = tabled(paper_problem, 1)
    odd = tuple(replace(table, steady=table.steady + 1.0) for table in problem.gains)
    with pytest.raises(ProblemError, match="no file can hold them"):
        problem_text(replace(problem, gains=odd))


GAINS: dict[str, Any] = {
    "multisets": [[], ["1g.5gb"], ["2g.10gb"]],
    "in_time": [[0, 40, 80]] * 3,
    "in_time_changed": [[0, -10, 70]] * 3,
}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"multisets": [[], ["7g.40gb"], ["2g.10gb"]]}, "multisets[1] names '7g.40gb'; the problem's profiles are"),
        ({"multisets": [["1g.5gb"], [], ["2g.10gb"]]}, "multisets[0] has to be the empty multiset"),
        ({"multisets": [[], ["1g.5gb"], ["1g.5gb"]]}, "multisets[2] is ['1g.5gb'], which is given twice"),
        ({}, "gains lack the multiset"),
        ({"in_time": [[0, 40, 80]] * 2}, "in_time has 2 entries; n_steps is 3"),
        ({"in_time": [[0, 40]] * 3}, "in_time[0] has 2 entries; multisets has 3"),
        ({"in_time": [[0, -1, 80]] * 3}, "in_time[0][1] is -1; at least 0 is needed"),
        ({"in_time": [[9, 8, 80]] * 3}, "in_time is lower for a multiset than for a part of it"),
        (
            {"in_time": [[0, 40, 1e10]] * 3},
            "in_time[0][2] is 10000000000.0; at most 1,000,000,000 is needed",
        ),
        ({"in_time": [[0, 40, None]] * 3}, "in_time[0][2] is None"),
        ({"in_time": [[0, 40, float("nan")]] * 3}, "in_time[0][2] is nan; a finite number is needed"),
        ({"in_time_changed": [[0, 41, 70]] * 3}, "in_time_changed is above in_time"),
        ({"in_time_changed": None}, "in_time_changed is missing; a paper problem needs it"),
        ({"in_time": [[0, 40, 500]] * 3}, "in_time is above what arrives in a step"),
        ({"arrived": [80, 79, 80]}, "in_time is above what arrives in a step"),
        ({"arrived": [1, 2]}, "arrived has 2 entries; n_steps is 3"),
        ({"arrived": [1, 2, -3]}, "arrived[2] is -3; at least 0 is needed"),
        ({"served": []}, "unknown key tenants[0].gains.served"),
    ],
)
def test_a_wrong_gain_table_is_told_by_its_key(tmp_path: Path, change: dict[str, object], part: str) -> None:
    assert part in message_of(changed(tmp_path, "tenants", 0, "gains", value=GAINS | change))


def test_either_all_tenants_have_a_gain_table_or_none(tmp_path: Path) -> None:
    problem = tabled(lambda seed: physical_problem(seed, n_tenants=2), 3)
    document = problem_to_json(problem, with_gains=True)
    del document["tenants"][1]["gains"]
    assert "tenants[1].gains is missing" in message_of(written(tmp_path, json.dumps(document)))


HUGE = 10**3999
PHYSICAL = {"reconfiguration": "physical", "switch_s": 0.0}
LONG = [
    ({"gpu": "x" * 100_000}, "known: "),
    ({"gpu": "x y " * 100_000}, "known: "),
    ({"reconfiguration": "x" * 100_000}, "'paper' or 'physical' is needed"),
    ({"schema": HUGE}, "1 is the only one known"),
    ({"n_steps": HUGE}, "n_steps"),
    ({"unavailable": [{"memory_slices": list(range(100_000))}]}, "memory_slices"),
    ({"unavailable": [{"memory_slices": [0], "to_step": HUGE}]}, "to_step"),
    ({**PHYSICAL, "initial": {"held": [["x" * 100_000, "resnet50", 0]]}}, "profile@start"),
    ({**PHYSICAL, "initial": {"held": [["1g.5gb@0", "x" * 100_000, 0]]}}, "resnet50"),
    ({**PHYSICAL, "initial": {"held": [["1g.5gb@0", "resnet50", HUGE]]}}, "initial"),
    ({"initial": {"x" * 100_000: ["1g.5gb"]}}, "resnet50"),
]
LONG_OF_TENANT = [
    ({"min_profile": "x" * 100_000}, "1g.5gb"),
    ({"name": "x y\x00" * 100_000}, "tenants[0].name"),
    ({"capability_rps": {"x" * 100_000: 1.0}}, "1g.5gb"),
    ({"salvage": {"x" * 100_000: 1.0}}, "exactly none, full are needed"),
    ({"name": "x" * 100_000, "weight": -1.0}, "weight"),
]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [*LONG, *(({"tenants": [json.loads(EXAMPLE)["tenants"][0] | own]}, kept) for own, kept in LONG_OF_TENANT)],
)
def test_a_long_value_is_cut_and_what_is_allowed_is_not(tmp_path: Path, changes: dict[str, Any], kept: str) -> None:
    message = message_of(written(tmp_path, json.dumps(json.loads(EXAMPLE) | changes)))
    assert len(message) < 1000 + len(str(tmp_path))
    assert message.startswith(str(tmp_path))
    assert kept in message
