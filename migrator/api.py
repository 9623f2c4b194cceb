"""The product from Python: what verbs of the command line do, as calls that return values; ``docs/python.md``.

What is wrong is raised as :class:`migrator.errors.MigratorError`, or an error of the planner or the GPU, with the line
that the command line prints. Rows are dictionaries, as ``pandas.DataFrame`` takes them; their keys are the fields of
``--json``.
"""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrator.commands.running import OnGpu, begin
from migrator.comparison.matches import Fairness, MatchScore, matches_of, score_of, told_apart, with_hindsight
from migrator.config.reading import read_config
from migrator.config.sections import Config
from migrator.errors import ConfigError, MigratorError
from migrator.execution.ahead import plan_through
from migrator.execution.loop import View
from migrator.execution.planning import Solving, require_plan
from migrator.execution.windows import PlannedWindow
from migrator.inputs.assembly import assemble, untraced
from migrator.log.changes import changes_in
from migrator.log.records import WindowFinished
from migrator.log.report import Report, report_of
from migrator.log.runlog import ReadLog, read_log
from migrator.log.slow_plans import slow_plans
from migrator.terminal.console import warn_of
from migrator.terminal.parallel import Processes
from migrator.terminal.signals import Interruption, exit_code, interruptible
from migrator.views.as_json import comparison_to_json, report_to_json
from planner.files.plan_file import plan_to_json
from planner.files.strict import one_or_all
from planner.policies.registry import policy_of

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


class Table(list[Row]):
    """Rows of equal keys, the fields of ``--json``."""

    def to_frame(self) -> pd.DataFrame:
        """A ``pandas.DataFrame`` with a row for each row, and a column for each key.

        Raises:
            MigratorError: pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415 - pandas may be absent, and loads for a second
        except ImportError:
            raise MigratorError("to_frame needs pandas: pip install pandas") from None
        return pd.DataFrame(list(self))


def load_config(path: str | Path, *, set: Mapping[str, object] | None = None) -> Config:  # noqa: A002 - as --set
    """The config in a YAML file, with keys changed by their dotted path, as ``--set`` does.

    Raises:
        ConfigError: It is missing or unreadable, or has an unknown key or a value outside its range.
    """
    if not isinstance(set or {}, Mapping):
        raise ConfigError(f"set is {set!r}; a dictionary is needed, as {{'load': 0.8}}")
    return read_config(_path("path", path), [f"{key}={_as_yaml(key, value)}" for key, value in (set or {}).items()])


def _path(name: str, value: object) -> Path:
    if not isinstance(value, str | Path) or value == "" or "\0" in str(value):
        raise MigratorError(f"{name} is {value!r}; a path is needed")
    return Path(value)


def _as_yaml(key: str, value: object) -> str:
    """The value as ``--set`` takes it: JSON, but for characters that do not print, which YAML escapes its own way."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError):
        raise ConfigError(f"--set {key}: {value!r} cannot be in a config") from None
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)


