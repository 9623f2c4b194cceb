"""``migrator`` and ``python -m migrator``: the command line, once it is known that its packages are its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from migrator.terminal.console import complain, warn

BESIDE = ("planner", "forecaster", "executor", "workloads")
"""The packages beside ``migrator``. Other distributions have packages of these names, too."""

ISOLATE = "install migrator-mig in an environment of its own (pipx, uv tool)"


def main() -> None:
    """Say in one line what takes the place of a package of ours, if anything does, then run the command line."""
    for problem in shadowed(Path(__file__).parent.parent):
        warn(f"{problem}; {ISOLATE}")
    try:
        from migrator.cli import main as run  # noqa: PLC0415 - it imports what may be another's
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("migrator", *BESIDE):
            raise
        complain(f"{error}: something else takes the place of migrator's packages; {ISOLATE}")
        sys.exit(1)
    run()


def shadowed(root: Path) -> Iterator[str]:
    """What would be imported in the place of the packages in ``root``, in a sentence each."""
    for name in BESIDE:
        place = _folder(name)
        if place is None:
            yield f"the package {name} is missing from {root}"
        elif place.resolve() != (root / name).resolve():
            yield f"the package {name} would come from {place}, not from {root / name}, where migrator's lies"


def _folder(name: str) -> Path | None:
    """Where a package would be imported from."""
    found = find_spec(name)
    if found is None:
        return None
    if found.origin is not None:
        return Path(found.origin).parent
    return next(map(Path, found.submodule_search_locations or ()), None)


if __name__ == "__main__":
    main()
