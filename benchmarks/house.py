"""How large the house is, how much of it one goes through, and whether that is within its limits.

``python -m benchmarks.house lines`` counts code lines by room: those that hold code, without docstrings, comments and
blank lines.

``floors`` counts how many modules or folders of a folder import one another in a chain. It also counts
public classes whose name another one has, and the code lines of the longest function.

``walk`` simulates one window of the quickstart and counts the functions and files of ours that are entered, and how
many deep they call each other. A function's comprehensions of one kind count as one more function; what is run as
modules are imported does not count. A run before it compiles what is not compiled yet.

``check``, a part of ``make check``, holds all of these against ``tests/house.toml``. Numbers there may fall; a commit
that raises one says why.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("executor", "forecaster", "workloads", "planner", "migrator", "benchmarks")

ROOMS: Mapping[str, tuple[str, ...]] = {
    "executor": ("executor/",),
    "forecaster, its commands and views": (
        *("forecaster/", "migrator/commands/forecast", "migrator/views/forecast"),
        "migrator/comparison/forecasts",
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


def lines_by_room() -> dict[str, int]:
    """Code lines of each room, and their sum."""
    n_lines = Counter[str](dict.fromkeys(ROOMS, 0))
    for path in files():
        n_lines[_room(path)] += code_lines((ROOT / path).read_text("utf-8"))
    return {**n_lines, "sum": n_lines.total()}


def _room(path: str) -> str:
    return next(name for name, starts in ROOMS.items() if path.startswith(starts))


def print_lines() -> None:
    """Print files and code lines by room."""
    n_files = Counter(map(_room, files()))
    n_files["sum"] = n_files.total()
    for room, n_lines in lines_by_room().items():
        print(f"{room:48}{n_files[room]:5} files{n_lines:8,} code lines")


def floors(folder: str) -> dict[str, int]:
    """By module or folder that lies in this folder, its floor: one above the highest of those that it imports."""
    below: dict[str, set[str]] = {}
    modules = {_module(path): path for path in files() if path.startswith(f"{folder}/")}
    for name, path in modules.items():
        imported = _imported((ROOT / path).read_text("utf-8")) & modules.keys()
        own = _part(name, folder)
        below.setdefault(own, set()).update(_part(one, folder) for one in imported)
    below = {name: others - {name, ""} for name, others in below.items() if name}

    @cache
    def floor(name: str) -> int:
        return 1 + max(map(floor, below[name]), default=0)

    return {name: floor(name) for name in below}


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _part(module: str, folder: str) -> str:
    """The module or folder right below ``folder`` in which the module lies; empty for the folder itself."""
    return module.removeprefix(folder.replace("/", ".")).removeprefix(".").partition(".")[0]


def _imported(text: str) -> set[str]:
    """Names of modules that the text imports as it runs, and of what it imports from them."""
    found, nodes = set[str](), [*ast.walk(ast.parse(text))]
    typing = (node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    left_out = {id(one) for node in typing for one in ast.walk(node)}
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def class_names() -> list[str]:
    """Names that several public classes have."""
    trees = (ast.parse((ROOT / path).read_text("utf-8")) for path in files())
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sorted(name for name, n in names.items() if n > 1 and not name.startswith("_"))


def function_lines() -> dict[str, int]:
    """Code lines of every function's body, by its file, name and line."""
    return {key: n for path in files() for key, n in _functions_in(path)}


def _functions_in(path: str) -> Iterator[tuple[str, int]]:
    text = (ROOT / path).read_text("utf-8")
    rows = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = "".join(rows[node.body[0].lineno - 1 : node.end_lineno])
            margin = len(body) - len(body.lstrip(" "))
            yield (
                f"{path}:{node.lineno} {node.name}",
                code_lines(f"if True:\n{body}" if margin else body) - (margin > 0),
            )


def print_floors() -> None:
    """Print the floors of every folder that has several, what is named alike, and the longest function."""
    for folder in sorted({str(Path(path).parent) for path in files()}):
        found = floors(folder)
        if len(found) > 1:
            highest = max(found, key=found.__getitem__)
            print(f"{folder:48}{found[highest]:5} floors; the highest is {highest}")
    names = class_names()
    print(f"{len(names)} names of public classes are defined more than once: {', '.join(names)}")
    longest, n_lines = max(function_lines().items(), key=lambda item: item[1])
    print(f"the longest function has {n_lines} code lines: {longest}")


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


def walked() -> dict[str, int]:
    """How many functions and files one window of the quickstart goes through, and how deep."""
    from migrator.__main__ import main  # noqa: PLC0415 - the product is what is measured

    config, walk = str(ROOT / "configs/quickstart.yaml"), Walk()
    with tempfile.TemporaryDirectory() as folder:
        command = ["migrator", "run", config, "--windows", "1", "--out"]
        subprocess.run(  # noqa: S603 - what is not compiled yet is compiled here
            [sys.executable, "-m", *command, f"{folder}/first"], cwd=ROOT, check=True, capture_output=True
        )
        sys.argv = [*command, f"{folder}/run"]
        with Path(folder, "out").open("w") as out, redirect_stdout(out), redirect_stderr(out):
            sys.setprofile(walk)
            try:
                main()
            except SystemExit as ending:
                if ending.code:
                    raise
            finally:
                sys.setprofile(None)
    n_files = len({path for path, _ in walk.entered})
    return {"functions": len(walk.entered), "files": n_files, "depth": walk.deepest}


def print_walk() -> None:
    """Print what one window of the quickstart goes through."""
    found = walked()
    print(f"one window: {found['functions']:,} functions in {found['files']} files, {found['depth']} deep")


def measured() -> dict[str, dict[str, int]]:
    """All that has limits, as ``tests/house.toml`` has it."""
    return {
        "lines": lines_by_room(),
        "floors": {folder: max(floors(folder).values()) for folder in limits()["floors"]},
        "functions": {"longest": max(function_lines().values())},
        "classes": {"names defined more than once": len(class_names())},
        "window of the quickstart": walked(),
    }


def limits() -> dict[str, dict[str, int]]:
    """What ``tests/house.toml`` allows."""
    return tomllib.loads((ROOT / "tests/house.toml").read_text("utf-8"))


def exceeded(found: Mapping[str, Mapping[str, int]], allowed: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each figure that is above its limit, or that has none."""
    said = []
    for part, figures in found.items():
        for name, figure in figures.items():
            limit = allowed.get(part, {}).get(name)
            if limit is None:
                said.append(f"{part}: {name}: {figure:,}; tests/house.toml has no limit of it")
            elif figure > limit:
                said.append(f"{part}: {name}: {figure:,}; tests/house.toml allows {limit:,}")
    return said


def main() -> int:
    """Do what the command line asks for; 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__)
    parser.add_argument("what", choices=["lines", "floors", "walk", "check"])
    match parser.parse_args().what:
        case "lines":
            print_lines()
        case "floors":
            print_floors()
        case "walk":
            print_walk()
        case "check":
            said = exceeded(measured(), limits())
            print("\n".join(said) or "the house is within its limits")
            return 1 if said else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
