"""README and docs/start.md as a stranger follows them: from a wheel, in an empty environment, outside the repository.

Each page's commands run in their order in one empty folder. Files that a page shows (`NAME`: and a block) are written
first. Commands that set up a clone are what the wheel stands for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from migrator.cli import command_line
from migrator.commands.verbs import Verb
from tests.migrator.cluster.test_cluster import written
from tests.migrator.conftest import PAPER_PROBLEM, SMALL
from tests.seeds import daily
from tests.standin.cards import A100_80
from tests.standin.fixtures import MakeStandIn

ROOT = Path(__file__).parents[1]
PACKAGES = ("migrator", "planner", "forecaster", "executor", "workloads")
SET_UP = ("make ", "pipx install ", "uv tool install ", "source ")
"""What needs a clone or a package registry."""


NEWEST = Path(sys.prefix) / "newest"
"""An environment with the newest versions of our dependencies; the Makefile makes it."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip(
            "building a wheel needs setuptools 77 or later, which the extra dev has; make clean, then make test"
        )
    return _wheel(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it; its dependencies are those of the tests."""
    return _installed(wheel, tmp_path_factory.mktemp("installed"), _dependencies())


@pytest.fixture(scope="module")
def newest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the newest versions of what a ``pip install`` with the extra ``nvml`` brings, and nothing else."""
    if not (NEWEST / ".installed").exists():
        pytest.skip(
            "NOT TESTED: the newest versions of dependencies: make test-slow installs them where the registry answers"
        )
    return _installed(wheel, tmp_path_factory.mktemp("newest"), map(str, NEWEST.glob("lib/python*/site-packages")))


def _installed(wheel: Path, folder: Path, dependencies: Iterable[str]) -> Path:
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    site = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    # A folder named in a .pth file lends its packages, but not its own .pth files: no editable install comes with it.
    (site / "dependencies.pth").write_text("\n".join(dependencies) + "\n", "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet"]
    _done([*pip, "install", "--no-index", "--no-deps", "--ignore-installed", "--no-compile", str(wheel)], folder)
    _lend_kernels(site)
    return folder / "venv"


def _wheel(folder: Path) -> Path:
    """The wheel of a copy of the sources: a build leaves files behind, and others may build at the same time."""
    source, ignored = folder / "source", shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*PACKAGES, "configs", "docs"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    _done(build, folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _dependencies() -> list[str]:
    """Where the packages that this process imports lie, our own apart."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def _lend_kernels(site: Path) -> None:
    """Give the installed kernels what the checkout's have compiled so far: the same sources, to the second."""
    for name in PACKAGES:
        for installed in (site / name).rglob("*.py"):
            own = ROOT / installed.relative_to(site)
            caches = list((own.parent / "__pycache__").glob(f"{own.stem}.*.nb[ic]"))
            if caches:
                (installed.parent / "__pycache__").mkdir(exist_ok=True)
                os.utime(installed, ns=(own.stat().st_atime_ns, own.stat().st_mtime_ns))
                for cache in caches:
                    shutil.copy2(cache, installed.parent / "__pycache__")


def _done(command: list[str], folder: Path) -> None:
    ran = subprocess.run(command, cwd=folder, env=_outside(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def in_shell(command: str, environment: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command as a user of the environment types it in ``folder``."""
    variables = _outside(environment / "bin")
    shell = ["/bin/bash", "-c", command]
    return subprocess.run(shell, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def _outside(*first: Path) -> dict[str, str]:
    """The variables of a shell that knows nothing of the repository, with these folders first on its path."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"PATH": os.pathsep.join((*map(str, first), os.environ["PATH"])), "COLUMNS": "100"}


def commands_of(page: str) -> list[str]:
    """The lines after ``$`` of a page's console blocks, set-up apart."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith(SET_UP)]


def write_files_of(page: str, folder: Path) -> None:
    """Write what a page shows as files."""
    for name, text in re.findall(r"`([\w.-]+)`:\n+```\w+\n(.*?)```", page, re.DOTALL):
        (folder / name).write_text(text, "utf-8")


LITTLE = "planner: { max_schedules: 20, replan_every_s: 50, replan_schedules: 4 }\n"
"""What a config gets that has just been written. As it is shipped the quickstart runs in ``make test-long``."""


def make_small(folder: Path, known: set[Path]) -> None:
    """Have configs that are not ``known`` yet run two windows of long steps and little planning, and know them then."""
    for path in {*folder.glob("*.yaml")} - known:
        text = re.sub(r"^windows: \d+", "windows: 2", path.read_text("utf-8"), flags=re.MULTILINE)
        text = re.sub(r"^step_s: 1\b", "step_s: 4", text, flags=re.MULTILINE)
        path.write_text(f"{text}\n{LITTLE}", "utf-8")
        known.add(path)


@pytest.mark.parametrize("name", daily(["README.md", "docs/start.md"], ["README.md"]))
def test_every_command_of_a_page_works_in_order_outside_the_repository(
    environment: Path, tmp_path: Path, name: str
) -> None:
    page = (ROOT / name).read_text("utf-8")
    write_files_of(page, tmp_path)
    commands, known = commands_of(page), set[Path]()
    assert len(commands) > 5
    for command in commands:
        make_small(tmp_path, known)
        ran = in_shell(command, environment, tmp_path)
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}\n{ran.stderr}"


def test_what_is_installed_is_what_runs(environment: Path, tmp_path: Path) -> None:
    where = "import migrator, planner; print(migrator.__file__, planner.__file__)"
    ran = in_shell(f"python -c '{where}'", environment, tmp_path)
    assert [Path(path).is_relative_to(environment) for path in ran.stdout.split()] == [True, True]


def test_the_first_hint_can_be_followed(environment: Path, tmp_path: Path) -> None:
    text = " ".join(in_shell("migrator --help", environment, tmp_path).stdout.split())
    hint = re.search(r"Start with: (migrator init \w+), then (migrator run [\w.]+\w)", text)
    assert hint is not None
    assert in_shell(hint[1], environment, tmp_path).returncode == 0
    make_small(tmp_path, set())
    ran = in_shell(f"{hint[2]} --windows 1", environment, tmp_path)
    assert (ran.returncode, "migrator report runs/quickstart --full" in ran.stdout) == (0, True)


AS_JSON = {
    "report": "report run --json",
    "runs": "runs . --json",
    "diff": "diff run run --json",
    "plan": "plan --problem problem.json --engine paper-ilp --json",
    "whatif": "whatif small.yaml --vary load=x0.5 --jobs 1 --json",
    "compare": "compare small.yaml --windows 1 --policies equal --jobs 1 --json",
    "verify": "verify plan.json problem.json --json",
    "fidelity": "fidelity run --json",
    "doctor": "doctor --backend smi --json",
    "cluster plan": "cluster plan cluster.yaml --out answer.json --json",
    "cluster verify": "cluster verify answer.json cluster.yaml --json",
    "cluster run": "cluster run cluster.yaml --windows 1 --json",
    "cluster compare": "cluster compare cluster.yaml --plans-only --json",
    "cluster status": "cluster status --address 127.0.0.1:1 --json",
    "gpu models": "gpu models --json",
    "gpu layouts": "gpu layouts a30-24gb --json",
    "gpu list": "gpu list --backend smi --json",
    "gpu diff": "gpu diff 1g.10gb@0 --backend smi --json",
    "gpu watch": "gpu watch --index 7 --backend smi --json",
    "forecast eval": "forecast eval azure-conv --window 60 --history 200 --stride 1000 --json",
    "forecast fit": "forecast fit nhits azure-conv --out model --json",
    "forecast show": "forecast show small.yaml --json",
}
"""By verb, a call of it."""
SAYS_NOTHING = {"cluster status": 2, "fidelity": 2, "forecast fit": 2, "gpu watch": 4}
"""Exit codes of those that need a live run, a cluster, an extra or Ctrl-C to end otherwise; they print nothing."""


def test_every_json_is_json_with_the_newest_versions(newest: Path, make_standin: MakeStandIn, tmp_path: Path) -> None:
    make_standin(A100_80)
    (tmp_path / "problem.json").write_text(json.dumps(PAPER_PROBLEM))
    (tmp_path / "small.yaml").write_text(json.dumps(SMALL))
    written(tmp_path)
    first = "migrator run small.yaml --windows 1 --out run && migrator plan --problem problem.json --out plan.json"
    ready = in_shell(first, newest, tmp_path)
    assert ready.returncode == 0, ready.stderr
    for verb, call in AS_JSON.items():
        ran = in_shell(f"migrator {call}", newest, tmp_path)
        assert ran.returncode == SAYS_NOTHING.get(verb, 0), f"{call}\n{ran.stdout}\n{ran.stderr}"
        assert isinstance(json.loads(ran.stdout), dict) if ran.returncode == 0 else ran.stdout == "", ran.stdout


def test_every_verb_that_prints_json_is_called_for_it() -> None:
    def verbs(command: Any, *names: str) -> Iterator[str]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from verbs(inner, *names, name)
        loaded = command.load() if isinstance(command, Verb) else command
        if any("--json" in option.opts for option in loaded.params):
            yield " ".join(names)

    assert {*verbs(command_line())} == {*AS_JSON}


def test_messages_name_the_distribution_that_is_ours() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (ours,) = re.findall(r'^name = "([\w-]+)"', project, re.MULTILINE)
    files = [path for name in (*PACKAGES, "docs") for path in (ROOT / name).rglob("*") if path.suffix in (".py", ".md")]
    named = [found for path in files for found in re.findall(r"pip install '?([\w-]+)\[", path.read_text("utf-8"))]
    assert set(named) <= {ours}  # in a clone it is the clone that is named
