"""Without control groups, processes are stopped when they have had their share, and continued; nobody stays stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.cpu.duty import Bucket, DutyShares, duty_shares, used_s
from executor.cpu.shares import NoSharesError
from executor.processes import python_command
from tests.ending import ends
from tests.executor.cpu.real import PATIENCE_S, sleeper


@pytest.fixture
def shares(tmp_path: Path) -> Iterator[DutyShares]:
    shares = duty_shares(tmp_path, "ours")
    shares.prepare()
    for name in ("one", "other"):
        shares.files.make(shares.folder / name)
        shares.limit(name, 0.1, 1)
        shares.files.make(shares.folder / name / "processes-of")
    yield shares
    shares.close()


def inner(shares: DutyShares, name: str = "one") -> Path:
    return shares.folder / name / "processes-of"


@contextmanager
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process
        process.kill()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def comes_to(pid: int, states: str) -> bool:
    """Whether the process is seen in one of these states before patience ends."""
    until_s = time.monotonic() + PATIENCE_S
    while state_of(pid) not in states:
        if time.monotonic() > until_s:
            return False
    return True


def governor_of(shares: DutyShares) -> int:
    assert shares._governor is not None
    return shares._governor.pid


def test_who_uses_less_than_its_share_always_runs() -> None:
    bucket = Bucket(0.5)
    assert all(bucket.step(0.01, 0.004) for _ in range(1000))


def test_who_has_used_up_its_share_is_stopped() -> None:
    assert not Bucket(0.5).step(0.01, 0.01)


def test_who_was_stopped_runs_again() -> None:
    bucket = Bucket(0.5)
    bucket.step(0.01, 0.01)
    assert any(bucket.step(0.005, 0.0) for _ in range(5))


@pytest.mark.parametrize("cores", [0.1, 0.23, 0.46, 0.91])
def test_who_uses_all_it_can_gets_its_share(cores: float) -> None:
    bucket, had_s, runs = Bucket(cores), 0.0, True
    for _ in range(20_000):
        used_s = 0.005 if runs else 0.0
        runs = bucket.step(0.005, used_s)
        had_s += used_s
    assert had_s / 100 == pytest.approx(cores, rel=0.01)


def test_what_was_not_used_is_not_saved_up_for_longer_than_a_burst() -> None:
    bucket = Bucket(0.5)
    bucket.step(1000.0, 0.0)
    assert bucket.left_s == pytest.approx(0.05)


def test_time_that_a_process_had_is_told_by_its_threads() -> None:
    before_s = used_s(os.getpid())
    sum(range(300_000))
    assert used_s(os.getpid()) > before_s


def test_who_entered_is_in_the_share(shares: DutyShares) -> None:
    with sleeper() as process:
        shares.enter(inner(shares), process.pid)
        assert shares.pids(inner(shares)) == (process.pid,)


def test_who_is_gone_is_in_no_share(shares: DutyShares) -> None:
    with sleeper() as process:
        shares.enter(inner(shares), process.pid)
    assert shares.pids(inner(shares)) == ()


def test_a_number_that_came_again_is_another_process(shares: DutyShares) -> None:
    with sleeper() as process:
        shares.files.write(inner(shares) / "processes", f"{process.pid} 1\n")
        assert shares.pids(inner(shares)) == ()


def test_what_is_half_written_is_left_out(shares: DutyShares) -> None:
    with sleeper() as process:
        shares.enter(inner(shares), process.pid)
        with (inner(shares) / "processes").open("a") as file:
            file.write("47")
        assert shares.pids(inner(shares)) == (process.pid,)


def test_a_limit_that_is_not_written_yet_is_none(shares: DutyShares) -> None:
    shares.files.write(shares.folder / "one" / "limit", "")
    assert shares.limit_of("one") is None


def test_who_enters_another_share_leaves_the_first(shares: DutyShares) -> None:
    with sleeper() as process:
        for name in ("one", "other"):
            shares.enter(inner(shares, name), process.pid)
        assert [shares.pids(inner(shares, name)) for name in ("one", "other")] == [(), (process.pid,)]


def test_what_a_process_has_forked_is_in_its_share(shares: DutyShares) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        shares.enter(inner(shares), process.pid)
        assert shares.pids(inner(shares)) == tuple(sorted((process.pid, child)))
        os.kill(child, signal.SIGKILL)


def test_a_child_that_has_ended_and_was_not_waited_for_is_in_no_share(shares: DutyShares) -> None:
    code = "import os, time; pid = os.fork() or os._exit(0); print(pid, flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert comes_to(child, "Z")
        shares.enter(inner(shares), process.pid)
        assert shares.pids(inner(shares)) == (process.pid,)
        process.kill()


def test_a_share_that_nobody_is_in_goes(shares: DutyShares) -> None:
    shares.remove(inner(shares))
    shares.remove(shares.folder / "one")
    assert shares.files.folders(shares.folder) == ["other"]


def test_a_share_that_somebody_is_in_stays(shares: DutyShares) -> None:
    with sleeper() as process:
        shares.enter(inner(shares), process.pid)
        with pytest.raises(OSError, match="busy"):
            shares.remove(inner(shares))


def test_who_has_used_up_its_share_is_really_stopped(shares: DutyShares) -> None:
    with busy() as process:
        shares.enter(inner(shares), process.pid)
        assert comes_to(process.pid, "T")


def test_who_was_stopped_is_continued_when_the_shares_are_let_go(shares: DutyShares) -> None:
    with busy() as process:
        shares.enter(inner(shares), process.pid)
        assert comes_to(process.pid, "T")
        shares.close()
        assert state_of(process.pid) in "RS"


def test_a_governor_that_was_killed_is_replaced_by_the_next_that_enters(shares: DutyShares) -> None:
    with busy() as process, sleeper() as other:
        shares.enter(inner(shares), process.pid)
        assert comes_to(process.pid, "T")
        os.kill(governor_of(shares), signal.SIGKILL)
        assert ends(governor_of(shares))
        shares.enter(inner(shares), other.pid)
        assert comes_to(process.pid, "RS")


def test_the_governor_goes_with_its_controller_and_continues_everybody(tmp_path: Path) -> None:
    with busy() as process:
        command = python_command("tests.executor.cpu.controller", "governs_and_hangs", str(tmp_path), str(process.pid))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
            assert controller.stdout is not None
            governor = int(controller.stdout.readline())
            assert comes_to(process.pid, "T")
            controller.kill()
        assert ends(governor)
        assert state_of(process.pid) in "RS"


def test_what_an_earlier_boot_has_left_goes(tmp_path: Path) -> None:
    (tmp_path / "cpu-shares-0" / "ours").mkdir(parents=True)
    duty_shares(tmp_path, "ours").prepare()
    assert not (tmp_path / "cpu-shares-0").exists()


def test_nothing_is_left_once_shares_are_forgotten(shares: DutyShares, tmp_path: Path) -> None:
    for name in ("one", "other"):
        shares.remove(inner(shares, name))
        shares.remove(shares.folder / name)
    shares.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_does_not_tell_what_processes_use_is_no_good(tmp_path: Path) -> None:
    with pytest.raises(NoSharesError, match="boot_id: No such file"):
        duty_shares(tmp_path, "ours", proc=tmp_path)
