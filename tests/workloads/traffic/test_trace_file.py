import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.errors import TraceError
from workloads.traffic.gaps import Gaps
from workloads.traffic.trace_file import SHIPPED, Reading, TraceFormat, find_trace, read_trace, shipped_trace

SOURCE = Path(__file__).parents[4] / "shared" / "data" / "traces"
FOLDERS = {"azure": "azure_llm_2023", "apollo": "apollo_perception", "disb": "disb_real"}
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.2319600,1,2\n"
)
FILES = {
    "counts": ("second,count\n7,1\n8,0\n9,2\n", [1, 0, 2]),
    "counts with a blank line": ("second,count\n7,1\n\n8,2\n", [1, 2]),
    "header in capitals, with spaces": ("Second, Count\r\n7, 1\r\n8, 2.0\r\n", [1, 2]),
    "old line ends": ("second,count\r7,1\r8,2\r", [1, 2]),
    "azure": (AZURE, [1, 1]),
    "header and times with zones": (
        "timestamp\n2024-05-10T00:00:00.009930+00:00\n2024-05-10T01:00:02.5+01:00\n",
        [1, 0, 1],
    ),
    "dates without a header": ("2024-05-10 00:00:00.5\n2024-05-10 00:00:00.5\n2024-05-10 00:00:02\n", [2, 0, 1]),
    "timestamps": ("3.25\n3.5\n5\n", [2, 0, 1]),
    "seconds of the epoch": ("1700000003\n1700000005\n", [1, 0, 1]),
    "milliseconds of the epoch": ("1700000003999\n1700000004000\n1700000006000\n", [1, 1, 0, 1]),
    "microseconds of the epoch": ("1700000003999999\n1700000004000000\n", [1, 1]),
    "byte order mark": ("\ufeffsecond,count\n0,4\n", [4]),
    "named counts": ("requests\n5\n0\n7\n", [5, 0, 7]),
    "named counts of epoch seconds": ("timestamp,requests\n1715340000,3\n1715340001,0\n1715340002,4\n", [3, 0, 4]),
    "counts of ISO seconds": ("Time,value\n2024-05-10T12:00:59Z,3\n2024-05-10T12:01:00Z,4\n", [3, 4]),
    "counts of milliseconds": ("time,hits\n1715340000000,3\n1715340001000,4\n", [3, 4]),
    "semicolons": ("time;count\n10;3\n11;4\n", [3, 4]),
    "tabs": ("time\tcount\n10\t3\n11\t4\n", [3, 4]),
    "a spreadsheet's first line": ('sep=;\r\n"Time";"requests"\r\n"10";"3"\r\n"11";"4"\r\n', [3, 4]),
    "quoted cells": ('"second","count"\n"0","3"\n"1","4"\n', [3, 4]),
    "a row every 4 seconds": ("time,requests\n100,8\n104,3\n108,0\n", [2, 2, 2, 2, 1, 1, 0, 1, 0, 0, 0, 0]),
    "a row every minute": (
        "time,requests\n2024-05-10 12:00,60\n2024-05-10 12:01,120\n",
        [1] * 60 + [2] * 60,
    ),
    "counts that begin between seconds": ("time,requests\n10.25,3\n11.25,4\n12.25,5\n", [3, 4, 5]),
}
BAD = {
    "text in the count": ("second,count\n0,1\n1,many\n", "line 3: count is 'many'; a finite number ≥ 0 is needed"),
    "text in the second": ("second,count\nx,1\n", "line 2: second is 'x'"),
    "negative count": ("second,count\n0,-1\n", "line 2: count is '-1'; a finite number ≥ 0 is needed"),
    "nothing but NaN": ("second,count\n0,nan\n1,\n", "no row of 'count' holds a number"),
    "infinite count": ("second,count\n0,inf\n", "line 2: count is 'inf'"),
    "grouped digits": ("second,count\n0,1_0\n", "line 2: count is '1_0'"),
    "thousands in quotation marks": ('time,requests\n0,"1,200"\n', "line 2: requests is '1,200'"),
    "half a request": ("second,count\n0,1.5\n", "line 2: count is '1.5'; a whole number"),
    "half a request behind a blank line": ("second,count\n\n0,1\n\n1,1.5\n", "line 5: count is '1.5'"),
    "huge count": ("second,count\n0,1e12\n", "line 2: count is 1e12; at most 1000000"),
    "empty cell": ("second,count\n0,5\n1,\n", "1 of 2 s have no data, 1 s after 0 (line 2); arrivals.gaps: zero"),
    "empty cell at the begin": ("second,count\n0,-\n1,5\n", "1 of 2 s have no data, 1 s from 0 (line 2) on; arrivals"),
    "empty cells of one column": ('requests\n5\n\n""\n7\n', "2 of 4 s have no data, 2 s after 5 (line 2)"),
    "missing cell": ("second,count\n0\n", "line 2: '0' has 1 columns"),
    "one cell too many": ("second,count\n0,1,2\n", "line 2: '0,1,2' has 3 columns"),
    "unsorted seconds": ("second,count\n5,1\n4,1\n", "line 3: second 4 follows 5; times must ascend, or arrivals.sort"),
    "duplicate seconds": ("second,count\n5,1\n5,1\n", "line 3: second 5 is in line 2 already"),
    "missing seconds": (
        "second,count\n7,1\n9,2\n",
        "1 of 3 s have no data, 1 s after 7 (line 2); arrivals.gaps: zero (no requests came), interpolate or refuse",
    ),
    "two gaps": ("second,count\n0,1\n2,2\n5,1\n", "3 of 6 s have no data in 2 gaps, the longest 2 s after 2 (line 3)"),
    "missing minutes": (
        "time,requests\n0,1\n60,2\n120,1\n240,1\n",
        "60 of 300 s have no data, 60 s after 120 (line 4)",
    ),
    "header alone": ("second,count\n", "no rows below the header"),
    "azure header alone": ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no rows below the header"),
    "half an azure header": ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,1\n", "not the full header of the Azure"),
    "nothing": ("\n  \n", "the file is empty"),
    "unknown header": ("host,requests\n0,1\n", "line 1: the header 'host,requests' opens no known kind of trace"),
    "three columns": (
        "time,Requests,errors\n0,1,0\n",
        "it has 2 series; arrivals.column chooses one of 'Requests', 'errors'",
    ),
    "no time": (AZURE + "yesterday,1,2\n", "line 4: TIMESTAMP is 'yesterday'; a time like 2023"),
    "text among times": ("0.5\nsoon\n", "line 2: time is 'soon'"),
    "negative time": ("0.5\n-1\n", "line 2: time is '-1'"),
    "unsorted times": ("1700000005\n1700000003.5\n", "neither whole counts nor ascending times"),
    "unsorted dates": (
        "time\n2024-05-10 00:00:02\n2024-05-10 00:00:01\n",
        "line 3: time 2024-05-10 00:00:01 follows 2024-05-10 00:00:02; times must ascend, or arrivals.sort: true",
    ),
    "some times with a zone": (
        "time\n2024-05-10T00:00:01Z\n2024-05-10T00:00:02\n",
        "line 3: time is '2024-05-10T00:00:02'; times with and without a time zone",
    ),
    "milliseconds among seconds": ("1700000000.5\n1700000000900\n", "at most 31622400"),
    "milliseconds as seconds": (
        "second,count\n1700000000000,1\n",
        "line 2: second is 1,700,000,000,000, which is no second",
    ),
    "rows a thousand apart": ("time,requests\n0,1\n1000,1\n", "1,000 apart, which may be seconds or milliseconds"),
    "seconds far apart": ("second,count\n0,1\n99999999,1\n", "at most 31622400"),
    "plain counts": (
        "5\n3\n4\n",
        "plain-counts makes 12 requests over 3 s of them, timestamps 3 requests over 3 s, once sorted",
    ),
    "plain numbers that ascend": (
        "5\n7\n11\n",
        "plain-counts makes 23 requests over 3 s of them, timestamps 3 requests over 7 s",
    ),
    "a header that says nothing": ("x\n5\n3\n", "does not say what a row is; arrivals.format: plain-counts makes 8"),
    "two columns without a header": (
        "1715340000,5\n1715340001,7\n",
        "over 1 s each, 12 requests; timestamps takes each row for a request, 2 in all",
    ),
    "a column that may be anything": ("time,load\n0,5\n1,7\n", "'time,load' does not say what a row is"),
    "latencies": ("time,request_latency_ms\n0,5\n1,7\n", "does not say what a row is"),
    "tokens": ("time,n_tokens\n0,5\n1,7\n", "does not say what a row is"),
    "a value of a row of 15 s": (
        "Time,Value\n1715340000,5\n1715340015,7\n",
        "for counts, 12 requests; rates takes them for requests a second over 15 s each, 180 requests",
    ),
    "a value with a fraction": (
        "Time,Value\n1715340000,5\n1715340001,7.5\n",
        "arrivals.format: rates takes them for requests a second over 1 s each, 12 requests; as counts, 12 req",
    ),
    "a value of one row": ("Time,Value\n1715340000,5\n", "timestamp-counts takes its numbers for counts, 5 requests"),
    "a value beyond all numbers": (
        "Time,Value\n0,1.7e308\n2,1.7e308\n",
        "line 1: the header 'time,value' does not say",
    ),
    "a rate beyond all numbers": (
        "Time,rps\n0,1.7e308\n2,1.7e308\n",
        "line 2: rps is 1.7e308; at most 1000000 a second",
    ),
    "a rate of one row": ("Time,rps\n1715340000,5\n", "one row does not say for how long its rate holds"),
    "an increase over four rows": (
        "Time,increase(http_requests_total[1m])\n1715340000,5\n1715340015,7\n",
        "rows are 15 s apart, so that an increase over another time does not count each request once; exp",
    ),
    "a counter with its labels": (
        'Time,"http_requests_total{code=""500""}"\n1715340000,5\n1715340015,5\n',
        "names a running total; export its rate(…)",
    ),
    "a number for display": (
        "Time,rps\n0,1.2 K\n",
        "rps is '1.2 K'; a finite number ≥ 0 is needed, such as 1200.5 (Gr",
    ),
    "a date of a country": (
        "Time,rps\n05/10/2024 12:00,5\n",
        "a number ≥ 0 or a time like 2023-11-16 18:17:03 is needed",
    ),
    "an access log": ('127.0.0.1 - - [10/May/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 5\n', "an access log"),
    "rows at no interval": ("time,requests\n0,1\n1.4,2\n2,1\n", "line 3: '1.4' comes 1.4 s after the row before"),
    "rows below a second": ("time,requests\n0,1\n0.5,2\n1,1\n", "line 3: '0.5' comes 0.5 s after"),
    "one row close to another": (
        "time,requests\n" + "".join(f"{60 * n},5\n" for n in range(9)) + "481,3\n",
        "472 of 482 s have no data in 8 gaps",
    ),
    "a running total": (
        "time,http_requests_total\n" + "".join(f"{n},{3 * n}\n" for n in range(30)),
        "its 30 values never fall, as those of a running total",
    ),
    "an open quotation mark": ('time,requests\n0,"5\n1,7\n', "requests is '5"),
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", FILES)
def test_every_kind_of_file_is_recognised_and_counted(kind: str, zipped: bool, written: Path) -> None:
    text, counts = FILES[kind]
    written.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert read_trace(written).counts.tolist() == counts


@pytest.mark.parametrize(
    ("chosen", "counts"),
    [(TraceFormat.PLAIN_COUNTS, [5, 7, 11]), (TraceFormat.TIMESTAMPS, [1, 0, 1, 0, 0, 0, 1])],
)
def test_a_given_format_decides_what_plain_numbers_are(chosen: TraceFormat, counts: list[int], written: Path) -> None:
    written.write_text("5\n7\n11\n")
    assert read_trace(written, Reading(chosen)).counts.tolist() == counts


@pytest.mark.parametrize(
    ("chosen", "counts"), [(TraceFormat.TIMESTAMP_COUNTS, [5, 7]), (TraceFormat.TIMESTAMPS, [1, 1])]
)
def test_a_given_format_decides_what_a_second_column_is(chosen: TraceFormat, counts: list[int], written: Path) -> None:
    written.write_text("time,load\n1715340000,5\n1715340001,7\n")
    assert read_trace(written, Reading(chosen)).counts.tolist() == counts


def test_a_header_of_two_columns_alone_is_refused_as_plain_counts_too(written: Path) -> None:
    written.write_text("time,requests\n")
    with pytest.raises(TraceError, match="no rows below the header"):
        read_trace(written, Reading(TraceFormat.PLAIN_COUNTS))


def test_a_given_format_takes_a_running_total_for_counts_and_says_so(written: Path) -> None:
    written.write_text("".join(f"{n}\n" for n in range(30)))
    assert "never fall" in read_trace(written, Reading(TraceFormat.PLAIN_COUNTS)).notes[0]


def test_times_of_a_request_log_are_kept_beside_its_other_columns(written: Path) -> None:
    written.write_text("time,latency_ms\n0.25,12.5\n3.5,abc\n")
    trace = read_trace(written, Reading(TraceFormat.TIMESTAMPS))
    assert trace.times_s is not None
    assert trace.times_s.tolist() == [0.25, 3.5]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("time,requests\n11,4\n10,3\n", [3, 4]),
        ("second,count\n9,4\n8,3\n", [3, 4]),
        ("time\n2024-05-10 00:00:02\n2024-05-10 00:00:01\n", [1, 1]),
    ],
)
def test_rows_are_sorted_where_that_is_asked_for(text: str, counts: list[int], written: Path) -> None:
    written.write_text(text)
    assert read_trace(written, Reading(sort=True)).counts.tolist() == counts


