"""The commands about a real GPU, typed against the stand-in of its driver."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pynvml
import pytest
import yaml

from executor import processes
from executor.catalogue import gpu_model
from executor.journal import Journal
from executor.processes import boot_id
from migrator.commands.gpu.standing import layout_in
from tests.standin.cards import A30, A100_40, H20, TWO_HALVES
from tests.standin.fixtures import MakeStandIn
from tests.standin.standin import NO_PERMISSION, NOT_SUPPORTED, PROCESSES, StandIn, Standing, State


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def a100(make_standin: MakeStandIn) -> StandIn:
    return make_standin(A100_40)


UUID = "GPU-00000000-0000-4000-8000-000000000000"
"""Of the stand-in's first GPU."""

every_backend = pytest.mark.parametrize("backend", ["nvml", "smi"])


def names(standin: StandIn) -> list[str]:
    return [f"{item.profile}@{item.start}" for item in standin.standing()]


@every_backend
def test_a_layout_is_applied_and_listed_as_ours(call, a100: StandIn, backend: str) -> None:
    assert call("gpu", "apply", "3G.20GB@4, 1g.5gb@0", "--backend", backend)[0] == 0
    assert names(a100) == ["1g.5gb@0", "3g.20gb@4"]
    (listed,) = json.loads(call("gpu", "list", "--backend", backend, "--json")[1])["gpus"]
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


@every_backend
def test_a_card_is_described_as_its_driver_has_it(
    call, make_standin: MakeStandIn, tmp_path: Path, backend: str
) -> None:
    make_standin(A100_40, H20)
    code, out, err = call("gpu", "describe", "--index", "1", "--backend", backend)
    (tmp_path / "h20.toml").write_text(out)
    model = gpu_model(str(tmp_path / "h20.toml"))
    assert (code, err, model.name, model.profile("3g.71gb").sm_count) == (0, "", "h20", 32)
    assert call("gpu", "layouts", str(tmp_path / "h20.toml"))[1].startswith("NVIDIA H20: 19 maximal layouts")


def test_a_gpu_that_nobody_knows_is_cut_all_the_same(call, make_standin: MakeStandIn) -> None:
    standin = make_standin(TWO_HALVES)
    assert call("gpu", "apply", "1g.15gb@0,1g.15gb@1")[0] == 0
    assert names(standin) == ["1g.15gb@0", "1g.15gb@1"]


def test_an_instance_in_the_list_without_a_compute_instance_says_so(call, a100: StandIn) -> None:
    a100.put("1g.5gb", 0, with_ci=False)
    assert "no compute instance" in call("gpu", "list")[1]


def _mig_off(state: State) -> None:
    state.gpus[0].mig_current = state.gpus[0].mig_pending = 0


@every_backend
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: setattr(state, "driver_loaded", 0), "river"),
        (lambda state: setattr(state, "n_gpus", 0), "the driver sees no GPU; nvidia-smi -L lists them"),
        (_mig_off, "is not in MIG mode; as root: nvidia-smi -i 0 -mig 1"),
        (lambda state: setattr(state.gpus[0], "mig_current", 0), "is not in MIG mode yet, only from its next reset on"),
        (lambda state: setattr(state, "permitted", 0), "Insufficient Permissions; run as root, or get read access to"),
        (lambda state: setattr(state.gpus[0], "lost", 1), "; as root: nvidia-smi --gpu-reset, or reboot"),
    ],
    ids=["no driver", "no GPU", "no MIG mode", "MIG mode pending", "no permission", "GPU lost"],
)
def test_what_is_missing_is_one_line_and_exit_code_4(call, a100: StandIn, backend: str, spoil, message: str) -> None:
    spoil(a100.state)
    code, out, err = call("gpu", "apply", "1g.5gb@0", "--backend", backend)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert message in err


@pytest.mark.parametrize("layout", ["2g.10gb@1", "9g.99gb@0", "1g.5gb", "3g.20gb@0,1g.5gb@2", "x", "", " , "])
def test_a_layout_that_cannot_be_is_bad_input(call, a100: StandIn, layout: str) -> None:
    code, _, err = call("gpu", "apply", layout)
    assert (code, err.count("\n")) == (2, 1)
    assert a100.standing() == ()


