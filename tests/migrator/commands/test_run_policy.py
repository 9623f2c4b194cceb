"""``migrator run --policy FILE``: a policy of one's own, and what is said when it goes wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from migrator.log import records as recorded
from migrator.log.runlog import read_log
from planner import by_hand
from tests.migrator.conftest import SMALL

ROOT = Path(__file__).parents[3]
QUICKSTART = ROOT / "configs" / "quickstart.yaml"

OWN = """from planner.policies.policy import Knows
from planner.solve import solve

class POLICY:
    name, knows = "own", Knows.FORECAST

    def plan(self, window):
        if window.number == {window}:
            {answer}
        return solve(window.problem, "greedy")
"""


def documented() -> str:
    """The policy in the docstring of ``planner.by_hand``."""
    return textwrap.dedent(str(by_hand.__doc__).split("::\n\n")[1])


def own(folder: Path, window: int, answer: str) -> Path:
    path = folder / "own.py"
    path.write_text(OWN.format(window=window, answer=answer), "utf-8")
    return path


def test_the_documented_plan_by_hand_is_carried_out_with_its_retrainings_and_epochs(call, tmp_path: Path) -> None:
    path = tmp_path / "by_hand.py"
    path.write_text(documented(), "utf-8")
    code, out, _ = call("run", QUICKSTART, "--windows", 2, "--policy", path, "--out", "run")
    log = read_log(Path("run"))
    assert code == 0
    assert "policy: by-hand" in out
    assert [event.violations for event in log.of(recorded.WindowStarted)] == [(), ()]
    assert [(event.window, event.tenant) for event in log.of(recorded.Finished)] == [
        (window, tenant) for window in (0, 1) for tenant in ("vision", "language")
    ]
    spare = [(place, task) for event in log.of(recorded.Change) for place, _, task in event.layout if place[-1] == "2"]
    assert set(spare) == {("2g.20gb@2", "retraining"), ("2g.20gb@2", "inference")}


@pytest.mark.parametrize("window", [0, 1])
def test_what_a_policy_raises_is_one_line_and_ends_with_2(call, write_config, tmp_path: Path, window: int) -> None:
    path = own(tmp_path, window, "window.problem.nothing")
    code, out, err = call("run", write_config(), "--policy", path)
    line = (
        f"policy {path}, line 9: own, window {window}: plan() raised AttributeError: 'Problem' object has no attribute"
    )
    assert (code, out) == (2, "")
    assert line in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_comparison_names_the_policy_s_error_as_a_run_does(call, write_config, tmp_path: Path) -> None:
    path = own(tmp_path, 1, "return 3")
    code, out, err = call("compare", write_config(), "--policies", f"equal,{path}", "--jobs", 1)
    assert (code, out) == (2, "")
    assert err.endswith(f"error: policy {path}, line 7: own, window 1: plan() returned a int; a MigPlan is needed\n")


def test_the_traceback_of_a_policy_s_error_is_shown_on_demand(write_config, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MIGRATOR_TRACEBACK", "1")
    from migrator import cli

    monkeypatch.setattr(
        "sys.argv", ["migrator", "run", str(write_config()), "--policy", str(own(tmp_path, 0, "1 / 0"))]
    )
    with pytest.raises(cli.PolicyError) as raised:
        cli.main()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


MANY = {"tenants": [{**SMALL["tenants"][0], "name": f"t{n}", "arrivals": {"rate_rps": 1}} for n in range(9)]}
NINE = {**MANY, "windows": 1, "window_s": 20, "sharing": {"pools": "auto"}}


def test_a_rival_that_cannot_begin_is_refused_before_anything_is_simulated(call, write_config) -> None:
    code, out, err = call("run", write_config(NINE), "--policy", "whole", "--against", "static")
    assert (code, out) == (3, "")
    assert err.startswith("error: --against static: config small: tenants: 9 given, each with an instance of its own")
    assert not Path("runs").exists()


def test_a_rival_that_fails_on_the_way_does_not_cost_the_run_its_report(call, write_config, tmp_path: Path) -> None:
    rival = own(tmp_path, 1, "1 / 0")
    short = {"window_s": 20, "tenants.1.arrivals": {"rate_rps": 9}}
    code, out, err = call("run", write_config(short), "--policy", "whole", "--against", rival, "--out", "out")
    *_, warned, ended = err.splitlines()
    assert code == 2
    assert warned == "warning: the run is done, but not held against own, which failed; the run's own report follows"
    assert ended.startswith(f"error: policy {rival}, line 9: own, window 1: plan() raised ZeroDivisionError")
    assert out.splitlines()[0].startswith("small   simulated a100-80gb")
    assert "migrator report out --full" in out
    assert not Path("out", "against").exists()
