"""Whatever file an argument or an option names: no command hangs, takes all memory, or ends in more than a line.

The arguments and options are those of the command line itself: one that is new has to be tried here, or said to name no
file.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from typer.core import TyperGroup

from executor.sim_card import SimCard
from migrator.cli import command_line
from migrator.commands.verbs import Verb
from tests.migrator.cluster.test_cluster import written
from tests.migrator.conftest import PAPER_PROBLEM

CARD = "sim:a100-80gb"

TRIED = {
    "cluster plan config": "cluster plan FILE",
    "cluster plan begun": "cluster plan CLUSTER --from FILE",
    "cluster plan assignments": "cluster plan CLUSTER --set profiles=FILE",
    "cluster verify plan": "cluster verify FILE CLUSTER",
    "cluster verify config": "cluster verify PLAN FILE",
    "cluster verify assignments": "cluster verify PLAN CLUSTER --set profiles=FILE",
    "cluster plan write": "cluster plan CLUSTER --write FILE",
    "cluster run config": "cluster run FILE",
    "cluster run out": "cluster run CLUSTER --windows 1 --out FILE",
    "cluster run assignments": "cluster run CLUSTER --set profiles=FILE",
    "cluster compare config": "cluster compare FILE",
    "cluster compare assignments": "cluster compare CLUSTER --set profiles=FILE",
    "cluster apply config": "cluster apply FILE",
    "cluster apply assignments": "cluster apply CLUSTER --set profiles=FILE",
    "cluster up config": "cluster up FILE",
    "cluster up out": "cluster up CLUSTER --out FILE",
    "cluster up assignments": "cluster up CLUSTER --set profiles=FILE",
    "compare configs": "compare FILE",
    "compare policies": "compare CONFIG --policies FILE.py",
    "compare profiles": "compare CONFIG --profiles FILE",
    "compare assignments": "compare CONFIG --set profiles=FILE",
    "diff run": "diff FILE RUN",
    "diff other": "diff RUN FILE",
    "doctor state": "doctor --state FILE",
    "fidelity runs": "fidelity FILE",
    "forecast eval sources": "forecast eval FILE",
    "forecast eval models": "forecast eval RUN --model FILE",
    "forecast fit sources": "forecast fit nhits FILE --out model",
    "forecast fit out": "forecast fit nhits RUN --out FILE",
    "forecast show config": "forecast show FILE",
    "forecast show assignments": "forecast show CONFIG --set tenants.language.arrivals.trace=FILE",
    "gpu apply state": f"gpu apply 1g.10gb@0 --gpu {CARD} --state FILE",
    "gpu assert state": f"gpu assert 1g.10gb@0 --gpu {CARD} --state FILE",
    "gpu clear state": f"gpu clear --gpu {CARD} --state FILE",
    "gpu diff state": f"gpu diff 1g.10gb@0 --gpu {CARD} --state FILE",
    "gpu export state": f"gpu export --gpu {CARD} --state FILE",
    "gpu layouts model": "gpu layouts FILE",
    "gpu list state": f"gpu list --gpu {CARD} --state FILE",
    "gpu models models": "gpu models FILE",
    "gpu restore state": f"gpu restore --gpu {CARD} --state FILE",
    "init folder": "init quickstart FILE",
    "metrics run": "metrics FILE",
    "top run": "top FILE",
    "metrics token": "metrics RUN --host 0.0.0.0 --token FILE",
    "plan config": "plan FILE",
    "plan problem": "plan --problem FILE",
    "plan warm_start": "plan --problem PROBLEM --warm-start FILE",
    "plan overhead_from": "plan --problem PROBLEM --overhead-from FILE",
    "plan assignments": "plan CONFIG --set tenants.language.arrivals.trace=FILE",
    "profile sample": "profile cnn --gpu cpu-1.6-in-7 --sample FILE --out table.csv",
    "profile data": "profile cnn:cifar10 --gpu cpu-1.6-in-7 --data FILE --out table.csv",
    "profile state": "profile cnn --gpu cpu-1.6-in-7 --state FILE --out table.csv",
    "report run": "report FILE",
    "run config": "run FILE",
    "run out": "run CONFIG --out FILE",
    "run policy": "run CONFIG --policy FILE.py",
    "run against": "run CONFIG --against FILE.py",
    "run state": "run CONFIG --state FILE",
    "run resume": "run --resume FILE",
    "run assignments": "run CONFIG --set gpu.model=FILE.toml",
    "serve config": "serve FILE",
    "serve out": "serve CONFIG --out FILE",
    "serve policy": "serve CONFIG --policy FILE.py",
    "serve state": "serve CONFIG --state FILE",
    "serve assignments": "serve CONFIG --set gpu.model=FILE.toml",
    "reload service": "reload FILE",
    "rollback service": "rollback FILE vision",
    "reload config": "reload RUN --config FILE",
    "runs folder": "runs FILE",
    "verify plan": "verify FILE",
    "verify problem": "verify PLAN FILE",
    "whatif config": "whatif FILE --vary load=x1",
    "whatif vary": "whatif CONFIG --vary gpu=FILE",
    "whatif assignments": "whatif CONFIG --vary load=x1 --set profiles=FILE",
}
"""Each argument and option that names something to be read, or a folder: a call in which ``FILE`` is hostile."""

WRITTEN = {
    "cluster plan out": "cluster plan CLUSTER --out FILE",
    "cluster compare out": "cluster compare CLUSTER --out FILE",
    "compare out": "compare CONFIG --out FILE",
    "compare plot": "compare CONFIG --plot FILE",
    "diff html": "diff RUN RUN --html FILE",
    "forecast eval plot": "forecast eval RUN --plot FILE",
    "forecast show plot": "forecast show CONFIG --plot FILE",
    "plan out": "plan --problem PROBLEM --out FILE",
    "plan problem_out": "plan --problem PROBLEM --problem-out FILE",
    "profile out": "profile cnn --gpu cpu-1.6-in-7 --out FILE",
    "report html": "report RUN --html FILE",
    "run html": "run CONFIG --html FILE",
    "whatif out": "whatif CONFIG --vary load=x1 --out FILE.json",
    "whatif plot": "whatif CONFIG --vary load=x1 --plot FILE",
}
"""The same of what is written; it may be a pipe, a device or a new file: ``terminal/test_outputs.py``."""

NO_FILE = {
    *("assert layout", "apply layout", "diff layout", "docs page", "init example", "layouts profiles"),
    *(
        "apply address",
        "up address",
        "up routes",
        "status address",
        "status name",
        "down address",
        "down name",
        "drain address",
        "drain name",
        "drain node",
    ),
    *("card", "keep", "seconds", "methods", "engine", "solver", "plan configs", "find", "batches", "processes"),
    *(
        "profile profiles",
        "profile models",
        "profile gpu",
        "beside",
        "beside_trainer",
        "guess_trainer",
        "profile shares",
        "cluster compare policies",
        "metrics host",
        "report last",
        "rollback tenant",
        "rollback version",
    ),
}
"""Texts that name no file: an option of every verb, or with its verb's last word."""

