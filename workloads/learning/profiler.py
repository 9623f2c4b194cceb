"""What has to be learned and measured beside the instances, for a controller that itself loads no torch.

Each function here is run in a child of a warm process and writes what it found to a file, whole. A benchmark's first
experience is what the model has learned before a run; window ``w`` of the run asks about experience ``w + 1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from executor.files import read_input, write_whole
from executor.messages import value_in
from workloads.errors import LearningError, WorkloadError
from workloads.learning.course import Finished, Option, Started, Told
from workloads.learning.curve import Correction, Point, estimates, fitted
from workloads.learning.datasets import benchmark
from workloads.learning.experiences import LABEL_BYTES, Benchmark, Replay, Samples, encoded, held_out
from workloads.learning.inbox import Inbox, benchmark_in
from workloads.learning.models import Classifier
from workloads.learning.retraining import RetrainingJob, fit_of, job_in, learner, retrained
from workloads.learning.watch import Cut
from workloads.live.model import answers_of, loaded, take_weights

SHARES = (0.1, 0.25)
"""Of the training set: how much the subsets hold."""

LEAST_SAMPLES = 128
"""A subset holds no less, if there is as much: a handful of steps shows no curve."""

N_EPOCHS = 6
"""Epochs on each subset; a point is measured after each."""

HELD_OUT = 0.2
"""Share of the training set, and of the memory, that the points are measured with."""


def measured(
    classifier: Classifier,
    benchmark: Benchmark,
    number: int,
    option: Option,
    *,
    seed: int,
    budget_s: float,
    shares: Sequence[float] = SHARES,
    now: Callable[[], float] = monotonic,
) -> list[Point]:
    """Points of the learning curve of experience ``number``; the classifier itself is left as it is.

    Args:
        classifier: The served model.
        benchmark: Whose training sets are used.
        number: Of the experience that is to be learned.
        option: Strategy, batch, learning rate and memory; its samples and epochs are not used.
        seed: The same seed has the same accuracies on a CPU.
        budget_s: Seconds after which no further step is made. What is measured until then is returned, maybe nothing.
        shares: Of the training set, one subset each.
        now: A clock in seconds.
    """
    rng = np.random.default_rng((seed, number, 4))
    train, new_judge = held_out(benchmark.train(number, None, seed), HELD_OUT, rng)
    memory, judges = benchmark.memory(number, option.memory, seed), [(1.0, new_judge)]
    if benchmark.asked == "seen" and len(memory):
        memory, old_judge = held_out(memory, HELD_OUT, rng)
        judges = [(1 / (number + 1), new_judge), (number / (number + 1), old_judge)]
    end_s = now() + budget_s
    points: list[Point] = []
    for size in sorted({min(len(train), max(LEAST_SAMPLES, round(share * len(train)))) for share in shares}):
        copied, subset = classifier.copied(), train.drawn(size, rng)
        epochs = _Epochs(copied, judges, size, -(-size // option.batch), end_s, now)
        try:
            fit_of(option)(copied, subset, memory, replace(option, n_epochs=N_EPOCHS), seed=seed, steps=epochs)
        except Cut:
            return points + epochs.points
        points += epochs.points
    return points


class _Epochs:
    """Measures after each epoch, and ends the training when its time is up."""

    def __init__(
        self,
        classifier: Classifier,
        judges: list[tuple[float, Samples]],
        size: int,
        n_steps: int,
        end_s: float,
        now: Callable[[], float],
    ) -> None:
        self.points: list[Point] = []
        self._classifier = classifier
        self._judges = judges
        self._size = size
        self._n_steps = n_steps
        self._end_s = end_s
        self._now = now
        self._n_done = 0
        self._trained_s = 0.0
        self._since_s = now()

    def step(self, loss: float, n_steps: int) -> None:
        del loss, n_steps
        self._n_done += 1
        if self._now() >= self._end_s:
            raise Cut("deadline", "the time of micro-profiling is up")
        epoch, more = divmod(self._n_done, self._n_steps)
        if more:
            return
        self._trained_s += self._now() - self._since_s
        accuracy = sum(weight * self._classifier.accuracy(s.inputs, s.labels) for weight, s in self._judges)
        self.points.append(Point(self._size * epoch, min(1.0, accuracy), self._trained_s))
        self._since_s = self._now()


LEARNED_BEFORE_EPOCHS = 3
"""So many times an option's epochs a model learns the first experience before a run, which it begins trained."""


LEAST_RISE = 0.05
"""By so much accuracy has to rise while it is measured, unless a whole subset's epochs were."""


class Prepared(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """What a tenant begins with.

    Attributes:
        weights: The file of the weights that are served at first.
        began_with: What the weights were before they learned that: ``pretrained``, ``random``, a file, or ``random``
            with the reason why pretrained ones cannot be had. The file itself, where they are the operator's.
        accuracy: Theirs, on the test set of the first experience.
        n_samples: By experience, how many there are to train on.
        dtype: Of the numbers of a request.
        shape: Of its input.
        n_classes: Labels that there are.
    """

    weights: str
    began_with: str
    accuracy: float
    n_samples: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]
    n_classes: int