def _plain(value: Any) -> object:
    """A path as text, and a number of numpy as Python's."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError


@dataclass(frozen=True)
class Run:
    """A run in its folder, finished or cut off, by its log alone.

    Attributes:
        folder: Where its config and its log are.
    """

    folder: Path

    @cached_property
    def log(self) -> ReadLog:
        """All of its records."""
        return read_log(self.folder)

    @cached_property
    def report(self) -> Report:
        """What it came to, as ``migrator report`` shows it."""
        return report_of(self.log)

    def to_frame(self) -> pd.DataFrame:
        """Its :meth:`windows` as a ``pandas.DataFrame``."""
        return self.windows().to_frame()

    def windows(self) -> Table:
        """A row for each window and tenant: ``window``, ``tenant``, and the figures of ``report --json``."""
        return Table(
            {"window": window["window"], "tenant": tenant, **figures}
            for window in report_to_json(self.report)["windows"]
            for tenant, figures in window["tenants"].items()
        )

    def seconds(self) -> Table:
        """A row for each second that is counted, and tenant: the outcomes of the requests that arrived in it.

        ``goodput`` are those that were answered in time and right; ``None`` where nobody knows what is right.
        """
        return Table(
            {
                "second": second,
                "tenant": tenant,
                **{key: getattr(counts, key)[place] for key in ("arrivals", "in_time", "late", "dropped")},
                "goodput": counts.correct[place] if counts.is_labelled else None,
            }
            for record in self.log.of(WindowFinished)
            for place, second in enumerate(self._seconds_of(record.window))
            if not any(first <= second < end for first, end in record.blind)
            for tenant, counts in record.tenants.items()
        )

    def _seconds_of(self, window: int) -> range:
        window_s = round(self.log.header.window_s)
        return range(window * window_s, (window + 1) * window_s)

    def instances(self) -> Table:
        """A row for each instance that a tenant has held, in seconds of the run; ``None`` for an end that is open.

        One that tenants share has a row for each of them, and further rows from when others share it on. Empty where
        tenants had shares of a whole GPU, or turns on it.
        """
        begun = (instance for change in changes_in(self.log) for instance in change.begun)
        return Table(
            {
                "instance": one.name,
                "placement": one.placement,
                "tenant": one.tenant,
                "task": one.task,
                "begin_s": one.begin_s,
                "ready_s": one.served[0][0] if one.served else None,
                "end_s": one.end_s if math.isfinite(one.end_s) else None,
                "gone_s": one.gone_s if math.isfinite(one.gone_s) else None,
            }
            for one in begun
        )


def run(
    config: Config,
    *,
    policy: str | Path = "migrator",
    out: str | Path | None = None,
    time_limit_s: float | None = None,
    stop: threading.Event | None = None,
) -> Run:
    """Carry out a run, simulated, on a real GPU, or live, as its config says, and write its log.

    ``policy`` is a name, or a ``.py`` file; ``out`` is the run's folder, by default ``runs/NAME``, if that is free.
    ``time_limit_s`` are wall seconds for a plan, with which a run is not repeatable. What ``migrator run`` warns of
    goes to standard error here, too.

    On the main thread SIGINT, SIGTERM and SIGHUP end it in order: its log says so, and what it made on a GPU goes. Off
    it no signal is heard, and only ``stop`` ends it so, once it is set.

    Raises:
        KeyboardInterrupt: SIGINT has ended it.
        SystemExit: SIGTERM or SIGHUP has; the code is 143 or 129.
        StoppedError: ``stop`` has; :func:`load_run` reads the log.
        MigratorError: The config, the folder or an argument cannot be used, or a window cannot be planned.
        PolicyError: There is no such policy, or the file holds none.
        GpuError: A real GPU is not there, not as the config has it, or does not answer.
    """
    _require_limit(time_limit_s)
    with _exits_in_order():
        folder, _, _ = begin(
            config,
            _origin(config),
            policy_of(_name(policy)),
            lambda *_: nullcontext(View()),
            where=OnGpu(),
            out=None if out is None else _path("out", out),
            time_limit_s=time_limit_s,
            stop=_event(stop),
        )
    assert folder is not None
    found = Run(folder)
    told = slow_plans(found.log)
    warn_of(() if told is None else (told,))
    return found


@contextmanager
def _exits_in_order() -> Iterator[None]:
    """End the program where TERM or HUP has ended what is inside, with the command line's exit code."""
    with interruptible() as interruption:
        try:
            yield
        except KeyboardInterrupt:
            if interruption.received[:1] in ([], [signal.SIGINT]):
                raise
            raise SystemExit(exit_code(interruption.received)) from None


def load_run(folder: str | Path) -> Run:
    """A run that was carried out before, or is being carried out: what its log holds now.

    Raises:
        LogError: There is no log of ours, or a damaged one.
    """
    found = Run(_path("folder", folder))
    _ = found.log  # what is wrong with it is said here
    return found


@dataclass(frozen=True)
class WindowPlan:
    """The plan of a window, as a run would make it if all before went as planned.

    Attributes:
        planned: The window's forecast, problem, plan, and what the independent checker says of it.
    """

    planned: PlannedWindow

    def to_frame(self) -> pd.DataFrame:
        """Its :meth:`instances` as a ``pandas.DataFrame``."""
        return self.instances().to_frame()

    def to_json(self) -> Row:
        """The plan as ``migrator plan --json`` prints it."""
        return plan_to_json(self.planned.plan)

    @property
    def objective(self) -> float:
        """Expected goodput, in weighted requests, from the step on that the plan begins with."""
        objective = self.planned.plan.objective
        assert objective is not None  # one without a plan was refused
        return objective

    @property
    def gap(self) -> float | None:
        """By which part of the bound a better plan might be better, by the certificate; ``None``: nothing is proven."""
        return self.planned.plan.gap

    @property
    def claimed_gap(self) -> float | None:
        """The same by the engine's word."""
        return self.planned.plan.claimed_gap

    def instances(self) -> Table:
        """A row for each instance that is to be held, in steps of the window, half-open."""
        first = self.planned.plan_from_step
        return Table(
            {
                "placement": str(item.placement),
                "tenant": one_or_all(item.owner.members),
                "task": item.owner.task.value,
                "create_step": first + item.create_step,
                "serve_step": first + item.serve_step,
                "end_step": first + item.end_step,
            }
            for item in self.planned.plan.lifetimes
        )