def test_two_controllers_are_one_too_many(call, a100: StandIn, tmp_path: Path) -> None:
    with Journal(tmp_path / "state" / "migrator" / f"{UUID}.jsonl"):
        code, _, err = call("gpu", "apply", "1g.5gb@0")
    assert (code, a100.standing()) == (4, ())
    assert f"another controller has this GPU; one at a time: process {os.getpid()} (" in err


def test_what_a_crash_has_left_is_told_until_it_is_adopted(call, a100: StandIn, tmp_path: Path) -> None:
    with Journal(tmp_path / "state" / "migrator" / f"{UUID}.jsonl", boot_id()) as journal:
        journal.begin("create", gpu_model("a100-40gb").placement("3g.20gb@4"))
    left = a100.put("3g.20gb", 4)
    told = f"warning: 3g.20gb@4 (GPU instance ID {left.gi_id}) may be ours"
    assert "perhaps ours" in call("gpu", "list")[1]
    for words in (("list",), ("diff", "1g.5gb@0"), ("clear", "--dry-run"), ("apply", "1g.5gb@0")):
        code, _, err = call("gpu", *words)
        assert (code, err.count("\n")) == (0, 1), words
        assert err.startswith(told)
    code, _, err = call("gpu", "clear")
    assert (code, err.count("\n")) == (4, 1)
    assert err.startswith(told.replace("warning", "error"))
    assert a100.standing() == (left,)
    assert call("gpu", "apply", "2g.10gb@4", "--adopt")[0] == 0
    assert names(a100) == ["2g.10gb@4"]


@every_backend
@pytest.mark.parametrize("others", ["apply 1g.5gb@0", "clear", "restore"])
def test_half_an_instance_of_others_where_ours_was_stays_and_is_named(call, a100: StandIn, backend, others) -> None:
    call("gpu", "apply", "3g.20gb@4", "--backend", backend)
    (ours,) = a100.standing()
    a100.take_away(ours.gi_id)
    theirs = a100.put("3g.20gb", 4, with_ci=False, gi_id=ours.gi_id)
    code, _, err = call("gpu", *others.split(), "--backend", backend)
    assert (code, f"3g.20gb@4 (GPU instance ID {ours.gi_id}) may be ours" in err) == (
        0 if "apply" in others else 4,
        True,
    )
    assert theirs in a100.standing()
    assert call("gpu", "apply", "2g.10gb@4", "--adopt", "--backend", backend)[0] == 0
    assert names(a100) == ["2g.10gb@4"]


@pytest.fixture
def split(a100: StandIn) -> Standing:
    """Somebody's 7g.40gb, cut into two sevenths; the rest of it is idle."""
    return a100.split(a100.put("7g.40gb", 0).gi_id)


def test_a_split_instance_is_listed_with_its_parts(call, split: Standing) -> None:
    (item,) = json.loads(call("gpu", "list", "--json")[1])["gpus"][0]["instances"]
    parts = [{"name": "1c.7g.40gb", "uuid": uuid} for uuid in split.uuids]
    assert (item["placement"], item["uuid"], item["compute_instances"]) == ("7g.40gb@0", None, parts)
    rows = call("gpu", "list")[1].splitlines()[-4:-1]
    assert [row.split()[0] for row in rows] == ["7g.40gb@0", "1c.7g.40gb", "1c.7g.40gb"]
    assert all(uuid in row for uuid, row in zip(split.uuids, rows[1:], strict=True))


@pytest.mark.usefixtures("split")
def test_a_split_instance_is_not_the_profile(call) -> None:
    assert call("gpu", "assert", "7g.40gb@0") == (1, "", "error: split: 7g.40gb@0 (2 × 1c.7g.40gb)\n")
    code, _, err = call("gpu", "apply", "7g.40gb@0")
    assert (code, "7g.40gb@0 is not free" in err) == (4, True)


