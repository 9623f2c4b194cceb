"""Problem values: durations in steps, defaults, and that an ill-formed one cannot exist."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from windows import tenant, window

from executor.catalogue import gpu_model
from planner.errors import ProblemError
from planner.gains import gain_tables
from planner.problem import (
    HeldInstance,
    PaperState,
    PhysicalState,
    Pool,
    Problem,
    Reconfiguration,
    RetrainingOption,
    RunningRetraining,
    steps_of,
    with_measured_overhead,
)

GPU = gpu_model("a100-40gb")
NAN = float("nan")
QUICK = RetrainingOption("quick", {"1g.5gb": 1.0}, 0.5)


@pytest.mark.parametrize(
    ("duration_s", "step_s", "n_steps"), [(2.1, 0.3, 7), (2.0, 1.0, 2), (2.01, 1.0, 3), (0.0, 1.0, 1), (1e-12, 5.0, 1)]
)
def test_a_duration_takes_its_steps_rounded_up_and_at_least_one(duration_s: float, step_s: float, n_steps: int) -> None:
    assert steps_of(duration_s, step_s) == n_steps


def test_profile_names_are_all_that_any_task_uses_or_holds_in_catalogue_order() -> None:
    state = PaperState({"resnet50": ("7g.40gb",)})
    problem = window(tenant(capability_rps={"3g.20gb": 1.0}, retraining_s={"1g.5gb": 1.0}), initial=state)
    assert problem.profile_names == ("1g.5gb", "3g.20gb", "7g.40gb")


def test_a_retraining_holds_its_instance_for_its_start_up_too_in_physical_only() -> None:
    paper, physical = (window(tenant(retraining_start_s=2.5), model=m, switch_s=0.0) for m in Reconfiguration)
    steps = [p.occupied_steps(p.tenants[0], p.tenants[0].options[0], "2g.10gb") for p in (paper, physical)]
    assert steps == [2, 3 + 2]


def test_warm_up_is_switch_and_overhead_and_the_epoch_takes_the_longest_of_all_tenants() -> None:
    tenants = (tenant("a", overhead_s=0.5), tenant("b", overhead_s=3.2))
    problem = window(*tenants, model=Reconfiguration.PHYSICAL, switch_s=1.0)
    assert [problem.warm_up_steps(terms) for terms in tenants] == [2, 5]
    assert problem.epoch_steps == 5


def test_arrays_of_a_problem_are_read_only_copies() -> None:
    given = np.ones(6)
    terms = tenant(arrivals_rps=given)
    given[0] = 7.0
    assert terms.arrivals_rps[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        terms.arrivals_rps[0] = 2.0


def test_a_weight_or_accuracy_by_level_follows_the_options() -> None:
    options = (RetrainingOption("short", {"1g.5gb": 1.0}, 0.6), RetrainingOption("long", {"1g.5gb": 3.0}, 0.9))
    assert tenant(options=options).accuracies == (0.5, 0.6, 0.9)
    names = [option.name for option in options]
    assert [tenant(options=options).level_of(name) for name in (None, *names)] == [1, 1, 2]


def test_a_tenant_without_options_need_not_retrain() -> None:
    assert not tenant(retraining_s={}).must_retrain


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, r"tenants\[0\].name is ''; printable text is needed"),
        ({"name": "a\x1b[31m"}, r"tenants\[0\].name is 'a\\x1b\[31m'; printable text is needed"),
        ({"arrivals_rps": [1.0] * 5}, r"arrivals_rps has 5 numbers; n_steps is 6"),
        (
            {"arrivals_rps": [1, 2, -3, 4, 5, 6]},
            r"arrivals_rps\[2\] is -3.0; a finite number ≥ 0 and ≤ 1e\+09 is needed",
        ),
        ({"arrivals_rps": [1, 2, 3, NAN, 5, 6]}, r"arrivals_rps\[3\] is nan"),
        ({"capability_rps": {}}, "capability_rps is empty"),
        ({"capability_rps": {"1g.5gb": 0.0}}, r"capability_rps.1g.5gb is 0.0; a finite number > 0"),
        ({"capability_rps": {"1g.6gb": 1.0}}, r"capability_rps: a100-40gb has no MIG profile '1g.6gb'"),
        ({"min_profile": "5g"}, r"min_profile: a100-40gb has no MIG profile '5g'"),
        ({"retraining_s": {"2g.10gb": 0.0}}, r"tenants.resnet50.retraining_s.2g.10gb is 0.0; a finite number > 0"),
        ({"accuracy_before": 1.1}, "accuracy.before is 1.1; a finite number ≥ 0 and ≤ 1"),
        ({"options": (RetrainingOption("full", {"1g.5gb": 1.0}, 2.0),)}, r"accuracy.after is 2.0; a finite number"),
        ({"options": (QUICK, RetrainingOption("x", {"1g.5gb": 1.0}, 2.0))}, r"options\[1\].accuracy_after is 2.0"),
        ({"options": (QUICK, RetrainingOption("x", {"1g.5gb": 0}, 0.5))}, r"options\[1\].time_s.1g.5gb is 0"),
        ({"options": (RetrainingOption("x", {"9g": 1}, 0.5),)}, r"options\[0\].time_s: .* no MIG profile '9g'"),
        ({"options": (RetrainingOption("\t", {"1g.5gb": 1.0}, 0.5),)}, r"options\[0\].name is '\\t'; printable text"),
        ({"overhead_s": -1.0}, r"overhead_s is -1.0"),
        ({"overhead_s": float("inf")}, r"overhead_s is inf"),
        ({"weight": -1.0}, r"weight is -1.0"),
        ({"weight": 1e10}, r"weight is 10000000000.0; a finite number ≥ 0 and ≤ 1e\+09"),
        ({"capability_rps": {"1g.5gb": 1e308}}, r"capability_rps.1g.5gb is 1e\+308; .* ≤ 1e\+09"),
        ({"retraining_start_s": NAN}, r"retraining_start_s is nan"),
        (
            {"options": (RetrainingOption("x", {}, 0.5),)},
            r"retraining_options\[0\].time_s is empty; at least one profile is needed",
        ),
        ({"options": (QUICK, QUICK)}, r"retraining_options\[0\].name is 'quick', which is given twice"),
    ],
)
def test_a_tenant_outside_the_format_is_refused(changes: dict[str, object], message: str) -> None:
    given = {"arrivals_rps": [1.0] * 6, **changes}
    with pytest.raises(ProblemError, match=message):
        Problem(GPU, 1.0, 6, Reconfiguration.PAPER, (tenant(**given),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": 0}, "n_steps is 0"),
        ({"step_s": 0.0}, "step_s is 0.0"),
        ({"step_s": NAN}, "step_s is nan"),
        ({"step_s": 1e-300}, "step_s is 1e-300; a finite number ≥ 1e-06"),
        ({"switch_s": -0.1}, "switch_s is -0.1"),
        ({"tenants": ()}, "0 given; 1 to 7"),
        (
            {"tenants": tuple(tenant(str(i)) for i in range(8))},
            "8 given; 1 to 7 are allowed, as a100-40gb has 7 compute slices and each tenant needs one",
        ),
        (
            {
                "tenants": tuple(tenant(str(i)) for i in range(9)),
                "pools": (Pool(("0", "1"), {"1g.5gb": {"0": 9.0, "1": 9.0}}, 1.0),),
                "reconfiguration": Reconfiguration.PHYSICAL,
            },
            "9 given in 8 pools; 1 to 7 are allowed, as a100-40gb has 7 compute slices and each pool needs one",
        ),
        ({"tenants": tuple(tenant(str(i)) for i in range(7))}, "7 given; the paper model takes 6 at most"),
        ({"tenants": (tenant("a"), tenant("a"))}, r"tenants\[0\].name is 'a', which is given twice"),
        ({"initial": PaperState({"bert": ()})}, "'bert' is no tenant"),
        ({"initial": PaperState({"resnet50": ("9g",)})}, r"initial.resnet50\[0\]: a100-40gb has no MIG profile '9g'"),
        ({"initial": PaperState({"resnet50": ("4g.20gb", "4g.20gb")})}, r"^initial holds 2 × 4g.20gb in all, which no"),
        ({"initial": PhysicalState()}, "the state is a physical one"),
    ],
)
def test_a_problem_outside_the_format_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        replace(window(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (PaperState({}), "the state is a paper one"),
        (PhysicalState(next_epoch_step=-1), "next_epoch_step is -1"),
        (
            PhysicalState((HeldInstance(GPU.placement("1g.5gb@0"), "x", 0),)),
            r"initial.held\[0\]: 'x' is no tenant of the problem; those are resnet50",
        ),
        (
            PhysicalState(
                tuple(HeldInstance(GPU.placement(f"1g.5gb@{s}"), name, 0) for s, name in enumerate(("resnet50", "x")))
            ),
            r"initial.held\[1\]: 'x' is no tenant of the problem; those are resnet50",
        ),
        (
            PhysicalState((HeldInstance(GPU.placement("1g.5gb@0"), "resnet50", 2),), (), 1),
            r"initial.held\[0\]: 1g.5gb@0's serve_step is 2; 0 to next_epoch_step \(1\) is allowed",
        ),
        (
            PhysicalState((HeldInstance(GPU.placement("1g.10gb@0"), "resnet50", 0),)),
            r"initial.held\[0\]: 1g.10gb@0 cannot serve resnet50; 1g.5gb, ",
        ),
        (
            PhysicalState((HeldInstance(GPU.placement("1g.5gb@0"), "resnet50", 0, ("resnet50",)),)),
            r"initial.held\[0\] names resnet50 twice",
        ),
        (
            PhysicalState(
                (HeldInstance(GPU.placement("2g.10gb@0"), "resnet50", 0),),
                (RunningRetraining(GPU.placement("1g.5gb@1"), "resnet50", 2),),
            ),
            "2g.10gb@0, 1g.5gb@1, are no layout",
        ),
        (
            PhysicalState((), (RunningRetraining(GPU.placement("1g.5gb@1"), "resnet50", 7),)),
            r"initial.retrainings\[0\]: resnet50's end_step is 7; 1 to n_steps \(6\) is allowed",
        ),
        (
            PhysicalState((), tuple(RunningRetraining(GPU.placement(f"1g.5gb@{s}"), "resnet50", 2) for s in (0, 1))),
            "runs two retrainings",
        ),
    ],
)
def test_a_physical_state_that_cannot_be_is_refused(state: PaperState | PhysicalState, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        replace(window(model=Reconfiguration.PHYSICAL), initial=state)


def test_who_is_named_first_in_a_pool_s_instance_says_nothing() -> None:
    both = (tenant("a", retraining_s={}), tenant("b", retraining_s={}))
    problem = replace(
        window(*both, model=Reconfiguration.PHYSICAL), pools=(Pool(("a", "b"), {"1g.5gb": {"a": 9.0, "b": 9.0}}, 1.0),)
    )
    place = GPU.placement("1g.5gb@0")
    for members, is_repartitioned in ((("a", "b"), False), (("b", "a"), False), (("a",), True)):
        state = PhysicalState((HeldInstance(place, members[0], 0, members[1:]),))
        assert replace(problem, initial=state).is_repartitioned is is_repartitioned


def test_a_paper_state_may_hold_whatever_fits_the_gpu_together() -> None:
    held = {"a": ("3g.20gb", "1g.5gb"), "b": ("2g.10gb",)}
    assert window(tenant("a"), tenant("b"), initial=PaperState(held)).initial == PaperState(held)


def test_what_two_tenants_held_has_to_fit_together_too() -> None:
    with pytest.raises(ProblemError, match=r"1 × 4g.20gb, 2 × 2g.10gb in all, which no layout of a100-40gb does"):
        window(tenant("a"), tenant("b"), initial=PaperState({"a": ("4g.20gb",), "b": ("2g.10gb", "2g.10gb")}))


def two_tenants() -> Problem:
    return window(tenant("a", overhead_s=1.0), tenant("b", overhead_s=2.0))


def test_measured_overheads_take_the_place_of_those_given() -> None:
    fed_back = with_measured_overhead(two_tenants(), {"a": 3.5, "b": 0.0})
    assert [terms.overhead_s for terms in fed_back.tenants] == [3.5, 0.0]


def test_a_tenant_without_a_measured_overhead_keeps_its_own() -> None:
    assert [terms.overhead_s for terms in with_measured_overhead(two_tenants(), {"a": 3.5}).tenants] == [3.5, 2.0]


def test_the_problem_that_was_given_stays_as_it_was() -> None:
    problem = two_tenants()
    with_measured_overhead(problem, {"a": 3.5})
    assert problem.tenants[0].overhead_s == 1.0


def test_gain_tables_follow_the_overhead() -> None:
    problem = two_tenants()
    tabled = replace(problem, gains=gain_tables(problem))
    fed_back = with_measured_overhead(tabled, {"a": 3.5})
    plain = gain_tables(with_measured_overhead(problem, {"a": 3.5}))
    for table, expected in zip(gain_tables(fed_back), plain, strict=True):
        assert table.changed is not None
        np.testing.assert_allclose(table.changed, expected.changed)
        np.testing.assert_allclose(table.steady, expected.steady)


def test_a_physical_problem_takes_no_measured_overhead() -> None:
    with pytest.raises(ProblemError, match="measured overhead is for paper problems; this one is physical"):
        with_measured_overhead(window(model=Reconfiguration.PHYSICAL), {"resnet50": 1.0})


def test_a_measured_overhead_of_no_tenant_is_told_with_those_there_are() -> None:
    with pytest.raises(ProblemError, match="'c' is no tenant of the problem; those are a, b"):
        with_measured_overhead(two_tenants(), {"a": 1.0, "c": 1.0})


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_value_that_no_overhead_can_have_is_told(value: float) -> None:
    with pytest.raises(ProblemError, match=r"tenants.a.overhead_s is .* a finite number"):
        with_measured_overhead(two_tenants(), {"a": value})
