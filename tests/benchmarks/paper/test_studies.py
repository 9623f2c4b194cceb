"""Studies are kept by their code's content."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper import studies
from benchmarks.paper.studies import Study
from migrator.errors import OutputError

STUDY = Study("small", "A small one", ("studies.py",), lambda: {"made": 1})


def test_a_damaged_study_is_made_anew_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studies, "CACHE", tmp_path)
    assert studies._kept(STUDY) == {"made": 1}
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"{")
    assert studies._kept(STUDY) == {"made": 1}
    assert f"{path}: damaged; what it held is made anew" in capsys.readouterr().err


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(studies, "CACHE", tmp_path / "file" / "cache")
    with pytest.raises(OutputError, match=r"file/cache: cannot be made: Not a directory$"):
        studies._kept(STUDY)


def test_what_planning_takes_is_the_same_every_time() -> None:
    asked = ["w8"], [10.0]
    rows = studies.planning_work(*asked)
    assert rows == studies.planning_work(*asked)
    assert [(row["cost_model"], row["engines"], row["n"]) for row in rows] == [
        ("paper", ["exact"], 1),
        ("physical", ["physical"], 1),
    ]
    assert all(row["most_schedules"] == row["median_schedules"] for row in rows)