WATCHES = {
    "gpu watch state": "ends at Ctrl-C alone; it opens its state as `gpu list` does",
    "metrics textfile": "ends at Ctrl-C alone; it replaces what is there each second",
}

NEEDS_TORCH = ("forecast fit", "profile")
"""Verbs that measure or train where torch is there; elsewhere they are refused before they look at a file."""

FOLDERS = {
    *("gpu list state", "gpu export state", "gpu diff state", "gpu apply state", "gpu clear state", "gpu assert state"),
    *(
        "cluster plan write",
        "cluster run out",
        "cluster up out",
        "doctor state",
        "init folder",
        "run out",
        "run state",
        "runs folder",
    ),
}
"""Where a folder may be meant; what hostile files are in it is warned of, or in nobody's way."""

KINDS = ("pipe", "device", "sparse", "loop", "dangling", "folder", "inside")


def _leaves(hint: object) -> set[object]:
    if get_origin(hint) is Literal:
        return set()
    return set().union(*map(_leaves, get_args(hint))) if get_args(hint) else {hint}


def named() -> Iterator[tuple[str, bool]]:
    """Each argument and option that takes a path or a text, with its verb; and whether it is a path."""

    def verbs(group: TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Verb]]:
        for name, one in group.commands.items():
            if isinstance(one, TyperGroup):
                yield from verbs(one, (*words, name))
            else:
                assert isinstance(one, Verb)
                yield (*words, name), one

    for words, verb in verbs(command_line()):
        function = getattr(import_module(f"migrator.commands.{verb.file}"), f"{verb.name}_command")
        for name, hint in get_type_hints(function).items():
            if name != "return" and not {Path, str}.isdisjoint(_leaves(hint)):
                yield " ".join((*words, name)), Path in _leaves(hint)