def test_a_second_that_stands_twice_is_refused_sorted_or_not(written: Path) -> None:
    written.write_text("time,requests\n10,4\n11,1\n10,3\n")
    with pytest.raises(TraceError, match="line 4: time 10 is in line 2 already"):
        read_trace(written, Reading(sort=True))


GAP = "time,requests\n" + "".join(f"{n},{20 if n < 30 else 40}\n" for n in range(100) if not 30 <= n < 40)


@pytest.mark.parametrize(
    ("gaps", "requests", "words"),
    [
        (Gaps.ZERO, 30 * 20 + 60 * 40, "10 of 100 s have no data, 10 s after 29 (line 31), taken as without requests"),
        (Gaps.INTERPOLATE, 30 * 20 + 60 * 40 + 300, "10 s after 29 (line 31), interpolated with 300 requests"),
    ],
)
def test_a_gap_is_filled_as_asked_and_named(gaps: Gaps, requests: int, words: str, written: Path) -> None:
    written.write_text(GAP)
    trace = read_trace(written, Reading(gaps=gaps))
    assert int(trace.counts.sum()) == requests
    assert trace.notes[0].endswith(words)


@pytest.mark.parametrize(("interval_s", "n_beside"), [(1, 60), (15, 4), (60, 1), (3600, 1)])
def test_a_gap_is_filled_by_the_minute_beside_it_or_one_row(interval_s: int, n_beside: int, written: Path) -> None:
    rows = [999] * 99 + [10] * n_beside + [""] * 4 + [50] * n_beside + [999] * 99
    written.write_text("time_s,requests\n" + "".join(f"{n * interval_s},{row}\n" for n, row in enumerate(rows)))
    counts = read_trace(written, Reading(gaps=Gaps.INTERPOLATE)).counts.reshape(-1, interval_s).sum(axis=1)
    assert counts[99 + n_beside :][:4].tolist() == [15, 25, 35, 45]


