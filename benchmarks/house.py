"""How large the house is, and how much of it one goes through: ``python -m benchmarks.house lines``, or ``walk``.

``lines`` counts code lines by room: those that hold code, without docstrings, comments and blank lines.

``walk`` simulates one window of the quickstart and counts the functions and files of ours that are entered, and how
many deep they call each other. A function's comprehensions of one kind count as one more function; what is run as
modules are imported does not count. It also counts the files that import ``migrator.setting``.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("executor", "forecaster", "workloads", "planner", "migrator", "benchmarks")

ROOMS: Mapping[str, tuple[str, ...]] = {
    "executor": ("executor/",),
    "forecaster, its commands and views": (
        *("forecaster/", "migrator/commands/forecast", "migrator/views/forecast", "migrator/views/fitted"),
        *("migrator/evaluation", "migrator/series"),
    ),
    "workloads: live, learning": (
        *("workloads/live/", "workloads/learning/", "workloads/measuring", "workloads/training"),
        "workloads/retraining",
    ),
    "workloads: traffic, profiles, tenants, serving": ("workloads/",),
    "planner/engines": ("planner/engines/",),
    "planner/policies": ("planner/policies/",),
    "planner: the rest": ("planner/",),
    "migrator/execution": ("migrator/execution/", "migrator/run/"),
    "migrator/log": ("migrator/log/",),
    "benchmarks": ("benchmarks/",),
    "migrator: the rest": ("migrator/",),
}
"""By room, how the paths of its files begin; a file is in the first one that takes it."""

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines of Python code: without blank ones, comments, and strings that are statements, as docstrings are."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def files() -> list[str]:
    """Our Python files that git tracks, from the root; tests are not among them."""
    command = ["git", "-C", str(ROOT), "ls-files", "--", *(f"{package}/*.py" for package in PACKAGES)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()  # noqa: S603


def print_lines() -> None:
    """Print files and code lines by room."""
    n_files, n_lines = Counter[str](), Counter[str]()
    for path in files():
        room = next(name for name, starts in ROOMS.items() if path.startswith(starts))
        n_files[room] += 1
        n_lines[room] += code_lines((ROOT / path).read_text("utf-8"))
    for room in ROOMS:
        print(f"{room:48}{n_files[room]:5} files{n_lines[room]:8,} code lines")
    print(f"{'sum':48}{n_files.total():5} files{n_lines.total():8,} code lines")


class Walk:
    """What is entered, by file and name, while ``sys.setprofile`` calls this for every call and return."""

    def __init__(self) -> None:
        self.entered: set[tuple[str, str]] = set()
        self.deepest = 0
        self._depth = 0
        self._importing = 0
        self._ours = {str(ROOT / path) for path in files()}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a function of ours that is entered, or left, unless a module is being imported."""
        code = frame.f_code
        if event not in ("call", "return"):
            return
        step = 1 if event == "call" else -1
        if code.co_name == "<module>":
            self._importing += step
        elif not self._importing and code.co_filename in self._ours:
            self._depth += step
            self.entered.add((code.co_filename, code.co_qualname))
            self.deepest = max(self.deepest, self._depth)


def print_walk() -> None:
    """Print what one window of the quickstart goes through, and how many files import ``migrator.setting``."""
    from migrator.__main__ import main  # noqa: PLC0415 - the product is what is measured

    walk = Walk()
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = [
            "migrator",
            "run",
            str(ROOT / "configs/quickstart.yaml"),
            "--windows",
            "1",
            "--out",
            f"{folder}/run",
        ]
        sys.setprofile(walk)
        try:
            main()
        except SystemExit as ending:
            if ending.code:
                raise
        finally:
            sys.setprofile(None)
    entered = {path for path, _ in walk.entered}
    print(f"one window of the quickstart: {len(walk.entered):,} functions in {len(entered)} files, {walk.deepest} deep")
    importers = [path for path in files() if _imports((ROOT / path).read_text("utf-8"), "migrator.setting")]
    print(f"files that import migrator.setting: {len(importers)}")


def _imports(text: str, module: str) -> bool:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            return True
        if isinstance(node, ast.Import) and any(name.name == module for name in node.names):
            return True
    return False


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__)
    parser.add_argument("what", choices=["lines", "walk"])
    match parser.parse_args().what:
        case "lines":
            print_lines()
        case "walk":
            print_walk()


if __name__ == "__main__":
    main()
