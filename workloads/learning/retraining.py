"""One retraining as a process: it takes a :class:`RetrainingJob`, tells its course by lines, and leaves when it has to.

``python -m workloads.learning.retraining`` reads the job as one line of JSON from its standard input and tells on its
standard output, which nothing else writes to. The input stays open: when it ends, the process that started this one is
gone, and it leaves at the next step. So it does at SIGTERM. What it has reported stays: a checkpoint's file is whole
before its line is sent. A child forked from a warm process calls :func:`forked` and tells its course in a file.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

from msgspec import Struct, field

from executor.files import open_appended
from executor.messages import MessageError, as_text, value_in
from executor.zygote import Reporter
from workloads.errors import LearningError, WorkloadError
from workloads.learning.course import Failed, Finished, Option, Told, line_of
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import Asked, Benchmark, Samples
from workloads.learning.models import Classifier
from workloads.learning.watch import Cut, Steps, StepWatch, TimedSteps
from workloads.live.model import loaded

LOOK_S = 0.005
"""A process that is to wait until it is let go looks so often whether it is."""

MOST_LINE_BYTES = 2**20
"""A job is no longer than this."""

GRACE_S = 5.0
"""Seconds until the process ends, whatever it is doing, once its parent is gone or its time is over."""


class Fit(Protocol):
    """A trainer: changes the classifier in place and tells each step."""

    def __call__(
        self, classifier: Classifier, new: Samples, memory: Samples, option: Option, *, seed: int, steps: Steps
    ) -> None:
        """See :func:`workloads.learning.training.fit`."""


class RetrainingJob(Struct, frozen=True, forbid_unknown_fields=True):
    """What a retraining process is asked.

    Attributes:
        model: A name of the catalogue, or ``module:callable`` that makes a
            :class:`~workloads.learning.models.Classifier`.
        benchmark: Name of the benchmark.
        experience: Number of the experience to learn, from 0.
        option: How.
        out: Folder for checkpoints; it is made, in one that is there, if it is missing.
        weights: File of the served weights to begin with; ``None`` for what the model is made with.
        time_s: Seconds from the process's start within which it must have ended; ``None``: it may take any time.
        seed: Of the benchmark, of drawn samples and of training.
        folder: Where the data set lies; ``None`` for the usual place.
        asked: What accuracy is about.
        model_options: Handed to the model beside shape, classes and type of its inputs.
        timed_every_s: It only tells, so often, what its steps took, until it is asked to leave; ``None``: it learns.

    Raises:
        LearningError: ``time_s`` is no finite number > 0, or ``asked`` is unknown.
    """

    model: str
    benchmark: str
    experience: int
    option: Option
    out: Path
    weights: Path | None = None
    time_s: float | None = None
    seed: int = 0
    folder: Path | None = None
    asked: Asked = "new"
    model_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timed_every_s: float | None = None

    def __post_init__(self) -> None:
        if self.time_s is not None and not 0 < self.time_s < math.inf:
            raise LearningError(f"retraining: time_s is {self.time_s}; a finite number > 0 is needed")
        if self.asked not in get_args(Asked):
            raise LearningError(f"retraining: asked is {self.asked!r}; {' or '.join(get_args(Asked))} is allowed")

    def line(self) -> bytes:
        """The job as one line of JSON."""
        return as_text(self).encode() + b"\n"


def job_in(line: str | bytes) -> RetrainingJob:
    """What :meth:`Job.line` wrote.

    Raises:
        LearningError: It is no job; the message says what is wrong.
    """
    try:
        return value_in(line, RetrainingJob)
    except MessageError as error:
        raise LearningError(
            f"a retraining was asked {line[:80]!r}: {error}; one line of JSON, a Job, is needed"
        ) from error


class Leaving:
    """Whether to leave, and why; the first reason stays."""

    def __init__(self) -> None:
        self._why: tuple[str, str] | None = None

    def __call__(self) -> tuple[str, str] | None:
        """A cause and a reason, or ``None``."""
        return self._why

    def because(self, cause: str, reason: str) -> None:
        """Leave at the next step."""
        self._why = self._why or (cause, reason)


def retrained(
    job: RetrainingJob,
    tell: Callable[[Told], None],
    *,
    since_s: float | None = None,
    leaving: Callable[[], tuple[str, str] | None] = lambda: None,
    now: Callable[[], float] = time.monotonic,
    warm: Callable[[], None] = lambda: None,
) -> Finished | Failed:
    """Carry the job out, report its course, and return its end, which is reported as well.

    Args:
        job: What to do.
        tell: Takes each line as it happens.
        since_s: The reading of ``now`` at which the process started.
        leaving: As :class:`~workloads.learning.watch.StepWatch` takes it.
        now: A clock in seconds.
        warm: Called when data and model are there, before anything is computed with them.
    """
    start_s = now() if since_s is None else since_s
    try:
        return _trained(job, tell, start_s, leaving, now, warm)
    except Cut as cut:
        failed = Failed(cut.cause, str(cut), now() - start_s)
    except WorkloadError as error:
        failed = Failed("input", str(error), now() - start_s)
    except MemoryError:
        failed = Failed("error", "memory is full", now() - start_s)
    except Exception as error:  # noqa: BLE001 - the disk, the GPU, torch about a batch, or a user's model about anything
        failed = Failed("error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", now() - start_s)
    tell(failed)
    return failed


def _trained(
    job: RetrainingJob,
    tell: Callable[[Told], None],
    since_s: float,
    leaving: Callable[[], tuple[str, str] | None],
    now: Callable[[], float],
    warm: Callable[[], None],
) -> Finished:
    data = benchmark(job.benchmark, seed=job.seed, folder=job.folder, asked=job.asked)
    new = data.train(job.experience, job.option.n_samples, job.seed)
    memory = data.memory(job.experience, job.option.memory, job.seed)
    model, fit = learner(job, data), fit_of(job.option)
    if job.timed_every_s is not None:
        warm()
        timed = TimedSteps(job.timed_every_s, tell=tell, since_s=since_s, leaving=leaving, now=now)
        fit(model, new, memory, job.option, seed=job.seed, steps=timed)
        raise LearningError("it made all its steps before it was asked to leave; more epochs are needed to time them")
    test = data.test(job.experience)
    job.out.mkdir(exist_ok=True)
    facts = {
        "benchmark": job.benchmark,
        "experience": str(job.experience),
        "option": job.option.name,
        "seed": str(job.seed),
    }

    def write(share: float, accuracy: float) -> str:
        path = job.out / (f"checkpoint-{share:.3f}.safetensors" if share < 1 else "final.safetensors")
        model.save(path, {**facts, "share": f"{share:.6f}", "accuracy": f"{accuracy:.6f}"})
        return str(path)

    watch = StepWatch(
        job.option.checkpoints,
        measure=lambda: model.accuracy(test.inputs, test.labels, watch.check),
        write=write,
        tell=tell,
        time_s=math.inf if job.time_s is None else job.time_s,
        since_s=since_s,
        leaving=leaving,
        now=now,
    )
    warm()
    watch.begin(model.weights)
    fit(model, new, memory, job.option, seed=job.seed, steps=watch)
    return watch.finish()


def fit_of(option: Option) -> Fit:
    """The trainer that the option names."""
    if option.trainer == "avalanche":
        from workloads.learning.avalanche import fit  # noqa: PLC0415 (Avalanche is heavy)
    else:
        from workloads.learning.training import fit  # noqa: PLC0415 (beside the other one)
    return fit


def learner(job: RetrainingJob, data: Benchmark) -> Classifier:
    """The job's model for the benchmark's inputs, with the served weights.

    Raises:
        WorkloadError: There is no such model, the weights do not fit, or a user's model cannot be trained here.
    """
    options = {**data.model_options, **job.model_options}
    model = loaded(job.model, options)
    if not isinstance(model, Classifier):
        raise LearningError(f"model {job.model!r} is a {type(model).__name__}; a Classifier is needed to retrain it")
    if job.weights is not None:
        model.load(job.weights)
    return model


def work(reading_fd: int, writing_fd: int) -> int:
    """Read one job from ``reading_fd``, carry it out, report on ``writing_fd``, and return the exit code.

    For the main thread of a process that does nothing else. 0: finished, or left when asked to; 1: failed, and told so.
    """
    since_s = time.monotonic()
    leaving = _leaving_when_asked()
    out = os.fdopen(writing_fd, "wb", buffering=0)

    def tell(told: Told) -> None:
        try:
            out.write(line_of(told))
        except OSError:
            leaving.because("parent", "no process listens any more")

    try:
        job = job_in(_line_from(reading_fd))
    except LearningError as error:
        tell(Failed("input", str(error), 0.0))
        return 1
    threading.Thread(target=_await_end, args=(reading_fd, since_s, leaving, tell), daemon=True).start()
    return _carried_out(job, tell, leaving, since_s, lambda: None)


def forked(reporter: Reporter, *, job: str, course: str, go: str = "") -> int:
    """Carry out the job, which is what :meth:`Job.line` wrote, in a child of a warm process; its exit code.

    The lines of its course are appended to the file ``course``; after each the reporter tells its kind as a phase, and
    ``warm`` when data and model are there. With ``go`` it computes nothing before there is a file of this name. The
    child is killed with the process that it was forked from.

    Raises:
        LearningError: It is no job.
        OSError: The course cannot be written.
    """
    since_s = time.monotonic()
    leaving, asked = _leaving_when_asked(), job_in(job)
    with open_appended(Path(course)) as out:

        def tell(told: Told) -> None:
            out.write(line_of(told))
            reporter.reached(told.kind)

        def warm() -> None:
            reporter.reached("warm")
            while go and leaving() is None and not Path(go).exists():
                time.sleep(LOOK_S)

        return _carried_out(asked, tell, leaving, since_s, warm)


def _leaving_when_asked() -> Leaving:
    """Leaves at SIGTERM; Ctrl-C reaches all in the terminal, and the process that started this one decides."""
    leaving = Leaving()
    signal.signal(signal.SIGTERM, lambda *_: leaving.because("stopped", "SIGTERM"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return leaving


def _carried_out(
    job: RetrainingJob, tell: Callable[[Told], None], leaving: Leaving, since_s: float, warm: Callable[[], None]
) -> int:
    """The exit code; a job that hangs is ended a while after its time."""
    over = threading.Event()
    if job.time_s is not None:
        threading.Thread(target=_end_late, args=(job.time_s, since_s, over, tell), daemon=True).start()
    told = retrained(job, tell, since_s=since_s, leaving=leaving, warm=warm)
    over.set()
    return 0 if isinstance(told, Finished) or told.cause in {"stopped", "parent"} else 1


def _line_from(fd: int) -> bytes:
    raw = b""
    while not raw.endswith(b"\n") and len(raw) < MOST_LINE_BYTES:
        # Byte by byte: what follows the line is not ours.
        if not (part := os.read(fd, 1)):
            break
        raw += part
    return raw


def _await_end(fd: int, since_s: float, leaving: Leaving, tell: Callable[[Told], None]) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        pass
    leaving.because("parent", "the parent process is gone")
    time.sleep(GRACE_S)
    tell(Failed("parent", "the parent process is gone, and this one did not end by itself", time.monotonic() - since_s))
    os._exit(0)  # it may hang in a step, or in a download


def _end_late(time_s: float, since_s: float, over: threading.Event, tell: Callable[[Told], None]) -> None:
    left_s = since_s + time_s + GRACE_S - time.monotonic()
    if over.wait(min(max(0.0, left_s), threading.TIMEOUT_MAX)):
        return
    done_s = time.monotonic() - since_s
    tell(Failed("deadline", f"it hung: its {time_s:g} s are over, and it did not end by itself", done_s))
    os._exit(1)


def main() -> int:
    """Work for the process that holds the other ends of this process's input and output."""
    writing_fd = os.dup(1)
    os.dup2(2, 1)  # libraries print; what they print goes where errors go
    return work(0, writing_fd)


if __name__ == "__main__":
    # At once: tearing torch down takes a second, in which no other process has the instance. All files are synced.
    os._exit(main())
