"""In which unit a trace's times are, and what is doubtful of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.errors import TraceError
from workloads.traffic.trace_file import Reading, TraceFormat, read_trace
from workloads.traffic.trace_times import TimeUnit, dates_in_digits, odd_unit, other_readings

SHAPES = {"%Y%m%d": timedelta(days=1), "%Y%m%d%H": timedelta(hours=1), "%Y%m%d%H%M": timedelta(minutes=1)}
SHAPES["%Y%m%d%H%M%S"] = timedelta(seconds=1)


@settings(derandomize=True, max_examples=examples(60))
@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2098, 1, 1)),  # noqa: DTZ001 - as hypothesis takes them
    st.sampled_from(sorted(SHAPES)),
    st.integers(1, 200),
)
def test_digits_are_the_dates_that_strftime_writes(begin: datetime, shape: str, n: int) -> None:
    written = [(begin.replace(tzinfo=UTC) + row * SHAPES[shape]).strftime(shape) for row in range(n)]
    true = [1e6 * datetime.strptime(text, shape).replace(tzinfo=UTC).timestamp() for text in written]
    found = dates_in_digits(np.array(written, dtype=float))
    assert found is not None
    assert found.tolist() == true


@pytest.mark.parametrize(
    "values",
    [
        [1715342400, 1715342401],
        [2024051099, 2024051098, 2024051097],
        [20240230.0],
        [19991231.0],
        [20240510.5],
        [1715342400000],
        [17],
        [1e300],
    ],
)
def test_other_numbers_are_no_dates(values: list[float]) -> None:
    assert dates_in_digits(np.array(values, dtype=float)) is None


@pytest.mark.parametrize(
    ("n", "span", "units"),
    [
        (151, 60_000.0, "s or ms"),
        (9_000, 10_000.0, "s or ms"),
        (20_000, 6e7, "ms or us"),  # as seconds, longer than a trace may be
        (151, 999.0, None),
        (2_000, 1_000.0, None),
        (1, 60_000.0, None),
        (100, 2e6, "s or ms or us"),
    ],
)
def test_seconds_are_doubted_where_requests_hardly_come(n: int, span: float, units: str | None) -> None:
    found = other_readings(n, span)
    assert (found is None) == (units is None), found
    assert units is None or f"arrivals.unit: {units} says which" in str(found)


@pytest.mark.parametrize(
    ("n", "span_s", "unit", "words"),
    [
        (151, 6e5, "s", "s makes 151 requests over 6.9 days; ms would make it 10.0 minutes"),
        (151, 0.06, "ms", "ms makes 151 requests over 0.06 s; s would make it 60 s"),
        (151, 60.0, "ms", None),
        (400_000, 1_500_000.0, "s", None),
        (1, 0.0, "ms", None),
    ],
)
def test_a_given_unit_by_which_requests_hardly_come_or_all_at_once_is_noted(
    n: int, span_s: float, unit: str, words: str | None
) -> None:
    found = odd_unit(n, span_s, TimeUnit(unit))
    assert found == (() if words is None else (f"arrivals.unit: {words}",))


MS = Reading(unit=TimeUnit.MS)


@pytest.mark.parametrize(
    ("text", "reading", "words"),
    [
        ("time\n2024-05-10 12:00\n", MS, "line 2: '2024-05-10 12:00' is a date and time, which has no unit; leave out"),
        ("second,count\n0,5\n1,6\n", MS, "arrivals.unit is ms; the header second,count says seconds"),
        ("second,count\n2024051000,5\n", Reading(), "which is no second; the header timestamp,count takes dates"),
        ("requests\n5\n6\n", MS, "arrivals.unit is ms; plain-counts has no times"),
        ("t,requests\n0,5\n60,6\n", MS, "'60' comes 0.06 s after the row before"),
        ("a,b\n0,5\n", Reading(time_column="c"), "arrivals.time_column is 'c'; its columns: 'a', 'b'"),
        ("times,b\n0,5\n", Reading(time_column="time"), "is 'time' (did you mean times?); its columns: 'times', 'b'"),
        ("t,a,t\n0,5,1\n", Reading(time_column="t"), "is 't', as several columns are called: 't', 'a', 't'"),
        ("0,5\n1,6\n", Reading(time_column="t"), "arrivals.time_column is 't'; the file has no header with names"),
        ('{"status":"success"}', Reading(time_column="t"), "time_column is of tables and JSON lines"),
        ('{"status":"success"}', MS, "arrivals.unit is of tables and JSON lines"),
        ('{"t":1}\n\n{"t":2\n', Reading(), "line 3: is no JSON"),
        ('{"t":1}\n{"t":2}\n[3]\n', Reading(), "line 3: '[3]' is no object of JSON, as line 1 is"),
        ('{"t":1}\n{"s":2}\n', Reading(), "line 2: 't' has no time, as it has in line 1"),
        ('{"t":1}\n{"t":null}\n', Reading(), "line 2: 't' has no time"),
        ('{"t":1.5}\n\n{"t":"soon"}\n', Reading(), "line 3: t is 'soon'; a finite number ≥ 0 is needed"),
        ('{"t":1, "n":2}\n{"t":2}\n', Reading(column="m"), "arrivals.column is 'm'; its series: 'n'"),
        ('{"a":[1]}\n{"a":[2]}\n', Reading(), "line 1: has lists and objects alone ('a'); take the time out"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    text: str, reading: Reading, words: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "a", reading)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reading", "words"),
    [
        ("time_s\n0\n2000\n", Reading(unit=TimeUnit.MS), "where the header 'time_s' says seconds"),
        ("1715342400\n1715342405\n", MS, "where the size of the times says seconds of the epoch"),
        ("t\n2024051000\n2024051001\n", Reading(unit=TimeUnit.S), "where the digits of the times read as dates"),
        (
            "t,requests\n0,5\n60000,6\n120000,7\n",
            Reading(unit=TimeUnit.S),
            "s makes rows 60,000 s apart; a unit a thousandth of it would make them 60 s apart",
        ),
    ],
)
def test_a_unit_against_which_the_file_speaks_is_obeyed_and_noted(
    text: str, reading: Reading, words: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text(text)
    assert words in "; ".join(read_trace(tmp_path / "a", reading).notes)


@pytest.mark.parametrize("unit", TimeUnit)
@pytest.mark.parametrize("begin", [0, 1_715_342_400])
def test_a_trace_is_the_same_in_every_unit(unit: TimeUnit, begin: int, tmp_path: Path) -> None:
    quarters = [0, 0, 1, 3, 7, 8, 21, 60]
    (tmp_path / "a").write_text("".join(f"{(4 * begin + n) * unit.per_s // 4}\n" for n in quarters))
    trace = read_trace(tmp_path / "a", Reading(TraceFormat.TIMESTAMPS, unit=unit))
    assert trace.times_s is not None
    # Whole seconds have no quarters; a double has no more than a quarter of a microsecond of now.
    step = 1.0 if unit is TimeUnit.S else 0.25
    assert trace.times_s == pytest.approx([n // 4 if step == 1 else n / 4 for n in quarters], abs=1e-6)


@pytest.mark.parametrize(("name", "per_s"), [("time_ms", 1e3), ("t_ms", 1e3), ("time (us)", 1e6), ("time_ns", 1e9)])
def test_a_header_says_the_unit_of_times_since_any_begin(name: str, per_s: float, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"{name},requests\n" + "".join(f"{second * per_s:.0f},5\n" for second in range(4)))
    assert read_trace(tmp_path / "a").counts.tolist() == [5, 5, 5, 5]


def test_the_column_of_times_may_stand_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("code,Begun,hits,errors\n200,0,5,1\n200,1,6,0\n")
    assert read_trace(tmp_path / "a", Reading(time_column="begun", column="hits")).counts.tolist() == [5, 6]


def test_lines_of_json_keep_their_numbers_in_refusals(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"t": 5, "n": 1}\n\n{"t": 4, "n": 2}\n')
    with pytest.raises(TraceError, match="a line 3: t 4 follows 5; times must ascend"):
        read_trace(tmp_path / "a", Reading(TraceFormat.TIMESTAMP_COUNTS))
