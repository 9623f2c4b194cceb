"""Policies from files: whatever is wrong with them is one line that names file, line, policy and window."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from share_moments import moment_of, share_tenant, with_options, with_turns
from windows import tenant, window

from planner.budget import Budget
from planner.errors import PolicyError
from planner.plan import MigPlan
from planner.policies.policy import Policy, Window
from planner.policies.registry import policy_of
from planner.policies.shares import Answer, SharePolicy
from planner.problem import Problem, Reconfiguration
from planner.solve import solve
from planner.verify import verify

N_STEPS = 20

OF_OTHERS = "replace(i, owner=replace(i.owner, others=o))"
"""The lifetime ``i``, shared with ``o``."""

HEAD = """from dataclasses import replace
from planner.policies.policy import Knows
from planner.solve import solve

class POLICY:
    name, knows = "own", Knows.FORECAST
    shifted = staticmethod(lambda placement: replace(placement, start=9))

    def plan(self, window):
        plan = solve(window.problem, "greedy")
"""
"""A policy but for its answer, which is line 11 of its file."""


def problem_of() -> Problem:
    capability = {"1g.5gb": 40.0, "2g.10gb": 85.0, "3g.20gb": 130.0}
    return window(*(tenant(name, [100.0] * N_STEPS, capability) for name in "ab"), model=Reconfiguration.PHYSICAL)


def own(folder: Path, text: str) -> Policy:
    path = folder / "own.py"
    path.write_text(text, "utf-8")
    policy = policy_of(str(path))
    assert isinstance(policy, Policy)
    return policy


def answer(folder: Path, line: str, problem: Problem | None = None) -> MigPlan:
    """What a policy plans for window 3 whose method ends with this line."""
    policy = own(folder, f"{HEAD}        {line}\n")
    return policy.plan(Window(3, problem or problem_of(), Budget(), np.ones((5, 2))))


def test_a_file_that_is_as_long_and_changed_at_once_is_read_anew(tmp_path: Path) -> None:
    path, names = tmp_path / "own.py", []
    for name in ("one", "two"):
        path.write_text(HEAD.replace('"own"', f'"{name}"') + "        return plan\n", "utf-8")
        os.utime(path, (1.0, 1.0))
        names.append(policy_of(str(path)).name)
    assert names == ["one", "two"]


def test_what_a_file_prints_is_not_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"print('loaded')\n{HEAD}        print('asked', window.number)\n        return plan\n"
    own(tmp_path, text).plan(Window(3, problem_of(), Budget(), np.ones((5, 2))))
    assert capsys.readouterr() == ("", "loaded\nasked 3\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 / 0", "line 11: own, window 3: plan() raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(4)", "line 11: own, window 3: plan() raised SystemExit: 4"),
        ("solve(window.problem, 'gredy')", "line 11: own, window 3: plan() raised EngineError: unknown engine 'gredy'"),
        ("f = lambda: f(); f()", "line 11: own, window 3: plan() raised RecursionError"),
        ("", "line 9: own, window 3: plan() returned None; a MigPlan is needed"),
        ("return plan.lifetimes", "line 9: own, window 3: plan() returned a tuple; a MigPlan is needed"),
        ("return replace(plan, objective=float('nan'))", "objective is nan; a finite number is needed"),
        ("return replace(plan, claimed_bound=float('inf'))", "bound is inf; a finite number is needed"),
        ("return replace(plan, objective='12')", "objective is '12'; a finite number is needed"),
        ("return replace(plan, status='good')", "status is 'good'; Status is needed"),
        (
            "return replace(plan, n_steps=7)",
            "the plan of another problem: physical, of 7 steps; this one is",
        ),
        ("return replace(plan, lifetimes=iter(plan.lifetimes))", "lifetimes are a tuple_iterator; a tuple of"),
        ("return replace(plan, lifetimes=plan.lifetimes * 100_000)", "lifetimes are a tuple; a tuple of"),
        ("return replace(plan, lifetimes=(3,))", "lifetimes[0] is 3; Lifetime is needed"),
        (
            "return replace(plan, lifetimes=[replace(plan.lifetimes[0], end_step=2.5)])",
            "lifetimes[0].end_step is 2.5; a whole number is needed",
        ),
        (
            "return replace(plan, lifetimes=[replace(plan.lifetimes[0], placement='1g.5gb@0')])",
            "lifetimes[0].placement is '1g.5gb@0'; Placement is needed",
        ),
        (
            "i = plan.lifetimes[0]; return replace(plan, lifetimes=[replace(i, owner=replace(i.owner, tenant='c'))])",
            "lifetimes[0] for tenant 'c'; those of the problem are a, b",
        ),
        *(
            (f"i, o = plan.lifetimes[0], {others}; return replace(plan, lifetimes=[{OF_OTHERS}])", message)
            for others, message in (
                ("('c',)", "lifetimes[0] for tenant 'c'; those of the problem are a, b"),
                ("(1,)", "lifetimes[0] for tenant 1; those of the problem are a, b"),
                ("['b']", "lifetimes[0].owner.others is ['b']; tuple is needed"),
            )
        ),
        (
            "return replace(plan, lifetimes=[replace(i, placement=self.shifted(i.placement)) for i in plan.lifetimes])",
            "@9, which a100-40gb does not have",
        ),
        ("return replace(plan, certificate=3)", "certificate is 3; Certificate is needed"),
        ("return replace(plan, work=5)", "work is a int; pairs of a name and a count are needed"),
    ],
)
def test_what_a_policy_raises_or_returns_wrongly_is_its_error(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        answer(tmp_path, line)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith(f"policy {tmp_path / 'own.py'}, line ")
    assert "own, window 3: plan() " in str(refusal.value)


def test_an_answer_that_does_not_come_is_the_policy_s_error(tmp_path: Path) -> None:
    text = HEAD.replace('"own", Knows.FORECAST', '"own", Knows.FORECAST\n    limit_s = 0.1')
    policy = own(tmp_path, f"{text}        while True:\n            pass\n")
    with pytest.raises(PolicyError, match=r"line 1[12]: own, window 0: no answer within 0.1 s; .* sets limit_s"):
        policy.plan(Window(0, problem_of(), Budget(), np.ones((5, 2))))


def test_an_endless_policy_that_goes_on_whatever_is_raised_is_ended_as_well(tmp_path: Path) -> None:
    text = HEAD.replace('"own", Knows.FORECAST', '"own", Knows.FORECAST\n    limit_s = 0.1')
    lines = "while True:\n            try:\n                pass\n            except Exception:\n                pass"
    policy = own(tmp_path, f"{text}        {lines}\n")
    with pytest.raises(PolicyError, match="no answer within"):
        policy.plan(Window(0, problem_of(), Budget(), np.ones((5, 2))))


def test_numpy_s_whole_numbers_and_lists_are_taken_for_what_they_are(tmp_path: Path) -> None:
    line = (
        "import numpy as np; return replace(plan, lifetimes=[replace(i, create_step=np.int64(i.create_step)) "
        "for i in plan.lifetimes], objective=np.float64(plan.objective))"
    )
    problem = problem_of()
    plan = answer(tmp_path, line, problem)
    assert plan == solve(problem, "greedy") or plan.lifetimes == solve(problem, "greedy").lifetimes
    assert {type(item.create_step) for item in plan.lifetimes} == {int}
    assert verify(problem, plan).violations == ()


def test_a_plan_that_breaks_a_rule_is_no_error(tmp_path: Path) -> None:
    problem = problem_of()
    plan = answer(tmp_path, "return replace(plan, lifetimes=plan.lifetimes[:1])", problem)
    assert verify(problem, plan).violations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def POLICY(:\n", "line 1: cannot be loaded: SyntaxError"),
        ("\nimport nosuch\n", "line 2: cannot be loaded: ModuleNotFoundError: No module named 'nosuch'"),
        ("raise SystemExit", "line 1: cannot be loaded: SystemExit"),
        (HEAD.replace("knows =", "knows, limit_s =").replace("FORECAST", "FORECAST, -1"), "limit_s is -1; seconds > 0"),
        (
            "class Odd(Exception):\n    def __str__(self):\n        raise TypeError\nraise Odd",
            "line 4: cannot be loaded: Odd: (without a readable message)",
        ),
    ],
)
def test_a_file_that_cannot_be_loaded_says_in_which_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        own(tmp_path, text)
    assert message in str(refusal.value)


def test_a_dataclass_may_have_annotations_that_are_read_later(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from planner.policies.policy import Knows, Policy\n"
        "@dataclass(frozen=True)\n"
        "class POLICY(Policy):\n"
        "    name: str = 'late'\n"
        "    knows: Knows = Knows.FORECAST\n"
        "    def plan(self, window): ...\n"
    )
    assert own(tmp_path, text).name == "late"


def test_what_prepares_itself_wrongly_is_refused(tmp_path: Path) -> None:
    policy = own(tmp_path, f"{HEAD}        return plan\n\n    def prepared(self, run):\n        return len(run)\n")
    with pytest.raises(PolicyError, match=r"line 13: own: prepared\(\) returned int; the policy, with its method plan"):
        policy.prepared([problem_of()])


SHARES = """from planner.policies.policy import Knows
from planner.policies.shares import SharePolicy, Switching

