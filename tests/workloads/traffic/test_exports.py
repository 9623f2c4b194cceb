"""Exports as monitors and servers make them: each is read exactly, or refused with what helps; none is read wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.seeds import examples
from workloads.errors import TraceError
from workloads.traffic.gaps import Gaps
from workloads.traffic.trace_file import Reading, TraceFormat, read_trace
from workloads.traffic.trace_times import TimeUnit

BEGIN = 1_715_342_400
"""2024-05-10 12:00:00 UTC."""

COUNTS = [int(n) for n in np.random.default_rng(11).poisson(30, 40)]
TRUE = sum(COUNTS)
AS_RATES, AS_COUNTS = Reading(TraceFormat.RATES), Reading(TraceFormat.TIMESTAMP_COUNTS)
API = {"job": "api", "code": "200"}


@dataclass(frozen=True)
class Export:
    """A file, how many requests it tells of, and what becomes of it.

    Attributes:
        text: All of it.
        true: Its requests.
        refused: What the refusal says where it is read without any key; ``None``: it is read.
        then: Keys with which it is read after that; ``None``: the file has to be made anew.
    """

    text: str
    refused: str | None = None
    then: Reading | None = None
    true: int = field(default=TRUE)


def prometheus(series: Iterable[tuple[Mapping[str, str], Sequence[object]]], step_s: int) -> str:
    result = [
        {
            "metric": dict(labels),
            "values": [[BEGIN + 0.781 + step_s * n, str(value)] for n, value in enumerate(values) if value is not None],
        }
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def answer(kind: str, result: object) -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def iso(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def local(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def american(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%m/%d/%Y %H:%M")


def ms(second: float) -> str:
    return str(int(1000 * second))


def table(
    names: str,
    *columns: Sequence[object],
    step_s: int = 15,
    time: Callable[[int], str] = local,
    separator: str = ",",
) -> str:
    rows = (
        separator.join([time(BEGIN + step_s * n), *map(str, cells)])
        for n, cells in enumerate(zip(*columns, strict=True))
    )
    return "\n".join([names, *rows, ""])


def log(template: str, n: int = 200) -> str:
    begin = datetime.fromtimestamp(BEGIN, UTC)
    stamp = begin.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return "".join(f"{template.format(clf=stamp, iso=iso(BEGIN), msec=f'{BEGIN + k / 7:.3f}')}\n" for k in range(n))


def by(step_s: int) -> list[float]:
    return [count / step_s for count in COUNTS]


def but(values: Sequence[object], blank: object) -> list[object]:
    """The values with one in the middle that is not known."""
    return [*values[:20], blank, *values[21:]]


OTHER = [3] * 40
LESS = TRUE - COUNTS[20]
GAPS = "15 s after"
ZERO = Gaps.ZERO
NAMED = '"Time","sum(rate(http_requests_total{job=""api""}[1m]))"'
COUNTER = list(np.cumsum(COUNTS) + 7_000)

EXPORTS = {
    **{
        f"Prometheus: rate, {step_s} s": Export(
            prometheus([({}, by(step_s))], step_s), "rates takes them for requests a second", AS_RATES
        )
        for step_s in (5, 15, 30, 60)
    },
    "Prometheus: rate, 1 s": Export(prometheus([({}, COUNTS)], 1)),
    "Prometheus: rate with fractions, 1 s": Export(
        prometheus([({}, [count / 2 for count in COUNTS for _ in "ab"])], 1), "rates takes them", AS_RATES
    ),
    **{
        f"Prometheus: increase, {step_s} s": Export(
            prometheus([(API, COUNTS)], step_s), f"counts, {TRUE:,} requests; rates takes them", AS_COUNTS
        )
        for step_s in (5, 15, 30, 60)
    },
    "Prometheus: increase, 1 s": Export(prometheus([(API, COUNTS)], 1)),
    "Prometheus: increase that extrapolates": Export(
        prometheus([(API, [count * 1.07 for count in COUNTS])], 15),
        "as counts, 1,254 requests, they would have to be whole",
    ),
    "Prometheus: rate, rounded": Export(
        prometheus([({}, [3] * 777 + [4] * 223)], 15), "3,223 requests; rates takes them", AS_RATES, 48_345
    ),
    "Prometheus: several series": Export(
        prometheus([(API, by(15)), ({"job": "web", "code": "200"}, OTHER)], 15),
        """it has 2 series; arrivals.column chooses one of '{job="api",code="200"}', '{job="web",code="200"}'""",
        Reading(TraceFormat.RATES, column="api"),
    ),
    "Prometheus: several series, by the metric": Export(
        prometheus([(API, by(15)), ({"job": "web"}, OTHER)], 15),
        "arrivals.column chooses",
        Reading(TraceFormat.RATES, column='{job="api",code="200"}'),
    ),
    "Prometheus: a counter": Export(prometheus([({"__name__": "http_requests_total", **API}, COUNTER)], 15), "rate(…)"),
    "Prometheus: a counter that rests": Export(
        prometheus([({"__name__": "http_requests_total"}, [77] * 40)], 15), "rate(…)", true=0
    ),
    "Grafana: a counter that rests": Export(table("Time,http_requests_total", [77] * 40), "rate(…)", true=0),
    "Prometheus: a counter, summed": Export(prometheus([({}, COUNTER)], 15), "running total"),
    "Prometheus: points missing": Export(
        prometheus([({}, but(by(15), None))], 15), "rates takes", Reading(TraceFormat.RATES, gaps=ZERO), LESS
    ),
    "Prometheus: NaN": Export(
        prometheus([({}, but(by(15), "NaN"))], 15), "rates takes", Reading(TraceFormat.RATES, gaps=ZERO), LESS
    ),
    "Prometheus: infinity": Export(prometheus([({}, but(by(15), "+Inf"))], 15), "'+Inf'; a finite number"),
    "Prometheus: a recorded rate": Export(
        prometheus([({"__name__": "job:http_requests:rate5m", "job": "api"}, by(15))], 15), "rates takes them", AS_RATES
    ),
    "Prometheus: a moment": Export(answer("vector", [{"metric": {}, "value": [BEGIN, "5"]}]), "query_range"),
    "Prometheus: a number": Export(answer("scalar", [BEGIN, "5"]), "query_range returns a matrix"),
    "Prometheus: a bad query": Export('{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
    "Prometheus: nothing found": Export(answer("matrix", []), "the query found nothing"),
    "Prometheus: histograms": Export(
        answer("matrix", [{"metric": {}, "histograms": [[BEGIN, {"count": "5"}]]}]), "native histogram"
    ),
    "Grafana: panel JSON": Export('{"results":{"A":{"frames":[]}}}', "no answer of Prometheus"),
    "Datadog: API": Export('{"status":"ok","series":[{"pointlist":[[1715342400000,5.0]]}]}', "no answer of Prometheus"),
    "Grafana: Value, local time": Export(table('"Time","Value"', COUNTS), "timestamp-counts takes", AS_COUNTS),
    "Grafana: Value, rates": Export(table('"Time","Value"', by(15), time=iso), "rates takes", AS_RATES),
    "Grafana: Value, every second": Export(table('"Time","Value"', COUNTS, step_s=1)),
    "Grafana: rate(…), ISO": Export(table(NAMED, by(15), time=iso)),
    "Grafana: rate(…), milliseconds": Export(table(NAMED, by(15), time=ms)),
    "Grafana: rate(…), seconds": Export(table(NAMED, by(30), step_s=30, time=str)),
    "Grafana: sum by (…)": Export(table('Time,"sum by (job) (rate(http_requests_total[$__rate_interval]))"', by(15))),
    "Grafana: increase(…[15s])": Export(table('Time,"sum(increase(http_requests_total[15s]))"', COUNTS)),
    "Grafana: increase(…[1m]) each 15 s": Export(
        table('Time,"increase(http_requests_total[1m])"', [4 * count for count in COUNTS]), "export rate(…)"
    ),
    "Grafana: req/s": Export(table("Time,req/s", by(15))),
    "Grafana: for Excel": Export("sep=,\r\n" + table('"Time","req/s"', by(15)).replace("\n", "\r\n")),
    "Grafana: byte order mark": Export("\ufeffsep=;\r\n" + table("Time;rps", by(15), separator=";")),
    "Grafana: semicolons": Export(table('"Time";"requests per second"', by(60), step_s=60, separator=";")),
    "Grafana: tabs": Export(table("Time\tRequests/s", by(15), separator="\t")),
    "Grafana: joined by time": Export(
        table('"Time","api","web"', by(15), OTHER), "'api', 'web'", Reading(TraceFormat.RATES, column="API")
    ),
    "Grafana: joined, named by unit": Export(
        table("Time,api req/s,req/s", OTHER, by(15)), "chooses one of", Reading(column="req/s")
    ),
    **{
        f"Grafana: a cell {blank!r}": Export(
            table("Time,rps", but(by(15), blank)), "15 s after 2024-05-10 12:04:45 (line 21)", Reading(gaps=ZERO), LESS
        )
        for blank in ("", "null", "NaN", "-")
    },
    "Grafana: nothing at the begin": Export(
        table("Time,rps", ["", *by(15)[1:]]), "15 s from", Reading(gaps=ZERO), TRUE - COUNTS[0]
    ),
    "Grafana: formatted, 1.2 K": Export(table("Time,rps", but(by(15), "1.2 K")), "Formatted data off"),
    "Grafana: formatted, 3 req/s": Export(table("Time,Value", but(by(15), "3 req/s")), "Formatted data off"),
    "Grafana: a series a row": Export("Series;Time;Value\n" + "api;2024-05-10T12:00:00Z;5\n" * 3, "docs/traces.md"),
    "Grafana: a legend": Export(table("Time,GET /users", by(15)), "rates takes them", AS_RATES),
    "Grafana: kreq/s": Export(table("Time,k req/s", by(15)), "does not say what a row is"),
    "Grafana: requests per minute each 15 s": Export(table("Time,rpm", [4 * n for n in COUNTS]), "may be no count"),
    "Excel: decimal commas": Export(table("Time;req/s", but(by(15), "5,25"), separator=";"), "such as 1200.5"),
    "Excel: thousands": Export(table("Time;requests", but(COUNTS, "1,200"), separator=";"), "such as 1200.5"),
    "Excel: a country's dates": Export(table("Time,requests", COUNTS, time=american), "a time like 2023-11-16"),
    "Requests per minute": Export(table("timestamp,requests", COUNTS, step_s=60, time=iso)),
    "Hits each 5 minutes": Export(table("date,hits", COUNTS, step_s=300)),
    "A running total": Export(table("time,requests", COUNTER), "never fall, as those of a running total"),
    "A running total, named": Export(table("time,requests_total", COUNTER[:8]), "never fall"),
    "Splunk": Export(table("_time,count", COUNTS, step_s=1, time=iso)),
    "Kibana": Export(
        table('"@timestamp per 30 seconds","Count of records"', COUNTS, time=lambda s: f'"May 10, 2024 @ {s}"'),
        "a time like 2023-11-16",
    ),
    "CloudWatch": Export(
        "Full label,RequestCount\nStatistic,Sum\n2024/05/10 12:00:00,5\n2024/05/10 12:01:00,7\n", "docs/traces.md"
    ),
    "Twice the same hour": Export(table("Time,rps", [5, 6], step_s=0), "is in line 2 already"),
    "A step that varies": Export("Time,rps\n0,5\n15,6\n31,7\n45,8\n", "one interval of whole seconds"),
    "nginx: combined": Export(log('127.0.0.1 - - [{clf}] "GET / HTTP/1.1" 200 612 "-" "curl (KHTML, x)"'), "docs/tr"),
    "Apache: common": Export(log('10.0.0.1 - bob [{clf}] "GET / HTTP/1.0" 200 2326'), "an access log"),
    "nginx: $msec alone": Export(log("{msec}"), true=200),
    "nginx: $time_iso8601 alone": Export(log("{iso}"), true=200),
}


AS_REQUESTS = Reading(TraceFormat.TIMESTAMPS)
AS_MS = Reading(TraceFormat.TIMESTAMPS, unit=TimeUnit.MS)
SORTED = Reading(TraceFormat.TIMESTAMPS, sort=True)
OFFSETS_MS = [2_999 * (n // 6) + n % 6 // 3 for n in range(126)]
"""When requests came, in milliseconds since the begin, as LLM traces have it."""


def lines(*objects: Mapping[str, object]) -> str:
    return "".join(f"{json.dumps(one)}\n" for one in objects)


def rows(names: str, *cells: Sequence[object]) -> str:
    return "\n".join([names, *(",".join(map(str, row)) for row in cells), ""])


def k6(*figures: str) -> str:
    """What ``k6 run --out csv=FILE`` writes of 60 requests, of these figures alone."""
    names = "metric_name,timestamp,metric_value,check,error,method,name,status,extra_tags"
    cells = ((name, BEGIN + n // 3, n / 7, "", "", "GET", "http://a/", 200, "") for n in range(60) for name in figures)
    return rows(names, *cells)


def vegeta(n: int) -> dict[str, object]:
    at = (n * 7 % 60) / 3  # in the order of answers
    return {
        "attack": "",
        "seq": n,
        "code": 200,
        "timestamp": f"2024-05-10T12:00:{at:012.9f}+02:00",
        "latency": 2_000_000,
    }


TOOLS = {
    "k6.csv": Export(k6("http_reqs"), "the time comes first: put 'timestamp' before the others", true=60),
    "k6-all.csv": Export(
        k6("http_reqs", "http_req_duration", "http_req_waiting"), "or say arrivals.time_column: timestamp", true=60
    ),
    "run_stats_history.csv": Export(
        rows(
            "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,99%,100%,Total Request Count",
            *((BEGIN + n, 10, "", "Aggregated", n % 5 + 0.5, 0, "N/A", "N/A", "N/A", 3 * n) for n in range(40)),
        ),
        "arrivals.column chooses one of 'User Count', 'Type', 'Name', 'Requests/s'",
        Reading(column="Requests/s"),
        100,
    ),
    "wrk.txt": Export(
        "Running 30s test @ http://127.0.0.1:8080/\n  12 threads and 400 connections\nRequests/sec: 748.90\n",
        "docs/traces.md",
        true=0,
    ),
    "vegeta.csv": Export(
        "".join(
            f"{(BEGIN * 1000 + 331 * (n * 7 % 60)) * 10**6},200,2000000,0,5,,aGk=,,{n},GET,u,\n" for n in range(60)
        ),
        "opens no known kind of trace",
        SORTED,
        60,
    ),
    "vegeta.json": Export(lines(*map(vegeta, range(60))), "format: timestamps takes each row for a", SORTED, 60),
    "hey.csv": Export(
        rows(
            "response-time,DNS+dialup,DNS,Request-write,Response-delay,Response-read,status-code,offset",
            *((0.05, 0.001, 0.0, 0.0, 0.04, 0.0, 200, f"{(n * 7 % 60) / 4:.4f}") for n in range(60)),
        ),
        "docs/traces.md",
        Reading(TraceFormat.TIMESTAMPS, sort=True, unit=TimeUnit.S, time_column="offset"),
        60,
    ),
    "access.json": Export(log('{{"time": "{iso}", "status": 200}}'), "format: timestamps takes", SORTED, 200),
    "msec.log": Export(log("{msec}"), true=200),
    "prometheus.json": Export(prometheus([({}, by(15))], 15), "rates takes them", AS_RATES),
    "azure-2023.csv": Export(
        rows(
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            *((f"2023-11-16 18:17:{n // 2:02d}.9799600", 9, 5) for n in range(99)),
        ),
        true=99,
    ),
    "azure-2025.csv": Export(
        rows(
            "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
            *((f"2024-10-15 12:00:{n // 2:02d}.25", 1, 9, 5) for n in range(99)),
        ),
        "format: timestamps takes each row for a request all the same",
        AS_REQUESTS,
        99,
    ),
    "azure-functions.txt": Export(
        rows("app,func,end_timestamp,duration", *((f"a{n % 3}", "f", n * 7 % 60 / 4, 0.2) for n in range(60))),
        "put 'end_timestamp' before the others",
        Reading(TraceFormat.TIMESTAMPS, sort=True, unit=TimeUnit.S, time_column="end_timestamp"),
        60,
    ),
    "burstgpt.csv": Export(
        rows(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            *((n // 3, "ChatGPT", 9, 5, 14, "Conversation log") for n in range(90)),
        ),
        "columns beside the time: arrivals.format: timestamps takes each row for a request, 90 in all; or",
        Reading(TraceFormat.TIMESTAMPS, unit=TimeUnit.S),
        90,
    ),
    "mooncake.jsonl": Export(
        lines(*({"timestamp": ms, "input_length": 6755, "hash_ids": [0, 1, 2]} for ms in OFFSETS_MS)),
        "format: timestamps takes each row for a request, 126 in all",
        AS_MS,
        126,
    ),
    "qwen.jsonl": Export(
        lines(*({"chat_id": n, "timestamp": n / 2, "turn": 1, "hash_ids": [n]} for n in range(60))),
        "format: timestamps takes each row for a request, 60 in all",
        Reading(TraceFormat.TIMESTAMPS, unit=TimeUnit.S),
        60,
    ),
    "metrics.jsonl": Export(
        lines(*({"when": iso(BEGIN + n), "requests": count, "errors": 0} for n, count in enumerate(COUNTS))),
        "arrivals.column chooses one of 'requests', 'errors'",
        Reading(column="requests"),
    ),
}
"""What load generators, servers and public traces write, by the names of ``docs/traces.md``."""

FROM_THE_FIELD = {
    "Relative milliseconds": Export(
        rows("timestamp,input_length,output_length", *((ms, 9, 5) for ms in OFFSETS_MS)),
        "seconds make 126 requests over 59,981 s; milliseconds make 126 requests over 60 s; arrivals.unit: s or ms",
        AS_MS,
        126,
    ),
    "Relative milliseconds, named": Export(
        rows("timestamp_ms,input_length", *((ms, 9) for ms in OFFSETS_MS)), "format: timestamps", AS_REQUESTS, 126
    ),
    "Relative microseconds": Export(
        "".join(f"{ms * 1000}\n" for ms in OFFSETS_MS[6:]),
        "arrivals.unit says it: s, ms, us or ns",
        Reading(unit=TimeUnit.US),
        120,
    ),
    "Counts by milliseconds since the begin": Export(
        rows("t,requests", *((15_000 * n, count) for n, count in enumerate(COUNTS))),
        f"({TRUE:,} over 600,000 s, or over 600 s); arrivals.unit: s or ms",
        Reading(unit=TimeUnit.MS),
    ),
    "JSON lines": Export(
        lines(*({"timestamp": n / 2, "input_length": 10} for n in range(60))), "timestamps takes", AS_REQUESTS, 60
    ),
    "JSON lines with blank ones between": Export(
        lines({"time": iso(BEGIN)}, {"time": iso(BEGIN + 1)}).replace("\n", "\r\n\r\n"), true=2
    ),
    "JSON lines, the time by an unknown name": Export(
        lines(*({"arrival": n / 2, "tokens": 10} for n in range(60))),
        "no key is known as a time; arrivals.time_column names one of 'arrival', 'tokens'",
        Reading(TraceFormat.TIMESTAMPS, time_column="Arrival"),
        60,
    ),
    "JSON lines with two times": Export(
        lines(*({"start_time": n, "end_time": n + 1} for n in range(60))),
        "2 keys may be the time; arrivals.time_column names one of 'start_time', 'end_time'",
        Reading(TraceFormat.TIMESTAMPS, time_column="start_time"),
        60,
    ),
    "JSON, a list": Export(json.dumps([{"timestamp": 1}, {"timestamp": 2}]), "jq -c '.[]'"),
    "Dates of 8 digits": Export(
        rows("date,requests", *((20240228 + n if n < 2 else 20240299 + n, 86_400) for n in range(4))), true=345_600
    ),
    "Dates of 10 digits": Export(
        rows("timestamp,requests", *((2024051000 + n, 3_600) for n in range(24))), true=86_400
    ),
    "Dates of 12 digits": Export(
        rows("time,requests", *((202405101200 + n, count) for n, count in enumerate(COUNTS))), true=TRUE
    ),
    "Dates of 14 digits": Export("".join(f"{20240510120000 + n}\n" for n in range(50)), true=50),
    "Dates whose hours begin with 1": Export(
        rows("timestamp,requests", *((2024051001 + n, 5) for n in range(24))),
        "line 25: '2024051024' is no date of this century, as others are (YYYYMMDDHH, such as 2024051001); write ISO",
    ),
    "The count first": Export(
        rows("requests,timestamp", *((count, BEGIN + n) for n, count in enumerate(COUNTS))),
        "the time comes first: put 'timestamp' before the others, or say arrivals.time_column: timestamp",
        Reading(time_column="timestamp"),
    ),
    "A size that contradicts the header": Export(
        rows("timestamp_ms,requests", *((BEGIN + n, 5) for n in range(9))),
        "says milliseconds, the size of its times seconds of the epoch; arrivals.unit: ms or s says which",
        Reading(unit=TimeUnit.S),
        45,
    ),
}
"""What users and projects have reported, each of a kind of its own."""


def failures(export: Export, path: Path) -> Iterable[str]:
    """What is wrong with how the export is read."""
    path.write_text(export.text, "utf-8")
    readings = [(Reading(), export.refused)] + ([] if export.then is None else [(export.then, None)])
    for reading, refused in readings:
        try:
            trace = read_trace(path, reading)
        except TraceError as error:
            if not refused or refused not in str(error) or "\n" in str(error):
                yield f"{reading}: refused: {error}"
        else:
            if refused is not None or int(trace.counts.sum()) != export.true:
                yield f"{reading}: {trace.counts.sum()} requests, {export.true} are true"


def test_sixty_exports_are_read_exactly_or_refused_with_what_helps(tmp_path: Path) -> None:
    assert len(EXPORTS) >= 60
    assert len(TOOLS | FROM_THE_FIELD) >= 16
    every = EXPORTS | TOOLS | FROM_THE_FIELD
    wrong = [f"{name}: {what}" for name, export in every.items() for what in failures(export, tmp_path / "trace.csv")]
    assert not wrong, "\n".join(wrong)


RATES = st.lists(st.floats(0, 900, allow_nan=False).map(lambda rate: round(rate, 3)), min_size=2, max_size=40)


@settings(derandomize=True, max_examples=examples(60))
@given(RATES, st.integers(1, 90))
def test_rates_become_whole_requests_whose_sum_is_theirs(
    tmp_path_factory: pytest.TempPathFactory, rates: list[float], step_s: int
) -> None:
    path = tmp_path_factory.mktemp("rates") / "trace.json"
    path.write_text(prometheus([({}, rates)], step_s), "utf-8")
    made = read_trace(path, AS_RATES).counts.reshape(len(rates), step_s)
    before = np.cumsum(rates) * step_s
    assert np.abs(np.cumsum(made.sum(axis=1)) - before).max() <= 0.5 + 1e-6
    assert (np.ptp(made, axis=1) <= 1).all()


@settings(derandomize=True, max_examples=examples(40))
@given(RATES, st.integers(1, 90))
def test_an_answer_of_prometheus_and_a_table_of_it_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, rates: list[float], step_s: int
) -> None:
    folder = tmp_path_factory.mktemp("both")
    (folder / "a.json").write_text(prometheus([(API, rates), ({}, OTHER)], step_s), "utf-8")
    (folder / "a.csv").write_text(table("Time;x;y", OTHER[:1] * len(rates), rates, step_s=step_s, separator=";"))
    as_json = read_trace(folder / "a.json", Reading(TraceFormat.RATES, column="api"))
    as_table = read_trace(folder / "a.csv", Reading(TraceFormat.RATES, column="y"))
    assert as_json.counts.tolist() == as_table.counts.tolist()


SEVERAL = prometheus([({"job": f"web-{n}", "code": "200"}, OTHER) for n in range(12)], 15)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (None, """'{job="web-7",code="200"}' and 4 more"""),
        ("web_1", "arrivals.column is 'web_1' (did you mean web-1?); its series"),
        ("200", "arrivals.column is '200', as 12 series are called: '{job=\"web-0\""),
    ],
)
def test_a_column_that_names_no_single_series_is_refused(column: str | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(SEVERAL, "utf-8")
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "a.json", Reading(column=column))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (prometheus([({"__name__": "http_requests_total", **API}, COUNTER)], 15), "names a running total"),
        (prometheus([({"__name__": "http_requests_total"}, [77] * 40)], 15), "names a running total"),
        (prometheus([(API, COUNTER)], 15), "never fall, as those of a running total; rates takes a counter's rate"),
        (prometheus([(API, COUNTER[20:] + COUNTS[:1] + COUNTER[:20])], 15), "as those of a running total that starts"),
        (table("time,requests_total", COUNTER[:8]), "never fall"),
        (prometheus([(API, [77] * 40)], 15), None),
        (table("time,total", [77] * 40), None),
        (table("time,Value", [10 + n / 7 for n in range(40)]), None),
        (table("time,req/s", range(40)), None),
    ],
    ids=[
        "named",
        "at rest",
        "unnamed",
        "starts anew",
        "short",
        "constant",
        "a total",
        "looks far back",
        "named a rate",
    ],
)
def test_a_running_total_is_no_rate(text: str, words: str | None, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(text, "utf-8")
    try:
        found = None if read_trace(tmp_path / "a", AS_RATES).counts.any() else "nothing"
    except TraceError as error:
        found = str(error)
    assert found == words or (words is not None and words in str(found))


def test_a_format_that_the_header_contradicts_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table("Time,req/s", COUNTS), "utf-8")
    notes = read_trace(tmp_path / "a.csv", AS_COUNTS).notes
    assert "the header 'req/s' says rates; taken for timestamp-counts, as arrivals.format has it" in notes


def test_a_rate_that_does_not_look_back_to_the_row_before_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table("Time,rate(requests_total[30s])", COUNTS, step_s=60), "utf-8")
    assert any("looks back for less than the 60 s" in note for note in read_trace(tmp_path / "a.csv").notes)


def test_what_prometheus_warns_of_is_noted(tmp_path: Path) -> None:
    warned = {**json.loads(prometheus([({}, COUNTS)], 1)), "warnings": ["partial answer"]}
    (tmp_path / "a.json").write_text(json.dumps(warned), "utf-8")
    assert read_trace(tmp_path / "a.json").notes[0] == "Prometheus warns: 'partial answer'"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{" * 100_000,
        '{"status":"success"}',
        answer("matrix", [{"metric": [], "values": [[1, "2"]]}]),
        answer("matrix", [{"metric": {}, "values": [[1, ["2"]]]}]),
        answer("matrix", [{"metric": {}, "values": [1]}]),
        answer("matrix", [7]),
        answer("matrix", {}),
    ],
)
def test_a_damaged_answer_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text, "utf-8")
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "a.json")
    assert "\n" not in str(caught.value)