@pytest.mark.parametrize("gaps", [None, Gaps.REFUSE])
def test_a_gap_in_counts_is_refused_unless_its_filling_is_given(gaps: Gaps | None, written: Path) -> None:
    written.write_text(GAP)
    with pytest.raises(TraceError, match="10 of 100 s have no data"):
        read_trace(written, Reading(gaps=gaps))


SILENCE = "".join(f"{second:.2f}\n" for second in np.concatenate([np.arange(0, 60, 0.25), np.arange(300, 360, 0.25)]))


@pytest.mark.parametrize(("gaps", "requests"), [(None, 480), (Gaps.ZERO, 480), (Gaps.INTERPOLATE, 480 + 4 * 240)])
def test_a_silence_far_from_usual_is_named(gaps: Gaps | None, requests: int, written: Path) -> None:
    written.write_text(SILENCE)
    trace = read_trace(written, Reading(gaps=gaps))
    assert int(trace.counts.sum()) == requests
    assert "a silence far from usual: 240 of 360 s have no data, 240 s after 59.75 (line 240)" in trace.notes[0]


def test_a_silence_far_from_usual_is_refused_where_gaps_are(written: Path) -> None:
    written.write_text(SILENCE)
    with pytest.raises(TraceError, match="a silence far from usual"):
        read_trace(written, Reading(gaps=Gaps.REFUSE))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_traces_have_nothing_to_be_told(name: str) -> None:
    assert not shipped_trace(name).notes


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("milliseconds of the epoch", "milliseconds of the epoch"),
        ("a row every 4 seconds", "a row stands for 4 s, over which its requests are spread evenly"),
    ],
)
def test_what_was_taken_for_granted_is_noted(kind: str, words: str, written: Path) -> None:
    written.write_text(FILES[kind][0])
    assert words in " ".join(read_trace(written).notes)


