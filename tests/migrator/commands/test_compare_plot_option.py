"""``compare --plot``: refused before anything is simulated, or a page of the same figures as the tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from executor.extras import install
from migrator.commands import compare as command

BAD = [
    (["--plot", "nosuch/page.html"], "there is no folder nosuch"),
    (["--plot", "."], "--plot .: is a folder"),
    (["--out", "a.json", "--plot", "a.json"], "--plot a.json: is the same file as a.json"),
]


@pytest.fixture
def nothing_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("something was simulated")

    monkeypatch.setattr(command, "_scores", refuse)


def test_the_page_is_made_of_the_table_s_results(call, write_config, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, printed, _ = call(
        "compare", write_config(), "--policies", "static,equal", "--windows", 1, "--jobs", 1, "--plot", page
    )
    goodput_pct = next(line.split()[1] for line in printed.splitlines() if line.split()[:1] == ["static"])
    assert (code, f"goodput {goodput_pct} %" in page.read_text("utf-8")) == (0, True)


@pytest.mark.usefixtures("nothing_simulated")
@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_a_page_that_cannot_be_written_is_refused(call, write_config, arguments: list[str], message: str) -> None:
    code, out, err = call("compare", write_config(), "--policies", "static", *arguments)
    assert (code, out, err.count("\n"), message in err) == (2, "", 1, True)


@pytest.mark.usefixtures("nothing_simulated")
def test_a_config_is_not_written_over(call, write_config) -> None:
    path = write_config()
    code, _, err = call("compare", path, "--policies", "static", "--plot", path)
    assert (code, "is the same file as" in err) == (2, True)


@pytest.mark.usefixtures("nothing_simulated")
def test_without_plotly_the_extra_is_named(call, write_config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, out, err = call("compare", write_config(), "--policies", "static", "--plot", "page.html")
    assert (code, out, err.count("\n"), install("plot") in err) == (2, "", 1, True)
