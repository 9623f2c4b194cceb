"""Whether files are opened through the one guarded door: ``python -m tests.doors``, a part of ``make check``.

A name from a user, from a run's folder or from a state folder may lead to a pipe, to a device or to gigabytes.
:mod:`executor.files` opens nothing of the kind, and no module but those of :data:`MAY_OPEN` calls what opens a file.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES = ("executor", "forecaster", "migrator", "planner", "workloads")

MAY_OPEN = {
    "executor/files.py": "the guarded door itself",
    "executor/cpu/duty.py": "reads /proc alone",
    "executor/cpu/shares.py": "reads /proc alone",
    "executor/processes.py": "reads /proc alone",
    "executor/zygote.py": "reads /proc alone",
    "executor/extras.py": "reads the distribution's own metadata alone, where pip put it",
    "workloads/live/memory.py": "reads and writes /proc alone",
    "migrator/cli.py": "opens /dev/null alone, in place of an output that is closed",
}
"""The modules that may open files, each with its reason."""

METHODS = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
"""Of a path or a module: whatever has them is taken for one."""

FUNCTIONS = {
    *("FileIO", "ZipFile", "TarFile", "GzipFile", "BZ2File", "LZMAFile", "read_csv"),
    *("np.load", "np.genfromtxt", "np.fromfile", "np.memmap", "json.load", "tomllib.load", "torch.load"),
    *("os.truncate", "shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.move"),
}
"""By their last name, or with their module's where another thing is called so as well."""

OPEN_NO_FILE = {"models", "self._models", "site", "self"}
"""Whose ``open`` begins a window's models, or a live run's site."""


def second_doors(name: str, source: str) -> Iterator[str]:
    """Calls in a module that open a file by its name; what is given bytes in memory or an open file opens none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (what := _opens(node)) is not None:
            yield f"{name}:{node.lineno}: {what} opens a file; executor.files does that, or tests/doors.py says why not"


def _opens(call: ast.Call) -> str | None:
    """What the call opens a file with; ``None`` if it opens none."""
    called = ast.unparse(call.func)
    last = called.rpartition(".")[2]
    if isinstance(call.func, ast.Attribute) and last in METHODS:
        owner = ast.unparse(call.func.value)
        return None if owner in OPEN_NO_FILE or _is_in_memory(call) else called
    is_door = called == "open" or called in FUNCTIONS or last in FUNCTIONS
    return called if is_door and not _is_in_memory(call) else None


def _is_in_memory(call: ast.Call) -> bool:
    return bool(call.args) and ast.unparse(call.args[0]).startswith(("BytesIO(", "io.BytesIO(", "io.StringIO("))


def found() -> list[str]:
    """Second doors in all packages, and modules that may open files and need not any more."""
    wrong, needless = list[str](), dict(MAY_OPEN)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        doors = list(second_doors(name, path.read_text("utf-8")))
        if name not in MAY_OPEN:
            wrong += doors
        elif doors:
            del needless[name]
    return wrong + [f"tests/doors.py: {name} opens nothing; take it off the list" for name in needless]


if __name__ == "__main__":
    lines = found()
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.exit(1 if lines else 0)