@settings(derandomize=True, max_examples=examples(60))
@given(st.lists(st.integers(0, 500), min_size=2, max_size=40), st.integers(1, 90))
def test_rows_of_any_interval_keep_their_requests(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], interval_s: int
) -> None:
    path = tmp_path_factory.mktemp("counts") / "trace.csv"
    rows = (f"{1715340000 + interval_s * n},{count}" for n, count in enumerate(counts))
    path.write_text("\n".join(["time,requests", *rows]))
    made = read_trace(path, Reading(TraceFormat.TIMESTAMP_COUNTS)).counts
    assert made.reshape(len(counts), interval_s).sum(axis=1).tolist() == counts


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_naming_file_line_and_value(kind: str, written: Path) -> None:
    text, message = BAD[kind]
    written.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_trace(written)
    assert str(caught.value).startswith(str(written))
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", BAD)
def test_a_refusal_is_one_line(kind: str, written: Path) -> None:
    written.write_text(BAD[kind][0])
    with pytest.raises(TraceError) as caught:
        read_trace(written)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8bbroken", "broken gzip"),
        (gzip.compress(b"1\n" * 99, mtime=0)[:-9], "broken gzip"),
        (b"\xff\xfe1", "UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_refused(content: bytes, message: str, written: Path) -> None:
    written.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_trace(written)


@pytest.mark.parametrize("chosen", [TraceFormat.COUNTS, TraceFormat.AZURE])
def test_a_given_format_overrides_what_the_first_line_looks_like(chosen: TraceFormat, written: Path) -> None:
    written.write_text("1.5\n")
    with pytest.raises(TraceError, match="header"):
        read_trace(written, Reading(chosen))


def test_a_missing_file_is_named_with_the_shipped_traces(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.csv: no such trace file; shipped traces: azure-conv, azure-code"):
        read_trace(tmp_path / "gone.csv")


def test_a_misspelt_shipped_trace_is_suggested() -> None:
    with pytest.raises(TraceError, match="did you mean azure-conv"):
        find_trace("azure-con", Path())


def test_a_misspelt_synthetic_trace_is_suggested() -> None:
    with pytest.raises(TraceError, match=r"did you mean alibaba-servegen\?"):
        find_trace("alibaba-servgen", Path())


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path)


def test_a_source_is_looked_up_among_the_shipped_traces_first(tmp_path: Path) -> None:
    assert find_trace("azure-conv", tmp_path) is shipped_trace("azure-conv")


def test_another_source_is_a_file_relative_to_the_folder(written: Path) -> None:
    written.write_text("second,count\n0,5\n")
    assert find_trace(written.name, written.parent).counts.tolist() == [5]


@settings(derandomize=True, max_examples=examples(60))
@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=40), st.booleans())
def test_times_are_kept_to_the_microsecond(tmp_path_factory: pytest.TempPathFactory, ms: list[int], utc: bool) -> None:
    path = tmp_path_factory.mktemp("times") / "azure.csv"
    stamps = [f"2023-11-16 23:{57 + m // 60_000}:{m // 1000 % 60:02d}.{m % 1000:03d}7770" for m in ms if m < 180_000]
    rows = sorted(stamp + ("Z,1,1" if utc else ",1,1") for stamp in stamps or ["2023-11-16"])
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    kept = sorted(m for m in ms if m < 180_000) or [0]
    assert read_trace(path).times_s == pytest.approx((np.array(kept) - kept[0]) / 1000, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "seconds", "requests"),
    [
        ("azure-conv", 3502, 19366),
        ("azure-code", 3436, 8819),
        ("apollo", 300, 6241),
        ("disb-resnet152", 39, 375),
        ("disb-densenet201", 39, 202),
        ("disb-vgg19", 30, 560),
        ("disb-inceptionv3", 39, 374),
        ("disb-distilbert", 39, 173),
    ],
)
def test_the_shipped_traces_have_the_published_size(name: str, seconds: int, requests: int) -> None:
    trace = shipped_trace(name)
    assert (trace.n_seconds, int(trace.counts.sum())) == (seconds, requests)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.skipif(not SOURCE.is_dir(), reason="the project's measured data is not beside this checkout")
