from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from migrator.cli import command_line
from migrator.commands.verbs import Verb
from migrator.extras import EXTRAS


def verbs(command: Any, *names: str) -> Iterator[tuple[str, Verb]]:
    for name, inner in command.commands.items():
        if isinstance(inner, Verb):
            yield " ".join((*names, name)), inner
        else:
            yield from verbs(inner, *names, name)


VERBS = dict(verbs(command_line()))


@pytest.mark.parametrize("arguments", [[], ["--help"], ["gpu"], ["forecast", "--help"], ["frobnicate"]])
def test_what_calls_no_verb_loads_no_verb(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['migrator', *{arguments}]\n"
        "from migrator.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*[name for name in sys.modules if name.startswith('migrator.commands.')], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert set(ran.stderr.splitlines()[-1].split()) == {"migrator.commands.options", "migrator.commands.verbs"}


def test_a_verb_loads_its_own_file_and_not_another_s() -> None:
    code = "import sys; sys.argv = ['migrator', 'docs']\nfrom migrator.cli import main\n"
    code += "try:\n    main()\nfinally:\n    sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_every_verb_helps_where_no_extra_is_installed() -> None:
    absent = sorted({name for extra in EXTRAS.values() for name in extra.modules})
    files = ", ".join(f"migrator.commands.{verb.file}" for verb in VERBS.values())
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import {files}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_a_sentence_options_and_examples_that_name_it(name: str) -> None:
    loaded = VERBS[name].load()
    assert loaded.help == VERBS[name].help
    assert loaded.help.endswith(".")
    calls = loaded.epilog.split(":", 1)[1].split("[/]")[:-1]
    assert calls
    assert all(call.strip().startswith(f"[bold]migrator {name}") for call in calls)


@pytest.mark.parametrize("arguments", [*(name.split() for name in VERBS), [], ["gpu"]], ids=" ".join)
def test_a_flag_is_shown_without_a_type_and_each_example_has_a_line(call, arguments: list[str]) -> None:
    code, out, _ = call(*arguments, "--help")
    assert (code, "<bool>" in out) == (0, False)
    if "Examples:" in out:
        lines = [line.strip() for line in out.partition("Examples:")[2].splitlines() if line.strip()]
        assert all(line.count("migrator ") <= 1 for line in lines)
        assert len(lines) > 1


@pytest.mark.parametrize("name", ["run", "whatif"])
def test_options_of_a_verb_with_many_are_under_titles(name: str, call) -> None:
    titles = VERBS[name].load().titles
    out = call(name, "--help")[1]
    assert [title for title in dict.fromkeys(titles.values()) if f"─ {title} ─" not in out] == []
    assert "─ Options ─" not in out
    assert set(titles) == {param.name for param in VERBS[name].load().params} - {"config"} | {"help"}


@pytest.mark.parametrize(
    ("words", "found"),
    [("migrator rep", ["report"]), ("migrator gpu l", ["layouts", "list"]), ("migrator run --res", ["--resume"])],
)
def test_a_shell_completes_verbs_and_options(words: str, found: list[str]) -> None:
    asked = {"_MIGRATOR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    code = "import sys; sys.argv = ['migrator']\nfrom migrator.cli import main\nmain()"
    environment = {**os.environ, **asked}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (ran.returncode, ran.stderr, ran.stdout.split()) == (0, "", found)


def test_the_help_lists_verbs_under_titles(call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    titles = ["Set up", "Plan and run", "Look at results", "GPUs, models and traffic"]
    assert [title for title in titles if f"─ {title} ─" in out] == titles


def test_a_verb_that_is_not_there_is_told(call) -> None:
    code, out, err = call("gpu", "aply")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "aply" in err
