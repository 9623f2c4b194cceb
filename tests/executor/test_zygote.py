"""Workers fork from a warm process; whatever becomes of them is told, and nobody outlives whom they work for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from executor.processes import python_command
from executor.zygote import Event, Exited, Forked, Reached, Warm, Zygote, ZygoteError
from tests.ending import PATIENCE_S, ends

WORKERS = "tests.executor.zygote_workers"

E = TypeVar("E", bound=Event)


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote


def first(zygote: Zygote, kind: type[E], worker: str | None = None) -> E:
    """The first event of this kind, of this worker; events before it are let go, and those after it stay."""
    until_s, left = time.monotonic() + PATIENCE_S, vars(zygote).setdefault("left", [])
    while time.monotonic() < until_s:
        left += () if left else zygote.events(1.0)
        while left:
            event = left.pop(0)
            if isinstance(event, kind) and (worker is None or getattr(event, "worker", None) == worker):
                return event
    raise AssertionError(f"no {kind.__name__} came")


def started(zygote: Zygote, function: str, /, **arguments: Any) -> str:
    return zygote.start(f"{WORKERS}:{function}", arguments)


def pid_of(zygote: Zygote, worker: str) -> int:
    pid = zygote.workers[worker]
    assert pid is not None
    return pid


@pytest.mark.parametrize(
    ("code", "number", "error", "was_asked", "said"),
    [
        (3, None, "", False, "ended with code 3"),
        (None, 11, "", False, "killed by signal 11"),
        (None, 9, "", False, "killed by signal 9, maybe for want of memory"),
        (None, 9, "", True, "killed by signal 9"),
        (1, None, "ValueError: no such thing", False, "ValueError: no such thing"),
        (1, None, "package.module.OwnError: a.b: it broke", False, "OwnError: a.b: it broke"),
        (1, None, "package.module.OwnError", False, "OwnError"),
        (1, None, "it cannot be forked: Cannot allocate memory", False, "it cannot be forked: Cannot allocate memory"),
    ],
)
def test_why_a_worker_ended_is_said_in_a_few_words(
    code: int | None, number: int | None, error: str, was_asked: bool, said: str
) -> None:
    assert Exited("w", 1, code, number, error, was_asked, 0.0).reason == said


def test_it_tells_when_it_is_warm_and_what_each_import_took() -> None:
    with Zygote(["csv", "json"]) as zygote:
        warm = first(zygote, Warm)
    assert (warm.pid, list(warm.import_s)) == (zygote.pid, ["csv", "json"])


def test_a_worker_runs_and_its_code_is_told(zygote: Zygote) -> None:
    ended = first(zygote, Exited, started(zygote, "returns", code=3))
    assert (ended.code, ended.signal, ended.error, ended.was_asked) == (3, None, "", False)


def test_phases_are_told_in_order_on_one_clock(zygote: Zygote) -> None:
    before_s = time.monotonic()
    worker = started(zygote, "returns", code=0)
    forked, ready, ended = (first(zygote, kind, worker) for kind in (Forked, Reached, Exited))
    times = [before_s, forked.asked_s, forked.at_s, ready.at_s, ended.at_s, time.monotonic()]
    assert (times, ready.phase) == (sorted(times), "ready")


def test_a_worker_is_known_by_its_pid_until_it_is_gone(zygote: Zygote) -> None:
    worker = started(zygote, "waits")
    forked = first(zygote, Forked, worker)
    assert zygote.workers == {worker: forked.pid}
    os.kill(forked.pid, signal.SIGKILL)
    first(zygote, Exited, worker)
    assert zygote.workers == {}


def test_what_was_imported_once_is_not_imported_again() -> None:
    with Zygote([WORKERS]) as zygote:
        told = {first(zygote, Reached, started(zygote, "tells", what="secret")).phase for _ in range(2)}
    assert len(told) == 1


def test_workers_have_luck_of_their_own() -> None:
    with Zygote(["random"]) as zygote:
        told = {first(zygote, Reached, started(zygote, "tells", what="luck")).phase for _ in range(2)}
    assert len(told) == 2


def test_workers_compute_on_one_thread(zygote: Zygote) -> None:
    assert first(zygote, Reached, started(zygote, "tells", what="OMP_NUM_THREADS")).phase == "1"


def test_a_worker_has_an_environment_of_its_own(zygote: Zygote) -> None:
    worker = zygote.start(f"{WORKERS}:tells", {"what": "COLOUR"}, environment={"COLOUR": "red"})
    assert first(zygote, Reached, worker).phase == "red"


def test_ctrl_c_in_a_terminal_is_not_the_workers(zygote: Zygote) -> None:
    assert first(zygote, Reached, started(zygote, "tells", what="session")).phase == "True"


def test_what_a_worker_prints_is_in_its_log(zygote: Zygote, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first(zygote, Exited, zygote.start(f"{WORKERS}:prints", {"text": "hello"}, log=log))
    assert log.read_text() == "hello!\n"


def test_a_worker_that_raises_ends_with_what_it_raised_in_one_line(zygote: Zygote, tmp_path: Path) -> None:
    ended = first(zygote, Exited, zygote.start(f"{WORKERS}:raises", log=tmp_path / "log"))
    assert (ended.code, ended.error) == (1, "ValueError: no such thing")


def test_the_trace_of_a_worker_that_raised_is_in_its_log(zygote: Zygote, tmp_path: Path) -> None:
    first(zygote, Exited, zygote.start(f"{WORKERS}:raises", log=tmp_path / "log"))
    assert "in raises" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("no_such_module_anywhere:f", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        (f"{WORKERS}:nothing", f"AttributeError: module '{WORKERS}' has no attribute 'nothing'"),
        (f"{WORKERS}:returns", "TypeError: returns() missing 1 required positional argument: 'code'"),
        ("no colon", "ModuleNotFoundError: No module named 'no colon'"),
    ],
)
def test_a_function_that_cannot_be_called_is_told(zygote: Zygote, tmp_path: Path, function: str, error: str) -> None:
    assert first(zygote, Exited, zygote.start(function, log=tmp_path / "log")).error == error


@pytest.mark.parametrize(("code", "told"), [(None, 0), (5, 5), ("sorry", 1)])
def test_a_worker_may_leave_by_itself(zygote: Zygote, code: int | str | None, told: int) -> None:
    assert first(zygote, Exited, started(zygote, "leaves", code=code)).code == told


def test_a_log_that_cannot_be_written_is_told(zygote: Zygote, tmp_path: Path) -> None:
    worker = zygote.start(f"{WORKERS}:waits", log=tmp_path / "none" / "log")
    assert first(zygote, Exited, worker).error.startswith("FileNotFoundError")


def test_a_worker_that_is_killed_was_not_asked_to_end(zygote: Zygote) -> None:
    worker = started(zygote, "waits")
    os.kill(first(zygote, Forked, worker).pid, signal.SIGKILL)
    ended = first(zygote, Exited, worker)
    assert (ended.code, ended.signal, ended.was_asked) == (None, signal.SIGKILL, False)


def test_a_worker_that_is_stopped_is_told_to_end(zygote: Zygote) -> None:
    worker = started(zygote, "waits")
    first(zygote, Reached, worker)
    zygote.stop(worker)
    ended = first(zygote, Exited, worker)
    assert (ended.signal, ended.was_asked) == (signal.SIGTERM, True)


def test_a_worker_can_say_goodbye(zygote: Zygote) -> None:
    worker = started(zygote, "says_goodbye")
    first(zygote, Reached, worker)
    zygote.stop(worker)
    assert first(zygote, Exited, worker).code == 7


def test_a_worker_that_will_not_end_is_killed(zygote: Zygote) -> None:
    worker = started(zygote, "ignores")
    first(zygote, Reached, worker)
    zygote.stop(worker, limit_s=0.05)
    ended = first(zygote, Exited, worker)
    assert (ended.signal, ended.was_asked) == (signal.SIGKILL, True)


def test_to_be_told_again_brings_the_end_nearer(zygote: Zygote) -> None:
    worker = started(zygote, "ignores")
    first(zygote, Reached, worker)
    for limit_s in (1000.0, 0.05, 1000.0):
        zygote.stop(worker, limit_s)
    assert first(zygote, Exited, worker).signal == signal.SIGKILL


def test_a_worker_that_lingers_keeps_nobody_waiting(zygote: Zygote) -> None:
    worker = started(zygote, "ignores")
    first(zygote, Reached, worker)
    zygote.stop(worker, limit_s=1000.0)
    assert first(zygote, Exited, started(zygote, "returns", code=0)).code == 0
    os.kill(pid_of(zygote, worker), signal.SIGKILL)


def test_a_worker_that_is_halted_can_say_goodbye(zygote: Zygote) -> None:
    worker = started(zygote, "says_goodbye")
    first(zygote, Reached, worker)
    os.kill(pid_of(zygote, worker), signal.SIGSTOP)
    zygote.stop(worker)
    assert first(zygote, Exited, worker).code == 7


def test_to_stop_a_worker_that_is_gone_does_nothing(zygote: Zygote) -> None:
    worker = started(zygote, "returns", code=0)
    first(zygote, Exited, worker)
    zygote.stop(worker)
    assert first(zygote, Exited, started(zygote, "returns", code=1)).code == 1


def test_what_a_worker_has_started_ends_with_it(zygote: Zygote) -> None:
    worker = started(zygote, "has_a_child")
    child = int(first(zygote, Reached, worker).phase)
    os.kill(pid_of(zygote, worker), signal.SIGKILL)
    assert ends(child)


def test_two_workers_of_one_name_are_refused(zygote: Zygote) -> None:
    zygote.start(f"{WORKERS}:waits", name="anna")
    with pytest.raises(ZygoteError, match="there is a worker called anna already"):
        zygote.start(f"{WORKERS}:waits", name="anna")


def test_a_name_is_free_again_once_its_worker_is_gone(zygote: Zygote) -> None:
    for _ in range(2):
        first(zygote, Exited, zygote.start(f"{WORKERS}:returns", {"code": 0}, name="anna"))


def test_what_is_too_long_for_a_request_is_refused(zygote: Zygote) -> None:
    with pytest.raises(ZygoteError, match=r"a request is too long: .* allowed: at most 65536: use a file"):
        started(zygote, "returns", code="x" * 70_000)
    assert zygote.workers == {}


def test_a_zygote_is_not_started_where_linux_would_soon_end_it() -> None:
    said: list[str] = []

    def start() -> None:
        try:
            Zygote()
        except ZygoteError as error:
            said.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert said[0].startswith("a zygote has to be started on the main thread")


def until_gone(zygote: Zygote) -> str:
    """What is said of a zygote that is gone."""
    until_s = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until_s:
            zygote.events(1.0)
    except ZygoteError as error:
        return str(error)
    raise AssertionError("it is not gone")


@pytest.mark.parametrize("asks_before", [False, True])
def test_a_module_that_is_not_there_is_told(asks_before: bool) -> None:
    with Zygote(["no_such_module_anywhere"]) as zygote:
        if asks_before:
            started(zygote, "waits")
        assert until_gone(zygote).startswith(
            "the warm process cannot import no_such_module_anywhere: ModuleNotFoundError: No module named"
        )
        assert "ended with code 1" in until_gone(zygote)


def test_a_module_that_starts_threads_is_told_with_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "threaded_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with Zygote(["threaded_module"]) as zygote:
        assert "a library that threaded_module imports has started a thread or more, called python" in until_gone(
            zygote
        )


def test_workers_die_with_the_zygote_and_it_is_told(zygote: Zygote) -> None:
    worker = started(zygote, "ignores")
    first(zygote, Reached, worker)
    pid = pid_of(zygote, worker)
    os.kill(zygote.pid, signal.SIGKILL)
    assert "killed by signal 9" in until_gone(zygote)
    assert ends(pid)
    zygote.close()
    zygote.close()  # nothing is left to be closed


def test_that_the_zygote_is_gone_is_told_though_a_process_left_behind_keeps_the_connection(zygote: Zygote) -> None:
    left = int(first(zygote, Reached, started(zygote, "leaves_a_child_behind")).phase)
    os.kill(zygote.pid, signal.SIGKILL)
    assert "killed by signal 9" in until_gone(zygote)
    os.kill(left, signal.SIGKILL)


def test_nothing_can_be_asked_of_a_zygote_that_is_gone(zygote: Zygote) -> None:
    os.kill(zygote.pid, signal.SIGKILL)
    until_gone(zygote)
    with pytest.raises(ZygoteError, match="the zygote is gone"):
        started(zygote, "waits")


def test_everybody_dies_with_the_controller() -> None:
    command = python_command(WORKERS, "controls", "ignores", "waits", "has_a_child")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        pids = list(map(int, controller.stdout.readline().split()))
        controller.kill()
    assert len(pids) == 4
    assert all(map(ends, pids))


@pytest.mark.parametrize("function", ["waits", "ignores"])
def test_nobody_is_left_once_it_is_closed(function: str) -> None:
    with Zygote() as zygote:
        worker = started(zygote, function)
        first(zygote, Reached, worker)
        pids = [zygote.pid, pid_of(zygote, worker)]
        zygote.close(limit_s=0.05)
        assert all(map(ends, pids))


def test_a_zygote_can_be_closed_before_it_is_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless_module.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.syspath_prepend(tmp_path)
    zygote = Zygote(["endless_module"])
    zygote.close()
    assert ends(zygote.pid)


def test_events_can_be_waited_for_with_others(zygote: Zygote) -> None:
    assert select.select([zygote], [], [], PATIENCE_S)[0] == [zygote]


def test_it_works_where_warnings_are_errors() -> None:
    code = (
        "from executor.zygote import Zygote, Exited\n"
        f"with Zygote() as zygote:\n    zygote.start('{WORKERS}:returns', dict(code=0))\n"
        "    while not any(isinstance(event, Exited) for event in zygote.events(1.0)): pass\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    command: Callable[..., Any] = subprocess.run
    done = command([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_worker_should_not_say_is_told_in_one_line(zygote: Zygote) -> None:
    started(zygote, "says_nonsense")
    with pytest.raises(ZygoteError, match=r"none of its messages: message: .*; kinds allowed here: Cold Exited Forked"):
        first(zygote, Exited)
