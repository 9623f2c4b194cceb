"""Calls the command line on a case, and says what of the promises it broke."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random

from migrator import cli
from tests.fuzz.cases import KINDS, Case, Originals, made, write_inputs
from tests.fuzz.mutate import as_json
from tests.fuzz.originals import CONFIG, PAPER, PHYSICAL

ALLOWED_CODES = (0, 2, 3)

MOST_CPU_S = 10.0
"""CPU seconds of one case; judged in long runs only."""

LIVE = Path(__file__).parents[1] / "golden" / "live"
"""The log of a live run, which takes a machine of its own to make."""

_CANNOT_BE_WRITTEN = {"/dev/full", "pipe.csv"}

PROCESS_EVERY = 41
"""Each such case is called in a process of its own; no multiple of the number of kinds, so that all kinds are."""


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Attributes:
        number: The case's.
        kind: Of the file that was changed.
        arguments: The command line.
        code: The exit code.
        cpu_s: CPU seconds, of this process or of the case's own.
        broken: The promises that it broke; empty if none.
        err: What stood on standard error.
    """

    number: int
    kind: str
    arguments: tuple[str, ...]
    code: int
    cpu_s: float
    broken: tuple[str, ...]
    err: str


def kind_of(number: int) -> str:
    """The kind of a case."""
    return list(KINDS)[number % len(KINDS)]


def judged(seed: int, number: int, originals: Originals, *, in_process: bool | None = None) -> Verdict:
    """The verdict on a case, in a folder of its own that is gone afterwards."""
    random = Random(f"{seed}:{number}")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        root = Path(folder)
        case = made(kind_of(number), random, root, originals)
        before = _files(root)
        is_own = number % PROCESS_EVERY == PROCESS_EVERY - 1 if in_process is None else not in_process
        begin_s = _cpu_s(children=is_own)
        code, out, err, opened = (_in_own_process if is_own else _in_this_process)(case.arguments, root / "cwd")
        cpu_s = _cpu_s(children=is_own) - begin_s
        outside = sorted({*_changed(before, _files(root)), *(path for path in opened if not _may_write(path, root))})
    return Verdict(number, case.kind, case.arguments, code, cpu_s, tuple(_broken(case, code, out, err, outside)), err)


def _broken(case: Case, code: int, out: str, err: str, outside: Sequence[str]) -> Iterator[str]:
    # A full output device is the one failure of the system that a case can ask for.
    if code not in ALLOWED_CODES and not (code == 1 and _CANNOT_BE_WRITTEN & {*case.arguments}):
        yield f"exit code {code}"
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    if code == 0 and errors:
        yield "an error, but exit code 0"
    if code != 0 and (len(errors) != 1 or not err.endswith("\n") or err.splitlines()[-1] != errors[0]):
        yield "no single line at the end of standard error"
    if any(len(line.split()) < 4 for line in errors):
        yield "an error without words"
    for sign in ("Traceback", "unforeseen", "Warning:"):
        if sign in out + err:
            yield f"{sign} in the output"
    if any(not (char.isprintable() or char == "\n") for char in out + err):
        yield "control characters in the output"
    if outside:
        yield f"written outside: {', '.join(outside)}"


def called(arguments: Sequence[str], cwd: Path) -> tuple[int, str, str]:
    """Exit code and both outputs of a command line, called in the folder in this process."""
    code, out, err, _ = _in_this_process(arguments, cwd)
    return code, out, err


def _in_this_process(arguments: Sequence[str], cwd: Path) -> tuple[int, str, str, list[str]]:
    """Exit code, both outputs, and the files that were opened for writing."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    home, argv = Path.cwd(), sys.argv
    os.chdir(cwd)
    sys.argv = ["migrator", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err), _noting_writes() as opened:
            try:
                cli.main()
                code = 0
            except SystemExit as ending:
                code = int(ending.code or 0)
    finally:
        os.chdir(home)
        sys.argv = argv
    texts = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))  # type: ignore[attr-defined]
    return (code, *texts, list(opened))  # type: ignore[return-value]


def _in_own_process(arguments: Sequence[str], cwd: Path) -> tuple[int, str, str, list[str]]:
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-m", "migrator", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    return ended.returncode, ended.stdout.decode("ascii"), ended.stderr.decode("ascii"), []


_notes: list[list[str]] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not (_notes and event == "open"):
        return
    name, _, flags = arguments
    if isinstance(name, (str, bytes)) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _notes[-1].append(os.path.abspath(os.fsdecode(name)))  # noqa: PTH100 (fast, and no links followed)


@contextmanager
def _noting_writes() -> Iterator[list[str]]:
    """The files that Python opens for writing inside."""
    if not hasattr(_audit, "is_there"):
        sys.addaudithook(_audit)  # there is no way to remove it
        _audit.is_there = True  # type: ignore[attr-defined]
    noted: list[str] = []
    _notes.append(noted)
    try:
        yield noted
    finally:
        _notes.pop()


def _may_write(path: str, root: Path) -> bool:
    temporary = f"{tempfile.gettempdir()}/"
    own = tuple(f"{root}/cwd/{name}" for name in ("out", "runs/", ".migrator-", "pipe.csv"))
    in_temporary = path.startswith(temporary) and not path.startswith(f"{root}/")
    return path.startswith((*own, "/dev/", "/proc/self/fd")) or in_temporary or "__pycache__" in path


def _files(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below that is no output."""
    found = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if not name.startswith(("cwd/out", "cwd/runs")):
            status = path.lstat()
            found[name] = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
    return found


def _changed(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _cpu_s(*, children: bool) -> float:
    if not children:
        return time.process_time()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def originals_of(folder: Path) -> Originals:
    """Made by good commands: so a case without a change would pass."""
    plans = {}
    for name, problem in (("paper", PAPER), ("physical", PHYSICAL)):
        (folder / name).mkdir(parents=True)
        (folder / name / "problem.json").write_bytes(as_json(problem))
        _good(["plan", "--problem", "problem.json", "--out", "out"], folder / name)
        plans[name] = json.loads((folder / name / "out").read_bytes())
    (folder / "run").mkdir()
    write_inputs(folder / "run", Random(0), CONFIG)
    runs = {name: _run_of(folder / "run", name, *options) for name, options in _RUNS.items()}
    shutil.rmtree(folder)
    runs["live"] = ((LIVE / "events.jsonl").read_bytes(), (LIVE / "config.yaml").read_bytes())
    return Originals(plans, *runs.pop("instances"), runs)


_RUNS: dict[str, tuple[str, ...]] = {
    "instances": (),
    "pools": ("--set", "sharing.pools=auto", "--set", "tenants.vision.min_slo_attainment=0.1"),
    "shares": ("--policy", "ekya"),
    "turns": ("--policy", "whole"),
}
"""What ``migrator run`` is called with, by how tenants share the GPU then."""


def _run_of(cwd: Path, name: str, *options: str) -> tuple[bytes, bytes]:
    """The log and the config of a run."""
    _good(["run", "config.yaml", "--out", name, *options], cwd)
    return (cwd / name / "events.jsonl").read_bytes(), (cwd / name / "config.yaml").read_bytes()


def _good(arguments: Sequence[str], cwd: Path) -> None:
    code, _, err, _ = _in_this_process(arguments, cwd)
    assert code == 0, err
