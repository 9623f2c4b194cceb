"""The retraining process: its job, its course, and when it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workloads.errors import LearningError
from workloads.learning.course import Checkpoint, Failed, Finished, Option, Progress, Started, Told, message_in
from workloads.learning.datasets import benchmark
from workloads.learning.models import Classifier, classifier
from workloads.learning.retraining import Leaving, RetrainingJob, job_in, retrained

LONG = Option("long", n_epochs=100_000)


def job(out: Path, option: Option | None = None, **changes: Any) -> RetrainingJob:
    values = {"model": "mlp", "benchmark": "digits-rotated", "experience": 1, **changes}
    return RetrainingJob(option=option or Option("full", n_epochs=2), out=out, **values)


def user_model(**options: Any) -> Classifier:
    """A user's own."""
    return classifier("cnn", **options)


def raising(**_options: Any) -> object:
    raise KeyError("depth")


def no_classifier(**_options: Any) -> object:
    """What can be served, maybe, but not trained."""
    return object()


def test_a_job_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    sent = job(tmp_path, weights=tmp_path / "w", model_options={"weights": "random"}, time_s=30.0)
    assert job_in(sent.line()) == sent


def test_a_job_without_end_comes_back_as_well(tmp_path: Path) -> None:
    assert job_in(job(tmp_path).line()).time_s is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "one line of JSON, a Job, is needed"),
        (b"[]\n", "one line of JSON, a Job, is needed"),
        (b'{"model": "mlp"}\n', "missing required field `benchmark`"),
        (b'{"model": "m", "option": {"name": "x", "colour": 1}}\n', "colour"),
        (b'{"model": "m", "option": {"name": "x", "n_epochs": 0}}\n', "n_epochs is 0"),
    ],
)
def test_a_line_that_is_no_job_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(LearningError, match=said):
        job_in(line)