class POLICY(SharePolicy):
    name, knows, switching, period_s = "halves", Knows.PAST, Switching.POOL, None

    def shares(self, moment):
        return {}
"""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("{tenant.inference: 5 for tenant in moment.tenants}", None),
        ("None", "line 7: halves, window 0: shares() returned None; twentieths by Owner are needed"),
        ("{}", "shares() returned shares that cannot be: "),
        ("{t.inference: 0.5 for t in moment.tenants}", "shares() returned 0.5 for a/inference; "),
        ("1 / 0", "line 8: halves, window 0: shares() raised ZeroDivisionError"),
    ],
)
def test_shares_are_checked_as_plans_are(tmp_path: Path, answer: str, message: str | None) -> None:
    path = tmp_path / "halves.py"
    path.write_text(SHARES.replace("{}", answer), "utf-8")
    policy, now = policy_of(str(path)), moment_of(share_tenant("a"), share_tenant("b"))
    assert isinstance(policy, SharePolicy)
    if message is None:
        assert set(policy.shares(now).values()) == {5}
        return
    with pytest.raises(PolicyError) as refusal:
        policy.shares(now)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("body", "found"), [(None, True), ("return moment.decided is None", True), ("return 0", False)]
)
def test_a_file_may_say_when_it_reconsiders(tmp_path: Path, body: str | None, found: bool) -> None:
    path = tmp_path / "halves.py"
    path.write_text(
        SHARES + ("" if body is None else f"\n    def reconsiders(self, moment):\n        {body}\n"), "utf-8"
    )
    policy = policy_of(str(path))
    assert isinstance(policy, SharePolicy)
    assert policy.reconsiders(moment_of(share_tenant("a"))) is found


def test_what_fails_as_it_reconsiders_is_named(tmp_path: Path) -> None:
    path = tmp_path / "halves.py"
    path.write_text(SHARES + "\n    def reconsiders(self, moment):\n        1 / 0\n", "utf-8")
    policy = policy_of(str(path))
    assert isinstance(policy, SharePolicy)
    with pytest.raises(PolicyError, match=r"reconsiders\(\) raised ZeroDivisionError"):
        policy.reconsiders(moment_of(share_tenant("a")))


ANSWER = (
    SHARES.replace("import SharePolicy", "import Answer, SharePolicy")
    + """
    def answer(self, moment):
        halves = {tenant.inference: 10 for tenant in moment.tenants}
        return Answer(halves)
