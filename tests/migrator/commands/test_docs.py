"""``migrator docs``: a line a page, and a page as it is written or in a pager."""

from __future__ import annotations

import pytest
from rich.console import Console

from migrator.commands import docs
from migrator.commands.docs import DOCS, pages


def test_pages_are_listed_with_a_line_each(call) -> None:
    code, out, _ = call("docs")
    lines = dict(line.split(maxsplit=1) for line in out.split("\n\n", maxsplit=1)[0].splitlines())
    assert (code, set(lines)) == (0, set(pages()))
    assert lines["start"] == "A first day"


def test_without_a_terminal_a_page_is_printed_as_it_is_written(call) -> None:
    for name in ("start", "docs/start.md", "start.md#read-the-report"):
        assert call("docs", name)[:2] == (0, (DOCS / "start.md").read_text("utf-8"))


def test_a_page_that_is_not_there_is_refused_with_those_that_are(call) -> None:
    code, out, err = call("docs", "strat")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: no page 'strat' (did you mean start?); there are architecture")


@pytest.mark.parametrize(
    ("pager", "less", "is_coloured"),
    [(None, None, True), ("less", "-F", False), ("/usr/bin/less -S", "-R", True), ("more", None, False)],
)
def test_on_a_terminal_a_page_is_rendered_in_a_pager(
    call, monkeypatch: pytest.MonkeyPatch, pager: str | None, less: str | None, is_coloured: bool
) -> None:
    shown: list[str] = []
    console = Console(force_terminal=True, color_system="standard", width=80)
    monkeypatch.setattr(docs, "output", lambda: console)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("pydoc.pager", shown.append)
    monkeypatch.delenv("MANPAGER", raising=False)
    for name, value in {"PAGER": pager, "LESS": less}.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert call("docs", "start")[:2] == (0, "")
    (text,) = shown
    assert "A first day" in text
    assert "# A first day" not in text
    assert ("\x1b[" in text) is is_coloured