@pytest.mark.usefixtures("split")
def test_a_split_instance_is_exported_as_its_parts(call) -> None:
    (device,) = yaml.safe_load(call("gpu", "export")[1])["mig-configs"]["current"]
    assert device["mig-devices"] == {"1c.7g.40gb": 2}
    code, out, err = call("gpu", "export", "--format", "nvidia-smi")
    assert (code, out) == (2, "")
    assert err.startswith("error: 7g.40gb@0 (split: 2 × 1c.7g.40gb): -cgi -C makes whole ones only")


def test_one_part_of_an_instance_is_split_too(call, a100: StandIn) -> None:
    a100.split(a100.put("3g.20gb", 4).gi_id, "1")
    assert call("gpu", "assert", "3g.20gb@4") == (1, "", "error: split: 3g.20gb@4 (2c.3g.20gb)\n")


@every_backend
def test_an_adopted_split_instance_is_made_whole(call, a100: StandIn, split: Standing, backend: str) -> None:
    words = ("apply", "7g.40gb@0", "--adopt", "--backend", backend)
    dry = call("gpu", *words, "--dry-run")[1].splitlines()
    assert dry[1:] == [f"nvidia-smi mig -i 0 {verb} -gi {split.gi_id}" for verb in ("-dci", "-cci")]
    assert call("gpu", *words)[0] == 0
    (whole,) = a100.standing()
    assert (whole.gi_id, len(whole.uuids), call("gpu", "assert", "7g.40gb@0")[0]) == (split.gi_id, 1, 0)
    assert call("gpu", "clear", "--backend", backend)[0] == 0
    assert a100.standing() == ()


@every_backend
def test_a_split_instance_with_a_process_in_a_part_stays_as_it_is(call, a100: StandIn, split, backend) -> None:
    a100.attach(split.gi_id, 4711)
    code, _, err = call("gpu", "apply", "7g.40gb@0", "--adopt", "--backend", backend)
    assert (code, "7g.40gb@0 (split: 2 × 1c.7g.40gb) is not made whole: held by process 4711" in err) == (4, True)
    assert a100.standing() == (split,)


@every_backend
def test_ours_that_others_have_split_is_theirs(call, a100: StandIn, backend: str) -> None:
    call("gpu", "apply", "7g.40gb@0", "--backend", backend)
    theirs = a100.split(a100.standing()[0].gi_id)
    assert call("gpu", "clear", "--backend", backend)[0] == 0
    assert a100.standing() == (theirs,)