def test_the_shipped_traces_have_the_sources_count_in_every_second(name: str) -> None:
    family, _, stream = name.partition("-")
    recorded = read_trace(SOURCE / FOLDERS[family] / f"{stream or 'orion_interarrivals'}.csv.gz")
    assert np.array_equal(shipped_trace(name).counts, recorded.counts)


def test_an_unknown_shipped_trace_is_refused() -> None:
    with pytest.raises(TraceError, match="there are azure-conv, azure-code"):
        shipped_trace("azure")


def test_a_device_is_no_trace() -> None:
    with pytest.raises(TraceError, match="/dev/zero: cannot be read: it is a device; a file is needed"):
        read_trace(Path("/dev/zero"))


def test_a_gzip_bomb_is_no_trace(written: Path) -> None:
    written.write_bytes(gzip.compress(bytes(2**25)))
    with pytest.raises(TraceError, match="it unpacks to more than 4 MiB"):
        read_trace(written)


def test_bytes_without_text_are_no_trace(written: Path) -> None:
    written.write_bytes(b"5\n" + bytes(2**20))
    with pytest.raises(TraceError, match="not a text file: a NUL character at byte 2"):
        read_trace(written)


def readings_of(total: np.ndarray, name: str) -> str:
    return f"Time,{name}\n" + "".join(f"{1715340000 + n},{count}\n" for n, count in enumerate(total))