def test_every_path_and_every_text_of_the_command_line_is_tried_or_names_no_file() -> None:
    known = {*TRIED, *WRITTEN, *WATCHES}
    untried = [key for key, is_path in named() if key not in known and (is_path or not _names_no_file(key))]
    assert untried == []
    assert known <= {key for key, _ in named()}


def _names_no_file(key: str) -> bool:
    words = key.split()
    return not NO_FILE.isdisjoint((words[-1], " ".join(words[-2:]), key))


def make_hostile(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "sparse":
            path.touch()
            os.truncate(path, 2**40)
        case "loop":
            path.symlink_to(path)
        case "dangling":
            path.symlink_to(path.parent / "none" / "there")
        case "folder":
            path.mkdir()
        case _:
            uuid = SimCard(CARD.partition(":")[2], path.parent / "cards").uuid
            for number, inner in enumerate(KINDS[:6]):
                (path / f"{number}").mkdir(parents=True)
                for name in ("events.jsonl", "config.yaml"):
                    make_hostile(path / f"{number}" / name, inner)
            for name in ("events.jsonl", "config.yaml", "model.json", f"{uuid}.jsonl", "cifar10.npz"):
                make_hostile(path / name, "pipe")


@contextmanager
def guarded() -> Iterator[None]:
    """Nothing inside takes longer than 30 s, or 3 GiB of memory more."""

    def hangs(*_: object) -> None:
        raise TimeoutError("it hangs")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    former = signal.signal(signal.SIGALRM, hangs)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 3 * 2**30, hard))
    signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def inputs(write_config: Callable[..., Path], tmp_path: Path) -> dict[str, str]:
    """What stands for the words of :data:`TRIED`."""
    config = write_config({"windows": 1})
    (tmp_path / "problem.json").write_text(json.dumps(PAPER_PROBLEM))
    return {
        "CONFIG": str(config),
        "CLUSTER": str(written(tmp_path)),
        "RUN": str(tmp_path / "run"),
        "PROBLEM": str(tmp_path / "problem.json"),
        "PLAN": str(tmp_path / "problem.json"),
    }


def outcome(call: Callable[..., Any], inputs: dict[str, str], words: str, kind: str, tmp_path: Path) -> tuple[int, str]:
    """The exit code, and what was said, if the file is of the kind."""
    typed = [inputs.get(word, word) for word in words.split()]
    (place,) = (number for number, word in enumerate(typed) if "FILE" in word)
    begin, _, suffix = typed[place].partition("FILE")
    path = tmp_path / f"{kind}{suffix}"
    make_hostile(path, kind)
    typed[place] = f"{begin}{path}"
    with guarded():
        code, _, err = call(*typed)
    return code, err


def typed_by(table: dict[str, str]) -> list[str]:
    has_torch = find_spec("torch") is not None
    return [key for key in table if not (has_torch and key.startswith(NEEDS_TORCH))]


def with_run(call: Callable[..., Any], inputs: dict[str, str], words: str) -> None:
    """Make the run that the words name."""
    if "RUN" in words.split():
        assert call("run", inputs["CONFIG"], "--policy", "equal", "--out", inputs["RUN"])[0] == 0


@pytest.mark.parametrize("key", typed_by(TRIED))
def test_a_hostile_file_is_refused_in_one_line(
    call: Callable[..., Any], inputs: dict[str, str], tmp_path: Path, key: str
) -> None:
    with_run(call, inputs, TRIED[key])
    for kind in KINDS:
        code, err = outcome(call, inputs, TRIED[key], kind, tmp_path)
        said = f"{kind}: {code}: {err}"
        assert not any(sign in err for sign in ("unforeseen", "out of memory", "Traceback")), said
        if kind in ("folder", "inside") and key in FOLDERS:
            assert code in (0, 1, 2, 4), said
        else:
            assert (code, err.count("error:"), err.count("\n")) == (2, 1, 1), said


@pytest.mark.parametrize("key", typed_by(WRITTEN))
def test_an_output_is_not_written_over_a_hostile_file(
    call: Callable[..., Any], inputs: dict[str, str], tmp_path: Path, key: str
) -> None:
    with_run(call, inputs, WRITTEN[key])
    for kind in ("sparse", "folder", "inside"):
        code, err = outcome(call, inputs, WRITTEN[key], kind, tmp_path)
        assert (code, err.count("error:"), err.count("\n")) == (2, 1, 1), f"{kind}: {code}: {err}"
