"""Runs on the stand-in of NVIDIA's driver, ended by signals: ``python -m tests.crash.endings --n 100 --seed 1``.

As in :mod:`tests.crash`, one process has everything loaded and forks a child for each run: the command line's, or one
that a Python program asks for. At a random moment of it INT, TERM or HUP comes, mostly after its log has begun, and at
times another one soon after. Then nothing of ours stands and the log says why, or the output names the one command
that takes it away; others' instance stands as it did. The run's clock is the machine's, only faster.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from tests.crash.kinds import Driven

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_SHARE, AGAIN_S = 0.3, 0.1
"""How often a second signal comes, and how long after the first at most."""

BEGUN_SHARE = 0.75
"""How often the first one waits until the log has begun; else it comes at any moment."""

FASTER = 60.0
"""Seconds that the run's clock shows more each second."""

ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
"""Whether a process has ended, without waiting for it."""

Act = Callable[["Driven", Path], None]


def main() -> int:
    """End as many runs as asked, and print what became of them; 1 if one ended otherwise than it should."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"  # before numpy is loaded: a process of several threads is not to be forked
    from tests.crash.kinds import Driven, driven

    parser = argparse.ArgumentParser(prog="python -m tests.crash.endings", description=__doc__)
    parser.add_argument("--n", type=int, default=20, help="how many runs")
    parser.add_argument("--seed", type=int, default=1, help="of the moments; where they hit depends on the machine")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="migrator-endings-"))
    kinds = [one for one in driven(folder) if isinstance(one, Driven)]  # none without gcc
    told, wrong = Counter[str](), list[str]()
    for kind in kinds:
        trials = [Trial(kind, act, folder / name, told) for name, act in ACTS.items()]
        lengths_s = [trial.lengths_s() for trial in trials]
        chance = random.Random(options.seed)
        for number in range(options.n):
            act = number % len(ACTS)
            trial = Trial(kind, [*ACTS.values()][act], folder / f"{number}", told)
            problems = [*trial.wrong(chance, lengths_s[act])]
            wrong += [f"{[*ACTS][act]}: {one}\nits files: {trial.folder}" for one in problems]
    print(", ".join(f"{count} {what}" for what, count in sorted(told.items())))
    print("\n".join(wrong) or "every run ended in order")
    if not wrong:
        shutil.rmtree(folder)
    return bool(wrong)


def by_command(kind: Driven, folder: Path) -> None:
    """The command line's run, to its exit."""
    _command("run", str(kind.config), "--out", str(folder / "run"))


def by_program(kind: Driven, folder: Path) -> None:
    """A Python program that asks for a run."""
    import migrator

    migrator.run(migrator.load_config(kind.config), out=folder / "run")


def clear(kind: Driven, folder: Path) -> None:
    """The command that is named where something is left."""
    del kind, folder
    _command("gpu", "clear", "--index", "0")


ACTS = {"migrator run": by_command, "migrator.run()": by_program}


def _command(*arguments: str) -> None:
    from migrator.cli import main as command_line

    sys.argv = ["migrator", *arguments]
    command_line()


class Trial:
    """One run that is ended by signals, on a driver with others' instance; ``told`` counts what became of it."""

    def __init__(self, kind: Driven, act: Act, folder: Path, told: Counter[str]) -> None:
        folder.mkdir()
        self.folder, self._kind, self._act, self._told = folder, kind, act, told
        self._theirs = kind.standin(folder).put("1g.10gb", 6)

    def lengths_s(self) -> tuple[float, float]:
        """Seconds of an undisturbed run, and those after its log began; one before it loads here what runs need."""
        for _ in range(2):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            start_s = time.perf_counter()
            pid = self._forked(self._act)
            self._await_log(pid)
            begin_s = time.perf_counter()
            code = self._ended(pid)
            if code != 0:
                sys.exit(f"endings: an undisturbed run exits with {code}: {self._said}")
        return time.perf_counter() - start_s, time.perf_counter() - begin_s

    def _await_log(self, pid: int) -> None:
        """Return once the log has begun, or the run has ended."""
        while not self._kind.has_begun(self.folder) and not os.waitid(os.P_PID, pid, ENDED):
            time.sleep(0.002)

    def wrong(self, chance: random.Random, lengths_s: tuple[float, float]) -> Iterator[str]:
        """Carry it out and end it; what is wrong with that."""
        pid, sent = self._forked(self._act), chance.choices(SIGNALS, k=1 + (chance.random() < AGAIN_SHARE))
        is_late = chance.random() < BEGUN_SHARE
        if is_late:
            self._await_log(pid)
        for place, number in enumerate(sent):
            time.sleep(chance.uniform(0.0, AGAIN_S if place else lengths_s[is_late]))
            os.kill(pid, number)  # no harm if it has ended: nobody has waited for it yet
        code = self._ended(pid)
        self._told[f"exited with {code}"] += 1
        said, left = self._said, set(self._kind.standin(self.folder).standing()) - {self._theirs}
        # Of two that come at once Python may take the second first; one that comes before all else ends the process.
        if code not in {0, *(128 + number for number in sent), *(-number for number in sent)}:
            yield f"{' and '.join(number.name for number in sent)} made it exit with {code}: {said}"
        if any(word in said for word in ("Traceback", "unforeseen", "Exception ignored")):
            yield said
        if "gpu clear --index 0" in said:
            self._told["named the command that clears"] += 1
            self._ended(self._forked(clear))
        else:
            yield from self._unsaid(code, said)
            if left:
                yield f"{left} stands, and nothing says so: {said}"
        if self._kind.standin(self.folder).standing() != (self._theirs,):
            yield f"in the end {self._kind.standin(self.folder).standing()} stands: {said}"

    def _unsaid(self, code: int, said: str) -> Iterator[str]:
        """What the log should say, and does not."""
        from migrator.log.report import report_of
        from migrator.log.runlog import read_log

        if not self._kind.has_begun(self.folder):
            self._told["ended before the log began"] += 1
            return
        ending = report_of(read_log(self.folder / "run")).ending
        self._told[f"have a log that is {ending}"] += 1
        if ending != "finished" and (code == 0 or ending != "interrupted"):
            yield f"exits with {code}, its log is {ending}: {said}"

    @property
    def _said(self) -> str:
        return (self.folder / "said").read_text()

    def _ended(self, pid: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def _forked(self, act: Act) -> int:
        """A child that does this, and ends as a program would; its process id."""
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code: object = 1
        try:
            from executor.clock import WallClock

            os.environ |= {**self._kind.standin(self.folder).environment, "XDG_STATE_HOME": str(self.folder / "state")}
            said = os.open(self.folder / "said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(said, stream)
            with mock.patch("migrator.execution.real.WallClock", partial(WallClock, rate=FASTER)):
                act(self._kind, self.folder)
            code = 0
        except SystemExit as ending:
            code = ending.code
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        except BaseException:  # noqa: BLE001 - the child ends here, whatever it is
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    sys.exit(main())