@pytest.mark.usefixtures("a100")
def test_a_damaged_file_is_refused_and_what_stands_is_listed(call, tmp_path: Path) -> None:
    call("gpu", "apply", "3g.20gb@4")
    path = tmp_path / "state" / "migrator" / f"{UUID}.jsonl"
    path.write_bytes(path.read_bytes().replace(b"3g", b"2g", 1))
    for words in (("apply", "1g.5gb@0"), ("clear",), ("diff", "1g.5gb@0"), ("restore",)):
        code, out, err = call("gpu", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "see what is there (migrator gpu list), delete the file, then" in err
    code, out, err = call("gpu", "list", "--json")
    assert (code, err.startswith("warning: ")) == (0, True)
    (item,) = json.loads(out)["gpus"][0]["instances"]
    assert (item["placement"], item["ours"], item["perhaps_ours"]) == ("3g.20gb@4", None, None)
    path.unlink()
    assert call("gpu", "apply", "3g.20gb@4", "--adopt")[0] == 0


def test_whoever_only_looks_may_do_so_beside_a_controller(call, a100: StandIn, tmp_path: Path) -> None:
    a100.put("1g.5gb", 6)
    with Journal(tmp_path / "state" / "migrator" / f"{UUID}.jsonl"):
        for looks in (("list",), ("diff", "1g.5gb@0"), ("apply", "1g.5gb@0", "--dry-run"), ("clear", "--dry-run")):
            assert call("gpu", *looks)[0] == 0, looks


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing else runs."""
    folder = tmp_path / "proc"
    folder.mkdir()
    monkeypatch.setattr(processes, "PROC", folder)
    return folder


def start(proc: Path, pid: int, command: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (proc / str(pid) / "status").write_text("Uid:\t0\t0\t0\t0\n")


@pytest.mark.parametrize("changing", [("apply", "1g.5gb@0"), ("clear",), ("restore",)], ids=lambda words: words[0])
def test_another_manager_of_this_node_is_a_refusal(call, a100: StandIn, proc: Path, changing) -> None:
    call("gpu", "apply", "3g.20gb@4")
    start(proc, 77, "/usr/bin/nvidia-mig-manager -f /config")
    code, _, err = call("gpu", *changing)
    assert (code, err.count("\n"), names(a100)) == (4, 1, ["3g.20gb@4"])
    assert "NVIDIA's MIG manager changes this node's layouts itself (process 77 (/usr/bin/nvidia-mig-manager" in err
    assert "--beside-other-managers" in err


def test_who_asks_for_it_works_beside_another_manager(call, a100: StandIn, proc: Path) -> None:
    start(proc, 77, "/migagent")
    code, _, err = call("gpu", "apply", "1g.5gb@0", "--beside-other-managers")
    assert (code, names(a100)) == (0, ["1g.5gb@0"])
    assert err.startswith("warning: nos' MIG agent changes this node's layouts itself")


@pytest.mark.parametrize("looking", [("apply", "1g.5gb@0", "--dry-run"), ("list",), ("diff", "1g.5gb@0")], ids=str)
def test_who_looks_beside_another_manager_is_only_warned(call, a100: StandIn, proc: Path, looking) -> None:
    start(proc, 77, "/migagent")
    code, _, err = call("gpu", *looking)
    assert (code, err.count("\n"), a100.standing()) == (0, 1, ())
    assert err.startswith("warning: nos' MIG agent changes this node's layouts itself")


EVERY_COMMAND = [
    *(("list",), ("watch",), ("clear",), ("restore",), ("export",), ("describe",)),
    *((verb, "1g.5gb@0") for verb in ("diff", "apply", "assert")),
]


@pytest.mark.usefixtures("a100")
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda words: words[0])
def test_without_the_drivers_library_there_is_one_line_and_what_to_do(call, monkeypatch, command) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr("pynvml.nvmlInit", refuse)
    code, out, err = call("gpu", *command)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "install NVIDIA's driver, which brings libnvidia-ml.so.1" in err


@pytest.mark.usefixtures("a100")
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda words: words[0])
def test_without_the_drivers_command_there_is_one_line_and_what_to_do(call, monkeypatch, command) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = call("gpu", *command, "--backend", "smi")
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert "there is no nvidia-smi on this machine; install NVIDIA's driver" in err


def test_processes_are_listed_by_name(call, a100: StandIn, proc: Path) -> None:
    start(proc, 41, "python train.py")
    a100.put("1g.5gb", 0, pids=[41, 42])
    row, other = call("gpu", "list")[1].splitlines()[-3:-1]
    assert "41 (python train.py, root)" in row
    assert other.strip() == "42"
    (listed,) = json.loads(call("gpu", "list", "--json")[1])["gpus"]
    assert listed["instances"][0]["processes"] == [
        {"pid": 41, "command": "python train.py", "user": "root"},
        {"pid": 42, "command": None, "user": None},
    ]


@pytest.mark.parametrize("code", [NO_PERMISSION, NOT_SUPPORTED])
def test_instances_are_listed_though_the_driver_does_not_tell_their_processes(call, a100: StandIn, code: int) -> None:
    a100.put("1g.5gb", 0, pids=[41])
    a100.fail(PROCESSES, code, per_mille=1000)
    exit_code, out, err = call("gpu", "list")
    assert (exit_code, "1g.5gb@0" in out, "unknown" in out) == (0, True, True)
    assert err.startswith("warning: processes unknown: Unable to list the processes of GPU 0: ")
    (listed,) = json.loads(call("gpu", "list", "--json")[1])["gpus"]
    assert [item["processes"] for item in listed["instances"]] == [None]


def test_every_gpu_is_listed_unless_one_is_named(call, make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40, A30)
    standin.put("1g.6gb", 2, gpu=1)
    everything = json.loads(call("gpu", "list", "--json")[1])["gpus"]
    assert [(gpu["index"], len(gpu["instances"])) for gpu in everything] == [(0, 0), (1, 1)]
    assert [gpu["index"] for gpu in json.loads(call("gpu", "list", "-i", "1", "--json")[1])["gpus"]] == [1]


def test_a_gpu_that_cannot_be_listed_is_told_beside_the_others(call, make_standin: MakeStandIn) -> None:
    standin = make_standin(A100_40, A30)
    _mig_off(standin.state)
    code, out, err = call("gpu", "list")
    assert (code, out) == (0, "NVIDIA A30 (GPU 1, by nvml): no GPU instance\n")
    assert err.startswith("warning: GPU 0 (NVIDIA A100-SXM4-40GB) is not in MIG mode; as root:")


def test_programs_see_a_gpu_without_mig_mode_with_the_reason(call, make_standin: MakeStandIn) -> None:
    _mig_off(make_standin(A100_40, A30).state)
    first, second = json.loads(call("gpu", "list", "--json")[1])["gpus"]
    assert (first["gpu"], first["uuid"], first["instances"]) == ("a100-40gb", UUID, None)
    assert first["reason"].endswith("is not in MIG mode; as root: nvidia-smi -i 0 -mig 1")
    assert (second["reason"], second["instances"]) == (None, [])
    code, out, err = call("gpu", "list", "-i", "0", "--json")
    assert (code, json.loads(out)["gpus"], err.count("\n")) == (4, [first], 1)


@every_backend
def test_after_a_reboot_the_last_layout_is_restored(call, a100: StandIn, backend: str) -> None:
    call("gpu", "apply", "1g.5gb@0,3g.20gb@4", "--backend", backend)
    a100.reboot()
    code, out, _ = call("gpu", "restore", "--backend", backend)
    assert (code, names(a100)) == (0, ["1g.5gb@0", "3g.20gb@4"])
    assert out.startswith("last asked for: 1g.5gb@0 3g.20gb@4\n")


def test_a_restore_can_be_tried_dry(call, a100: StandIn) -> None:
    call("gpu", "apply", "1g.5gb@0")
    a100.reboot()
    assert call("gpu", "restore", "--dry-run")[1].splitlines()[1:] == ["nvidia-smi mig -i 0 -cgi 19:0 -C"]
    assert a100.standing() == ()


def test_what_was_cleared_is_not_restored(call, a100: StandIn) -> None:
    call("gpu", "apply", "1g.5gb@0")
    call("gpu", "clear")
    code, out, _ = call("gpu", "restore")
    assert (code, out, a100.standing()) == (0, "last asked for: no instance of ours\n", ())


def test_a_layout_that_could_not_be_made_whole_is_what_restore_makes(call, a100: StandIn) -> None:
    theirs = a100.put("1g.5gb", 6)
    assert call("gpu", "apply", "2g.10gb@0,3g.20gb@4")[0] == 4
    a100.take_away(theirs.gi_id)
    assert call("gpu", "restore")[0] == 0
    assert names(a100) == ["2g.10gb@0", "3g.20gb@4"]


def test_without_a_layout_to_restore_there_is_one_line(call, a100: StandIn) -> None:
    code, out, err = call("gpu", "restore")
    assert (code, out, err.count("\n"), a100.standing()) == (2, "", 1, ())
    assert "no layout to restore on GPU 0" in err


def test_a_dry_run_writes_nothing_down(call, a100: StandIn, tmp_path: Path) -> None:
    a100.put("1g.5gb", 6)
    for words in (("apply", "3g.20gb@4", "--adopt"), ("apply", "1g.5gb@0"), ("clear",)):
        assert call("gpu", *words, "--dry-run")[0] == 0
    assert not (tmp_path / "state").exists()


def test_a_dry_run_tells_what_would_be_adopted(call, a100: StandIn) -> None:
    theirs = a100.put("1g.5gb", 6)
    out = call("gpu", "apply", "3g.20gb@4", "--adopt", "--dry-run")[1]
    assert out.splitlines() == [
        f"adopt   1g.5gb@6 (GPU instance ID {theirs.gi_id})",
        f"nvidia-smi mig -i 0 -dci -gi {theirs.gi_id}",
        f"nvidia-smi mig -i 0 -dgi -gi {theirs.gi_id}",
        "nvidia-smi mig -i 0 -cgi 9:4 -C",
    ]


def test_an_instance_that_nobody_seems_to_hold_asks_for_the_doctor(call, a100: StandIn, monkeypatch) -> None:
    monkeypatch.setattr("executor.clock.WallClock.sleep_until", lambda *_: None)
    call("gpu", "apply", "1g.5gb@0")
    a100.make_stubborn(a100.standing()[0].gi_id, 99)
    code, _, err = call("gpu", "clear")
    assert (code, err.count("\n")) == (4, 1)
    assert "migrator doctor looks for programs that hold instances unlisted" in err


@every_backend
def test_an_instance_that_a_living_process_holds_is_refused_at_once_and_in_one_sentence(
    call, a100: StandIn, monkeypatch, backend: str
) -> None:
    monkeypatch.setattr("executor.clock.WallClock.sleep_until", lambda *_: pytest.fail("it waited"))
    call("gpu", "apply", "3g.20gb@4")
    (held,) = a100.standing()
    a100.attach(held.gi_id, os.getpid())
    code, _, err = call("gpu", "apply", "2g.10gb@4,1g.5gb@6", "--backend", backend)
    assert (code, err.count("\n"), a100.standing()) == (4, 1, (held,))
    assert (err.count("In use by another client"), err.count(f"held by process {os.getpid()}")) == (1, 1)
    commands = (f"nvidia-smi mig -i 0 {verb} -gi {held.gi_id}" for verb in ("-dci", "-dgi"))
    assert err.endswith(f"; once nothing holds it: {'; '.join(commands)}\n")


def test_a_layout_by_counts_finds_its_places_and_keeps_what_stands(call, a100: StandIn) -> None:
    call("gpu", "apply", "2g.10gb@2,1g.5gb@0")
    kept = set(a100.standing())
    assert call("gpu", "apply", "3G.20GB:1,2g.10gb:1,1g.5gb:2")[0] == 0
    assert names(a100) == ["1g.5gb@0", "1g.5gb@1", "2g.10gb@2", "3g.20gb@4"]
    assert kept < set(a100.standing())
    assert call("gpu", "assert", "3g.20gb:1,2g.10gb:1,1g.5gb:2") == (0, "", "")
    assert call("gpu", "diff", "1g.5gb:2,2g.10gb:1,3g.20gb:1")[1].endswith("nothing to do\n")


def test_counts_go_around_what_is_not_ours(call, a100: StandIn) -> None:
    theirs = a100.put("1g.5gb", 5)
    assert call("gpu", "apply", "3g.20gb:1")[0] == 0
    assert names(a100) == ["3g.20gb@0", "1g.5gb@5"]
    code, out, err = call("gpu", "apply", "3g.20gb:2")
    assert (code, out, names(a100)) == (4, "", ["3g.20gb@0", "1g.5gb@5"])
    told = f"beside what is not ours: 1g.5gb@5 (GPU instance ID {theirs.gi_id})"
    assert err == f"error: 2 × 3g.20gb cannot be placed {told}; nothing was changed\n"
    assert call("gpu", "apply", "3g.20gb:2", "--adopt")[0] == 0
    assert names(a100) == ["3g.20gb@0", "3g.20gb@4"]


@pytest.mark.parametrize(
    "layout", ["1g.10gb:4,1g.5gb:3", "1g.5gb:0", "1g.5gb:-1", "1g.5gb:x", ":1", "7g.40gb:2", "9g.9gb:1"]
)
def test_counts_that_cannot_be_placed_are_bad_input(call, a100: StandIn, layout: str) -> None:
    code, out, err = call("gpu", "apply", layout)
    assert (code, out, err.count("\n"), a100.standing()) == (2, "", 1, ())


def test_the_empty_text_is_the_empty_layout() -> None:
    from executor.catalogue import gpu_model

    assert len(layout_in(" ", gpu_model("a30-24gb"))) == 0
