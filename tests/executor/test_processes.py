"""Processes are known by name as far as the machine shows them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from executor import processes
from executor.processes import (
    Process,
    boot_id,
    device_users,
    family_ticks,
    gpu_process,
    holder_of_lock,
    other_managers,
    process,
    usual_holders,
)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    monkeypatch.setattr(processes, "PROC", folder)
    return folder


def put(proc: Path, pid: int, *words: str, comm: str = "python", uid: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


def test_a_boot_has_an_id_where_the_system_gives_one(proc: Path) -> None:
    assert boot_id() is None
    (proc / "sys" / "kernel" / "random").mkdir(parents=True)
    (proc / "sys" / "kernel" / "random" / "boot_id").write_text("1d3c\n")
    assert boot_id() == "1d3c"


def test_a_process_has_its_command_and_user(proc: Path) -> None:
    put(proc, 41, "python", "train.py", "--epochs", "3")
    assert process(41) == Process(41, "python train.py --epochs 3", "root")


def test_a_user_without_a_name_is_a_number(proc: Path) -> None:
    put(proc, 41, "python", uid=987_654)
    assert process(41).user == "987654"


def test_a_process_without_a_command_line_has_its_name(proc: Path) -> None:
    put(proc, 41, comm="kworker/0:1")
    assert str(process(41)) == "41 (kworker/0:1, root)"


@pytest.mark.usefixtures("proc")
def test_a_process_that_is_not_there_is_its_number_alone() -> None:
    assert str(process(41)) == "41"


def test_a_long_command_is_cut_in_messages_and_whole_for_programs(proc: Path) -> None:
    put(proc, 41, "python", "x" * 200)
    assert len(str(process(41))) < 90
    assert (process(41).command or "").endswith("x" * 200)


def test_what_a_terminal_would_act_on_is_not_shown(proc: Path) -> None:
    put(proc, 41, "a\x1b[2J\nb")
    assert process(41).command == "a?[2J?b"


def test_this_process_is_found_on_the_real_machine() -> None:
    assert "python" in (process(os.getpid()).command or "")


def test_who_has_a_lock_is_named(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder_of_lock(tmp_path / "file") == process(os.getpid())


def test_a_file_that_nobody_locks_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert holder_of_lock(tmp_path / "file") is None
    assert holder_of_lock(tmp_path / "absent") is None


@pytest.mark.parametrize(
    "words",
    [
        ("/usr/bin/gpu_partitioner",),
        ("/migagent", "--config=/etc/nos"),
        ("nvidia-mig-manager",),
        ("/usr/local/bin/nvidia-mig-parted", "apply"),
        ("gpu-kubelet-plugin", "-v", "6"),
        ("/bin/sh", "/usr/bin/nvidia-mig-manager"),
    ],
)
def test_other_managers_are_known_by_their_programs(proc: Path, words: tuple[str, ...]) -> None:
    put(proc, 7, *words)
    assert [item.process for item in other_managers()] == [process(7)]


def listens(proc: Path, pid: int, path: str, *mounts: tuple[str, str], flags: int = 0x10000, inode: int = 91) -> None:
    """A socket at the path, in the process's namespaces; ``mounts`` are folders of the host and where it has them."""
    folder = proc / str(pid)
    (folder / "net").mkdir()
    head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
    (folder / "net" / "unix").write_text(
        f"{head}0000000000000000: 00000002 00000000 {flags:08X} 0001 01 {inode} {path}\n"
    )
    all_ = [("/", "/"), *mounts]
    (folder / "mountinfo").write_text(
        "".join(f"36 35 98:0 {root} {point} rw - ext4 /dev/a rw\n" for root, point in all_)
    )


@pytest.mark.parametrize(
    ("path", "mounts"),
    [
        ("/var/lib/kubelet/device-plugins/nvidia-gpu.sock", ()),
        ("/var/snap/microk8s/common/var/lib/kubelet/device-plugins/nvidia.sock", ()),
        ("/device-plugin/nvidiaGPU-17.sock", (("/var/lib/kubelet/device-plugins", "/device-plugin"),)),
        ("/kubelet/device-plugins/any.sock", (("/lib/kubelet", "/kubelet"),)),
    ],
)
def test_a_device_plugin_is_known_by_the_folder_that_it_listens_in(proc: Path, path: str, mounts: tuple) -> None:
    put(proc, 7, "/usr/bin/whatever")
    listens(proc, 7, path, *mounts)
    opens(proc, 7, "socket:[91]")
    (found,) = other_managers()
    assert (
        found.process,
        str(found).startswith(f"a device plugin hands out this node's devices to pods, at {path} ("),
    ) == (
        process(7),
        True,
    )