"""
)


HALVES = share_tenant("a"), with_options(share_tenant("b"), quick=(0.8, 20.0))


def answering(folder: Path, answer: str) -> SharePolicy:
    path = folder / "halves.py"
    path.write_text(ANSWER.replace("return Answer(halves)", f"return {answer}"), "utf-8")
    policy = policy_of(str(path))
    assert isinstance(policy, SharePolicy)
    return policy


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("", Answer({})),
        (", in_turns=True", Answer({}, in_turns=True)),
        (", options={'b': 'quick'}", Answer({}, options={"b": "quick"})),
    ],
)
def test_a_file_may_settle_turns_and_ways_to_retrain(tmp_path: Path, more: str, found: Answer) -> None:
    now = moment_of(*(with_turns(tenant, 5.0) for tenant in HALVES))
    policy = answering(tmp_path, f"Answer(halves{more})")
    assert policy.answer(now) == replace(found, shares={tenant.inference: 10 for tenant in now.tenants})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("Answer(halves, in_turns=True)", "answer() returned turns; here no tenant may take any"),
        ("halves", "line 10: halves, window 0: answer() returned a dict; an Answer is needed"),
        ("Answer({})", "answer() returned shares that cannot be: "),
        ("Answer(halves, options={'b': 'slow'})", "returned option 'slow' for 'b'; allowed here: "),
        ("Answer(halves, options={'c': 'full'})", "returned option 'full' for 'c'; allowed here: none"),
    ],
)
def test_answers_of_share_policies_are_checked(tmp_path: Path, answer: str, message: str) -> None:
    policy, now = answering(tmp_path, answer), moment_of(*HALVES)
    with pytest.raises(PolicyError) as refusal:
        policy.answer(now)
    assert message in str(refusal.value)


def test_a_file_that_has_shares_alone_takes_no_turns(tmp_path: Path) -> None:
    path = tmp_path / "halves.py"
    path.write_text(SHARES.replace("{}", "{tenant.inference: 5 for tenant in moment.tenants}"), "utf-8")
    policy, now = policy_of(str(path)), moment_of(with_turns(share_tenant("a"), 5.0))
    assert isinstance(policy, SharePolicy)
    assert policy.answer(now) == Answer({tenant.inference: 5 for tenant in now.tenants})


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        ("Switching.POOL", "'pool'", "halves: switching is 'pool'; a Switching is needed"),
        ("POOL, None", "POOL, 0", "halves: period_s is 0; None, or whole seconds ≥ 1, are needed"),
    ],
)
def test_what_a_share_policy_says_of_itself_is_checked(tmp_path: Path, found: str, instead: str, message: str) -> None:
    path = tmp_path / "halves.py"
    path.write_text(SHARES.replace(found, instead), "utf-8")
    with pytest.raises(PolicyError, match=message):
        policy_of(str(path))


def test_a_method_that_takes_other_arguments_is_named_by_its_line(tmp_path: Path) -> None:
    policy = own(tmp_path, HEAD.replace("def plan(self, window)", "def plan(self)") + "        return plan\n")
    with pytest.raises(PolicyError, match=r"line 9: own, window 0: plan\(\) raised TypeError"):
        policy.plan(Window(0, problem_of(), Budget(), np.ones((5, 2))))
