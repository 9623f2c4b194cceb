"""A hundred mistakes of people: none passes without a word; each is refused in one line, or warned of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fuzz import mistakes
from tests.fuzz.cases import profiles_text
from tests.fuzz.judge import called
from tests.fuzz.mistakes import WARNED
from tests.fuzz.originals import CONFIG, PHYSICAL, TRACES
from tests.migrator.conftest import changed

GOOD = changed(CONFIG, {"simulation.others": None})
PLAN = ("plan", "config.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(GOOD))
    (tmp_path / "problem.json").write_text(json.dumps(PHYSICAL))
    (tmp_path / "trace.csv").write_text(TRACES["counts"])
    (tmp_path / "profiles.csv").write_text(profiles_text())
    (tmp_path / "tabs.yaml").write_text("gpu:\n\tmodel: a100-80gb\n")
    return tmp_path


def wrong(name: str, folder: Path, arguments: tuple[str, ...], says: str) -> Iterator[str]:
    """What is wrong with what is said of the mistake."""
    code, _, err = called(arguments, folder)
    refused = [line for line in err.splitlines() if line.startswith("error: ")]
    warned = [line for line in err.splitlines() if line.startswith(WARNED)]
    if says.startswith(WARNED):
        if code != 0 or not any(says.removeprefix(WARNED) in line for line in warned):
            yield f"{name}: exit {code}, not warned of: {err}"
    elif code != 2 or len(refused) != 1 or says not in refused[0] or err.splitlines()[-1:] != refused:
        yield f"{name}: exit {code}: {err}"


def test_there_are_a_hundred_and_more() -> None:
    kinds = (mistakes.CONFIGS, mistakes.TRACES, mistakes.PROFILES, mistakes.PROBLEMS, mistakes.ARGUMENTS)
    assert sum(map(len, kinds)) >= 100


def test_without_a_mistake_nothing_is_said(folder: Path) -> None:
    code, _, err = called(PLAN, folder)
    assert (code, "error" in err, "warning" in err) == (0, False, False)


@pytest.mark.parametrize("part", range(3))  # each of a moment
def test_mistakes_in_a_config(part: int, folder: Path) -> None:
    found = list[str]()
    for name, (changes, says) in [*mistakes.CONFIGS.items()][part::3]:
        (folder / "config.yaml").write_text(yaml.safe_dump(changed(GOOD, changes), allow_unicode=True))
        found += wrong(name, folder, PLAN, says)
    assert not found, "\n".join(found)


def test_mistakes_in_a_trace(folder: Path) -> None:
    found = list[str]()
    for name, (text, keys, says) in mistakes.TRACES.items():
        arrivals = {"trace": "trace.csv", "loop": True, **keys}
        (folder / "config.yaml").write_text(yaml.safe_dump(changed(GOOD, {"tenants.1.arrivals": arrivals})))
        (folder / "trace.csv").write_text(text)
        found += wrong(name, folder, PLAN, says)
    assert not found, "\n".join(found)


def test_mistakes_in_service_profiles(folder: Path) -> None:
    found = list[str]()
    for name, (text, says) in mistakes.PROFILES.items():
        (folder / "profiles.csv").write_text(text)
        found += wrong(name, folder, PLAN, says)
    assert not found, "\n".join(found)


def test_mistakes_in_a_problem_file(folder: Path) -> None:
    found = list[str]()
    for name, (changes, says) in mistakes.PROBLEMS.items():
        (folder / "problem.json").write_text(json.dumps(changed(PHYSICAL, changes)))
        found += wrong(name, folder, ("plan", "--problem", "problem.json"), says)
    assert not found, "\n".join(found)


def test_mistakes_in_arguments(folder: Path) -> None:
    found = list[str]()
    for name, (typed, says) in mistakes.ARGUMENTS.items():
        found += wrong(name, folder, tuple(typed.split()), says)
    assert not found, "\n".join(found)
