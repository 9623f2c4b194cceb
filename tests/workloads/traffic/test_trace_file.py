import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.errors import TraceError
from workloads.traffic.trace_file import SHIPPED, TraceFormat, find_trace, read_trace, shipped_trace

SOURCE = Path(__file__).parents[4] / "shared" / "data" / "traces"
FOLDERS = {"azure": "azure_llm_2023", "apollo": "apollo_perception", "disb": "disb_real"}
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.2319600,1,2\n"
)
FILES = {
    "counts": ("second,count\n7,1\n8,0\n9,2\n", [1, 0, 2]),
    "sparse counts": ("second,count\n7,1\n\n9,2\n", [1, 0, 2]),
    "header in capitals, with spaces": ("Second, Count\r\n7, 1\r\n9, 2.0\r\n", [1, 0, 2]),
    "azure": (AZURE, [1, 1]),
    "azure with zone and T": ("timestamp\n2024-05-10T00:00:00.009930+00:00\n2024-05-10T01:00:02.5+01:00\n", [1, 0, 1]),
    "timestamps": ("3.25\n3.5\n5\n", [2, 0, 1]),
    "unsorted timestamps": ("1700000005\n1700000003.5\n", [1, 0, 1]),
    "byte order mark": ("\ufeffsecond,count\n0,4\n", [4]),
}
BAD = {
    "text in the count": ("second,count\n0,1\n1,many\n", "line 3: count is 'many'; a finite number ≥ 0 is needed"),
    "text in the second": ("second,count\nx,1\n", "line 2: second is 'x'"),
    "negative count": ("second,count\n0,-1\n", "line 2: count is '-1'; a finite number ≥ 0 is needed"),
    "NaN count": ("second,count\n0,nan\n", "line 2: count is 'nan'"),
    "infinite count": ("second,count\n0,inf\n", "line 2: count is 'inf'"),
    "grouped digits": ("second,count\n0,1_0\n", "line 2: count is '1_0'"),
    "half a request": ("second,count\n0,1.5\n", "line 2: count is '1.5'; a whole number"),
    "huge count": ("second,count\n0,1e12\n", "line 2: count is 1e12; at most 1000000"),
    "empty cell": ("second,count\n0,\n", "line 2: count is ''"),
    "missing cell": ("second,count\n0\n", "line 2: '0' has 1 columns"),
    "one cell too many": ("second,count\n0,1,2\n", "line 2: '0,1,2' has 3 columns"),
    "unsorted seconds": ("second,count\n5,1\n4,1\n", "line 3: second 4 follows 5; seconds must ascend"),
    "duplicate seconds": ("second,count\n5,1\n5,1\n", "line 3: second 5 follows 5; seconds must ascend"),
    "header alone": ("second,count\n", "no rows below the header"),
    "azure header alone": ("TIMESTAMP,ContextTokens\n", "no rows below the header"),
    "nothing": ("\n  \n", "the file is empty"),
    "unknown header": ("time,requests\n0,1\n", "line 1: 'time,requests' opens no known kind of trace"),
    "no time": (AZURE + "yesterday,1,2\n", "line 4: TIMESTAMP is 'yesterday'; a time like 2023"),
    "text among times": ("0.5\nsoon\n", "line 2: time is 'soon'"),
    "negative time": ("0.5\n-1\n", "line 2: time is '-1'"),
    "milliseconds": ("0\n1700000000000\n", "at most 31622400"),
    "seconds far apart": ("second,count\n0,1\n99999999,1\n", "at most 31622400"),
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
        read_trace(written, chosen)


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


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=40), st.booleans())
def test_times_are_kept_to_the_microsecond(tmp_path_factory: pytest.TempPathFactory, ms: list[int], utc: bool) -> None:
    path = tmp_path_factory.mktemp("times") / "azure.csv"
    stamps = [f"2023-11-16 23:{57 + m // 60_000}:{m // 1000 % 60:02d}.{m % 1000:03d}7770" for m in ms if m < 180_000]
    path.write_text("\n".join(["TIMESTAMP", *(stamp + ("Z" if utc else "") for stamp in stamps or ["2023-11-16"])]))
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


def test_a_gzip_bomb_is_no_trace(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traffic.trace_file.MOST_BYTES", 2**20)
    written.write_bytes(gzip.compress(bytes(2**21)))
    with pytest.raises(TraceError, match="it unpacks to more than 1 MiB"):
        read_trace(written)
