"""Runs killed with SIGKILL at random moments, and taken up again: ``python -m tests.crash --kills 200 --seed 1``.

One process has everything loaded and compiled, and forks a child for each run. It is killed after a random part of the
time that an undisturbed one takes, then resumed by another child, which may be killed as well. What comes out
is compared with the undisturbed run.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.crash.kinds import Kind

MOST_KILLS = 4
"""How often one run is killed at most: when it is begun, and then when it is resumed."""


def main() -> int:
    """Kill as often as asked, and print what became of it; 1 if a run did not come out as an undisturbed one."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"  # before numpy is loaded: a process of several threads is not to be forked
    from tests.crash.kinds import kinds

    folder = Path(tempfile.mkdtemp(prefix="migrator-crash-"))
    found = kinds(folder)
    options = _options(list(found))
    chosen = found if options.kind is None else {options.kind: found[options.kind]}
    told: Counter[str] = Counter()
    wrong: list[str] = []
    lengths_s = {name: _length_s(kind, folder / name) for name, kind in chosen.items()}
    chance, number = random.Random(options.seed), 0
    while told["kills"] < options.kills:
        name = list(chosen)[number % len(chosen)]
        trial = Trial(chosen[name], folder / f"{number}", lengths_s[name], chance, told)
        problem = trial.wrong(folder / name)
        if problem is None:
            shutil.rmtree(folder / f"{number}")
        else:
            wrong.append(f"{name}: {problem}; its files: {folder / f'{number}'}")
        number += 1
    print(", ".join(f"{count} {what}" for what, count in told.items()))
    print("\n".join(wrong) or "every run came out as an undisturbed one")
    if not wrong:
        shutil.rmtree(folder)
    return bool(wrong)


def _options(names: list[str]) -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how many, at least")
    parser.add_argument("--seed", type=int, default=1, help="of the moments; where they hit depends on the machine")
    parser.add_argument("--kind", choices=names, help="only this kind of run")
    return parser.parse_args()


def _length_s(kind: Kind, folder: Path) -> float:
    """Seconds of an undisturbed run, which is in ``folder``. One before it loads in this process what runs need."""
    for act in (kind.begin, lambda place: os.waitpid(_forked(kind.begin, place), 0)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        begin_s = time.perf_counter()
        act(folder)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        sys.exit(f"crash: runs of {kind.name} start threads; a process that has some cannot be forked")
    return time.perf_counter() - begin_s


class Trial:
    """One run that is killed until chance, or ``MOST_KILLS``, lets it end."""

    def __init__(self, kind: Kind, folder: Path, length_s: float, chance: random.Random, told: Counter[str]) -> None:
        self._kind, self._folder, self._length_s, self._chance, self._told = kind, folder, length_s, chance, told

    def wrong(self, undisturbed: Path) -> str | None:
        """Carry it out; what is wrong with it then."""
        self._told["runs"] += 1
        self._folder.mkdir()
        for delay_s in self._delays_s():
            has_begun = self._kind.has_begun(self._folder)
            if not has_begun:
                shutil.rmtree(self._folder)
                self._folder.mkdir()
            pid = _forked(self._kind.resume if has_begun else self._kind.begin, self._folder)
            if delay_s is not None:
                time.sleep(delay_s)
                os.kill(pid, signal.SIGKILL)  # no harm if it has ended: nobody has waited for it yet
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status == 0:
                return self._kind.wrong(self._folder, undisturbed)
            if status != -signal.SIGKILL:
                return "it failed; its error stands above"
            self._told["kills"] += 1
            if not self._kind.has_begun(self._folder):
                self._told["of them before the log began"] += 1
            elif has_begun:
                self._told["of them in a resumption"] += 1
        raise AssertionError("the last one is not killed")

    def _delays_s(self) -> Iterator[float | None]:
        """After which times to kill; ``None`` to let it end."""
        n_kills = self._chance.randint(1, MOST_KILLS)
        yield from (self._chance.uniform(0.0, self._length_s) for _ in range(n_kills))
        yield None


def _forked(act: Callable[[Path], None], folder: Path) -> int:
    """A child that does this and ends; its process id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        act(folder)
        code = 0
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it is
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
