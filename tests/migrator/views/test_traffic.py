from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from migrator.config.reading import read_config
from migrator.inputs.assembly import assemble
from migrator.views.traffic import print_load_of_segments, print_traffic, traffic_lines
from tests.migrator.conftest import WriteConfig


def lines(path: Path, windows: int | None = None) -> list[str]:
    config = read_config(path, windows=windows)
    return list(traffic_lines(config, assemble(config, "a.yaml")[1]))


def test_a_line_has_source_requests_scale_and_what_comes_of_them(write_config: WriteConfig) -> None:
    line = lines(write_config())[1]
    assert line.startswith(
        "language: azure-conv, 19,366 requests over 3,502 s, mean 5.53/s, peak 16/s; "
        "poisson × 4: bursts within 10 s are redrawn; "
    )
    assert " requests in the run's 120 s, load 0." in line


def test_arrivals_without_a_trace_have_a_line(write_config: WriteConfig) -> None:
    assert lines(write_config())[0].startswith("vision: poisson 60/s; drawn × 1; ")


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ({}, "; replayed as recorded; "),
        ({"factor": 0.25}, "; thin × 0.25: requests are left out at random; "),
        ({"method": "copies", "factor": 2.5}, "; copies × 2.5: each copy at a time of its own inside the second; "),
        ({"method": "poisson", "smooth_s": 5}, "; poisson × 1: bursts within 5 s are redrawn; "),
    ],
)
def test_what_scaling_does_is_said_in_words(scale: Mapping[str, Any], words: str, write_config: WriteConfig) -> None:
    assert words in lines(write_config({"tenants.1.arrivals.scale": scale}))[1]


def test_a_file_of_counts_is_named_without_its_folder_and_with_what_is_drawn(
    tmp_path: Path, write_config: WriteConfig
) -> None:
    (tmp_path / "mine.csv").write_text("second,count\n" + "".join(f"{second},5\n" for second in range(200)))
    path = write_config({"tenants.1.arrivals": {"trace": "mine.csv", "offset_s": 60}})
    assert lines(path)[1] == (
        "language: mine.csv, 1,000 requests over 200 s, mean 5/s, peak 5/s; replayed as recorded, at times drawn "
        "inside the second; 600 requests in the run's 120 s, load 0.01"
    )


@pytest.mark.parametrize(("windows", "does"), [(1, "cut to 1 window"), (5, "extended to 5 windows")])
def test_other_windows_than_the_loads_are_told(windows: int, does: str, write_config: WriteConfig) -> None:
    path = write_config({"load": 0.3, "tenants.0.arrivals.scale": {}})
    assert lines(path, windows)[-1] == f"load 0.3 is over the config's own 2 windows; the run is {does}"


@pytest.mark.parametrize("changes", [{}, {"load": 0.3, "tenants.0.arrivals.scale": {"factor": 1.0}}])
def test_without_a_load_that_is_followed_nothing_is_told_of_its_windows(
    changes: Mapping[str, Any], write_config: WriteConfig
) -> None:
    assert len(lines(write_config(changes), 1)) == 2


def test_what_was_taken_for_granted_is_a_warning(
    tmp_path: Path, write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.csv").write_text("time,count\n" + "".join(f"{1715340000000 + 1000 * n},5\n" for n in range(200)))
    config = read_config(write_config({"tenants.1.arrivals": {"trace": "mine.csv", "offset_s": 60}}))
    print_traffic(config, assemble(config, "a.yaml")[1], Console(quiet=True))
    assert capsys.readouterr().err == (
        "warning: tenants.language: mine.csv: times are taken for milliseconds of the epoch\n"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"load_over": "segment"}, "each segment is brought to it by itself (load_over: segment)"),
        ({}, "over the config's own 2 windows, the same factors on all segments"),
    ],
)
def test_a_comparison_tells_over_which_seconds_its_load_is(
    changes: Mapping[str, Any], words: str, write_config: WriteConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    print_load_of_segments(read_config(write_config({"load": 0.3, **changes})), Console(width=200))
    assert capsys.readouterr().out == f"small: load 0.3: {words}\n"