@pytest.mark.parametrize(("wrong", "said"), [({"time_s": 0.0}, "time_s is 0"), ({"asked": "old"}, "asked is 'old'")])
def test_a_job_that_cannot_be_is_refused(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(LearningError, match=said):
        job(tmp_path, **wrong)


def test_the_first_reason_to_leave_stays() -> None:
    leaving = Leaving()
    leaving.because("stopped", "SIGTERM")
    leaving.because("parent", "gone")
    assert leaving() == ("stopped", "SIGTERM")


def course(what: RetrainingJob, **seams: Any) -> list[Told]:
    told: list[Told] = []
    retrained(what, told.append, **seams)
    return told


@pytest.mark.live
class TestCourse:
    def test_it_starts_keeps_checkpoints_and_finishes(self, tmp_path: Path) -> None:
        kinds = [told.kind for told in course(job(tmp_path)) if not isinstance(told, Progress)]
        assert kinds == ["started", "checkpoint", "checkpoint", "checkpoint", "finished"]

    def test_accuracy_is_low_before_and_higher_after(self, tmp_path: Path) -> None:
        first, *_, last = course(job(tmp_path))
        assert isinstance(first, Started)
        assert isinstance(last, Finished)
        assert first.accuracy < 0.3
        assert last.accuracy > first.accuracy + 0.4

    def test_a_checkpoint_answers_as_right_as_it_was_told(self, tmp_path: Path) -> None:
        checkpoint = next(told for told in course(job(tmp_path)) if isinstance(told, Checkpoint))
        bench = benchmark("digits-rotated")
        model = classifier("mlp", weights=checkpoint.file, **bench.model_options)
        assert model.accuracy(bench.test(1).inputs, bench.test(1).labels) == checkpoint.accuracy

    def test_checkpoints_lie_at_the_shares_that_were_asked(self, tmp_path: Path) -> None:
        told = course(job(tmp_path, Option("x", n_epochs=4, checkpoints=(0.1, 0.6))))
        assert [one.share for one in told if isinstance(one, Checkpoint)] == [0.1, 0.6]

    def test_it_goes_on_from_the_served_weights(self, tmp_path: Path) -> None:
        last = course(job(tmp_path / "a"))[-1]
        assert isinstance(last, Finished)
        again = course(job(tmp_path / "b", weights=Path(last.file)))[0]
        assert isinstance(again, Started)
        assert (again.accuracy, again.weights) == (last.accuracy, last.file)

    def test_the_same_seed_leaves_the_same_bytes(self, tmp_path: Path) -> None:
        files = []
        for name in ("a", "b"):
            course(job(tmp_path / name, Option("x", "replay", n_epochs=1)))
            files.append((tmp_path / name / "final.safetensors").read_bytes())
        assert files[0] == files[1]

    def test_time_that_is_up_is_said_and_what_was_learned_is_kept(self, tmp_path: Path) -> None:
        told = course(job(tmp_path, LONG, time_s=30.0), since_s=0.0, now=_readings(0.05))
        assert isinstance(told[-1], Failed)
        assert told[-1].cause == "deadline"
        assert told[-1].done_s < 30.0
        assert isinstance(told[-2], Checkpoint)

    def test_a_users_own_classifier_is_retrained(self, tmp_path: Path) -> None:
        assert isinstance(course(job(tmp_path, model=f"{__name__}:user_model"))[-1], Finished)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"model": "resnet51"}, "model 'resnet51': unknown"),
            ({"model": f"{__name__}:no_classifier"}, "returns object, which lacks answer"),
            ({"model": f"{__name__}:raising"}, "KeyError: 'depth'"),
            ({"model_options": {"depth": 3}}, "unexpected keyword argument 'depth'"),
            ({"benchmark": "mnist"}, "benchmark 'mnist': unknown"),
            ({"experience": 9}, "experience 9; 0 to 4 are there"),
            ({"weights": Path("/nowhere/w")}, "/nowhere/w: .*safetensors file is needed"),
        ],
    )
    def test_what_cannot_be_done_is_told_in_one_line(self, tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
        (told,) = course(job(tmp_path, **wrong))
        assert isinstance(told, Failed)
        assert told.cause == "input"
        assert __import__("re").search(said, told.reason)

    def test_a_folder_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        told = course(job(tmp_path / "file"))[-1]
        assert isinstance(told, Failed)
        assert "FileExistsError" in told.reason

    def test_a_loss_that_diverges_is_told(self, tmp_path: Path) -> None:
        told = course(job(tmp_path, Option("hot", learning_rate=1e30, checkpoints=())))[-1]
        assert isinstance(told, Failed)
        assert "try a lower learning rate" in told.reason


def _readings(step_s: float) -> Any:
    """A clock that goes on by this much at each look."""
    readings = iter(range(10**9))
    return lambda: next(readings) * step_s


@contextmanager
def process(*first: bytes, code: str = "") -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, *(("-c", code) if code else ("-m", "workloads.learning.retraining"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        try:
            assert running.stdin is not None
            for line in first:
                running.stdin.write(line)
            running.stdin.flush()
            yield running
        finally:
            running.kill()


def lines_until(running: subprocess.Popen[bytes], kind: type[Told]) -> list[Told]:
    found: list[Told] = []
    assert running.stdout is not None
    for line in running.stdout:
        found.append(message_in(line))
        if isinstance(found[-1], kind):
            break
    return found


def test_one_that_hangs_is_ended_when_its_time_is_over(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "from workloads.learning import retraining\n"
        "retraining.GRACE_S = 0.0\n"
        "retraining.benchmark = lambda *_, **__: time.sleep(600)\n"
        "os._exit(retraining.main())"
    )
    with process(job(tmp_path, time_s=0.01).line(), code=code) as running:
        last = lines_until(running, Failed)[-1]
        assert isinstance(last, Failed)
        assert (last.cause, "it hung" in last.reason, running.wait()) == ("deadline", True, 1)


@pytest.mark.live
class TestProcess:
    def test_it_tells_its_course_line_by_line_and_ends_well(self, tmp_path: Path) -> None:
        with process(job(tmp_path).line()) as running:
            assert isinstance(lines_until(running, Finished)[-1], Finished)
            assert running.wait() == 0

    def test_sigterm_ends_it_and_leaves_the_last_checkpoint(self, tmp_path: Path) -> None:
        with process(job(tmp_path, Option("long", n_epochs=100_000, checkpoints=(0.0001,))).line()) as running:
            checkpoint = lines_until(running, Checkpoint)[-1]
            running.send_signal(signal.SIGTERM)
            last = lines_until(running, Failed)[-1]
            assert isinstance(last, Failed)
            assert (last.cause, running.wait()) == ("stopped", 0)
            assert isinstance(checkpoint, Checkpoint)
            assert Path(checkpoint.file).exists()

    def test_it_leaves_when_whoever_started_it_is_gone(self, tmp_path: Path) -> None:
        with process(job(tmp_path, LONG).line()) as running:
            lines_until(running, Started)
            assert running.stdin is not None
            running.stdin.close()
            last = lines_until(running, Failed)[-1]
            assert isinstance(last, Failed)
            assert (last.cause, running.wait()) == ("parent", 0)

    def test_it_leaves_when_its_parent_is_killed(self, tmp_path: Path) -> None:
        reading, writing = os.pipe()
        code = (
            "import subprocess, sys, time\n"
            "p = subprocess.Popen([sys.executable, '-m', 'workloads.learning.retraining'], stdin=subprocess.PIPE)\n"
            f"p.stdin.write({job(tmp_path, LONG).line()!r}); p.stdin.flush(); time.sleep(600)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=writing, stderr=subprocess.DEVNULL) as parent:
            os.close(writing)
            with os.fdopen(reading, "rb") as lines:
                assert json.loads(lines.readline())["kind"] == "started"
                parent.kill()
                # The pipe ends when nobody holds its other end: when the child is gone as well.
                assert json.loads(lines.read().splitlines()[-1])["cause"] == "parent"

    def test_a_job_that_is_none_is_told_and_ends_with_1(self) -> None:
        with process(b"{}\n") as running:
            assert isinstance(lines_until(running, Failed)[-1], Failed)
            assert running.wait() == 1

    def test_a_forked_child_of_a_warm_process_does_the_same(self, tmp_path: Path) -> None:
        code = (
            "import os, socket, sys, torch\n"
            "from workloads.learning.retraining import work\n"
            "ours, theirs = socket.socketpair()\n"
            "if not os.fork():\n"
            "    ours.close()\n"
            "    os._exit(work(theirs.fileno(), os.dup(theirs.fileno())))\n"
            "theirs.close()\n"
            f"ours.sendall({job(tmp_path).line()!r})\n"
            "while part := ours.recv(4096):\n"
            "    sys.stdout.buffer.write(part)\n"
            "print(os.waitstatus_to_exitcode(os.wait()[1]))"
        )
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.splitlines()
        assert isinstance(message_in(said[-2] + b"\n"), Finished)
        assert said[-1] == b"0"

    def test_a_forked_child_computes_nothing_until_it_is_let_go(self, tmp_path: Path) -> None:
        course, go = tmp_path / "course", tmp_path / "go"
        code = (
            "from workloads.learning.retraining import forked\n"
            "from types import SimpleNamespace\n"
            "said = SimpleNamespace(reached=lambda phase: print(phase, flush=True))\n"
            f"forked(said, job={job(tmp_path).line().decode()!r}, course={str(course)!r}, go={str(go)!r})"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "warm\n"
            assert course.read_bytes() == b""
            go.touch()
            assert running.stdout.readline() == "started\n"
            assert running.stdout.read().splitlines()[-1] == "finished"

    def test_a_forked_child_that_waits_to_be_let_go_leaves_when_asked(self, tmp_path: Path) -> None:
        code = (
            "from workloads.learning.retraining import forked\n"
            "from types import SimpleNamespace\n"
            "said = SimpleNamespace(reached=lambda phase: print(phase, flush=True))\n"
            f"forked(said, job={job(tmp_path).line().decode()!r}, course={str(tmp_path / 'course')!r}, go='never')"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "warm\n"
            running.terminate()
            assert running.stdout.read().splitlines() == ["failed"]