def test_a_device_plugin_whose_files_cannot_be_seen_is_told_without_its_process(proc: Path) -> None:
    for pid in (7, 8):
        put(proc, pid, "whatever")
        listens(proc, pid, "/var/lib/kubelet/device-plugins/nvidia.sock")
    assert list(map(str, other_managers())) == [
        "a device plugin hands out this node's devices to pods, at /var/lib/kubelet/device-plugins/nvidia.sock"
    ]


@pytest.mark.parametrize(
    ("path", "flags", "target"),
    [
        ("/var/lib/kubelet/device-plugins/kubelet.sock", 0x10000, "socket:[91]"),
        ("/var/lib/kubelet/device-plugins/nvidia.sock", 0, "socket:[91]"),
        ("/var/lib/kubelet/device-plugins/nvidia.sock", 0x10000, "socket:[92]"),
        ("/var/lib/kubelet/plugins/csi.sock", 0x10000, "socket:[91]"),
        ("@device-plugins/abstract", 0x10000, "socket:[91]"),
    ],
    ids=["the kubelet", "a client", "another process's", "another folder", "no path"],
)
def test_what_does_not_listen_as_a_device_plugin_is_none(proc: Path, path: str, flags: int, target: str) -> None:
    put(proc, 7, "whatever")
    listens(proc, 7, path, flags=flags)
    opens(proc, 7, target)
    assert other_managers() == ()


def test_whoever_only_speaks_of_a_manager_is_none(proc: Path) -> None:
    put(proc, 7, "vim", "nvidia-mig-manager")
    put(proc, 8, "bash")
    assert other_managers() == ()


def test_usual_holders_are_no_managers(proc: Path) -> None:
    put(proc, 7, "/usr/bin/nv-hostengine", "-n")
    assert [item.process for item in usual_holders()] == [process(7)]
    assert other_managers() == ()


def opens(proc: Path, pid: int, *targets: str) -> None:
    (proc / str(pid) / "fd").mkdir()
    for number, target in enumerate(targets):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def test_who_has_the_drivers_devices_open_is_a_user_of_theirs(proc: Path) -> None:
    put(proc, 7, "dcgmproftester")
    opens(proc, 7, "/dev/null", "/dev/nvidia-caps/nvidia-cap21")
    put(proc, 8, "bash")
    opens(proc, 8, "/dev/null")
    put(proc, 9, "not ours to see")
    assert device_users() == (process(7),)


def test_this_process_is_no_user_beside_itself(proc: Path) -> None:
    put(proc, os.getpid(), "pytest")
    opens(proc, os.getpid(), "/dev/nvidiactl")
    assert device_users() == ()


def test_a_number_of_another_namespace_gets_nobodys_name(proc: Path) -> None:
    put(proc, 41, "nginx")
    opens(proc, 41, "/dev/null")
    assert gpu_process(41) == Process(41)


def test_a_process_on_a_gpu_is_named(proc: Path) -> None:
    put(proc, 41, "python")
    opens(proc, 41, "/dev/nvidia0")
    put(proc, 42, "python")  # of another user: what it has open is not to be seen
    assert (gpu_process(41), gpu_process(42)) == (process(41), process(42))


def test_a_family_s_ticks_are_those_of_the_living_and_of_all_that_they_waited_for(proc: Path) -> None:
    for pid, parent, ticks in ((7, 1, "5 2 30 10"), (8, 7, "1 1 0 0"), (9, 8, "2 0 0 0"), (10, 1, "900 0 0 0")):
        put(proc, pid)
        (proc / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 0 0 0 0 0 0 0 0 0 {ticks} 20 0\n")
    assert [family_ticks(pid) for pid in (7, 8, 10, 11)] == [51, 4, 900, 0]