def plan(
    config: Config, *, window: int = 0, engine: str | None = None, time_limit_s: float | None = None
) -> WindowPlan:
    """Plan a window of a config, and those before it, without a GPU.

    Raises:
        MigratorError: The config has no such window, cannot be used, or the window has no plan.
        EngineError: There is no such engine.
    """
    origin = _origin(config)
    if not _is_whole(window) or not 0 <= window < config.windows:
        raise MigratorError(f"window is {window!r}; {origin} has windows 0 to {config.windows - 1}")
    _require_limit(time_limit_s)
    setting, traffic = assemble(config, origin)
    warn_of(setting.warnings)
    planned = plan_through(setting, traffic, window, Solving(engine=engine, time_limit_s=time_limit_s))[-1]
    require_plan(planned)
    return WindowPlan(planned)


@dataclass(frozen=True)
class Comparison:
    """Several policies on the same requests, simulated.

    Attributes:
        scores: Of each policy on each segment.
    """

    scores: tuple[MatchScore, ...]
    n_segments: int = 1

    def __repr__(self) -> str:
        """One line; ``scores`` has all of it."""
        policies = ", ".join(dict.fromkeys(score.policy for score in self.scores))
        return f"Comparison({len(self.scores)} scores of {policies}, n_segments={self.n_segments})"

    def to_json(self) -> Row:
        """As ``migrator compare --json`` prints it."""
        return comparison_to_json(self.scores, self.n_segments)

    def to_frame(self) -> pd.DataFrame:
        """Its :meth:`rows` as a ``pandas.DataFrame``."""
        return self.rows().to_frame()

    def rows(self) -> Table:
        """A row for each policy, in the order asked for: its figures over all segments, and where requests went."""
        return Table(
            {key: value for key, value in one.items() if key not in ("account", "ahead")}
            | {cause: n for cause, n in one["account"].items() if cause != "goodput"}
            for one in self.to_json()["overall"]
        )


def compare(
    config: Config,
    *,
    policies: Sequence[str | Path],
    windows: int | None = None,
    segments: int = 1,
    jobs: int = 1,
    stop: threading.Event | None = None,
) -> Comparison:
    """Simulate the same requests under several policies; ``segments`` are later pieces of the config's traces.

    Decisions alone are compared: batches are free, and all have the same forecaster. ``jobs`` processes work at once.
    Once ``stop`` is set, the comparison ends with the simulation under way.

    Raises:
        StoppedError: ``stop`` has ended it.
        MigratorError: The config or an argument cannot be used, a trace is too short, or a policy has no plan for a
            first window.
        PolicyError: There is no such policy.
    """
    origin = _origin(config)
    if isinstance(policies, str) or not policies:
        raise MigratorError(f"policies is {policies!r}; a list of names is needed")
    for argument, value in (("windows", 1 if windows is None else windows), ("segments", segments), ("jobs", jobs)):
        if not _is_whole(value) or value < 1:
            raise MigratorError(f"{argument} is {value!r}; a whole number from 1 on is needed")
    given = [_name(one) for one in policies]
    names = [policy_of(name).name for name in given]
    if len(set(names)) < len(names):
        raise MigratorError(f"policies {', '.join(given)}: one is given twice")
    warn_of(untraced(config, origin).warnings)
    if windows is not None:
        config = config.model_copy(update={"windows": windows, "load_windows": config.n_load_windows})
    interruption = Interruption(_event(stop))
    matches = matches_of(config, origin, given, segments, Fairness.POLICY_ONLY)
    wanted = with_hindsight(matches)
    scores = dict[int, MatchScore]()
    with ExitStack() as stack:
        done: Iterator[tuple[int, MatchScore]] = enumerate(map(score_of, wanted))
        if jobs > 1:  # else in this process: then a script needs no guard against being imported anew
            done = stack.enter_context(Processes(min(jobs, len(wanted)))).each(score_of, wanted)
        for place, score in done:
            interruption.check()
            scores[place] = score
    return Comparison(told_apart([scores[place] for place in range(len(wanted))], len(matches)), segments)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _require_limit(time_limit_s: object) -> None:
    if time_limit_s is None:
        return
    if isinstance(time_limit_s, bool) or not isinstance(time_limit_s, Real) or not 0 <= float(time_limit_s) < math.inf:
        raise MigratorError(f"time_limit_s is {time_limit_s!r}; a finite number of seconds, 0 or more, is needed")


def _event(stop: object) -> threading.Event | None:
    if stop is not None and not isinstance(stop, threading.Event):
        raise MigratorError(f"stop is {stop!r}; a threading.Event is needed")
    return stop


def _name(policy: object) -> str:
    if not isinstance(policy, str | Path):
        raise MigratorError(f"policy is {policy!r}; a name, or a .py file, is needed")
    return str(policy)


def _origin(config: object) -> str:
    if not isinstance(config, Config):
        raise MigratorError(f"config is {config!r}; what load_config returns is needed")
    return f"config {config.name}"
