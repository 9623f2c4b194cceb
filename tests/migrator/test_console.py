from __future__ import annotations

from pathlib import Path

import pytest

from migrator.console import complain, note, program, warn


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "migrator"
    script.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(script)])
    return script


def test_a_program_on_the_path_is_called_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "migrator"


def test_a_program_elsewhere_is_called_as_it_was(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(script)


def test_a_module_is_called_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/migrator/__main__.py"])
    assert program() == "python -m migrator"


def test_a_complaint_is_one_line_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    complain("two\nlines [bold]and[/] brackets [x]")
    assert capsys.readouterr().err == "error: two lines [bold]and[/] brackets [x]\n"


def test_a_note_is_one_line_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    note("two\nlines")
    assert capsys.readouterr().err == "note: two lines\n"


def test_a_warning_is_one_line_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    warn("two\nlines")
    assert capsys.readouterr().err == "warning: two lines\n"


def test_what_a_terminal_would_act_on_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    complain("\x1b[31mred\x07 \u202e:x: é")
    assert capsys.readouterr().err == "error: \\x1b[31mred\\x07 \\u202e:x: é\n"