class Tried(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A model that only serves was made, has its weights, and has answered.

    Attributes:
        weights: What they are, as in :attr:`Prepared.began_with`; empty where the model does not say.
    """

    weights: str


class Refused(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Takes the place of a benchmark that cannot be had."""

    reason: str


class Came(Struct, frozen=True, forbid_unknown_fields=True):
    """What others have written to learn from, as the window's measuring began.

    Attributes:
        file: Of the samples that came last, with what is remembered of those before; ``None`` where none ever came.
        experience: Its number among the file's.
        is_new: Whether no retraining has ended since they came.
        told: A line for each file, or kind of label, that could not be taken.
    """

    file: str | None
    experience: int
    is_new: bool
    told: tuple[str, ...]


class Measured(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """What is known of a tenant's retraining before it begins.

    Attributes:
        accuracy_before: The served model's on new training data, which no model was trained on yet; ``None`` where
            there is none to measure with.
        raw: By option, what it would reach, before correction; ``None`` where the time was too short to tell.
        accuracy_after: The same, corrected by what past windows taught.
        took_s: What measuring took.
        came: Where its samples are written by others.
    """

    accuracy_before: float | None
    raw: Mapping[str, float] | None
    accuracy_after: Mapping[str, float] | None
    took_s: float
    came: Came | None = None


Found = Prepared | Measured | Tried | Refused
_FOUND: json.Decoder[Found] = json.Decoder(Found)


def found_in(path: Path) -> Found:
    """What a profiler wrote.

    Raises:
        OSError: It cannot be read.
        LearningError: It is nothing of the kind.
    """
    try:
        return _FOUND.decode(read_input(path))
    except (MsgspecError, ValueError) as error:
        raise LearningError(f"{path}: {error}") from error


def number_in(data: Benchmark, window: int) -> int:
    """The experience that is current in a window; −1 is before the run. The last one stays."""
    return data.number_in(window + 1)


def prepare(_: object, *, job: str, requests: str | None, n_by_window: list[int], out: str) -> int:
    """Train the weights that are served at first, unless the job has some, and write which requests are asked.

    Args:
        job: A :class:`~workloads.learning.retraining.RetrainingJob` of experience 0.
        requests: The file to write: ``payloads (n, bytes)``, ``expected (n, 2)``, both of uint8, and ``samples (N,)``:
            which of them each request of the run asks. Empty: none, as others ask.
        n_by_window: How many requests arrive in each window.
        out: The file to write a :class:`Prepared` to; or :class:`Refused` with one line, where there is no such
            benchmark or model, its data cannot be had, or it cannot be trained.
    """
    found: Found
    try:
        found = _prepared(job_in(job), None if requests is None else Path(requests), n_by_window)
    except WorkloadError as error:
        found = Refused(str(error))
    _write(Path(out), found)
    return 0


def _prepared(asked: RetrainingJob, requests: Path | None, n_by_window: list[int]) -> Prepared:
    data = benchmark(asked.benchmark, seed=asked.seed, folder=asked.folder, asked=asked.asked)
    if requests is not None:
        _write_requests(requests, data, asked.seed, n_by_window)
    asked.out.parent.mkdir(parents=True, exist_ok=True)  # later retrainings write there, too
    file, began_with, accuracy = _as_given(asked, data) if asked.weights else _as_trained(asked)
    n_samples = tuple(len(experience.train) for experience in data.experiences)
    return Prepared(file, began_with, accuracy, n_samples, data.dtype.name, tuple(data.shape), data.n_classes)


def _as_given(asked: RetrainingJob, data: Benchmark) -> tuple[str, str, float]:
    """The operator's weights: their file, what they are, and their accuracy on the first experience."""
    model, test = learner(asked, data), data.test(0)
    return str(asked.weights), model.weights, model.accuracy(test.inputs, test.labels)


def _as_trained(asked: RetrainingJob) -> tuple[str, str, float]:
    """The same of weights that are trained now."""
    option = replace(asked.option, n_samples=None, n_epochs=LEARNED_BEFORE_EPOCHS * asked.option.n_epochs)
    course: list[Told] = []
    told = retrained(replace(asked, option=replace(option, checkpoints=())), course.append)
    if not isinstance(told, Finished):
        raise LearningError(f"the first weights cannot be trained: {told.reason}")
    return told.file, next(one.weights for one in course if isinstance(one, Started)), told.accuracy


def try_out(
    _: object, *, model: str, options: Mapping[str, Any], weights: str | None, input_bytes: int, out: str
) -> int:
    """Make a model that only serves, as its workers will, and have it answer one input of zeros.

    Args:
        model: Its name, or ``module:callable``.
        options: What it is made with.
        weights: The file of its weights; ``None``: those that it is made with.
        input_bytes: Of one input.
        out: The file to write a :class:`Tried` to; or :class:`Refused` with one line, where there is no such model, the
            weights do not fit, or it does not answer with a label.
    """
    found: Found
    try:
        made = loaded(model, options)
        if weights is not None and (reason := take_weights(made, Path(weights))):
            raise LearningError(reason)
        (answer,) = answers_of(made, [bytes(input_bytes)])
        if len(answer) != LABEL_BYTES:
            raise LearningError(f"model {model!r}: it answers with {len(answer)} bytes; a label has {LABEL_BYTES}")
        found = Tried(made.weights if isinstance(made, Classifier) else "")
    except WorkloadError as error:
        found = Refused(str(error))
    _write(Path(out), found)
    return 0


def estimate(
    _: object,
    *,
    job: str,
    options: Mapping[str, Mapping[str, Any]],
    window: int,
    budget_s: float,
    correction: Mapping[str, Any],
    inbox: str | None = None,
    trained: int = -1,
    out: str,
) -> int:
    """Measure what the served model knows of a window's new data, and what each way to retrain would bring.

    Args:
        job: A :class:`~workloads.learning.retraining.RetrainingJob` that may be carried out, with the served weights.
        options: Its ways to retrain by name: what each changes of the job's own, samples and epochs; all are read off
            one curve.
        window: Of the run.
        budget_s: Seconds that micro-profiling may take.
        correction: A :class:`~workloads.learning.curve.Correction` by its fields.
        inbox: The :class:`~workloads.learning.inbox.Inbox` whose samples are learned, from which new ones are taken up.
        trained: The last window whose retraining has ended, where there is one.
        out: The file to write a :class:`Measured` to.

    Raises:
        WorkloadError: The data or the weights cannot be had.
    """
    begin_s = monotonic()
    asked, came = job_in(job), None
    if inbox is not None:
        came = _came(value_in(inbox, Inbox), window, trained)
        if came.file is None:
            _write(Path(out), Measured(None, None, None, monotonic() - begin_s, came))
            return 0
        asked = replace(asked, folder=Path(came.file))
    data = benchmark(asked.benchmark, seed=asked.seed, folder=asked.folder, asked=asked.asked)
    number, model = number_in(data, window), learner(asked, data)
    # Requests ask about the test set, which is not known yet; the new training data is, and was not trained on.
    _, unseen = held_out(data.train(number, None, asked.seed), HELD_OUT, np.random.default_rng((asked.seed, number, 5)))
    before = _accuracy_before(asked, data, number, model.accuracy(unseen.inputs, unseen.labels), model)
    points = list[Point]()
    if came is None or came.is_new:
        points = measured(model, data, number, asked.option, seed=asked.seed, budget_s=budget_s)
    found = Measured(before, None, None, monotonic() - begin_s, came)
    if _tell_a_curve(points, before):
        n_all = len(data.current(number).train)
        ways = [replace(asked.option, **{"name": name, **own}) for name, own in options.items()]
        told = estimates(fitted(points), ways, n_all=n_all, slowdown={"here": 1.0}, correction=Correction(**correction))
        raw, after = ({one.option.name: getattr(one, key) for one in told} for key in ("raw", "accuracy"))
        found = Measured(before, raw, after, monotonic() - begin_s, came)
    _write(Path(out), found)
    return 0


def _came(inbox: Inbox, window: int, trained: int) -> Came:
    told = tuple(inbox.take_up(window))
    newest = inbox.newest
    if newest is None:
        return Came(None, 0, is_new=False, told=told)
    since, file = newest
    return Came(str(file), len(benchmark_in(file, "new").experiences) - 1, is_new=since > trained, told=told)


def _tell_a_curve(points: Sequence[Point], before: float) -> bool:
    """Whether the points can be read further out: not one alone, nor a few cut off before anything was learned."""
    if len({point.passes for point in points}) < 2:
        return False
    return len(points) >= N_EPOCHS or max(point.accuracy for point in points) >= before + LEAST_RISE


def _accuracy_before(asked: RetrainingJob, data: Benchmark, number: int, on_new: float, model: Any) -> float:
    """On what is asked: the new experience alone, or all until it, each by its share."""
    if data.asked == "new" or number == 0:
        return on_new
    old: Samples = data.memory(number, max(asked.option.memory, 64), asked.seed)
    return float((on_new + number * model.accuracy(old.inputs, old.labels)) / (number + 1))


def _write_requests(path: Path, data: Benchmark, seed: int, n_by_window: list[int]) -> None:
    payloads: list[bytes] = []
    expected: list[bytes] = []
    place: dict[tuple[bytes, int], int] = {}
    samples: list[int] = []
    for window, n_requests in enumerate(n_by_window):
        number = number_in(data, window)
        replay = Replay(data, number, seed)
        # Windows of one experience go on where the one before has ended.
        begun = sum(n for earlier, n in enumerate(n_by_window[:window]) if number_in(data, earlier) == number)
        for index in range(begun, begun + n_requests):
            request = replay.request(index)
            key = request.payload, request.label
            if key not in place:
                place[key] = len(payloads)
                payloads.append(request.payload)
                expected.append(encoded(request.label))
            samples.append(place[key])
    np.savez(
        path,
        payloads=np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1),
        expected=np.frombuffer(b"".join(expected), np.uint8).reshape(len(expected), -1),
        samples=np.array(samples, np.int64),
    )


def _write(path: Path, found: Found) -> None:
    write_whole(path, json.encode(found))
