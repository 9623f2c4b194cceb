"""What a config does not give and nobody measured for the model is listed with its source; what is given is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator.config.reading import validate_config
from migrator.inputs.assembly import assemble
from migrator.inputs.assumed import RULE, assumed_in, assumed_in_problem, assumed_to_json
from migrator.log.records import Assumed
from migrator.log.runlog import read_log
from planner.files.problem_file import read_problem
from tests.migrator.conftest import SMALL, changed
from tests.migrator.test_cli import write_problem
from workloads.profiles.table import COLUMNS


def found(changes: Mapping[str, Any] | None = None, sharing: str = "instances") -> tuple[Assumed, ...]:
    setting, _ = assemble(validate_config(changed(SMALL, changes or {}), "small"), "small")
    return assumed_in(setting, sharing, is_planned=sharing == "instances")


def of(what: str, changes: Mapping[str, Any] | None = None, sharing: str = "instances") -> dict[str | None, Assumed]:
    return {item.tenant: item for item in found(changes, sharing) if item.what == what}


GIVEN = {
    "tenants.0.retraining": None,
    "planner.switch_s": 2.5,
    "planner.planning_s": 3,
    "tenants.1.model": "resnet50",
    "sharing.pools": "off",
}


def test_nothing_is_assumed_where_all_is_given_or_measured() -> None:
    assert found(GIVEN) == ()


def test_a_start_up_measured_of_the_model_is_not_assumed() -> None:
    assert of("worker start", {"tenants.0.worker_start_s": None, "tenants.1.worker_start_s": None}) == {}


def test_a_start_up_of_a_model_that_was_not_measured_is_assumed_with_whose_it_is() -> None:
    changes = {"tenants.0.model": "mobilenet-v2", "tenants.0.worker_start_s": None}
    source = "gpuless-thesis (yolop: the median over its nine models)"
    assert of("worker start", changes) == {"vision": Assumed("vision", "worker start", 1.716, "s", source)}


def test_a_start_up_that_is_given_is_not_assumed() -> None:
    assert of("worker start", {"tenants.0.model": "mobilenet-v2"}) == {}


def test_the_slowdown_of_starts_at_once_is_assumed_for_all_models_but_the_one_measured() -> None:
    slowdowns = of("slowdown by each other start")
    assert {name: item.value for name, item in slowdowns.items()} == {"language": 0.16}


def test_a_retraining_s_time_follows_from_a_rule_and_so_is_assumed_by_profile() -> None:
    setting, _ = assemble(validate_config(SMALL, "small"), "small")
    (item,) = of("retraining time").values()
    assert (item.tenant, item.value, item.source) == ("vision", dict(setting.tenants[0].retraining_time_s), RULE)


def test_the_start_of_a_retraining_is_assumed_unless_given() -> None:
    assert of("retraining start")["vision"].value == 1.0
    assert of("retraining start", {"tenants.0.retraining_start_s": 3.0}) == {}


def test_accuracies_of_windows_beyond_those_listed_are_assumed() -> None:
    (item,) = of("accuracy from window 2 on", {"windows": 3}).values()
    assert (item.tenant, item.value) == ("language", {"before": 0.4, "after": 0.7})
    assert item.source == "as in window 1"


def test_a_fall_after_the_last_retraining_that_plans_do_not_count_on_is_told() -> None:
    changes = {"retraining": {"required": False, "drift": "compound"}, "tenants.0.retraining.windows": 1}
    (item,) = of("accuracy kept to window 1", changes).values()
    assert (item.tenant, item.value) == ("vision", 1.0)
    assert item.source == "retraining.windows; the config's accuracy falls to 0.6"
    lasting = {"tenants.0.accuracy": [{"before": 0.6, "after": 0.9}, {"before": 0.9, "after": 0.9}]}
    for other in (lasting, {"retraining.salvage": False}, {"tenants.0.retraining.windows": 2}):
        assert of("accuracy kept to window 1", {**changes, **other}) == {}


def test_capabilities_that_were_computed_are_assumed_with_what_they_are_from() -> None:
    items = [item for item in found({"tenants.0.model": "vit-b-16"}) if item.what == "capability"]
    assert [(item.tenant, sorted(item.value)) for item in items] == [("vision", ["4g.40gb"])]
    assert items[0].source.startswith("latency of 3g.40gb × 0.898")


def test_the_switching_time_is_assumed_with_the_source_of_the_driver_s_times() -> None:
    (item,) = of("switch_s").values()
    setting, _ = assemble(validate_config(SMALL, "small"), "small")
    longest_s = max(point.batch_latency_s for own in setting.tenants for point in own.operating_points.values())
    slowest_s = max(p.create_s for p in setting.gpu.profiles) + max(p.destroy_s for p in setting.gpu.profiles)
    assert item.value == pytest.approx(longest_s + 2 * slowest_s)
    assert item.source.startswith("2 instances at once, until some were")
    assert "RL_MIG_scheduler" in item.source


def test_the_time_that_planning_takes_is_assumed_unless_given() -> None:
    (item,) = of("planning_s", {"planner.planning_s": None}).values()
    assert (item.value, item.unit) == (2.0, "s")
    assert item.source.startswith("benchmark, 2 tenants × 60 steps")
    assert of("planning_s", {"planner.planning_s": None, "windows": 1}) == {}


def test_interference_is_assumed_only_on_shares_and_for_models_that_were_not_measured() -> None:
    assert of("interference") == {}
    items = of("interference", {}, "shares")
    assert {name: item.source for name, item in items.items()} == {"language": "Mudi's GPT-2, for a text model"}
    assert of("interference", {"simulation": {"interference": 0}}, "shares") == {}


def test_a_problem_file_without_a_switching_time_gets_one_that_is_listed(tmp_path) -> None:
    problem = read_problem(write_problem(tmp_path, reconfiguration="physical"))
    assert [(item.what, item.value) for item in assumed_in_problem(problem)] == [("switch_s", problem.switching_s)]
    given = read_problem(write_problem(tmp_path, reconfiguration="physical", switch_s=1.0))
    assert assumed_in_problem(given) == ()


def test_a_run_s_log_and_report_list_what_was_assumed(call, write_config, tmp_path) -> None:
    folder = tmp_path / "run"
    assert call("run", write_config({"windows": 1}), "--out", folder)[0] == 0
    assert read_log(folder).header.assumed == tuple(found({"windows": 1}))
    n_assumed = len(call("report", folder, "--assumed")[1].splitlines())
    told = " ".join(call("report", folder)[1].split())
    assert f"--assumed ({n_assumed} figures)" in told
    assert "\nretraining time: vision" in call("report", folder, "--assumed")[1]
    assert "assumed: retraining time: vision" in call("report", folder, "--full")[1]
    assert json.loads(call("report", folder, "--json")[1])["run"]["assumed"] == assumed_to_json(
        read_log(folder).header.assumed
    )


def test_a_plan_lists_what_was_assumed(call, write_config) -> None:
    config = write_config({"windows": 1})
    out = call("plan", config, "--no-floors")[1]
    assert "assumed retraining time: vision" in " ".join(out.split())
    assert json.loads(call("plan", config, "--json")[1])["assumed"] == assumed_to_json(found({"windows": 1}))


@pytest.mark.usefixtures("in_this_process")
def test_a_what_if_lists_what_was_assumed_and_not_what_was_varied(call, write_config) -> None:
    config = write_config({"windows": 1})
    asked = ("whatif", config, "--vary", "slo_ms=x1", "--jobs", 1)
    listed = [item["what"] for item in json.loads(call(*asked, "--json")[1])["assumed"]]
    varied = [item["what"] for item in json.loads(call(*asked, "--vary", "overhead_s=2", "--json")[1])["assumed"]]
    assert set(listed) - set(varied) == {"retraining start"}
    assert "assumed: retraining time: vision" in call(*asked)[1]


@pytest.mark.usefixtures("in_this_process")
def test_a_comparison_lists_what_was_assumed_under_any_policy(call, write_config) -> None:
    config = write_config({"windows": 1})
    asked = ("compare", config, "--policies", "equal,ekya", "--jobs", 1)
    listed = {item["what"] for item in json.loads(call(*asked, "--json")[1])["assumed"]["small"]}
    assert {"interference", "switch_s", "retraining time"} <= listed
    assert "assumed: interference: language" in call(*asked)[1]


def test_what_was_measured_on_the_very_gpu_is_not_assumed(tmp_path: Path) -> None:
    header = ",".join((*COLUMNS, "training_rps", "library_s", "model_s", "slowdown_per_other"))
    row = "me,cpu-1.6-in-7,{},{},1,1,1,1000,{}"
    rows = [
        row.format("small", "1c", "500,0.1,0.2,0.3"),
        row.format("small", "2c", ",,,"),
        row.format("other", "1c", ",,,"),
    ]
    (tmp_path / "profiles.csv").write_text("\n".join([header, *rows]))
    changes = {
        "gpu.model": "cpu-1.6-in-7",
        "profiles": str(tmp_path / "profiles.csv"),
        "tenants.0.model": "small",
        "tenants.1.model": "other",
        "tenants.0.worker_start_s": None,
        "tenants.1.worker_start_s": None,
    }
    assert set(of("worker start", changes)) == {"language"}
    assert set(of("slowdown by each other start", changes)) == {"language"}
    assert list(of("retraining time", changes)["vision"].value) == ["2c"]


def test_whoever_takes_turns_is_taken_to_fit_into_memory_with_all_others() -> None:
    assert of("memory", sharing="turns")[None].value == 2.0
    assert of("memory") == {}
