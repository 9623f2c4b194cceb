"""``migrator init`` and ``migrator docs``: what is shipped beside code reaches users without the repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.commands.docs import pages
from migrator.commands.init import examples
from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from planner.files.problem_file import read_problem
from workloads.profiles.pool_points import JointPoints

Call = Callable[..., Any]
ROOT = Path(__file__).parents[3]


def test_there_is_an_example_for_each_config_of_the_repository() -> None:
    assert {path.stem for path in (ROOT / "configs").glob("*.yaml")} | {"my-traces", "problem"} == set(examples())


def test_examples_stand_in_the_order_of_their_numbers() -> None:
    assert list(examples())[:4] == ["quickstart", "twenty", "w1", "w2"]


def test_twenty_is_more_than_a_gpu_has_instances_for(call: Call) -> None:
    assert call("init", "twenty")[0] == 0
    setting, _ = assemble(read_config(Path("twenty.yaml")), "twenty.yaml")
    names = {tenant.name for tenant in setting.tenants}
    found = JointPoints(setting.gpu, setting.known_tenants, setting.turn_cost).of(list(names))
    assert (len(names), setting.config.sharing.pools, setting.config.load) == (20, "auto", 0.5)
    assert (found.infeasible, "7g.80gb" in found.points) == (None, True)
    assert "bert-large" not in {tenant.model for tenant in setting.tenants}
    code, _, err = call("run", "twenty.yaml", "--set", "sharing.pools=off", "--out", "runs/twenty-off")
    assert (code, "tenants: 20 given" in err, Path("runs").exists()) == (3, True, False)


@pytest.mark.parametrize("name", ["live-cpu", "share-cpu"])
def test_a_live_example_comes_with_its_service_profiles(call: Call, name: str) -> None:
    assert call("init", name)[0] == 0
    config = read_config(Path(f"{name}.yaml"))
    setting, _ = assemble(config, f"{name}.yaml")
    assert (config.is_live, config.sharing.may_pool) == (True, True)
    assert all(tenant.retraining_time_s for tenant in setting.tenants)


def test_an_example_is_written_as_it_is_shipped(call: Call) -> None:
    code, out, _ = call("init", "w2")
    assert (code, "run w2.yaml" in out) == (0, True)
    assert Path("w2.yaml").read_text("utf-8") == (ROOT / "configs" / "w2.yaml").read_text("utf-8")


def test_without_a_name_it_is_the_quickstart(call: Call) -> None:
    assert call("init")[0] == 0
    assert read_config(Path("quickstart.yaml")).name == "quickstart"


def test_the_example_with_ones_own_traces_reads_the_files_beside_it(call: Call) -> None:
    assert call("init", "my-traces", "some/where")[0] == 0
    setting, _ = assemble(read_config(Path("some/where/my-traces.yaml")), "my-traces.yaml")
    assert [tenant.model for tenant in setting.tenants] == ["my-detector", "my-reader"]


def test_the_example_problem_is_one(call: Call) -> None:
    _, out, _ = call("init", "problem")
    assert "plan --problem problem.json" in out
    assert read_problem(Path("problem.json")).tenant_names == ("vision", "language")


def test_a_file_that_exists_is_left_as_it_is_and_nothing_is_written(call: Call) -> None:
    Path("trace.csv").write_text("mine")
    code, out, err = call("init", "my-traces")
    assert (code, out, "trace.csv exists already" in err) == (2, "", True)
    assert [path.name for path in Path().iterdir()] == ["trace.csv"]


@pytest.mark.parametrize("folder", ["a-file", "a-file/below"])
def test_a_folder_that_cannot_be_made_is_told(call: Call, folder: str) -> None:
    Path("a-file").touch()
    code, _, err = call("init", "quickstart", folder)
    assert (code, err.count("\n"), "a-file" in err) == (2, 1, True)


def test_an_unknown_example_is_told_with_those_there_are(call: Call) -> None:
    code, _, err = call("init", "w17")
    assert (code, "no example 'w17' (did you mean w7?); there are quickstart, twenty, w1, " in err) == (2, True)


# ---- docs ----


def test_docs_lists_the_pages(call: Call) -> None:
    _, out, _ = call("docs")
    listed, _, _ = out.partition("\n\n")
    assert sorted(line.split()[0] for line in listed.splitlines()) == sorted(pages())
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} == set(pages())


@pytest.mark.parametrize("named", ["configuration", "docs/configuration.md", "docs/configuration.md#top-level"])
def test_docs_prints_a_page(call: Call, named: str) -> None:
    assert call("docs", named)[:2] == (0, (ROOT / "docs" / "configuration.md").read_text("utf-8"))


@pytest.mark.parametrize(("typed", "hint"), [("nowhere", ""), ("config", " (did you mean configuration?)")])
def test_an_unknown_page_is_told_with_those_there_are(call: Call, typed: str, hint: str) -> None:
    code, _, err = call("docs", typed)
    assert (code, f"no page '{typed}'{hint}; there are architecture" in err) == (2, True)
