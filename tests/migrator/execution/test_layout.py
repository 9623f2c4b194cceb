"""Which layout ``planner.layout: auto`` comes to, and runs that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from migrator.config.reading import validate_config
from migrator.errors import ExitCode, InfeasibleError, exit_code_of
from migrator.execution.foresight import observe
from migrator.execution.layout import _again, with_layout
from migrator.execution.loop import Loop, log_of
from migrator.execution.planning import Solving, plan_window
from migrator.execution.reposing import RunCheck
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.inputs.assumed import assumed_in
from migrator.inputs.setting import Setting
from migrator.inputs.traffic import RecordedTraffic
from migrator.log import records
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.test_loans import LENT
from workloads.tenants import accuracy_at_start

AUTO: dict[str, Any] = {**LENT, "planner.layout": "auto", "windows": 1}


def assembled(changes: Mapping[str, Any]) -> tuple[Setting, RecordedTraffic]:
    return assemble(validate_config(changed(SMALL, {**AUTO, **changes}), "small"), "small")


def chosen(changes: Mapping[str, Any]) -> list[str]:
    layout = with_layout(*assembled(changes)).config.planner.layout
    assert isinstance(layout, list)
    return layout


def test_a_layout_that_is_given_stays() -> None:
    setting, traffic = assembled({"planner.layout": ["4g.40gb", "3g.40gb"]})
    assert with_layout(setting, traffic) is setting


def test_it_is_maximal_and_goes_by_what_came_before_the_run() -> None:
    setting, traffic = assembled({"tenants.0.arrivals": {"rate_rps": 900}})
    names = with_layout(setting, traffic).config.planner.layout
    maximal = [sorted(one.profile.name for one in layout) for layout in setting.gpu.maximal_layouts()]
    assert names in maximal
    later = replace(setting, config=setting.config.model_copy(update={"windows": 3}))
    assert with_layout(later, traffic).config.planner.layout == names


@pytest.mark.parametrize("rate_rps", [100, 1500])
def test_none_of_the_others_is_worth_more_for_these_arrivals(rate_rps: int) -> None:
    changes = {"tenants.0.arrivals": {"rate_rps": rate_rps}}
    names = chosen(changes)

    def worth(layout: list[str]) -> float:
        # Arrivals are steady, so that the first window's are those before.
        own, traffic = assembled({**changes, "planner.layout": layout})
        if not any(own.may_lend(name, "vision") for name in layout):  # whose retraining is required
            return -np.inf
        log = log_of(Loop(own, simulated_parts(own, traffic)), own.config)
        plan = log.of(records.WindowStarted)[0].plan
        assert plan is not None
        return -np.inf if plan.objective is None else plan.objective

    others = (["4g.40gb", "3g.40gb"], ["2g.20gb", "2g.20gb", "3g.40gb"], ["1g.10gb"] * 7)
    assert worth(names) >= 0.99 * max(map(worth, others))


def test_a_run_has_the_layout_from_its_begin_and_is_checked() -> None:
    setting, traffic = assembled({})
    log = log_of(Loop(setting, simulated_parts(setting, traffic)), setting.config)
    (change, *_) = log.of(records.Change)
    assert sorted(item.placement.partition("@")[0] for item in change.started) == chosen({})
    assert [item.verification.violations for item in RunCheck(log, setting, traffic).plans() if item.verification] == [
        ()
    ]


def test_where_no_layout_has_a_plan_the_run_ends_with_3() -> None:
    setting, traffic = assembled({"tenants.1.min_profile": "7g.80gb"})
    with pytest.raises(
        InfeasibleError, match=r"planner\.layout: auto: no maximal layout of a100-80gb has a plan"
    ) as caught:
        with_layout(setting, traffic)
    assert exit_code_of(caught.value) is ExitCode.INFEASIBLE


def test_what_has_no_memory_for_a_trainer_beside_those_who_serve_is_not_lent() -> None:
    layout = ["4g.40gb", "2g.20gb", "1g.10gb"]
    setting, traffic = assembled({"planner.layout": layout})
    lent = {name: [setting.may_lend(name, tenant.name) for tenant in setting.tenants] for name in layout}
    assert lent == {"4g.40gb": [True, True], "2g.20gb": [True, True], "1g.10gb": [False, False]}
    assert not setting.may_lend("1c.2g.20gb", "vision")
    accuracies = [accuracy_at_start(tenant, 0, -1) for tenant in setting.tenants]
    opening = observe(setting, traffic, 0, accuracies)
    forecast = _again(opening.past_rps, setting.config.n_steps)
    problem = plan_window(setting, opening, forecast, None, Solving(proves=False)).problem
    assert all("1g.10gb" not in one.time_s for tenant in problem.tenants for one in tenant.options)
    assert all("2g.20gb" in one.time_s for tenant in problem.tenants for one in tenant.options)


def test_what_is_not_known_of_a_trainer_s_memory_is_listed() -> None:
    def told(changes: Mapping[str, Any]) -> list[tuple[str | None, str]]:
        found = assumed_in(assembled(changes)[0])
        return [(one.tenant, one.what) for one in found if one.what.startswith("memory of training")]

    unknown = "memory of training beyond serving"
    assert told({}) == [("language", unknown)]  # of bert-large
    assert [one.what for one in assumed_in(assemble(validate_config(SMALL, "small"), "small")[0])].count(unknown) == 0