def with_resets(name: str, rate_rps: float, resets: tuple[int, ...], n: int = 1000) -> str:
    """Readings of a counter that starts anew in the rows given."""
    counts = np.random.default_rng(3).poisson(rate_rps, n)
    return readings_of(np.concatenate([np.cumsum(part) for part in np.split(counts, resets)]), name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (with_resets("http_requests_total", 9, (500,)), "fall only once, first to 14 in line 502"),
        (with_resets("requests", 9, (500,)), "fall only once"),
        (with_resets("requests", 9, (100, 300, 900)), "fall only 3 times"),
        (with_resets("requests_total", 0.2, (500,)), "fall only once"),
        (with_resets("requests", 0.3, ()), "never fall"),
        (with_resets("requests_total", 9, (), 6), "never fall"),
        (readings_of(np.r_[np.arange(500) * 9 + 6000, np.arange(500) * 9 + 4000], "requests_total"), "fall only once"),
    ],
    ids=["named", "unnamed", "three resets", "slow", "slow and unnamed", "short", "one of several counters"],
)
def test_a_running_total_is_refused_though_it_starts_anew(text: str, words: str, written: Path) -> None:
    written.write_text(text)
    with pytest.raises(TraceError, match=words):
        read_trace(written)


def test_a_given_format_takes_a_total_that_starts_anew_for_counts_and_says_so(written: Path) -> None:
    written.write_text(with_resets("requests", 9, (500,)))
    assert "starts anew" in read_trace(written, Reading(TraceFormat.TIMESTAMP_COUNTS)).notes[0]


