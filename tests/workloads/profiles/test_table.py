from pathlib import Path

import pytest

from workloads.errors import ProfileTableError
from workloads.profiles.shipped import shipped_profiles
from workloads.profiles.table import COLUMNS, ServiceProfiles, ServiceRow, read_profiles

HEADER = ",".join(COLUMNS)
GOOD = ("mine", "a30-24gb", "vit", "1g.6gb", "8", "2", "12.5", "1200")
BAD_CELLS = {
    "source": ("", "line 3: source is empty"),
    "gpu": ("a30", "line 3: gpu: unknown GPU model 'a30'"),
    "model": (" ", "line 3: model is empty"),
    "profile": ("1g.5gb", "line 3: profile: a30-24gb has no MIG profile '1g.5gb'"),
    "batch": ("8.5", "line 3: batch is '8.5'; a whole number ≥ 1 is needed"),
    "processes": ("0", "line 3: processes is '0'; a whole number ≥ 1 is needed"),
    "latency_ms": ("fast", "line 3: latency_ms is 'fast'; a finite number > 0 is needed"),
    "throughput_rps": ("-3", "line 3: throughput_rps is '-3'; a finite number > 0 is needed"),
}
BAD_TABLES = {
    "header with another column": ("model,batch\n", "line 1: the header is 'model,batch'; source,gpu,"),
    "nothing": ("", "line 1: the header is ''"),
    "header alone": (HEADER + "\n", "no rows"),
    "missing cell": (f"{HEADER}\n{','.join(GOOD[:-1])}\n", "line 2: 7 cells; the 8 of the header"),
    "a row twice": (f"{HEADER}\n{','.join(GOOD)}\n{','.join(GOOD)}\n", "line 3: vit on a30-24gb 1g.6gb at batch 8"),
    "open quote": (f'{HEADER}\n"mine\n', "not CSV"),
}


def table(path: Path, *rows: tuple[str, ...]) -> Path:
    path.write_text("\n".join([HEADER, *(",".join(row) for row in rows)]) + "\n")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ProfileTableError) as caught:
        read_profiles(path)
    return str(caught.value)


def test_a_users_row_is_read_in_seconds(tmp_path: Path) -> None:
    profiles = read_profiles(table(tmp_path / "my.csv", GOOD))
    assert profiles.of("a30-24gb", "vit") == (ServiceRow("mine", "a30-24gb", "vit", "1g.6gb", 8, 2, 0.0125, 1200.0),)


@pytest.mark.parametrize("column", BAD_CELLS)
def test_a_malformed_cell_is_refused_naming_file_line_column_and_value(column: str, tmp_path: Path) -> None:
    value, message = BAD_CELLS[column]
    cells = tuple(value if name == column else cell for name, cell in zip(COLUMNS, GOOD, strict=True))
    good = (*GOOD[:4], "4", *GOOD[5:])
    path = table(tmp_path / "my.csv", good, cells)
    assert refusal(path).startswith(f"{path} {message}")


@pytest.mark.parametrize("column", ["batch", "processes", "latency_ms", "throughput_rps"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "", "x"])
def test_no_number_column_takes_anything_but_a_positive_number(column: str, value: str, tmp_path: Path) -> None:
    cells = tuple(value if name == column else cell for name, cell in zip(COLUMNS, GOOD, strict=True))
    assert f"line 2: {column} is {value!r}" in refusal(table(tmp_path / "my.csv", cells))


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_malformed_table_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    text, message = BAD_TABLES[kind]
    path = tmp_path / "my.csv"
    path.write_text(text)
    refused = refusal(path)
    assert message in refused
    assert "\n" not in refused


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    assert "gone.csv: cannot be read" in refusal(tmp_path / "gone.csv")


def test_a_table_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_bytes(b"\xff\xfe")
    assert "not a text file" in refusal(path)


def test_an_unknown_gpu_names_those_that_were_measured() -> None:
    with pytest.raises(ProfileTableError, match=r"no service profiles for the GPU model 'a30-24gb'; it has a100-80gb"):
        shipped_profiles().of("a30-24gb", "resnet50")


def test_an_unknown_model_names_the_nearest_and_all_others() -> None:
    with pytest.raises(ProfileTableError, match=r"did you mean resnet50\?\); it has resnet50, mobilenet-v2"):
        shipped_profiles().of("a100-80gb", "resnet-50")


def test_a_table_made_in_memory_holds_no_combination_twice() -> None:
    row = shipped_profiles().rows[0]
    with pytest.raises(ProfileTableError, match="stands there 2 times"):
        ServiceProfiles("made", (row, row))


def test_a_row_may_say_from_what_it_was_computed(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text(f"{HEADER},derived\n{','.join(GOOD)},by hand\n{','.join((*GOOD[:4], '4', *GOOD[5:]))},\n")
    assert [row.derived for row in read_profiles(path).rows] == ["by hand", ""]
