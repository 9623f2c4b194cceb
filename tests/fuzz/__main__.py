"""Fuzzing at length: ``python -m tests.fuzz --n 20000 --seed 1``.

Verdicts are kept case by case in a file for each process, so that a run that was stopped goes on where it was, and a
case that ends or hangs its process is told and passed over. Each failure is printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.fuzz.judge import MOST_CPU_S, Verdict, judged, kind_of, originals_of

HANGS_CPU_S = 120.0
"""CPU seconds after which a case is given up, and its process with it: a busy machine does not change them."""

HANGS_S = 1200.0
"""Seconds of the wall clock after which a case that waits, or a process of its own, is given up as well."""

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run what is not done yet, and print counts by kind and exit code; 1 if a promise was broken."""
    options = _options()
    if options.worker is not None:
        return _work(options)
    if options.case is not None:
        return _repeat(options)
    options.state.mkdir(parents=True, exist_ok=True)
    while todo := _todo(options):
        for worker in [_started(options, worker) for worker in range(options.jobs)]:
            worker.wait()
        for number in _begun(options) & _todo(options):
            given_up = Verdict(number, kind_of(number), (), -1, 0.0, ("its process ended or hung",), "")
            _keep(options.state / "given-up.jsonl", given_up)
        if todo == _todo(options):
            sys.exit("fuzz: no case was done; a worker's own error stands above")
    return _summary(options)


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--n", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--state", type=Path, help="folder of verdicts; default: runs/fuzz-SEED")
    parser.add_argument("--case", type=int, help="repeat this case alone, and print what came of it")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.state = options.state or ROOT / "runs" / f"fuzz-{options.seed}"
    return options


def _started(options: Any, worker: int) -> subprocess.Popen[bytes]:
    chosen = ["--n", options.n, "--seed", options.seed, "--jobs", options.jobs, "--state", options.state.resolve()]
    command = [sys.executable, "-m", "tests.fuzz", *map(str, chosen), "--worker", str(worker)]
    return subprocess.Popen(command, cwd=ROOT)


def _work(options: Any) -> int:
    """Judge every case of this worker that is not done."""
    path = options.state / f"worker-{options.worker}.jsonl"
    begun = options.state / f"begun-{options.worker}"
    with tempfile.TemporaryDirectory() as folder:
        originals = originals_of(Path(folder) / "originals")
    for number in sorted(_todo(options)):
        if number % options.jobs == options.worker:
            begun.write_text(str(number))
            with given_up_if_it_hangs():
                verdict = judged(options.seed, number, originals)
            _keep(path, _timed(verdict))
    begun.unlink(missing_ok=True)
    return 0


@contextmanager
def given_up_if_it_hangs() -> Iterator[None]:
    """Ends this process after ``HANGS_CPU_S`` or ``HANGS_S`` inside, and shows where it was."""
    faulthandler.register(signal.SIGPROF, chain=True)  # shows where; then the signal ends the process
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    signal.setitimer(signal.ITIMER_PROF, HANGS_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()


def _timed(verdict: Verdict) -> Verdict:
    if verdict.cpu_s <= MOST_CPU_S:
        return verdict
    return replace(verdict, broken=(*verdict.broken, f"{verdict.cpu_s:.1f} s of CPU"))


def _keep(path: Path, verdict: Verdict) -> None:
    kept = replace(verdict, err=verdict.err[-2000:] if verdict.broken else "")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(kept)) + "\n")


def _kept(options: Any) -> dict[int, dict[str, Any]]:
    lines = (line for path in sorted(options.state.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines())
    found = (json.loads(line) for line in lines if line.endswith("}"))
    return {one["number"]: one for one in found}


def _todo(options: Any) -> set[int]:
    return set(range(options.n)) - set(_kept(options))


def _begun(options: Any) -> set[int]:
    return {int(path.read_text()) for path in options.state.glob("begun-*") if path.read_text()}


def _repeat(options: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        originals = originals_of(Path(folder) / "originals")
    verdict = _timed(judged(options.seed, options.case, originals))
    print(json.dumps(asdict(verdict), indent=2))
    return bool(verdict.broken)


def _summary(options: Any) -> int:
    found = [one for number, one in sorted(_kept(options).items()) if number < options.n]
    codes = sorted({one["code"] for one in found})
    rows: list[Sequence[object]] = [("kind", "cases", *(f"exit {code}" for code in codes), "broken", "longest s")]
    for kind in (*dict.fromkeys(one["kind"] for one in found), None):
        own = [one for one in found if kind in (None, one["kind"])]
        counts = Counter(one["code"] for one in own)
        n_broken = sum(bool(one["broken"]) for one in own)
        longest_s = max(one["cpu_s"] for one in own)
        rows.append((kind or "all", len(own), *(counts[code] for code in codes), n_broken, f"{longest_s:.1f}"))
    for row in rows:
        print("".join(f"{cell:>11}" for cell in row))
    failures = [one for one in found if one["broken"]]
    for one in failures:
        print(
            f"\npython -m tests.fuzz --seed {options.seed} --case {one['number']}  # {one['kind']}: migrator", end=" "
        )
        print(*map(repr, one["arguments"]), f"\n  {'; '.join(one['broken'])}\n  {one['err'][-500:]!r}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
