"""Two runs side by side: what is not the same is named, and points add up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from migrator.errors import MigratorError
from migrator.log.diff import ROWS, diff_of
from migrator.log.runlog import CONFIG_FILE, EVENTS_FILE, ReadLog, log_in, read_log
from tests.migrator.log import records


@pytest.fixture
def run_as(call, write_config):
    """Runs the small config with these keys changed, and with these options."""

    def run(name: str, changes: dict[str, object] | None = None, *options: str) -> ReadLog:
        assert call("run", write_config(changes), "--out", name, *options)[0] == 0
        return read_log(Path(name))

    return run


def log_with(header: records.Json, **counts: records.Json) -> ReadLog:
    lines = [header, records.window_started(0, 3.0, *counts), records.window_finished(0, **counts)]
    return records.log_of(*records.timed(lines))


def test_a_run_beside_itself_has_no_difference(run_as) -> None:
    one = run_as("one")
    found = diff_of(one, one)
    assert found.is_empty
    assert (found.points, found.causes, found.layouts_differ_s) == (0.0, (), None)


def test_rows_of_two_policies_add_up_to_the_difference_by_window_tenant_and_cause(run_as) -> None:
    one, other, known = (
        run_as("one"),
        run_as("other", None, "--policy", "equal"),
        run_as("known", None, "--policy", "oracle"),
    )
    for hindsight in (None, known):
        found = diff_of(one, other, hindsight)
        assert found.same_requests
        assert sum(gain.points for gain in found.gains) == pytest.approx(found.points, abs=1e-9)
        assert sum(found.by_row.values()) == pytest.approx(found.points, abs=1e-9)
        assert ("forecast" in found.by_row) == found.knows_forecast == (hindsight is not None)
        own, others = (
            100 * sum(sum(counts.correct) for closing in log.settled.values() for counts in closing.tenants.values())
            for log in (one, other)
        )
        assert found.points == pytest.approx((own - others) / found.n_requests[0])
    assert "policy: migrator against equal" in found.unlike
    assert found.layouts_differ_s is not None
    assert [abs(cause.points) for cause in found.causes] == sorted((abs(c.points) for c in found.causes), reverse=True)
    assert all(cause.why for cause in found.causes if cause.row != "queueing")


def test_other_requests_are_compared_by_shares_and_the_rest_is_named(run_as) -> None:
    one = run_as("one")
    other = run_as("other", {"seed": 4, "tenants.0.slo_ms": 200, "profile_variant": "launch-free"})
    found = diff_of(one, other)
    assert not found.same_requests
    assert sum(found.by_row.values()) == pytest.approx(found.points, abs=1e-9)
    assert found.by_row["mix"] == pytest.approx(0.0, abs=1e-9)
    assert found.unlike[0] == "requests: others came, so that shares alone are compared"
    assert {"seed: 3 against 4", "tenants.vision.slo_ms: 150.0 against 200.0"} <= set(found.unlike)
    assert any(line.startswith("as run, tenants.vision.operating_points.") for line in found.unlike)


def test_another_profile_table_or_version_is_named(run_as) -> None:
    one = run_as("one")
    raw = (one.folder / EVENTS_FILE).read_bytes()
    lines = records.as_json(one)
    lines[0]["profiles"], lines[0]["wall"]["version"] = "another table", "9"
    other = log_in(records.lines_of(*lines), one.folder)
    assert raw != records.lines_of(*lines)
    named = diff_of(one, other).unlike
    assert named[0].startswith("version: ")
    assert named[1].startswith("as run, profiles: ")


def test_versions_are_compared_where_both_are_known(run_as) -> None:
    one = run_as("one", {"windows": 1}, "--against", "equal")
    rival = read_log(one.folder / "against")
    assert rival.entries[0].wall.version == one.entries[0].wall.version is not None
    lines = records.as_json(rival)
    del lines[0]["wall"]
    for other in (rival, log_in(records.lines_of(*lines), rival.folder)):
        assert not any(line.startswith("version") for line in diff_of(one, other).unlike)


def test_without_its_config_a_run_is_told_by_its_header(run_as) -> None:
    one = run_as("one")
    shutil.copytree(one.folder, "moved")
    (Path("moved") / CONFIG_FILE).unlink()
    found = diff_of(one, read_log(Path("moved")))
    assert "config: moved/config.yaml cannot be read any more, so that its keys cannot be compared" in found.unlike
    assert len(found.unlike) == 1
    other = diff_of(run_as("other", {"seed": 4}), read_log(Path("moved"))).unlike
    assert "as run, seed: 4 against 3" in other
    assert not any(line.startswith(("seed", "tenants")) for line in other)


def test_tenants_and_windows_of_one_run_alone_are_left_out_and_told() -> None:
    some = records.counts([4, 2, 0], [0, 1, 9], [3, 2, 0])
    one = log_with(records.header(3.0, "a", "b"), a=some, b=some)
    other = log_with(records.header(3.0, "b", "c"), b=some, c=some)
    found = diff_of(one, other)
    assert found.left_out == ("a is in run alone", "c is in run alone")
    assert [gain.tenant for gain in found.gains] == ["b"]
    assert found.same_requests
    two = records.log_of(*records.timed(records.tiny()))
    assert diff_of(two, records.log_of(*records.timed(records.tiny())[:-2])).left_out == ("window 1 of run alone",)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (records.header(3.0, "x"), "have no tenant in common"),
        (records.header(4.0, "a"), "windows have 3 s in run, 4 s in run"),
    ],
)
def test_what_cannot_be_compared_is_refused(other: records.Json, why: str) -> None:
    some = records.counts([4, 2, 0], [0, 1, 9], [3, 2, 0])
    one = log_with(records.header(3.0, "a"), a=some)
    with pytest.raises(MigratorError, match=why):
        diff_of(one, records.log_of(*records.timed([other])))


def test_runs_without_a_settled_window_in_common_are_refused() -> None:
    some = records.counts([4, 2, 0], [0, 1, 9], [3, 2, 0])
    one = log_with(records.header(3.0, "a"), a=some)
    with pytest.raises(MigratorError, match="no settled window in common"):
        diff_of(one, records.log_of(*records.timed([records.header(3.0, "a")])))


def test_a_cause_says_who_was_retrained_earlier() -> None:
    def log(finish_s: float, correct: list[int]) -> ReadLog:
        able = {"could_serve": [9.0] * 3, "changing": [0.0] * 3}
        counted = records.counts([9, 9, 9], [0, 0, 0], correct, **able)
        ended = {**records.finished(0, None, finish_s), "at_s": finish_s}
        begun = {**records.header(3.0, "a"), "sharing": "shares"}
        lines = [begun, records.window_started(0, 3.0, "a"), ended, records.window_finished(0, a=counted)]
        return records.log_of(*records.timed(lines))

    (cause, *_) = diff_of(log(0.5, [5, 9, 9]), log(2.5, [5, 5, 5])).causes
    assert (cause.row, cause.why) == ("wrong_old", "a new model 2 s earlier")
    assert set(ROWS) >= {cause.row}
    (cause, *_) = diff_of(log(0.5, [5, 9, 9]), log(9.0, [5, 5, 5])).causes
    assert cause.why == "a new model, the other had none"


def test_layouts_of_runs_of_other_lengths_differ_only_where_both_ran(run_as) -> None:
    longer, shorter = run_as("longer"), run_as("shorter", {"windows": 1})
    found = diff_of(longer, shorter)
    assert found.layouts_differ_s is None
    assert {gain.points for gain in found.gains} == {0.0}
    assert found.left_out == ("window 1 of longer alone",)


def test_blind_seconds_are_in_neither_run_s_figures_and_told() -> None:
    whole = records.timed(records.tiny())
    lines = records.timed(records.tiny())
    (closing,) = (line for line in lines if line["kind"] == "window_finished" and line["window"] == 0)
    closing["blind"] = [[1, 2]]
    for own in closing["tenants"].values():
        for key, values in own.items():
            if key != "latency_ms":
                own[key] = [0 if second == 1 else value for second, value in enumerate(values)]
    found = diff_of(records.log_of(*lines), records.log_of(*whole))
    assert found.same_requests
    assert found.points == 0.0
    assert found.left_out == ("1 seconds in which the state of one of the GPUs is unknown",)


def test_hindsight_is_of_the_same_requests_and_of_instances(run_as) -> None:
    one, other, third = run_as("one"), run_as("other", {"seed": 9}), run_as("third", None, "--policy", "ekya")
    with pytest.raises(MigratorError, match=r"one: config.yaml and its traces give other requests of vision now"):
        diff_of(one, one, other)
    with pytest.raises(MigratorError, match="third: ekya has no instances"):
        diff_of(one, third, one)
    longer = run_as("longer", {"windows": 3})
    assert diff_of(one, longer, longer).knows_forecast
