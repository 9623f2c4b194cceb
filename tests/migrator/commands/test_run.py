"""Traces as people have them: a run simulates the requests that the file has, or is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.migrator.conftest import WriteConfig

Call = Callable[..., tuple[int, str, str]]

N_SECONDS = 120
COUNTS = np.random.default_rng(7).poisson(9, N_SECONDS)
BEGIN = datetime(2024, 5, 10, 11, 59, tzinfo=UTC)

GRAFANA = '\ufeff"Time","requests"\r\n' + "".join(
    f'"{BEGIN + timedelta(seconds=n):%Y-%m-%d %H:%M:%S}","{count}"\r\n' for n, count in enumerate(COUNTS)
)
EPOCH = "timestamp,requests\n" + "".join(f"{1715342340 + n},{count}\n" for n, count in enumerate(COUNTS))
SECONDS = "second,count\n" + "".join(f"{n},{count}\n" for n, count in enumerate(COUNTS))
PLAIN = "".join(f"{count}\n" for count in COUNTS)

TIMES_S = np.concatenate([np.full(count, n) + (np.arange(count) + 0.5) / count for n, count in enumerate(COUNTS)])
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"{BEGIN.replace(tzinfo=None) + timedelta(seconds=float(time_s)):%Y-%m-%d %H:%M:%S.%f}0,4808,10\n"
    for time_s in TIMES_S - TIMES_S[0]
)
WITH_A_GAP = "".join(f"{time_s:.3f}\n" for time_s in TIMES_S if not 40 <= time_s < 80)
"""A minute and a half of requests, and nothing for 40 s in their midst."""


def simulated(call: Call, path: Path) -> int:
    """Requests of a run of the config."""
    code, _, err = call("run", path, "--out", "out")
    assert code == 0, err
    report = json.loads(call("report", "out", "--json")[1])
    return int(report["tenants"]["language"]["arrivals"])


@pytest.fixture
def config_on(tmp_path: Path, write_config: WriteConfig) -> Callable[..., Path]:
    """Writes a trace, and a config whose two windows of 60 s are all of it; the history is its second half again."""

    def write(text: str, **arrivals: Any) -> Path:
        (tmp_path / "mine.csv").write_bytes(text.encode())
        return write_config({"tenants.1.arrivals": {"trace": "mine.csv", "offset_s": 0, "loop": True, **arrivals}})

    return write


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        (GRAFANA, {}),
        (EPOCH, {}),
        (SECONDS, {}),
        (PLAIN, {"format": "plain-counts"}),
        (AZURE, {}),
        (WITH_A_GAP, {}),
        (WITH_A_GAP, {"gaps": "zero"}),
    ],
    ids=["grafana", "epoch", "seconds", "plain", "azure", "gap", "gap, zero"],
)
def test_a_run_has_the_requests_of_the_file(
    text: str, arrivals: dict[str, Any], config_on: Callable[..., Path], call: Call
) -> None:
    has_gap = text is WITH_A_GAP
    expected = int(COUNTS.sum() - has_gap * COUNTS[40:80].sum())
    assert simulated(call, config_on(text, **arrivals)) == expected


@pytest.mark.parametrize("text", [GRAFANA, SECONDS, AZURE], ids=["grafana", "seconds", "azure"])
@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_a_scaled_run_has_the_requests_of_the_file_times_the_factor(
    text: str, factor: float, config_on: Callable[..., Path], call: Call
) -> None:
    expected = factor * COUNTS.sum()
    found = simulated(call, config_on(text, scale={"factor": factor}))
    assert found == pytest.approx(expected, abs=5 * np.sqrt(expected))


@pytest.mark.parametrize(
    ("text", "arrivals", "words"),
    [
        (PLAIN, {}, f"plain-counts makes {COUNTS.sum():,} requests over 120 s of them"),
        (WITH_A_GAP, {"gaps": "refuse"}, "a silence far from usual: 40 of 120 s have no data"),
        (AZURE.replace(",GeneratedTokens", "").replace(",10", ""), {}, "not the full header of the Azure format"),
        (SECONDS.replace(f"\n50,{COUNTS[50]}", ""), {}, "1 of 120 s have no data, 1 s after 49 (line 51)"),
    ],
    ids=["plain", "gap", "half an azure header", "a missing second"],
)
def test_what_may_mean_two_things_is_refused_in_one_line(
    text: str, arrivals: dict[str, Any], words: str, config_on: Callable[..., Path], call: Call
) -> None:
    code, _, err = call("run", config_on(text, **arrivals))
    assert code == 2
    assert err.count("\n") == 1
    assert words in err


def test_a_run_tells_what_arrives_before_it_plans(config_on: Callable[..., Path], call: Call) -> None:
    err = call("run", config_on(GRAFANA))[2]
    assert f"language: mine.csv, {COUNTS.sum():,} requests over 120 s, mean " in err[: err.index("window 0")]


def test_a_plan_of_a_config_tells_what_arrives(config_on: Callable[..., Path], call: Call) -> None:
    err = call("plan", config_on(GRAFANA), "--no-floors", "--json")[2]
    assert f"language: mine.csv, {COUNTS.sum():,} requests over 120 s, mean " in err


def test_a_gap_is_told_by_the_run_and_by_its_report(config_on: Callable[..., Path], call: Call) -> None:
    err = call("run", config_on(WITH_A_GAP), "--out", "out")[2]
    assert "warning: tenants.language: mine.csv: a silence far from usual: 40 of 120 s" in err
    assert "trace: a silence far from usual: 40 of 120 s" in " ".join(call("report", "out", "--full")[1].split())
    assert "! trace of language: a silence far from usual: 40 of 120 s" in " ".join(call("report", "out")[1].split())


def test_the_log_has_notes_only_where_there_are_any(config_on: Callable[..., Path], call: Call) -> None:
    call("run", config_on(WITH_A_GAP), "--out", "out")
    vision, language = json.loads(call("report", "out", "--json")[1])["run"]["tenants"]
    assert "notes" not in vision
    assert language["notes"][0].startswith("a silence far from usual")


def test_why_a_window_is_planned_anew_is_told_as_it_happens(call, write_config) -> None:
    others = [{"placement": "1g.10gb@0", "to_s": 70}]
    code, _, err = call("run", write_config({"simulation.others": others}), "--verbose")
    told = [line.partition(": planned in ")[0] for line in err.splitlines() if ": planned in " in line]
    assert code == 0
    assert told[-2:] == ["window 1", "window 1, 1g.10gb@0 left by others"]
