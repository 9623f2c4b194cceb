"""``migrator init``: an example to begin with, written into a folder of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from executor.files import make_new, read_input
from executor.names import did_you_mean
from migrator.commands.options import nameable, with_examples
from migrator.errors import MigratorError
from migrator.terminal.console import escape, output, program

CONFIGS = Path(__file__).parents[1] / "configs"
"""A link to the folder at the top of the repository; a wheel has the files."""

TRACES = "my-traces"
"""The example that is a folder: a config with the files that it reads."""

CLUSTER = "cluster"
"""How names of examples begin that are of many GPUs."""

PROBLEM = "problem"
"""The example that is a problem file."""


@with_examples("init quickstart", "init my-traces try")
def init_command(
    example: Annotated[
        str,
        typer.Argument(
            help="quickstart, twenty, w1 to w16 (the paper's), cluster-6, live-cpu, share-cpu, live-gpu, my-traces, or "
            "problem."
        ),
    ] = "quickstart",
    folder: Annotated[Path, typer.Argument(callback=nameable, help="Where to; made if it is not there.")] = Path(),
) -> None:
    """Write the example's files into ``folder``, which is made if it is not there, and say what to do next.

    Raises:
        MigratorError: There is no such example, or a file that would be written exists already; nothing is written.
    """
    known = examples()
    if example not in known:
        raise MigratorError(f"no example {example!r}{did_you_mean(example, known)}; there are {', '.join(known)}")
    targets = {source: folder / source.name for source in known[example]}
    for target in targets.values():
        if target.exists() or target.is_symlink():
            raise MigratorError(
                f"{target} exists already and is left as it is; name another folder: init {example} FOLDER"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, target in targets.items():
            make_new(target, read_input(source, 2**20))
    except OSError as error:
        raise MigratorError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from None
    first, *beside = targets.values()
    also = f", with {' and '.join(escape(path.name) for path in beside)} beside it" if beside else ""
    output().print(f"Written: [bold]{escape(str(first))}[/]{also}. Next:")
    here = escape(str(first))
    group = "cluster " if example.startswith(CLUSTER) else ""
    verbs = (f"plan --problem {here}",) if example == PROBLEM else (f"{group}plan {here}", f"{group}run {here}")
    for verb in verbs:
        output().print(f"  {escape(program())} {verb}", soft_wrap=True)


def examples() -> dict[str, tuple[Path, ...]]:
    """By name, the files of each example, the one to begin with first: ``quickstart``, ``w1`` …, ``my-traces``."""
    named = sorted(CONFIGS.glob("*.yaml"), key=_place)
    configs = {path.stem: (path, *_profiles_of(path)) for path in named}
    traces = CONFIGS / TRACES / f"{TRACES}.yaml"
    beside = sorted(path for path in traces.parent.iterdir() if path != traces)
    return {**configs, TRACES: (traces, *beside), PROBLEM: (CONFIGS / f"{PROBLEM}.json",)}


def _profiles_of(config: Path) -> list[Path]:
    """The service profiles beside a config that it names."""
    lines = read_input(config, 2**20).decode().splitlines()
    return [config.parent / line.split()[1] for line in lines if line.startswith("profiles:")]


def _place(path: Path) -> tuple[bool, bool, str, int]:
    """Simulated ones first, those of many GPUs after those of one."""
    name = path.stem
    return name.endswith(("cpu", "gpu")), name.startswith(CLUSTER), *_by_number(name)


def _by_number(name: str) -> tuple[str, int]:
    """w2 before w10."""
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)
