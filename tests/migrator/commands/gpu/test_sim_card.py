"""The commands about a GPU, typed against a simulated card that remembers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from executor import processes
from migrator.commands.gpu import watch
from tests.standin.mps import running

A100 = ("--gpu", "sim:a100-80gb")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "migrator"


def standing(call, *options: str) -> list[tuple[str, bool]]:
    (listed,) = json.loads(call("gpu", "list", *A100, "--json", *options)[1])["gpus"]
    assert (listed["gpu"], listed["backend"], listed["uuid"]) == ("a100-80gb", "sim", "SIM-a100-80gb")
    return [(item["placement"], item["ours"]) for item in listed["instances"]]


def test_every_verb_works_on_it_and_finds_what_the_last_one_left(call, state: Path) -> None:
    commands = ["nvidia-smi mig -i 0 -cgi 9:4 -C", "nvidia-smi mig -i 0 -cgi 14:0 -C"]
    layout = "2G.20GB@0,3g.40gb@4"
    assert call("gpu", "diff", layout, *A100)[1].splitlines() == commands
    assert call("gpu", "apply", layout, *A100, "--dry-run")[1].splitlines() == commands
    assert call("gpu", "list", "--gpu", "SIM:A100-80GB") == (
        0,
        "NVIDIA A100 80GB, simulated (GPU 0, by sim): no GPU instance\n",
        "",
    )
    assert not state.exists()
    assert call("gpu", "apply", layout, *A100)[0] == 0
    assert standing(call) == [("2g.20gb@0", True), ("3g.40gb@4", True)]
    assert call("gpu", "assert", layout, *A100) == (0, "", "")
    assert call("gpu", "assert", "2g.20gb@0", *A100)[0] == 1
    assert sorted(call("gpu", "export", "--format", "nvidia-smi", *A100)[1].splitlines()) == sorted(commands)
    shutil.rmtree(state / "SIM-a100-80gb")
    assert standing(call) == []
    assert call("gpu", "restore", *A100)[1].startswith("last asked for: 2g.20gb@0 3g.40gb@4\n2g.20gb@0  GPU instance ")
    assert call("gpu", "clear", *A100) == (0, "", "")
    assert standing(call) == []


def test_each_state_folder_has_a_card_of_its_own_which_every_verb_finds(call, state: Path, tmp_path: Path) -> None:
    own = ("--state", str(tmp_path / "own"))
    call("gpu", "apply", "7g.80gb@0", *A100, *own)
    assert (standing(call), standing(call, *own)) == ([], [("7g.80gb@0", True)])
    assert call("gpu", "assert", "7g.80gb@0", *A100, *own)[0] == 0
    assert call("gpu", "export", *A100, *own)[1].endswith("7g.80gb: 1\n")
    assert not state.exists()


def test_what_others_made_on_it_blocks_until_it_is_adopted(call, state: Path) -> None:
    call("gpu", "apply", "1g.10gb@6", *A100)
    (state / "SIM-a100-80gb.jsonl").unlink()
    assert standing(call) == [("1g.10gb@6", False)]
    code, _, err = call("gpu", "apply", "3g.40gb@4", *A100)
    assert (code, err.startswith("error: 3g.40gb@4 is not free: 1g.10gb@6 (GPU instance ID ")) == (4, True)
    assert call("gpu", "apply", "3g.40gb@4", *A100, "--adopt")[0] == 0
    assert standing(call) == [("3g.40gb@4", True)]


def test_a_process_that_has_its_uuid_is_listed_and_in_the_way(call, state: Path, monkeypatch) -> None:
    monkeypatch.setattr("executor.clock.WallClock.sleep_until", lambda *_: None)
    call("gpu", "apply", "7g.80gb@0", *A100)
    (folder,) = (state / "SIM-a100-80gb").glob("*/MIG-SIM-*")
    with running({"CUDA_VISIBLE_DEVICES": folder.name}) as pid:
        assert f" {pid} " in call("gpu", "list", *A100)[1]
        code, _, err = call("gpu", "clear", *A100)
        assert (code, err.count("\n"), f"In use by process {pid} (sleep 1000" in err) == (4, 1, True)
    assert call("gpu", "clear", *A100)[0] == 0


def test_other_managers_of_this_node_are_nothing_to_it(call, state: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "cmdline").write_text("nvidia-mig-manager")
    monkeypatch.setattr(processes, "PROC", tmp_path / "proc")
    for verb in (("diff", "7g.80gb@0"), ("list",), ("apply", "7g.80gb@0", "--dry-run"), ("apply", "7g.80gb@0")):
        code, _, err = call("gpu", *verb, *A100)
        assert (code, err) == (0, "")
    assert state.exists()


@pytest.mark.usefixtures("state")
def test_it_is_watched(call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    call("gpu", "apply", "7g.80gb@0", *A100)
    monkeypatch.setattr(watch.WallClock, "sleep_until", interrupted)
    code, out, _ = call("gpu", "watch", *A100, "--json")
    seen = json.loads(out)
    assert (code, seen["what"], seen["placement"], seen["ours"]) == (130, "stands", "7g.80gb@0", True)


REFUSED = [
    (("--gpu", "sim:a30"), "unknown GPU model 'a30' (did you mean a30-24gb?); known: a100-40gb, "),
    (("--gpu", "sim:a100-80"), "unknown GPU model 'a100-80' (did you mean a100-80gb?); known: a100-40gb, "),
    (("--gpu", "sim:cpu-1.6-in-7"), "cpu-1.6-in-7 is no card that MIG cuts; known: a100-40gb, "),
    (("--gpu", "sim:"), "--gpu sim:: sim:MODEL is needed, such as sim:a100-80gb; -i chooses a real GPU"),
    (("--gpu", "nvml"), "--gpu nvml: sim:MODEL is needed, such as sim:a100-80gb; -i chooses a real GPU"),
    (("--gpu", "a100-80gb"), "--gpu a100-80gb: sim:MODEL is needed, such as sim:a100-80gb; -i chooses a real GPU"),
    ((*A100, "-i", "1"), "--gpu sim:a100-80gb: --index and --backend are of real GPUs; leave them out"),
    ((*A100, "--backend", "smi"), "--gpu sim:a100-80gb: --index and --backend are of real GPUs; leave them out"),
]
VERBS = [
    *((verb,) for verb in ("list", "clear", "restore", "watch", "export")),
    *((verb, "7g.80gb@0") for verb in ("diff", "apply", "assert")),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_no_simulated_card_is_one_line_and_exit_code_2(call, state: Path, options, message: str) -> None:
    for verb in VERBS:
        code, out, err = call("gpu", *verb, *options)
        assert (code, out, err.startswith(f"error: {message}"), err.count("\n")) == (2, "", True, 1), verb
    assert not state.exists()


@pytest.mark.parametrize("layout", ["2g.20gb@1", "1g.5gb@0", "3g.40gb@0,1g.10gb@2", "4g.40gb@0,4g.40gb@4"])
def test_a_layout_that_the_card_cannot_have_is_bad_input(call, state: Path, layout: str) -> None:
    code, _, err = call("gpu", "apply", layout, *A100)
    assert (code, err.count("\n"), state.exists()) == (2, 1, False)
