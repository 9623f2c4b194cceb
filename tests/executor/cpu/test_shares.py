"""Control groups are used where they can be, which is tried; where they cannot, it is said why."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from executor.cpu import shares
from executor.cpu.shares import NoSharesError, cgroup_shares
from tests.executor.cpu.kernel import Faulty, Kernel

OTHERS = "25 1 0:5 / /proc rw - proc proc rw\n"


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "self" / "mountinfo").write_text(OTHERS)
    (folder / "self" / "cgroup").write_text("")
    monkeypatch.setattr(shares, "PROC", folder)
    return folder


Mounted = Callable[..., Kernel]


@pytest.fixture
def mounted(proc: Path, tmp_path: Path) -> Mounted:
    """Mounts control groups on a folder, whose name has a blank in it."""

    def mounted(version: int, *, root: str = "/", own: str = "/", hands_on: str = "cpu") -> Kernel:
        kernel = Kernel(tmp_path / "control groups", version, hands_on=hands_on, has_ended=has_ended)
        options = "cgroup2 rw" if version == 2 else "cgroup rw,cpu,cpuacct"
        kind = "cgroup2" if version == 2 else "cgroup"
        mount = str(kernel.base).replace(" ", r"\040")
        line = f"30 25 0:26 {root} {mount} rw,nosuid shared:9 - {kind} {options}\n"
        (proc / "self" / "mountinfo").write_text(OTHERS + line)
        (proc / "self" / "cgroup").write_text(f"5:memory:/x\n{'0::' if version == 2 else '4:cpu,cpuacct:'}{own}\n")
        return kernel

    return mounted


@pytest.mark.parametrize("version", [1, 2])
def test_shares_are_had_at_the_mount_where_that_is_allowed(mounted: Mounted, version: int) -> None:
    kernel = mounted(version)
    assert cgroup_shares(version, "ours", kernel).folder == kernel.base / "ours"


@pytest.mark.parametrize("version", [1, 2])
def test_trying_leaves_nothing_behind(mounted: Mounted, version: int) -> None:
    kernel = mounted(version)
    cgroup_shares(version, "ours", kernel)
    assert kernel.folders(kernel.base) == []


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_mounted_nowhere_is_not_used(proc: Path, version: int) -> None:
    assert proc.is_dir()
    with pytest.raises(NoSharesError, match=f"control groups v{version} is mounted nowhere"):
        cgroup_shares(version, "ours")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("call", ["make", "write"])
def test_a_refusal_is_told(mounted: Mounted, version: int, call: str) -> None:
    files = Faulty(mounted(version))
    files.refuses = lambda made, _: errno.EROFS if made == call else 0
    with pytest.raises(NoSharesError, match="control groups: read-only file system"):
        cgroup_shares(version, "ours", files)


@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_trial_leaves_nothing_behind(mounted: Mounted, version: int) -> None:
    kernel = mounted(version)
    files = Faulty(kernel)
    files.refuses = lambda call, path: errno.EACCES if (call, path.name) == ("write", "cgroup.procs") else 0
    with pytest.raises(NoSharesError):
        cgroup_shares(version, "ours", files)
    assert kernel.folders(kernel.base) == []


@pytest.mark.parametrize("version", [1, 2])
def test_shares_are_had_in_our_own_group_where_we_may_not_make_any_outside(mounted: Mounted, version: int) -> None:
    kernel = mounted(version, own="/user/me")
    kernel.make(kernel.base / "user")
    if version == 2:
        kernel.write(kernel.base / "user" / "cgroup.subtree_control", "+cpu")
    kernel.make(kernel.base / "user" / "me")
    files = Faulty(kernel)
    own = kernel.base / "user" / "me"
    files.refuses = lambda call, path: 0 if path.is_relative_to(own) or call == "folders" else errno.EACCES
    assert cgroup_shares(version, "ours", files).folder == own / "ours"


def test_what_a_container_does_not_see_is_left_out_of_our_own_group(mounted: Mounted) -> None:
    kernel = mounted(1, root="/docker/4f", own="/docker/4f/inner")
    kernel.make(kernel.base / "inner")
    assert list(shares._bases(1)) == [kernel.base, kernel.base / "inner"]


def test_a_controller_that_a_group_does_not_have_is_told(mounted: Mounted) -> None:
    kernel = mounted(2)
    (kernel.base / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(NoSharesError, match="it has no cpu controller to give"):
        cgroup_shares(2, "ours", kernel)


def test_the_controller_is_handed_on_where_it_was_not(mounted: Mounted) -> None:
    kernel = mounted(2, hands_on="")
    cgroup_shares(2, "ours", kernel)
    assert (kernel.base / "cgroup.subtree_control").read_text() == "cpu"


def test_the_controller_is_not_handed_on_for_nothing(mounted: Mounted) -> None:
    kernel = mounted(2, hands_on="")
    files = Faulty(kernel)
    files.refuses = lambda call, _: errno.EACCES if call == "make" else 0
    with pytest.raises(NoSharesError):
        cgroup_shares(2, "ours", files)
    assert (kernel.base / "cgroup.subtree_control").read_text() == ""


def test_a_group_with_processes_cannot_hand_the_controller_on(mounted: Mounted) -> None:
    kernel = mounted(2, hands_on="")
    (kernel.base / "cgroup.procs").write_text(f"{os.getpid()}\n")
    with pytest.raises(NoSharesError, match="it has processes of its own"):
        cgroup_shares(2, "ours", kernel)
