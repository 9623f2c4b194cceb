"""The tables of ``docs/traces.md``: each config reads the file of its row exactly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from migrator.config.sections import ArrivalsConfig
from migrator.inputs.assembly import reading_of
from tests.workloads.traffic.test_exports import TOOLS
from workloads.errors import TraceError
from workloads.traffic.trace_file import read_trace

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text("utf-8")
ROWS: list[dict[str, Any]] = [
    yaml.safe_load(code) for code in re.findall(r"^\|.*\| `(\{.*\})` \|$", PAGE, re.MULTILINE)
]
TRACES = {row["trace"]: row for row in ROWS if "trace" in row}


def test_every_row_has_a_file_of_the_tool_and_every_file_a_row() -> None:
    assert set(TRACES) == set(TOOLS) - {"wrk.txt", "k6-all.csv"}
    assert len(TRACES) >= 14


@pytest.mark.parametrize("name", TRACES)
def test_the_config_of_a_row_reads_its_file_exactly(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TOOLS[name].text, "utf-8")
    trace = read_trace(tmp_path / name, reading_of(ArrivalsConfig.model_validate(TRACES[name])))
    assert int(trace.counts.sum()) == TOOLS[name].true
    assert not [note for note in trace.notes if "taken for seconds" in note]


def test_what_wrk_writes_is_a_rate() -> None:
    said = re.search(r"^Requests/sec: (.*)$", TOOLS["wrk.txt"].text, re.MULTILINE)
    assert said is not None
    (row,) = (row for row in ROWS if "trace" not in row)
    assert ArrivalsConfig.model_validate(row).rate_rps == float(said[1])


def test_all_figures_of_k6_are_not_read_with_the_config_for_one(tmp_path: Path) -> None:
    (tmp_path / "k6.csv").write_text(TOOLS["k6-all.csv"].text, "utf-8")
    with pytest.raises(TraceError, match=r"the rows are of 3 figures, by 'metric_name' \(http_reqs, http_req_duration"):
        read_trace(tmp_path / "k6.csv", reading_of(ArrivalsConfig.model_validate(TRACES["k6.csv"])))


def test_the_command_for_k6_keeps_a_row_for_each_request() -> None:
    pattern = re.search(r"grep -E '(.*?)' all\.csv", PAGE)
    assert pattern is not None
    kept = [line for line in TOOLS["k6-all.csv"].text.splitlines() if re.match(pattern[1].replace("\\|", "|"), line)]
    assert "\n".join([*kept, ""]) == TOOLS["k6.csv"].text
