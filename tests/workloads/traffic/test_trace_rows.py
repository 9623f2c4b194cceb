import pytest

from workloads.errors import TraceError
from workloads.traffic.trace_rows import TraceRows, trace_rows


def rows(text: str) -> TraceRows:
    return trace_rows("a.csv", text)


@pytest.mark.parametrize(
    ("text", "header", "n_columns", "separator"),
    [
        ("1\n2\n", None, 1, ","),
        ("Time,Requests\n1,2\n", ("time", "requests"), 2, ","),
        ('"requests, all"\n5\n', ("requests, all",), 1, ","),
        ("time;a,b\n1;2\n", ("time", "a,b"), 2, ";"),
        ("\n sep=;\n", ("sep=", ""), 2, ";"),
        ("sep=|\na|b\n1|2\n", ("a", "b"), 2, "|"),
        ("2024-05-10 12:00\t5\n", None, 2, "\t"),
    ],
)
def test_header_and_separator_are_seen(
    text: str, header: tuple[str, ...] | None, n_columns: int, separator: str
) -> None:
    found = rows(text)
    assert (found.header, found.n_columns, found.separator) == (header, n_columns, separator)


def test_a_row_is_found_with_its_line() -> None:
    assert rows("a,b\n\n1,2\n\n\n3, 4\n").row(1) == (6, ["3", "4"])


@pytest.mark.parametrize("text", ["a,b\n1,2\n3,4.5\n", 'a,b\n"1","2"\n"3","4.5"\n', "a;b\n1;2\n\n3; 4.5 \n"])
def test_numbers_are_the_same_read_at_once_and_cell_by_cell(text: str) -> None:
    found = rows(text)
    at_once, by_cell = found._fast(), found._slow(["a", "b"])
    assert at_once is not None
    assert at_once.tolist() == by_cell.tolist() == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize("cell", ["nan", "-1", "inf", "1_0", "x", ""])
def test_what_is_no_number_is_left_to_the_way_that_names_the_line(cell: str) -> None:
    found = rows(f"a,b\n1,2\n3,{cell}\n")
    assert found._fast() is None
    with pytest.raises(TraceError, match="line 3: b is"):
        found.columns(["a", "b"])


def test_columns_without_a_name_are_not_read() -> None:
    assert rows("a,b\n1,x\n2,y\n").columns(["a", None])[:, 0].tolist() == [1, 2]


def test_dates_are_microseconds_of_the_epoch() -> None:
    found = rows("1970-01-01 00:00:01.000002\n1970-01-01 00:00:02\n").columns(["time"])
    assert found[:, 0].tolist() == [1_000_002, 2_000_000]


def test_a_quotation_mark_left_open_in_a_long_file_is_told() -> None:
    text = 'a,b\n1,"2\n' + "3,4\n" * 40_000
    with pytest.raises(TraceError, match=r"line \d+: .*is a quotation mark left open\?"):
        rows(text).columns(["a", "b"])


def test_another_number_of_columns_than_needed_is_told() -> None:
    with pytest.raises(TraceError, match=r"a\.csv line 1: 'a,b' has 2 columns; 1 are needed"):
        rows("a,b\n1,2\n").columns(["a"])
