from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.table import Table

from migrator.terminal.console import complain, escape, let_streams_take_any_text, note, output, program, progress, warn


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


@pytest.mark.parametrize("name", ["", "/home/me/train.py", "migrate"])
def test_a_program_of_the_user_s_names_ours(script: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("sys.argv", [name])
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "migrator"
    monkeypatch.setenv("PATH", "/nowhere")
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


def test_a_note_keeps_off_a_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress().status("planning"):
        note("compiling")
    (line,) = (line for line in terminal.getvalue().splitlines() if "note:" in line)
    assert "planning" not in line.rpartition("\x1b[2K")[2]  # what stands there since it was erased


def test_what_a_terminal_would_act_on_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    complain("\x1b[31mred\x07 \u202e:x: é")
    assert capsys.readouterr().err == "error: \\x1b[31mred\\x07 \\u202e:x: é\n"


def test_a_text_of_somebody_else_is_shown_as_it_is_without_control_characters(capsys) -> None:
    evil = "a[red]b :x: \x1b[31m \x9b1m \u202e two\nlines é"
    output().print(f"[bold]{escape(evil)}[/]")
    assert capsys.readouterr().out == "a[red]b :x: \\x1b[31m \\x9b1m \\u202e two\\nlines é\n"


def test_control_characters_are_shown_also_where_a_text_was_not_escaped(capsys) -> None:
    table = Table("a\x1b[2J")
    table.add_row("b\x07")
    output().print(table, "c\x1b]0;title\x07\nd")
    found = capsys.readouterr().out
    assert "\x1b" not in found
    assert "\x07" not in found
    assert "c\\x1b]0;title\\x07\nd" in found


def test_an_encoding_of_few_characters_gets_like_ones() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        let_streams_take_any_text()
        stream.write("│▁█ Müller – ≥ 3 × 4 → … 日 \udc80")
    assert stream.buffer.getvalue() == rb"|.# Muller - >= 3 x 4 -> ... \u65e5 \udc80"  # type: ignore[attr-defined]


def test_a_long_complaint_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    complain("x" * 100_000 + ": what is wrong")
    err = capsys.readouterr().err
    assert len(err) < 300
    assert err.endswith(": what is wrong\n")
