"""What is killed: kinds of runs, how each is begun and taken up again, and what must be true of it in the end."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from migrator.commands.run import run_command
from migrator.config.reading import config_yaml, read_config, validate_config
from migrator.execution.loop import Loop
from migrator.execution.simulated import simulated_parts
from migrator.inputs.assembly import assemble
from migrator.log.records import Resumed
from migrator.log.report import report_of
from migrator.log.resumed import ResumedLog
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, RunLog, read_log
from planner.policies.registry import policy_of
from tests.migrator.conftest import SMALL, changed
from tests.migrator.execution.resuming import SHORT, resumed, same
from tests.standin.cards import A100_80
from tests.standin.standin import DriverClock, Programs, StandIn, build


class Kind(Protocol):
    """A kind of run. ``folder`` is that of one trial: empty when the run begins, and the kind's own.

    ``begin`` and ``resume`` are called in a child, which may be killed at any moment, the others in the parent.
    """

    @property
    def name(self) -> str:
        """As ``--kind`` takes it."""
        ...

    def begin(self, folder: Path) -> None:
        """Carry out a whole run."""
        ...

    def has_begun(self, folder: Path) -> bool:
        """Whether the run came so far that it can be taken up again."""
        ...

    def resume(self, folder: Path) -> None:
        """Take the run up again, and carry it out to its end."""
        ...

    def wrong(self, folder: Path, undisturbed: Path) -> str | None:
        """What is wrong with a run that has ended, beside one that was never killed; ``None`` if nothing is."""
        ...


def _has_begun(folder: Path) -> bool:
    """Whether the log in ``folder`` has its first record, without which no run is taken up again."""
    path = folder / "run" / EVENTS_FILE
    return path.exists() and b"\n" in path.read_bytes()


class Simulated:
    """A short simulated run under a policy, which has to end as if it had never been killed, byte for byte."""

    def __init__(self, name: str, policy: str, changes: Mapping[str, Any]) -> None:
        self.name, self._policy = name, policy
        config = validate_config(changed(SMALL, {**SHORT, **changes}), "crash")
        self._setting, self._traffic = assemble(config, "crash")

    def begin(self, folder: Path) -> None:
        run = Loop(self._setting, simulated_parts(self._setting, self._traffic, policy_of(self._policy)))
        with RunLog(folder / "run", config_yaml(self._setting.config, folder / "run")) as log:
            run.carry_out(log)

    def has_begun(self, folder: Path) -> bool:
        return _has_begun(folder)

    def resume(self, folder: Path) -> None:
        with ResumedLog(folder / "run") as log:
            if not log.is_finished:
                setting, traffic = assemble(read_config(folder / "run" / CONFIG_FILE), "crash")
                resumed(log, setting, traffic, policy_of(self._policy)).carry_out(log)

    def wrong(self, folder: Path, undisturbed: Path) -> str | None:
        logs = [(one / "run" / EVENTS_FILE).read_bytes() for one in (folder, undisturbed)]
        reports = [report_of(read_log(one / "run")) for one in (folder, undisturbed)]
        if reports[0].total != reports[1].total:
            return f"totals are {reports[0].total}, undisturbed {reports[1].total}"
        return None if same(logs[0]) == same(logs[1]) else "the log is not that of an undisturbed run"


class Driven:
    """A short run on a stand-in's GPU, with others' instance beside it; the driver's clock is the run's.

    That clock stands still while nobody waits on it, so driver calls are made inline, on the run's own thread: a
    process with a second one could not be forked. Calls on a thread of their own are the matter of ``test_real.py``.
    Before some resumptions the machine is rebooted. The torn windows may be void; everything else has to be accounted.
    """

    name = "driven"

    def __init__(self, programs: Programs, config: Path) -> None:
        self._programs, self.config = programs, config
        changes = {**SHORT, "windows": 6, "gpu.backend": "nvml", "planner.max_schedules": 2}
        config.write_text(json.dumps(changed(SMALL, changes)))
        ctypes.CDLL(str(programs.library))

    def begin(self, folder: Path) -> None:
        standin = self.standin(folder)
        theirs = standin.put("1g.10gb", 6)
        (folder / "theirs").write_text(repr(theirs))
        with self._driven(standin):
            run_command(self.config, out=folder / "run", state=folder / "state")

    def has_begun(self, folder: Path) -> bool:
        return _has_begun(folder)

    def resume(self, folder: Path) -> None:
        standin = self.standin(folder)
        reboots = folder / "reboots"  # a kill may fall between the reboot and what is noted of it
        if reboots.exists() or standin.state.n_calls % 4 == 0:
            reboots.touch()
            standin.reboot()
            (folder / "theirs").write_text(repr(standin.put("1g.10gb", 6)))
            reboots.unlink()
        with self._driven(standin):
            run_command(resume=folder / "run", state=folder / "state")

    def wrong(self, folder: Path, undisturbed: Path) -> str | None:
        log, whole = read_log(folder / "run"), read_log(undisturbed / "run")
        void = {window for joined in log.of(Resumed) for window in joined.void}
        if report_of(log).ending != "finished" or {*log.settled, *void} != set(whole.settled) or void & {*log.settled}:
            return f"settled are {sorted(log.settled)}, void {sorted(void)}"
        for window, closing in log.settled.items():
            if any(
                own.arrivals != whole.settled[window].tenants[name].arrivals for name, own in closing.tenants.items()
            ):
                return f"window {window} has other requests than undisturbed"
        left = [repr(item) for item in self.standin(folder).standing()]
        return None if left == [(folder / "theirs").read_text()] else f"on the GPU is {left}"

    def standin(self, folder: Path) -> StandIn:
        return StandIn(folder / "driver", self._programs, A100_80)

    @contextmanager
    def _driven(self, standin: StandIn) -> Iterator[None]:
        """This process meets the stand-in, and says nothing."""
        os.environ.update(standin.environment)
        clock = mock.patch("migrator.execution.real.WallClock", lambda start_s=0.0: DriverClock(standin, start_s))
        with clock, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
            yield
        standin.close()


def driven(folder: Path) -> tuple[Kind, ...]:
    """Runs on a real GPU's driver, if gcc can make one."""
    spec = importlib.util.find_spec("pynvml")
    if shutil.which("gcc") is None or spec is None or spec.origin is None:
        sys.stderr.write("gcc IS ABSENT: no run on the stand-in of NVIDIA's driver is killed\n")
        return ()
    return (Driven(build(folder / "standin", Path(spec.origin)), folder / "driven.yaml"),)


def kinds(folder: Path) -> dict[str, Kind]:
    """All kinds, by name; each with what its children would else prepare again and again, in ``folder`` if need be."""
    made: tuple[Kind, ...] = (
        *driven(folder),
        Simulated("instances", "migrator-paper", {"windows": 4}),
        Simulated("shares", "ekya", {"windows": 6}),
        Simulated("turns", "whole", {"windows": 12}),
    )
    return {kind.name: kind for kind in made}