@pytest.mark.parametrize("name", ["requests", "http_requests_total"])
@pytest.mark.parametrize("mean_rps", [0.02, 0.5, 9, 400, "growing", "by the hour", "bursts"])
def test_noisy_counts_are_no_running_total(mean_rps: float | str, name: str, written: Path) -> None:
    seconds = np.arange(1200)
    rates = {
        "growing": 1 + seconds / 20,
        "by the hour": 50 + 45 * np.sin(seconds / 200),
        "bursts": np.where(seconds % 100 < 5, 200.0, 1.0),
    }
    counts = np.random.default_rng(5).poisson(rates.get(str(mean_rps), mean_rps), seconds.size)
    written.write_text(readings_of(counts, name))
    assert read_trace(written).counts.tolist() == counts.tolist()


@pytest.mark.parametrize(
    "header",
    [
        "time_min,requests",
        "minute,requests",
        "hour,count",
        "uptime,requests",
        "date,requests",
        "request_time,count",
        "interarrival_time,count",
        "timestamp,requests_in_flight",
        "timestamp,inflight",
        "timestamp,kreq",
        "timestamp,requests (rpm)",
        "timestamp,requests per minute",
        "timestamp,requests_1m",
        "timestamp,request_length",
        "timestamp,request_number",
        "timestamp,request",
        "timestamp,account",
        "timestamp,country",
        "timestamp,discount",
        "Time,sum(rate(http_requests_total[1m])) * 60",
        "Time,avg(rate(http_requests_total[1m]))",
        "Time,rate(http_response_bytes_total[1m])",
        "Time,kreq/s",
        "Time,api",
        "Time,requests %",
        "minute",
        "timestamp_minutes",
        "response_time",
        "request_time",
        "lifetime",
        "interarrival_time",
        "account",
        "country",
        "requests_in_flight",
        "rpm",
    ],
)
def test_a_header_that_names_another_quantity_or_unit_is_refused_with_what_a_format_takes_it_for(
    header: str, written: Path
) -> None:
    row = "{},5\n" if "," in header else "{}\n"
    written.write_text(f"{header}\n" + "".join(row.format(n) for n in range(4)))
    with pytest.raises(TraceError, match=r"does not say what a row is.*arrivals\.format: \S+ (takes|makes)") as caught:
        read_trace(written)
    assert header.lower() in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        "time,requests",
        "Time (s),# requests",
        "time_s,request_count",
        "t,n",
        "ts,Value #A",
        "epoch,num_requests",
        "unix_time,numRequests",
        "datetime,Total Requests",
        "start_time,hits",
        "created_at,http_requests_total",
        "arrival_time_seconds,calls",
        "Timestamp,queries",
        "second,arrivals",
        "when,number of requests",
        "time,sum(requests)",
        "seconds,reqs",
    ],
)
def test_names_of_times_and_counts_are_taken_as_they_are(header: str, written: Path) -> None:
    written.write_text(f"{header}\n1715340000,3\n1715340001,0\n1715340002,4\n")
    assert read_trace(written).counts.tolist() == [3, 0, 4]


