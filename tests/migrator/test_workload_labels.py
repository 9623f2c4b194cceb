"""Plans and runs say what of their traces and profiles was not measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

CHANGES: dict[str, Any] = {
    "profile_variant": "launch-free",
    "tenants.1.model": "bert-base",
    "tenants.1.arrivals": {"trace": "alibaba-servegen", "scale": {"factor": 0.2}},
}
LABELS = ("synthetic at second scale", "launch-free, no longer as recorded", "3g.40gb × 0.898")


@pytest.mark.parametrize("command", [("plan",), ("run", "--out", "run", "--windows", "1")])
def test_plans_and_runs_say_what_was_not_measured(command: tuple[str, ...], write_config, call, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = call(*command, write_config(CHANGES))
    assert code == 0
    if command[0] == "run":
        assert LABELS[1] in out
        assert LABELS[2] in call("report", "run", "--assumed")[1]
        out = call("report", "run", "--full")[1]
    assert [label for label in LABELS if label not in out] == []


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_says_what_was_not_measured(write_config, call) -> None:
    arguments = ("whatif", write_config(CHANGES), "--vary", "window=0", "--jobs", "1")
    _, text, _ = call(*arguments)
    _, out, _ = call(*arguments, "--json")
    notes = json.loads(out)["notes"]
    assert notes == [
        "trace of language: alibaba-servegen (synthetic at second scale)",
        "service profiles: launch-free",
    ]
    assert [note for note in notes if note not in text] == []


def test_a_run_of_measured_profiles_and_traces_mentions_nothing(write_config, call) -> None:
    _, out, _ = call("run", write_config(), "--windows", "1")
    assert [word for word in ("synthetic", "derived", "launch-free") if word in out] == []


def test_the_report_tells_start_ups_by_phase(write_config, call) -> None:
    call("run", write_config(), "--out", "here")
    _, text, _ = call("report", "here", "--full")
    _, out, _ = call("report", "here", "--json")
    start_ups = json.loads(out)["start_ups"]
    assert "mean s (count)" in text
    assert {tuple(phases) for phases in start_ups.values()} == {
        ("destruction", "initialisation", "library_load", "model_load")
    }
    assert start_ups["vision"]["model_load"]["count"] > 0


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        (
            {"loop": True},
            "tenants.language: alibaba-servegen (synthetic at second scale): loop is true; it must be false",
        ),
        ({"offset_s": 1_209_500}, "need a trace of 1209620 s, but it has 1209600 s; set a smaller offset_s"),
        ({"offset_s": 30}, "tenants.language.arrivals.offset_s is 30; the forecaster needs"),
    ],
)
def test_a_span_that_the_synthetic_trace_lacks_is_bad_input(write_config, call, arrivals, message: str) -> None:
    trace = {"trace": "alibaba-servegen", "scale": {"factor": 0.2}}
    path = write_config({"tenants.1.arrivals": trace | arrivals})
    code, _, errors = call("plan", path)
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith(f"error: {path}: ")
    assert message in errors
