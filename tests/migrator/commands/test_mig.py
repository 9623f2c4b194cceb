"""The commands about a real GPU, typed against the stand-in of its driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from migrator.commands.mig import layout_in
from tests.standin.cards import A100_40, TWO_HALVES
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import StandIn


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def a100(make_standin: MakeStandIn) -> StandIn:
    return make_standin(A100_40)


every_backend = pytest.mark.parametrize("backend", ["nvml", "smi"])


def names(standin: StandIn) -> list[str]:
    return [f"{item.profile}@{item.start}" for item in standin.standing()]


@every_backend
def test_a_layout_is_applied_and_listed_as_ours(call, a100: StandIn, backend: str) -> None:
    assert call("gpu", "apply", "3G.20GB@4, 1g.5gb@0", "--backend", backend)[0] == 0
    assert names(a100) == ["1g.5gb@0", "3g.20gb@4"]
    listed = json.loads(call("gpu", "list", "--backend", backend, "--json")[1])
    assert [(item["placement"], item["ours"]) for item in listed["instances"]] == [
        ("1g.5gb@0", True),
        ("3g.20gb@4", True),
    ]
    assert (listed["gpu"], listed["backend"]) == ("a100-40gb", backend)


def test_a_dry_run_prints_the_commands_and_changes_nothing(call, a100: StandIn) -> None:
    call("gpu", "apply", "1g.5gb@0,3g.20gb@4")
    first = a100.standing()[0]
    code, out, _ = call("gpu", "apply", "2g.10gb@0,3g.20gb@4", "--dry-run")
    assert code == 0
    assert out.splitlines()[1:] == [
        f"nvidia-smi mig -i 0 -dci -gi {first.gi_id}",
        f"nvidia-smi mig -i 0 -dgi -gi {first.gi_id}",
        "nvidia-smi mig -i 0 -cgi 14:0 -C",
    ]
    assert names(a100) == ["1g.5gb@0", "3g.20gb@4"]


def test_a_difference_is_told_to_programs(call, a100: StandIn) -> None:
    a100.put("1g.5gb", 6)
    answer = json.loads(call("gpu", "diff", "3g.20gb@4", "--json")[1])
    assert answer["blocked"][0]["by"][0]["placement"] == "1g.5gb@6"
    assert (answer["created"], answer["is_done"]) == ([], False)


def test_what_others_made_blocks_and_ends_with_an_error(call, a100: StandIn) -> None:
    a100.put("1g.5gb", 6)
    code, _, err = call("gpu", "apply", "2g.10gb@0,3g.20gb@4")
    assert code == 4
    assert err.startswith("error: 3g.20gb@4 is not free: 1g.5gb@6 (GPU instance ID ")
    assert names(a100) == ["2g.10gb@0", "1g.5gb@6"]


def test_adopted_instances_may_go(call, a100: StandIn) -> None:
    a100.put("1g.5gb", 6)
    code, out, _ = call("gpu", "apply", "3g.20gb@4", "--adopt")
    assert (code, names(a100)) == (0, ["3g.20gb@4"])
    assert out.startswith("adopted 1g.5gb@6")


def test_clear_takes_only_what_is_ours(call, a100: StandIn) -> None:
    call("gpu", "apply", "2g.10gb@0")
    a100.put("1g.5gb", 6)
    assert call("gpu", "clear")[0] == 0
    assert names(a100) == ["1g.5gb@6"]


def test_assert_compares_with_what_stands(call, a100: StandIn) -> None:
    a100.put("1g.5gb", 6)
    assert call("gpu", "assert", "1g.5gb@6") == (0, "", "")
    assert call("gpu", "assert", "1g.5gb@5") == (1, "", "error: missing: 1g.5gb@5; too much: 1g.5gb@6\n")


def test_an_export_is_a_configuration_of_mig_parted(call, a100: StandIn) -> None:
    for start in (0, 1):
        a100.put("1g.5gb", start)
    (device,) = yaml.safe_load(call("gpu", "export")[1])["mig-configs"]["current"]
    assert device == {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.5gb": 2}}


def test_exported_commands_make_the_same_layout(call, a100: StandIn) -> None:
    a100.put("2g.10gb", 2)
    assert call("gpu", "export", "--format", "nvidia-smi")[1] == "nvidia-smi mig -i 0 -cgi 14:2 -C\n"


def test_a_gpu_that_nobody_knows_is_cut_all_the_same(call, make_standin: MakeStandIn) -> None:
    standin = make_standin(TWO_HALVES)
    assert call("gpu", "apply", "1g.15gb@0,1g.15gb@1")[0] == 0
    assert names(standin) == ["1g.15gb@0", "1g.15gb@1"]


def test_an_instance_in_the_list_without_a_compute_instance_says_so(call, a100: StandIn) -> None:
    a100.put("1g.5gb", 0, with_ci=False)
    assert "no compute instance" in call("gpu", "list")[1]


@every_backend
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: setattr(state, "driver_loaded", 0), ""),
        (lambda state: setattr(state.gpus[0], "mig_current", 0), "is not in MIG mode; as root: nvidia-smi -i 0 -mig 1"),
        (lambda state: setattr(state, "permitted", 0), "Insufficient Permissions"),
        (lambda state: setattr(state.gpus[0], "lost", 1), "GPU is lost"),
    ],
    ids=["no driver", "no MIG mode", "no permission", "GPU lost"],
)
def test_what_is_missing_is_one_line_and_exit_code_4(call, a100: StandIn, backend: str, spoil, message: str) -> None:
    spoil(a100.state)
    code, out, err = call("gpu", "apply", "1g.5gb@0", "--backend", backend)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert message in err


@pytest.mark.parametrize("layout", ["2g.10gb@1", "9g.99gb@0", "1g.5gb", "3g.20gb@0,1g.5gb@2", "x"])
def test_a_layout_that_cannot_be_is_bad_input(call, a100: StandIn, layout: str) -> None:
    code, _, err = call("gpu", "apply", layout)
    assert (code, err.count("\n")) == (2, 1)
    assert a100.standing() == ()


def test_two_controllers_are_one_too_many(call, a100: StandIn, tmp_path: Path) -> None:
    from executor.journal import Journal
    from executor.nvml import NvmlGpu

    with NvmlGpu() as gpu, Journal(tmp_path / "state" / "migrator" / f"{gpu.uuid}.jsonl"):
        code, _, err = call("gpu", "apply", "1g.5gb@0")
    assert (code, a100.standing()) == (2, ())
    assert "another controller has this GPU; one at a time" in err


def test_the_empty_text_is_the_empty_layout() -> None:
    from executor.catalogue import gpu_model

    assert len(layout_in(" ", gpu_model("a30-24gb"))) == 0