@pytest.mark.parametrize("name", ["time", "date", "timestamp", "timestamp_ms", "epoch_ms"])
def test_milliseconds_of_the_epoch_are_told_by_their_size(name: str, written: Path) -> None:
    written.write_text(f"{name},requests\n1715340000000,3\n1715340001000,4\n")
    assert read_trace(written).counts.tolist() == [3, 4]


def test_dates_have_their_unit_whatever_their_column_is_called(written: Path) -> None:
    written.write_text("minute,requests\n2024-05-10 12:00,60\n2024-05-10 12:01,120\n")
    assert int(read_trace(written).counts.sum()) == 180


@pytest.mark.parametrize("step", [100, 200, 500, 1000])
def test_steps_of_hundreds_without_a_unit_are_refused(step: int, written: Path) -> None:
    written.write_text("t,count\n" + "".join(f"{step * n},5\n" for n in range(9)))
    with pytest.raises(TraceError, match=f"rows are {step:,} apart, which may be seconds or milliseconds"):
        read_trace(written)


def test_steps_of_hundreds_of_seconds_are_taken(written: Path) -> None:
    written.write_text("time_s,count\n0,100\n100,200\n")
    assert read_trace(written).counts.tolist() == [1] * 100 + [2] * 100


def test_whole_numbers_without_a_header_that_are_too_large_for_counts_are_refused(written: Path) -> None:
    written.write_text("500\n2000100\n5000000\n")
    with pytest.raises(TraceError, match="do not say their unit"):
        read_trace(written)


@pytest.mark.parametrize("text", ["t,count\n0,5\n1,6\n", "time,requests\n0,5\n300,6\n", "0.5\n1.25\n", "time\n3\n7\n"])
def test_a_unit_that_nothing_tells_is_noted(text: str, written: Path) -> None:
    written.write_text(text)
    assert "times are taken for seconds" in read_trace(written).notes[-1]


@pytest.mark.parametrize(
    "text", ["second,count\n0,5\n", "time_s,requests\n0,5\n1,6\n", "time\n1715340000\n", "second\n3\n7\n"]
)
def test_a_unit_that_is_told_is_not_noted(text: str, written: Path) -> None:
    written.write_text(text)
    assert not read_trace(written).notes


@pytest.mark.parametrize("header", ["timestamp" * 40 + "x,requests", "time," + "requests" * 40 + "x"])
def test_a_long_name_is_soon_told(header: str, written: Path) -> None:
    written.write_text(f"{header}\n0,5\n1,7\n")
    with pytest.raises(TraceError, match="does not say what a row is"):
        read_trace(written)


@pytest.mark.parametrize(
    ("text", "last_s"),
    [
        ("second,count\n1700000000,1\n1700000001,2\n", 1_700_000_001),
        ("second,count\n0,1\n1,2\n", None),
        ("timestamp,requests\n1700000000000,1\n1700000060000,2\n", 1_700_000_060),
        ("timestamp,requests\n2023-11-14T22:13:20Z,1\n2023-11-14T22:13:21Z,2\n", 1_700_000_001),
        ("timestamp,requests\n2023-11-14T22:13:20,1\n2023-11-14T22:13:21,2\n", 1_700_000_001 - 14 * 3600),
        ("timestamp\n2023-11-14T23:13:20.5+01:00\n2023-11-14T23:13:21.5+01:00\n", 1_700_000_001.5),
        ("time\n20231114221320\n20231114221321\n", 1_700_000_001 - 14 * 3600),
    ],
)
def test_the_last_row_has_a_time_of_the_epoch_where_the_file_says_one(text: str, last_s: float, written: Path) -> None:
    written.write_text(text)
    assert read_trace(written).last_s == last_s
