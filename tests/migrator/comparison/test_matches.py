"""Comparisons: the same requests for everybody, segments that differ, and figures that add up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.comparison.matches import MatchScore, matches_of, score_of, standings
from migrator.config.reading import read_config
from migrator.errors import ConfigError
from migrator.inputs.assembly import assemble
from workloads.serving.tally import Totals


def score(policy: str, correct: int, segment: int = 0, workload: str = "w") -> MatchScore:
    return MatchScore(policy, workload, segment, (Totals(arrivals=1000, in_time=correct, correct=correct),), {}, 2, 0)


def traced(write_config, changes=None):
    """A config whose tenants both have a trace."""
    trace = {"trace": "azure-code", "offset_s": 100, "scale": {"factor": 4.0}}
    return write_config({"tenants.0.arrivals": trace, **(changes or {})})


def test_all_policies_see_the_same_requests(write_config):
    path = write_config()
    found = [score_of(match) for match in matches_of(read_config(path), str(path), ["static", "equal"], 1)]
    assert found[0].total.arrivals == found[1].total.arrivals > 0
    assert len(found[0].totals) == 2


def test_the_same_match_has_the_same_score(write_config):
    path = write_config()
    match = matches_of(read_config(path), str(path), ["migrator"], 1)[0]
    first, second = score_of(match), score_of(match)
    assert (first.totals, first.n_changes) == (second.totals, second.n_changes)


def test_segments_are_pieces_one_after_the_other(write_config):
    path = traced(write_config)
    matches = matches_of(read_config(path), str(path), ["window"], 3)
    offsets = [match.config.tenants[1].arrivals.offset_s for match in matches]
    assert offsets == [100, 220, 340]
    assert len({score_of(match).total.arrivals for match in matches}) == 3


@pytest.mark.parametrize(("load_over", "n_different"), [("run", 1), ("segment", 3)])
def test_a_load_is_of_the_run_or_of_each_segment(load_over, n_different, write_config):
    path = traced(write_config, {"load": 0.3, "load_over": load_over, "tenants.1.arrivals.scale": {}})
    matches = matches_of(read_config(path), str(path), ["window"], 3)
    configs = [assemble(match.config, "here")[0].config for match in matches]
    assert len({config.tenants[1].arrivals.scale.factor for config in configs}) == n_different


@pytest.mark.parametrize(("load_over", "is_own"), [("run", True), ("segment", False)])
def test_fewer_windows_keep_the_factor_of_the_configs_own_over_the_run(load_over, is_own, write_config):
    path = traced(write_config, {"load": 0.3, "load_over": load_over, "tenants.1.arrivals.scale": {}})
    whole, cut = (matches_of(read_config(path, windows=n), str(path), ["window"], 1)[0].config for n in (None, 1))
    factors = [assemble(config, "here")[0].config.tenants[1].arrivals.scale.factor for config in (whole, cut)]
    assert (factors[0] == factors[1]) is is_own


def test_arrivals_without_a_later_piece_have_one_segment(write_config):
    path = write_config()
    with pytest.raises(ConfigError, match=r"tenants.vision.arrivals: --segments 2 needs a trace"):
        matches_of(read_config(path), str(path), ["window"], 2)


def test_a_segment_beyond_the_trace_is_told(write_config):
    path = traced(write_config)
    with pytest.raises(ConfigError, match=r"^segment \d+ of 200: "):
        matches_of(read_config(path), str(path), ["window"], 200)


def test_standings_close_the_gap_between_static_and_oracle():
    found = standings([score("migrator", 650), score("static", 600), score("oracle", 700)])
    assert [item.gap_closed for item in found] == pytest.approx([0.5, 0.0, 1.0])
    assert [item.relative_gain for item in found] == pytest.approx([650 / 600 - 1, 0.0, 700 / 600 - 1])


@pytest.mark.parametrize(
    "others", [[score("oracle", 700)], [score("static", 700)], [score("static", 700), score("oracle", 700)]]
)
def test_a_gap_that_is_not_there_is_not_closed(others):
    assert all(item.gap_closed is None for item in standings([score("migrator", 650), *others]))


def test_differences_are_paired_by_segment():
    ours = [score("migrator", 500 + 100 * (k % 3), k) for k in range(6)]
    theirs = [score("static", 490 + 100 * (k % 3), k) for k in range(6)]
    ahead = standings([*ours, *theirs])[1].ahead
    assert (ahead.points, ahead.low, ahead.high) == pytest.approx((-1.0, -1.0, -1.0))


def test_few_segments_have_no_interval():
    ahead = standings([score("migrator", 500), score("static", 400)])[1].ahead
    assert (ahead.points, ahead.low, ahead.high) == (-10.0, None, None)


def test_an_interval_holds_the_mean():
    ours = [score("migrator", 500, k) for k in range(8)]
    ahead = standings([*ours, *(score("static", 480 + 7 * k, k) for k in range(8))])[1].ahead
    assert ahead.low < ahead.points < ahead.high


def test_workloads_of_one_segment_are_resampled_together():
    def ahead(*workloads):
        ours = [replace(score("migrator", 500, k), workload=name) for name in workloads for k in range(8)]
        theirs = [replace(score("static", 480 + 7 * k, k), workload=name) for name in workloads for k in range(8)]
        return standings([*ours, *theirs])[1].ahead

    one, same = ahead("w1"), ahead("w1", "w2", "w3")
    assert (same.points, same.low, same.high) == pytest.approx((one.points, one.low, one.high))


def test_workloads_alone_have_no_interval():
    ours = [replace(score("migrator", 500), workload=f"w{k}") for k in range(8)]
    theirs = [replace(score("static", 480 + 7 * k), workload=f"w{k}") for k in range(8)]
    assert standings([*ours, *theirs])[1].ahead.low is None


def test_the_command_prints_a_table_and_writes_json(call, write_config, tmp_path: Path):
    out = tmp_path / "compared.json"
    code, printed, said = call("compare", write_config(), "--policies", "static,equal", "--jobs", 1, "--out", out)
    assert code == 0, said
    assert "small: one segment of 2 windows" in printed
    document = json.loads(out.read_text("utf-8"))
    assert [item["policy"] for item in document["overall"]] == ["static", "equal"]
    assert document["simulated"] is True


@pytest.mark.usefixtures("in_this_process")
def test_what_was_not_measured_is_said(call, write_config):
    synthetic = {"trace": "alibaba-servegen", "offset_s": 700, "scale": {"factor": 1.0}}
    code, out, _ = call(
        "compare", write_config({"tenants.0.arrivals": synthetic}), "--policies", "equal", "--windows", 1, "--jobs", 1
    )
    assert code == 0
    assert "trace: vision: " in out
    assert "synthetic at second scale" in out
